//! Slow lanes: a short path on which each lane carries little, second after second, as when a server
//! limits the rate of each connection. Rounds (of `meter`: an RTT, 10 ms at least) cannot show
//! that, as such servers send in bursts with silence between them, and what was requested earlier takes
//! seconds to arrive. More lanes are tried at once, and closed if they gain nothing.

use std::time::Duration;

use super::bounds::{Bounds, SLOW_LANE};
use super::lanes::Lanes;
use super::meter::Filling;
use super::shorter::Shorter;

/// How long a measurement lasts: nginx sends what `limit_rate` allows about once a second.
const MEASURED_OVER: Duration = Duration::from_secs(1);

/// Lanes that open sooner than this after the beginning of a measurement count for all of it.
const IN_TIME: Duration = Duration::from_millis(250);

/// Bytes per second below which a lane is slow. A second may contain a burst: nginx sends the first second's
/// worth of a response at once, and a lane with a limit of 1 MiB/s carried 4.2 MB/s.
const SLOW: f64 = 2.0 * SLOW_LANE;

/// The factor by which goodput has to grow for more lanes to stay.
const WORTH_MORE_LANES: f64 = 1.25;

/// With less than this many seconds left, new lanes would come too late.
const LATE: f64 = 2.0;

/// Pause after lanes that gained nothing; doubles each time, up to 64 times as long. It begins short, as the
/// first trial may have been compared with a second that was not slow from its beginning.
const PAUSE: Duration = Duration::from_secs(2);
const MOST_DOUBLINGS: u32 = 6;

#[derive(Debug, Clone, Default)]
pub(super) struct SlowLanes {
    /// When the current measurement began.
    begun: Duration,
    /// When bytes last arrived before it; `None` before the first bytes.
    since: Option<Duration>,
    /// When bytes last arrived.
    last: Duration,
    bytes: u64,
    /// Lanes that were open at the last check; a change later than `IN_TIME` begins a new measurement.
    open: usize,
    /// Whether lanes were slow in the last conclusive measurement.
    slow: bool,
    /// How full the window was: if it was not full, a low rate does not show that lanes are slow.
    filling: Filling,
    /// Bytes in flight when some last arrived.
    in_flight: u64,
    /// The smallest window of the measurement.
    window: Option<u64>,
    ranges: Shorter,
    /// The number of lanes before more were tried, and their goodput.
    fewer: Option<(usize, f64)>,
    quiet_until: Duration,
    futile: u32,
}

impl SlowLanes {
    /// `bytes` have arrived, and `in_flight` are left in flight.
    pub(super) fn on_progress(&mut self, now: Duration, bytes: u64, in_flight: u64) {
        self.in_flight = in_flight;
        self.last = now;
        if self.since.is_none() {
            (self.since, self.begun) = (Some(now), now);
            return;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.filling.add(bytes, in_flight);
    }

    /// Discards the current measurement: something failed, there was no work, or the path is long.
    pub(super) fn spoil(&mut self, now: Duration) {
        self.begin(self.since.map(|_| now), now);
    }

    /// Judges the measurement if it is over, and requests more lanes, or the number before. Returns the window that
    /// new lanes need to have work.
    pub(super) fn judge(
        &mut self,
        now: Duration,
        window: u64,
        left: Option<u64>,
        lanes: &mut Lanes,
        bounds: &Bounds,
    ) -> Option<u64> {
        let since = self.since?;
        let open = lanes.open();
        let changed = std::mem::replace(&mut self.open, open) != open;
        if changed && now.saturating_sub(self.begun) > IN_TIME {
            self.begin(Some(self.last), now);
        }
        let least = self.window.map_or(window, |known| known.min(window));
        self.window = Some(least);
        if self.filling.is_unknown() && self.in_flight == 0 {
            // Nothing is in flight. The measurement begins with the next arrival.
            self.begin(None, now);
        }
        if now.saturating_sub(self.begun) < MEASURED_OVER || self.filling.is_unknown() {
            return None;
        }
        // Measured between two arrivals, so that it does not matter where in a burst the measurement ended.
        let ended = if now.saturating_sub(self.last) < MEASURED_OVER { self.last } else { now };
        let rate = self.bytes as f64 / ended.saturating_sub(since).as_secs_f64().max(1e-3);
        // Requests made because the window has grown may wait behind all others.
        let full = self.filling.was_full(least);
        self.begin(Some(ended), now);
        if rate >= SLOW * open as f64 {
            (self.slow, self.fewer, self.futile) = (false, None, 0);
            self.ranges.on_fast(now);
            return None;
        }
        if !full || lanes.opening(now) {
            return None;
        }
        self.slow = true;
        self.ranges.on_slow(now, rate / open as f64);
        if let Some((fewer, before)) = self.fewer.take() {
            if rate < before * WORTH_MORE_LANES {
                lanes.want(fewer, now);
                self.quiet_until = now + PAUSE * 2u32.pow(self.futile.min(MOST_DOUBLINGS));
                self.futile += 1;
                return None;
            }
            self.futile = 0;
        }
        let late = left.is_some_and(|left| (left as f64) < rate * LATE);
        if now < self.quiet_until || late {
            return None;
        }
        let more = lanes.next_step(now, bounds)?;
        self.fewer = Some((lanes.wanted(), rate));
        lanes.want(more, now);
        // Each new lane gets as much as the others have: the ranges that wait are as large as theirs.
        let share = self.in_flight / open as u64;
        let new = more.saturating_sub(open);
        Some(self.in_flight + (share * new as u64).max(Bounds::room_for(new)))
    }

    /// Whether lanes were slow in the last conclusive measurement. If so, shorter ones cannot judge their
    /// number.
    pub(super) const fn is_slow(&self) -> bool {
        self.slow
    }

    /// The longest range, if limited.
    pub(super) const fn most_range(&self) -> Option<u64> {
        self.ranges.most()
    }

    fn begin(&mut self, since: Option<Duration>, now: Duration) {
        (self.since, self.begun) = (since, now);
        (self.bytes, self.filling, self.window) = (0, Filling::default(), None);
    }
}
