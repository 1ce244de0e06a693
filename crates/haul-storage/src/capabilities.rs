//! What a storage can do, so that the engine chooses a way that works instead of trying.

use crate::{DigestKind, KeptTimes};

/// In which order a file may be written.
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
    /// A disk or memory of this machine: no lanes to open, no round trip to hide.
    Disk,
    /// A network link: the window decides about lanes and bytes in flight.
    Link,
}

/// What a storage can do. A backend begins with [`Capabilities::least`] and claims what it can; the
/// conformance kit then holds it to every claim.
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
    /// What lies between.
    pub medium: Medium,
    /// Whether a read may start anywhere; if not, a file is read from its start in one go.
    pub ranged_reads: bool,
    /// In which order a file may be written.
    pub writes: Writes,
    /// Whether `rename` replaces in one step.
    pub rename: bool,
    /// Whether `copy` and `WriteAt::copy_from` work without the bytes passing through here.
    pub server_copy: bool,
    /// Whether symbolic links exist.
    pub symlinks: bool,
    /// Whether hard links exist.
    pub hard_links: bool,
    /// Whether a commit can be made durable.
    pub sync: bool,
    /// Whether part files survive a broken run and can be continued.
    pub resume: bool,
    /// Whether `lock` keeps a second run out.
    pub lock: bool,
    /// Whether the modification time can be set.
    pub times: bool,
    /// Which modification times are kept, as far as that is known beforehand.
    pub kept_times: KeptTimes,
    /// Whether permission bits can be set.
    pub mode: bool,
    /// Whether user and group can be set (by somebody who may).
    pub owner: bool,
    /// Whether extended attributes exist.
    pub xattrs: bool,
    /// The kinds of digests that [`Storage::digest`](crate::Storage::digest) reports of every file.
    pub digests: Vec<DigestKind>,
    /// Whether reads should be as long as possible: beginning one takes round trips and a slow start,
    /// going on takes nothing.
    pub long_reads: bool,
    /// Whether a lane takes more requests to read while one is being answered.
    pub pipelined_reads: bool,
    /// The same for requests to write.
    pub pipelined_writes: bool,
    /// Whether reading bounds by itself what is under way, to somewhat more than what comes in a round
    /// trip, however much is asked for.
    pub bounded_reads: bool,
    /// Bytes that are worth a write, where each is a request that the far end opens the file for; 0 if
    /// any are.
    pub write_bytes: u64,
    /// The most lanes that may be open; `None` if there is no known limit.
    pub max_lanes: Option<usize>,
    /// The longest possible file in bytes; `None` if there is no known limit.
    pub max_file_size: Option<u64>,
    /// Files up to this many bytes are best moved whole by `read_whole` and `write_whole`.
    pub whole_limit: u64,
}

impl Capabilities {
    /// A storage that claims nothing: files are read from their start and written in order, and no limit
    /// is known.
    pub const fn least(medium: Medium) -> Self {
        Self {
            medium,
            ranged_reads: false,
            writes: Writes::InOrder,
            rename: false,
            server_copy: false,
            symlinks: false,
            hard_links: false,
            sync: false,
            resume: false,
            lock: false,
            times: false,
            kept_times: KeptTimes::ALL,
            mode: false,
            owner: false,
            xattrs: false,
            digests: Vec::new(),
            long_reads: false,
            pipelined_reads: false,
            pipelined_writes: false,
            bounded_reads: false,
            write_bytes: 0,
            max_lanes: None,
            max_file_size: None,
            whole_limit: 0,
        }
    }

    /// The same with a change.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}
