//! The hosts that a transfer reads from and writes to.
//!
//! Thousands of sources may lie on one host, and one file on several (mirrors). To the window each host is one
//! link: it is told once how many lanes are wanted, and its RTT counts once.

use std::collections::HashSet;
use std::sync::Arc;

use haul_storage::{Capabilities, LinkStatus, Location, Medium, Scheme, Storage};

use crate::Job;
use crate::mirror::MirrorStorage;

/// The links of a transfer; none if both sides are disks.
#[derive(Debug, Default)]
pub struct Links {
    /// One storage of each host that is read.
    sources: Vec<Arc<dyn Storage>>,
    /// One of each host that is written.
    destinations: Vec<Arc<dyn Storage>>,
    can: Can,
}

/// What the storages behind all links can do.
#[derive(Debug, Clone, Copy)]
pub struct Can {
    /// The most lanes that any of them allows.
    pub max_lanes: Option<usize>,
    /// All take further read requests on a busy lane.
    pub pipelined_reads: bool,
    /// The same for writes.
    pub pipelined_writes: bool,
    /// Reads of any of them should be long.
    pub long_reads: bool,
    /// All bound by themselves what is in flight when they are read.
    pub bounded_reads: bool,
}

impl Default for Can {
    fn default() -> Self {
        Self {
            max_lanes: None,
            pipelined_reads: true,
            pipelined_writes: true,
            long_reads: false,
            bounded_reads: true,
        }
    }
}

/// What tells hosts apart.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Host {
    Remote(Scheme, Option<String>, String, Option<u16>),
    /// A storage that names no host is one by itself.
    Storage(usize),
}

impl Links {
    /// The links of these jobs.
    pub fn of(jobs: &[Job]) -> Self {
        let mut links = Self::default();
        let mut seen = HashSet::new();
        let (mut read, mut written) = (HashSet::new(), HashSet::new());
        for job in jobs {
            for storage in mirrors_of(&job.source) {
                links.can.note(storage.capabilities(), &mut seen, storage);
                if read.insert(host_of(storage)) {
                    links.sources.push(Arc::clone(storage));
                }
            }
            let storage = &job.destination;
            if storage.capabilities().medium != Medium::Link {
                continue;
            }
            links.can.note(storage.capabilities(), &mut seen, storage);
            // A server's copy of its own file goes over one link.
            let is_source = links.sources.iter().any(|source| Arc::ptr_eq(source, storage));
            if written.insert(host_of(storage)) && !is_source {
                links.destinations.push(Arc::clone(storage));
            }
        }
        links
    }

    /// Whether both sides are disks.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty() && self.destinations.is_empty()
    }

    /// What the storages can do.
    pub const fn can(&self) -> Can {
        self.can
    }

    /// Wishes for `lanes` lanes to each host.
    pub fn set_lanes(&self, lanes: usize) {
        self.sources.iter().chain(&self.destinations).for_each(|link| link.set_lanes(lanes));
    }

    /// What the path looks like now; `None` between disks.
    pub fn status(&self) -> Option<LinkStatus> {
        let all = |links: &[Arc<dyn Storage>]| {
            links.iter().map(|link| link.link()).reduce(LinkStatus::beside)
        };
        match (all(&self.sources), all(&self.destinations)) {
            (Some(source), Some(destination)) => Some(source.behind(destination)),
            (one, other) => one.or(other),
        }
    }
}

impl Can {
    fn note(&mut self, can: &Capabilities, seen: &mut HashSet<usize>, storage: &Arc<dyn Storage>) {
        if !seen.insert(address(storage)) {
            return;
        }
        self.max_lanes = self.max_lanes.into_iter().chain(can.max_lanes).min();
        self.pipelined_reads &= can.pipelined_reads;
        self.pipelined_writes &= can.pipelined_writes;
        self.long_reads |= can.long_reads;
        self.bounded_reads &= can.bounded_reads;
    }
}

/// The storages on links that a source is read from.
fn mirrors_of(source: &Arc<dyn Storage>) -> impl Iterator<Item = &Arc<dyn Storage>> {
    let mirrors = MirrorStorage::of(&**source);
    let own = mirrors.is_none().then_some(source);
    let mirrors = mirrors.into_iter().flat_map(MirrorStorage::storages);
    own.into_iter().chain(mirrors).filter(|one| one.capabilities().medium == Medium::Link)
}

fn host_of(storage: &Arc<dyn Storage>) -> Host {
    match storage.location() {
        Location::Remote { scheme, user, host, port, .. } => {
            Host::Remote(*scheme, user.clone(), host.clone(), *port)
        }
        _ => Host::Storage(address(storage)),
    }
}

fn address(storage: &Arc<dyn Storage>) -> usize {
    Arc::as_ptr(storage).cast::<()>() as usize
}
