//! `--bwlimit`: a token bucket without I/O.

use std::time::Duration;

/// Lets at most so many bytes per second pass, on average over a quarter of a second.
#[derive(Debug)]
pub struct Limiter {
    bytes_per_second: u64,
    /// When the bytes let through so far will have been paid for.
    paid_until: Duration,
}

impl Limiter {
    const BURST: Duration = Duration::from_millis(250);

    /// A bucket that is full at the start.
    pub fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second: bytes_per_second.max(1), paid_until: Duration::ZERO }
    }

    /// Takes `bytes` at time `now`, and says how long to wait before they may move.
    pub fn take(&mut self, now: Duration, bytes: u64) -> Duration {
        let start = self.paid_until.max(now.saturating_sub(Self::BURST));
        let cost = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        self.paid_until = start + cost;
        start.saturating_sub(now)
    }

    /// The longest range that does not clot the limit: what passes in a quarter of a second.
    pub fn range_bytes(&self) -> u64 {
        (self.bytes_per_second / 4).max(64 << 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_keeps_the_limit() {
        let mut limiter = Limiter::new(1 << 20);
        let mut now = Duration::ZERO;
        for _ in 0..100 {
            now += limiter.take(now, 256 << 10);
        }
        let expected = 100.0 * 0.25;
        assert!((now.as_secs_f64() - expected).abs() < 0.6, "{now:?}");
    }

    #[test]
    fn time_without_traffic_is_not_saved_up() {
        let mut limiter = Limiter::new(1 << 20);
        let later = Duration::from_secs(3600);
        assert_eq!(limiter.take(later, 1 << 20), Duration::ZERO);
        assert!(limiter.take(later, 1) >= Duration::from_millis(700));
    }
}
