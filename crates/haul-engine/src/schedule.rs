//! Which range of a file is next.
//!
//! A state machine without I/O. What is missing is handed out from the front in ranges; each range
//! in the making is an assignment that reports how far it has come. When nothing is left to hand
//! out, a free lane steals: one that waits behind others on a slow lane, all of it, or else the second
//! half of the longest, so that no slow lane holds up the end. What a failed assignment leaves is
//! missing again.

use std::collections::BTreeMap;
use std::time::Duration;

use haul_storage::Range;

use crate::ranges::RangeSet;

/// Ends of ranges lie on multiples of this many bytes (or at the end of what is missing), so that
/// digests in tree form can take every range by itself.
pub const ALIGNMENT: u64 = 64 << 10;

/// What waits for its first byte so many times as long as another one took from being asked for to its
/// end waits behind something slow: it would be there sooner if a free lane asked for it again.
const WAITS_LONG: u32 = 2;
/// No shorter wait is long.
const LONG_WAIT: Duration = Duration::from_millis(500);

/// The ranges of one file.
#[derive(Debug, Default)]
pub struct Schedule {
    missing: RangeSet,
    active: BTreeMap<u64, Active>,
    last_id: u64,
    /// How long one took that was moved to its end, unless something was taken whole since.
    took: Option<Duration>,
}

#[derive(Debug, Clone, Copy)]
struct Active {
    at: u64,
    end: u64,
    /// When it was asked for, if it was.
    asked: Option<Duration>,
    begun: bool,
}

impl Active {
    fn left(&self) -> u64 {
        self.end - self.at
    }
}

/// A range that one lane is to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    /// Names it in the calls that follow.
    pub id: u64,
    /// What to move.
    pub range: Range,
}

impl Schedule {
    /// Adds bytes that have to be moved.
    pub fn add(&mut self, range: Range) {
        self.missing.insert(range);
    }

    /// Whether there is anything to hand out.
    pub fn has_unassigned(&self) -> bool {
        !self.missing.is_empty()
    }

    /// Bytes that are left to hand out.
    pub fn unassigned(&self) -> u64 {
        self.missing.total()
    }

    /// Hands out the lowest missing bytes, at most about `range_bytes` of them.
    pub fn next(&mut self, range_bytes: u64) -> Option<Assignment> {
        let first = self.missing.first()?;
        let wanted = first.start().saturating_add(range_bytes.max(1));
        let aligned = wanted / ALIGNMENT * ALIGNMENT;
        let end =
            if aligned > first.start() { aligned } else { wanted.next_multiple_of(ALIGNMENT) };
        let range = Range::between(first.start(), end.min(first.end()));
        self.missing.remove(range);
        Some(self.assign(range))
    }

    /// Says that assignment `id` is asked for.
    pub fn asked(&mut self, id: u64, now: Duration) {
        if let Some(active) = self.active.get_mut(&id) {
            active.asked = Some(now);
            active.begun = false;
        }
    }

    /// Takes an assignment that is waited for too long, or else the second half of that which has most
    /// left, if both halves have at least `least_bytes`. The one who loses it learns of it from
    /// [`Schedule::wanted`] and [`Schedule::advance`].
    pub fn steal(&mut self, least_bytes: u64, now: Duration) -> Option<Assignment> {
        self.steal_waiting(now).or_else(|| self.steal_half(least_bytes))
    }

    fn steal_waiting(&mut self, now: Duration) -> Option<Assignment> {
        let long = LONG_WAIT.max(self.took? * WAITS_LONG);
        let waits = |active: &Active| {
            let waited = active.asked.map_or(Duration::ZERO, |asked| now.saturating_sub(asked));
            !active.begun && active.left() > 0 && waited > long
        };
        // What was asked for last is answered last.
        let (_, victim) = self.active.iter_mut().rev().find(|(_, active)| waits(active))?;
        let range = Range::between(victim.at, victim.end);
        victim.end = victim.at;
        // One for one: where everything stands still for a while, not all is asked for twice.
        self.took = None;
        Some(self.assign(range))
    }

