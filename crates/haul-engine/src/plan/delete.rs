//! `sync --delete`: what the destination has and the source has not.
//!
//! Each entry of the destination is asked for at the source by name; only a plain "not found" lets
//! it be removed, and only if the source does not list it all the same: a server may say that of
//! what it does not let anybody look at. So an incomplete listing or an unreachable source never
//! removes anything. Nor is anything removed that is what the source has under a name of other
//! letters, at a destination for which small and capital letters are the same.

use std::collections::HashMap;

use futures_util::{StreamExt, stream};
use haul_storage::{Entry, Error, ErrorKind, Medium, RelPath, Result, StorageExt, is_part_name};

use crate::context::Context;
use crate::job::NumberedJob;
use crate::{Action, FileEvent};

/// Entries for which the source is listed once.
const TOGETHER: usize = 8192;

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
    let mut missing = Vec::new();
    while let Some(batch) = listing.next().await {
        let looked = stream::iter(batch?).map(async |entry: Entry| {
            match is_missing(context, job, source, &entry).await {
                Ok(is_missing) => is_missing.then_some(entry),
                Err(error) => {
                    context.tally.fail(error.at(job.destination_name(&entry.path)));
                    None
                }
            }
        });
        let found: Vec<Option<Entry>> = looked.buffer_unordered(at_once).collect().await;
        missing.extend(found.into_iter().flatten());
        if missing.len() >= TOGETHER {
            remove_missing(context, job, (source, destination), &mut missing).await?;
        }
    }
    remove_missing(context, job, (source, destination), &mut missing).await
}

/// Whether the source does not find what has this name.
async fn is_missing(
    context: &Context,
    job: &NumberedJob,
    source_dir: &RelPath,
    entry: &Entry,
) -> Result<bool> {
    if is_part_name(entry.path.name()) || context.cancel.is_cancelled() {
        return Ok(false);
    }
    let invalid = |error| Error::new(ErrorKind::InvalidInput, "remove").with_source(error);
    let source = source_dir.join(entry.path.name()).map_err(invalid)?;
    Ok(takes(context, job, entry) && job.job.source.find(&source).await?.is_none())
}

/// Removes what the source does not list either.
async fn remove_missing(
    context: &Context,
    job: &NumberedJob,
    (source, destination): (&RelPath, &RelPath),
    missing: &mut Vec<Entry>,
) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let mut gone: HashMap<String, Vec<Entry>> = HashMap::new();
    for entry in missing.drain(..) {
        gone.entry(folded(entry.path.name())).or_default().push(entry);
    }
    let mut listing = job.job.source.list(source).await?;
    while let Some(batch) = listing.next().await {
        for listed in batch? {
            let name = listed.path.name();
            let Some(alike) = gone.get_mut(&folded(name)) else { continue };
            let mut kept = Vec::new();
            for entry in std::mem::take(alike) {
                if !is_that(job, destination, &entry, name).await? {
                    kept.push(entry);
                }
            }
            *alike = kept;
        }
    }
    for entry in gone.into_values().flatten() {
        if context.cancel.is_cancelled() {
            return Ok(());
        }
        if let Err(error) = remove(context, job, &entry).await {
            context.tally.fail(error.at(job.destination_name(&entry.path)));
        }
    }
    Ok(())
}

/// Whether an entry of the destination is what has that name there.
async fn is_that(
    job: &NumberedJob,
    directory: &RelPath,
    entry: &Entry,
    name: &[u8],
) -> Result<bool> {
    if entry.path.name() == name {
        return Ok(true);
    }
    let invalid = |error| Error::new(ErrorKind::InvalidInput, "remove").with_source(error);
    let path = directory.join(name).map_err(invalid)?;
    let storage = &job.job.destination;
    let Some(found) = storage.find(&path).await? else { return Ok(false) };
    if let (Some(found), Some(entry)) = (found.id, entry.id) {
        return Ok(found == entry);
    }
    // If both are listed, they are two.
    let mut listing = storage.list(directory).await?;
    while let Some(batch) = listing.next().await {
        if batch?.iter().any(|listed| listed.path == path) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A name without what some destinations do not distinguish.
fn folded(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_lowercase()
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
