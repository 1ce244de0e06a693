//! Writing without a kernel, in part over a simulated link in virtual time.

mod beside;
mod conflicts;
mod outcomes;
mod removed;
mod renaming;
mod rewriting;
mod unmount;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use haul_engine::Settings;
use haul_engine::budget::LinkBudgets;
use haul_storage::memory::{MemoryStorage, Operation, SimulatedLink};
use haul_storage::{ErrorKind, Range, RelPath, Storage, Timestamp, is_part_name};
use rustix::io::Errno;
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::{Changes, Overlay, PendingFile, Spool, Warning, Warnings, WriteOptions, pending_files};
use crate::attributes::Ages;
use crate::fuse::{Body, Change, NewAttributes, NewTime, ROOT, Reply};
use crate::lock::lock;
use crate::names::{Names, Shown};
use crate::read::{Context, Files, ReadOptions};

const RTT: Duration = Duration::from_millis(50);
/// 1 Gbit/s.
const RATE: u64 = 125_000_000;
const MIB: usize = 1 << 20;

const CREATE: u32 = 0o101;
const READ_WRITE: u32 = 0o2;

/// The mount of a storage, as the kernel uses it.
struct World {
    names: Arc<Names>,
    changes: Arc<Changes>,
    warnings: Arc<Mutex<Vec<Warning>>>,
    spools: TempDir,
}

impl World {
    fn new(storage: &Arc<MemoryStorage>) -> Self {
        Self::with(storage, TempDir::new().unwrap())
    }

    fn with(storage: &Arc<MemoryStorage>, spools: TempDir) -> Self {
        let shared: Arc<dyn Storage> = Arc::clone(storage) as _;
        let (memory, timeout) = (64 << 20, Duration::from_secs(60));
        let settings = Settings { memory, ..Settings::default() };
        let budgets = LinkBudgets::default();
        let share = budgets.reader(&shared, &settings);
        let options = ReadOptions { memory, timeout, cache: None, identity: "".into() };
        let context = Context::new(Arc::clone(&shared), share, options);
        let files = Arc::new(Files::new(&context, memory, &Handle::current()));
        let age = Duration::from_secs(5);
        let ages = Ages { entry: age, missing: Duration::from_secs(1), most: 1000 };
        let shown = Shown { owner: (1, 2), umask: 0, ages, timeout };
        let overlay = Arc::new(Overlay::default());
        let (root, local) = (RelPath::root(), Some(Arc::clone(&overlay)));
        let names = Names::new(Arc::clone(&shared), root, shown, local, &Handle::current());
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&warnings);
        let warn = Warnings::new(move |warning| lock(&noted).push(warning.clone()));
        let options = WriteOptions { sync_close: false, warnings: warn };
        let spool = Spool::open(spools.path(), "memory:").unwrap();
        let writer = budgets.writer(&shared, &settings);
        let (shown, local) = ((&names, &files), (&overlay, spool));
        let changes = Changes::new(shown, local, writer, options, &Handle::current()).unwrap();
        changes.resume();
        Self { names, changes, warnings, spools }
    }

    async fn change(&self, node: u64, change: Change) -> Reply {
        match self.changes.handle_now(&change) {
            Some(reply) => reply,
            None => Arc::clone(&self.changes).handle(node, change).await,
        }
    }

    async fn create(&self, name: &str) -> u64 {
        let name = name.as_bytes().to_vec();
        let reply = self.change(ROOT, Change::Create { name, flags: CREATE, mode: 0o644 }).await;
        reply.file().unwrap()
    }

    /// Opens an existing file in the root for writing.
    async fn open(&self, name: &str) -> u64 {
        self.open_with(name, READ_WRITE).await
    }

    /// Opens an existing file in the root, with flags of `open(2)`.
    async fn open_with(&self, name: &str, flags: u32) -> u64 {
        let node = self.names.tree().refer(ROOT, name.as_bytes()).unwrap();
        self.changes.open(node, flags).await.unwrap().file().unwrap()
    }

    async fn write(&self, handle: u64, offset: u64, data: impl AsRef<[u8]>) {
        let data = data.as_ref().to_vec();
        let written =
            self.change(ROOT, Change::Write { handle, offset, data, is_page: false }).await;
        assert!(matches!(written.body, Body::Bytes(_)), "{written:?}");
    }

    async fn close(&self, handle: u64) {
        done(&self.change(ROOT, Change::Flush(handle)).await);
        self.changes.release(handle);
    }

    async fn write_file(&self, name: &str, content: impl AsRef<[u8]>) {
        let handle = self.create(name).await;
        self.write(handle, 0, content).await;
        self.close(handle).await;
    }

    async fn read(&self, handle: u64, start: u64, length: u64) -> Vec<u8> {
        let range = Range::new(start, length);
        let reply = match self.changes.read_now(handle, range) {
            Some(reply) => reply,
            None => self.changes.read(handle, range).await,
        };
        match reply.body {
            Body::Data(block) => block.into_bytes().to_vec(),
            other => panic!("{other:?}"),
        }
    }

    /// The files that wait to be uploaded, as users see them.
    fn listed(&self) -> Vec<PendingFile> {
        pending_files(self.spools.path(), None).unwrap()
    }

    /// Waits until everything is uploaded.
    async fn uploaded(&self) {
        let start = Instant::now();
        while self.changes.pending() > 0 {
            assert!(start.elapsed() < Duration::from_secs(600), "not uploaded");
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Runs a mount that is killed at the end. Returns its spools.
fn killed(storage: &Arc<MemoryStorage>, run: impl AsyncFnOnce(&World)) -> TempDir {
    // The tasks of the mount end with the runtime, as with the process of a mount.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let world = World::new(storage);
        run(&world).await;
        world.spools
    })
}

