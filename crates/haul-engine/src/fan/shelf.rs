//! One open source file in the store of a fan-out: its cached pieces, the reads in progress, and the ranges that each
//! host has received.
//!
//! A read in progress is polled by the host that needs its next block. So it never gets ahead of the fastest host, and
//! no slow host delays it.
//!
//! A `seat` is the number of a host, and `taken` are the seats of all hosts being served (`seats`).

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Weak};

use haul_storage::{Block, BlockStream, Range, RangeSet};
use tokio::sync::Mutex as AsyncMutex;

use super::seats::SeatSet;

/// A host that needs bytes at most this far ahead of a read in progress waits for that read. Farther ahead, a second
/// read begins, and the first one ends where the second one began. A file that can be read only from its start
/// has no such limit.
const JOIN_BYTES: u64 = 1 << 20;

/// One open file.
#[derive(Debug, Default)]
pub struct Shelf {
    /// Whether the file can be read only from its start.
    from_start: bool,
    /// Cached pieces by the offset of their first byte; they do not overlap.
    pieces: BTreeMap<u64, Piece>,
    reads: Vec<ReadInProgress>,
    /// The ranges that each host has received.
    received: HashMap<usize, RangeSet>,
    /// How often each host has the file open.
    open: HashMap<usize, usize>,
    /// The hosts that have closed the file after they received bytes of it: they need nothing of it any more.
    closed: SeatSet,
}

#[derive(Debug)]
struct Piece {
    block: Block,
    /// Its position in the order of all cached items.
    stamp: u64,
}

#[derive(Debug)]
struct ReadInProgress {
    /// From its next block to its end.
    left: Range,
    read: Weak<Read>,
}

/// A read of the source in progress.
pub struct Read {
    /// Its blocks. One host at a time polls them.
    pub blocks: AsyncMutex<Blocks>,
}

/// The state of a read.
pub enum Blocks {
    /// Not begun: the range to read.
    Wanted(Range),
    /// The remaining blocks.
    Coming(BlockStream),
    /// The read has ended.
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
    /// In the cache.
    Here(Block),
    /// In a read in progress.
    Coming(Arc<Read>),
}

/// A piece that was removed from the cache: its stamp and its length.
pub type Evicted = (u64, u64);

impl Shelf {
    /// The state of a file that can be read from any offset (`ranged`), or only from its start.
    pub fn new(ranged: bool) -> Self {
        Self { from_start: !ranged, ..Self::default() }
    }

    /// A host has opened it.
    pub fn opened(&mut self, seat: usize) {
        *self.open.entry(seat).or_default() += 1;
        if self.closed.contains(seat) {
            // The host starts again.
            self.closed.remove(seat);
            self.received.remove(&seat);
        }
    }

    /// A host has closed it. Returns the pieces that no host in `taken` needs any more, removed from the cache.
    pub fn closed(&mut self, seat: usize, taken: SeatSet) -> Vec<Evicted> {
        if let Some(count) = self.open.get_mut(&seat) {
            *count -= 1;
            if *count > 0 {
                return Vec::new();
            }
        }
        self.open.remove(&seat);
        // A host that received nothing only looked for holes, to know how much space a copy takes, or could not create
        // its copy: it opens the file again.
        if self.received.contains_key(&seat) {
            self.closed.insert(seat);
        }
        self.sweep(taken)
    }

    /// A host has left the fan-out. Returns pieces as [`closed`](Self::closed) does.
    pub fn left(&mut self, seat: usize, taken: SeatSet) -> Vec<Evicted> {
        self.open.remove(&seat);
        self.received.remove(&seat);
        self.closed.remove(seat);
        self.sweep(taken)
    }

