//! Opening: the window grows until the path is full, or until growing gains nothing.

use std::time::Duration;

use super::phase::{Change, Opening, Phase};
use super::{GROWTH, HEADROOM_ELSEWHERE, LONG_PATH, Search, THIN_LANE_BYTES, View};
use crate::window::bounds::{Bounds, LANE_BYTES, SLOW_LANE};
use crate::window::lanes::Lanes;

/// Rounds without growth that end the opening (BBR).
const FLAT_ROUNDS: u32 = 3;

/// A round without growth while the path is full counts as this many.
const FULL_COUNTS: u32 = 2;

/// While the path is known not to be full, the window grows by this part of the arriving bytes. In slow
/// start the bytes per RTT double, so all that have arrived are twice those of the last RTT: requests
/// are always one RTT ahead of the doubling. And when the queue begins to fill, the window is less than
/// the two BDPs that path and queue hold.
const OPENING_SHARE: f64 = 0.75;

/// ... up to this many times the bytes of the last RTT, or to the first window if that is more: while those
/// bytes double, four times as many are in flight one RTT later.
const MOST_AHEAD: f64 = 3.0;

/// While lanes ramp up, the window may be this many times the bytes per RTT, so that lanes that are
/// still slow do not take it from fast ones.
const RAMPING_GAIN: f64 = 8.0;

/// This many BDPs in flight cannot all be on the path: it has room for 2, if its queue holds one.
const UNEXPLAINED: f64 = 2.5;

