//! Writing to real mounts, as root where `/dev/fuse` exists; elsewhere the tests report that they are skipped.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::print_stderr, reason = "a skipped test prints that")]

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind as Io, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use haul_bench::guard::end_with_thread;
use haul_local::{LocalOptions, LocalStorage};
use haul_mount::{Mount, MountBuilder, Warning, pending_files};
use haul_storage::memory::{MemoryStorage, Operation};
use haul_storage::{ErrorKind, Storage};
use rustix::fs::{FallocateFlags, RenameFlags, fallocate};
use rustix::io::Errno;
use tempfile::TempDir;

use common::{can_mount, eventually, try_mount};

/// Longest time until files are uploaded.
const PATIENCE: Duration = Duration::from_secs(60);

/// The environment variable with the paths of the process that is killed: the storage's directory, the spools and the
/// mount point, separated by colons.
const KILLED: &str = "HAUL_MOUNT_TEST_KILLED";

/// A mount in a temporary directory, with its spools.
struct Written {
    mount: Mount,
    directory: TempDir,
    spools: TempDir,
}

impl Written {
    fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn uploaded(&self) {
        eventually(PATIENCE, "not uploaded", || self.mount.pending() == 0);
    }
}

/// Mounts; `None` where that is not possible at all.
fn written(builder: MountBuilder, spools: TempDir) -> Option<Written> {
    let directory = TempDir::new().unwrap();
    let mount = try_mount(builder.writable(spools.path()), directory.path())?;
    Some(Written { mount, directory, spools })
}

fn memory(storage: &Arc<MemoryStorage>) -> MountBuilder {
    let storage: Arc<dyn Storage> = Arc::clone(storage) as _;
    Mount::builder(storage)
}

fn mounted(storage: &Arc<MemoryStorage>) -> Option<Written> {
    written(memory(storage), TempDir::new().unwrap())
}

fn local(directory: &Path) -> MountBuilder {
    let storage = LocalStorage::open(directory, LocalOptions::default()).unwrap();
    Mount::builder(storage)
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Pseudo-random numbers (xorshift64), the same each time.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let length = self.below(most);
        let seed = self.next();
        (0..length).map(|at| (at.wrapping_mul(seed | 1) >> 7) as u8).collect()
    }
}

