//! How much a lane carries.

use std::time::{Duration, Instant};

/// On a short path what a lane carries is measured over this time.
const LEAST_ROUND: Duration = Duration::from_millis(10);

/// What a lane carries in a round trip.
#[derive(Debug)]
pub struct Pace {
    began: Instant,
    /// In this round trip, and in the last one that is over.
    carried: u64,
    before: u64,
}

impl Pace {
    /// Of a lane that begins now.
    pub fn new() -> Self {
        Self { began: Instant::now(), carried: 0, before: 0 }
    }

    /// Counts what was carried; gives what is carried in a round trip.
    pub fn carry(&mut self, bytes: u64, rtt: Duration) -> u64 {
        let now = Instant::now();
        let round = rtt.clamp(LEAST_ROUND, Duration::from_secs(1));
        if now.duration_since(self.began) >= round {
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
