//! The storage traits: one opened location, reading a file of it, writing a file of it.
//!
//! They have no default methods, so that a backend cannot forget one, but for a hint (`prefetch`) and for what most
//! storages cannot tell (`space`, `allocated`); conveniences are in [`StorageExt`]. Everything is positional and may be called many times at once. A future that is
//! dropped stops what it stands for as soon as that is possible; nothing of it may appear under a
//! final name.

use std::any::Any;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::BoxStream;

use crate::{
    Block, Capabilities, Entry, Error, ErrorKind, Identity, Location, Metadata, Range, RelPath,
    Result, Space,
};

/// Batches of entries as a listing gives them, in no particular order. An `Err` concerns one entry
/// and the stream goes on, or it is the last item.
pub type EntryStream = BoxStream<'static, Result<Vec<Entry>>>;

/// Consecutive blocks of one range, in order.
pub type BlockStream = BoxStream<'static, Result<Block>>;

/// An opened location. Every path is below its root, and links in a path are not followed.
#[async_trait]
pub trait Storage: Any + Debug + Send + Sync {
    /// Where the root is.
    fn location(&self) -> &Location;

    /// What this storage can do.
    fn capabilities(&self) -> &Capabilities;

    /// Wishes for `lanes` open lanes; the storage opens and closes them in the background, within
    /// its limits. Nothing to do for a disk.
    fn set_lanes(&self, lanes: usize);

    /// What the link looks like now.
    fn link(&self) -> LinkStatus;

    /// Describes one entry. A symbolic link is described, not followed.
    async fn stat(&self, path: &RelPath) -> Result<Entry>;

    /// `stat` for several paths; the outcomes are in the order of `paths`. To a disk it is one job for all of them,
    /// over a link they are in flight together.
    async fn stat_many(&self, paths: Vec<RelPath>) -> Vec<Result<Entry>>;

    /// Lists a directory, without `.` and `..`, and without names that [`RelPath`] refuses: such a
    /// name is an `Err` item that names it.
    async fn list(&self, path: &RelPath) -> Result<EntryStream>;

    /// Makes one directory; its parent has to exist. `AlreadyExists` if anything is there. It has the
    /// permission bits `mode` (or fewer) from its first moment where the storage has such bits, and
    /// the usual ones with `None`.
    async fn create_dir_as(&self, path: &RelPath, mode: Option<u32>) -> Result<()>;

    /// Makes a link. With `replace` it takes the place of a file or link of that name, in one step.
    async fn create_link(&self, path: &RelPath, link: &LinkKind, replace: bool) -> Result<()>;

    /// Removes a file, a link, or an empty directory (`NotEmpty` if it is not).
    async fn remove(&self, path: &RelPath) -> Result<()>;

    /// Gives an entry another name, replacing a file of that name if `capabilities().rename`.
    async fn rename(&self, from: &RelPath, to: &RelPath) -> Result<()>;

    /// Copies a file within the storage without its bytes passing through here; `to` must not
    /// exist. `Unsupported` without `capabilities().server_copy`.
    async fn copy(&self, from: &RelPath, to: &RelPath) -> Result<()>;

    /// Everything that can be set on a copy of the entry, extended attributes included.
    async fn metadata(&self, path: &RelPath) -> Result<Metadata>;

    /// Sets what is given and the storage is capable of; silently leaves out what it is not
    /// (whoever asks sees that in the capabilities).
    async fn set_metadata(&self, path: &RelPath, metadata: &Metadata) -> Result<()>;

    /// Opens a file for reading.
    async fn open(&self, path: &RelPath) -> Result<Arc<dyn ReadAt>>;

    /// Says that `path` is going to be looked at, and unless the same file is there already, created.
    /// What that needs to know may be asked for now. Nothing to do for a disk.
    fn prefetch(&self, path: &RelPath) {
        let _ = path;
    }

    /// Starts, or with `options.resume` continues, a part file for `path`. `Busy` if another run
    /// holds it.
    async fn create(&self, path: &RelPath, options: &CreateOptions) -> Result<Arc<dyn WriteAt>>;

    /// Reads a small file in one go: open, read, check that it did not change, close. `Changed` if
    /// it is longer than `limit` bytes.
    async fn read_whole(&self, path: &RelPath, limit: u64) -> Result<Whole>;

    /// Writes a small file in one go: it appears whole under its name or not at all.
    async fn write_whole(
        &self,
        path: &RelPath,
        bytes: Bytes,
        options: &CommitOptions,
    ) -> Result<()>;

