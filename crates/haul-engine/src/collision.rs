//! Several sources into one directory: what one of them has put there another does not replace.
//!
//! Nothing is remembered of what was copied. Whether an earlier source of the run has the same name is
//! asked of that source, and only where two sources share a part of the destination.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt;
use haul_storage::{Error, ErrorKind, RelPath, Result, Storage, StorageExt};

use crate::job::NumberedJob;
use crate::plan::fold;
use crate::{Filter, Job};

/// The jobs of a run by their destinations.
#[derive(Debug, Default)]
pub struct Destinations {
    jobs: Vec<Job>,
    by_path: HashMap<RelPath, Vec<usize>>,
    /// By the directories that they go into, and their names as the least discerning destination sees them.
    by_folded: HashMap<RelPath, HashMap<Vec<u8>, Vec<usize>>>,
}

/// Another name of the source, and where it goes.
#[derive(Debug, Clone)]
pub struct Sibling {
    /// The source, for people.
    pub source: String,
    /// Where it goes.
    pub destination: RelPath,
}

impl Destinations {
    /// Of these jobs.
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

    /// Those jobs among `indices` that came before `job` and go to the same destination.
    fn before<'a>(
        &'a self,
        job: &'a NumberedJob,
        indices: &'a [usize],
    ) -> impl Iterator<Item = &'a Job> {
        let earlier = indices.iter().filter(|index| **index < job.index);
        let jobs = earlier.filter_map(|index| self.jobs.get(*index));
        jobs.filter(|other| Arc::ptr_eq(&other.destination, &job.job.destination))
    }

    /// Earlier sources of the run whose names in the directory that `job` goes into may be the same as its
    /// own.
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

    /// Calls `note` for all that earlier jobs have for a directory of the destination: with the storage, the
    /// path and the name that it gets, and whether it is known to be a directory.
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
                let below = below(directory, &path);
                if !below.is_empty() && !filter.takes(below, true) {
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

    /// Refuses to copy to `destination` what an earlier job copies there.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if an earlier source has a file or link for the same name; that of asking it.
    pub async fn refuse_twice(
        &self,
        job: &NumberedJob,
        destination: &RelPath,
        filter: &Filter,
    ) -> Result<()> {
        let mut above = Some(destination.clone());
        while let Some(path) = above.filter(|_| !self.by_path.is_empty()) {
            let indices = self.by_path.get(&path).map_or(&[][..], Vec::as_slice);
            for other in self.before(job, indices) {
                let below = below(destination, &path);
                if !below.is_empty() && !filter.takes(below, false) {
                    continue;
                }
                let source = source_path(other, below)?;
                let found = other.source.find(&source).await?;
                if found.is_some_and(|found| !found.is_dir()) {
                    let other = other.source.location().display(&source);
                    return Err(Error::new(ErrorKind::AlreadyExists, "copy")
                        .at(job.destination_name(destination))
                        .because(format!("this run copies {other} to that name")));
                }
            }
            above = path.parent();
        }
        Ok(())
    }
}

const fn is_no_directory(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// What a job's source has for `below` its destination.
fn source_path(job: &Job, below: &[u8]) -> Result<RelPath> {
    let mut names = below.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
    let path = names.try_fold(job.source_path.clone(), |path, name| path.join(name));
    path.map_err(|error| Error::new(ErrorKind::InvalidInput, "copy").with_source(error))
}

fn below<'a>(path: &'a RelPath, root: &RelPath) -> &'a [u8] {
    let below = &path.as_bytes()[root.as_bytes().len()..];
    below.strip_prefix(b"/").unwrap_or(below)
}
