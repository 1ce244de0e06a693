//! Which directories are known to be directories and no links.
//!
//! A server follows links in the middle of a path. So before anything is done below a directory,
//! each directory on the way is looked at, once, all in one round trip. What is known is forgotten
//! when this side removes or renames something. (Somebody on the server who swaps a directory for a
//! link in the meantime is not seen; version 3 has no way to be sure.)

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use haul_storage::RelPath;

/// As many directories are remembered; beyond that all are asked for anew.
const MOST: usize = 16_384;

/// Directories that have been looked at.
#[derive(Debug, Default)]
pub(super) struct Directories {
    known: Mutex<HashSet<RelPath>>,
    /// Those that this run has made.
    made: Mutex<HashSet<RelPath>>,
}

impl Directories {
    /// Those of `directory` and what is above it that have not been looked at, from the top.
    pub(super) fn unknown(&self, directory: &RelPath) -> Vec<RelPath> {
        let known = self.lock();
        let mut unknown = Vec::new();
        let mut current = Some(directory.clone());
        while let Some(path) = current.filter(|path| !path.is_root() && !known.contains(path)) {
            current = path.parent();
            unknown.push(path);
        }
        unknown.reverse();
        unknown
    }

    /// Remembers a directory. Those above it are known.
    pub(super) fn learn(&self, directory: RelPath) {
        let mut known = self.lock();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(directory);
    }

    /// Remembers a directory that was made now.
    pub(super) fn made(&self, directory: RelPath) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.len() < MOST {
            made.insert(directory.clone());
        }
        drop(made);
        self.learn(directory);
    }

    /// Whether a directory is known to be of this run's making.
    pub(super) fn is_made(&self, directory: &RelPath) -> bool {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).contains(directory)
    }

    /// Forgets what is at `path` and below it.
    pub(super) fn forget(&self, path: &RelPath) {
        let mut known = self.lock();
        if known.contains(path) {
            known.retain(|known| !known.starts_with(path));
        }
        drop(known);
        self.made.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<RelPath>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    #[test]
    fn only_what_is_not_known_is_asked_for() {
        let directories = Directories::default();
        assert_eq!(directories.unknown(&path("a/b/c")), [path("a"), path("a/b"), path("a/b/c")]);
        directories.learn(path("a"));
        directories.learn(path("a/b"));
        assert_eq!(directories.unknown(&path("a/b/c")), [path("a/b/c")]);
        assert_eq!(directories.unknown(&RelPath::root()), []);
    }

    #[test]
    fn what_is_removed_is_forgotten_with_all_below_it() {
        let directories = Directories::default();
        ["a", "a/b", "ab"].iter().for_each(|known| directories.learn(path(known)));
        directories.forget(&path("a"));
        assert_eq!(directories.unknown(&path("a/b")), [path("a"), path("a/b")]);
        assert_eq!(directories.unknown(&path("ab")), []);
    }
}
