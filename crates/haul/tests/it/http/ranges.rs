//! Wrong responses to requests for ranges: never written, and an error unless a retry gets the right
//! one.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use haul_bench::guard::end_with_thread;

use super::response::{End, File, Framing, Response};
use super::server::{Request, Server};
use super::{arrives, copy, fails, whole};
use crate::content::content;
use crate::port::free_port;
use crate::session::Session;

const SIZE: usize = 2 << 20;

/// A server that sends the responses of `wrong` to requests for later ranges of a file: to all of them, or
/// only to request number 4.
fn later(always: bool, wrong: fn(&Request, Response) -> Response) -> Server {
    let file = File::new(content(1, SIZE));
    Server::start(move |request| {
        let response = file.respond(request);
        let is_it = request.is_later_part() && (always || request.number == 4);
        if is_it { wrong(request, response) } else { response }
    })
}

const OPTIONS: &str = "--lanes 2 --chunk 128K --retries 2";

#[test]
fn a_range_other_than_the_requested_one_is_refused() {
    let server = later(true, |request, response| {
        let (first, last) = request.range().unwrap();
        response.with("Content-Range", format!("bytes {}-{}/{SIZE}", first - 100, last - 100))
    });
    fails(&server, OPTIONS, "the server sent bytes ");
}

#[test]
fn a_range_that_begins_right_and_is_shorter_or_longer_is_refused() {
    for (by, framing) in [(-10, Framing::Length), (10, Framing::Length), (10, Framing::Chunked)] {
        let file = File::new(content(1, SIZE));
        let server = Server::start(move |request| {
            let Some((first, last)) = request.range().filter(|_| request.is_later_part()) else {
                return file.respond(request);
            };
            let last = last.min(SIZE - 20).saturating_add_signed(by);
            Response::new(206, &file.content[first..=last])
                .with("Content-Range", format!("bytes {first}-{last}/{SIZE}"))
                .with("ETag", "\"one\"")
                .framed(framing)
        });
        fails(&server, OPTIONS, "the server sent bytes ");
    }
}

#[test]
fn a_range_of_a_file_of_another_length_is_refused() {
    let server = later(true, |request, response| {
        let (first, last) = request.range().unwrap();
        response.with("Content-Range", format!("bytes {first}-{last}/{}", SIZE + 1))
    });
    fails(&server, OPTIONS, "it had 2097152 bytes and has 2097153");
}

#[test]
fn a_range_without_content_range_is_refused() {
    let server = later(true, |_, response| response.without("Content-Range"));
    fails(&server, OPTIONS, "without Content-Range");
    let file = File::new(content(1, SIZE));
    let server = Server::start(move |request| file.respond(request).without("Content-Range"));
    fails(&server, OPTIONS, "without Content-Range");
}

#[test]
fn a_range_with_a_malformed_content_range_is_refused() {
    for words in ["bytes", "bytes 5-4/10", "bytes */2097152", "lines 1-2/3", "bytes 1-2/x", ""] {
        let file = File::new(content(1, SIZE));
        let server = Server::start(move |request| {
            let response = file.respond(request);
            if request.is_later_part() { response.with("Content-Range", words) } else { response }
        });
        fails(&server, OPTIONS, "/f: cannot read (");
    }
}

#[test]
fn a_body_of_another_length_than_its_range_is_refused() {
    for by in [-7, 7] {
        let file = File::new(content(1, SIZE));
        let server = Server::start(move |request| {
            let response = file.respond(request);
            if !request.is_later_part() {
                return response;
            }
            let length = response.body.len().saturating_add_signed(by);
            let mut response = response.with("Content-Length", length.to_string());
            response.body.resize(length, b'x');
            response
        });
        fails(&server, OPTIONS, "bytes for a range of");
    }
}

#[test]
fn bytes_after_the_end_of_a_range_are_not_written() {
    for framing in [Framing::Chunked, Framing::End] {
        let file = File::new(content(1, SIZE));
        let bytes = file.content.clone();
        let server = Server::start(move |request| {
            let mut response = file.respond(request);
            if response.status == 206 {
                response.body.extend_from_slice(&[b'x'; 5000]);
                response = response.framed(framing);
            }
            response
        });
        let session = Session::new();
        let ran = copy(&session, OPTIONS, &server.url("/f"));
        // Refusing it is acceptable too.
        if session.has("dst/f") {
            ran.status(0);
            whole(&session, &bytes);
        } else {
            ran.status(1);
        }
    }
}

/// Formerly, ranges were requested 2500 times before haul gave up.
#[test]
fn a_file_of_a_server_that_refuses_ranges_is_read_in_one_stream() {
    fn whole() -> File {
        File { ranged: false, ..File::new(content(1, SIZE)) }
    }
    // The server announces ranges, and never sends one.
    let server =
        Server::start(move |request| whole().respond(request).with("Accept-Ranges", "bytes"));
    arrives(&server, OPTIONS, &content(1, SIZE));
    assert!(server.requests().iter().all(|request| !request.is_later_part()));
    // The server sends the first range only.
    let server = later(true, |request, response| whole().respond(request).then(response.end));
    arrives(&server, OPTIONS, &content(1, SIZE));
    let refused = server.requests().iter().filter(|request| request.is_later_part()).count();
    assert!(refused < 40, "parts were requested {refused} times");
}