/// Mounts again after a kill, and waits until everything is uploaded.
fn mounted_again(storage: &Arc<MemoryStorage>, spools: TempDir) -> Vec<Warning> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let world = World::with(storage, spools);
        world.uploaded().await;
        assert_eq!(world.listed(), []);
        lock(&world.warnings).clone()
    })
}

fn done(reply: &Reply) {
    assert!(matches!(reply.body, Body::Bytes(_)), "{reply:?}");
}

fn failed(reply: &Reply) -> Errno {
    match reply.body {
        Body::Error(number) => number,
        _ => panic!("{reply:?}"),
    }
}

fn behind_link() -> Arc<MemoryStorage> {
    MemoryStorage::builder().with_link(SimulatedLink::new(RTT, RATE)).build()
}

fn rename(name: &str, new_name: &str) -> Change {
    let (name, new_name) = (name.as_bytes().to_vec(), new_name.as_bytes().to_vec());
    Change::Rename { name, parent: ROOT, new_name, flags: 0 }
}

#[tokio::test(start_paused = true)]
async fn many_small_files_are_uploaded_at_once() {
    const FILES: u32 = 500;
    let storage = behind_link();
    let world = World::new(&storage);
    let start = Instant::now();
    for number in 0..FILES {
        world.write_file(&number.to_string(), [7; 4096]).await;
    }
    world.uploaded().await;
    // Much faster than one after the other, which takes two RTTs each.
    assert!(start.elapsed() < RTT * FILES / 4, "{:?}", start.elapsed());
    assert_eq!(storage.paths().len(), FILES as usize);
}

#[tokio::test]
async fn a_file_is_shown_and_read_before_it_is_uploaded() {
    let storage = MemoryStorage::new();
    storage.faults().on(Operation::WriteWhole).first(1).fail(ErrorKind::Unreachable);
    let world = World::new(&storage);
    let handle = world.create("new").await;
    world.write(handle, 0, "content").await;
    assert_eq!(world.read(handle, 3, 100).await, b"tent");
    let path = RelPath::parse("new").unwrap();
    assert_eq!(world.names.cached(&path).unwrap().entry.unwrap().size, 7);
    assert_eq!(world.names.local_entries(&RelPath::root()).len(), 1);
    world.close(handle).await;
    assert_eq!(world.listed().len(), 1);
    world.uploaded().await;
    assert_eq!(storage.content("new"), "content");
    assert_eq!(world.listed(), []);
    assert!(world.names.local_entries(&RelPath::root()).is_empty());
}

