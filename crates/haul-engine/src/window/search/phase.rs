//! The phases of the search.

use std::time::Duration;

#[derive(Debug, Clone, Copy)]
pub(super) enum Phase {
    Opening(Opening),
    Cruise,
    Trial(Trial),
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Opening {
    /// Goodput of the last round that had grown.
    pub(super) mark: f64,
    /// Rounds without growth since: with a full path they count double, otherwise not at all while lanes ramp up.
    pub(super) flat: u32,
    /// The highest mean goodput over `FLAT_ROUNDS` rounds.
    pub(super) best: f64,
    /// Whether a wider window was tried although the present one is several BDPs: bytes in flight may only be
    /// requested, and not on the path yet.
    pub(super) stretched: bool,
    /// During that trial: the window and the goodput before it.
    pub(super) stretches: Option<(u64, f64)>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    pub(super) change: Change,
    pub(super) window_before: u64,
    pub(super) goodput_before: f64,
    /// Until this time data arrives that was requested before the change, so samples do not count; nor ...
    pub(super) ripe: Duration,
    /// ... until this many more bytes have arrived.
    pub(super) to_come: f64,
    pub(super) sum: f64,
    pub(super) rounds: u32,
}

impl Trial {
    /// Mean goodput since the change, in bytes per second.
    pub(super) fn mean(&self) -> f64 {
        self.sum / f64::from(self.rounds)
    }

    /// The same as a multiple of the goodput before.
    pub(super) fn gain(&self) -> f64 {
        self.mean() / self.goodput_before.max(1.0)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// From the opening's window to the settled one.
    Settle,
    /// Goodput fell, a queue was found, or the path became shorter: a narrower window.
    Shrink,
    /// A probe whether more goodput is possible.
    Wider,
    /// A probe whether a window that is larger than the RTT explains is still needed.
    Narrower,
    /// More lanes than these.
    Lanes(usize),
}
