//! Answers of the source that are kept for the other hosts: small files, listings, open files.
//!
//! Who asks first makes the answer, and the others wait for it. If the making fails, or who made it
//! is gone, the next who asks makes it anew: an error is told to nobody but to who met it.

use std::collections::HashMap;
use std::sync::Arc;

use haul_storage::RelPath;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::seats::SeatSet;

/// Which source, and where in it.
pub type Key = (usize, RelPath);

/// Answers by what they are about.
#[derive(Debug)]
pub struct Memo<V> {
    slots: HashMap<Key, Slot<V>>,
}

#[derive(Debug)]
enum Slot<V> {
    /// Somebody makes it and holds this lock until it is there, or has failed.
    Making(Arc<AsyncMutex<()>>),
    Here(Answer<V>),
}

/// A kept answer.
#[derive(Debug)]
pub struct Answer<V> {
    /// It.
    pub value: V,
    /// What it costs in bytes.
    pub bytes: u64,
    /// Its place in the order of all that is kept.
    pub stamp: u64,
    /// Who has had it.
    pub seen: SeatSet,
}

/// What there is when somebody asks.
#[derive(Debug)]
pub enum Asked<V> {
    /// The answer.
    Here(V),
    /// Somebody makes it; when this lock is free, ask again.
    Wait(Arc<AsyncMutex<()>>),
    /// Nobody has asked yet: make it, and keep this until it is there.
    Make(OwnedMutexGuard<()>),
}

impl<V> Default for Memo<V> {
    fn default() -> Self {
        Self { slots: HashMap::new() }
    }
}

impl<V: Clone> Memo<V> {
    /// Asks for an answer on behalf of `seat`.
    pub fn ask(&mut self, key: &Key, seat: usize) -> Asked<V> {
        match self.slots.get_mut(key) {
            Some(Slot::Here(answer)) => {
                answer.seen.insert(seat);
                Asked::Here(answer.value.clone())
            }
            Some(Slot::Making(lock)) => Asked::Wait(Arc::clone(lock)),
            None => {
                let lock = Arc::new(AsyncMutex::new(()));
                match Arc::clone(&lock).try_lock_owned() {
                    Ok(guard) => {
                        self.slots.insert(key.clone(), Slot::Making(lock));
                        Asked::Make(guard)
                    }
                    // Nobody else knows of it yet, so it is free; waiting for it would be right, too.
                    Err(_) => Asked::Wait(lock),
                }
            }
        }
    }

    /// Keeps an answer.
    pub fn put(&mut self, key: Key, answer: Answer<V>) {
        self.slots.insert(key, Slot::Here(answer));
    }

    /// It could not be made.
    pub fn give_up(&mut self, key: &Key) {
        if matches!(self.slots.get(key), Some(Slot::Making(_))) {
            self.slots.remove(key);
        }
    }

    /// The answer, if it is there.
    pub fn get(&self, key: &Key) -> Option<&Answer<V>> {
        match self.slots.get(key) {
            Some(Slot::Here(answer)) => Some(answer),
            _ => None,
        }
    }

    /// All answers that are there.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Answer<V>)> {
        self.slots.iter().filter_map(|(key, slot)| match slot {
            Slot::Here(answer) => Some((key, answer)),
            Slot::Making(_) => None,
        })
    }

    /// Takes an answer out.
    pub fn remove(&mut self, key: &Key) -> Option<Answer<V>> {
        match self.slots.get(key) {
            Some(Slot::Here(_)) => {}
            _ => return None,
        }
        match self.slots.remove(key) {
            Some(Slot::Here(answer)) => Some(answer),
            _ => None,
        }
    }

    /// A host has left: its seat will be another's. Gives what nobody of `taken` lacks.
    pub fn leave(&mut self, seat: usize, taken: SeatSet) -> Vec<Key> {
        let mut spent = Vec::new();
        for (key, slot) in &mut self.slots {
            let Slot::Here(answer) = slot else { continue };
            answer.seen.remove(seat);
            if taken.without(answer.seen).is_empty() {
                spent.push(key.clone());
            }
        }
        spent
    }
}
