//! The storage traits: an opened location ([`Storage`]), a file opened for reading ([`ReadAt`]), and a file being
//! written ([`WriteAt`]).
//!
//! They have no default methods, so that no backend and no wrapper forgets one. Conveniences are in [`StorageExt`].
//!
//! Reads and writes are positional, and all methods may be called concurrently. Dropping a future cancels its
//! operation as soon as possible; a cancelled write never leaves an incomplete file under its final name.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::BoxStream;

use crate::{
    Block, Capabilities, Digest, DigestKind, Entry, Error, ErrorKind, Held, Identity, LinkPath,
    Location, Metadata, Range, RangeSet, RelPath, Result, Retry, SourceVersion, Space,
};

/// Batches of directory entries, in no particular order. An `Err` either concerns one entry, and the stream
/// continues, or it is the last item.
pub type EntryStream = BoxStream<'static, Result<Vec<Entry>>>;

/// Consecutive blocks of one range, in order.
pub type BlockStream = BoxStream<'static, Result<Block>>;

/// An opened location. All paths are relative to its root. With [`Capabilities::symlinks`], symbolic links in a path
/// are not followed.
#[async_trait]
pub trait Storage: Any + Debug + Send + Sync {
    /// The location of the root.
    fn location(&self) -> &Location;

    /// The capabilities of this storage.
    fn capabilities(&self) -> &Capabilities;

    /// Sets the desired number of open lanes. The storage opens and closes lanes in the background, within its
    /// limits. A disk ignores it.
    fn set_lanes(&self, lanes: usize);

    /// The current state of the link.
    fn link(&self) -> LinkStatus;

    /// Describes one entry, like `lstat`: a symbolic link is not followed.
    ///
    /// # Errors
    /// `NotFound` if nothing exists at `path`.
    async fn stat(&self, path: &RelPath) -> Result<Entry>;

    /// `stat` for several paths; the results are in the order of `paths`. On a disk this is one job, over a link the
    /// requests are in flight together.
    async fn stat_many(&self, paths: Vec<RelPath>) -> Vec<Result<Entry>>;

    /// Lists a directory, without `.` and `..`. A name that [`RelPath`] refuses is an `Err` item that contains it.
    async fn list(&self, path: &RelPath) -> Result<EntryStream>;

    /// Creates one directory. It is created with at most the permission bits `mode`, if the storage has permission
    /// bits; `None` is the default of the storage.
    ///
    /// # Errors
    /// `AlreadyExists` if anything exists at `path`, `NotFound` if its parent does not exist.
    async fn create_dir_as(&self, path: &RelPath, mode: Option<u32>) -> Result<()>;

    /// Creates a link. With `replace`, it atomically replaces a file or link at `path`.
    async fn create_link(&self, path: &RelPath, link: &LinkKind, replace: bool) -> Result<()>;

    /// Removes a file, a link, or an empty directory.
    ///
    /// # Errors
    /// `NotEmpty` for a directory that is not empty.
    async fn remove(&self, path: &RelPath) -> Result<()>;

    /// Renames an entry. Replaces a file at `to` if `capabilities().rename`.
    async fn rename(&self, from: &RelPath, to: &RelPath) -> Result<()>;

    /// Copies a file within the storage without transferring its bytes through this process. `to` must not exist.
    ///
    /// # Errors
    /// `Unsupported` without `capabilities().server_copy`.
    async fn copy(&self, from: &RelPath, to: &RelPath) -> Result<()>;

    /// The digest of a file, as a server reports it without sending the content. `None` if it reports none of
    /// this kind. A disk reports none: its files are read.
    ///
    /// The digest is the server's claim, and may belong to an earlier version of the file. The server may read
    /// the whole file to compute it.
    ///
    /// # Errors
    /// `NotFound` if nothing exists at `path`, and errors of the link. A server without digests returns `None`.
    async fn digest(&self, path: &RelPath, kind: DigestKind) -> Result<Option<Digest>>;

    /// All metadata that can be set on a copy of the entry, including extended attributes.
    async fn metadata(&self, path: &RelPath) -> Result<Metadata>;

    /// Sets metadata. Fields that the storage does not support according to its capabilities are silently ignored.
    async fn set_metadata(&self, path: &RelPath, metadata: &Metadata) -> Result<()>;

    /// Opens a file for reading.
    async fn open(&self, path: &RelPath) -> Result<Arc<dyn ReadAt>>;

