use proptest::prelude::*;

use super::*;
use crate::parse::href::{Origin, WebScheme};

fn base(path: &str) -> Base {
    Base::new(Origin::new(WebScheme::Http, "h", None).unwrap(), path.as_bytes())
}

fn listed(path: &str, page: &str) -> Vec<(String, bool, Option<u64>)> {
    let index = parse(&base(path), page.as_bytes()).unwrap();
    assert_eq!(index.refused, 0, "{page}");
    let entries = index.entries.into_iter();
    entries.map(|one| (String::from_utf8(one.name).unwrap(), one.directory, one.size)).collect()
}

const HTML: &str = "text/html; charset=utf-8";

/// Pages of real servers for the same directory (`fixtures/README.md`), and the size from which on they
/// round (0 for pages without sizes).
const REAL: [(&str, &str, u64); 7] = [
    ("/files/", include_str!("../fixtures/nginx.html"), u64::MAX),
    ("/rounded/files/", include_str!("../fixtures/nginx_rounded.html"), 10_000),
    ("/plain/files", include_str!("../fixtures/apache_plain.html"), 0),
    ("/fancy/files/", include_str!("../fixtures/apache_fancy.html"), 973),
    ("/table/files/", include_str!("../fixtures/apache_table.html"), 973),
    ("/files/", include_str!("../fixtures/python.html"), 0),
    ("/files/", include_str!("../fixtures/rclone.html"), u64::MAX),
];

#[test]
fn real_pages_list_the_same_files_without_rounded_sizes() {
    let long = "a_very_long_name_that_is_cut_off_in_the_text_of_an_index_because_it_is_too_long_for_the_column.txt";
    for (path, page, exact_below) in REAL {
        assert!(is_index(HTML, &base(path), page.as_bytes()), "{path}");
        let mut found = listed(path, page);
        found.retain(|(name, ..)| name != ".hidden");
        found.sort();
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
        ]
        .map(|(name, size)| {
            let is_directory = size.is_none();
            (name.to_owned(), is_directory, size.filter(|size| *size < exact_below))
        });
        assert_eq!(found, expected, "{path}");
    }
}

/// Formerly, a long page without a title was not recognised if the examined part ended within an escape in a link.
#[test]
fn a_long_page_is_recognised_wherever_the_examined_part_ends() {
    for padding in 0..40 {
        let link = "<a href=\"a%20b\">a b</a>\n";
        let page = format!("<pre>\n{}{}", " ".repeat(padding), link.repeat(PREFIX / 10));
        assert!(is_index(HTML, &base("/files/"), page.as_bytes()), "{padding}");
    }
}

#[test]
fn a_date_is_used_only_with_seconds_and_zone() {
    let (path, page, _) = REAL[6];
    let index = parse(&base(path), page.as_bytes()).unwrap();
    for entry in index.entries.iter().filter(|entry| entry.name != b".hidden") {
        assert_eq!(entry.modified.unwrap().seconds, 1_709_210_096);
    }
    let (path, page, _) = REAL[0];
    let index = parse(&base(path), page.as_bytes()).unwrap();
    assert!(index.entries.iter().all(|entry| entry.modified.is_none()));
}

#[test]
fn pages_of_lighttpd_and_caddy_are_read() {
    let lighttpd = r#"<!DOCTYPE html><html><head><title>Index of /d/</title></head><body>
        <h2>Index of /d/</h2><div class="list"><table summary="Directory Listing"><tbody>
        <tr class="d"><td class="n"><a href="../">..</a>/</td><td class="m">&nbsp;</td></tr>
        <tr class="d"><td class="n"><a href="sub/">sub</a>/</td>
        <td class="m">2024-Feb-29 12:34:56</td><td class="s">- &nbsp;</td></tr>
        <tr><td class="n"><a href="a%20b">a b</a></td><td class="m">2024-Feb-29 12:34:56</td>
        <td class="s">1.5K</td><td class="t">text/plain</td></tr></tbody></table></div>
        <div class="foot">lighttpd/1.4.69</div></body></html>"#;
    assert!(is_index(HTML, &base("/d/"), lighttpd.as_bytes()));
    let expected = [("sub".to_owned(), true, None), ("a b".to_owned(), false, None)];
    assert_eq!(listed("/d/", lighttpd), expected);

    let caddy = r#"<!DOCTYPE html><html><head><title>d</title><style>a{}</style></head>
        <body onload="initPage()"><header><h1><a href="../">h</a>/<a href="">d</a></h1></header>
        <a href="?sort=namedirfirst&order=desc" class="icon">x</a>
        <table><tr class="file"><td></td><td><a href="./sub/"><svg></svg><span>sub</span></a></td>
        <td>&mdash;</td><td class="timestamp"><time datetime="2024-02-29T12:34:56Z">x</time></td></tr>
        <tr class="file"><td></td><td><a href="./a%20b"><svg></svg><span>a b</span></a></td>
        <td class="size" data-size="1536"><div>1.5 KiB</div></td>
        <td class="timestamp"><time datetime="2024-02-29T12:34:56Z">x</time></td></tr></table>
        <footer>Served with <a href="https://caddyserver.com">Caddy</a></footer></body></html>"#;
    assert!(is_index(HTML, &base("/d/"), caddy.as_bytes()));
    let expected = [("sub".to_owned(), true, None), ("a b".to_owned(), false, Some(1536))];
    assert_eq!(listed("/d/", caddy), expected);
    let index = parse(&base("/d"), caddy.as_bytes()).unwrap();
    assert_eq!(index.entries[1].modified.unwrap().seconds, 1_709_210_096);
}

