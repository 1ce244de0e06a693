//! The parts of a split file on a server: the version of each part, and a cache of open readers.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haul_storage::{Identity, ReadAt};

/// Most readers that stay open. Ranges are read roughly in order, so few parts are in use at a time.
const MAX_OPEN: usize = 16;

#[derive(Debug)]
pub(super) struct RemoteParts {
    /// The parts as they were listed, by part number.
    listed: Vec<Identity>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The version of each part when it was first opened. It is more precise than the listing (an index page rounds
    /// times).
    opened: HashMap<u64, Identity>,
    /// Open readers by part number, least recently used first.
    readers: VecDeque<(u64, Arc<dyn ReadAt>)>,
}

impl RemoteParts {
    pub(super) fn new(listed: Vec<Identity>) -> Self {
        Self { listed, state: Mutex::default() }
    }

    /// The reader of a part, if it is open.
    pub(super) fn reader(&self, number: u64) -> Option<Arc<dyn ReadAt>> {
        let mut state = self.lock();
        let at = state.readers.iter().position(|(open, _)| *open == number)?;
        let found = state.readers.remove(at)?;
        let reader = Arc::clone(&found.1);
        state.readers.push_back(found);
        Some(reader)
    }

    /// Caches the reader of a part that was just opened. False if the part differs from the version being read.
    pub(super) fn insert(&self, number: u64, reader: &Arc<dyn ReadAt>) -> bool {
        let now = reader.identity();
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        if self.listed.get(index).is_none_or(|listed| listed.size != now.size) {
            return false;
        }
        let mut state = self.lock();
        if state.opened.entry(number).or_insert_with(|| now.clone()) != now {
            return false;
        }
        if state.readers.len() >= MAX_OPEN {
            state.readers.pop_front();
        }
        state.readers.push_back((number, Arc::clone(reader)));
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