    /// Opens a file whose range `first` will be read next, once: as far as the protocol allows, it is requested in the
    /// same flight as the open, so that its bytes arrive after one RTT. Without effect if `first` is empty. It is a
    /// hint: any range may be read, as after [`Storage::open`].
    async fn open_reading(&self, path: &RelPath, first: Range) -> Result<Arc<dyn ReadAt>>;

    /// A hint that `path` will soon be passed to `stat`, and to `create` unless the same file exists. The storage may
    /// send the necessary requests now. A disk ignores it.
    fn prefetch(&self, path: &RelPath);

    /// The name of the part file that [`Storage::create`] resumes for `path`. It is in the same directory.
    fn part_name(&self, path: &RelPath) -> Vec<u8>;

    /// Creates a part file for `path`, or resumes an existing one with `options.resume`. One that cannot be resumed is
    /// emptied; [`WriteAt::held`] then gives the reason.
    ///
    /// # Errors
    /// `Busy` if another run writes the part file.
    async fn create(&self, path: &RelPath, options: &CreateOptions) -> Result<Arc<dyn WriteAt>>;

    /// Reads a small file at once: opens it, reads it, checks that it did not change, and closes it.
    ///
    /// # Errors
    /// `Changed` if the file is longer than `limit` bytes or changed meanwhile.
    async fn read_whole(&self, path: &RelPath, limit: u64) -> Result<Whole>;

    /// Writes a small file atomically: it appears complete under its name or not at all.
    async fn write_whole(
        &self,
        path: &RelPath,
        bytes: Bytes,
        options: &CommitOptions,
    ) -> Result<()>;

    /// `read_whole` for several files; the results are in the order of `paths`. On a disk this is one job, over a link
    /// the requests are in flight together.
    async fn read_many(&self, paths: Vec<RelPath>, limit: u64) -> Vec<Result<Whole>>;

    /// `write_whole` for several files; the results are in the order of `files`. Each file is written atomically, but
    /// not all of them together.
    async fn write_many(&self, files: Vec<SmallFile>) -> Vec<Result<()>>;

    /// The free space of the file system that contains `path`, or its nearest existing ancestor. `None` if the storage
    /// cannot determine it.
    async fn space(&self, path: &RelPath) -> Result<Option<Space>>;

    /// Bytes allocated for a file, without holes but including reserved space. `None` if the storage cannot determine
    /// it.
    async fn allocated(&self, path: &RelPath) -> Result<Option<u64>>;

    /// Locks `path` (a file or a tree) against other runs of haul until the returned lock is dropped.
    ///
    /// # Errors
    /// `Busy` if another run holds the lock, `Unsupported` without `capabilities().lock`.
    async fn lock(&self, path: &RelPath) -> Result<Lock>;
}

/// A file opened for reading.
#[async_trait]
pub trait ReadAt: Any + Debug + Send + Sync {
    /// The version that was opened.
    fn identity(&self) -> &Identity;

    /// Whether a read may start at any offset. Even with `ranged_reads`, a server may refuse ranges for a single file,
    /// possibly only on the first request for one; the file is then read from its start.
    fn is_ranged(&self) -> bool;

    /// The metadata that can be set on a copy, as of opening, including extended attributes.
    async fn metadata(&self) -> Result<Metadata>;

    /// The current version of the file. If it differs from [`ReadAt::identity`], the data read may be a mixture of
    /// both versions.
    async fn recheck(&self) -> Result<Identity>;

    /// A reader of the current version, if the file that was opened is longer by now. `None` if it is not, or if the
    /// storage cannot distinguish it from another file that took its name.
    async fn grown(&self) -> Result<Option<Arc<dyn ReadAt>>>;

    /// Reads a range in consecutive blocks. The stream is shorter than the range only at the end of the file.
    /// Dropping the stream cancels the rest of the read.
    fn read_at(&self, range: Range) -> BlockStream;

    /// Like [`ReadAt::read_at`], for a range whose end may be lowered while it is read: the stream may end at offset
    /// `end`. Useful with [`Capabilities::long_reads`], where a server would otherwise send more than is needed; other
    /// storages ignore `end`.
    fn read_until(&self, range: Range, end: &Arc<AtomicU64>) -> BlockStream;

    /// The first range of data at or after `from`; `None` if only a hole is left. A storage without knowledge of holes
    /// returns everything up to the end of the file.
    async fn next_data(&self, from: u64) -> Result<Option<Range>>;
}

