//! Real mounts, as root where `/dev/fuse` exists; elsewhere the tests report that they are skipped.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::print_stderr, reason = "a skipped test prints that")]

mod common;

use std::fs::{self, File};
use std::io::{ErrorKind as Io, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use haul_local::{LocalOptions, LocalStorage};
use haul_mount::{Ended, Mount, MountBuilder};
use haul_storage::memory::{MemoryStorage, Operation};
use haul_storage::{ErrorKind, Metadata, RelPath, Storage};
use rustix::io::Errno;
use tempfile::TempDir;

use common::{can_mount, eventually, try_mount};

/// A process that waits for a server must end within this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A timeout of requests that no test reaches.
const NEVER: Duration = Duration::from_secs(3600);

/// The environment variable with the mount point of the process that dies.
const DYING: &str = "HAUL_MOUNT_TEST_DYING";

/// A mount in a temporary directory.
struct Shown {
    mount: Mount,
    directory: TempDir,
}

impl Shown {
    fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }
}

/// Mounts; `None` where that is not possible at all.
fn shown(builder: MountBuilder) -> Option<Shown> {
    let directory = TempDir::new().unwrap();
    let mount = try_mount(builder, directory.path())?;
    Some(Shown { mount, directory })
}

fn memory(storage: &Arc<MemoryStorage>) -> MountBuilder {
    let storage: Arc<dyn Storage> = Arc::clone(storage) as _;
    // Programs see at once what a test changes.
    Mount::builder(storage).attribute_age(Duration::ZERO).missing_age(Duration::ZERO)
}

/// Bytes that differ from block to block.
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ (at >> 8) ^ (at >> 17)) as u8).collect()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn files_directories_and_links_are_shown() {
    let storage = MemoryStorage::new();
    storage.add_file("a/one", "content");
    storage.add_dir("a/b");
    storage.add_symlink("a/link", "one");
    let mode = Some(0o640);
    storage.set("a/one", &Metadata { mode, ..Metadata::default() });
    storage.set_modified("a/one", 1_000_000_000);
    let Some(shown) = shown(memory(&storage)) else { return };
    assert_eq!(names(&shown.path("")), ["a"]);
    assert_eq!(names(&shown.path("a")), ["b", "link", "one"]);
    assert_eq!(fs::read(shown.path("a/one")).unwrap(), b"content");
    assert_eq!(fs::read(shown.path("a/link")).unwrap(), b"content");
    assert_eq!(fs::read_link(shown.path("a/link")).unwrap(), Path::new("one"));
    let found = fs::metadata(shown.path("a/one")).unwrap();
    assert_eq!((found.len(), found.mtime(), found.mode()), (7, 1_000_000_000, 0o100_640));
    assert!(fs::metadata(shown.path("a/b")).unwrap().is_dir());
    assert_eq!(fs::metadata(shown.path("none")).unwrap_err().kind(), Io::NotFound);
    assert_eq!(fs::read_dir(shown.path("a/one")).unwrap_err().kind(), Io::NotADirectory);
    shown.mount.unmount().unwrap();
    assert_eq!(names(shown.directory.path()), Vec::<String>::new());
}

#[test]
fn a_read_only_mount_refuses_every_change() {
    let storage = MemoryStorage::new();
    storage.add_file("one", "content");
    let Some(shown) = shown(memory(&storage)) else { return };
    let one = shown.path("one");
    let outcomes = [
        fs::write(&one, "x"),
        fs::write(shown.path("two"), "x"),
        fs::remove_file(&one),
        fs::rename(&one, shown.path("two")),
        fs::create_dir(shown.path("d")),
    ];
    for outcome in outcomes {
        assert_eq!(outcome.unwrap_err().kind(), Io::ReadOnlyFilesystem);
    }
    assert_eq!(storage.paths(), ["one"]);
}

#[test]
fn a_directory_below_the_root_of_a_storage_can_be_mounted() {
    let storage = MemoryStorage::new();
    storage.add_file("a/b/one", "content");
    let Some(shown) = shown(memory(&storage).root(RelPath::parse("a/b").unwrap())) else { return };
    assert_eq!(names(&shown.path("")), ["one"]);
    assert_eq!(fs::read(shown.path("one")).unwrap(), b"content");
}

