//! What a transfer is asked to do, resolved: no strings, no defaults left to find.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use haul_storage::{DigestKind, RelPath};

use crate::{Ledger, ModeChanges, Order, Selection};

/// A number that the engine finds by measuring, unless it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Auto<T> {
    /// The engine decides.
    #[default]
    Auto,
    /// This and nothing else.
    Fixed(T),
}

impl<T: Copy> Auto<T> {
    /// The given number, if there is one.
    pub const fn fixed(self) -> Option<T> {
        match self {
            Self::Auto => None,
            Self::Fixed(value) => Some(value),
        }
    }
}

/// What to do with a file that is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overwrite {
    /// Replace it if size or modification time differ, whichever is newer.
    #[default]
    Different,
    /// Leave it.
    Never,
    /// Replace it.
    Always,
    /// Replace it if the source was modified later.
    Newer,
}

/// How [`Overwrite::Different`] finds out whether a file differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compare {
    /// By size and modification time.
    #[default]
    SizeAndTime,
    /// By size alone.
    Size,
    /// By size and content: files of equal length are read on both sides.
    Content,
}

/// Where files go that are replaced or removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// Relative paths in `directory` are those below this one.
    pub base: RelPath,
    /// A directory of the destination, or beside the file.
    pub directory: Option<RelPath>,
    /// What is added to the name.
    pub suffix: Vec<u8>,
}

/// An owner for all copies, in the place of the source's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeOwner {
    /// The user, or that of the source.
    pub user: Option<u32>,
    /// The group, or that of the source.
    pub group: Option<u32>,
    /// User and group of this process, where the source has none.
    pub own: (u32, u32),
}

impl ChangeOwner {
    /// The owner of a copy.
    pub(crate) fn apply(self, found: Option<(u32, u32)>) -> (u32, u32) {
        let (user, group) = found.unwrap_or(self.own);
        (self.user.unwrap_or(user), self.group.unwrap_or(group))
    }
}

/// What a copy keeps besides its bytes.
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
    /// Names of one file stay names of one file.
    pub hard_links: bool,
}

impl Default for Preserve {
    fn default() -> Self {
        Self { mode: true, times: true, owner: false, xattrs: false, hard_links: true }
    }
}

/// How much [`Settings::delete`] may remove.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DeleteLimit {
    /// So many entries.
    Entries(u64),
    /// So many of a hundred entries of the destination.
    Percent(f64),
}

/// Which owners can be set on files of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Owners {
    /// Whichever; a refusal is a failure.
    #[default]
    Any,
    /// Files belong to this user, and to one of these groups. Another owner is not set, which is a warning.
    Own {
        /// The user.
        user: u32,
        /// The groups that the user is in.
        groups: Vec<u32>,
    },
}

impl Owners {
    /// What can be set of user and group.
    pub(crate) fn settable(&self, owner: (u32, u32)) -> Option<(u32, u32)> {
        match self {
            Self::Any => Some(owner),
            Self::Own { user, groups } => groups.contains(&owner.1).then_some((*user, owner.1)),
        }
    }
}

/// How boldly the window opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WindowProfile {
    /// Few lanes: shared or fragile servers.
    Safe,
    /// What suits most.
    #[default]
    Default,
    /// More lanes, sooner.
    Aggressive,
}

/// Says whether a path takes part. Called with the path below the source (bytes joined by `/`) and
/// whether it is a directory; an excluded directory is not entered.
#[derive(Clone)]
pub struct Filter(Arc<Judge>);

type Judge = dyn Fn(&[u8], bool) -> bool + Send + Sync;

impl Filter {
    /// A filter that asks `judge`.
    pub fn new(judge: impl Fn(&[u8], bool) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(judge))
    }

    /// Whether `path` takes part.
    pub fn takes(&self, path: &[u8], is_directory: bool) -> bool {
        (self.0)(path, is_directory)
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

/// Everything a transfer needs to know besides what to move.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Lanes to a remote storage.
    pub lanes: Auto<usize>,
    /// Bytes in flight.
    pub window: Auto<u64>,
    /// Bytes of a range (what one lane is handed at a time).
    pub chunk: Auto<u64>,
    /// Files in flight at once.
    pub files: Auto<usize>,
    /// Bytes of one read or write on a disk.
    pub block_size: u64,
    /// Blocks between two stages of a disk copy.
    pub queue_size: usize,
    /// The most bytes that may be in flight or waiting, whatever the window says.
    pub memory: u64,
    /// Bytes per second, at most.
    pub bandwidth_limit: Option<u64>,
    /// How boldly the window opens.
    pub profile: WindowProfile,
    /// What to do with files that are there already.
    pub overwrite: Overwrite,
    /// How it is found out whether they differ.
    pub compare: Compare,
    /// Make nothing that the destination does not have.
    pub existing_only: bool,
    /// Keep what is replaced or removed.
    pub backup: Option<Backup>,
    /// Remove each file of the source once its copy is complete. A file that the destination has already, as far as
    /// size and time say, is compared by content first; what `overwrite` leaves alone stays.
    pub remove_source: bool,
    /// Continue part files of an earlier run.
    pub resume: bool,
    /// Digest made of every file on the way.
    pub digest: Option<DigestKind>,
    /// Digest also the files that are skipped as unchanged (a manifest needs them).
    pub digest_unchanged: bool,
    /// Read back what was written and compare before it gets its name.
    pub verify: bool,
    /// What a copy keeps besides its bytes.
    pub preserve: Preserve,
    /// Which owners can be set on files of a disk.
    pub owners: Owners,
    /// What is changed in the modes of the source.
    pub modes: ModeChanges,
    /// What is changed in the owners of the source.
    pub change_owner: Option<ChangeOwner>,
    /// Which paths take part.
    pub filter: Filter,
    /// Which files take part, by size and time.
    pub selection: Selection,
    /// Do not enter directories where another file system is mounted.
    pub one_file_system: bool,
    /// Say what would be done, and do nothing.
    pub dry_run: bool,
    /// Remove from the destination what the source does not have.
    pub delete: bool,
    /// Remove nothing at all if it would be more than this.
    pub delete_limit: Option<DeleteLimit>,
    /// Remove also when the source has nothing in it.
    pub delete_from_empty: bool,
    /// Remove also when a listing of the source failed.
    pub ignore_errors: bool,
    /// How often an operation that may succeed later is tried again.
    pub retries: u32,
    /// The first pause before trying again; it doubles each time, with jitter.
    pub retry_pause: Duration,
    /// Make each file durable before it gets its name.
    pub sync: bool,
    /// Copy nothing that is known not to fit, see [`haul_storage::Storage::space`].
    pub check_space: bool,
    /// Bytes that have to stay free at the destination.
    pub min_free: Option<u64>,
    /// The transfers of a run that may write to one file system.
    pub ledger: Ledger,
    /// What is copied first.
    pub order: Option<Order>,
    /// Send [`crate::Event::Current`] with each [`crate::Event::Progress`].
    pub shows_current: bool,
    /// How often [`crate::Event::Progress`] is sent.
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
    /// How files are compared. What is removed from the source has to be at the destination byte for byte.
    pub(crate) fn compares(&self) -> Compare {
        if self.remove_source { Compare::Content } else { self.compare }
    }
}
