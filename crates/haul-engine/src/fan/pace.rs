//! How long a host that is ahead may wait for those that are close behind it.
//!
//! Waiting keeps hosts of nearly the same speed together, so that what one reads is still there for
//! the other. It is worth little against a host that is simply slow, and nobody can tell the two
//! apart at once; so the time that a host waits is bounded as a share of all time, whatever for.

use std::time::Duration;

/// One part in so many of its time a host may wait for others: 6 %. Speeds that differ by more than
/// that come apart, and the slower host reads for itself.
const SHARE: u32 = 16;

/// What is saved up at most, and so the longest wait.
const MOST_SAVED: Duration = Duration::from_millis(500);

/// No wait begins with less. A shorter one would slow nobody: what is in flight goes on meanwhile,
/// and the window is filled again in no time.
const LEAST: Duration = Duration::from_millis(200);

/// Timers are no finer than this.
const TIMER: Duration = Duration::from_millis(1);

/// A host that was given nothing for so long is not waited for: it is stalled, or has enough.
const STALLED: Duration = Duration::from_millis(200);

/// A host that gets less than this share of what who is ahead gets is slow, and not waited for.
const LEAST_PACE: f64 = 0.75;

/// What was given to a host counts for about so long.
const REMEMBERED: Duration = Duration::from_secs(4);

/// What a host was given lately.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pace {
    bytes: f64,
    at: Duration,
}

impl Pace {
    /// It was given so many bytes.
    pub fn given(&mut self, bytes: u64, now: Duration) {
        self.bytes = self.lately(now) + bytes as f64;
        self.at = now;
    }

    /// Whether it keeps up, nearly, with `ahead`.
    pub fn is_near(&self, ahead: &Self, now: Duration) -> bool {
        let moves = self.bytes > 0.0 && self.at + STALLED >= now;
        moves && self.lately(now) >= ahead.lately(now) * LEAST_PACE
    }

    fn lately(&self, now: Duration) -> f64 {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.bytes * (-passed / REMEMBERED.as_secs_f64()).exp()
    }
}

/// Time that a host may yet spend waiting. Times are since the fan began.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    saved: Duration,
    counted_at: Duration,
    /// Reads of this host that wait now. That several of them wait costs no more than one.
    waiting: usize,
}

impl Patience {
    /// None yet.
    pub const fn new(now: Duration) -> Self {
        Self { saved: Duration::ZERO, counted_at: now, waiting: 0 }
    }

    /// How long the next wait may be; `None` if there is to be none.
    pub fn left(&mut self, now: Duration) -> Option<Duration> {
        self.count(now);
        let least = if self.is_waiting() { TIMER } else { LEAST };
        (self.saved >= least).then_some(self.saved)
    }

    /// Whether any read of this host waits.
    pub const fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// A read begins to wait.
    pub fn begin(&mut self, now: Duration) {
        self.count(now);
        self.waiting += 1;
    }

    /// A read waits no longer.
    pub fn end(&mut self, now: Duration) {
        self.count(now);
        self.waiting = self.waiting.saturating_sub(1);
    }

    fn count(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.counted_at);
        self.counted_at = now;
        let spent = if self.waiting > 0 { passed } else { Duration::ZERO };
        self.saved = (self.saved + passed / SHARE).saturating_sub(spent).min(MOST_SAVED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_host_waits_for_more_than_its_share_of_the_time() {
        let end = Duration::from_secs(60);
        let (mut now, mut waited) = (Duration::ZERO, Duration::ZERO);
        let mut patience = Patience::new(now);
        while now < end {
            match patience.left(now) {
                Some(wait) => {
                    // Two of its reads wait at the same time.
                    patience.begin(now);
                    patience.begin(now);
                    now += wait;
                    waited += wait;
                    patience.end(now);
                    patience.end(now);
                }
                None => now += Duration::from_micros(300),
            }
        }
        assert!(waited <= end / SHARE + MOST_SAVED, "{waited:?}");
        assert!(waited >= end / SHARE / 2, "{waited:?}");
    }

    #[test]
    fn a_host_is_near_that_moves_and_is_not_much_slower() {
        let pace = |bytes_per_ms: u64, end_ms: u64| {
            let mut pace = Pace::default();
            for ms in 0..end_ms {
                pace.given(bytes_per_ms, Duration::from_millis(ms));
            }
            pace
        };
        let now = Duration::from_secs(10);
        let ahead = pace(1000, 10_000);
        assert!(pace(900, 10_000).is_near(&ahead, now));
        assert!(!pace(500, 10_000).is_near(&ahead, now));
        assert!(!pace(1000, 9_700).is_near(&ahead, now), "it is stalled");
        assert!(!Pace::default().is_near(&Pace::default(), now), "it has not begun");
    }

    #[test]
    fn patience_is_not_saved_up_for_ever() {
        let mut patience = Patience::new(Duration::ZERO);
        let begin = Duration::from_secs(3600);
        let mut now = begin;
        while let Some(wait) = patience.left(now) {
            patience.begin(now);
            now += wait;
            patience.end(now);
        }
        assert!(now - begin <= MOST_SAVED * 17 / 15, "{:?}", now - begin);
    }
}
