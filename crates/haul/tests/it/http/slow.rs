//! Slow links, and servers that respond late.

use std::thread;
use std::time::{Duration, Instant};

use haul_bench::link::{LinkSpec, Means, Namespace, Network};
use haul_fault_proxy::{Connections, Direction, Fault, FaultProxy};

use super::response::File;
use super::server::{Request, Server};
use super::{arrives, copy, whole};
use crate::content::content;
use crate::session::Session;

#[test]
fn a_slow_link_never_times_out_while_bytes_arrive() {
    for size in [80_000, 300_000] {
        let bytes = content(1, size);
        let file = File::new(bytes.clone());
        let server = Server::start(move |request| file.respond(request));
        let proxy = FaultProxy::to(server.address()).start().unwrap();
        let rate = Fault::SharedRate(20 << 10);
        proxy.set(Connections::All, Direction::ToClient, rate);
        let begun = Instant::now();
        let session = Session::new();
        let ran = copy(&session, "", &format!("http://{}/f", proxy.address())).status(0);
        whole(&session, &bytes);
        assert!(!ran.err().contains("try"), "{}", ran.err());
        eprintln!("{size} bytes in {:?}, {:?} read", begun.elapsed(), proxy.stats().to_client);
        // Hardly anything was requested twice.
        assert!(proxy.stats().to_client.read < size as u64 + 4000);
    }
}

#[test]
fn a_file_is_complete_if_some_responses_are_late() {
    let file = File::new(content(2, 3 << 20));
    let bytes = file.content.clone();
    let server = Server::start(move |request| {
        // Delay every fifth response, like a server that has to find the data first.
        if request.number % 5 == 2 {
            thread::sleep(Duration::from_millis(1500));
        }
        file.respond(request)
    });
    arrives(&server, "--lanes 3 --chunk 256K", &bytes);
}

#[test]
fn files_of_every_length_arrive_over_a_long_path() {
    for size in [0, 1, 65_535, 65_536, 65_537, 200_000, 400_000, 1_048_576, 3_000_000] {
        let bytes = content(3, size);
        let file = File::new(bytes.clone());
        let server = Server::start(move |request| file.respond(request));
        let proxy = FaultProxy::to(server.address()).start().unwrap();
        for direction in Direction::BOTH {
            proxy.set(Connections::All, direction, Fault::delay(Duration::from_millis(30)));
        }
        for options in ["", "--lanes 8"] {
            let session = Session::new();
            copy(&session, options, &format!("http://{}/f", proxy.address())).status(0);
            whole(&session, &bytes);
        }
    }
}

/// Lanes open before the first response arrives only if connecting takes long too, so the path is one between network
/// namespaces.
#[test]
fn wrong_responses_to_prefetch_requests_are_never_written() {
    if let Err(error) = Namespace::new() {
        eprintln!("skipped: {error}");
        return;
    }
    let path = LinkSpec::new(Duration::from_millis(60), Some(3e8));
    let network = Network::new(&[path], Means::of_this_machine()).unwrap();
    let link = &network.links()[0];
    // New lanes request parts before anything is known of the file. The server responds with the whole file, another
    // version, another part, an HTML page, or a truncated body.
    for wrong in 0..5 {
        let bytes = content(4, 3 << 20);
        let file = File::new(bytes.clone());
        let script = move |request: &Request| {
            let response = file.respond(request);
            let is_prefetch =
                request.nth == 1 && request.is_later_part() && request.field("if-range").is_none();
            if !is_prefetch {
                return response;
            }
            let response = match wrong {
                0 => File { ranged: false, ..file.clone() }.respond(request),
                1 => response.with("ETag", "\"another\""),
                2 => response.with("Content-Range", "bytes 10-65545/3145728"),
                3 => super::response::Response::page(200),
                _ => response.cut(1000, super::response::End::Closes),
            };
            response.with("X-Wrong", wrong.to_string())
        };
        let at_both_ends = || {
            let server = Server::start_on(link.address(), script);
            let at_client = || {
                let session = Session::new();
                copy(&session, "--lanes 8", &server.url("/f")).status(0);
                whole(&session, &bytes);
            };
            network.client().within(at_client).unwrap();
            let wrong_responses = server.responses_with("X-Wrong");
            assert!(wrong_responses > 0, "{wrong}: {:#?}", server.requests());
        };
        link.server().within(at_both_ends).unwrap();
    }
}
