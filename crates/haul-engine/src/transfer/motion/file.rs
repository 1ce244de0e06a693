//! The file: which range begins next, and when the file is done. `blocks` handles a range that has begun; `takeover`
//! decides which range another lane takes over.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use haul_storage::{Error, Medium, Range, RangeSet, Result};

use super::action::{Action, Requester};
use super::holes::{Found, Holes};
use super::mode::{Mode, Reads};
use super::range::{MovingRange, State};
use super::records::Records;
use crate::budget::Permit;
use crate::flow::Flow;
use crate::long::{self, Counted, LongReads};
use crate::retry::Retries;
use crate::schedule::{ALIGNMENT, Assignment, Schedule};
use crate::tally::Tally;

/// Maximum bytes of the first permit for a source that cannot be read by ranges: it is streamed.
const HELD_MOST: u64 = 8 << 20;

/// The length of a range that begins without room, see [`FileInMotion::must_begin_without_room`].
const LEAST_STEP: u64 = 512 << 10;

/// Interval between checks whether a lane has become free that can take over a part of a read.
const LOOK: Duration = Duration::from_millis(100);

/// What the files of a transfer share.
#[derive(Debug, Clone)]
pub struct Shared {
    /// Grants permits and limits the rate.
    pub flow: Arc<Flow>,
    /// Counts the bytes that have arrived.
    pub tally: Arc<Tally>,
    /// The long reads in flight.
    pub long_reads: LongReads,
}

/// A file that is moved by ranges.
pub struct FileInMotion {
    pub(super) shared: Shared,
    pub(super) mode: Mode,
    pub(super) schedule: Schedule,
    holes: Holes,
    pub(super) records: Records,
    pub(super) ranges: BTreeMap<u64, MovingRange>,
    /// The offset of the next write, if the destination takes bytes in order.
    pub(super) next_write: Option<u64>,
    /// Blocks that wait for their turn to be written: the ids of their ranges, by offset.
    pub(super) turns: BTreeMap<u64, u64>,
    /// Actions that are due.
    pub(super) ready: VecDeque<Action>,
    pub(super) timers: BTreeSet<(Duration, Timer)>,
    room: FileRoom,
    /// Room for the ranges to come of a file that keeps its permits: it is granted for the whole file at once.
    reserve: Option<Permit>,
    /// Set while the file has bytes left to assign and no lane for them.
    wants_lane: Option<Counted>,
    /// Actions in flight for the file, not for a range.
    operations: usize,
    /// Bytes of this file in the tally's count of bytes done.
    pub(super) counted: Arc<AtomicU64>,
    flags: Flags,
    /// Why it was stopped, if not from outside.
    failure: Option<Error>,
}

#[derive(Debug, Default)]
struct Flags {
    /// The next data is being searched for.
    is_finding: bool,
    /// There is a timer to look for a free lane.
    looks: bool,
    /// The next file may begin.
    has_no_slot: bool,
    /// Something has changed that decides what begins next.
    is_due: bool,
    /// An action in flight may wait for something that was withdrawn.
    withdrew: bool,
    /// Ranges in flight end early.
    is_stopped: bool,
}

/// An event at a given time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The rate limit lets the next range begin.
    Begin,
    /// If the file still waits for room, it continues without.
    BeginWithoutRoom,
    /// A lane may have become free.
    Look,
    /// A range continues.
    Range(u64),
    /// The write of a block of a range is retried.
    Write(u64, u64),
}

/// Room for the next range.
#[derive(Debug)]
enum FileRoom {
    None,
    Waits(Wanted),
    /// Waits for the rate limit.
    Pays(Wanted, Permit),
}

/// The properties of the next range.
#[derive(Debug)]
struct Wanted {
    /// Its length.
    bytes: u64,
    /// The bytes of it that need a permit before it begins.
    held: u64,
    /// Bytes of `held` that are charged to the rate limit only once it has begun; the others are charged before.
    unpaid: u64,
    /// Set if it counts as a long read.
    counted: Option<Counted>,
}

