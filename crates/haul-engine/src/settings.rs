//! The resolved settings of a transfer: every option is parsed, every default is filled in.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use haul_storage::{DigestKind, RelPath};

use crate::{Job, Ledger, ModeChanges, Order, Selection};

/// A number that the engine determines by measuring, unless the caller fixes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Auto<T> {
    /// Determined by measuring.
    #[default]
    Auto,
    /// Fixed by the caller.
    Fixed(T),
}

impl<T: Copy> Auto<T> {
    /// The fixed number; `None` for [`Auto::Auto`].
    pub const fn fixed(self) -> Option<T> {
        match self {
            Self::Auto => None,
            Self::Fixed(value) => Some(value),
        }
    }
}

/// What to do with a file that already exists at the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overwrite {
    /// Replace it if it differs from the source (see [`Compare`]), even if it is newer.
    #[default]
    Different,
    /// Keep it.
    Never,
    /// Replace it.
    Always,
    /// Replace it if the source was modified later.
    Newer,
}

/// How [`Overwrite::Different`] compares a file with its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compare {
    /// By size and modification time.
    #[default]
    SizeAndTime,
    /// By size alone.
    Size,
    /// By size and content: files of equal length are read on both sides, except where a server reports their
    /// digests.
    Content,
}

/// Where the old versions of replaced and removed files are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// Paths in `directory` are relative to this directory.
    pub base: RelPath,
    /// A directory of the destination; `None` keeps the old version beside the file.
    pub directory: Option<RelPath>,
    /// Appended to the file name.
    pub suffix: Vec<u8>,
}

/// Sets the owner of all copies instead of preserving the source's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeOwner {
    /// User ID; `None` preserves the source's.
    pub user: Option<u32>,
    /// Group ID; `None` preserves the source's.
    pub group: Option<u32>,
    /// User and group ID of this process, used where the source reports no owner.
    pub own: (u32, u32),
}

impl ChangeOwner {
    /// User and group ID of a copy; `found` is the owner of the source.
    pub(crate) fn apply(self, found: Option<(u32, u32)>) -> (u32, u32) {
        let (user, group) = found.unwrap_or(self.own);
        (self.user.unwrap_or(user), self.group.unwrap_or(group))
    }
}

/// Which metadata of the source is preserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preserve {
    /// Permission bits.
    pub mode: bool,
    /// Modification time.
    pub times: bool,
    /// User and group.
    pub owner: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Hard links: several names of one source file become names of one copy.
    pub hard_links: bool,
}

impl Default for Preserve {
    fn default() -> Self {
        Self { mode: true, times: true, owner: false, xattrs: false, hard_links: true }
    }
}

/// The most that [`Settings::delete`] may remove.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DeleteLimit {
    /// A number of entries.
    Entries(u64),
    /// A percentage of the entries of the destination.
    Percent(f64),
}

/// Which owners this process can set on local files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Owners {
    /// Any owner; if setting it fails, that is an error.
    #[default]
    Any,
    /// Only this user with one of these groups. Of an owner with another user, only the
    /// group is set; with another group, neither. Both cause a warning.
    Own {
        /// User ID.
        user: u32,
        /// IDs of the groups that the user is a member of.
        groups: Vec<u32>,
    },
}

impl Owners {
    /// The closest owner (user and group ID) that can be set; `None` if the group cannot.
    pub(crate) fn settable(&self, owner: (u32, u32)) -> Option<(u32, u32)> {
        match self {
            Self::Any => Some(owner),
            Self::Own { user, groups } => groups.contains(&owner.1).then_some((*user, owner.1)),
        }
    }
}

/// How many lanes are opened, and how fast the window grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WindowProfile {
    /// Few lanes, for shared or fragile servers.
    Safe,
    /// For most servers and paths.
    #[default]
    Default,
    /// More lanes, opened earlier.
    Aggressive,
}

/// Decides which paths are included. An excluded directory is not descended into.
#[derive(Clone)]
pub struct Filter {
    predicate: Arc<Predicate>,
    /// A path of the destination that no source is copied to, and that is not removed.
    spared: Option<RelPath>,
}

type Predicate = dyn Fn(&[u8], bool) -> bool + Send + Sync;

impl Filter {
    /// A filter that includes the paths for which `predicate` returns true. Its arguments are the path below the
    /// source (names joined by `/`) and whether it is a directory.
    pub fn new(predicate: impl Fn(&[u8], bool) -> bool + Send + Sync + 'static) -> Self {
        Self { predicate: Arc::new(predicate), spared: None }
    }

    /// Also excludes what any job would copy to `path` of the destination, or remove there. Sources that go
    /// elsewhere are included, whatever their names.
    #[must_use]
    pub fn sparing(self, path: RelPath) -> Self {
        Self { spared: Some(path), ..self }
    }

    /// Whether `path`, below a source, is included.
    pub fn takes(&self, path: &[u8], is_directory: bool) -> bool {
        (self.predicate)(path, is_directory)
    }

    /// Whether `path`, below the source and the destination of `job`, is included.
    pub(crate) fn takes_in(&self, job: &Job, path: &[u8], is_directory: bool) -> bool {
        !self.spares(job, path) && self.takes(path, is_directory)
    }

