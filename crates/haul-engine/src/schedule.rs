//! Which range of a file is next.
//!
//! A state machine without I/O. Missing bytes are assigned from the front in ranges; each assignment
//! reports its progress. When nothing is left to assign, a free lane steals: the whole rest of a range that is
//! stuck on a slow lane, or else the second half of the longest or slowest one, so that no slow lane delays
//! the end. The rest of a failed assignment is missing again.

use std::collections::BTreeMap;
use std::time::Duration;

use haul_storage::{Range, RangeSet};

/// Ranges end at multiples of this many bytes (or at the end of the missing bytes), so that tree
/// digests can hash every range by itself.
pub const ALIGNMENT: u64 = 64 << 10;

/// An assignment counts as stuck after this multiple of its expected duration. Before its first byte, the time since
/// its request is compared; after it, also the time without progress, or the time that its rest needs at its own rate.
/// The usual cause is packet loss: TCP backs off (Linux for up to 120 s), then sends one or two packets per RTT
/// (measured at 0.5 Mbit/s and 300 ms, where the last five ranges took 25 s). A free lane is faster.
const STUCK: u32 = 2;
/// The least duration that counts as stuck: before the first byte, and after it.
const LEAST_STUCK: Duration = Duration::from_millis(500);
const LEAST_STUCK_BEGUN: Duration = Duration::from_secs(2);

/// The ranges of one file.
#[derive(Debug, Default)]
pub struct Schedule {
    missing: RangeSet,
    active: BTreeMap<u64, Active>,
    last_id: u64,
    /// The last assignment that was moved to its end.
    completed: Option<Completed>,
    /// Before this time no stuck range is taken, unless another one has completed.
    pause: Option<Duration>,
}

/// Time and bytes of an assignment that was moved to its end.
#[derive(Debug, Clone, Copy)]
struct Completed {
    time: Duration,
    bytes: u64,
    /// Assignments that were being moved then, itself included.
    at_once: usize,
}

impl Completed {
    /// The expected time for `bytes` bytes: at least the time of this assignment.
    fn expected(&self, bytes: u64) -> Duration {
        self.time.mul_f64((bytes as f64 / self.bytes.max(1) as f64).max(1.0))
    }

    /// The same if `at_once` assignments are being moved and share the path.
    fn expected_of(&self, bytes: u64, at_once: usize) -> Duration {
        self.expected(bytes).mul_f64((at_once as f64 / self.at_once as f64).min(1.0))
    }
}

#[derive(Debug, Clone, Copy)]
struct Active {
    at: u64,
    end: u64,
    /// Its request, once sent.
    request: Option<Request>,
}

/// A request for the bytes of an assignment.
#[derive(Debug, Clone, Copy)]
struct Request {
    sent: Duration,
    /// The offset that the assignment had reached then.
    from: u64,
    /// When the last bytes arrived.
    arrived: Option<Duration>,
}

impl Active {
    fn left(&self) -> u64 {
        self.end - self.at
    }

    /// Where its second half begins, if both halves have at least `least_bytes`.
    fn middle(&self, least_bytes: u64) -> Option<u64> {
        let middle = (self.at + self.left() / 2).next_multiple_of(ALIGNMENT);
        let is_short = middle.saturating_sub(self.at) < least_bytes
            || self.end.saturating_sub(middle) < least_bytes.max(1);
        (!is_short).then_some(middle)
    }

    /// The time that the rest needs at the rate since its request.
    fn rest_at_own_rate(&self, request: Request, waited: Duration) -> Duration {
        let moved = (self.at - request.from).max(1) as f64;
        let seconds = waited.as_secs_f64() * (self.left() as f64 / moved);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// Whether a free lane would probably be faster, judging by the time of a completed one. `at_once`
    /// assignments are being moved now.
    fn is_stuck(&self, now: Duration, completed: Completed, at_once: usize) -> bool {
        let Some(request) = self.request.filter(|_| self.left() > 0) else { return false };
        let waited = now.saturating_sub(request.sent);
        let moved = self.at - request.from;
        let Some(arrived) = request.arrived.filter(|_| moved > 0) else {
            return waited > LEAST_STUCK.max(completed.expected(self.left()) * STUCK);
        };
        let rest = self.rest_at_own_rate(request, waited);
        let long = LEAST_STUCK_BEGUN.max(completed.expected_of(self.left(), at_once) * STUCK);
        waited > long && now.saturating_sub(arrived).max(rest) > long
    }
}

/// A range that one lane is to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    /// Identifies it in the calls that follow.
    pub id: u64,
    /// What to move.
    pub range: Range,
}