    /// `read_whole` for several files; the outcomes are in the order of `paths`. To a disk it is one
    /// job for all of them, over a link they are in flight together.
    async fn read_many(&self, paths: Vec<RelPath>, limit: u64) -> Vec<Result<Whole>>;

    /// `write_whole` for several files; the outcomes are in the order of `files`. Each file by
    /// itself appears whole or not at all.
    async fn write_many(&self, files: Vec<SmallFile>) -> Vec<Result<()>>;

    /// The space where `path` is, or would be: that of the nearest directory that exists. `None` where it cannot be
    /// told.
    async fn space(&self, path: &RelPath) -> Result<Option<Space>> {
        let _ = path;
        Ok(None)
    }

    /// Bytes that a file takes up, holes left out and reserved space included. `None` where it cannot be told.
    async fn allocated(&self, path: &RelPath) -> Result<Option<u64>> {
        let _ = path;
        Ok(None)
    }

    /// Keeps other runs of haul out of `path` (a file or a tree) until the lock is dropped. `Busy`
    /// if another one is there, `Unsupported` without `capabilities().lock`.
    async fn lock(&self, path: &RelPath) -> Result<Lock>;
}

/// A file opened for reading.
#[async_trait]
pub trait ReadAt: Any + Debug + Send + Sync {
    /// Which version was opened.
    fn identity(&self) -> &Identity;

    /// Whether a read may start anywhere, where the storage has `ranged_reads`. A server may refuse that
    /// for a single file, and may do so only when asked: the file is then read from its start.
    fn is_ranged(&self) -> bool;

    /// What can be set on a copy, as of opening; extended attributes included.
    async fn metadata(&self) -> Result<Metadata>;

    /// Which version is there now. If it differs from [`ReadAt::identity`], what was read may be a
    /// mixture.
    async fn recheck(&self) -> Result<Identity>;

    /// The bytes of a range, in consecutive blocks. Less than the range only at the end of the
    /// file. Dropping the stream gives up what has not arrived.
    fn read_at(&self, range: Range) -> BlockStream;

    /// The same of a range whose end may come nearer meanwhile: nothing is wanted beyond `end`, and
    /// what comes may end there. It is [`ReadAt::read_at`] where more than is wanted does not come
    /// ([`Capabilities::long_reads`]).
    fn read_until(&self, range: Range, end: &Arc<AtomicU64>) -> BlockStream;

    /// The first stretch of data at or after `from`; `None` if there is only hole until the end.
    /// A storage that knows nothing of holes gives all that is left.
    async fn next_data(&self, from: u64) -> Result<Option<Range>>;
}

/// A file that is being written. Until [`WriteAt::commit`] it is not under its name.
#[async_trait]
pub trait WriteAt: Any + Debug + Send + Sync {
    /// Whether a part file of an earlier run was found and kept.
    fn resumed(&self) -> bool;

    /// Where on this machine a journal may lie beside the part file; `None` if the part file is not
    /// on this machine.
    fn journal_path(&self) -> Option<&Path>;

    /// Writes a block. What is never written reads as zeros.
    async fn write_at(&self, offset: u64, block: Block) -> Result<()>;

    /// Copies a range of `source` to the same offset without its bytes passing through here, if
    /// both are of a kind that can. `Ok(false)` means that it cannot be done and nothing was done.
    async fn copy_from(&self, source: &dyn ReadAt, range: Range) -> Result<bool>;

    /// Makes what was written so far durable.
    async fn sync(&self) -> Result<()>;

    /// Opens what was written for reading; with `uncached` from the medium instead of memory, as
    /// far as the system allows.
    async fn reopen(&self, uncached: bool) -> Result<Arc<dyn ReadAt>>;

    /// Gives the file its length, its metadata and its name, in one step as seen from outside.
    async fn commit(&self, size: u64, options: &CommitOptions) -> Result<()>;

    /// Gives up. With `keep` the part file stays for a later run to continue.
    async fn abort(&self, keep: bool) -> Result<()>;
}

/// What a link points to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkKind {
    /// A symbolic link to these bytes, whatever they mean.
    Symbolic(Vec<u8>),
    /// A further name of a file of this storage.
    Hard(RelPath),
}

/// How to start a part file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CreateOptions {
    /// Continue an existing part file instead of emptying it.
    pub resume: bool,
    /// The length that the file will have, so that room can be reserved. It never counts as
    /// progress.
    pub size: Option<u64>,
    /// Do not reserve room: the file has holes.
    pub sparse: bool,
}

