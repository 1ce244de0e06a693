//! A file that is moved by ranges: a state machine without I/O, and the driver that does its I/O.
//!
//! ```text
//!                 ┌── poll(now): Read, Copy, Write, Record, Room, … ──→┐
//!  FileInMotion ──┤                                                    driver ─→ storages
//!                 └←── on_block, on_written, on_failed, on_room, … ────┘
//! ```
//!
//! [`FileInMotion`] owns what is left to do ([`Schedule`](crate::schedule::Schedule), [`holes`]), the
//! ranges in flight and their permits ([`range`]), the order of writes, and what is not in the journal
//! yet ([`records`]). It decides what happens next: which range is begun, retried after a pause, taken
//! over from a slow lane, or has to go on without room. Time is passed in.
//!
//! A range holds its permit from beginning to end, through every retry. In files whose bytes have to
//! pass in order the range that all others wait for was assigned before them, so it has its permit and
//! can always go on.

mod action;
mod blocks;
mod driver;
mod file;
mod holes;
mod mode;
mod range;
mod records;
#[cfg(test)]
mod tests;

pub use driver::{Driver, Ends};
pub use file::{FileInMotion, Shared};
pub use mode::{Mode, Reads};
