//! The blocks of one version of a file in the cache on disk.
//!
//! A block that arrives while its file changes on the server may belong to either version. So it is stored only after
//! the server has confirmed, by a request that was sent after the block had arrived, that the version is still the
//! same. Blocks that arrive during that request wait for the next one: at most one is in flight for each version.

use std::ops::Range as Indices;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use bytes::Bytes;
use haul_storage::{Identity, Location, RelPath};

use crate::cache::{Cache, Reserved, VersionKey};
use crate::lock::lock;

/// The cached blocks of one version.
#[derive(Debug)]
pub(super) struct Disk {
    cache: Arc<Cache>,
    key: VersionKey,
    waiting: Mutex<Waiting>,
}

/// Blocks that have arrived and whose version is not confirmed.
#[derive(Debug, Default)]
struct Waiting {
    blocks: Vec<Unconfirmed>,
    /// Whether a task confirms versions until no blocks wait.
    is_confirming: bool,
    /// The file has changed: nothing more is stored.
    is_over: bool,
}

#[derive(Debug)]
pub(super) struct Unconfirmed {
    index: u64,
    bytes: Bytes,
    /// Held until the block is stored or dropped.
    _memory: Reserved,
}

impl Disk {
    /// The cached blocks of a version; `None` if it cannot be distinguished from others for certain.
    pub(super) fn new(
        cache: &Arc<Cache>,
        location: (&Location, &str),
        path: &RelPath,
        identity: &Identity,
    ) -> Option<Self> {
        let key = VersionKey::new(location, path, identity, SystemTime::now())?;
        Some(Self { cache: Arc::clone(cache), key, waiting: Mutex::default() })
    }

    /// The first of these blocks that is cached, or their end.
    pub(super) fn first_cached(&self, mut indices: Indices<u64>) -> u64 {
        let end = indices.end;
        indices.find(|index| self.cache.contains(&self.key.block(*index))).unwrap_or(end)
    }

    /// The first of these blocks that is not cached, or their end.
    fn first_missing(&self, mut indices: Indices<u64>) -> u64 {
        let end = indices.end;
        indices.find(|index| !self.cache.contains(&self.key.block(*index))).unwrap_or(end)
    }

    /// Reads the first blocks, up to one that is missing or damaged.
    pub(super) async fn read(&self, indices: Indices<u64>) -> Vec<Bytes> {
        let indices = indices.start..self.first_missing(indices);
        if indices.is_empty() {
            return Vec::new();
        }
        let (cache, key) = (Arc::clone(&self.cache), self.key);
        let read =
            move || indices.map_while(|index| cache.read(&key.block(index))).collect::<Vec<_>>();
        // An error means that the runtime ends.
        tokio::task::spawn_blocking(read).await.unwrap_or_default()
    }

    /// Takes a block that has arrived. Returns whether the caller has to start confirming the version, until
    /// [`Disk::unconfirmed`] returns `None`.
    pub(super) fn add_unconfirmed(&self, index: u64, bytes: &Bytes) -> bool {
        let mut waiting = lock(&self.waiting);
        if waiting.is_over {
            return false;
        }
        // Without room, the block is not cached.
        let Some(memory) = self.cache.reserve(bytes.len() as u64) else { return false };
        waiting.blocks.push(Unconfirmed { index, bytes: bytes.clone(), _memory: memory });
        !std::mem::replace(&mut waiting.is_confirming, true)
    }

    /// The blocks that wait; `None` if there are none.
    pub(super) fn unconfirmed(&self) -> Option<Vec<Unconfirmed>> {
        let mut waiting = lock(&self.waiting);
        if waiting.blocks.is_empty() {
            waiting.is_confirming = false;
            return None;
        }
        Some(std::mem::take(&mut waiting.blocks))
    }

    /// Stores blocks whose version is confirmed.
    pub(super) fn store(&self, blocks: Vec<Unconfirmed>) {
        for block in blocks {
            self.cache.store(self.key.block(block.index), block.bytes);
        }
    }

    /// The file has changed: the waiting blocks are dropped, and nothing more is stored.
    pub(super) fn end(&self) {
        let dropped = {
            let mut waiting = lock(&self.waiting);
            waiting.is_over = true;
            std::mem::take(&mut waiting.blocks)
        };
        drop(dropped);
    }
}
