//! Large files: by ranges, several at once, with a part file and a journal.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, Fuse, FusedFuture, FutureExt};
use futures_util::stream::FuturesUnordered;
use haul_storage::{Error, ErrorKind, Medium, Range, ReadAt, Result, UNKNOWN_SIZE, WriteAt};
use tokio::sync::{Notify, SemaphorePermit};
use tokio::time::{sleep, timeout};

use super::backup;
use super::bytes::digest_range;
use super::expected;
use super::file::{Moved, commit_options, current};
use super::open::{Opened, journal_from, open};
use super::progress::FileProgress;
use super::range::{FileInMotion, Reads, Wanted};
use super::stream;
use super::verify::{read_back, read_named};
use crate::Cancel;
use crate::context::Context;
use crate::digest::{Digest, FileHasher};
use crate::flow::Permit;
use crate::journal::Journal;
use crate::plan::Item;
use crate::ranges::RangeSet;
use crate::schedule::Schedule;

/// A hole shorter than this is copied as zeros rather than looked after.
const LEAST_HOLE: u64 = 64 << 10;
/// How long an interrupted copy waits for its disk.
const DURABLE_WITHIN: Duration = Duration::from_secs(5);
/// So often it is looked whether a lane has come to be free that takes over a part of a long read.
const LOOK: Duration = Duration::from_millis(100);

/// Moves a file by ranges. On failure the part file and its journal stay for a later run, unless
/// the source has changed.
pub async fn move_large(context: &Context, item: &Item) -> Result<Moved> {
    let interrupted = || Error::new(ErrorKind::Interrupted, "copy");
    let Ok(slot) = context.large_files.acquire().await else { return Err(interrupted()) };
    if context.cancel.is_cancelled() {
        return Err(interrupted());
    }
    let shown = context.current.begin(|| current(item));
    let reader = item.job.job.source.open(&item.source.path).await?;
    if reader.identity().size == UNKNOWN_SIZE {
        return stream::move_to_the_end(context, item, &*reader, &shown).await;
    }
    let opened = open(context, item, reader).await?;
    // What the link is like is known since it was opened, and how long ranges are depends on it.
    context.flow.tick();
    let writer = Arc::clone(&opened.writer);
    let journal_path = opened.journal_path.clone();
    let resumed_bytes = opened.written.total();
    let bytes = opened.identity.size;
    context.tally.resumed(resumed_bytes);
    let counted = Arc::new(AtomicU64::new(resumed_bytes));
    shown.counts(&counted);
    let identity = opened.identity.clone();
    match move_opened(context, item, opened, &counted, slot).await {
        Ok(digest) => {
            let counted_bytes = counted.load(Ordering::Relaxed);
            let identity = Some(identity);
            Ok(Moved { bytes, digest, resumed_bytes, counted_bytes, identity, ..Moved::default() })
        }
        Err(error) => {
            context.tally.forget(counted.load(Ordering::Relaxed));
            let keep = journal_path.is_some() && !spoilt(&error);
            if keep && item.job.job.destination.capabilities().medium == Medium::Disk {
                make_durable(context, &*writer, journal_path.clone()).await;
            }
            // The first error is the one to report; what cannot be removed the next run finds.
            drop(writer.abort(keep).await);
            if !keep {
                remove_journal(context, journal_path).await.ok();
            }
            Err(error)
        }
    }
}

/// Makes what a part file holds durable and says so in its journal, so that it is continued also after
/// the disk was unmounted or the machine restarted. A disk that takes too long is not waited for, and a
/// failure is ignored: then what is there does not count after that.
async fn make_durable(context: &Context, writer: &dyn WriteAt, journal: Option<PathBuf>) {
    let Some(journal) = journal else { return };
    if let Ok(Ok(())) = timeout(DURABLE_WITHIN, writer.sync()).await {
        drop(context.pool.run(move || Journal::mark_synced(&journal)).await);
    }
}

/// Whether an error means that what is in the part file must not be continued.
fn spoilt(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Changed | ErrorKind::Corrupt | ErrorKind::InvalidInput)
}

async fn remove_journal(context: &Context, path: Option<PathBuf>) -> std::io::Result<()> {
    match path {
        Some(path) => context.pool.run(move || Journal::remove_at(&path)).await,
        None => Ok(()),
    }
}