#[test]
fn reads_at_any_offset_return_the_bytes_there() {
    let whole = content(5 << 20);
    let storage = MemoryStorage::new();
    storage.add_file("file", &whole);
    let Some(shown) = shown(memory(&storage)) else { return };
    let file = File::open(shown.path("file")).unwrap();
    // Ends of pages and blocks, backward, and the end of the file.
    for at in [4_000_000, 131_071, 0, 1_048_576, 262_143, 5_242_870, 4095, 3_000_001] {
        let mut bytes = vec![0; 10_000.min(whole.len() - at)];
        file.read_exact_at(&mut bytes, at as u64).unwrap();
        assert!(bytes == whole[at..at + bytes.len()], "at {at}");
    }
    let mut file = file;
    file.seek(SeekFrom::End(-3)).unwrap();
    let mut rest = Vec::new();
    file.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, whole[whole.len() - 3..]);
}

#[test]
fn a_file_longer_than_the_memory_is_read_whole() {
    let whole = content((24 << 20) + 12_345);
    let storage = MemoryStorage::new();
    storage.add_file("file", &whole);
    let Some(shown) = shown(memory(&storage).memory(4 << 20)) else { return };
    assert!(fs::read(shown.path("file")).unwrap() == whole);
}

#[test]
fn several_readers_of_a_file_share_its_blocks() {
    let whole = content(8 << 20);
    let storage = MemoryStorage::new();
    storage.add_file("file", &whole);
    // Long enough for all to wait for the same blocks.
    storage.faults().on(Operation::Read).delay(Duration::from_millis(20));
    let Some(shown) = shown(memory(&storage)) else { return };
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(fs::read(shown.path("file")).unwrap() == whole));
        }
    });
    let reads = storage.faults().count(Operation::Read);
    // At most one for each 128 KiB (two blocks) of the file, however many read it.
    assert!(reads <= 64, "{reads} reads");
}

#[test]
fn a_large_directory_is_listed_completely() {
    let storage = MemoryStorage::new();
    let expected: Vec<_> = (0..5000).map(|number| format!("name-{number:05}")).collect();
    expected.iter().for_each(|name| storage.add_file(format!("d/{name}"), ""));
    let Some(shown) = shown(memory(&storage)) else { return };
    assert_eq!(names(&shown.path("d")), expected);
    // Once more, now that the kernel knows the names.
    assert_eq!(names(&shown.path("d")), expected);
}

#[test]
fn attributes_come_with_a_listing() {
    let storage = MemoryStorage::new();
    (0..50).for_each(|number| storage.add_file(format!("d/{number}"), "1234"));
    let age = Duration::from_secs(60);
    let Some(shown) = shown(memory(&storage).attribute_age(age)) else { return };
    for entry in fs::read_dir(shown.path("d")).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().len(), 4);
    }
    // The root and the directory.
    let stats = storage.faults().count(Operation::Stat);
    assert!(stats <= 2, "{stats} requests");
}

/// Formerly, such files had the size 0 for a while, and were read as empty.
#[test]
fn a_size_that_a_listing_does_not_have_is_requested() {
    let storage = MemoryStorage::builder().without_sizes().build();
    (0..3).for_each(|number| storage.add_file(format!("d/{number}"), "1234"));
    let age = Duration::from_secs(60);
    let Some(shown) = shown(memory(&storage).attribute_age(age)) else { return };
    for entry in fs::read_dir(shown.path("d")).unwrap() {
        let path = entry.unwrap().path();
        let stats = storage.faults().count(Operation::Stat);
        fs::metadata(&path).unwrap();
        assert_eq!(storage.faults().count(Operation::Stat), stats + 1);
        assert_eq!(fs::read(&path).unwrap(), b"1234");
    }
}

#[test]
fn a_name_that_is_too_long_is_not_requested() {
    let storage = MemoryStorage::new();
    let Some(shown) = shown(memory(&storage)) else { return };
    let stats = storage.faults().count(Operation::Stat);
    let error = fs::metadata(shown.path(&"n".repeat(256))).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::NAMETOOLONG.raw_os_error()));
    // The attributes of the root may have been requested.
    assert!(storage.faults().count(Operation::Stat) <= stats + 1);
}