impl FileInMotion {
    /// A file of `size` bytes, of which an earlier run has `written` some. `counted` counts its bytes that
    /// have reached the destination.
    pub fn new(
        shared: Shared,
        mode: Mode,
        size: u64,
        written: RangeSet,
        counted: Arc<AtomicU64>,
    ) -> Self {
        let window_bytes = shared.flow.decision().window_bytes;
        // What an earlier run has written from the first byte on need not pass again.
        let passed = written.iter().next().filter(|first| first.start() == 0);
        let passed = passed.map_or(0, Range::end);
        Self {
            records: Records::new(&mode, window_bytes),
            next_write: mode.writes_in_order.then_some(passed),
            shared,
            mode,
            schedule: Schedule::default(),
            holes: Holes::new(size, written),
            ranges: BTreeMap::new(),
            turns: BTreeMap::new(),
            ready: VecDeque::new(),
            timers: BTreeSet::new(),
            room: FileRoom::None,
            reserve: None,
            wants_lane: None,
            operations: 0,
            counted,
            flags: Flags { is_due: true, ..Flags::default() },
            failure: None,
        }
    }

    /// What to do next at `now`, a time of the transfer. Call it until it returns `Wait` or `Done`, and again
    /// after each input.
    pub fn poll(&mut self, now: Duration) -> Action {
        while let Some((at, timer)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, timer));
            self.on_timer(timer, now);
        }
        loop {
            if let Some(action) = self.ready.pop_front() {
                let is_upload = self.mode.destination == Medium::Link;
                if matches!(action, Action::Record(_)) && is_upload && self.has_arrived() {
                    // The last record of an upload would delay the commit, by an RTT where the other side keeps
                    // the journal. On a disk it takes no time, and without it, a run that is killed before the
                    // commit would have to repeat its bytes.
                    self.operations -= 1;
                    self.records.release();
                    continue;
                }
                return action;
            }
            if !std::mem::take(&mut self.flags.is_due) {
                break;
            }
            self.begin_next(now);
        }
        if self.is_done() {
            return Action::Done;
        }
        if !self.flags.looks && self.looks_for_lanes() {
            self.flags.looks = true;
            self.timers.insert((now + LOOK, Timer::Look));
        }
        Action::Wait(self.timers.first().map(|(at, _)| *at))
    }

    /// Why the file has failed, if it has, once it is done.
    pub fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    /// Stops the file, because of an error or from outside: operations in flight are completed, nothing new begins.
    pub fn stop(&mut self, error: Option<Error>, now: Duration) {
        if self.failure.is_none() {
            self.failure = error;
        }
        if !std::mem::replace(&mut self.flags.is_stopped, true) {
            (self.flags.is_due, self.flags.withdrew) = (true, true);
            self.stop_ranges(now);
        }
    }

    /// Whether the file was stopped.
    pub const fn is_stopped(&self) -> bool {
        self.flags.is_stopped
    }

    /// Whether anything may have been withdrawn since this was called last.
    pub const fn take_withdrew(&mut self) -> bool {
        std::mem::replace(&mut self.flags.withdrew, false)
    }

    /// Whether `requester` still waits for room.
    pub fn wants_room(&self, requester: Requester) -> bool {
        match requester {
            Requester::File => matches!(self.room, FileRoom::Waits(_)),
            Requester::Range(id) => self
                .ranges
                .get(&id)
                .is_some_and(|range| matches!(range.state, State::FirstRoom | State::MoreRoom)),
        }
    }

    /// Whether range `id` still has bytes to be read.
    pub fn wants_bytes(&self, id: u64) -> bool {
        !self.schedule.wanted(id).is_empty()
    }

    /// Room was granted. It is released if `requester` does not wait for it any more.
    pub fn on_room(&mut self, requester: Requester, permit: Permit, now: Duration) {
        match requester {
            Requester::File => match std::mem::replace(&mut self.room, FileRoom::None) {
                FileRoom::Waits(wanted) => self.on_next_room(wanted, permit, now),
                other => self.room = other,
            },
            Requester::Range(id) => self.on_range_room(id, permit, now),
        }
    }

    /// The next data was found; `None` if the rest is a hole.
    pub fn on_data(&mut self, found: Result<Option<Range>>, now: Duration) {
        self.operations -= 1;
        (self.flags.is_finding, self.flags.is_due) = (false, true);
        match found {
            Ok(data) => {
                let found = self.holes.on_data(data);
                self.on_found(found);
            }
            Err(error) => self.stop(Some(error), now),
        }
    }

    /// The zeros of a hole were hashed, or that failed.
    pub fn on_zeros(&mut self, hole: Range, hashed: Result<()>, now: Duration) {
        self.operations -= 1;
        match hashed {
            Ok(()) => self.passed_hole(hole),
            Err(error) => self.stop(Some(error), now),
        }
    }

    /// The record in flight was written, or that failed.
    pub fn on_recorded(&mut self, recorded: Result<()>, now: Duration) {
        self.operations -= 1;
        self.flags.is_due = true;
        if let Some(next) = self.records.on_recorded() {
            self.record(next);
        }
        if let Err(error) = recorded {
            self.stop(Some(error), now);
        }
    }

    fn is_done(&self) -> bool {
        self.ranges.is_empty() && self.operations == 0 && (self.is_stopped() || !self.has_more())
    }

    fn has_more(&self) -> bool {
        self.schedule.has_unassigned() || self.holes.next().is_some()
    }

    /// Whether all of the file has reached the destination.
    fn has_arrived(&self) -> bool {
        self.ranges.is_empty() && !self.has_more() && !self.is_stopped()
    }

    fn on_timer(&mut self, timer: Timer, now: Duration) {
        match timer {
            Timer::Begin => match std::mem::replace(&mut self.room, FileRoom::None) {
                FileRoom::Pays(wanted, permit) => self.begin(wanted, permit, now),
                other => self.room = other,
            },
            Timer::BeginWithoutRoom if self.must_begin_without_room() => {
                self.withdraw_room();
                let permit = self.shared.flow.overdraw(LEAST_STEP);
                let (bytes, held, unpaid) = (LEAST_STEP, LEAST_STEP, LEAST_STEP);
                self.begin(Wanted { bytes, held, unpaid, counted: None }, permit, now);
            }
            Timer::BeginWithoutRoom => {}
            Timer::Look => {
                (self.flags.looks, self.flags.is_due) = (false, true);
                if self.looks_for_lanes() {
                    self.steal(now);
                }
            }
            Timer::Range(id) => self.on_range_time(id, now),
            Timer::Write(id, offset) => self.write_again(id, offset),
        }
    }

    /// Begins as many ranges as there is room for.
    fn begin_next(&mut self, now: Duration) {
        if !self.is_stopped() {
            self.find_data();
            self.free_slot();
        }
        if self.is_stopped() || !self.has_more() {
            self.reserve = None;
        }
        if self.is_stopped() || !self.schedule.has_unassigned() {
            self.withdraw_room();
            self.wants_lane = None;
            return;
        }
        if self.ranges.is_empty()
            && let Some(ranges) = self.records.flush()
        {
            // Nothing in flight would fill the record, and its bytes may be what takes up all room.
            self.record(ranges);
        }
        while matches!(self.room, FileRoom::None) && self.schedule.has_unassigned() {
            let Some(wanted) = self.next_range() else {
                let wants = || self.shared.long_reads.want();
                let is_long = self.mode.reads == Reads::Long && !self.mode.is_in_order();
                self.wants_lane = self.wants_lane.take().or_else(|| is_long.then(wants));
                break;
            };
            self.wants_lane = None;
            let room = self.room_for(&wanted);
            let reserved = self.reserve.as_mut().filter(|reserve| reserve.left() >= room);
            let reserved = reserved.map(|reserve| reserve.split(room));
            match reserved.or_else(|| self.shared.flow.try_room(room)) {
                Some(permit) => self.on_next_room(wanted, permit, now),
                None => {
                    self.ready.push_back(Action::Room(Requester::File, room));
                    self.room = FileRoom::Waits(wanted);
                }
            }
        }
        if self.must_begin_without_room() {
            // By a timer, in case room is granted first.
            self.timers.insert((now, Timer::BeginWithoutRoom));
        }
    }

    fn find_data(&mut self) {
        while !self.schedule.has_unassigned() && !self.flags.is_finding {
            let Some(from) = self.holes.next() else { return };
            if self.mode.writes_in_order || self.mode.is_endless {
                // A writer that takes bytes in order needs the zeros of holes too.
                let found = self.holes.ignore();
                self.on_found(found);
            } else {
                self.flags.is_finding = true;
                self.operations += 1;
                self.ready.push_back(Action::FindData(from));
            }
        }
    }

    fn on_found(&mut self, found: Found) {
        found.data.into_iter().for_each(|data| self.schedule.add(data));
        for hole in found.holes {
            if self.mode.digest.is_some() {
                // A digest in order takes the zeros only when all bytes before them have passed, so they wait
                // while the ranges continue.
                self.operations += 1;
                self.ready.push_back(Action::Zeros(hole));
            } else {
                self.passed_hole(hole);
            }
        }
    }

    /// Counts a hole: no bytes move, but its length is done.
    fn passed_hole(&self, hole: Range) {
        self.counted.fetch_add(hole.len(), Ordering::Relaxed);
        self.shared.tally.skipped_hole(hole.len());
    }

    /// Over a link the file releases its slot when little is left of it, so that the next one is open when
    /// the link has room for it.
    fn free_slot(&mut self) {
        let flow = &self.shared.flow;
        let left = self.holes.left() + self.schedule.unassigned();
        let is_last = flow.has_links() && left < flow.decision().window_bytes;
        if is_last && !std::mem::replace(&mut self.flags.has_no_slot, true) {
            self.ready.push_back(Action::FreeSlot);
        }
    }

    /// An action may wait for something that is not needed any more.
    pub(super) const fn withdraw(&mut self) {
        self.flags.withdrew = true;
    }

    /// What begins next may have changed.
    pub(super) const fn be_due(&mut self) {
        self.flags.is_due = true;
    }

    fn withdraw_room(&mut self) {
        self.flags.withdrew |= matches!(self.room, FileRoom::Waits(_));
        if let FileRoom::Pays(wanted, _) = std::mem::replace(&mut self.room, FileRoom::None) {
            self.shared.flow.refund(wanted.held.saturating_sub(wanted.unpaid));
        }
    }

    pub(super) fn record(&mut self, ranges: RangeSet) {
        self.operations += 1;
        self.ready.push_back(Action::Record(ranges));
    }

    /// The next range; `None` if enough are in flight.
    fn next_range(&self) -> Option<Wanted> {
        let flow = &self.shared.flow;
        let mut bytes = flow.range_bytes(self.shared.tally.remaining());
        // Under a rate limit, a range waits for no more bytes than are left to assign.
        let unassigned = self.schedule.unassigned();
        let limit = flow.limit_bytes().map(|limit| limit.min(unassigned).max(1));
        bytes = bytes.min(limit.unwrap_or(u64::MAX));
        match self.mode.reads {
            Reads::Ranges => {
                // Bytes that do not pass through this process need no buffers, and only a long range is worth
                // handing the call to a thread.
                let bytes = if self.mode.direct { bytes.saturating_mul(4) } else { bytes };
                // A range longer than the window would be granted only by exceeding it.
                let window = flow.decision().window_bytes.max(ALIGNMENT);
                let bytes = bytes.min(window).min(unassigned);
                Some(Wanted { bytes, held: bytes, unpaid: 0, counted: None })
            }
            Reads::Long => {
                let free = self.lanes_for_long_reads();
                if free == 0 {
                    return None;
                }
                let share = if self.mode.is_in_order() {
                    unassigned
                } else {
                    let remaining = self.shared.tally.known_remaining();
                    long::share(unassigned, remaining, flow.decision().lanes, free)
                };
                let counted = Some(self.shared.long_reads.begin());
                Some(Wanted { bytes: share.max(bytes), held: bytes, unpaid: 0, counted })
            }
            Reads::Whole => self.ranges.is_empty().then_some(Wanted {
                bytes: u64::MAX,
                held: limit.map_or(HELD_MOST, |limit| limit.min(HELD_MOST)),
                unpaid: 0,
                counted: None,
            }),
        }
    }

    /// The bytes to be granted before the next range begins. A file that keeps its permits until its end needs room
    /// for all that is left of it: if it waited again for its next range, others might wait for its permits.
    fn room_for(&self, wanted: &Wanted) -> u64 {
        match self.mode.keeps_permits && self.reserve.is_none() {
            true => self.schedule.unassigned() + self.holes.left(),
            false => wanted.held,
        }
    }

    /// How many more long ranges may begin: one on each free lane; if bytes must pass in order, none beside another.
    pub(super) fn lanes_for_long_reads(&self) -> usize {
        if self.mode.is_in_order() && !self.ranges.is_empty() {
            return 0;
        }
        self.shared.long_reads.free(self.shared.flow.decision().lanes)
    }

    fn on_next_room(&mut self, wanted: Wanted, mut permit: Permit, now: Duration) {
        if self.mode.keeps_permits {
            self.keep(permit.split(permit.held().saturating_sub(wanted.held)));
        }
        match self.shared.flow.pay(wanted.held) {
            None => self.begin(wanted, permit, now),
            Some(pause) => {
                self.timers.insert((now.saturating_add(pause), Timer::Begin));
                self.room = FileRoom::Pays(wanted, permit);
            }
        }
    }

    /// Begins the next range.
    fn begin(&mut self, wanted: Wanted, mut permit: Permit, now: Duration) {
        self.flags.is_due = true;
        let Some(assigned) = self.schedule.next(wanted.bytes) else {
            self.shared.flow.refund(wanted.held.saturating_sub(wanted.unpaid));
            return;
        };
        // The range may be shorter than expected; then the permit shrinks with it.
        let unused = permit.left().saturating_sub(assigned.range.len());
        self.shared.flow.refund(unused.min(wanted.held.saturating_sub(wanted.unpaid)));
        self.keep(permit.split(unused));
        let unpaid = wanted.unpaid.min(permit.left());
        let mut range = self.range(assigned, State::PaysFirst);
        (range.permit, range.counted) = (Some(permit), wanted.counted);
        self.ranges.insert(assigned.id, range);
        self.pay_then_continue(assigned.id, unpaid, now);
    }

    /// Keeps what a range does not need of its room for the next ranges, or releases it.
    pub(super) fn keep(&mut self, unused: Permit) {
        match &mut self.reserve {
            Some(reserve) => reserve.join(unused),
            None if self.mode.keeps_permits => self.reserve = Some(unused),
            None => {}
        }
    }

    pub(super) fn range(&self, assigned: Assignment, state: State) -> MovingRange {
        MovingRange::new(assigned, state, self.retries(assigned.range.start()))
    }

    pub(super) fn retries(&self, salt: u64) -> Retries {
        let (most, pause) = self.mode.retries;
        Retries::new(most, pause.max(Duration::from_millis(1)), salt)
    }

    /// Whether to begin without room (deadlock otherwise): the file is written in order over a link, has nothing in
    /// flight, and holds a lane for which others may be waiting.
    fn must_begin_without_room(&self) -> bool {
        let is_idle = self.ranges.is_empty() && !self.records.is_recording() && !self.is_stopped();
        let has_begun = self.counted.load(Ordering::Relaxed) > 0;
        let over_lane = self.mode.writes_in_order && self.mode.destination == Medium::Link;
        is_idle
            && has_begun
            && over_lane
            && self.schedule.has_unassigned()
            && !matches!(self.room, FileRoom::Pays(..))
    }
}
