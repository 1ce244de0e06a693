//! Overloaded servers: 429, 503, `Retry-After`, and limits on connections.

use std::fs;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::nginx::Nginx;
use super::response::{End, File, Response};
use super::server::Server;
use super::{arrives, copy, fails, whole};
use crate::content::content;
use crate::session::Session;

const SIZE: usize = 2 << 20;
const OPTIONS: &str = "--lanes 2 --chunk 128K";

/// The date in `seconds` seconds, in the format of `Retry-After`.
fn date_in(seconds: u64) -> String {
    let output = Command::new("date")
        .env("LC_ALL", "C")
        .args(["-u", "-d", &format!("+{seconds} seconds"), "+%a, %d %b %Y %H:%M:%S GMT"])
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Downloads from a server that returns `status` once, for request `at`, and checks that from then on there is a pause
/// of about two seconds or more between two requests. Requests that were already in flight arrive before it.
fn check_pause(at: u64, status: u16, retry_after: impl Fn() -> String + Send + Sync + 'static) {
    let file = File::new(content(1, SIZE));
    let bytes = file.content.clone();
    let times = std::sync::Arc::new(Mutex::new(Vec::new()));
    let noted = std::sync::Arc::clone(&times);
    let server = Server::start(move |request| {
        noted.lock().unwrap().push((request.number, Instant::now()));
        match request.number == at {
            true => Response::page(status).with("Retry-After", retry_after()),
            false => file.respond(request),
        }
    });
    arrives(&server, "--lanes 1 --chunk 128K --retries 2", &bytes);
    let times = times.lock().unwrap();
    let times: Vec<_> =
        times.iter().filter(|(number, _)| *number >= at).map(|(_, time)| *time).collect();
    let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    // A date has whole seconds, and requests already in flight arrive a little later.
    assert!(longest >= Duration::from_millis(1900), "{at}, {status}: only {longest:?}");
    assert!(longest < Duration::from_secs(8), "{at}, {status}: {longest:?}");
}

#[test]
fn retry_after_in_seconds_is_respected() {
    for status in [429, 503] {
        for at in [1, 4] {
            check_pause(at, status, || "2".to_owned());
        }
    }
}

#[test]
fn retry_after_as_a_date_is_respected() {
    for at in [1, 4] {
        check_pause(at, 503, || date_in(3));
    }
}

#[test]
fn a_busy_server_without_retry_after_is_retried() {
    for status in [429, 503, 500, 502, 504, 408] {
        let file = File::new(content(1, SIZE));
        let bytes = file.content.clone();
        let server = Server::start(move |request| match request.number {
            1 | 2 | 6 | 8 | 13 => Response::page(status),
            _ => file.respond(request),
        });
        arrives(&server, OPTIONS, &bytes);
    }
}

#[test]
fn a_server_that_stays_busy_is_an_error() {
    let server = Server::start(|_| Response::page(503));
    fails(&server, "--retries 0", "the server returned 503");
    let file = File::new(content(1, SIZE));
    let server = Server::start(move |request| {
        if request.is_later_part() { Response::page(503) } else { file.respond(request) }
    });
    fails(&server, "--lanes 2 --chunk 128K --retries 1", "the server returned 503");
}

#[test]
fn a_server_that_refuses_excess_connections_is_read_over_the_others() {
    for end in [End::Stays, End::Closes] {
        let file = File::new(content(2, 16 << 20));
        let bytes = file.content.clone();
        let server = Server::start(move |request| {
            if request.open > 4 { Response::page(503).then(end) } else { file.respond(request) }
        });
        arrives(&server, "--lanes 16", &bytes);
    }
}

#[test]
fn a_refused_fifth_connection_is_not_a_failure() {
    let file = File::new(content(2, 16 << 20));
    let bytes = file.content.clone();
    let server = Server::start(move |request| {
        if request.connection >= 5 {
            Response::page(503).then(End::Closes)
        } else {
            file.respond(request)
        }
    });
    arrives(&server, "--lanes 16", &bytes);
}

#[test]
fn a_server_that_closes_excess_connections_at_once_is_read_over_the_others() {
    for most in [2, 4] {
        let mut file = File::new(content(2, 24 << 20));
        let bytes = file.content.clone();
        file.tag = None;
        // Slow enough that further connections are tried.
        let server = Server::with_most_open(most, None, move |request| {
            let mut response = file.respond(request);
            response.rate = Some(6 << 20);
            response
        });
        arrives(&server, "--lanes 16", &bytes);
        eprintln!("{most} open at most: {} were tried", server.accepted());
        assert!(server.accepted() < 200, "{} connections were tried", server.accepted());
    }
}

#[test]
fn the_final_check_works_with_few_connections_if_idle_ones_are_closed() {
    let file = File::new(content(2, 24 << 20));
    let bytes = file.content.clone();
    // The connection of the first request is idle while others carry the parts.
    let patience = Duration::from_millis(700);
    let server = Server::with_most_open(4, patience, move |request| {
        let mut response = file.respond(request);
        response.rate = Some(3 << 20);
        response
    });
    let begun = Instant::now();
    let printed = arrives(&server, "--lanes 16", &bytes).err();
    eprintln!("{} connections, {:?}: {printed}", server.accepted(), begun.elapsed());
}

#[test]
fn nginx_with_limits_on_connections_and_rate_is_not_a_failure() {
    let zone = "limit_conn_zone $binary_remote_addr zone=addr:1m;";
    let Some(nginx) = Nginx::start(zone, "limit_rate 1m; limit_conn addr 12;") else { return };
    let bytes = content(3, 24 << 20);
    fs::write(nginx.www("f"), &bytes).unwrap();
    for lanes in ["--lanes 16", "--lanes 4", ""] {
        let session = Session::new();
        let begun = Instant::now();
        copy(&session, lanes, &nginx.url("/f")).status(0);
        whole(&session, &bytes);
        eprintln!("{lanes}: {:?}", begun.elapsed());
    }
}

#[test]
fn nginx_with_a_limit_on_requests_is_not_a_failure() {
    let zone = "limit_req_zone $binary_remote_addr zone=addr:1m rate=20r/s;";
    let Some(nginx) = Nginx::start(zone, "limit_req zone=addr burst=5 nodelay;") else { return };
    let bytes = content(3, 8 << 20);
    fs::write(nginx.www("f"), &bytes).unwrap();
    let session = Session::new();
    copy(&session, "--lanes 4", &nginx.url("/f")).status(0);
    whole(&session, &bytes);
}
