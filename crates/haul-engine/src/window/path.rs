//! The path: its RTT while no packets wait in a queue, and whether that has changed.
//!
//! RTTs that have become longer mean a queue or a longer path. Goodput does not show which: with the same
//! bytes in flight it falls in both cases, and a kernel remembers its shortest RTT for minutes. So when RTTs
//! are longer than the window explains, the window is cut for a moment. That makes a queue shorter, but not a
//! path.
//!
//! ```text
//! longer than explained ──► drain: window cut ──► less in flight ──► one RTT later:
//!                                                    shorter? a queue : a longer path, the new base
//! ```
//!
//! The cut window is no less than what the path holds if the delay is a queue, so that the queue shrinks, and
//! goodput does not; but no more than half of what is in flight. An RTT shorter than the base lowers the base
//! at once.

use std::collections::VecDeque;
use std::time::Duration;

use super::bounds::ENDS_DELAY;

/// An RTT is too long if it exceeds `TOO_LONG` times what the window explains, plus `JITTER`. Goodput has
/// fallen by an eighth at most until then if the window explains 120 ms, and by a quarter if 20 ms.
const TOO_LONG: f64 = 1.1;
const JITTER: Duration = Duration::from_millis(5);

/// Where a lane sends to the end of what was requested, a cut window does not make the queue shorter. A queue
/// usually holds the bytes of one RTT: only what exceeds the base by more than that can be a longer path.
const UNDRAINABLE_TOO_LONG: f64 = 2.25;

/// Below this, RTTs are dominated by the delays of the two hosts.
const LEAST: Duration = Duration::from_millis(20);

/// RTTs have to be too long for this time, and for an eighth of an RTT, before the window is cut.
const LASTING: Duration = Duration::from_millis(50);

/// The window is cut to `CUT` of what is in flight on the path, or to one BDP if that is more; to `LEAST_CUT`
/// of what is in flight at most, and to `LEAST_WINDOW` bytes at least.
const CUT: f64 = 0.25;
const LEAST_CUT: f64 = 0.5;
const LEAST_WINDOW: u64 = 128 << 10;

/// How long new RTTs are awaited once less is in flight: in RTTs, and at least as long as backends report
/// old ones.
const AWAITED: f64 = 1.25;
const LEAST_AWAITED: Duration = Duration::from_millis(250);

/// RTTs that have grown by this factor meanwhile are awaited anew: those of kernels are running means, which approach
/// the RTT of a longer path slowly.
const GROWING: f64 = 1.1;

/// A drain that shows nothing within this many RTTs and seconds is abandoned: nothing was sent.
const PATIENCE_RTTS: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(2);

/// Pause after a queue was found, or a drain showed nothing; doubles each time, up to 80 s.
const PAUSE: Duration = Duration::from_secs(10);
const MOST_DOUBLINGS: u32 = 3;

/// After a queue was found, less is in flight, so RTTs get shorter. If they stay at `AS_LONG` or more of the
/// RTT before for half a second of the first two, the measurement was from before the path changed.
const AS_LONG: f64 = 0.9;
const DOUBTFUL: Duration = Duration::from_millis(500);
const DOUBTED: Duration = Duration::from_secs(2);

/// An RTT that exceeds that before the pause by this factor ends the pause: the path may have changed.
const FAR_LONGER: f64 = 1.5;

/// Goodput is measured over one RTT, and at least over this time.
const LEAST_MEASUREMENT: Duration = Duration::from_millis(100);
/// How long entries of `history` are retained.
const HISTORY: Duration = Duration::from_secs(4);

/// A path that has become shorter by this factor counts as another one.
const SHORTER: f64 = 0.75;

/// A change of the path, or the queue that only looked like one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Finding {
    /// The path is longer than it was.
    Longer,
    /// The path is much shorter than it was.
    Shorter,
    /// There was a queue, on a path that carries this many bytes per second.
    Queue(f64),
}

