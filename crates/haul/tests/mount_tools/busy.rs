//! Many open files, and the end of a mount that is in use.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use haul_fault_proxy::{Connections, Direction, Fault};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

use crate::content::content;
use crate::lab::{eventually, form, turn};
use crate::mounted::Mounted;
use crate::source::{Kind, Source};

/// Longest time for a mount in use to end: enough for a busy machine, and well below [`TIMEOUT`].
const SOON: Duration = Duration::from_secs(60);

/// The option that sets the timeout of requests to ten minutes.
const TIMEOUT: &str = "--timeout 600";

#[test]
fn a_thousand_files_are_open_at_once() {
    let Some(_turn) = turn() else { return };
    let count: usize = form(1000, 5000);
    let limit = getrlimit(Resource::Nofile);
    if let Some(most) = limit.maximum.filter(|most| *most < count as u64 + 200) {
        eprintln!("SKIPPED: at most {most} files may be open");
        return;
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    for kind in [Kind::Local, Kind::OpenSsh] {
        let Some(source) = Source::start(kind) else { continue };
        let name = |number: usize| format!("{}/{number}", number % 10);
        let whole = |number: usize| content(number as u64, 10_000);
        (0..count).for_each(|number| source.write(&name(number), whole(number)));
        let mounted = Mounted::start(&source, "--memory 8M");
        let open = |number| File::open(mounted.path(&name(number))).unwrap();
        let files: Vec<_> = (0..count).map(open).collect();
        let check = |number: usize, file: &File, at: usize| {
            let mut bytes = vec![0; 4096];
            file.read_exact_at(&mut bytes, at as u64).unwrap();
            assert!(bytes == whole(number)[at..at + 4096], "{kind:?}: {number} at {at}");
        };
        // One after the other, then backwards at another offset.
        files.iter().enumerate().for_each(|(number, file)| check(number, file, 0));
        files.iter().enumerate().rev().for_each(|(number, file)| check(number, file, 5000));
        assert_eq!(mounted.status()["open_files"], count, "{kind:?}");
        drop(files);
        eventually("files are still open", || mounted.status()["open_files"] == 0);
        mounted.end();
    }
}

#[test]
fn a_mount_in_use_ends_long_before_the_timeout() {
    let Some(_turn) = turn() else { return };
    for signal in [Signal::INT, Signal::TERM] {
        let Some(source) = Source::behind_proxy(Kind::OpenSsh) else { return };
        source.write("file", content(1, 8 << 20));
        let mut mounted = Mounted::start(&source, TIMEOUT);
        let file = File::open(mounted.path("file")).unwrap();
        let mut first = [0; 100];
        file.read_exact_at(&mut first, 0).unwrap();
        // From now on, the server is silent.
        for direction in Direction::BOTH {
            source.proxy().set(Connections::All, direction, Fault::Blackhole { from: 0 });
        }
        let mut cat = Command::new("cat");
        let cat = cat.arg(mounted.path("file")).stdout(Stdio::null()).stderr(Stdio::null());
        let mut reader = cat.spawn().unwrap();
        thread::sleep(Duration::from_millis(300));
        // Another process cannot unmount a mount in use; the attempt changes nothing. umount requests the free space
        // first. Formerly, that waited for the silent server for the whole timeout.
        let start = Instant::now();
        let mut unmount = Command::new("umount");
        let refused = unmount.arg(mounted.path("")).stderr(Stdio::null()).status();
        assert!(!refused.unwrap().success());
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        assert!(!mounted.has_ended());
        let start = Instant::now();
        mounted.signal(signal);
        eventually("the mount still runs", || mounted.has_ended());
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        eventually("the reader still waits", || reader.try_wait().unwrap().is_some());
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        assert!(file.read_at(&mut first, 4 << 20).is_err());
        assert_eq!(fs::read_dir(mounted.path("")).unwrap().count(), 0);
    }
}
