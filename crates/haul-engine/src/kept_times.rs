//! What destinations keep of modification times, as far as a transfer has found it out.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use haul_storage::{Entry, KeptTimes, Timestamp};

use crate::job::NumberedJob;
use crate::tally::Tally;

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
    pub trying: tokio::sync::Mutex<()>,
    said: AtomicBool,
}

/// What is known of one of them.
#[derive(Debug, Clone, Copy)]
pub struct Learnt {
    /// What is kept of times.
    pub kept: KeptTimes,
    /// The clock is known to be finer than this step.
    pub finer_than_ns: u64,
    /// Between these two the clock is known to have every time.
    pub reaches: (Timestamp, Timestamp),
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
    pub fn doubt(&self, wanted: Timestamp, found: Timestamp) -> Option<Doubt> {
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
pub enum Doubt {
    /// Its clock has this step.
    Step(u64),
    /// Its clock ends at the time that was found.
    Latest,
    /// Its clock begins there.
    Earliest,
}

impl Doubt {
    /// A time that reads as `found` if the doubt is right, and as something else otherwise.
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
    /// What is known of where `existing` is.
    pub fn learnt(&self, job: &NumberedJob, existing: &Entry) -> Learnt {
        let claimed = job.job.destination.capabilities().kept_times;
        let by_place = self.by_place.lock().unwrap_or_else(PoisonError::into_inner);
        by_place.get(&place(job, existing)).copied().unwrap_or_else(|| Learnt::new(claimed))
    }

    /// Something was found out of where `existing` is.
    pub fn note(&self, job: &NumberedJob, existing: &Entry, change: impl FnOnce(&mut Learnt)) {
        let claimed = job.job.destination.capabilities().kept_times;
        let mut by_place = self.by_place.lock().unwrap_or_else(PoisonError::into_inner);
        change(by_place.entry(place(job, existing)).or_insert_with(|| Learnt::new(claimed)));
    }

    /// What is kept of the time of `existing`, as far as that is known.
    pub fn kept(&self, job: &NumberedJob, existing: &Entry) -> KeptTimes {
        self.learnt(job, existing).kept
    }

    /// Says once in a transfer that a time cannot be kept, and what it becomes.
    pub fn say_lost(&self, tally: &Tally, name: String, time: Timestamp, became: Timestamp) {
        if time.seconds.abs_diff(became.seconds) > STEP_MOST
            && !self.said.swap(true, Ordering::Relaxed)
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

/// Whether some clocks do not have this time, so that it has to be looked at once it is set.
pub const fn is_unusual(time: Timestamp) -> bool {
    time.seconds < EVERY_CLOCK.start || time.seconds >= EVERY_CLOCK.end
}

fn place(job: &NumberedJob, existing: &Entry) -> (usize, Option<u64>) {
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