#[tokio::test]
async fn parts_that_were_not_written_come_from_the_server() {
    let storage = MemoryStorage::new();
    let mut expected: Vec<u8> = (0..3 * MIB).map(|at| (at % 251) as u8).collect();
    storage.add_file("file", &expected);
    let world = World::new(&storage);
    let handle = world.open("file").await;
    world.write(handle, MIB as u64 + 5, b"NEW").await;
    expected[MIB + 5..MIB + 8].copy_from_slice(b"NEW");
    assert_eq!(world.read(handle, MIB as u64, 20).await, expected[MIB..MIB + 20]);
    world.close(handle).await;
    world.uploaded().await;
    assert!(storage.content("file") == expected);
}

/// Formerly, it was uploaded half-written, and counted as complete if haul was killed then.
#[tokio::test(start_paused = true)]
async fn a_file_that_is_opened_again_while_its_rest_is_fetched_is_uploaded_once_it_is_closed() {
    let storage = behind_link();
    storage.add_file("file", vec![7; 32 * MIB]);
    let world = World::new(&storage);
    let first = world.open("file").await;
    world.write(first, 0, "whole").await;
    world.close(first).await;
    let second = world.open("file").await;
    world.write(second, 0, "half").await;
    // Longer than the rest and an upload take.
    sleep(Duration::from_secs(60)).await;
    assert_eq!(storage.content("file")[..5], [7; 5]);
    assert!(!world.changes.spool.recover().unwrap()[0].1.closed);
    world.close(second).await;
    world.uploaded().await;
    assert_eq!(&storage.content("file")[..5], b"halfe");
}

/// Formerly, a read failed with ESTALE if it began just after the uploader had set the mode or time of the file.
#[tokio::test(start_paused = true)]
async fn the_rest_of_a_file_can_be_read_while_its_time_is_uploaded() {
    const READ: u32 = 0;
    for quarters in 0..24 {
        let storage = behind_link();
        storage.add_file("file", vec![7; MIB]);
        let world = World::new(&storage);
        let handle = world.open("file").await;
        let node = world.names.tree().find(ROOT, b"file").unwrap();
        let modified = Some(NewTime::At(Timestamp { seconds: 1, nanos: 0 }));
        let time = NewAttributes { modified, handle: Some(handle), ..NewAttributes::default() };
        done(&world.change(node, Change::Setattr(time)).await);
        let reader = world.changes.open(node, READ).await.unwrap().file().unwrap();
        let read = async {
            sleep(RTT * quarters / 4).await;
            assert_eq!(world.read(reader, 0, 10).await, [7; 10], "{quarters}");
            world.changes.release(reader);
        };
        tokio::join!(read, world.close(handle));
        world.uploaded().await;
        assert_eq!(storage.content("file"), vec![7; MIB]);
    }
}

#[tokio::test]
async fn the_rest_of_a_file_that_has_changed_on_the_server_cannot_be_read() {
    let storage = MemoryStorage::new();
    storage.add_file("file", vec![7; 2 * MIB]);
    let world = World::new(&storage);
    let handle = world.open("file").await;
    storage.add_file("file", "other");
    world.write(handle, 0, "new").await;
    let rest = Range::new(MIB as u64, 10);
    assert_eq!(failed(&world.changes.read(handle, rest).await), Errno::STALE);
    assert_eq!(world.read(handle, 0, 3).await, b"new");
    done(&world.change(ROOT, Change::Flush(handle)).await);
    assert_eq!(world.listed().len(), 1);
    assert_eq!(storage.content("file"), "other");
}

