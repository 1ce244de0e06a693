//! Trials: one thing is changed, judged when data requested since then has arrived, and reverted if it did
//! not help.

use std::time::Duration;

use super::phase::{Change, Phase, Trial};
use super::{GROWTH, LONG_PATH, Search, THIN_LANE_BYTES, View, rounds_of};
use crate::window::bounds::{Bounds, LANE_BYTES};
use crate::window::lanes::Lanes;

/// The least gain of a wider window and of more lanes, and the most loss of a narrower window; all of them
/// beyond noise.
const WORTH_A_WIDER_WINDOW: f64 = 1.05;
const WORTH_MORE_LANES: f64 = 1.1;
const HARMLESS: f64 = 0.95;

/// If a narrower window leaves less than this part of the goodput, the window is the limit.
const STARVING: f64 = 0.85;

/// While goodput scatters by less than this, the queue alone explains the bytes in flight; more scatter means
/// losses, which more lanes would share.
const CALM: f64 = 0.04;

/// A trial of more lanes ends early if goodput falls below this part of what it was.
const HARMFUL: f64 = 0.9;

/// Pause between trials of the window, in time and in RTTs, whichever is longer. Doubles while nothing is
/// gained, up to eightfold.
const PROBE_PAUSE: Duration = Duration::from_secs(10);
const PROBE_RTTS: u32 = 50;
const MOST_PAUSE_DOUBLINGS: u32 = 3;

/// The first trial after the window was narrowed comes sooner, in case the window is too narrow.
const EARLY_PROBE_ROUNDS: u32 = 16;

/// The wait for the first trial on a short path, from the beginning of the search. More lanes seldom help there, and
/// cost goodput while they are tried (measured: two SFTP lanes over loopback move 0.6 of what one moves).
const FIRST_LANE_TRIAL: Duration = Duration::from_secs(2);

/// Pause after a trial of lanes that gained nothing; doubles each time, up to sixteenfold. Ten times as
/// long if the lanes stay nevertheless ([`LONG_PATH`]).
const LANE_TRIAL_PAUSE: Duration = Duration::from_secs(60);
const MOST_LANE_DOUBLINGS: u32 = 4;

