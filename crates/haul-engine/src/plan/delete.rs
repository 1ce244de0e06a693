//! `sync --delete`: what the destination has and the source has not.
//!
//! Each entry of the destination is asked for at the source by name; only a plain "not found" lets
//! it be removed. So an incomplete listing or an unreachable source never removes anything.

use futures_util::{StreamExt, stream};
use haul_storage::{Entry, Error, ErrorKind, Medium, RelPath, Result, StorageExt, is_part_name};

use super::NumberedJob;
use crate::context::Context;
use crate::{Action, FileEvent};

/// Removes what is in directory `destination` and not in directory `source`. What the filter
/// leaves out stays.
pub async fn delete_extra(
    context: &Context,
    job: &NumberedJob,
    source: &RelPath,
    destination: &RelPath,
) -> Result<()> {
    let at_once = match job.job.source.capabilities().medium {
        Medium::Disk => 4,
        Medium::Link => 64,
    };
    let mut listing = job.job.destination.list(destination).await?;
    while let Some(batch) = listing.next().await {
        let entries = batch?;
        stream::iter(entries)
            .for_each_concurrent(at_once, async |entry| {
                if let Err(error) = consider(context, job, source, &entry).await {
                    context.tally.fail(error.at(job.destination_name(&entry.path)));
                }
            })
            .await;
    }
    Ok(())
}

async fn consider(
    context: &Context,
    job: &NumberedJob,
    source_dir: &RelPath,
    entry: &Entry,
) -> Result<()> {
    if is_part_name(entry.path.name()) || context.cancel.is_cancelled() {
        return Ok(());
    }
    let invalid = |error| Error::new(ErrorKind::InvalidInput, "remove").with_source(error);
    let source = source_dir.join(entry.path.name()).map_err(invalid)?;
    let root = job.job.source_path.as_bytes().len();
    let below = &source.as_bytes()[root..];
    let below = below.strip_prefix(b"/").unwrap_or(below);
    if !context.settings.filter.takes(below, entry.is_dir()) {
        return Ok(());
    }
    if job.job.source.find(&source).await?.is_none() {
        remove(context, job, entry).await?;
    }
    Ok(())
}

/// Removes whatever is at `entry` and makes a directory there. Whether the directory is fresh
/// (always).
pub async fn replace_with_directory(
    context: &Context,
    job: &NumberedJob,
    entry: &Entry,
) -> Result<bool> {
    remove(context, job, entry).await?;
    if !context.settings.dry_run {
        job.job.destination.create_dir(&entry.path).await?;
        context.tally.directory();
    }
    Ok(true)
}

/// Removes an entry of the destination with everything below it, and says so.
pub async fn remove(context: &Context, job: &NumberedJob, entry: &Entry) -> Result<()> {
    if !context.settings.dry_run {
        job.job.destination.remove_all(&entry.path).await?;
    }
    let event = FileEvent {
        job: job.index,
        path: entry.path.clone(),
        bytes: entry.size,
        action: Action::Removed,
        resumed_bytes: 0,
        digest: None,
        dry_run: context.settings.dry_run,
    };
    context.tally.note(event);
    Ok(())
}
