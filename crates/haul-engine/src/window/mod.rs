//! The window: decides, from recent measurements, how many lanes are open, how many bytes may be in
//! flight, how large a range is and how many files are open at once.
//!
//! ```text
//! driver: on_link, on_progress, on_completion, on_failure, on_starved (now, observation)
//!            │
//!            ▼
//!   path  (RTTs → the RTT without a queue)
//!   meter (bytes → one sample of goodput per round) → samples → search (window, lanes) → Decision
//!   slow_lanes (bytes of a second)   → more lanes, shorter ranges
//!                                                   lanes (ceiling, patience)
//!                                                   files (files at once)
//! ```
//!
//! It does no I/O and reads no clock: `now` is the time since the window was made, real or
//! simulated. The driver reports what it observes, then reads [`Window::decision`] and calls
//! [`Window::on_timeout`] at [`Window::next_wakeup`]. It is tested on simulated links
//! (`tests/window_links`).

mod bounds;
mod files;
mod lanes;
mod limits;
mod meter;
mod path;
mod samples;
mod search;
mod shorter;
mod slow_lanes;

use std::time::Duration;

use haul_storage::{ErrorKind, LinkStatus};

use bounds::Bounds;
use files::Files;
use lanes::Lanes;
use meter::Meter;
use path::{Finding, Path};
use search::{LONG_PATH, Search, View};
use slow_lanes::SlowLanes;

pub use limits::Limits;

/// RTT assumed until one is measured: that of a short path, so that nothing is opened in bulk without a
/// reason.
const UNKNOWN_RTT: Duration = Duration::from_millis(5);

/// Least time between two reactions to errors. One lost lane fails every range on it at once.
const BACK_OFF_PAUSE: Duration = Duration::from_secs(1);

/// After this long without an error the ranges may grow back by a factor of two.
const RANGE_RECOVERY: Duration = Duration::from_secs(60);

/// What the driver should do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// Lanes to request (`Storage::set_lanes`). Grows as lanes open, so that never more than 8 are being
    /// opened.
    pub lanes: usize,
    /// Bytes that may be in flight: requested and not yet arrived.
    pub window_bytes: u64,
    /// Length of the next range in bytes.
    pub range_bytes: u64,
    /// Files that may be in flight.
    pub files: usize,
}

/// A range that has arrived completely (or, in an upload, was confirmed).
#[derive(Debug, Clone, Copy)]
pub struct Completion {
    /// Its bytes, those already reported by [`Window::on_progress`] included.
    pub bytes: u64,
    /// When it was requested.
    pub issued: Duration,
    /// When its first bytes arrived, if known. The time until then (or until all arrived) stands in for the RTT while
    /// the link knows none.
    pub first_byte: Option<Duration>,
}

/// The controller of one link. See the module's documentation.
#[derive(Debug, Clone)]
pub struct Window {
    bounds: Bounds,
    now: Duration,
    path: Path,
    /// Shortest response time; stands in for the path's RTT while the link knows none.
    quickest_response: Option<Duration>,
    meter: Meter,
    lanes: Lanes,
    search: Search,
    slow_lanes: SlowLanes,
    files: Files,
    last_back_off: Option<Duration>,
    /// Bytes that are left to move, if known.
    left: Option<u64>,
    /// Ranges are divided by two to this power, as the last resort against errors.
    range_halvings: u32,
    /// Each lane sends to the end of what was requested.
    is_of_long_reads: bool,
}

impl Window {
    /// A window for a link of which nothing is known yet: one lane and a few MiB.
    pub fn new(limits: Limits) -> Self {
        let bounds = Bounds::new(limits);
        Self {
            now: Duration::ZERO,
            path: Path::default(),
            quickest_response: None,
            meter: Meter::default(),
            lanes: Lanes::new(&bounds),
            search: Search::new(&bounds),
            slow_lanes: SlowLanes::default(),
            files: Files::new(&bounds),
            last_back_off: None,
            left: None,
            range_halvings: 0,
            is_of_long_reads: false,
            bounds,
        }
    }

    /// For a link that is written to. Call it at the start.
    #[must_use]
    pub const fn written_to(mut self) -> Self {
        self.bounds.written_to();
        self
    }

    /// For a storage whose lanes take one request at a time, like HTTP/1.1 without pipelining: ranges are as
    /// large as the window allows, and the window is several BDPs. Call it at the start.
    #[must_use]
    pub fn one_request_a_lane(mut self) -> Self {
        self.bounds.one_request_a_lane();
        self.search = Search::new(&self.bounds);
        self
    }

    /// For a storage whose lanes send to the end of what was requested: a narrower window does not make the
    /// queue of the path shorter, and shows nothing about its length. Bytes in flight do not show whether the path was
    /// full: it was unless [`Window::on_idle_lane`] was called. Call it at the start.
    #[must_use]
    pub fn of_long_reads(mut self) -> Self {
        self.path.cannot_be_drained();
        self.is_of_long_reads = true;
        self
    }

