//! `sync --delete`: what the destination has and the source has not.
//!
//! Each entry of the destination is asked for at the source by name; only a plain "not found" lets
//! it be removed. So an incomplete listing or an unreachable source never removes anything.

use futures_util::{StreamExt, stream};
use haul_storage::{Entry, Error, ErrorKind, Medium, RelPath, Result, StorageExt, is_part_name};

use crate::context::Context;
use crate::job::NumberedJob;
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
    if takes(context, job, entry) && job.job.source.find(&source).await?.is_none() {
        remove(context, job, entry).await?;
    }
    Ok(())
}

/// Whether the filter lets an entry of the destination take part.
fn takes(context: &Context, job: &NumberedJob, entry: &Entry) -> bool {
    let root = job.job.destination_path.as_bytes().len();
    let below = &entry.path.as_bytes()[root..];
    let below = below.strip_prefix(b"/").unwrap_or(below);
    context.settings.filter.takes(below, entry.is_dir())
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
        // What the filter kept is in the way, and the error says so.
        job.job.destination.create_dir(&entry.path).await?;
        context.tally.directory();
    }
    Ok(true)
}

/// Removes an entry of the destination with everything below it that the filter lets take part,
/// and says so of each. A directory in which something stays, stays.
pub async fn remove(context: &Context, job: &NumberedJob, entry: &Entry) -> Result<()> {
    let destination = &job.job.destination;
    let mut pending = vec![(entry.clone(), false)];
    while let Some((next, listed)) = pending.pop() {
        if next.is_dir() && !listed {
            let path = next.path.clone();
            pending.push((next, true));
            let mut listing = destination.list(&path).await?;
            while let Some(batch) = listing.next().await {
                let taking = batch?.into_iter().filter(|below| takes(context, job, below));
                pending.extend(taking.map(|below| (below, false)));
            }
            continue;
        }
        if !context.settings.dry_run {
            match destination.remove(&next.path).await {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::NotEmpty => continue,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error.at(job.destination_name(&next.path))),
            }
        }
        context.tally.note(FileEvent {
            job: job.index,
            path: next.path,
            bytes: next.size,
            action: Action::Removed,
            resumed_bytes: 0,
            digest: None,
            dry_run: context.settings.dry_run,
        });
    }
    Ok(())
}
