//! Counters of reads since the mount began.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of all files together.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Blocks that programs wanted and that were in memory.
    pub(super) hits: Counter,
    /// Blocks that programs wanted and that were not.
    pub(super) misses: Counter,
    /// Blocks from the cache on disk.
    pub(super) disk: Counter,
    /// Bytes from the storage.
    pub(super) fetched: Counter,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
