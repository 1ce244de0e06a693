//! What the search is at.

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
    /// Rounds since.
    pub(super) flat: u32,
    /// The highest mean of as many rounds as end the opening when they are flat.
    pub(super) best: f64,
    /// Whether it was tried if bytes in flight are only asked for; and with which window and
    /// goodput, while that trial goes on.
    pub(super) stretched: bool,
    pub(super) stretches: Option<(u64, f64)>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    pub(super) change: Change,
    pub(super) window_before: u64,
    pub(super) goodput_before: f64,
    /// Data that was asked for before the change arrives until then, and ...
    pub(super) ripe: Duration,
    /// ... as long as so many bytes are to come.
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
    /// Goodput fell: a window for what is left of it.
    Shrink,
    /// Now and then: is there more to have?
    Wider,
    /// Now and then, if the window is larger than the round trip explains: is it still needed?
    Narrower,
    /// More lanes than these.
    Lanes(usize),
}
