//! Several sources into one directory: what one of them has put there another does not replace.
//!
//! Nothing is remembered of what was copied. Whether an earlier source of the run has the same name is
//! asked of that source, and only where two sources share a part of the destination.

use std::collections::HashMap;
use std::sync::Arc;

use haul_storage::{Error, ErrorKind, RelPath, Result, StorageExt};

use crate::job::NumberedJob;
use crate::{Filter, Job};

/// The jobs of a run by their destinations.
#[derive(Debug, Default)]
pub struct Destinations {
    jobs: Vec<Job>,
    by_path: HashMap<RelPath, Vec<usize>>,
}

impl Destinations {
    /// Of these jobs.
    pub fn new(jobs: &[Job]) -> Self {
        let mut by_path: HashMap<RelPath, Vec<usize>> = HashMap::new();
        if jobs.len() > 1 {
            for (index, job) in jobs.iter().enumerate() {
                by_path.entry(job.destination_path.clone()).or_default().push(index);
            }
        }
        Self { jobs: if jobs.len() > 1 { jobs.to_vec() } else { Vec::new() }, by_path }
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
            let earlier = self.by_path.get(&path).into_iter().flatten();
            for index in earlier.copied().filter(|index| *index < job.index) {
                let Some(other) = self.jobs.get(index) else { continue };
                if !Arc::ptr_eq(&other.destination, &job.job.destination) {
                    continue;
                }
                let below = below(destination, &path);
                if !below.is_empty() && !filter.takes(below, false) {
                    continue;
                }
                let source = match below {
                    [] => Ok(other.source_path.clone()),
                    below => below
                        .split(|byte| *byte == b'/')
                        .try_fold(other.source_path.clone(), |path, name| path.join(name)),
                };
                let source = source.map_err(|error| {
                    Error::new(ErrorKind::InvalidInput, "copy").with_source(error)
                })?;
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

fn below<'a>(path: &'a RelPath, root: &RelPath) -> &'a [u8] {
    let below = &path.as_bytes()[root.as_bytes().len()..];
    below.strip_prefix(b"/").unwrap_or(below)
}
