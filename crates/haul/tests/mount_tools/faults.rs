//! Connections that are cut, and a network that is down for a while, during reads and uploads.

use std::fs::{self, File};
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use haul_fault_proxy::{Connections, Direction, Fault, FaultProxy};
use rustix::process::{Pid, Signal, kill_process};

use crate::content::content;
use crate::lab::{eventually, form, turn, turn_alone};
use crate::mounted::Mounted;
use crate::source::{Kind, Source};

const MIB: usize = 1 << 20;

/// How long the network is down.
const OUTAGE: Duration = Duration::from_millis(1200);

const BOTH: &[Kind] = &[Kind::OpenSsh, Kind::Dav];

/// Servers behind a proxy that passes this many bytes per second in `direction`, so that a transfer takes a while.
fn sources(
    kinds: &[Kind],
    direction: Direction,
    rate: u64,
) -> impl Iterator<Item = (Kind, Source)> {
    kinds.iter().filter_map(move |kind| {
        let source = Source::behind_proxy(*kind)?;
        source.proxy().set(Connections::All, direction, Fault::SharedRate(rate));
        Some((*kind, source))
    })
}

/// Holds all bytes back for this time.
fn interrupt(proxy: &FaultProxy, time: Duration) {
    let hole = Fault::Blackhole { from: 0 };
    let rules = Direction::BOTH.map(|way| proxy.set(Connections::All, way, hole));
    thread::sleep(time);
    rules.iter().for_each(|rule| _ = proxy.lift(*rule));
}

/// Reads a file in pieces of 64 KiB. After each eighth of the file, calls `disturb` with its number.
fn read_disturbed(file: &mut File, length: usize, disturb: impl Fn(usize)) -> Vec<u8> {
    let mut whole = vec![0; length];
    let part = length.div_ceil(8);
    for (number, part) in whole.chunks_mut(part).enumerate() {
        for piece in part.chunks_mut(64 << 10) {
            file.read_exact(piece).unwrap();
        }
        disturb(number);
    }
    whole
}

#[test]
fn a_read_goes_on_after_its_connections_were_cut() {
    let Some(_turn) = turn() else { return };
    for (kind, source) in sources(BOTH, Direction::ToClient, 24 << 20) {
        let whole = content(1, form(12, 256) * MIB);
        source.write("file", &whole);
        let mounted = Mounted::start(&source, "");
        let mut file = File::open(mounted.path("file")).unwrap();
        let read = read_disturbed(&mut file, whole.len(), |number| {
            if number % 2 == 0 {
                source.proxy().cut_all();
            }
        });
        assert!(read == whole, "{kind:?}");
        mounted.end();
    }
}

#[test]
fn a_read_goes_on_when_the_network_is_back() {
    let Some(_turn) = turn() else { return };
    let kinds = form(&BOTH[..1], BOTH);
    for (kind, source) in sources(kinds, Direction::ToClient, 24 << 20) {
        let whole = content(2, form(10, 128) * MIB);
        source.write("file", &whole);
        let mounted = Mounted::start(&source, "");
        let mut file = File::open(mounted.path("file")).unwrap();
        let proxy = source.proxy();
        thread::scope(|scope| {
            let read = read_disturbed(&mut file, whole.len(), |number| {
                // Reading continues during the outage.
                if number == 2 {
                    scope.spawn(move || interrupt(proxy, OUTAGE));
                }
            });
            assert!(read == whole, "{kind:?}");
        });
        mounted.end();
    }
}

#[test]
fn a_silent_server_stops_no_program_for_longer_than_the_timeout() {
    let Some(_turn) = turn_alone() else { return };
    let kinds = form(&BOTH[..1], BOTH);
    for (kind, source) in sources(kinds, Direction::ToClient, 100 << 20) {
        let whole = content(3, 4 * MIB);
        source.write("one", &whole);
        source.write("two", &whole);
        let proxy = source.proxy();
        let silence = || {
            let hole = Fault::Blackhole { from: 0 };
            Direction::BOTH.map(|way| proxy.set(Connections::All, way, hole))
        };
        // A program that waits can be interrupted, long before the timeout.
        let mounted = Mounted::start(&source, "--timeout 600");
        assert!(fs::read(mounted.path("one")).unwrap() == whole);
        let rules = silence();
        let mut cat = Command::new("cat");
        let cat = cat.arg(mounted.path("two")).stdout(Stdio::null()).stderr(Stdio::null());
        let mut reader = cat.spawn().unwrap();
        thread::sleep(Duration::from_millis(300));
        let start = Instant::now();
        // Unlike SIGINT, it is not ignored by the processes of a job in the background.
        kill_process(Pid::from_child(&reader), Signal::TERM).unwrap();
        eventually("the reader still waits", || reader.try_wait().unwrap().is_some());
        assert!(start.elapsed() < Duration::from_secs(60), "{kind:?}: {:?}", start.elapsed());
        rules.iter().for_each(|rule| _ = proxy.lift(*rule));
        mounted.end();
        // A program that is not interrupted gets an error.
        let mounted = Mounted::start(&source, "--timeout 2");
        assert!(fs::read(mounted.path("one")).unwrap() == whole);
        let rules = silence();
        let start = Instant::now();
        assert!(fs::read(mounted.path("two")).is_err(), "{kind:?}");
        // The default timeout is a minute.
        assert!(start.elapsed() < Duration::from_secs(40), "{kind:?}: {:?}", start.elapsed());
        rules.iter().for_each(|rule| _ = proxy.lift(*rule));
        let is_back = || fs::read(mounted.path("two")).is_ok_and(|read| read == whole);
        eventually("the mount does not recover", is_back);
        mounted.end();
    }
}

