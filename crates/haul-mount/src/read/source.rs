//! An open file: its reads and its read-ahead.

use std::ops::Range as Indices;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use haul_storage::{Block, Error, ErrorKind, Identity, Range, ReadAt, RelPath, Result};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::blocks::{BLOCK, STEP};
use super::context::Context;
use super::fetch::{Flight, Piece, Version};
use super::pattern::{Ahead, Streams};
use crate::lock::lock;

/// The first bytes of a stream, which are spread over the lanes when they are read ahead: while TCP is in slow start, a
/// whole block on one lane takes four RTTs.
const YOUNG: u64 = 2 << 20;

/// An open file. All handles of one version of a file share it. Dropping it abandons what is in flight.
#[derive(Debug)]
pub(super) struct Source {
    version: Arc<Version>,
    streams: Mutex<Streams>,
    /// Whether it counts as a file that is read sequentially.
    is_sequential: AtomicBool,
    /// The fetches in flight.
    tasks: Mutex<JoinSet<()>>,
    runtime: Handle,
}

impl Source {
    pub(super) fn new(
        context: &Arc<Context>,
        path: RelPath,
        reader: Arc<dyn ReadAt>,
        number: u64,
        runtime: &Handle,
    ) -> Arc<Self> {
        let version = Version::new(context, path, reader, number);
        let (streams, tasks, runtime) = (Mutex::default(), Mutex::default(), runtime.clone());
        let is_sequential = AtomicBool::new(false);
        Arc::new(Self { version, streams, is_sequential, tasks, runtime })
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &RelPath {
        self.version.path()
    }

    /// The number of the version.
    pub(super) fn number(&self) -> u64 {
        self.version.number()
    }

    /// What distinguishes this version from others.
    pub(super) fn identity(&self) -> &Identity {
        self.version.identity()
    }

    /// The same open file, opened at its present length if it has grown.
    pub(super) async fn grown(&self) -> Option<Arc<dyn ReadAt>> {
        let reader = self.version.reader();
        let grown = timeout(self.version.context.timeout, reader.grown()).await;
        // After an error, reads go on with the version that was opened.
        grown.ok()?.ok()?
    }

    /// Requests the first blocks, which a process will probably read next, unless they are in memory or in flight.
    pub(super) fn fetch_head(&self) {
        const MOST: u64 = STEP / BLOCK;
        let first = self.clipped(Range::new(0, STEP));
        for run in runs(&self.version.claim(indices(first), 1, MOST), MOST) {
            self.fetch(Flight::new(&self.version, &run));
        }
    }

    /// Reads what is in memory; `None` if anything has to be fetched.
    pub(super) fn read_now(&self, range: Range) -> Option<Block> {
        let range = self.clipped(range);
        let indices = indices(range);
        let mut pieces = Vec::new();
        for index in indices.clone() {
            pieces.push(self.version.held(index)?);
        }
        self.version.context.counters.hits.add(pieces.len() as u64);
        self.on_read(range, false);
        Some(joined(range, indices.start, pieces))
    }

    /// Reads a range. The result is shorter only at the end of the file.
    ///
    /// # Errors
    /// Of the storage, after retries; `Interrupted` if the file was closed meanwhile.
    pub(super) async fn read(&self, range: Range) -> Result<Block> {
        let range = self.clipped(range);
        let indices = indices(range);
        let (pieces, missing) = self.version.want(range, indices.clone());
        let is_in_flight = |piece: &&Piece| matches!(piece, Piece::InFlight(_));
        let misses = pieces.iter().filter(is_in_flight).count();
        let counters = &self.version.context.counters;
        counters.hits.add((pieces.len() - misses) as u64);
        counters.misses.add(misses as u64);
        let stalled = misses > 0;
        for run in runs(&missing, u64::MAX) {
            self.fetch(Flight::new(&self.version, &run));
        }
        self.on_read(range, stalled);
        let mut held = Vec::with_capacity(pieces.len());
        for piece in pieces {
            held.push(match piece {
                Piece::Cached(bytes) => bytes,
                Piece::InFlight(receiver) => receiver
                    .await
                    .unwrap_or_else(|_| Err(Error::new(ErrorKind::Interrupted, "read")))?,
            });
        }
        Ok(joined(range, indices.start, held))
    }

    fn clipped(&self, range: Range) -> Range {
        range.intersection(Range::new(0, self.version.size()))
    }

    fn fetch(&self, flight: Flight) {
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn_on(flight.run(), &self.runtime);
    }

    /// Records a read, and reads ahead.
    fn on_read(&self, range: Range, stalled: bool) {
        if range.is_empty() {
            return;
        }
        let context = &self.version.context;
        let window = context.window();
        let wanted = {
            let mut streams = lock(&self.streams);
            let wanted = streams.on_read(range, stalled, window);
            if streams.is_sequential() && !self.is_sequential.swap(true, Ordering::Relaxed) {
                context.count_sequential(true);
            }
            wanted
        };
        let Some(Ahead { range, read }) = wanted else { return };
        let wanted = self.clipped(range);
        if wanted.is_empty() {
            return;
        }
        // A few blocks are not worth a request of their own, except at the end of the file (backward: at its start).
        let run = context.run_blocks(wanted.len(), read);
        let is_rest = wanted.end() == self.version.size() || wanted.start() == 0;
        let room = {
            let mut blocks = context.blocks();
            blocks.make_room_ahead(run * BLOCK);
            blocks.room_ahead() / BLOCK
        };
        let least = if is_rest { 1 } else { run.min(room) };
        let missing = self.version.claim(indices(wanted), least, room);
        for run in runs(&missing, run) {
            let is_urgent = read + (run.start * BLOCK).saturating_sub(wanted.start()) < YOUNG;
            self.fetch(Flight::ahead(&self.version, &run, is_urgent));
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let context = &self.version.context;
        if self.is_sequential.load(Ordering::Relaxed) {
            context.count_sequential(false);
        }
        self.version.settle();
    }
}

/// The blocks that a range touches.
const fn indices(range: Range) -> Indices<u64> {
    if range.is_empty() {
        return 0..0;
    }
    range.start() / BLOCK..range.end().div_ceil(BLOCK)
}

/// Runs of consecutive numbers, of at most `most` each.
fn runs(numbers: &[u64], most: u64) -> Vec<Indices<u64>> {
    let mut runs: Vec<Indices<u64>> = Vec::new();
    for number in numbers.iter().copied() {
        match runs.last_mut() {
            Some(run) if run.end == number && run.end - run.start < most => run.end += 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}

/// The bytes of a range from the blocks that it touches, without copying. The result ends with the first short block.
fn joined(range: Range, first: u64, pieces: Vec<Bytes>) -> Block {
    let mut block = Block::new();
    for (start, bytes) in (first..).map(|index| index * BLOCK).zip(pieces) {
        let within = |offset: u64| {
            usize::try_from(offset.saturating_sub(start)).unwrap_or(usize::MAX).min(bytes.len())
        };
        block.push(bytes.slice(within(range.start())..within(range.end())));
        if (bytes.len() as u64) < BLOCK {
            break;
        }
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_blocks_are_fetched_together() {
        assert_eq!(runs(&[1, 2, 3, 7, 8], u64::MAX), [1..4, 7..9]);
        assert_eq!(runs(&[1, 2, 3, 7, 8], 2), [1..3, 3..4, 7..9]);
        assert_eq!(runs(&[], 2), Vec::<Indices<u64>>::new());
    }

    #[test]
    fn a_range_is_cut_out_of_its_blocks() {
        let whole = Bytes::from(vec![1; BLOCK as usize]);
        let short = Bytes::from(vec![2; 10]);
        let range = Range::new(BLOCK - 3, 8);
        assert_eq!(indices(range), 0..2);
        let block = joined(range, 0, vec![whole.clone(), short.clone()]);
        assert_eq!(block.into_bytes(), &[1, 1, 1, 2, 2, 2, 2, 2][..]);
        // The file has become shorter: nothing after the short block belongs to it.
        let range = Range::new(0, 2 * BLOCK);
        assert_eq!(joined(range, 0, vec![short, whole]).len(), 10);
        assert_eq!(indices(Range::new(BLOCK, 0)), 0..0);
    }
}
