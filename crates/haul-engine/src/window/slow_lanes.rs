//! Slow lanes: a short path on which each lane carries little, second after second, as when a server
//! gives each connection so much and no more. Rounds cannot tell, as such servers send in bursts with
//! silence between them, and what was asked for before takes seconds to come. More lanes are tried at
//! once, and given back where they bring nothing.

use std::time::Duration;

use super::bounds::{Bounds, SLOW_LANE};
use super::lanes::Lanes;
use super::meter::Filling;
use super::shorter::Shorter;

/// How long it is looked at: nginx sends what `limit_rate` allows about once a second.
const SPELL: Duration = Duration::from_secs(1);

/// Lanes that open sooner after a spell has begun count as if they had been there.
const IN_TIME: Duration = Duration::from_millis(250);

/// A second has a burst in it: nginx lets the first second's worth of an answer pass at once, and a lane
/// with a limit of 1 MiB/s carried 4.2 MB/s.
const SLOW: f64 = 2.0 * SLOW_LANE;

/// By how much goodput has to grow for more lanes to stay.
const WORTH_MORE_LANES: f64 = 1.25;

/// Less than so many seconds from the end, new lanes would come too late.
const LATE: f64 = 2.0;

/// Pause after lanes that brought nothing; doubles each time, up to 64 times. The first may have been
/// compared with a second that was not slow from its beginning.
const PAUSE: Duration = Duration::from_secs(2);
const MOST_DOUBLINGS: u32 = 6;

#[derive(Debug, Clone, Default)]
pub(super) struct SlowLanes {
    /// When the spell under way began.
    begun: Duration,
    /// When something arrived last before it; `None` before the first bytes.
    since: Option<Duration>,
    /// When something arrived last.
    last: Duration,
    bytes: u64,
    /// Lanes that were open when it began.
    open: usize,
    /// Whether lanes were slow in the last spell that tells.
    slow: bool,
    /// Nothing is known of the lanes while the window is not full.
    filling: Filling,
    /// Bytes in flight when some arrived last.
    in_flight: u64,
    /// The smallest window of the spell.
    window: Option<u64>,
    ranges: Shorter,
    /// Lanes before they were made more, and what they carried.
    fewer: Option<(usize, f64)>,
    quiet_until: Duration,
    futile: u32,
}

impl SlowLanes {
    /// So many bytes have arrived, and so many are left on their way.
    pub(super) fn on_progress(&mut self, now: Duration, bytes: u64, in_flight: u64) {
        self.in_flight = in_flight;
        self.last = now;
        if self.since.is_none() {
            (self.since, self.begun) = (Some(now), now);
            return;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.filling.tell(bytes, in_flight);
    }

    /// What was seen says nothing: something failed, or the path is long.
    pub(super) fn spoil(&mut self, now: Duration) {
        self.begin(self.since.map(|_| now), now);
    }

    /// Looks at the spell, if it is over, and asks for more lanes, or for those there were before.
    /// Gives the window that new lanes need to find something to do.
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
            // Nothing was asked for. It goes on when something is.
            self.begin(None, now);
        }
        if now.saturating_sub(self.begun) < SPELL || self.filling.is_unknown() {
            return None;
        }
        // Between two arrivals, wherever in a burst or between two the spell ended.
        let ended = if now.saturating_sub(self.last) < SPELL { self.last } else { now };
        let rate = self.bytes as f64 / ended.saturating_sub(since).as_secs_f64().max(1e-3);
        // What is asked for because the window has grown may come to lie behind all the rest.
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
        // As much for each as others have, as what waits for room is as large as what they got.
        let share = self.in_flight / open as u64;
        let new = more.saturating_sub(open);
        Some(self.in_flight + (share * new as u64).max(Bounds::room_for(new)))
    }

    /// Whether lanes carried little in the last second: nothing shorter tells how many there should be.
    pub(super) const fn is_slow(&self) -> bool {
        self.slow
    }

    /// The longest that ranges are to be.
    pub(super) const fn most_range(&self) -> Option<u64> {
        self.ranges.most()
    }

    fn begin(&mut self, since: Option<Duration>, now: Duration) {
        (self.since, self.begun) = (since, now);
        (self.bytes, self.filling, self.window) = (0, Filling::default(), None);
    }
}
