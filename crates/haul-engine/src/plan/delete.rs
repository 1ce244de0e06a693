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
    let mut gone: HashMap<Vec<u8>, Vec<Entry>> = HashMap::new();
    for entry in missing.drain(..) {
        gone.entry(folded(entry.path.name())).or_default().push(entry);
    }
    let mut ignores_case = None;
    let mut listing = job.job.source.list(source).await?;
    while let Some(batch) = listing.next().await {
        for listed in batch? {
            let name = listed.path.name();
            let Some(alike) = gone.get_mut(&folded(name)) else { continue };
            alike.retain(|entry| entry.path.name() != name);
            let Some(one) = alike.first() else { continue };
            let one = one.path.name();
            let is_one = match (ignores_case, in_other_letters(one, name)) {
                (Some(known), _) => known,
                (None, Some(other)) => *ignores_case.insert(finds(job, destination, &other).await?),
                (None, None) => are_one(job, destination, one, name).await?,
            };
            if is_one {
                alike.clear();
            }
        }
    }
    let at_once = match job.job.destination.capabilities().medium {
        Medium::Disk => 4,
        Medium::Link => 64,
    };
    stream::iter(gone.into_values().flatten())
        .for_each_concurrent(at_once, async |entry| {
            if context.cancel.is_cancelled() {
                return;
            }
            if let Err(error) = remove(context, job, &entry).await {
                context.tally.fail(error.at(job.destination_name(&entry.path)));
            }
        })
        .await;
    Ok(())
}

/// Whether two names that differ in small and capital letters are one in a directory of the
/// destination, which has the first.
async fn are_one(
    job: &NumberedJob,
    directory: &RelPath,
    first: &[u8],
    second: &[u8],
) -> Result<bool> {
    let mut listed = 0;
    let mut listing = job.job.destination.list(directory).await?;
    while let Some(batch) = listing.next().await {
        listed +=
            batch?.iter().filter(|entry| [first, second].contains(&entry.path.name())).count();
    }
    Ok(listed < 2 && finds(job, directory, second).await?)
}

/// Whether the destination finds a name in a directory.
async fn finds(job: &NumberedJob, directory: &RelPath, name: &[u8]) -> Result<bool> {
    let invalid = |error| Error::new(ErrorKind::InvalidInput, "remove").with_source(error);
    let path = directory.join(name).map_err(invalid)?;
    Ok(job.job.destination.find(&path).await?.is_some())
}

/// A name with one letter of ASCII turned from small to capital, or the other way, that is not the
/// second name: a destination finds the first by it only if it ignores such differences. A name of
/// one such letter has none.
fn in_other_letters(name: &[u8], second: &[u8]) -> Option<Vec<u8>> {
    let letters = (0..name.len()).filter(|at| name[*at].is_ascii_alphabetic());
    let turned = letters.map(|at| {
        let mut other = name.to_vec();
        other[at] ^= 0x20;
        other
    });
    turned.into_iter().find(|other| other != second)
}

/// A name without what some destinations do not distinguish.
fn folded(name: &[u8]) -> Vec<u8> {
    match std::str::from_utf8(name) {
        Ok(name) => name.to_lowercase().into_bytes(),
        Err(_) => name.to_ascii_lowercase(),
    }
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
