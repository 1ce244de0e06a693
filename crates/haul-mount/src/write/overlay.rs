//! The files in the spool by their paths: they are shown instead of what the storage has at these paths.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use haul_storage::{Entry, RelPath};

use super::pending::Pending;
use super::state::Onto;
use crate::lock::lock;

/// The files in the spool by their paths in the storage.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    files: Mutex<BTreeMap<Vec<u8>, Arc<Pending>>>,
}

impl Overlay {
    /// The file at a path.
    pub(super) fn get(&self, path: &RelPath) -> Option<Arc<Pending>> {
        lock(&self.files).get(path.as_bytes()).cloned()
    }

    /// What is shown at a path; `None` if no file of the spool is there.
    pub(crate) fn entry(&self, path: &RelPath) -> Option<Arc<Entry>> {
        self.get(path)?.entry().map(Arc::new)
    }

    /// What is shown of the files of the spool in a directory.
    pub(crate) fn entries(&self, directory: &RelPath) -> Vec<Arc<Entry>> {
        let files = self.below(directory).into_iter().filter_map(|file| file.entry());
        files
            .filter(|entry| entry.path.parent().as_ref() == Some(directory))
            .map(Arc::new)
            .collect()
    }

    /// The files below a directory.
    pub(super) fn below(&self, directory: &RelPath) -> Vec<Arc<Pending>> {
        let mut prefix = directory.as_bytes().to_vec();
        if !prefix.is_empty() {
            prefix.push(b'/');
        }
        let files = lock(&self.files);
        let below = files.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
        below.map(|(_, file)| Arc::clone(file)).collect()
    }

    /// Adds a file, unless there is one at this path already. Returns the file that is then at the path.
    pub(super) fn add(&self, path: &RelPath, file: &Arc<Pending>) -> Arc<Pending> {
        let mut files = lock(&self.files);
        Arc::clone(files.entry(path.as_bytes().to_vec()).or_insert_with(|| Arc::clone(file)))
    }

    /// Removes a file from its path, unless another one is at that path.
    pub(super) fn take(&self, path: &RelPath, file: &Arc<Pending>) {
        let mut files = lock(&self.files);
        if files.get(path.as_bytes()).is_some_and(|current| Arc::ptr_eq(current, file)) {
            files.remove(path.as_bytes());
        }
    }

    /// Moves a file to another path. Its upload replaces there what `onto` describes; in the overlay, it replaces the
    /// file `over`. Returns false if it has left the spool or was removed, or if a third file is at that path.
    pub(super) fn relocate(
        &self,
        file: &Arc<Pending>,
        to: &RelPath,
        onto: Onto,
        over: Option<&Arc<Pending>>,
    ) -> bool {
        // A file leaves the spool under the same locks, so it cannot leave while it is moved.
        let mut state = file.state();
        if state.has_left {
            return false;
        }
        let Some(from) = state.path.clone() else { return false };
        let mut files = lock(&self.files);
        let is_file = |current: &Arc<Pending>| Arc::ptr_eq(current, file);
        let is_over = |current| over.is_some_and(|over| Arc::ptr_eq(current, over));
        if files.get(to.as_bytes()).is_some_and(|current| !is_file(current) && !is_over(current)) {
            return false;
        }
        if files.get(from.as_bytes()).is_some_and(is_file) {
            files.remove(from.as_bytes());
        }
        files.insert(to.as_bytes().to_vec(), Arc::clone(file));
        state.move_to(to.clone(), onto);
        true
    }

    /// All files.
    pub(super) fn all(&self) -> Vec<Arc<Pending>> {
        lock(&self.files).values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use haul_storage::StoredTimes;

    use super::super::spool::Spool;
    use super::*;

    #[test]
    fn a_directory_shows_its_files_and_not_those_of_others() {
        let directory = tempfile::tempdir().unwrap();
        let spool = Spool::open(directory.path(), "x").unwrap();
        let overlay = Overlay::default();
        let path = |text| RelPath::parse(text).unwrap();
        for name in ["a/b", "a/c/d", "a-b", "ab", "e"] {
            let file = Pending::new(spool.create().unwrap(), path(name), None, StoredTimes::ALL);
            let file = file.unwrap();
            overlay.add(&path(name), &file);
        }
        let shown = |directory| {
            let entries = overlay.entries(&directory).into_iter();
            entries.map(|entry| entry.path.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(shown(path("a")), ["a/b"]);
        assert_eq!(shown(RelPath::root()), ["a-b", "ab", "e"]);
        assert_eq!(overlay.below(&path("a")).len(), 2);
        let file = overlay.get(&path("a/b")).unwrap();
        overlay.take(&path("e"), &file);
        assert!(overlay.entry(&path("e")).is_some());
        overlay.take(&path("a/b"), &file);
        assert!(overlay.entry(&path("a/b")).is_none());
        assert_eq!(overlay.all().len(), 4);
    }

    /// Formerly, such a file was then at neither path in the overlay, and no longer shown.
    #[test]
    fn a_file_does_not_take_the_path_of_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let spool = Spool::open(directory.path(), "x").unwrap();
        let overlay = Overlay::default();
        let [one, two, three] = ["one", "two", "three"].map(|name| RelPath::parse(name).unwrap());
        let file = |path: &RelPath| {
            let file = Pending::new(spool.create().unwrap(), path.clone(), None, StoredTimes::ALL);
            overlay.add(path, &file.unwrap())
        };
        let (first, second) = (file(&one), file(&two));
        assert!(!overlay.relocate(&first, &two, Onto::default(), None));
        assert!(Arc::ptr_eq(&overlay.get(&one).unwrap(), &first));
        assert!(Arc::ptr_eq(&overlay.get(&two).unwrap(), &second));
        assert!(overlay.relocate(&first, &one, Onto::default(), None));
        assert!(overlay.relocate(&first, &three, Onto::default(), None));
        assert!(overlay.get(&one).is_none());
        assert!(Arc::ptr_eq(&overlay.get(&three).unwrap(), &first));
        assert!(overlay.relocate(&first, &two, Onto::default(), Some(&second)));
        assert!(Arc::ptr_eq(&overlay.get(&two).unwrap(), &first));
    }
}
