//! Redirects.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::response::{File, Response};
use super::server::Server;
use super::{arrives, fails};
use crate::content::content;

const SIZE: usize = 2 << 20;
const OPTIONS: &str = "--lanes 2 --chunk 128K --retries 2";

#[test]
fn endless_redirects_are_an_error_after_few_requests() {
    // To itself, in a circle, and to ever new targets.
    let to_itself = Server::start(|_| Response::redirect(302, "/f"));
    fails(&to_itself, "", "too many redirects");
    let around = Server::start(|request| {
        Response::redirect(301, if request.target == "/f" { "/g" } else { "/f" })
    });
    fails(&around, "", "too many redirects");
    let further = Server::start(|request| Response::redirect(307, &format!("{}x", request.target)));
    fails(&further, "", "too many redirects");
    for server in [to_itself, around, further] {
        assert!(server.requests().len() <= 12, "{} requests", server.requests().len());
    }
}

#[test]
fn every_kind_of_redirect_is_followed() {
    for status in [301, 302, 303, 307, 308] {
        let file = File::new(content(1, SIZE));
        let bytes = file.content.clone();
        let server = Server::start(move |request| match request.target.as_str() {
            "/f" => Response::redirect(status, "deep/er"),
            "/deep/er" => Response::redirect(status, "../other%20place?a=b"),
            "/other%20place?a=b" => file.respond(request),
            _ => Response::page(404),
        });
        arrives(&server, OPTIONS, &bytes);
    }
}

#[test]
fn a_redirect_to_an_unusable_target_is_an_error() {
    for to in ["ftp://127.0.0.1/f", "http://", "http://[::1", "mailto:a@example.org", "//"] {
        let server = Server::start(move |_| Response::redirect(302, to));
        fails(&server, "", "/f: cannot ");
    }
    let server = Server::start(|_| Response::new(302, ""));
    fails(&server, "", "the server returned 302");
}

#[test]
fn a_file_on_another_server_is_fetched_from_there() {
    let file = File::new(content(1, SIZE));
    let bytes = file.content.clone();
    let other = Server::start(move |request| file.respond(request));
    let to = other.url("/elsewhere?signature=abc");
    let server = Server::start(move |_| Response::redirect(302, &to));
    arrives(&server, OPTIONS, &bytes);
    assert!(other.requests().len() > 5, "it was not read in parts");
    let host = other.address().to_string();
    for request in other.requests() {
        assert_eq!(request.target, "/elsewhere?signature=abc");
        assert_eq!(request.field("host"), Some(host.as_str()));
    }
}

#[test]
fn a_redirect_target_that_expires_half_way_is_requested_anew() {
    // The number of requests that a URL is valid for.
    const GOOD: u64 = 4;
    for status in [403, 401, 404, 410] {
        let file = File::new(content(1, SIZE));
        let bytes = file.content.clone();
        let redirects = AtomicU64::new(0);
        let used = Mutex::new(HashMap::new());
        let other = Server::start(move |request| {
            let mut used = used.lock().unwrap();
            let times = used.entry(request.target.clone()).or_insert(0);
            *times += 1;
            if *times <= GOOD { file.respond(request) } else { Response::page(status) }
        });
        let to = other.url("/v");
        let server = Server::start(move |_| {
            let number = redirects.fetch_add(1, Ordering::SeqCst) + 1;
            Response::redirect(302, &format!("{to}{number}"))
        });
        arrives(&server, OPTIONS, &bytes);
        assert!(server.requests().len() > 2, "{status}: nothing expired");
    }
}

#[test]
fn a_redirect_target_that_accepts_only_get_is_read() {
    // Like URLs that are signed for GET only.
    for status in [403, 405, 404, 501] {
        let file = File::new(content(1, SIZE));
        let bytes = file.content.clone();
        let other = Server::start(move |request| match request.method.as_str() {
            "GET" => file.respond(request),
            _ => Response::page(status),
        });
        let to = other.url("/signed");
        let server = Server::start(move |_| Response::redirect(302, &to));
        arrives(&server, OPTIONS, &bytes);
        arrives(&other, OPTIONS, &bytes);
    }
}
