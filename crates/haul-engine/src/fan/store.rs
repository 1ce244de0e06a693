//! What was read of the sources and may be wanted by another host.
//!
//! Everything in it is dropped as soon as all hosts that are served now have had it, and the oldest
//! when there is no room left. Nothing ever waits for room: who is far behind does not find what it
//! wants, and reads it for itself. What is read again in this way has a small part of the room for
//! itself, so that those who are behind share it among them, and never push out what they are about
//! to reach.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haul_storage::{Block, Entry, Identity, Range, ReadAt, Whole};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::memo::{Cached, Key, Lookup, Memo};
use super::meter::Meter;
use super::seats::{SeatSet, Seats};
use super::shelf::{Found, Read, Shelf, Taken};

/// Files that nobody has open at the moment and that are kept open for those who come later.
const IDLE_FILES: usize = 64;

/// One part in so many of the room is for what is read again.
const AGAIN_SHARE: u64 = 8;

/// What a kept answer costs besides its content.
const ANSWER_BYTES: u64 = 256;

/// A directory as it was listed; `None` if it has to be listed by everybody for himself.
pub type Listing = Option<Arc<Vec<Vec<Entry>>>>;

/// What can be asked for.
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
    /// Its number among all that were ever opened.
    pub id: u64,
    /// The file of the source.
    pub reader: Arc<dyn ReadAt>,
    /// Which version it is.
    pub identity: Identity,
}

/// What was read. Shared by all views.
#[derive(Debug)]
pub struct Store {
    state: Mutex<State>,
    /// Something was dropped because all have had it.
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
    /// Everything that takes room, the oldest first, but for:
    order: BTreeMap<u64, Kept>,
    /// what was read again, for hosts that have fallen behind.
    again: BTreeMap<u64, Kept>,
    again_bytes: u64,
    wholes: Memo<Whole>,
    listings: Memo<Listing>,
    files: Memo<Arc<OpenFile>>,
    /// By the number of the file, as long as it is in `files` or open somewhere.
    shelves: HashMap<u64, Shelf>,
}

#[derive(Debug, Clone)]
enum Kept {
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

    /// The longest listing that is kept, in bytes.
    pub const fn longest_listing(&self) -> u64 {
        self.most_bytes / 8
    }

    /// A seat for a host; `None` if there is none left.
    pub fn sit(&self) -> Option<usize> {
        let now = self.now();
        self.lock().seats.take(now)
    }