impl Search {
    pub(super) fn open(
        &mut self,
        mut opening: Opening,
        goodput: f64,
        ramping: bool,
        view: View,
        lanes: &mut Lanes,
        bounds: &Bounds,
    ) {
        // In the first search goodput may double each round, and every round counts. Later it starts
        // from a known level, and one round that happens to be fast must not widen the window.
        let first_time = !self.settled_once && !opening.stretched;
        let goodput = if first_time { goodput } else { self.samples.mean(2) };
        opening.best = opening.best.max(self.samples.mean(FLAT_ROUNDS as usize));
        let noise = if first_time { 0.0 } else { self.samples.noise() };
        let grown = goodput >= opening.mark * (GROWTH + noise);
        if grown {
            opening = Opening { mark: goodput, flat: 0, ..opening };
        } else if view.full == Some(true) {
            // More in flight would only wait in the queue, until it overflows. Not counted as the end at
            // once: one round may only have been slow because lost packets were sent again.
            opening.flat += FULL_COUNTS;
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

    /// A wider window has not helped: tries whether slow responses are the reason, or the lanes.
    fn helps_otherwise(
        &mut self,
        opening: Opening,
        view: View,
        lanes: &mut Lanes,
        bounds: &Bounds,
    ) -> bool {
        match view.full {
            Some(true) => false,
            // Bytes in flight that are in no queue wait mainly for the lanes.
            Some(false) => {
                self.open_more_lanes(view, lanes, bounds) || self.stretches(opening, view, bounds)
            }
            // Lanes with a limit each do not show what the window needs.
            None if self.are_slow(lanes) => self.open_more_lanes(view, lanes, bounds),
            None => {
                self.stretches(opening, view, bounds) || self.open_more_lanes(view, lanes, bounds)
            }
        }
    }

    /// Gives the lanes for a path of this RTT their first window.
    pub(in crate::window) fn start_for_lanes(
        &mut self,
        lanes: usize,
        rtt: Duration,
        bounds: &Bounds,
    ) {
        if !self.settled_once {
            let window = bounds.first_window(lanes, rtt) as f64;
            self.window = self.window.max(bounds.clamp_window(window, self.open_lanes));
        }
    }

    /// Bytes have arrived. While the path is known not to be full, they widen the window.
    pub(in crate::window) fn on_arrival(
        &mut self,
        bytes: u64,
        rtt: Duration,
        full: Option<bool>,
        bounds: &Bounds,
    ) {
        let Phase::Opening(opening) = self.phase else { return };
        if self.settled_once || full != Some(false) {
            return;
        }
        let in_flight = opening.mark * rtt.as_secs_f64();
        let most = (MOST_AHEAD * in_flight).max(self.least_ahead);
        let wider = (self.window as f64 + OPENING_SHARE * bytes as f64).min(most);
        self.window = self.window.max(bounds.clamp_window(wider, self.open_lanes));
    }

    /// Goodput has grown. Widens the window by `gain` at most: a round can seem to be faster than the link,
    /// when a lost segment arrives at last and everything behind it counts.
    fn grow(&mut self, goodput: f64, view: View, bounds: &Bounds) {
        let mut most = self.bdp(goodput, view);
        if self.settled_once {
            most *= self.most_stretch(view) / self.stretch;
        }
        let window = bounds.gain * most.min(self.window as f64);
        self.window = self.window.max(bounds.clamp_window(window, self.open_lanes));
    }

    /// A window of several BDPs without the goodput for it: either a wider one does not help (a slow
    /// start with losses), or bytes in flight are only requested and not yet on the path (one request at
    /// a time on a lane, a server that responds slowly). Widening it once shows which.
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

    /// Room for the lanes of the path, which begin slowly, besides the first one. Lanes that are opened later
    /// have to prove themselves within the existing window.
    fn make_room(&mut self, goodput: f64, view: View, lanes: &Lanes, bounds: &Bounds) {
        if self.fewer_lanes.is_some_and(|(fewer, _)| fewer > 1) {
            return;
        }
        let share = (LANE_BYTES * lanes.open() as u64) as f64;
        let window = share.min(RAMPING_GAIN * self.bdp(goodput, view));
        self.window = self.window.max(bounds.clamp_window(window, lanes.open()));
    }

    /// If the last new lanes carry their full share, all carry very little, or the path is known not to be full, the
    /// lanes are the limit, and the next ones are opened without settling first.
    fn open_more_lanes(&mut self, view: View, lanes: &mut Lanes, bounds: &Bounds) -> bool {
        let goodput = self.samples.mean(FLAT_ROUNDS as usize);
        let thin = self.lane_share(goodput, view, lanes) < THIN_LANE_BYTES;
        // On a short path one lane fills the link, unless a server limits each connection.
        let slow = self.are_slow(lanes);
        let proven = self.fewer_lanes.is_some() || thin || view.full == Some(false);
        if self.settled_once
            || self.leaves_lanes
            || view.full == Some(true)
            || !proven
            || self.link_is_full(goodput, lanes)
            || (view.rtt < LONG_PATH && !slow)
        {
            return false;
        }
        let Some(more) = lanes.next_step(view.now, bounds) else { return false };
        self.fewer_lanes = Some((lanes.open(), goodput));
        if slow {
            // Requests on slow lanes fill the window for long.
            let room = Bounds::room_for(more.saturating_sub(lanes.open()));
            self.widen_to(self.window.saturating_add(room), bounds);
        }
        lanes.want(more, view.now);
        self.phase = Phase::Opening(Opening { mark: goodput, best: goodput, ..Opening::default() });
        true
    }

    fn are_slow(&self, lanes: &Lanes) -> bool {
        self.samples.mean(FLAT_ROUNDS as usize) < SLOW_LANE * lanes.open() as f64
    }

    fn settle(&mut self, opening: Opening, view: View, bounds: &Bounds) {
        let mut goodput = self.samples.mean(FLAT_ROUNDS as usize);
        if view.full == Some(true) {
            // The last round shows what the path carries; before, lanes were still growing.
            goodput = goodput.max(self.samples.mean(1));
        }
        // Requests that wait at the server are in no queue of the path. After a fall of goodput other
        // traffic may share it, and the usual headroom is enough.
        let waits_elsewhere = bounds.is_bounded_elsewhere() && view.full == Some(true);
        let headroom = if waits_elsewhere { HEADROOM_ELSEWHERE } else { self.headroom(view) };
        let window = bounds.clamp_window(headroom * self.bdp(goodput, view), self.open_lanes);
        self.begin(Change::Settle, goodput.max(opening.best), window, view);
    }
}
