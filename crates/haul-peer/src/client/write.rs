//! Files that are written to a peer.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use haul_storage::{
    Block, CommitOptions, CreateOptions, Error, ErrorKind, Held, Range, RangeSet, ReadAt, RelPath,
    Result, Retry, WriteAt,
};

use super::read::{Handle, PeerFile, Shared};
use super::session::{Received, Session, unexpected};
use super::{Lane, PeerHost, done};
use crate::outbox::Outgoing;
use crate::wire::convert::{path_bytes, required};
use crate::wire::messages::{self, to_client, to_server};
use crate::wire::{BulkHeader, bulk_head, piece_hash};

/// A part file on the peer. It belongs to a session: in another session, the file is started over, or resumed by the
/// next run.
pub(super) struct PeerUpload {
    host: Arc<PeerHost>,
    location: String,
    session: Arc<Session>,
    handle: u32,
    held: Held,
    /// Whether it was committed or aborted.
    is_closed: AtomicBool,
}

impl fmt::Debug for PeerUpload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerUpload").field("location", &self.location).finish_non_exhaustive()
    }
}

impl PeerUpload {
    pub(super) async fn create(
        host: &Arc<PeerHost>,
        path: &RelPath,
        options: &CreateOptions,
        location: String,
    ) -> Result<Self> {
        let request = messages::Create { path: path_bytes(path), options: Some(options.into()) };
        let outcome = async {
            let lane = host.lane().await?;
            let session = Arc::clone(&lane.session);
            match host.request_on(lane, to_server::Body::Create(request)).await? {
                to_client::Body::Created(created) => Ok((session, created)),
                _ => Err(unexpected()),
            }
        };
        let (session, created) = outcome.await.map_err(|error: Error| error.at(&location))?;
        // Made first: if the rest of the response is invalid, its drop releases the part file.
        let mut upload = Self {
            host: Arc::clone(host),
            location,
            session,
            handle: created.handle,
            held: Held::Unrecorded,
            is_closed: AtomicBool::new(false),
        };
        upload.held = required(created.held, "record")?.try_into()?;
        Ok(upload)
    }

    /// A lane of the session.
    async fn lane(&self) -> Result<Arc<Lane>> {
        let lane = self.host.lane().await?;
        if Arc::ptr_eq(&lane.session, &self.session) {
            return Ok(lane);
        }
        Err(Error::new(ErrorKind::Unreachable, "write")
            .because("the session in which the file was open has ended")
            .with_retry(Retry::FromStart))
    }

    async fn request(&self, body: to_server::Body) -> Result<to_client::Body> {
        let outcome = async {
            let lane = self.lane().await?;
            self.host.request_on(lane, body).await
        };
        outcome.await.map_err(|error: Error| error.at(&self.location))
    }

    async fn execute(&self, body: to_server::Body) -> Result<()> {
        done(&self.request(body).await?).map_err(|error| error.at(&self.location))
    }

    /// Sends a piece on the first lane that can take it, and waits until the server has written it.
    async fn write_piece(&self, offset: u64, data: Block) -> Result<()> {
        // Opens a lane if there is none.
        drop(self.lane().await?);
        let room = self.session.outbox.room(data.len()).await?;
        let mut responses = self.session.register_write(data.len());
        let _unsent = Unsent(&self.session, responses.id);
        let (hash, is_subtree) = piece_hash(offset, &data, None);
        let (id, handle) = (responses.id, self.handle);
        let header = BulkHeader { id, handle, offset, is_last: false, is_subtree, hash };
        let head = Bytes::copy_from_slice(&bulk_head(&header, data.len()));
        self.session.outbox.push(Outgoing { id, priority: 0, head, data, room });
        if self.session.lanes.load(Ordering::Acquire) == 0 {
            // The last lane may have ended before the piece was queued.
            self.session.outbox.cancel(id);
            return Err(super::session::lane_lost());
        }
        match responses.next().await? {
            Received::Message(to_client::Body::Done(_)) => Ok(()),
            _ => Err(unexpected()),
        }
    }
}

/// Forgets a write when it ends or is abandoned: an unsent piece must not be sent after its repetition.
struct Unsent<'a>(&'a Session, u32);

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        self.0.forget(self.1);
        self.0.outbox.cancel(self.1);
    }
}

/// An upload that was neither committed nor aborted is aborted; its part file stays for a later run.
impl Drop for PeerUpload {
    fn drop(&mut self) {
        if !*self.is_closed.get_mut() {
            let abort = messages::Abort { handle: self.handle, keep: true };
            self.host.post(&self.session, to_server::Body::Abort(abort));
        }
    }
}

#[async_trait]
impl WriteAt for PeerUpload {
    fn held(&self) -> &Held {
        &self.held
    }

    async fn record(&self, ranges: RangeSet) -> Result<()> {
        if !self.held.is_recorded() {
            return Ok(());
        }
        let ranges = Some((&ranges).into());
        let handle = self.handle;
        self.execute(to_server::Body::Record(messages::Record { handle, ranges })).await
    }

    async fn write_at(&self, offset: u64, mut block: Block) -> Result<()> {
        let mut offset = offset;
        let mut pieces = Vec::new();
        while !block.is_empty() {
            let lanes = self.session.lanes.load(Ordering::Relaxed);
            let piece = self.session.outbox.piece(lanes, u64::MAX);
            let until = usize::try_from(piece - offset % piece).unwrap_or(usize::MAX);
            let later = match block.len() > until {
                true => block.split_off(until),
                false => Block::new(),
            };
            let length = block.len() as u64;
            pieces.push(self.write_piece(offset, block));
            offset += length;
            block = later;
        }
        let written = futures_util::future::try_join_all(pieces).await;
        written.map(drop).map_err(|error| error.at(&self.location))
    }

    async fn copy_from(&self, source: &dyn ReadAt, _: Range) -> Result<bool> {
        let _: &dyn Any = source;
        Ok(false)
    }

    async fn sync(&self) -> Result<()> {
        self.execute(to_server::Body::Sync(messages::SyncPart { handle: self.handle })).await
    }

    async fn reopen(&self, uncached: bool) -> Result<Arc<dyn ReadAt>> {
        let handle = self.handle;
        match self.request(to_server::Body::Reopen(messages::Reopen { handle, uncached })).await? {
            to_client::Body::Opened(opened) => {
                let handle = Handle::new(&self.host, &self.session, opened.handle);
                let file = PeerFile::new((handle, opened, None), (None, self.location.clone()))?;
                Ok(Arc::new(Shared(Arc::new(file))))
            }
            _ => Err(unexpected().at(&self.location)),
        }
    }

    async fn commit(&self, size: u64, options: &CommitOptions) -> Result<()> {
        let (handle, options) = (self.handle, Some(options.into()));
        self.execute(to_server::Body::Commit(messages::Commit { handle, size, options })).await?;
        self.is_closed.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn abort(&self, keep: bool) -> Result<()> {
        let handle = self.handle;
        self.execute(to_server::Body::Abort(messages::Abort { handle, keep })).await?;
        self.is_closed.store(true, Ordering::Relaxed);
        Ok(())
    }
}
