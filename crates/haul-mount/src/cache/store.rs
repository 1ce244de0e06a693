//! The cache: the directory, its index, and the thread that writes.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use haul_storage::{Error, Result, io_cause};

use super::directory::{Directory, Lost};
use super::index::Index;
use super::key::BlockKey;
use crate::lock::lock;
use crate::status::CacheStatus;

/// Most blocks that wait to be written. Further ones are not cached, so that a slow disk slows no read.
const QUEUE: usize = 64;

/// Most bytes of blocks that wait until their version is confirmed.
const MOST_PENDING: u64 = 32 << 20;

/// For how long nothing is written after the disk was full, or failed.
const PAUSE: Duration = Duration::from_secs(60);

/// Blocks after which the order of use is recorded, in case the mount does not end cleanly.
const RECORDED: u64 = 4096;

/// A cache on disk.
#[derive(Debug)]
pub(crate) struct Cache {
    shared: Arc<Shared>,
    writer: Mutex<Option<Writer>>,
    /// Bytes of blocks that wait until their version is confirmed.
    pending: AtomicU64,
}

#[derive(Debug)]
struct Writer {
    jobs: SyncSender<Job>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
struct Job {
    key: BlockKey,
    bytes: Bytes,
}

#[derive(Debug)]
struct Shared {
    directory: Directory,
    limit: u64,
    index: Mutex<Index>,
    damaged: AtomicU64,
    /// Why and since when nothing is written.
    fault: Mutex<Option<(String, Instant)>>,
}

/// Memory of a block that waits. Dropping it releases it.
#[derive(Debug)]
pub(crate) struct Reserved {
    cache: Arc<Cache>,
    bytes: u64,
}

impl Cache {
    /// Opens the cache in a directory, which is created if necessary. It may take `limit` bytes.
    ///
    /// # Errors
    /// If another mount uses it, or it cannot be used as a cache.
    pub(crate) fn open(path: &Path, limit: u64) -> Result<Arc<Self>> {
        let failed = |error| Error::from_io("open cache", error).at(path.display());
        let directory = Directory::open(path)?;
        let mut index = Index::new(limit);
        for (name, length) in directory.blocks().map_err(failed)? {
            index.insert(name, length);
        }
        while let Some((name, length)) = index.evict(0) {
            directory.remove(name, length);
        }
        let (index, fault) = (Mutex::new(index), Mutex::default());
        let shared =
            Arc::new(Shared { directory, limit, index, damaged: AtomicU64::new(0), fault });
        let (jobs, waiting) = sync_channel(QUEUE);
        let writing = Arc::clone(&shared);
        let thread = thread::Builder::new().name("cache".to_owned());
        let thread = thread.spawn(move || writing.run(&waiting)).map_err(failed)?;
        let writer = Mutex::new(Some(Writer { jobs, thread }));
        Ok(Arc::new(Self { shared, writer, pending: AtomicU64::new(0) }))
    }

    /// The canonical path of the directory.
    pub(crate) fn directory(&self) -> &Path {
        self.shared.directory.path()
    }

    /// Whether a block is cached.
    pub(crate) fn contains(&self, key: &BlockKey) -> bool {
        self.shared.index().contains(key.name)
    }

    /// Reads a block; `None` if it is not cached, or damaged. This waits for the disk.
    pub(crate) fn read(&self, key: &BlockKey) -> Option<Bytes> {
        self.shared.read(key)
    }

    /// Queues a block to be written, unless the queue is full.
    pub(crate) fn store(&self, key: BlockKey, bytes: Bytes) {
        if self.contains(&key) {
            return;
        }
        if let Some(writer) = &*lock(&self.writer) {
            // If the queue is full, the block is not cached.
            drop(writer.jobs.try_send(Job { key, bytes }));
        }
    }

    /// Reserves memory for a block that waits until its version is confirmed; `None` beyond `MOST_PENDING` bytes.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64) -> Option<Reserved> {
        let reserved = Reserved { cache: Arc::clone(self), bytes };
        let before = self.pending.fetch_add(bytes, Ordering::Relaxed);
        (before.saturating_add(bytes) <= MOST_PENDING).then_some(reserved)
    }

