//! Sends one version of a file to the storage, unless the storage has another version than the one that it replaces.
//!
//! A new file is committed without permission to replace another; storages check that atomically as far as they can.
//! The version that is to be replaced is checked by a STAT just before the commit. Storages that can
//! ([`Capabilities::conditional_commits`](haul_storage::Capabilities::conditional_commits)) check it again when they
//! replace it; on others, a change between the two is overwritten.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use haul_engine::budget::{LinkShare, Priority};
use haul_storage::{
    Block, CommitOptions, CreateOptions, Entry, Error, ErrorKind, Identity, Metadata, Range,
    RangeSet, RelPath, Result, Retry, SourceVersion, Storage, StorageExt as _, WriteAt, Writes,
};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::pending::Pending;
use super::sent::Sent;
use crate::link;

/// Bytes of a write, unless the storage prefers more.
const BLOCK: u64 = 1 << 20;

/// Most writes of a file in flight.
const MOST_WRITES: usize = 32;

/// Longest file that is sent in one request, whatever the storage prefers.
const MOST_WHOLE: u64 = 4 << 20;

/// Longest file that is read back to compare it.
const MOST_COMPARED: u64 = 16 << 20;

/// Bytes per second of a link that is slow, but works.
const SLOWEST: u64 = 8 << 10;

/// Sends files.
#[derive(Debug)]
pub(super) struct Sender {
    storage: Arc<dyn Storage>,
    share: Arc<LinkShare>,
    timeout: Duration,
    begun: Notify,
    /// Bytes written so far.
    written: AtomicU64,
}

/// The version that is sent.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub(super) path: RelPath,
    pub(super) base: Option<Identity>,
    /// What was sent before, if the server has not reported its version.
    last: Option<Sent>,
    pub(super) generation: u64,
    pub(super) metadata_changes: u64,
    size: u64,
    metadata: Metadata,
    interrupts: u64,
    is_strict: bool,
    is_synced: bool,
    may_exist: bool,
}

impl Snapshot {
    /// The version of this moment; `None` if it has no path. `strictly`: it is not sent if the file changes meanwhile.
    pub(super) fn of(file: &Pending, strictly: bool) -> Option<Self> {
        let mut state = file.state();
        let generation = state.generations.content;
        let attempted = std::mem::replace(&mut state.generations.attempted, generation);
        Some(Self {
            path: state.path.clone()?,
            base: state.base.clone(),
            last: state.upload.sent.clone(),
            generation,
            metadata_changes: state.generations.metadata,
            size: state.size,
            metadata: state.metadata(),
            interrupts: state.upload.interrupts,
            is_strict: strictly,
            is_synced: state.upload.is_wanted,
            // Only the same generation: a later one may have the same time, since programs set times.
            may_exist: state.upload.failures > 0 && attempted == generation,
        })
    }

    /// What is on the server once it was sent.
    pub(super) const fn sent(&self, digest: Option<blake3::Hash>) -> Sent {
        Sent { size: self.size, modified: self.metadata.modified, digest }
    }

    /// Fails if it is not to be sent any more.
    fn check(&self, file: &Pending) -> Result<()> {
        let state = file.state();
        let has_changed = self.is_strict && state.generations.content != self.generation;
        if has_changed || state.upload.interrupts != self.interrupts || state.path.is_none() {
            return Err(Error::new(ErrorKind::Interrupted, "upload"));
        }
        Ok(())
    }
}

impl Sender {
    pub(super) fn new(
        storage: &Arc<dyn Storage>,
        share: Arc<LinkShare>,
        timeout: Duration,
    ) -> Self {
        Self {
            storage: Arc::clone(storage),
            share,
            timeout,
            begun: Notify::new(),
            written: AtomicU64::new(0),
        }
    }

    /// Bytes written so far.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Longest file that is sent in one request.
    pub(super) fn whole_limit(&self) -> u64 {
        self.storage.capabilities().whole_limit.min(MOST_WHOLE)
    }

    /// Polls the link while bytes are in flight; never returns.
    pub(super) async fn watch_link(&self) {
        link::watch(&self.share, &self.begun).await;
    }