#[test]
fn a_document_is_not_an_index() {
    for (content_type, page) in [
        (HTML, "<title>Index of refraction</title><a href=\"a\">a</a>"),
        (HTML, "<title>My page</title><h1>Index of /x</h1>"),
        (HTML, "<!-- <title>Index of /</title> --><p>x"),
        (HTML, "<script>'<title>Index of /</title>'</script>"),
        (HTML, ""),
        ("text/plain", "<title>Index of /</title>"),
        ("", "<title>Index of /</title>"),
        ("application/json", "[]"),
    ] {
        assert!(!is_index(content_type, &base("/d/e/"), page.as_bytes()), "{page}");
    }
    assert!(is_index("Text/HTML", &base("/d/"), b"<TITLE>\nIndex of &#x2f;a</TITLE>"));
}

#[test]
fn a_page_about_its_directory_is_not_an_index() {
    let path = "/docs/linux/";
    for page in [
        "<title>My page about linux</title><a href=\"a\">a</a> Read it.",
        "<title>Files in linux</title><a href=\"a\">a</a> What files are.",
        "<title>Linux</title><h1>docs/linux</h1><p>Welcome. <a href=\"install.html\">Install</a> it.",
        "<title>Project</title><a href=\"install.html\">Install</a> <a href=\"https://x/\">more</a>",
        "<title>App</title><div id=app></div><script src=app.js></script>",
        "<a href=\"a.html\">Next</a><form><input></form>",
        "<pre>Hello.</pre>",
        "<p></p>",
    ] {
        assert!(!is_index(HTML, &base(path), page.as_bytes()), "{page}");
    }
}

/// Formerly, the pages of these servers were not recognised as listings.
#[test]
fn pages_of_other_servers_are_read() {
    let file = "<a href=\"a.txt\">a.txt</a>";
    for (path, page) in [
        (
            "/iis/",
            "<title>h - /iis/</title><H1>h - /iis/</H1><hr><pre><A HREF=\"/\">[To Parent \
          Directory]</A><br> 1/31/2024  3:05 PM   &lt;dir&gt; <A HREF=\"/iis/a.txt\">a.txt</A>",
        ),
        ("/go/", &format!("<!doctype html>\n<meta name=\"viewport\">\n<pre>\n{file}\n</pre>")),
        (
            "/tomcat/",
            "<title>Directory Listing For [/tomcat/]</title><table><tr><td>\
          <a href=\"/tomcat/a.txt\"><tt>a.txt</tt></a></td></tr></table> Apache Tomcat",
        ),
        (
            "/artifactory/",
            &format!(
                "<title>Index of artifactory</title><h1>Index of artifactory\
          </h1><pre><a href=\"../\">../</a>\n{file}  01-Jan-2025 00:00  2 bytes\n</pre>"
            ),
        ),
        ("/repo/x/", &format!("<title>Index of repo/x</title>{file} Artifactory server")),
        (
            "/mini_httpd/",
            &format!("<TITLE>Index of ./mini_httpd/</TITLE><A HREF=\".\">. </A>{file}"),
        ),
        ("/darkhttpd/", &format!("<title>/darkhttpd/</title><h1>/darkhttpd/</h1>{file} darkhttpd")),
        ("/webfs/", &format!("<title>listing: /webfs/</title>{file} served by webfs")),
        (
            "/web/fs/",
            &format!(
                "<h1>listing: <a href=\"/\">/</a><a href=\"/web/\">web/</a>\
          <a href=\"/web/fs/\">fs/</a></h1>{file} served by webfs"
            ),
        ),
        ("/a/serve/", &format!("<title>Files within serve/</title>{file} powered by serve")),
        ("/pub/x/", &format!("<title>H:80/pub/x/</title>{file} some server")),
        ("/", &format!("<title>h - /</title>{file} some server")),
    ] {
        assert!(is_index(HTML, &base(path), page.as_bytes()), "{page}");
        let names: Vec<_> = listed(path, page).into_iter().map(|(name, ..)| name).collect();
        assert_eq!(names, ["a.txt"], "{page}");
    }
    assert!(is_index(HTML, &base("/go/"), b"<!doctype html>\n<pre>\n</pre>\n"), "no entries");
}

