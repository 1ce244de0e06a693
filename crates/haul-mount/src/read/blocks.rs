//! Blocks of files in memory, within a budget of bytes; the least recently used are evicted.

use std::collections::BTreeMap;

use bytes::Bytes;

/// Length of a block in bytes; the last one of a file may be shorter.
pub(super) const BLOCK: u64 = 64 << 10;

/// Bytes that are requested along with an open, and at least by each request that reads ahead. By default, the kernel
/// requests this much at a time when it reads ahead.
pub(super) const STEP: u64 = 2 * BLOCK;

/// A reader counts as paused once blocks were requested or added this many times since a block was read ahead for it.
const PAUSED: u64 = 256;

/// A block of one version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The number of the version.
    pub(super) version: u64,
    /// The number of the block.
    pub(super) index: u64,
}

/// The blocks, and how much was read ahead.
#[derive(Debug)]
pub(crate) struct Blocks {
    budget: u64,
    held: u64,
    /// Bytes held elsewhere: contents of files that are read as a whole.
    pinned: u64,
    /// Bytes that are read ahead: in flight, or held and not used yet.
    ahead: u64,
    /// Requests for blocks, held or not, and additions of blocks so far.
    clock: u64,
    /// Ordered, so that the blocks of a version are found without a look at all others.
    slots: BTreeMap<Key, Slot>,
    /// The blocks by `Slot::used_at`, the least recently used first.
    order: BTreeMap<u64, Key>,
}

#[derive(Debug)]
struct Slot {
    bytes: Bytes,
    /// `Blocks::clock` when the block was last used, or added.
    used_at: u64,
    is_ahead: bool,
}

impl Blocks {
    /// No blocks. At most `budget` bytes are held, and at most half as many read ahead.
    pub(super) fn new(budget: u64) -> Self {
        let (slots, order) = (BTreeMap::new(), BTreeMap::new());
        Self { budget, held: 0, pinned: 0, ahead: 0, clock: 0, slots, order }
    }

    /// Makes room for content that stays in memory until [`Blocks::unpin`]. Returns false if all pinned content
    /// together would exceed half of the budget.
    pub(super) fn pin(&mut self, bytes: u64) -> bool {
        let pinned = self.pinned.saturating_add(bytes);
        let has_room = pinned <= self.budget / 2;
        if has_room {
            self.pinned = pinned;
            self.make_room();
        }
        has_room
    }

    /// Content that [`Blocks::pin`] made room for is no longer in memory.
    pub(super) const fn unpin(&mut self, bytes: u64) {
        self.pinned = self.pinned.saturating_sub(bytes);
    }

    /// Most bytes of all files together that may be read ahead.
    pub(super) const fn most_ahead(&self) -> u64 {
        self.budget / 2
    }

    /// Bytes that are held or pinned, the budget, and bytes that are read ahead.
    pub(super) const fn counted(&self) -> (u64, u64, u64) {
        (self.held + self.pinned, self.budget, self.ahead)
    }

    /// Bytes that may still be read ahead.
    pub(super) const fn room_ahead(&self) -> u64 {
        self.most_ahead().saturating_sub(self.ahead)
    }

    /// Makes room to read `bytes` ahead: blocks that were read ahead for readers that have paused no longer count as
    /// read ahead. They stay in memory until they are evicted.
    pub(super) fn make_room_ahead(&mut self, bytes: u64) {
        let mut missing = bytes.saturating_sub(self.room_ahead());
        for key in self.order.values() {
            let Some(slot) = self.slots.get_mut(key) else { continue };
            if missing == 0 || slot.used_at + PAUSED > self.clock {
                return;
            }
            if std::mem::replace(&mut slot.is_ahead, false) {
                let length = slot.bytes.len() as u64;
                self.ahead = self.ahead.saturating_sub(length);
                missing = missing.saturating_sub(length);
            }
        }
    }

    /// No process reads this version any more: its blocks no longer count as read ahead.
    pub(super) fn settle(&mut self, version: u64) {
        let of_version = Key { version, index: 0 }..=Key { version, index: u64::MAX };
        for (_, slot) in self.slots.range_mut(of_version) {
            if std::mem::replace(&mut slot.is_ahead, false) {
                self.ahead = self.ahead.saturating_sub(slot.bytes.len() as u64);
            }
        }
    }

    /// Counts bytes in flight that are read ahead.
    pub(super) const fn begin_ahead(&mut self, bytes: u64) {
        self.ahead += bytes;
    }

    /// Bytes counted by [`Blocks::begin_ahead`] have arrived, or will not arrive.
    pub(super) const fn end_ahead(&mut self, bytes: u64) {
        self.ahead = self.ahead.saturating_sub(bytes);
    }

