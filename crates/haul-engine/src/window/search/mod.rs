//! The search: what each round's goodput means for the window and the lanes.
//!
//! ```text
//! Opening ──flat for 3 rounds──► trial Settle ──► Cruise ◄──► trials: Wider, Narrower, Shrink, Lanes
//!    ▲                                              │                      │
//!    └───────────── goodput rises ──────────────────┴──── a trial gained ──┘
//! ```
//!
//! *Opening*: the window is raised to `gain` times the bytes received per RTT while these grow by a
//! quarter per round. *Settle*: it is cut to a little over one BDP, so that the queue at the bottleneck
//! drains. *Cruise*: nothing changes until goodput or the queue does, or a trial is due. A *trial* changes one
//! thing, waits until data requested since then has arrived, compares, and reverts the change if it did not
//! help.
//!
//! If the kernel's RTTs are known, they show whether packets wait in a queue, and that is enough: a path
//! with a queue is full, and one without is not. Opening then follows the arriving bytes and ends when the
//! queue begins. Otherwise goodput decides as follows.
//!
//! By Little's law the latency of a request is window / goodput, so with a known window goodput determines
//! it. Whether a window is too large can only be found by making it smaller: if goodput stays, the
//! difference was a queue; if goodput falls with it, the path (or the far end's response time) is longer
//! than its RTT, and the quotient is remembered as `stretch`.

mod opening;
mod phase;
mod trial;

use std::time::Duration;

use phase::{Change, Opening, Phase};

use super::bounds::{Bounds, ENDS_DELAY, FIRST_WINDOW};
use super::lanes::Lanes;
use super::path::Settled;
use super::samples::{JUDGED_ROUNDS, Samples};

/// Growth of goodput per round that counts as such while opening (BBR, draft-cardwell-iccrg-bbr).
const GROWTH: f64 = 1.25;

/// Window in BDPs once settled. Simulated: at 1.1 lossy links lose 2 to 3 % of goodput and uneven
/// CUBIC lanes make the window move; at 1.5 up to 1.4 % of packets are dropped at the queue.
const HEADROOM: f64 = 1.3;

/// Noise times this is added to `HEADROOM`, up to the maximum: 2 BDPs fit a path with a queue of one BDP.
const HEADROOM_FOR_NOISE: f64 = 3.0;
const MOST_HEADROOM: f64 = 2.0;

/// Window in BDPs where the backend bounds the bytes on the path: requests that wait at the other end are in
/// no queue. That bound does not hold at every moment, so path and queue must not overflow even without it:
/// 2.0 fills both, and measured over TLS at 200 ms some ten thousand packets were dropped in every third
/// run.
const HEADROOM_ELSEWHERE: f64 = 1.75;

/// The maximum while a queue is visible: noise is no reason to fill it.
const MOST_HEADROOM_SEEN: f64 = 1.4;

/// A settled window maintains a queue of some tenths of a BDP. If `NOT_FULL_ROUNDS` rounds have none, and each
/// reaches `STEADY` of the goodput before, the path carries more than it did.
const STEADY: f64 = 0.97;
const NOT_FULL_ROUNDS: usize = 6;

/// Below this many BDPs the headroom is used up: goodput has risen since the window was set.
const LEAST_HEADROOM: f64 = 1.1;

/// The same where the backend bounds the bytes on the path. A request is in flight for longer than an RTT there, so a
/// window of 1.1 BDPs may be what limits goodput, which then never uses it up.
const LEAST_HEADROOM_ELSEWHERE: f64 = 1.25;

/// Packets that wait longer than the RTT divided by `QUEUE_PART`, and than `LEAST_QUEUE`, are in a queue. Less is
/// jitter.
const QUEUE_PART: u32 = 8;
const LEAST_QUEUE: Duration = Duration::from_millis(5);

/// Goodput that stays above this multiple of the reference opens the window again, and ...
const RISE: f64 = 1.06;

/// ... goodput that stays below this part of it narrows the window.
const FALL: f64 = 0.75;

/// When goodput falls, the window is divided by no more than this at a time: a link that stalls for a moment is not a
/// slow link.
const MOST_SHRINKAGE: u64 = 4;

/// The longest time that data can be on the path, in RTTs (each with `ENDS_DELAY`). With a server that takes 30 ms to
/// respond on a path of 2 ms, it is about 5: 32 ms instead of 6.
const MOST_STRETCH: f64 = 8.0;

