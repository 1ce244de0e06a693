//! The cache of a fan-out: what was read from the sources and may be needed by another host.
//!
//! An item is dropped as soon as all hosts being served have received it; when there is no room left,
//! the oldest item is dropped. No host waits for a slow one: a host that is far behind misses the cache and
//! reads for itself. Only hosts of nearly the same speed wait for each other, for a small share of the time
//! (`pace`). Pieces that are read again take at most 1/8 of the room (`AGAIN_SHARE`): hosts that are behind
//! share that part, and evict little of what they are about to reach.
//!
//! Each host has a seat: its number in the store, free again when the host has left.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haul_storage::{Block, Entry, Identity, Range, ReadAt, Whole};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::memo::{Cached, Key, Lookup, Memo};
use super::meter::Meter;
use super::seats::{SeatSet, Seats};
use super::shelf::{Evicted, Found, Read, Shelf};

/// Files that no host has open at the moment and that stay open for later hosts.
const IDLE_FILES: usize = 64;

/// Pieces that are read again get one part in this many of the room.
const AGAIN_SHARE: u64 = 8;

/// Memory of a cached small file or listing besides its content, in bytes.
const CACHED_BYTES: u64 = 256;

/// A directory as it was listed; `None` if it is not cached and each host lists it itself.
pub type Listing = Option<Arc<Vec<Vec<Entry>>>>;

/// The kinds of cached items.
#[derive(Debug, Clone, Copy)]
pub enum Wanted {
    /// A small file.
    Whole,
    /// A listing.
    Listing,
    /// An open file.
    File,
}

/// A file that is open for all hosts.
#[derive(Debug)]
pub struct OpenFile {
    /// Its number, unique in this store.
    pub id: u64,
    /// The file of the source.
    pub reader: Arc<dyn ReadAt>,
    /// The version that was opened.
    pub identity: Identity,
}

/// The cache, shared by all views.
#[derive(Debug)]
pub struct Store {
    state: Mutex<State>,
    /// Notified when all hosts have received an item, or one has closed a file or left: there may be room.
    spent: Notify,
    /// Counts what is read.
    pub meter: Meter,
    most_bytes: u64,
    started: Instant,
}

#[derive(Debug, Default)]
struct State {
    seats: Seats,
    held_bytes: u64,
    next_number: u64,
    /// Everything that takes room, the oldest first, other than the pieces in `again`.
    order: BTreeMap<u64, Item>,
    /// Pieces that were read again, for hosts that have fallen behind.
    again: BTreeMap<u64, Item>,
    again_bytes: u64,
    wholes: Memo<Whole>,
    listings: Memo<Listing>,
    files: Memo<Arc<OpenFile>>,
    /// Cached pieces by the number of their file, while that is in `files` or open at a host.
    shelves: HashMap<u64, Shelf>,
}

#[derive(Debug, Clone)]
enum Item {
    Piece(u64, u64),
    Whole(Key),
    Listing(Key),
}

impl Store {
    /// A store for at most `most_bytes` bytes.
    pub fn new(most_bytes: u64) -> Self {
        Self {
            state: Mutex::default(),
            spent: Notify::new(),
            meter: Meter::default(),
            most_bytes,
            started: Instant::now(),
        }
    }

    /// The longest listing that is cached, in bytes.
    pub const fn longest_listing(&self) -> u64 {
        self.most_bytes / 8
    }

    /// A seat for a host; `None` if there is none left.
    pub fn sit(&self) -> Option<usize> {
        let now = self.now();
        self.lock().seats.take(now)
    }

    /// Frees the seat of a host.
    pub fn leave(&self, seat: usize) {
        let mut state = self.lock();
        state.seats.leave(seat);
        let taken = state.seats.taken();
        for key in state.wholes.leave(seat, taken) {
            state.drop_whole(&key);
        }
        for key in state.listings.leave(seat, taken) {
            state.drop_listing(&key);
        }
        let pieces: Vec<Evicted> =
            state.shelves.values_mut().flat_map(|shelf| shelf.left(seat, taken)).collect();
        state.free(&pieces);
        for key in state.files.leave(seat, taken) {
            state.close_if_done(&key);
        }
        drop(state);
        self.spent.notify_waiters();
    }

    /// Looks up a small file.
    pub fn look_up_whole(&self, key: &Key, seat: usize) -> Lookup<Whole> {
        let mut state = self.lock();
        let lookup = state.wholes.look_up(key, seat);
        if matches!(lookup, Lookup::Ready(_)) && state.is_spent(state.wholes.get(key)) {
            state.drop_whole(key);
            drop(state);
            self.spent.notify_waiters();
        }
        lookup
    }

