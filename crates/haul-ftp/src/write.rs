//! Upload of one file: in order, over one lane, into a part file next to the final name.
//!
//! A task holds the lane for the whole upload and sends the blocks that it is given. If the connection breaks, blocks
//! in transit are lost, and only the server knows how much it has received. A broken upload is therefore an error of
//! the whole file: to resume, the caller creates the upload anew, which queries the length of the part file and
//! continues from there.

use std::sync::Arc;

use async_trait::async_trait;
use haul_storage::journal::PartJournal;
use haul_storage::{
    Block, Claim, CommitOptions, CreateOptions, Error, ErrorKind, Held, Range, RangeSet, ReadAt,
    RelPath, Result, Retry, WriteAt, Writes,
};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::timeout;

use crate::data::{end_upload, reason, send};
use crate::error::refused;
use crate::host::Writing;
use crate::inner::Inner;
use crate::read::{FtpFile, STALLED};
use crate::wire::Command;

/// Blocks queued for the connection.
const QUEUED_BLOCKS: usize = 2;

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct FtpUpload {
    inner: Arc<Inner>,
    path: RelPath,
    part: RelPath,
    /// The path of the part file on the server.
    on_server: Vec<u8>,
    claim: Claim,
    journal: PartJournal,
    /// The length of the part file that this upload resumes, if any.
    found: Option<u64>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The offset of the next block; `None` before the first block of a resumed part file.
    at: Option<u64>,
    feed: Option<Feed>,
    /// The part file exists and is ours: it was resumed, created or truncated.
    begun: bool,
    /// The upload has failed or ended; nothing more can be written.
    broken: bool,
    /// The final name is gone from the server: the part file is the only copy and must not be removed.
    only_copy: bool,
    /// Shared with the sending task, which may outlive this upload; `None` after commit or abort.
    writing: Option<Arc<Writing>>,
}

/// The channels to the task that holds the lane.
#[derive(Debug)]
struct Feed {
    blocks: mpsc::Sender<Block>,
    ended: oneshot::Receiver<Result<()>>,
}

impl FtpUpload {
    /// Begins an upload of `path`, which resumes an existing part file if `options.resume` is set, and the journal and
    /// the server permit it. Otherwise STOR creates or empties the part file later: at the first block, or at the
    /// commit of an empty file.
    pub(crate) async fn create(
        inner: &Arc<Inner>,
        path: &RelPath,
        options: &CreateOptions,
    ) -> Result<Self> {
        let claim = inner.claim(path).await;
        let part = inner.part_of(path, &claim)?;
        let on_server = inner.on_server(&part);
        // Refuse a name that cannot be sent before anything is done.
        Command::new("STOR", &on_server).map_err(|error| inner.at(error, path))?;
        let writing = inner.host.begin_writing(&on_server).await;
        let writing = writing.map_err(|error| inner.at(error, path))?;
        inner.check_parent(path).await?;
        inner.recover(path).await?;
        // Without a source, only the caller knows what the part file has.
        let may_resume = options.resume && (claim.has_journal() || options.source.is_none());
        let found = match may_resume && inner.capabilities().resume {
            true => inner.find(&part).await?.filter(|found| found.is_file()),
            false => None,
        };
        let found = found.and_then(|found| found.size);
        let journal = PartJournal::look(claim.journal(), options, found, Writes::InOrder).await?;
        let found = found.filter(|_| journal.resumes());
        let upload = Self {
            inner: Arc::clone(inner),
            path: path.clone(),
            part,
            on_server,
            claim,
            journal,
            found,
            state: Mutex::new(State {
                at: if found.is_some() { None } else { Some(0) },
                feed: None,
                begun: found.is_some(),
                broken: false,
                only_copy: false,
                writing: Some(Arc::new(writing)),
            }),
        };
        upload.journal.start(&upload).await?;
        Ok(upload)
    }

    fn at(&self, error: Error) -> Error {
        self.inner.at(error, &self.path)
    }

