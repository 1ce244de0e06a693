//! The jobs of a transfer, and the handle that stops it.

use std::sync::Arc;

use haul_storage::{Location, RelPath, Storage};
use tokio::sync::watch;

use crate::digest::Digest;

/// One source and its destination. `source_path` becomes `destination_path`, a file as well as a
/// directory (whose content goes into `destination_path` if that exists).
#[derive(Debug, Clone)]
pub struct Job {
    /// The source's storage.
    pub source: Arc<dyn Storage>,
    /// A file, link or directory in it.
    pub source_path: RelPath,
    /// The destination's storage.
    pub destination: Arc<dyn Storage>,
    /// The path of the copy in it; missing directories above are made.
    pub destination_path: RelPath,
    /// The digest that the file must have, if it is known. A directory has none.
    pub expected: Option<Digest>,
}

/// A job and its position among the jobs.
#[derive(Debug)]
pub struct NumberedJob {
    /// Counted from 0.
    pub index: usize,
    /// What to do.
    pub job: Job,
}

impl NumberedJob {
    /// A path of the source, for messages.
    pub fn source_name(&self, path: &RelPath) -> String {
        self.job.source.location().display(path).to_string()
    }

    /// A path of the destination, for messages.
    pub fn destination_name(&self, path: &RelPath) -> String {
        self.job.destination.location().display(path).to_string()
    }

    /// The part of a destination path that is below the job's.
    pub fn below_destination<'a>(&self, path: &'a RelPath) -> &'a [u8] {
        path.strip_prefix(&self.job.destination_path).unwrap_or(path.as_bytes())
    }

    /// Whether source and destination are on disks of this machine, so that device and inode numbers of one
    /// mean the same in the other.
    pub fn is_local(&self) -> bool {
        let local = |location: &Location| location.as_local().is_some();
        local(self.job.source.location()) && local(self.job.destination.location())
    }
}

/// Stops a transfer from outside. Clones share their state.
#[derive(Debug, Clone)]
pub struct Cancel {
    sender: Arc<watch::Sender<bool>>,
    /// The parent; cancelling it stops this one too.
    above: Option<Arc<watch::Sender<bool>>>,
}

impl Default for Cancel {
    fn default() -> Self {
        Self { sender: Arc::new(watch::Sender::new(false)), above: None }
    }
}

impl Cancel {
    /// Requests a stop; part files and journals stay. A transfer gives operations in flight a few seconds to finish;
    /// what only reads and compares (verification, comparison of trees) ends at once.
    pub fn cancel(&self) {
        self.sender.send_replace(true);
    }

    /// A child that is stopped with this one, or alone.
    #[must_use]
    pub(crate) fn child(&self) -> Self {
        debug_assert!(self.above.is_none(), "a child has no children");
        Self { sender: Arc::new(watch::Sender::new(false)), above: Some(Arc::clone(&self.sender)) }
    }

    /// Whether a stop was requested.
    pub fn is_cancelled(&self) -> bool {
        *self.sender.borrow() || self.above.as_ref().is_some_and(|above| *above.borrow())
    }

    /// Waits until a stop is requested.
    pub async fn cancelled(&self) {
        let stopped = async |sender: &watch::Sender<bool>| {
            // The sender lives as long as `self`, so waiting cannot fail.
            drop(sender.subscribe().wait_for(|cancelled| *cancelled).await);
        };
        match &self.above {
            None => stopped(&self.sender).await,
            Some(above) => tokio::select! {
                () = stopped(&self.sender) => {}
                () = stopped(above) => {}
            },
        }
    }
}