    /// Stores a small file.
    pub fn put_whole(&self, key: &Key, seat: usize, value: Whole) {
        let mut state = self.lock();
        let bytes = value.bytes.len() as u64 + CACHED_BYTES;
        let stamp = state.insert(bytes, Item::Whole(key.clone()));
        let cached = Cached { value, bytes, stamp, seen: SeatSet::of(seat) };
        state.wholes.put(key.clone(), cached);
        let spent = state.is_spent(state.wholes.get(key));
        if spent {
            state.drop_whole(key);
        }
        state.make_room(self.most_bytes);
        drop(state);
        if spent {
            self.spent.notify_waiters();
        }
    }

    /// Looks up a listing.
    pub fn look_up_listing(&self, key: &Key, seat: usize) -> Lookup<Listing> {
        let mut state = self.lock();
        let lookup = state.listings.look_up(key, seat);
        if matches!(lookup, Lookup::Ready(_)) && state.is_spent(state.listings.get(key)) {
            state.drop_listing(key);
            drop(state);
            self.spent.notify_waiters();
        }
        lookup
    }

    /// Stores a listing of `bytes` bytes.
    pub fn put_listing(&self, key: &Key, seat: usize, value: Listing, bytes: u64) {
        let mut state = self.lock();
        let bytes = bytes + CACHED_BYTES;
        let stamp = state.insert(bytes, Item::Listing(key.clone()));
        let cached = Cached { value, bytes, stamp, seen: SeatSet::of(seat) };
        state.listings.put(key.clone(), cached);
        let spent = state.is_spent(state.listings.get(key));
        if spent {
            state.drop_listing(key);
        }
        state.make_room(self.most_bytes);
        drop(state);
        if spent {
            self.spent.notify_waiters();
        }
    }

    /// Looks up an open file; if it is cached, it counts as opened by this host.
    pub fn look_up_file(&self, key: &Key, seat: usize) -> Lookup<Arc<OpenFile>> {
        let mut state = self.lock();
        let lookup = state.files.look_up(key, seat);
        if let Lookup::Ready(file) = &lookup
            && let Some(shelf) = state.shelves.get_mut(&file.id)
        {
            shelf.opened(seat);
        }
        lookup
    }

    /// Stores a file that was opened, for this host and others. Unless it is `ranged`, it can be read
    /// only from its start.
    pub fn put_file(
        &self,
        key: Key,
        seat: usize,
        reader: Arc<dyn ReadAt>,
        ranged: bool,
    ) -> Arc<OpenFile> {
        let mut state = self.lock();
        state.next_number += 1;
        let id = state.next_number;
        let identity = reader.identity().clone();
        let value = Arc::new(OpenFile { id, reader, identity });
        let mut shelf = Shelf::new(ranged);
        shelf.opened(seat);
        state.shelves.insert(id, shelf);
        let file = Arc::clone(&value);
        let cached = Cached { value, bytes: 0, stamp: id, seen: SeatSet::of(seat) };
        state.files.put(key, cached);
        file
    }

    /// Loading has failed; the next host may try.
    pub fn abandon(&self, what: Wanted, key: &Key) {
        let mut state = self.lock();
        match what {
            Wanted::Whole => state.wholes.abandon(key),
            Wanted::Listing => state.listings.abandon(key),
            Wanted::File => state.files.abandon(key),
        }
    }

    /// A host has closed a file.
    pub fn close(&self, key: &Key, id: u64, seat: usize) {
        let mut state = self.lock();
        let taken = state.seats.taken();
        if let Some(shelf) = state.shelves.get_mut(&id) {
            let pieces = shelf.closed(seat, taken);
            state.free(&pieces);
        }
        if state.files.get(key).is_some_and(|cached| cached.value.id == id) {
            state.close_if_done(key);
            state.close_idle();
        } else {
            state.drop_idle_shelf(id);
        }
        drop(state);
        self.spent.notify_waiters();
    }

    /// A file has changed, or cannot be read: the next host that needs it opens it at the source.
    pub fn forget(&self, key: &Key, id: u64) {
        let mut state = self.lock();
        if state.files.get(key).is_some_and(|cached| cached.value.id == id) {
            state.files.remove(key);
            state.drop_idle_shelf(id);
        }
    }

