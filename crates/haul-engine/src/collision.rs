//! Several sources copied into one directory: no source replaces an entry that an earlier one of the run has copied.
//!
//! haul does not remember copied files. It looks names up in the earlier sources, and only where two sources
//! share a part of the destination.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt;
use haul_storage::{Entry, EntryKind, Error, ErrorKind, RelPath, Result, Storage, StorageExt};

use crate::job::NumberedJob;
use crate::plan::fold;
use crate::{Filter, Job, Settings};

/// The jobs of a run by their destinations.
#[derive(Debug, Default)]
pub struct Destinations {
    jobs: Vec<Job>,
    by_path: HashMap<RelPath, Vec<usize>>,
    /// By the directory that they go into, and by folded name (see [`fold`]).
    by_folded: HashMap<RelPath, HashMap<Vec<u8>, Vec<usize>>>,
}

/// A source entry whose name the destination may not distinguish from that of another one.
#[derive(Debug, Clone)]
pub struct Sibling {
    /// The source, as shown in messages.
    pub source: String,
    /// Its path at the destination.
    pub destination: RelPath,
}

impl Destinations {
    /// The destinations of `jobs`; empty for a single job, which has no earlier sources.
    pub fn new(jobs: &[Job]) -> Self {
        let mut by_path: HashMap<RelPath, Vec<usize>> = HashMap::new();
        let mut by_folded: HashMap<RelPath, HashMap<Vec<u8>, Vec<usize>>> = HashMap::new();
        if jobs.len() > 1 {
            for (index, job) in jobs.iter().enumerate() {
                let path = &job.destination_path;
                by_path.entry(path.clone()).or_default().push(index);
                if let Some(parent) = path.parent() {
                    let names = by_folded.entry(parent).or_default();
                    names.entry(fold(path.name())).or_default().push(index);
                }
            }
        }
        Self { jobs: if jobs.len() > 1 { jobs.to_vec() } else { Vec::new() }, by_path, by_folded }
    }

    /// The jobs among `indices` that precede `job` and write to the same storage.
    fn before<'a>(
        &'a self,
        job: &'a NumberedJob,
        indices: &'a [usize],
    ) -> impl Iterator<Item = &'a Job> {
        let earlier = indices.iter().filter(|index| **index < job.index);
        let jobs = earlier.filter_map(|index| self.jobs.get(*index));
        jobs.filter(|other| Arc::ptr_eq(&other.destination, &job.job.destination))
    }

    /// Earlier sources of the run that go into the same directory as `job`, under other names that the
    /// destination may not distinguish from its own.
    pub fn like(&self, job: &NumberedJob) -> Vec<Sibling> {
        let path = &job.job.destination_path;
        let Some(names) = path.parent().and_then(|parent| self.by_folded.get(&parent)) else {
            return Vec::new();
        };
        let indices = names.get(&fold(path.name())).map_or(&[][..], Vec::as_slice);
        let others = self.before(job, indices).filter(|other| other.destination_path != *path);
        let sibling = |other: &Job| Sibling {
            source: other.source.location().display(&other.source_path).to_string(),
            destination: other.destination_path.clone(),
        };
        others.map(sibling).collect()
    }

    /// Calls `note` for everything that earlier jobs may copy into `directory` of the destination, with the
    /// source's storage and path, the name at the destination, and whether it is known to be a directory.
    /// Names that the filter excludes are included.
    ///
    /// # Errors
    ///
    /// Those of listing a source, and of `note`.
    pub async fn earlier(
        &self,
        job: &NumberedJob,
        directory: &RelPath,
        filter: &Filter,
        mut note: impl FnMut(&dyn Storage, &RelPath, &[u8], bool) -> Result<()>,
    ) -> Result<()> {
        let named = self.by_folded.get(directory);
        for indices in named.into_iter().flat_map(HashMap::values) {
            for other in self.before(job, indices) {
                let name = other.destination_path.name();
                note(&*other.source, &other.source_path, name, false)?;
            }
        }
        let mut above = Some(directory.clone());
        while let Some(path) = above.filter(|_| !self.by_path.is_empty()) {
            let indices = self.by_path.get(&path).map_or(&[][..], Vec::as_slice);
            for other in self.before(job, indices) {
                let Some(below) = directory.strip_prefix(&path) else { continue };
                if !below.is_empty() && !filter.takes_in(other, below, true) {
                    continue;
                }
                let source = source_path(other, below)?;
                let mut listing = match other.source.list(&source).await {
                    Err(error) if is_no_directory(error.kind()) => continue,
                    listing => listing?,
                };
                while let Some(batch) = listing.next().await {
                    for entry in batch? {
                        note(&*other.source, &entry.path, entry.path.name(), entry.is_dir())?;
                    }
                }
            }
            above = path.parent();
        }
        Ok(())
    }

    /// Fails if an earlier job copies a file or link to `destination`, or to the name of a directory above it.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if an earlier source has such a file or link; those of looking it up.
    pub async fn refuse_twice(
        &self,
        job: &NumberedJob,
        destination: &RelPath,
        settings: &Settings,
    ) -> Result<()> {
        let mut above = Some(destination.clone());
        while let Some(path) = above.filter(|_| !self.by_path.is_empty()) {
            let indices = self.by_path.get(&path).map_or(&[][..], Vec::as_slice);
            for other in self.before(job, indices) {
                let Some(below) = destination.strip_prefix(&path) else { continue };
                if !below.is_empty() && !settings.filter.takes_in(other, below, false) {
                    continue;
                }
                if let Some((source, is_above)) = copied(other, below, settings).await? {
                    let name =
                        if is_above { "the name of a directory above it" } else { "that name" };
                    let other = other.source.location().display(&source);
                    return Err(Error::new(ErrorKind::AlreadyExists, "copy")
                        .at(job.destination_name(destination))
                        .because(format!("this run copies {other} to {name}")));
                }
            }
            above = path.parent();
        }
        Ok(())
    }
}

