//! Removes a tree.

use std::sync::{Mutex, PoisonError};

use futures_util::future::{BoxFuture, FutureExt};
use haul_storage::{Entry, Error, Result, Storage};

use super::crawl::{Visitor, crawl};
use super::measure::{Counted, Totals};
use crate::Cancel;

/// What happened to an entry.
#[derive(Debug)]
pub enum RemoveEvent<'a> {
    /// It was removed, or would be.
    Removed(&'a Entry),
    /// It could not be listed or removed.
    Failed(Error),
}

/// How a removal ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removal {
    /// What was removed, or would be.
    pub removed: Totals,
    /// Entries that could not be listed or removed. Directories that stay because of them do not count.
    pub failed: u64,
}

/// Removes `top`, and everything below it if it is a directory; links are removed, never followed. Failures are
/// reported and do not stop the rest. With `dry_run` nothing is removed. After `cancel` it begins nothing more, and the
/// rest does not count as failed. Pass the same `counted` for several trees of one host, so that the bytes of a file
/// with several names count once; paths that it excludes are removed all the same.
pub async fn remove(
    storage: &dyn Storage,
    top: Entry,
    counted: &Counted,
    dry_run: bool,
    cancel: &Cancel,
    report: impl FnMut(RemoveEvent<'_>) + Send,
) -> Removal {
    let remover = Remover {
        storage,
        dry_run,
        report: Mutex::new(report),
        removal: Mutex::default(),
        counted,
    };
    crawl(storage, top, &remover, cancel).await;
    remover.removal.into_inner().unwrap_or_else(PoisonError::into_inner)
}

struct Remover<'a, F> {
    storage: &'a dyn Storage,
    dry_run: bool,
    report: Mutex<F>,
    removal: Mutex<Removal>,
    counted: &'a Counted,
}

impl<F: FnMut(RemoveEvent<'_>) + Send> Remover<'_, F> {
    fn report(&self, event: RemoveEvent<'_>) {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)(event);
    }

    fn count(&self, count: impl FnOnce(&mut Removal)) {
        count(&mut self.removal.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl<F: FnMut(RemoveEvent<'_>) + Send> Visitor for Remover<'_, F> {
    type Sum = Totals;

    fn act<'a>(&'a self, entry: &'a Entry) -> BoxFuture<'a, Result<()>> {
        if self.dry_run {
            return std::future::ready(Ok(())).boxed();
        }
        self.storage.remove(&entry.path).boxed()
    }

    fn done(&self, entry: &Entry, _depth: usize, _below: Totals, good: bool) -> Totals {
        if good {
            self.count(|removal| removal.removed.count(entry, || self.counted.has_removed(entry)));
            self.report(RemoveEvent::Removed(entry));
        }
        Totals::default()
    }

    fn failed(&self, entry: &Entry, error: Error) {
        self.count(|removal| removal.failed += 1);
        self.report(RemoveEvent::Failed(error.at(self.storage.location().display(&entry.path))));
    }
}
