use proptest::prelude::*;

use super::*;

fn parse_one(header: &str) -> Vec<Challenge> {
    parse([header.as_bytes()])
}

fn basic(realm: &str) -> Challenge {
    Challenge::Basic { realm: Some(realm.to_owned()), utf8: false }
}

fn unsupported(scheme: &str) -> Challenge {
    Challenge::Unsupported { scheme: scheme.to_owned() }
}

#[test]
fn one_challenge_of_each_kind_is_read() {
    assert_eq!(parse_one("Basic realm=\"a b\""), [basic("a b")]);
    assert_eq!(parse_one("basic REALM=x"), [basic("x")]);
    assert_eq!(
        parse_one("Basic realm=\"a \\\"b\\\", c\", charset=\"UTF-8\""),
        [Challenge::Basic { realm: Some("a \"b\", c".to_owned()), utf8: true }]
    );
    assert_eq!(parse_one("Basic"), [Challenge::Basic { realm: None, utf8: false }]);
    assert_eq!(
        parse_one("Bearer realm=\"x\", error=\"invalid_token\", error_description=\"old\""),
        [Challenge::Bearer { realm: Some("x".into()), error: Some("invalid_token".into()) }]
    );
    assert_eq!(parse_one("Negotiate"), [unsupported("Negotiate")]);
    assert_eq!(parse_one("NTLM TlRMTVNTUAACAAAA/+=="), [unsupported("NTLM")]);
}

#[test]
fn a_digest_challenge_is_read_as_in_rfc_7616() {
    let header = "Digest realm=\"http-auth@example.org\", qop=\"auth, auth-int\", \
        algorithm=SHA-256, nonce=\"7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v\", \
        opaque=\"FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS\", stale=TRUE, userhash=true";
    let [Challenge::Digest(digest)] = &parse_one(header)[..] else { panic!("{header}") };
    assert_eq!(digest.realm, "http-auth@example.org");
    assert_eq!(digest.algorithm, Algorithm::Sha256);
    assert!(digest.qop_auth && digest.stale && digest.userhash);
    assert_eq!(digest.opaque.as_deref(), Some("FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"));
    // Unsupported variants are reported, not left out.
    for header in [
        "Digest realm=\"a\", nonce=\"b\", qop=\"auth-int\"",
        "Digest realm=\"a\", nonce=\"b\", algorithm=SHA-512-256, qop=auth",
    ] {
        assert_eq!(parse_one(header), [unsupported("Digest")], "{header}");
    }
    assert_eq!(parse_one("Digest realm=\"a\", qop=auth"), []);
}

#[test]
fn several_challenges_in_one_or_more_headers_are_separated() {
    let expected = [unsupported("Newauth"), basic("simple")];
    // The example of RFC 9110, section 11.6.1, both as it is and the other way round.
    let first = "Newauth realm=\"apps\", type=1, title=\"Login to \\\"apps\\\"\"";
    let header = format!("{first}, Basic realm=\"simple\"");
    assert_eq!(parse_one(&header), expected);
    assert_eq!(parse([first.as_bytes(), b"Basic realm=\"simple\""]), expected);
    assert_eq!(
        parse_one(&format!("Basic realm=\"simple\" , ,{first}")),
        [expected[1].clone(), expected[0].clone()]
    );
    assert_eq!(
        parse_one("Negotiate, NTLM, Negotiate abc==, Basic realm=x"),
        [unsupported("Negotiate"), unsupported("NTLM"), unsupported("Negotiate"), basic("x")]
    );
    let both = parse_one(
        "Digest realm=\"a\", nonce=\"n\", algorithm=MD5, qop=\"auth\", Digest realm=\"a\", \
         nonce=\"n\", algorithm=SHA-256, qop=\"auth\", Basic realm = \"a\"",
    );
    let best = both.iter().max_by_key(|challenge| challenge.strength()).unwrap();
    assert_eq!((both.len(), best.strength()), (3, Some(3)));
}

#[test]
fn a_malformed_challenge_ends_its_header() {
    assert_eq!(
        parse_one("Basic realm=\"unclosed, Digest"),
        [Challenge::Basic { realm: None, utf8: false }]
    );
    assert_eq!(parse_one("realm=x"), []);
    assert_eq!(parse_one("\"x\" Basic"), []);
    assert_eq!(parse([&b"Basic realm=\"\xe9\""[..]]), [basic("\u{e9}")]);
    assert_eq!(parse([&[b'a'; LONGEST + 1][..]]), []);
}

proptest! {
    #[test]
    fn any_header_is_parsed_without_panic(
        header in "(Basic|Digest|realm|nonce|algorithm=MD5-sess|[=\",\\\\ ]|x|\\PC){0,30}",
    ) {
        drop(parse_one(&header));
    }
}