    /// A block, which counts as used now.
    pub(super) fn take(&mut self, key: Key) -> Option<Bytes> {
        self.clock += 1;
        let slot = self.slots.get_mut(&key)?;
        self.order.remove(&slot.used_at);
        slot.used_at = self.clock;
        self.order.insert(slot.used_at, key);
        if std::mem::replace(&mut slot.is_ahead, false) {
            self.ahead = self.ahead.saturating_sub(slot.bytes.len() as u64);
        }
        Some(slot.bytes.clone())
    }

    /// Whether a block is held.
    pub(super) fn contains(&self, key: Key) -> bool {
        self.slots.contains_key(&key)
    }

    /// Adds a block. `is_ahead` if it was read ahead and no process waits for it.
    pub(super) fn insert(&mut self, key: Key, bytes: Bytes, is_ahead: bool) {
        self.remove(key);
        self.clock += 1;
        let length = bytes.len() as u64;
        self.held += length;
        if is_ahead {
            self.ahead += length;
        }
        self.slots.insert(key, Slot { bytes, used_at: self.clock, is_ahead });
        self.order.insert(self.clock, key);
        self.make_room();
    }

    fn make_room(&mut self) {
        while self.held + self.pinned > self.budget {
            let Some((_, &oldest)) = self.order.first_key_value() else { break };
            self.remove(oldest);
        }
    }

    fn remove(&mut self, key: Key) {
        let Some(slot) = self.slots.remove(&key) else { return };
        self.order.remove(&slot.used_at);
        let length = slot.bytes.len() as u64;
        self.held -= length;
        if slot.is_ahead {
            self.ahead = self.ahead.saturating_sub(length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(index: u64) -> Key {
        Key { version: 1, index }
    }

    fn bytes(length: usize) -> Bytes {
        vec![7; length].into()
    }

    #[test]
    fn the_least_recently_used_block_is_evicted() {
        let mut blocks = Blocks::new(300);
        (0..3).for_each(|index| blocks.insert(key(index), bytes(100), false));
        assert!(blocks.take(key(0)).is_some());
        blocks.insert(key(3), bytes(100), false);
        let held = |index| blocks.contains(key(index));
        assert_eq!([held(0), held(1), held(2), held(3)], [true, false, true, true]);
        assert_eq!(blocks.held, 300);
    }

    #[test]
    fn a_block_longer_than_the_budget_is_not_held() {
        let mut blocks = Blocks::new(50);
        blocks.insert(key(0), bytes(100), true);
        assert_eq!((blocks.held, blocks.ahead, blocks.contains(key(0))), (0, 0, false));
    }

    #[test]
    fn read_ahead_counts_until_it_is_used_or_evicted() {
        let mut blocks = Blocks::new(200);
        assert_eq!(blocks.room_ahead(), 100);
        blocks.begin_ahead(60);
        assert_eq!(blocks.room_ahead(), 40);
        blocks.end_ahead(60);
        blocks.insert(key(0), bytes(60), true);
        assert_eq!(blocks.room_ahead(), 40);
        blocks.take(key(0));
        blocks.take(key(0));
        assert_eq!(blocks.room_ahead(), 100);
        blocks.insert(key(1), bytes(80), true);
        blocks.insert(key(2), bytes(100), false);
        blocks.insert(key(3), bytes(100), false);
        assert!(!blocks.contains(key(1)));
        assert_eq!(blocks.room_ahead(), 100);
    }

    #[test]
    fn the_read_ahead_of_a_closed_or_paused_reader_leaves_room_for_others() {
        let mut blocks = Blocks::new(200);
        blocks.insert(key(0), bytes(100), true);
        blocks.make_room_ahead(50);
        assert_eq!(blocks.room_ahead(), 0);
        for _ in 0..PAUSED {
            blocks.take(key(7));
        }
        blocks.make_room_ahead(50);
        assert_eq!(blocks.room_ahead(), 100);
        assert!(blocks.contains(key(0)));
        blocks.insert(key(1), bytes(100), true);
        blocks.settle(2);
        assert_eq!(blocks.room_ahead(), 0);
        blocks.settle(1);
        assert_eq!(blocks.room_ahead(), 100);
    }

    #[test]
    fn pinned_content_counts_against_the_budget_and_takes_at_most_half() {
        let mut blocks = Blocks::new(300);
        (0..3).for_each(|index| blocks.insert(key(index), bytes(100), false));
        assert!(blocks.pin(120));
        assert_eq!((blocks.held, blocks.pinned), (100, 120));
        assert_eq!(blocks.counted().0, 220);
        assert!(!blocks.pin(31) && !blocks.pin(u64::MAX));
        assert!(blocks.pin(30));
        blocks.unpin(120);
        blocks.insert(key(4), bytes(100), false);
        assert_eq!((blocks.held, blocks.pinned), (200, 30));
    }

    #[test]
    fn another_version_of_a_file_has_blocks_of_its_own() {
        let mut blocks = Blocks::new(200);
        blocks.insert(key(0), bytes(60), false);
        assert_eq!(blocks.take(Key { version: 2, index: 0 }), None);
    }
}
