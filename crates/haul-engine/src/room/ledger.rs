//! What several transfers of one run need on one file system.
//!
//! Needs are compared with what was free before anything was written: what is free later is also less by what is
//! reserved for files in flight, and by what has reached the disk and is not counted yet.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use haul_storage::Volume;

use super::need::Need;

/// The transfers of a run, which may share a file system. Clones are one and the same.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    shares: Arc<Mutex<Vec<Arc<Share>>>>,
}

/// One file system.
#[derive(Debug)]
struct Share {
    volume: Volume,
    state: Mutex<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Bytes that could be written before anything was.
    base: u64,
    slots: Vec<Weak<Slot>>,
    /// What transfers needed, and used, that have ended.
    ended_planned: u64,
    ended_used: i128,
}

/// What one transfer needs.
#[derive(Debug)]
pub struct Slot {
    share: OnceLock<Arc<Share>>,
    /// Bytes that the transfer has moved so far.
    moved: Arc<AtomicU64>,
    /// Bytes of old versions that were replaced.
    freed: AtomicU64,
    /// Bytes of the files in flight, in full.
    reserved: AtomicU64,
    in_flight: AtomicUsize,
    needs: Mutex<Needs>,
}

#[derive(Debug, Default)]
struct Needs {
    /// Bytes that could be written at the start.
    base: u64,
    /// What was found out at the start, and what was planned since.
    planned: Need,
    /// What was counted ahead, what had been moved when that began, and what could be written then.
    counted: Need,
    used_before: i128,
    counted_base: u64,
}

/// What has been used of the space.
#[derive(Debug, Clone, Copy)]
struct Used {
    bytes: i128,
    /// Bytes of files in flight.
    reserved: u64,
}

/// What a transfer has used, and all on its file system.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    own: Used,
    all: Used,
}

/// What is needed, of what there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lack {
    /// Bytes.
    pub needed: u64,
    /// Bytes that could be written before.
    pub free: u64,
}

impl Slot {
    /// A transfer that counts in `moved` what has been written.
    pub fn new(moved: Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self {
            share: OnceLock::new(),
            moved,
            freed: AtomicU64::new(0),
            reserved: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            needs: Mutex::default(),
        })
    }

    /// The transfer begins, with so many bytes that can be written, on a file system that other transfers of `ledger`
    /// may write to.
    pub fn start(self: &Arc<Self>, ledger: &Ledger, volume: Option<Volume>, usable: u64) {
        self.lock().base = usable;
        let Some(volume) = volume else { return };
        let share = ledger.share(volume, usable);
        share.lock().slots.push(Arc::downgrade(self));
        self.share.get_or_init(|| share);
    }

    /// More is planned.
    pub fn plan(&self, need: Need) {
        self.lock().planned.add(need);
    }

    /// The count begins, with so many bytes that can be written.
    pub fn begin_count(&self, usable: u64) {
        let mut needs = self.lock();
        needs.used_before = self.used();
        (needs.counted, needs.counted_base) = (Need::default(), usable);
    }

    /// More was counted.
    pub fn count(&self, need: Need) {
        self.lock().counted.add(need);
    }

    /// What has been used, to be asked for before it is looked what is free: the other way round what is written in
    /// between would look as if another program had freed space.
    pub fn seen(&self) -> Seen {
        let mut all = Used { bytes: self.used(), reserved: self.reserved() };
        let own = all;
        if let Some(share) = self.share.get() {
            let shared = share.lock();
            all = Used { bytes: shared.ended_used, reserved: 0 };
            for slot in shared.slots.iter().filter_map(Weak::upgrade) {
                all.bytes += slot.used();
                all.reserved = all.reserved.saturating_add(slot.reserved());
            }
        }
        Seen { own, all }
    }

    /// Whether more is needed than there was.
    pub fn exceeds(&self) -> bool {
        let counted = {
            let needs = self.lock();
            needs.counted.bytes() > needs.counted_base
        };
        let (planned, base) = self.planned();
        counted || planned > base
    }

    /// What is too much for the space, if `usable` bytes can be written since `seen`.
    pub fn lack(&self, usable: u64, seen: Seen) -> Option<Lack> {
        let counted = {
            let needs = self.lock();
            let used = Used { bytes: seen.own.bytes - needs.used_before, ..seen.own };
            lack(needs.counted.bytes(), needs.counted_base, usable, used, self.reserved())
        };
        let (planned, base) = self.planned();
        counted.or_else(|| lack(planned, base, usable, seen.all, self.seen().all.reserved))
    }

    /// What is planned by all on the file system, and what could be written before.
    fn planned(&self) -> (u64, u64) {
        let Some(share) = self.share.get() else {
            let needs = self.lock();
            return (needs.planned.bytes(), needs.base);
        };
        let shared = share.lock();
        let slots = shared.slots.iter().filter_map(Weak::upgrade);
        let planned = slots.map(|slot| slot.lock().planned.bytes());
        (planned.fold(shared.ended_planned, u64::saturating_add), shared.base)
    }

    /// A file of so many bytes begins, or ends.
    pub fn begin(&self, bytes: u64) {
        self.reserved.fetch_add(bytes, Ordering::AcqRel);
        self.in_flight.fetch_add(1, Ordering::AcqRel);
    }

    /// As [`Slot::begin`].
    pub fn end(&self, bytes: u64) {
        self.reserved.fetch_sub(bytes, Ordering::AcqRel);
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
    }

    /// An old version of so many bytes was replaced.
    pub fn free(&self, bytes: u64) {
        self.freed.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Whether anything is being written.
    pub fn is_writing(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) > 0
    }

    /// Bytes of files in flight.
    pub fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Acquire)
    }

    /// Bytes that are free no longer; less than nothing if what was replaced was longer.
    fn used(&self) -> i128 {
        let load = |count: &AtomicU64| i128::from(count.load(Ordering::Acquire));
        load(&self.moved) - load(&self.freed)
    }

    fn lock(&self) -> MutexGuard<'_, Needs> {
        self.needs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether `needed` bytes are more than the `base` that there was, when `usable` can be written now. If that and what