/// Formerly, such a name was left out, and the exit status was 0 nevertheless.
#[test]
fn a_name_with_a_question_mark_or_hash_is_recognised_by_its_text() {
    let page = "<a href=\"?N=D\">Name</a> <a href=\"what%20now?.txt\">what now?.txt</a> \
                <a href=\"c#1.txt\"><b>c#1</b>.txt</a><a href='a?b&amp;c.txt'>a?b&amp;c..&gt;</a>\
                <a href=\"get.php?file=x\">get.php</a><a href=\"a.txt#part\">Part</a>\
                <a href=\"a.txt?download=1\"><img></a><a href='x?y.txt'>x?y.txt";
    let names: Vec<_> = listed("/d/", page).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["what now?.txt", "c#1.txt", "a?b&c.txt", "x?y.txt"]);
}

#[test]
fn links_are_found_in_any_spelling() {
    let names = |page: &str| -> Vec<String> {
        listed("/d/", page).into_iter().map(|(name, ..)| name).collect()
    };
    assert_eq!(
        names("<A HREF=a>x</A><a\nhref = 'b'>x</a><a class=x href=\"c\" id=y>x"),
        ["a", "b", "c"]
    );
    assert_eq!(names("<a data-href=no href='a&amp;b&#39;&#x63;&eacute;'>"), ["a&b'c&eacute;"]);
    assert_eq!(names("<a title='>' href=a><a title=it's href=b>"), ["a", "b"]);
    assert_eq!(names("<a href='/d/a'><a href='http://h/d/b/'><a href='//h/d/c'>"), ["a", "b", "c"]);
    assert_eq!(names("<a href='a'><img></a> <a href='%61'>a</a><a href='a/'>"), ["a"]);
    assert_eq!(names("<!-- <a href=x> --><a href=a><style><a href=y></style><a name=z>"), ["a"]);
    let elsewhere = "<a href='..'><a href='?C=N'><a href='/e'><a href='http://x/d/a'><a href='#t'>\
                     <a href='javascript:x()'><a href=''><a href='b/c'><a href='.'><a href";
    assert_eq!(names(elsewhere), [""; 0]);
    let refused = parse(&base("/d"), b"<a href='a%2fb'><a href='100%'><a href='%00'>").unwrap();
    assert_eq!(refused, Index { entries: Vec::new(), refused: 3 });
}

#[test]
fn a_size_belongs_to_its_own_entry() {
    // The second has no size, and must not get that of the third.
    let page = "<pre><a href=a>a</a> 29-Feb-2024 12:34  10\n<a href=b>b</a>\n\
                <a href=c>12:34 77</a> 29-Feb-2024 12:34  30\n</pre>";
    let sizes: Vec<_> = listed("/", page).into_iter().map(|(_, _, size)| size).collect();
    assert_eq!(sizes, [Some(10), None, Some(30)]);
}

#[test]
fn a_long_page_takes_linear_time() {
    for piece in ["<a href='", "<!--", "<title", "&#", "<a b='", "<script>", "<", "<a a a a "] {
        let page = piece.repeat((2 << 20) / piece.len());
        let started = std::time::Instant::now();
        let _ = parse(&base("/"), page.as_bytes());
        assert!(started.elapsed().as_secs() < 10, "{piece}");
    }
    assert_eq!(parse(&base("/"), &vec![0; LONGEST + 1]), Err(IndexError::TooLong));
}

proptest! {
    #[test]
    fn every_name_is_one_component(page in "(<a href=['\"]?|[>'\"/.%20fab]|&amp;|&#47;|</a>|\\PC){0,30}") {
        for entry in parse(&base("/"), page.as_bytes()).unwrap().entries {
            prop_assert!(haul_storage::RelPath::root().join(&entry.name).is_ok());
        }
    }

    #[test]
    fn any_bytes_are_parsed_without_panic(page in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(parse(&base("/"), &page));
        let _ = is_index(HTML, &base("/a/b"), &page);
    }
}
