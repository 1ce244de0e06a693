//! Transfer of one file by ranges: a state machine without I/O, and the driver that does its I/O.
//!
//! ```text
//!                 ┌── poll(now): Read, Copy, Write, Record, Room, … ──→┐
//!  FileInMotion ──┤                                                    driver ─→ storages
//!                 └←── on_block, on_written, on_failed, on_room, … ────┘
//! ```
//!
//! [`FileInMotion`] owns the remaining work ([`Schedule`](crate::schedule::Schedule), [`holes`]), the
//! ranges in flight and their permits ([`range`]), the order of writes, and the ranges not yet in the
//! journal ([`records`]). It decides the next step: which range to start, to retry after a pause, to
//! take over from a slow lane, or to continue although no permits are free. Time is passed in.
//!
//! Invariant: a range holds its permit from its first request until it is finished, through every retry. In a
//! file whose bytes must pass in order, the range that all others wait for was assigned before them, so it
//! already has its permit and never blocks. Streams take permits for the next bytes only, and continue without
//! one if waiting could deadlock.

mod action;
mod blocks;
mod driver;
mod file;
mod holes;
mod mode;
mod range;
mod records;
mod takeover;
#[cfg(test)]
mod tests;

pub use driver::{Driver, Ends};
pub use file::{FileInMotion, Shared};
pub use mode::{Mode, Reads};