/// The most time in seconds that a server takes for a request: on a long path data cannot be much longer on
/// the path than the RTT. What looks like it is a queue, or lanes whose TCP is still growing (measured over
/// sshd at 200 ms: the window rose to 14 BDPs, and 7 % of the packets were dropped).
const MOST_THINKING: f64 = 0.1;

/// The link is not full yet if each lane carries, on average, at least this part of what each carried while
/// there were fewer.
const LINEAR: f64 = 0.75;

/// A lane that carries less than this per RTT is limited by losses or a small window.
const THIN_LANE_BYTES: f64 = (512 << 10) as f64;

/// Measurements are at least this long. On a LAN a round is 10 ms, and noisy.
const LEAST_MEASUREMENT: Duration = Duration::from_millis(100);

/// From this RTT on a path is long: more lanes are tried as soon as it is known whether there is a queue, and
/// stay unless they carry little. An idle lane costs nothing there, while closing it discards what the kernel
/// knew of the path (simulated: BBR needs 8 RTTs for each quarter that the other lanes have to grow).
pub(in crate::window) const LONG_PATH: Duration = Duration::from_millis(10);

/// More lanes are not tried if less time is left than this: new ones need a few RTTs to open and about eight to
/// grow, and ranges assigned to them near the end arrive last.
const PAYS_OFF_RTTS: f64 = 32.0;

/// Over a short path two lanes may well move less than one alone, for most of a second. With less time left
/// than this, they are not tried.
const PAYS_OFF: Duration = Duration::from_secs(2);

/// The inputs of the search besides goodput.
#[derive(Debug, Clone, Copy)]
pub(in crate::window) struct View {
    pub(in crate::window) now: Duration,
    pub(in crate::window) round: Duration,
    pub(in crate::window) rtt: Duration,
    /// Length of the round that was sampled.
    pub(in crate::window) seconds: f64,
    /// Whether the path is full, if known.
    pub(in crate::window) full: Option<bool>,
    /// Bytes that are left to move, if known.
    pub(in crate::window) left: Option<u64>,
}

/// Whether the path is full, that is, packets wait in a queue; `None` if unknown. On a short path the delays
/// of the hosts are longer than any queue.
pub(in crate::window) fn is_full(queueing: Option<Duration>, rtt: Duration) -> Option<bool> {
    if rtt < LONG_PATH {
        return None;
    }
    Some(queueing? > (rtt / QUEUE_PART).max(LEAST_QUEUE))
}

#[derive(Debug, Clone)]
pub(in crate::window) struct Search {
    window: u64,
    phase: Phase,
    samples: Samples,
    /// Samples since the window or the lanes were changed.
    fresh: usize,
    /// Goodput that the present window was made for.
    reference: f64,
    /// How long data is on the path, in RTTs of the link.
    stretch: f64,
    /// The least stretch, which follows from the kind of storage.
    least_stretch: f64,
    /// Lanes and goodput before the last change of lanes, if those lanes had ramped up.
    fewer_lanes: Option<(usize, f64)>,
    open_lanes: usize,
    /// How far the window may open while little has arrived, in bytes.
    least_ahead: f64,
    /// After a restart: the number of lanes that the window has room for already.
    lanes_before: Option<usize>,
    /// When the first judged round of this search began.
    began: Option<Duration>,
    settled_once: bool,
    /// Whether the path was full when the window was set, and for how many rounds it has not been.
    was_full: bool,
    not_full: usize,
    next_probe: Duration,
    futile_probes: u32,
    next_lane_trial: Option<Duration>,
    futile_lane_trials: u32,
    /// Rounds do not show what lanes carry; `SlowLanes` judges them.
    leaves_lanes: bool,
}

impl Search {
    pub(in crate::window) fn new(bounds: &Bounds) -> Self {
        Self {
            window: bounds.clamp_window(FIRST_WINDOW as f64, 1),
            phase: Phase::Opening(Opening::default()),
            samples: Samples::default(),
            fresh: 0,
            reference: 0.0,
            stretch: bounds.least_stretch,
            least_stretch: bounds.least_stretch,
            fewer_lanes: None,
            open_lanes: 1,
            least_ahead: FIRST_WINDOW as f64,
            lanes_before: None,
            began: None,
            settled_once: false,
            was_full: false,
            not_full: 0,
            next_probe: Duration::ZERO,
            futile_probes: 0,
            next_lane_trial: None,
            futile_lane_trials: 0,
            leaves_lanes: false,
        }
    }

    pub(in crate::window) fn window_bytes(&self) -> u64 {
        self.window
    }

