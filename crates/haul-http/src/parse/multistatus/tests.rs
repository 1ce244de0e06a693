use proptest::prelude::*;

use super::*;

type Outcome = Result<Vec<Resource>, MultistatusError>;

fn parse_chunks<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut parser = Multistatus::new(Limits::default());
    let mut all = Vec::new();
    for chunk in chunks {
        all.extend(parser.push(chunk)?);
    }
    parser.finish()?;
    Ok(all)
}

fn parse(text: &str) -> Outcome {
    parse_chunks([text.as_bytes()])
}

fn response(inner: &str) -> String {
    format!(
        r#"<?xml version="1.0"?><multistatus xmlns="DAV:" xmlns:o="http://owncloud.org/ns">
        <response><href>/a</href>{inner}</response></multistatus>"#
    )
}

fn prop(inner: &str) -> Resource {
    let text = response(&format!(
        "<propstat><prop>{inner}</prop><status>HTTP/1.1 200 OK</status></propstat>"
    ));
    parse(&text).unwrap().remove(0)
}

#[test]
fn a_property_counts_only_with_status_200() {
    let text = response(
        "<propstat><prop><getcontentlength>5</getcontentlength></prop>
         <status>HTTP/1.1 200 OK</status></propstat>
         <propstat><prop><getetag>x</getetag><resourcetype><collection/></resourcetype></prop>
         <status>HTTP/1.1 404 Not Found</status></propstat>",
    );
    let found = parse(&text).unwrap();
    assert_eq!(
        found,
        [Resource {
            href: "/a".into(),
            size: Some(5),
            property_status: Some(404),
            described: true,
            ..Resource::default()
        }]
    );
}

#[test]
fn an_empty_group_with_status_404_means_that_nothing_exists() {
    let failure = |inner: &str| parse(&response(inner)).unwrap()[0].failure();
    let group = |prop: &str, status: &str| {
        format!("<propstat><prop>{prop}</prop><status>HTTP/1.1 {status}</status></propstat>")
    };
    assert_eq!(failure(&group("", "404 Not Found")), Some(404));
    assert_eq!(failure("<status>HTTP/1.1 404 Not Found</status>"), Some(404));
    // A file that has only some of the requested properties, or none.
    assert_eq!(failure(&group("<getetag/>", "404 Not Found")), None);
    assert_eq!(failure(&(group("", "404 Not Found") + &group("", "200 OK"))), None);
    assert_eq!(failure(&group("", "403 Forbidden")), None);
    assert_eq!(failure("<status>HTTP/1.1 200 OK</status>"), None);
    assert_eq!(failure(""), None);
}

#[test]
fn entities_references_and_cdata_are_text() {
    let etag = |text: &str| prop(&format!("<getetag>{text}</getetag>")).etag.unwrap();
    assert_eq!(etag("&quot;a&amp;b&quot;"), "\"a&b\"");
    assert_eq!(etag("&#34;a&#x26;b&#34;"), "\"a&b\"");
    assert_eq!(etag("<![CDATA[\"a&b<c>]]]]><![CDATA[>\"]]>"), "\"a&b<c>]]>\"");
    assert_eq!(etag("\n  \"a\" <!-- no > end --><?pi ?>\n"), "\"a\"");
    let bad = response("<propstat><prop><getetag>&eacute;</getetag></prop></propstat>");
    assert_eq!(parse(&bad), Err(MultistatusError::Malformed("an unknown entity")));
}

#[test]
fn names_are_resolved_by_namespace_and_parent() {
    // The same names in another namespace, and a `href` within a property, must be ignored.
    let found = prop(
        r#"<getetag xmlns="urn:x">other</getetag>
           <current-user-principal><href>/principals/ada</href></current-user-principal>
           <lockdiscovery><activelock><getetag>no</getetag></activelock></lockdiscovery>
           <x:getcontentlength xmlns:x="DAV:">7</x:getcontentlength>
           <y:getetag>unbound</y:getetag>"#,
    );
    assert_eq!((&found.href[..], found.etag, found.size), ("/a", None, Some(7)));
}

#[test]
fn quota_permissions_and_checksums_are_read() {
    let found = prop(
        "<quota-used-bytes>17</quota-used-bytes><quota-available-bytes>-3</quota-available-bytes>
         <o:permissions>RGDNVW</o:permissions>
         <o:checksums><o:checksum>SHA1:aa MD5:bb</o:checksum></o:checksums>",
    );
    assert_eq!((found.quota_used, found.quota_available), (Some(17), None));
    assert_eq!(found.permissions.as_deref(), Some("RGDNVW"));
    assert_eq!(found.checksums, ["SHA1:aa", "MD5:bb"]);
}

#[test]
fn one_status_can_apply_to_several_resources() {
    let text = response("<href>/b</href><status>HTTP/1.1 423 Locked</status>");
    let found = parse(&text).unwrap();
    let found: Vec<_> = found.iter().map(|one| (&one.href[..], one.status)).collect();
    assert_eq!(found, [("/a", Some(423)), ("/b", Some(423))]);
}