#[test]
fn a_spool_below_the_mount_point_is_refused() {
    let directory = TempDir::new().unwrap();
    let builder = memory(&MemoryStorage::new()).writable(directory.path().join("spools"));
    let error = builder.mount(directory.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert_eq!(names(directory.path()), Vec::<String>::new());
    // Nor through a link in the mount point: the spool's files are opened by their paths.
    let outside = TempDir::new().unwrap();
    symlink(outside.path(), directory.path().join("link")).unwrap();
    let builder = memory(&MemoryStorage::new()).writable(directory.path().join("link/spools"));
    let error = builder.nonempty(true).mount(directory.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert_eq!(names(outside.path()), Vec::<String>::new());
}

#[test]
fn a_written_file_is_uploaded() {
    let storage = MemoryStorage::new();
    storage.add_dir("d");
    let Some(written) = mounted(&storage) else { return };
    fs::write(written.path("d/new"), "content").unwrap();
    assert_eq!(fs::read(written.path("d/new")).unwrap(), b"content");
    assert_eq!(fs::metadata(written.path("d/new")).unwrap().len(), 7);
    let long: Vec<u8> = (0..5_000_000_u32).map(|at| (at ^ (at >> 9)) as u8).collect();
    fs::write(written.path("long"), &long).unwrap();
    assert!(fs::read(written.path("long")).unwrap() == long);
    written.uploaded();
    assert_eq!(storage.content("d/new"), "content");
    assert!(storage.content("long") == long);
    assert!(fs::read(written.path("long")).unwrap() == long);
    assert_eq!(storage.paths(), ["d/", "d/new", "long"]);
    assert_eq!(pending_files(written.spools.path(), None).unwrap(), []);
}

#[test]
fn files_that_wait_for_their_upload_are_listed_with_size_and_content() {
    let storage = MemoryStorage::new();
    storage.add_file("old", "1");
    storage.faults().on(Operation::WriteWhole).stall();
    let Some(written) = mounted(&storage) else { return };
    fs::write(written.path("new"), "22").unwrap();
    let mut open = File::create(written.path("open")).unwrap();
    open.write_all(b"333").unwrap();
    assert_eq!(names(&written.path("")), ["new", "old", "open"]);
    for (name, size) in [("new", 2), ("open", 3), ("old", 1)] {
        assert_eq!(fs::metadata(written.path(name)).unwrap().len(), size, "{name}");
        assert_eq!(fs::read(written.path(name)).unwrap().len() as u64, size, "{name}");
    }
    let listed = pending_files(written.spools.path(), None).unwrap();
    assert_eq!(listed.iter().map(|file| file.path.to_string()).collect::<Vec<_>>(), ["new"]);
}

#[test]
fn close_returns_before_the_upload_and_fsync_after_it() {
    let storage = MemoryStorage::new();
    storage.faults().on(Operation::WriteWhole).nth(1).delay(Duration::from_millis(500));
    // Longer than the machine may stall.
    storage.faults().on(Operation::WriteWhole).nth(2).delay(Duration::from_secs(5));
    let Some(written) = mounted(&storage) else { return };
    let mut file = File::create(written.path("a")).unwrap();
    file.write_all(b"content").unwrap();
    file.sync_all().unwrap();
    assert_eq!(storage.content("a"), "content");
    file.write_all(b" and more").unwrap();
    drop(file);
    assert_eq!(storage.content("a"), "content");
    written.uploaded();
    assert_eq!(storage.content("a"), "content and more");
}

#[test]
fn with_sync_close_a_closed_file_is_uploaded() {
    let storage = MemoryStorage::new();
    storage.faults().on(Operation::WriteWhole).delay(Duration::from_millis(200));
    let builder = memory(&storage).sync_close(true);
    let Some(written) = written(builder, TempDir::new().unwrap()) else { return };
    fs::write(written.path("a"), "content").unwrap();
    assert_eq!(storage.content("a"), "content");
}

#[test]
fn an_existing_file_is_changed_in_place() {
    let storage = MemoryStorage::new();
    let mut expected: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    storage.add_file("file", &expected);
    let Some(written) = mounted(&storage) else { return };
    let reader = File::open(written.path("file")).unwrap();
    let file = OpenOptions::new().write(true).open(written.path("file")).unwrap();
    file.write_all_at(b"NEW", 2_000_000).unwrap();
    expected[2_000_000..2_000_003].copy_from_slice(b"NEW");
    // A process that had opened it before sees the change, too.
    let mut found = [0; 10];
    reader.read_exact_at(&mut found, 1_999_995).unwrap();
    assert_eq!(found, expected[1_999_995..2_000_005]);
    drop(file);
    written.uploaded();
    assert!(storage.content("file") == expected);
    let mut appended = OpenOptions::new().append(true).open(written.path("file")).unwrap();
    appended.write_all(b"end").unwrap();
    expected.extend(b"end");
    drop(appended);
    let file = OpenOptions::new().write(true).open(written.path("file")).unwrap();
    file.set_len(2_500_000).unwrap();
    file.set_len(2_600_000).unwrap();
    expected.truncate(2_500_000);
    expected.resize(2_600_000, 0);
    drop(file);
    assert!(fs::read(written.path("file")).unwrap() == expected);
    written.uploaded();
    assert!(storage.content("file") == expected);
}

#[test]
fn flags_of_open_have_their_effect() {
    let storage = MemoryStorage::new();
    storage.add_file("file", "content");
    let Some(written) = mounted(&storage) else { return };
    let path = written.path("file");
    let exclusive = OpenOptions::new().write(true).create_new(true).open(&path);
    assert_eq!(exclusive.unwrap_err().kind(), Io::AlreadyExists);
    let missing = OpenOptions::new().write(true).open(written.path("none"));
    assert_eq!(missing.unwrap_err().kind(), Io::NotFound);
    let mut both = OpenOptions::new().read(true).append(true).open(&path).unwrap();
    both.write_all(b"+1").unwrap();
    both.write_all(b"+2").unwrap();
    both.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    both.read_to_string(&mut text).unwrap();
    assert_eq!(text, "content+1+2");
    drop(both);
    drop(File::create(&path).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    written.uploaded();
    assert_eq!(storage.content("file"), "");
}

#[test]
fn names_are_changed_on_the_server() {
    let storage = MemoryStorage::new();
    storage.add_file("a", "a");
    storage.add_file("b", "b");
    let Some(written) = mounted(&storage) else { return };
    fs::create_dir(written.path("d")).unwrap();
    fs::create_dir(written.path("d/e")).unwrap();
    symlink("../a", written.path("d/link")).unwrap();
    fs::rename(written.path("a"), written.path("d/a")).unwrap();
    assert_eq!(storage.paths(), ["b", "d/", "d/a", "d/e/", "d/link"]);
    assert_eq!(fs::read_link(written.path("d/link")).unwrap(), Path::new("../a"));
    fs::rename(written.path("b"), written.path("d/a")).unwrap();
    assert_eq!(fs::read(written.path("d/a")).unwrap(), b"b");
    assert_eq!(fs::remove_dir(written.path("d")).unwrap_err().kind(), Io::DirectoryNotEmpty);
    fs::remove_dir(written.path("d/e")).unwrap();
    fs::remove_file(written.path("d/link")).unwrap();
    fs::rename(written.path("d"), written.path("c")).unwrap();
    assert_eq!(names(&written.path("")), ["c"]);
    assert_eq!(names(&written.path("c")), ["a"]);
    fs::remove_file(written.path("c/a")).unwrap();
    fs::remove_dir(written.path("c")).unwrap();
    assert!(storage.paths().is_empty());
    assert_eq!(fs::metadata(written.path("c")).unwrap_err().kind(), Io::NotFound);
}

/// Formerly, the earlier time was shown for the whole age of attributes.
#[test]
fn a_change_in_a_directory_changes_its_time_at_once() {
    let target = TempDir::new().unwrap();
    fs::create_dir(target.path().join("d")).unwrap();
    let Some(written) = written(local(target.path()), TempDir::new().unwrap()) else { return };
    let changes = |change: &dyn Fn(&Path)| {
        let directory = written.path("d");
        let before = fs::metadata(&directory).unwrap().modified().unwrap();
        thread::sleep(Duration::from_millis(20));
        change(&directory);
        fs::metadata(&directory).unwrap().modified().unwrap() > before
    };
    assert!(changes(&|directory| fs::create_dir(directory.join("a")).unwrap()));
    assert!(changes(&|directory| symlink("a", directory.join("link")).unwrap()));
    assert!(changes(&|directory| fs::rename(directory.join("a"), directory.join("b")).unwrap()));
    assert!(changes(&|directory| fs::remove_dir(directory.join("b")).unwrap()));
    assert!(changes(&|directory| fs::remove_file(directory.join("link")).unwrap()));
    assert!(changes(&|directory| {
        fs::write(directory.join("file"), "content").unwrap();
        written.uploaded();
    }));
}

/// Formerly, the umask of haul was applied to them, too.
#[test]
fn a_new_directory_has_the_permissions_that_the_program_gives_it() {
    let target = TempDir::new().unwrap();
    let Some(written) = written(local(target.path()), TempDir::new().unwrap()) else { return };
    for (umask, mode) in [("000", 0o777), ("002", 0o775), ("027", 0o750)] {
        let script = format!("umask {umask}; mkdir d{umask}");
        let mut shell = Command::new("sh");
        let made = shell.args(["-c", &script]).current_dir(written.path("")).status().unwrap();
        assert!(made.success(), "{umask}");
        for top in [written.directory.path(), target.path()] {
            let found = fs::metadata(top.join(format!("d{umask}"))).unwrap();
            assert_eq!(found.mode() & 0o7777, mode, "{umask}");
        }
    }
}

#[test]
fn unsupported_changes_are_refused() {
    let storage = MemoryStorage::new();
    storage.add_file("a", "a");
    storage.add_file("b", "b");
    let Some(written) = mounted(&storage) else { return };
    let (a, b) = (written.path("a"), written.path("b"));
    assert_eq!(fs::hard_link(&a, written.path("c")).unwrap_err().kind(), Io::PermissionDenied);
    let here = rustix::fs::CWD;
    let renamed = |flags| rustix::fs::renameat_with(here, &a, here, &b, flags);
    assert_eq!(renamed(RenameFlags::EXCHANGE), Err(Errno::INVAL));
    assert_eq!(renamed(RenameFlags::NOREPLACE), Err(Errno::EXIST));
    assert!(std::os::unix::fs::chown(&a, Some(12_345), None).is_err());
    assert_eq!(storage.content("b"), "b");
}

#[test]
fn permissions_and_times_are_set_before_and_after_the_upload() {
    let storage = MemoryStorage::new();
    storage.add_file("old", "old");
    let Some(written) = mounted(&storage) else { return };
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let file = File::create(written.path("new")).unwrap();
    file.set_modified(time).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
    drop(file);
    for name in ["new", "old"] {
        let path = written.path(name);
        File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.mtime(), found.mode() & 0o777), (1_000_000_000, 0o640), "{name}");
    }
    written.uploaded();
    for name in ["new", "old"] {
        eventually(PATIENCE, "not set", || {
            let found = storage.entry(name);
            let seconds = found.modified.unwrap().seconds;
            (seconds, found.mode) == (1_000_000_000, Some(0o640))
        });
    }
}

#[test]
fn a_removed_file_is_usable_while_it_is_open() {
    let storage = MemoryStorage::new();
    let Some(written) = mounted(&storage) else { return };
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(written.path("file"))
        .unwrap();
    file.write_all(b"content").unwrap();
    fs::remove_file(written.path("file")).unwrap();
    file.write_all(b" and more").unwrap();
    let mut found = [0; 16];
    file.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(&found, b"content and more");
    assert_eq!(file.metadata().unwrap().len(), 16);
    fs::write(written.path("file"), "other").unwrap();
    assert_eq!(fs::read(written.path("file")).unwrap(), b"other");
    drop(file);
    written.uploaded();
    assert_eq!(storage.content("file"), "other");
}

#[test]
fn holes_are_made_in_the_spool() {
    let storage = MemoryStorage::new();
    let Some(written) = mounted(&storage) else { return };
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(written.path("file"))
        .unwrap();
    file.write_all_at(&[7; 100], 0).unwrap();
    let punched = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match fallocate(&file, punched, 10, 20) {
        Ok(()) => {}
        // The file system of the spool has no holes.
        Err(Errno::OPNOTSUPP) => return,
        Err(error) => panic!("{error}"),
    }
    fallocate(&file, FallocateFlags::empty(), 0, 200).unwrap();
    drop(file);
    written.uploaded();
    let mut expected = vec![7; 100];
    expected[10..30].fill(0);
    expected.resize(200, 0);
    assert!(storage.content("file") == expected);
}

#[test]
fn a_change_on_the_server_is_not_overwritten() {
    let storage = MemoryStorage::new();
    storage.add_file("notes.txt", "old");
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&warnings);
    let builder =
        memory(&storage).on_warning(move |warning| noted.lock().unwrap().push(warning.clone()));
    let Some(written) = written(builder, TempDir::new().unwrap()) else { return };
    let mut file = File::create(written.path("notes.txt")).unwrap();
    file.write_all(b"from here").unwrap();
    storage.add_file("notes.txt", "from there");
    drop(file);
    eventually(PATIENCE, "no copy", || storage.paths().len() == 2);
    written.uploaded();
    let warnings = warnings.lock().unwrap();
    let [Warning::Conflict { path, copy }] = &warnings[..] else { panic!("{warnings:?}") };
    assert_eq!(path.to_string(), "notes.txt");
    assert_eq!(storage.content("notes.txt"), "from there");
    assert_eq!(storage.content(copy.as_bytes()), "from here");
    assert_eq!(fs::read(written.path(&copy.to_string())).unwrap(), b"from here");
}

