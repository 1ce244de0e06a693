//! The budget of a path: one window, the bytes in flight, the queue for permits and the number of lanes,
//! shared by all transfers and readers between the same hosts.
//!
//! ```text
//! LinkBudgets (of a run) ──one for each path──► budget: Window + Grants, behind one lock
//!        │                                          ▲
//!        └─one for each host─► target lanes         │ request, arrived, consumed, completed, tick
//!                   ▲                               │
//!                   └────── sum of all paths ── LinkShare (one user: a transfer's `Flow`, a reader or writer)
//! ```
//!
//! A path is the set of hosts that are read and the set of those that are written: one host for an upload or a
//! download, two for a copy between servers. An upload and a download of one host are two paths, because their
//! windows are measured and bounded differently, but they share the host's lanes.
//!
//! Each user has its own memory limit and its own bytes left to move; the window gets the sum of the latter.
//!
//! The next user of a path starts with the window that was measured. After [`QUIET`] without a byte in flight the
//! measurements are discarded: the search for the window restarts, on the lanes that are open. If the path has no user
//! by then, the next one gets a new budget, which starts with one lane.
//!
//! `grants` and `machine` decide, without I/O and with the time passed in; `share`, `hosts` and `registry` are the
//! asynchronous shell.
//!
//! A reader without a transfer takes permits like this:
//!
//! ```no_run
//! use futures_util::TryStreamExt;
//! use haul_engine::budget::{LinkShare, Priority};
//! use haul_storage::{Block, Range, ReadAt, Result};
//! use std::sync::Arc;
//!
//! /// `share` is from `LinkBudgets::reader`. Another task calls `share.tick()` every 25 ms.
//! async fn read(share: &Arc<LinkShare>, file: &dyn ReadAt, range: Range) -> Result<Vec<Block>> {
//!     let mut permit = share.acquire(Priority::Interactive, range.len()).await;
//!     let issued = share.now();
//!     let mut blocks = Vec::new();
//!     let mut arriving = file.read_at(range);
//!     while let Some(block) = arriving.try_next().await.inspect_err(|error| share.failed(error.kind()))? {
//!         permit.arrived(block.len() as u64);
//!         blocks.push(block);
//!     }
//!     share.completed(issued, None, range.len());
//!     permit.consumed(); // once the blocks are used
//!     Ok(blocks)
//! }
//! ```

mod grants;
mod hosts;
mod machine;
mod registry;
mod share;

pub use grants::Priority;
pub use machine::QUIET;
pub use registry::LinkBudgets;
pub use share::{LinkShare, Permit};

#[cfg(test)]
mod tests;
