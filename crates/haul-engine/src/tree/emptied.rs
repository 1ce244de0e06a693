//! Removes the empty directories of a tree. The notes of haul in them (see [`is_note`]) do not count as content.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use haul_storage::{CommitOptions, Entry, Error, ErrorKind, Metadata, RelPath, Result, Storage};

use super::crawl::{Visitor, crawl};
use super::measure::Totals;
use super::unfinished::{LONGEST, is_note};
use crate::Cancel;

/// What is left of a tree whose empty directories were removed.
#[derive(Debug, Default)]
pub struct Left {
    /// Entries in it other than directories.
    pub entries: u64,
    /// One of them.
    pub example: Option<Entry>,
    /// The notes of haul in it, which are not among `entries`.
    notes: Vec<Entry>,
    /// Whether a directory could not be listed or removed, which has been reported.
    pub failed: bool,
}

/// Removes `top` and the directories below it that are empty, or become so. Failures are reported. All other
/// entries stay, and the notes of haul too unless they are all that is left.
pub async fn remove_emptied(
    storage: &dyn Storage,
    top: Entry,
    cancel: &Cancel,
    report: impl FnMut(Error) + Send,
) -> Left {
    let remover = Remover { storage, report: Mutex::new(report), left: Mutex::default() };
    crawl(storage, top.clone(), &remover, cancel).await;
    let left = remover.take();
    // After a failure, the notes show a rerun what the directory is.
    if left.entries > 0 || left.failed || left.notes.is_empty() {
        return left;
    }
    let mut removed = Vec::new();
    for note in &left.notes {
        let whole = match remove_note(storage, note).await {
            Ok(whole) => whole,
            Err(error) => {
                remover.report(error.at(storage.location().display(&note.path)));
                write_back(storage, removed).await;
                return Left { entries: 1, example: Some(note.clone()), ..Left::default() };
            }
        };
        removed.extend(whole.map(|bytes| (&note.path, bytes)));
    }
    crawl(storage, top, &remover, cancel).await;
    let after = remover.take();
    if after.entries > 0 || after.failed {
        write_back(storage, removed).await;
    }
    after
}

/// Removes a note, and returns its content. `None` if it does not exist any more.
async fn remove_note(storage: &dyn Storage, note: &Entry) -> Result<Option<Bytes>> {
    let removed: Result<Bytes> = async {
        let whole = storage.read_whole(&note.path, LONGEST).await?;
        storage.remove(&note.path).await?;
        Ok(whole.bytes)
    }
    .await;
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        removed => removed.map(Some),
    }
}

/// Writes removed notes again, where their directories are left. Failures are ignored: what keeps a directory from being
/// removed has been reported.
async fn write_back(storage: &dyn Storage, notes: Vec<(&RelPath, Bytes)>) {
    let options =
        CommitOptions { metadata: Metadata::default(), replace: true, sync: false, expected: None };
    for (path, bytes) in notes {
        let Some(directory) = path.parent() else { continue };
        if storage.stat(&directory).await.is_ok() {
            drop(storage.write_whole(path, bytes, &options).await);
        }
    }
}

struct Remover<'a, F> {
    storage: &'a dyn Storage,
    report: Mutex<F>,
    left: Mutex<Left>,
}

impl<F: FnMut(Error) + Send> Remover<'_, F> {
    fn report(&self, error: Error) {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)(error);
    }

    /// What was left by the crawl before.
    fn take(&self) -> Left {
        std::mem::take(&mut *self.left.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<F: FnMut(Error) + Send> Visitor for Remover<'_, F> {
    type Sum = Totals;

    fn act<'a>(&'a self, entry: &'a Entry) -> BoxFuture<'a, Result<()>> {
        if entry.is_dir() {
            return self.storage.remove(&entry.path).boxed();
        }
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if is_note(entry) {
            left.notes.push(entry.clone());
        } else {
            left.entries += 1;
            left.example.get_or_insert_with(|| entry.clone());
        }
        // This failure keeps the directory above from being removed.
        std::future::ready(Err(Error::new(ErrorKind::NotEmpty, "remove"))).boxed()
    }

    fn done(&self, _: &Entry, _: usize, _: Totals, _: bool) -> Totals {
        Totals::default()
    }

    fn failed(&self, entry: &Entry, error: Error) {
        if !entry.is_dir() {
            return;
        }
        self.left.lock().unwrap_or_else(PoisonError::into_inner).failed = true;
        self.report(error.at(self.storage.location().display(&entry.path)));
    }
}