#[test]
fn a_location_is_mounted_for_writing_once() {
    let storage = MemoryStorage::new();
    let Some(written) = mounted(&storage) else { return };
    let other = TempDir::new().unwrap();
    let again = memory(&storage).writable(written.spools.path()).mount(other.path());
    assert_eq!(again.unwrap_err().kind(), ErrorKind::Busy);
    // For reading, it may be mounted any number of times.
    memory(&storage).mount(other.path()).unwrap().unmount().unwrap();
}

#[test]
fn a_failed_upload_stays_for_the_next_mount() {
    let storage = MemoryStorage::new();
    storage.faults().on(Operation::WriteWhole).fail(ErrorKind::PermissionDenied);
    let Some(Written { mount, directory, spools }) = mounted(&storage) else { return };
    fs::write(directory.path().join("file"), "content").unwrap();
    let listed = || pending_files(spools.path(), None).unwrap();
    eventually(PATIENCE, "no failure", || {
        listed().first().is_some_and(|file| file.failure.is_some())
    });
    mount.unmount().unwrap();
    assert_eq!(listed().len(), 1);
    storage.faults().clear();
    let Some(written) = written(memory(&storage), spools) else { return };
    assert_eq!(fs::read(written.path("file")).unwrap(), b"content");
    written.uploaded();
    assert_eq!(storage.content("file"), "content");
}