    fn steal_half(&mut self, least_bytes: u64) -> Option<Assignment> {
        let (_, victim) = self.active.iter_mut().max_by_key(|(_, active)| active.left())?;
        let half = victim.at + victim.left() / 2;
        let middle = half.next_multiple_of(ALIGNMENT);
        if middle.saturating_sub(victim.at) < least_bytes
            || victim.end.saturating_sub(middle) < least_bytes.max(1)
        {
            return None;
        }
        let range = Range::between(middle, victim.end);
        victim.end = middle;
        Some(self.assign(range))
    }

    /// Says that `bytes` more of assignment `id` are in hand, and gives what is still wanted of it:
    /// bytes after its end belong to somebody else.
    pub fn advance(&mut self, id: u64, bytes: u64) -> Range {
        let Some(active) = self.active.get_mut(&id) else { return Range::new(0, 0) };
        active.at = active.at.saturating_add(bytes).min(active.end);
        active.begun |= bytes > 0;
        Range::between(active.at, active.end)
    }

    /// What is still wanted of assignment `id`.
    pub fn wanted(&self, id: u64) -> Range {
        self.active
            .get(&id)
            .map_or(Range::new(0, 0), |active| Range::between(active.at, active.end))
    }

    /// Ends assignment `id`; what it has not moved is missing again.
    pub fn finish(&mut self, id: u64, now: Duration) {
        if let Some(active) = self.active.remove(&id) {
            self.missing.insert(Range::between(active.at, active.end));
            if let Some(asked) = active.asked.filter(|_| active.begun && active.left() == 0) {
                self.took = Some(now.saturating_sub(asked));
            }
        }
    }