    /// For a backend that bounds the bytes on the path itself, so that the window only has to keep up
    /// with the lanes' growth: from an RTT of 100 ms on it begins with all that they can carry. It settles
    /// at 1.75 BDPs, because requests that wait at the other end are in no queue of the path. Call it at the
    /// start.
    #[must_use]
    pub const fn bounded_elsewhere(mut self) -> Self {
        self.bounds.bounded_elsewhere();
        self
    }

    /// The link has changed, or may have. Call it often: when lanes open or break, and at wake-ups.
    pub fn on_link(&mut self, now: Duration, link: LinkStatus) {
        let now = self.advance(now);
        if let Some(shortest) = link.rtt {
            let known = self.path.base();
            let settled = self.search.found(&self.bounds);
            let found = self.path.on_link(now, shortest, link.queueing, settled);
            let base = self.path.base().unwrap_or(shortest);
            self.bounds.on_rtt(base);
            if known.is_none() {
                self.lanes.want_for_path(base, &self.bounds);
                self.search.start_for_lanes(self.lanes.wanted(), base, &self.bounds);
                self.files.start_for_path(base, &self.bounds);
            }
            if let Some(found) = found {
                self.on_finding(found, base);
            }
        }
        self.lanes.on_link(now, link);
        self.search.on_new_lanes(self.lanes.open(), self.rtt(), &self.bounds);
        self.tick();
    }

    /// The path has changed, or a check whether it has is over.
    fn on_finding(&mut self, found: Finding, base: Duration) {
        // The measurements so far are of another path, or of fewer bytes in flight.
        self.meter.spoil();
        let view = self.view(self.round().as_secs_f64());
        match found {
            Finding::Longer => {
                self.lanes.want_for_path(base, &self.bounds);
                self.search.begin_anew(self.lanes.open(), &self.bounds);
            }
            Finding::Shorter => {
                self.lanes.want_for_shorter_path(base, self.now, &self.bounds);
                self.search.shrink(self.search.goodput(), view, &self.bounds);
            }
            Finding::Queue(goodput) => self.search.shrink(goodput, view, &self.bounds),
        }
    }

    /// A range has arrived.
    pub fn on_completion(&mut self, now: Duration, completion: &Completion) {
        let now = self.advance(now);
        let responded = completion.first_byte.unwrap_or(now);
        if let Some(response) = responded.checked_sub(completion.issued).filter(|a| !a.is_zero()) {
            let quickest = self.quickest_response.map_or(response, |known| known.min(response));
            self.quickest_response = Some(quickest);
        }
        self.lanes.on_delivery(now);
        let uncounted = self.meter.complete(now, completion.bytes);
        self.path.on_arrival(uncounted, None);
        self.make_room(uncounted);
        self.tick();
    }

    /// Some bytes of a range have arrived, with `in_flight` (of all ranges) left in flight. Optional: it
    /// makes rounds more precise, and shows whether the window is full. The range's completion still
    /// reports all its bytes; they are counted once.
    pub fn on_progress(&mut self, now: Duration, bytes: u64, in_flight: u64) {
        let now = self.advance(now);
        self.lanes.on_delivery(now);
        self.meter.progress(now, bytes, in_flight);
        self.path.on_arrival(bytes, Some(in_flight));
        self.slow_lanes.on_progress(now, bytes, in_flight);
        self.make_room(bytes);
        self.tick();
    }

    /// An operation failed. `Busy` means that the server wants less load, `Unreachable` that a lane is
    /// lost; other kinds do not concern the link. Backs off in this order: files at once, lanes, range
    /// size; at most once in a second, or in two RTTs if these are longer.
    pub fn on_failure(&mut self, now: Duration, kind: ErrorKind) {
        let now = self.advance(now);
        if !matches!(kind, ErrorKind::Busy | ErrorKind::Unreachable) {
            return;
        }
        // Bytes lost with a lane do not show what the link can carry.
        self.meter.spoil();
        self.slow_lanes.spoil(now);
        let pause = BACK_OFF_PAUSE.max(self.rtt() * 2);
        if self.last_back_off.is_some_and(|last| now < last + pause) {
            return;
        }
        self.last_back_off = Some(now);
        if self.files.back_off(now) {
            return;
        }
        // A lost lane is in the link's status, which has already lowered the lanes.
        if kind == ErrorKind::Busy && self.lanes.back_off(now) {
            return;
        }
        if self.range_after(self.range_halvings + 1) < self.range_after(self.range_halvings) {
            self.range_halvings += 1;
        }
    }

    /// Fewer bytes are in flight than allowed, for lack of work. The round is not judged: it does not
    /// show what the link carries. Call it when work has run out; if [`Window::on_progress`] reports
    /// bytes in flight, these count instead.
    pub fn on_starved(&mut self, now: Duration) {
        self.advance(now);
        self.meter.starve();
        self.tick();
    }

    /// With long reads: a lane has nothing to read. The round is not judged.
    pub fn on_idle_lane(&mut self, now: Duration) {
        self.advance(now);
        self.meter.idle_lane();
        self.tick();
    }

