//! A range in flight: its blocks are read, hashed and written; after a failure its rest is retried.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use haul_storage::{Block, BlockStream, Error, Medium, Range, Result, Retry};

use super::action::{Action, Reading, Requester, Writing};
use super::file::{FileInMotion, Timer};
use super::range::{Attempt, InHand, State, Write};
use crate::budget::Permit;

/// Approximate length of a block of a stream, in bytes.
const BLOCK: u64 = 256 << 10;

/// Maximum number of blocks of a stream, or of a range that is written over a link, that are written at once: over a
/// link, each write takes an RTT.
const WRITES: usize = 16;

/// The result of a read.
pub struct Received {
    /// The next bytes of the range.
    pub block: Block,
    /// When the first of them arrived.
    pub at: Duration,
    /// Why no more arrived, if the read failed.
    pub failure: Option<Error>,
    /// The rest of the read.
    pub rest: BlockStream,
}

impl FileInMotion {
    /// The next block of range `id` has arrived.
    pub fn on_block(&mut self, id: u64, received: Received, now: Duration) {
        let Received { mut block, at, failure, rest } = received;
        let is_stopped = self.is_stopped();
        let Some(range) = self.ranges.get_mut(&id) else { return };
        if is_stopped {
            return self.end_attempt(id, None, now);
        }
        range.blocks = Some(rest);
        range.attempt.first_byte.get_or_insert(at);
        // Another lane may have taken over the second half meanwhile.
        let wanted = self.schedule.wanted(id);
        range.attempt.end.store(wanted.end(), Ordering::Relaxed);
        block.truncate(usize::try_from(wanted.len()).unwrap_or(usize::MAX));
        if block.is_empty() {
            return self.end_attempt(id, None, now);
        }
        let length = block.len() as u64;
        let left = self.schedule.advance(id, length, now);
        range.failure = failure.filter(|_| !left.is_empty());
        if self.mode.is_streamed() {
            // More may have arrived at once than the permit covers.
            let more = length.saturating_sub(range.room());
            if let Some(pause) = self.shared.flow.pay(more) {
                range.state = State::PaysBlock(wanted.start(), block);
                self.timers.insert((now.saturating_add(pause), Timer::Range(id)));
                return;
            }
        }
        self.take_block(id, wanted.start(), block, now);
    }

    /// Another lane took over the rest of range `id`.
    pub fn on_withdrawn(&mut self, id: u64, now: Duration) {
        self.end_attempt(id, None, now);
    }

    /// Reading or copying range `id` failed.
    pub fn on_failed(&mut self, id: u64, error: Error, now: Duration) {
        self.end_attempt(id, Some(error), now);
    }

    /// The file ends at the offset that range `id` has reached.
    pub fn on_end(&mut self, id: u64, now: Duration) {
        self.schedule.end_at(id);
        self.end_attempt(id, None, now);
    }

    /// `copied` was copied without passing through this process; `None` if that is impossible.
    pub fn on_copied(&mut self, id: u64, copied: Option<Range>, now: Duration) {
        let Some(range) = self.ranges.get_mut(&id) else { return };
        let Some(copied) = copied else {
            self.mode.direct = false;
            return self.attempt(id, now);
        };
        let (issued, permit) = (range.attempt.issued, range.permit.as_mut());
        let permit = permit.map(|permit| permit.split(copied.len()));
        self.schedule.advance(id, copied.len(), now);
        self.shared.flow.completed(issued, None, copied.len());
        if let Some(permit) = permit {
            self.arrived(copied, permit);
        }
        self.end(id, now);
    }

    /// The block at `offset` of range `id` was written, or that failed.
    pub fn on_written(&mut self, id: u64, offset: u64, written: Result<()>, now: Duration) {
        let (retries, recorded) = (self.retries(offset), self.recorded());
        let is_stopped = self.is_stopped();
        let in_hand = self.ranges.get_mut(&id).and_then(|range| range.in_hand(offset));
        let Some(block) = in_hand else { return };
        let Err(error) = written else {
            block.write = Write::Done;
            let end = block.range.end();
            self.settle(id, offset, now);
            return self.passed(end);
        };
        let retries = block.retries.get_or_insert(retries);
        match retries.next(error, recorded) {
            Ok((error, pause)) if !is_stopped => {
                block.write = Write::Waits;
                self.shared.flow.failed(error.kind());
                self.shared.tally.retry(error, retries.attempt(), pause);
                self.timers.insert((now.saturating_add(pause), Timer::Write(id, offset)));
            }
            Ok((error, _)) | Err(error) => {
                block.write = Write::Abandoned;
                // The file is not retried for a failed write; it restarts only if written bytes were lost.
                let is_lost = error.retry() == Retry::FromStart;
                let error = if is_lost { error } else { error.with_retry(Retry::Never) };
                self.stop(Some(error), now);
                self.settle(id, offset, now);
            }
        }
    }

