//! A file that changes while it is read is copied in one consistent version.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::nginx::Nginx;
use super::response::{End, File, Response};
use super::server::Server;
use super::{arrives, copy, fails, whole};
use crate::content::content;
use crate::session::Session;

const SIZE: usize = 2 << 20;
/// Fewer requests than a file of [`SIZE`] takes with [`OPTIONS`].
const RANGES: usize = 8;
const OPTIONS: &str = "--lanes 2 --chunk 128K --retries 2";
const DATES: [&str; 2] = ["Mon, 01 Jan 2024 10:00:00 GMT", "Tue, 02 Jan 2024 10:00:00 GMT"];

/// Pairs of versions, each with what distinguishes them.
fn versions() -> Vec<(&'static str, File, File)> {
    let (old, new) = (content(1, SIZE), content(2, SIZE));
    let longer = content(2, SIZE + 1000);
    let shorter = content(2, SIZE / 2);
    vec![
        (
            "ETag",
            File::version(old.clone(), "\"one\"", None),
            File::version(new.clone(), "\"two\"", None),
        ),
        (
            "Last-Modified",
            File::version(old.clone(), None, DATES[0]),
            File::version(new.clone(), None, DATES[1]),
        ),
        (
            "weak ETag",
            File::version(old.clone(), "W/\"one\"", None),
            File::version(new, "W/\"two\"", None),
        ),
        ("longer", File::version(old.clone(), None, None), File::version(longer, None, None)),
        (
            "shorter",
            File::version(old, "\"one\"", DATES[0]),
            File::version(shorter, "\"two\"", DATES[1]),
        ),
    ]
}

#[test]
fn a_file_that_changes_half_way_arrives_in_its_new_version() {
    for at in [2, 5, 9] {
        for (what, old, new) in versions() {
            let bytes = new.content.clone();
            let server = Server::start(move |request| {
                let version = if request.number <= at { &old } else { &new };
                version.respond(request)
            });
            let text = arrives(&server, OPTIONS, &bytes).err();
            assert!(text.contains("changed"), "{what}, {at}: {text}");
        }
    }
}

#[test]
fn a_change_is_detected_on_a_server_that_ignores_if_range() {
    for (what, old, new) in versions() {
        let bytes = new.content.clone();
        let server = Server::start(move |request| {
            let version = if request.number <= 5 { &old } else { &new };
            let request = request.without("if-range");
            version.respond(&request)
        });
        let text = arrives(&server, OPTIONS, &bytes).err();
        assert!(text.contains("changed"), "{what}: {text}");
    }
}

#[test]
fn a_change_that_only_the_final_head_request_shows_is_detected() {
    for (what, old, new) in versions() {
        let bytes = new.content.clone();
        let (looked, read) = (AtomicBool::new(false), AtomicUsize::new(0));
        let server = Server::start(move |request| {
            let is_head = request.method == "HEAD";
            let read = read.fetch_add(usize::from(!is_head), Ordering::SeqCst);
            // On a busy machine, a HEAD may also be the second attempt to open the file.
            let is_final = is_head && read >= RANGES;
            let is_new = looked.fetch_or(is_final, Ordering::SeqCst) || is_final;
            (if is_new { &new } else { &old }).respond(request)
        });
        let text = arrives(&server, OPTIONS, &bytes).err();
        assert!(text.contains("changed"), "{what}: {text}");
    }
}

#[test]
fn a_file_without_ranges_that_changes_before_a_retry_arrives_in_one_version() {
    let mut old = File::new(content(1, SIZE));
    old.ranged = false;
    let mut new = File::version(content(2, SIZE), "\"two\"", DATES[1]);
    new.ranged = false;
    let bytes = new.content.clone();
    let server = Server::start(move |request| match request.number {
        1 => old.respond(request).cut(1_000_000, End::Closes),
        _ => new.respond(request),
    });
    let text = arrives(&server, OPTIONS, &bytes).err();
    assert!(text.contains("changed"), "{text}");
}

#[test]
fn a_file_that_changes_with_every_request_is_an_error() {
    let server = Server::start(|request| {
        let tag = format!("\"{}\"", request.number);
        File { tag: Some(tag), ..File::new(content(request.number, SIZE)) }.respond(request)
    });
    fails(&server, OPTIONS, "changed");
}

#[test]
fn a_file_that_disappears_half_way_is_an_error() {
    let file = File::new(content(1, SIZE));
    let server =
        Server::start(
            move |request| {
                if request.number < 6 { file.respond(request) } else { Response::page(404) }
            },
        );
    fails(&server, OPTIONS, "the server returned 404");
}

#[test]
fn a_partial_file_of_another_version_is_not_resumed() {
    for (what, old, new) in versions() {
        let bytes = new.content.clone();
        let is_replaced = Arc::new(AtomicBool::new(false));
        let replaced = Arc::clone(&is_replaced);
        // One server: a part file from another server would not be resumed anyway.
        let server = Server::start(move |request| match replaced.load(Ordering::SeqCst) {
            true => new.respond(request),
            false if request.number < 10 => old.respond(request),
            false => Response::page(400),
        });
        let session = Session::new();
        copy(&session, OPTIONS, &server.url("/f")).status(1);
        assert!(!session.has("dst/f"), "{what}");
        is_replaced.store(true, Ordering::SeqCst);
        copy(&session, OPTIONS, &server.url("/f")).status(0);
        whole(&session, &bytes);
    }
}

/// nginx lists times by the minute and without a zone, so haul takes no times from its pages.
#[test]
fn a_file_that_changed_and_kept_its_length_is_copied_where_pages_list_no_times() {
    let Some(nginx) = Nginx::start("", "autoindex on;") else { return };
    let session = Session::new();
    std::fs::create_dir(nginx.www("d")).unwrap();
    let put = |content: &str, seconds| {
        let file = std::fs::File::create(nginx.www("d/f")).unwrap();
        std::io::Write::write_all(&mut &file, content.as_bytes()).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        file.set_modified(time).unwrap();
    };
    let copied = |expected: &str| {
        let ran = session.haul(&format!("cp {} dst", nginx.url("/d/"))).status(0);
        assert_eq!(session.read("dst/f"), expected);
        ran
    };
    put("old", 1_700_000_000);
    copied("old");
    put("new", 1_700_000_001);
    copied("new");
    // An unchanged file is not replaced.
    let before = std::fs::metadata(session.path("dst/f")).unwrap();
    copied("new");
    let after = std::fs::metadata(session.path("dst/f")).unwrap();
    assert_eq!(before.ino(), after.ino());
}