    /// There was no work for a while, and now there is some. The round is not judged.
    pub fn on_pause(&mut self, now: Duration) {
        let now = self.advance(now);
        self.meter.spoil();
        self.slow_lanes.spoil(now);
    }

    /// The measurements are too old to be used: RTT, goodput and window are measured anew, as at the start.
    /// Lanes stay, as do limits that the server has set for them, which expire by themselves.
    pub fn forget(&mut self, now: Duration) {
        self.advance(now);
        self.path.forget();
        self.quickest_response = None;
        self.meter = Meter::default();
        self.lanes.forget();
        self.search = Search::new(&self.bounds);
        self.slow_lanes = SlowLanes::default();
    }

    /// `bytes` are left to move, as far as is known. Trials that cannot pay off any more are not made.
    pub const fn on_left(&mut self, bytes: u64) {
        self.left = Some(bytes);
    }

    /// The current decision. Cheap; read it after every observation.
    pub fn decision(&self) -> Decision {
        Decision {
            lanes: self.lanes.target(self.now),
            window_bytes: self.window_bytes(),
            range_bytes: self.range_after(self.range_halvings),
            files: self.files.at_once(),
        }
    }

    /// When [`Window::on_timeout`] is due; `None` while nothing moves.
    pub fn next_wakeup(&self) -> Option<Duration> {
        self.meter.due(self.round()).map(|due| due.max(self.now + Duration::from_millis(1)))
    }

    /// Lets time pass when nothing else happens.
    pub fn on_timeout(&mut self, now: Duration) {
        self.advance(now);
        self.tick();
    }

    /// Bytes per second over the last judged rounds; 0 before the first.
    pub fn goodput(&self) -> u64 {
        self.search.goodput() as u64
    }

    /// Whether the search has settled. It still probes at intervals and follows changes. False again when it
    /// restarts: the path carries more or has become longer, or after [`Window::forget`].
    pub fn settled(&self) -> bool {
        self.search.settled()
    }

    fn rtt(&self) -> Duration {
        self.path.base().or(self.quickest_response).unwrap_or(UNKNOWN_RTT)
    }

    fn window_bytes(&self) -> u64 {
        self.search.window_bytes().min(self.path.most_window())
    }

    fn range_after(&self, halvings: u32) -> u64 {
        let window = self.window_bytes();
        let most = self.slow_lanes.most_range();
        self.bounds.range_after(window, self.lanes.wanted(), most, halvings)
    }

    fn make_room(&mut self, arrived: u64) {
        if self.path.is_draining() {
            return;
        }
        let (rtt, full) = (self.rtt(), self.full());
        self.search.on_arrival(arrived, rtt, full, &self.bounds);
    }

    /// Whether the path is full, if known.
    fn full(&self) -> Option<bool> {
        search::is_full(self.path.queueing(), self.rtt())
    }

    fn round(&self) -> Duration {
        self.rtt().max(meter::SHORTEST_ROUND)
    }

    fn view(&self, seconds: f64) -> View {
        let (now, round, rtt) = (self.now, self.round(), self.rtt());
        // A new lane takes over half of a long read, whose bytes in flight are lost: it has to pay off twice.
        let parts = if self.is_of_long_reads { 2 } else { 1 };
        let left = self.left.map(|left| left / parts);
        View { now, round, rtt, seconds, full: self.full(), left }
    }

    /// Time never runs backwards, even if a caller's clock does.
    fn advance(&mut self, now: Duration) -> Duration {
        self.now = self.now.max(now);
        self.now
    }

    /// Opens more lanes on a short path with slow ones.
    fn check_slow_lanes(&mut self) {
        let now = self.now;
        if self.rtt() >= LONG_PATH {
            self.slow_lanes.spoil(now);
            self.search.leave_lanes(false, now);
            return;
        }
        let window = self.search.window_bytes();
        let wider = self.slow_lanes.judge(now, window, self.left, &mut self.lanes, &self.bounds);
        self.search.leave_lanes(self.slow_lanes.is_slow(), now);
        if let Some(window) = wider {
            self.search.widen_to(window, &self.bounds);
        }
    }

    /// Ends the round if it is over, and acts on it.
    fn tick(&mut self) {
        let now = self.now;
        let round = self.round();
        let window = (!self.is_of_long_reads).then(|| self.window_bytes());
        if let Some(sample) = self.meter.take(now, round, window) {
            let view = self.view(sample.seconds);
            if sample.judged && !self.path.is_draining() {
                self.search.on_sample(sample.goodput, view, &mut self.lanes, &self.bounds);
            }
            self.files.on_sample(&sample, now, self.decision().range_bytes);
        }
        self.check_slow_lanes();
        self.lanes.ease(now);
        if self.range_halvings > 0
            && self.last_back_off.is_some_and(|last| now >= last + RANGE_RECOVERY)
        {
            self.range_halvings -= 1;
            self.last_back_off = Some(now);
        }
    }
}

#[cfg(test)]
mod tests;