    /// The block at `offset` of range `id` was hashed, or that failed.
    pub fn on_hashed(&mut self, id: u64, offset: u64, hashed: Result<()>, now: Duration) {
        let in_hand = self.ranges.get_mut(&id).and_then(|range| range.in_hand(offset));
        let Some(block) = in_hand else { return };
        block.hashing = false;
        if let Err(error) = hashed {
            self.stop(Some(error), now);
        }
        self.settle(id, offset, now);
    }

    /// Ends the ranges that do not wait for an operation in flight.
    pub(super) fn stop_ranges(&mut self, now: Duration) {
        self.turns.clear();
        let ids: Vec<u64> = self.ranges.keys().copied().collect();
        for id in ids {
            let Some(range) = self.ranges.get_mut(&id) else { continue };
            let waiting = range.blocks_in_hand.iter_mut();
            waiting
                .filter(|block| block.write == Write::Waits)
                .for_each(|block| block.write = Write::Abandoned);
            range.blocks_in_hand.retain(|block| block.write != Write::Abandoned || block.hashing);
            match range.state {
                State::Copying | State::Reading => {}
                State::Ending => self.after_block(id, now),
                _ => self.end_attempt(id, None, now),
            }
        }
    }

    /// The timer of range `id` has fired.
    pub(super) fn on_range_time(&mut self, id: u64, now: Duration) {
        let Some(range) = self.ranges.get_mut(&id) else { return };
        match std::mem::replace(&mut range.state, State::Ending) {
            State::PaysFirst | State::Pausing => self.attempt(id, now),
            State::PaysNext => self.request_block(id),
            State::PaysBlock(offset, block) => self.take_block(id, offset, block, now),
            other => range.state = other,
        }
    }

    /// There is room for more of range `id`.
    pub(super) fn on_range_room(&mut self, id: u64, permit: Permit, now: Duration) {
        let Some(range) = self.ranges.get_mut(&id) else { return };
        let bytes = permit.left();
        range.state = match range.state {
            State::FirstRoom => State::PaysFirst,
            State::MoreRoom => State::PaysNext,
            _ => return,
        };
        range.permit = Some(permit);
        self.pay_then_continue(id, bytes, now);
    }

    /// Waits for room for range `id`, while the other ranges continue and release theirs.
    pub(super) fn want_room(&mut self, id: u64, bytes: u64, now: Duration) {
        match self.shared.flow.try_room(bytes) {
            Some(permit) => self.on_range_room(id, permit, now),
            None => self.ready.push_back(Action::Room(Requester::Range(id), bytes)),
        }
    }

    /// Range `id` continues once the rate limit lets `bytes` of it pass.
    pub(super) fn pay_then_continue(&mut self, id: u64, bytes: u64, now: Duration) {
        match self.shared.flow.pay(bytes) {
            Some(pause) => _ = self.timers.insert((now.saturating_add(pause), Timer::Range(id))),
            None => self.on_range_time(id, now),
        }
    }

    /// Requests the rest of range `id`.
    fn attempt(&mut self, id: u64, now: Duration) {
        let wanted = self.schedule.wanted(id);
        if wanted.is_empty() || self.is_stopped() {
            return self.end(id, now);
        }
        let Some(range) = self.ranges.get_mut(&id) else { return };
        range.attempt.end.store(wanted.end(), Ordering::Relaxed);
        let attempt = &mut range.attempt;
        (attempt.issued, attempt.first, attempt.first_byte) = (now, wanted.start(), None);
        if self.mode.direct {
            range.state = State::Copying;
            self.ready.push_back(Action::Copy(id, wanted));
            return;
        }
        self.schedule.requested(id, now);
        self.read_on(id, now);
    }

