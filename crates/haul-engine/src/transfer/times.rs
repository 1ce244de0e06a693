//! What destinations keep of modification times, learnt from what they give back.
//!
//! Capabilities say what a protocol or a known file system keeps. What lies behind may keep less: NTFS and SMB
//! steps of 100 ns, ext4 with small inodes whole seconds until 2038, a server whatever its disk does. So when a
//! file differs from its source in its time only, and that time is what a coarser or shorter clock would make of
//! the source's, the destination is tried: an empty file is made beside it with another time, which such a clock
//! could not tell from the one that is there. If it reads back as that one, the clock is like that. The result
//! holds for the file system, so a transfer tries a few times at most.
//!
//! The file in question keeps its time throughout: it may have other names, which are compared at the same moment,
//! and a run that is killed must not leave an old version that looks like the new one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use haul_storage::{
    CommitOptions, Entry, Error, ErrorKind, KeptTimes, Metadata, Result, Timestamp, temporary_name,
};

use crate::context::Context;
use crate::plan::Item;

/// Steps of clocks that exist: NTFS and SMB, clocks of microseconds and milliseconds, exFAT, ext3 and HFS+, FAT.
const STEPS_NS: [u64; 6] = [100, 1000, 1_000_000, 10_000_000, 1_000_000_000, 2_000_000_000];

/// The longest of these, in seconds.
const STEP_MOST: u64 = 2;

/// Times that every clock has, in seconds: from 1980-01-03 (FAT begins on the 1st, in local time) to
/// 2038-01-18 (32 bits with a sign end on the 19th).
const EVERY_CLOCK: std::ops::Range<i64> = 315_705_600..2_147_385_600;

/// Beyond the source's time by this many seconds is tried whether a clock ends before that.
const BEYOND: i64 = 86_400;

/// What was found out about the destinations of a transfer.
#[derive(Debug, Default)]
pub struct LearntTimes {
    /// By job and, on disks, by file system.
    by_place: Mutex<HashMap<(usize, Option<u64>), Learnt>>,
    /// Held while a destination is tried: those who wait use the result.
    trying: tokio::sync::Mutex<()>,
    said: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct Learnt {
    kept: KeptTimes,
    /// The clock is known to be finer than this step.
    finer_than_ns: u64,
    /// Between these two the clock is known to have every time.
    reaches: (Timestamp, Timestamp),
}

impl Learnt {
    fn new(claimed: KeptTimes) -> Self {
        let every = |seconds| Timestamp { seconds, nanos: 0 };
        Self {
            kept: claimed,
            finer_than_ns: u64::MAX,
            reaches: (every(EVERY_CLOCK.start), every(EVERY_CLOCK.end)),
        }
    }

    /// What would explain that `wanted` was set and `found` is there.
    fn doubt(&self, wanted: Timestamp, found: Timestamp) -> Option<Doubt> {
        let step = STEPS_NS.into_iter().find(|step| wanted.rounded_down(*step) == found);
        if let Some(step_ns) = step {
            let is_open = step_ns > self.kept.step_ns && step_ns < self.finer_than_ns;
            return is_open.then_some(Doubt::Step(step_ns));
        }
        if found < wanted && found >= self.reaches.1 && found < self.kept.latest {
            return Some(Doubt::Latest);
        }
        let is_earlier = found > wanted && found <= self.reaches.0 && found > self.kept.earliest;
        is_earlier.then_some(Doubt::Earliest)
    }
}

/// In what respect a destination may keep less than is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    /// Its clock has this step.
    Step(u64),
    /// Its clock ends at the time that was found.
    Latest,
    /// Its clock begins there.
    Earliest,
}

