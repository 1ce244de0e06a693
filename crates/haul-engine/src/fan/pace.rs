//! Decides how long a host that is ahead waits for hosts that are close behind it.
//!
//! Waiting keeps hosts of nearly the same speed together, so that bytes that one has read are still cached for the
//! others. Waiting for a host that is simply slower gains little, but the two cases cannot be told apart at once. So
//! the time that a host waits is limited to a share of the total time.

use std::time::Duration;

/// A host may wait for 1/16 of its time, 6 %. Hosts whose speeds differ by more than that drift apart, and the slower
/// one reads for itself.
const SHARE: u32 = 16;

/// Most waiting time that is saved up, and so the longest wait.
const MAX_SAVED: Duration = Duration::from_millis(500);

/// A wait begins only if this much time is saved. Shorter waits would not slow the host down: bytes in flight still
/// arrive during the wait, and afterwards the window is filled again at once.
const MIN_WAIT: Duration = Duration::from_millis(200);

/// The resolution of timers.
const TIMER: Duration = Duration::from_millis(1);

/// A host that received nothing for this long is not waited for: it is stalled, or its window is full.
const STALLED: Duration = Duration::from_millis(200);

/// A host that receives less than this share of the rate of the host ahead is slow, and not waited for.
const MIN_PACE: f64 = 0.75;

/// The time constant of the moving average of received bytes.
const REMEMBERED: Duration = Duration::from_secs(4);

/// The bytes that a host received recently.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pace {
    bytes: f64,
    at: Duration,
}

impl Pace {
    /// The host received bytes from the store.
    pub fn received(&mut self, bytes: u64, now: Duration) {
        self.bytes = self.lately(now) + bytes as f64;
        self.at = now;
    }

    /// Whether the host nearly keeps up with `ahead`.
    pub fn is_near(&self, ahead: &Self, now: Duration) -> bool {
        let moves = self.bytes > 0.0 && self.at + STALLED >= now;
        moves && self.lately(now) >= ahead.lately(now) * MIN_PACE
    }

    /// Received bytes, decayed exponentially.
    fn lately(&self, now: Duration) -> f64 {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        self.bytes * (-passed / REMEMBERED.as_secs_f64()).exp()
    }
}

/// The time that a host may still spend waiting. Times are relative to the start of the fan-out.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    saved: Duration,
    counted_at: Duration,
    /// Reads of this host that wait now. Several of them cost no more time than one.
    waiting: usize,
}

impl Patience {
    /// No time is saved yet.
    pub const fn new(now: Duration) -> Self {
        Self { saved: Duration::ZERO, counted_at: now, waiting: 0 }
    }

    /// How long the next wait may be; `None` if the host must not wait.
    pub fn left(&mut self, now: Duration) -> Option<Duration> {
        self.count(now);
        let least = if self.is_waiting() { TIMER } else { MIN_WAIT };
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

    /// A read has stopped waiting.
    pub fn end(&mut self, now: Duration) {
        self.count(now);
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// Adds the share of the time since the last call, and subtracts the time spent waiting.
    fn count(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.counted_at);
        self.counted_at = now;
        let spent = if self.waiting > 0 { passed } else { Duration::ZERO };
        self.saved = (self.saved + passed / SHARE).saturating_sub(spent).min(MAX_SAVED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_waits_for_at_most_its_share_of_the_time() {
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
        assert!(waited <= end / SHARE + MAX_SAVED, "{waited:?}");
        assert!(waited >= end / SHARE / 2, "{waited:?}");
    }

    #[test]
    fn a_host_is_near_if_it_is_neither_stalled_nor_much_slower() {
        let pace = |bytes_per_ms: u64, end_ms: u64| {
            let mut pace = Pace::default();
            for ms in 0..end_ms {
                pace.received(bytes_per_ms, Duration::from_millis(ms));
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
    fn saved_waiting_time_is_limited() {
        let mut patience = Patience::new(Duration::ZERO);
        let begin = Duration::from_secs(3600);
        let mut now = begin;
        while let Some(wait) = patience.left(now) {
            patience.begin(now);
            now += wait;
            patience.end(now);
        }
        assert!(now - begin <= MAX_SAVED * 17 / 15, "{:?}", now - begin);
    }
}
