//! Ranges that a free lane takes over from another lane, once everything is assigned.

use std::time::Duration;

use super::file::{FileInMotion, Shared};
use super::mode::Reads;
use super::range::{MovingRange, State};
use crate::schedule::Schedule;

/// The shortest half of a range that is taken over.
const LEAST_STEAL: u64 = 512 << 10;

/// RTTs until a new long read is as fast as the others. Measured with FTP at 200 ms and 500 Mbit/s: the first
/// byte arrives after 4.5 RTTs, 3 MB after 14, while the lanes that were open delivered 1 MB per RTT.
const LONG_READ_BEGINS: u32 = 12;

impl FileInMotion {
    /// Whether to look for something to steal at intervals, and not only when a range has ended: a lane may
    /// have become free meanwhile, or all remaining ranges may be stuck.
    pub(super) fn looks_for_lanes(&self) -> bool {
        match self.mode.reads {
            Reads::Long => true,
            Reads::Ranges => {
                let is_handed_out = !self.mode.direct && !self.schedule.has_unassigned();
                is_handed_out && self.shared.flow.has_lanes()
            }
            Reads::Whole => false,
        }
    }

    /// When everything is assigned, a free lane takes over a range that is stuck on another one, or, if there
    /// is room, half of the longest rest. A stuck range needs no more room than it has: its permit, which may
    /// fill a small window, is released when its read is withdrawn. Of long reads only halves are taken over: of
    /// the longest rest, or else of the slowest.
    pub(super) fn steal(&mut self, now: Duration) {
        let Shared { flow, long_reads, .. } = &self.shared;
        let has_lanes = self.mode.reads != Reads::Whole && flow.has_lanes();
        let may_steal = has_lanes && !self.mode.is_in_order() && !self.mode.direct;
        if !may_steal || self.is_stopped() || self.schedule.has_unassigned() {
            return;
        }
        let is_long = self.mode.reads == Reads::Long;
        if is_long && (self.lanes_for_long_reads() == 0 || long_reads.are_wanted()) {
            return;
        }
        let has_room = flow.has_room(LEAST_STEAL);
        let stolen = if is_long {
            // The new read should be worth the RTTs that it needs to begin.
            let (begins, bytes) =
                (flow.rtt() * LONG_READ_BEGINS, flow.bytes_a_lane(LONG_READ_BEGINS));
            let half = |schedule: &mut Schedule| {
                schedule.steal_half(bytes.max(LEAST_STEAL)).or_else(|| {
                    schedule.steal_half_of_slowest(LEAST_STEAL, 2 * begins, begins, now)
                })
            };
            has_room.then(|| half(&mut self.schedule)).flatten()
        } else {
            let half = |schedule: &mut Schedule| schedule.steal_half(LEAST_STEAL);
            let stuck = self.schedule.steal_stuck(now);
            stuck.or_else(|| has_room.then(|| half(&mut self.schedule)).flatten())
        };
        let Some(stolen) = stolen else {
            if is_long {
                flow.idle_lane();
            }
            return;
        };
        let (bytes, counted) = match is_long {
            true => (flow.range_bytes(stolen.range.len()), Some(long_reads.begin())),
            false => (u64::MAX, None),
        };
        self.withdraw();
        let range = MovingRange { counted, ..self.range(stolen, State::FirstRoom) };
        self.ranges.insert(stolen.id, range);
        self.want_room(stolen.id, bytes.min(stolen.range.len()), now);
    }
}
