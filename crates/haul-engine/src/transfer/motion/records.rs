//! Ranges that have reached the part file and are not in the journal yet, with their permits.
//!
//! Records are written by the mebibyte: one for every block would cost as much as writing the blocks. Until its record
//! is written, a block between disks keeps its permit, so that a rerun after a kill repeats no more bytes than permits
//! cover: one window. A file that is read by ranges there and too short for a journal keeps all its permits until it has
//! its name: the window is fixed, and has room for that.
//!
//! Over a link, a record may take longer than the bytes that it covers: the other side keeps the journal, and the next
//! record waits for the response to the last. So up to [`RELEASED`] windows of a file's written bytes wait for their
//! record without a permit, and permits cover the rest: a rerun repeats at most two windows (or 8 MiB if that is more)
//! and these for each large file in flight. A file without a journal releases its permits as bytes are written.

use haul_storage::{Medium, Range, RangeSet};

use super::mode::Mode;
use crate::budget::Permit;

/// Bytes that are recorded together.
const RECORD_BYTES: u64 = 1 << 20;

/// Windows of written bytes that may wait for their record without a permit, if they were written over a link.
const RELEASED: u64 = 2;

/// Collects ranges for the journal. One record is written at a time.
#[derive(Debug)]
pub struct Records {
    journal: bool,
    keeps_permits: bool,
    /// Whether bytes are written over a link.
    over_link: bool,
    /// How many bytes make a record.
    record_bytes: u64,
    pending: RangeSet,
    pending_bytes: u64,
    permits: Vec<Permit>,
    /// Pending bytes without a permit.
    released: u64,
    /// The record that is being written.
    recording: Option<Recording>,
}

/// A record that is being written.
#[derive(Debug)]
struct Recording {
    permits: Vec<Permit>,
    /// Its bytes without a permit.
    released: u64,
}

impl Records {
    /// For a file that is moved in this `mode`. A record is due after 1 MiB, or after an eighth of `window_bytes` if
    /// that is less.
    pub fn new(mode: &Mode, window_bytes: u64) -> Self {
        Self {
            journal: mode.journal,
            keeps_permits: mode.keeps_permits,
            over_link: mode.destination == Medium::Link,
            record_bytes: RECORD_BYTES.min(window_bytes / 8),
            pending: RangeSet::new(),
            pending_bytes: 0,
            permits: Vec::new(),
            released: 0,
            recording: None,
        }
    }

    /// `range` has reached the part file, and the window has `window_bytes`. Returns the next record if there is enough
    /// for one.
    pub fn add(&mut self, range: Range, permit: Permit, window_bytes: u64) -> Option<RangeSet> {
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
        let recording = self.recording.as_ref().map_or(0, |recording| recording.released);
        let released = self.released + recording + permit.held();
        if self.over_link && released <= RELEASED.saturating_mul(window_bytes) {
            self.released += permit.held();
            permit.consumed();
        } else {
            self.permits.push(permit);
        }
        self.due()
    }

    /// Returns a record of all that waits, even if it is short.
    pub fn flush(&mut self) -> Option<RangeSet> {
        if self.recording.is_some() || self.pending.is_empty() {
            return None;
        }
        let permits = std::mem::take(&mut self.permits);
        self.recording = Some(Recording { permits, released: std::mem::take(&mut self.released) });
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
        let recorded = self.recording.take();
        recorded.into_iter().flat_map(|recording| recording.permits).for_each(Permit::consumed);
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::mode::Reads;
    use super::*;
    use crate::budget::LinkBudgets;
    use crate::flow::Flow;
    use crate::links::Links;
    use crate::{Auto, Settings};

    const WINDOW: u64 = 1 << 20;

    fn mode(destination: Medium) -> Mode {
        Mode {
            reads: Reads::Ranges,
            destination,
            is_endless: false,
            writes_in_order: false,
            write_bytes: 0,
            digest: None,
            direct: false,
            journal: true,
            keeps_permits: false,
            retries: (0, Duration::ZERO),
        }
    }

    /// Formerly, a path of 330 ms whose other side keeps the journal carried four fifths of what it could: most of the
    /// permits waited for the response to a record.
    #[tokio::test]
    async fn uploaded_bytes_wait_for_their_record_without_a_permit_up_to_two_windows() {
        let settings = Settings { window: Auto::Fixed(WINDOW), ..Settings::default() };
        for (medium, released) in [(Medium::Disk, 0), (Medium::Link, 2 * WINDOW)] {
            let flow = Flow::new(&LinkBudgets::default(), &settings, &Links::default(), false);
            let mut records = Records::new(&mode(medium), WINDOW);
            let add = async |records: &mut Records, at: u64| {
                let range = Range::new(at, WINDOW / 4);
                let mut permit = flow.overdraw(range.len());
                permit.arrived(range.len());
                drop(records.add(range, permit, WINDOW));
            };
            // The first record is being written from the first block on, and is never done.
            let all = 3 * WINDOW;
            for at in (0..all).step_by(WINDOW as usize / 4) {
                add(&mut records, at).await;
            }
            assert!(records.is_recording());
            assert_eq!(flow.counted().1, all - released, "{medium:?}");
            // Then the permits of that record are released, and its bytes make room.
            records.on_recorded().unwrap();
            let held = flow.counted().1;
            add(&mut records, all).await;
            let added = flow.counted().1 - held;
            assert_eq!(added, if medium == Medium::Link { 0 } else { WINDOW / 4 });
            while records.is_recording() {
                drop(records.on_recorded());
            }
            assert_eq!(flow.counted().1, 0);
        }
    }
}
