//! The trickle: a short path on which each lane carries little, second after second, as when a server
//! gives each connection so much and no more. Rounds cannot tell, as such servers send in bursts with
//! silence between them, and what was asked for before takes seconds to come. More lanes are tried at
//! once, and given back where they bring nothing.

use std::time::Duration;

use super::bounds::{Bounds, SLOW_LANE};
use super::lanes::Lanes;
use super::meter::Filling;

/// How long it is looked at: nginx sends what `limit_rate` allows about once a second.
const SPELL: Duration = Duration::from_secs(1);

/// By how much goodput has to grow for more lanes to stay.
const WORTH_MORE_LANES: f64 = 1.25;

/// Less than so many seconds from the end, new lanes would come too late.
const LATE: f64 = 2.0;

/// Pause after lanes that brought nothing; doubles each time, up to 64 times. The first may have been
/// compared with a second that was not slow from its beginning.
const PAUSE: Duration = Duration::from_secs(2);
const MOST_DOUBLINGS: u32 = 6;

/// What a slow lane carries in this part of a second is enough for it to be asked for at a time: the rest
/// is for others.
const SLOW_RANGES: f64 = 4.0;

#[derive(Debug, Clone, Default)]
pub(super) struct Trickle {
    /// When the spell under way began; `None` before the first bytes.
    since: Option<Duration>,
    bytes: u64,
    /// Nothing is known of the lanes while the window is not full.
    filling: Filling,
    /// Bytes in flight when some arrived last.
    in_flight: u64,
    /// The longest that ranges are to be, while lanes are slow.
    most_range: Option<u64>,
    /// Lanes before they were made more, and what they carried.
    fewer: Option<(usize, f64)>,
    quiet_until: Duration,
    futile: u32,
}

impl Trickle {
    /// So many bytes have arrived, and so many are left on their way.
    pub(super) fn on_progress(&mut self, now: Duration, bytes: u64, in_flight: u64) {
        self.in_flight = in_flight;
        if self.since.is_none() {
            self.since = Some(now);
            return;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.filling.tell(bytes, in_flight);
    }

    /// What was seen says nothing: something failed, or the lanes are somebody else's for now.
    pub(super) fn spoil(&mut self, now: Duration) {
        self.begin(self.since.map(|_| now));
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
        let spell = now.checked_sub(self.since?)?;
        if self.filling.is_unknown() && self.in_flight == 0 {
            // Nothing was asked for. It goes on when something is.
            self.begin(None);
        }
        if spell < SPELL || self.filling.is_unknown() {
            return None;
        }
        let rate = self.bytes as f64 / spell.as_secs_f64();
        let full = self.filling.was_full(window);
        self.begin(Some(now));
        let open = lanes.open();
        if rate >= SLOW_LANE * open as f64 {
            (self.fewer, self.most_range, self.futile) = (None, None, 0);
            return None;
        }
        if !full || lanes.opening(now) {
            return None;
        }
        self.most_range = None;
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
        self.most_range = Some((rate / open as f64 / SLOW_RANGES) as u64);
        lanes.want(more, now);
        // As much for each as others have, as what waits for room is as large as what they got.
        let share = self.in_flight / open as u64;
        let new = more.saturating_sub(open);
        Some(self.in_flight + (share * new as u64).max(Bounds::room_for(new)))
    }

    /// The longest that ranges are to be.
    pub(super) const fn most_range(&self) -> Option<u64> {
        self.most_range
    }

    fn begin(&mut self, since: Option<Duration>) {
        self.since = since;
        (self.bytes, self.filling) = (0, Filling::default());
    }
}
