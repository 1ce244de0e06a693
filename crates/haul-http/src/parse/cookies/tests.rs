use proptest::prelude::*;

use super::*;

const NOW: i64 = 1_800_000_000;

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

fn received(text: &str, from: &str) -> Option<Cookie> {
    Cookie::received(text, &url(from), NOW)
}

/// To which of these URLs a cookie is sent.
fn goes(cookie: &Cookie, to: &[&str]) -> Vec<bool> {
    to.iter().map(|to| cookie.goes_to(&url(to))).collect()
}

#[test]
fn a_cookie_without_a_domain_is_sent_only_to_its_server() {
    let cookie = received("id=geheim", "https://data.example.org/a/b").unwrap();
    assert_eq!((cookie.name(), cookie.value()), ("id", "geheim"));
    assert!(!format!("{cookie:?}").contains("geheim"));
    let to = [
        "https://data.example.org/a",
        "https://data.example.org/a/c?q",
        "https://DATA.example.org:443/a/",
        "https://data.example.org/",
        "https://data.example.org/ab",
        "https://data.example.org:8443/a/b",
        "http://data.example.org/a/b",
        "https://x.data.example.org/a/b",
        "https://example.org/a/b",
    ];
    let first_three = [true, true, true, false, false, false, false, false, false];
    assert_eq!(goes(&cookie, &to), first_three);
}

#[test]
fn a_cookie_with_a_domain_is_sent_to_hosts_below_it() {
    let cookie = received("a=b; Domain=.Example.org; Path=/", "https://x.example.org/p/q").unwrap();
    let to = [
        "https://example.org/",
        "https://y.example.org:8443/z",
        "https://notexample.org/",
        "https://example.org.evil/",
    ];
    assert_eq!(goes(&cookie, &to), [true, true, false, false]);
    for (domain, from) in [
        ("other.org", "https://example.org/"),
        ("x.example.org", "https://example.org/"),
        ("org", "https://example.org/"),
        ("co.uk", "https://example.co.uk/"),
        ("com.au", "https://com.au.example.org/"),
        ("0.0.1", "http://127.0.0.1/"),
        ("example.org.", "https://example.org/"),
        ("..example.org", "https://example.org/"),
    ] {
        let text = format!("a=b; Domain={domain}");
        assert_eq!(received(&text, from), None, "{domain} from {from}");
    }
    // A domain that must not be shared may still be the server's own.
    for (host, below) in [
        ("localhost", "http://x.localhost/"),
        ("127.0.0.1", "http://1.127.0.0.1/"),
        ("co.uk", "http://x.co.uk/"),
    ] {
        let own = format!("http://{host}/");
        let cookie = received(&format!("a=b; Domain={host}"), &own).unwrap();
        assert_eq!(goes(&cookie, &[&own, below]), [true, false]);
    }
    let six = received("a=b; Domain=::1", "http://[::1]/").unwrap();
    assert_eq!(goes(&six, &["http://[::1]/", "http://[::2]/"]), [true, false]);
}

#[test]
fn a_secure_cookie_is_sent_over_tls_or_to_this_machine() {
    let cookie = received("a=b; Secure; Domain=example.org", "https://example.org/").unwrap();
    assert_eq!(goes(&cookie, &["https://example.org/", "http://example.org/"]), [true, false]);
    assert_eq!(received("a=b; Secure", "http://example.org/"), None);
    let cookie = received("a=b; Secure", "http://localhost:8080/").unwrap();
    assert_eq!(goes(&cookie, &["http://localhost:8080/"]), [true]);
    // A cookie received without TLS may be sent over TLS.
    let cookie = received("a=b; Domain=example.org", "http://example.org/").unwrap();
    assert_eq!(goes(&cookie, &["http://example.org/", "https://example.org/"]), [true, true]);
    assert_eq!(received("__Secure-a=b", "https://example.org/"), None);
    assert_eq!(received("__Host-a=b; Secure", "https://example.org/x/y"), None);
    assert!(received("__Host-a=b; Secure; Path=/", "https://example.org/x/y").is_some());
}

#[test]
fn a_cookie_expires_by_its_age_or_date() {
    let from = "https://example.org/";
    let expired = |text: &str, now| received(text, from).unwrap().is_expired(now);
    assert!(!expired("a=b", i64::MAX));
    assert!(!expired("a=b; Max-Age=10", NOW + 9) && expired("a=b; Max-Age=10", NOW + 10));
    assert!(expired("a=b; Max-Age=0", NOW) && expired("a=b; Max-Age=-1", NOW));
    assert!(expired("a=b; Expires=Thu, 01 Jan 1970 00:00:00 GMT", NOW));
    assert!(expired("a=; Expires=Thu, 01-Jan-1970 00:00:10 GMT", NOW));
    assert!(!expired("a=b; expires=Fri, 01 Jan 2100 00:00:00 GMT", NOW));
    // Max-Age takes precedence.
    assert!(!expired("a=b; Expires=Thu, 01 Jan 1970 00:00:00 GMT; Max-Age=99", NOW));
    assert!(!expired("a=b; Expires=whenever", NOW));
}

