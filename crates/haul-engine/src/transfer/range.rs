//! One range: asked for, read, hashed and written, with its own retries.
//!
//! A range holds its permit from beginning to end, through every retry. In files whose bytes have
//! to pass in order the range that all others wait for was assigned before them, so it has its
//! permit and can always go on.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, join, ready};
use futures_util::stream::StreamExt;
use haul_storage::{
    Block, BlockStream, Capabilities, DigestKind, Error, ErrorKind, Medium, Range, ReadAt, Result,
    Retry, WriteAt, Writes,
};
use tokio::sync::Notify;

use super::concurrent_writes::ConcurrentWrites;
use super::progress::FileProgress;
use crate::Cancel;
use crate::context::Context;
use crate::digest::FileHasher;
use crate::flow::Permit;
use crate::long::{self, Counted};
use crate::ranges::RangeSet;
use crate::retry::Retries;
use crate::schedule::{Assignment, Schedule};
use crate::sequence::Sequence;

/// What is in memory at once of a source that cannot be read by ranges: it streams through.
const HELD_MOST: u64 = 8 << 20;

/// Nothing shorter is taken away from the lane that has it.
const LEAST_STEAL: u64 = 512 << 10;

/// Round trips until a long read that begins is as fast as the others.
const LONG_READ_BEGINS: u32 = 6;

/// About what comes at once.
const BLOCK: u64 = 256 << 10;

/// What a file that is being written in order goes on with when there is no room for more.
const LEAST_STEP: u64 = 512 << 10;

/// What the next range should be like.
#[derive(Debug)]
pub struct Wanted {
    /// Its length.
    pub bytes: u64,
    /// For how many bytes of it a permit is needed to begin with.
    pub held: u64,
    /// What the limit of the rate has not been asked for yet.
    pub unpaid: u64,
    /// It counts as a long read from now on.
    pub counted: Option<Counted>,
}

/// How a source is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// By ranges that are as long as is good for the link.
    Ranges,
    /// By ranges that are as long as can be: beginning one is dear.
    Long,
    /// From its beginning to its end.
    Whole,
}

impl Reads {
    /// How a file of a storage with these capabilities is read.
    pub fn from(capabilities: &Capabilities, reader: &dyn ReadAt) -> Self {
        match capabilities {
            Capabilities { ranged_reads: false, .. } => Self::Whole,
            _ if !reader.is_ranged() => Self::Whole,
            Capabilities { long_reads: true, .. } => Self::Long,
            _ => Self::Ranges,
        }
    }
}

/// What the ranges of one file share.
pub struct FileInMotion<'a> {
    /// The transfer.
    pub context: &'a Context,
    /// The source, for people.
    pub source_name: String,
    /// The destination, for people.
    pub destination_name: String,
    /// The source.
    pub reader: Arc<dyn ReadAt>,
    /// The destination.
    pub writer: Arc<dyn WriteAt>,
    /// What lies before the destination.
    pub destination_medium: Medium,
    /// Bytes that are worth a write to it.
    pub write_bytes: u64,
    /// How ranges are read.
    pub reads: Reads,
    /// Lets blocks through in order, if the writer needs that.
    pub sequence: Option<Sequence>,
    /// Makes the digest, if one is asked for.
    pub hasher: Option<FileHasher>,
    /// What is left to do.
    pub schedule: Mutex<Schedule>,
    /// What has reached the part file, and how to remember it.
    pub progress: FileProgress,
    /// Bytes of this file in the tally's count of bytes done.
    pub counted: &'a AtomicU64,
    /// Whether ranges may be copied without passing through here; turned off when it fails.
    pub direct: AtomicBool,
    /// Another lane has taken over something that was asked for.
    pub taken: Notify,
    /// Something failed: ranges in the making end early.
    pub stopped: Cancel,
}

impl<'a> FileInMotion<'a> {
    /// The schedule, for a moment.
    pub fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the ranges should come to an end.
    pub fn is_stopped(&self) -> bool {
        self.stopped.is_cancelled() || self.context.cancel.is_cancelled()
    }

