//! `--bwlimit`: a token bucket without I/O.
//!
//! Bytes are paid for before they move, and refunded if they do not move after all. So the average is right
//! for all lengths, from a file of a few bytes to a range longer than a second's worth.

use std::time::Duration;

use crate::schedule::ALIGNMENT;

/// Limits bytes per second.
#[derive(Debug)]
pub struct Limiter {
    bytes_per_second: u64,
    /// When the bytes taken so far will have passed, at the limit.
    paid_until: Duration,
    /// Time spent waiting for bytes that were then refunded: not idle time, so it may be caught up with.
    waited_in_vain: Duration,
}

impl Limiter {
    /// The idle time that may be caught up with.
    const BURST: Duration = Duration::from_millis(250);

    /// A bucket that is empty at the start.
    pub fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second: bytes_per_second.max(1),
            paid_until: Duration::ZERO,
            waited_in_vain: Duration::ZERO,
        }
    }

    /// Takes `bytes` at time `now`; returns how long to wait before they may move.
    pub fn take(&mut self, now: Duration, bytes: u64) -> Duration {
        let caught_up = Self::BURST.saturating_add(self.waited_in_vain);
        let start = self.paid_until.max(now.saturating_sub(caught_up));
        self.paid_until = start.saturating_add(self.cost(bytes));
        self.waited_in_vain = self.waited_in_vain.min(now.saturating_sub(self.paid_until));
        self.paid_until.saturating_sub(now)
    }

    /// Refunds `bytes` that were taken and do not move after all.
    pub fn refund(&mut self, bytes: u64) {
        let cost = self.cost(bytes);
        self.paid_until = self.paid_until.saturating_sub(cost);
        self.waited_in_vain = self.waited_in_vain.saturating_add(cost);
    }

    /// The longest range that moves smoothly: the bytes of a quarter of a second, in multiples of the
    /// schedule's alignment.
    pub fn range_bytes(&self) -> u64 {
        (self.bytes_per_second / 4 / ALIGNMENT * ALIGNMENT).max(ALIGNMENT)
    }

    fn cost(&self, bytes: u64) -> Duration {
        // An unlimited length takes unlimited time.
        let seconds = bytes as f64 / self.bytes_per_second as f64;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The rate at which `pieces` pass when each is taken once the one before has passed.
    fn rate(limit: u64, pieces: impl Iterator<Item = u64>) -> f64 {
        let mut limiter = Limiter::new(limit);
        let (mut now, mut total) = (Duration::ZERO, 0);
        for bytes in pieces {
            now += limiter.take(now, bytes);
            total += bytes;
        }
        total as f64 / now.as_secs_f64()
    }

    proptest! {
        #[test]
        fn the_average_is_the_limit_for_all_lengths(
            limit in 10_240_u64..1 << 30,
            pieces in prop::collection::vec(1_u64..4 << 20, 1..200),
        ) {
            let rate = rate(limit, pieces.into_iter());
            prop_assert!((rate / limit as f64 - 1.0).abs() < 0.001, "{} of {}", rate, limit);
        }

        #[test]
        fn refunded_bytes_cost_nothing(
            limit in 10_240_u64..1 << 30,
            pieces in prop::collection::vec((1_u64..4 << 20, 0_u64..4 << 20), 1..200),
        ) {
            let mut limiter = Limiter::new(limit);
            let (mut now, mut total) = (Duration::ZERO, 0);
            for (bytes, unused) in pieces {
                limiter.take(now, bytes);
                // Bytes that do not move are known at once; the others are waited for.
                limiter.refund(unused.min(bytes));
                now = now.max(limiter.paid_until);
                total += bytes - unused.min(bytes);
            }
            let wanted = total as f64 / limit as f64;
            prop_assert!((now.as_secs_f64() - wanted).abs() < 0.001, "{:?}", now);
        }
    }

    proptest! {
        /// A read of a long range waits for all of it, and may end early.
        #[test]
        fn time_waited_in_vain_is_caught_up_with(
            limit in 10_240_u64..1 << 30,
            pieces in prop::collection::vec((1_u64..4 << 20, 0_u64..4 << 20), 1..200),
        ) {
            let mut limiter = Limiter::new(limit);
            let (mut now, mut total) = (Duration::ZERO, 0);
            for (bytes, unused) in pieces {
                now += limiter.take(now, bytes);
                limiter.refund(unused.min(bytes));
                total += bytes - unused.min(bytes);
            }
            let (wanted, paid) = (total as f64 / limit as f64, limiter.paid_until.as_secs_f64());
            prop_assert!((paid - wanted).abs() < 0.001 + wanted / 1000.0, "{paid} of {wanted}");
        }
    }

    #[test]
    fn only_a_quarter_of_a_second_without_traffic_is_saved_up() {
        let mut limiter = Limiter::new(1 << 20);
        let later = Duration::from_secs(3600);
        let wait = limiter.take(later, 1 << 20);
        assert!(
            (Duration::from_millis(749)..Duration::from_millis(751)).contains(&wait),
            "{wait:?}"
        );
    }

    #[test]
    fn ranges_take_a_quarter_of_a_second_in_multiples_of_the_alignment() {
        for (limit, range) in
            [(1, 65_536), (300_000, 65_536), (500_000, 65_536), (1 << 20, 1 << 18)]
        {
            assert_eq!(Limiter::new(limit).range_bytes(), range);
        }
    }
}
