//! The local roots of a run, by device and inode number. A bind mount makes a directory reachable under another
//! path; with these numbers it is neither copied into itself nor deleted as an extra entry.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use haul_storage::{Entry, FileId};

/// File IDs of the source and destination roots of a run. Entries without an ID never match.
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
    /// Records the root of a source.
    pub fn note_source(&self, root: &Entry) {
        self.lock().sources.extend(root.id);
    }

    /// Records the root of a destination.
    pub fn note_destination(&self, root: &Entry) {
        self.lock().destinations.extend(root.id);
    }

    /// True if `entry` is the root of a source.
    pub fn is_source(&self, entry: &Entry) -> bool {
        entry.id.is_some_and(|id| self.lock().sources.contains(&id))
    }

    /// True if `entry` is the root of a destination.
    pub fn is_destination(&self, entry: &Entry) -> bool {
        entry.id.is_some_and(|id| self.lock().destinations.contains(&id))
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
