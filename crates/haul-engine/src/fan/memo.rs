//! A cache of what was read from the source (small files, listings, open files), for the hosts of a fan-out.
//!
//! The first host that needs a value loads it, and the others wait for it. If loading fails or is cancelled, the next
//! host loads it again: an error is returned only to the host whose attempt failed.

use std::collections::HashMap;
use std::sync::Arc;

use haul_storage::RelPath;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::seats::SeatSet;

/// The index of the source, and a path in it.
pub type Key = (usize, RelPath);

/// Cached values by key.
#[derive(Debug)]
pub struct Memo<V> {
    slots: HashMap<Key, Slot<V>>,
}

#[derive(Debug)]
enum Slot<V> {
    /// A host is loading the value. It holds this lock until it has succeeded or failed.
    Loading(Arc<AsyncMutex<()>>),
    Ready(Cached<V>),
}

/// A cached value.
#[derive(Debug)]
pub struct Cached<V> {
    /// The value.
    pub value: V,
    /// Its size in memory, in bytes.
    pub bytes: u64,
    /// Its position in the order of all cached items.
    pub stamp: u64,
    /// The hosts that have received it.
    pub seen: SeatSet,
}

/// The result of a lookup.
#[derive(Debug)]
pub enum Lookup<V> {
    /// The value.
    Ready(V),
    /// Another host is loading the value: wait for this lock, then look it up again.
    Wait(Arc<AsyncMutex<()>>),
    /// Load the value, and hold this guard until it is stored or loading has failed.
    Load(OwnedMutexGuard<()>),
}

impl<V> Default for Memo<V> {
    fn default() -> Self {
        Self { slots: HashMap::new() }
    }
}

impl<V: Clone> Memo<V> {
    /// Looks up a value for the host in `seat`.
    pub fn look_up(&mut self, key: &Key, seat: usize) -> Lookup<V> {
        match self.slots.get_mut(key) {
            Some(Slot::Ready(cached)) => {
                cached.seen.insert(seat);
                Lookup::Ready(cached.value.clone())
            }
            Some(Slot::Loading(lock)) => Lookup::Wait(Arc::clone(lock)),
            None => {
                let lock = Arc::new(AsyncMutex::new(()));
                match Arc::clone(&lock).try_lock_owned() {
                    Ok(guard) => {
                        self.slots.insert(key.clone(), Slot::Loading(lock));
                        Lookup::Load(guard)
                    }
                    // Cannot happen, as no other task has the new lock yet; waiting for it would be correct, too.
                    Err(_) => Lookup::Wait(lock),
                }
            }
        }
    }

    /// Stores a value.
    pub fn put(&mut self, key: Key, cached: Cached<V>) {
        self.slots.insert(key, Slot::Ready(cached));
    }

    /// Loading the value has failed: the next lookup loads it again.
    pub fn abandon(&mut self, key: &Key) {
        if matches!(self.slots.get(key), Some(Slot::Loading(_))) {
            self.slots.remove(key);
        }
    }

    /// The cached value, if there is one.
    pub fn get(&self, key: &Key) -> Option<&Cached<V>> {
        match self.slots.get(key) {
            Some(Slot::Ready(cached)) => Some(cached),
            _ => None,
        }
    }

    /// All cached values.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Cached<V>)> {
        self.slots.iter().filter_map(|(key, slot)| match slot {
            Slot::Ready(cached) => Some((key, cached)),
            Slot::Loading(_) => None,
        })
    }

    /// Removes a cached value.
    pub fn remove(&mut self, key: &Key) -> Option<Cached<V>> {
        match self.slots.get(key) {
            Some(Slot::Ready(_)) => {}
            _ => return None,
        }
        match self.slots.remove(key) {
            Some(Slot::Ready(cached)) => Some(cached),
            _ => None,
        }
    }

    /// Forgets which values the host in `seat` has received, so that another host can take the seat.
    /// Returns the keys of the values that all hosts in `taken` have received.
    pub fn leave(&mut self, seat: usize, taken: SeatSet) -> Vec<Key> {
        let mut spent = Vec::new();
        for (key, slot) in &mut self.slots {
            let Slot::Ready(cached) = slot else { continue };
            cached.seen.remove(seat);
            if taken.without(cached.seen).is_empty() {
                spent.push(key.clone());
            }
        }
        spent
    }
}