async fn move_opened(
    context: &Context,
    item: &Item,
    opened: Opened,
    counted: &AtomicU64,
    slot: SemaphorePermit<'_>,
) -> Result<Option<Digest>> {
    let Opened { reader, writer, identity, written, journal, journal_path } = opened;
    let job = &item.job.job;
    let writes = job.destination.capabilities().writes;
    let kind = expected::digest_kind(context, item);
    let hasher = kind.map(|kind| FileHasher::new(kind, context.pool.clone()));
    let resumed_bytes = written.total();
    let direct = hasher.is_none()
        && context.settings.bandwidth_limit.is_none()
        && job.destination.capabilities().server_copy
        && job.source.capabilities().medium == job.destination.capabilities().medium;
    let keeps = !context.flow.has_links() && identity.size < journal_from(context);
    let progress = FileProgress::new(journal, keeps, context.flow.decision().window_bytes);
    let file = FileInMotion {
        context,
        source_name: item.job.source_name(&item.source.path),
        destination_name: item.job.destination_name(&item.destination),
        reader: Arc::clone(&reader),
        writer: Arc::clone(&writer),
        destination_medium: job.destination.capabilities().medium,
        write_bytes: job.destination.capabilities().write_bytes,
        reads: Reads::from(job.source.capabilities(), &*reader),
        sequence: FileInMotion::sequence_for(writes, &written),
        hasher,
        schedule: Mutex::new(Schedule::default()),
        progress,
        counted,
        direct: AtomicBool::new(direct),
        taken: Notify::new(),
        stopped: Cancel::default(),
    };
    // A writer that takes bytes in order needs the zeros of holes too.
    let ignore_holes = file.sequence.is_some();
    let holes = HoleFinder::new(&*reader, identity.size, written.clone(), ignore_holes);
    // What an earlier run left passes through the digest too, while the rest is moved.
    let (moved, rehashed) = tokio::join!(move_ranges(&file, holes, slot), rehash(&file, &written));
    moved?;
    rehashed?;
    if context.cancel.is_cancelled() {
        return Err(Error::new(ErrorKind::Interrupted, "copy"));
    }
    let (reader, writer) = (&*reader, &*writer);
    let whole = Whole { reader, writer, bytes: identity.size, resumed_bytes };
    let digest = finish(context, item, &whole, file.hasher.as_ref()).await?;
    remove_journal(context, journal_path)
        .await
        .map_err(|error| Error::from_io("remove the journal", error).at(&file.destination_name))?;
    Ok(digest)
}

/// A file of which all bytes have been written.
pub struct Whole<'a> {
    /// Where they came from.
    pub reader: &'a dyn ReadAt,
    /// Where they are.
    pub writer: &'a dyn WriteAt,
    /// How many they are.
    pub bytes: u64,
    /// How many of them an earlier run has left.
    pub resumed_bytes: u64,
}

/// Gives a file its name, unless the source has changed meanwhile.
pub async fn finish(
    context: &Context,
    item: &Item,
    whole: &Whole<'_>,
    hasher: Option<&FileHasher>,
) -> Result<Option<Digest>> {
    let Whole { reader, writer, bytes, resumed_bytes } = *whole;
    let identity = reader.identity();
    let destination_name = || item.job.destination_name(&item.destination);
    let now = reader.recheck().await?;
    if now != *identity {
        return Err(Error::new(ErrorKind::Changed, "copy")
            .because(format!("it changed while being read: {identity} became {now}")));
    }
    let digest = match hasher {
        Some(hasher) => Some(hasher.finish(bytes).await?),
        None => None,
    };
    expected::check(item, digest, resumed_bytes)?;
    let mut unverified = digest.filter(|_| context.settings.verify);
    if let Some(digest) = unverified {
        let read = read_back(context, writer, bytes, digest).await;
        let done = read.map_err(|error| error.at(destination_name()))?;
        unverified = unverified.filter(|_| !done);
    }
    let mut metadata = item.source.metadata();
    if context.settings.preserve.xattrs {
        metadata.xattrs = reader.metadata().await?.xattrs;
    }
    metadata.modified = identity.modified;
    let options = commit_options(context, item, metadata);
    let committed = backup::around(context, item, writer.commit(bytes, &options)).await;
    committed.map_err(|error| error.at(destination_name()))?;
    if let Some(digest) = unverified {
        let storage = &*item.job.job.destination;
        let read = read_named(context, storage, &item.destination, bytes, digest).await;
        read.map_err(|error| error.at(destination_name()))?;
    }
    Ok(digest)
}