    pub(in crate::window) fn settled(&self) -> bool {
        self.settled_once
    }

    pub(in crate::window) fn goodput(&self) -> f64 {
        self.samples.mean(JUDGED_ROUNDS)
    }

    /// The settled window; `None` during the search, and if it is fixed.
    pub(in crate::window) fn found(&self, bounds: &Bounds) -> Option<Settled> {
        let settled = self.settled_once
            && !matches!(self.phase, Phase::Opening(_))
            && !bounds.is_window_fixed();
        settled.then_some(Settled {
            window: self.window,
            goodput: self.reference,
            most_bdps: if bounds.is_bounded_elsewhere() {
                HEADROOM_ELSEWHERE
            } else {
                MOST_HEADROOM_SEEN
            },
        })
    }

    /// The path has become longer, or carries more: the search restarts, with `open_lanes` lanes. New
    /// lanes may open slowly, so room for them is added as they open ([`Search::on_new_lanes`]).
    pub(in crate::window) fn begin_anew(&mut self, open_lanes: usize, bounds: &Bounds) {
        let window = self.window;
        *self = Self { open_lanes, ..Self::new(bounds) };
        self.window = window;
        self.least_ahead = window as f64;
        self.lanes_before = Some(open_lanes);
    }

    /// `open` lanes are open. After a restart, new ones get their first window.
    pub(in crate::window) fn on_new_lanes(&mut self, open: usize, rtt: Duration, bounds: &Bounds) {
        let Some(before) = self.lanes_before else { return };
        if open <= before || self.settled_once {
            return;
        }
        self.lanes_before = Some(open);
        let room = bounds.first_window(open - before, rtt) as f64;
        self.least_ahead += room;
        let window = self.window as f64 + room;
        self.window = self.window.max(bounds.clamp_window(window, open));
    }

    /// Narrows the window to what this goodput needs, if that is less.
    pub(in crate::window) fn shrink(&mut self, goodput: f64, view: View, bounds: &Bounds) {
        if !self.settled_once {
            return;
        }
        let elsewhere = bounds.is_bounded_elsewhere();
        let headroom = if elsewhere { HEADROOM_ELSEWHERE } else { self.headroom(view) };
        let window = headroom * self.bdp(goodput, view);
        let window = bounds.clamp_window(window, self.open_lanes).min(self.window);
        if window < self.window {
            self.begin(Change::Shrink, goodput, window, view);
        }
    }

    /// Widens the window to at least this, if allowed.
    pub(in crate::window) fn widen_to(&mut self, window: u64, bounds: &Bounds) {
        self.window = self.window.max(bounds.clamp_window(window as f64, self.open_lanes));
    }

    /// Takes one round's goodput in bytes per second.
    pub(in crate::window) fn on_sample(
        &mut self,
        goodput: f64,
        view: View,
        lanes: &mut Lanes,
        bounds: &Bounds,
    ) {
        let ramping = lanes.ramping(view.now, view.rtt);
        let length = Duration::try_from_secs_f64(view.seconds).unwrap_or_default();
        self.began.get_or_insert(view.now.saturating_sub(length));
        self.note_lanes(lanes);
        self.open_lanes = lanes.open();
        self.samples.push(goodput);
        self.fresh += 1;
        match self.phase {
            Phase::Opening(opening) => self.open(opening, goodput, ramping, view, lanes, bounds),
            Phase::Cruise => self.cruise(view, lanes, bounds),
            Phase::Trial(trial) => self.judge(trial, goodput, ramping, view, lanes, bounds),
        }
    }

    /// Remembers the goodput of fewer lanes, to compare that of more with it.
    fn note_lanes(&mut self, lanes: &Lanes) {
        let open = lanes.open();
        let [.., earlier, _, last] = *self.samples.all() else { return };
        if open > self.open_lanes && !self.settled_once && last < earlier * GROWTH {
            self.fewer_lanes.get_or_insert((self.open_lanes, last));
        }
    }

    /// The most that [`Search::stretch`] can be.
    fn most_stretch(&self, view: View) -> f64 {
        if self.least_stretch > 1.0 {
            return MOST_STRETCH;
        }
        let thinking = 1.0 + MOST_THINKING / view.rtt.as_secs_f64().max(0.001);
        thinking.min(MOST_STRETCH)
    }