#[test]
fn an_upload_goes_on_after_its_connections_were_cut() {
    let Some(_turn) = turn() else { return };
    for (kind, source) in sources(BOTH, Direction::ToServer, 12 << 20) {
        let whole = content(4, form(8, 256) * MIB);
        let mounted = Mounted::start(&source, "--read-write");
        fs::write(mounted.path("file"), &whole).unwrap();
        for number in 0..form(30, 200) {
            fs::write(mounted.path(&format!("small {number}")), content(number, 5000)).unwrap();
        }
        for _ in 0..form(3, 30) {
            thread::sleep(Duration::from_millis(300));
            source.proxy().cut_all();
        }
        mounted.uploaded();
        assert!(fs::read(source.far("file")).unwrap() == whole, "{kind:?}");
        for number in 0..form(30, 200) {
            let found = fs::read(source.far(&format!("small {number}"))).unwrap();
            assert!(found == content(number, 5000), "{kind:?}: {number}");
        }
        mounted.end();
        // Neither part files nor conflict copies.
        assert_eq!(source.names("").len(), 1 + form(30, 200), "{:?}", source.names(""));
    }
}

#[test]
fn an_upload_goes_on_when_the_network_is_back() {
    let Some(_turn) = turn() else { return };
    let kinds = form(&BOTH[..1], BOTH);
    for (kind, source) in sources(kinds, Direction::ToServer, 12 << 20) {
        let whole = content(5, form(6, 128) * MIB);
        let mounted = Mounted::start(&source, "--read-write");
        fs::write(mounted.path("file"), &whole).unwrap();
        thread::sleep(Duration::from_millis(200));
        thread::scope(|scope| {
            scope.spawn(|| interrupt(source.proxy(), OUTAGE));
            // A file can be read whether or not it has left the spool.
            assert!(fs::read(mounted.path("file")).unwrap() == whole, "{kind:?}");
        });
        mounted.uploaded();
        assert!(fs::read(source.far("file")).unwrap() == whole, "{kind:?}");
        mounted.end();
        assert_eq!(source.names(""), ["file"]);
    }
}

/// The next mount resumes the part file of an upload on the server, or removes it.
#[test]
fn a_killed_upload_leaves_no_part_file_after_the_next_mount() {
    let Some(_turn) = turn() else { return };
    let whole = content(9, 24 * MIB);
    for (kind, source) in sources(BOTH, Direction::ToServer, 16 << 20) {
        for (number, expected) in ["kept", "renamed", "rewritten", "removed"].iter().enumerate() {
            let mounted = Mounted::start(&source, "--read-write");
            let name = format!("file-{number}");
            fs::write(mounted.path(&name), &whole).unwrap();
            let has_part = || source.names("").iter().any(|found| found.starts_with('.'));
            eventually("the upload does not begin", has_part);
            thread::sleep(Duration::from_millis(400));
            mounted.kill();
            assert!(has_part() && !source.far(&name).exists(), "{kind:?} {expected}");
            let mounted = Mounted::start(&source, "--read-write");
            match *expected {
                "renamed" => fs::rename(mounted.path(&name), mounted.path("renamed")).unwrap(),
                "rewritten" => fs::write(mounted.path(&name), "short").unwrap(),
                "removed" => fs::remove_file(mounted.path(&name)).unwrap(),
                _ => {}
            }
            mounted.uploaded();
            let left = match *expected {
                "renamed" => vec!["renamed".to_owned()],
                "removed" => Vec::new(),
                _ => vec![name.clone()],
            };
            // Of a removed file, the part file is removed in the background.
            eventually("a part file is left", || source.names("") == left);
            let stored = left.first().map(|name| fs::read(source.far(name)).unwrap());
            let wanted = if *expected == "rewritten" { b"short" } else { &whole[..] };
            assert!(stored.is_none_or(|stored| stored == wanted), "{kind:?} {expected}");
            mounted.end();
            left.iter().for_each(|name| fs::remove_file(source.far(name)).unwrap());
        }
    }
}
