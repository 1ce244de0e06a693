//! What all open files share: the storage, the share of the link, the blocks in memory, and the cache on disk.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use haul_engine::budget::LinkShare;
use haul_storage::Storage;
use tokio::sync::Notify;

use super::blocks::{BLOCK, Blocks, STEP};
use super::counters::Counters;
use crate::cache::Cache;
use crate::link;
use crate::lock::lock;
use crate::status::{MemoryStatus, OpenFile, ReadCounts, Status, WindowStatus};

/// Longest single request that reads ahead, in bytes.
const MOST_RUN: u64 = 4 << 20;

/// A request reads ahead at most what its stream has read so far, divided by this.
const READ_PER_RUN: u64 = 16;

/// Shortest part of a request that is spread over lanes, in bytes. TCP sends 14 KiB in the first RTT, but BBR paces even
/// those: over a lane that was used little, 12 KiB arrive in 50 ms at an RTT of 200 ms, 6 KiB in 25 ms.
const LEAST_PART: u64 = 6 << 10;

/// Parts are multiples of this.
const PART_UNIT: u64 = 2 << 10;

/// From this RTT on, requests are spread.
const LONG_RTT: Duration = Duration::from_millis(20);

/// Limits of reading, and the cache on disk.
#[derive(Debug, Clone)]
pub(crate) struct ReadOptions {
    /// Most bytes of file contents that are held in memory.
    pub(crate) memory: u64,
    /// A read fails after this time without progress.
    pub(crate) timeout: Duration,
    /// The cache on disk, if there is one.
    pub(crate) cache: Option<Arc<Cache>>,
    /// Distinguishes cached content of locations with equal names.
    pub(crate) identity: Arc<str>,
}

/// What all open files share.
#[derive(Debug)]
pub(crate) struct Context {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) share: Arc<LinkShare>,
    pub(super) timeout: Duration,
    pub(super) cache: Option<Arc<Cache>>,
    pub(super) identity: Arc<str>,
    pub(super) counters: Counters,
    blocks: Mutex<Blocks>,
    versions: AtomicU64,
    /// Files that are read sequentially.
    sequential: AtomicUsize,
    begun: Notify,
}

impl Context {
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        share: Arc<LinkShare>,
        options: ReadOptions,
    ) -> Arc<Self> {
        Arc::new(Self {
            storage,
            share,
            timeout: options.timeout,
            cache: options.cache,
            identity: options.identity,
            counters: Counters::default(),
            blocks: Mutex::new(Blocks::new(options.memory)),
            versions: AtomicU64::new(0),
            sequential: AtomicUsize::new(0),
            begun: Notify::new(),
        })
    }

    /// Opens the lanes that reading needs, then polls the link while bytes are in flight; never returns.
    pub(crate) async fn watch_link(&self) {
        link::open_lanes(&self.share).await;
        link::watch(&self.share, &self.begun).await;
    }

    /// Bytes have been requested.
    pub(super) fn requested(&self) {
        self.begun.notify_one();
    }

    pub(super) fn blocks(&self) -> MutexGuard<'_, Blocks> {
        lock(&self.blocks)
    }

    /// A number for a version of a file.
    pub(super) fn next_version(&self) -> u64 {
        self.versions.fetch_add(1, Ordering::Relaxed)
    }

    /// A file has begun (or ceased) to be read sequentially.
    pub(super) fn count_sequential(&self, begun: bool) {
        if begun {
            self.sequential.fetch_add(1, Ordering::Relaxed);
        } else {
            self.sequential.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Bytes that may be read ahead for a file: twice the window, at most its share of the budget of all files, and at
    /// least [`STEP`].
    pub(super) fn window(&self) -> u64 {
        let files = self.sequential.load(Ordering::Relaxed).max(1) as u64;
        let part = self.blocks().most_ahead() / files;
        // While one window is in flight, the reader uses the other.
        self.share.decision().window_bytes.saturating_mul(2).min(part).max(STEP)
    }

    /// The state of the mount. `files` are those listed of all `open_files` open files.
    pub(super) fn status(&self, files: Vec<OpenFile>, open_files: usize) -> Status {
        let (held, most, ahead) = self.blocks().counted();
        let (in_flight, taken) = self.share.counted();
        let decision = self.share.decision();
        let counters = &self.counters;
        Status {
            files,
            open_files,
            // `write` knows them.
            pending: 0,
            reads: ReadCounts {
                hits: counters.hits.value(),
                misses: counters.misses.value(),
                disk_hits: counters.disk.value(),
                fetched: counters.fetched.value(),
            },
            memory: MemoryStatus {
                used: held + taken,
                limit: most,
                ahead,
                read_ahead: self.window(),
            },
            window: WindowStatus { bytes: decision.window_bytes, in_flight, lanes: decision.lanes },
            link: self.storage.link(),
            cache: self.cache.as_ref().map(|cache| cache.status()),
        }
    }

    /// Length of the parts in which `bytes` bytes are requested that a process waits for, or will soon. On a long path,
    /// each lane carries a part: TCP sends at most 14 KiB in the first RTT over a connection that was idle.
    pub(super) fn part(&self, bytes: u64) -> u64 {
        let link = self.storage.link();
        let is_pipelined = self.storage.capabilities().pipelined_reads;
        if !is_pipelined || link.rtt.is_none_or(|rtt| rtt < LONG_RTT) {
            return bytes;
        }
        let lanes = link.open.max(1) as u64;
        bytes.div_ceil(lanes).next_multiple_of(PART_UNIT).max(LEAST_PART)
    }

    /// Length in blocks of each request, if `ahead` bytes are read ahead of a stream that has read `read` bytes. At the
    /// beginning, lanes are in slow start: a long request would take many RTTs, while the stream waits for its first
    /// bytes.
    pub(super) fn run_blocks(&self, ahead: u64, read: u64) -> u64 {
        let most = self.share.decision().range_bytes.min(MOST_RUN).min(read / READ_PER_RUN);
        (ahead / 4).min(most).max(STEP) / BLOCK
    }
}
