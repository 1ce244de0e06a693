//! State that all connections of a server share: the directory, the threads that work in it, the
//! buffers, and the locks and properties of files, which are held in memory.

use std::fmt;
use std::sync::Arc;
use std::thread::available_parallelism;

use haul_net::Jail;
use haul_storage::{BufferPool, Error, Result, WorkPool};
use tokio::sync::Semaphore;

use super::limits;
use super::locks::Locks;
use super::properties::Properties;
use super::replacing::Replacing;

/// A served directory.
pub(super) struct Share {
    pub(super) jail: Jail,
    pub(super) read_only: bool,
    pub(super) pool: WorkPool,
    pub(super) buffers: BufferPool,
    /// One permit per write of an upload in progress: a slow disk slows uploads instead of filling
    /// memory.
    pub(super) writes: Arc<Semaphore>,
    /// One permit per digest being computed, so that digests leave threads to everything else.
    pub(super) hashes: Arc<Semaphore>,
    pub(super) replacing: Replacing,
    pub(super) locks: Locks,
    pub(super) properties: Properties,
}

impl Share {
    /// Serves a directory.
    #[cfg(test)]
    pub(super) fn open(directory: &std::path::Path, read_only: bool) -> Result<Self> {
        Self::new(Jail::open(directory)?, read_only)
    }

    /// Serves what is in a jail.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub(super) fn new(jail: Jail, read_only: bool) -> Result<Self> {
        // At least 4 even on fewer processors: a thread that waits for a disk uses none.
        let threads = available_parallelism().map_or(4, usize::from).clamp(4, 16);
        let pool = WorkPool::new("haul-dav-disk", threads)
            .map_err(|error| Error::from_io("start a thread", error))?;
        let buffers = BufferPool::new(limits::BLOCK, 8 * limits::AHEAD);
        Ok(Self {
            jail,
            read_only,
            pool,
            buffers,
            writes: Arc::new(Semaphore::new(limits::ALL_WRITES)),
            hashes: Arc::new(Semaphore::new(threads / 2)),
            replacing: Replacing::default(),
            locks: Locks::default(),
            properties: Properties::default(),
        })
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share").field("read_only", &self.read_only).finish_non_exhaustive()
    }
}
