//! The search: what each round's goodput means for the window and the lanes.
//!
//! ```text
//! Opening ──flat for 3 rounds──► trial Settle ──► Cruise ◄──► trials: Wider, Narrower, Shrink, Lanes
//!    ▲                                              │                      │
//!    └───────────── goodput rises ──────────────────┴──── a trial gained ──┘
//! ```
//!
//! *Opening*: the window is raised to `gain` times what arrives in a round trip while that grows
//! by a quarter a round. *Settle*: it is cut to a little over one BDP, so that the queue at the
//! bottleneck drains. *Cruise*: nothing changes until goodput does. A *trial* changes one thing,
//! waits until data asked for since then has arrived, compares, and takes the change back if it
//! did not help.
//!
//! By Little's law the latency of a request is window / goodput, so with a known window goodput
//! says both. Whether a window is too large can only be seen by making it smaller: if goodput
//! stays, the difference was a queue; if goodput falls with it, the path (or the far end's answer
//! time) is longer than its round trip, and the quotient is remembered as `stretch`.

use std::time::Duration;

use super::bounds::{Bounds, FIRST_WINDOW, LANE_BYTES};
use super::lanes::Lanes;
use super::samples::{JUDGED_ROUNDS, Samples};

/// Growth of goodput a round that counts as such while opening (BBR, draft-cardwell-iccrg-bbr).
const GROWTH: f64 = 1.25;

/// Rounds without growth that end the opening (BBR).
const FLAT_ROUNDS: u32 = 3;

/// Window in BDPs once settled. Simulated: at 1.1 lossy links lose 2 to 3 % of goodput and uneven
/// CUBIC lanes make the window move; at 1.5 up to 1.4 % of packets are dropped at the queue.
const HEADROOM: f64 = 1.3;

/// What noise adds to it, and where that ends: with a queue of one BDP, 2 BDPs fit the path.
const HEADROOM_FOR_NOISE: f64 = 3.0;
const MOST_HEADROOM: f64 = 2.0;

/// Where the queue can be seen, noise is no reason to fill it.
const MOST_HEADROOM_SEEN: f64 = 1.4;

/// Below this many BDPs the headroom is used up: goodput has risen since the window was set.
const LEAST_HEADROOM: f64 = 1.1;

/// The ends' own share of a round trip: threads to wake, a disk block to write. Covers what keeps
/// a LAN busy, and is nothing on a long path.
const ENDS_DELAY: f64 = 0.004;

/// Packets that wait longer than this part of a round trip, and than this, are in a queue. Less is
/// jitter.
const QUEUE_PART: u32 = 8;
const LEAST_QUEUE: Duration = Duration::from_millis(5);

/// While the path is known not to be full, the window is opened by this part of what arrives. What
/// lanes carry doubles each round trip in their slow start, and so all that has arrived is twice
/// what arrived in the last one: requests are always one round trip ahead of the doubling. And when
/// the queue begins to fill, the window is less than the two BDPs that path and queue hold.
const OPENING_SHARE: f64 = 0.75;

/// ... up to so many times what arrives in a round trip.
const MOST_AHEAD: f64 = 3.0;

/// While lanes ramp up, the window may be so many times what arrives in a round trip, so that the
/// lanes that are slow yet do not take it from those that are fast already.
const RAMPING_GAIN: f64 = 8.0;

/// Goodput that stays so far above the reference opens the window again, and ...
const RISE: f64 = 1.06;

/// ... goodput that stays below this part of it narrows the window.
const FALL: f64 = 0.75;

/// The window is divided by no more than this at a time: a link that stands still for a moment is
/// no slow link.
const MOST_SHRINKAGE: u64 = 4;

/// What a wider window has to gain, what more lanes have to gain, and what a narrower window may
/// lose; all of them beyond noise.
const WORTH_A_WIDER_WINDOW: f64 = 1.05;
const WORTH_MORE_LANES: f64 = 1.1;
const HARMLESS: f64 = 0.95;

