//! Sends one version of a file to the storage, unless the storage has another version than the one that it replaces.
//!
//! A new file is committed without permission to replace another; storages check that atomically as far as they can.
//! The version that is to be replaced is checked by a STAT: of a short file just before it is sent, of a long one also
//! just before the commit. Storages that can
//! ([`Capabilities::conditional_commits`](haul_storage::Capabilities::conditional_commits)) check it again when they
//! replace it; on others, a change between the two is overwritten.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use haul_engine::budget::{LinkShare, Permit, Priority};
use haul_storage::{
    Block, CommitOptions, CreateOptions, Entry, Error, ErrorKind, Identity, Metadata, Range,
    RangeSet, RelPath, Replaces, Result, Retry, SourceVersion, Storage, StorageExt as _, WriteAt,
    Writes,
};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::pending::Pending;
use super::sent::{Attempt, Sent, is_fine};
use crate::link;

/// Bytes of a write, unless the storage prefers more.
const BLOCK: u64 = 1 << 20;

/// Most writes of a file in flight.
const MOST_WRITES: usize = 32;

/// Longest file that is sent in one request, whatever the storage prefers.
const MOST_WHOLE: u64 = 4 << 20;

/// Bytes per second of a link that is slow, but works.
const SLOWEST: u64 = 8 << 10;

/// Sends files.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) storage: Arc<dyn Storage>,
    /// The mounted directory.
    root: RelPath,
    pub(super) share: Arc<LinkShare>,
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
    /// What was sent before, or may have been, unless the server has reported its version since.
    pub(super) before: Vec<Sent>,
    pub(super) generation: u64,
    pub(super) metadata_changes: u64,
    pub(super) size: u64,
    pub(super) metadata: Metadata,
    interrupts: u64,
    is_strict: bool,
    is_synced: bool,
    /// An earlier attempt may have left a part file.
    has_part: bool,
}

/// What is at the path of an upload.
enum Target {
    /// Nothing, or what is to be replaced: how to commit.
    Free(CommitOptions),
    /// This version, from an upload whose response was lost.
    Sent,
}

impl Snapshot {
    /// The version of this moment; `None` if it has no path. `strictly`: it is not sent if the file changes meanwhile.
    pub(super) fn of(file: &Pending, strictly: bool) -> Option<Self> {
        let state = file.state();
        let path = state.path.clone()?;
        Some(Self {
            before: state.upload.attempts.at(&path).cloned().collect(),
            has_part: state.upload.attempts.has_part(&path),
            path,
            base: state.base.clone(),
            generation: state.generations.content,
            metadata_changes: state.generations.metadata,
            size: state.size,
            metadata: state.metadata(),
            interrupts: state.upload.interrupts,
            is_strict: strictly,
            is_synced: state.upload.is_wanted,
        })
    }

    /// What is on the server once it was sent.
    const fn sent(&self, digest: Option<blake3::Hash>) -> Sent {
        Sent { size: self.size, modified: self.metadata.modified, digest }
    }