/// How a file appears under its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitOptions {
    /// What to set on it.
    pub metadata: Metadata,
    /// Take the place of a file of that name; otherwise `AlreadyExists`.
    pub replace: bool,
    /// Make it durable before it appears.
    pub sync: bool,
}

/// A small file, read in one go.
#[derive(Debug, Clone)]
pub struct Whole {
    /// All its bytes.
    pub bytes: Bytes,
    /// Which version it is.
    pub identity: Identity,
    /// What can be set on a copy, without extended attributes.
    pub metadata: Metadata,
}

/// A small file that is to be written in one go.
#[derive(Debug, Clone)]
pub struct SmallFile {
    /// Where.
    pub path: RelPath,
    /// All its bytes.
    pub bytes: Bytes,
    /// How it appears.
    pub options: CommitOptions,
}

/// What a link looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkStatus {
    /// Lanes that are open.
    pub open: usize,
    /// Lanes that are being opened.
    pub opening: usize,
    /// Lanes that were refused or lost since the beginning.
    pub refused: usize,
    /// The shortest round trip seen; `None` before the first, and for a disk.
    pub rtt: Option<Duration>,
    /// How long the first lane took to open.
    pub connect: Option<Duration>,
    /// How much longer than [`Self::rtt`] one is at present, because packets wait in a queue
    /// before the narrowest place of the path, or because the path has become longer; `None` where that
    /// cannot be told.
    pub queueing: Option<Duration>,
}

impl LinkStatus {
    /// Of hosts side by side: bytes may come from any of them, so the farthest decides, and there is a queue on the
    /// path if there is one on each.
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
        }
    }

    /// Of one link behind the other: the one with fewer lanes decides, and both round trips count.
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
        }
    }
}

/// Keeps other runs out until it is dropped.
#[derive(Debug)]
pub struct Lock {
    _held: Box<dyn Held>,
}

trait Held: Debug + Send + Sync {}
impl<T: Debug + Send + Sync> Held for T {}

impl Lock {
    /// A lock that lasts as long as `held` (an open file, say).
    pub fn new(held: impl Debug + Send + Sync + 'static) -> Self {
        Self { _held: Box::new(held) }
    }
}

/// Conveniences over any storage.
#[async_trait]
pub trait StorageExt: Storage {
    /// `stat`, with "nothing there" as an answer.
    async fn find(&self, path: &RelPath) -> Result<Option<Entry>> {
        match self.stat(path).await {
            Ok(entry) => Ok(Some(entry)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes one directory with the usual permission bits; see [`Storage::create_dir_as`].
    async fn create_dir(&self, path: &RelPath) -> Result<()> {
        self.create_dir_as(path, None).await
    }

    /// Makes a directory and those above it that are missing, up to the root. Whether the last one
    /// was made now.
    async fn create_dir_all(&self, path: &RelPath) -> Result<bool> {
        // The root was opened as a directory.
        if path.is_root() {
            return Ok(false);
        }
        let mut missing = Vec::new();
        let mut current = path.clone();
        loop {
            match self.create_dir(&current).await {
                Ok(()) => break,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    if !self.stat(&current).await?.is_dir() {
                        return Err(Error::new(ErrorKind::NotADirectory, "create directory")
                            .at(self.location().display(&current))
                            .because("something that is no directory is there"));
                    }
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
        while let Some(next) = missing.pop() {
            match self.create_dir(&next).await {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(true)
    }

    /// `stat_many` for storages that have no better way: all at once.
    async fn stat_each(&self, paths: Vec<RelPath>) -> Vec<Result<Entry>> {
        join_all(paths.iter().map(|path| self.stat(path))).await
    }

    /// `read_many` for storages that have no better way: all at once.
    async fn read_each(&self, paths: Vec<RelPath>, limit: u64) -> Vec<Result<Whole>> {
        join_all(paths.iter().map(|path| self.read_whole(path, limit))).await
    }

    /// `write_many` for storages that have no better way: all at once.
    async fn write_each(&self, files: Vec<SmallFile>) -> Vec<Result<()>> {
        let write = |file: SmallFile| async move {
            self.write_whole(&file.path, file.bytes, &file.options).await
        };
        join_all(files.into_iter().map(write)).await
    }

    /// All entries of a directory in memory, sorted by name; the first error ends it.
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

    /// The RTT of a host counted once for each of its files.
    #[test]
    fn round_trips_add_up_only_along_the_path() {
        let sources = far(20, 4, Some(5)).beside(far(50, 1, Some(0)));
        assert_eq!(sources, far(50, 4, Some(0)));
        assert_eq!(sources.behind(far(7, 2, None)), far(57, 2, Some(0)));
    }
}