impl Search {
    pub(super) fn try_lanes(
        &mut self,
        goodput: f64,
        view: View,
        lanes: &mut Lanes,
        bounds: &Bounds,
    ) {
        self.next_lane_trial = None;
        // Only samples since the window was set count.
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

    /// Sets whether `SlowLanes` judges the lanes. Then no trial here changes them.
    pub(in crate::window) fn leave_lanes(&mut self, leaves: bool, now: Duration) {
        self.leaves_lanes = leaves;
        if !leaves {
            return;
        }
        if let Phase::Trial(Trial { change: Change::Lanes(_), goodput_before, .. }) = self.phase {
            self.phase = Phase::Cruise;
            self.fresh = 0;
            self.reference = goodput_before;
        }
        let later = now + FIRST_LANE_TRIAL;
        self.next_lane_trial = self.next_lane_trial.map(|due| due.max(later));
    }

    pub(super) fn probe(&mut self, goodput: f64, view: View, bounds: &Bounds) {
        let plain = self.headroom(view) * self.bdp(goodput, view) / self.stretch;
        let narrower = (self.window as f64 * 0.75).max(plain);
        let narrower = bounds.clamp_window(narrower, self.open_lanes);
        let wider = bounds.clamp_window(self.window as f64 * GROWTH, self.open_lanes);
        // Every other probe checks whether a window that the RTT does not explain is needed.
        let unexplained = (narrower as f64) < self.window as f64 * 0.9;
        if unexplained && self.futile_probes % 2 == 1 {
            self.begin(Change::Narrower, goodput, narrower, view);
        } else if wider > self.window && view.full != Some(true) {
            self.begin(Change::Wider, goodput, wider, view);
        } else {
            self.plan_probe(view);
        }
    }

    pub(super) fn begin(&mut self, change: Change, goodput: f64, window: u64, view: View) {
        self.phase = Phase::Trial(Trial {
            change,
            window_before: self.window,
            goodput_before: goodput,
            ripe: view.now + view.rtt + view.round,
            to_come: self.window as f64,
            sum: 0.0,
            rounds: 0,
        });
        self.window = window;
        self.fresh = 0;
    }

    pub(super) fn judge(
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
        let tries_lanes = matches!(trial.change, Change::Lanes(_));
        let hopeless = tries_lanes && trial.rounds >= 3 && trial.gain() < HARMFUL;
        let rounds = if tries_lanes { 2 * rounds_of(view) } else { rounds_of(view) };
        if (trial.rounds as usize) < rounds && !hopeless {
            return;
        }
        self.phase = Phase::Cruise;
        self.fresh = 0;
        self.reference = trial.mean();
        // Both means scatter, hence the factor.
        let noise = self.samples.noise() * std::f64::consts::SQRT_2;
        match trial.change {
            Change::Settle | Change::Shrink => {
                self.judge_smaller(trial, noise, view, bounds);
                if trial.change == Change::Settle {
                    self.plan_after_settling(view, lanes);
                }
                self.futile_probes = 0;
                self.next_probe = view.now + view.round * EARLY_PROBE_ROUNDS;
            }
            Change::Narrower => {
                self.futile_probes += 1;
                if trial.gain() < HARMLESS - noise {
                    self.restore(trial, view);
                } else {
                    let narrowed = self.window as f64 / trial.window_before as f64;
                    self.stretch = (self.stretch * narrowed).max(bounds.least_stretch);
                }
                self.plan_probe(view);
            }
            Change::Wider => {
                self.judge_wider(trial, noise, view, bounds);
                self.plan_probe(view);
            }
            Change::Lanes(before) => self.judge_lanes(before, trial, noise, view, lanes, bounds),
        }
    }

    fn judge_smaller(&mut self, trial: Trial, noise: f64, view: View, bounds: &Bounds) {
        self.was_full |= view.full == Some(true);
        self.not_full = 0;
        // Without a queue the window cannot have been too wide, so noise does not count.
        let excuse = if view.full == Some(false) { 0.0 } else { noise };
        if trial.gain() < HARMLESS - excuse {
            self.restore(trial, view);
            if trial.gain() < STARVING - noise {
                self.reopen(0.0, bounds);
            }
        }
    }

    fn judge_wider(&mut self, trial: Trial, noise: f64, view: View, bounds: &Bounds) {
        if trial.gain() >= WORTH_A_WIDER_WINDOW + noise {
            self.futile_probes = 0;
            let most = self.most_stretch(view).max(self.stretch);
            self.stretch = (self.stretch * GROWTH.min(trial.gain())).min(most);
            self.reopen(trial.mean(), bounds);
        } else {
            self.window = trial.window_before;
            self.reference = trial.goodput_before;
            self.futile_probes += 1;
        }
    }

    /// Judges a trial of more lanes; there were `before`.
    fn judge_lanes(
        &mut self,
        before: usize,
        trial: Trial,
        noise: f64,
        view: View,
        lanes: &mut Lanes,
        bounds: &Bounds,
    ) {
        self.fewer_lanes = Some((before, trial.goodput_before));
        if trial.gain() >= WORTH_MORE_LANES + noise {
            self.futile_lane_trials = 0;
            self.reopen(trial.mean(), bounds);
        } else {
            let doublings = self.futile_lane_trials.min(MOST_LANE_DOUBLINGS);
            self.futile_lane_trials += 1;
            let mut pause = LANE_TRIAL_PAUSE * 2u32.pow(doublings);
            let thin = self.lane_share(trial.mean(), view, lanes) < THIN_LANE_BYTES / 4.0;
            if view.rtt < LONG_PATH || thin {
                lanes.want(before, view.now);
                self.reference = trial.goodput_before;
            } else {
                pause *= 10;
            }
            self.next_lane_trial = Some(view.now + pause);
        }
    }

    /// Restores the window: the smaller one cost goodput, so the bytes in flight before are needed.
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
        // That more lanes gained little does not prove that the link is full. If lanes are thin, losses may
        // limit them, which the fewer lanes had not had yet when they were measured.
        let full = self.link_is_full(self.reference, lanes);
        let due = if full && share >= THIN_LANE_BYTES {
            view.now + LANE_TRIAL_PAUSE
        } else if view.full.is_some() {
            // By then it is known whether there is a queue.
            view.now + view.round * EARLY_PROBE_ROUNDS
        } else if view.rtt >= LONG_PATH || may_be_capped {
            view.now
        } else {
            view.now.max(self.began.unwrap_or(view.now) + FIRST_LANE_TRIAL)
        };
        self.next_lane_trial.get_or_insert(due);
    }

    fn plan_probe(&mut self, view: View) {
        let pause = PROBE_PAUSE.max(view.rtt * PROBE_RTTS);
        let doublings = self.futile_probes.min(MOST_PAUSE_DOUBLINGS);
        self.next_probe = view.now + pause * 2u32.pow(doublings);
    }
}