/// A file that is being written. It gets its name on [`WriteAt::commit`].
#[async_trait]
pub trait WriteAt: Any + Debug + Send + Sync {
    /// What the part file already held at `create`, from earlier runs with the same [`CreateOptions::source`].
    fn held(&self) -> &Held;

    /// Records ranges that have been written, so that a later run with the same source need not write them again, even
    /// if this process is killed now. Does nothing if [`WriteAt::held`] is [`Held::Unrecorded`]. Each call is a small
    /// write to a file, so record about a mebibyte at a time.
    async fn record(&self, ranges: RangeSet) -> Result<()>;

    /// Writes a block. Ranges that are never written read as zeros.
    async fn write_at(&self, offset: u64, block: Block) -> Result<()>;

    /// Copies a range of `source` to the same offset without reading it into this process. Returns false, and writes
    /// nothing, if that is not possible with this source.
    async fn copy_from(&self, source: &dyn ReadAt, range: Range) -> Result<bool>;

    /// Makes everything written so far durable, and marks the records up to now as synced. After a reboot or a
    /// remount, only records marked as synced count. Does nothing without [`Capabilities::sync`].
    async fn sync(&self) -> Result<()>;

    /// Opens the part file for reading. With `uncached`, reads bypass the page cache as far as the system allows.
    ///
    /// # Errors
    /// `Unsupported` if the file cannot be read before its commit.
    async fn reopen(&self, uncached: bool) -> Result<Arc<dyn ReadAt>>;

    /// Sets the length and metadata of the file and gives it its name. It never appears incomplete under its name.
    /// Its records are removed.
    async fn commit(&self, size: u64, options: &CommitOptions) -> Result<()>;

    /// Stops writing. With `keep`, the part file and its records stay, so that a later run can resume it; otherwise
    /// they are removed.
    async fn abort(&self, keep: bool) -> Result<()>;
}

/// The kind and target of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkKind {
    /// A symbolic link with this target, which is not interpreted.
    Symbolic(Vec<u8>),
    /// A hard link to a file of this storage.
    Hard(RelPath),
}

/// Options for creating a part file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CreateOptions {
    /// The source. Without it, nothing is recorded.
    pub source: Option<SourceVersion>,
    /// Resume an existing part file instead of emptying it. With a `source`, this requires a record that the
    /// bytes come from that source; without one, the caller has to know the content.
    pub resume: bool,
    /// The final length in bytes, for reserving space. Reserved space never counts as progress.
    pub size: Option<u64>,
    /// Do not reserve space, because the file has holes.
    pub sparse: bool,
    /// What the commit may replace, as its [`CommitOptions`] will have it. Only a storage that writes under the final
    /// name, because its server cannot rename, needs it before the commit; it then fails with the errors that a commit
    /// would have.
    pub replaces: Replaces,
}

/// What an upload may replace under its final name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Replaces {
    /// Any file.
    #[default]
    Any,
    /// No file.
    Nothing,
    /// Only this version ([`CommitOptions::expected`]).
    Version(Identity),
}

impl Replaces {
    /// The only version that may be replaced; `None` if any may be, or none.
    pub const fn version(&self) -> Option<&Identity> {
        match self {
            Self::Version(version) => Some(version),
            Self::Any | Self::Nothing => None,
        }
    }
}

/// Options for giving a file its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitOptions {
    /// Metadata to set on the file.
    pub metadata: Metadata,
    /// Replace an existing file of that name; without it, an existing file is an `AlreadyExists` error.
    pub replace: bool,
    /// Make the file durable before it gets its name.
    pub sync: bool,
    /// With `replace`, the only version that may be replaced, as [`Storage::stat`] has described it. If the target is
    /// another version or does not exist, a storage with [`Capabilities::conditional_commits`] fails with the error of
    /// [`CommitOptions::check`]; others ignore it. Without `replace` it has no meaning.
    pub expected: Option<Identity>,
}

impl CommitOptions {
    /// Compares the version at the target with the expected one, just before a storage replaces it. `found` is `None`
    /// if nothing exists there.
    ///
    /// # Errors
    /// `Changed` with [`Retry::Never`] if it is not the version that may be replaced.
    pub fn check(&self, found: Option<&Identity>) -> Result<()> {
        match self.replaced() {
            Some(expected) if found != Some(expected) => Err(Self::refusal()),
            _ => Ok(()),
        }
    }

    /// The only version that the commit may replace; `None` if it may replace any, or none.
    pub fn replaced(&self) -> Option<&Identity> {
        self.expected.as_ref().filter(|_| self.replace)
    }