/// A narrower window that leaves less than this proves that bytes in flight are what is short.
const STARVING: f64 = 0.85;

/// The most that data can be longer under way than the round trip says. A server that thinks 30 ms
/// on a path of 2 ms has 5.
const MOST_STRETCH: f64 = 8.0;

/// No server thinks longer than this about a request, in seconds: on a long path data cannot be much
/// longer under way than the round trip. What looks like it there is a queue, or lanes whose TCP is
/// still growing (measured over sshd at 200 ms: the window rose to 14 BDPs, and 7 % of the packets
/// were dropped).
const MOST_THINKING: f64 = 0.1;

/// A queue is the whole reason for what is in flight while goodput scatters by less than this; more
/// are losses, which more lanes share among them.
const CALM: f64 = 0.04;

/// Lanes that make goodput fall below this part are closed without waiting for the end of the
/// trial.
const HARMFUL: f64 = 0.9;

/// If lanes carry this part of what they would if each was as fast as fewer were, the link is not
/// full yet.
const LINEAR: f64 = 0.75;

/// So many BDPs in flight cannot all be under way: the path has room for 2, if its queue holds one.
const UNEXPLAINED: f64 = 2.5;

/// A lane that carries less than this in a round trip is held up by losses or a small window.
const THIN_LANE_BYTES: f64 = (512 << 10) as f64;

/// Measurements are at least this long. On a LAN a round is 10 ms, and noisy.
const LEAST_MEASUREMENT: Duration = Duration::from_millis(100);

/// Pause between trials of the window, in time and in round trips, whichever is longer. Doubles
/// up to 8 times while nothing is gained.
const PROBE_PAUSE: Duration = Duration::from_secs(10);
const PROBE_ROUND_TRIPS: u32 = 50;
const MOST_PAUSE_DOUBLINGS: u32 = 3;

/// The first trial after the window was narrowed comes sooner, in case it is too narrow.
const EARLY_PROBE_ROUNDS: u32 = 16;

/// On a short path more lanes seldom help and cost goodput while they are tried (measured: two
/// SFTP lanes over loopback move 0.6 of what one moves), so the first trial waits so long.
const FIRST_LANE_TRIAL: Duration = Duration::from_secs(2);

/// Pause after a trial of lanes that brought nothing; doubles each time, up to 16 times.
const LANE_TRIAL_PAUSE: Duration = Duration::from_secs(60);
const MOST_LANE_DOUBLINGS: u32 = 4;

/// From this round trip on a path is long: more lanes are tried without waiting, and stay. An idle
/// lane costs nothing there, while closing it takes from the kernel what it knew of the path
/// (simulated: BBR needs 8 round trips for each quarter that the other lanes have to grow).
const LONG_PATH: Duration = Duration::from_millis(10);

/// What the search sees of the world besides goodput.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    pub(super) now: Duration,
    pub(super) round: Duration,
    pub(super) round_trip: Duration,
    /// Length of the round that was sampled.
    pub(super) seconds: f64,
    /// Whether the path is full, if that can be told.
    pub(super) full: Option<bool>,
}

/// Whether packets wait in a queue on the path, if that can be told: then it is full. On a short
/// path the ends' own delays are longer than any queue.
pub(super) fn is_full(queueing: Option<Duration>, round_trip: Duration) -> Option<bool> {
    if round_trip < LONG_PATH {
        return None;
    }
    Some(queueing? > (round_trip / QUEUE_PART).max(LEAST_QUEUE))
}

#[derive(Debug, Clone)]
pub(super) struct Search {
    window: u64,
    phase: Phase,
    samples: Samples,
    /// Samples since the window or the lanes were changed.
    fresh: usize,
    /// Goodput that the present window was made for.
    reference: f64,
    /// How much longer data is under way than the link's round trip says.
    stretch: f64,
    /// What it is at least, by the way the storage works.
    least_stretch: f64,
    /// Lanes and goodput before the last change of lanes, if those lanes had ramped up.
    fewer_lanes: Option<(usize, f64)>,
    open_lanes: usize,
    settled_once: bool,
    next_probe: Duration,
    futile_probes: u32,
    next_lane_trial: Option<Duration>,
    futile_lane_trials: u32,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    Opening(Opening),
    Cruise,
    Trial(Trial),
}