    fn spares(&self, job: &Job, path: &[u8]) -> bool {
        let Some(spared) = &self.spared else { return false };
        let root = &job.destination_path;
        spared.as_bytes().strip_prefix(root.as_bytes()).is_some_and(|below| {
            let below = if root.is_root() { Some(below) } else { below.strip_prefix(b"/") };
            below == Some(path)
        })
    }
}

impl Default for Filter {
    fn default() -> Self {
        Self::new(|_, _| true)
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Filter")
    }
}

/// All settings of a transfer; its jobs name the sources and destinations.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Lanes (connections) to a remote storage.
    pub lanes: Auto<usize>,
    /// Bytes in flight.
    pub window: Auto<u64>,
    /// Length of a range (the part of a file that a lane transfers at a time), in bytes.
    pub chunk: Auto<u64>,
    /// Files in flight at once.
    pub files: Auto<usize>,
    /// Bytes of one read on a disk, and of one write there unless it is the default.
    pub block_size: u64,
    /// Ranges that may be queued between reading and writing in a copy between disks.
    pub queue_size: usize,
    /// Maximum bytes in flight or queued, regardless of the window.
    pub memory: u64,
    /// Maximum bytes per second.
    pub bandwidth_limit: Option<u64>,
    /// How many lanes are opened, and how fast the window grows.
    pub profile: WindowProfile,
    /// What to do with files that already exist at the destination.
    pub overwrite: Overwrite,
    /// How existing files are compared with their source.
    pub compare: Compare,
    /// Create nothing that does not already exist at the destination.
    pub existing_only: bool,
    /// Keep the old versions of replaced and removed files.
    pub backup: Option<Backup>,
    /// Remove each source file once its copy is complete. An existing file of the same size is first compared by
    /// content; source files that `overwrite` skips are not removed.
    pub remove_source: bool,
    /// Resume part files of an earlier run.
    pub resume: bool,
    /// Digest to compute of each file while it is copied.
    pub digest: Option<DigestKind>,
    /// Also compute the digest of files that are skipped as unchanged (a manifest needs them).
    pub digest_unchanged: bool,
    /// Read back each file and compare its digest, before it gets its name where the destination allows that.
    pub verify: bool,
    /// Which metadata of the source is preserved.
    pub preserve: Preserve,
    /// Which owners this process can set on local files.
    pub owners: Owners,
    /// Changes to the permission bits of the source.
    pub modes: ModeChanges,
    /// Changes to the owner of the source.
    pub change_owner: Option<ChangeOwner>,
    /// Which paths are included.
    pub filter: Filter,
    /// Which files are included, by size and time.
    pub selection: Selection,
    /// Do not descend into directories where another file system is mounted.
    pub one_file_system: bool,
    /// Report what would be done, and change nothing.
    pub dry_run: bool,
    /// Remove entries from the destination that the source does not have.
    pub delete: bool,
    /// Remove nothing at all if more than this would be removed.
    pub delete_limit: Option<DeleteLimit>,
    /// Remove even if the source is empty.
    pub delete_from_empty: bool,
    /// Remove even if a listing of the source failed.
    pub ignore_errors: bool,
    /// Maximum number of retries in a row without progress, after transient failures.
    pub retries: u32,
    /// The pause before the first retry; it doubles with each further one, up to 30 s, with jitter.
    pub retry_pause: Duration,
    /// Make each file durable before it gets its name.
    pub sync: bool,
    /// Stop if the free space is known not to suffice, see [`haul_storage::Storage::space`].
    pub check_space: bool,
    /// Bytes that have to stay free at the destination.
    pub min_free: Option<u64>,
    /// Space used by all transfers of a run, for those that write to the same file system.
    pub ledger: Ledger,
    /// The order in which files are copied; `None` is the order of the plan.
    pub order: Option<Order>,
    /// Send [`crate::Event::Current`] before each [`crate::Event::Progress`] but the last.
    pub shows_current: bool,
    /// Interval at which [`crate::Event::Progress`] is sent.
    pub progress_interval: Duration,
    /// List the sources ahead of the plan, so that [`crate::Event::Progress`] has complete totals early.
    pub count_ahead: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lanes: Auto::Auto,
            window: Auto::Auto,
            chunk: Auto::Auto,
            files: Auto::Auto,
            block_size: 256 << 10,
            queue_size: 32,
            memory: 256 << 20,
            bandwidth_limit: None,
            profile: WindowProfile::Default,
            overwrite: Overwrite::Different,
            compare: Compare::SizeAndTime,
            existing_only: false,
            backup: None,
            remove_source: false,
            resume: true,
            digest: None,
            digest_unchanged: false,
            verify: false,
            preserve: Preserve::default(),
            owners: Owners::Any,
            modes: ModeChanges::default(),
            change_owner: None,
            filter: Filter::default(),
            selection: Selection::default(),
            one_file_system: false,
            dry_run: false,
            delete: false,
            delete_limit: None,
            delete_from_empty: false,
            ignore_errors: false,
            retries: 5,
            retry_pause: Duration::from_millis(500),
            sync: false,
            check_space: false,
            min_free: None,
            ledger: Ledger::default(),
            order: None,
            shows_current: false,
            progress_interval: Duration::from_millis(200),
            count_ahead: false,
        }
    }
}

impl Settings {
    /// How files are compared: by content if the source is removed, because the copy has to be identical then.
    pub(crate) fn compares(&self) -> Compare {
        if self.remove_source { Compare::Content } else { self.compare }
    }
}
