//! Tests of lists of hosts and of arguments that contain one, with a brute-force model of the expansion.

use std::ffi::OsStr;

use proptest::prelude::*;

use super::*;
use crate::Location;

fn expanded(text: &str) -> Vec<String> {
    HostList::parse(text).unwrap().iter().collect()
}

fn error(text: &str) -> String {
    HostList::parse(text).unwrap_err().to_string()
}

#[test]
fn every_form_of_list_is_expanded_in_order() {
    let forms: [(&str, &[&str]); 9] = [
        ("a", &["a"]),
        ("a,b,c[1-3]", &["a", "b", "c1", "c2", "c3"]),
        ("node[08-11]", &["node08", "node09", "node10", "node11"]),
        ("n[1,3,5-6]", &["n1", "n3", "n5", "n6"]),
        ("r[1-2]n[01-02]", &["r1n01", "r1n02", "r2n01", "r2n02"]),
        ("[1-2].lan", &["1.lan", "2.lan"]),
        ("n[98-101]", &["n98", "n99", "n100", "n101"]),
        ("n[001,7]x", &["n001x", "n7x"]),
        ("[fe80::1],[::1]", &["[fe80::1]", "[::1]"]),
    ];
    for (text, expected) in forms {
        assert_eq!(expanded(text), expected, "{text}");
        assert_eq!(HostList::parse(text).unwrap().len(), expected.len() as u64, "{text}");
    }
}

#[test]
fn an_invalid_list_is_refused_with_its_position() {
    let cases = [
        ("", 1, "a host is missing"),
        ("a,,b", 3, "a host is missing"),
        ("a,", 3, "a host is missing"),
        ("n[1-3", 2, "'[' without ']'"),
        ("n1-3]", 5, "']' without '['"),
        ("n[]", 3, "a number is missing"),
        ("n[1,]", 5, "a number is missing"),
        ("n[1-]", 5, "a number is missing"),
        ("n[-3]", 3, "a number is missing"),
        ("n[1-3-5]", 6, "brackets hold numbers"),
        ("n[[1]]", 3, "a number is missing"),
        ("n[9-3]", 3, "ends before it begins"),
        ("n[1-010]", 5, "the same number of digits"),
        ("n[1234567890123456789]", 3, "too long"),
        ("n[1-65537]", 2, "more than 65 536 hosts"),
        ("n[1-300]m[1-300]", 1, "more than 65 536 hosts"),
        ("n[1-65536],one", 12, "more than 65 536 hosts"),
        ("n[0-999999999999999999][0-999999999999999999]", 2, "more than 65 536 hosts"),
        ("ä b", 2, "no spaces"),
        ("ada@b", 4, "'@'"),
    ];
    for (text, at, cause) in cases {
        let error = HostList::parse(text).unwrap_err();
        assert!(error.to_string().contains(cause), "{text}: {error}");
        assert_eq!(error.position(), at, "{text}: {error}");
    }
    assert!(error(&"x".repeat(254)).contains("253"));
    assert!(error(&format!("{}[10-12]", "x".repeat(252))).contains("253"));
    assert_eq!(expanded("n[1-65536]").len(), 65_536);
}

#[test]
fn a_file_has_one_list_per_line_and_comments() {
    let list = HostList::parse_lines("# rack 1\nn[1-2]\n\n  b , # spare\n").unwrap_err();
    assert_eq!(
        list.to_string(),
        "line 4: 'b ,', character 2: the name of a host has no spaces, control characters, '/' or '@'"
    );
    let list = HostList::parse_lines("# rack 1\r\nn[1-2]\r\n\n  b,c  # spare\n").unwrap();
    assert_eq!(list.iter().collect::<Vec<_>>(), ["n1", "n2", "b", "c"]);
    assert!(HostList::parse_lines("# nobody\n").unwrap().is_empty());
    assert!(HostList::parse_lines("n[1-60000]\nm[1-60000]\n").is_err());
}

fn found(argument: &str) -> Option<Vec<String>> {
    let many = ManyHosts::find(OsStr::new(argument))?;
    let shown = |host: String| many.with(&host).into_string().unwrap();
    Some(many.hosts().unwrap().iter().map(shown).collect())
}

#[test]
fn a_list_is_found_in_place_of_the_host_of_a_location() {
    let forms: [(&str, &[&str]); 8] = [
        ("n[1-2]:/dir/", &["n1:/dir/", "n2:/dir/"]),
        ("ada@n[1-2]:x", &["ada@n1:x", "ada@n2:x"]),
        ("a,b:", &["a:", "b:"]),
        ("a[1]:c[2]:d", &["a1:c[2]:d"]),
        ("sftp://ada@n[1-2]:2222/d[1]/", &["sftp://ada@n1:2222/d[1]/", "sftp://ada@n2:2222/d[1]/"]),
        ("sftp://n[1-2]", &["sftp://n1", "sftp://n2"]),
        ("[1-2]:x", &["1:x", "2:x"]),
        ("[::1],[::2]:x", &["[::1]:x", "[::2]:x"]),
    ];
    for (argument, expected) in forms {
        assert_eq!(found(argument).unwrap(), expected, "{argument}");
    }
}

#[test]
fn an_argument_with_one_host_or_a_path_has_no_list() {
    for argument in [
        "a",
        "a,b",
        "a[1-2]",
        "a[1-2]/x:y",
        "./n[1-2]:x",
        "/n[1-2]:x",
        "host:x[1-2]",
        "host:a,b",
        "[::1]:x",
        "ada@[fe80::1%eth0]:x",
        "sftp://[fe80::1]/a,b",
        "sftp://ada@[fe80::1]:22/[1-2]",
        "sftp://[host]/x",
        "sftp://host/n[1-2]",
        "[a:b",
        "",
        ":",
    ] {
        assert_eq!(found(argument), None, "{argument}");
    }
}