    /// Looks for the first bytes of `wanted`, which is not empty, in the cache and in reads in progress;
    /// otherwise a read begins. Cached bytes count as received by this host. `None` if the file is not open.
    pub fn find(&self, id: u64, seat: usize, wanted: Range) -> Option<Found> {
        let now = self.now();
        let mut state = self.lock();
        let found = state.shelves.get_mut(&id)?.find(wanted);
        if let Found::Here(block) = &found {
            let range = Range::new(wanted.start(), block.len() as u64);
            let spent = state.record_received(id, seat, range, now);
            drop(state);
            if spent {
                self.spent.notify_waiters();
            }
        }
        Some(found)
    }

    /// What is left of a read in progress.
    pub fn left_of(&self, id: u64, read: &Arc<Read>) -> Range {
        let state = self.lock();
        state.shelves.get(&id).map_or(Range::new(0, 0), |shelf| shelf.left_of(read))
    }

    /// A read has returned its next block, at a host that wants `wanted`. Counts it, caches it if a host
    /// still needs it, and returns its offset and the block, cut to the range that was to be read.
    pub fn arrived(
        &self,
        id: u64,
        read: &Arc<Read>,
        mut block: Block,
        seat: usize,
        wanted: Range,
    ) -> (u64, Block) {
        let mut state = self.lock();
        let taken = state.seats.taken();
        let Some(shelf) = state.shelves.get_mut(&id) else { return (0, Block::new()) };
        let at = shelf.advance(read, &mut block);
        let block = self.meter.count_block(&block);
        let range = Range::new(at, block.len() as u64);
        let had = shelf.had_by(range);
        let mut needed = taken.without(had);
        if range.intersection(wanted) == range {
            needed.remove(seat);
        }
        let again = !taken.without(taken.without(had)).is_empty();
        if !range.is_empty() && !needed.is_empty() && shelf.is_free(range) {
            let stamp = state.insert_piece(range.len(), Item::Piece(id, at), again);
            if let Some(shelf) = state.shelves.get_mut(&id) {
                shelf.put(at, block.clone(), stamp);
            }
            state.make_room(self.most_bytes);
        }
        (at, block)
    }

    /// A read has ended.
    pub fn ended(&self, id: u64, read: &Arc<Read>) {
        if let Some(shelf) = self.lock().shelves.get_mut(&id) {
            shelf.ended(read);
        }
    }

    /// A host received `range` from a read, not from the cache.
    pub fn received(&self, id: u64, seat: usize, range: Range) {
        let now = self.now();
        if self.lock().record_received(id, seat, range, now) {
            self.spent.notify_waiters();
        }
    }

    /// Before a block is read that evicts another one: waits a little if a host close behind has not
    /// received that other one yet. See `pace`.
    pub async fn keep_together(&self, seat: usize, next_bytes: u64) {
        let mut waiting = None;
        loop {
            let spent = self.spent.notified();
            let mut spent = std::pin::pin!(spent);
            // From here on no notification is missed.
            spent.as_mut().enable();
            let now = self.now();
            let Some(wait) = self.lock().wait(seat, next_bytes, self.most_bytes, now) else {
                return;
            };
            if waiting.is_none() {
                waiting = self.begin_waiting(seat, now);
            }
            // Notified or not, the loop checks again.
            drop(timeout(wait, spent).await);
        }
    }

    fn begin_waiting(&self, seat: usize, now: Duration) -> Option<Waiting<'_>> {
        self.lock().seats.patience(seat)?.begin(now);
        Some(Waiting { store: self, seat })
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the wait of a host, also if the waiting task is dropped.
struct Waiting<'a> {
    store: &'a Store,
    seat: usize,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let now = self.store.now();
        if let Some(patience) = self.store.lock().seats.patience(self.seat) {
            patience.end(now);
        }
    }
}

impl State {
    /// Counts an item and returns its stamp, the position in the order.
    fn insert(&mut self, bytes: u64, item: Item) -> u64 {
        self.next_number += 1;
        self.held_bytes += bytes;
        self.order.insert(self.next_number, item);
        self.next_number
    }

    /// The same for a piece, which may have been read again.
    fn insert_piece(&mut self, bytes: u64, item: Item, again: bool) -> u64 {
        if !again {
            return self.insert(bytes, item);
        }
        self.next_number += 1;
        self.held_bytes += bytes;
        self.again_bytes += bytes;
        self.again.insert(self.next_number, item);
        self.next_number
    }

    fn free(&mut self, taken: &[Evicted]) {
        for (stamp, bytes) in taken {
            let again = self.again.remove(stamp).is_some();
            if again {
                self.again_bytes = self.again_bytes.saturating_sub(*bytes);
            }
            if again || self.order.remove(stamp).is_some() {
                self.held_bytes = self.held_bytes.saturating_sub(*bytes);
            }
        }
    }

