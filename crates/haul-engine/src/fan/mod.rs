//! Fan-out: copies to many hosts that share a single read of the source.
//!
//! ```text
//!             ┌ view of host 1 → transfer → host 1
//! source → store ─ view of host 2 → transfer → host 2
//!             └ view of host 3 → transfer → host 3
//! ```
//!
//! Each host has its own [`transfer()`](crate::transfer()), with its own plan, retries and journal; transfers to or
//! from one server share its window ([`crate::budget`]), unless a common source is behind a link. A transfer reads
//! through a view of the source. Bytes that one view reads are cached in the store for the others. So all hosts whose
//! positions differ by no more than the size of the store share one read of the source. A host that has fallen farther
//! behind reads for itself.
//!
//! Modules: `store` caches what was read (the lock on its state is never held across an await); `shelf` is its
//! state of one open file, `memo` that of small files, listings and open files; `seats` numbers the hosts, `pace`
//! decides how long one waits for another; `view` and `reader` implement the storage traits; `drive` runs the transfers
//! and adds up their results.
//!
//! Memory: half of the budget is for the store, the other half for the windows of the hosts that are served at once.
//! The two are counted separately, although they often refer to the same bytes. Hosts without a common source have no
//! store, and their windows get the whole budget.

mod drive;
mod event;
mod memo;
mod meter;
mod pace;
mod reader;
mod seat;
mod seats;
mod shelf;
mod store;
mod view;

pub use drive::{FanSettings, MOST_AT_ONCE, Opened, fan_out};
pub use event::{FanEvent, FanSink, FanSummary, HostEnd, HostOutcome};

#[cfg(test)]
mod tests;
