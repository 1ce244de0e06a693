//! Counts bytes read from the source, and those of them still in memory, whichever task holds them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use haul_storage::Block;

/// Byte counters of one fan; clones share them.
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
    /// Bytes read from the source so far.
    pub fn read_bytes(&self) -> u64 {
        self.counts.read.load(Ordering::Relaxed)
    }

    /// Peak number of bytes in memory at once.
    pub fn most_held_bytes(&self) -> u64 {
        self.counts.most_held.load(Ordering::Relaxed)
    }

    /// Returns the same bytes, counted as read now and as held until the last reference is dropped.
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
