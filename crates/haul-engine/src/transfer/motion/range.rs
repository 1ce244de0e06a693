//! A range in flight, and the blocks of it that are in hand.

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
    /// Room for its first bytes: it was taken over from another lane.
    FirstRoom,
    /// A permit for the next bytes.
    MoreRoom,
    /// The limit of the rate, before its first bytes are requested.
    PaysFirst,
    /// The limit of the rate, before the next block is requested.
    PaysNext,
    /// The limit of the rate, for a block that is longer than was paid for.
    PaysBlock(u64, Block),
    /// The copy that does not pass through here.
    Copying,
    /// Its next block.
    Reading,
    /// A block that is being written: no more may be read before.
    Writing,
    /// All blocks that are being written; then it ends or is retried.
    Ending,
    /// The pause before a retry.
    Pausing,
}

/// A range in flight.
pub struct MovingRange {
    /// What waits or is done for it.
    pub state: State,
    /// The bytes that it may have in flight and in memory.
    pub permit: Option<Permit>,
    /// When its bytes were requested, from where on, and when the first came.
    pub attempt: Attempt,
    /// The result of the read.
    pub blocks: Option<BlockStream>,
    /// Blocks that are being written or hashed.
    pub blocks_in_hand: Vec<InHand>,
    /// Counts its attempts.
    pub retries: Retries,
    /// Why the attempt ends, if it failed.
    pub failure: Option<Error>,
    /// It counts as a long read.
    pub counted: Option<Counted>,
}

/// One attempt to read a range.
#[derive(Debug, Default)]
pub struct Attempt {
    /// When it began.
    pub issued: Duration,
    /// The first byte of it.
    pub first: u64,
    /// When that came.
    pub first_byte: Option<Duration>,
    /// Where it ends; may come nearer.
    pub end: Arc<AtomicU64>,
}

/// How far the write of a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// Not begun: it is not its turn, or it is tried again after a pause.
    Waits,
    /// Being written.
    InFlight,
    /// Written.
    Done,
    /// Not going to be written.
    GivenUp,
}

/// A block that was read.
#[derive(Debug)]
pub struct InHand {
    /// Where it belongs.
    pub range: Range,
    /// Its bytes, for another attempt to write them.
    pub block: Block,
    /// Given back when it is written and recorded.
    pub permit: Permit,
    /// Whether it is written.
    pub write: Write,
    /// It is not hashed yet.
    pub hashing: bool,
    /// Attempts to write it, once one has failed.
    pub retries: Option<Retries>,
}

impl MovingRange {
    /// One that is about to begin.
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

    /// The block in hand at `offset`.
    pub fn in_hand(&mut self, offset: u64) -> Option<&mut InHand> {
        self.blocks_in_hand.iter_mut().find(|block| block.range.start() == offset)
    }

    /// Takes the block at `offset` out once nothing is done with it.
    pub fn take_settled(&mut self, offset: u64) -> Option<InHand> {
        let settled = |block: &InHand| {
            let is_decided = matches!(block.write, Write::Done | Write::GivenUp);
            block.range.start() == offset && is_decided && !block.hashing
        };
        let at = self.blocks_in_hand.iter().position(settled)?;
        Some(self.blocks_in_hand.swap_remove(at))
    }
}
