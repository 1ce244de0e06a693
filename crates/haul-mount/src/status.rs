//! The state of a mount at a moment.

use std::path::PathBuf;

use haul_storage::{LinkStatus, RelPath};

/// The state of a mount.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Status {
    /// Open files, in the order in which they were opened; at most 1 000.
    pub files: Vec<OpenFile>,
    /// Number of open files.
    pub open_files: usize,
    /// Files that wait to be uploaded.
    pub pending: usize,
    /// What was read so far.
    pub reads: ReadCounts,
    /// File contents in memory.
    pub memory: MemoryStatus,
    /// The window: what may be in flight, and what is.
    pub window: WindowStatus,
    /// The link, as the storage reports it.
    pub link: LinkStatus,
    /// The cache on disk, if there is one.
    pub cache: Option<CacheStatus>,
}

/// What was read so far.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ReadCounts {
    /// Blocks of 64 KiB that programs wanted and that were in memory.
    pub hits: u64,
    /// Blocks that programs wanted and that were not in memory.
    pub misses: u64,
    /// Blocks that came from the cache on disk.
    pub disk_hits: u64,
    /// Bytes that arrived from the storage.
    pub fetched: u64,
}

/// File contents in memory, in bytes.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct MemoryStatus {
    /// What is in memory, in flight included.
    pub used: u64,
    /// The most that may be in memory.
    pub limit: u64,
    /// What is read ahead: in flight, or in memory and not used yet.
    pub ahead: u64,
    /// What may be read ahead for each file that is read sequentially.
    pub read_ahead: u64,
}

/// The window: what may be in flight, and what is.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct WindowStatus {
    /// Bytes that may be in flight.
    pub bytes: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Lanes that are wanted.
    pub lanes: usize,
}

/// An open file of a mount.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct OpenFile {
    /// A number that no other open file of this mount has had.
    pub handle: u64,
    /// Its path below the mount point.
    pub path: RelPath,
    /// Its length in bytes.
    pub size: u64,
    /// Bytes that programs have read of it. Reads that the kernel serves from its page cache are not counted.
    pub read: u64,
}

/// The state of a cache on disk.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CacheStatus {
    /// Where it is.
    pub directory: PathBuf,
    /// Bytes that it takes.
    pub held: u64,
    /// Most bytes that it may take.
    pub limit: u64,
    /// Number of blocks.
    pub blocks: usize,
    /// Blocks of this mount that were damaged, and therefore fetched again.
    pub damaged: u64,
    /// Why nothing can be written at present, such as a full disk.
    pub fault: Option<String>,
}

impl OpenFile {
    /// An open file.
    pub(crate) const fn new(handle: u64, path: RelPath, size: u64, read: u64) -> Self {
        Self { handle, path, size, read }
    }
}