#[test]
fn a_range_is_requested_again_after_one_response_with_the_whole_file() {
    let server = later(false, |request, response| {
        File { ranged: false, ..File::new(content(1, SIZE)) }.respond(request).then(response.end)
    });
    arrives(&server, OPTIONS, &content(1, SIZE));
}

#[test]
fn an_html_page_in_place_of_a_range_is_never_written() {
    for status in [200, 404, 500, 403, 400] {
        let page = move |_: &Request, _: Response| match status {
            200 => Response::page(200),
            404 => Response::page(404),
            403 => Response::page(403),
            400 => Response::page(400),
            _ => Response::page(500),
        };
        let file = File::new(content(1, SIZE));
        let server = Server::start(move |request| {
            if request.is_later_part() {
                page(request, Response::page(200))
            } else {
                file.respond(request)
            }
        });
        let text = match status {
            200 => "it has changed: it had 2097152 bytes",
            404 => "the server returned 404",
            403 => "the server returned 403",
            400 => "the server returned 400",
            _ => "the server returned 500",
        };
        fails(&server, OPTIONS, text);
    }
}

#[test]
fn a_single_html_page_in_place_of_a_range_is_retried() {
    for wrong in [
        (|_, _| Response::page(200)) as fn(&Request, Response) -> Response,
        |_, _| Response::page(404),
        |_, _| Response::page(500),
        |_, _| Response::page(502),
        |_, _| Response::page(503).then(End::Closes),
    ] {
        arrives(&later(false, wrong), OPTIONS, &content(1, SIZE));
    }
}

#[test]
fn an_error_status_is_reported() {
    for (status, text) in [
        (404, "the server returned 404"),
        (410, "the server returned 410"),
        (403, "the server returned 403"),
        (500, "the server returned 500"),
        (418, "the server returned 418"),
    ] {
        let server = Server::start(move |_| Response::page(status));
        fails(&server, "--retries 0", text);
    }
}

#[test]
fn a_file_of_a_server_without_ranges_is_read_in_one_stream() {
    for size in [0, 1, 65_536, 300_000, 5 << 20] {
        let file = File { ranged: false, ..File::new(content(2, size)) };
        let bytes = file.content.clone();
        let server = Server::start(move |request| file.respond(request));
        arrives(&server, "", &bytes);
        arrives(&server, "--lanes 4", &bytes);
    }
}

/// Formerly, each file after the first 16 was requested again, although the earlier ones had been read.
#[test]
fn files_without_ranges_that_are_read_in_turn_are_requested_equally_often() {
    let file = File { ranged: false, ..File::new(content(2, 100_000)) };
    let bytes = file.content.clone();
    let server = Server::start(move |request| file.respond(request));
    let urls: Vec<_> = (0..20).map(|n| server.url(&format!("/f{n}"))).collect();
    let ran = Session::new().haul(&format!("cat {}", urls.join(" "))).status(0);
    assert!(ran.bytes() == bytes.repeat(20), "the contents differ");
    let requests = server.requests();
    let count = |target: &str| {
        requests
            .iter()
            .filter(|request| request.method == "GET" && request.target == target)
            .count()
    };
    assert_eq!(count("/f19"), count("/f9"));
}

#[test]
fn a_range_without_a_total_size_is_not_taken_for_the_whole_file() {
    let without_total = |request: &Request, response: Response| match request.range() {
        Some((first, last)) => response.with("Content-Range", format!("bytes {first}-{last}/*")),
        None => response,
    };
    for size in [SIZE, 300_000, 100_000] {
        let file = File::new(content(1, size));
        let bytes = file.content.clone();
        let server = Server::start(move |request| without_total(request, file.respond(request)));
        arrives(&server, OPTIONS, &bytes);
    }
    // The server sends ranges only, whatever is requested.
    let file = File::new(content(1, SIZE));
    let server = Server::start(move |_| {
        Response::new(206, &file.content[..65_536]).with("Content-Range", "bytes 0-65535/*")
    });
    fails(&server, OPTIONS, "without the total size");
}

#[test]
fn files_of_every_length_arrive_in_ranges() {
    for size in [0, 1, 65_535, 65_536, 65_537, 262_144, 262_145, 3_000_000] {
        let file = File::new(content(2, size));
        let bytes = file.content.clone();
        let server = Server::start(move |request| file.respond(request));
        arrives(&server, "", &bytes);
        arrives(&server, "--lanes 4 --chunk 100K", &bytes);
    }
}

#[test]
fn files_are_copied_from_the_server_of_python() {
    let port = free_port();
    let shown = Session::new();
    let mut server = Command::new("python3");
    server.args(["-m", "http.server", "--bind", "127.0.0.1", &port.to_string()]);
    server.current_dir(shown.path("")).stdin(Stdio::null());
    server.stdout(Stdio::null()).stderr(Stdio::null());
    end_with_thread(&mut server);
    let Ok(mut server) = server.spawn() else {
        eprintln!("skipped: there is no python3");
        return;
    };
    let begun = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        assert_eq!(server.try_wait().unwrap(), None, "python3 has ended");
        assert!(begun.elapsed() < Duration::from_secs(20), "python3 does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    let outcome = std::panic::catch_unwind(|| {
        for size in [0, 1, 200_000, 9 << 20] {
            let bytes = content(3, size);
            fs::write(shown.path("f"), &bytes).unwrap();
            let session = Session::new();
            copy(&session, "", &format!("http://127.0.0.1:{port}/f")).status(0);
            whole(&session, &bytes);
        }
    });
    server.kill().unwrap();
    server.wait().unwrap();
    outcome.unwrap();
}