#[test]
fn a_file_that_has_changed_is_read_anew_when_it_is_opened() {
    let storage = MemoryStorage::new();
    storage.add_file("file", "old content");
    let Some(shown) = shown(memory(&storage)) else { return };
    assert_eq!(fs::read(shown.path("file")).unwrap(), b"old content");
    storage.overwrite("file", 0, "new");
    assert_eq!(fs::read(shown.path("file")).unwrap(), b"new content");
    storage.add_file("file", "and longer content");
    assert_eq!(fs::read(shown.path("file")).unwrap(), b"and longer content");
}

/// Formerly, the kernel had the target for as long as it knew the link.
#[test]
fn a_link_that_has_changed_leads_to_its_new_target() {
    let storage = MemoryStorage::new();
    for target in ["one", "two", "three"] {
        storage.add_file(target, target);
    }
    storage.add_symlink("link", "one");
    let Some(shown) = shown(memory(&storage)) else { return };
    for target in ["one", "two", "three"] {
        storage.add_symlink("link", target);
        assert_eq!(fs::read_link(shown.path("link")).unwrap(), Path::new(target));
        assert_eq!(fs::read_to_string(shown.path("link")).unwrap(), target);
    }
}

/// Formerly, `tail -f` printed nothing that was added after its start.
#[test]
fn a_program_that_has_a_file_open_reads_what_is_added_to_it() {
    for age in [Duration::ZERO, Duration::from_millis(300)] {
        let storage = MemoryStorage::new();
        storage.add_file("log", "first\n");
        let Some(shown) = shown(memory(&storage).attribute_age(age)) else { return };
        let mut file = File::open(shown.path("log")).unwrap();
        let mut read = String::new();
        file.read_to_string(&mut read).unwrap();
        assert_eq!(read, "first\n");
        for (at, line) in [(6, "second\n"), (13, "third\n")] {
            storage.overwrite("log", at, line);
            eventually(PATIENCE, "not read", || {
                file.read_to_string(&mut read).unwrap();
                read.ends_with(line)
            });
        }
        assert_eq!(read, "first\nsecond\nthird\n");
        let mut whole = vec![0; read.len()];
        file.read_exact_at(&mut whole, 0).unwrap();
        assert_eq!(whole, read.as_bytes());
    }
}

/// Formerly, the kernel still had the old size, and read the new file only up to that.
#[test]
fn a_file_that_has_grown_since_it_was_looked_up_is_read_to_its_end() {
    let storage = MemoryStorage::new();
    storage.add_file("file", "old");
    let age = Duration::from_secs(60);
    let Some(shown) = shown(memory(&storage).attribute_age(age)) else { return };
    assert_eq!(fs::metadata(shown.path("file")).unwrap().len(), 3);
    // What was opened along with the lookup is used up.
    drop(File::open(shown.path("file")).unwrap());
    storage.add_file("file", "and longer content");
    assert_eq!(fs::read(shown.path("file")).unwrap(), b"and longer content");
}

/// The kernel has pages per file, whichever version they were read from. Formerly, those of an earlier version stayed.
#[test]
fn a_process_with_an_earlier_version_does_not_spoil_the_next() {
    let storage = MemoryStorage::new();
    storage.add_file("file", "a".repeat(300_000));
    let Some(shown) = shown(memory(&storage)) else { return };
    let earlier = File::open(shown.path("file")).unwrap();
    let next = "b".repeat(300_000);
    storage.add_file("file", &next);
    let file = File::open(shown.path("file")).unwrap();
    let mut bytes = vec![0; 100];
    earlier.read_exact_at(&mut bytes, 200_000).unwrap();
    assert_eq!(bytes, [b'a'; 100]);
    file.read_exact_at(&mut bytes, 200_000).unwrap();
    assert_eq!(bytes, [b'b'; 100]);
    assert!(fs::read_to_string(shown.path("file")).unwrap() == next);
    drop((earlier, file));
    assert!(fs::read_to_string(shown.path("file")).unwrap() == next);
}

#[test]
fn an_unchanged_file_is_read_from_memory() {
    let whole = content(1 << 20);
    let storage = MemoryStorage::new();
    storage.add_file("file", &whole);
    let Some(shown) = shown(memory(&storage)) else { return };
    assert!(fs::read(shown.path("file")).unwrap() == whole);
    let reads = storage.faults().count(Operation::Read);
    assert!(fs::read(shown.path("file")).unwrap() == whole);
    assert_eq!(storage.faults().count(Operation::Read), reads);
}