#[derive(Debug, Clone, Copy, Default)]
struct Opening {
    /// Goodput of the last round that had grown.
    mark: f64,
    /// Rounds since.
    flat: u32,
    /// The highest mean of [`FLAT_ROUNDS`] rounds.
    best: f64,
    /// Whether it was tried if bytes in flight are only asked for; and with which window and
    /// goodput, while that trial goes on.
    stretched: bool,
    stretches: Option<(u64, f64)>,
}

#[derive(Debug, Clone, Copy)]
struct Trial {
    change: Change,
    window_before: u64,
    goodput_before: f64,
    /// Data that was asked for before the change arrives until then, and ...
    ripe: Duration,
    /// ... as long as so many bytes are to come.
    to_come: f64,
    sum: f64,
    rounds: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// From the opening's window to the settled one.
    Settle,
    /// Goodput fell: a window for what is left of it.
    Shrink,
    /// Now and then: is there more to have?
    Wider,
    /// Now and then, if the window is larger than the round trip explains: is it still needed?
    Narrower,
    /// More lanes than these.
    Lanes(usize),
}

impl Search {
    pub(super) fn new(bounds: &Bounds) -> Self {
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
            settled_once: false,
            next_probe: Duration::ZERO,
            futile_probes: 0,
            next_lane_trial: None,
            futile_lane_trials: 0,
        }
    }

    pub(super) fn window_bytes(&self) -> u64 {
        self.window
    }

    pub(super) fn settled(&self) -> bool {
        self.settled_once
    }

    pub(super) fn goodput(&self) -> f64 {
        self.samples.mean(JUDGED_ROUNDS)
    }

    /// One round's goodput in bytes per second.
    pub(super) fn on_sample(
        &mut self,
        goodput: f64,
        view: View,
        lanes: &mut Lanes,
        bounds: &Bounds,
    ) {
        let ramping = lanes.ramping(view.now, view.round_trip);
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

    /// Remembers what fewer lanes moved, for the comparison with more of them.
    fn note_lanes(&mut self, lanes: &Lanes) {
        let open = lanes.open();
        let [.., earlier, _, last] = *self.samples.all() else { return };
        if open > self.open_lanes && !self.settled_once && last < earlier * GROWTH {
            self.fewer_lanes.get_or_insert((self.open_lanes, last));
        }
    }

    fn open(
        &mut self,
        mut opening: Opening,
        goodput: f64,
        ramping: bool,
        view: View,
        lanes: &mut Lanes,
        bounds: &Bounds,
    ) {
        // The first time goodput may double each round, and every round counts. Later on it comes
        // from a known level, and one round that happens to be fast must not widen the window.
        let first_time = !self.settled_once && !opening.stretched;
        let goodput = if first_time { goodput } else { self.samples.mean(2) };
        opening.best = opening.best.max(self.samples.mean(FLAT_ROUNDS as usize));
        let noise = if first_time { 0.0 } else { self.samples.noise() };
        let grown = goodput >= opening.mark * (GROWTH + noise);
        if grown {
            opening = Opening { mark: goodput, flat: 0, ..opening };
        } else if view.full == Some(true) {
            // More in flight would only wait in the queue, until it overflows.
            opening.flat = FLAT_ROUNDS;
        } else if !ramping {
            opening.flat += 1;
        }
        self.phase = Phase::Opening(opening);
        if grown {
            if let Some((window, goodput_before)) = opening.stretches {
                self.stretch_to(window as f64, goodput_before, view);
                self.phase = Phase::Opening(Opening { stretches: None, ..opening });
            }
            self.grow(goodput, view, bounds);
        } else if opening.flat >= FLAT_ROUNDS && !self.helps_otherwise(opening, view, lanes, bounds)
        {
            self.settle(opening, view, bounds);
        }
        if ramping && !self.settled_once && view.full.is_none() {
            self.make_room(opening.mark, view, lanes, bounds);
        }
    }

    /// A wider window has not helped: perhaps longer answers are the reason, or the lanes.
    fn helps_otherwise(
        &mut self,
        opening: Opening,
        view: View,
        lanes: &mut Lanes,
        bounds: &Bounds,
    ) -> bool {
        match view.full {
            Some(true) => false,
            // What is in flight and not in a queue waits for the lanes, above all.
            Some(false) => {
                self.open_more_lanes(view, lanes, bounds) || self.stretches(opening, view, bounds)
            }
            None => {
                self.stretches(opening, view, bounds) || self.open_more_lanes(view, lanes, bounds)
            }
        }
    }

    /// Bytes have arrived. While the path is known not to be full, they make room for more.
    pub(super) fn on_arrival(
        &mut self,
        bytes: u64,
        round_trip: Duration,
        full: Option<bool>,
        bounds: &Bounds,
    ) {
        let Phase::Opening(opening) = self.phase else { return };
        if self.settled_once || full != Some(false) {
            return;
        }
        let under_way = opening.mark * round_trip.as_secs_f64();
        let most = (MOST_AHEAD * under_way).max(FIRST_WINDOW as f64);
        let wider = (self.window as f64 + OPENING_SHARE * bytes as f64).min(most);
        self.window = self.window.max(bounds.clamp_window(wider, self.open_lanes));
    }

    /// Goodput has grown. At most by `gain` at a time: a round can seem to be faster than the
    /// link, when a lost segment arrives at last and everything behind it counts.
    fn grow(&mut self, goodput: f64, view: View, bounds: &Bounds) {
        let mut most = self.bdp(goodput, view);
        if self.settled_once {
            most *= self.most_stretch(view) / self.stretch;
        }
        let window = bounds.gain * most.min(self.window as f64);
        self.window = self.window.max(bounds.clamp_window(window, self.open_lanes));
    }

    /// A window of several BDPs that is not full of goodput: either more of it does not help (a slow
    /// start that met losses), or bytes in flight are only asked for and not yet under way (one
    /// request at a time on a lane, a server that thinks). Widening it once tells.
    fn stretches(&mut self, opening: Opening, view: View, bounds: &Bounds) -> bool {
        let goodput = opening.best.max(self.samples.mean(FLAT_ROUNDS as usize));
        let unexplained = self.window as f64 > UNEXPLAINED * self.bdp(goodput, view);
        if self.settled_once || opening.stretched || !unexplained {
            return false;
        }
        self.phase = Phase::Opening(Opening {
            mark: goodput,
            flat: 0,
            best: goodput,
            stretched: true,
            stretches: Some((self.window, goodput)),
        });
        let wider = self.window as f64 * bounds.gain;
        self.window = bounds.clamp_window(wider, self.open_lanes);
        true
    }

    /// How much longer than its round trip a path may be at most.
    fn most_stretch(&self, view: View) -> f64 {
        if self.least_stretch > 1.0 {
            return MOST_STRETCH;
        }
        let thinking = 1.0 + MOST_THINKING / view.round_trip.as_secs_f64().max(0.001);
        thinking.min(MOST_STRETCH)
    }

    /// So many bytes were needed in flight for this goodput.
    fn stretch_to(&mut self, window: f64, goodput: f64, view: View) {
        let plain = self.bdp(goodput, view) / self.stretch;
        let most = self.most_stretch(view).max(self.stretch);
        self.stretch = (window / plain.max(1.0)).clamp(self.stretch, most);
    }

    /// Room for the lanes of the path, which begin slowly, beside the first one. Lanes that are
    /// opened later have to show what they are good for in the window that there is.
    fn make_room(&mut self, goodput: f64, view: View, lanes: &Lanes, bounds: &Bounds) {
        if self.fewer_lanes.is_some_and(|(fewer, _)| fewer > 1) {
            return;
        }
        let share = (LANE_BYTES * lanes.open() as u64) as f64;
        let window = share.min(RAMPING_GAIN * self.bdp(goodput, view));
        self.window = self.window.max(bounds.clamp_window(window, lanes.open()));
    }

    /// If the lanes that came last brought their full share, or all carry very little, the lanes
    /// are what limits, and the next ones are opened without settling first.
    fn open_more_lanes(&mut self, view: View, lanes: &mut Lanes, bounds: &Bounds) -> bool {
        let goodput = self.samples.mean(FLAT_ROUNDS as usize);
        let thin = self.lane_share(goodput, view, lanes) < THIN_LANE_BYTES;
        let proven = self.fewer_lanes.is_some() || thin || view.full == Some(false);
        if self.settled_once
            || view.full == Some(true)
            || !proven
            || self.link_is_full(goodput, lanes)
            || view.round_trip < LONG_PATH
        {
            return false;
        }
        let Some(more) = lanes.next_step(view.now, bounds) else { return false };
        self.fewer_lanes = Some((lanes.open(), goodput));
        lanes.want(more, view.now);
        self.phase = Phase::Opening(Opening { mark: goodput, best: goodput, ..Opening::default() });
        true
    }

    fn settle(&mut self, opening: Opening, view: View, bounds: &Bounds) {
        let mut goodput = self.samples.mean(FLAT_ROUNDS as usize);
        if view.full == Some(true) {
            // The last round shows what the path carries; before that the lanes were still growing.
            goodput = goodput.max(self.samples.mean(1));
        }
        let window =
            bounds.clamp_window(self.headroom(view) * self.bdp(goodput, view), self.open_lanes);
        self.begin(Change::Settle, goodput.max(opening.best), window, view);
    }

    fn cruise(&mut self, view: View, lanes: &mut Lanes, bounds: &Bounds) {
        let rounds = rounds_of(view);
        if self.fresh < rounds {
            return;
        }
        let goodput = self.samples.mean(rounds);
        let (lowest, highest) = self.samples.extremes(rounds);
        let noise = 2.0 * self.samples.noise();
        let risen = lowest > self.reference * (RISE + noise);
        let used_up = LEAST_HEADROOM * self.bdp(lowest, view) > self.window as f64;
        let wider = bounds.clamp_window(self.window as f64 * GROWTH, lanes.open());
        if (risen || used_up) && wider > self.window {
            self.reopen(goodput, bounds);
        } else if highest < self.reference * (FALL - noise) {
            // The first of these rounds may have been a mixture.
            let goodput = self.samples.mean(rounds / 2);
            let window =
                bounds.clamp_window(self.headroom(view) * self.bdp(goodput, view), lanes.open());
            let window = window.clamp(self.window / MOST_SHRINKAGE, self.window);
            self.begin(Change::Shrink, goodput, window, view);
        } else if self.next_lane_trial.is_some_and(|due| view.now >= due) {
            self.try_lanes(goodput, view, lanes, bounds);
        } else if view.now >= self.next_probe {
            self.probe(goodput, view, bounds);
        }
    }

    /// There is more to have than the window was made for.
    fn reopen(&mut self, goodput: f64, bounds: &Bounds) {
        self.phase = Phase::Opening(Opening { mark: goodput, best: goodput, ..Opening::default() });
        let wider = self.window as f64 * bounds.gain;
        self.window = bounds.clamp_window(wider, self.open_lanes);
        self.fresh = 0;
    }

    fn try_lanes(&mut self, goodput: f64, view: View, lanes: &mut Lanes, bounds: &Bounds) {
        self.next_lane_trial = None;
        // What was before the window was set says nothing of it.
        if view.full == Some(true) && self.samples.noise_of(self.fresh) < CALM {
            self.next_lane_trial = Some(view.now + LANE_TRIAL_PAUSE);
            return;
        }
        if let Some(more) = lanes.next_step(view.now, bounds) {
            let before = lanes.wanted();
            lanes.want(more, view.now);
            self.begin(Change::Lanes(before), goodput, self.window, view);
        }
    }

    fn probe(&mut self, goodput: f64, view: View, bounds: &Bounds) {
        let plain = self.headroom(view) * self.bdp(goodput, view) / self.stretch;
        let narrower = (self.window as f64 * 0.75).max(plain);
        let narrower = bounds.clamp_window(narrower, self.open_lanes);
        let wider = bounds.clamp_window(self.window as f64 * GROWTH, self.open_lanes);
        // Every other probe looks whether a window that the round trip does not explain is needed.
        let unexplained = (narrower as f64) < self.window as f64 * 0.9;
        if unexplained && self.futile_probes % 2 == 1 {
            self.begin(Change::Narrower, goodput, narrower, view);
        } else if wider > self.window && view.full != Some(true) {
            self.begin(Change::Wider, goodput, wider, view);
        } else {
            self.plan_probe(view);
        }
    }

    fn begin(&mut self, change: Change, goodput: f64, window: u64, view: View) {
        self.phase = Phase::Trial(Trial {
            change,
            window_before: self.window,
            goodput_before: goodput,
            ripe: view.now + view.round_trip + view.round,
            to_come: self.window as f64,
            sum: 0.0,
            rounds: 0,
        });
        self.window = window;
        self.fresh = 0;
    }

    fn judge(
        &mut self,
        mut trial: Trial,
        goodput: f64,
        ramping: bool,
        view: View,
        lanes: &mut Lanes,
        bounds: &Bounds,
    ) {
        let ramping = ramping && view.full != Some(true);
        if view.now < trial.ripe || ramping || trial.to_come > 0.0 {
            trial.to_come -= goodput * view.seconds;
            self.phase = Phase::Trial(trial);
            return;
        }
        trial.sum += goodput;
        trial.rounds += 1;
        self.phase = Phase::Trial(trial);
        let mean = trial.sum / f64::from(trial.rounds);
        let gain = mean / trial.goodput_before.max(1.0);
        let tries_lanes = matches!(trial.change, Change::Lanes(_));
        let hopeless = tries_lanes && trial.rounds >= 3 && gain < HARMFUL;
        let rounds = if tries_lanes { 2 * rounds_of(view) } else { rounds_of(view) };
        if (trial.rounds as usize) < rounds && !hopeless {
            return;
        }
        self.phase = Phase::Cruise;
        self.fresh = 0;
        self.reference = mean;
        // Both means scatter.
        let noise = self.samples.noise() * std::f64::consts::SQRT_2;
        match trial.change {
            Change::Settle | Change::Shrink => {
                // Without a queue the window cannot have been too wide, so noise is no excuse.
                let excuse = if view.full == Some(false) { 0.0 } else { noise };
                if gain < HARMLESS - excuse {
                    self.restore(trial, view);
                    if gain < STARVING - noise {
                        self.reopen(0.0, bounds);
                    }
                }
                if trial.change == Change::Settle {
                    self.plan_after_settling(view, lanes);
                }
                self.futile_probes = 0;
                self.next_probe = view.now + view.round * EARLY_PROBE_ROUNDS;
            }
            Change::Narrower => {
                self.futile_probes += 1;
                if gain < HARMLESS - noise {
                    self.restore(trial, view);
                } else {
                    let narrowed = self.window as f64 / trial.window_before as f64;
                    self.stretch = (self.stretch * narrowed).max(bounds.least_stretch);
                }
                self.plan_probe(view);
            }
            Change::Wider => {
                if gain >= WORTH_A_WIDER_WINDOW + noise {
                    self.futile_probes = 0;
                    let most = self.most_stretch(view).max(self.stretch);
                    self.stretch = (self.stretch * GROWTH.min(gain)).min(most);
                    self.reopen(mean, bounds);
                } else {
                    self.window = trial.window_before;
                    self.reference = trial.goodput_before;
                    self.futile_probes += 1;
                }
                self.plan_probe(view);
            }
            Change::Lanes(before) => {
                self.fewer_lanes = Some((before, trial.goodput_before));
                if gain >= WORTH_MORE_LANES + noise {
                    self.futile_lane_trials = 0;
                    self.reopen(mean, bounds);
                } else {
                    let doublings = self.futile_lane_trials.min(MOST_LANE_DOUBLINGS);
                    self.futile_lane_trials += 1;
                    let mut pause = LANE_TRIAL_PAUSE * 2u32.pow(doublings);
                    let thin = self.lane_share(mean, view, lanes) < THIN_LANE_BYTES / 4.0;
                    if view.round_trip < LONG_PATH || thin {
                        lanes.want(before, view.now);
                        self.reference = trial.goodput_before;
                    } else {
                        pause *= 10;
                    }
                    self.next_lane_trial = Some(view.now + pause);
                }
            }
        }
    }

    /// The smaller window cost goodput: what was under way before is what is needed.
    fn restore(&mut self, trial: Trial, view: View) {
        self.window = trial.window_before;
        self.reference = trial.goodput_before;
        let needed = trial.window_before as f64 / self.headroom(view);
        self.stretch_to(needed, trial.goodput_before, view);
    }

    fn plan_after_settling(&mut self, view: View, lanes: &Lanes) {
        self.settled_once = true;
        let share = self.lane_share(self.reference, view, lanes);
        let may_be_capped = share >= LANE_BYTES as f64 / 2.0;
        // What fewer lanes moved proves nothing of losses: they may not have met any yet.
        let full = self.link_is_full(self.reference, lanes);
        let due = if full && share >= THIN_LANE_BYTES {
            view.now + LANE_TRIAL_PAUSE
        } else if view.full.is_some() {
            // By then it can be seen whether there is a queue.
            view.now + view.round * EARLY_PROBE_ROUNDS
        } else if view.round_trip >= LONG_PATH || may_be_capped {
            view.now
        } else {
            FIRST_LANE_TRIAL.max(view.now)
        };
        self.next_lane_trial.get_or_insert(due);
    }

    /// Whether the last lanes added moved less than their share, so that more can hardly help.
    fn link_is_full(&self, goodput: f64, lanes: &Lanes) -> bool {
        self.fewer_lanes.is_some_and(|(fewer, goodput_of_fewer)| {
            let share = goodput_of_fewer / fewer as f64;
            lanes.open() > fewer && goodput < LINEAR * share * lanes.open() as f64
        })
    }

    /// Bytes that each lane has under way.
    fn lane_share(&self, goodput: f64, view: View, lanes: &Lanes) -> f64 {
        goodput * view.round_trip.as_secs_f64() / lanes.open() as f64
    }

    fn plan_probe(&mut self, view: View) {
        let pause = PROBE_PAUSE.max(view.round_trip * PROBE_ROUND_TRIPS);
        let doublings = self.futile_probes.min(MOST_PAUSE_DOUBLINGS);
        self.next_probe = view.now + pause * 2u32.pow(doublings);
    }

    /// Window in BDPs once settled. Goodput that scatters means that data waits behind what was
    /// lost or late, and that is bytes in flight as well.
    fn headroom(&self, view: View) -> f64 {
        let most = if view.full == Some(true) { MOST_HEADROOM_SEEN } else { MOST_HEADROOM };
        (HEADROOM + HEADROOM_FOR_NOISE * self.samples.noise()).min(most)
    }

    /// Bytes under way at this goodput without a queue.
    fn bdp(&self, goodput: f64, view: View) -> f64 {
        goodput * (view.round_trip.as_secs_f64() + ENDS_DELAY) * self.stretch
    }
}

/// Rounds of a measurement.
fn rounds_of(view: View) -> usize {
    let least = LEAST_MEASUREMENT.as_secs_f64() / view.round.as_secs_f64().max(1e-6);
    (least.ceil() as usize).max(JUDGED_ROUNDS)
}
