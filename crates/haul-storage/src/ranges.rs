//! A set of bytes of one file, stored as disjoint ranges.

use std::collections::BTreeMap;

use crate::Range;

/// Disjoint ranges that do not touch, in order. Adding and removing cost O(log n) per range that they
/// merge or remove.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Start to end.
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self { ranges: BTreeMap::new() }
    }

    /// Adds all bytes of `range`.
    pub fn insert(&mut self, range: Range) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start(), range.end());
        if let Some((&before, &before_end)) = self.ranges.range(..=start).next_back() {
            if before_end >= end {
                return;
            }
            if before_end >= start {
                start = before;
            }
        }
        while let Some((&next, &next_end)) = self.ranges.range(start..=end).next() {
            end = end.max(next_end);
            self.ranges.remove(&next);
        }
        self.ranges.insert(start, end);
    }

    /// Removes all bytes of `range`.
    pub fn remove(&mut self, range: Range) {
        if range.is_empty() {
            return;
        }
        // From the back, so that only the last one visited can begin before the range.
        while let Some((&start, &end)) = self.ranges.range(..range.end()).next_back() {
            if end <= range.start() {
                return;
            }
            self.ranges.remove(&start);
            if end > range.end() {
                self.ranges.insert(range.end(), end);
            }
            if start < range.start() {
                self.ranges.insert(start, range.start());
                return;
            }
        }
    }

    /// The number of bytes in the set.
    pub fn total(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }

    /// The number of ranges.
    pub fn count(&self) -> usize {
        self.ranges.len()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The lowest range.
    pub fn first(&self) -> Option<Range> {
        self.ranges.iter().next().map(|(start, end)| Range::between(*start, *end))
    }

    /// The end of the range that begins at 0; 0 if there is none.
    pub fn prefix(&self) -> u64 {
        self.ranges.get(&0).copied().unwrap_or(0)
    }

    /// The first range of the set at or after `from`; a range around `from` is cut to begin there.
    pub fn next(&self, from: u64) -> Option<Range> {
        if let Some((_, end)) = self.ranges.range(..=from).next_back()
            && *end > from
        {
            return Some(Range::between(from, *end));
        }
        self.ranges.range(from..).next().map(|(start, end)| Range::between(*start, *end))
    }

    /// All ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = Range> {
        self.ranges.iter().map(|(start, end)| Range::between(*start, *end))
    }

    /// The parts of `range` that are not in the set, in order.
    pub fn gaps(&self, range: Range) -> Vec<Range> {
        let mut gaps = Vec::new();
        let mut at = range.start();
        let first = self.ranges.range(..=at).next_back().map_or(at, |(start, _)| *start);
        for (&start, &end) in self.ranges.range(first..range.end()) {
            if start > at {
                gaps.push(Range::between(at, start));
            }
            at = at.max(end);
        }
        if at < range.end() {
            gaps.push(Range::between(at, range.end()));
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn adjacent_ranges_are_merged() {
        let mut set = RangeSet::new();
        set.insert(Range::new(0, 10));
        set.insert(Range::new(20, 10));
        set.insert(Range::new(10, 10));
        assert_eq!(set.iter().collect::<Vec<_>>(), [Range::new(0, 30)]);
    }

    #[test]
    fn removing_the_middle_leaves_both_ends() {
        let mut set = RangeSet::new();
        set.insert(Range::new(0, 30));
        set.remove(Range::new(10, 10));
        assert_eq!(set.iter().collect::<Vec<_>>(), [Range::new(0, 10), Range::new(20, 10)]);
    }

    proptest! {
        #[test]
        fn a_range_set_agrees_with_a_plain_array(
            steps in proptest::collection::vec((any::<bool>(), 0u64..64, 0u64..20), 0..40),
            probe in (0u64..80, 0u64..30),
        ) {
            let mut set = RangeSet::new();
            let mut model = [false; 100];
            for (add, start, length) in steps {
                let range = Range::new(start, length);
                if add { set.insert(range) } else { set.remove(range) }
                for at in range.start()..range.end() {
                    model[at as usize] = add;
                }
            }
            let mut seen = [false; 100];
            let mut last_end = None;
            for range in set.iter() {
                prop_assert!(!range.is_empty());
                prop_assert!(last_end.is_none_or(|end| end < range.start()), "ranges touch");
                last_end = Some(range.end());
                for at in range.start()..range.end() { seen[at as usize] = true; }
            }
            prop_assert_eq!(seen, model);
            prop_assert_eq!(set.total() as usize, model.iter().filter(|bit| **bit).count());

            let probe = Range::new(probe.0, probe.1);
            let next = (probe.start()..100).find(|at| model[*at as usize]);
            prop_assert_eq!(set.next(probe.start()).map(Range::start), next);
            let mut gap = [false; 120];
            for range in set.gaps(probe) {
                for at in range.start()..range.end() { gap[at as usize] = true; }
            }
            for at in 0..100u64 {
                let inside = at >= probe.start() && at < probe.end();
                prop_assert_eq!(gap[at as usize], inside && !model[at as usize]);
            }
        }
    }
}