    /// `window` bytes in flight were needed for this goodput.
    fn stretch_to(&mut self, window: f64, goodput: f64, view: View) {
        let plain = self.bdp(goodput, view) / self.stretch;
        let most = self.most_stretch(view).max(self.stretch);
        self.stretch = (window / plain.max(1.0)).clamp(self.stretch, most);
    }

    fn cruise(&mut self, view: View, lanes: &mut Lanes, bounds: &Bounds) {
        self.not_full = if view.full == Some(false) { self.not_full + 1 } else { 0 };
        if self.was_full && self.not_full >= NOT_FULL_ROUNDS {
            let (lowest, _) = self.samples.extremes(NOT_FULL_ROUNDS);
            if lowest >= self.reference * STEADY {
                self.begin_anew(lanes.open(), bounds);
                return;
            }
        }
        let rounds = rounds_of(view);
        if self.fresh < rounds {
            return;
        }
        let goodput = self.samples.mean(rounds);
        let (lowest, highest) = self.samples.extremes(rounds);
        let noise = 2.0 * self.samples.noise();
        let risen = lowest > self.reference * (RISE + noise);
        let elsewhere = bounds.is_bounded_elsewhere();
        let least = if elsewhere { LEAST_HEADROOM_ELSEWHERE } else { LEAST_HEADROOM };
        let used_up = least * self.bdp(lowest, view) > self.window as f64;
        let wider = bounds.clamp_window(self.window as f64 * GROWTH, lanes.open());
        if (risen || used_up) && wider > self.window {
            self.reopen(goodput, bounds);
        } else if highest < self.reference * (FALL - noise) {
            // The first of these rounds may have been half fast, half slow.
            let goodput = self.samples.mean(rounds / 2);
            let window =
                bounds.clamp_window(self.headroom(view) * self.bdp(goodput, view), lanes.open());
            let window = window.clamp(self.window / MOST_SHRINKAGE, self.window);
            self.begin(Change::Shrink, goodput, window, view);
        } else if self.next_lane_trial.is_some_and(|due| view.now >= due) && pays_off(goodput, view)
        {
            self.try_lanes(goodput, view, lanes, bounds);
        } else if view.now >= self.next_probe {
            self.probe(goodput, view, bounds);
        }
    }

    /// The path carries more than the window was made for.
    fn reopen(&mut self, goodput: f64, bounds: &Bounds) {
        self.phase = Phase::Opening(Opening { mark: goodput, best: goodput, ..Opening::default() });
        let wider = self.window as f64 * bounds.gain;
        self.window = bounds.clamp_window(wider, self.open_lanes);
        self.fresh = 0;
    }

    /// Whether the lanes added last moved less than their share, so that more can hardly help.
    fn link_is_full(&self, goodput: f64, lanes: &Lanes) -> bool {
        self.fewer_lanes.is_some_and(|(fewer, goodput_of_fewer)| {
            let share = goodput_of_fewer / fewer as f64;
            lanes.open() > fewer && goodput < LINEAR * share * lanes.open() as f64
        })
    }

    /// Bytes that each lane has on the path.
    fn lane_share(&self, goodput: f64, view: View, lanes: &Lanes) -> f64 {
        goodput * view.rtt.as_secs_f64() / lanes.open() as f64
    }

    /// Window in BDPs once settled. Goodput that scatters means that data waits behind lost or late
    /// packets, and such data is in flight as well.
    fn headroom(&self, view: View) -> f64 {
        let most = if view.full == Some(true) { MOST_HEADROOM_SEEN } else { MOST_HEADROOM };
        (HEADROOM + HEADROOM_FOR_NOISE * self.samples.noise()).min(most)
    }

    /// Bytes on the path at this goodput without a queue.
    fn bdp(&self, goodput: f64, view: View) -> f64 {
        goodput * (view.rtt.as_secs_f64() + ENDS_DELAY) * self.stretch
    }
}

/// Whether enough is left that new lanes can gain more than their slow start, or on a short path the trial,
/// costs.
fn pays_off(goodput: f64, view: View) -> bool {
    let least = if view.rtt < LONG_PATH { PAYS_OFF } else { Duration::ZERO };
    let time = view.rtt.mul_f64(PAYS_OFF_RTTS).max(least);
    view.left.is_none_or(|left| left as f64 > goodput * time.as_secs_f64())
}

/// Rounds of a measurement.
fn rounds_of(view: View) -> usize {
    let least = LEAST_MEASUREMENT.as_secs_f64() / view.round.as_secs_f64().max(1e-6);
    (least.ceil() as usize).max(JUDGED_ROUNDS)
}