#[test]
fn malformed_cookies_are_refused() {
    let long = format!("a={}", "x".repeat(LONGEST));
    for text in ["", "a", "=b", ";", "a=b\x01", "a=b\tc", "a\tb=c", &long] {
        assert_eq!(received(text, "https://example.org/"), None, "{text:.20}");
    }
    let cookie =
        received("a=\"b c\"; Path=nowhere; Foo; Bar=1", "https://example.org/x/y").unwrap();
    assert_eq!((cookie.value(), cookie.path()), ("\"b c\"", "/x"));
    assert!(received("a=b;\tPath=/", "https://example.org/x/y").is_some());
}

#[test]
fn files_of_browsers_curl_and_wget_are_read() {
    let text = "# Netscape HTTP Cookie File\n# https://curl.se/docs/http-cookies.html\n\n\
        .example.org\tTRUE\t/\tTRUE\t1900000000\tid\tgeheim\n\
        #HttpOnly_data.example.org\tFALSE\t/d\tFALSE\t0\tsession\ta=b\r\n\
        old.example.org\tFALSE\t/\tFALSE\t1000000000.5\tgone\t\n\
        v.example.org\tFALSE\t/\tFALSE\t0\tempty\n";
    // As written by wget.
    let wget = read(b"h.example.org:81\tFALSE\t/\tFALSE\t0\ta\tb\n").unwrap();
    let to = ["http://h.example.org:81/", "http://h.example.org/"];
    assert_eq!(goes(&wget[0], &to), [true, false]);
    let cookies = read(text.as_bytes()).unwrap();
    let names: Vec<_> = cookies.iter().map(Cookie::name).collect();
    assert_eq!(names, ["id", "session", "gone", "empty"]);
    let to = ["https://example.org/", "https://x.example.org/y", "http://example.org/"];
    assert_eq!(goes(&cookies[0], &to), [true, true, false]);
    let to = ["http://data.example.org:81/d/x", "http://x.data.example.org/d"];
    assert_eq!((goes(&cookies[1], &to), cookies[1].value()), (vec![true, false], "a=b"));
    assert!(cookies[2].is_expired(NOW) && !cookies[1].is_expired(NOW));
    // Written and parsed again, they are equal.
    let lines: String = cookies.iter().filter_map(Cookie::line).collect();
    assert_eq!(read(lines.as_bytes()).unwrap(), cookies);
    assert_eq!(read(b"").unwrap(), []);
}

/// The port used to be missing in the file, so that the cookie was then sent to all ports of the host.
#[test]
fn a_port_other_than_the_default_is_written_to_the_file() {
    for (from, host) in [
        ("http://127.0.0.1:18080/", "127.0.0.1:18080"),
        ("http://[::1]:18080/", "[::1]:18080"),
        ("http://[::1]/", "::1"),
        ("https://h:80/", "h:80"),
        ("https://h/", "h"),
        ("http://h/", "h"),
    ] {
        let line = received("a=b", from).unwrap().line().unwrap();
        assert_eq!(line.split('\t').next(), Some(host), "{from}");
        let again = read(line.as_bytes()).unwrap();
        assert_eq!(goes(&again[0], &[from]), [true], "{from}");
        assert_eq!(again[0].line(), Some(line));
    }
    let line = received("a=b", "http://127.0.0.1:18080/").unwrap().line().unwrap();
    let again = read(line.as_bytes()).unwrap();
    assert_eq!(goes(&again[0], &["http://127.0.0.1:18081/"]), [false]);
}

#[test]
fn an_invalid_line_of_a_file_is_reported_by_number_only() {
    let first = "h\tFALSE\t/\tFALSE\t0\tn\tv\n";
    for line in [
        "geheim",
        "h FALSE / FALSE 0 n geheim",
        "h\tFALSE\t/\tFALSE\tgeheim\tn\tv",
        "h\tgeheim\t/\tFALSE\t0\tn\tv",
        "h\tFALSE\t/\tFALSE\t0\tn\tgeheim; x=y",
        "\tFALSE\t/\tFALSE\t0\tn\tgeheim",
    ] {
        let error = read(format!("{first}{line}\n").as_bytes()).unwrap_err();
        assert_eq!(error, CookieFileError::Line(2), "{line}");
    }
    assert_eq!(read(b"SQLite format 3\0x").unwrap_err(), CookieFileError::NoText);
    assert_eq!(read(b"a\xff").unwrap_err(), CookieFileError::NoText);
}

proptest! {
    #[test]
    fn any_text_is_parsed_without_panic(text in "(a|=|; |Domain=|Path=/|\\.|Max-Age=|9|-|Expires=|\t|TRUE|\n|\\PC){0,16}") {
        drop(received(&text, "https://a.example.org/x/"));
        if let Ok(cookies) = read(text.as_bytes()) {
            for cookie in cookies {
                let _ = cookie.goes_to(&url("https://a.example.org/x/"));
                prop_assert!(cookie.line().is_some());
            }
        }
    }
}