#[test]
fn a_file_of_unknown_size_is_read_to_its_end() {
    let storage = MemoryStorage::builder().without_sizes().build();
    storage.add_file("file", "content");
    let Some(shown) = shown(memory(&storage)) else { return };
    assert_eq!(fs::read(shown.path("file")).unwrap(), b"content");
}

#[test]
fn a_transient_failure_is_retried() {
    let whole = content(1 << 20);
    let storage = MemoryStorage::new();
    storage.add_file("file", &whole);
    storage.faults().on(Operation::Stat).first(1).fail(ErrorKind::Unreachable);
    storage.faults().on(Operation::List).first(1).fail(ErrorKind::Unreachable);
    storage.faults().on(Operation::Read).first(1).tear(70_000, ErrorKind::Unreachable);
    let Some(shown) = shown(memory(&storage)) else { return };
    assert!(fs::read(shown.path("file")).unwrap() == whole);
    assert_eq!(names(&shown.path("")), ["file"]);
}

#[test]
fn a_request_fails_after_the_timeout() {
    let storage = MemoryStorage::new();
    storage.add_file("file", "content");
    storage.add_file("slow", "content");
    storage.faults().on(Operation::Stat).path("slow").stall();
    storage.faults().on(Operation::Read).stall();
    let Some(shown) = shown(memory(&storage).timeout(Duration::from_millis(300))) else { return };
    let start = Instant::now();
    assert_eq!(fs::metadata(shown.path("slow")).unwrap_err().kind(), Io::TimedOut);
    assert!(fs::read(shown.path("file")).is_err());
    assert!(start.elapsed() < PATIENCE);
}