#[test]
fn invalid_listings_are_refused() {
    use MultistatusError as E;
    for (text, error) in [
        ("<html><body>hello</body></html>", E::NotMultistatus),
        ("hello <b>", E::NotMultistatus),
        ("<multistatus></multistatus>", E::NotMultistatus),
        ("<!DOCTYPE lolz [<!ENTITY lol \"lol\">]><multistatus/>", E::DocumentType),
        ("<multistatus xmlns=\"DAV:\"><!ENTITY a \"b\"></multistatus>", E::DocumentType),
        ("<multistatus xmlns=\"DAV:\"></response>", E::Malformed("an end tag without a start tag")),
        ("</multistatus>", E::Malformed("an end tag without a start tag")),
        ("<multistatus xmlns=\"DAV:\" a=\"1\" a=\"2\">", E::Malformed("an attribute")),
        ("<multistatus xmlns=\"DAV:\">< a>", E::Malformed("an element without a name")),
        ("<multistatus xmlns=\"DAV:\"><response/></multistatus>", E::MissingHref),
        ("<multistatus xmlns=\"DAV:\"/><a/>", E::Malformed("content after the root element")),
        ("<multistatus xmlns=\"DAV:\"/>more", E::Truncated),
        ("<multistatus xmlns=\"DAV:\">", E::Truncated),
        ("<multistatus xmlns=\"DAV:\"><response><href>/a", E::Truncated),
        ("<multistatus xmlns=\"DAV:\"/><!-- ", E::Truncated),
        ("", E::Truncated),
        ("<?xml version=\"1.0\" encoding=\"UTF-16\"?><a/>", E::Encoding),
        ("<?xml version='1.0' encoding='shift_jis'?><a/>", E::Encoding),
    ] {
        assert_eq!(parse(text), Err(error), "{text}");
    }
    assert_eq!(parse_chunks([&b"\xff\xfe<\0"[..]]), Err(E::Encoding));
    assert_eq!(parse_chunks([&b"<\0a\0"[..]]), Err(E::Encoding));
    assert_eq!(parse_chunks([&b"<multistatus xmlns=\"DAV:\">\xff<a>"[..]]), Err(E::Encoding));
}

#[test]
fn a_byte_order_mark_and_ascii_encodings_are_accepted() {
    let body = "<multistatus xmlns='DAV:'><response><href>/a</href></response></multistatus>\n";
    for head in [
        "\u{feff}",
        "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\" ?>\n",
        "<?xml version='1.0' encoding='ISO-8859-1'?>",
        "<?xml version='1.0' encoding = \"US-ASCII\" standalone='yes'?>",
    ] {
        assert_eq!(parse(&format!("{head}{body}")).map(|all| all.len()), Ok(1), "{head}");
    }
    // Bytes above ASCII have another meaning in Latin-1 than in UTF-8.
    let latin =
        format!("<?xml version='1.0' encoding='ISO-8859-1'?>{body}").replace("/a", "/\u{e9}");
    assert_eq!(parse(&latin), Err(MultistatusError::Encoding));
}

#[test]
fn bytes_depth_and_attributes_are_limited() {
    use MultistatusError as E;
    let mut parser = Multistatus::new(Limits { element_bytes: 200, depth: 4, attributes: 2 });
    let long = format!("<multistatus xmlns='DAV:'><x>{}", "y".repeat(201));
    assert_eq!(parser.push(long.as_bytes()), Err(E::TooLarge("bytes")));
    // An error is final.
    assert_eq!(parser.push(b""), Err(E::TooLarge("bytes")));
    assert_eq!(parser.finish(), Err(E::TooLarge("bytes")));

    let limits = Limits { element_bytes: 200, depth: 4, attributes: 2 };
    let parse = |text: &str| Multistatus::new(limits).push(text.as_bytes());
    let many = format!("<multistatus xmlns='DAV:'><response>{}", "<a></a>".repeat(40));
    assert_eq!(parse(&many), Err(E::TooLarge("bytes")));
    let deep = "<multistatus xmlns='DAV:'><a><a><a><a>";
    assert_eq!(parse(deep), Err(E::TooLarge("depth")));
    assert_eq!(parse("<multistatus xmlns='DAV:' a='1' b='2'>"), Err(E::TooLarge("attributes")));
    // A long listing of short entries is not too large.
    let entry = "<response><href>/a</href></response>";
    let all = format!("<multistatus xmlns='DAV:'>{}</multistatus>", entry.repeat(1000));
    assert_eq!(parse(&all).map(|all| all.len()), Ok(1000));
}

const SAMPLE: &str = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus \
    xmlns:D=\"DAV:\" xmlns:ns0='DAV:'>\n<!-- a > b --><D:response xmlns:lp1=\"DAV:\"><D:href>/r\u{e9}\
    &amp;b</D:href><D:propstat><D:prop><lp1:resourcetype><D:collection/></lp1:resourcetype>\
    <lp1:getetag a='>'><![CDATA[\"x]]y\"]]></lp1:getetag></D:prop><D:status>HTTP/1.1 200 OK\
    </D:status></D:propstat></D:response><D:response><D:href>/b</D:href></D:response>\
    </D:multistatus>\n";

