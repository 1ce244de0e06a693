//! Reading: over a simulated link, in virtual time; with a cache on disk, in real time.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use haul_engine::Settings;
use haul_engine::budget::LinkBudgets;
use haul_storage::memory::{Builder, MemoryStorage, Operation, SimulatedLink};
use haul_storage::{ErrorKind, Range, RelPath, Storage};
use tempfile::TempDir;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::blocks::BLOCK;
use super::{Context, Files, ReadOptions};
use crate::cache::Cache;
use crate::status::CacheStatus;

const RTT: Duration = Duration::from_millis(200);
/// 500 Mbit/s.
const RATE: u64 = 62_500_000;
const MIB: u64 = 1 << 20;

struct World {
    storage: Arc<MemoryStorage>,
    files: Files,
}

impl World {
    fn new(memory: u64) -> Self {
        Self::of(MemoryStorage::builder(), memory)
    }

    fn of(builder: Builder, memory: u64) -> Self {
        Self::over(RATE, builder, memory)
    }

    fn over(rate: u64, builder: Builder, memory: u64) -> Self {
        let link = SimulatedLink { open_rtts: 1, ..SimulatedLink::new(RTT, rate) };
        let storage = builder.with_link(link).build();
        let shared: Arc<dyn Storage> = Arc::clone(&storage) as _;
        let settings = Settings { memory, ..Settings::default() };
        let share = LinkBudgets::default().reader(&shared, &settings);
        let options = ReadOptions {
            memory,
            timeout: Duration::from_secs(60),
            cache: None,
            identity: "".into(),
        };
        let context = Context::new(shared, share, options);
        let files = Files::new(&context, memory, &Handle::current());
        tokio::spawn(async move { context.watch_link().await });
        Self { storage, files }
    }

    async fn open(&self, path: &str) -> u64 {
        self.files.open(&RelPath::parse(path).unwrap()).await.unwrap().handle
    }

    /// Reads as the kernel does by default, in requests of 128 KiB.
    async fn read(&self, handle: u64, range: Range) -> u64 {
        let (mut at, mut read) = (range.start(), 0);
        while at < range.end() {
            let next = Range::new(at, (128 << 10).min(range.end() - at));
            let block = match self.files.read_now(handle, next) {
                Some(block) => block,
                None => self.files.read(handle, next).await.unwrap(),
            };
            read += block.len() as u64;
            at = next.end();
        }
        read
    }
}

#[tokio::test(start_paused = true)]
async fn a_sequential_read_reaches_the_rate_of_the_link() {
    let world = World::new(256 * MIB);
    world.storage.add_pattern_file("file", 500 * MIB, 1);
    let handle = world.open("file").await;
    let start = Instant::now();
    assert_eq!(world.read(handle, Range::new(0, 500 * MIB)).await, 500 * MIB);
    let ideal = (500 * MIB) as f64 / RATE as f64;
    let took = start.elapsed().as_secs_f64();
    // The mount's goal for a file of this size: 80 % of the link's rate.
    assert!(took < ideal / 0.8, "{took:.2} s instead of {ideal:.2} s");
}

#[tokio::test(start_paused = true)]
async fn a_random_read_takes_one_rtt_and_fetches_one_block() {
    let world = World::new(64 * MIB);
    world.storage.add_pattern_file("file", 500 * MIB, 1);
    let handle = world.open("file").await;
    // The first block of the file comes with the open.
    tokio::time::sleep(RTT).await;
    for at in [400, 100, 300, 200] {
        let before = (Instant::now(), world.files.status().reads.fetched);
        world.read(handle, Range::new(at * MIB, 64 << 10)).await;
        assert!(before.0.elapsed() < RTT * 3 / 2, "{:?}", before.0.elapsed());
        // Exactly that block: nothing else arrives afterwards.
        tokio::time::sleep(RTT).await;
        assert_eq!(world.files.status().reads.fetched, before.1 + (64 << 10));
    }
}

