//! Which blocks are on disk, and which of them is evicted next. Without I/O.

use std::collections::{BTreeMap, HashMap};

use super::directory::SEAL;

/// Space is allocated in units of this size.
const PAGE: u64 = 4096;

/// The blocks on disk.
#[derive(Debug)]
pub(super) struct Index {
    limit: u64,
    held: u64,
    used: u64,
    slots: HashMap<u128, Slot>,
    /// The names by their last use, the least recent first.
    order: BTreeMap<u64, u128>,
}

#[derive(Debug)]
struct Slot {
    length: u32,
    used: u64,
}

impl Index {
    /// No blocks yet; all together may take `limit` bytes on disk.
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, held: 0, used: 0, slots: HashMap::new(), order: BTreeMap::new() }
    }

    /// Bytes that the blocks take on disk.
    pub(super) const fn held(&self) -> u64 {
        self.held
    }

    /// Number of blocks.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether a block is on disk.
    pub(super) fn contains(&self, name: u128) -> bool {
        self.slots.contains_key(&name)
    }

    /// The length of a block, which counts as used now.
    pub(super) fn take(&mut self, name: u128) -> Option<u32> {
        let slot = self.slots.get_mut(&name)?;
        self.used += 1;
        self.order.remove(&slot.used);
        slot.used = self.used;
        self.order.insert(slot.used, name);
        Some(slot.length)
    }

    /// Adds a block, which counts as used now.
    pub(super) fn insert(&mut self, name: u128, length: u32) {
        self.remove(name);
        self.used += 1;
        self.held += on_disk(length);
        self.slots.insert(name, Slot { length, used: self.used });
        self.order.insert(self.used, name);
    }

    /// Removes a block.
    pub(super) fn remove(&mut self, name: u128) {
        let Some(slot) = self.slots.remove(&name) else { return };
        self.order.remove(&slot.used);
        self.held -= on_disk(slot.length);
    }

    /// Whether a block of this length fits at all.
    pub(super) const fn may_hold(&self, length: u32) -> bool {
        on_disk(length) <= self.limit
    }

    /// Removes the least recently used block if there is no room for `more` bytes. Returns it: its file must be
    /// removed, and this called again.
    pub(super) fn evict(&mut self, more: u32) -> Option<(u128, u32)> {
        if self.held.saturating_add(on_disk(more)) <= self.limit {
            return None;
        }
        let (_, &name) = self.order.first_key_value()?;
        let length = self.slots.get(&name)?.length;
        self.remove(name);
        Some((name, length))
    }

    /// The names, the least recently used first.
    pub(super) fn by_use(&self) -> Vec<u128> {
        self.order.values().copied().collect()
    }
}

/// Bytes that a block takes on disk; 0 for none.
const fn on_disk(length: u32) -> u64 {
    if length == 0 { 0 } else { (length as u64 + SEAL as u64).next_multiple_of(PAGE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_block_is_evicted() {
        let mut index = Index::new(3 * PAGE);
        (0..3).for_each(|name| index.insert(name, 100));
        assert_eq!((index.take(0), index.take(9)), (Some(100), None));
        assert_eq!(index.evict(100), Some((1, 100)));
        assert_eq!(index.evict(100), None);
        index.insert(3, 100);
        assert_eq!(index.by_use(), [2, 0, 3]);
        assert_eq!((index.held(), index.len()), (3 * PAGE, 3));
    }

    #[test]
    fn a_block_counts_with_its_size_on_disk() {
        let mut index = Index::new(2 * PAGE);
        index.insert(1, 4090);
        assert_eq!(index.held(), 2 * PAGE);
        index.insert(1, 100);
        assert_eq!(index.held(), PAGE);
        index.remove(1);
        index.remove(1);
        assert_eq!((index.held(), index.len()), (0, 0));
        assert!(index.may_hold(8000) && !index.may_hold(8192));
    }

    #[test]
    fn a_smaller_limit_is_enforced_without_a_new_block() {
        let mut index = Index::new(PAGE);
        (0..3).for_each(|name| index.insert(name, 100));
        assert_eq!(index.evict(0), Some((0, 100)));
        assert_eq!(index.evict(0), Some((1, 100)));
        assert_eq!(index.evict(0), None);
    }
}
