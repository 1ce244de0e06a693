//! The top directory of a job's destination: what is done there before entries are copied into it, and after.

use std::sync::{Arc, OnceLock};

use haul_storage::{Entry, Error, ErrorKind, FileId, Medium, Result};

use super::directory::Directory;
use crate::context::Context;
use crate::job::NumberedJob;
use crate::marker::{Marker, remove_stale_markers};
use crate::stored_times::remove_left_over;

/// The top directory of a job's destination.
#[derive(Debug)]
pub struct Top<'a> {
    context: &'a Context,
    job: &'a NumberedJob,
    /// The file ID of the top directory of the source.
    source_id: Option<FileId>,
    /// Shows, with `delete`, whether the destination is in the source, and keeps its directory from being finished.
    marker: OnceLock<(Marker<'a>, Arc<Directory>)>,
}

impl<'a> Top<'a> {
    /// For the source directory `root`.
    pub fn new(context: &'a Context, job: &'a NumberedJob, root: &Entry) -> Self {
        Self { context, job, source_id: root.id, marker: OnceLock::new() }
    }

    /// Prepares the directory; `fresh` if this run has created it.
    ///
    /// # Errors
    /// Another run has it, or it cannot be looked up.
    pub async fn begin(&self, fresh: bool, directory: &Arc<Directory>) -> Result<()> {
        let roots = &self.context.roots;
        roots.lock_destination(self.job).await?;
        if !fresh {
            remove_left_over(self.job).await;
        }
        let (storage, path) = (&*self.job.job.destination, &self.job.job.destination_path);
        let mut has_ids = false;
        if self.job.is_local() {
            let root = storage.stat(path).await?;
            roots.ends.note_destination(&root);
            // On one file system, file IDs show what the marker would.
            let device = |id: Option<FileId>| id.map(|id| id.device);
            has_ids = root.id.is_some() && device(root.id) == device(self.source_id);
        }
        let deletes = self.context.settings.delete && !self.context.settings.dry_run;
        if deletes && !fresh && storage.capabilities().medium == Medium::Disk {
            remove_stale_markers(storage, path).await;
        }
        if self.context.settings.delete && !has_ids {
            match Marker::set(storage, path).await {
                // It was not set before: a job begins once.
                Ok(marker) => drop(self.marker.set((marker, Arc::clone(directory)))),
                Err(error) => roots.overlaps.note_untested(self.job.index, &error),
            }
        }
        Ok(())
    }

    /// Whether an entry of the source is the marker of the destination, which therefore is in the source. Then the walk
    /// has to end.
    pub fn is_met(&self, entry: &Entry) -> bool {
        if self.marker.get().is_none_or(|(marker, _)| marker.name() != entry.path.name()) {
            return false;
        }
        let overlaps = &self.context.roots.overlaps;
        if overlaps.is_inside(self.job.index) {
            return true;
        }
        overlaps.note_inside(self.job.index);
        self.context.note_failed_listing();
        let directory = entry.path.parent().unwrap_or_default();
        let place = match directory == self.job.job.source_path {
            true => "the same as the source",
            false => "inside the source",
        };
        let destination = self.job.destination_name(&self.job.job.destination_path);
        self.context.tally.fail(
            Error::new(ErrorKind::InvalidInput, "copy")
                .at(self.job.source_name(&directory))
                .because(format!("the destination {destination} is {place}, under another path")),
        );
        true
    }

    /// Removes the marker.
    ///
    /// # Errors
    /// Those of removing.
    pub async fn end(self) -> Result<()> {
        let Some((marker, directory)) = self.marker.into_inner() else { return Ok(()) };
        // The directory gets its time when it is finished, which `directory` delays until here.
        let removed = marker.remove_only().await;
        drop(directory);
        let name = || self.job.destination_name(&self.job.job.destination_path);
        removed.map_err(|error| error.at(name()))
    }
}
