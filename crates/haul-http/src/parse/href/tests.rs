use proptest::prelude::*;

use super::*;

fn base(path: &str) -> Base {
    let origin = Origin::new(WebScheme::Https, "dav.example.org", None).unwrap();
    Base::new(origin, path.as_bytes())
}

fn child(name: &str, slash: bool) -> Result<Target, HrefError> {
    Ok(Target::Child { name: name.as_bytes().to_vec(), slash })
}

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

#[test]
fn a_link_to_the_directory_itself_is_recognised_in_any_form() {
    for href in [
        "/a b/",
        "/a b",
        "/a%20b/",
        "/%61%20%62/",
        "//dav.example.org/a%20b/",
        "https://DAV.example.org:443/a%20b/",
        "https://dav.example.org./a%20b",
        "./",
        ".",
        "/a%20b/.",
        "/a%20b//",
    ] {
        assert_eq!(resolve(&base("/a b/"), href.as_bytes()), Ok(Target::This), "{href}");
    }
    assert_eq!(resolve(&base("/"), b"https://dav.example.org"), Ok(Target::This));
}

#[test]
fn a_link_into_the_directory_gives_a_name() {
    for (href, name, slash) in [
        ("/a%20b/c", "c", false),
        ("/a b/c/", "c", true),
        ("https://dav.example.org/a%20b/c%2Fd".trim_end_matches("%2Fd"), "c", false),
        ("c%20d+e", "c d+e", false),
        ("./c:d", "c:d", false),
        ("c%3Ad", "c:d", false),
        ("/a%20b/r%C3%A9sum%c3%a9", "r\u{e9}sum\u{e9}", false),
        ("/a%20b/r\u{e9}sum\u{e9}", "r\u{e9}sum\u{e9}", false),
        ("100%25", "100%", false),
        ("a%23b%3fc", "a#b?c", false),
        ("...", "...", false),
        ("a&b;c=d@e!$'()*,", "a&b;c=d@e!$'()*,", false),
    ] {
        assert_eq!(resolve(&base("/a b"), href.as_bytes()), child(name, slash), "{href}");
    }
    assert_eq!(
        resolve(&base("/"), b"/%ff"),
        Ok(Target::Child { name: b"\xff".to_vec(), slash: false })
    );
}

#[test]
fn a_link_that_leads_elsewhere_is_an_error() {
    for (href, error) in [
        ("", HrefError::Empty),
        ("http://dav.example.org/a/b", HrefError::OtherServer),
        ("https://dav.example.org:8443/a/b", HrefError::OtherServer),
        ("https://evil.example/a/b", HrefError::OtherServer),
        ("//evil.example/a/b", HrefError::OtherServer),
        ("https://ada@dav.example.org/a/b", HrefError::Credentials),
        ("https:///a/b", HrefError::Malformed),
        ("https:a/b", HrefError::Malformed),
        ("javascript:alert(1)", HrefError::Scheme),
        ("mailto:a@b", HrefError::Scheme),
        ("file:///etc/passwd", HrefError::Scheme),
        ("/b/c", HrefError::Outside),
        ("/", HrefError::Outside),
        ("/ab", HrefError::Outside),
        ("/A/b", HrefError::Outside),
        ("..", HrefError::DotDot),
        ("../", HrefError::DotDot),
        ("/a/../a/b", HrefError::DotDot),
        ("/a/%2e%2E/b", HrefError::DotDot),
        ("/a/.%2e", HrefError::DotDot),
        ("/a/..%2f..%2fetc", HrefError::Separator),
        ("/a%2fb", HrefError::Separator),
        ("b%2Fc", HrefError::Separator),
        ("b%00", HrefError::Nul),
        ("b/c", HrefError::Deeper),
        ("/a/b/c/", HrefError::Deeper),
        ("b%", HrefError::Malformed),
        ("b%zz", HrefError::Malformed),
        ("b\nc", HrefError::Malformed),
        ("?C=N;O=D", HrefError::Query),
        ("b#c", HrefError::Query),
    ] {
        assert_eq!(resolve(&base("/a/"), href.as_bytes()), Err(error), "{href}");
    }
    assert_eq!(resolve(&base("/"), &[b'a'; LONGEST + 1]), Err(HrefError::TooLong));
}