impl Schedule {
    /// Adds bytes that have to be moved.
    pub fn add(&mut self, range: Range) {
        self.missing.insert(range);
    }

    /// Whether there is anything left to assign.
    pub fn has_unassigned(&self) -> bool {
        !self.missing.is_empty()
    }

    /// Bytes that are left to assign.
    pub fn unassigned(&self) -> u64 {
        self.missing.total()
    }

    /// Assigns the first missing bytes, at most about `range_bytes` of them, or the whole gap if it is no
    /// longer than that.
    pub fn next(&mut self, range_bytes: u64) -> Option<Assignment> {
        let first = self.missing.first()?;
        let wanted = first.start().saturating_add(range_bytes.max(1));
        let aligned = wanted / ALIGNMENT * ALIGNMENT;
        let end = if wanted >= first.end() {
            // Rounded down, it would leave a rest that is shorter than the alignment.
            first.end()
        } else if aligned > first.start() {
            aligned
        } else {
            wanted.next_multiple_of(ALIGNMENT).min(first.end())
        };
        let range = Range::between(first.start(), end);
        self.missing.remove(range);
        Some(self.assign(range))
    }

    /// The bytes of assignment `id` were requested.
    pub fn requested(&mut self, id: u64, now: Duration) {
        if let Some(active) = self.active.get_mut(&id) {
            active.request = Some(Request { sent: now, from: active.at, arrived: None });
        }
    }

    /// Takes over the whole rest of an assignment that is stuck. For the lane that loses it, [`Schedule::wanted`] and
    /// [`Schedule::advance`] return an empty range from then on.
    pub fn steal_stuck(&mut self, now: Duration) -> Option<Assignment> {
        let completed = self.completed?;
        if self.pause.is_some_and(|until| now < until) {
            return None;
        }
        let at_once = self.active.values().filter(|active| active.left() > 0).count();
        // The latest first: its response would arrive last.
        let latest = self.active.values_mut().rev();
        let mut stuck = latest.filter(|active| active.is_stuck(now, completed, at_once));
        let victim = stuck.next()?;
        let range = Range::between(victim.at, victim.end);
        victim.end = victim.at;
        // Its time must not be the measure for others: each would wait twice as long as the one before.
        victim.request = None;
        // One at a time: if the whole path stalls for a while, not everything is requested twice.
        self.pause = Some(now + LEAST_STUCK.max(completed.time) * STUCK);
        Some(self.assign(range))
    }

    /// Takes the second half of the assignment with the most bytes left, if both halves have at least
    /// `least_bytes`.
    pub fn steal_half(&mut self, least_bytes: u64) -> Option<Assignment> {
        let (id, _) = self.active.iter().max_by_key(|(_, active)| active.left())?;
        self.steal_half_of(*id, least_bytes)
    }

    /// Takes the second half of the assignment whose rest needs the most time at its own rate. Considers only those
    /// whose rest needs more than `least`, that were requested at least `judged_after` ago, and whose halves have at
    /// least `least_bytes`.
    pub fn steal_half_of_slowest(
        &mut self,
        least_bytes: u64,
        least: Duration,
        judged_after: Duration,
        now: Duration,
    ) -> Option<Assignment> {
        let rests = self.active.iter().filter_map(|(id, active)| {
            let request = active.request.filter(|_| active.middle(least_bytes).is_some())?;
            let waited = now.saturating_sub(request.sent);
            let rest = active.rest_at_own_rate(request, waited);
            (waited >= judged_after && rest > least).then_some((rest, *id))
        });
        let (_, id) = rests.max()?;
        self.steal_half_of(id, least_bytes)
    }