/// Starts a process that will wait for the storage.
fn waiting(program: &str, path: &Path) -> Child {
    Command::new(program).arg(path).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn send(child: &Child, signal: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
}

fn ends_after(mut child: Child, signal: &str) {
    send(&child, signal);
    eventually(PATIENCE, "the process still waits", || child.try_wait().unwrap().is_some());
}

#[test]
fn a_process_that_waits_for_a_server_can_be_interrupted() {
    let storage = MemoryStorage::new();
    // One for each signal: a read joins what an earlier one has requested.
    storage.add_file("TERM", content(1 << 20));
    storage.add_file("KILL", content(1 << 20));
    storage.add_file("slow", "content");
    storage.faults().on(Operation::Stat).path("slow").stall();
    storage.faults().on(Operation::Read).stall();
    let Some(shown) = shown(memory(&storage).timeout(NEVER)) else { return };
    // Unlike SIGINT, SIGTERM is not ignored by the processes of a job in the background.
    for signal in ["TERM", "KILL"] {
        let stats = storage.faults().count(Operation::Stat);
        let child = waiting("stat", &shown.path("slow"));
        eventually(PATIENCE, "no request", || storage.faults().count(Operation::Stat) > stats);
        ends_after(child, signal);
        let reads = storage.faults().count(Operation::Read);
        let child = waiting("cat", &shown.path(signal));
        eventually(PATIENCE, "no request", || storage.faults().count(Operation::Read) > reads);
        ends_after(child, signal);
    }
    // The mount still works.
    assert_eq!(names(&shown.path("")), ["KILL", "TERM", "slow"]);
}

/// Formerly, `stat` failed in every program that had a signal of the end of a child pending.
#[test]
fn a_signal_that_asks_for_nothing_does_not_interrupt_a_process() {
    let storage = MemoryStorage::new();
    storage.add_file("slow", "content");
    storage.faults().on(Operation::Stat).path("slow").stall();
    let Some(shown) = shown(memory(&storage).timeout(NEVER)) else { return };
    let test = format!("trap : CHLD WINCH; [ -e {} ]; exit 1", shown.path("slow").display());
    let mut child = Command::new("bash").args(["-c", &test]).spawn().unwrap();
    eventually(PATIENCE, "no request", || storage.faults().count(Operation::Stat) > 0);
    send(&child, "WINCH");
    send(&child, "CHLD");
    // Three times as long as a request goes on after another signal.
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(child.try_wait().unwrap(), None);
    ends_after(child, "TERM");
}

#[test]
fn a_mount_in_use_is_unmounted_at_once() {
    let storage = MemoryStorage::new();
    storage.add_file("file", content(1 << 20));
    storage.faults().on(Operation::Read).stall();
    let Some(shown) = shown(memory(&storage).timeout(NEVER)) else { return };
    let file = File::open(shown.path("file")).unwrap();
    let mut child = waiting("cat", &shown.path("file"));
    eventually(PATIENCE, "no request", || storage.faults().count(Operation::Read) > 0);
    let start = Instant::now();
    shown.mount.unmount().unwrap();
    assert!(start.elapsed() < PATIENCE);
    assert_eq!(names(shown.directory.path()), Vec::<String>::new());
    assert!(file.read_at(&mut [0; 10], 500_000).is_err());
    eventually(PATIENCE, "the process still waits", || child.try_wait().unwrap().is_some());
}

/// Formerly, it was not found any more, and stayed mounted without a process that serves it.
#[test]
fn a_mount_is_unmounted_where_it_is_after_a_rename() {
    let directory = TempDir::new().unwrap();
    let [before, after] = ["before", "after"].map(|name| directory.path().join(name));
    fs::create_dir_all(before.join("point")).unwrap();
    let storage = MemoryStorage::new();
    storage.add_file("file", "content");
    let Some(mount) = try_mount(memory(&storage), &before.join("point")) else { return };
    fs::rename(&before, &after).unwrap();
    assert_eq!(names(&after.join("point")), ["file"]);
    mount.unmount().unwrap();
    assert_eq!(names(&after.join("point")), Vec::<String>::new());
}

#[test]
fn a_mount_ends_when_it_is_unmounted_from_outside() {
    let storage = MemoryStorage::new();
    let Some(shown) = shown(memory(&storage)) else { return };
    let flags = rustix::mount::UnmountFlags::empty();
    // Another process may look at it.
    eventually(PATIENCE, "not unmounted", || {
        rustix::mount::unmount(shown.directory.path(), flags).is_ok()
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ended = runtime
        .block_on(async { tokio::time::timeout(PATIENCE, shown.mount.ended()).await.unwrap() });
    assert_eq!(ended, Ended::Unmounted);
    // Within a runtime, too, it is dropped without a panic.
    runtime.block_on(async { drop(shown) });
}

#[test]
fn a_mount_point_in_use_is_refused() {
    let storage = MemoryStorage::new();
    let Some(shown) = shown(memory(&storage)) else { return };
    let error = memory(&storage).mount(shown.directory.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.hint().unwrap().contains("fusermount3 -u"), "{error}");
}

#[test]
fn a_mount_whose_process_was_killed_is_recovered() {
    if !can_mount() {
        return;
    }
    let directory = TempDir::new().unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_process_that_dies"])
        .env(DYING, directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(!status.success());
    if fs::read_dir(directory.path()).is_ok() {
        eprintln!("SKIPPED: the other process could not mount");
        return;
    }
    let storage = MemoryStorage::new();
    storage.add_file("file", "content");
    let mount = memory(&storage).mount(directory.path()).unwrap();
    assert_eq!(fs::read(directory.path().join("file")).unwrap(), b"content");
    mount.unmount().unwrap();
}

/// Not a test: it leaves a mount behind for the one above.
#[test]
fn the_process_that_dies() {
    let Some(point) = std::env::var_os(DYING) else { return };
    let mount = memory(&MemoryStorage::new()).mount(Path::new(&point));
    eprintln!("{mount:?}");
    std::process::abort();
}

#[test]
fn a_local_directory_is_shown() {
    let source = TempDir::new().unwrap();
    let whole = content(3 << 20);
    fs::create_dir_all(source.path().join("a/b")).unwrap();
    fs::write(source.path().join("a/b/file"), &whole).unwrap();
    let storage = LocalStorage::open(source.path(), LocalOptions::default()).unwrap();
    let Some(shown) = shown(Mount::builder(storage)) else { return };
    assert!(fs::read(shown.path("a/b/file")).unwrap() == whole);
    assert_eq!(names(&shown.path("a")), ["b"]);
    let space = rustix::fs::statvfs(shown.directory.path()).unwrap();
    assert!(space.f_bavail > 0);
}
