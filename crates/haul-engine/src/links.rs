//! The hosts that a transfer reads from and writes to.
//!
//! One host may have thousands of sources, and one file may be on several hosts (mirrors). On each side, a host is one
//! link: its lanes are requested once, and its RTT counts once.

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
    can: LinkCapabilities,
}

/// The combined capabilities of the storages on all links.
#[derive(Debug, Clone, Copy)]
pub struct LinkCapabilities {
    /// The lowest limit on lanes of any of them.
    pub max_lanes: Option<usize>,
    /// True if all accept further read requests on a busy lane.
    pub pipelined_reads: bool,
    /// The same for writes.
    pub pipelined_writes: bool,
    /// True if reads of any of them should be long.
    pub long_reads: bool,
    /// True if all limit the bytes in flight of reads themselves.
    pub bounded_reads: bool,
    /// The same for writes.
    pub bounded_writes: bool,
}

impl Default for LinkCapabilities {
    fn default() -> Self {
        Self {
            max_lanes: None,
            pipelined_reads: true,
            pipelined_writes: true,
            long_reads: false,
            bounded_reads: true,
            bounded_writes: true,
        }
    }
}

/// Identifies a host. Storages on a server that share one lane pool are on the same host.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// Protocol, user, name and port.
    Server(&'static str, Option<String>, String, Option<u16>),
    /// A peer, by the digest of its ticket.
    Peer([u8; 32]),
    /// A storage without a host name counts as a host of its own.
    Storage(StorageAddress),
}

/// Identifies a storage by its address, which is not reused while this exists.
#[derive(Debug, Clone)]
pub struct StorageAddress(Weak<dyn Storage>);

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
            // A copy within one storage goes over one link.
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

    /// The links of a writer of one destination.
    pub fn to_destination(destination: &Arc<dyn Storage>) -> Self {
        let (mut links, mut seen) = (Self::default(), HashSet::new());
        if destination.capabilities().medium == Medium::Link {
            links.can.note(destination.capabilities(), &mut seen, destination);
            links.destinations.push((Host::of(destination), Arc::clone(destination)));
        }
        links
    }

    /// Whether both sides are disks.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty() && self.destinations.is_empty()
    }

    /// The combined capabilities of the storages on all links.
    pub const fn can(&self) -> LinkCapabilities {
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

impl LinkCapabilities {
    fn note(&mut self, can: &Capabilities, seen: &mut HashSet<usize>, storage: &Arc<dyn Storage>) {
        if !seen.insert(address(storage)) {
            return;
        }
        self.max_lanes = self.max_lanes.into_iter().chain(can.max_lanes).min();
        self.pipelined_reads &= can.pipelined_reads;
        self.pipelined_writes &= can.pipelined_writes;
        self.long_reads |= can.long_reads;
        self.bounded_reads &= can.bounded_reads;
        self.bounded_writes &= can.bounded_writes;
    }
}

/// The storages that a source is read from (its mirrors, or itself), as far as they are on links.
fn mirrors_of(source: &Arc<dyn Storage>) -> impl Iterator<Item = &Arc<dyn Storage>> {
    let mirrors = MirrorStorage::of(&**source);
    let own = mirrors.is_none().then_some(source);
    let mirrors = mirrors.into_iter().flat_map(MirrorStorage::storages);
    own.into_iter().chain(mirrors).filter(|one| one.capabilities().medium == Medium::Link)
}

impl Host {
    /// The host of a storage. HTTP and WebDAV use the same lanes.
    fn of(storage: &Arc<dyn Storage>) -> Self {
        let (scheme, user, host, port) = match storage.location() {
            Location::Remote { scheme, user, host, port, .. } => (scheme, user, host, port),
            Location::Peer { ticket, .. } => {
                return Self::Peer(blake3::hash(ticket.expose().as_bytes()).into());
            }
            _ => return Self::Storage(StorageAddress(Arc::downgrade(storage))),
        };
        let web = |name, default_port| {
            let port = port.unwrap_or(default_port);
            Self::Server(name, user.clone(), host.to_ascii_lowercase(), Some(port))
        };
        match scheme {
            Scheme::Http | Scheme::Dav => web("http", 80),
            Scheme::Https | Scheme::Davs => web("https", 443),
            other => Self::Server(other.name(), user.clone(), host.clone(), *port),
        }
    }
}

impl StorageAddress {
    fn address(&self) -> usize {
        self.0.as_ptr().cast::<()>() as usize
    }
}

impl PartialEq for StorageAddress {
    fn eq(&self, other: &Self) -> bool {
        self.address() == other.address()
    }
}

impl Eq for StorageAddress {}

impl PartialOrd for StorageAddress {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for StorageAddress {
    fn cmp(&self, other: &Self) -> Ordering {
        self.address().cmp(&other.address())
    }
}

impl Hash for StorageAddress {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}

fn address(storage: &Arc<dyn Storage>) -> usize {
    Arc::as_ptr(storage).cast::<()>() as usize
}

#[cfg(test)]
mod tests {
    use haul_storage::memory::MemoryStorage;

    use super::*;

    /// Formerly, each directory of a peer was a host, and the lanes of the last one replaced those of the others.
    #[test]
    fn directories_of_one_peer_are_on_one_host() {
        let at = |text: &str| -> Arc<dyn Storage> {
            MemoryStorage::builder().with_location(Location::parse(text).unwrap()).build()
        };
        let ticket = format!("haul1{}", "a".repeat(60));
        let (one, other) = (at(&format!("{ticket}/a")), at(&format!("{ticket}/b")));
        assert!(matches!(one.location(), Location::Peer { .. }));
        assert!(Host::of(&one) == Host::of(&other));
        assert!(Host::of(&one) != Host::of(&at(&format!("{ticket}b/a"))));
    }
}
