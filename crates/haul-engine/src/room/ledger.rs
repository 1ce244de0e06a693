//! Adds up the space that several transfers of one run need on the same file system.
//!
//! Planned needs are compared with the space that was free before anything was written, needs that are counted ahead
//! with the space that was free when the count began. Free space measured later is smaller by space reserved for files
//! in flight, and by bytes that are on the disk but not counted yet.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use haul_storage::Volume;

use super::need::Need;

/// The transfers of a run, which may share file systems. Clones share their state.
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
    /// Bytes that could be written before any transfer wrote.
    base: u64,
    slots: Vec<Weak<Slot>>,
    /// Bytes that ended transfers needed.
    ended_planned: u64,
    /// Bytes that ended transfers have used.
    ended_used: i128,
}

/// The needs of one transfer.
#[derive(Debug)]
pub struct Slot {
    share: OnceLock<Arc<Share>>,
    /// Bytes that the transfer has moved so far.
    moved: Arc<AtomicU64>,
    /// Bytes of old versions that were replaced.
    freed: AtomicU64,
    /// Bytes that the files in flight needed when they began.
    reserved: AtomicU64,
    in_flight: AtomicUsize,
    needs: Mutex<Needs>,
}

#[derive(Debug, Default)]
struct Needs {
    /// Bytes that could be written at the start.
    base: u64,
    /// The need known at the start, and what was planned since.
    planned: Need,
    /// The need as counted ahead.
    counted: Need,
    /// Bytes that had been used when the count began.
    used_before: i128,
    /// Bytes that could be written then.
    counted_base: u64,
}

/// Used space.
#[derive(Debug, Clone, Copy)]
struct Used {
    bytes: i128,
    /// Bytes of files in flight.
    reserved: u64,
}

/// Space used by a transfer, and by all transfers on its file system.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    own: Used,
    all: Used,
}

/// A lack of space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lack {
    /// Bytes that are needed.
    pub needed: u64,
    /// Bytes that could be written before the transfers began (for a count: when it began), and those that other
    /// programs freed since.
    pub free: u64,
}

impl Slot {
    /// The slot of a transfer that counts its written bytes in `moved`.
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

    /// The transfer begins. `usable` bytes can be written to its file system, which it may share with other transfers
    /// of `ledger`.
    pub fn start(self: &Arc<Self>, ledger: &Ledger, volume: Option<Volume>, usable: u64) {
        self.lock().base = usable;
        let Some(volume) = volume else { return };
        let share = ledger.share(volume, usable);
        share.lock().slots.push(Arc::downgrade(self));
        self.share.get_or_init(|| share);
    }

    /// Adds a planned need.
    pub fn plan(&self, need: Need) {
        self.lock().planned.add(need);
    }

    /// Drops the need planned so far: it will not be compared.
    pub fn forget_planned(&self) {
        self.lock().planned = Need::default();
    }

    /// Begins counting ahead; at this moment `usable` bytes can be written.
    pub fn begin_count(&self, usable: u64) {
        let mut needs = self.lock();
        needs.used_before = self.used();
        (needs.counted, needs.counted_base) = (Need::default(), usable);
    }

    /// Adds a counted need.
    pub fn count(&self, need: Need) {
        self.lock().counted.add(need);
    }

    /// The space used so far. Call this before measuring free space: otherwise bytes written in between would look as
    /// if another program had freed space.
    pub fn seen(&self) -> Seen {
        let mut all = Used { bytes: self.used(), reserved: self.reserved() };
        let own = all;
        if let Some(share) = self.share.get() {
            let (ended_used, slots) = share.read(|shared| shared.ended_used);
            all = Used { bytes: ended_used, reserved: 0 };
            for slot in slots {
                all.bytes += slot.used();
                all.reserved = all.reserved.saturating_add(slot.reserved());
            }
        }
        Seen { own, all }
    }

    /// Whether more is needed than was free.
    pub fn exceeds(&self) -> bool {
        let counted = {
            let needs = self.lock();
            needs.counted.bytes() > needs.counted_base
        };
        let (planned, base) = self.planned();
        counted || planned > base
    }

    /// The lack of space, if any; `usable` bytes can be written, measured after `seen`.
    pub fn lack(&self, usable: u64, seen: Seen) -> Option<Lack> {
        let counted = {
            let needs = self.lock();
            let used = Used { bytes: seen.own.bytes - needs.used_before, ..seen.own };
            lack(needs.counted.bytes(), needs.counted_base, usable, used, self.reserved())
        };
        let (planned, base) = self.planned();
        counted.or_else(|| lack(planned, base, usable, seen.all, self.seen().all.reserved))
    }

    /// Planned needs of all transfers on the file system, and bytes that could be written before they began.
    fn planned(&self) -> (u64, u64) {
        let Some(share) = self.share.get() else {
            let needs = self.lock();
            return (needs.planned.bytes(), needs.base);
        };
        let ((ended, base), slots) = share.read(|shared| (shared.ended_planned, shared.base));
        let planned = slots.iter().map(|slot| slot.lock().planned.bytes());
        (planned.fold(ended, u64::saturating_add), base)
    }

