//! The actions that the driver of a file performs.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use haul_storage::{Block, BlockStream, Range, RangeSet};

/// The requester of room, that is, of a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requester {
    /// The file, for its next range.
    File,
    /// A range in flight.
    Range(u64),
}

/// The next thing to do. Each leads to one of the inputs named (a write that is also
/// hashed, to both), except `FreeSlot`, `Wait` and `Done`.
#[derive(Debug)]
pub enum Action {
    /// Find the first data at or after an offset: `on_data`.
    FindData(u64),
    /// Feed the zeros of a hole to the digest: `on_zeros`.
    Zeros(Range),
    /// Wait for room for this many bytes, unless that is withdrawn meanwhile: `on_room`.
    Room(Requester, u64),
    /// Copy a range without its bytes passing through this process: `on_copied` or `on_failed`.
    Copy(u64, Range),
    /// Read the next block of a range: `on_block`, `on_end`, `on_failed`, or `on_withdrawn`.
    Read(Reading),
    /// Write or hash a block, or both at once: `on_written`, `on_hashed`.
    Write(Writing),
    /// Append ranges to the journal: `on_recorded`.
    Record(RangeSet),
    /// Let the next file begin: little is left of this one. No input follows.
    FreeSlot,
    /// Nothing until this time, or until the next input.
    Wait(Option<Duration>),
    /// Nothing more.
    Done,
}

/// The read of a block.
pub struct Reading {
    /// The range in flight.
    pub id: u64,
    /// The bytes to read.
    pub range: Range,
    /// The offset where the read ends; may be lowered while it runs.
    pub end: Arc<AtomicU64>,
    /// Minimum bytes of a write: blocks are joined until they have as many.
    pub least: u64,
    /// The stream of an earlier read of this range; `None` begins a new read.
    pub blocks: Option<BlockStream>,
}

impl std::fmt::Debug for Reading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reading({} {})", self.id, self.range)
    }
}

/// A block that has arrived.
#[derive(Debug)]
pub struct Writing {
    /// The range in flight.
    pub id: u64,
    /// Its offset in the file.
    pub offset: u64,
    /// Its bytes.
    pub block: Block,
    /// Whether to write it.
    pub write: bool,
    /// Whether to hash it.
    pub hash: bool,
}