    /// Does what waits for other ranges of the file, unless the ranges come to an end: then those
    /// may never arrive. `None` in that case.
    pub async fn unless_stopped<T>(&self, waiting: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = waiting => Some(done),
            () = self.stopped.cancelled() => None,
            () = self.context.cancel.cancelled() => None,
        }
    }

    /// What the next range should be like when `active` are being moved; `None` if there are enough.
    pub fn next_range(&self, active: usize) -> Option<Wanted> {
        let flow = &self.context.flow;
        let mut bytes = flow.range_bytes(self.context.tally.remaining());
        // Nothing is waited for that is not there to be moved.
        let limit = flow.limit_bytes().map(|limit| limit.min(self.schedule().unassigned()).max(1));
        bytes = bytes.min(limit.unwrap_or(u64::MAX));
        match self.reads {
            Reads::Ranges => {
                // Bytes that do not pass through here need no buffers, and the call should be worth
                // its way to a thread.
                let direct = self.direct.load(Ordering::Relaxed);
                let bytes = if direct { bytes.saturating_mul(4) } else { bytes };
                Some(Wanted { bytes, held: bytes, unpaid: 0, counted: None })
            }
            Reads::Long => {
                let free = self.lanes_for_long_reads(active);
                if free == 0 {
                    return None;
                }
                let unassigned = self.schedule().unassigned();
                let share = if self.is_in_order() {
                    unassigned
                } else {
                    let remaining = self.context.tally.known_remaining();
                    long::share(unassigned, remaining, self.context.flow.decision().lanes, free)
                };
                let counted = Some(self.context.long_reads.begin());
                Some(Wanted { bytes: share.max(bytes), held: bytes, unpaid: 0, counted })
            }
            Reads::Whole => (active == 0).then_some(Wanted {
                bytes: u64::MAX,
                held: limit.map_or(HELD_MOST, |limit| limit.min(HELD_MOST)),
                unpaid: 0,
                counted: None,
            }),
        }
    }

    /// How many more long ranges may begin when `active` of this file are being moved: one on each
    /// lane, if they may arrive in any order.
    fn lanes_for_long_reads(&self, active: usize) -> usize {
        if self.is_in_order() && active > 0 {
            return 0;
        }
        self.context.long_reads.free(self.context.flow.decision().lanes)
    }

    fn is_in_order(&self) -> bool {
        self.sequence.is_some()
            || self.hasher.as_ref().is_some_and(|hasher| hasher.kind() == DigestKind::Sha256)
    }

    /// A permit without waiting for room, for a file that has nothing in flight and holds what others may be waiting
    /// for: the lane of one that is written in order over a link, or the permits of one that keeps them until its end
    /// (a short file with holes, which has several ranges). Deadlock otherwise.
    pub async fn must_go_on(&self, has_room: &AtomicBool) -> Option<(Wanted, Permit)> {
        let begun = self.counted.load(Ordering::Relaxed) > 0;
        let over_lane = self.sequence.is_some() && self.destination_medium == Medium::Link;
        if !begun || !(over_lane || self.progress.keeps()) || has_room.load(Ordering::Relaxed) {
            return None;
        }
        let wanted =
            Wanted { bytes: LEAST_STEP, held: LEAST_STEP, unpaid: LEAST_STEP, counted: None };
        Some((wanted, self.context.flow.overdraw(LEAST_STEP)))
    }

    /// Whether to look now and then for something to steal, and not only when a range has ended: a lane may
    /// have become free meanwhile, or all ranges that are left may be stuck.
    pub fn looks_for_lanes(&self) -> bool {
        match self.reads {
            Reads::Long => true,
            Reads::Ranges => {
                let direct = self.direct.load(Ordering::Relaxed);
                !direct && self.context.flow.has_lanes() && !self.schedule().has_unassigned()
            }
            Reads::Whole => false,
        }
    }

    /// When all is handed out and there is room for more, what waits longest behind others, or half of
    /// what the slowest has left.
    pub fn steal(&self, active: usize) -> Option<Assignment> {
        let flow = &self.context.flow;
        let direct = self.direct.load(Ordering::Relaxed);
        let slow_lanes = self.reads != Reads::Whole && flow.has_lanes();
        if self.is_in_order() || direct || !slow_lanes || self.is_stopped() {
            return None;
        }
        let long = self.reads == Reads::Long;
        if long && (self.lanes_for_long_reads(active) == 0 || self.context.long_reads.are_wanted())
        {
            return None;
        }
        let least_bytes = match self.reads {
            // It should be worth the round trips of its beginning.
            Reads::Long => flow.bytes_a_lane(LONG_READ_BEGINS).max(LEAST_STEAL),
            _ => LEAST_STEAL,
        };
        let mut schedule = self.schedule();
        if schedule.has_unassigned() || !flow.has_room(LEAST_STEAL) {
            return None;
        }
        let stolen = schedule.steal(least_bytes, flow.now());
        drop(schedule);
        if stolen.is_some() {
            self.taken.notify_waiters();
        }
        stolen
    }

    /// Says that the file has bytes left to hand out and no lane for them.
    pub fn wants_lane(&self) -> Option<Counted> {
        (self.reads == Reads::Long && !self.is_in_order()).then(|| self.context.long_reads.want())
    }

    /// Moves a range that was just taken over.
    pub fn stolen(&self, stolen: Assignment) -> BoxFuture<'_, Result<()>> {
        let counted = (self.reads == Reads::Long).then(|| self.context.long_reads.begin());
        let moved = async move {
            let _counted = counted;
            self.move_stolen(stolen).await
        };
        moved.boxed()
    }

    /// Its permit is waited for beside the other ranges: they are those that give theirs back.
    async fn move_stolen(&self, stolen: Assignment) -> Result<()> {
        let flow = &self.context.flow;
        let bytes = match self.reads {
            Reads::Long => flow.range_bytes(stolen.range.len()).min(stolen.range.len()),
            _ => stolen.range.len(),
        };
        let permit = flow.acquire(bytes).await;
        self.move_range(stolen, permit).await
    }

    /// A hole needs no bytes moved, but the digest needs its zeros, and the tally its length.
    pub async fn hole(&self, hole: Range) -> Result<()> {
        if let Some(hasher) = &self.hasher {
            let zeros = hasher.zeros(hole.start(), hole.len());
            self.unless_stopped(zeros).await.unwrap_or(Ok(()))?;
        }
        self.counted.fetch_add(hole.len(), Ordering::Relaxed);
        self.context.tally.skipped_hole(hole.len());
        Ok(())
    }

    /// A sequence for a writer with these habits.
    /// What an earlier run has written, from the first byte on, has passed already.
    pub fn sequence_for(writes: Writes, written: &RangeSet) -> Option<Sequence> {
        let passed = written.iter().next().filter(|first| first.start() == 0);
        let begin = passed.map_or(0, Range::end);
        (writes == Writes::InOrder).then(|| Sequence::starting_at(begin))
    }

    /// Moves an assigned range. On failure everything that is not done is missing again.
    pub async fn move_range(&self, assignment: Assignment, mut permit: Permit) -> Result<()> {
        let salt = assignment.range.start();
        let mut retries = self.retries(salt);
        let outcome = loop {
            match self.try_range(assignment, &mut permit, &mut retries).await {
                Err(error) if !self.is_stopped() => {
                    self.context.flow.failed(error.kind());
                    let error = error.at(&self.source_name);
                    if self.reads != Reads::Whole && !self.reader.is_ranged() {
                        // What has arrived stays; the file is opened anew and streamed.
                        break Err(error.with_retry(Retry::FromStart));
                    }
                    let (error, pause) = match retries.next(error, self.recorded()) {
                        Ok(again) => again,
                        Err(error) => break Err(error),
                    };
                    self.context.tally.retry(error, retries.attempt(), pause);
                    self.context.pause(pause).await;
                }
                outcome => break outcome,
            }
        };
        self.schedule().finish(assignment.id, self.context.flow.now());
        // What was paid for and went to another lane, or was less than thought.
        self.context.flow.give_back(permit.left());
        outcome
    }

    async fn try_range(
        &self,
        assignment: Assignment,
        permit: &mut Permit,
        retries: &mut Retries,
    ) -> Result<()> {
        let wanted = self.schedule().wanted(assignment.id);
        if wanted.is_empty() || self.is_stopped() {
            return Ok(());
        }
        if self.direct.load(Ordering::Relaxed) {
            let issued = self.context.flow.now();
            if self.writer.copy_from(&*self.reader, wanted).await? {
                self.schedule().advance(assignment.id, wanted.len(), self.context.flow.now());
                self.context.flow.completed(issued, None, wanted.len());
                return self.arrived_at_destination(wanted, permit.split(wanted.len())).await;
            }
            self.direct.store(false, Ordering::Relaxed);
        }
        self.stream(assignment, permit, retries).await
    }

    async fn stream(
        &self,
        assignment: Assignment,
        permit: &mut Permit,
        retries: &mut Retries,
    ) -> Result<()> {
        let mut puts = ConcurrentWrites::default();
        let read = self.pump(assignment, permit, retries, &mut puts).await;
        // What is in hand counts as moved, so it has to be written whatever became of the rest.
        puts.all().await.and(read)
    }

    async fn pump<'b>(
        &'b self,
        assignment: Assignment,
        permit: &mut Permit,
        retries: &mut Retries,
        puts: &mut ConcurrentWrites<'b>,
    ) -> Result<()> {
        let mut wanted = self.schedule().wanted(assignment.id);
        let first = wanted.start();
        let issued = self.context.flow.now();
        let mut first_byte = None;
        let end = Arc::new(AtomicU64::new(wanted.end()));
        let mut blocks = self.reader.read_until(wanted, &end);
        if self.reads == Reads::Ranges {
            self.schedule().requested(assignment.id, issued);
        }
        while !wanted.is_empty() {
            self.make_room(permit, wanted.len(), puts).await?;
            let next = self.unless_taken(assignment, blocks.next());
            let block = match puts.beside(next).await? {
                Some(Some(block)) => block?,
                Some(None) => return Err(self.ended_early(wanted)),
                None => break,
            };
            if self.is_stopped() {
                return Ok(());
            }
            first_byte.get_or_insert_with(|| self.context.flow.now());
            let (mut block, failed) = self.gather(block, wanted, &mut blocks).await;
            // Another lane may have taken the second half over in the meantime.
            wanted = self.schedule().wanted(assignment.id);
            end.store(wanted.end(), Ordering::Relaxed);
            block.truncate(usize::try_from(wanted.len()).unwrap_or(usize::MAX));
            if block.is_empty() {
                break;
            }
            let offset = wanted.start();
            let length = block.len() as u64;
            wanted = self.schedule().advance(assignment.id, length, self.context.flow.now());
            if self.reads != Reads::Ranges {
                // More came at once than there was a permit for.
                let more = length.saturating_sub(permit.left());
                puts.beside(self.context.flow.keep_limit(more)).await?;
            }
            if self.destination_medium == Medium::Disk {
                permit.arrived(length);
                if self.reads != Reads::Ranges {
                    permit.try_grow(length.min(wanted.len()));
                }
                if wanted.is_empty() {
                    self.context.flow.completed(issued, first_byte, offset + length - first);
                }
            }
            retries.reset();
            let put = self.put(offset, block, permit.split(length));
            match self.reads {
                Reads::Ranges => put.await?,
                Reads::Long | Reads::Whole => puts.add(put.boxed()).await?,
            }
            if !wanted.is_empty() {
                failed?;
            }
        }
        puts.all().await?;
        if self.destination_medium == Medium::Link {
            self.context.flow.completed(issued, first_byte, wanted.start() - first);
        }
        Ok(())
    }

    /// Waits for what comes next, unless another lane takes all of it over: `None` then.
    async fn unless_taken<T>(
        &self,
        assignment: Assignment,
        coming: impl Future<Output = T>,
    ) -> Option<T> {
        let mut coming = pin!(coming);
        loop {
            let taken = self.taken.notified();
            if self.schedule().wanted(assignment.id).is_empty() {
                return None;
            }
            tokio::select! {
                biased;
                came = &mut coming => return Some(came),
                () = taken => {}
            }
        }
    }

    /// Adds what comes next to a block until a write is worth it. What fails then fails after it was
    /// written.
    async fn gather(
        &self,
        mut block: Block,
        wanted: Range,
        blocks: &mut BlockStream,
    ) -> (Block, Result<()>) {
        let least = usize::try_from(self.write_bytes.min(wanted.len())).unwrap_or(usize::MAX);
        while block.len() < least && self.reads == Reads::Ranges && !self.is_stopped() {
            match blocks.next().await {
                Some(Ok(more)) => block.append(more),
                Some(Err(error)) => return (block, Err(error)),
                None => {
                    let rest = wanted.split_at(block.len() as u64).1;
                    return (block, Err(self.ended_early(rest)));
                }
            }
        }
        (block, Ok(()))
    }

    /// What streams through needs a permit for what comes next only.
    async fn make_room(
        &self,
        permit: &mut Permit,
        left: u64,
        puts: &mut ConcurrentWrites<'_>,
    ) -> Result<()> {
        if self.reads == Reads::Ranges || permit.left() >= left.min(BLOCK) {
            return Ok(());
        }
        let flow = &self.context.flow;
        let bytes = flow.range_bytes(self.context.tally.remaining()).min(left);
        flow.give_back(permit.left());
        drop(permit.split(u64::MAX));
        let granted = {
            let mut granted = pin!(flow.room(bytes));
            loop {
                tokio::select! {
                    biased;
                    permit = &mut granted => break permit,
                    Some(ended) = puts.next(), if !puts.is_empty() => ended?,
                    // It has a lane, and those who have the room may be waiting for one.
                    () = ready(()), if puts.is_empty() => break flow.overdraw(bytes.min(BLOCK)),
                }
            }
        };
        *permit = granted;
        puts.beside(flow.keep_limit(permit.left())).await
    }

    /// Hashes and writes a block that is in hand, and journals it.
    async fn put(&self, offset: u64, block: Block, permit: Permit) -> Result<()> {
        let range = Range::new(offset, block.len() as u64);
        let hash = async {
            match &self.hasher {
                Some(hasher) => {
                    let update = hasher.update(offset, block.clone());
                    self.unless_stopped(update).await.unwrap_or(Ok(()))
                }
                None => Ok(()),
            }
        };
        // In this order: a write that fails stops the hashing in the same turn, so that its error
        // comes before those of the ranges which it interrupts.
        let (written, hashed) = join(self.write(offset, block.clone()), hash).await;
        hashed?;
        written?;
        self.arrived_at_destination(range, permit).await
    }

    /// Writes a block, again while that may help: it is in hand and need not be read again.
    async fn write(&self, offset: u64, block: Block) -> Result<()> {
        let end = offset + block.len() as u64;
        if let Some(sequence) = &self.sequence {
            let turn = self.unless_stopped(sequence.turn(offset)).await;
            if turn.is_none() {
                return Err(Error::new(ErrorKind::Interrupted, "write"));
            }
        }
        let mut retries = self.retries(offset);
        loop {
            let error = match self.writer.write_at(offset, block.clone()).await {
                Ok(()) => break,
                Err(error) => error.at(&self.destination_name),
            };
            let (error, pause) = match retries.next(error, self.recorded()) {
                Ok(again) if !self.is_stopped() => again,
                Ok((error, _)) | Err(error) => {
                    self.stopped.cancel();
                    // The range is not read again for it. Where what was written is lost, the file is
                    // started anew.
                    let is_lost = error.retry() == Retry::FromStart;
                    return Err(if is_lost { error } else { error.with_retry(Retry::Never) });
                }
            };
            self.context.flow.failed(error.kind());
            self.context.tally.retry(error, retries.attempt(), pause);
            self.context.pause(pause).await;
        }
        if let Some(sequence) = &self.sequence {
            sequence.passed(end);
        }
        Ok(())
    }

    async fn arrived_at_destination(&self, range: Range, mut permit: Permit) -> Result<()> {
        // What waits for its record in the journal is on its way no longer. If it counted as that,
        // a small window could be full of it, and nothing would come that fills the record.
        permit.arrived(range.len());
        let recorded = self.progress.record(&self.context.pool, range, permit).await;
        recorded.map_err(|error| self.not_recorded(error))?;
        self.counted.fetch_add(range.len(), Ordering::Relaxed);
        self.context.tally.moved(range.len());
        Ok(())
    }

    /// Records what has reached the part file and waits for that. Nothing of the file is under way, so
    /// nothing else would do it, and it may be what the room is full of.
    pub async fn record_all(&self) -> Result<()> {
        let recorded = self.progress.flush(&self.context.pool).await;
        recorded.map_err(|error| self.not_recorded(error))
    }

    fn not_recorded(&self, error: std::io::Error) -> Error {
        Error::from_io("write the journal", error).at(&self.destination_name)
    }

    fn ended_early(&self, wanted: Range) -> Error {
        Error::new(ErrorKind::Changed, "read").at(&self.source_name).because(format!(
            "it ends at byte {} of {} while being read",
            wanted.start(),
            self.reader.identity().size
        ))
    }

    /// Bytes of the file that have reached the destination: what counts as progress of any of its ranges.
    fn recorded(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }

    fn retries(&self, salt: u64) -> Retries {
        let settings = &self.context.settings;
        Retries::new(settings.retries, settings.retry_pause.max(Duration::from_millis(1)), salt)
    }
}