    /// Sends a version of a file. Returns its digest if it was sent in one request.
    ///
    /// # Errors
    /// `AlreadyExists` if there is another version than the one that it replaces, `Interrupted` if the upload has to
    /// begin anew, and those of the storage.
    pub(super) async fn send(
        &self,
        file: &Pending,
        snapshot: &Snapshot,
    ) -> Result<Option<blake3::Hash>> {
        let sent = self.send_once(file, snapshot).await;
        let sent = match sent {
            // Its directory was removed on the server. That must not lose what was written here.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let Some(parent) = snapshot.path.parent() else { return Err(error) };
                self.storage.create_dir_all(&parent).await?;
                self.send_once(file, snapshot).await
            }
            sent => sent,
        };
        match sent {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let Some(existing) = self.storage.find(&snapshot.path).await? else {
                    return Err(error);
                };
                self.unless_sent(file, snapshot, &existing, error).await
            }
            // It has changed between the STAT and the commit.
            Err(error) if error.kind() == ErrorKind::Changed && error.retry() == Retry::Never => {
                let Some(existing) = self.storage.find(&snapshot.path).await? else {
                    // It was removed. The next attempt writes a new file.
                    return Err(Error::new(ErrorKind::Interrupted, "upload"));
                };
                let error = self.conflict(&snapshot.path);
                self.unless_sent(file, snapshot, &existing, error).await
            }
            Err(error) => {
                if error.retry() == Retry::Later {
                    self.share.failed(error.kind());
                }
                Err(error)
            }
            sent => sent,
        }
    }

    /// Fails with `error`, unless the file on the server is this version: the response to an earlier attempt may have
    /// been lost, also by an earlier process.
    async fn unless_sent(
        &self,
        file: &Pending,
        snapshot: &Snapshot,
        existing: &Entry,
        error: Error,
    ) -> Result<Option<blake3::Hash>> {
        if self.is_sent(file, snapshot, existing).await? { Ok(None) } else { Err(error) }
    }

    /// The error if there is another version than the one that is to be replaced.
    fn conflict(&self, path: &RelPath) -> Error {
        Error::new(ErrorKind::AlreadyExists, "upload")
            .at(self.storage.location().display(path))
            .because("it has changed on the server")
    }

    async fn send_once(&self, file: &Pending, snapshot: &Snapshot) -> Result<Option<blake3::Hash>> {
        if snapshot.size > self.whole_limit() {
            self.send_long(file, snapshot).await?;
            return Ok(None);
        }
        let options = self.options(file, snapshot).await?;
        let mut permit = self.share.acquire(Priority::Bulk, snapshot.size).await;
        self.begun.notify_one();
        let bytes = content(file, Range::new(0, snapshot.size))?;
        snapshot.check(file)?;
        let digest = blake3::hash(&bytes);
        let issued = self.share.now();
        let written = self.storage.write_whole(&snapshot.path, bytes.into(), &options);
        self.within(snapshot.size, written).await?;
        permit.arrived(snapshot.size);
        self.written.fetch_add(snapshot.size, Ordering::Relaxed);
        self.share.completed(issued, None, snapshot.size);
        permit.consumed();
        Ok(Some(digest))
    }

    async fn send_long(&self, file: &Pending, snapshot: &Snapshot) -> Result<()> {
        // Checked before anything is sent, too.
        self.options(file, snapshot).await?;
        let identity = Identity {
            size: snapshot.size,
            modified: snapshot.metadata.modified,
            id: None,
            tag: Some(snapshot.generation.to_string()),
        };
        let source = SourceVersion { name: "haul mount".to_owned(), identity };
        let (resume, sparse) = (true, false);
        let create =
            CreateOptions { source: Some(source), resume, size: Some(snapshot.size), sparse };
        let writer = self.storage.create(&snapshot.path, &create).await?;
        match self.write_and_commit(file, snapshot, &writer).await {
            Ok(()) => Ok(()),
            Err(error) => {
                let keep = error.retry() == Retry::Later;
                // The upload has failed in any case, and with the more telling error.
                drop(writer.abort(keep).await);
                Err(error)
            }
        }
    }

    async fn write_and_commit(
        &self,
        file: &Pending,
        snapshot: &Snapshot,
        writer: &Arc<dyn WriteAt>,
    ) -> Result<()> {
        let can = self.storage.capabilities();
        let held = writer.held().ranges();
        let step = BLOCK.max(can.write_bytes.min(8 * BLOCK));
        let mut left: VecDeque<Range> = VecDeque::new();
        for mut gap in held.gaps(Range::new(0, snapshot.size)) {
            while !gap.is_empty() {
                let (next, rest) = gap.split_at(step);
                left.push_back(next);
                gap = rest;
            }
        }
        let most = if can.writes == Writes::AnyOrder { MOST_WRITES } else { 1 };
        let mut writing = FuturesUnordered::new();
        loop {
            while writing.len() < most
                && let Some(range) = left.pop_front()
            {
                writing.push(self.write(file, snapshot, writer, range));
            }
            match writing.next().await {
                Some(written) => written?,
                None => break,
            }
        }
        drop(writing);
        let options = self.options(file, snapshot).await?;
        snapshot.check(file)?;
        writer.commit(snapshot.size, &options).await
    }

    async fn write(
        &self,
        file: &Pending,
        snapshot: &Snapshot,
        writer: &Arc<dyn WriteAt>,
        range: Range,
    ) -> Result<()> {
        let mut permit = self.share.acquire(Priority::Bulk, range.len()).await;
        self.begun.notify_one();
        snapshot.check(file)?;
        let block = Block::from(Bytes::from(content(file, range)?));
        let issued = self.share.now();
        self.within(range.len(), writer.write_at(range.start(), block)).await?;
        permit.arrived(range.len());
        self.written.fetch_add(range.len(), Ordering::Relaxed);
        self.share.completed(issued, None, range.len());
        permit.consumed();
        if writer.held().is_recorded() {
            let mut written = RangeSet::new();
            written.insert(range);
            writer.record(written).await?;
        }
        Ok(())
    }

    /// Waits until `bytes` bytes are written, at most for the timeout and the time that a slow link takes.
    async fn within<T>(&self, bytes: u64, response: impl Future<Output = Result<T>>) -> Result<T> {
        let patience = self.timeout + Duration::from_secs(bytes / SLOWEST);
        match timeout(patience, response).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let error = Error::new(ErrorKind::Unreachable, "write");
                Err(error.because("no response arrives"))
            }
        }
    }

    /// How to commit, if what is there now is the version that is to be replaced.
    async fn options(&self, file: &Pending, snapshot: &Snapshot) -> Result<CommitOptions> {
        let metadata = snapshot.metadata.clone();
        let sync = snapshot.is_synced && self.storage.capabilities().sync;
        let is_new = CommitOptions { metadata, replace: false, sync, expected: None };
        if snapshot.base.is_none() && snapshot.last.is_none() {
            return Ok(is_new);
        }
        // If it was removed on the server, what was written here later becomes a new file.
        let Some(existing) = self.storage.find(&snapshot.path).await? else { return Ok(is_new) };
        if snapshot.base.as_ref() == Some(&existing.identity())
            || self.is_last(snapshot, &existing).await?
            || self.is_sent(file, snapshot, &existing).await?
        {
            return Ok(CommitOptions {
                replace: true,
                expected: Some(existing.identity()),
                ..is_new
            });
        }
        Err(self.conflict(&snapshot.path))
    }

    /// Whether the file on the server is what was sent before.
    async fn is_last(&self, snapshot: &Snapshot, existing: &Entry) -> Result<bool> {
        let Some(last) = &snapshot.last else { return Ok(false) };
        if let Some(is_last) = last.is(existing, self.storage.capabilities()) {
            return Ok(is_last);
        }
        let content = self.stored_content(&snapshot.path, last.size).await?;
        Ok(content.is_some_and(|content| last.has(&content)))
    }

    /// The content of a file on the server; `None` if it is longer than `size` bytes, or changes meanwhile.
    async fn stored_content(&self, path: &RelPath, size: u64) -> Result<Option<Bytes>> {
        match self.storage.read_whole(path, size).await {
            Ok(whole) => Ok(Some(whole.bytes)),
            Err(error) if error.kind() == ErrorKind::Changed => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the file on the server is this version, from an upload whose response was lost.
    async fn is_sent(&self, file: &Pending, snapshot: &Snapshot, existing: &Entry) -> Result<bool> {
        if !existing.is_file() || existing.size != snapshot.size {
            return Ok(false);
        }
        let can = self.storage.capabilities();
        let stored_time = snapshot.metadata.modified.map(|time| can.stored_times.stored(time));
        if can.times && snapshot.may_exist && existing.modified == stored_time {
            return Ok(true);
        }
        if snapshot.size > MOST_COMPARED {
            return Ok(can.times && existing.modified == stored_time);
        }
        match self.stored_content(&snapshot.path, snapshot.size).await? {
            Some(stored) => Ok(stored == content(file, Range::new(0, snapshot.size))?),
            None => Ok(false),
        }
    }
}

/// A range of the content, with zeros where it was cut off meanwhile.
fn content(file: &Pending, range: Range) -> Result<Vec<u8>> {
    let length = usize::try_from(range.len()).unwrap_or(usize::MAX);
    let mut bytes = match file.read(range) {
        Some(read) => read.map_err(|error| Error::from_io("read the spool", error))?,
        // A part of it has to be fetched: it has changed.
        None => return Err(Error::new(ErrorKind::Interrupted, "upload")),
    };
    bytes.resize(length, 0);
    Ok(bytes)
}