#[test]
fn resolve_path_ignores_the_server_of_a_link() {
    for href in ["http://backend:8080/a/b", "https://x/a/b", "//ada@[::1]:x/a/b", "/a/b", "b"] {
        assert_eq!(resolve_path(&base("/a"), href.as_bytes()), child("b", false), "{href}");
    }
    assert_eq!(resolve_path(&base("/a"), b"http://backend"), Err(HrefError::Outside));
    assert_eq!(resolve_path(&base("/a"), b"ftp://backend/a/b"), Err(HrefError::Scheme));
    assert_eq!(resolve_path(&base("/a"), b"http://backend/a/../b"), Err(HrefError::DotDot));
}

#[test]
fn a_slash_and_nul_in_a_name_stay_encoded() {
    assert_eq!(decode_name(b"a%20b%2fc%00"), Some(b"a b%2fc%00".to_vec()));
    assert_eq!(decode_name(b"%252F"), Some(b"%2F".to_vec()));
    assert_eq!(decode_name(b"a%2"), None);
}

#[test]
fn links_that_differ_only_in_encoding_give_the_same_name() {
    let names: Vec<_> = ["/a/b%7Ec", "/a/b~c", "/%61/%62%7e%63", "b~c"]
        .map(|href| resolve(&base("/a"), href.as_bytes()).unwrap())
        .into();
    assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
}

