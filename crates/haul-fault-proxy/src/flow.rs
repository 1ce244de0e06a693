//! One direction of one connection: what may be read now, and what must be forwarded now.
//!
//! A state machine without I/O; time is an argument. `pair` calls `room`, reads, and passes the bytes to `take`; then
//! it calls `next`, performs the step that it returns, and reports that. Bytes pass the links (rates) when they
//! arrive, wait in the line (delays), and are subject to all other faults when they leave. So a fault that is set while
//! they are in the proxy still affects them.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::line::{Content, Item, Line};
use crate::link::{Clock, portion};
use crate::random::Gaps;
use crate::rules::StreamId;
use crate::shared::State;
use crate::{Fault, Injected, RuleId};

/// Most bytes read at once.
pub(crate) const CHUNK: usize = 64 * 1024;

/// The state of one direction.
#[derive(Debug)]
pub(crate) struct Flow {
    stream: StreamId,
    intake: Intake,
    outlet: Outlet,
    line: Line,
    /// Whether the receiving side's socket is full.
    pub(crate) blocked: bool,
    /// Offset of the next byte to read.
    read: u64,
    /// Offset of the next byte to forward.
    left: u64,
    /// Bytes before this offset are flipped where required, even if they have not been forwarded yet.
    flipped: u64,
    clocks: BTreeMap<RuleId, Clock>,
    gaps: BTreeMap<RuleId, Gaps>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intake {
    Reading,
    /// Bytes are read and dropped.
    Dropping,
    /// Nothing more is read: the sending side has ended its stream, or either side is gone.
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outlet {
    Open,
    /// The stream to the receiving side was ended, or that side is gone.
    Finished,
}

/// Whether to read from the sending side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// Read at most this many bytes, at least 1.
    Read(usize),
    /// Do not read before this time.
    From(Instant),
    /// Do not read before something else has happened.
    Closed,
}

/// What to do at the receiving side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Write this many bytes of [`Flow::outgoing`], at least 1, and call [`Flow::wrote`].
    Write(usize),
    /// End the stream, and call [`Flow::finish`].
    Finish,
    /// Reset both sides once the receiving one has everything.
    CutHard,
    /// End the streams of both sides.
    CutSoft,
    /// Nothing before this time.
    From(Instant),
    /// Nothing before something else has happened.
    Nothing,
}

impl Flow {
    pub(crate) fn new(stream: StreamId) -> Self {
        Self {
            stream,
            intake: Intake::Reading,
            outlet: Outlet::Open,
            line: Line::default(),
            blocked: false,
            read: 0,
            left: 0,
            flipped: 0,
            clocks: BTreeMap::new(),
            gaps: BTreeMap::new(),
        }
    }

    pub(crate) const fn intake(&self) -> Intake {
        self.intake
    }

    pub(crate) const fn outlet(&self) -> Outlet {
        self.outlet
    }

    pub(crate) fn room(&self, state: &State, now: Instant) -> Room {
        match self.intake {
            Intake::Ended => return Room::Closed,
            Intake::Dropping => return Room::Read(CHUNK),
            Intake::Reading => {}
        }
        let free = state.line_capacity.saturating_sub(self.line.bytes_used() + Line::OVERHEAD);
        if self.blocked || (free == 0 && !self.line.is_empty()) {
            return Room::Closed;
        }
        let mut most = free.clamp(1, CHUNK);
        let mut from = now;
        for (id, fault) in state.rules.faults(self.stream) {
            match fault {
                Fault::Blackhole { from } if from <= self.read => return Room::Closed,
                Fault::Blackhole { from } => most = most.min(saturate(from - self.read)),
                Fault::Rate(0) | Fault::SharedRate(0) => return Room::Closed,
                Fault::Rate(rate) | Fault::SharedRate(rate) => {
                    most = most.min(portion(rate));
                    let clock = match fault {
                        Fault::Rate(_) => self.clocks.get(&id),
                        _ => state.shared_clocks.get(&id),
                    };
                    from = from.max(clock.and_then(Clock::next).unwrap_or(now));
                }
                _ => {}
            }
        }
        if from > now { Room::From(from) } else { Room::Read(most) }
    }

    /// Accepts `data` that was read at `now`.
    pub(crate) fn take(&mut self, data: &[u8], state: &mut State, now: Instant) {
        state.record.read(self.stream.connection, self.stream.direction, data.len());
        if self.intake == Intake::Reading {
            let ready = self.pass(data.len(), state, now);
            let content = Content::Data(data.to_vec(), 0);
            self.line.push(Item { at: self.read, ready, content });
        }
        self.read += data.len() as u64;
    }

    /// The sending side has ended its stream, or is `gone`.
    pub(crate) fn end(&mut self, gone: bool, state: &mut State, now: Instant) {
        self.intake = Intake::Ended;
        if gone || self.outlet == Outlet::Open {
            let ready = self.pass(0, state, now);
            let content = if gone { Content::Reset } else { Content::Fin };
            self.line.push(Item { at: self.read, ready, content });
        }
    }

    /// When `bytes` that arrive now have passed all links. Records the faults that slow them.
    fn pass(&mut self, bytes: usize, state: &mut State, now: Instant) -> Instant {
        let State { rules, record, shared_clocks, .. } = state;
        let mut ready = now;
        for (id, fault) in rules.faults(self.stream) {
            match fault {
                Fault::Rate(rate) => {
                    ready = self.clocks.entry(id).or_default().pass(rate, bytes, ready);
                }
                Fault::SharedRate(rate) => {
                    ready = shared_clocks.entry(id).or_default().pass(rate, bytes, ready);
                }
                Fault::Delay { .. } => {}
                _ => continue,
            }
            let direction = self.stream.direction;
            let what = Injected::Stream { direction, fault, at: self.read };
            record.fire(id, self.stream.connection, what);
        }
        ready
    }