    /// Fails if it is not to be sent any more.
    pub(super) fn check(&self, file: &Pending) -> Result<()> {
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
        (storage, root): (&Arc<dyn Storage>, &RelPath),
        share: Arc<LinkShare>,
        timeout: Duration,
    ) -> Self {
        Self {
            storage: Arc::clone(storage),
            root: root.clone(),
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

    /// Sends a version of a file. Returns what the server has then.
    ///
    /// # Errors
    /// `AlreadyExists` if there is another version than the one that it replaces, `Interrupted` if the upload has to
    /// begin anew, and those of the storage.
    pub(super) async fn send(&self, file: &Pending, snapshot: &Snapshot) -> Result<Sent> {
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
    ) -> Result<Sent> {
        if self.is_sent(file, snapshot, existing).await? {
            return self.found(snapshot).await;
        }
        // An earlier attempt may have been carried out only now. The next one replaces it.
        let is_before = self.is_one_of(&snapshot.before, existing).await?;
        Err(if is_before { Error::new(ErrorKind::Interrupted, "upload") } else { error })
    }

    /// The server has this version. Its metadata may be of an earlier attempt, or not have been set.
    async fn found(&self, snapshot: &Snapshot) -> Result<Sent> {
        self.storage.set_metadata(&snapshot.path, &snapshot.metadata).await?;
        self.remove_old_part(snapshot).await?;
        Ok(snapshot.sent(None))
    }

    /// Removes the part file that an earlier attempt may have left, and that this upload did not use. If that fails,
    /// the next attempt finds that the upload is done, and only repeats this.
    async fn remove_old_part(&self, snapshot: &Snapshot) -> Result<()> {
        if snapshot.has_part { self.remove_part(&snapshot.path).await } else { Ok(()) }
    }

    /// The error if there is another version than the one that is to be replaced.
    fn conflict(&self, path: &RelPath) -> Error {
        Error::new(ErrorKind::AlreadyExists, "upload")
            .at(self.storage.location().display(path))
            .because("it has changed on the server")
    }

    async fn send_once(&self, file: &Pending, snapshot: &Snapshot) -> Result<Sent> {
        let options = match self.target(file, snapshot).await? {
            Target::Free(options) => options,
            Target::Sent => return self.found(snapshot).await,
        };
        if snapshot.size > self.whole_limit() {
            return self.send_long(file, snapshot, options.replaces()).await;
        }
        let Some((mut permit, options)) = self.permit_to_send(file, snapshot, options).await?
        else {
            return self.found(snapshot).await;
        };
        self.begun.notify_one();
        let bytes = content(file, Range::new(0, snapshot.size))?;
        snapshot.check(file)?;
        let sent = snapshot.sent(Some(blake3::hash(&bytes)));
        self.begin(file, snapshot, &sent, false);
        let issued = self.share.now();
        let written = self.storage.write_whole(&snapshot.path, bytes.into(), &options);
        self.within(snapshot.size, written).await?;
        permit.arrived(snapshot.size);
        self.written.fetch_add(snapshot.size, Ordering::Relaxed);
        self.share.completed(issued, None, snapshot.size);
        permit.consumed();
        self.remove_old_part(snapshot).await?;
        Ok(sent)
    }

    /// Waits for the permit of a short file. After a wait, which other uploads can make long, checks again what is to
    /// be replaced, unless the storage does that when it replaces it. `None` if the server has this version.
    async fn permit_to_send(
        &self,
        file: &Pending,
        snapshot: &Snapshot,
        options: CommitOptions,
    ) -> Result<Option<(Permit, CommitOptions)>> {
        if let Some(permit) = self.share.try_acquire(Priority::Bulk, snapshot.size) {
            return Ok(Some((permit, options)));
        }
        let permit = self.share.acquire(Priority::Bulk, snapshot.size).await;
        if !options.replace || self.storage.capabilities().conditional_commits {
            return Ok(Some((permit, options)));
        }
        match self.target(file, snapshot).await? {
            Target::Free(options) => Ok(Some((permit, options))),
            Target::Sent => Ok(None),
        }
    }

    fn begin(&self, file: &Pending, snapshot: &Snapshot, sent: &Sent, has_part: bool) {
        let attempt = Attempt { path: snapshot.path.clone(), sent: sent.clone(), has_part };
        file.begin_upload(&self.root, attempt);
    }

    async fn send_long(
        &self,
        file: &Pending,
        snapshot: &Snapshot,
        replaces: Replaces,
    ) -> Result<Sent> {
        // Where times are coarse, only the digest distinguishes it from another version of its size and second.
        let digest = match is_fine(self.storage.capabilities()) {
            true => None,
            false => Some(self.spool_digest(file, snapshot).await?),
        };
        let sent = snapshot.sent(digest);
        self.begin(file, snapshot, &sent, true);
        let identity = Identity {
            size: snapshot.size,
            modified: snapshot.metadata.modified,
            id: None,
            tag: Some(snapshot.generation.to_string()),
        };
        let source = SourceVersion { name: "haul mount".to_owned(), identity };
        let (resume, sparse) = (true, false);
        let create = CreateOptions {
            source: Some(source),
            resume,
            size: Some(snapshot.size),
            sparse,
            replaces,
        };
        let writer = self.storage.create(&snapshot.path, &create).await?;
        match self.write_and_commit(file, snapshot, &writer).await {
            Ok(()) => Ok(sent),
            Err(error) => {
                let keep = error.retry() == Retry::Later;
                // The upload has failed in any case, and with the more telling error.
                if writer.abort(keep).await.is_ok() && !keep {
                    file.forget_part(&snapshot.path);
                }
                Err(error)
            }
        }
    }

    /// Removes the part file of an upload that is not continued.
    pub(super) async fn remove_part(&self, path: &RelPath) -> Result<()> {
        let create = CreateOptions { resume: true, sparse: true, ..CreateOptions::default() };
        let writer = match self.storage.create(path, &create).await {
            Ok(writer) => writer,
            // Its directory is gone, or another process writes it.
            Err(error) if error.retry() == Retry::Never || error.kind() == ErrorKind::Busy => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        writer.abort(false).await
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
        let Target::Free(options) = self.target(file, snapshot).await? else {
            // An earlier attempt was carried out meanwhile, as the next one finds.
            return Err(Error::new(ErrorKind::Interrupted, "upload"));
        };
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
    pub(super) async fn within<T>(
        &self,
        bytes: u64,
        response: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let patience = self.timeout + Duration::from_secs(bytes / SLOWEST);
        match timeout(patience, response).await {
            Ok(outcome) => outcome,
            Err(_) => {
                let error = Error::new(ErrorKind::Unreachable, "write");
                Err(error.because("no response arrives"))
            }
        }
    }

    /// What is at the path.
    ///
    /// # Errors
    /// `AlreadyExists` if it is another version than the one that is to be replaced, and those of comparing it.
    async fn target(&self, file: &Pending, snapshot: &Snapshot) -> Result<Target> {
        let metadata = snapshot.metadata.clone();
        let sync = snapshot.is_synced && self.storage.capabilities().sync;
        let is_new = CommitOptions { metadata, replace: false, sync, expected: None };
        if snapshot.base.is_none() && snapshot.before.is_empty() {
            return Ok(Target::Free(is_new));
        }
        // If it was removed on the server, what was written here later becomes a new file.
        let Some(existing) = self.storage.find(&snapshot.path).await? else {
            return Ok(Target::Free(is_new));
        };
        let identity = existing.identity();
        let is_base = snapshot.base.as_ref() == Some(&identity);
        if !is_base && self.is_sent(file, snapshot, &existing).await? {
            return Ok(Target::Sent);
        }
        if is_base || self.is_one_of(&snapshot.before, &existing).await? {
            let expected = Some(identity);
            return Ok(Target::Free(CommitOptions { replace: true, expected, ..is_new }));
        }
        Err(self.conflict(&snapshot.path))
    }
}

/// A range of the content, with zeros where it was cut off meanwhile.
pub(super) fn content(file: &Pending, range: Range) -> Result<Vec<u8>> {
    let length = usize::try_from(range.len()).unwrap_or(usize::MAX);
    let mut bytes = match file.read(range) {
        Some(read) => read.map_err(|error| Error::from_io("read the spool", error))?,
        // A part of it has to be fetched: it has changed.
        None => return Err(Error::new(ErrorKind::Interrupted, "upload")),
    };
    bytes.resize(length, 0);
    Ok(bytes)
}