impl Destinations {
    /// Whether any job of the run copies something to `path`, in the destination of `job`.
    ///
    /// # Errors
    ///
    /// Those of looking it up in the sources.
    pub async fn has_source(
        &self,
        job: &NumberedJob,
        path: &RelPath,
        settings: &Settings,
    ) -> Result<bool> {
        let shares = |other: &&Job| Arc::ptr_eq(&other.destination, &job.job.destination);
        let alone = self.jobs.is_empty().then_some(&job.job);
        for other in self.jobs.iter().filter(shares).chain(alone) {
            let Some(below) = path.strip_prefix(&other.destination_path) else { continue };
            let found = match other.source.find(&source_path(other, below)?).await {
                Err(error) if is_no_directory(error.kind()) => None,
                // Servers may deny names such as `*~` whether they exist or not; such a file is not copied either.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => None,
                found => found?,
            };
            let is_copied = found.is_some_and(|found| match found.is_dir() {
                true => below.is_empty() || settings.filter.takes_in(other, below, true),
                false => is_copied(other, &found, below, settings),
            });
            if is_copied {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The file or link that `job` copies to the name `below` its destination, or (then true) to that of a directory
/// above it.
async fn copied(
    job: &Job,
    mut below: &[u8],
    settings: &Settings,
) -> Result<Option<(RelPath, bool)>> {
    let mut is_above = false;
    loop {
        let source = source_path(job, below)?;
        let found = job.source.find(&source).await;
        match found {
            // One of the directories above is no directory in this source.
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                if below.is_empty() {
                    return Ok(None);
                }
                let end = below.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                below = &below[..end];
                is_above = true;
            }
            found => {
                let copied = found?.filter(|found| is_copied(job, found, below, settings));
                return Ok(copied.map(|_| (source, is_above)));
            }
        }
    }
}

/// Whether a run copies the source entry `below` the source of a job, as a file or link.
fn is_copied(job: &Job, entry: &Entry, below: &[u8], settings: &Settings) -> bool {
    !matches!(entry.kind, EntryKind::Directory | EntryKind::Special(_))
        && (below.is_empty() || settings.filter.takes_in(job, below, false))
        && settings.selection.takes(entry)
}

const fn is_no_directory(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// The source path that a job copies to `below` its destination.
fn source_path(job: &Job, below: &[u8]) -> Result<RelPath> {
    let mut names = below.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    let path = names.try_fold(job.source_path.clone(), |path, name| path.join(name));
    path.map_err(|error| Error::new(ErrorKind::InvalidInput, "copy").with_source(error))
}