    /// What the commit may replace.
    pub fn replaces(&self) -> Replaces {
        match (self.replace, &self.expected) {
            (false, _) => Replaces::Nothing,
            (true, None) => Replaces::Any,
            (true, Some(version)) => Replaces::Version(version.clone()),
        }
    }

    /// The error of a commit whose target is not the expected version.
    pub fn refusal() -> Error {
        Error::new(ErrorKind::Changed, "commit")
            .because("another version than the expected one is there")
            .with_retry(Retry::Never)
    }
}

/// A small file that was read at once.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Whole {
    /// The content.
    pub bytes: Bytes,
    /// The version that was read.
    pub identity: Identity,
    /// The metadata that can be set on a copy. Extended attributes may be missing.
    pub metadata: Metadata,
}

impl Whole {
    /// A file that was read at once.
    pub const fn new(bytes: Bytes, identity: Identity, metadata: Metadata) -> Self {
        Self { bytes, identity, metadata }
    }
}

/// A small file to write at once.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SmallFile {
    /// Its path.
    pub path: RelPath,
    /// The content.
    pub bytes: Bytes,
    /// Metadata, and whether to replace and sync.
    pub options: CommitOptions,
}

impl SmallFile {
    /// A file to write at `path`.
    pub const fn new(path: RelPath, bytes: Bytes, options: CommitOptions) -> Self {
        Self { path, bytes, options }
    }
}

/// The state of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkStatus {
    /// Lanes that are open.
    pub open: usize,
    /// Lanes that are being opened.
    pub opening: usize,
    /// Lanes that have been refused or lost so far.
    pub refused: usize,
    /// The shortest RTT measured; `None` before the first measurement, and for a disk.
    pub rtt: Option<Duration>,
    /// How long the first lane took to open.
    pub connect: Option<Duration>,
    /// How much the current RTT exceeds [`Self::rtt`], because packets queue before the bottleneck or the path has
    /// become longer; `None` if it cannot be measured.
    pub queueing: Option<Duration>,
    /// The path of the open lane that was opened last. `None` without one, and where there is only one path, as to a
    /// server.
    pub path: Option<LinkPath>,
}

impl LinkStatus {
    /// The combined state of links to alternative hosts: bytes may come from any of them, so the longest RTT counts,
    /// and the path has a queue only if each link has one.
    #[must_use]
    pub fn beside(self, other: Self) -> Self {
        Self {
            open: self.open.max(other.open),
            opening: self.opening.max(other.opening),
            refused: self.refused + other.refused,
            rtt: self.rtt.max(other.rtt),
            connect: self.connect.max(other.connect),
            queueing: match (self.queueing, other.queueing) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            },
            path: self.path.or(other.path),
        }
    }

    /// The combined state of two links in series: the one with fewer lanes decides, and the RTTs add up.
    #[must_use]
    pub fn behind(self, other: Self) -> Self {
        Self {
            open: self.open.min(other.open),
            opening: self.opening.max(other.opening),
            refused: self.refused + other.refused,
            rtt: match (self.rtt, other.rtt) {
                (Some(one), Some(other)) => Some(one + other),
                (one, other) => one.or(other),
            },
            connect: self.connect.max(other.connect),
            queueing: self.queueing.max(other.queueing),
            path: self.path.or(other.path),
        }
    }
}

/// A lock against other runs of haul, released when dropped.
#[derive(Debug)]
pub struct Lock {
    _held: Box<dyn Guard>,
}

trait Guard: Debug + Send + Sync {}
impl<T: Debug + Send + Sync> Guard for T {}

impl Lock {
    /// A lock that is released by dropping `held` (an open file, for example).
    pub fn new(held: impl Debug + Send + Sync + 'static) -> Self {
        Self { _held: Box::new(held) }
    }
}

/// Conveniences over any storage.
#[async_trait]
pub trait StorageExt: Storage {
    /// The error of an operation that this storage does not support.
    fn unsupported(&self, operation: &'static str, path: &RelPath) -> Error {
        Error::new(ErrorKind::Unsupported, operation).at(self.location().display(path))
    }