    /// Requests the next block of range `id` as soon as unwritten blocks, permits and rate limit allow.
    fn read_on(&mut self, id: u64, now: Duration) {
        let wanted = self.schedule.wanted(id);
        if wanted.is_empty() || self.is_stopped() {
            return self.end_attempt(id, None, now);
        }
        let several = self.mode.is_streamed() || self.mode.destination == Medium::Link;
        let most = if several { WRITES } else { 1 };
        let Some(range) = self.ranges.get_mut(&id) else { return };
        if range.blocks_in_hand.len() >= most {
            range.state = State::Writing;
            return;
        }
        // A stream needs a permit for the next bytes only.
        if !self.mode.is_streamed() || range.room() >= wanted.len().min(BLOCK) {
            return self.request_block(id);
        }
        self.shared.flow.refund(range.room());
        range.permit = None;
        range.state = State::MoreRoom;
        let is_idle = range.blocks_in_hand.is_empty();
        let bytes = self.more_bytes(wanted.len());
        match self.shared.flow.try_room(bytes) {
            Some(permit) => self.on_range_room(id, permit, now),
            None if is_idle => self.continue_without_room(id, now),
            None => self.ready.push_back(Action::Room(Requester::Range(id), bytes)),
        }
    }

    fn more_bytes(&self, left: u64) -> u64 {
        self.shared.flow.range_bytes(self.shared.tally.remaining()).min(left)
    }

    /// Continues a streamed range without room if it has no block whose write would release any (deadlock
    /// otherwise): the range has a lane, which the holders of all room may be waiting for.
    fn continue_without_room(&mut self, id: u64, now: Duration) {
        let bytes = self.more_bytes(self.schedule.wanted(id).len()).min(BLOCK);
        let permit = self.shared.flow.overdraw(bytes);
        self.on_range_room(id, permit, now);
    }

    fn request_block(&mut self, id: u64) {
        let wanted = self.schedule.wanted(id);
        let Some(range) = self.ranges.get_mut(&id) else { return };
        range.state = State::Reading;
        let least = if self.mode.is_streamed() { 0 } else { self.mode.write_bytes };
        self.ready.push_back(Action::Read(Reading {
            id,
            range: wanted,
            end: Arc::clone(&range.attempt.end),
            least: least.min(wanted.len()),
            blocks: range.blocks.take(),
        }));
    }

    /// Lets a block of range `id` be hashed and written.
    fn take_block(&mut self, id: u64, offset: u64, block: Block, now: Duration) {
        let left = self.schedule.wanted(id);
        let length = block.len() as u64;
        let Some(range) = self.ranges.get_mut(&id) else { return };
        let Some(permit) = range.permit.as_mut() else { return };
        let mut of_block = permit.split(length);
        if self.mode.destination == Medium::Disk {
            of_block.arrived(length);
            if self.mode.is_streamed() {
                self.shared.flow.try_grow(permit, length.min(left.len()));
            }
            if left.is_empty() {
                let Attempt { issued, first, first_byte, .. } = range.attempt;
                self.shared.flow.completed(issued, first_byte, offset + length - first);
            }
        }
        range.retries.reset();
        let waits = self.next_write.is_some_and(|next| next < offset);
        let hash = self.mode.digest.is_some();
        range.blocks_in_hand.push(InHand {
            range: Range::new(offset, length),
            block: block.clone(),
            permit: of_block,
            write: if waits { Write::Waits } else { Write::InFlight },
            hashing: hash,
            retries: None,
        });
        if waits {
            self.turns.insert(offset, id);
        }
        if hash || !waits {
            // In front of the queue, so that the worker that has read it handles it at once.
            let writing = Writing { id, offset, block, write: !waits, hash };
            self.ready.push_front(Action::Write(writing));
        }
        match range.failure.take() {
            Some(error) => self.end_attempt(id, Some(error), now),
            None => self.read_on(id, now),
        }
    }

    /// Everything before `offset` is written.
    fn passed(&mut self, offset: u64) {
        let Some(next) = &mut self.next_write else { return };
        *next = offset.max(*next);
        let next = *next;
        while let Some(entry) = self.turns.first_entry().filter(|entry| *entry.key() <= next) {
            let (offset, id) = entry.remove_entry();
            self.write_again(id, offset);
        }
    }