    fn steal_half_of(&mut self, id: u64, least_bytes: u64) -> Option<Assignment> {
        let victim = self.active.get_mut(&id)?;
        let middle = victim.middle(least_bytes)?;
        let range = Range::between(middle, victim.end);
        victim.end = middle;
        Some(self.assign(range))
    }

    /// `bytes` more of assignment `id` have arrived. Returns the rest of it: bytes after its end belong to
    /// another assignment.
    pub fn advance(&mut self, id: u64, bytes: u64, now: Duration) -> Range {
        let Some(active) = self.active.get_mut(&id) else { return Range::new(0, 0) };
        active.at = active.at.saturating_add(bytes).min(active.end);
        if let Some(request) = active.request.as_mut().filter(|_| bytes > 0) {
            request.arrived = Some(now);
        }
        Range::between(active.at, active.end)
    }

    /// The rest of assignment `id`.
    pub fn wanted(&self, id: u64) -> Range {
        self.active
            .get(&id)
            .map_or(Range::new(0, 0), |active| Range::between(active.at, active.end))
    }

    /// Ends assignment `id`; what it has not moved is missing again.
    pub fn finish(&mut self, id: u64, now: Duration) {
        let at_once = self.active.values().filter(|active| active.left() > 0).count() + 1;
        if let Some(active) = self.active.remove(&id) {
            self.missing.insert(Range::between(active.at, active.end));
            if let Some(request) = active.request.filter(|_| active.left() == 0)
                && request.arrived.is_some()
            {
                let (time, bytes) = (now.saturating_sub(request.sent), active.at - request.from);
                self.completed = Some(Completed { time, bytes, at_once });
                self.pause = None;
            }
        }
    }

    /// The file ends at the offset that assignment `id` has reached.
    pub fn end_at(&mut self, id: u64) {
        if let Some(active) = self.active.get_mut(&id) {
            active.end = active.at;
            self.missing.remove(Range::between(active.at, u64::MAX));
        }
    }

