//! Removes the empty directories of a tree. The notes of haul in them (see [`is_note`]) do not count as content.

use std::sync::{Mutex, PoisonError};

use futures_util::future::{BoxFuture, FutureExt};
use haul_storage::{Entry, Error, ErrorKind, Result, Storage};

use super::crawl::{Visitor, crawl};
use super::measure::Totals;
use super::unfinished::is_note;
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
}

/// Removes `top` and the directories below it that are empty, or become so. Failures are reported. All other
/// entries stay, and the notes of haul too unless they are all that is left.
pub async fn remove_emptied(
    storage: &dyn Storage,
    top: Entry,
    cancel: &Cancel,
    report: impl FnMut(Error) + Send,
) -> Left {
    let mut remover = Remover { storage, report: Mutex::new(report), left: Mutex::default() };
    crawl(storage, top.clone(), &remover, cancel).await;
    let left = std::mem::take(&mut remover.left).into_inner();
    let left = left.unwrap_or_else(PoisonError::into_inner);
    if left.entries > 0 || left.notes.is_empty() {
        return left;
    }
    for note in &left.notes {
        if let Err(error) = storage.remove(&note.path).await
            && error.kind() != ErrorKind::NotFound
        {
            let error = error.at(storage.location().display(&note.path));
            remover.report.lock().unwrap_or_else(PoisonError::into_inner)(error);
            return Left { entries: 1, example: Some(note.clone()), notes: Vec::new() };
        }
    }
    crawl(storage, top, &remover, cancel).await;
    remover.left.into_inner().unwrap_or_else(PoisonError::into_inner)
}

struct Remover<'a, F> {
    storage: &'a dyn Storage,
    report: Mutex<F>,
    left: Mutex<Left>,
}

impl<F: FnMut(Error) + Send> Visitor for Remover<'_, F> {
    type Sum = Totals;

    fn act<'a>(&'a self, entry: &'a Entry) -> BoxFuture<'a, Result<()>> {
        if entry.is_dir() {
            return self.storage.remove(&entry.path).boxed();
        }
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if entry.is_file() && is_note(entry.path.name()) {
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
        let error = error.at(self.storage.location().display(&entry.path));
        self.report.lock().unwrap_or_else(PoisonError::into_inner)(error);
    }
}
