//! How many bytes each lane reads at once from a source whose reads are expensive to start.
//!
//! Every read costs RTTs and a slow start, so a lane should have one that lasts to the end: its share
//! of everything that is left, in any file.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::schedule::ALIGNMENT;

/// The long reads in flight on a path, of all files of all transfers over it.
#[derive(Debug, Clone, Default)]
pub struct LongReads {
    in_flight: Arc<AtomicUsize>,
    wanted: Arc<AtomicUsize>,
}

/// Counts as one until it is dropped.
#[derive(Debug)]
pub struct Counted {
    number: Arc<AtomicUsize>,
}

impl Counted {
    fn new(number: &Arc<AtomicUsize>) -> Self {
        number.fetch_add(1, Ordering::Relaxed);
        Self { number: Arc::clone(number) }
    }
}

impl LongReads {
    /// Counts a read, until the result is dropped.
    pub fn begin(&self) -> Counted {
        Counted::new(&self.in_flight)
    }

    /// Counts a file that has bytes left to assign and no lane for them, until the result is dropped.
    pub fn want(&self) -> Counted {
        Counted::new(&self.wanted)
    }

    /// Whether a file waits for a lane: then no lane may take the second half of another one's read.
    pub fn are_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed) > 0
    }

    /// How many of `lanes` have no long read.
    pub fn free(&self, lanes: usize) -> usize {
        lanes.max(1).saturating_sub(self.in_flight.load(Ordering::Relaxed))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.number.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The length of the next read of a file with `unassigned` bytes left to assign, when the transfer has
/// `remaining` bytes left and `lanes` lanes, `free` of which are idle. These bytes are split into equal reads, so that
/// no rest is left over: each about as long as the fair share of a lane, or longer if idle lanes are fewer. A shorter
/// file is one read.
pub fn share(unassigned: u64, remaining: u64, lanes: usize, free: usize) -> u64 {
    let fair = (remaining / lanes.max(1) as u64).max(1);
    let reads = (unassigned.saturating_add(fair / 2) / fair).clamp(1, free.max(1) as u64);
    // Rounded up, or a few last bytes would be left for one lane.
    let share = unassigned.div_ceil(reads);
    share.checked_next_multiple_of(ALIGNMENT).unwrap_or(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_file_by_itself_is_shared_among_all_lanes() {
        assert_eq!(share(800 * MIB, 800 * MIB, 16, 16), 50 * MIB);
        // Bytes that have arrived meanwhile leave no rest.
        assert_eq!(share(50 * MIB, 790 * MIB, 16, 1), 50 * MIB);
    }

    #[test]
    fn several_files_are_shared_as_one() {
        assert_eq!(share(100 * MIB, 800 * MIB, 16, 16), 50 * MIB);
        assert_eq!(share(100 * MIB, 780 * MIB, 16, 14), 50 * MIB);
        assert_eq!(share(100 * MIB, 10_000 * MIB, 16, 16), 100 * MIB, "a file a lane");
    }

    #[test]
    fn no_more_reads_than_free_lanes() {
        assert_eq!(share(800 * MIB, 800 * MIB, 16, 2), 400 * MIB);
        assert_eq!(share(800 * MIB, 800 * MIB, 0, 0), 800 * MIB);
        assert_eq!(share(0, 0, 16, 16), 0);
        assert_eq!(share(u64::MAX, u64::MAX, 1, 1), u64::MAX, "a server may report any length");
    }

    #[test]
    fn a_read_counts_until_it_ends() {
        let reads = LongReads::default();
        let first = reads.begin();
        let _second = reads.begin();
        assert_eq!(reads.free(3), 1);
        assert_eq!(reads.free(1), 0);
        drop(first);
        assert_eq!(reads.free(3), 2);
    }
}
