//! `--delete` where one tree is reachable under two locations: a server of this machine and its disk, two names of a
//! host, a mounted directory. Paths and file IDs do not show then that the source is inside the destination, or the
//! reverse, and `--delete` would remove the source.
//!
//! - The destination is the source, or inside it: the walk of the source finds a [`Marker`] that was created in the
//!   destination.
//! - The source is inside the destination: before anything is removed from a directory of the destination, a [`Probe`]
//!   checks whether it can be the source. If so, a marker is created in it, and looked up in the source.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use haul_storage::{Error, ErrorKind, RelPath, Result, Retry, is_part_name};

use crate::job::NumberedJob;
use crate::marker::Marker;

/// A check whether a directory of the destination can be the source, made before a marker is created in it.
#[derive(Debug, Clone, Copy)]
pub enum Probe<'a> {
    /// Whether it has an entry of this name, in upper or lower case. The name is ASCII.
    Has(&'a [u8]),
    /// For a source that lists no entries: whether all names in the directory begin with a dot, which some servers do
    /// not list.
    IsEmpty,
}

impl Probe<'_> {
    /// The result, if a name in the directory decides it.
    pub fn decided_by(self, name: &[u8]) -> Option<bool> {
        match self {
            Self::Has(wanted) => name.eq_ignore_ascii_case(wanted).then_some(true),
            Self::IsEmpty => (!name.starts_with(b".")).then_some(false),
        }
    }

    /// The result if no name decides it.
    pub const fn otherwise(self) -> bool {
        matches!(self, Self::IsEmpty)
    }
}

/// What a run knows about trees with two locations.
#[derive(Debug, Default)]
pub struct Overlaps {
    /// By job: the name of an entry of the source's top directory; `None` if that lists none but haul's own.
    probes: Mutex<HashMap<usize, Option<Vec<u8>>>>,
    /// Jobs whose destination is inside their source.
    inside: Mutex<HashSet<usize>>,
    /// Jobs for which that could not be tested, and why.
    untested: Mutex<HashMap<usize, String>>,
}

impl Overlaps {
    /// Notes that the destination of a job is in its source.
    pub fn note_inside(&self, job: usize) {
        lock(&self.inside).insert(job);
    }

    /// Whether the destination of a job is in its source.
    pub fn is_inside(&self, job: usize) -> bool {
        lock(&self.inside).contains(&job)
    }

    /// Notes that no marker could be set in the destination of a job, if that may succeed in another run. Otherwise
    /// (the directory is not writable, the disk is full) nothing is refused.
    pub fn note_untested(&self, job: usize, error: &Error) {
        if error.retry() != Retry::Never {
            lock(&self.untested).insert(job, error.cause());
        }
    }

    /// Fails if it could not be tested whether the destination of a job is in its source.
    ///
    /// # Errors
    /// `InvalidInput`.
    pub fn refuse_untested(&self, job: &NumberedJob) -> Result<()> {
        match lock(&self.untested).get(&job.index) {
            Some(cause) => Err(refusal(job, &job.job.destination_path).because(format!(
                "whether it is inside the source cannot be tested ({cause}); nothing was removed"
            ))),
            None => Ok(()),
        }
    }

    /// Fails if a directory of the destination is the top directory of the source. `answer` makes the check of a
    /// [`Probe`]. A directory in which no marker can be created, in this run or another, is not refused.
    ///
    /// # Errors
    /// `InvalidInput` if it is, or if no marker can be created in it for the moment; those of the lookups, and of
    /// removing the marker.
    pub async fn refuse_source(
        &self,
        job: &NumberedJob,
        directory: &RelPath,
        answer: impl AsyncFnOnce(Probe<'_>) -> Result<bool>,
    ) -> Result<()> {
        let may_be = match self.probe(job).await? {
            None => answer(Probe::IsEmpty).await?,
            // A storage may normalise or encode such a name in another way.
            Some(name) if !name.is_ascii() => true,
            Some(name) => answer(Probe::Has(&name)).await?,
        };
        if !may_be {
            return Ok(());
        }
        let refuse = || {
            Err(refusal(job, directory).because("it is the source of this run, under another path"))
        };
        let (source, destination) = (&*job.job.source, &*job.job.destination);
        if job.is_local() {
            let (top, found) =
                (source.stat(&job.job.source_path).await?, destination.stat(directory).await?);
            // On one file system, file IDs show what the marker would.
            if let (Some(top), Some(found)) = (top.id, found.id)
                && top.device == found.device
            {
                return if top == found { refuse() } else { Ok(()) };
            }
        }
        let marker = match Marker::set(destination, directory).await {
            Ok(marker) => marker,
            Err(error) if error.retry() == Retry::Never => return Ok(()),
            Err(error) => {
                return Err(refusal(job, directory).because(format!(
                    "whether it is the source of this run, under another path, cannot be tested ({})",
                    error.cause()
                )));
            }
        };
        let is_source = marker.is_in(source, &job.job.source_path).await;
        let removed = marker.remove().await;
        if is_source? {
            return refuse();
        }
        removed
    }

    /// The name of an entry of the source's top directory: a long one, which few other directories have, and if
    /// possible one that all storages list with the same bytes. `None` if it lists no entries but haul's own.
    async fn probe(&self, job: &NumberedJob) -> Result<Option<Vec<u8>>> {
        if let Some(name) = lock(&self.probes).get(&job.index) {
            return Ok(name.clone());
        }
        let mut listing = job.job.source.list(&job.job.source_path).await?;
        let mut longest: Option<Vec<u8>> = None;
        while let (None, Some(batch)) = (&longest, listing.next().await) {
            let batch = batch?;
            let names = batch.iter().map(|entry| entry.path.name());
            let names = names.filter(|name| !is_part_name(name));
            let rank = |name: &&[u8]| (name.is_ascii() && !name.starts_with(b"."), name.len());
            longest = names.max_by_key(rank).map(<[u8]>::to_vec);
        }
        lock(&self.probes).insert(job.index, longest.clone());
        Ok(longest)
    }
}

fn refusal(job: &NumberedJob, path: &RelPath) -> Error {
    Error::new(ErrorKind::InvalidInput, "delete").at(job.destination_name(path))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