impl Doubt {
    /// A time that reads as `found` if the doubt is right, and as something else otherwise.
    fn trial(self, source: Timestamp, wanted: Timestamp, found: Timestamp) -> Timestamp {
        match self {
            Self::Step(step_ns) => {
                let last = later(found, step_ns - 1);
                if last == source { later(found, step_ns - 2) } else { last }
            }
            Self::Latest => Timestamp { seconds: wanted.seconds.saturating_add(BEYOND), nanos: 0 },
            Self::Earliest => {
                Timestamp { seconds: wanted.seconds.saturating_sub(BEYOND), nanos: 0 }
            }
        }
    }
}

impl LearntTimes {
    fn learnt(&self, item: &Item, existing: &Entry) -> Learnt {
        let claimed = item.job.job.destination.capabilities().kept_times;
        let by_place = self.by_place.lock().unwrap_or_else(PoisonError::into_inner);
        by_place.get(&place(item, existing)).copied().unwrap_or_else(|| Learnt::new(claimed))
    }

    fn note(&self, item: &Item, existing: &Entry, change: impl FnOnce(&mut Learnt)) {
        let claimed = item.job.job.destination.capabilities().kept_times;
        let mut by_place = self.by_place.lock().unwrap_or_else(PoisonError::into_inner);
        change(by_place.entry(place(item, existing)).or_insert_with(|| Learnt::new(claimed)));
    }

    /// What is kept of the time of `existing`, as far as that is known.
    pub fn kept(&self, item: &Item, existing: &Entry) -> KeptTimes {
        self.learnt(item, existing).kept
    }

    /// Says once in a transfer that a time cannot be kept, and what it becomes.
    pub fn say_lost(&self, context: &Context, name: String, time: Timestamp, became: Timestamp) {
        if time.seconds.abs_diff(became.seconds) > STEP_MOST
            && !self.said.swap(true, Ordering::Relaxed)
        {
            let message = format!(
                "the destination cannot keep its modification time: {} becomes {}; this is reported once",
                time.date(),
                became.date()
            );
            context.tally.warn(name, message);
        }
    }
}

/// What is kept of times where `existing` is, found out by trying if that could make the time of `existing` the
/// source's.
pub async fn find_out(context: &Context, item: &Item, existing: &Entry) -> Result<KeptTimes> {
    let can = item.job.job.destination.capabilities();
    let times = item.source.modified.zip(existing.modified);
    let Some((source, found)) = times.filter(|_| can.times) else {
        return Ok(context.times.kept(item, existing));
    };
    let doubt = |learnt: Learnt| {
        let wanted = learnt.kept.kept(source);
        let doubt = learnt.doubt(wanted, found).filter(|_| wanted != found);
        doubt.map(|doubt| (wanted, doubt)).ok_or(learnt.kept)
    };
    if let Err(kept) = doubt(context.times.learnt(item, existing)) {
        return Ok(kept);
    }
    let _alone = context.times.trying.lock().await;
    let (wanted, doubt) = match doubt(context.times.learnt(item, existing)) {
        Ok(doubt) => doubt,
        Err(kept) => return Ok(kept),
    };
    // Nothing may be tried in a dry run; a clock that explains what is there is likelier than a file that was
    // changed within a step of it.
    let is_right = if context.settings.dry_run {
        true
    } else {
        let tried = try_out(item, doubt.trial(source, wanted, found), found).await?;
        let Some(is_right) = tried else { return Ok(context.times.kept(item, existing)) };
        is_right
    };
    context.times.note(item, existing, |learnt| match (doubt, is_right) {
        (Doubt::Step(step_ns), true) => learnt.kept.step_ns = learnt.kept.step_ns.max(step_ns),
        (Doubt::Step(step_ns), false) => learnt.finer_than_ns = learnt.finer_than_ns.min(step_ns),
        (Doubt::Latest, true) => learnt.kept.latest = found,
        (Doubt::Latest, false) => learnt.reaches.1 = learnt.reaches.1.max(wanted),
        (Doubt::Earliest, true) => learnt.kept.earliest = found,
        (Doubt::Earliest, false) => learnt.reaches.0 = learnt.reaches.0.min(wanted),
    });
    Ok(context.times.kept(item, existing))
}

