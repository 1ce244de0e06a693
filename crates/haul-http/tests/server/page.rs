//! The HTML page of a directory.

use std::fs;

use crate::site::Site;

#[test]
fn a_directory_is_an_html_page_with_links() {
    let site = Site::start();
    fs::create_dir_all(site.path("sub dir/<b>")).unwrap();
    site.write("sub dir/a&b.txt", vec![0; 1536]);
    site.write("sub dir/.x.haul-part", "");
    let page = site.get("/sub%20dir/");
    let text = page.text();
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
    assert!(text.contains("<a href=\"./a%26b.txt\">a&amp;b.txt</a>"), "{text}");
    assert!(text.contains("<a href=\"./%3Cb%3E/\">&lt;b&gt;/</a>"), "{text}");
    assert!(text.contains("1.5 KiB") && text.contains("title=\"1536 bytes\""), "{text}");
    assert!(text.contains("<title>Index of /sub dir/</title>"), "{text}");
    assert!(text.contains("data-size=\"1536\"") && text.contains("<time datetime=\"20"), "{text}");
    assert!(text.contains("width=device-width") && text.contains("prefers-color-scheme"), "{text}");
    assert!(!text.contains("<script") && !text.contains("haul-part"), "{text}");
    assert!(text.find("&lt;b&gt;/").unwrap() < text.find("a&amp;b.txt").unwrap());
    let head = site.send("HEAD /sub%20dir/", &[], b"");
    assert_eq!(head.header("content-length"), page.header("content-length"));
}

#[test]
fn a_directory_without_a_trailing_slash_is_redirected() {
    let site = Site::start();
    fs::create_dir_all(site.path("a b")).unwrap();
    let response = site.get("/a%20b");
    assert_eq!((response.status, response.header("location")), (301, Some("/a%20b/")));
    // A location with two leading slashes would name another server.
    let response = site.get("//a%20b");
    assert_eq!(response.header("location"), Some("/a%20b/"));
}
