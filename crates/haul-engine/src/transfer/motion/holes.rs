//! The data and holes of a file, found one after the other.

use haul_storage::{Range, RangeSet};

/// A hole shorter than this is copied as zeros.
const LEAST_HOLE: u64 = 64 << 10;

/// The data and holes found by one search.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Data that has to be moved.
    pub data: Vec<Range>,
    /// Holes, except what an earlier run has covered already.
    pub holes: Vec<Range>,
}

/// The state of the search.
#[derive(Debug)]
pub struct Holes {
    size: u64,
    at: u64,
    /// What an earlier run has written.
    written: RangeSet,
}

impl Holes {
    /// A search from the start of a file of `size` bytes.
    pub const fn new(size: u64, written: RangeSet) -> Self {
        Self { size, at: 0, written }
    }

    /// Where the search for the next data begins; `None` at the end.
    pub fn next(&self) -> Option<u64> {
        (self.at < self.size).then_some(self.at)
    }

    /// Bytes that have not been searched.
    pub const fn left(&self) -> u64 {
        self.size.saturating_sub(self.at)
    }

    /// `data` is the first range of data from [`Holes::next`] on; `None` if the rest is a hole.
    pub fn on_data(&mut self, data: Option<Range>) -> Found {
        let data = data.unwrap_or(Range::new(self.size, 0));
        let is_hole = data.start() >= self.at.saturating_add(LEAST_HOLE);
        let start = if is_hole { data.start().min(self.size) } else { self.at };
        let holes = self.written.gaps(Range::between(self.at, start));
        let data = Range::between(start, data.end().min(self.size));
        self.at = data.end();
        Found { data: self.written.gaps(data), holes }
    }

    /// The whole rest counts as data.
    pub fn ignore(&mut self) -> Found {
        self.on_data(Some(Range::between(self.at, self.size)))
    }
}
