//! Determines whether a path is too slow for many lanes.
//!
//! TCP begins with ten packets on each lane. If many lanes begin at once on a slow path, most of these packets are
//! lost. Each lane then waits for seconds until they are retransmitted, and other packets keep the queue full
//! meanwhile. At 0.5 Mbit/s and an RTT of 300 ms, 48 lanes lost a third of all packets, and the last of them ended 20 s
//! after the others.

use std::time::{Duration, Instant};

/// Number of lanes that are used as soon as they are open. Further ones wait until the rate of the path is known.
pub const AT_ONCE: usize = 8;

/// Number of lanes for a slow path: enough to fill it, as TCP begins with ten packets in flight on each.
pub const ENOUGH_FOR_SLOW: usize = 4;

/// How long after the first bytes the rate is judged.
pub const JUDGED_AFTER: Duration = Duration::from_millis(40);

/// A path that has delivered fewer bytes by then, on all lanes, is slow: below 1.6 Mbit/s.
pub const LEAST_BYTES: u64 = 8 << 10;

/// From this rate on, in bytes per second, a path is not slow any more.
const FAST: f64 = 400e3;

/// Time over which a rate is measured.
const MEASURED_OVER: Duration = Duration::from_secs(1);

/// The judgement on a path.
#[derive(Debug, Default)]
pub struct Speed {
    judged: Option<Judged>,
}

#[derive(Debug, Clone, Copy)]
struct Judged {
    first: Instant,
    is_slow: bool,
    since: Instant,
    arrived: u64,
}

impl Speed {
    /// When the path was first judged.
    pub fn first_judged(&self) -> Option<Instant> {
        self.judged.map(|judged| judged.first)
    }

    /// Whether the path is known to be slow.
    pub fn is_slow(&self) -> bool {
        self.judged.is_some_and(|judged| judged.is_slow)
    }

    /// Makes the first judgement, [`JUDGED_AFTER`] after the first bytes. `arrived` is the number of bytes received on
    /// all lanes, `before` what it was before these. Further calls have no effect.
    pub fn judge(&mut self, now: Instant, before: u64, arrived: u64) {
        let is_slow = arrived.saturating_sub(before) < LEAST_BYTES;
        self.judged.get_or_insert(Judged { first: now, is_slow, since: now, arrived });
    }

    /// Updates the judgement of a slow path; `arrived` is the number of bytes received since the beginning.
    pub fn arrived(&mut self, now: Instant, arrived: u64) {
        let Some(judged) = self.judged.as_mut().filter(|judged| judged.is_slow) else { return };
        let passed = now.duration_since(judged.since);
        if passed >= MEASURED_OVER {
            let bytes = arrived.saturating_sub(judged.arrived);
            judged.is_slow = (bytes as f64) < FAST * passed.as_secs_f64();
            (judged.since, judged.arrived) = (now, arrived);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_slow_until_it_delivers_more() {
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        let mut speed = Speed::default();
        assert!(!speed.is_slow() && speed.first_judged().is_none());
        speed.judge(at(0), 9000, 12_000);
        speed.judge(at(1), 9000, 1 << 20);
        assert!(speed.is_slow(), "the first judgement counts");
        speed.arrived(at(500), 10 << 20);
        assert!(speed.is_slow(), "not before a second has passed");
        speed.arrived(at(1000), 60_000);
        assert!(speed.is_slow());
        speed.arrived(at(2000), 600_000);
        assert!(!speed.is_slow());
    }

    #[test]
    fn a_path_that_delivers_at_once_is_not_slow() {
        let mut speed = Speed::default();
        speed.judge(Instant::now(), 0, 14_000);
        assert!(!speed.is_slow());
    }
}
