//! The capabilities of a storage. The engine plans by them instead of trying operations.

use crate::{DigestKind, StoredTimes};

/// The order in which a file may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Writes {
    /// At any offset, many at once.
    AnyOrder,
    /// From the first byte to the last.
    InOrder,
}

/// What lies between this process and the storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Medium {
    /// A disk or memory of this machine: no lanes to open, no RTT to hide.
    Disk,
    /// A network link: the window decides about lanes and bytes in flight.
    Link,
}

/// What a storage can do. A backend starts from [`Capabilities::least`] and declares its capabilities. The
/// conformance suite checks those that change results, not those that only affect speed.
///
/// ```
/// use haul_storage::{Capabilities, Medium};
///
/// let can = Capabilities::least(Medium::Link).with(|can| {
///     can.ranged_reads = true;
///     can.whole_limit = 64 << 10;
/// });
/// assert!(can.ranged_reads && !can.rename);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// What lies between this process and the storage.
    pub medium: Medium,
    /// Whether a read may start at any offset; if not, a file is read from its start in one go.
    pub ranged_reads: bool,
    /// The order in which a file may be written.
    pub writes: Writes,
    /// Whether `rename` replaces an existing file atomically.
    pub rename: bool,
    /// Whether a commit compares the version that it replaces with
    /// [`CommitOptions::expected`](crate::CommitOptions::expected), in the step that replaces it or just before.
    pub conditional_commits: bool,
    /// Whether `copy` and `WriteAt::copy_from` work without the bytes passing through this process.
    pub server_copy: bool,
    /// Whether symbolic links exist.
    pub symlinks: bool,
    /// Whether hard links exist.
    pub hard_links: bool,
    /// Whether a commit can be made durable.
    pub sync: bool,
    /// Whether part files survive an interrupted run and can be resumed.
    pub resume: bool,
    /// Whether `lock` excludes a second run.
    pub lock: bool,
    /// Whether the modification time can be set.
    pub times: bool,
    /// Range and precision of modification times, as far as known beforehand.
    pub stored_times: StoredTimes,
    /// Whether permission bits can be set.
    pub mode: bool,
    /// Whether user and group can be set (given the privileges).
    pub owner: bool,
    /// Whether extended attributes exist.
    pub xattrs: bool,
    /// The kinds of digests that [`Storage::digest`](crate::Storage::digest) returns for every file.
    pub digests: Vec<DigestKind>,
    /// Whether reads should be as long as possible, because starting one costs RTTs and a slow start.
    pub long_reads: bool,
    /// Whether a lane accepts further read requests while one is outstanding.
    pub pipelined_reads: bool,
    /// Whether a lane accepts further write requests while one is outstanding.
    pub pipelined_writes: bool,
    /// True if the backend itself limits the bytes in flight of its reads, to at most about twice the bytes received
    /// per RTT, however many are requested.
    pub bounded_reads: bool,
    /// True if written bytes wait in the memory of the backend until a connection accepts them, so that many of them in
    /// flight do not fill the queues of the path.
    pub bounded_writes: bool,
    /// Whether a listing contains every name that exists. If not, a server may serve files that its listings omit.
    pub complete_lists: bool,
    /// Preferred size of a write in bytes, for servers that open the file for each write request; 0 if any
    /// size will do.
    pub write_bytes: u64,
    /// Maximum number of open lanes; `None` if no limit is known.
    pub max_lanes: Option<usize>,
    /// The longest possible file in bytes; `None` if no limit is known.
    pub max_file_size: Option<u64>,
    /// Files up to this many bytes are best moved by `read_whole` and `write_whole`.
    pub whole_limit: u64,
}

impl Capabilities {
    /// A storage with the fewest capabilities: files are read from their start and written in order, and no
    /// limit is known.
    pub const fn least(medium: Medium) -> Self {
        Self {
            medium,
            ranged_reads: false,
            writes: Writes::InOrder,
            rename: false,
            conditional_commits: false,
            server_copy: false,
            symlinks: false,
            hard_links: false,
            sync: false,
            resume: false,
            lock: false,
            times: false,
            stored_times: StoredTimes::ALL,
            mode: false,
            owner: false,
            xattrs: false,
            digests: Vec::new(),
            long_reads: false,
            pipelined_reads: false,
            pipelined_writes: false,
            bounded_reads: false,
            bounded_writes: false,
            complete_lists: false,
            write_bytes: 0,
            max_lanes: None,
            max_file_size: None,
            whole_limit: 0,
        }
    }

    /// Returns these capabilities with a change.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}
