//! Content codings: proxies that compress unrequested, and files that are stored compressed.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use super::lengths::index;
use super::response::{File, Framing, Response};
use super::server::Server;
use super::{arrives, copy, fails};
use crate::content::content;
use crate::session::Session;

/// The body is announced as gzip, but is not.
#[test]
fn a_body_that_does_not_match_its_coding_is_refused() {
    for (size, first, framing) in [
        (1000, 1, Framing::Length),
        (3 << 20, 1, Framing::Length),
        (3 << 20, 1, Framing::Chunked),
        (3 << 20, 3, Framing::Length),
        (3 << 20, 3, Framing::Chunked),
    ] {
        let file = File::new(content(1, size));
        let server = Server::start(move |request| {
            let response = file.respond(request);
            if request.number < first {
                return response;
            }
            // Some proxies ignore `Accept-Encoding`.
            response.with("Content-Encoding", "gzip").framed(framing)
        });
        fails(&server, "--retries 1 --chunk 128K", "encoded (gzip)");
        assert!(
            server
                .requests()
                .iter()
                .all(|request| request.field("accept-encoding") == Some("identity"))
        );
    }
}

#[test]
fn a_coding_that_cannot_be_decoded_is_refused() {
    let file = File::new(content(1, 5000));
    let server = Server::start(move |request| file.respond(request).with("Content-Encoding", "br"));
    fails(&server, "--retries 1", "encoded (br), which haul did not request");
}

/// With `AddEncoding`, Apache announces a coding for each `.tar.gz`.
#[test]
fn a_file_that_is_stored_compressed_is_not_decoded() {
    for (name, coding, size) in [
        ("pkg.tar.gz", "x-gzip", 3 << 20),
        ("pkg.tgz", "gzip", 1000),
        ("pkg.tar.gz.asc", "x-gzip", 1000),
        ("old.tar.Z", "x-compress", 300_000),
    ] {
        let file = File::new(content(1, size));
        let bytes = file.content.clone();
        let server =
            Server::start(move |request| file.respond(request).with("Content-Encoding", coding));
        let session = Session::new();
        copy(&session, "--chunk 128K", &server.url(&format!("/{name}"))).status(0);
        assert!(fs::read(session.path(format!("dst/{name}"))).unwrap() == *bytes, "{name}");
    }
}

#[test]
fn a_body_compressed_by_a_proxy_is_decoded() {
    for (size, framing) in
        [(0, Framing::Chunked), (1000, Framing::Length), (3 << 20, Framing::Chunked)]
    {
        let bytes = content(1, size);
        let packed = gzip(&bytes);
        let server = Server::start(move |_| {
            Response::new(200, &packed[..]).with("Content-Encoding", "gzip").framed(framing)
        });
        arrives(&server, "", &bytes);
    }
}

/// An empty body is no gzip file (RFC 1952), but some servers send it, and curl accepts it.
#[test]
fn an_empty_body_that_is_announced_as_compressed_is_an_empty_file() {
    for framing in [Framing::Length, Framing::Chunked] {
        let server = Server::start(move |_| {
            Response::new(200, &b""[..]).with("Content-Encoding", "gzip").framed(framing)
        });
        arrives(&server, "", b"");
    }
    // If the end of the connection marks the end of the body, the response may have been cut off.
    let server = Server::start(move |_| {
        Response::new(200, &b""[..]).with("Content-Encoding", "gzip").framed(Framing::End)
    });
    fails(&server, "--retries 1", "cannot be decoded");
}

#[test]
fn a_truncated_compressed_body_is_refused() {
    let mut packed = gzip(&content(1, 3 << 20));
    packed.truncate(packed.len() - 4);
    let server =
        Server::start(move |_| Response::new(200, &packed[..]).with("Content-Encoding", "gzip"));
    fails(&server, "--retries 1", "cannot be decoded");
}

/// If the file name does not show it, a body of the listed length is taken to be stored compressed.
#[test]
fn the_listed_length_decides_whether_a_file_is_stored_compressed() {
    let (plain, packed) = (content(1, 300_000), gzip(&content(1, 300_000)));
    for (listed, expected) in [(packed.len(), packed.clone()), (plain.len(), plain)] {
        let packed = packed.clone();
        let server = Server::start(move |request| match &request.target[..] {
            "/d/" => index(&[("data", listed)]),
            _ => Response::new(200, &packed[..]).with("Content-Encoding", "gzip"),
        });
        let session = Session::new();
        copy(&session, "", &server.url("/d/")).status(0);
        assert!(fs::read(session.path("dst/data")).unwrap() == expected, "{listed} listed");
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut child = Command::new("gzip")
        .arg("-c")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    let writing = std::thread::spawn(move || stdin.write_all(&bytes));
    let packed = child.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    packed.stdout
}

#[test]
fn the_coding_identity_is_ignored() {
    let file = File::new(content(1, 1 << 20));
    let bytes = file.content.clone();
    let server =
        Server::start(move |request| file.respond(request).with("Content-Encoding", "identity"));
    arrives(&server, "--chunk 128K", &bytes);
}