#[test]
fn a_killed_process_loses_nothing_that_was_closed() {
    if !can_mount() {
        return;
    }
    let (target, spools) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut expected = BTreeMap::new();
    let mut numbers = Numbers(7);
    for round in 0..5 {
        let point = TempDir::new().unwrap();
        let paths = [target.path(), spools.path(), point.path()].map(|path| path.to_str().unwrap());
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "the_process_that_is_killed", "--nocapture"]);
        child.env(KILLED, paths.join(":")).stdout(Stdio::null()).stderr(Stdio::null());
        end_with_thread(&mut child);
        let mut child = child.spawn().unwrap();
        let marker = spools.path().join(format!("mounted-{}", child.id()));
        let mut has_ended = false;
        eventually(PATIENCE, "not mounted", || {
            has_ended = child.try_wait().unwrap().is_some();
            has_ended || marker.exists()
        });
        if has_ended {
            eprintln!("SKIPPED: the other process could not mount");
            return;
        }
        for number in 0..20 {
            let name = format!("{round}-{number}");
            let content = numbers.bytes(300_000);
            fs::write(point.path().join(&name), &content).unwrap();
            expected.insert(name, content);
        }
        let (name, content) = expected.iter().nth(numbers.below(20) as usize).unwrap();
        assert!(fs::read(point.path().join(name)).unwrap() == *content, "{name}");
        child.kill().unwrap();
        child.wait().unwrap();
        // Removes the mount that is left.
        drop(local(target.path()).mount(point.path()).map(Mount::unmount));
    }
    let Some(written) = written(local(target.path()).source("killed"), spools) else { return };
    for (name, content) in &expected {
        assert!(fs::read(written.path(name)).unwrap() == *content, "{name}");
    }
    written.uploaded();
    for (name, content) in &expected {
        assert!(fs::read(target.path().join(name)).unwrap() == *content, "{name}");
    }
    let left = names(target.path());
    assert_eq!(left, expected.keys().cloned().collect::<Vec<_>>());
}

