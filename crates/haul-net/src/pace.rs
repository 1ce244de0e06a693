//! Measures how much a lane carries.

use std::time::{Duration, Instant};

/// Shortest interval of a measurement, for paths with short RTTs.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// Bytes that a lane carries per RTT.
#[derive(Debug)]
pub struct Pace {
    began: Instant,
    /// Bytes carried in the current interval, and in the one before.
    carried: u64,
    before: u64,
}

impl Pace {
    /// Starts to measure a new lane.
    pub fn new() -> Self {
        Self { began: Instant::now(), carried: 0, before: 0 }
    }

    /// Counts `bytes`; returns how many the lane carries per RTT (clamped to 10 ms to 1 s).
    pub fn carry(&mut self, bytes: u64, rtt: Duration) -> u64 {
        let now = Instant::now();
        let interval = rtt.clamp(MIN_INTERVAL, Duration::from_secs(1));
        if now.duration_since(self.began) >= interval {
            (self.before, self.carried, self.began) = (self.carried, 0, now);
        }
        self.carried += bytes;
        self.carried.max(self.before)
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self::new()
    }
}
