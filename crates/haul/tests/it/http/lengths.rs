//! Lengths that servers report, do not report, or report wrongly.

use std::fmt::Write;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::response::{End, File, Framing, Response};
use super::server::Server;
use super::{arrives, copy, fails, whole};
use crate::content::content;
use crate::session::Session;

/// The page of a directory, as nginx writes it.
pub(super) fn index(files: &[(&str, usize)]) -> Response {
    let mut page = "<html><head><title>Index of /d/</title></head><body><pre>".to_owned();
    for (name, size) in files {
        writeln!(page, "<a href=\"{name}\">{name}</a>  29-Feb-2024 12:34   {size}").unwrap();
    }
    Response::new(200, page + "</pre></body></html>").with("Content-Type", "text/html")
}

/// Formerly, a login page was stored in place of a file.
#[test]
fn a_response_of_another_length_than_listed_is_not_stored() {
    for listed in [5_000_000, 5000, 3] {
        let server = Server::start(move |request| match &request.target[..] {
            "/d/" => index(&[("f", listed), ("good", 10)]),
            "/d/good" => File::new(content(1, 10)).respond(request),
            _ => Response::new(200, "login"),
        });
        let session = Session::new();
        let text = format!("it is listed with {listed} bytes, but opening it gives 5 bytes");
        copy(&session, "--retries 1", &server.url("/d/")).status(1).stderr_has(&text);
        assert!(!session.has("dst/f"), "{listed} listed");
        assert!(session.has("dst/good"));
    }
}

/// The page of a directory with rounded sizes, as Apache writes it.
fn rounded(files: &[(&str, &str)]) -> Response {
    let mut page = "<html><head><title>Index of /d</title></head><body><pre>".to_owned();
    for (name, size) in files {
        writeln!(page, "<a href=\"{name}\">{name}</a>  2024-02-29 12:34  {size}").unwrap();
    }
    Response::new(200, page + "</pre></body></html>").with("Content-Type", "text/html")
}

/// Formerly, a login page was stored in place of a file, where a page has rounded sizes.
#[test]
fn a_response_of_another_length_than_a_rounded_one_is_not_stored() {
    for framing in [Framing::Length, Framing::Chunked, Framing::End] {
        let server = Server::start(move |request| match &request.target[..] {
            "/d/" => rounded(&[("f", "4.8M"), ("good", "1.5K"), ("small", "5.0K")]),
            "/d/good" => File::new(content(1, 1536)).respond(request),
            "/d/small" => Response::new(200, &content(2, 5120)[..]).framed(framing),
            _ => Response::new(200, "login").framed(framing),
        });
        let session = Session::new();
        let text = "/d/f: cannot copy (it is listed with 4700000 to 5138023 bytes, but opening it gives 5 bytes";
        copy(&session, "--retries 1", &server.url("/d/")).status(1).stderr_has(text);
        assert!(!session.has("dst/f"));
        assert!(session.has("dst/good") && session.has("dst/small"));
    }
}

/// A log file, for example, grows between the request of the page and that of the file.
#[test]
fn a_file_that_has_outgrown_a_rounded_size_is_copied_if_the_page_shows_it() {
    let listings = AtomicUsize::new(0);
    let server = Server::start(move |request| match &request.target[..] {
        "/d/" => match listings.fetch_add(1, Ordering::Relaxed) {
            0 => rounded(&[("log", "12K")]),
            _ => rounded(&[("log", "200K")]),
        },
        _ => File::new(content(1, 200 << 10)).respond(request),
    });
    let session = Session::new();
    copy(&session, "", &server.url("/d/")).status(0);
    assert!(fs::read(session.path("dst/log")).unwrap() == content(1, 200 << 10));
}

/// Formerly, the copy failed: the second page shows an exact size, since the file is small, and haul still expected the
/// rounded one of the first page.
#[test]
fn a_file_that_has_shrunk_to_an_exact_size_is_copied_if_the_page_shows_it() {
    let listings = AtomicUsize::new(0);
    let server = Server::start(move |request| match &request.target[..] {
        "/d/" => match listings.fetch_add(1, Ordering::Relaxed) {
            0 => rounded(&[("log", "12K")]),
            _ => rounded(&[("log", "500")]),
        },
        _ => File::new(content(1, 500)).respond(request),
    });
    let session = Session::new();
    copy(&session, "", &server.url("/d/")).status(0);
    assert!(fs::read(session.path("dst/log")).unwrap() == content(1, 500));
}

