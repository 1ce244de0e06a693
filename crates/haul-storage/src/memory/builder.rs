//! What kind of storage to build.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::link::Link;
use super::shared::{Options, Shared};
use super::tree::{Seen, Tree};
use super::{Faults, MemoryStorage, Pattern, SimulatedLink};
use crate::{Capabilities, KeptTimes, Location, Medium, Writes};

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
    /// An empty storage that can do everything and has no link before it.
    pub fn new() -> Arc<Self> {
        Builder::default().build()
    }

    /// An empty storage with other properties.
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
                    times: KeptTimes::ALL,
                },
                read_block: 256 << 10,
                list_batch: 100,
                capacity: None,
                pattern: None,
                journal_dir: None,
            },
        }
    }
}

impl Builder {
    /// Where it claims to be; `memory:` by default.
    pub fn with_location(mut self, location: Location) -> Self {
        self.location = location;
        self
    }

    /// Changes what it can do. From the start it can do everything there is.
    pub fn with_capabilities(mut self, change: impl FnOnce(&mut Capabilities)) -> Self {
        change(&mut self.capabilities);
        self
    }

    /// Puts a link before it: its medium is then a link, and every call takes tokio time.
    pub fn with_link(mut self, link: SimulatedLink) -> Self {
        self.capabilities.medium = Medium::Link;
        self.link = Some(link);
        self
    }

    /// Makes `WriteAt::journal_path` name a file in this directory, which has to exist. The storage
    /// itself never touches that file.
    pub fn with_journal_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.options.journal_dir = Some(directory.into());
        self
    }

    /// `NoSpace` once all files together hold this many bytes.
    pub fn with_capacity(mut self, bytes: u64) -> Self {
        self.options.capacity = Some(bytes);
        self
    }

    /// The longest block that a read gives, in bytes; 256 KiB by default.
    pub fn with_read_block(mut self, bytes: u64) -> Self {
        self.options.read_block = bytes.max(1);
        self
    }

    /// How many entries a listing gives at once; 100 by default.
    pub fn with_list_batch(mut self, entries: usize) -> Self {
        self.options.list_batch = entries.max(1);
        self
    }

    /// Whether entries and identities have a modification time; yes by default.
    pub fn with_modified(mut self, shown: bool) -> Self {
        self.options.seen.modified = shown;
        self
    }

    /// Times are kept like this, whatever the capabilities declare.
    pub fn with_kept_times(mut self, times: KeptTimes) -> Self {
        self.options.seen.times = times;
        self
    }

    /// Lengths of files are not reported, as by a server that generates them.
    pub fn without_sizes(mut self) -> Self {
        self.options.seen.size = false;
        self
    }

    /// Small letters and capitals are the same in names, as on FAT.
    pub fn ignoring_case(self) -> Self {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner).ignores_case = true;
        self
    }

    /// Whether entries and identities have a file id; yes by default.
    pub fn with_ids(mut self, shown: bool) -> Self {
        self.options.seen.id = shown;
        self
    }

    /// Whether entries and identities have a version tag; no by default.
    pub fn with_tags(mut self, shown: bool) -> Self {
        self.options.seen.tag = shown;
        self
    }

    /// Files written through it have to have this content, and are not kept: a write of anything
    /// else is `Corrupt`. See also [`MemoryStorage::expect_pattern`].
    pub fn expect_pattern(mut self, seed: u64) -> Self {
        self.options.pattern = Some(Pattern::new(seed));
        self
    }

    /// It shows the same tree as `other`, locks and held part files included, with faults, link and
    /// capabilities of its own: another connection, or another run.
    pub fn sharing(mut self, other: &MemoryStorage) -> Self {
        self.tree = Arc::clone(&other.shared.tree);
        self
    }

    /// The storage.
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
        whole_limit: 64 << 10,
        ..Capabilities::least(Medium::Disk)
    }
}
