//! The lanes of a host: the sum of the targets of all paths over it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haul_storage::{LinkStatus, Storage};

/// The lanes of a host.
#[derive(Debug, Default)]
pub struct HostLanes {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The target number of lanes of each path, by the number of its budget.
    targets: BTreeMap<u64, usize>,
    /// The number of lanes that a member last set.
    set: usize,
}

/// A host as one member of a budget (a transfer, reader or writer) reaches it.
#[derive(Debug)]
pub struct HostLink {
    host: Arc<HostLanes>,
    storage: Arc<dyn Storage>,
    /// The most lanes of several paths together, unless the target of one of them is higher.
    most: usize,
    /// The number of lanes that this member last set on its storage, which other members may share.
    set: AtomicUsize,
}

impl HostLink {
    /// A host reached by `storage`, of which the paths together get at most `most` lanes.
    pub const fn new(host: Arc<HostLanes>, storage: Arc<dyn Storage>, most: usize) -> Self {
        Self { host, storage, most, set: AtomicUsize::new(0) }
    }

    /// Sets the target of the path of `budget`, and the sum on the storage if that is new.
    pub fn set_target(&self, budget: u64, lanes: usize) {
        let mut state = self.lock();
        state.targets.insert(budget, lanes);
        self.apply(&mut state);
    }

    /// The state of the link as the path of `budget` sees it, with its part of the lanes.
    pub fn status(&self, budget: u64) -> LinkStatus {
        let link = self.storage.link();
        let state = self.lock();
        let all: usize = state.targets.values().sum();
        let own = state.targets.get(&budget).copied().unwrap_or(all);
        if own == all {
            return link;
        }
        let part = |lanes: usize| (lanes * own).div_ceil(all);
        LinkStatus { open: part(link.open), opening: part(link.opening), ..link }
    }

    /// Removes the target of the path of `budget`. Without another path the lanes stay until the storage is
    /// closed.
    pub fn leave(&self, budget: u64) {
        let mut state = self.lock();
        state.targets.remove(&budget);
        if !state.targets.is_empty() {
            self.apply(&mut state);
        }
    }

    /// Sets the sum on the storage, unless this member has set it and no other one has set another number since.
    /// Called with the lock held, so that the last number set is the current one.
    fn apply(&self, state: &mut State) {
        let (all, largest) = state
            .targets
            .values()
            .fold((0, 0), |(sum, most), lanes| (sum + lanes, most.max(*lanes)));
        let lanes = all.min(self.most).max(largest);
        let before =
            (self.set.swap(lanes, Ordering::Relaxed), std::mem::replace(&mut state.set, lanes));
        if before != (lanes, lanes) {
            self.storage.set_lanes(lanes);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.host.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
