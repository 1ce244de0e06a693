//! Which directories are known to be there.
//!
//! Some servers make what is missing above a new file (nginx, if told so), some fail with 500. So
//! before anything is made in a directory it is looked at, once.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use haul_storage::RelPath;

/// As many directories are remembered; beyond that all are asked for anew.
const MOST: usize = 16_384;

/// Directories that have been seen.
#[derive(Debug, Default)]
pub struct Directories {
    known: Mutex<HashSet<RelPath>>,
}

impl Directories {
    /// Whether it has been seen.
    pub fn has(&self, directory: &RelPath) -> bool {
        directory.is_root() || self.lock().contains(directory)
    }

    /// Remembers one.
    pub fn learn(&self, directory: RelPath) {
        let mut known = self.lock();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(directory);
    }

    /// Forgets what is at `path` and below it.
    pub fn forget(&self, path: &RelPath) {
        let mut known = self.lock();
        if known.contains(path) {
            known.retain(|known| !known.starts_with(path));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<RelPath>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
