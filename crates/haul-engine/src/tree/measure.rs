//! Counts the files and bytes of a tree, for each directory.

use std::collections::HashSet;
use std::ops::AddAssign;
use std::sync::{Mutex, PoisonError};

use futures_util::future::{BoxFuture, FutureExt};
use haul_storage::{Entry, Error, FileId, RelPath, Result, Storage};

use super::crawl::{Visitor, crawl};
use crate::Cancel;

/// Counted entries and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Regular files; each name of a file with several names counts.
    pub files: u64,
    /// Directories, the top included.
    pub directories: u64,
    /// Links and special files.
    pub others: u64,
    /// Bytes of all files; a file with several names counts once.
    pub bytes: u64,
    /// Files of unknown length; they count in `files`, but not in `bytes`.
    pub unknown: u64,
}

impl Totals {
    /// Counts an entry. `has_seen` is called for a file of known length: whether another name of it was counted.
    pub(super) fn count(&mut self, entry: &Entry, has_seen: impl FnOnce() -> bool) {
        if entry.is_dir() {
            self.directories += 1;
        } else if entry.is_file() {
            self.files += 1;
            match entry.known_size() {
                Some(size) if !has_seen() => {
                    self.bytes = self.bytes.saturating_add(size);
                }
                Some(_) => {}
                None => self.unknown += 1,
            }
        } else {
            self.others += 1;
        }
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.directories += other.directories;
        self.others += other.others;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.unknown += other.unknown;
    }
}

/// An entry that was measured with everything below it, or a failure.
#[derive(Debug)]
pub enum Measured<'a> {
    /// An entry: a directory after everything in it.
    Entry {
        /// The entry.
        entry: &'a Entry,
        /// Levels below the top.
        depth: usize,
        /// The totals of it and everything below.
        totals: Totals,
    },
    /// A directory could not be listed, or not completely.
    Failed(Error),
}

/// What was measured before or is excluded, so that nothing counts twice.
#[derive(Debug, Default)]
pub struct Counted {
    /// Files with several names.
    files: Mutex<HashSet<FileId>>,
    /// Excluded paths of the storage that is being measured.
    paths: HashSet<RelPath>,
}

impl Counted {
    /// Excludes exactly these paths of the storage that is measured next. Files with several names are
    /// remembered from one storage to the next.
    pub fn leave_out(&mut self, paths: impl IntoIterator<Item = RelPath>) {
        self.paths = paths.into_iter().collect();
    }

    /// Whether another name of this file was counted.
    fn has_seen(&self, entry: &Entry) -> bool {
        let files = || self.files.lock().unwrap_or_else(PoisonError::into_inner);
        entry.id.filter(|_| entry.links > 1).is_some_and(|id| !files().insert(id))
    }

    /// The same while names are removed: the last name of a file is listed with a link count of 1.
    pub(super) fn has_removed(&self, entry: &Entry) -> bool {
        let files = || self.files.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_seen(entry) || entry.id.is_some_and(|id| entry.links <= 1 && files().contains(&id))
    }
}

/// Measures `top` and everything below it, except what `counted` excludes; links are not followed. Returns
/// false if a listing failed: the totals are then those of what could be listed. After `cancel` it begins
/// nothing more, and directories that are not complete are not reported.
pub async fn measure(
    storage: &dyn Storage,
    top: Entry,
    counted: &Counted,
    cancel: &Cancel,
    report: impl FnMut(Measured<'_>) + Send,
) -> bool {
    let meter = Meter { counted, report: Mutex::new(report), storage };
    crawl(storage, top, &meter, cancel).await
}

struct Meter<'a, F> {
    counted: &'a Counted,
    report: Mutex<F>,
    storage: &'a dyn Storage,
}

impl<F: FnMut(Measured<'_>) + Send> Meter<'_, F> {
    fn report(&self, measured: Measured<'_>) {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)(measured);
    }
}

impl<F: FnMut(Measured<'_>) + Send> Visitor for Meter<'_, F> {
    type Sum = Totals;

    fn takes(&self, entry: &Entry) -> bool {
        !self.counted.paths.contains(&entry.path)
    }

    fn act<'a>(&'a self, _entry: &'a Entry) -> BoxFuture<'a, Result<()>> {
        std::future::ready(Ok(())).boxed()
    }

    fn done(&self, entry: &Entry, depth: usize, mut below: Totals, _good: bool) -> Totals {
        below.count(entry, || self.counted.has_seen(entry));
        self.report(Measured::Entry { entry, depth, totals: below });
        below
    }

    fn failed(&self, entry: &Entry, error: Error) {
        self.report(Measured::Failed(error.at(self.storage.location().display(&entry.path))));
    }
}
