//! The budgets of a run: which users share one, and which paths share a host.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use haul_storage::Storage;

use super::hosts::{HostLanes, HostLink};
use super::machine::Budget;
use super::share::{LinkBudget, LinkShare};
use crate::Settings;
use crate::links::{Host, Links};
use crate::window::{Decision, Limits, Window};

/// The budgets of all paths that a process uses; clones share them.
///
/// Pass the same budgets to several transfers or readers: those over one path share
/// its window and lanes. The limits of a window (`--window`, `--lanes`, `--chunk`, `--files`, `--memory`, profile)
/// are those of the first user of the path. See the module's documentation.
#[derive(Debug, Clone, Default)]
pub struct LinkBudgets {
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    paths: HashMap<Path, Arc<LinkBudget>>,
    hosts: HashMap<Host, Arc<HostLanes>>,
    /// Budgets made so far.
    made: u64,
}

/// The key of a path.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Path {
    sources: BTreeSet<Host>,
    destinations: BTreeSet<Host>,
}

impl LinkBudgets {
    /// The share of a reader of `storage`, which may hold `settings.memory` bytes. For a disk that is the
    /// only limit.
    pub fn reader(&self, storage: &Arc<dyn Storage>, settings: &Settings) -> Arc<LinkShare> {
        self.join(settings, &Links::to_source(storage), false, unlimited(settings))
    }

    /// The share of a writer to `storage`, which may hold `settings.memory` bytes. For a disk that is the only limit.
    pub fn writer(&self, storage: &Arc<dyn Storage>, settings: &Settings) -> Arc<LinkShare> {
        self.join(settings, &Links::to_destination(storage), true, unlimited(settings))
    }

    /// The share of a transfer, reader or writer over `links`. `writes` is true if the destination is behind one of
    /// them; `on_disk` is the decision without links, which is not shared.
    pub(crate) fn join(
        &self,
        settings: &Settings,
        links: &Links,
        writes: bool,
        on_disk: Decision,
    ) -> Arc<LinkShare> {
        if links.is_empty() {
            let budget = LinkBudget::new(0, Budget::fixed(on_disk));
            return LinkShare::join(budget, settings.memory, Vec::new(), Vec::new());
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.forget();
        let limits = Limits::of(settings, links.can().max_lanes);
        let budget = known.budget(links, || window(limits, links, writes));
        let most_lanes = limits.most_lanes();
        let sources = known.hosts(links.sources(), most_lanes);
        let destinations = known.hosts(links.destinations(), most_lanes);
        LinkShare::join(budget, settings.memory, sources, destinations)
    }
}

impl Known {
    fn budget(&mut self, links: &Links, window: impl FnOnce() -> Window) -> Arc<LinkBudget> {
        let hosts = |links: &[(Host, Arc<dyn Storage>)]| {
            links.iter().map(|(host, _)| host.clone()).collect()
        };
        let path =
            Path { sources: hosts(links.sources()), destinations: hosts(links.destinations()) };
        let made = &mut self.made;
        let budget = self.paths.entry(path).or_insert_with(|| {
            *made += 1;
            LinkBudget::new(*made, Budget::measured(window()))
        });
        Arc::clone(budget)
    }

    fn hosts(&mut self, links: &[(Host, Arc<dyn Storage>)], most_lanes: usize) -> Vec<HostLink> {
        let link = |(host, storage): &(Host, Arc<dyn Storage>)| {
            let lanes = Arc::clone(self.hosts.entry(host.clone()).or_default());
            let of_storage = storage.capabilities().max_lanes.unwrap_or(usize::MAX);
            HostLink::new(lanes, Arc::clone(storage), most_lanes.min(of_storage))
        };
        links.iter().map(link).collect()
    }

    /// Drops budgets that are unused and whose measurements are stale.
    fn forget(&mut self) {
        self.paths.retain(|_, budget| Arc::strong_count(budget) > 1 || !budget.is_old());
        self.hosts.retain(|_, lanes| Arc::strong_count(lanes) > 1);
    }
}

/// The decision for a disk: memory is the only limit.
const fn unlimited(settings: &Settings) -> Decision {
    Decision {
        lanes: 1,
        window_bytes: settings.memory,
        range_bytes: settings.memory,
        files: usize::MAX,
    }
}

/// A window that suits the capabilities of the storages behind the links.
fn window(limits: Limits, links: &Links, writes: bool) -> Window {
    let can = links.can();
    let window = Window::new(limits);
    let window = if writes { window.written_to() } else { window };
    let pipelined = if writes { can.pipelined_writes } else { can.pipelined_reads };
    let window = if pipelined { window } else { window.one_request_a_lane() };
    let window = if !writes && can.long_reads { window.of_long_reads() } else { window };
    let bounded = match writes {
        // A bound on writes does not bound the bytes in flight from another server that is read.
        true => can.bounded_writes && links.sources().is_empty(),
        false => can.bounded_reads,
    };
    if bounded { window.bounded_elsewhere() } else { window }
}
