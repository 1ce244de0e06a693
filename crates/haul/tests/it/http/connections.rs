//! Servers with quirks of connections and framing, HTTP/1.0 servers, and servers that do not speak HTTP.

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};

use rustix::net::{AddressFamily, SocketType};

use super::response::{End, File, Framing, Response};
use super::server::{Request, Server};
use super::{arrives, fails};
use crate::content::content;

const SIZE: usize = 4 << 20;
const OPTIONS: &str = "--lanes 2 --chunk 128K";

/// Checks that a file arrives from a server with a quirk.
#[track_caller]
fn arrives_with_quirk(
    quirk: impl Fn(&Request, Response) -> Response + Send + Sync + 'static,
) -> Server {
    let file = File::new(content(1, SIZE));
    let bytes = file.content.clone();
    let server = Server::start(move |request| quirk(request, file.respond(request)));
    arrives(&server, OPTIONS, &bytes);
    server
}

#[test]
fn a_file_arrives_if_the_server_closes_the_connection_after_each_response() {
    // With and without `Connection: close`; pipelined requests are lost by an orderly close, or by a reset.
    arrives_with_quirk(|_, response| response.with("Connection", "close").then(End::Closes));
    arrives_with_quirk(|_, response| response.then(End::Closes));
    arrives_with_quirk(|_, response| response.with("Connection", "close").then(End::Drops));
}

#[test]
fn a_file_arrives_if_the_server_closes_the_connection_after_three_responses() {
    for end in [End::Closes, End::Drops] {
        let server = arrives_with_quirk(move |request, response| match request.nth {
            3 => response.then(end),
            _ => response,
        });
        assert!(server.accepted() > 3);
    }
}

#[test]
fn a_file_arrives_if_the_server_closes_idle_connections() {
    let file = File::new(content(1, 20_000));
    let bytes = file.content.clone();
    // The connection ends a moment after the response.
    let server = Server::start(move |request| file.respond(request).then(End::Closes));
    for _ in 0..20 {
        arrives(&server, "", &bytes);
    }
}

#[test]
fn a_file_arrives_from_an_http_1_0_server() {
    arrives_with_quirk(|_, mut response| {
        response.version = "HTTP/1.0";
        response.then(End::Closes)
    });
    arrives_with_quirk(|_, mut response| {
        response.version = "HTTP/1.0";
        response.framed(Framing::End)
    });
    // Without ranges, like most HTTP/1.0 servers.
    for framing in [Framing::Length, Framing::End] {
        let file = File { ranged: false, ..File::new(content(1, SIZE)) };
        let bytes = file.content.clone();
        let server = Server::start(move |request| {
            let mut response = file.respond(request).without("Accept-Ranges");
            response.version = "HTTP/1.0";
            response.framed(framing).then(End::Closes)
        });
        arrives(&server, OPTIONS, &bytes);
    }
}

#[test]
fn a_file_arrives_if_ranges_are_sent_in_chunked_encoding() {
    let server = arrives_with_quirk(|_, response| response.framed(Framing::Chunked));
    assert!(server.accepted() < 20, "{} connections", server.accepted());
}

#[test]
fn a_file_arrives_if_ranges_end_with_the_connection() {
    arrives_with_quirk(|_, response| response.framed(Framing::End));
}

#[test]
fn a_whole_file_whose_length_is_not_reported_arrives() {
    for framing in [Framing::Chunked, Framing::End] {
        let file = File { ranged: false, ..File::new(content(1, SIZE)) };
        let bytes = file.content.clone();
        let server = Server::start(move |request| file.respond(request).framed(framing));
        arrives(&server, OPTIONS, &bytes);
    }
}

#[test]
fn a_truncated_chunked_body_is_an_error() {
    let file = File { ranged: false, ..File::new(content(1, SIZE)) };
    let server = Server::start(move |request| {
        file.respond(request).framed(Framing::Chunked).cut(1_000_000, End::Closes)
    });
    fails(&server, "--retries 1", "/f: cannot ");
}

#[test]
fn interim_responses_are_skipped() {
    arrives_with_quirk(|_, mut response| {
        response.before =
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </style.css>; \
                         rel=preload\r\n\r\n"
                .to_owned();
        response
    });
}

#[test]
fn an_overlong_head_is_an_error() {
    for first in [1, 3] {
        for fields in [1, 2000] {
            let file = File::new(content(1, SIZE));
            let server = Server::start(move |request| {
                let mut response = file.respond(request);
                if request.number >= first {
                    let value = "x".repeat((1 << 20) / fields);
                    let more = (0..fields).map(|n| (format!("X-{n}"), value.clone()));
                    response.fields.extend(more);
                }
                response
            });
            fails(&server, "--retries 1 --chunk 128K", "/f: cannot ");
        }
    }
}

#[test]
fn endless_interim_responses_are_an_error() {
    for first in [1, 3] {
        let file = File::new(content(1, SIZE));
        let server = Server::start(move |request| match request.number >= first {
            true => Response::raw("HTTP/1.1 102 Processing\r\n\r\n".repeat(100_000)),
            false => file.respond(request),
        });
        fails(&server, "--retries 1 --chunk 128K", "/f: cannot ");
    }
}

#[test]
fn a_response_that_is_not_http_is_an_error() {
    for garbage in [
        &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
        b"220 ftp.example.org ready\r\n",
        b"\x15\x03\x03\x00\x02\x02\x46",
        b"\0\0\0\0",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 206 Partial Content\r\nno colon in this line\r\n\r\n",
        b"HTTP/1.1 206 Partial Content\r\nContent-Length: -5\r\n\r\nabcde",
        b"HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"HTTP/9.9 206 Partial Content\r\nContent-Length: 5\r\n\r\nabcde",
        b"<html>hello</html>\n",
        b"",
    ] {
        for first in [1, 3] {
            let file = File::new(content(1, SIZE));
            let server = Server::start(move |request| match request.number >= first {
                true => Response::raw(garbage),
                false => file.respond(request),
            });
            fails(&server, "--retries 1 --chunk 128K", "/f: cannot ");
        }
    }
}

#[test]
fn unrequested_bytes_after_a_response_are_never_written() {
    let file = File::new(content(1, SIZE));
    let server = Server::start(move |request| {
        let mut response = file.respond(request);
        let length = response.body.len().to_string();
        if request.method == "GET" {
            // The body is longer than its `Content-Length`: the rest is parsed as the head of the next response.
            response.body.extend_from_slice(b"HTTP/1.1 206 More\r\nContent-Length: 3\r\n\r\nbad");
        }
        response.with("Content-Length", length)
    });
    let session = crate::session::Session::new();
    let ran = super::copy(&session, "--lanes 2 --chunk 128K --retries 1", &server.url("/f"));
    // Refusing the connection is acceptable too.
    if session.has("dst/f") {
        ran.status(0);
        super::whole(&session, &content(1, SIZE));
    } else {
        ran.status(1);
    }
}

#[test]
fn a_refused_connection_is_reported() {
    // A socket that is bound and does not listen: no other program can take its port.
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let bound = TcpListener::from(socket);
    let url = format!("http://{}/f", bound.local_addr().unwrap());
    let session = crate::session::Session::new();
    let ran = super::copy(&session, "--retries 0", &url).status(1);
    assert!(ran.err().contains("refused"), "{}", ran.err());
    assert!(!session.has("dst/f"));
}