    /// Drops the oldest items until the rest fits.
    fn make_room(&mut self, most_bytes: u64) {
        loop {
            let too_much_again = self.again_bytes > most_bytes / AGAIN_SHARE;
            if !too_much_again && self.held_bytes <= most_bytes {
                return;
            }
            let from = if too_much_again { &self.again } else { &self.order };
            let Some((_, item)) = from.first_key_value().or(self.again.first_key_value()) else {
                return;
            };
            match item.clone() {
                Item::Whole(key) => self.drop_whole(&key),
                Item::Listing(key) => self.drop_listing(&key),
                Item::Piece(id, at) => {
                    let taken = self.shelves.get_mut(&id).and_then(|shelf| shelf.take(at));
                    self.free(taken.as_slice());
                }
            }
        }
    }

    fn is_spent<V>(&self, cached: Option<&Cached<V>>) -> bool {
        cached.is_some_and(|cached| self.seats.taken().without(cached.seen).is_empty())
    }

    fn drop_whole(&mut self, key: &Key) {
        if let Some(cached) = self.wholes.remove(key) {
            self.free(&[(cached.stamp, cached.bytes)]);
        }
    }

    fn drop_listing(&mut self, key: &Key) {
        if let Some(cached) = self.listings.remove(key) {
            self.free(&[(cached.stamp, cached.bytes)]);
        }
    }

    /// Records that a host received a range; returns whether a piece was dropped because all hosts have
    /// received it.
    fn record_received(&mut self, id: u64, seat: usize, range: Range, now: Duration) -> bool {
        self.seats.received(seat, range.len(), now);
        let taken = self.seats.taken();
        let Some(shelf) = self.shelves.get_mut(&id) else { return false };
        let spent = shelf.received(seat, range, taken);
        self.free(spent.as_slice());
        spent.is_some()
    }

    /// How long the host in `seat` may wait before it evicts the oldest piece; `None` if it would evict none, needs the
    /// piece itself, no near host needs it, or its waiting time is used up. A waiting host waits until a quarter of the
    /// room is free: if it went on with each block that becomes free, the distance would never shrink.
    fn wait(
        &mut self,
        seat: usize,
        next_bytes: u64,
        most_bytes: u64,
        now: Duration,
    ) -> Option<Duration> {
        let is_waiting = self.seats.patience(seat)?.is_waiting();
        let room = if is_waiting { most_bytes / 4 } else { next_bytes };
        if self.held_bytes + room <= most_bytes {
            return None;
        }
        let (_, Item::Piece(id, at)) = self.order.first_key_value()? else { return None };
        let shelf = self.shelves.get(id)?;
        let needed = shelf.needed_by(*at, self.seats.taken());
        let near = |other: usize| shelf.is_open_at(other) && self.seats.is_near(other, seat, now);
        if needed.contains(seat) || !needed.iter().any(near) {
            return None;
        }
        self.seats.patience(seat)?.left(now)
    }

    /// Closes a file that all hosts being served are done with.
    fn close_if_done(&mut self, key: &Key) {
        let Some(id) = self.files.get(key).map(|cached| cached.value.id) else { return };
        let taken = self.seats.taken();
        if self.shelves.get(&id).is_none_or(|shelf| shelf.is_done(taken)) {
            self.files.remove(key);
            self.drop_idle_shelf(id);
        }
    }

    /// Closes a file that no host has open, if there are too many of them: preferably one without cached pieces, as
    /// a plan that is ahead looks at many files for holes; of those the one that was opened first.
    fn close_idle(&mut self) {
        let idle = self.files.iter().filter_map(|(key, cached)| {
            let id = cached.value.id;
            let shelf = self.shelves.get(&id).filter(|shelf| shelf.is_idle())?;
            Some((shelf.has_pieces(), id, key.clone()))
        });
        let idle: Vec<_> = idle.collect();
        if idle.len() <= IDLE_FILES {
            return;
        }
        if let Some((_, id, key)) = idle.into_iter().min() {
            self.files.remove(&key);
            self.drop_idle_shelf(id);
        }
    }

    fn drop_idle_shelf(&mut self, id: u64) {
        if self.shelves.get(&id).is_some_and(Shelf::is_idle)
            && let Some(mut shelf) = self.shelves.remove(&id)
        {
            let pieces = shelf.clear();
            self.free(&pieces);
        }
    }
}