#[tokio::test]
async fn permissions_and_times_that_the_server_cannot_set_are_refused() {
    let storage = MemoryStorage::builder();
    let storage = storage.with_capabilities(|can| (can.mode, can.times) = (false, false)).build();
    let world = World::new(&storage);
    world.create("new").await;
    let node = world.names.tree().find(ROOT, b"new").unwrap();
    let mode = NewAttributes { mode: Some(0o600), ..NewAttributes::default() };
    let time = NewAttributes { modified: Some(NewTime::Now), ..NewAttributes::default() };
    for new in [mode, time] {
        let refused = world.change(node, Change::Setattr(new)).await;
        assert_eq!(failed(&refused), Errno::OPNOTSUPP);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_upload_is_reported_and_retried() {
    let storage = MemoryStorage::new();
    storage.faults().on(Operation::WriteWhole).fail(ErrorKind::PermissionDenied);
    let world = World::new(&storage);
    let handle = world.create("new").await;
    world.write(handle, 0, "content").await;
    assert_eq!(failed(&world.change(ROOT, Change::Fsync(handle)).await), Errno::ACCESS);
    world.close(handle).await;
    let listed = world.listed();
    assert_eq!((listed.len(), listed[0].path.to_string()), (1, "new".to_owned()));
    assert!(matches!(&lock(&world.warnings)[..], [Warning::Failed { .. }]));
    storage.faults().clear();
    world.uploaded().await;
    assert_eq!(storage.content("new"), "content");
}

/// Formerly, only the first failure could be the one that is reported.
#[tokio::test(start_paused = true)]
async fn an_upload_that_fails_for_good_after_a_transient_failure_is_reported() {
    let storage = MemoryStorage::new();
    storage.faults().on(Operation::WriteWhole).first(1).fail(ErrorKind::Unreachable);
    storage.faults().on(Operation::WriteWhole).from(2).fail(ErrorKind::PermissionDenied);
    let world = World::new(&storage);
    world.write_file("new", "content").await;
    // Longer than the pauses after both.
    sleep(Duration::from_secs(10)).await;
    assert!(matches!(&lock(&world.warnings)[..], [Warning::Failed { .. }]));
}

/// Formerly, setting it was retried without end.
#[tokio::test]
async fn metadata_of_a_file_that_was_removed_on_the_server_is_not_uploaded() {
    let storage = MemoryStorage::new();
    let world = World::new(&storage);
    world.write_file("new", "content").await;
    world.uploaded().await;
    let handle = world.open("new").await;
    storage.take_away("new");
    let mode =
        NewAttributes { mode: Some(0o600), handle: Some(handle), ..NewAttributes::default() };
    let node = world.names.tree().refer(ROOT, b"new").unwrap();
    done(&world.change(node, Change::Setattr(mode)).await);
    world.close(handle).await;
    world.uploaded().await;
    assert!(storage.paths().is_empty());
    assert!(lock(&world.warnings).is_empty());
}

#[tokio::test]
async fn a_file_that_is_removed_before_its_upload_is_never_uploaded() {
    let storage = MemoryStorage::new();
    let world = World::new(&storage);
    let handle = world.create("temporary").await;
    world.write(handle, 0, "content").await;
    done(&world.change(ROOT, Change::Unlink(b"temporary".to_vec())).await);
    // The process that has it open still uses it.
    world.write(handle, 7, " and more").await;
    assert_eq!(world.read(handle, 0, 100).await, b"content and more");
    world.close(handle).await;
    world.uploaded().await;
    assert!(storage.paths().is_empty());
    assert_eq!(world.listed(), []);
}

/// Formerly, the response stayed in a channel, so that the file counted as open, and was never uploaded.
#[tokio::test(start_paused = true)]
async fn a_file_whose_creation_was_interrupted_is_closed() {
    let storage = MemoryStorage::new();
    let world = World::new(&storage);
    let name = b"new".to_vec();
    let create = Change::Create { name, flags: CREATE, mode: 0o600 };
    let mut reply = Box::pin(Arc::clone(&world.changes).handle(ROOT, create));
    tokio::select! {
        biased;
        reply = &mut reply => panic!("{reply:?}"),
        () = std::future::ready(()) => {}
    }
    // The creation runs to its end, and its response is sent.
    while world.names.local_entries(&RelPath::root()).is_empty() {
        tokio::task::yield_now().await;
    }
    drop(reply);
    world.uploaded().await;
    assert_eq!(storage.paths(), ["new"]);
}

#[tokio::test]
async fn pages_that_the_kernel_has_of_a_file_are_not_used_after_it_was_written() {
    const DIRECT: u32 = 1;
    const KEEP: u32 = 2;
    let storage = MemoryStorage::new();
    storage.add_file("file", "old");
    let world = World::new(&storage);
    let node = world.names.tree().refer(ROOT, b"file").unwrap();
    let open = async |flags: u32| {
        let reply = world.changes.open(node, flags).await.unwrap();
        let Body::Bytes(body) = &reply.body else { panic!("{reply:?}") };
        let flags = u32::from_ne_bytes(body[8..12].try_into().unwrap());
        (reply.file().unwrap(), reply.outdated == Some(node), flags)
    };
    let (first, is_outdated, flags) = open(0).await;
    assert_eq!((is_outdated, flags), (true, 0));
    let (second, is_outdated, flags) = open(0).await;
    assert_eq!((is_outdated, flags), (false, KEEP));
    let (writer, is_outdated, flags) = open(READ_WRITE).await;
    assert_eq!((is_outdated, flags), (true, 0));
    world.write(writer, 0, "new").await;
    world.close(writer).await;
    world.uploaded().await;
    // Processes that have it open read what was written here.
    let (third, is_outdated, flags) = open(0).await;
    assert_eq!((is_outdated, flags), (true, DIRECT));
    for handle in [first, second, third] {
        world.changes.release(handle);
    }
    let (fourth, is_outdated, flags) = open(0).await;
    assert_eq!((is_outdated, flags), (true, 0));
    assert_eq!(world.read(fourth, 0, 100).await, b"new");
    let (_, is_outdated, flags) = open(0).await;
    assert_eq!((is_outdated, flags), (false, KEEP));
}

#[tokio::test]
async fn the_status_lists_open_files_of_the_spool_and_of_the_storage() {
    let storage = MemoryStorage::new();
    storage.add_file("old", "123");
    let world = World::new(&storage);
    let new = world.create("new").await;
    world.write(new, 0, "content").await;
    assert_eq!(world.read(new, 3, 100).await, b"tent");
    let node = world.names.tree().refer(ROOT, b"old").unwrap();
    let old = world.changes.open(node, 0).await.unwrap().file().unwrap();
    assert_eq!(world.read(old, 0, 100).await, b"123");
    let status = world.changes.status();
    let file = |at: usize| {
        let file = &status.files[at];
        (file.handle, file.path.to_string(), file.size, file.read)
    };
    assert_eq!(file(0), (new, "new".to_owned(), 7, 4));
    assert_eq!(file(1), (old, "old".to_owned(), 3, 3));
    assert_eq!((status.open_files, status.pending), (2, 1));
    world.close(new).await;
    world.changes.undelivered(old);
    assert_eq!(world.changes.status().open_files, 0);
}

#[tokio::test]
async fn a_new_file_is_renamed_over_another_without_being_uploaded_twice() {
    let storage = MemoryStorage::new();
    storage.add_file("file", "old");
    let world = World::new(&storage);
    let handle = world.create("file.tmp").await;
    world.write(handle, 0, "new").await;
    done(&world.change(ROOT, rename("file.tmp", "file")).await);
    world.close(handle).await;
    world.uploaded().await;
    assert_eq!(storage.paths(), ["file"]);
    assert_eq!(storage.content("file"), "new");
    assert_eq!(storage.faults().count(Operation::WriteWhole), 1);
}

/// Formerly it came back into the overlay after it had left the spool: it could never be opened again.
#[tokio::test(start_paused = true)]
async fn a_file_that_is_closed_while_it_is_renamed_leaves_the_spool() {
    let storage = behind_link();
    storage.add_file("old", "content");
    let world = World::new(&storage);
    let handle = world.open("old").await;
    let release = async {
        sleep(RTT / 2).await;
        world.changes.release(handle);
    };
    let (renamed, ()) = tokio::join!(world.change(ROOT, rename("old", "new")), release);
    done(&renamed);
    world.uploaded().await;
    assert!(world.changes.overlay.all().is_empty());
    assert_eq!(storage.paths(), ["new"]);
}

#[tokio::test]
async fn a_file_stays_if_the_server_refuses_to_rename_another_to_its_name() {
    let storage = MemoryStorage::builder().with_capabilities(|can| can.rename = false).build();
    storage.add_file("a", "new");
    storage.add_file("b", "old");
    let world = World::new(&storage);
    // The server refuses the first rename, since `b` exists; the second one moves `b` aside.
    storage.faults().on(Operation::Rename).nth(3).fail(ErrorKind::PermissionDenied);
    assert_eq!(failed(&world.change(ROOT, rename("a", "b")).await), Errno::ACCESS);
    assert_eq!((storage.content("a"), storage.content("b")), ("new".into(), "old".into()));
    done(&world.change(ROOT, rename("a", "b")).await);
    assert_eq!((storage.paths(), storage.content("b")), (vec!["b".to_owned()], "new".into()));
}

/// Formerly, it had a name that is not reserved, so it looked like a file of the user's.
#[tokio::test]
async fn a_file_that_is_moved_aside_has_a_reserved_name() {
    let storage = MemoryStorage::builder().with_capabilities(|can| can.rename = false).build();
    storage.add_file("a", "new");
    storage.add_file("b", "old");
    let world = World::new(&storage);
    // Neither `a` gets the name nor `b` its own back.
    for nth in [3, 4] {
        storage.faults().on(Operation::Rename).nth(nth).fail(ErrorKind::PermissionDenied);
    }
    assert_eq!(failed(&world.change(ROOT, rename("a", "b")).await), Errno::ACCESS);
    assert_eq!(storage.paths(), [".b.haul-old", "a"]);
    assert!(is_part_name(b".b.haul-old"));
    // Formerly, nothing named the only copy of the old file.
    let [path, aside] = ["b", ".b.haul-old"].map(|path| RelPath::parse(path).unwrap());
    assert_eq!(lock(&world.warnings)[..], [Warning::Aside { path, aside }]);
    // The file that was moved aside does not prevent the next rename.
    storage.add_file("b", "newer");
    done(&world.change(ROOT, rename("a", "b")).await);
    assert_eq!((storage.paths(), storage.content("b")), (vec!["b".to_owned()], "new".into()));
}

#[tokio::test]
async fn a_file_follows_the_directory_that_is_renamed() {
    let storage = MemoryStorage::new();
    storage.add_dir("d");
    let world = World::new(&storage);
    let d = world.names.tree().refer(ROOT, b"d").unwrap();
    let name = b"new".to_vec();
    let created = world.change(d, Change::Create { name, flags: CREATE, mode: 0o600 }).await;
    let handle = created.file().unwrap();
    world.write(handle, 0, "content").await;
    done(&world.change(ROOT, rename("d", "e")).await);
    world.close(handle).await;
    world.uploaded().await;
    assert_eq!(storage.paths(), ["e/", "e/new"]);
}

#[tokio::test]
async fn a_directory_that_was_removed_on_the_server_comes_back_with_the_file() {
    let storage = MemoryStorage::new();
    storage.add_dir("d");
    let world = World::new(&storage);
    let d = world.names.tree().refer(ROOT, b"d").unwrap();
    let name = b"new".to_vec();
    let created = world.change(d, Change::Create { name, flags: CREATE, mode: 0o600 }).await;
    storage.take_away("d");
    world.close(created.file().unwrap()).await;
    world.uploaded().await;
    assert_eq!(storage.paths(), ["d/", "d/new"]);
}

#[tokio::test(start_paused = true)]
async fn a_long_file_is_uploaded_at_the_rate_of_the_link() {
    let storage = behind_link();
    let world = World::new(&storage);
    let handle = world.create("long").await;
    let content: Vec<u8> = (0..MIB).map(|at| (at % 251) as u8).collect();
    for part in 0..64 {
        world.write(handle, part * MIB as u64, &content).await;
    }
    let start = Instant::now();
    world.close(handle).await;
    world.uploaded().await;
    let ideal = (64 * MIB) as f64 / RATE as f64;
    let took = start.elapsed().as_secs_f64();
    // This includes the search for the window, which is long compared with such a transfer.
    assert!(took < 4.0 * ideal, "{took:.2} s instead of {ideal:.2} s");
    assert_eq!(storage.entry("long").size, 64 * MIB as u64);
}
