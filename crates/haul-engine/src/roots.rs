//! The roots of the jobs: where each source begins, and where its copy does.
//!
//! With them, a run neither copies its own destination nor deletes its own sources, never copies two sources to one
//! name, and shares no destination with another run.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use haul_storage::{ErrorKind, FileId, Lock, Result, Retry};

use crate::Job;
use crate::collision::Destinations;
use crate::ends::Ends;
use crate::job::NumberedJob;
use crate::overlap::Overlaps;
use crate::sources::Sources;

/// What a transfer knows about the roots of its jobs.
#[derive(Debug)]
pub struct Roots {
    /// The entries of the sources, cached for a moment.
    pub sources: Sources,
    /// The jobs by their destinations.
    pub destinations: Destinations,
    /// File IDs of the source and destination roots on this machine.
    pub ends: Ends,
    /// Trees that have two locations.
    pub overlaps: Overlaps,
    /// The locks of destinations, each with the file ID of what it locks.
    locks: Mutex<Vec<(Option<FileId>, Lock)>>,
    /// For each job of a directory, by its index: whether this run created the destination.
    fresh: Mutex<HashMap<usize, bool>>,
}

impl Roots {
    /// The roots of `jobs`, none of which has been looked up or locked.
    pub fn of(jobs: &[Job]) -> Self {
        Self {
            sources: Sources::of(jobs),
            destinations: Destinations::new(jobs),
            ends: Ends::default(),
            overlaps: Overlaps::default(),
            locks: Mutex::default(),
            fresh: Mutex::default(),
        }
    }

    /// Notes that the walk has reached the destination of a job, and whether this run has created it.
    pub fn note_reached(&self, job: usize, fresh: bool) {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner).insert(job, fresh);
    }

    /// Whether the destination of a job was created by this run; `None` if no walk has reached it.
    pub fn was_fresh(&self, job: usize) -> Option<bool> {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner).get(&job).copied()
    }

    /// Keeps other runs out of a job's destination until the end of the transfer.
    ///
    /// # Errors
    ///
    /// `Busy` if another run has it; those of `Storage::stat` and `Storage::lock`.
    pub async fn lock_destination(&self, job: &NumberedJob) -> Result<()> {
        let Job { destination, destination_path, .. } = &job.job;
        if !destination.capabilities().lock {
            return Ok(());
        }
        // Another job of this run may have it: `cp A/ B/ DEST`.
        let id = destination.stat(destination_path).await?.id;
        let is_held = |held: &(Option<FileId>, Lock)| id.is_some() && held.0 == id;
        if self.locks.lock().unwrap_or_else(PoisonError::into_inner).iter().any(is_held) {
            return Ok(());
        }
        let lock = destination.lock(destination_path).await.map_err(|error| {
            if error.kind() == ErrorKind::Busy {
                // Waiting would not help: the other run is doing the same work.
                error.with_retry(Retry::Never)
            } else {
                error
            }
        })?;
        self.locks.lock().unwrap_or_else(PoisonError::into_inner).push((id, lock));
        Ok(())
    }
}
