//! The resolution and range of modification times at each destination, as learnt during a transfer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use haul_storage::{
    Entry, Error, ErrorKind, Medium, RelPath, Result, StoredTimes, Timestamp, temporary_name,
};

use crate::job::NumberedJob;
use crate::tally::Tally;

/// Timestamp resolutions in use, in ns: NTFS and SMB, microseconds, milliseconds, exFAT, ext3 and HFS+, FAT.
const STEPS_NS: [u64; 6] = [100, 1000, 1_000_000, 10_000_000, 1_000_000_000, 2_000_000_000];

/// The coarsest of these, in seconds.
const STEP_MOST: u64 = 2;

/// Times that every file system can store, in seconds since 1970: from 1980-01-03 (FAT begins on the
/// 1st, in local time) to 2038-01-18 (signed 32 bits end on the 19th).
const EVERY_CLOCK: std::ops::Range<i64> = 315_705_600..2_147_385_600;

/// A trial for the end of a clock's range sets a time this many seconds beyond the wanted one.
const BEYOND: i64 = 86_400;

/// Time resolution and range of all destinations of a transfer, as far as known.
#[derive(Debug, Default)]
pub struct LearntTimes {
    /// By job and, where file IDs are reported, by file system.
    by_file_system: Mutex<HashMap<(usize, Option<u64>), Learnt>>,
    /// Held while a destination is probed; tasks that wait for it use the result.
    pub trying: tokio::sync::Mutex<()>,
    warned: AtomicBool,
    /// Whether a file without a time was reported.
    untimed: AtomicBool,
}

/// What is known about the times of one destination.
#[derive(Debug, Clone, Copy)]
pub struct Learnt {
    /// Resolution and range: those declared by the storage, narrowed by probes.
    pub times: StoredTimes,
    /// The resolution is known to be finer than this, in ns.
    pub finer_than_ns: u64,
    /// Range in which every time is known to be stored.
    pub reaches: (Timestamp, Timestamp),
}

impl Learnt {
    fn new(claimed: StoredTimes) -> Self {
        let every = |seconds| Timestamp { seconds, nanos: 0 };
        Self {
            times: claimed,
            finer_than_ns: u64::MAX,
            reaches: (every(EVERY_CLOCK.start), every(EVERY_CLOCK.end)),
        }
    }

    /// A limitation, unknown so far, that would explain why `found` is stored after `wanted` was set; `None` if
    /// there is no such limitation.
    pub fn doubt(&self, wanted: Timestamp, found: Timestamp) -> Option<Doubt> {
        let step = STEPS_NS.into_iter().find(|step| wanted.rounded_down(*step) == found);
        if let Some(step_ns) = step {
            let is_open = step_ns > self.times.step_ns && step_ns < self.finer_than_ns;
            return is_open.then_some(Doubt::Step(step_ns));
        }
        if found < wanted && found >= self.reaches.1 && found < self.times.latest {
            return Some(Doubt::Latest);
        }
        let is_earlier = found > wanted && found <= self.reaches.0 && found > self.times.earliest;
        is_earlier.then_some(Doubt::Earliest)
    }
}

/// A suspected limitation of a destination's times, to be confirmed by a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// The resolution is this many ns.
    Step(u64),
    /// The found time is the latest that it can store.
    Latest,
    /// The found time is the earliest that it can store.
    Earliest,
}

impl Doubt {
    /// A time to set that reads back as `found` if the suspicion is right, and as another time otherwise.
    pub fn trial(self, source: Timestamp, wanted: Timestamp, found: Timestamp) -> Timestamp {
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
    /// What is known about the times at the job's destination; where file IDs are reported, of the file system of
    /// `existing`.
    pub fn learnt(&self, job: &NumberedJob, existing: &Entry) -> Learnt {
        let claimed = job.job.destination.capabilities().stored_times;
        let known = self.by_file_system.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&key(job, existing)).copied().unwrap_or_else(|| Learnt::new(claimed))
    }

    /// Updates what is known about the times where `existing` is.
    pub fn note(&self, job: &NumberedJob, existing: &Entry, change: impl FnOnce(&mut Learnt)) {
        let claimed = job.job.destination.capabilities().stored_times;
        let mut known = self.by_file_system.lock().unwrap_or_else(PoisonError::into_inner);
        change(known.entry(key(job, existing)).or_insert_with(|| Learnt::new(claimed)));
    }

    /// Resolution and range of the times where `existing` is, as far as known.
    pub fn stored(&self, job: &NumberedJob, existing: &Entry) -> StoredTimes {
        self.learnt(job, existing).times
    }

    /// True for the first call of the transfer, which then reports a file without a time.
    pub fn is_first_untimed(&self) -> bool {
        !self.untimed.swap(true, Ordering::Relaxed)
    }

    /// Warns, once per transfer, that a time cannot be stored and which time replaces it. Differences up to the
    /// coarsest resolution are not reported.
    pub fn warn_lost(&self, tally: &Tally, name: String, time: Timestamp, became: Timestamp) {
        if time.seconds.abs_diff(became.seconds) > STEP_MOST
            && !self.warned.swap(true, Ordering::Relaxed)
        {
            let message = format!(
                "the destination cannot keep its modification time: {} becomes {}; this is reported once",
                time.date(),
                became.date()
            );
            tally.warn(name, message);
        }
    }
}

/// True if some file systems cannot store this time, so that it must be read back after it is set.
pub const fn is_unusual(time: Timestamp) -> bool {
    time.seconds < EVERY_CLOCK.start || time.seconds >= EVERY_CLOCK.end
}

/// The path of the empty file of a trial: it gets the time of [`Doubt::trial`], and its time is read back.
/// It is on the file system of `existing`, which is at `path`: where possible in the destination's top
/// directory, where [`remove_left_over`] finds it after a kill.
///
/// # Errors
/// If the name is too long for a path.
pub async fn trial_path(job: &NumberedJob, existing: &Entry, path: &RelPath) -> Result<RelPath> {
    let too_long = |error| Error::new(ErrorKind::InvalidInput, "try the clock").with_source(error);
    if let Some(in_top) = trial_in_top(job)
        && let Ok(top) = job.job.destination.stat(&job.job.destination_path).await
        && top.is_dir()
        && top.id.map(|id| id.device) == existing.id.map(|id| id.device)
    {
        return Ok(in_top);
    }
    path.with_name(trial_name()).map_err(too_long)
}

/// Removes the file of a trial that a killed run has left in the top directory of the destination.
pub async fn remove_left_over(job: &NumberedJob) {
    if let Some(in_top) = trial_in_top(job) {
        // Usually there is none. Errors are ignored: a trial replaces the file, or is skipped if it cannot.
        drop(job.job.destination.remove(&in_top).await);
    }
}

/// The path of a trial in the top directory of the destination. `None` for servers, where every run would need a
/// request to look for it.
fn trial_in_top(job: &NumberedJob) -> Option<RelPath> {
    let is_disk = job.job.destination.capabilities().medium == Medium::Disk;
    is_disk.then(|| job.job.destination_path.join(trial_name()).ok()).flatten()
}

/// Always the same, so that a later run replaces what an earlier one has left.
fn trial_name() -> Vec<u8> {
    temporary_name(b"haul", "clock")
}

fn key(job: &NumberedJob, existing: &Entry) -> (usize, Option<u64>) {
    (job.index, existing.id.map(|id| id.device))
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
