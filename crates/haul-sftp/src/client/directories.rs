//! A cache of paths that are known to be directories and not symbolic links.
//!
//! A server follows links in the middle of a path. So before anything is done below a directory, each directory on the
//! path is checked once, all of them in one RTT. Entries are dropped when this client removes or renames something. (If
//! another user of the server replaces a directory by a link later, that goes unnoticed: SFTP version 3 offers no way
//! to be sure.)

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use haul_storage::RelPath;

/// Most directories to remember. When there are more, the cache is cleared.
const MAX_KNOWN: usize = 16_384;

/// The cache.
#[derive(Debug, Default)]
pub(super) struct Directories {
    known: Mutex<HashSet<RelPath>>,
    /// Directories that this run has created.
    made: Mutex<HashSet<RelPath>>,
}

impl Directories {
    /// `directory` and its ancestors as far as they are not known, from the top.
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

    /// Remembers a directory, whose ancestors must be known.
    pub(super) fn learn(&self, directory: RelPath) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = self.lock();
        if known.len() >= MAX_KNOWN {
            known.clear();
            // `forget` does not search them for what is below a directory that is not known.
            made.clear();
            // `forget` relies on the ancestors of a known directory being known.
            let mut ancestor = directory.parent();
            while let Some(path) = ancestor.filter(|path| !path.is_root()) {
                ancestor = path.parent();
                known.insert(path);
            }
        }
        known.insert(directory);
    }

    /// Remembers a directory that was just created.
    pub(super) fn made(&self, directory: RelPath) {
        self.learn(directory.clone());
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.len() < MAX_KNOWN {
            made.insert(directory);
        }
    }

    /// Whether this run is known to have created a directory.
    pub(super) fn is_made(&self, directory: &RelPath) -> bool {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).contains(directory)
    }

    /// Forgets `path` and everything below it.
    pub(super) fn forget(&self, path: &RelPath) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = self.lock();
        // Usually it is a file, and nothing has to be searched.
        if known.contains(path) || made.contains(path) {
            known.retain(|known| !known.starts_with(path));
            made.retain(|made| !made.starts_with(path));
        }
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
    fn only_unknown_directories_are_returned() {
        let directories = Directories::default();
        assert_eq!(directories.unknown(&path("a/b/c")), [path("a"), path("a/b"), path("a/b/c")]);
        directories.learn(path("a"));
        directories.learn(path("a/b"));
        assert_eq!(directories.unknown(&path("a/b/c")), [path("a/b/c")]);
        assert_eq!(directories.unknown(&RelPath::root()), []);
    }

    #[test]
    fn a_directory_that_was_made_is_forgotten_although_the_cache_was_cleared() {
        let directories = Directories::default();
        directories.learn(path("a"));
        directories.made(path("a/b"));
        for number in 0..MAX_KNOWN {
            directories.learn(path(&format!("other{number}")));
        }
        directories.forget(&path("a"));
        assert!(!directories.is_made(&path("a/b")));
        directories.made(path("c"));
        assert!(directories.is_made(&path("c")));
        directories.forget(&path("c"));
        assert!(!directories.is_made(&path("c")));
    }

    #[test]
    fn a_removed_directory_is_forgotten_with_everything_below_it() {
        let directories = Directories::default();
        ["a", "a/b", "ab"].iter().for_each(|known| directories.learn(path(known)));
        directories.forget(&path("a"));
        assert_eq!(directories.unknown(&path("a/b")), [path("a"), path("a/b")]);
        assert_eq!(directories.unknown(&path("ab")), []);
    }

    #[test]
    fn directories_below_a_renamed_one_are_forgotten_even_after_the_cache_was_cleared() {
        let directories = Directories::default();
        directories.learn(path("a"));
        (1..MAX_KNOWN).for_each(|n| directories.learn(path(&format!("d{n}"))));
        directories.made(path("a/b"));
        assert!(directories.is_made(&path("a/b")));
        directories.forget(&path("a"));
        assert_eq!(directories.unknown(&path("a/b")), [path("a"), path("a/b")]);
        assert!(!directories.is_made(&path("a/b")));
    }
}
