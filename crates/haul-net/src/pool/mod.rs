//! The lanes to one host: as many as the window wishes for, opened side by side in the background, a lost
//! one replaced.
//!
//! ```text
//! wish, expect, a path that is long, refusals → Supply: how many to open now
//!                                                 ↓
//!                 tasks → Lanes: each takes what it picks
//!                                                 ↓
//!                       Connect (a backend): connects, starts, reviews
//! ```
//!
//! Where lanes take any number of requests a task picks the least loaded ([`Lanes::choose`]: SFTP, HTTP). Where
//! they do one thing at a time it picks one that is idle, and has it to itself ([`Lanes::take_turn`]: FTP).

mod lanes;
mod supply;
#[cfg(test)]
mod tests;

pub use lanes::{Connect, Connecting, ENOUGH, Lanes, QUEUES, SharedLane, WhenFull, close_excess};
pub use supply::{LONG_RTT, Supply};
