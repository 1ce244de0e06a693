//! GET and HEAD of files: ranges, versions, headers.

use std::fs;
use std::io::{ErrorKind as Io, Read, Write};
use std::time::{Duration, SystemTime};

use crate::site::Site;

fn digits(length: usize) -> Vec<u8> {
    (0..length).map(|at| b'0' + u8::try_from(at % 10).unwrap()).collect()
}

#[test]
fn a_file_is_sent_whole_with_its_version_headers() {
    let site = Site::start();
    site.write("a.txt", "content");
    let response = site.get("/a.txt");
    assert_eq!((response.status, response.text().as_str()), (200, "content"));
    assert_eq!(response.header("content-length"), Some("7"));
    assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(response.header("accept-ranges"), Some("bytes"));
    assert_eq!(response.header("x-content-type-options"), Some("nosniff"));
    assert!(response.header("etag").unwrap().starts_with('"'));
    assert!(response.header("last-modified").unwrap().ends_with("GMT"));
    let head = site.send("HEAD /a.txt", &[], b"");
    assert_eq!((head.status, head.header("content-length")), (200, Some("7")));
    assert_eq!(head.header("etag"), response.header("etag"));
    assert!(head.body.is_empty());
    assert_eq!(site.get("/none").status, 404);
    assert_eq!(site.get("/a.txt/").status, 404);
    assert_eq!(site.get("/a.txt/b").status, 404);
}

#[test]
fn files_of_sizes_around_block_boundaries_are_sent_whole() {
    const BLOCK: usize = 256 << 10;
    let site = Site::start();
    // Empty, one byte, a block and its neighbours, the whole read-ahead and more.
    for length in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK, 3 * BLOCK + 1, 20 * BLOCK + 7] {
        let content = digits(length);
        site.write("file", &content);
        let response = site.get("/file");
        assert_eq!(response.status, 200);
        assert!(response.body == content, "{length} bytes");
        let tail = site.send("GET /file", &[&format!("Range: bytes={}-", length / 2)], b"");
        match length {
            0 => assert_eq!(tail.status, 416),
            _ => assert!(tail.body == content[length / 2..], "half of {length} bytes"),
        }
    }
}

#[test]
fn ranges_follow_the_standard() {
    let site = Site::start();
    site.write("file", digits(100));
    let cases = [
        ("bytes=0-0", 206, "0", "bytes 0-0/100"),
        ("bytes=95-200", 206, "56789", "bytes 95-99/100"),
        ("bytes=-3", 206, "789", "bytes 97-99/100"),
        ("bytes=100-", 416, "", "bytes */100"),
    ];
    for (range, status, body, content_range) in cases {
        let response = site.send("GET /file", &[&format!("Range: {range}")], b"");
        assert_eq!((response.status, response.text().as_str()), (status, body), "{range}");
        assert_eq!(response.header("content-range"), Some(content_range), "{range}");
    }
    // The standard permits the whole file in response to several ranges.
    let several = site.send("GET /file", &["Range: bytes=0-1,5-6"], b"");
    assert_eq!((several.status, several.body.len()), (200, 100));
    // Only GET has ranges.
    for range in ["bytes=5-9", "bytes=100-"] {
        let head = site.send("HEAD /file", &[&format!("Range: {range}")], b"");
        assert_eq!((head.status, head.header("content-length")), (200, Some("100")), "{range}");
        assert_eq!(head.header("content-range"), None, "{range}");
    }
}

#[test]
fn conditional_requests_compare_versions() {
    let site = Site::start();
    site.write("file", "first");
    let old = SystemTime::now() - Duration::from_secs(100);
    fs::File::options().write(true).open(site.path("file")).unwrap().set_modified(old).unwrap();
    let first = site.get("/file");
    let (etag, date) = (first.header("etag").unwrap(), first.header("last-modified").unwrap());
    for header in [format!("If-None-Match: {etag}"), format!("If-Modified-Since: {date}")] {
        let response = site.send("GET /file", &[&header], b"");
        assert_eq!((response.status, response.body.len()), (304, 0), "{header}");
        assert_eq!(response.header("etag"), Some(etag));
    }
    for version in [etag, date] {
        let response =
            site.send("GET /file", &["Range: bytes=1-", &format!("If-Range: {version}")], b"");
        assert_eq!((response.status, response.text().as_str()), (206, "irst"), "{version}");
    }
    // Same size and time, but another file.
    site.write("new", "other");
    fs::File::options().write(true).open(site.path("new")).unwrap().set_modified(old).unwrap();
    fs::rename(site.path("new"), site.path("file")).unwrap();
    let response = site.send("GET /file", &["Range: bytes=1-", &format!("If-Range: {etag}")], b"");
    assert_eq!((response.status, response.text().as_str()), (200, "other"));
    assert_eq!(site.send("GET /file", &[&format!("If-Match: {etag}")], b"").status, 412);
}