#[test]
fn single_bytes_give_the_same_resources() {
    let whole = parse(SAMPLE).unwrap();
    assert_eq!(whole.len(), 2);
    assert!(whole[0].collection);
    assert_eq!(whole[0].href, "/r\u{e9}&b");
    assert_eq!(whole[0].etag.as_deref(), Some("\"x]]y\""));
    assert_eq!(parse_chunks(SAMPLE.as_bytes().chunks(1)).unwrap(), whole);
}

fn nearly_a_listing() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "<multistatus xmlns='DAV:'>",
        "</multistatus>",
        "<response>",
        "</response>",
        "<href>/a</href>",
        "<propstat>",
        "</propstat>",
        "<prop>",
        "</prop>",
        "<status>HTTP/1.1 200 OK</status>",
        "<getetag>",
        "</getetag>",
        "<a b='>'/>",
        "&amp;",
        "&",
        "<![CDATA[",
        "]]>",
        "<!--",
        "-->",
        "<!",
        "<?",
        "?>",
        "'",
        "\u{e9}",
        "\n",
    ]);
    let cut = any::<prop::sample::Index>();
    (prop::collection::vec(piece, 0..16), cut, any::<bool>()).prop_map(|(pieces, cut, torn)| {
        let text = format!("<multistatus xmlns='DAV:'>{}", pieces.concat()).into_bytes();
        let end = if torn { cut.index(text.len()) } else { text.len() };
        text[..end].to_vec()
    })
}

proptest! {
    #[test]
    fn the_result_does_not_depend_on_chunks(text in nearly_a_listing(), size in 1_usize..20) {
        let whole = parse_chunks([&text[..]]);
        prop_assert_eq!(parse_chunks(text.chunks(size)), whole);
    }

    #[test]
    fn a_changed_byte_gives_the_same_result_in_chunks(
        at in 0..SAMPLE.len(), byte in any::<u8>(), size in 1_usize..9,
    ) {
        let mut text = SAMPLE.as_bytes().to_vec();
        text[at] = byte;
        let whole = parse_chunks([&text[..]]);
        prop_assert_eq!(parse_chunks(text.chunks(size)), whole);
    }

    #[test]
    fn any_bytes_are_parsed_without_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(parse_chunks([&text[..]]));
    }
}

/// Responses of real servers for the same directory (`fixtures/README.md`).
const REAL: [(&str, &str); 4] = [
    ("nginx", include_str!("../fixtures/nginx_dav.xml")),
    ("Apache", include_str!("../fixtures/apache_dav.xml")),
    ("Apache, properties requested by name", include_str!("../fixtures/apache_dav_named.xml")),
    ("rclone", include_str!("../fixtures/rclone_dav.xml")),
];

#[test]
fn responses_of_real_servers_list_the_same_files() {
    use crate::parse::href::{Base, Origin, Target, WebScheme, resolve};
    for (server, text) in REAL {
        let prefix = if server.starts_with("Apache") { "/dav" } else { "" };
        let origin = Origin::new(WebScheme::Http, "127.0.0.1", None).unwrap();
        let base = Base::new(origin, format!("{prefix}/files").as_bytes());
        let mut names = Vec::new();
        for found in parse(text).unwrap() {
            if let Target::Child { name, .. } = resolve(&base, found.href.as_bytes()).unwrap() {
                let name = String::from_utf8(name).unwrap();
                assert_eq!(found.collection, ["empty", "sub dir"].contains(&&name[..]), "{name}");
                assert_eq!(found.size.is_none(), found.collection, "{server}: {name}");
                if name != ".hidden" {
                    assert_eq!(found.modified.unwrap().seconds, 1_709_210_096, "{server}: {name}");
                }
                names.push((name, found.size));
            } else {
                assert!(found.collection, "{server}");
            }
        }
        names.retain(|(name, _)| name != ".hidden");
        names.sort();
        let long = "a_very_long_name_that_is_cut_off_in_the_text_of_an_index_because_it_is_too_long_for_the_column.txt";
        let expected = [
            ("a & b <c> \"d\".txt", Some(1)),
            (long, Some(1)),
            ("empty", None),
            ("hello.txt", Some(5)),
            ("it's 100% a+b;c=d#e?f:g", Some(1)),
            ("kilo.bin", Some(1536)),
            ("mega.bin", Some(3_000_000)),
            ("r\u{e9}sum\u{e9}.pdf", Some(1)),
            ("sub dir", None),
        ];
        assert_eq!(names, expected.map(|(name, size)| (name.to_owned(), size)), "{server}");
        assert_eq!(parse_chunks(text.as_bytes().chunks(7)), parse(text), "{server}");
    }
}
