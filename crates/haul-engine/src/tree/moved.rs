//! Removes what was moved: of a tree only that which is the same at the destination.

use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, try_join};
use haul_storage::{
    CommitOptions, Entry, EntryKind, Error, ErrorKind, Metadata, RelPath, Result, StorageExt as _,
    part_name,
};

use super::compare::Side;
use super::crawl::{Visitor, crawl};
use super::measure::Totals;
use crate::transfer::{Verdict, verdict};
use crate::{Cancel, Overwrite};

/// Removes `source` and everything below it that `copy` has too, with its size and time; nothing else,
/// so that what was added or changed since it was copied stays. `report` hears of each entry that stays
/// and why. Whether nothing stayed.
pub async fn remove_moved(
    source: Side<'_>,
    copy: Side<'_>,
    cancel: &Cancel,
    report: impl FnMut(Error) + Send,
) -> bool {
    let top = match source.storage.stat(source.top).await {
        Ok(top) => top,
        Err(error) => {
            let mut report = report;
            report(error.at(source.storage.location().display(source.top)));
            return false;
        }
    };
    let remover = Remover { source, copy, report: Mutex::new(report) };
    match remover.is_itself(&top).await {
        Ok(false) => {}
        Ok(true) => {
            let error = Error::new(ErrorKind::InvalidInput, "remove");
            remover.failed(&top, error.because("it is its own copy, under another location"));
            return false;
        }
        Err(error) => {
            remover.failed(&top, error);
            return false;
        }
    }
    crawl(source.storage, top, &remover, cancel).await && !cancel.is_cancelled()
}

struct Remover<'a, F> {
    source: Side<'a>,
    copy: Side<'a>,
    report: Mutex<F>,
}

impl<F: FnMut(Error) + Send> Remover<'_, F> {
    /// Whether both locations are one place: a server of this machine, two names of a host, a linked directory.
    /// A file of haul's own beside or in the source tells.
    async fn is_itself(&self, top: &Entry) -> Result<bool> {
        let places = if top.is_dir() {
            Some((self.source.top.clone(), self.copy.top.clone()))
        } else if self.source.top.name() == self.copy.top.name() {
            self.source.top.parent().zip(self.copy.top.parent())
        } else {
            None
        };
        let Some((here, there)) = places else { return Ok(false) };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = part_name(format!("mv-{}-{}", std::process::id(), now.as_nanos()).as_bytes());
        let invalid = |error: haul_storage::RelPathError| {
            Error::new(ErrorKind::InvalidInput, "remove").because(error.to_string())
        };
        let (here, there) =
            (here.join(&name).map_err(invalid)?, there.join(&name).map_err(invalid)?);
        let options = CommitOptions { metadata: Metadata::default(), replace: false, sync: false };
        self.source.storage.write_whole(&here, Bytes::new(), &options).await?;
        let found = self.copy.storage.find(&there).await;
        self.source.storage.remove(&here).await?;
        Ok(found?.is_some())
    }

    async fn remove(&self, entry: &Entry) -> Result<()> {
        if !entry.is_dir() {
            let path = self.path_of_copy(&entry.path)?;
            let now = self.source.storage.stat(&entry.path);
            let (now, copy) = try_join(now, self.copy.storage.stat(&path)).await?;
            if !self.is_copy(&now, &copy) {
                return Err(Error::new(ErrorKind::Changed, "remove")
                    .because("it is not the same as its copy, and stays"));
            }
        }
        self.source.storage.remove(&entry.path).await
    }

    fn path_of_copy(&self, path: &RelPath) -> Result<RelPath> {
        let top = self.source.top.as_bytes();
        let below = path.as_bytes().strip_prefix(top).unwrap_or_default();
        let below = below.strip_prefix(b"/").unwrap_or(below);
        if below.is_empty() {
            return Ok(self.copy.top.clone());
        }
        let below = RelPath::parse(below).map_err(|error| {
            Error::new(ErrorKind::InvalidInput, "remove").because(error.to_string())
        })?;
        Ok(self.copy.top.join_path(&below))
    }

    fn is_copy(&self, now: &Entry, copy: &Entry) -> bool {
        match (&now.kind, &copy.kind) {
            (EntryKind::File, EntryKind::File) => {
                let step_ns = self.source.storage.capabilities().kept_times.step_ns;
                let there = self.copy.storage.capabilities();
                let how = Overwrite::Different;
                verdict(how, now, step_ns, copy, there.kept_times, there.times) == Verdict::Keep
            }
            (EntryKind::Symlink(now), EntryKind::Symlink(copy)) => now == copy,
            _ => false,
        }
    }
}

impl<F: FnMut(Error) + Send> Visitor for Remover<'_, F> {
    type Sum = Totals;

    fn act<'a>(&'a self, entry: &'a Entry) -> BoxFuture<'a, Result<()>> {
        self.remove(entry).boxed()
    }

    fn done(&self, _: &Entry, _: usize, _: Totals, _: bool) -> Totals {
        Totals::default()
    }

    fn failed(&self, entry: &Entry, error: Error) {
        let error = error.at(self.source.storage.location().display(&entry.path));
        self.report.lock().unwrap_or_else(PoisonError::into_inner)(error);
    }
}
