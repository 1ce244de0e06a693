//! Reading open files.
//!
//! ```text
//! READ ─► Source ─ blocks held? ─► Blocks (memory, by version of the file)
//!            │  no: in flight? ──► wait for it, with other readers
//!            │  no: fetch ─┬─ on disk? ─► Disk (cache, by version of the file)
//!            │             └─ permit (LinkShare, interactive) ─► ReadAt::read_at
//!            └─ Streams: is this sequential? ─► fetch ahead, within one budget for all files
//! ```
//!
//! The first block of a file is requested in the same flight as its OPEN. As long as lookups lead to opens, both are
//! sent along with the LOOKUP.
//!
//! The blocks that a process waits for are requested first and alone. Read-ahead follows with a lower priority, so that
//! no read waits behind it for the window. A block is held in memory under the version of its file: after a change it
//! is not found again.

mod blocks;
mod context;
mod counters;
mod disk;
mod expected;
mod fetch;
mod files;
mod pattern;
mod source;
mod spread;
#[cfg(test)]
mod tests;

pub(crate) use context::{Context, ReadOptions};
pub(crate) use files::{Files, MOST_LISTED};
