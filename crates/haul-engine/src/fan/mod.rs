//! Many hosts from one read.
//!
//! ```text
//!             ┌ view of host 1 → transfer → host 1
//! source → store ─ view of host 2 → transfer → host 2
//!             └ view of host 3 → transfer → host 3
//! ```
//!
//! Every host has a [`transfer()`](crate::transfer()) of its own, with its own plan, retries and journal; those to
//! or from one server share its window ([`crate::budget`]). It reads through a view of the source. What one view reads goes into the store, where
//! the others find it. So the source is read once by all hosts that are no further apart than the
//! store is long, and who has fallen further behind reads for itself.
//!
//! Rooms: `store` keeps what was read (its lock is the only one, and nothing waits while it is
//! held); `shelf` is what it knows of one open file, `memo` of small files, listings and open files;
//! `seats` are the hosts, `pace` how long one waits for another; `view` and `reader` implement the
//! storage traits over all that; `drive` runs the transfers and adds up what they say.
//!
//! Memory: half of the budget is the store's, the other half is shared out to the windows of the
//! hosts that are served at once. The two are counted apart although they are often the same bytes.

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