/// Whether a new file beside the destination of `item` has `found` as its time after it was made with `trial`.
/// `None` where no such file can be made: other directories may still allow it.
async fn try_out(item: &Item, trial: Timestamp, found: Timestamp) -> Result<Option<bool>> {
    let destination = &item.job.job.destination;
    let invalid = |error| Error::new(ErrorKind::InvalidInput, "try the clock").with_source(error);
    let name = temporary_name(b"haul", "clock");
    let path = item.destination.with_name(name).map_err(invalid)?;
    let metadata = Metadata { modified: Some(trial), ..Metadata::default() };
    let options = CommitOptions { metadata, replace: true, sync: false };
    let tried = async {
        destination.write_whole(&path, Bytes::new(), &options).await?;
        let now = destination.stat(&path).await;
        destination.remove(&path).await?;
        Ok::<_, Error>(Some(now?.modified == Some(found)))
    };
    match tried.await {
        // The file is replaced then, or that fails with an error of its own.
        Err(error) if !is_of_the_link(error.kind()) => Ok(None),
        outcome => outcome,
    }
}

/// Whether an error is not about the file at all.
const fn is_of_the_link(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Interrupted | ErrorKind::Unreachable | ErrorKind::Unauthenticated)
}

/// Whether some clocks do not have this time, so that it has to be looked at once it is set.
pub const fn is_unusual(time: Timestamp) -> bool {
    time.seconds < EVERY_CLOCK.start || time.seconds >= EVERY_CLOCK.end
}

/// Looks whether a file on a disk got a time that not every clock has, and says so if it did not.
pub async fn look_again(context: &Context, item: &Item) -> Result<()> {
    let job = &item.job.job;
    let can = job.destination.capabilities();
    let Some(source) = item.source.modified.filter(|time| is_unusual(*time)) else { return Ok(()) };
    let is_looked_at = can.times && context.settings.preserve.times && !context.settings.dry_run;
    if !is_looked_at || can.medium != haul_storage::Medium::Disk {
        return Ok(());
    }
    let there = job.destination.stat(&item.destination).await?;
    let learnt = context.times.learnt(item, &there);
    let Some(found) = there.modified else { return Ok(()) };
    let wanted = learnt.kept.kept(source);
    context.times.note(item, &there, |learnt| match learnt.doubt(wanted, found) {
        Some(Doubt::Latest) => learnt.kept.latest = found,
        Some(Doubt::Earliest) => learnt.kept.earliest = found,
        _ => {}
    });
    let name = item.job.destination_name(&item.destination);
    context.times.say_lost(context, name, source, found);
    Ok(())
}

fn place(item: &Item, existing: &Entry) -> (usize, Option<u64>) {
    (item.job.index, existing.id.map(|id| id.device))
}

fn later(time: Timestamp, by_ns: u64) -> Timestamp {
    const SECOND_NS: u64 = 1_000_000_000;
    let nanos = u64::from(time.nanos) + by_ns % SECOND_NS;
    let seconds = by_ns / SECOND_NS + nanos / SECOND_NS;
    Timestamp {
        seconds: time.seconds.saturating_add(i64::try_from(seconds).unwrap_or(i64::MAX)),
        nanos: u32::try_from(nanos % SECOND_NS).unwrap_or(0),
    }
}
/// Whether the time of what is at an item's destination is another than `time`, as exactly as the coarser side
/// keeps times.
pub fn differs(context: &Context, item: &Item, existing: &Entry, time: Timestamp) -> bool {
    let kept = context.times.kept(item, existing);
    let step_ns = item.job.job.source.capabilities().kept_times.step_ns.max(kept.step_ns);
    existing
        .modified
        .is_some_and(|there| there.rounded_down(step_ns) != kept.kept(time).rounded_down(step_ns))
}
