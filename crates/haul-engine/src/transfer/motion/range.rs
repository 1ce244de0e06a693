//! A range in flight, and its blocks that have arrived.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use haul_storage::{Block, BlockStream, Error, Range};

use crate::budget::Permit;
use crate::long::Counted;
use crate::retry::Retries;
use crate::schedule::Assignment;

/// What a range waits for.
#[derive(Debug)]
pub enum State {
    /// A permit for its first bytes: a range that is taken over from another lane begins without one.
    FirstRoom,
    /// A permit for the next bytes.
    MoreRoom,
    /// The rate limit, before its first bytes are requested.
    PaysFirst,
    /// The rate limit, before the next block is requested.
    PaysNext,
    /// The rate limit, for a block that is longer than was paid for.
    PaysBlock(u64, Block),
    /// A copy that does not pass through this process.
    Copying,
    /// Its next block.
    Reading,
    /// The write of a block, before which no more may be read.
    Writing,
    /// All blocks that are being written; then it ends or is retried.
    Ending,
    /// The pause before a retry.
    Pausing,
}

/// A range in flight.
pub struct MovingRange {
    /// What it waits for.
    pub state: State,
    /// The bytes that it may have in flight and in memory.
    pub permit: Option<Permit>,
    /// The current attempt to read it.
    pub attempt: Attempt,
    /// The stream of further blocks, while none of them is awaited.
    pub blocks: Option<BlockStream>,
    /// Blocks that are being written or hashed.
    pub blocks_in_hand: Vec<InHand>,
    /// Counts its attempts.
    pub retries: Retries,
    /// Why the attempt ends, if it failed.
    pub failure: Option<Error>,
    /// Set if it counts as a long read.
    pub counted: Option<Counted>,
}

/// One attempt to read a range.
#[derive(Debug, Default)]
pub struct Attempt {
    /// When it began.
    pub issued: Duration,
    /// The offset of its first byte.
    pub first: u64,
    /// When that arrived.
    pub first_byte: Option<Duration>,
    /// The offset where the read ends; may be lowered while it runs.
    pub end: Arc<AtomicU64>,
}

/// The state of the write of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// Not begun: it waits for its turn, or for a retry after a pause.
    Waits,
    /// Being written.
    InFlight,
    /// Written.
    Done,
    /// Not written, and not retried.
    Abandoned,
}

/// A block that has arrived.
#[derive(Debug)]
pub struct InHand {
    /// Its range in the file.
    pub range: Range,
    /// Its bytes, for a write that waits or is retried.
    pub block: Block,
    /// Released when it is written and recorded.
    pub permit: Permit,
    /// The state of its write.
    pub write: Write,
    /// Whether it still has to be hashed.
    pub hashing: bool,
    /// Counts the retries of its write, once one has failed.
    pub retries: Option<Retries>,
}

impl MovingRange {
    /// A range that is about to begin.
    pub fn new(assignment: Assignment, state: State, retries: Retries) -> Self {
        Self {
            state,
            permit: None,
            attempt: Attempt { first: assignment.range.start(), ..Attempt::default() },
            blocks: None,
            blocks_in_hand: Vec::new(),
            retries,
            failure: None,
            counted: None,
        }
    }

    /// Bytes that may still arrive.
    pub fn room(&self) -> u64 {
        self.permit.as_ref().map_or(0, Permit::left)
    }

    /// The block that has arrived at `offset`.
    pub fn in_hand(&mut self, offset: u64) -> Option<&mut InHand> {
        self.blocks_in_hand.iter_mut().find(|block| block.range.start() == offset)
    }

    /// Takes out the block at `offset` once it is hashed and its write is done or abandoned.
    pub fn take_settled(&mut self, offset: u64) -> Option<InHand> {
        let settled = |block: &InHand| {
            let is_decided = matches!(block.write, Write::Done | Write::Abandoned);
            block.range.start() == offset && is_decided && !block.hashing
        };
        let at = self.blocks_in_hand.iter().position(settled)?;
        Some(self.blocks_in_hand.swap_remove(at))
    }
}
