//! What the store knows of one open file: the pieces that are there, the reads that are under way,
//! and how far each host has come.
//!
//! A read under way is pulled by whoever needs its next block, so it never goes further than the
//! fastest of those who want it, and no slow host holds it up.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Weak};

use haul_storage::{Block, BlockStream, Range, RangeSet};
use tokio::sync::Mutex as AsyncMutex;

use super::seats::SeatSet;

/// Somebody who begins so little further on than where a read under way stands goes with it;
/// further on a second read is begun, and the first one ends there.
const JOIN_BYTES: u64 = 1 << 20;

/// One open file.
#[derive(Debug, Default)]
pub struct Shelf {
    /// Whether the file can be read only from its start.
    from_start: bool,
    /// By the offset of their first byte; none overlap.
    pieces: BTreeMap<u64, Piece>,
    reads: Vec<Under>,
    given: HashMap<usize, RangeSet>,
    /// How often each host has it open.
    open: HashMap<usize, usize>,
    /// Who has closed it: they need nothing of it any longer.
    closed: SeatSet,
}

#[derive(Debug)]
struct Piece {
    block: Block,
    stamp: u64,
}

#[derive(Debug)]
struct Under {
    /// Where its next block begins, and where it is to end.
    left: Range,
    read: Weak<Read>,
}

/// A read of the source that is under way.
pub struct Read {
    /// Its blocks, for one at a time to pull.
    pub blocks: AsyncMutex<Blocks>,
}

/// How far a read has come.
pub enum Blocks {
    /// Nobody has pulled yet: this is to be read.
    Wanted(Range),
    /// What comes next.
    Coming(BlockStream),
    /// Nothing comes any longer.
    Ended,
}

impl fmt::Debug for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Read")
    }
}

/// Where the next bytes are.
#[derive(Debug)]
pub enum Found {
    /// Here.
    Here(Block),
    /// In a read that is under way.
    Coming(Arc<Read>),
}

/// A piece that was taken off the shelf: its place in the order of all, and its length.
pub type Taken = (u64, u64);

impl Shelf {
    /// For a file that can be read from anywhere (`ranged`), or only from its start.
    pub fn new(ranged: bool) -> Self {
        Self { from_start: !ranged, ..Self::default() }
    }

    /// A host has opened it.
    pub fn opened(&mut self, seat: usize) {
        *self.open.entry(seat).or_default() += 1;
        if self.closed.contains(seat) {
            // It begins anew.
            self.closed.remove(seat);
            self.given.remove(&seat);
        }
    }

    /// A host has closed it.
    pub fn closed(&mut self, seat: usize, taken: SeatSet) -> Vec<Taken> {
        if let Some(count) = self.open.get_mut(&seat) {
            *count -= 1;
            if *count > 0 {
                return Vec::new();
            }
        }
        self.open.remove(&seat);
        self.closed.insert(seat);
        self.sweep(taken)
    }

    /// A host has left for good.
    pub fn left(&mut self, seat: usize, taken: SeatSet) -> Vec<Taken> {
        self.open.remove(&seat);
        self.given.remove(&seat);
        self.closed.remove(seat);
        self.sweep(taken)
    }

    /// Whether nobody has it open.
    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether all of `taken` have had it and closed it.
    pub fn is_done(&self, taken: SeatSet) -> bool {
        self.is_idle() && taken.without(self.closed).is_empty()
    }

    /// Looks for the first bytes of `wanted`, which is not empty. If they are nowhere, a read for
    /// them is begun.
    pub fn find(&mut self, wanted: Range) -> Found {
        let at = wanted.start();
        if let Some((&start, piece)) = self.pieces.range(..=at).next_back()
            && start + piece.block.len() as u64 > at
        {
            let mut block = piece.block.clone();
            let mut block = block.split_off(usize::try_from(at - start).unwrap_or(usize::MAX));
            block.truncate(usize::try_from(wanted.len()).unwrap_or(usize::MAX));
            return Found::Here(block);
        }
        self.reads.retain(|under| !under.left.is_empty() && under.read.strong_count() > 0);
        let mut end = wanted.end();
        for under in &mut self.reads {
            if under.left.start() <= at && at < under.left.end() {
                if (self.from_start || at - under.left.start() <= JOIN_BYTES)
                    && let Some(read) = under.read.upgrade()
                {
                    return Found::Coming(read);
                }
                end = end.min(under.left.end());
                under.left = Range::between(under.left.start(), at);
            } else if under.left.start() > at {
                end = end.min(under.left.start());
            }
        }
        if let Some((&next, _)) = self.pieces.range(at..end).next() {
            end = next;
        }
        let left = Range::between(if self.from_start { 0 } else { at }, end);
        let read = Arc::new(Read { blocks: AsyncMutex::new(Blocks::Wanted(left)) });
        self.reads.push(Under { left, read: Arc::downgrade(&read) });
        Found::Coming(read)
    }