    /// `stat` that returns `None` instead of a `NotFound` error.
    async fn find(&self, path: &RelPath) -> Result<Option<Entry>> {
        match self.stat(path).await {
            Ok(entry) => Ok(Some(entry)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a directory has no entries.
    ///
    /// # Errors
    /// Those of listing.
    async fn is_empty(&self, path: &RelPath) -> Result<bool> {
        let mut listing = self.list(path).await?;
        while let Some(batch) = listing.next().await {
            if !batch?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Creates one directory with default permission bits; see [`Storage::create_dir_as`].
    async fn create_dir(&self, path: &RelPath) -> Result<()> {
        self.create_dir_as(path, None).await
    }

    /// Creates a directory and its missing ancestors below the root. Returns whether the directory is new.
    ///
    /// # Errors
    /// `NotADirectory` if an entry of another type is in the way.
    async fn create_dir_all(&self, path: &RelPath) -> Result<bool> {
        // The root is an existing directory.
        if path.is_root() {
            return Ok(false);
        }
        let mut missing = Vec::new();
        let mut current = path.clone();
        loop {
            match self.create_dir(&current).await {
                Ok(()) => break,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    self.check_dir(&current).await?;
                    if missing.is_empty() {
                        return Ok(false);
                    }
                    break;
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let Some(parent) = current.parent() else { return Err(error) };
                    missing.push(std::mem::replace(&mut current, parent));
                }
                Err(error) => return Err(error),
            }
        }
        let mut is_new = true;
        while let Some(next) = missing.pop() {
            is_new = match self.create_dir(&next).await {
                Ok(()) => true,
                // Another program has created it meanwhile.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    self.check_dir(&next).await?;
                    false
                }
                Err(error) => return Err(error),
            };
        }
        Ok(is_new)
    }

    /// Checks that an existing entry is a directory.
    ///
    /// # Errors
    /// `NotADirectory` if it is not, and those of [`Storage::stat`].
    async fn check_dir(&self, path: &RelPath) -> Result<()> {
        if self.stat(path).await?.is_dir() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::NotADirectory, "create directory")
            .at(self.location().display(path))
            .because("something other than a directory is there"))
    }

    /// Implements `stat_many` by concurrent calls of `stat`.
    async fn stat_each(&self, paths: Vec<RelPath>) -> Vec<Result<Entry>> {
        join_all(paths.iter().map(|path| self.stat(path))).await
    }

    /// Implements `read_many` by concurrent calls of `read_whole`.
    async fn read_each(&self, paths: Vec<RelPath>, limit: u64) -> Vec<Result<Whole>> {
        join_all(paths.iter().map(|path| self.read_whole(path, limit))).await
    }

    /// Implements `write_many` by concurrent calls of `write_whole`.
    async fn write_each(&self, files: Vec<SmallFile>) -> Vec<Result<()>> {
        let write = |file: SmallFile| async move {
            self.write_whole(&file.path, file.bytes, &file.options).await
        };
        join_all(files.into_iter().map(write)).await
    }

    /// Lists a directory into memory, sorted by path. Fails on the first error.
    async fn list_sorted(&self, path: &RelPath) -> Result<Vec<Entry>> {
        let mut stream = self.list(path).await?;
        let mut entries = Vec::new();
        while let Some(batch) = stream.next().await {
            entries.extend(batch?);
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    }

    /// Removes an entry and everything below it.
    async fn remove_all(&self, path: &RelPath) -> Result<()> {
        let mut pending = vec![path.clone()];
        while let Some(current) = pending.last().cloned() {
            match self.remove(&current).await {
                Ok(()) => {
                    pending.pop();
                }
                Err(error) if error.kind() == ErrorKind::NotEmpty => {
                    let below = self.list_sorted(&current).await?;
                    if below.is_empty() {
                        return Err(error);
                    }
                    pending.extend(below.into_iter().map(|entry| entry.path));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl<T: Storage + ?Sized> StorageExt for T {}

#[cfg(test)]
mod tests {
    use super::*;

    fn far(rtt_ms: u64, open: usize, queueing_ms: Option<u64>) -> LinkStatus {
        LinkStatus {
            open,
            rtt: Some(Duration::from_millis(rtt_ms)),
            queueing: queueing_ms.map(Duration::from_millis),
            ..LinkStatus::default()
        }
    }

    /// Formerly, the RTT of a host was counted once for each of its files.
    #[test]
    fn rtts_add_up_only_for_links_in_series() {
        let sources = far(20, 4, Some(5)).beside(far(50, 1, Some(0)));
        assert_eq!(sources, far(50, 4, Some(0)));
        assert_eq!(sources.behind(far(7, 2, None)), far(57, 2, Some(0)));
    }
}
