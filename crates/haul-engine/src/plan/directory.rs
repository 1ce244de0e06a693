//! Directories get their mode and times last: every entry made in one changes its time, and a mode
//! without write permission would keep entries out.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream;
use haul_storage::{Metadata, RelPath};
use tokio::sync::mpsc;

use crate::context::Context;
use crate::job::NumberedJob;

/// How many directories get their metadata at once.
const AT_ONCE: usize = 16;

/// Held by everything that still works in a directory, its subdirectories included. When the last
/// holder is gone the directory is sent to be finished.
#[derive(Debug)]
pub struct Directory {
    finish: Option<Finish>,
    is_private: bool,
    finishes: mpsc::UnboundedSender<Finish>,
}

/// A directory in which nothing is left to do.
#[derive(Debug)]
pub struct Finish {
    /// The job it belongs to.
    pub job: Arc<NumberedJob>,
    /// Where it was copied from.
    pub source: RelPath,
    /// Where it is.
    pub destination: RelPath,
    /// What its source has, as of the listing.
    pub metadata: Metadata,
    /// The mode that it had before it was made writable; it gets that again unless the source's is
    /// kept.
    pub restore: Option<u32>,
    /// Finished later than this one.
    pub parent: Option<Arc<Directory>>,
}

impl Directory {
    /// A guard that sends `finish` when it is dropped. The number of directories in the channel is
    /// bounded by the number of items in flight, whose guards they are.
    pub fn new(
        context: &Context,
        finish: Finish,
        finishes: mpsc::UnboundedSender<Finish>,
    ) -> Arc<Self> {
        let mode = context.changed_mode(finish.metadata.mode, true);
        // Reading a directory without entering it shows the names in it.
        let keeps_out = mode.is_some_and(|mode| mode & 0o055 != 0o055);
        let is_private = keeps_out || finish.parent.as_ref().is_some_and(|above| above.is_private);
        Arc::new(Self { finish: Some(finish), is_private, finishes })
    }

    /// Whether its source, or a directory above, is not open to all users.
    pub fn is_private(&self) -> bool {
        self.is_private
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Some(finish) = self.finish.take() {
            // The receiver is gone only when the transfer was dropped; a rerun finishes the directory.
            drop(self.finishes.send(finish));
        }
    }
}

/// Sets mode and times of every directory that arrives, until no guard is left. After an interruption
/// directories get their modes all the same: they were made private, or writable, for the time of the
/// copy only.
pub async fn finish_directories(context: &Context, finishes: mpsc::UnboundedReceiver<Finish>) {
    let stream = stream::unfold(finishes, async |mut receiver| {
        let finish = receiver.recv().await?;
        Some((finish, receiver))
    });
    stream
        .for_each_concurrent(AT_ONCE, async |finish| {
            if !context.settings.dry_run {
                finish_one(context, &finish).await;
            }
        })
        .await;
}

async fn finish_one(context: &Context, finish: &Finish) {
    let job = &finish.job.job;
    let outcome = async {
        let settings = &context.settings;
        let found = if settings.preserve.xattrs {
            let found = job.source.metadata(&finish.source).await?;
            // Removing files from it has changed its time.
            let modified =
                if settings.remove_source { finish.metadata.modified } else { found.modified };
            Metadata { modified, ..found }
        } else {
            finish.metadata.clone()
        };
        let mut wanted = context.wanted_metadata(found, &finish.job, &finish.destination, true);
        wanted.mode = wanted.mode.or(finish.restore);
        if context.cancel.is_cancelled() {
            // The time is set once the directory is complete. The mode is set together with owner and ACL, since
            // without them it could give rights to the wrong group.
            wanted.modified = None;
        }
        if wanted == Metadata::default() {
            return Ok(());
        }
        job.destination.set_metadata(&finish.destination, &wanted).await
    };
    if let Err(error) = outcome.await {
        context.tally.fail(error.at(finish.job.destination_name(&finish.destination)));
    }
}
