//! Ranges that have reached the part file and are not in the journal yet, with their permits.
//!
//! Records are written by the mebibyte: one for every block would cost as much as writing the blocks. Until its record
//! is written, a block keeps its permit, so that a rerun after a kill repeats no more bytes than permits cover: one
//! window between disks, two (at least 8 MiB) over a link. Between disks, a file that is read by ranges and too short
//! for a journal keeps all its permits until it has its name: the window is fixed there, and has room for that. Over a
//! link such a file releases them as bytes are written.

use haul_storage::{Range, RangeSet};

use crate::budget::Permit;

/// Bytes that are recorded together.
const RECORD_BYTES: u64 = 1 << 20;

/// Collects ranges for the journal. One record is written at a time.
#[derive(Debug)]
pub struct Records {
    journal: bool,
    keeps_permits: bool,
    /// How many bytes make a record.
    record_bytes: u64,
    pending: RangeSet,
    pending_bytes: u64,
    permits: Vec<Permit>,
    /// The permits of the record that is being written.
    recording: Option<Vec<Permit>>,
}

impl Records {
    /// With a journal, or without one; then `keeps_permits` keeps the permits until the end. A record is due after
    /// 1 MiB, or after an eighth of `window_bytes` if that is less.
    pub fn new(journal: bool, keeps_permits: bool, window_bytes: u64) -> Self {
        Self {
            journal,
            keeps_permits,
            record_bytes: RECORD_BYTES.min(window_bytes / 8),
            pending: RangeSet::new(),
            pending_bytes: 0,
            permits: Vec::new(),
            recording: None,
        }
    }

    /// `range` has reached the part file. Returns the next record if there is enough for one.
    pub fn add(&mut self, range: Range, permit: Permit) -> Option<RangeSet> {
        if !self.journal {
            if self.keeps_permits {
                self.permits.push(permit);
            } else {
                permit.consumed();
            }
            return None;
        }
        self.pending.insert(range);
        self.pending_bytes += range.len();
        self.permits.push(permit);
        self.due()
    }

    /// Returns a record of all that waits, even if it is short.
    pub fn flush(&mut self) -> Option<RangeSet> {
        if self.recording.is_some() || self.pending.is_empty() {
            return None;
        }
        self.recording = Some(std::mem::take(&mut self.permits));
        self.pending_bytes = 0;
        Some(std::mem::take(&mut self.pending))
    }

    /// The last record was written. Returns the next if there is enough for one.
    pub fn on_recorded(&mut self) -> Option<RangeSet> {
        self.release();
        self.due()
    }

    /// Releases the permits of the record: it was written, or need not be because the file is complete.
    pub fn release(&mut self) {
        self.recording.take().into_iter().flatten().for_each(Permit::consumed);
    }

    /// Whether a record is being written.
    pub const fn is_recording(&self) -> bool {
        self.recording.is_some()
    }

    /// Bytes of the permits that are retained until the end.
    #[cfg(test)]
    pub fn retained_bytes(&self) -> u64 {
        self.permits.iter().map(Permit::held).sum()
    }

    fn due(&mut self) -> Option<RangeSet> {
        if self.pending_bytes < self.record_bytes { None } else { self.flush() }
    }
}
