//! What of a file has reached its part file, and the permits of what is not remembered yet.
//!
//! Records are written by the mebibyte: one for every block would cost as much as the blocks. Until
//! its record is written a block keeps its permit, so that what a killed run has to repeat is never
//! more than one window. A file too short for a journal keeps all its permits until it has its
//! name; between disks, where the window stands still, there is room for that.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haul_storage::{Range, WorkPool};

use crate::flow::Permit;
use crate::journal::Journal;
use crate::ranges::RangeSet;

/// Bytes that are recorded together.
const RECORD_BYTES: u64 = 1 << 20;

/// Remembers what has reached the part file.
#[derive(Debug)]
pub struct FileProgress {
    journal: Option<Arc<Mutex<Journal>>>,
    /// Whether permits are kept although nothing is recorded.
    keeps: bool,
    /// How many bytes may wait to be recorded.
    record_bytes: u64,
    pending: Mutex<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    ranges: RangeSet,
    bytes: u64,
    permits: Vec<Permit>,
}

impl FileProgress {
    /// Whether permits are kept until the end of the file.
    pub const fn keeps(&self) -> bool {
        self.keeps
    }

    /// Records in `journal`; without one, `keeps` the permits until the end. At most half of
    /// `window_bytes` wait to be recorded.
    pub fn new(journal: Option<Journal>, keeps: bool, window_bytes: u64) -> Self {
        Self {
            journal: journal.map(|journal| Arc::new(Mutex::new(journal))),
            keeps,
            record_bytes: RECORD_BYTES.min(window_bytes / 8),
            pending: Mutex::default(),
        }
    }

    /// `range` has reached the part file.
    pub async fn record(&self, pool: &WorkPool, range: Range, permit: Permit) -> io::Result<()> {
        let Some(journal) = &self.journal else {
            if self.keeps {
                self.pending().permits.push(permit);
            } else {
                permit.consumed();
            }
            return Ok(());
        };
        let due = {
            let mut pending = self.pending();
            pending.ranges.insert(range);
            pending.bytes += range.len();
            pending.permits.push(permit);
            if pending.bytes < self.record_bytes {
                return Ok(());
            }
            std::mem::take(&mut *pending)
        };
        self.append(pool, journal, due).await
    }

    /// Records what waits for it: nothing more may come before there is room again.
    pub async fn flush(&self, pool: &WorkPool) -> io::Result<()> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let due = std::mem::take(&mut *self.pending());
        if due.permits.is_empty() {
            return Ok(());
        }
        self.append(pool, journal, due).await
    }

    async fn append(
        &self,
        pool: &WorkPool,
        journal: &Arc<Mutex<Journal>>,
        due: Pending,
    ) -> io::Result<()> {
        let journal = Arc::clone(journal);
        let append = move || {
            let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
            journal.append(due.ranges.iter()).map(|()| due.permits)
        };
        pool.run(append).await?.into_iter().for_each(Permit::consumed);
        Ok(())
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