/// was used since is more than `base`, another program has freed space, and files in flight hide how much: at most what was
/// reserved, before and now.
fn lack(needed: u64, base: u64, usable: u64, used: Used, reserved: u64) -> Option<Lack> {
    let now = u64::try_from((i128::from(usable) + used.bytes).max(0)).unwrap_or(u64::MAX);
    let hidden = used.reserved.saturating_add(reserved);
    let free = if now > base { now.saturating_add(hidden) } else { base };
    (needed > free).then_some(Lack { needed, free: now.max(base) })
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some(share) = self.share.get() else { return };
        let moved = self.moved.load(Ordering::Acquire);
        let (planned, used) = (self.lock().planned.bytes(), self.used());
        let mut shared = share.lock();
        // What it did not move it will not.
        shared.ended_planned = shared.ended_planned.saturating_add(planned.min(moved));
        shared.ended_used += used;
        shared.slots.retain(|slot| slot.strong_count() > 0);
    }
}

impl Ledger {
    fn share(&self, volume: Volume, usable: u64) -> Arc<Share> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.iter().find(|share| share.volume == volume) {
            return Arc::clone(share);
        }
        let state = Mutex::new(Shared { base: usable, ..Shared::default() });
        let share = Arc::new(Share { volume, state });
        shares.push(Arc::clone(&share));
        share
    }
}

impl Share {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lack(slot: &Slot, usable: u64) -> Option<Lack> {
        let lack = slot.lack(usable, slot.seen());
        // Without it the space is never checked.
        assert!(lack.is_none() || slot.exceeds());
        lack
    }

    fn volume(number: u64) -> Option<Volume> {
        Some(Volume { host: String::new(), number })
    }

    #[test]
    fn needs_are_compared_with_what_was_free_before() {
        let moved = Arc::new(AtomicU64::new(0));
        let slot = Slot::new(Arc::clone(&moved));
        slot.start(&Ledger::default(), None, 100);
        slot.plan(Need::new(90));
        assert_eq!(lack(&slot, 100), None);
        // All of it is reserved on the disk.
        assert_eq!(lack(&slot, 10), None);
        slot.plan(Need::new(20));
        assert_eq!(lack(&slot, 10), Some(Lack { needed: 110, free: 100 }));
        moved.store(90, Ordering::Release);
        assert_eq!(lack(&slot, 10), Some(Lack { needed: 110, free: 100 }));
        // Another program has freed space.
        assert_eq!(lack(&slot, 15), Some(Lack { needed: 110, free: 105 }));
        slot.begin(5);
        assert_eq!(lack(&slot, 15), None);
    }

    #[test]
    fn the_count_begins_with_what_is_free_then() {
        let moved = Arc::new(AtomicU64::new(40));
        let slot = Slot::new(Arc::clone(&moved));
        slot.start(&Ledger::default(), None, 100);
        slot.begin_count(60);
        slot.count(Need::new(60));
        assert_eq!(lack(&slot, 60), None);
        slot.count(Need::new(10));
        moved.store(50, Ordering::Release);
        assert_eq!(lack(&slot, 50), Some(Lack { needed: 70, free: 60 }));
    }

    #[test]
    fn what_is_replaced_by_something_shorter_makes_no_room_that_others_made() {
        let moved = Arc::new(AtomicU64::new(5));
        let slot = Slot::new(Arc::clone(&moved));
        slot.start(&Ledger::default(), None, 100);
        slot.begin_count(95);
        slot.begin(10);
        slot.count(Need::new(97));
        // The rest of a file that was half done, and then its old version goes.
        moved.store(10, Ordering::Release);
        slot.free(10);
        assert_eq!(lack(&slot, 100), Some(Lack { needed: 97, free: 95 }));
    }

    #[test]
    fn transfers_to_one_file_system_share_its_space() {
        let ledger = Ledger::default();
        let moved: Vec<Arc<AtomicU64>> = (0..3).map(|_| Arc::default()).collect();
        let slots: Vec<_> = moved.iter().map(|moved| Slot::new(Arc::clone(moved))).collect();
        for (slot, number) in slots.iter().zip([1, 1, 2]) {
            slot.start(&ledger, volume(number), 15);
            slot.plan(Need::new(10));
        }
        assert_eq!(lack(&slots[0], 15), Some(Lack { needed: 20, free: 15 }));
        assert_eq!(lack(&slots[2], 15), None);
        // What a transfer did not do takes no room.
        moved[1].store(3, Ordering::Release);
        let first = Arc::clone(&slots[0]);
        drop(slots);
        assert_eq!(lack(&first, 12), None);
        first.plan(Need::new(3));
        assert_eq!(lack(&first, 12), Some(Lack { needed: 16, free: 15 }));
    }
}