    /// A file of `bytes` bytes begins.
    pub fn begin(&self, bytes: u64) {
        self.reserved.fetch_add(bytes, Ordering::AcqRel);
        self.in_flight.fetch_add(1, Ordering::AcqRel);
    }

    /// A file for which [`Slot::begin`] was called has ended.
    pub fn end(&self, bytes: u64) {
        self.reserved.fetch_sub(bytes, Ordering::AcqRel);
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
    }

    /// An old version of `bytes` bytes was replaced.
    pub fn free(&self, bytes: u64) {
        self.freed.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Whether any file is in flight.
    pub fn is_writing(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) > 0
    }

    /// Bytes of files in flight.
    pub fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Acquire)
    }

    /// Bytes by which free space has decreased; negative if replaced files were longer than the new ones.
    fn used(&self) -> i128 {
        let load = |count: &AtomicU64| i128::from(count.load(Ordering::Acquire));
        load(&self.moved) - load(&self.freed)
    }

    fn lock(&self) -> MutexGuard<'_, Needs> {
        self.needs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lack of space if `needed` bytes exceed the `base` bytes that were free at first; `usable` bytes can be written
/// now. If `usable` and the bytes used since exceed `base`, another program has freed space. It may have freed
/// more: `usable` may lack the space reserved for files in flight (`used.reserved` when `used` was taken,
/// `reserved` now).
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
        // Bytes that an ended transfer has not moved are not needed any more.
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
    /// The result of `read`, and the slots of the transfers that have not ended. The slots must not be dropped while
    /// the state is locked: dropping the last reference to a slot locks it.
    fn read<T>(&self, read: impl FnOnce(&Shared) -> T) -> (T, Vec<Arc<Slot>>) {
        let shared = self.lock();
        (read(&shared), shared.slots.iter().filter_map(Weak::upgrade).collect())
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lack(slot: &Slot, usable: u64) -> Option<Lack> {
        let lack = slot.lack(usable, slot.seen());
        // `lack` is called only if `exceeds` is true.
        assert!(lack.is_none() || slot.exceeds());
        lack
    }

    fn volume(number: u64) -> Option<Volume> {
        Some(Volume { host: String::new(), number })
    }

    #[test]
    fn needs_are_compared_with_the_space_that_was_free_at_first() {
        let moved = Arc::new(AtomicU64::new(0));
        let slot = Slot::new(Arc::clone(&moved));
        slot.start(&Ledger::default(), None, 100);
        slot.plan(Need::new(90));
        assert_eq!(lack(&slot, 100), None);
        // The disk has reserved space for all of it.
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
    fn a_count_is_compared_with_the_space_free_at_its_start() {
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
    fn space_freed_by_a_shorter_replacement_is_not_attributed_to_other_programs() {
        let moved = Arc::new(AtomicU64::new(5));
        let slot = Slot::new(Arc::clone(&moved));
        slot.start(&Ledger::default(), None, 100);
        slot.begin_count(95);
        slot.begin(10);
        slot.count(Need::new(97));
        // The rest of a resumed file is moved, then its old version is replaced.
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
        // Bytes that an ended transfer has not moved need no space.
        moved[1].store(3, Ordering::Release);
        let first = Arc::clone(&slots[0]);
        drop(slots);
        assert_eq!(lack(&first, 12), None);
        first.plan(Need::new(3));
        assert_eq!(lack(&first, 12), Some(Lack { needed: 16, free: 15 }));
    }

    /// Formerly, a reader could drop the last reference to a slot while it held the lock that the drop takes
    /// (deadlock).
    #[test]
    fn a_transfer_may_end_while_another_adds_up_the_needs() {
        const TRANSFERS: u64 = 20_000;
        let ledger = Ledger::default();
        let slot = Slot::new(Arc::default());
        slot.start(&ledger, volume(1), 0);
        let share = Arc::clone(slot.share.get().unwrap());
        let other = Slot::new(Arc::new(AtomicU64::new(5)));
        other.start(&ledger, volume(1), 0);
        let (_, slots) = share.read(|_| ());
        drop(other);
        assert_eq!((slots.len(), share.lock().ended_used), (2, 0));
        drop(slots);
        assert_eq!(share.lock().ended_used, 5);

        std::thread::scope(|scope| {
            let ending = scope.spawn(|| {
                for _ in 0..TRANSFERS {
                    let other = Slot::new(Arc::new(AtomicU64::new(1)));
                    other.start(&ledger, volume(1), 0);
                    other.plan(Need::new(1));
                }
            });
            while !ending.is_finished() {
                slot.seen();
                slot.planned();
            }
        });
        assert_eq!(slot.seen().all.bytes, 5 + i128::from(TRANSFERS));
    }
}
