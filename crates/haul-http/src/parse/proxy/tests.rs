use proptest::prelude::*;

use super::*;

fn target(scheme: WebScheme, host: &str) -> Origin {
    Origin::new(scheme, host, None).unwrap()
}

fn chosen(
    scheme: WebScheme,
    host: &str,
    set: &[(&str, &str)],
) -> Result<Option<Proxy>, ProxyError> {
    proxy_for(&target(scheme, host), |name| {
        set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    })
}

fn of_http(set: &[(&str, &str)]) -> Option<String> {
    chosen(WebScheme::Http, "h", set).unwrap().map(|proxy| proxy.to_string())
}

#[test]
fn the_variable_of_the_scheme_and_lower_case_take_precedence() {
    let lower = ("http_proxy", "http://lower:1");
    let upper = ("HTTP_PROXY", "http://upper:1");
    let all = ("ALL_PROXY", "https://all");
    assert_eq!(of_http(&[]), None);
    assert_eq!(of_http(&[all, upper, lower]).as_deref(), Some("http://lower:1"));
    assert_eq!(of_http(&[all, upper]).as_deref(), Some("http://upper:1"));
    assert_eq!(of_http(&[all]).as_deref(), Some("https://all"));
    assert_eq!(of_http(&[("https_proxy", "http://other:1")]), None);
    // An empty value means no proxy.
    assert_eq!(of_http(&[("http_proxy", ""), all]), None);
    let https = chosen(WebScheme::Https, "h", &[lower, ("HTTPS_PROXY", "p:3128")]).unwrap();
    assert_eq!(https.unwrap().to_string(), "http://p:3128");
}

#[test]
fn a_proxy_header_of_a_cgi_request_is_ignored() {
    let cgi = ("REQUEST_METHOD", "GET");
    assert_eq!(of_http(&[cgi, ("HTTP_PROXY", "http://evil:1")]), None);
    assert_eq!(of_http(&[cgi, ("http_proxy", "good:1")]).as_deref(), Some("http://good:1"));
}

#[test]
fn a_proxy_has_scheme_host_port_and_a_login() {
    let parse = |value| parse("http_proxy", value);
    for (value, shown) in [
        ("proxy", "http://proxy:1080"),
        ("proxy:3128", "http://proxy:3128"),
        ("http://proxy/", "http://proxy:1080"),
        ("http://proxy:80/", "http://proxy"),
        ("HTTPS://Proxy", "https://proxy"),
        ("http://[2001:db8::1]", "http://[2001:db8::1]:1080"),
        ("[2001:db8::1]:3128", "http://[2001:db8::1]:3128"),
        ("socks5://proxy", "socks5://proxy:1080"),
        ("SOCKS5h://[::1]:9050/", "socks5h://[::1]:9050"),
    ] {
        let proxy = parse(value).unwrap();
        assert_eq!(proxy.to_string(), shown, "{value}");
        assert_eq!(proxy.user, None);
    }
    let proxy = parse("http://ada%40corp:ge%3Ahe/im@proxy:3128").unwrap();
    assert_eq!(proxy.user.as_deref(), Some("ada@corp"));
    assert_eq!(proxy.password.as_ref().map(|password| &password[..]), Some("ge:he/im"));
    assert!(!format!("{proxy:?}").contains("he/im"));
    assert_eq!(parse("ada@proxy").unwrap().password, None);
}

#[test]
fn an_invalid_proxy_is_refused_without_repeating_its_value() {
    for (value, error) in [
        ("socks4://geheim:1080", ProxyError::Socks("http_proxy")),
        ("SOCKS://geheim", ProxyError::Socks("http_proxy")),
        ("socks5://geheim@proxy", ProxyError::Login("http_proxy")),
        ("ftp://geheim", ProxyError::Scheme("http_proxy")),
        ("http://", ProxyError::Malformed("http_proxy")),
        ("http://geheim:port", ProxyError::Malformed("http_proxy")),
        ("http://geheim/path", ProxyError::Malformed("http_proxy")),
        ("http://u:%0d%0a@geheim", ProxyError::Malformed("http_proxy")),
        ("http://u:%ff@geheim", ProxyError::Malformed("http_proxy")),
    ] {
        let failed = parse("http_proxy", value).unwrap_err();
        assert_eq!(failed, error, "{value}");
        assert!(!failed.to_string().contains("geheim"));
    }
}