#[test]
fn a_file_whose_length_is_not_reported_is_read_to_its_end() {
    for size in [0, 1000, 300_000, 20 << 20] {
        for framing in [Framing::Chunked, Framing::End] {
            let file = File::new(content(1, size));
            let bytes = file.content.clone();
            let server = Server::start(move |_| {
                Response::new(200, &file.content[..]).framed(framing).with("ETag", "\"one\"")
            });
            arrives(&server, "", &bytes);
        }
    }
}

#[test]
fn a_file_whose_length_is_not_reported_is_an_error_when_it_is_cut_off() {
    let file = File::new(content(1, 3 << 20));
    let server = Server::start(move |_| {
        Response::new(200, &file.content[..]).framed(Framing::Chunked).cut(2 << 20, End::Closes)
    });
    fails(&server, "--retries 1", "/f: cannot ");
}

#[test]
fn a_listed_file_whose_length_is_not_reported_is_copied() {
    let file = File::new(content(1, 1 << 20));
    let bytes = file.content.clone();
    let server = Server::start(move |request| match &request.target[..] {
        "/d/" => Response::new(200, "<title>Index of /d/</title><a href=\"f\">f</a>")
            .with("Content-Type", "text/html"),
        _ => Response::new(200, &file.content[..]).framed(Framing::Chunked),
    });
    let session = Session::new();
    copy(&session, "", &server.url("/d/")).status(0);
    whole(&session, &bytes);
}

/// RFC 9112, 6.3.
#[test]
fn a_transfer_coding_overrides_a_content_length() {
    for length in ["9000", "11000"] {
        let file = File::new(content(1, 10_000));
        let bytes = file.content.clone();
        let server = Server::start(move |_| {
            Response::new(200, &file.content[..])
                .framed(Framing::Chunked)
                .with("Content-Length", length)
        });
        arrives(&server, "", &bytes);
    }
}

#[test]
fn a_malformed_content_length_is_an_error() {
    for length in ["+5", "5, 6", "5 5", "0x5"] {
        let server =
            Server::start(move |_| Response::new(200, "hello").with("Content-Length", length));
        fails(&server, "--retries 0", "/f");
    }
    let server = Server::start(move |_| Response::new(200, "hello").with("Content-Length", "5, 5"));
    let session = Session::new();
    copy(&session, "", &server.url("/f")).status(0);
    assert_eq!(fs::read(session.path("dst/f")).unwrap(), b"hello");
}

/// A query may select the file. Formerly, half of one file and half of another made one file.
#[test]
fn a_file_without_an_etag_is_not_resumed_with_the_bytes_of_another_query() {
    const SIZE: usize = 8 << 20;
    let time = Some("Mon, 05 Feb 2024 10:00:00 GMT");
    for tag in [None, Some("\"same\"")] {
        let files = [1, 2].map(|seed| File::version(content(seed, SIZE), tag, time));
        let bytes = files[1].content.clone();
        let server = Server::start(move |request| {
            if request.target.ends_with("id=8") {
                return files[1].respond(request);
            }
            let response = files[0].respond(request);
            match request.range() {
                Some((_, last)) if last + 1 >= SIZE => response.cut(0, End::Closes),
                _ => response,
            }
        });
        let session = Session::new();
        copy(&session, "--chunk 256K --retries 0", &server.url("/f?id=7")).status(1);
        let again = copy(&session, "--chunk 256K", &server.url("/f?id=8")).status(0);
        // With an ETag, the download is resumed: a URL that is signed anew has another query.
        let is_other = again.err().contains("it belongs to another source");
        assert_eq!(is_other, tag.is_none(), "{}", again.err());
        if tag.is_none() {
            whole(&session, &bytes);
        }
    }
}

/// Formerly, half of one version and half of another made one file.
#[test]
fn a_file_without_a_time_and_a_tag_is_not_resumed_by_another_run() {
    const SIZE: usize = 8 << 20;
    let session = Session::new();
    let old = File::version(content(1, SIZE), None, None);
    let new = File::version(content(2, SIZE), None, None);
    let bytes = new.content.clone();
    let is_replaced = Arc::new(AtomicBool::new(false));
    let replaced = Arc::clone(&is_replaced);
    // One server: a part file from another server would not be resumed anyway.
    let server = Server::start(move |request| {
        if replaced.load(Ordering::SeqCst) {
            return new.respond(request);
        }
        // The last bytes are never sent.
        let response = old.respond(request);
        match request.range() {
            Some((_, last)) if last + 1 >= SIZE => response.cut(0, End::Closes),
            _ => response,
        }
    });
    let url = server.url("/f");
    copy(&session, "--chunk 256K --retries 0", &url).status(1);
    is_replaced.store(true, Ordering::SeqCst);
    copy(&session, "--chunk 256K", &url).status(0);
    whole(&session, &bytes);
}
