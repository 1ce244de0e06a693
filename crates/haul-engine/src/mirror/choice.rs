//! Which mirror reads the next range. A state machine without I/O: time is an argument.
//!
//! A range goes to the mirror that is expected to deliver it first, judged by its bytes in flight, the length
//! of the range, and its measured rate. A mirror that fails rests, longer each time; it is dropped after
//! [`FAILURES`] failures in a row, or at once if a retry cannot help. The last one left is never dropped: the
//! caller retries its errors.

use std::time::Duration;

/// The time over which the rate of a mirror is measured.
const SAMPLE: Duration = Duration::from_millis(250);

/// How long a mirror rests after its first failure; twice as long after each further one.
const REST: Duration = Duration::from_secs(1);

/// A mirror is outpaced if another one is more than this many times as fast, ...
const OUTPACED: f64 = 10.0;

/// ... and would deliver the rest of the range, after its own bytes in flight, in less than this share of the time.
const SOONER: f64 = 0.5;

/// After this many failures in a row, each after a rest, a mirror is dropped.
const FAILURES: u32 = 3;

/// The state of the mirrors of one file, by their index in the order given.
#[derive(Debug)]
pub struct Choice {
    mirrors: Vec<Known>,
}

#[derive(Debug, Default)]
struct Known {
    dropped: bool,
    in_flight: u64,
    /// Bytes per second, once bytes have arrived.
    rate: Option<f64>,
    sample_since: Duration,
    sample_bytes: u64,
    /// When it last sent something, or got a request while it was idle.
    last_active: Duration,
    failures: u32,
    rests_until: Option<Duration>,
}

/// What follows from the failure of a mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failed {
    /// The others go on without it for a while.
    Rests,
    /// The others go on without it for good.
    Dropped,
    /// No other can be used now (there is none, or all rest): the failure is the file's.
    Alone,
}

impl Choice {
    /// The choice among `count` mirrors of which nothing is known.
    pub fn new(count: usize) -> Self {
        Self { mirrors: (0..count).map(|_| Known::default()).collect() }
    }

    /// Whether a mirror was dropped.
    pub fn is_dropped(&self, mirror: usize) -> bool {
        self.mirrors[mirror].dropped
    }

    /// Whether a mirror rests after a failure.
    pub fn rests(&self, mirror: usize, now: Duration) -> bool {
        self.mirrors[mirror].rests(now)
    }

    /// Drops a mirror for good.
    pub fn drop_for_good(&mut self, mirror: usize) {
        self.mirrors[mirror].dropped = true;
    }

    /// Makes a dropped mirror usable again, with nothing known of its rate and failures.
    pub fn restore(&mut self, mirror: usize) {
        let in_flight = self.mirrors[mirror].in_flight;
        self.mirrors[mirror] = Known { in_flight, ..Known::default() };
    }

    /// Whether a mirror with a pending request has sent nothing for `patience`, while another of `among` is usable and
    /// has delivered. The caller knows of the request: an idle mirror counts as silent, too.
    pub fn is_stalled(
        &self,
        mirror: usize,
        among: &[usize],
        patience: Duration,
        now: Duration,
    ) -> bool {
        let known = &self.mirrors[mirror];
        let is_silent = now.saturating_sub(known.last_active) >= patience;
        is_silent
            && among.iter().any(|other| {
                let known = &self.mirrors[*other];
                *other != mirror && !known.dropped && !known.rests(now) && known.rate.is_some()
            })
    }