/// A window that has been found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settled {
    pub(super) window: u64,
    /// The goodput that it was made for, in bytes per second.
    pub(super) goodput: f64,
    /// Its maximum on a full path, in BDPs.
    pub(super) most_bdps: f64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Path {
    /// A cut window does not make a queue shorter.
    undrainable: bool,
    /// The shortest RTT without a queue, as far as is known.
    base: Option<Duration>,
    /// The shortest RTT that the link reported last.
    reported: Option<Duration>,
    /// The present RTT; `None` if unknown.
    present: Option<Duration>,
    /// The base that the window was made for.
    made_for: Duration,
    too_long_since: Option<Duration>,
    drain: Option<Drain>,
    /// No drain begins before, unless RTTs become far longer.
    quiet_until: Duration,
    /// How often the next pause is doubled, up to `MOST_DOUBLINGS`.
    futile: u32,
    /// The RTT, queue included, when the pause until `quiet_until` began.
    before_pause: Duration,
    doubt: Option<Doubt>,
    /// Whether the drain is a repetition, whose result is final.
    repeats: bool,
    in_flight: Option<u64>,
    arrived: u64,
    /// All bytes that had arrived, at each call of [`Path::on_link`].
    history: VecDeque<(Duration, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct Drain {
    window: u64,
    began: Duration,
    /// RTT and goodput before.
    rtt: Duration,
    goodput: f64,
    /// RTTs no longer than this show that there was a queue.
    of_a_queue: Duration,
    /// When the excess must have arrived, where bytes in flight are not reported.
    surely_less: Duration,
    /// Since when less has been in flight and RTTs have not grown, and the RTT at that time.
    steady_since: Option<(Duration, Duration)>,
}

/// A queue was found, but has not been seen to drain.
#[derive(Debug, Clone, Copy)]
struct Doubt {
    /// RTTs no shorter than this are as long as before.
    as_long: Duration,
    since: Duration,
    until: Duration,
}

impl Drain {
    fn learns_nothing_at(&self) -> Duration {
        self.began + self.rtt * PATIENCE_RTTS + PATIENCE
    }
}

impl Path {
    /// The RTT without a queue.
    pub(super) const fn base(&self) -> Option<Duration> {
        self.base
    }

    /// The part of the RTT that is queueing, if known.
    pub(super) fn queueing(&self) -> Option<Duration> {
        Some(self.present?.saturating_sub(self.base?))
    }

    /// The most that may be in flight at present.
    pub(super) fn most_window(&self) -> u64 {
        self.drain.map_or(u64::MAX, |drain| drain.window)
    }

    pub(super) const fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// A lane sends to the end of what was requested: a cut window does not make a queue shorter.
    pub(super) const fn cannot_be_drained(&mut self) {
        self.undrainable = true;
    }

    /// Discards everything: the path may be another one by now.
    pub(super) fn forget(&mut self) {
        *self = Self { undrainable: self.undrainable, ..Self::default() };
    }

    /// `bytes` have arrived, and `in_flight` are left in flight, if known.
    pub(super) fn on_arrival(&mut self, bytes: u64, in_flight: Option<u64>) {
        self.arrived = self.arrived.saturating_add(bytes);
        self.in_flight = in_flight.or(self.in_flight);
    }

    /// The link reports its shortest RTT, and how much longer the present one is.
    pub(super) fn on_link(
        &mut self,
        now: Duration,
        shortest: Duration,
        queueing: Option<Duration>,
        settled: Option<Settled>,
    ) -> Option<Finding> {
        self.present = queueing.map(|queueing| shortest + queueing);
        let known = self.reported.replace(shortest);
        if let Some(drain) = self.drain.filter(|drain| now >= drain.learns_nothing_at()) {
            self.drain = None;
            self.pause(now, drain.rtt);
        }
        let Some(present) = self.present else {
            // Without present RTTs a queue cannot be distinguished from a longer path.
            if self.made_for.is_zero() {
                self.base = Some(shortest);
            }
            return None;
        };
        self.history.push_back((now, self.arrived));
        while self.history.front().is_some_and(|(at, _)| *at + HISTORY < now) {
            self.history.pop_front();
        }
        let base = *self.base.get_or_insert(shortest);
        let reported = known.is_none_or(|known| shortest < known).then_some(shortest);
        let least = reported.into_iter().chain([base, present]).min().unwrap_or(base);
        self.base = Some(least);
        if self.made_for.is_zero() {
            self.made_for = least;
        }
        if least.as_secs_f64() < self.made_for.as_secs_f64() * SHORTER && least < base {
            (self.drain, self.made_for) = (None, least);
            return Some(Finding::Shorter);
        }
        match self.drain {
            Some(drain) => self.evaluate(drain, now, present),
            None => {
                self.review(now, present);
                self.suspect(now, present, settled);
                None
            }
        }
    }

    /// Checks whether the queue that was found is gone; if it stays, the drain is repeated at once.
    fn review(&mut self, now: Duration, present: Duration) {
        let Some(doubt) = &mut self.doubt else { return };
        if present < doubt.as_long {
            doubt.since = now;
        }
        if now >= doubt.since + DOUBTFUL {
            (self.quiet_until, self.repeats) = (now, true);
            self.futile = self.futile.saturating_sub(1);
            self.doubt = None;
        } else if now >= doubt.until {
            self.doubt = None;
        }
    }

    /// Begins to drain if the window does not explain the present RTT.
    fn suspect(&mut self, now: Duration, present: Duration, settled: Option<Settled>) {
        let since = self.too_long_since.take();
        let Some(Settled { window, goodput, most_bdps }) = settled else { return };
        let base = self.made_for.min(self.base.unwrap_or(present));
        let with_ends = base.as_secs_f64() + ENDS_DELAY;
        let explained = (window as f64 / goodput.max(1.0)).clamp(with_ends, most_bdps * with_ends);
        let explained = if self.undrainable {
            explained.max(UNDRAINABLE_TOO_LONG * with_ends)
        } else {
            explained
        };
        let too_long = present.as_secs_f64() > TOO_LONG * explained + JITTER.as_secs_f64();
        let pauses = now < self.quiet_until && present < self.before_pause.mul_f64(FAR_LONGER);
        if !too_long || present < LEAST || pauses {
            return;
        }
        let since = since.unwrap_or(now);
        self.too_long_since = Some(since);
        if now < since + LASTING.max(present / 8) {
            return;
        }
        let goodput = self.goodput(now, present);
        if goodput <= 0.0 {
            return;
        }
        self.too_long_since = None;
        let on_path = goodput * present.as_secs_f64();
        let in_flight =
            self.in_flight.map_or(window as f64, |bytes| (bytes as f64).min(window as f64));
        let cut = (goodput * base.as_secs_f64()).max(CUT * on_path).min(LEAST_CUT * in_flight);
        let drained = cut.max(LEAST_WINDOW as f64);
        let of_a_queue = base.as_secs_f64().max(drained / goodput);
        let of_a_queue = of_a_queue.min(present.as_secs_f64()).midpoint(present.as_secs_f64());
        let of_a_queue = Duration::from_secs_f64(of_a_queue);
        if of_a_queue >= present {
            // Too little is in flight for a drain to show anything.
            self.pause(now, present);
            return;
        }
        let emptied = window as f64 / goodput;
        self.drain = Some(Drain {
            window: drained as u64,
            began: now,
            rtt: present,
            goodput,
            of_a_queue,
            surely_less: now + Duration::from_secs_f64(emptied.min(PATIENCE.as_secs_f64())),
            steady_since: None,
        });
    }

    /// Evaluates the present RTT while the window is cut.
    fn evaluate(&mut self, mut drain: Drain, now: Duration, present: Duration) -> Option<Finding> {
        if present <= drain.of_a_queue {
            self.drain = None;
            if !std::mem::take(&mut self.repeats) {
                let (as_long, until) = (drain.rtt.mul_f64(AS_LONG), now + DOUBTED);
                self.doubt = Some(Doubt { as_long, since: now, until });
            }
            self.pause(now, drain.rtt);
            return Some(Finding::Queue(drain.goodput));
        }
        let less = match self.in_flight {
            Some(bytes) => bytes <= drain.window,
            None => now >= drain.surely_less,
        };
        if less {
            let grows = |&(_, then): &(_, Duration)| present > then.mul_f64(GROWING);
            drain.steady_since =
                drain.steady_since.filter(|then| !grows(then)).or(Some((now, present)));
        }
        self.drain = Some(drain);
        let awaited = present.mul_f64(AWAITED).max(LEAST_AWAITED);
        if drain.steady_since.is_some_and(|(since, _)| now >= since + awaited) {
            self.drain = None;
            (self.futile, self.repeats) = (0, false);
            self.quiet_until = now + present * 2;
            self.before_pause = present;
            // Earlier RTTs may be partly those of the old path. A base that is too short would look like a queue for
            // minutes; one that is too long is lowered by the next RTTs.
            self.base = Some(present);
            self.made_for = present;
            return Some(Finding::Longer);
        }
        None
    }

    /// No further drain for some time, unless RTTs become far longer than `rtt`.
    fn pause(&mut self, now: Duration, rtt: Duration) {
        self.before_pause = rtt;
        self.quiet_until = now + PAUSE * 2u32.pow(self.futile.min(MOST_DOUBLINGS));
        self.futile += 1;
    }

    /// Bytes per second over the last RTT.
    fn goodput(&self, now: Duration, rtt: Duration) -> f64 {
        let since = now.saturating_sub(rtt.max(LEAST_MEASUREMENT));
        let first = self.history.iter().rev().find(|(at, _)| *at <= since).or(self.history.front());
        let Some(&(at, arrived)) = first else { return 0.0 };
        let seconds = now.saturating_sub(at).as_secs_f64();
        if seconds > 0.0 { (self.arrived - arrived) as f64 / seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SETTLED: Settled = Settled { window: 1_000_000, goodput: 37.5e6, most_bdps: 1.4 };

    /// A link with a window that was settled at 20 ms. Every 25 ms from then on, `link` gives RTT and
    /// bytes per second for the bytes that may be in flight.
    fn follow(link: impl Fn(u64) -> (Duration, f64)) -> (Path, Option<Finding>, Duration) {
        let (path, found) = follow_all(1, 5000 * MS, |_, in_flight| link(in_flight));
        let (after, found) = found.last().map_or((5000 * MS, None), |(at, f)| (*at, Some(*f)));
        (path, found, after)
    }

    /// The same with a link that depends on the time, until there are `most` findings or until `end`. After a
    /// queue was found, a quarter of the window is used.
    fn follow_all(
        most: usize,
        end: Duration,
        link: impl Fn(Duration, u64) -> (Duration, f64),
    ) -> (Path, Vec<(Duration, Finding)>) {
        let (mut path, mut found) = (Path::default(), Vec::new());
        let (mut now, mut settled) = (Duration::ZERO, SETTLED);
        assert_eq!(path.on_link(now, 20 * MS, Some(5 * MS), Some(settled)), None);
        while now < end && found.len() < most {
            now += 25 * MS;
            let in_flight = path.most_window().min(settled.window);
            let (present, rate) = link(now, in_flight);
            path.on_arrival((rate * 0.025) as u64, Some(in_flight));
            let finding = path.on_link(now, 20 * MS, Some(present - 20 * MS), Some(settled));
            if let Some(Finding::Queue(_)) = finding {
                settled.window = SETTLED.window / 4;
            }
            found.extend(finding.map(|finding| (now, finding)));
        }
        (path, found)
    }

    #[test]
    fn an_rtt_that_stays_long_with_less_in_flight_is_that_of_the_path() {
        let (path, found, after) = follow(|in_flight| (250 * MS, in_flight as f64 / 0.25));
        assert_eq!((found, path.base()), (Some(Finding::Longer), Some(250 * MS)));
        assert!(after < 250 * MS * 3, "it takes {after:?}");
        assert_eq!((path.queueing(), path.most_window()), (Some(Duration::ZERO), u64::MAX));
    }

    #[test]
    fn the_new_base_is_the_rtt_of_the_longer_path_although_reported_rtts_rise_slowly() {
        for rise in [50.0, 100.0, 200.0] {
            let (path, found) = follow_all(1, 5000 * MS, |now, in_flight| {
                let old = (-(now.as_millis() as f64) / rise).exp();
                let present = 0.25 - 0.23 * old;
                (Duration::from_secs_f64(present), in_flight as f64 / 0.25)
            });
            let [(after, Finding::Longer)] = found[..] else { panic!("{found:?}") };
            let base = path.base().unwrap();
            assert!(
                base >= 235 * MS,
                "{base:?} after {after:?}, with RTTs that rise for {rise} ms"
            );
        }
    }

    #[test]
    fn rtts_from_before_a_change_delay_its_discovery_by_a_second_at_most() {
        let (_, _, without) = follow(|in_flight| (250 * MS, in_flight as f64 / 0.25));
        // For half a second, some connections report what they measured before the path changed.
        let (path, found) = follow_all(2, 20_000 * MS, |now, in_flight| {
            let old = now < 500 * MS && now.as_millis() % 250 == 0;
            let present = if old { 20 * MS } else { 250 * MS };
            (present, in_flight as f64 / 0.25)
        });
        let [(_, Finding::Queue(_)), (after, Finding::Longer)] = found[..] else {
            panic!("{found:?}")
        };
        assert!(after <= without + 1000 * MS, "{after:?}, without them {without:?}");
        assert_eq!(path.base(), Some(250 * MS));
    }

    #[test]
    fn a_queue_of_other_traffic_is_drained_twice_each_time_and_ever_more_rarely() {
        let (_, found) = follow_all(9, 100_000 * MS, |_, in_flight| {
            let present = if in_flight < SETTLED.window / 4 { 20 * MS } else { 200 * MS };
            (present, 4e6)
        });
        let at: Vec<f64> = found.iter().map(|(at, _)| at.as_secs_f64()).collect();
        let pauses: Vec<u64> = at.windows(2).map(|at| (at[1] - at[0]) as u64).collect();
        assert!(found.iter().all(|(_, f)| matches!(f, Finding::Queue(_))), "{found:?}");
        assert_eq!(pauses, [0, 10, 0, 20, 0, 40, 0], "{at:?}");
    }

    #[test]
    fn a_path_that_becomes_longer_soon_after_a_queue_is_detected_without_a_pause() {
        let (path, found) = follow_all(2, 20_000 * MS, |now, in_flight| {
            if now < 2000 * MS {
                let full = now < 1500 * MS && in_flight > SETTLED.window / 2;
                (if full { 60 * MS } else { 22 * MS }, 20e6)
            } else {
                (250 * MS, in_flight as f64 / 0.25)
            }
        });
        let [(queue, Finding::Queue(_)), (longer, Finding::Longer)] = found[..] else {
            panic!("{found:?}")
        };
        assert!(queue < 1500 * MS && longer < 3000 * MS, "after {queue:?} and {longer:?}");
        assert_eq!(path.base(), Some(250 * MS));
    }

    #[test]
    fn an_rtt_that_gets_shorter_with_less_in_flight_was_a_queue() {
        // The same RTT and goodput, because the path carries 4 MB/s now.
        let (path, found, _) = follow(|in_flight| (MS * (in_flight / 4000) as u32, 4e6));
        let Some(Finding::Queue(goodput)) = found else { panic!("{found:?}") };
        assert!((goodput - 4e6).abs() < 1e5, "{goodput}");
        assert_eq!((path.base(), path.most_window()), (Some(20 * MS), u64::MAX));
    }

    #[test]
    fn an_rtt_that_the_window_explains_starts_no_drain() {
        let (path, found, _) = follow(|_| (30 * MS, 37.5e6));
        assert!(found.is_none() && !path.is_draining());
        assert_eq!(path.queueing(), Some(10 * MS));
    }

    #[test]
    fn a_shorter_rtt_counts_at_once() {
        let mut path = Path::default();
        assert_eq!(path.on_link(MS, 250 * MS, Some(MS), Some(SETTLED)), None);
        assert_eq!(path.on_link(2 * MS, 240 * MS, Some(MS), Some(SETTLED)), None);
        assert_eq!(path.base(), Some(240 * MS));
        let found = path.on_link(3 * MS, 20 * MS, Some(230 * MS), Some(SETTLED));
        assert_eq!((found, path.base()), (Some(Finding::Shorter), Some(20 * MS)));
    }

    #[test]
    fn a_drain_that_shows_nothing_is_abandoned() {
        let mut path = Path::default();
        let mut now = Duration::ZERO;
        while !path.is_draining() {
            now += 25 * MS;
            path.on_arrival(100_000, Some(SETTLED.window));
            let queueing = if now > 100 * MS { 230 * MS } else { MS };
            path.on_link(now, 20 * MS, Some(queueing), Some(SETTLED));
            assert!(now < 5000 * MS, "no drain begins");
        }
        // Nothing is sent any more, or the lanes are gone.
        assert_eq!(path.on_link(now + 4000 * MS, 20 * MS, None, Some(SETTLED)), None);
        assert_eq!(path.most_window(), u64::MAX);
    }

    #[test]
    fn without_queueing_delays_the_reported_rtt_is_used() {
        let mut path = Path::default();
        for shortest in [20, 30, 10] {
            assert_eq!(path.on_link(MS, shortest * MS, None, Some(SETTLED)), None);
            assert_eq!((path.base(), path.queueing()), (Some(shortest * MS), None));
        }
    }
}