    /// Lets a waiting block be written.
    pub(super) fn write_again(&mut self, id: u64, offset: u64) {
        let in_hand = self.ranges.get_mut(&id).and_then(|range| range.in_hand(offset));
        let Some(in_hand) = in_hand.filter(|block| block.write == Write::Waits) else { return };
        in_hand.write = Write::InFlight;
        let block = in_hand.block.clone();
        let writing = Writing { id, offset, block, write: true, hash: false };
        self.ready.push_front(Action::Write(writing));
    }

    /// Releases the block at `offset` of range `id` once it is written and hashed.
    fn settle(&mut self, id: u64, offset: u64, now: Duration) {
        let Some(range) = self.ranges.get_mut(&id) else { return };
        let Some(block) = range.take_settled(offset) else { return };
        if block.write == Write::Done {
            self.arrived(block.range, block.permit);
        }
        self.after_block(id, now);
    }

    /// Continues a range that was waiting for its blocks to be written.
    fn after_block(&mut self, id: u64, now: Duration) {
        let Some(range) = self.ranges.get(&id) else { return };
        match range.state {
            State::Writing => self.read_on(id, now),
            State::MoreRoom if range.blocks_in_hand.is_empty() => {
                self.withdraw();
                self.continue_without_room(id, now);
            }
            State::Ending if range.blocks_in_hand.is_empty() => self.conclude(id, now),
            _ => {}
        }
    }

    fn arrived(&mut self, range: Range, mut permit: Permit) {
        // Bytes that wait for their record in the journal are not in flight any more. If they counted as
        // that, they could fill a small window, and no bytes would arrive that fill the record.
        permit.arrived(range.len());
        let window_bytes = self.shared.flow.decision().window_bytes;
        if let Some(due) = self.records.add(range, permit, window_bytes) {
            self.record(due);
        }
        self.counted.fetch_add(range.len(), Ordering::Relaxed);
        self.shared.tally.moved(range.len());
    }

    /// Ends an attempt. Blocks that have arrived count as moved, so they are written even if the rest failed.
    fn end_attempt(&mut self, id: u64, failure: Option<Error>, now: Duration) {
        let Some(range) = self.ranges.get_mut(&id) else { return };
        range.blocks = None;
        range.failure = failure;
        range.state = State::Ending;
        self.after_block(id, now);
    }

    /// An attempt has ended and all its blocks are written.
    fn conclude(&mut self, id: u64, now: Duration) {
        let (at, recorded) = (self.schedule.wanted(id).start(), self.recorded());
        let is_stopped = self.is_stopped();
        let Some(range) = self.ranges.get_mut(&id) else { return };
        let Some(error) = range.failure.take() else {
            let is_due = self.mode.destination == Medium::Link || self.mode.is_endless;
            if is_due && !is_stopped {
                let Attempt { issued, first, first_byte, .. } = range.attempt;
                self.shared.flow.completed(issued, first_byte, at.saturating_sub(first));
            }
            return self.end(id, now);
        };
        let error = if is_stopped || self.mode.is_endless {
            error
        } else {
            self.shared.flow.failed(error.kind());
            match range.retries.next(error, recorded) {
                Ok((error, pause)) => {
                    range.state = State::Pausing;
                    self.timers.insert((now.saturating_add(pause), Timer::Range(id)));
                    return self.shared.tally.retry(error, range.retries.attempt(), pause);
                }
                Err(error) => error,
            }
        };
        self.stop(Some(error), now);
        self.end(id, now);
    }

    /// Ends range `id`; its rest is missing again.
    fn end(&mut self, id: u64, now: Duration) {
        let Some(mut range) = self.ranges.remove(&id) else { return };
        self.schedule.finish(id, now);
        // The rate limit was charged for bytes that went to another lane, or do not exist.
        self.shared.flow.refund(range.room());
        if let Some(rest) = range.permit.take() {
            self.keep(rest);
        }
        self.be_due();
        self.steal(now);
    }

    /// Bytes of the file that have reached the destination: they count as progress of each of its ranges.
    fn recorded(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }
}
