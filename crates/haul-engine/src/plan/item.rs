//! An item of a plan.

use std::sync::Arc;

use haul_storage::{Entry, ErrorKind, RelPath, Result};

use super::directory::Directory;
use crate::context::Ticket;
use crate::job::NumberedJob;

/// What is known of an item's destination.
#[derive(Debug, Clone)]
pub enum There {
    /// Nothing yet.
    Unknown,
    /// Nothing is there: it was looked at, or its directory was made by this run.
    Nothing,
    /// This is there.
    Found(Box<Entry>),
}

/// The result of a stat. Errors other than "not found" leave it unknown: the stat of the entry alone reports them.
impl From<Result<Entry>> for There {
    fn from(outcome: Result<Entry>) -> Self {
        match outcome {
            Ok(entry) => Self::Found(Box::new(entry)),
            Err(error) if error.kind() == ErrorKind::NotFound => Self::Nothing,
            Err(_) => Self::Unknown,
        }
    }
}

impl There {
    /// Of an entry of a directory that may have been made by this run.
    pub fn in_directory(is_fresh: bool) -> Self {
        if is_fresh { Self::Nothing } else { Self::Unknown }
    }

    /// Whether nothing is there.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }
}

/// One file, link or special file of a plan.
#[derive(Debug, Clone)]
pub struct Item {
    /// The job it belongs to.
    pub job: Arc<NumberedJob>,
    /// What the source's listing says of it.
    pub source: Entry,
    /// Where it goes.
    pub destination: RelPath,
    /// What is there.
    pub there: There,
    /// Keeps the directory it goes into from being finished.
    pub directory: Option<Arc<Directory>>,
    /// Shows that it is not done.
    #[expect(dead_code, reason = "held, not read")]
    pub ticket: Ticket,
}

impl Item {
    /// Whether both go into the same directory.
    pub fn shares_directory(&self, other: &Self) -> bool {
        match (&self.directory, &other.directory) {
            (Some(this), Some(other)) => Arc::ptr_eq(this, other),
            (this, other) => this.is_none() && other.is_none(),
        }
    }
}