#[test]
fn hosts_of_no_proxy_are_reached_without_one() {
    let list = "localhost, .example.org internal.test. 192.0.2.0/24,2001:db8::/32 [::1]:8080 \
                10.1.2.3 web:81 bad/xx 0.0.0.0/99";
    for (host, port) in [
        ("localhost", 80),
        ("LOCALHOST.", 80),
        ("example.org", 80),
        ("a.b.Example.org", 443),
        ("x.internal.test", 80),
        ("192.0.2.77", 80),
        ("2001:db8:1::2", 80),
        ("::1", 8080),
        ("10.1.2.3", 80),
        ("web", 81),
    ] {
        assert!(bypasses(list, host, port), "{host}:{port}");
        assert!(bypasses("*", host, port));
    }
    for (host, port) in [
        ("notexample.org", 80),
        ("example.org.evil", 80),
        ("192.0.3.1", 80),
        ("2001:db9::1", 80),
        ("::1", 80),
        ("110.1.2.3", 80),
        ("web", 80),
        ("xx", 80),
        ("", 80),
    ] {
        assert!(!bypasses(list, host, port), "{host}:{port}");
        assert!(!bypasses("", host, port));
    }
    assert!(bypasses("0.0.0.0/0,::/0", "8.8.8.8", 1) && bypasses("::/0", "fe80::1%eth0", 1));
    for wrong in ["h:xx", "h:", "h:65536", "[::1]:xx", "[::1]:", "[::1]:65536", "[::1]x"] {
        assert!(!bypasses(wrong, "h", 80) && !bypasses(wrong, "::1", 80), "{wrong}");
    }
    let set = [("http_proxy", "p:1"), ("NO_PROXY", "h")];
    assert_eq!(of_http(&set), None);
}

#[test]
fn a_name_beyond_ascii_is_encoded_for_dns() {
    let set = [("http_proxy", "http://b\u{fc}ro:3128"), ("no_proxy", ".B\u{dc}CHER.example")];
    assert_eq!(of_http(&set).as_deref(), Some("http://xn--bro-hoa:3128"));
    for (host, is_excepted) in [("xn--bcher-kva.example", true), ("xn--bro-hoa", false)] {
        assert_eq!(chosen(WebScheme::Http, host, &set).unwrap().is_none(), is_excepted, "{host}");
    }
}

#[test]
fn a_socks_proxy_has_a_login_and_may_look_up_names() {
    let proxy = parse("all_proxy", "socks5h://ada:ge%3Aheim@proxy:9050").unwrap();
    let login = Some(("ada".to_owned(), Secret::new("ge:heim")));
    assert_eq!(proxy.socks(), Socks5::new("proxy", 9050, login, true));
    assert!(!format!("{proxy:?} {proxy}").contains("heim"));
    let proxy = parse("all_proxy", "socks5://proxy").unwrap();
    assert_eq!(proxy.socks(), Socks5::new("proxy", 1080, None, false));
    assert_eq!(parse("all_proxy", "http://proxy").unwrap().socks(), None);
}

#[test]
fn the_option_overrides_all_variables_except_no_proxy() {
    let set = [("http_proxy", "http://h:1"), ("all_proxy", "http://a:1")];
    let with = |value| [&set[..], &[(OPTION, value)]].concat();
    assert_eq!(of_http(&with("socks5://o")).as_deref(), Some("socks5://o:1080"));
    for none in ["", "none"] {
        assert_eq!(of_http(&with(none)), None);
    }
    let excepted = [&with("http://o")[..], &[("no_proxy", "h")]].concat();
    assert_eq!(of_http(&excepted), None);
}

#[test]
fn ftp_goes_through_socks_proxies_only() {
    let chosen = |set: &[(&str, &str)]| {
        proxy_for_ftp("h", 21, |name| {
            set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
        .map(|proxy| proxy.map(|proxy| proxy.to_string()))
    };
    assert_eq!(chosen(&[("all_proxy", "http://p:1"), ("http_proxy", "socks5://p")]), Ok(None));
    assert_eq!(chosen(&[("ftp_proxy", "http://p:1"), ("all_proxy", "socks5://p")]), Ok(None));
    let socks = Ok(Some("socks5h://p:1080".to_owned()));
    assert_eq!(chosen(&[("ALL_PROXY", "socks5h://p")]), socks);
    assert_eq!(chosen(&[("ALL_PROXY", "socks5h://p"), ("no_proxy", "h:21")]), Ok(None));
    assert_eq!(chosen(&[(OPTION, "socks5h://p"), ("ftp_proxy", "")]), socks);
    assert_eq!(chosen(&[(OPTION, "http://p")]), Err(ProxyError::NotForFtp(OPTION)));
}

proptest! {
    #[test]
    fn any_text_is_parsed_without_panic(value in "(http://|socks5:|[@:/\\[\\]%,. *]|::1|1|h|\\PC){0,12}") {
        drop(chosen(WebScheme::Http, "::1", &[("http_proxy", &value), ("no_proxy", &value)]));
        let _ = bypasses(&value, &value, 80);
    }
}