    /// The next step at the receiving side.
    pub(crate) fn next(&mut self, state: &mut State, now: Instant) -> Step {
        loop {
            let mut passage = Passage::default();
            // After the end of the stream only a reset can follow, and no fault but a delay affects it.
            if self.outlet == Outlet::Open {
                if let Some(step) = self.cut(state) {
                    return step;
                }
                match self.passage(state) {
                    Some(so_far) => passage = so_far,
                    None => return Step::Nothing,
                }
            }
            let Some(item) = self.line.front() else { return Step::Nothing };
            match item.ready.checked_add(state.rules.delay(self.stream, item.at)) {
                Some(due) if due <= now => {}
                Some(due) => return Step::From(due),
                // The delay never ends.
                None => return Step::Nothing,
            }
            let data = match &item.content {
                Content::Data(data, left) => data.len() - left,
                Content::Fin => return Step::Finish,
                Content::Reset => return Step::CutHard,
            };
            let count = data.min(passage.most);
            if !passage.drop {
                self.flip(count, state);
                return Step::Write(count);
            }
            self.advance(count);
        }
    }

    /// The step of a cut fault at the current offset, if there is one.
    fn cut(&self, state: &mut State) -> Option<Step> {
        let State { rules, record, .. } = state;
        let (id, fault, step) = rules.faults(self.stream).find_map(|(id, fault)| match fault {
            Fault::CutHard { after } if after <= self.left => Some((id, fault, Step::CutHard)),
            Fault::CutSoft { after } if after <= self.left => Some((id, fault, Step::CutSoft)),
            Fault::Truncate { after } if after <= self.left => Some((id, fault, Step::Finish)),
            _ => None,
        })?;
        record.fire_once(id, self.stream.connection, self.injected(fault));
        Some(step)
    }

    /// How many bytes may leave until a fault applies, and whether they are dropped. `None` if none may leave.
    fn passage(&self, state: &mut State) -> Option<Passage> {
        let State { rules, record, .. } = state;
        let mut passage = Passage::default();
        for (id, fault) in rules.faults(self.stream) {
            let (Fault::CutHard { after: offset }
            | Fault::CutSoft { after: offset }
            | Fault::Truncate { after: offset }
            | Fault::Discard { from: offset }
            | Fault::Blackhole { from: offset }) = fault
            else {
                continue;
            };
            if offset > self.left {
                passage.most = passage.most.min(saturate(offset - self.left));
                continue;
            }
            record.fire_once(id, self.stream.connection, self.injected(fault));
            match fault {
                Fault::Blackhole { .. } => return None,
                _ => passage.drop = true,
            }
        }
        Some(passage)
    }

    /// Applies flip faults to the next `count` bytes, to each byte only once.
    fn flip(&mut self, count: usize, state: &mut State) {
        let State { rules, record, .. } = state;
        let (left, end) = (self.left, self.left + count as u64);
        let begin = self.flipped.max(left);
        let Some(data) = self.line.front_data() else { return };
        for (id, fault) in rules.faults(self.stream) {
            let mut change = |at: u64, mask: u8| {
                if let Some(byte) = data.get_mut(saturate(at - left)) {
                    *byte ^= mask;
                    let direction = self.stream.direction;
                    let what = Injected::Stream { direction, fault, at };
                    record.fire(id, self.stream.connection, what);
                }
            };
            match fault {
                Fault::Flip { at, mask } if mask != 0 && (begin..end).contains(&at) => {
                    change(at, mask);
                }
                Fault::FlipRandomly { probability, mask } if mask != 0 => {
                    let seed = rules.draw(id, self.stream, 0);
                    let gaps = self.gaps.entry(id).or_insert_with(|| Gaps::new(seed, probability));
                    let mut next = gaps.at_least(begin);
                    while next < end {
                        change(next, mask);
                        next = gaps.at_least(next + 1);
                    }
                }
                _ => {}
            }
        }
        self.flipped = self.flipped.max(end);
    }

    /// The bytes to which [`Step::Write`] refers, possibly followed by more.
    pub(crate) fn outgoing(&mut self) -> &[u8] {
        self.line.front_data().unwrap_or_default()
    }

    /// `count` bytes were written to the receiving side.
    pub(crate) fn wrote(&mut self, count: usize, state: &mut State) {
        state.record.delivered(self.stream.connection, self.stream.direction, count);
        self.advance(count);
    }

    fn advance(&mut self, count: usize) {
        self.line.advance(count);
        self.left += count as u64;
    }

    /// The stream to the receiving side has ended. Bytes that still arrive are dropped.
    pub(crate) fn finish(&mut self) {
        self.outlet = Outlet::Finished;
        self.line.retain_reset();
        if self.intake == Intake::Reading {
            self.intake = Intake::Dropping;
        }
    }

    /// The receiving side is gone: nothing more leaves, nothing more is read.
    pub(crate) fn abandon(&mut self) {
        self.outlet = Outlet::Finished;
        self.intake = Intake::Ended;
        self.line.clear();
    }

    /// Whether nothing will be read or forwarded any more.
    pub(crate) fn is_over(&self) -> bool {
        self.intake == Intake::Ended && self.outlet == Outlet::Finished && self.line.is_empty()
    }

    const fn injected(&self, fault: Fault) -> Injected {
        Injected::Stream { direction: self.stream.direction, fault, at: self.left }
    }
}

/// What happens to the next bytes.
#[derive(Debug, Clone, Copy)]
struct Passage {
    /// The number of bytes to which this applies.
    most: usize,
    /// They are dropped.
    drop: bool,
}

impl Default for Passage {
    fn default() -> Self {
        Self { most: usize::MAX, drop: false }
    }
}

fn saturate(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
