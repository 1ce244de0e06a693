//! The meter: turns arriving bytes into one sample of goodput per round.

use std::time::Duration;

/// The shortest round. On a LAN an RTT is too short to measure anything but the scheduler of the operating
/// system.
pub(super) const SHORTEST_ROUND: Duration = Duration::from_millis(10);

/// A round with fewer deliveries than this is prolonged, ...
const LEAST_DELIVERIES: u32 = 8;

/// ... up to this many times its usual length.
const LONGEST_ROUND: u32 = 10;

/// A window that is filled to this part on average counts as full: one more range may not fit.
const FULL: f64 = 0.6;

/// How full the window was, on average over arrivals.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Filling {
    in_flight: f64,
    count: u32,
}

impl Filling {
    /// `bytes` have arrived, and `in_flight` are left in flight.
    pub(super) fn add(&mut self, bytes: u64, in_flight: u64) {
        self.in_flight += in_flight.saturating_add(bytes) as f64;
        self.count = self.count.saturating_add(1);
    }

    /// Whether nothing has arrived.
    pub(super) const fn is_unknown(&self) -> bool {
        self.count == 0
    }

    /// Whether the window was full on average.
    pub(super) fn was_full(&self, window: u64) -> bool {
        self.in_flight >= FULL * window as f64 * f64::from(self.count)
    }
}

/// The measurements of one round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// Bytes per second.
    pub(super) goodput: f64,
    /// Whether it shows what the link carries: there was work for the whole window, and nothing spoiled the round.
    pub(super) judged: bool,
    /// Ranges that were completed.
    pub(super) completions: u32,
    /// Bytes of those ranges.
    pub(super) completed_bytes: u64,
    /// Length of the round in seconds.
    pub(super) seconds: f64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Meter {
    /// When the round began: at the last delivery before it, or when a silence ended the round before. `None`
    /// before the first delivery, and after a round without any.
    started: Option<Duration>,
    last_delivery: Duration,
    bytes: u64,
    deliveries: u32,
    completions: u32,
    completed_bytes: u64,
    /// Bytes reported as progress whose range has not been completed.
    ahead: u64,
    filling: Filling,
    starved: bool,
    has_idle_lane: bool,
    spoiled: bool,
}

impl Meter {
    pub(super) fn progress(&mut self, now: Duration, bytes: u64, in_flight: u64) {
        self.ahead = self.ahead.saturating_add(bytes);
        self.filling.add(bytes, in_flight);
        self.deliver(now, bytes);
    }

    /// Counts a range that has arrived; returns the bytes that were not reported as progress.
    pub(super) fn complete(&mut self, now: Duration, bytes: u64) -> u64 {
        let already_counted = self.ahead.min(bytes);
        self.ahead -= already_counted;
        self.completions = self.completions.saturating_add(1);
        self.completed_bytes = self.completed_bytes.saturating_add(bytes);
        if bytes > already_counted {
            self.deliver(now, bytes - already_counted);
        }
        bytes - already_counted
    }

    /// There was room but no work, at least for a moment.
    pub(super) fn starve(&mut self) {
        self.starved = true;
    }

    /// A lane had nothing to read, at least for a moment.
    pub(super) fn idle_lane(&mut self) {
        self.has_idle_lane = true;
    }

    /// Whether there was work for the whole window. If it bounds the bytes in flight, these decide, and a moment
    /// without work does not matter.
    fn was_full(&self, window: Option<u64>) -> bool {
        match window {
            Some(window) if !self.filling.is_unknown() => self.filling.was_full(window),
            Some(_) => !self.starved,
            None => !self.has_idle_lane,
        }
    }

    /// The current round is not to be judged.
    pub(super) fn spoil(&mut self) {
        self.spoiled = true;
    }

    fn deliver(&mut self, now: Duration, bytes: u64) {
        if self.started.is_none() {
            // Nothing is known of the time before the first delivery.
            self.started = Some(now);
            self.last_delivery = now;
            return;
        }
        self.last_delivery = now;
        self.bytes = self.bytes.saturating_add(bytes);
        self.deliveries = self.deliveries.saturating_add(1);
    }

    /// When the current round should end.
    pub(super) fn due(&self, round: Duration) -> Option<Duration> {
        let started = self.started?;
        let length =
            if self.deliveries >= LEAST_DELIVERIES { round } else { round * LONGEST_ROUND };
        Some(started.saturating_add(length))
    }

    /// Ends the round if it is over. Its rate is measured from the last delivery before it to the last one
    /// in it, so that it does not depend on where between two deliveries the round ended; unless a long
    /// silence followed, which has to count. `window` is `None` if it does not bound the bytes in flight.
    pub(super) fn take(
        &mut self,
        now: Duration,
        round: Duration,
        window: Option<u64>,
    ) -> Option<Sample> {
        if now < self.due(round)? {
            return None;
        }
        let started = self.started?;
        let silent = now.saturating_sub(self.last_delivery) > round / 4;
        let ended = if silent { now } else { self.last_delivery };
        let seconds = ended.saturating_sub(started).as_secs_f64();
        let sample = (seconds > 0.0).then(|| Sample {
            goodput: self.bytes as f64 / seconds,
            judged: !self.spoiled && self.was_full(window) && self.deliveries > 0,
            completions: self.completions,
            completed_bytes: self.completed_bytes,
            seconds,
        });
        // After a round without any delivery the next one begins with the next delivery.
        let next = (self.deliveries > 0).then_some(ended);
        *self = Self { started: next, last_delivery: ended, ahead: self.ahead, ..Self::default() };
        sample
    }
}