/// Moves everything that is missing; on the first error lets what is in the making end, because
/// writes that were handed to a thread cannot be called back. Over a link the file gives its slot back
/// when little is left of it, so that the next one is open when the link has room for it.
async fn move_ranges(
    file: &FileInMotion<'_>,
    mut holes: HoleFinder<'_>,
    slot: SemaphorePermit<'_>,
) -> Result<()> {
    let mut slot = Some(slot);
    let flow = &file.context.flow;
    let mut ranges = FuturesUnordered::new();
    let mut failure = None;
    let mut wants_lane = None;
    let has_room = AtomicBool::new(false);
    // A request for a permit keeps its place in the queue from one turn of the loop to the next.
    let mut permit = pin!(Fuse::terminated());
    loop {
        if failure.is_none() && !file.is_stopped() {
            match holes.feed(file).await {
                // A digest in order takes the zeros only when all before them has passed, so they
                // have to wait beside the ranges.
                Ok(found) => ranges.extend(found.into_iter().map(|hole| file.hole(hole).boxed())),
                Err(error) => {
                    file.stopped.cancel();
                    failure = Some(error);
                }
            }
        }
        if flow.has_links() && holes.left(file) < flow.decision().window_bytes {
            slot = None;
        }
        let wanted = failure.is_none() && !file.is_stopped() && file.schedule().has_unassigned();
        if wanted
            && ranges.is_empty()
            && let Err(error) = file.record_all().await
        {
            file.stopped.cancel();
            failure.get_or_insert(error);
            continue;
        }
        if !wanted {
            permit.set(Fuse::terminated());
            wants_lane = None;
        } else if permit.is_terminated() {
            let next = file.next_range(ranges.len());
            wants_lane =
                if next.is_none() { wants_lane.or_else(|| file.wants_lane()) } else { None };
            if let Some(next) = next {
                has_room.store(false, Ordering::Relaxed);
                let has_room = &has_room;
                permit.set(
                    async move {
                        let granted = flow.room(next.held).await;
                        has_room.store(true, Ordering::Relaxed);
                        flow.keep_limit(next.held).await;
                        (next, granted)
                    }
                    .fuse(),
                );
            }
        }
        if !wanted && ranges.is_empty() {
            break;
        }
        tokio::select! {
            biased;
            Some(ended) = ranges.next(), if !ranges.is_empty() => {
                if let Err(error) = ended {
                    file.stopped.cancel();
                    failure.get_or_insert(error);
                }
                if let Some(stolen) = file.steal(ranges.len()) {
                    ranges.push(file.stolen(stolen));
                }
            }
            (next, granted) = &mut permit, if wanted => begin(file, &mut ranges, next, granted),
            Some((next, granted)) = file.must_go_on(&has_room), if wanted && ranges.is_empty() => {
                permit.set(Fuse::terminated());
                begin(file, &mut ranges, next, granted);
            }
            () = file.context.cancel.cancelled(), if wanted => {}
            () = sleep(LOOK), if file.looks_for_lanes() => {
                if let Some(stolen) = file.steal(ranges.len()) {
                    ranges.push(file.stolen(stolen));
                }
            }
        }
    }
    drop(slot);
    failure.map_or(Ok(()), Err)
}

/// Begins with the next range, if there is one left.
fn begin<'a>(
    file: &'a FileInMotion<'_>,
    ranges: &mut FuturesUnordered<BoxFuture<'a, Result<()>>>,
    next: Wanted,
    mut permit: Permit,
) {
    let assigned = file.schedule().next(next.bytes);
    let flow = &file.context.flow;
    if let Some(assigned) = assigned {
        // The range may be shorter than what was waited for; the permit with it.
        let unused = permit.left().saturating_sub(assigned.range.len());
        if flow.limit_bytes().is_some() {
            flow.give_back(unused.min(next.held.saturating_sub(next.unpaid)));
        }
        drop(permit.split(unused));
        let moved = async move {
            let _counted = next.counted;
            let unpaid = next.unpaid.min(permit.left());
            file.unless_stopped(file.context.flow.keep_limit(unpaid)).await;
            file.move_range(assigned, permit).await
        };
        ranges.push(moved.boxed());
    }
}

/// Feeds what an earlier run left in the part file to the digest.
async fn rehash(file: &FileInMotion<'_>, written: &RangeSet) -> Result<()> {
    let Some(hasher) = file.hasher.as_ref().filter(|_| !written.is_empty()) else { return Ok(()) };
    let part = file.writer.reopen(false).await?;
    for range in written.iter() {
        let feed = digest_range(file.context, &*part, hasher, range);
        let Some(fed) = file.unless_stopped(feed).await else { return Ok(()) };
        if let Err(error) = fed {
            file.stopped.cancel();
            return Err(error.at(&file.destination_name));
        }
    }
    Ok(())
}

/// Finds what is data and what is hole, a stretch at a time, and puts the data that is missing on
/// the schedule.
struct HoleFinder<'a> {
    reader: &'a dyn ReadAt,
    size: u64,
    at: u64,
    written: RangeSet,
    ignore_holes: bool,
}

impl<'a> HoleFinder<'a> {
    fn new(reader: &'a dyn ReadAt, size: u64, written: RangeSet, ignore_holes: bool) -> Self {
        Self { reader, size, at: 0, written, ignore_holes }
    }

    /// Bytes that are not handed out yet, at most.
    fn left(&self, file: &FileInMotion<'_>) -> u64 {
        (self.size - self.at.min(self.size)) + file.schedule().unassigned()
    }

    /// Goes on until there is something to hand out, or the end. Gives the holes before that which
    /// an earlier run has not passed already.
    async fn feed(&mut self, file: &FileInMotion<'_>) -> Result<Vec<Range>> {
        let mut holes = Vec::new();
        while self.at < self.size && !file.schedule().has_unassigned() {
            let data = if self.ignore_holes {
                Range::between(self.at, self.size)
            } else {
                let found = self.reader.next_data(self.at).await?;
                found.unwrap_or(Range::new(self.size, 0))
            };
            let start = if data.start() < self.at.saturating_add(LEAST_HOLE) {
                self.at
            } else {
                data.start().min(self.size)
            };
            holes.extend(self.written.gaps(Range::between(self.at, start)));
            let data = Range::between(start, data.end().min(self.size));
            for gap in self.written.gaps(data) {
                file.schedule().add(gap);
            }
            self.at = data.end();
        }
        Ok(holes)
    }
}