    /// Starts the sending task, with STOR at `offset`.
    async fn begin(&self, state: &mut State, offset: u64) -> Result<()> {
        let (blocks, receiver) = mpsc::channel(QUEUED_BLOCKS);
        let (started, start) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let inner = Arc::clone(&self.inner);
        let on_server = self.on_server.clone();
        let writing = state.writing.clone();
        self.inner.host.lanes.spawn(async move {
            let outcome = upload(&inner, &on_server, offset, receiver, started).await;
            drop(writing);
            // The receiver is gone if the upload was dropped.
            drop(end.send(outcome));
        });
        match start.await {
            Ok(()) => {
                state.begun = true;
                state.feed = Some(Feed { blocks, ended });
                Ok(())
            }
            Err(_) => {
                let outcome = ended.await.unwrap_or(Ok(()));
                Err(outcome.err().unwrap_or_else(interrupted))
            }
        }
    }

    /// Ends the data connection, if one is open. On success the server has received everything.
    async fn end(&self, state: &mut State) -> Result<()> {
        let Some(Feed { blocks, ended }) = state.feed.take() else { return Ok(()) };
        drop(blocks);
        let outcome = ended.await.unwrap_or_else(|_| Err(interrupted()));
        state.broken |= outcome.is_err();
        outcome
    }

    async fn remove_part(&self) -> Result<()> {
        let removed =
            self.inner.host.exchange_retrying(&[Command::new("DELE", &self.on_server)?]).await?;
        match removed.iter().find(|reply| !reply.is_done()) {
            Some(reply) if self.inner.find(&self.part).await?.is_some() => {
                Err(self.at(refused("remove", reply)))
            }
            _ => Ok(()),
        }
    }

    /// Ends the upload after its task has stopped taking blocks, and returns the error that stopped it.
    async fn broken(&self, state: &mut State) -> Error {
        let error = self.end(state).await.err().unwrap_or_else(interrupted);
        self.failed(state, error).await
    }

    /// The error to return when `error` has ended the upload. A transient one becomes `Retry::FromStart`, as
    /// blocks in transit are lost.
    async fn failed(&self, state: &mut State, error: Error) -> Error {
        state.broken = true;
        let error = self.inner.explain(error, &self.path).await;
        let is_transient = error.retry() == Retry::Later;
        if is_transient { error.with_retry(Retry::FromStart) } else { error }
    }
}

#[async_trait]
impl WriteAt for FtpUpload {
    fn held(&self) -> &Held {
        self.journal.held()
    }

    async fn record(&self, ranges: RangeSet) -> Result<()> {
        self.journal.record(ranges).await
    }

    async fn write_at(&self, offset: u64, block: Block) -> Result<()> {
        let mut state = self.state.lock().await;
        let is_expected = match (state.at, self.found) {
            (Some(at), _) => at == offset,
            (None, Some(found)) => offset <= found,
            (None, None) => offset == 0,
        };
        if !is_expected {
            let expected = state.at.or(self.found).unwrap_or(0);
            let cause = format!("a write at offset {offset} instead of {expected}");
            return Err(self.at(Error::new(ErrorKind::InvalidInput, "write").because(cause)));
        }
        if state.broken {
            let error = Error::new(ErrorKind::Unreachable, "write").with_retry(Retry::FromStart);
            return Err(self.at(error.because("the upload was aborted")));
        }
        if block.is_empty() {
            return Ok(());
        }
        let length = block.len() as u64;
        if state.feed.is_none()
            && let Err(error) = self.begin(&mut state, offset).await
        {
            return Err(self.inner.explain(error, &self.path).await);
        }
        let Some(feed) = &state.feed else { return Err(self.at(interrupted())) };
        let is_queued = feed.blocks.reserve().await.map(|slot| slot.send(block)).is_ok();
        if !is_queued {
            return Err(self.broken(&mut state).await);
        }
        state.at = Some(offset + length);
        Ok(())
    }

    async fn copy_from(&self, _source: &dyn ReadAt, _range: Range) -> Result<bool> {
        Ok(false)
    }

    async fn sync(&self) -> Result<()> {
        Ok(())
    }

    async fn reopen(&self, _uncached: bool) -> Result<Arc<dyn ReadAt>> {
        let mut state = self.state.lock().await;
        if let Err(error) = self.end(&mut state).await {
            return Err(self.failed(&mut state, error).await);
        }
        Ok(Arc::new(FtpFile::open(&self.inner, &self.part).await?.growing()))
    }

