//! Counts bytes that were read and are still in memory, whoever holds them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use haul_storage::Block;

/// Counters of one fan; all clones are one.
#[derive(Debug, Clone, Default)]
pub struct Meter {
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    read: AtomicU64,
    held: AtomicU64,
    most_held: AtomicU64,
}

impl Meter {
    /// Bytes that were read from the source.
    pub fn read_bytes(&self) -> u64 {
        self.counts.read.load(Ordering::Relaxed)
    }

    /// The most bytes that were in memory at once.
    pub fn most_held_bytes(&self) -> u64 {
        self.counts.most_held.load(Ordering::Relaxed)
    }

    /// The same bytes, counted as read now and as held until the last reference to them is gone.
    pub fn count(&self, bytes: Bytes) -> Bytes {
        let length = bytes.len() as u64;
        if length == 0 {
            return bytes;
        }
        self.counts.read.fetch_add(length, Ordering::Relaxed);
        let held = self.counts.held.fetch_add(length, Ordering::Relaxed) + length;
        self.counts.most_held.fetch_max(held, Ordering::Relaxed);
        Bytes::from_owner(Counted { bytes, counts: Arc::clone(&self.counts) })
    }

    /// [`Meter::count`] for every piece of a block.
    pub fn count_block(&self, block: &Block) -> Block {
        let mut counted = Block::new();
        block.pieces().iter().for_each(|piece| counted.push(self.count(piece.clone())));
        counted
    }
}

struct Counted {
    bytes: Bytes,
    counts: Arc<Counts>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.counts.held.fetch_sub(self.bytes.len() as u64, Ordering::Relaxed);
    }
}