/// Not a test: it mounts, and is killed by the one above.
#[test]
fn the_process_that_is_killed() {
    let Ok(paths) = std::env::var(KILLED) else { return };
    let paths: Vec<&str> = paths.split(':').collect();
    let [target, spools, point] = paths[..] else { return };
    let builder = local(Path::new(target)).source("killed").writable(spools);
    let _mount = builder.mount(Path::new(point)).unwrap();
    fs::write(Path::new(spools).join(format!("mounted-{}", std::process::id())), "").unwrap();
    thread::sleep(Duration::from_secs(600));
}

#[test]
fn random_operations_have_the_same_effect_as_on_a_disk() {
    let (target, model) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let builder = local(target.path());
    let Some(written) = written(builder, TempDir::new().unwrap()) else { return };
    let mut numbers = Numbers(20_260_131);
    for step in 0..1500 {
        let operation = Random::any(&mut numbers);
        let on_disk = operation.run(model.path());
        let on_mount = operation.run(written.directory.path());
        assert_eq!(on_mount, on_disk, "step {step}: {operation:?}");
    }
    assert_eq!(tree(written.directory.path()), tree(model.path()));
    written.uploaded();
    assert_eq!(tree(target.path()), tree(model.path()));
    assert_eq!(tree(written.directory.path()), tree(model.path()));
}

/// An operation on a few names.
#[derive(Debug)]
enum Random {
    Write(String, Vec<u8>),
    WriteAt(String, u64, Vec<u8>),
    Append(String, Vec<u8>),
    Truncate(String, u64),
    Read(String),
    List(String),
    Rename(String, String),
    Remove(String),
    MakeDirectory(String),
    RemoveDirectory(String),
}

impl Random {
    fn any(numbers: &mut Numbers) -> Self {
        let mut name = || {
            let directory = ["", "", "d1/", "d2/"][numbers.below(4) as usize];
            format!("{directory}{}", ["a", "b", "c", "d1", "d2"][numbers.below(5) as usize])
        };
        let (one, other) = (name(), name());
        match numbers.below(12) {
            0 | 1 => Self::Write(one, numbers.bytes(200_000)),
            2 | 3 => Self::WriteAt(one, numbers.below(150_000), numbers.bytes(50_000)),
            4 => Self::Append(one, numbers.bytes(50_000)),
            5 => Self::Truncate(one, numbers.below(150_000)),
            6 => Self::Read(one),
            7 => Self::List(["", "d1", "d2"][numbers.below(3) as usize].to_owned()),
            8 => Self::Rename(one, other),
            9 => Self::Remove(one),
            10 => Self::MakeDirectory(one),
            _ => Self::RemoveDirectory(one),
        }
    }