    /// Whether no host has it open.
    pub fn is_idle(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether pieces of it are cached.
    pub fn has_pieces(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Whether all hosts in `taken` have received what they need of it, and closed it.
    pub fn is_done(&self, taken: SeatSet) -> bool {
        self.is_idle() && taken.without(self.closed).is_empty()
    }

    /// Finds the first bytes of `wanted`, which must not be empty. If they are neither cached nor being read, a read
    /// for them begins. It ends where other bytes are cached or being read, unless the file can be read only from its
    /// start: a host that is behind follows one read through all gaps, and does not begin again for each.
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
        let left = match self.from_start {
            true => Range::between(0, wanted.end()),
            false => Range::between(at, end),
        };
        let read = Arc::new(Read { blocks: AsyncMutex::new(Blocks::Wanted(left)) });
        self.reads.push(ReadInProgress { left, read: Arc::downgrade(&read) });
        Found::Coming(read)
    }

    /// The rest of a read; empty if the read is not in progress any more.
    pub fn left_of(&self, read: &Arc<Read>) -> Range {
        let under = self.reads.iter().find(|under| std::ptr::eq(under.read.as_ptr(), &**read));
        under.map_or(Range::new(0, 0), |under| under.left)
    }

    /// A read has returned its next block. Truncates the block to the end of the read, and returns its offset.
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

    /// A read has ended, successfully or not.
    pub fn ended(&mut self, read: &Arc<Read>) {
        self.reads.retain(|under| !std::ptr::eq(under.read.as_ptr(), &**read));
    }

    /// Whether no cached piece overlaps `range`. A second read from the start returns bytes that may be cached.
    pub fn is_free(&self, range: Range) -> bool {
        let before = self.pieces.range(..range.end()).next_back();
        before.is_none_or(|(start, piece)| start + piece.block.len() as u64 <= range.start())
    }

    /// Caches a piece; its range must be free.
    pub fn put(&mut self, at: u64, block: Block, stamp: u64) {
        self.pieces.insert(at, Piece { block, stamp });
    }

    /// Removes a piece from the cache.
    pub fn take(&mut self, at: u64) -> Option<Evicted> {
        let piece = self.pieces.remove(&at)?;
        Some((piece.stamp, piece.block.len() as u64))
    }

    /// A host has received `range`. Removes and returns the cached piece at its start if no host in `taken` needs that
    /// any more.
    pub fn received(&mut self, seat: usize, range: Range, taken: SeatSet) -> Option<Evicted> {
        self.received.entry(seat).or_default().insert(range);
        let (&start, _) = self.pieces.range(..=range.start()).next_back()?;
        self.needed_by(start, taken).is_empty().then(|| self.take(start)).flatten()
    }

    /// The hosts in `taken` that have not received the piece that begins at `start`.
    pub fn needed_by(&self, start: u64, taken: SeatSet) -> SeatSet {
        let Some(piece) = self.pieces.get(&start) else { return SeatSet::default() };
        taken.without(self.had_by(Range::new(start, piece.block.len() as u64)))
    }

    /// The hosts that have received a range, or do not need it any more.
    pub fn had_by(&self, range: Range) -> SeatSet {
        let mut had = self.closed;
        for (seat, received) in &self.received {
            if !had.contains(*seat) && received.gaps(range).is_empty() {
                had.insert(*seat);
            }
        }
        had
    }

    /// Whether a host has it open.
    pub fn is_open_at(&self, seat: usize) -> bool {
        self.open.contains_key(&seat)
    }

    /// Removes all pieces from the cache.
    pub fn clear(&mut self) -> Vec<Evicted> {
        let pieces = std::mem::take(&mut self.pieces);
        pieces.into_values().map(|piece| (piece.stamp, piece.block.len() as u64)).collect()
    }

    /// Removes the pieces that no host in `taken` needs any more.
    fn sweep(&mut self, taken: SeatSet) -> Vec<Evicted> {
        let starts: Vec<u64> = self.pieces.keys().copied().collect();
        let spent = starts.into_iter().filter(|start| self.needed_by(*start, taken).is_empty());
        let spent: Vec<u64> = spent.collect();
        spent.into_iter().filter_map(|start| self.take(start)).collect()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn block() -> Block {
        Bytes::from_static(&[7; 100]).into()
    }

    /// Formerly, a host that was behind read the file from its start for each gap between cached pieces.
    #[test]
    fn a_read_from_the_start_continues_past_cached_pieces() {
        let mut shelf = Shelf::new(false);
        shelf.put(100, block(), 1);
        let Found::Coming(read) = shelf.find(Range::new(0, 400)) else { panic!() };
        assert_eq!(shelf.left_of(&read), Range::new(0, 400));
        assert_eq!(shelf.advance(&read, &mut block()), 0);
        assert!(matches!(shelf.find(Range::new(100, 300)), Found::Here(_)));
        let Found::Coming(next) = shelf.find(Range::new(200, 200)) else { panic!() };
        assert!(Arc::ptr_eq(&read, &next));
    }

    #[test]
    fn a_read_from_any_offset_ends_at_a_cached_piece() {
        let mut shelf = Shelf::new(true);
        shelf.put(100, block(), 1);
        let Found::Coming(read) = shelf.find(Range::new(20, 300)) else { panic!() };
        assert_eq!(shelf.left_of(&read), Range::between(20, 100));
    }
}
