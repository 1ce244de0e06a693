//! The roots that a run copies between on this machine, by their numbers: a directory can be reached under
//! another path by a bind mount, and is then neither copied into itself nor removed as something extra.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use haul_storage::{Entry, FileId};

#[derive(Debug, Default)]
pub struct Ends {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    sources: HashSet<FileId>,
    destinations: HashSet<FileId>,
}

impl Ends {
    /// Notes the root of a source.
    pub fn note_source(&self, root: &Entry) {
        self.lock().sources.extend(root.id);
    }

    /// Notes the root of a destination.
    pub fn note_destination(&self, root: &Entry) {
        self.lock().destinations.extend(root.id);
    }

    /// Whether this is the root of a source.
    pub fn is_source(&self, entry: &Entry) -> bool {
        entry.id.is_some_and(|id| self.lock().sources.contains(&id))
    }

    /// Whether this is the root of a destination.
    pub fn is_destination(&self, entry: &Entry) -> bool {
        entry.id.is_some_and(|id| self.lock().destinations.contains(&id))
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