#[test]
fn a_location_may_omit_its_host() {
    let put = |argument: &str| {
        let many = ManyHosts::find_without_hosts(OsStr::new(argument))?;
        many.with("n1").into_string().ok()
    };
    assert_eq!(put(":/dir/"), Some("n1:/dir/".to_owned()));
    assert_eq!(put("ada@:x"), Some("ada@n1:x".to_owned()));
    assert_eq!(put("sftp://ada@:2222/x"), Some("sftp://ada@n1:2222/x".to_owned()));
    assert_eq!(put("sftp:///x"), Some("sftp://n1/x".to_owned()));
    for argument in ["host:x", "x", "./:x", "dir/:x", "n[1-2]:x", ""] {
        assert_eq!(put(argument), None, "{argument}");
    }
}

/// Formerly, the empty authority of a `file:` URL counted as an omitted host.
#[test]
fn a_file_url_is_a_path_and_omits_no_host() {
    for argument in ["file:///data/x", "FILE:///x", "file://a,b/x", "file://localhost/n[1-2]"] {
        assert_eq!(ManyHosts::find_without_hosts(OsStr::new(argument)), None, "{argument}");
        assert_eq!(ManyHosts::find(OsStr::new(argument)), None, "{argument}");
    }
}

#[test]
fn a_password_before_a_list_is_refused_and_never_printed() {
    for argument in ["sftp://ada:geheim@n[1-2]/x", "sftp://ada:gehe[im@n[1-2]/x"] {
        let Some(many) = ManyHosts::find(OsStr::new(argument)) else { panic!("{argument}") };
        assert!(!format!("{many:?}").contains("gehe"));
        let error = Location::parse(many.with("n1")).unwrap_err().to_string();
        assert!(error.contains("password") && !error.contains("gehe"), "{error}");
    }
}

#[test]
fn a_user_may_stand_only_before_the_list() {
    let many = ManyHosts::find(OsStr::new("ada@a,bob@b:x")).unwrap();
    assert!(many.hosts().unwrap_err().to_string().contains("'@'"));
}

/// The tests' model of a part of a list.
#[derive(Debug, Clone)]
enum ModelPart {
    Text(String),
    Numbers(Vec<(u64, u64, usize)>),
}

fn part() -> impl Strategy<Value = ModelPart> {
    let span = (0_u64..120, 0_u64..6, 1_usize..5).prop_map(|(first, more, width)| {
        // Without a leading zero there is no padding.
        let padded = first.to_string().len() < width;
        (first, first + more, if padded { width } else { 0 })
    });
    prop_oneof![
        "[a-z][a-z.-]{0,4}".prop_map(ModelPart::Text),
        prop::collection::vec(span, 1..4).prop_map(ModelPart::Numbers),
    ]
}

fn write(terms: &[Vec<ModelPart>]) -> String {
    let span = |(first, last, width): &(u64, u64, usize)| match first == last {
        true => format!("{first:0width$}"),
        false => format!("{first:0width$}-{last:0width$}"),
    };
    let part = |part: &ModelPart| match part {
        ModelPart::Text(text) => text.clone(),
        ModelPart::Numbers(spans) => {
            format!("[{}]", spans.iter().map(span).collect::<Vec<_>>().join(","))
        }
    };
    let term = |term: &Vec<ModelPart>| term.iter().map(part).collect::<String>();
    terms.iter().map(term).collect::<Vec<_>>().join(",")
}

/// Expands by brute force: every part multiplies the hosts so far.
fn naive(terms: &[Vec<ModelPart>]) -> Vec<String> {
    let mut all = Vec::new();
    for term in terms {
        let mut hosts = vec![String::new()];
        for part in term {
            let choices: Vec<String> = match part {
                ModelPart::Text(text) => vec![text.clone()],
                ModelPart::Numbers(spans) => spans
                    .iter()
                    .flat_map(|&(first, last, width)| {
                        (first..=last).map(move |number| format!("{number:0width$}"))
                    })
                    .collect(),
            };
            hosts = hosts
                .iter()
                .flat_map(|host| choices.iter().map(move |choice| format!("{host}{choice}")))
                .collect();
        }
        all.extend(hosts);
    }
    all
}

proptest! {
    #[test]
    fn a_list_expands_to_the_same_hosts_as_by_brute_force(
        terms in prop::collection::vec(prop::collection::vec(part(), 1..4), 1..4)
    ) {
        let text = write(&terms);
        let expected = naive(&terms);
        let list = HostList::parse(&text).unwrap();
        prop_assert_eq!(list.len(), expected.len() as u64);
        prop_assert_eq!(list.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn no_text_makes_the_parser_panic_or_grow(text in "[a-c0-9,\\[\\]:@ -]{0,40}|\\PC{0,20}") {
        if let Ok(list) = HostList::parse(&text) {
            prop_assert!(list.len() <= MOST_HOSTS);
            prop_assert_eq!(list.iter().count() as u64, list.len());
        }
        if let Some(many) = ManyHosts::find(OsStr::new(&text)) {
            prop_assert!(many.with("h").len() <= text.len() + 1);
        }
    }
}

#[test]
fn the_query_of_a_url_is_not_a_list_of_hosts() {
    assert_eq!(ManyHosts::find(OsStr::new("https://host?a,b")), None);
    assert_eq!(ManyHosts::find(OsStr::new("https://host/x?a[1-3]")), None);
}
