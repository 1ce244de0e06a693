//! A range: offset and length within a file, in bytes.

use std::fmt;

/// Bytes `start..end` of a file. `start <= end` always.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Range {
    start: u64,
    end: u64,
}

impl Range {
    /// The range of `length` bytes from `start`, truncated at `u64::MAX`.
    pub const fn new(start: u64, length: u64) -> Self {
        Self { start, end: start.saturating_add(length) }
    }

    /// The range from `start` up to, not including, `end`; empty if `end` lies before `start`.
    pub const fn between(start: u64, end: u64) -> Self {
        Self { start, end: if end < start { start } else { end } }
    }

    /// Offset of the first byte.
    pub const fn start(self) -> u64 {
        self.start
    }

    /// Offset after the last byte.
    pub const fn end(self) -> u64 {
        self.end
    }

    /// Length in bytes.
    pub const fn len(self) -> u64 {
        self.end - self.start
    }

    /// Whether the range has no bytes.
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Whether a position is in it.
    pub const fn contains(self, position: u64) -> bool {
        self.start() <= position && position < self.end()
    }

    /// The bytes in both ranges; empty (at the later start) if there are none.
    pub fn intersection(self, other: Self) -> Self {
        let start = self.start.max(other.start);
        Self::between(start, self.end.min(other.end))
    }

    /// The first `length` bytes and the rest.
    pub fn split_at(self, length: u64) -> (Self, Self) {
        let middle = self.start.saturating_add(length).min(self.end);
        (Self::between(self.start, middle), Self::between(middle, self.end))
    }
}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_that_would_overflow_is_truncated() {
        assert_eq!(Range::new(u64::MAX - 1, 10).len(), 1);
    }

    #[test]
    fn splitting_beyond_the_end_leaves_an_empty_rest() {
        let (head, rest) = Range::new(10, 5).split_at(9);
        assert_eq!((head, rest), (Range::new(10, 5), Range::new(15, 0)));
    }

    #[test]
    fn the_intersection_of_disjoint_ranges_is_empty() {
        assert!(Range::new(0, 5).intersection(Range::new(9, 5)).is_empty());
    }
}
