//! A link of limited speed: when do bytes come out that go in now?
//!
//! Bytes go through one after the other, as over a wire. The clock only computes; the waiting is
//! done in the line, where what goes in gets the moment at which it comes out.

use std::time::{Duration, Instant};

/// So much may be inside a link ahead of time. It makes up for a proxy that wakes up late; the
/// limits of speed hold all the same, for nothing comes out early.
const AHEAD: Duration = Duration::from_millis(20);

/// Portions are so small that a link passes at least so many of them in a second: bytes come out
/// in a stream and not in gushes.
const PORTIONS_PER_SECOND: u64 = 200;

/// Up to when a link is busy.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Clock {
    free_at: Option<Instant>,
}

impl Clock {
    /// Sends `bytes` that are there at `arrival` over the link, and says when the last is through.
    pub(crate) fn pass(&mut self, rate: u64, bytes: usize, arrival: Instant) -> Instant {
        let start = self.free_at.map_or(arrival, |free| free.max(arrival));
        let nanos = (bytes as u128 * 1_000_000_000).div_ceil(u128::from(rate.max(1)));
        let end = start + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.free_at = Some(end);
        end
    }

    /// When the next portion may go in. What is past means now.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.free_at.and_then(|free| free.checked_sub(AHEAD))
    }
}

/// How many bytes go in at once.
pub(crate) fn portion(rate: u64) -> usize {
    usize::try_from(rate / PORTIONS_PER_SECOND).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_as_long_as_the_rate_says_also_the_first() {
        let start = Instant::now();
        let mut clock = Clock::default();
        assert_eq!(clock.pass(1000, 1, start), start + Duration::from_millis(1));
        assert_eq!(clock.pass(1000, 500, start), start + Duration::from_millis(501));
    }

    #[test]
    fn what_was_not_used_is_lost() {
        let start = Instant::now();
        let later = start + Duration::from_secs(5);
        let mut clock = Clock::default();
        clock.pass(1000, 10, start);
        assert_eq!(clock.pass(1000, 10, later), later + Duration::from_millis(10));
    }

    #[test]
    fn portions_are_never_empty_and_the_greatest_rate_is_none_at_all() {
        assert_eq!(portion(1), 1);
        assert_eq!(portion(100_000), 500);
        let start = Instant::now();
        assert!(Clock::default().pass(u64::MAX, 1, start) <= start + Duration::from_nanos(1));
    }
}
