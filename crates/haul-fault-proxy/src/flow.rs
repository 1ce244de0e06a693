//! One direction of one connection: what may be read now, and what is to leave now.
//!
//! A machine without sockets and without a clock of its own. `pair` asks for `room`, reads, and
//! gives the bytes to `take`; it asks what is `next`, does it, and says so. Bytes pass the links
//! (rates) when they come in, wait in the line (delays), and meet all other faults when they leave:
//! so what is set while they are under way still holds for them.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::line::{Item, Line, What};
use crate::link::{Clock, portion};
use crate::random::Gaps;
use crate::rules::Way;
use crate::shared::State;
use crate::{Fault, Injected, RuleId};

/// At most so much is read at once.
pub(crate) const CHUNK: usize = 64 * 1024;

/// See the module.
#[derive(Debug)]
pub(crate) struct Flow {
    way: Way,
    intake: Intake,
    outlet: Outlet,
    line: Line,
    /// Whether the receiving side takes no more for now.
    pub(crate) blocked: bool,
    /// Offset of the next byte to come in.
    read: u64,
    /// Offset of the next byte to leave.
    left: u64,
    /// Up to this offset flips were done, also if the bytes have not left yet.
    flipped: u64,
    clocks: BTreeMap<RuleId, Clock>,
    gaps: BTreeMap<RuleId, Gaps>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intake {
    Reading,
    /// What comes is dropped.
    Dropping,
    /// The sending side has ended or is gone.
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outlet {
    Open,
    /// The receiving side got the end of the stream, or is gone.
    Finished,
}

/// Whether to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    /// At most so many bytes, at least 1.
    Read(usize),
    /// Not before then.
    From(Instant),
    /// Not before something else happens.
    Closed,
}

/// What is to be done at the receiving side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Write so many bytes of [`Flow::outgoing`], at least 1, and tell [`Flow::wrote`].
    Write(usize),
    /// End the stream, and tell [`Flow::finish`].
    Finish,
    /// Reset both sides when the receiving one has everything.
    CutHard,
    /// End the streams of both sides.
    CutSoft,
    /// Nothing before then.
    From(Instant),
    /// Nothing before something else happens.
    Nothing,
}

