//! Small files: read whole, hashed in one piece, written whole; between disks in batches, so that they
//! share the way to a thread and back.

use std::sync::Arc;

use bytes::Bytes;
use haul_storage::{Result, SmallFile, Storage};

use super::outcome::{Moved, commit_options, is_small, report};
use super::{backup, expected, listed};
use crate::context::Context;
use crate::digest::Digest;
use crate::plan::Item;
use crate::stored_times::is_unusual;
use crate::{Action, Reason};

/// The most files of a batch.
pub const BATCH_FILES: usize = 128;
/// A batch of at least this many files ends with its directory: two threads that create files in one
/// directory wait for each other.
pub const BATCH_ENOUGH: usize = 32;
/// The most bytes of a batch, unless its first file is longer.
pub const BATCH_BYTES: u64 = 1 << 20;

/// Whether an item may be moved in a batch: a small file between disks that needs no special treatment.
pub fn fits_batch(context: &Context, item: &Item) -> bool {
    let settings = &context.settings;
    let usual_time = !item.source.modified.is_some_and(is_unusual);
    let is_single = item.source.is_file() && item.source.links <= 1;
    let plain = is_single && item.existing.is_nothing() && usual_time;
    let plain = plain && item.job.job.expected.is_none();
    let nothing_more = !settings.dry_run && !settings.preserve.xattrs && !settings.remove_source;
    plain && nothing_more && !context.flow.has_links() && is_small(context, item)
}

/// Moves the files of a batch, all of one job. Returns those that failed, to be moved one by one with full
/// error handling.
pub async fn move_batch(context: &Context, items: Vec<Item>) -> Vec<Item> {
    let Some(job) = items.first().map(|item| Arc::clone(&item.job)) else { return items };
    let job = &job.job;
    let total: u64 = items.iter().map(|item| item.source.size).sum();
    // Without space for them the transfer ends, and they are left to the next run.
    let Ok(_admission) = context.room.admit(total).await else { return Vec::new() };
    let _permit = context.flow.acquire(total.max(1)).await;
    let limit = job.source.capabilities().whole_limit;
    let paths = items.iter().map(|item| item.source.path.clone()).collect();
    let wholes = job.source.read_many(paths, limit).await;
    let mut failed = Vec::new();
    let mut read = Vec::with_capacity(items.len());
    for (item, whole) in items.into_iter().zip(wholes) {
        match whole {
            Ok(whole) if listed::check(&item, whole.bytes.len() as u64).is_ok() => {
                read.push((item, whole));
            }
            Ok(_) | Err(_) => failed.push(item),
        }
    }
    let contents = read.iter().map(|(_, whole)| whole.bytes.clone()).collect();
    let digests = digests(context, contents).await;
    let files = read.iter().map(|(item, whole)| {
        let options = commit_options(context, item, whole.metadata.clone());
        SmallFile::new(item.destination.clone(), whole.bytes.clone(), options)
    });
    let written = job.destination.write_many(files.collect()).await;
    for (((item, whole), digest), outcome) in read.into_iter().zip(digests).zip(written) {
        if outcome.is_err() {
            failed.push(item);
            continue;
        }
        let bytes = whole.bytes.len() as u64;
        context.tally.moved(bytes);
        let reason = Some(Reason::New);
        let moved = Moved { bytes, digest, counted_bytes: bytes, reason, ..Moved::default() };
        report(context, &item, Action::Copied, &moved);
    }
    failed
}

/// The digests of several contents, computed in one job.
async fn digests(context: &Context, contents: Vec<Bytes>) -> Vec<Option<Digest>> {
    let Some(kind) = context.settings.digest else { return vec![None; contents.len()] };
    let work = move || contents.iter().map(|bytes| Some(Digest::of(kind, bytes))).collect();
    context.pool.run(work).await
}

/// Moves a small file: reads it whole, and writes it whole.
pub async fn move_small(context: &Context, item: &Item) -> Result<Moved> {
    let job = &item.job.job;
    let limit = job.source.capabilities().whole_limit;
    let permit = context.flow.acquire(item.source.size.max(1)).await;
    let issued = context.flow.now();
    let whole = job.source.read_whole(&item.source.path, limit).await?;
    listed::check(item, whole.bytes.len() as u64)?;
    let mut metadata = whole.metadata;
    if context.settings.preserve.xattrs {
        metadata.xattrs = job.source.metadata(&item.source.path).await?.xattrs;
    }
    let digest = expected::digest_kind(context, item).map(|kind| Digest::of(kind, &whole.bytes));
    expected::check(item, digest, 0)?;
    let bytes = whole.bytes.len() as u64;
    let options = commit_options(context, item, metadata);
    let destination: &dyn Storage = &*job.destination;
    let writing = destination.write_whole(&item.destination, whole.bytes, &options);
    backup::with_backup(context, item, writing)
        .await
        .map_err(|error| error.at(item.job.destination_name(&item.destination)))?;
    context.flow.completed(issued, None, bytes);
    drop(permit);
    context.tally.moved(bytes);
    let identity = Some(whole.identity);
    Ok(Moved { bytes, digest, counted_bytes: bytes, identity, ..Moved::default() })
}