#[test]
fn a_host_beyond_ascii_is_encoded_for_dns() {
    for (text, host) in [
        ("http://b\u{fc}cher.example/x", "xn--bcher-kva.example"),
        ("https://B\u{dc}CHER.example.:8443/x", "xn--bcher-kva.example"),
        ("http://\u{4f8b}\u{3048}\u{3002}jp", "xn--r8jz45g.jp"),
        ("http://xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("http://a_b.example", "a_b.example"),
    ] {
        assert_eq!(url(text).origin.host(), host, "{text}");
    }
    // Characters that look like a slash, an at sign, a colon, dots; an unassigned code point.
    let wrong = ["a\u{ff0f}b", "a\u{ff20}b", "a\u{ff1a}1", "a\u{3002}\u{3002}b", "\u{378}.example"];
    for host in wrong {
        assert_eq!(Url::parse(&format!("http://{host}/")), Err(HrefError::Malformed), "{host}");
    }
    let base = Base::from_url(&url("http://xn--bcher-kva.example/a/")).unwrap();
    assert_eq!(resolve(&base, "http://b\u{fc}cher.example/a/b".as_bytes()), child("b", false));
}

/// RFC 3986, section 5.4, and a few more. Fragments are dropped.
#[test]
fn references_resolve_as_in_the_examples_of_rfc_3986() {
    let from = url("http://a/b/c/d;p?q");
    for (reference, joined) in [
        ("g", "http://a/b/c/g"),
        ("./g", "http://a/b/c/g"),
        ("g/", "http://a/b/c/g/"),
        ("/g", "http://a/g"),
        ("//g", "http://g/"),
        ("?y", "http://a/b/c/d;p?y"),
        ("g?y", "http://a/b/c/g?y"),
        ("#s", "http://a/b/c/d;p?q"),
        ("g?y#s", "http://a/b/c/g?y"),
        (";x", "http://a/b/c/;x"),
        ("g;x", "http://a/b/c/g;x"),
        ("", "http://a/b/c/d;p?q"),
        (".", "http://a/b/c/"),
        ("./", "http://a/b/c/"),
        ("..", "http://a/b/"),
        ("../", "http://a/b/"),
        ("../g", "http://a/b/g"),
        ("../..", "http://a/"),
        ("../../g", "http://a/g"),
        ("../../../g", "http://a/g"),
        ("/./g", "http://a/g"),
        ("/../g", "http://a/g"),
        ("g.", "http://a/b/c/g."),
        ("..g", "http://a/b/c/..g"),
        ("./g/.", "http://a/b/c/g/"),
        ("g/../h", "http://a/b/c/h"),
        ("g;x=1/../y", "http://a/b/c/y"),
        ("g?y/../x", "http://a/b/c/g?y/../x"),
        ("https://other:8443/x y?\u{e9}", "https://other:8443/x%20y?%C3%A9"),
        ("%2e%2E/g", "http://a/b/g"),
    ] {
        assert_eq!(from.join(reference).unwrap().absolute(), joined, "{reference}");
    }
    for (reference, error) in [
        ("ftp://a/b", HrefError::Scheme),
        ("http://u:p@a/b", HrefError::Credentials),
        ("/a\r\nX: y", HrefError::Malformed),
        ("http://a:99999/", HrefError::Malformed),
        ("http://a b/", HrefError::Malformed),
        ("http:g", HrefError::Malformed),
        ("//....", HrefError::Malformed),
        ("http://a.b../", HrefError::Malformed),
        ("http://.a/", HrefError::Malformed),
    ] {
        assert_eq!(from.join(reference), Err(error), "{reference}");
    }
}

#[test]
fn a_signed_url_is_shown_without_its_signature() {
    let url = url("https://s3.example/b/k?X-Amz-Signature=geheim");
    assert_eq!(url.to_string(), "https://s3.example/b/k?…");
    assert!(!format!("{url:?}").contains("geheim"));
    assert_eq!(url.target(), "/b/k?X-Amz-Signature=geheim");
}

#[test]
fn urls_with_query_escapes_or_zone_are_converted() {
    let base = Base::from_url(&url("https://h/a%20b/?x")).unwrap();
    assert_eq!(resolve(&base, b"/a%20b/c"), child("c", false));
    let encoded = Base::from_url(&url("https://h/a%2fb/")).unwrap();
    assert_eq!(resolve(&encoded, b"/a%2Fb/c"), child("c", false));
    assert_eq!(resolve(&encoded, b"/a/b/c"), Err(HrefError::Outside));
    let origin = Origin::new(WebScheme::Http, "::1", Some(8080)).unwrap();
    let url = Url::new(origin, b"/a b/100%?\xff", Some("k=%2F")).unwrap();
    assert_eq!(url.absolute(), "http://[::1]:8080/a%20b/100%25%3F%FF?k=%2F");
    let local = Origin::new(WebScheme::Http, "fe80::1%eth0", None).unwrap();
    assert_eq!((local.host(), &local.authority()[..]), ("fe80::1%eth0", "[fe80::1]"));
}

proptest! {
    #[test]
    fn decoding_reverses_encoding(name in prop::collection::vec(any::<u8>(), 0..40)) {
        let text = encode_path(&name);
        prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
        prop_assert_eq!(decode(text.as_bytes()), Some(name));
    }

    #[test]
    fn a_name_survives_being_listed(name in "[^\0/]{1,20}") {
        prop_assume!(name != "." && name != "..");
        let href = format!("/a%20b/{}", encode_path(name.as_bytes()));
        prop_assert_eq!(resolve(&base("/a b"), href.as_bytes()), child(&name, false));
    }

    #[test]
    fn every_name_is_one_component(href in "(/|a|b|%2[eEfF5]|%00|\\.|:|http:|//h|%4|\\PC){0,12}") {
        if let Ok(Target::Child { name, .. }) = resolve(&base("/"), href.as_bytes()) {
            prop_assert!(haul_storage::RelPath::root().join(&name).is_ok(), "{name:?}");
        }
    }

    #[test]
    fn any_bytes_are_parsed_without_panic(href in prop::collection::vec(any::<u8>(), 0..60)) {
        drop(resolve(&base("/a"), &href));
        if let Ok(text) = std::str::from_utf8(&href)
            && let Ok(joined) = url("http://h/a/b?c").join(text)
        {
            prop_assert!(joined.target().starts_with('/'));
            prop_assert!(joined.target().bytes().all(|byte| byte.is_ascii_graphic()));
            let host = joined.origin.host().split('%').next().unwrap_or_default().to_owned();
            let sent = Origin::new(joined.origin.scheme(), &host, Some(joined.origin.port()));
            prop_assert_eq!(Url::parse(&joined.absolute()), sent.map(|origin| joined.on(origin)));
        }
    }
}
