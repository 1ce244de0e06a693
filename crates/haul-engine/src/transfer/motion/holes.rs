//! What of a file is data and what is hole, found a stretch at a time.

use haul_storage::{Range, RangeSet};

/// A hole shorter than this is copied as zeros rather than looked after.
const LEAST_HOLE: u64 = 64 << 10;

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Data that has to be moved.
    pub data: Vec<Range>,
    /// Holes that an earlier run has not passed already.
    pub holes: Vec<Range>,
}

/// Where the search stands.
#[derive(Debug)]
pub struct Holes {
    size: u64,
    at: u64,
    /// What an earlier run has written.
    written: RangeSet,
}

impl Holes {
    /// A file of `size` bytes of which nothing is known.
    pub const fn new(size: u64, written: RangeSet) -> Self {
        Self { size, at: 0, written }
    }

    /// From where the next data is to be found; `None` at the end.
    pub fn next(&self) -> Option<u64> {
        (self.at < self.size).then_some(self.at)
    }

    /// Bytes that have not been looked at.
    pub const fn left(&self) -> u64 {
        self.size.saturating_sub(self.at)
    }

    /// `data` is the first stretch of data from [`Holes::next`] on; `None` if only hole is left.
    pub fn on_data(&mut self, data: Option<Range>) -> Found {
        let data = data.unwrap_or(Range::new(self.size, 0));
        let is_hole = data.start() >= self.at.saturating_add(LEAST_HOLE);
        let start = if is_hole { data.start().min(self.size) } else { self.at };
        let holes = self.written.gaps(Range::between(self.at, start));
        let data = Range::between(start, data.end().min(self.size));
        self.at = data.end();
        Found { data: self.written.gaps(data), holes }
    }

    /// All that is left counts as data.
    pub fn ignore(&mut self) -> Found {
        self.on_data(Some(Range::between(self.at, self.size)))
    }
}
