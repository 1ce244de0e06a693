//! A served directory, with the disk threads and the memory limit that all sessions share.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::available_parallelism;

use haul_net::Jail;
use haul_storage::{BufferPool, Error, Result, WorkPool};

use super::limits;

/// How a directory is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareOptions {
    /// Refuse every change.
    pub read_only: bool,
    /// Most sessions at once; further ones are refused.
    pub sessions: usize,
    /// Most open handles per session.
    pub handles: usize,
    /// Limit of the bytes that all sessions together hold: half for what is read and not yet sent, half for what is
    /// received and not yet written. A session with no write in progress may use all of it for the latter. Each session
    /// may exceed it by one response and 4 MiB received. Buffers of SSH itself do not count.
    pub memory: usize,
}

impl Default for ShareOptions {
    fn default() -> Self {
        Self { read_only: false, sessions: 32, handles: 1024, memory: 256 << 20 }
    }
}

/// A served directory.
pub struct Share {
    pub(super) jail: Jail,
    pub(super) options: ShareOptions,
    pub(super) pool: WorkPool,
    pub(super) buffers: BufferPool,
    /// Most bytes that one session may have read and not yet sent.
    pub(super) response_bytes: usize,
    /// Bytes that sessions have received and not yet written.
    held: AtomicUsize,
}

impl Share {
    /// Opens a directory for serving.
    ///
    /// # Errors
    /// If it is not a directory, or the system cannot confine clients to it or start a thread.
    pub fn open(directory: &Path, options: ShareOptions) -> Result<Self> {
        let jail = Jail::open(directory)?;
        // At least four even on fewer processors: a thread that waits for a disk uses none.
        let threads = available_parallelism().map_or(4, usize::from).clamp(4, 16);
        let pool = WorkPool::new("haul-sftp-disk", threads)
            .map_err(|error| Error::from_io("start a thread", error))?;
        let share_of_each = options.memory / 2 / options.sessions.max(1);
        Ok(Self {
            jail,
            options,
            pool,
            buffers: BufferPool::new(limits::RESPONSE, limits::RESPONSE_BYTES / limits::RESPONSE),
            response_bytes: share_of_each.clamp(limits::RESPONSE, limits::RESPONSE_BYTES),
            held: AtomicUsize::new(0),
        })
    }

    /// Bytes that sessions have received and not yet written.
    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(super) fn hold(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn release(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share").field("options", &self.options).finish_non_exhaustive()
    }
}
