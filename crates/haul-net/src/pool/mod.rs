//! The lanes to one host. The window sets their number; they are opened in parallel in the background, and lost ones
//! are replaced.
//!
//! ```text
//!       target, expect, RTT, refusals → Supply: how many to open now
//!                                                 ↓
//!                 tasks → Lanes: each task picks a lane
//!                                                 ↓
//!                       Connect (a backend): connects, starts, reviews
//! ```
//!
//! If lanes accept any number of requests, a task picks the least loaded one ([`Lanes::choose`]: SFTP, pipelined HTTP,
//! peers). If they do one thing at a time, it picks an idle one and has it to itself ([`Lanes::take_turn`]: FTP, other
//! HTTP).

mod lanes;
mod supply;
#[cfg(test)]
mod tests;

pub use lanes::{Connect, Connecting, ENOUGH, Lanes, QUEUES, SharedLane, WhenFull, close_excess};
pub use supply::{LONG_RTT, Supply};
