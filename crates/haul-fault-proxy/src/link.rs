//! A link of limited rate: computes when bytes that enter now will leave it.
//!
//! Bytes pass one after the other, as over a wire. The clock only computes; the bytes wait in `line`, where they are
//! queued with the time at which they leave the link.

use std::time::{Duration, Instant};

/// How far ahead of time bytes may enter a link. This compensates for a proxy that wakes up late. The rate is exact
/// nevertheless, since nothing leaves early.
const AHEAD: Duration = Duration::from_millis(20);

/// Bytes pass in portions, this many per second at full rate, so that they leave in a steady stream.
const PORTIONS_PER_SECOND: u64 = 200;

/// The time until which a link is busy.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clock {
    free_at: Option<Instant>,
}

impl Clock {
    /// Sends `bytes` that are available at `arrival` over a link of `rate` bytes per second. Returns when the last one
    /// has passed.
    pub(crate) fn pass(&mut self, rate: u64, bytes: usize, arrival: Instant) -> Instant {
        let start = self.free_at.map_or(arrival, |free| free.max(arrival));
        let nanos = (bytes as u128 * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
        let end = start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.free_at = Some(end);
        end
    }

    /// When the next portion may enter. `None` or a time in the past means now.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.free_at.and_then(|free| free.checked_sub(AHEAD))
    }
}

/// The bytes of a portion at `rate` bytes per second, at least 1.
pub(crate) fn portion(rate: u64) -> usize {
    usize::try_from(rate / PORTIONS_PER_SECOND).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_takes_transmission_time_including_the_first() {
        let start = Instant::now();
        let mut clock = Clock::default();
        assert_eq!(clock.pass(1000, 1, start), start + Duration::from_millis(1));
        assert_eq!(clock.pass(1000, 500, start), start + Duration::from_millis(501));
    }

    #[test]
    fn idle_time_gives_no_credit() {
        let start = Instant::now();
        let later = start + Duration::from_secs(5);
        let mut clock = Clock::default();
        clock.pass(1000, 10, start);
        assert_eq!(clock.pass(1000, 10, later), later + Duration::from_millis(10));
    }

    #[test]
    fn portions_are_never_empty_and_the_highest_rate_takes_at_most_a_nanosecond() {
        assert_eq!(portion(1), 1);
        assert_eq!(portion(100_000), 500);
        let start = Instant::now();
        assert!(Clock::default().pass(u64::MAX, 1, start) <= start + Duration::from_nanos(1));
    }
}
