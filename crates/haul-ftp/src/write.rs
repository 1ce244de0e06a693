//! A file that is written: from its first byte to its last, over one lane, as a part file beside its
//! final name.
//!
//! Blocks pass through a task that holds the lane from the first of them to the end of the upload.
//! What was handed to it and had not reached the server when the connection broke is gone, and nobody
//! but the server knows how much that is. So a broken upload is an error of the whole file; whoever
//! continues it asks for the part file's length, and goes on at the end of what is there.

use std::sync::Arc;

use async_trait::async_trait;
use haul_storage::journal::PartJournal;
use haul_storage::{
    Block, CommitOptions, CreateOptions, Error, ErrorKind, Held, Range, RangeSet, ReadAt, RelPath,
    Result, Retry, WriteAt, Writes,
};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::timeout;

use crate::data::{end_upload, reason, send};
use crate::error::refused;
use crate::host::Writing;
use crate::inner::Inner;
use crate::read::{FtpFile, STALLED};
use crate::wire::Command;

/// Blocks that wait for the connection.
const WAITING: usize = 2;

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct FtpUpload {
    inner: Arc<Inner>,
    path: RelPath,
    part: RelPath,
    on_server: Vec<u8>,
    journal: PartJournal,
    /// The length of the part file that was found.
    found: Option<u64>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Where the next block has to begin; `None` before the first one of a part file that was found.
    at: Option<u64>,
    feed: Option<Feed>,
    /// Something was written to the part file, or it was emptied.
    begun: bool,
    broken: bool,
    /// Nothing has the name any more: the part file is not to be removed.
    only_copy: bool,
    /// Shared with the task that writes, which may outlive this; `None` when all is over.
    writing: Option<Arc<Writing>>,
}

/// The way to the task that holds the lane.
#[derive(Debug)]
struct Feed {
    blocks: mpsc::Sender<Block>,
    ended: oneshot::Receiver<Result<()>>,
}

impl FtpUpload {
    /// Starts, or with `options.resume` continues, the part file of `path`.
    pub(crate) async fn create(
        inner: &Arc<Inner>,
        path: &RelPath,
        options: &CreateOptions,
    ) -> Result<Self> {
        let part = inner.part_of(path)?;
        let on_server = inner.on_server(&part);
        // A name that cannot be sent is refused before anything is done.
        Command::new("STOR", &on_server).map_err(|error| inner.at(error, path))?;
        let writing = inner.host.begin_writing(&on_server).await;
        let writing = writing.map_err(|error| inner.at(error, path))?;
        inner.check_parent(path).await?;
        inner.recover(path).await?;
        let found = match options.resume && inner.capabilities().resume {
            true => inner.find(&part).await?.filter(|found| found.is_file()),
            false => None,
        };
        let found = found.and_then(|found| found.size);
        let place = inner.journal_path(path);
        let journal = PartJournal::look(place, options, found, Writes::InOrder).await?;
        let found = found.filter(|_| journal.resumes());
        let upload = Self {
            inner: Arc::clone(inner),
            path: path.clone(),
            part,
            on_server,
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

    /// Opens the upload at `offset`.
    async fn begin(&self, state: &mut State, offset: u64) -> Result<()> {
        let (blocks, receiver) = mpsc::channel(WAITING);
        let (started, start) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let inner = Arc::clone(&self.inner);
        let on_server = self.on_server.clone();
        let writing = state.writing.clone();
        self.inner.host.lanes.spawn(async move {
            let outcome = upload(&inner, &on_server, offset, receiver, started).await;
            drop(writing);
            // Nobody is there to hear of it if the writer was dropped.
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

    /// Ends the upload, if one is open: the server has all of it.
    async fn end(&self, state: &mut State) -> Result<()> {
        let Some(Feed { blocks, ended }) = state.feed.take() else { return Ok(()) };
        drop(blocks);
        let outcome = ended.await.unwrap_or_else(|_| Err(interrupted()));
        state.broken |= outcome.is_err();
        outcome
    }

    async fn remove_part(&self) -> Result<()> {
        let removed = self.inner.host.ask(&[Command::new("DELE", &self.on_server)?]).await?;
        match removed.iter().find(|reply| !reply.is_done()) {
            Some(reply) if self.inner.find(&self.part).await?.is_some() => {
                Err(self.at(refused("remove", reply)))
            }
            _ => Ok(()),
        }
    }

    /// What a broken upload means to whoever writes: what was on its way is gone.
    async fn broke(&self, state: &mut State) -> Error {
        let error = match self.end(state).await {
            Err(error) => error,
            Ok(()) => interrupted(),
        };
        state.broken = true;
        let error = self.inner.explain(error, &self.path).await;
        let passes = error.retry() == Retry::Later;
        if passes { error.with_retry(Retry::FromStart) } else { error }
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
        let right = match (state.at, self.found) {
            (Some(at), _) => at == offset,
            (None, Some(found)) => offset <= found,
            (None, None) => offset == 0,
        };
        if !right {
            let expected = state.at.or(self.found).unwrap_or(0);
            let cause = format!("a write at {offset} instead of {expected}");
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
        let room = feed.blocks.reserve().await.map(|room| room.send(block)).is_ok();
        if !room {
            return Err(self.broke(&mut state).await);
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
        if state.feed.is_some() && self.end(&mut state).await.is_err() {
            return Err(self.broke(&mut state).await);
        }
        Ok(Arc::new(FtpFile::open(&self.inner, &self.part).await?.growing()))
    }

    async fn commit(&self, size: u64, options: &CommitOptions) -> Result<()> {
        let mut state = self.state.lock().await;
        let written = state.at.or(self.found).unwrap_or(0);
        if written != size || state.broken {
            let cause = format!("{written} bytes of {size} were written");
            return Err(self.at(Error::new(ErrorKind::InvalidInput, "commit").because(cause)));
        }
        if !state.begun {
            let begun = self.begin(&mut state, 0).await;
            if let Err(error) = begun {
                return Err(self.inner.explain(error, &self.path).await);
            }
        }
        if self.end(&mut state).await.is_err() {
            return Err(self.broke(&mut state).await);
        }
        let part = self.inner.look(&self.part).await?;
        if part.size != Some(size) {
            state.broken = true;
            let there = part.size.unwrap_or(0);
            let cause = format!("the server has {there} bytes of it, and {size} were sent");
            let error = Error::new(ErrorKind::Changed, "commit").because(cause);
            return Err(self.at(error));
        }
        let time = self.inner.set_time(&self.on_server, options.metadata.modified)?;
        if let Some(command) = time {
            let replies = self.inner.host.ask(&[command]).await.map_err(|error| self.at(error))?;
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
            self.journal.remove().await?;
        }
        named
    }

    async fn abort(&self, keep: bool) -> Result<()> {
        let mut state = self.state.lock().await;
        // Whether it ended well matters to nobody any more.
        drop(self.end(&mut state).await);
        state.broken = true;
        // The name is free for the next writer when nothing more is done here.
        let _writing = state.writing.take();
        if keep {
            return Ok(());
        }
        let removed = match state.only_copy || !state.begun {
            true => Ok(()),
            false => self.remove_part().await,
        };
        removed.and(self.journal.remove().await)
    }
}

/// Moves blocks to the server until there are no more.
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
            Err(error) if inner.server.learnt.since(&mut lessons) => {
                if offset > 0 && !inner.server.rest() {
                    return Err(error.with_retry(Retry::FromStart));
                }
            }
            Err(error) => return Err(error),
        }
    };
    // If nobody waits, there will be no blocks.
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