    /// Runs the operation below `root`. Returns what a program sees of it.
    fn run(&self, root: &Path) -> Result<Vec<u8>, Io> {
        let at = |name: &str| root.join(name);
        let done = |outcome: std::io::Result<()>| outcome.map(|()| Vec::new());
        let outcome = match self {
            Self::Write(name, bytes) => done(fs::write(at(name), bytes)),
            Self::WriteAt(name, offset, bytes) => {
                let file = OpenOptions::new().write(true).open(at(name));
                done(file.and_then(|file| file.write_all_at(bytes, *offset)))
            }
            Self::Append(name, bytes) => {
                let file = OpenOptions::new().append(true).create(true).open(at(name));
                done(file.and_then(|mut file| file.write_all(bytes)))
            }
            Self::Truncate(name, size) => {
                let file = OpenOptions::new().write(true).open(at(name));
                done(file.and_then(|file| file.set_len(*size)))
            }
            Self::Read(name) => fs::read(at(name)),
            Self::List(name) => {
                fs::read_dir(at(name)).map(|_| names(&at(name)).join("/").into_bytes())
            }
            Self::Rename(from, to) => done(fs::rename(at(from), at(to))),
            Self::Remove(name) => done(fs::remove_file(at(name))),
            Self::MakeDirectory(name) => done(fs::create_dir(at(name))),
            Self::RemoveDirectory(name) => done(fs::remove_dir(at(name))),
        };
        outcome.map_err(|error| error.kind())
    }
}

/// Every path with its content; directories have none.
fn tree(root: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        for name in names(&directory) {
            let path = directory.join(name);
            let relative = path.strip_prefix(root).unwrap().to_owned();
            if path.is_dir() {
                found.insert(relative, None);
                left.push(path);
            } else {
                found.insert(relative, Some(fs::read(&path).unwrap()));
            }
        }
    }
    found
}

/// Processes that have a file open while another one rewrites it see, and leave, what they would on a disk.
#[test]
fn a_file_that_is_rewritten_while_others_have_it_open_is_as_on_a_disk() {
    let target = TempDir::new().unwrap();
    let Some(written) = written(local(target.path()), TempDir::new().unwrap()) else { return };
    let disk = TempDir::new().unwrap();
    let old = vec![7; 300_000];
    // What the process that rewrites the file writes, and what another one writes afterwards, which had it open before.
    let cases: [(&[u8], &[u8]); 4] = [(b"", b""), (b"new", b""), (b"", b"late"), (b"new", b"late")];
    for appends in [false, true] {
        for (number, (rewritten, late)) in cases.iter().enumerate() {
            let name = format!("{number}-{appends}");
            fs::write(target.path().join(&name), &old).unwrap();
            fs::write(disk.path().join(&name), &old).unwrap();
            let run = |top: &Path| {
                let path = top.join(&name);
                let reader = File::open(&path).unwrap();
                let mut other = OpenOptions::new().write(true).append(appends).open(&path).unwrap();
                other.write_all(b"first").unwrap();
                let mut seen = Vec::new();
                let mut see = || {
                    let length = reader.metadata().unwrap().len();
                    let mut bytes = vec![1; 400_000];
                    let read = reader.read_at(&mut bytes, 0).unwrap();
                    bytes.truncate(read);
                    seen.push((length, bytes, fs::read(&path).unwrap()));
                };
                see();
                let mut writer = File::create(&path).unwrap();
                see();
                writer.write_all(rewritten).unwrap();
                see();
                other.write_all(late).unwrap();
                see();
                drop(writer);
                see();
                drop(other);
                see();
                seen
            };
            assert!(run(written.directory.path()) == run(disk.path()), "{name}");
            written.uploaded();
            let stored = |top: &Path| fs::read(top.join(&name)).unwrap();
            assert!(stored(target.path()) == stored(disk.path()), "{name}");
            assert!(stored(written.directory.path()) == stored(disk.path()), "{name}");
        }
    }
}