    /// A host has left.
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
        let pieces: Vec<Taken> =
            state.shelves.values_mut().flat_map(|shelf| shelf.left(seat, taken)).collect();
        state.free(&pieces);
        for key in state.files.leave(seat, taken) {
            state.close_if_done(&key);
        }
        drop(state);
        self.spent.notify_waiters();
    }

    /// Asks for a small file.
    pub fn ask_whole(&self, key: &Key, seat: usize) -> Lookup<Whole> {
        let mut state = self.lock();
        let asked = state.wholes.look_up(key, seat);
        if matches!(asked, Lookup::Ready(_)) && state.is_spent(state.wholes.get(key)) {
            state.drop_whole(key);
        }
        asked
    }

    /// Keeps a small file.
    pub fn put_whole(&self, key: &Key, seat: usize, value: Whole) {
        let mut state = self.lock();
        let bytes = value.bytes.len() as u64 + ANSWER_BYTES;
        let stamp = state.keep(bytes, Kept::Whole(key.clone()));
        let answer = Cached { value, bytes, stamp, seen: SeatSet::of(seat) };
        state.wholes.put(key.clone(), answer);
        if state.is_spent(state.wholes.get(key)) {
            state.drop_whole(key);
        }
        state.make_room(self.most_bytes);
    }

    /// Asks for a listing.
    pub fn ask_listing(&self, key: &Key, seat: usize) -> Lookup<Listing> {
        let mut state = self.lock();
        let asked = state.listings.look_up(key, seat);
        if matches!(asked, Lookup::Ready(_)) && state.is_spent(state.listings.get(key)) {
            state.drop_listing(key);
        }
        asked
    }

    /// Keeps a listing of so many bytes.
    pub fn put_listing(&self, key: &Key, seat: usize, value: Listing, bytes: u64) {
        let mut state = self.lock();
        let bytes = bytes + ANSWER_BYTES;
        let stamp = state.keep(bytes, Kept::Listing(key.clone()));
        let answer = Cached { value, bytes, stamp, seen: SeatSet::of(seat) };
        state.listings.put(key.clone(), answer);
        if state.is_spent(state.listings.get(key)) {
            state.drop_listing(key);
        }
        state.make_room(self.most_bytes);
    }

    /// Asks for an open file; if it is there, it counts as opened by this host.
    pub fn ask_file(&self, key: &Key, seat: usize) -> Lookup<Arc<OpenFile>> {
        let mut state = self.lock();
        let asked = state.files.look_up(key, seat);
        if let Lookup::Ready(file) = &asked
            && let Some(shelf) = state.shelves.get_mut(&file.id)
        {
            shelf.opened(seat);
        }
        asked
    }

    /// Keeps a file that was opened, for this host and others. It can be read from anywhere
    /// (`ranged`), or only from its start.
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
        let answer = Cached { value, bytes: 0, stamp: id, seen: SeatSet::of(seat) };
        state.files.put(key, answer);
        file
    }

    /// What was asked for cannot be had; the next who asks may try.
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
        if state.files.get(key).is_some_and(|answer| answer.value.id == id) {
            state.close_if_done(key);
            state.close_idle();
        } else {
            state.drop_idle_shelf(id);
        }
        drop(state);
        self.spent.notify_waiters();
    }

    /// A file is not what it was, or cannot be read: whoever opens it from now on gets it anew.
    pub fn forget(&self, key: &Key, id: u64) {
        let mut state = self.lock();
        if state.files.get(key).is_some_and(|answer| answer.value.id == id) {
            state.files.remove(key);
            state.drop_idle_shelf(id);
        }
    }

    /// Looks for the first bytes of `wanted`, which is not empty; if they are nowhere, a read for
    /// them is begun. What is found counts as given to this host. `None` if the file is not open.
    pub fn find(&self, id: u64, seat: usize, wanted: Range) -> Option<Found> {
        let now = self.now();
        let mut state = self.lock();
        let found = state.shelves.get_mut(&id)?.find(wanted);
        if let Found::Here(block) = &found {
            let range = Range::new(wanted.start(), block.len() as u64);
            let spent = state.give(id, seat, range, now);
            drop(state);
            if spent {
                self.spent.notify_waiters();
            }
        }
        Some(found)
    }

    /// What is left of a read that is under way.
    pub fn left_of(&self, id: u64, read: &Arc<Read>) -> Range {
        let state = self.lock();
        state.shelves.get(&id).map_or(Range::new(0, 0), |shelf| shelf.left_of(read))
    }

    /// A read has given its next block, to a host that wants `wanted`. Gives it back with its place,
    /// cut to what was to be read, and counted.
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
            let stamp = state.keep_piece(range.len(), Kept::Piece(id, at), again);
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

    /// A host was given `range` as it arrived.
    pub fn gave(&self, id: u64, seat: usize, range: Range) {
        let now = self.now();
        if self.lock().give(id, seat, range, now) {
            self.spent.notify_waiters();
        }
    }

    /// Before a block is read for which another one has to go: waits a little if a host that is
    /// close behind has not had that other one yet. See `pace`.
    pub async fn keep_together(&self, seat: usize, next_bytes: u64) {
        let mut waiting = None;
        loop {
            let spent = self.spent.notified();
            let mut spent = std::pin::pin!(spent);
            // From here on no notice is missed.
            spent.as_mut().enable();
            let now = self.now();
            let Some(wait) = self.lock().wait(seat, next_bytes, self.most_bytes, now) else {
                return;
            };
            if waiting.is_none() {
                waiting = self.begin_waiting(seat, now);
            }
            // Whether somebody came along or not is looked at anew.
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

/// Ends the wait of a host, also if who waits is dropped.
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
    /// Counts something in; gives its place in the order.
    fn keep(&mut self, bytes: u64, kept: Kept) -> u64 {
        self.next_number += 1;
        self.held_bytes += bytes;
        self.order.insert(self.next_number, kept);
        self.next_number
    }

    /// The same for a piece, which may have been read again.
    fn keep_piece(&mut self, bytes: u64, kept: Kept, again: bool) -> u64 {
        if !again {
            return self.keep(bytes, kept);
        }
        self.next_number += 1;
        self.held_bytes += bytes;
        self.again_bytes += bytes;
        self.again.insert(self.next_number, kept);
        self.next_number
    }

    fn free(&mut self, taken: &[Taken]) {
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

    /// Drops the oldest until all fits.
    fn make_room(&mut self, most_bytes: u64) {
        loop {
            let too_much_again = self.again_bytes > most_bytes / AGAIN_SHARE;
            if !too_much_again && self.held_bytes <= most_bytes {
                return;
            }
            let from = if too_much_again { &self.again } else { &self.order };
            let Some((_, kept)) = from.first_key_value().or(self.again.first_key_value()) else {
                return;
            };
            match kept.clone() {
                Kept::Whole(key) => self.drop_whole(&key),
                Kept::Listing(key) => self.drop_listing(&key),
                Kept::Piece(id, at) => {
                    let taken = self.shelves.get_mut(&id).and_then(|shelf| shelf.take(at));
                    self.free(taken.as_slice());
                }
            }
        }
    }

    fn is_spent<V>(&self, answer: Option<&Cached<V>>) -> bool {
        answer.is_some_and(|answer| self.seats.taken().without(answer.seen).is_empty())
    }

    fn drop_whole(&mut self, key: &Key) {
        if let Some(answer) = self.wholes.remove(key) {
            self.free(&[(answer.stamp, answer.bytes)]);
        }
    }

    fn drop_listing(&mut self, key: &Key) {
        if let Some(answer) = self.listings.remove(key) {
            self.free(&[(answer.stamp, answer.bytes)]);
        }
    }

    /// Notes that a host was given something; whether a piece was dropped because all have had it.
    fn give(&mut self, id: u64, seat: usize, range: Range, now: Duration) -> bool {
        self.seats.gave(seat, range.len(), now);
        let taken = self.seats.taken();
        let Some(shelf) = self.shelves.get_mut(&id) else { return false };
        let spent = shelf.gave(seat, range, taken);
        self.free(spent.as_slice());
        spent.is_some()
    }

    /// How long `seat` may wait before it has something dropped; `None` if nothing would be, or
    /// nobody who needs it is near. Who waits does so until there is a good deal of room: going on
    /// with every block that becomes free would keep the distance as it is.
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
        let (_, Kept::Piece(id, at)) = self.order.first_key_value()? else { return None };
        let shelf = self.shelves.get(id)?;
        let needed = shelf.needed_by(*at, self.seats.taken());
        let near = |other: usize| shelf.is_open_at(other) && self.seats.is_near(other, seat, now);
        if needed.contains(seat) || !needed.iter().any(near) {
            return None;
        }
        self.seats.patience(seat)?.left(now)
    }

    /// Closes a file that all who are served now have had.
    fn close_if_done(&mut self, key: &Key) {
        let Some(id) = self.files.get(key).map(|answer| answer.value.id) else { return };
        let taken = self.seats.taken();
        if self.shelves.get(&id).is_none_or(|shelf| shelf.is_done(taken)) {
            self.files.remove(key);
            self.drop_idle_shelf(id);
        }
    }

    /// Closes a file that no host has open, if there are too many of them: preferably one without cached pieces, as
    /// a plan that is ahead looks at many files for holes; of those the one that was opened first.
    fn close_idle(&mut self) {
        let idle = self.files.iter().filter_map(|(key, answer)| {
            let id = answer.value.id;
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
