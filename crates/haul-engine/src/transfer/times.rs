//! Learns which modification times a destination can store, from those that it returns.
//!
//! Capabilities give the precision and range of a protocol or a known file system. The file system behind it
//! may have less: NTFS and SMB have steps of 100 ns, ext4 with small inodes has whole seconds until 2038, a
//! server has what its disk has. So when a file differs from its source only in its time, and a clock with
//! longer steps or a shorter range would turn the source's time into the existing one, haul runs a trial: it
//! creates an empty file on the same file system, with another time that such a clock would also turn into the
//! existing one. If the existing time is read back, the clock is of that kind. The result holds for the file
//! system, so a transfer needs only a few trials.
//!
//! The file in question keeps its time throughout: it may have other names, which are compared at the same
//! time, and a killed run must not leave an old version that looks like the new one.

use bytes::Bytes;
use haul_storage::{
    CommitOptions, Entry, Error, ErrorKind, Metadata, Result, StoredTimes, Timestamp,
};

use crate::context::Context;
use crate::plan::Item;
use crate::stored_times::{Doubt, Learnt, is_unusual, trial_path};

/// Which times can be stored where `existing` is. Runs a trial if its result may make the times of `existing`
/// and the source equal.
pub async fn probe(context: &Context, item: &Item, existing: &Entry) -> Result<StoredTimes> {
    let can = item.job.job.destination.capabilities();
    let times = item.source.modified.zip(existing.modified);
    let Some((source, found)) = times.filter(|_| can.times) else {
        return Ok(context.times.stored(&item.job, existing));
    };
    let doubt = |learnt: Learnt| {
        let wanted = learnt.times.stored(source);
        let doubt = learnt.doubt(wanted, found).filter(|_| wanted != found);
        doubt.map(|doubt| (wanted, doubt)).ok_or(learnt.times)
    };
    if let Err(stored_times) = doubt(context.times.learnt(&item.job, existing)) {
        return Ok(stored_times);
    }
    let _alone = context.times.trying.lock().await;
    let (wanted, doubt) = match doubt(context.times.learnt(&item.job, existing)) {
        Ok(doubt) => doubt,
        Err(stored_times) => return Ok(stored_times),
    };
    // Nothing may be tried in a dry run; a clock that explains the existing time is more likely than a file
    // that was changed within one of its steps.
    let is_right = if context.settings.dry_run {
        true
    } else {
        let tried = try_out(item, existing, doubt.trial(source, wanted, found), found).await?;
        let Some(is_right) = tried else { return Ok(context.times.stored(&item.job, existing)) };
        is_right
    };
    context.times.note(&item.job, existing, |learnt| match (doubt, is_right) {
        (Doubt::Step(step_ns), true) => learnt.times.step_ns = learnt.times.step_ns.max(step_ns),
        (Doubt::Step(step_ns), false) => learnt.finer_than_ns = learnt.finer_than_ns.min(step_ns),
        (Doubt::Latest, true) => learnt.times.latest = found,
        (Doubt::Latest, false) => learnt.reaches.1 = learnt.reaches.1.max(wanted),
        (Doubt::Earliest, true) => learnt.times.earliest = found,
        (Doubt::Earliest, false) => learnt.reaches.0 = learnt.reaches.0.min(wanted),
    });
    Ok(context.times.stored(&item.job, existing))
}

/// Whether a new file on the file system of `existing`, created with the time `trial`, reads back as `found`.
/// `None` if no such file can be created: other directories may still allow it.
async fn try_out(
    item: &Item,
    existing: &Entry,
    trial: Timestamp,
    found: Timestamp,
) -> Result<Option<bool>> {
    let destination = &item.job.job.destination;
    let path = trial_path(&item.job, existing, &item.destination).await?;
    let metadata = Metadata { modified: Some(trial), ..Metadata::default() };
    let options = CommitOptions { metadata, replace: true, sync: false, expected: None };
    let tried = async {
        destination.write_whole(&path, Bytes::new(), &options).await?;
        let now = destination.stat(&path).await;
        destination.remove(&path).await?;
        Ok::<_, Error>(Some(now?.modified == Some(found)))
    };
    match tried.await {
        // Then the existing file is replaced, or replacing it fails with an error of its own.
        Err(error) if !is_of_the_link(error.kind()) => Ok(None),
        outcome => outcome,
    }
}

/// Whether an error concerns the connection or the run, not the file.
const fn is_of_the_link(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Interrupted | ErrorKind::Unreachable | ErrorKind::Unauthenticated)
}

/// Reads back a time that not every file system can store, and warns if the file on the disk got another one.
pub async fn check_stored_time(context: &Context, item: &Item) -> Result<()> {
    let job = &item.job.job;
    let can = job.destination.capabilities();
    let Some(source) = item.source.modified.filter(|time| is_unusual(*time)) else { return Ok(()) };
    let is_checked = can.times && context.settings.preserve.times && !context.settings.dry_run;
    if !is_checked || can.medium != haul_storage::Medium::Disk {
        return Ok(());
    }
    let stored = job.destination.stat(&item.destination).await?;
    let learnt = context.times.learnt(&item.job, &stored);
    let Some(found) = stored.modified else { return Ok(()) };
    let wanted = learnt.times.stored(source);
    context.times.note(&item.job, &stored, |learnt| match learnt.doubt(wanted, found) {
        Some(Doubt::Latest) => learnt.times.latest = found,
        Some(Doubt::Earliest) => learnt.times.earliest = found,
        _ => {}
    });
    let name = item.job.destination_name(&item.destination);
    context.times.warn_lost(&context.tally, name, source, found);
    Ok(())
}

/// Whether the time at an item's destination differs from `time`, with the precision of the coarser side.
pub fn differs(context: &Context, item: &Item, existing: &Entry, time: Timestamp) -> bool {
    let stored_times = context.times.stored(&item.job, existing);
    let step_ns = item.job.job.source.capabilities().stored_times.step_ns.max(stored_times.step_ns);
    existing.modified.is_some_and(|found| {
        found.rounded_down(step_ns) != stored_times.stored(time).rounded_down(step_ns)
    })
}
