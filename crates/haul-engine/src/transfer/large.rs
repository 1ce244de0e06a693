//! Large files: moved by ranges, several at once, with a part file and a journal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use haul_storage::{Error, ErrorKind, Medium, RangeSet, Result, UNKNOWN_SIZE, Writes};
use tokio::sync::SemaphorePermit;
use tokio::time::timeout;

use super::bytes::digest_range;
use super::expected;
use super::finish::{Whole, finish};
use super::listed;
use super::motion::{Driver, Ends, FileInMotion, Mode, Reads, Shared};
use super::open::{Opened, journal_from, open};
use super::outcome::{Moved, current};
use crate::context::Context;
use crate::digest::{Digest, FileHasher};
use crate::plan::Item;

/// How long a failed or interrupted copy waits for the sync of its bytes to the disk.
const DURABLE_WITHIN: Duration = Duration::from_secs(5);

/// Moves a file by ranges. On failure, a part file with a journal stays for a later run, unless it must not be
/// resumed, for example because the source has changed.
pub async fn move_large(context: &Context, item: &Item) -> Result<Moved> {
    let interrupted = || Error::new(ErrorKind::Interrupted, "copy");
    let Ok(slot) = context.in_flight.large_files.acquire().await else { return Err(interrupted()) };
    if context.cancel.is_cancelled() {
        return Err(interrupted());
    }
    let shown = context.in_flight.current.begin(|| current(item));
    let reader = item.job.job.source.open(&item.source.path).await?;
    let opened = open(context, item, reader).await?;
    // Opening has made the link's status known, and the length of ranges depends on it.
    context.flow.tick();
    let writer = Arc::clone(&opened.writer);
    let resumed_bytes = opened.written.total();
    context.tally.resumed(resumed_bytes);
    let counted = Arc::new(AtomicU64::new(resumed_bytes));
    shown.counts(&counted);
    let identity = opened.identity.clone();
    match move_opened(context, item, opened, &counted, slot).await {
        Ok(digest) => {
            // The whole file, as all the rest was either moved or a hole.
            let bytes = counted.load(Ordering::Relaxed);
            let (counted_bytes, identity) = (bytes, Some(identity));
            Ok(Moved { bytes, digest, resumed_bytes, counted_bytes, identity, ..Moved::default() })
        }
        Err(error) => {
            context.tally.forget(counted.load(Ordering::Relaxed));
            let keep = writer.held().is_recorded() && !spoilt(&error);
            if keep && item.job.job.destination.capabilities().medium == Medium::Disk {
                // Synced bytes can be resumed even after an unmount or a reboot. If the disk takes too long
                // or fails, that is ignored: then they are not resumed.
                drop(timeout(DURABLE_WITHIN, writer.sync()).await);
            }
            // The first error is the one to report; the next run finds what cannot be removed.
            drop(writer.abort(keep).await);
            Err(error)
        }
    }
}

/// Whether an error means that the part file must not be resumed.
fn spoilt(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Changed | ErrorKind::Corrupt | ErrorKind::InvalidInput)
}

async fn move_opened(
    context: &Context,
    item: &Item,
    opened: Opened,
    counted: &Arc<AtomicU64>,
    slot: SemaphorePermit<'_>,
) -> Result<Option<Digest>> {
    let (mode, resumed_bytes) = (mode(context, item, &opened), opened.written.total());
    let Opened { reader, writer, identity, written } = opened;
    let ends = Ends {
        reader,
        reads: mode.reads,
        writer,
        hasher: mode.digest.map(|kind| FileHasher::new(kind, context.pool.clone())),
        source_name: item.job.source_name(&item.source.path),
        destination_name: item.job.destination_name(&item.destination),
    };
    let shared = Shared {
        flow: Arc::clone(&context.flow),
        tally: Arc::clone(&context.tally),
        long_reads: context.in_flight.long_reads.clone(),
    };
    let file = FileInMotion::new(shared, mode, identity.size, written.clone(), Arc::clone(counted));
    let driver = Driver::new(context, ends, file, slot);
    // The bytes that an earlier run left are hashed while the rest is moved.
    let (moved, rehashed) = tokio::join!(driver.run(), rehash(&driver, context, &written));
    moved?;
    rehashed?;
    if context.cancel.is_cancelled() {
        return Err(Error::new(ErrorKind::Interrupted, "copy"));
    }
    let Ends { reader, writer, hasher, .. } = driver.ends();
    let bytes = counted.load(Ordering::Relaxed);
    listed::check(item, bytes)?;
    let whole = Whole { reader: &**reader, writer: &**writer, bytes, resumed_bytes };
    finish(context, item, &whole, hasher.as_ref()).await
}

fn mode(context: &Context, item: &Item, opened: &Opened) -> Mode {
    let (source, destination) =
        (item.job.job.source.capabilities(), item.job.job.destination.capabilities());
    let settings = &context.settings;
    let digest = expected::digest_kind(context, item);
    let is_endless = opened.identity.size == UNKNOWN_SIZE;
    let reads = if is_endless { Reads::Whole } else { Reads::from(source, &*opened.reader) };
    let is_short = opened.identity.size < journal_from(context);
    Mode {
        reads,
        is_endless,
        destination: destination.medium,
        writes_in_order: destination.writes == Writes::InOrder,
        write_bytes: destination.write_bytes,
        digest,
        direct: digest.is_none()
            && !is_endless
            && settings.bandwidth_limit.is_none()
            && destination.server_copy
            && source.medium == destination.medium,
        journal: opened.writer.held().is_recorded(),
        keeps_permits: reads == Reads::Ranges && is_short && !context.flow.has_links(),
        retries: (settings.retries, settings.retry_pause),
    }
}

/// Hashes what an earlier run left in the part file.
async fn rehash(driver: &Driver<'_>, context: &Context, written: &RangeSet) -> Result<()> {
    let Ends { writer, hasher, destination_name, .. } = driver.ends();
    let Some(hasher) = hasher.as_ref().filter(|_| !written.is_empty()) else { return Ok(()) };
    let part = match writer.reopen(false).await {
        Ok(part) => part,
        Err(error) => {
            driver.stop(None);
            return Err(error);
        }
    };
    for range in written.iter() {
        let feed = digest_range(context, &*part, hasher, range);
        let Some(fed) = driver.unless_stopped(feed).await else { return Ok(()) };
        if let Err(error) = fed {
            driver.stop(None);
            return Err(error.at(destination_name));
        }
    }
    Ok(())
}
