//! An item of the plan: one file, link or special file to transfer, and what exists at its destination.

use std::sync::Arc;

use haul_storage::{Entry, ErrorKind, RelPath, Result};

use super::directory::Directory;
use crate::context::Ticket;
use crate::job::NumberedJob;

/// What exists at an item's destination.
#[derive(Debug, Clone)]
pub enum Existing {
    /// Not known yet.
    Unknown,
    /// Nothing: it was looked up, or this run has created its directory.
    Nothing,
    /// This entry.
    Found(Box<Entry>),
}

/// The result of a batched stat. Errors other than "not found" leave it unknown: the later operation on this path alone
/// reports them.
impl From<Result<Entry>> for Existing {
    fn from(outcome: Result<Entry>) -> Self {
        match outcome {
            Ok(entry) => Self::Found(Box::new(entry)),
            Err(error) if error.kind() == ErrorKind::NotFound => Self::Nothing,
            Err(_) => Self::Unknown,
        }
    }
}

impl Existing {
    /// The initial value for an entry of a directory; `is_fresh` if this run has created the directory.
    pub fn in_directory(is_fresh: bool) -> Self {
        if is_fresh { Self::Nothing } else { Self::Unknown }
    }

    /// Whether the destination is known not to exist.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }
}

/// One file, link or special file of a plan.
#[derive(Debug, Clone)]
pub struct Item {
    /// The job it belongs to.
    pub job: Arc<NumberedJob>,
    /// The entry in the source's listing.
    pub source: Entry,
    /// Its path in the destination.
    pub destination: RelPath,
    /// What exists at that path.
    pub existing: Existing,
    /// Keeps the destination directory from being finished.
    pub directory: Option<Arc<Directory>>,
    /// Held until the item is done; `Context::planned_done` waits for that.
    #[expect(dead_code, reason = "held, not read")]
    pub ticket: Ticket,
}

impl Item {
    /// Whether both items, of one job, have the same destination directory.
    pub fn shares_directory(&self, other: &Self) -> bool {
        match (&self.directory, &other.directory) {
            (Some(this), Some(other)) => Arc::ptr_eq(this, other),
            (this, other) => this.is_none() && other.is_none(),
        }
    }
}