    /// Whether another mirror of `among` would deliver `bytes`, the rest of a range, far sooner than this
    /// one, which has sent that range at `range_rate` for `span`. A mirror that is silent for `span` is not
    /// slow but stalled.
    pub fn is_outpaced(
        &self,
        mirror: usize,
        among: &[usize],
        bytes: u64,
        (range_rate, span): (f64, Duration),
        now: Duration,
    ) -> bool {
        let known = &self.mirrors[mirror];
        if now.saturating_sub(known.last_active) >= span {
            return false;
        }
        // The higher of both: the range may wait behind others of this mirror, or the mirror for a slow writer.
        let Some(rate) = known.rate(now).map(|rate| rate.max(range_rate)) else { return false };
        let rest = bytes as f64 / rate;
        rest > span.as_secs_f64()
            && among.iter().any(|other| {
                let known = &self.mirrors[*other];
                let is_there = *other != mirror && !known.dropped && !known.rests(now);
                // Not its recent rate: where bytes are written in order, those that it has sent may be
                // waiting for this range.
                let other_rate = known.rate.filter(|_| is_there).unwrap_or(0.0);
                rate * OUTPACED < other_rate
                    && (known.in_flight + bytes) as f64 / other_rate < rest * SOONER
            })
    }

    /// The mirror of `among` that is likely to deliver `bytes` first; a resting one only if all rest.
    pub fn choose(&self, among: &[usize], bytes: u64, now: Duration) -> Option<usize> {
        let left = || among.iter().copied().filter(|mirror| !self.mirrors[*mirror].dropped);
        let rested = |mirror: &usize| !self.mirrors[*mirror].rests(now);
        let usual = self.usual_rate(now);
        let takes = |mirror: usize| {
            let known = &self.mirrors[mirror];
            (known.in_flight + bytes) as f64 / known.rate(now).unwrap_or(usual)
        };
        let first = left().filter(rested).min_by(|a, b| takes(*a).total_cmp(&takes(*b)));
        first.or_else(|| left().min_by_key(|mirror| self.mirrors[*mirror].rests_until))
    }

    /// `bytes` were requested from a mirror.
    pub fn requested(&mut self, mirror: usize, bytes: u64, now: Duration) {
        let known = &mut self.mirrors[mirror];
        if known.in_flight == 0 {
            // Idle time is not measured.
            (known.sample_since, known.sample_bytes, known.last_active) = (now, 0, now);
        }
        known.in_flight += bytes;
    }

    /// `bytes` have arrived from a mirror.
    pub fn arrived(&mut self, mirror: usize, bytes: u64, now: Duration) {
        let known = &mut self.mirrors[mirror];
        known.in_flight = known.in_flight.saturating_sub(bytes);
        known.sample_bytes += bytes;
        known.last_active = now;
        (known.failures, known.rests_until) = (0, None);
        let time = now.saturating_sub(known.sample_since);
        if time >= SAMPLE || known.rate.is_none() {
            let seen = known.sample_bytes as f64 / time.as_secs_f64().max(0.001);
            known.rate = Some(known.rate.map_or(seen, |rate| f64::midpoint(rate, seen)));
            (known.sample_since, known.sample_bytes) = (now, 0);
        }
    }

    /// `bytes` requested from a mirror are not expected any more.
    pub fn released(&mut self, mirror: usize, bytes: u64) {
        let known = &mut self.mirrors[mirror];
        known.in_flight = known.in_flight.saturating_sub(bytes);
    }

    /// A request to a mirror has failed; `may_pass` is true if a retry can help. `among` are the mirrors that
    /// could be used instead.
    pub fn failed(
        &mut self,
        mirror: usize,
        may_pass: bool,
        among: &[usize],
        now: Duration,
    ) -> Failed {
        let others = |known: &[Known], rested: bool| {
            among.iter().any(|other| {
                let other_known = &known[*other];
                *other != mirror && !other_known.dropped && !(rested && other_known.rests(now))
            })
        };
        if !others(&self.mirrors, false) {
            return Failed::Alone;
        }
        let known = &mut self.mirrors[mirror];
        // All ranges on a lane that was lost fail at once: that is one failure.
        if !known.rests(now) {
            known.failures += 1;
            known.rests_until = Some(now + REST * (1 << (known.failures - 1).min(4)));
        }
        let is_over = !may_pass || known.failures >= FAILURES;
        if is_over && !std::mem::replace(&mut known.dropped, true) {
            return Failed::Dropped;
        }
        // All of them rest: the caller waits before its next request.
        if others(&self.mirrors, true) { Failed::Rests } else { Failed::Alone }
    }