#[test]
fn special_files_are_refused() {
    let site = Site::start();
    let made = std::process::Command::new("mkfifo").arg(site.path("pipe")).status().unwrap();
    assert!(made.success());
    assert_eq!(site.get("/pipe").status, 403);
    assert_eq!(site.put("/pipe", &[], b"x").status, 403);
    let ranged = site.put("/pipe", &["Content-Range: bytes 0-0/1"], b"x");
    assert_eq!(ranged.status, 403);
}

#[test]
fn uploaded_pages_are_sandboxed_in_browsers() {
    let site = Site::start();
    for name in ["a.html", "a.svg", "a.xml", "a.xhtml"] {
        site.write(name, "<script>");
        assert_eq!(
            site.get(&format!("/{name}")).header("content-security-policy"),
            Some("sandbox")
        );
    }
}

#[test]
fn a_file_truncated_while_it_is_sent_ends_the_connection() {
    let site = Site::start();
    let length = 64 << 20;
    fs::File::create(site.path("file")).unwrap().set_len(length).unwrap();
    let mut stream = site.connect();
    let host = site.authority();
    write!(stream, "GET /file HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let mut some = [0; 1024];
    stream.read_exact(&mut some).unwrap();
    fs::File::options().write(true).open(site.path("file")).unwrap().set_len(10).unwrap();
    let mut rest = Vec::new();
    // The connection ends early, with or without an error, but not because nothing arrives any more.
    if let Err(error) = stream.read_to_end(&mut rest) {
        assert!(!matches!(error.kind(), Io::WouldBlock | Io::TimedOut), "{error}");
    }
    let body = some.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    assert!(((some.len() - body + rest.len()) as u64) < length);
}

#[test]
fn a_head_request_gets_the_digest_that_it_wants() {
    let site = Site::start();
    site.write("a.txt", "hello");
    site.write("none", "");
    // Hashed in several steps.
    site.write("large", digits(9_000_001));
    const HELLO: &str = "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:";
    let want = |line: &str, want: &str| {
        let response = site.send(line, &[&format!("Want-Repr-Digest: {want}")], b"");
        assert_eq!(response.status, 200, "{line}");
        response
    };
    let head = want("HEAD /a.txt", "sha-512=3, sha-256=10");
    assert_eq!(head.header("repr-digest"), Some(HELLO));
    assert_eq!((head.header("content-length"), head.body.len()), (Some("5"), 0));
    let none = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:";
    assert_eq!(want("HEAD /none", "sha-256=1").header("repr-digest"), Some(none));
    let large = want("HEAD /large", "sha-256=10");
    let digest = haul_storage::Digest::of(haul_storage::DigestKind::Sha256, &digits(9_000_001));
    let expected = haul_http::parse::repr_digest::value(digest.bytes);
    assert_eq!(large.header("repr-digest"), Some(expected.as_str()));
    // Sent only for files, in response to HEAD, and if SHA-256 is wanted.
    assert_eq!(want("HEAD /a.txt", "sha-256=0").header("repr-digest"), None);
    assert_eq!(want("HEAD /a.txt", "sha-512=10").header("repr-digest"), None);
    assert_eq!(want("GET /a.txt", "sha-256=10").header("repr-digest"), None);
    assert_eq!(site.send("HEAD /a.txt", &[], b"").header("repr-digest"), None);
    assert_eq!(want("HEAD /", "sha-256=10").header("repr-digest"), None);
}

/// Hashing a tebibyte takes minutes; digests for disconnected clients would delay those of others.
#[test]
fn a_digest_ends_when_its_client_disconnects() {
    let site = Site::start();
    fs::File::create(site.path("long")).unwrap().set_len(1 << 40).unwrap();
    site.write("a.txt", "hello");
    let request = format!(
        "HEAD /long HTTP/1.1\r\nHost: {}\r\nWant-Repr-Digest: sha-256=1\r\n\r\n",
        site.authority()
    );
    let clients: Vec<_> = (0..30)
        .map(|_| {
            let mut client = site.connect();
            client.write_all(request.as_bytes()).unwrap();
            client
        })
        .collect();
    std::thread::sleep(Duration::from_millis(200));
    // The digests in progress delay only other digests.
    assert_eq!(site.get("/a.txt").status, 200);
    drop(clients);
    let head = site.send("HEAD /a.txt", &["Want-Repr-Digest: sha-256=1"], b"");
    assert!(head.header("repr-digest").is_some());
}
