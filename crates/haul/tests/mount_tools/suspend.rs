//! Processes that are stopped for a while, as when a machine sleeps: the server, and the mount.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

use haul_fault_proxy::{Connections, Direction, Fault};
use rustix::process::Signal;

use crate::content::content;
use crate::lab::{form, turn};
use crate::mounted::Mounted;
use crate::source::{Kind, Source};

/// How long a process is stopped.
fn pause() -> Duration {
    form(Duration::from_millis(500), Duration::from_secs(40))
}

/// Servers that are a single process.
const KINDS: &[Kind] = &[Kind::HaulSftp, Kind::Dav];

fn kinds() -> &'static [Kind] {
    form(&KINDS[..1], KINDS)
}

/// Reads a whole file. After the first MiB, stops a process by `send` with SIGSTOP, and continues it after [`pause`].
fn read_stopped(path: &Path, whole: &[u8], send: impl Fn(Signal) + Sync) {
    let mut file = File::open(path).unwrap();
    let mut read = vec![0; whole.len()];
    let (head, rest) = read.split_at_mut(1 << 20);
    file.read_exact(head).unwrap();
    thread::scope(|scope| {
        send(Signal::STOP);
        scope.spawn(|| {
            thread::sleep(pause());
            send(Signal::CONT);
        });
        file.read_exact(rest).unwrap();
    });
    assert!(read == whole);
}

#[test]
fn a_read_goes_on_after_the_server_or_the_mount_was_stopped() {
    let Some(_turn) = turn() else { return };
    for kind in kinds() {
        let Some(source) = Source::start(*kind) else { continue };
        let whole = content(1, 24 << 20);
        source.write("one", &whole);
        source.write("two", &whole);
        let mounted = Mounted::start(&source, "--memory 8M");
        read_stopped(&mounted.path("one"), &whole, |signal| source.signal_server(signal));
        read_stopped(&mounted.path("two"), &whole, |signal| mounted.signal(signal));
        mounted.end();
    }
}

#[test]
fn an_upload_goes_on_after_the_server_or_the_mount_was_stopped() {
    let Some(_turn) = turn() else { return };
    for kind in kinds() {
        let Some(source) = Source::behind_proxy(*kind) else { continue };
        // Slow enough for the upload to be in progress when the process is stopped.
        let slow = Fault::SharedRate(8 << 20);
        source.proxy().set(Connections::All, Direction::ToServer, slow);
        let mounted = Mounted::start(&source, "--read-write");
        for (number, name) in ["one", "two"].into_iter().enumerate() {
            let whole = content(number as u64, 4 << 20);
            fs::write(mounted.path(name), &whole).unwrap();
            thread::sleep(Duration::from_millis(200));
            let send = |signal| match number {
                0 => source.signal_server(signal),
                _ => mounted.signal(signal),
            };
            send(Signal::STOP);
            thread::sleep(pause());
            send(Signal::CONT);
            mounted.uploaded();
            assert!(fs::read(source.far(name)).unwrap() == whole, "{kind:?}: {name}");
        }
        mounted.end();
        assert_eq!(source.names(""), ["one", "two"]);
    }
}
