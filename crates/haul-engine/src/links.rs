//! The hosts that a transfer reads from and writes to.
//!
//! Thousands of sources may lie on one host, and one file on several (mirrors). To the window each host is one
//! link: it is told once how many lanes are wanted, and its RTT counts once.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};

use haul_storage::{Capabilities, Location, Medium, Scheme, Storage};

use crate::Job;
use crate::mirror::MirrorStorage;

/// The links of a transfer; none if both sides are disks.
#[derive(Debug, Default)]
pub struct Links {
    /// One storage of each host that is read.
    sources: Vec<(Host, Arc<dyn Storage>)>,
    /// One of each host that is written.
    destinations: Vec<(Host, Arc<dyn Storage>)>,
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

/// What tells hosts apart. Storages that share one pool of lanes are on the same host.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// Protocol, user, name and port.
    Server(&'static str, Option<String>, String, Option<u16>),
    /// A storage that names no host is one by itself.
    Storage(Alone),
}

/// A storage, by its address, which no other storage gets while this exists.
#[derive(Debug, Clone)]
pub struct Alone(Weak<dyn Storage>);

impl Links {
    /// The links of these jobs.
    pub fn of(jobs: &[Job]) -> Self {
        let mut links = Self::default();
        let mut seen = HashSet::new();
        let (mut read, mut written) = (HashSet::new(), HashSet::new());
        for job in jobs {
            links.read(&job.source, &mut seen, &mut read);
            let storage = &job.destination;
            if storage.capabilities().medium != Medium::Link {
                continue;
            }
            links.can.note(storage.capabilities(), &mut seen, storage);
            // A server's copy of its own file goes over one link.
            let is_source = links.sources.iter().any(|(_, source)| Arc::ptr_eq(source, storage));
            let host = Host::of(storage);
            if written.insert(host.clone()) && !is_source {
                links.destinations.push((host, Arc::clone(storage)));
            }
        }
        links
    }

    /// The links of a reader of one source.
    pub fn to_source(source: &Arc<dyn Storage>) -> Self {
        let (mut links, mut seen, mut read) = (Self::default(), HashSet::new(), HashSet::new());
        links.read(source, &mut seen, &mut read);
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

    /// One storage of each host that is read.
    pub fn sources(&self) -> &[(Host, Arc<dyn Storage>)] {
        &self.sources
    }

    /// One storage of each host that is written.
    pub fn destinations(&self) -> &[(Host, Arc<dyn Storage>)] {
        &self.destinations
    }

    fn read(
        &mut self,
        source: &Arc<dyn Storage>,
        seen: &mut HashSet<usize>,
        read: &mut HashSet<Host>,
    ) {
        for storage in mirrors_of(source) {
            self.can.note(storage.capabilities(), seen, storage);
            let host = Host::of(storage);
            if read.insert(host.clone()) {
                self.sources.push((host, Arc::clone(storage)));
            }
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

impl Host {
    /// The host of a storage. HTTP and WebDAV use the same lanes.
    fn of(storage: &Arc<dyn Storage>) -> Self {
        let Location::Remote { scheme, user, host, port, .. } = storage.location() else {
            return Self::Storage(Alone(Arc::downgrade(storage)));
        };
        let web = |name, usual| {
            let port = port.unwrap_or(usual);
            Self::Server(name, user.clone(), host.to_ascii_lowercase(), Some(port))
        };
        match scheme {
            Scheme::Http | Scheme::Dav => web("http", 80),
            Scheme::Https | Scheme::Davs => web("https", 443),
            other => Self::Server(other.name(), user.clone(), host.clone(), *port),
        }
    }
}

impl Alone {
    fn address(&self) -> usize {
        self.0.as_ptr().cast::<()>() as usize
    }
}

impl PartialEq for Alone {
    fn eq(&self, other: &Self) -> bool {
        self.address() == other.address()
    }
}

impl Eq for Alone {}

impl PartialOrd for Alone {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Alone {
    fn cmp(&self, other: &Self) -> Ordering {
        self.address().cmp(&other.address())
    }
}

impl Hash for Alone {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}

fn address(storage: &Arc<dyn Storage>) -> usize {
    Arc::as_ptr(storage).cast::<()>() as usize
}