    async fn commit(&self, size: u64, options: &CommitOptions) -> Result<()> {
        let mut state = self.state.lock().await;
        let written = state.at.or(self.found).unwrap_or(0);
        if written != size || state.broken {
            let cause = format!("{written} of {size} bytes were written");
            return Err(self.at(Error::new(ErrorKind::InvalidInput, "commit").because(cause)));
        }
        if !state.begun {
            let begun = self.begin(&mut state, 0).await;
            if let Err(error) = begun {
                return Err(self.inner.explain(error, &self.path).await);
            }
        }
        if let Err(error) = self.end(&mut state).await {
            return Err(self.failed(&mut state, error).await);
        }
        let part = self.inner.look(&self.part).await?;
        if part.size != Some(size) {
            state.broken = true;
            let stored = part.size.unwrap_or(0);
            let cause = format!("the server stored {stored} bytes instead of {size}");
            let error = Error::new(ErrorKind::Changed, "commit").because(cause);
            return Err(self.at(error));
        }
        let time = self.inner.set_time(&self.on_server, options.metadata.modified)?;
        if let Some(command) = time {
            let replies = self
                .inner
                .host
                .exchange_retrying(&[command])
                .await
                .map_err(|error| self.at(error))?;
            let set = replies.iter().try_for_each(|reply| self.inner.time_was_set(reply));
            set.map_err(|error| self.at(error))?;
        }
        let named = self.inner.take_name(&self.on_server, &self.path, options.replace).await;
        if named.is_err() && options.replace {
            let gone = self.inner.find(&self.path).await.is_ok_and(|found| found.is_none());
            state.only_copy = gone;
        }
        if named.is_ok() {
            state.writing = None;
            state.broken = true;
            let removed = self.journal.remove().await;
            self.claim.release();
            removed?;
        }
        named
    }

    async fn abort(&self, keep: bool) -> Result<()> {
        let mut state = self.state.lock().await;
        // The upload is abandoned, so a failure does not matter.
        drop(self.end(&mut state).await);
        state.broken = true;
        // Dropped on return: only then may another upload write to this name.
        let _writing = state.writing.take();
        let outcome = if keep && self.claim.journal().is_some() {
            Ok(())
        } else {
            let removed = match state.only_copy || !state.begun {
                true => Ok(()),
                false => self.remove_part().await,
            };
            removed.and(self.journal.remove().await)
        };
        self.claim.release();
        outcome
    }
}

/// Stores `path` from `offset` on and sends blocks until their channel is closed. `started` is completed once the
/// server has accepted STOR.
async fn upload(
    inner: &Inner,
    path: &[u8],
    offset: u64,
    mut blocks: mpsc::Receiver<Block>,
    started: oneshot::Sender<()>,
) -> Result<()> {
    let mut lessons = inner.server.learnt.mark();
    let (mut lane, mut data) = loop {
        let mut lane = inner.host.lanes.writer().await?;
        match lane.store(path, offset).await {
            Ok(data) => break (lane, data),
            // Retried at once, because haul now knows the server better (see `Learnt`).
            Err(error) if inner.server.learnt.since(&mut lessons) => {
                if offset > 0 && !inner.server.rest() {
                    return Err(error.with_retry(Retry::FromStart));
                }
            }
            Err(error) => return Err(error),
        }
    };
    // If the upload was dropped meanwhile, `blocks` is closed too.
    let _ = started.send(());
    loop {
        let block = match timeout(STALLED, blocks.recv()).await {
            Ok(block) => block,
            Err(_) => {
                lane.stall(true);
                let block = blocks.recv().await;
                lane.stall(false);
                block
            }
        };
        let Some(block) = block else { return end_upload(&mut lane, data).await };
        if let Err(error) = send(&mut data, &block).await {
            return Err(reason(&mut lane, data, error).await);
        }
    }
}

fn interrupted() -> Error {
    Error::new(ErrorKind::Interrupted, "write").because("the upload was aborted")
}