    /// What is left of a read; empty if it has been forgotten.
    pub fn left_of(&self, read: &Arc<Read>) -> Range {
        let under = self.reads.iter().find(|under| std::ptr::eq(under.read.as_ptr(), &**read));
        under.map_or(Range::new(0, 0), |under| under.left)
    }

    /// A read has given its next block. Gives where it belongs, cut to what was to be read.
    pub fn advance(&mut self, read: &Arc<Read>, block: &mut Block) -> u64 {
        let under = self.reads.iter_mut().find(|under| std::ptr::eq(under.read.as_ptr(), &**read));
        let Some(under) = under else {
            block.truncate(0);
            return 0;
        };
        let at = under.left.start();
        block.truncate(usize::try_from(under.left.len()).unwrap_or(usize::MAX));
        under.left = under.left.split_at(block.len() as u64).1;
        at
    }

    /// A read has ended, however.
    pub fn ended(&mut self, read: &Arc<Read>) {
        self.reads.retain(|under| !std::ptr::eq(under.read.as_ptr(), &**read));
    }

    /// Whether a piece may be put there: what is read from the start once more may be there
    /// already.
    pub fn is_free(&self, range: Range) -> bool {
        let before = self.pieces.range(..range.end()).next_back();
        before.is_none_or(|(start, piece)| start + piece.block.len() as u64 <= range.start())
    }

    /// Puts a piece on the shelf, where it is free.
    pub fn put(&mut self, at: u64, block: Block, stamp: u64) {
        self.pieces.insert(at, Piece { block, stamp });
    }

    /// Takes a piece off it.
    pub fn take(&mut self, at: u64) -> Option<Taken> {
        let piece = self.pieces.remove(&at)?;
        Some((piece.stamp, piece.block.len() as u64))
    }

    /// A host has been given `range`, which lies in one piece. Gives the piece if nobody of `taken`
    /// needs it any longer.
    pub fn gave(&mut self, seat: usize, range: Range, taken: SeatSet) -> Option<Taken> {
        self.given.entry(seat).or_default().insert(range);
        let (&start, _) = self.pieces.range(..=range.start()).next_back()?;
        self.needed_by(start, taken).is_empty().then(|| self.take(start)).flatten()
    }

    /// Who of `taken` has not had the piece that begins at `start`.
    pub fn needed_by(&self, start: u64, taken: SeatSet) -> SeatSet {
        let Some(piece) = self.pieces.get(&start) else { return SeatSet::default() };
        taken.without(self.had_by(Range::new(start, piece.block.len() as u64)))
    }

    /// Who has had a range, or needs it no longer.
    pub fn had_by(&self, range: Range) -> SeatSet {
        let mut had = self.closed;
        for (seat, given) in &self.given {
            if !had.contains(*seat) && given.gaps(range).is_empty() {
                had.insert(*seat);
            }
        }
        had
    }

    /// Whether a host has it open.
    pub fn is_open_at(&self, seat: usize) -> bool {
        self.open.contains_key(&seat)
    }

    /// Takes everything off.
    pub fn clear(&mut self) -> Vec<Taken> {
        let pieces = std::mem::take(&mut self.pieces);
        pieces.into_values().map(|piece| (piece.stamp, piece.block.len() as u64)).collect()
    }

    fn sweep(&mut self, taken: SeatSet) -> Vec<Taken> {
        let starts: Vec<u64> = self.pieces.keys().copied().collect();
        let spent = starts.into_iter().filter(|start| self.needed_by(*start, taken).is_empty());
        let spent: Vec<u64> = spent.collect();
        spent.into_iter().filter_map(|start| self.take(start)).collect()
    }
}