    fn assign(&mut self, range: Range) -> Assignment {
        self.last_id += 1;
        let id = self.last_id;
        let (at, end) = (range.start(), range.end());
        self.active.insert(id, Active { at, end, request: None });
        Assignment { id, range }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Schedule {
        /// Steals as a free lane with room does.
        fn steal(&mut self, least_bytes: u64, now: Duration) -> Option<Assignment> {
            self.steal_stuck(now).or_else(|| self.steal_half(least_bytes))
        }
    }

    const NOW: Duration = Duration::from_secs(9);

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn ranges_are_assigned_from_the_front() {
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

    /// A short rest would need a second request, which costs RTTs where reads are long.
    #[test]
    fn a_range_for_everything_missing_leaves_no_short_rest() {
        for (start, length) in [(0, (5 << 20) + 100), (100, 300 << 10), (70_000, 1), (7, 65_536)] {
            let mut schedule = Schedule::default();
            schedule.add(Range::new(start, length));
            assert_eq!(schedule.next(length).unwrap().range, Range::new(start, length));
            assert!(!schedule.has_unassigned());
        }
    }

    /// Formerly, a slow lane held up the end of a file for seconds, although its rest was much less than what
    /// the others would have delivered in that time.
    #[test]
    fn the_second_half_of_the_slowest_range_is_taken() {
        const MIB: u64 = 1 << 20;
        let mut schedule = Schedule::default();
        schedule.add(Range::new(0, 20 * MIB));
        let (fast, slow) = (schedule.next(10 * MIB).unwrap(), schedule.next(10 * MIB).unwrap());
        schedule.requested(fast.id, secs(0));
        schedule.requested(slow.id, secs(0));
        schedule.advance(fast.id, 9 * MIB, secs(3));
        schedule.advance(slow.id, 2 * MIB, secs(3));
        let mut half =
            |least, now| schedule.steal_half_of_slowest(MIB / 2, secs(least), secs(2), now);
        assert_eq!(half(5, secs(1)), None, "too early to judge");
        assert_eq!(half(12, secs(3)), None, "8 MiB need 12 s");
        assert_eq!(half(5, secs(3)).unwrap().range, Range::new(16 * MIB, 4 * MIB));
        assert_eq!(half(7, secs(3)), None, "4 MiB need 6 s");
    }

    /// Formerly, the short one was chosen because it was the slowest, and then not split; the long one was not
    /// tried.
    #[test]
    fn an_assignment_too_short_to_split_does_not_hide_a_longer_one() {
        const MIB: u64 = 1 << 20;
        let mut schedule = Schedule::default();
        schedule.add(Range::new(0, 9 * MIB));
        let (short, long) = (schedule.next(MIB).unwrap(), schedule.next(8 * MIB).unwrap());
        for assignment in [short, long] {
            schedule.requested(assignment.id, secs(0));
        }
        schedule.advance(short.id, 1 << 10, secs(9));
        schedule.advance(long.id, 64 << 10, secs(9));
        let stolen = schedule.steal_half_of_slowest(MIB / 2 + 1, secs(1), secs(1), secs(9));
        assert_eq!(stolen.unwrap().range.end(), 9 * MIB);
    }

    #[test]
    fn a_free_lane_takes_half_of_the_longest_rest() {
        let mut schedule = Schedule::default();
        schedule.add(Range::new(0, 64 << 20));
        let slow = schedule.next(u64::MAX).unwrap();
        let stolen = schedule.steal(1 << 20, NOW).unwrap();
        assert_eq!(stolen.range, Range::new(32 << 20, 32 << 20));
        assert_eq!(schedule.wanted(slow.id), Range::new(0, 32 << 20));
    }

    #[test]
    fn a_rest_that_is_not_worth_a_request_is_not_stolen() {
        let mut schedule = Schedule::default();
        schedule.add(Range::new(0, 1 << 20));
        schedule.next(u64::MAX).unwrap();
        assert_eq!(schedule.steal(1 << 20, NOW), None);
    }

    /// Four ranges requested on one lane, one behind the other, and one on another lane that is faster.
    #[test]
    fn a_range_behind_a_slow_response_is_taken_whole() {
        let mut schedule = Schedule::default();
        schedule.add(Range::new(0, 5 << 20));
        let slow: Vec<_> = (0..4).map(|_| schedule.next(1 << 20).unwrap()).collect();
        let fast = schedule.next(1 << 20).unwrap();
        slow.iter().for_each(|slow| schedule.requested(slow.id, secs(0)));
        schedule.advance(slow[0].id, 256 << 10, secs(1));
        schedule.requested(fast.id, secs(2));
        schedule.advance(fast.id, 1 << 20, secs(3));
        assert_eq!(schedule.steal(1 << 20, secs(3)), None, "no completed range to compare with");
        schedule.finish(fast.id, secs(3));
        assert_eq!(schedule.steal(1 << 20, secs(2)), None, "2 s is only twice the other's 1 s");
        let stolen = schedule.steal(1 << 20, secs(3)).unwrap();
        assert_eq!(stolen.range, slow[3].range);
        assert!(schedule.wanted(slow[3].id).is_empty(), "its bytes are wanted once only");
        schedule.finish(slow[3].id, secs(3));
        assert!(!schedule.has_unassigned(), "none of its bytes are missing again");
        assert_eq!(schedule.steal(1 << 20, secs(4)), None, "one at a time");
        schedule.requested(stolen.id, secs(3));
        schedule.advance(stolen.id, 1 << 20, secs(4));
        schedule.finish(stolen.id, secs(4));
        assert_eq!(schedule.steal(1 << 20, secs(4)).unwrap().range, slow[2].range);
    }

    /// One lane has lost so many packets that TCP waits for half a minute, another gets a packet a second.
    #[test]
    fn a_range_that_is_stuck_half_way_is_taken_from_there() {
        let mut schedule = Schedule::default();
        schedule.add(Range::new(0, 4 << 16));
        let [done, silent, slow, steady] = [(); 4].map(|()| schedule.next(1 << 16).unwrap());
        for assigned in [done, silent, slow, steady] {
            schedule.requested(assigned.id, secs(0));
        }
        schedule.advance(silent.id, 60_000, secs(1));
        schedule.advance(done.id, 1 << 16, secs(4));
        schedule.finish(done.id, secs(4));
        schedule.advance(slow.id, 9_000, secs(6));
        schedule.advance(steady.id, 60_000, secs(6));
        // Four took 4 s, so three take 3 s.
        assert_eq!(schedule.steal(1 << 19, secs(6)), None, "it may still arrive");
        let stolen = schedule.steal(1 << 19, secs(7)).unwrap();
        assert_eq!(stolen.range, Range::between((2 << 16) + 9_000, 3 << 16));
        assert!(schedule.wanted(slow.id).is_empty());
        assert_eq!(schedule.steal(1 << 19, secs(8)), None, "one at a time");
        schedule.advance(steady.id, 3_000, secs(15));
        let stolen = schedule.steal(1 << 19, secs(16)).unwrap();
        assert_eq!(stolen.range, Range::between((1 << 16) + 60_000, 2 << 16));
        assert_eq!(schedule.steal(1 << 19, secs(18)), None, "the last one is about to end");
    }

    #[test]
    fn a_stuck_range_is_no_measure_for_the_next() {
        let mut schedule = Schedule::default();
        schedule.add(Range::new(0, 4 << 20));
        let ids: Vec<u64> = (0..4).map(|_| schedule.next(1 << 20).unwrap().id).collect();
        ids.iter().for_each(|id| schedule.requested(*id, secs(0)));
        schedule.advance(ids[0], 1 << 20, secs(1));
        schedule.finish(ids[0], secs(1));
        schedule.advance(ids[3], 1000, secs(1));
        assert_eq!(
            schedule.steal(1 << 20, secs(100)).map(|taken| taken.range.start()),
            Some((3 << 20) + 1000)
        );
        schedule.finish(ids[3], secs(100));
        // Twice the second that the first one took, not 200 s.
        let taken = schedule.steal(1 << 20, secs(103));
        assert_eq!(taken.map(|taken| taken.range), Some(Range::new(2 << 20, 1 << 20)));
    }

    #[test]
    fn a_response_that_is_slightly_late_is_waited_for() {
        let mut schedule = Schedule::default();
        schedule.add(Range::new(0, 2 << 20));
        let (one, other) = (schedule.next(1 << 20).unwrap(), schedule.next(1 << 20).unwrap());
        schedule.requested(one.id, secs(0));
        schedule.requested(other.id, secs(0));
        schedule.advance(other.id, 1 << 20, secs(0));
        schedule.finish(other.id, Duration::from_millis(2));
        assert_eq!(schedule.steal(1 << 20, LEAST_STUCK), None);
    }

    #[test]
    fn the_rest_of_a_failed_assignment_is_assigned_again() {
        let mut schedule = Schedule::default();
        schedule.add(Range::new(0, 1 << 20));
        let failed = schedule.next(1 << 20).unwrap();
        schedule.advance(failed.id, 300 << 10, NOW);
        schedule.finish(failed.id, NOW);
        assert_eq!(schedule.next(1 << 20).unwrap().range, Range::between(300 << 10, 1 << 20));
    }

    proptest! {
        /// For any events in any order, every byte is moved, and none belongs to two assignments.
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
                        let after = schedule.advance(id, bytes, now);
                        total += after.start() - before.start();
                        moved.insert(Range::between(before.start(), after.start()));
                    }
                    3 if !open.is_empty() => {
                        let id = open.swap_remove(pick % open.len());
                        schedule.finish(id, now);
                    }
                    4 if !open.is_empty() => schedule.requested(open[pick % open.len()], now),
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