    /// The expected rate of a mirror of which nothing is known: the mean of the others.
    fn usual_rate(&self, now: Duration) -> f64 {
        let rates: Vec<_> = self.mirrors.iter().filter_map(|known| known.rate(now)).collect();
        if rates.is_empty() { 1.0 } else { rates.iter().sum::<f64>() / rates.len() as f64 }
    }
}

impl Known {
    fn rests(&self, now: Duration) -> bool {
        self.rests_until.is_some_and(|until| until > now)
    }

    /// The measured rate, or less if little has arrived for a while.
    fn rate(&self, now: Duration) -> Option<f64> {
        let rate = self.rate?;
        let time = now.saturating_sub(self.sample_since);
        if self.in_flight == 0 || time < SAMPLE {
            return Some(rate);
        }
        Some(rate.min(self.sample_bytes as f64 / time.as_secs_f64()).max(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [usize; 3] = [0, 1, 2];

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Reads ranges of 1 MiB, 64 in flight, from mirrors of these rates (bytes per second); returns the bytes
    /// that each delivered.
    fn share(rates: &[u64], seconds: u64) -> Vec<u64> {
        const RANGE: u64 = 1 << 20;
        let all: Vec<_> = (0..rates.len()).collect();
        let mut choice = Choice::new(rates.len());
        let mut queues: Vec<Vec<u64>> = vec![Vec::new(); rates.len()];
        let mut delivered = vec![0; rates.len()];
        for step in 0..seconds * 100 {
            let now = ms(step * 10);
            while queues.iter().map(Vec::len).sum::<usize>() < 64 {
                let mirror = choice.choose(&all, RANGE, now).unwrap();
                choice.requested(mirror, RANGE, now);
                queues[mirror].push(RANGE);
            }
            for (mirror, queue) in queues.iter_mut().enumerate() {
                let mut left = rates[mirror] / 100;
                while left > 0 && !queue.is_empty() {
                    let bytes = left.min(queue[0]);
                    (left, queue[0]) = (left - bytes, queue[0] - bytes);
                    delivered[mirror] += bytes;
                    choice.arrived(mirror, bytes, now);
                    if queue[0] == 0 {
                        queue.remove(0);
                    }
                }
            }
        }
        delivered
    }

    #[test]
    fn mirrors_share_the_load_by_their_rates() {
        let equal = share(&[20_000_000, 20_000_000], 10);
        assert!(equal.iter().all(|bytes| *bytes > 190_000_000), "{equal:?}");
        let unequal = share(&[50_000_000, 10_000_000, 2_000_000], 20);
        for (bytes, rate) in unequal.iter().zip([50_000_000u64, 10_000_000, 2_000_000]) {
            assert!(*bytes > rate * 20 * 8 / 10, "{unequal:?}");
        }
    }

    #[test]
    fn a_mirror_that_stalls_gets_nothing_more_while_another_delivers() {
        let mut choice = Choice::new(2);
        for mirror in [0, 1] {
            choice.requested(mirror, 4000, ms(0));
            choice.arrived(mirror, 1000, ms(10));
        }
        for step in 1..40 {
            choice.requested(1, 1000, ms(step * 100));
            choice.arrived(1, 1000, ms(step * 100 + 50));
        }
        assert_eq!(choice.choose(&ALL[..2], 1000, ms(4000)), Some(1));
    }

    #[test]
    fn a_mirror_that_fails_rests_and_is_dropped_in_the_end() {
        let mut choice = Choice::new(2);
        let all = &ALL[..2];
        // All ranges of a lost lane.
        for _ in 0..8 {
            assert_eq!(choice.failed(0, true, all, ms(0)), Failed::Rests);
        }
        assert_eq!(choice.choose(all, 1, ms(999)), Some(1));
        choice.requested(1, 10, ms(1000));
        assert_eq!(choice.choose(all, 1, ms(1000)), Some(0), "it is tried again");
        assert_eq!(choice.failed(0, true, all, ms(1000)), Failed::Rests);
        assert_eq!(choice.choose(all, 1, ms(2999)), Some(1));
        assert_eq!(choice.failed(0, true, all, ms(3000)), Failed::Dropped);
        assert!(choice.is_dropped(0));
        assert_eq!(choice.failed(1, true, all, ms(3000)), Failed::Alone);
        assert_eq!(choice.failed(1, false, all, ms(3000)), Failed::Alone, "the last one stays");
        assert_eq!(choice.choose(all, 1, ms(3000)), Some(1));
    }

    #[test]
    fn arriving_bytes_end_a_row_of_failures() {
        let mut choice = Choice::new(2);
        for second in 0..9 {
            let now = ms(second * 5000);
            assert_eq!(choice.failed(0, true, &ALL[..2], now), Failed::Rests);
            choice.requested(0, 1, now);
            choice.arrived(0, 1, now);
        }
    }

    #[test]
    fn a_mirror_is_dropped_at_once_if_a_retry_cannot_help() {
        let mut choice = Choice::new(3);
        assert_eq!(choice.failed(1, false, &ALL, ms(0)), Failed::Dropped);
        assert_eq!(choice.failed(0, false, &ALL[..2], ms(0)), Failed::Alone, "2 is not open");
    }

    #[test]
    fn a_silent_mirror_is_stalled_if_another_one_delivers() {
        let mut choice = Choice::new(2);
        let all = &ALL[..2];
        choice.requested(0, 10, ms(0));
        assert!(
            !choice.is_stalled(0, all, ms(10_000), ms(20_000)),
            "nothing was requested from the other one"
        );
        choice.requested(1, 10, ms(0));
        choice.arrived(1, 10, ms(10));
        assert!(!choice.is_stalled(0, all, ms(10_000), ms(9_999)));
        assert!(choice.is_stalled(0, all, ms(10_000), ms(10_000)));
        choice.arrived(0, 1, ms(10_000));
        assert!(!choice.is_stalled(0, all, ms(10_000), ms(11_000)));
        assert!(!choice.is_stalled(0, &[0], ms(10_000), ms(90_000)), "there is no other");
    }

    #[test]
    fn a_mirror_that_drips_is_outpaced_by_one_that_is_far_faster() {
        const SPAN: Duration = ms(5000);
        let mut choice = Choice::new(2);
        let all = &ALL[..2];
        for mirror in [0, 1] {
            choice.requested(mirror, 1 << 20, ms(0));
            choice.arrived(mirror, 500_000, ms(500));
        }
        choice.arrived(1, (1 << 20) - 500_000, ms(1000));
        for step in 1..20 {
            choice.arrived(0, 1, ms(500 + step * 500));
        }
        let left = (1 << 20) - 500_019;
        let outpaced = |choice: &Choice, among: &[usize], now| {
            choice.is_outpaced(0, among, left, (2.0, SPAN), now)
        };
        assert!(outpaced(&choice, all, ms(10_000)));
        assert!(!outpaced(&choice, &[0], ms(10_000)), "there is no other");
        assert!(!outpaced(&choice, all, ms(15_000)), "it is silent");
        assert!(!choice.is_outpaced(0, all, 9, (2.0, SPAN), ms(10_000)), "it is about to end");
        let from_disk = (left as f64, SPAN);
        assert!(!choice.is_outpaced(0, all, left, from_disk, ms(10_000)), "the writer is slow");
        choice.requested(1, 1 << 40, ms(10_000));
        choice.arrived(1, 500_000, ms(10_500));
        choice.arrived(0, 1, ms(10_500));
        assert!(!outpaced(&choice, all, ms(10_500)), "the other one is busy");
    }

    /// Formerly, two mirrors that failed in turns were tried without a pause.
    #[test]
    fn when_all_rest_the_caller_has_to_wait() {
        let mut choice = Choice::new(2);
        let all = &ALL[..2];
        assert_eq!(choice.failed(0, true, all, ms(0)), Failed::Rests);
        assert_eq!(choice.failed(1, true, all, ms(10)), Failed::Alone);
        assert_eq!(choice.choose(all, 1, ms(20)), Some(0), "its rest ends first");
    }
}