/// TCP sends 14 KiB in the first RTT over an idle connection: as one request, the two blocks took four RTTs.
#[tokio::test(start_paused = true)]
async fn blocks_that_a_process_waits_for_are_spread_over_the_lanes() {
    let world = World::new(64 * MIB);
    let content: Vec<u8> = (0..MIB as u32).map(|at| (at / 7) as u8).collect();
    world.storage.add_file("file", &content);
    let handle = world.open("file").await;
    tokio::time::sleep(2 * RTT).await;
    let lanes = world.storage.link().open as u64;
    assert!(lanes >= 8);
    // The range lies in two blocks.
    let part = (128_u64 << 10).div_ceil(lanes).next_multiple_of(2 << 10).max(6 << 10);
    let reads = || world.storage.faults().count(Operation::Read);
    let before = reads();
    let range = Range::new((600 << 10) + 5, 64 << 10);
    let block = world.files.read(handle, range).await.unwrap();
    let at = range.start() as usize..range.end() as usize;
    assert_eq!(block.into_bytes(), content[at]);
    assert_eq!(reads(), before + (128_u64 << 10).div_ceil(part));
}

#[tokio::test(start_paused = true)]
async fn many_files_read_in_turns_do_not_evict_each_other() {
    let world = World::new(32 * MIB);
    let mut handles = Vec::new();
    for number in 0..100 {
        let name = format!("{number}");
        world.storage.add_pattern_file(&name, 50 * MIB, number);
        handles.push(world.open(&name).await);
    }
    for turn in 0..20 {
        for handle in &handles {
            let range = Range::new(turn * 4096, 4096);
            assert_eq!(world.read(*handle, range).await, 4096);
        }
    }
    // Each block was fetched about once: the read-ahead of one file does not evict that of another.
    let reads = world.storage.faults().count(Operation::Read);
    assert!(reads < 1500, "{reads} reads");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_opened_along_with_its_lookup_is_read_in_one_rtt() {
    let world = World::new(64 * MIB);
    world.storage.add_pattern_file("file", 500 * MIB, 1);
    world.storage.add_pattern_file("other", 500 * MIB, 2);
    // Connected, and with a first measurement.
    let handle = world.open("other").await;
    world.read(handle, Range::new(0, 4096)).await;
    let path = RelPath::parse("file").unwrap();
    let start = Instant::now();
    world.files.expect(&path);
    world.storage.stat(&path).await.unwrap();
    let handle = world.files.open(&path).await.unwrap().handle;
    world.read(handle, Range::new(0, 4096)).await;
    assert!(start.elapsed() < RTT * 6 / 5, "{:?}", start.elapsed());
    assert_eq!(world.storage.faults().count(Operation::Open), 2);
}

/// Formerly, the first read took an RTT of its own.
#[tokio::test(start_paused = true)]
async fn the_first_block_of_a_file_comes_with_its_open() {
    let world = World::new(64 * MIB);
    world.storage.add_pattern_file("file", 500 * MIB, 1);
    world.storage.add_pattern_file("other", 500 * MIB, 2);
    world.open("other").await;
    let start = Instant::now();
    let handle = world.open("file").await;
    world.read(handle, Range::new(0, 64 << 10)).await;
    assert!(start.elapsed() < RTT * 6 / 5, "{:?}", start.elapsed());
    // Time for the read-ahead to arrive, too.
    tokio::time::sleep(RTT * 2).await;
    world.files.release(handle);
    // It is in memory: nothing but the version is requested.
    let reads = world.storage.faults().count(Operation::Read);
    let handle = world.open("file").await;
    world.read(handle, Range::new(0, 64 << 10)).await;
    assert_eq!(world.storage.faults().count(Operation::Read), reads);
}

#[tokio::test(start_paused = true)]
async fn sixteen_random_reads_at_a_time_take_as_long_as_one() {
    let world = World::new(64 * MIB);
    world.storage.add_pattern_file("file", 500 * MIB, 1);
    let handle = world.open("file").await;
    tokio::time::sleep(RTT).await;
    let start = Instant::now();
    let reads = (1..17).map(|at| world.read(handle, Range::new(at * 29 * MIB, 64 << 10)));
    futures_util::future::join_all(reads).await;
    assert!(start.elapsed() < RTT * 3 / 2, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_closed_file_leaves_nothing_in_flight() {
    let world = World::new(64 * MIB);
    world.storage.add_pattern_file("file", 500 * MIB, 1);
    let handle = world.open("file").await;
    world.read(handle, Range::new(0, 4 * MIB)).await;
    assert!(world.files.status().window.in_flight > 0, "it is read ahead");
    world.files.release(handle);
    // No time passes meanwhile.
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.files.status().window.in_flight, 0);
    let reads = world.storage.faults().count(Operation::Read);
    tokio::time::sleep(RTT * 10).await;
    assert_eq!(world.storage.faults().count(Operation::Read), reads);
    assert!(world.files.read_now(handle, Range::new(0, 1)).is_none());
}

/// Formerly, whole blocks (then of 128 KiB) had to arrive first, which takes four RTTs over a new connection.
#[tokio::test(start_paused = true)]
async fn the_first_bytes_of_a_block_are_read_before_the_rest_has_arrived() {
    // A block takes one second, and two are requested along with the open.
    let world = World::over(64 << 10, MemoryStorage::builder().with_read_block(8 << 10), 16 * MIB);
    world.storage.add_pattern_file("file", MIB, 1);
    let handle = world.open("file").await;
    let start = Instant::now();
    assert_eq!(world.read(handle, Range::new(5000, 10_000)).await, 10_000);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(world.read(handle, Range::new(0, 128 << 10)).await, 128 << 10);
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    // It is in memory.
    assert!(world.files.read_now(handle, Range::new(0, 128 << 10)).is_some());
}

/// Formerly, each of them took up to a quarter of the memory, however many were open.
#[tokio::test(start_paused = true)]
async fn files_that_are_read_as_a_whole_stay_within_the_budget() {
    let world = World::of(MemoryStorage::builder().without_sizes(), 32 * MIB);
    let mut handles = Vec::new();
    for number in 0..4 {
        world.storage.add_pattern_file(format!("{number}"), 4 * MIB, number);
    }
    for number in 0..3 {
        handles.push(world.open(&number.to_string()).await);
    }
    let path = RelPath::parse("3").unwrap();
    let error = world.files.open(&path).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    world.files.release(handles[0]);
    let handle = world.open("3").await;
    assert_eq!(world.read(handle, Range::new(0, 4 * MIB)).await, 4 * MIB);
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_read_as_a_whole_is_not_opened_ahead() {
    let world = World::of(MemoryStorage::builder().without_sizes(), 32 * MIB);
    world.storage.add_pattern_file("file", MIB, 1);
    world.files.expect(&RelPath::parse("file").unwrap());
    tokio::time::sleep(RTT * 10).await;
    assert_eq!(world.storage.faults().count(Operation::ReadWhole), 0);
    let handle = world.open("file").await;
    assert_eq!(world.read(handle, Range::new(0, MIB)).await, MIB);
}

/// The kernel still has the pages of the version before. Formerly, the response to OPEN made it keep them.
#[tokio::test(start_paused = true)]
async fn a_version_that_was_only_opened_ahead_is_not_the_same_as_before() {
    let world = World::new(64 * MIB);
    let path = RelPath::parse("file").unwrap();
    let opened = async || {
        let opened = world.files.open(&path).await.unwrap();
        world.files.release(opened.handle);
        opened.is_same
    };
    world.storage.add_pattern_file("file", MIB, 1);
    assert_eq!((opened().await, opened().await), (false, true));
    world.storage.add_pattern_file("file", MIB, 2);
    world.files.expect(&path);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!((opened().await, opened().await), (false, true));
}

#[tokio::test(start_paused = true)]
async fn an_open_whose_response_is_not_delivered_leaves_no_handle_and_no_pages() {
    let world = World::new(64 * MIB);
    let path = RelPath::parse("file").unwrap();
    world.storage.add_pattern_file("file", MIB, 1);
    let opened = world.files.open(&path).await.unwrap();
    world.files.undelivered(opened.handle);
    assert!(world.files.read(opened.handle, Range::new(0, 1)).await.is_err());
    assert!(!world.files.open(&path).await.unwrap().is_same);
    assert!(world.files.open(&path).await.unwrap().is_same);
}

/// Servers report times in seconds: a file that is written twice within one looks the same.
#[tokio::test(start_paused = true)]
async fn a_file_that_was_changed_here_is_another_version_even_if_it_looks_the_same() {
    let world = World::new(64 * MIB);
    let path = RelPath::parse("d/file").unwrap();
    let reads = || world.storage.faults().count(Operation::Read);
    world.storage.add_pattern_file("d/file", MIB, 1);
    let first = world.files.open(&path).await.unwrap();
    world.read(first.handle, Range::new(0, MIB)).await;
    assert!(world.files.open(&path).await.unwrap().is_same);
    for below in [false, true] {
        let before = reads();
        match below {
            false => world.files.changed(&path),
            true => world.files.changed_below(&RelPath::parse("d").unwrap()),
        }
        let opened = world.files.open(&path).await.unwrap();
        // A process still has the previous version open.
        assert!(!opened.is_same && opened.is_direct, "{opened:?}");
        world.read(opened.handle, Range::new(0, MIB)).await;
        assert!(reads() > before);
    }
}

#[tokio::test(start_paused = true)]
async fn pages_with_other_contents_are_not_used_again() {
    let world = World::new(64 * MIB);
    let path = RelPath::parse("file").unwrap();
    world.storage.add_pattern_file("file", MIB, 1);
    let opened = world.files.open(&path).await.unwrap();
    world.files.mark_mixed(opened.handle);
    assert!(!world.files.open(&path).await.unwrap().is_same);
    // A file that is opened for an upload has no effect on that.
    world.files.changed(&path);
    let handle = world.files.open_anew(&path).await.unwrap();
    assert_eq!(world.files.described(handle), Some((path.clone(), MIB)));
    assert!(!world.files.open(&path).await.unwrap().is_same);
}

/// Files of a storage without a link, with a cache on disk; in real time, because a thread writes it.
struct Cached {
    storage: Arc<MemoryStorage>,
    files: Files,
    cache: Arc<Cache>,
}

impl Cached {
    fn new(storage: &Arc<MemoryStorage>, directory: &Path) -> Self {
        let shared: Arc<dyn Storage> = Arc::clone(storage) as _;
        let share = LinkBudgets::default().reader(&shared, &Settings::default());
        let cache = Cache::open(directory, 64 * MIB).unwrap();
        let timeout = Duration::from_secs(60);
        let options = ReadOptions {
            memory: 16 * MIB,
            timeout,
            cache: Some(Arc::clone(&cache)),
            identity: "".into(),
        };
        let context = Context::new(shared, share, options);
        let files = Files::new(&context, 16 * MIB, &Handle::current());
        Self { storage: Arc::clone(storage), files, cache }
    }

    /// Opens "file", and reads these blocks of it.
    async fn read(&self, blocks: std::ops::Range<u64>) -> Vec<u8> {
        let opened = self.files.open(&RelPath::parse("file").unwrap()).await.unwrap();
        let mut content = Vec::new();
        for index in blocks {
            let range = Range::new(index * BLOCK, BLOCK);
            let block = match self.files.read_now(opened.handle, range) {
                Some(block) => block,
                None => self.files.read(opened.handle, range).await.unwrap(),
            };
            content.extend_from_slice(&block.into_bytes());
        }
        self.files.release(opened.handle);
        content
    }

    fn reads(&self) -> u64 {
        self.storage.faults().count(Operation::Read)
    }

    async fn eventually(&self, holds: impl Fn(CacheStatus) -> bool) {
        let start = Instant::now();
        while !holds(self.cache.status()) {
            assert!(start.elapsed() < Duration::from_secs(60), "{:?}", self.cache.status());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Closes the cache, as an unmount does.
    fn end(self) {
        self.cache.close();
    }
}

/// Bytes that differ from block to block.
fn content(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ (at >> 8) ^ (at >> 17) ^ seed) as u8).collect()
}

/// The files of blocks below a cache directory.
fn block_files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_on_disk_are_read_again_after_a_restart() {
    let (directory, whole) = (TempDir::new().unwrap(), content(24 * BLOCK as usize - 100, 1));
    let storage = MemoryStorage::new();
    storage.add_file("file", &whole);
    let first = Cached::new(&storage, directory.path());
    assert!(first.read(0..24).await == whole);
    first.eventually(|status| status.blocks == 24).await;
    first.end();
    let second = Cached::new(&storage, directory.path());
    let before = second.reads();
    assert!(second.read(0..24).await == whole);
    assert_eq!(second.reads(), before);
    let status = second.files.status();
    assert_eq!((status.reads.disk_hits, status.reads.fetched), (24, 0));
    // A block that is read ahead in time is a hit, the first one included.
    assert!(status.reads.hits + status.reads.misses >= 24, "{status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_blocks_that_are_not_on_disk_are_fetched() {
    let (directory, whole) = (TempDir::new().unwrap(), content(24 * BLOCK as usize, 1));
    let storage = MemoryStorage::new();
    storage.add_file("file", &whole);
    let first = Cached::new(&storage, directory.path());
    first.read(0..24).await;
    first.eventually(|status| status.blocks == 24).await;
    first.end();
    let files = block_files(directory.path());
    assert_eq!(files.len(), 24);
    for (at, path) in files.iter().enumerate().filter(|(at, _)| at % 3 != 0) {
        if at % 3 == 1 {
            fs::remove_file(path).unwrap();
        } else {
            let mut bytes = fs::read(path).unwrap();
            bytes[5000] ^= 1;
            fs::write(path, bytes).unwrap();
        }
    }
    let second = Cached::new(&storage, directory.path());
    assert!(second.read(0..24).await == whole);
    let status = second.files.status();
    assert_eq!((status.reads.disk_hits, status.reads.fetched), (8, 16 * BLOCK));
    assert_eq!(status.cache.unwrap().damaged, 8);
    // The missing and damaged blocks are cached again.
    second.eventually(|status| status.blocks == 24).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_file_is_not_mixed_with_old_blocks() {
    let directory = TempDir::new().unwrap();
    let (old, new) = (content(8 * BLOCK as usize, 1), content(8 * BLOCK as usize, 2));
    let storage = MemoryStorage::new();
    storage.add_file("file", &old);
    let first = Cached::new(&storage, directory.path());
    assert!(first.read(0..8).await == old);
    first.eventually(|status| status.blocks == 8).await;
    first.end();
    storage.add_file("file", &new);
    let second = Cached::new(&storage, directory.path());
    assert!(second.read(0..8).await == new);
    assert_eq!(second.files.status().reads.disk_hits, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_that_arrive_while_a_file_changes_are_not_stored() {
    let directory = TempDir::new().unwrap();
    let storage = MemoryStorage::new();
    storage.add_file("file", content(8 * BLOCK as usize, 1));
    storage.faults().on(Operation::Recheck).path("file").change();
    let files = Cached::new(&storage, directory.path());
    files.read(0..8).await;
    let start = Instant::now();
    while storage.faults().count(Operation::Recheck) == 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "not confirmed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(files.cache.status().blocks, 0);
    files.end();
    assert!(block_files(directory.path()).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_counts_blocks_and_names_open_files() {
    let directory = TempDir::new().unwrap();
    let storage = MemoryStorage::new();
    storage.add_file("file", content(BLOCK as usize, 1));
    let world = Cached::new(&storage, directory.path());
    let opened = world.files.open(&RelPath::parse("file").unwrap()).await.unwrap();
    let range = Range::new(0, 1000);
    world.files.read(opened.handle, range).await.unwrap();
    assert!(world.files.read_now(opened.handle, range).is_some());
    let status = world.files.status();
    // The first block comes with the open, and may arrive after the first read.
    assert!(status.reads.hits >= 1 && status.reads.hits + status.reads.misses == 2, "{status:?}");
    assert_eq!(status.reads.fetched, BLOCK);
    assert_eq!((status.open_files, status.memory.used), (1, BLOCK));
    let file = &status.files[0];
    assert_eq!((file.path.as_bytes(), file.size, file.read), (&b"file"[..], BLOCK, 2000));
    world.files.release(opened.handle);
    assert_eq!(world.files.status().open_files, 0);
}
