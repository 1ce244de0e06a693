//! A cache of directories that are known to exist.
//!
//! If the parent of a new file is missing, some servers create it (nginx, if so configured), others return 500. So a
//! directory is looked up once before a file is created in it, or anything is renamed or copied into it.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use haul_storage::RelPath;

/// Most directories to remember. When there are more, the cache is cleared.
const MAX_KNOWN: usize = 16_384;

/// The cache.
#[derive(Debug, Default)]
pub struct Directories {
    known: Mutex<HashSet<RelPath>>,
}

impl Directories {
    /// Whether a directory is known to exist.
    pub fn has(&self, directory: &RelPath) -> bool {
        directory.is_root() || self.lock().contains(directory)
    }

    /// Remembers a directory.
    pub fn learn(&self, directory: RelPath) {
        let mut known = self.lock();
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(directory);
    }

    /// If `path` is known, forgets it and everything below it.
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
