//! Tests of parsing, printing and splitting locations; [`properties`] tests arbitrary ones.

mod properties;

use super::*;
use crate::RelPath;

const TICKET: &str = "haul1abcdefghijklmnopqrstuvwxyz234567";

fn parse(text: &str) -> Location {
    Location::parse(text).unwrap()
}

fn error(text: &str) -> String {
    match Location::parse(text) {
        Err(error) => error.to_string(),
        Ok(location) => panic!("{text} is {location:?}"),
    }
}

fn local(path: &str) -> Location {
    Location::Local(PathBuf::from(path))
}

fn named(name: &str, path: &str) -> Location {
    Location::Named { name: name.to_owned(), path: path.into() }
}

fn peer(path: &str) -> Location {
    Location::Peer { ticket: TicketText::new(TICKET), path: path.into() }
}

fn remote(scheme: Scheme, user: &str, host: &str, port: u16, path: &str) -> Location {
    Location::Remote {
        scheme,
        user: (!user.is_empty()).then(|| user.to_owned()),
        host: host.to_owned(),
        port: (port != 0).then_some(port),
        path: path.into(),
        query: None,
        written: None,
    }
}

fn sftp(user: &str, host: &str, port: u16, path: &str) -> Location {
    remote(Scheme::Sftp, user, host, port, path)
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn paths_servers_and_tickets_are_parsed() {
    use Scheme::{Dav, Davs, Ftp, Ftps, Http, Https};
    let forms = [
        // Local paths.
        ("a", local("a")),
        (".", local(".")),
        ("..", local("..")),
        ("/", local("/")),
        ("a/", local("a/")),
        ("/x:y", local("/x:y")),
        ("./a:b", local("./a:b")),
        ("dir/a:b@c", local("dir/a:b@c")),
        (":a", local(":a")),
        ("/sftp://host/x", local("/sftp://host/x")),
        ("a@b", local("a@b")),
        ("~/x", local("~/x")),
        ("50%", local("50%")),
        ("[::1]", local("[::1]")),
        ("[a:b", local("[a:b")),
        ("haul1", local("haul1")),
        ("haul1.txt", local("haul1.txt")),
        ("haul12345678", local("haul12345678")),
        // Scheme, host, port.
        ("sftp://host/path", sftp("", "host", 0, "/path")),
        ("SFTP://host/path", sftp("", "host", 0, "/path")),
        ("sftp://host:2222/path", sftp("", "host", 2222, "/path")),
        ("sftp://ada@host/path", sftp("ada", "host", 0, "/path")),
        ("sftp://host/", sftp("", "host", 0, "/")),
        ("sftp://host", sftp("", "host", 0, "")),
        ("sftp://host/dir/", sftp("", "host", 0, "/dir/")),
        ("sftp://10.0.0.1/x", sftp("", "10.0.0.1", 0, "/x")),
        ("http://host/x", remote(Http, "", "host", 0, "/x")),
        ("https://host:8443/x/", remote(Https, "", "host", 8443, "/x/")),
        ("https://host", remote(Https, "", "host", 0, "")),
        ("dav://host/x", remote(Dav, "", "host", 0, "/x")),
        ("webdav://host/x", remote(Dav, "", "host", 0, "/x")),
        ("davs://ada@host/x", remote(Davs, "ada", "host", 0, "/x")),
        ("webdavs://host/x", remote(Davs, "", "host", 0, "/x")),
        ("ftp://host:21/x", remote(Ftp, "", "host", 21, "/x")),
        ("ftps://ada@host/x", remote(Ftps, "ada", "host", 0, "/x")),
        // IPv6.
        ("sftp://[::1]/x", sftp("", "::1", 0, "/x")),
        ("sftp://ada@[2001:db8::1]:22/x", sftp("ada", "2001:db8::1", 22, "/x")),
        ("sftp://[fe80::1%eth0]/x", sftp("", "fe80::1%eth0", 0, "/x")),
        ("sftp://[fe80::1%25eth0]/x", sftp("", "fe80::1%eth0", 0, "/x")),
        ("[::1]:x", sftp("", "::1", 0, "x")),
        ("ada@[::1]:/x", sftp("ada", "::1", 0, "/x")),
        // Users.
        ("sftp://ada@example.com@host/x", sftp("ada@example.com", "host", 0, "/x")),
        ("sftp://ada%40example.com@host/x", sftp("ada@example.com", "host", 0, "/x")),
        ("sftp://a%20b@host/x", sftp("a b", "host", 0, "/x")),
        ("ada@example.com@host:x", sftp("ada@example.com", "host", 0, "x")),
        ("100%@host:x", sftp("100%", "host", 0, "x")),
        // Percent-encoding in URLs, and only there.
        ("sftp://host/a%20b%25%2f", sftp("", "host", 0, "/a b%/")),
        ("http://host/%E2%82%AC", remote(Http, "", "host", 0, "/\u{20ac}")),
        ("https://host/a%20b%25%23", remote(Https, "", "host", 0, "/a b%#")),
        ("sftp://host/a@b:c", sftp("", "host", 0, "/a@b:c")),
        ("host:a%20b", named("host", "a%20b")),
        // The home directory.
        ("sftp://host/~", sftp("", "host", 0, "")),
        ("sftp://host/~/", sftp("", "host", 0, "")),
        ("sftp://host/~/x/", sftp("", "host", 0, "x/")),
        ("sftp://host/~//x", sftp("", "host", 0, "x")),
        ("sftp://host/~ada/x", sftp("", "host", 0, "/~ada/x")),
        ("sftp://host/%7E/x", sftp("", "host", 0, "/~/x")),
        ("http://host/~/x", remote(Http, "", "host", 0, "/~/x")),
        // The syntax of scp.
        ("host:", named("host", "")),
        ("host:x", named("host", "x")),
        ("host:/x", named("host", "/x")),
        ("host:~", named("host", "")),
        ("host:~/x", named("host", "x")),
        ("host:~//x", named("host", "x")),
        ("host:./~", named("host", "./~")),
        ("host:a:b", named("host", "a:b")),
        ("host:photo@2x.png", named("host", "photo@2x.png")),
        ("host:a@[b", named("host", "a@[b")),
        ("host:dir/a@b:c", named("host", "dir/a@b:c")),
        ("ada@host:", sftp("ada", "host", 0, "")),
        ("ada@host:x", sftp("ada", "host", 0, "x")),
        ("ada@host:a@b:c", sftp("ada", "host", 0, "a@b:c")),
        ("ada@host:/x/", sftp("ada", "host", 0, "/x/")),
        ("ada@host:~/x", sftp("ada", "host", 0, "x")),
        // Tickets.
        (TICKET, peer("")),
        (&format!("{TICKET}/"), peer("")),
        (&format!("{TICKET}/a/b"), peer("a/b")),
        (&format!("{TICKET}/a/"), peer("a/")),
        (&TICKET.to_uppercase(), peer("")),
        (&format!("{}/A/b", TICKET.to_uppercase()), peer("A/b")),
        (&format!("H{}", &TICKET[1..]), peer("")),
        ("haul2abcdefghijklmnopqrstuvwxyz", local("haul2abcdefghijklmnopqrstuvwxyz")),
        ("haul1-of-2025.tar", local("haul1-of-2025.tar")),
    ];
    for (text, expected) in forms {
        assert_eq!(parse(text), expected, "{text}");
    }
}

#[test]
fn an_invalid_location_is_refused_with_argument_and_cause() {
    let cases = [
        ("", "is empty"),
        ("gopher://host/x", "unknown scheme"),
        ("my_scheme://host/x", "unknown scheme"),
        ("s3://bucket/x", "unknown scheme"),
        ("sftp:///x", "the host is missing"),
        ("sftp://:22/x", "the host is missing"),
        ("sftp://ada@/x", "the host is missing"),
        ("ada@:x", "the host is missing"),
        ("@host:x", "the user name is empty"),
        ("sftp://@host/x", "the user name is empty"),
        ("-oProxyCommand@host:x", "begins with '-'"),
        ("-oProxyCommand=x:y", "not a host name"),
        ("sftp://-x/y", "not a host name"),
        ("sftp://a b/x", "not a host name"),
        ("my file: notes.txt", "write './' before it"),
        ("sftp://host:0/x", "not a port"),
        ("sftp://host:65536/x", "not a port"),
        ("sftp://host:+22/x", "not a port"),
        ("sftp://host:/x", "not a port"),
        ("sftp://host:ssh/x", "not a port"),
        ("sftp://[::1/x", "without ']'"),
        ("sftp://[::1]22/x", "only ':' and a port"),
        ("sftp://[host]/x", "not an IPv6 address"),
        ("sftp://[::1%]/x", "not an IPv6 address"),
        ("sftp://[::1%a b]/x", "not an IPv6 address"),
        ("sftp://::1/x", "the host is missing"),
        ("http://host/50%", "'%25'"),
        ("http://host/%zz", "'%25'"),
        ("http://host/%00", "NUL"),
        ("sftp://a%0ab@host/x", "control characters"),
        ("sftp://a%ff@host/x", "not UTF-8"),
        ("a\0b", "NUL"),
        ("host:a\0b", "NUL"),
    ];
    for (text, cause) in cases {
        let message = error(text);
        assert!(message.contains(cause), "{text}: {message}");
        let shown = text.escape_debug().to_string();
        assert!(message.starts_with(&format!("'{shown}': ")), "{text}: {message}");
    }
}

#[test]
fn a_password_is_refused_and_never_printed() {
    for text in [
        "sftp://ada:geheim@host/x",
        "sftp://ada:geheim@host",
        "sftp://ada:ge/heim@host/x",
        "sftp://ada:ge@heim@host/x",
        "sftp://ada:ge[heim@host/x",
        "sftp://ada:[geheim@host/x",
        "sftp://ada:geheim:geheim@host/x",
        "sftp://:geheim@host/x",
        "sftp://ada%3Ageheim@host/x",
        "sftp://ada%3ageheim@host:22/x",
        "sftp://ada@corp:geheim@host/x",
        "gopher://ada:geheim@host/x",
        "my_scheme://ada:geheim@host/x",
        "http://ada:geheim@host:99999/x",
        "ada:geheim@host:x",
        "ada:ge@heim@host:x",
        "ada:geheim@host:x://y",
        "ada:geheim@[::1]:x",
        "my host:geheim@host/x",
    ] {
        let message = error(text);
        for secret in ["geheim", "ge/heim", "heim@", "ge["] {
            assert!(!message.contains(secret), "{text}: {message}");
        }
        assert!(message.contains("***"), "{text}: {message}");
    }
    let message = error("sftp://ada:geheim@host/x");
    assert!(message.starts_with("'sftp://ada:***@host/x': a password does not belong"));
    // An empty password is refused too: the user thinks that it belongs there.
    assert!(error("sftp://ada:@host/x").contains("password"));
}

#[test]
fn a_ticket_is_never_printed_completely() {
    assert_eq!(parse(TICKET).to_string(), "haul1abcd…");
    assert_eq!(parse(&format!("{TICKET}/a/b")).to_string(), "haul1abcd…/a/b");
    let below = RelPath::parse("c").unwrap();
    assert_eq!(parse(&format!("{TICKET}/a/b")).display(&below).to_string(), "haul1abcd…/a/b/c");
    assert!(!format!("{:?}", parse(TICKET)).contains(&TICKET[..10]));
    // Most of a damaged ticket is still secret.
    for damaged in [
        format!("{}0", TICKET.to_uppercase()),
        format!("{TICKET}."),
        format!("{TICKET} "),
        format!("{TICKET}1"),
        format!("{TICKET}:path"),
        format!("{TICKET}@host:path"),
        format!("haul1abc-{}", "defghijk".repeat(12)),
        format!("haul2{}", "abcdefgh".repeat(12)),
    ] {
        let message = error(&damaged);
        assert!(message.contains("looks like a ticket"), "{message}");
        let shown = message.to_lowercase();
        assert!(!shown.contains(&TICKET[..16]) && !shown.contains(&TICKET[24..]), "{message}");
        assert!(!shown.contains("defghijk"), "{message}");
    }
}

#[test]
fn a_ticket_with_another_address_is_of_the_same_share() {
    let ticket = |secret: &str, addresses: &str| {
        TicketText::new(format!("haul1{}{secret}{addresses}", "a".repeat(60)))
    };
    let (one, other) = ("b".repeat(24), "c".repeat(24));
    assert!(ticket(&one, "dddddddddd").is_of_share(&ticket(&one, "eeeeeeeeee")));
    assert!(!ticket(&one, "dddddddddd").is_of_share(&ticket(&other, "dddddddddd")));
    // These are no whole tickets.
    assert!(TicketText::new(TICKET).is_of_share(&TicketText::new(TICKET)));
    assert!(!TicketText::new(TICKET).is_of_share(&TicketText::new(&TICKET[..30])));
}

#[test]
fn a_query_is_kept_as_written_and_never_printed() {
    let query = |text: &str| match parse(text) {
        Location::Remote { path, query, .. } => (String::from_utf8(path).unwrap(), query),
        other => panic!("{other:?}"),
    };
    for (text, path, written) in [
        (
            "https://host/a%20b?X-Amz-Signature=%2Fgeheim&x=/y",
            "/a b",
            "X-Amz-Signature=%2Fgeheim&x=/y",
        ),
        ("http://host?geheim", "", "geheim"),
        ("http://host/a?geheim#b?c", "/a", "geheim"),
        ("http://host/a?b@c:geheim?", "/a", "b@c:geheim?"),
    ] {
        assert_eq!(query(text), (path.to_owned(), Some(written.to_owned())), "{text}");
        let below = RelPath::parse("x").unwrap();
        let location = parse(text);
        assert!(location.to_string().ends_with("?…"), "{location}");
        assert!(location.display(&below).to_string().ends_with("/x"), "{location}");
        assert!(!location.to_string().contains("geheim"), "{location}");
    }
    // A fragment is dropped; in other URLs, `?` and `#` are part of the path.
    assert_eq!(query("http://host/a#b"), ("/a".to_owned(), None));
    assert_eq!(query("http://host/a%3Fb%23c"), ("/a?b#c".to_owned(), None));
    assert_eq!(query("davs://host/a?b#c"), ("/a?b#c".to_owned(), None));
    assert_eq!(query("sftp://host/a?b#c"), ("/a?b#c".to_owned(), None));
    assert_eq!(parse("http://host/a/b.iso?c=d/e").base_name(), b"b.iso");
    assert!(error("http://host/x?a\u{1}b").contains("the query has control characters"));
    // Errors do not contain the query either.
    for text in [
        "http://host:99999/a?geheim",
        "https://host/%zz?a=geheim&b=c@d",
        "http://host:0/a?b=c@geheim",
        "http://ada:ge@host/?geheim",
        "http://ada:geheim?x@host/",
        "http://ada@host:0/?geheim",
        "ada@host://x/?geheim@",
        "s3://bucket/x?geheim",
    ] {
        assert!(!error(text).contains("geheim"), "{}", error(text));
    }
}

#[test]
fn a_trailing_slash_is_recognized_in_every_form() {
    let ticket = format!("{TICKET}/a/");
    for text in ["a/", "/", "host:a/", "sftp://host/", "sftp://host/~/a/", "http://h/a/", &ticket] {
        assert!(parse(text).has_trailing_slash(), "{text}");
    }
    for text in ["a", "host:", "host:a", "sftp://host", "sftp://host/~/a", TICKET] {
        assert!(!parse(text).has_trailing_slash(), "{text}");
    }
}

#[test]
fn the_base_name_is_the_last_component() {
    for (text, name) in [
        ("a/b", "b"),
        ("a/b/", "b"),
        ("a/b//", "b"),
        ("/", ""),
        (".", ""),
        ("..", ""),
        ("a/..", ""),
        ("~", "~"),
        ("host:", ""),
        ("host:b", "b"),
        ("host:a/b/", "b"),
        ("host:..", ""),
        ("host:a/.", ""),
        ("sftp://host", ""),
        ("sftp://host/", ""),
        ("sftp://host/~", ""),
        ("sftp://host/a/~", "~"),
        (TICKET, ""),
    ] {
        assert_eq!(parse(text).base_name(), name.as_bytes(), "{text}");
    }
}

#[test]
fn a_location_is_printed_in_the_syntax_of_users() {
    for (text, shown) in [
        ("a", "a"),
        ("./a:b", "./a:b"),
        ("SFTP://host/x", "sftp://host/x"),
        ("webdav://host/x", "dav://host/x"),
        ("sftp://host", "sftp://host/~/"),
        ("sftp://host/~/a", "sftp://host/~/a"),
        ("sftp://host/%7e/a", "sftp://host/%7E/a"),
        ("ada@host:a b", "sftp://ada@host/~/a b"),
        ("ada@[fe80::1%eth0]:/a", "sftp://ada@[fe80::1%25eth0]/a"),
        ("http://host:80/a%25%3F%23%0A%FF", "http://host:80/a%25%3F%23%0A%FF"),
        ("http://host/r%C3%A9sum%C3%A9", "http://host/r\u{e9}sum\u{e9}"),
        ("host:a b", "host:a b"),
        ("host:a\nb", "host:a\\012b"),
    ] {
        assert_eq!(parse(text).to_string(), shown);
    }
    // Such paths come from programs; without the `./` they would be parsed as something else.
    for path in ["a:b", "sftp://host/x", TICKET] {
        assert_eq!(local(path).to_string(), format!("./{path}"));
    }
    assert_eq!(local("").to_string(), ".");
}

#[test]
fn a_path_below_a_location_is_printed_in_its_form() {
    let below = RelPath::parse("b/100%").unwrap();
    for (text, shown) in [
        (".", "b/100%"),
        ("/", "/b/100%"),
        ("a", "a/b/100%"),
        ("a/", "a/b/100%"),
        ("host:", "host:b/100%"),
        ("host:a", "host:a/b/100%"),
        ("sftp://host", "sftp://host/~/b/100%25"),
        ("sftp://host/", "sftp://host/b/100%25"),
        ("http://host", "http://host/b/100%25"),
        ("http://host/a", "http://host/a/b/100%25"),
    ] {
        assert_eq!(parse(text).display(&below).to_string(), shown, "{text}");
        assert_eq!(parse(text).display(&RelPath::root()).to_string(), parse(text).to_string());
    }
}

#[test]
fn as_ssh_host_converts_names_and_leaves_other_locations_unchanged() {
    assert_eq!(parse("host:x").as_ssh_host(), sftp("", "host", 0, "x"));
    for text in ["a", "ada@host:x", "http://host/x", TICKET] {
        assert_eq!(parse(text).as_ssh_host(), parse(text));
    }
}

/// Once, `a%2Bb` was sent as `a+b`, which S3 decodes to a space, and `%2F` was refused.
#[test]
fn a_web_path_is_kept_as_written_if_encoding_would_change_it() {
    let parts = |text: &str| match parse(text) {
        Location::Remote { path, written, .. } => (String::from_utf8(path).unwrap(), written),
        other => panic!("{other:?}"),
    };
    let as_written = |path: &str, written: &str| (path.to_owned(), Some(written.to_owned()));
    assert_eq!(parts("https://h/a%2Bb"), as_written("/a+b", "/a%2Bb"));
    assert_eq!(parts("https://h/a%2Fb%2fc/d"), as_written("/a%2Fb%2fc/d", "/a%2Fb%2fc/d"));
    assert_eq!(
        parts("davs://h/%7Eada/%e2%82%ac/"),
        as_written("/~ada/\u{20ac}/", "/%7Eada/%e2%82%ac/")
    );
    assert_eq!(parts("https://h/a%2Bb?c%2Fd"), as_written("/a+b", "/a%2Bb"));
    assert_eq!(parts("https://h/a+b%20c"), ("/a+b c".to_owned(), None));
    assert_eq!(parts("ftp://h/a%2Bb"), ("/a+b".to_owned(), None));
    for text in ["https://h/a%2Bb", "https://h/a%2Fb%2fc/d"] {
        assert_eq!(parse(text).to_string(), text);
    }
    assert_eq!(parse("https://h/a%2Fb").base_name(), b"a%2Fb");
    assert!(error("https://h/a%2").contains("two hexadecimal digits"));
    assert!(error("https://h/a%00").contains("NUL"));
}

#[test]
fn a_host_name_beyond_ascii_is_converted_for_dns() {
    for (text, shown) in [
        ("http://b\u{fc}cher.example/x", "http://xn--bcher-kva.example/x"),
        ("sftp://ada@B\u{dc}CHER.example/x", "sftp://ada@xn--bcher-kva.example/x"),
        ("ada@b\u{fc}cher.example:/x", "sftp://ada@xn--bcher-kva.example/x"),
        ("ftp://\u{4f8b}\u{3048}.jp:2121/", "ftp://xn--r8jz45g.jp:2121/"),
        ("http://Example_1.com/x", "http://Example_1.com/x"),
    ] {
        assert_eq!(parse(text).to_string(), shown);
    }
    let named = parse("b\u{fc}ro:x");
    assert_eq!(named, self::named("b\u{fc}ro", "x"));
    assert_eq!(named.as_ssh_host().to_string(), "sftp://xn--bro-hoa/~/x");
    // A fullwidth slash.
    assert!(error("http://a\u{ff0f}b.example/").contains("not a host name"));
}

#[test]
fn a_location_is_split_into_directory_and_name() {
    let split = |text: &str| {
        let (directory, name) = parse(text).split_name()?;
        Some((directory.to_string(), String::from_utf8(name).unwrap()))
    };
    let is = |directory: &str, name: &str| Some((directory.to_owned(), name.to_owned()));
    assert_eq!(split("a"), is(".", "a"));
    assert_eq!(split("a/b/"), is("a", "b"));
    assert_eq!(split("/a"), is("/", "a"));
    for none in ["/", ".", "..", "a/..", "sftp://h", "sftp://h/", "https://h/a?b=1"] {
        assert_eq!(split(none), None, "{none}");
    }
    assert_eq!(split("sftp://h/a/b"), is("sftp://h/a/", "b"));
    assert_eq!(split("sftp://h/a/"), is("sftp://h/", "a"));
    assert_eq!(split("sftp://h/~/a"), is("sftp://h/~/", "a"));
    assert_eq!(split("https://h/a%2Bb/c"), is("https://h/a%2Bb/", "c"));
    assert_eq!(split("ftp://h/~/a/b//"), is("ftp://h/~/a/", "b"));
}

#[test]
fn trailing_slashes_can_be_removed() {
    let without = |text: &str| parse(text).without_trailing_slash().to_string();
    assert_eq!(without("a//"), "a");
    assert_eq!(without("/"), "/");
    assert_eq!(without("sftp://h/a//"), "sftp://h/a");
    assert_eq!(without("sftp://h//"), "sftp://h/");
    assert_eq!(without("davs://h/a%2Bb//"), "davs://h/a%2Bb");
    assert_eq!(without("nas:a/b/"), "nas:a/b");
    let path = parse("davs://h/a%2Bb//").without_trailing_slash();
    assert_eq!(path.path_bytes(), b"/a+b");
}

#[test]
fn a_spoken_code_is_shown_by_its_number() {
    let ticket = TicketText::new("7-orbit-candle");
    assert_eq!(format!("{ticket:?}"), "7-…");
    let location = Location::Peer { ticket, path: b"a".to_vec() };
    assert_eq!(location.to_string(), "7-…/a");
}