impl Flow {
    pub(crate) fn new(way: Way) -> Self {
        Self {
            way,
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
        let free = state.line_capacity.saturating_sub(self.line.held() + Line::OVERHEAD);
        if self.blocked || (free == 0 && !self.line.is_empty()) {
            return Room::Closed;
        }
        let mut most = free.clamp(1, CHUNK);
        let mut from = now;
        for (id, fault) in state.rules.faults(self.way) {
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

    /// `data` was read, and was there at `now`.
    pub(crate) fn take(&mut self, data: &[u8], state: &mut State, now: Instant) {
        state.record.read(self.way.connection, self.way.direction, data.len());
        if self.intake == Intake::Reading {
            let ready = self.pass(data.len(), state, now);
            let what = What::Data(data.to_vec(), 0);
            self.line.push(Item { at: self.read, ready, what });
        }
        self.read += data.len() as u64;
    }

    /// The sending side has ended its stream, or is `gone`.
    pub(crate) fn end(&mut self, gone: bool, state: &mut State, now: Instant) {
        self.intake = Intake::Ended;
        if gone || self.outlet == Outlet::Open {
            let ready = self.pass(0, state, now);
            let what = if gone { What::Reset } else { What::Fin };
            self.line.push(Item { at: self.read, ready, what });
        }
    }

    /// When something that is there now has passed all links. Notes what slows it.
    fn pass(&mut self, bytes: usize, state: &mut State, now: Instant) -> Instant {
        let State { rules, record, shared_clocks, .. } = state;
        let mut ready = now;
        for (id, fault) in rules.faults(self.way) {
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
            let direction = self.way.direction;
            let what = Injected::Stream { direction, fault, at: self.read };
            record.fire(id, self.way.connection, what);
        }
        ready
    }

    /// What is to leave now.
    pub(crate) fn next(&mut self, state: &mut State, now: Instant) -> Step {
        loop {
            let mut passage = Passage::default();
            // Behind the end of the stream only a reset can come, and it is not held up.
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
            match item.ready.checked_add(state.rules.delay(self.way, item.at)) {
                Some(due) if due <= now => {}
                Some(due) => return Step::From(due),
                // A delay beyond all times.
                None => return Step::Nothing,
            }
            let data = match &item.what {
                What::Data(data, left) => data.len() - left,
                What::Fin => return Step::Finish,
                What::Reset => return Step::CutHard,
            };
            let count = data.min(passage.most);
            if !passage.drop {
                self.flip(count, state);
                return Step::Write(count);
            }
            self.advance(count);
        }
    }

    /// The cut that comes now, if one does.
    fn cut(&self, state: &mut State) -> Option<Step> {
        let State { rules, record, .. } = state;
        let (id, fault, step) = rules.faults(self.way).find_map(|(id, fault)| match fault {
            Fault::CutHard { after } if after <= self.left => Some((id, fault, Step::CutHard)),
            Fault::CutSoft { after } if after <= self.left => Some((id, fault, Step::CutSoft)),
            Fault::Truncate { after } if after <= self.left => Some((id, fault, Step::Finish)),
            _ => None,
        })?;
        record.fire_once(id, self.way.connection, self.injected(fault));
        Some(step)
    }

    /// How far the faults let bytes leave before they have to be asked again. None: not at all.
    fn passage(&self, state: &mut State) -> Option<Passage> {
        let State { rules, record, .. } = state;
        let mut passage = Passage::default();
        for (id, fault) in rules.faults(self.way) {
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
            record.fire_once(id, self.way.connection, self.injected(fault));
            match fault {
                Fault::Blackhole { .. } => return None,
                _ => passage.drop = true,
            }
        }
        Some(passage)
    }

    /// Changes what is to be changed in the next `count` bytes, each byte once.
    fn flip(&mut self, count: usize, state: &mut State) {
        let State { rules, record, .. } = state;
        let (left, end) = (self.left, self.left + count as u64);
        let begin = self.flipped.max(left);
        let Some(data) = self.line.front_data() else { return };
        for (id, fault) in rules.faults(self.way) {
            let mut change = |at: u64, mask: u8| {
                if let Some(byte) = data.get_mut(saturate(at - left)) {
                    *byte ^= mask;
                    let direction = self.way.direction;
                    let what = Injected::Stream { direction, fault, at };
                    record.fire(id, self.way.connection, what);
                }
            };
            match fault {
                Fault::Flip { at, mask } if mask != 0 && (begin..end).contains(&at) => {
                    change(at, mask);
                }
                Fault::FlipRandomly { probability, mask } if mask != 0 => {
                    let seed = rules.draw(id, self.way, 0);
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

    /// The bytes of which [`Step::Write`] speaks, and perhaps more.
    pub(crate) fn outgoing(&mut self) -> &[u8] {
        self.line.front_data().unwrap_or_default()
    }

    /// So many bytes were delivered.
    pub(crate) fn wrote(&mut self, count: usize, state: &mut State) {
        state.record.delivered(self.way.connection, self.way.direction, count);
        self.advance(count);
    }

    fn advance(&mut self, count: usize) {
        self.line.advance(count);
        self.left += count as u64;
    }

    /// Nothing more leaves; what still comes is dropped.
    pub(crate) fn finish(&mut self) {
        self.outlet = Outlet::Finished;
        self.line.keep_reset();
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

    /// Whether nothing comes and nothing leaves any more.
    pub(crate) fn is_over(&self) -> bool {
        self.intake == Intake::Ended && self.outlet == Outlet::Finished && self.line.is_empty()
    }

    const fn injected(&self, fault: Fault) -> Injected {
        Injected::Stream { direction: self.way.direction, fault, at: self.left }
    }
}

/// How the next bytes leave.
#[derive(Debug, Clone, Copy)]
struct Passage {
    /// At most so many alike.
    most: usize,
    /// Into nothing.
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