    fn assign(&mut self, range: Range) -> Assignment {
        self.last_id += 1;
        let id = self.last_id;
        let (at, end) = (range.start(), range.end());
        self.active.insert(id, Active { at, end, asked: None, begun: false });
        Assignment { id, range }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Duration = Duration::from_secs(9);

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn ranges_are_handed_out_from_the_front() {
        let mut schedule = Schedule::default();
        schedule.add(Range::new(0, 300 << 10));
        let starts: Vec<_> =
            std::iter::from_fn(|| schedule.next(128 << 10)).map(|a| a.range).collect();
        assert_eq!(
            starts,
            [
                Range::new(0, 128 << 10),
                Range::new(128 << 10, 128 << 10),
                Range::new(256 << 10, 44 << 10)
            ]
        );
    }

    #[test]
    fn a_free_lane_takes_half_of_what_the_slowest_has_left() {
        let mut schedule = Schedule::default();
        schedule.add(Range::new(0, 64 << 20));
        let slow = schedule.next(u64::MAX).unwrap();
        let stolen = schedule.steal(1 << 20, NOW).unwrap();
        assert_eq!(stolen.range, Range::new(32 << 20, 32 << 20));
        assert_eq!(schedule.wanted(slow.id), Range::new(0, 32 << 20));
    }

    #[test]
    fn nothing_is_stolen_that_is_not_worth_a_request() {
        let mut schedule = Schedule::default();
        schedule.add(Range::new(0, 1 << 20));
        schedule.next(u64::MAX).unwrap();
        assert_eq!(schedule.steal(1 << 20, NOW), None);
    }

    /// Four that were asked for on one lane, one behind the other, and one on another that is faster.
    #[test]
    fn what_waits_behind_a_slow_answer_is_taken_whole() {
        let mut schedule = Schedule::default();
        schedule.add(Range::new(0, 5 << 20));
        let slow: Vec<_> = (0..4).map(|_| schedule.next(1 << 20).unwrap()).collect();
        let fast = schedule.next(1 << 20).unwrap();
        slow.iter().for_each(|slow| schedule.asked(slow.id, secs(0)));
        schedule.advance(slow[0].id, 256 << 10);
        schedule.asked(fast.id, secs(2));
        schedule.advance(fast.id, 1 << 20);
        assert_eq!(schedule.steal(1 << 20, secs(3)), None, "how long is long is not known yet");
        schedule.finish(fast.id, secs(3));
        assert_eq!(schedule.steal(1 << 20, secs(2)), None, "another one took half as long");
        let stolen = schedule.steal(1 << 20, secs(3)).unwrap();
        assert_eq!(stolen.range, slow[3].range);
        assert!(schedule.wanted(slow[3].id).is_empty(), "it is wanted of one only");
        schedule.finish(slow[3].id, secs(3));
        assert!(!schedule.has_unassigned(), "nothing of it comes back");
        assert_eq!(schedule.steal(1 << 20, secs(3)), None, "one for one that has ended");
        schedule.asked(stolen.id, secs(3));
        schedule.advance(stolen.id, 1 << 20);
        schedule.finish(stolen.id, secs(4));
        assert_eq!(schedule.steal(1 << 20, secs(4)).unwrap().range, slow[2].range);
    }

    #[test]
    fn an_answer_that_is_late_by_little_is_waited_for() {
        let mut schedule = Schedule::default();
        schedule.add(Range::new(0, 2 << 20));
        let (one, other) = (schedule.next(1 << 20).unwrap(), schedule.next(1 << 20).unwrap());
        schedule.asked(one.id, secs(0));
        schedule.asked(other.id, secs(0));
        schedule.advance(other.id, 1 << 20);
        schedule.finish(other.id, Duration::from_millis(2));
        assert_eq!(schedule.steal(1 << 20, LONG_WAIT), None);
    }

    #[test]
    fn what_a_failed_assignment_leaves_is_handed_out_again() {
        let mut schedule = Schedule::default();
        schedule.add(Range::new(0, 1 << 20));
        let failed = schedule.next(1 << 20).unwrap();
        schedule.advance(failed.id, 300 << 10);
        schedule.finish(failed.id, NOW);
        assert_eq!(schedule.next(1 << 20).unwrap().range, Range::between(300 << 10, 1 << 20));
    }

    proptest! {
        /// Whatever happens in whatever order, every byte is moved, and none is wanted by two.
        #[test]
        fn every_byte_is_moved_exactly_once(
            size in 0u64..(8 << 20),
            steps in proptest::collection::vec((0u8..5, any::<prop::sample::Index>(), 1u64..600_000), 0..200),
        ) {
            let mut schedule = Schedule::default();
            schedule.add(Range::new(0, size));
            let mut open: Vec<u64> = Vec::new();
            let mut moved = RangeSet::new();
            let mut total = 0;
            let mut now = Duration::ZERO;
            let mut step = |schedule: &mut Schedule, open: &mut Vec<u64>, kind: u8, pick: usize, bytes: u64| {
                now += Duration::from_micros(bytes);
                match kind {
                    0 => open.extend(schedule.next(bytes).map(|a| a.id)),
                    1 => open.extend(schedule.steal(bytes / 4, now).map(|a| a.id)),
                    2 if !open.is_empty() => {
                        let id = open[pick % open.len()];
                        let before = schedule.wanted(id);
                        let after = schedule.advance(id, bytes);
                        total += after.start() - before.start();
                        moved.insert(Range::between(before.start(), after.start()));
                    }
                    3 if !open.is_empty() => {
                        let id = open.swap_remove(pick % open.len());
                        schedule.finish(id, now);
                    }
                    4 if !open.is_empty() => schedule.asked(open[pick % open.len()], now),
                    _ => {}
                }
            };
            for (kind, pick, bytes) in steps {
                step(&mut schedule, &mut open, kind, pick.index(1000), bytes);
            }
            while schedule.has_unassigned() || !open.is_empty() {
                step(&mut schedule, &mut open, 0, 0, 1 << 20);
                while !open.is_empty() {
                    step(&mut schedule, &mut open, 2, 0, u64::MAX / 4);
                    step(&mut schedule, &mut open, 3, 0, 0);
                }
            }
            prop_assert_eq!(moved.total(), size);
            prop_assert_eq!(total, size, "some byte was moved twice");
        }
    }
}
