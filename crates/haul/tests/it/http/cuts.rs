//! Connections that are cut within a response, and a program that is killed.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use haul_fault_proxy::{Connections, Direction, Fault, FaultProxy};

use super::nginx::Nginx;
use super::response::{End, File};
use super::server::Server;
use super::{arrives, copy, whole};
use crate::content::{Chance, content, unfinished};
use crate::session::Session;
use crate::sftp::Running;

/// Cuts per test, at least.
const CUTS: u64 = 100;

/// Cuts a third of all response bodies, at random offsets, until there were [`CUTS`] cuts or more.
fn cut_at_random(seed: u64, end: End, ranged: bool, options: &str, sizes: &[usize]) {
    let mut cuts = 0;
    let mut transfers = 0;
    while cuts < CUTS {
        for &size in sizes {
            let mut file = File::new(content(seed + transfers, size));
            file.ranged = ranged;
            let bytes = file.content.clone();
            let chance = Mutex::new((Chance(seed + transfers), 0));
            let server = Server::start(move |request| {
                let response = file.respond(request);
                let mut chance = chance.lock().unwrap();
                let length = response.body.len() as u64;
                if request.method == "HEAD" || length == 0 || chance.0.below(3) > 0 {
                    return response;
                }
                chance.1 += 1;
                let after = chance.0.below(length) as usize;
                response.cut(after, end).with("X-Cut", chance.1.to_string())
            });
            arrives(&server, options, &bytes);
            cuts += server.responses_with("X-Cut");
            transfers += 1;
        }
    }
    eprintln!("{options}, {end:?}: {cuts} cuts in {transfers} transfers, all identical");
}

#[test]
fn a_file_is_identical_however_often_responses_are_truncated() {
    cut_at_random(100, End::Closes, true, "--lanes 3 --chunk 128K -q", &[4 << 20, 2_000_001]);
}

#[test]
fn a_file_is_identical_however_often_connections_are_reset() {
    cut_at_random(200, End::Resets, true, "--lanes 3 --chunk 128K -q", &[4 << 20, 2_000_001]);
}

#[test]
fn a_file_is_identical_if_a_server_without_ranges_truncates_responses() {
    for end in [End::Closes, End::Resets] {
        let file = File { ranged: false, ..File::new(content(3, 3 << 20)) };
        let bytes = file.content.clone();
        let chance = Mutex::new(Chance(3));
        let server = Server::start(move |request| {
            let response = file.respond(request);
            let after = chance.lock().unwrap().below(response.body.len() as u64) as usize;
            if request.method == "GET" && request.number < 4 {
                response.cut(after, end)
            } else {
                response
            }
        });
        arrives(&server, "", &bytes);
        assert!(server.requests().len() >= 4);
    }
}

#[test]
fn a_small_file_is_identical_wherever_the_first_responses_are_truncated() {
    for size in [1, 1000, 65_535, 65_536, 65_537, 200_000] {
        for after in [0, 1, size / 2, size - 1] {
            let file = File::new(content(4, size));
            let bytes = file.content.clone();
            let server = Server::start(move |request| {
                let response = file.respond(request);
                if request.method == "GET" && request.number < 3 {
                    let most = response.body.len() - 1;
                    response.cut(after.min(most), End::Closes)
                } else {
                    response
                }
            });
            arrives(&server, "", &bytes);
        }
    }
}

#[test]
fn a_server_that_truncates_every_response_is_an_error() {
    for (size, after) in [(1000, 10), (200_000, 0), (3 << 20, 0)] {
        let file = File::new(content(5, size));
        let server = Server::start(move |request| file.respond(request).cut(after, End::Closes));
        super::fails(&server, "--retries 1", "/f: cannot ");
    }
}

#[test]
fn a_file_from_nginx_is_identical_however_its_lanes_are_cut() {
    let Some(nginx) = Nginx::start("", "") else { return };
    let proxy = FaultProxy::to(nginx.address()).start().unwrap();
    let bytes = content(6, 12 << 20);
    fs::write(nginx.www("f"), &bytes).unwrap();
    let mut chance = Chance(6);
    let (mut cuts, mut transfers) = (0, 0);
    while cuts < CUTS {
        let from = proxy.stats().accepted;
        for n in 1..=8 {
            let after = chance.below(3 << 20);
            let cut = match chance.below(2) {
                0 => Fault::CutHard { after },
                _ => Fault::CutSoft { after },
            };
            proxy.set(Connections::Nth(from + n), Direction::ToClient, cut);
        }
        let session = Session::new();
        copy(&session, "-q --lanes 4", &format!("http://{}/f", proxy.address())).status(0);
        whole(&session, &bytes);
        let fired = proxy.fired().len() as u64;
        assert!(fired > cuts, "no connection was cut");
        cuts = fired;
        transfers += 1;
        proxy.clear();
    }
    eprintln!("{cuts} cuts in {transfers} transfers, all identical");
}

/// Waits until part files and journals below `root` have a total length of at least `bytes`.
pub(crate) fn wait_for_bytes(root: &Path, bytes: u64) {
    let begun = Instant::now();
    while !root.exists()
        || unfinished(root)
            .iter()
            .filter_map(|part| Some(fs::metadata(part).ok()?.len()))
            .sum::<u64>()
            < bytes
    {
        assert!(begun.elapsed() < Duration::from_secs(60), "{bytes} bytes were never written");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn each_kill_of_the_program_repeats_at_most_two_windows() {
    let Some(nginx) = Nginx::start("", "") else { return };
    let size = 48 << 20;
    let bytes = content(7, size);
    fs::write(nginx.www("f"), &bytes).unwrap();
    for kills in 1..=4 {
        let proxy = FaultProxy::to(nginx.address()).start().unwrap();
        let session = Session::new();
        let line = format!("cp --json --window 2M --lanes 2 http://{}/f dst/", proxy.address());
        for _ in 0..kills {
            let mut running = Running::start(&session, &format!("{line} --bwlimit 7M"));
            // More than may be repeated.
            running.until_moved(5 << 20);
            running.kill();
            assert!(!session.has("dst/f"), "the transfer had ended before the kill");
        }
        let summary = session.haul(&line).status(0).summary();
        whole(&session, &bytes);
        let resumed = summary["resumed_bytes"].as_u64().unwrap();
        let repeated = proxy.stats().to_client.read.saturating_sub(size as u64);
        eprintln!("{kills} kills: {resumed} bytes were resumed; {repeated} were moved again");
        assert!(resumed > 0, "{summary}");
        // Each kill loses a window in flight, and up to another that has arrived but is not in the journal yet. One
        // percent is for response headers.
        assert!(repeated <= kills * (4 << 20) + size as u64 / 100, "{repeated} were repeated");
    }
}