    /// Writes the waiting blocks and releases the directory, which another mount may then use. Nothing is found or
    /// stored afterwards.
    pub(crate) fn close(&self) {
        let Some(writer) = lock(&self.writer).take() else { return };
        drop(writer.jobs);
        // A thread that has panicked has ended, too.
        drop(writer.thread.join());
        self.shared.save_order();
        *self.shared.index() = Index::new(self.shared.limit);
        self.shared.directory.unlock();
    }

    /// Its state.
    pub(crate) fn status(&self) -> CacheStatus {
        let shared = &self.shared;
        let (held, blocks) = {
            let index = shared.index();
            (index.held(), index.len())
        };
        CacheStatus {
            directory: self.directory().to_owned(),
            held,
            limit: shared.limit,
            blocks,
            damaged: shared.damaged.load(Ordering::Relaxed),
            fault: lock(&shared.fault).as_ref().map(|(cause, _)| cause.clone()),
        }
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.close();
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.cache.pending.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Shared {
    fn index(&self) -> MutexGuard<'_, Index> {
        lock(&self.index)
    }

    fn read(&self, key: &BlockKey) -> Option<Bytes> {
        let length = self.index().take(key.name)?;
        match self.directory.read(key, length) {
            Ok(bytes) => Some(bytes),
            Err(lost) => {
                self.index().remove(key.name);
                self.directory.remove(key.name, length);
                if lost == Lost::Corrupt {
                    self.damaged.fetch_add(1, Ordering::Relaxed);
                }
                None
            }
        }
    }

    /// Writes blocks until the cache is closed.
    fn run(&self, jobs: &Receiver<Job>) {
        let mut written = 0;
        while let Ok(Job { key, bytes }) = jobs.recv() {
            if self.write(&key, &bytes) {
                written += 1;
                if written % RECORDED == 0 {
                    self.save_order();
                }
            }
        }
    }

    /// Writes a block. Returns whether it was written.
    fn write(&self, key: &BlockKey, bytes: &[u8]) -> bool {
        let Ok(length) = u32::try_from(bytes.len()) else { return false };
        let may_hold = self.index().may_hold(length);
        if length == 0 || !may_hold || self.is_paused() {
            return false;
        }
        loop {
            // The lock is not held while files are removed.
            let evicted = self.index().evict(length);
            let Some((name, length)) = evicted else { break };
            self.directory.remove(name, length);
        }
        match self.directory.write(key, bytes) {
            Ok(()) => {
                self.index().insert(key.name, length);
                true
            }
            Err(error) => {
                *lock(&self.fault) = Some((io_cause(&error), Instant::now()));
                false
            }
        }
    }

    /// Whether the disk has failed within the last `PAUSE`.
    fn is_paused(&self) -> bool {
        let mut fault = lock(&self.fault);
        if fault.as_ref().is_some_and(|(_, since)| since.elapsed() < PAUSE) {
            return true;
        }
        *fault = None;
        false
    }

    fn save_order(&self) {
        let names = self.index().by_use();
        // Without it, the next mount only evicts less well.
        drop(self.directory.save_order(&names));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use haul_storage::{Identity, Location, RelPath, Timestamp};
    use tempfile::TempDir;

    use super::*;
    use crate::cache::VersionKey;

    const MIB: u64 = 1 << 20;

    fn version(seconds: i64) -> VersionKey {
        let modified = Some(Timestamp { seconds, nanos: 1 });
        let identity = Identity { size: MIB, modified, ..Identity::default() };
        let location = Location::Local("/".into());
        let now = std::time::SystemTime::UNIX_EPOCH;
        VersionKey::new((&location, ""), &RelPath::parse("file").unwrap(), &identity, now).unwrap()
    }

    /// Stores a block and waits until it is written.
    fn store(cache: &Cache, key: BlockKey, bytes: Vec<u8>) {
        cache.store(key, bytes.into());
        let start = Instant::now();
        while !cache.contains(&key) {
            assert!(start.elapsed() < Duration::from_secs(60), "not written");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn blocks_survive_a_restart_and_belong_to_one_version() {
        let directory = TempDir::new().unwrap();
        let (old, new) = (version(1), version(2));
        let cache = Cache::open(directory.path(), MIB).unwrap();
        store(&cache, old.block(0), vec![1; 1000]);
        cache.close();
        // The directory belongs to the next mount now.
        assert_eq!(cache.read(&old.block(0)), None);
        let cache = Cache::open(directory.path(), MIB).unwrap();
        assert_eq!(cache.read(&old.block(0)).unwrap(), vec![1; 1000]);
        assert_eq!(cache.read(&old.block(1)), None);
        assert_eq!(cache.read(&new.block(0)), None);
    }

    #[test]
    fn the_least_recently_used_block_is_evicted_also_after_a_restart() {
        let directory = TempDir::new().unwrap();
        let file = version(1);
        let cache = Cache::open(directory.path(), 3 * 4096).unwrap();
        (0..3).for_each(|index| store(&cache, file.block(index), vec![7; 100]));
        cache.read(&file.block(0)).unwrap();
        drop(cache);
        let cache = Cache::open(directory.path(), 3 * 4096).unwrap();
        store(&cache, file.block(3), vec![7; 100]);
        let held: Vec<_> = (0..4).map(|index| cache.contains(&file.block(index))).collect();
        assert_eq!(held, [true, false, true, true]);
        assert_eq!(cache.status().held, 3 * 4096);
        drop(cache);
        // A smaller limit applies at once.
        let cache = Cache::open(directory.path(), 4096).unwrap();
        assert_eq!((cache.status().blocks, cache.status().held), (1, 4096));
        assert!(cache.contains(&file.block(3)));
    }

    #[test]
    fn a_damaged_block_is_removed() {
        let directory = TempDir::new().unwrap();
        let block = version(1).block(0);
        let cache = Cache::open(directory.path(), MIB).unwrap();
        store(&cache, block, vec![7; 100]);
        for entry in walk(directory.path()) {
            let mut bytes = fs::read(&entry).unwrap();
            bytes[50] ^= 1;
            fs::write(&entry, bytes).unwrap();
        }
        assert_eq!(cache.read(&block), None);
        assert!(!cache.contains(&block));
        assert_eq!((cache.status().damaged, cache.status().held), (1, 0));
        assert!(walk(directory.path()).is_empty());
        store(&cache, block, vec![7; 100]);
        assert_eq!(cache.read(&block).unwrap(), vec![7; 100]);
    }

    /// The files of blocks.
    fn walk(directory: &Path) -> Vec<std::path::PathBuf> {
        let below = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
        let folders = below(directory).map(|entry| entry.path()).filter(|path| path.is_dir());
        folders.flat_map(|folder| below(&folder).map(|entry| entry.path())).collect()
    }

    #[test]
    fn a_disk_that_cannot_be_written_stops_caching_only() {
        let directory = TempDir::new().unwrap();
        let file = version(1);
        let cache = Cache::open(directory.path(), MIB).unwrap();
        store(&cache, file.block(0), vec![7; 100]);
        // Nothing can be written where a directory is in the way.
        fs::create_dir(directory.path().join("new")).unwrap();
        cache.store(file.block(1), vec![7; 100].into());
        let start = Instant::now();
        while cache.status().fault.is_none() {
            assert!(start.elapsed() < Duration::from_secs(60), "no fault");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(cache.read(&file.block(0)).is_some());
        assert_eq!(cache.read(&file.block(1)), None);
    }

    #[test]
    fn blocks_that_wait_take_bounded_memory() {
        let directory = TempDir::new().unwrap();
        let cache = Cache::open(directory.path(), MIB).unwrap();
        let first = cache.reserve(MOST_PENDING).unwrap();
        assert!(cache.reserve(1).is_none());
        drop(first);
        assert!(cache.reserve(1).is_some());
    }
}
