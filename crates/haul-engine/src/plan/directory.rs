//! Directories get their mode and times last: creating an entry changes the time of its directory, and is
//! impossible in one without write permission.

use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream;
use haul_storage::{Error, Metadata, RelPath};
use tokio::sync::mpsc;

use super::writable::put_back;
use crate::context::Context;
use crate::job::NumberedJob;

/// Maximum number of directories whose metadata are set concurrently.
const AT_ONCE: usize = 16;

/// A guard held by each item in flight in a directory or its subdirectories. Dropping the last reference
/// sends the directory to be finished.
#[derive(Debug)]
pub struct Directory {
    finish: Option<Finish>,
    is_private: bool,
    finishes: mpsc::UnboundedSender<Finish>,
}

/// A directory that is complete but for its mode and times.
#[derive(Debug)]
pub struct Finish {
    /// The job it belongs to.
    pub job: Arc<NumberedJob>,
    /// Its path in the source.
    pub source: RelPath,
    /// Its path in the destination.
    pub destination: RelPath,
    /// Metadata of the source, as listed.
    pub metadata: Metadata,
    /// Its mode before it was made writable. It is restored unless the source's mode is set.
    pub restore: Option<u32>,
    /// The directory above, which is finished after this one.
    pub parent: Option<Arc<Directory>>,
}

impl Directory {
    /// A guard that sends `finish` when it is dropped. The channel is unbounded, because `drop` cannot wait for
    /// a slot in it.
    pub fn new(
        context: &Context,
        finish: Finish,
        finishes: mpsc::UnboundedSender<Finish>,
    ) -> Arc<Self> {
        let mode = context.changed_mode(finish.metadata.mode, true);
        // The read bits count too: without read permission, users cannot list the names.
        let keeps_out = mode.is_some_and(|mode| mode & 0o055 != 0o055);
        let is_private = keeps_out || finish.parent.as_ref().is_some_and(|above| above.is_private);
        Arc::new(Self { finish: Some(finish), is_private, finishes })
    }

    /// Whether some users may not list or enter it or a copied directory above it.
    pub fn is_private(&self) -> bool {
        self.is_private
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Some(finish) = self.finish.take() {
            // Fails only if the transfer was dropped; a rerun finishes the directory.
            drop(self.finishes.send(finish));
        }
    }
}

/// Sets mode and times of every directory received, until the channel is closed. Modes are set after an
/// interruption too, because directories are private, or writable, only while they are filled.
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
    let fail = |error: Error| {
        context.tally.fail(error.at(finish.job.destination_name(&finish.destination)));
    };
    let outcome = async {
        let settings = &context.settings;
        let found = if settings.preserve.xattrs {
            let found = match job.source.metadata(&finish.source).await {
                Ok(found) => found,
                Err(error) => {
                    put_back(&finish.job, &finish.destination, finish.restore).await;
                    return Err(error);
                }
            };
            // Removing source files has changed its time.
            let modified =
                if settings.remove_source { finish.metadata.modified } else { found.modified };
            Metadata { modified, ..found }
        } else {
            finish.metadata.clone()
        };
        let mut wanted = context.wanted_metadata(found, &finish.job, &finish.destination, true);
        if wanted.mode.is_none() && wanted.xattrs.is_some() {
            // Setting or removing an ACL changes the mode, so the former mode is restored before that.
            if finish.restore.is_some() {
                let former = Metadata { mode: finish.restore, ..Metadata::default() };
                let restored = job.destination.set_metadata(&finish.destination, &former).await;
                restored.unwrap_or_else(&fail);
            }
        } else {
            wanted.mode = wanted.mode.or(finish.restore);
        }
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
    outcome.await.unwrap_or_else(fail);
}
