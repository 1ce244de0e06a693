//! The builder of [`MemoryStorage`]: capabilities, simulated link, and what entries report.

use std::sync::{Arc, Mutex, PoisonError};

use super::link::Link;
use super::shared::{Options, Shared};
use super::tree::{Seen, Tree};
use super::{Faults, MemoryStorage, Pattern, SimulatedLink};
use crate::{Capabilities, Digest, DigestKind, Location, Medium, StoredTimes, Writes};

/// Builds a [`MemoryStorage`].
#[derive(Debug)]
#[must_use]
pub struct Builder {
    location: Location,
    capabilities: Capabilities,
    link: Option<SimulatedLink>,
    tree: Arc<Mutex<Tree>>,
    options: Options,
}

impl MemoryStorage {
    /// An empty storage with all capabilities but digests, and no simulated link.
    pub fn new() -> Arc<Self> {
        Builder::default().build()
    }

    /// A builder of an empty storage with all capabilities but digests, and no simulated link.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            location: Location::Named { name: "memory".to_owned(), path: Vec::new() },
            capabilities: everything(),
            link: None,
            tree: Arc::new(Mutex::new(Tree::new())),
            options: Options {
                seen: Seen {
                    size: true,
                    modified: true,
                    id: true,
                    tag: false,
                    digest: None,
                    times: StoredTimes::ALL,
                },
                read_block: 256 << 10,
                list_batch: 100,
                lists_by_position: false,
                capacity: None,
                pattern: None,
                records: false,
                digest: None,
            },
        }
    }
}

impl Builder {
    /// Sets the location that the storage reports; `memory:` by default.
    pub fn with_location(mut self, location: Location) -> Self {
        self.location = location;
        self
    }

    /// Changes the capabilities. By default the storage has all of them but digests.
    pub fn with_capabilities(mut self, change: impl FnOnce(&mut Capabilities)) -> Self {
        change(&mut self.capabilities);
        self
    }

    /// Simulates a link to the storage: its medium becomes [`Medium::Link`], and calls take tokio time.
    pub fn with_link(mut self, link: SimulatedLink) -> Self {
        self.capabilities.medium = Medium::Link;
        self.link = Some(link);
        self
    }

    /// Makes writers keep records, with the part file in the tree; they keep none by default.
    pub fn with_records(mut self) -> Self {
        self.options.records = true;
        self
    }

    /// Limits the data of all files, without holes, to `bytes`; further writes fail with `NoSpace`.
    pub fn with_capacity(mut self, bytes: u64) -> Self {
        self.options.capacity = Some(bytes);
        self
    }

    /// Sets the maximum length of a block that a read returns, in bytes (at least 1); 256 KiB by default.
    pub fn with_read_block(mut self, bytes: u64) -> Self {
        self.options.read_block = bytes.max(1);
        self
    }

    /// Sets the number of entries in a batch of a listing (at least 1); 100 by default.
    pub fn with_list_batch(mut self, entries: usize) -> Self {
        self.options.list_batch = entries.max(1);
        self
    }

    /// Listings read each batch from a position in the directory, when it is consumed: what is removed meanwhile shifts
    /// the rest, and as many entries are left out. By default, a listing shows the directory as it was at its beginning.
    pub fn listing_by_position(mut self) -> Self {
        self.options.lists_by_position = true;
        self
    }

    /// Sets whether entries and identities have a modification time; true by default.
    pub fn with_modified(mut self, shown: bool) -> Self {
        self.options.seen.modified = shown;
        self
    }

    /// Sets range and precision of the modification times that entries show, beyond what the capabilities declare.
    pub fn with_stored_times(mut self, times: StoredTimes) -> Self {
        self.options.seen.times = times;
        self
    }

    /// Reports no file sizes, like a server that generates its files.
    pub fn without_sizes(mut self) -> Self {
        self.options.seen.size = false;
        self
    }

    /// Ignores the case of names, like FAT.
    pub fn ignoring_case(self) -> Self {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner).ignores_case = true;
        self
    }

    /// Sets whether entries and identities have a file id; true by default.
    pub fn with_ids(mut self, shown: bool) -> Self {
        self.options.seen.id = shown;
        self
    }

    /// Sets whether entries and identities have a version tag; false by default.
    pub fn with_tags(mut self, shown: bool) -> Self {
        self.options.seen.tag = shown;
        self
    }

    /// Reports digests of both kinds. By default the storage reports none, like a disk.
    pub fn with_digests(mut self) -> Self {
        self.capabilities.digests = vec![DigestKind::Blake3, DigestKind::Sha256];
        self
    }

    /// Makes [`Storage::digest`](crate::Storage::digest) report this digest for every file, whatever its content;
    /// needs [`Self::with_digests`].
    pub fn with_false_digest(mut self, digest: Digest) -> Self {
        self.options.digest = Some(digest);
        self
    }

    /// Sets whether entries of files have a digest, and of which kind; by default they have none.
    pub fn with_listed_digests(mut self, kind: Option<DigestKind>) -> Self {
        self.options.seen.digest = kind;
        self
    }

    /// Checks written files against the pattern of `seed` instead of storing them; a write of other bytes fails with
    /// `Corrupt`. See also [`MemoryStorage::expect_pattern`].
    pub fn expect_pattern(mut self, seed: u64) -> Self {
        self.options.pattern = Some(Pattern::new(seed));
        self
    }

    /// Shares the tree of `other`, including locks and open part files. Faults, link and capabilities stay separate, so
    /// the new storage acts as another connection or another run.
    pub fn sharing(mut self, other: &MemoryStorage) -> Self {
        self.tree = Arc::clone(&other.shared.tree);
        self
    }

    /// Builds the storage.
    pub fn build(self) -> Arc<MemoryStorage> {
        let Self { location, capabilities, link, tree, options } = self;
        let link = link.map(|link| Link::new(link, capabilities.max_lanes));
        let faults = Faults::default();
        let sinks = Mutex::default();
        let shared = Shared { location, capabilities, link, tree, faults, options, sinks };
        Arc::new(MemoryStorage { shared: Arc::new(shared) })
    }
}

fn everything() -> Capabilities {
    Capabilities {
        ranged_reads: true,
        writes: Writes::AnyOrder,
        rename: true,
        conditional_commits: true,
        server_copy: true,
        symlinks: true,
        hard_links: true,
        sync: true,
        resume: true,
        lock: true,
        times: true,
        mode: true,
        owner: true,
        xattrs: true,
        pipelined_reads: true,
        pipelined_writes: true,
        complete_lists: true,
        whole_limit: 64 << 10,
        ..Capabilities::least(Medium::Disk)
    }
}
