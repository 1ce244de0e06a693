//! Files of a peer that are open for reading: their handles, and reads in windows of 8 MiB.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use async_trait::async_trait;
use futures_util::stream;
use haul_storage::{
    Block, BlockStream, Error, ErrorKind, Identity, Metadata, Range, ReadAt, RelPath, Result,
};

use super::ahead::Ahead;
use super::reading::Reading;
use super::send::send_on;
use super::session::{Session, unexpected};
use super::{Lane, PeerHost};
use crate::wire::convert::{path_bytes, required};
use crate::wire::messages::{self, to_client, to_server};

/// An open file. Its handle belongs to a session; in another one it is opened again.
pub(super) struct PeerFile {
    host: Arc<PeerHost>,
    location: String,
    /// `None` for a part file, which has no name to open it by again.
    path: Option<RelPath>,
    identity: Identity,
    is_ranged: bool,
    handle: Mutex<Handle>,
    /// The first range of data, if the server has sent it; `Some(None)` if the file has no data.
    first: Option<Option<Range>>,
    /// The beginning, which was read with the open.
    ahead: Option<Ahead>,
    /// Held by the task that opens the file again.
    reopening: tokio::sync::Mutex<()>,
}

/// A file that is open in a session. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Handle {
    host: Arc<PeerHost>,
    session: Weak<Session>,
    number: u32,
}

impl Handle {
    pub(super) fn new(host: &Arc<PeerHost>, session: &Arc<Session>, number: u32) -> Self {
        Self { host: Arc::clone(host), session: Arc::downgrade(session), number }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let Some(session) = self.session.upgrade() else { return };
        let close = messages::Close { handle: self.number };
        self.host.post(&session, to_server::Body::Close(close));
    }
}

impl fmt::Debug for PeerFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerFile").field("location", &self.location).finish_non_exhaustive()
    }
}

impl PeerFile {
    /// Opens a file, and reads its first `ahead` bytes in the same RTT.
    pub(super) async fn open(
        host: &Arc<PeerHost>,
        path: &RelPath,
        location: String,
        ahead: u64,
    ) -> Result<Arc<Self>> {
        let opened = async {
            if let Some(opened) = host.early_open(path).await {
                return Ok(opened);
            }
            let lane = host.lane().await?;
            open(host, lane, path, ahead).await
        };
        let opened = opened.await.map_err(|error: Error| error.at(&location))?;
        Self::new(opened, (Some(path.clone()), location)).map(Arc::new)
    }

    /// A file that is open in a session.
    pub(super) fn new(
        (handle, opened, reading): Opened,
        (path, location): (Option<RelPath>, String),
    ) -> Result<Self> {
        let identity: Identity = required(opened.identity, "identity")?.try_into()?;
        // A part file is still being written: its ranges change.
        let first = opened.first.filter(|_| path.is_some());
        let first = first.map(|first| data_from(first, 0)).transpose()?;
        let ahead = reading.map(|reading| Ahead::new(reading.until(identity.size)));
        Ok(Self {
            host: Arc::clone(&handle.host),
            location,
            path,
            identity,
            is_ranged: opened.ranged,
            handle: Mutex::new(handle),
            first,
            ahead,
            reopening: tokio::sync::Mutex::default(),
        })
    }

    /// A lane, and the number of the file in its session.
    async fn handle(&self) -> Result<(Arc<Lane>, u32)> {
        let lane = self.host.lane().await?;
        if let Some(number) = self.number_in(&lane.session) {
            return Ok((lane, number));
        }
        let Some(path) = &self.path else {
            return Err(Error::new(ErrorKind::Unreachable, "read")
                .because("the session in which the part file was open has ended"));
        };
        drop(lane);
        let _reopening = self.reopening.lock().await;
        let lane = self.host.lane().await?;
        if let Some(number) = self.number_in(&lane.session) {
            // Another task has opened the file again.
            return Ok((lane, number));
        }
        let session = Arc::clone(&lane.session);
        let (handle, opened, _) = open(&self.host, lane, path, 0).await?;
        let identity: Identity = required(opened.identity, "identity")?.try_into()?;
        if identity != self.identity {
            return Err(Error::new(ErrorKind::Changed, "read")
                .because(format!("{} became {identity}", self.identity)));
        }
        let number = handle.number;
        let earlier = std::mem::replace(&mut *self.current(), handle);
        drop(earlier);
        let lane = self.host.lane().await?;
        if !Arc::ptr_eq(&lane.session, &session) {
            return Err(super::session::lane_lost());
        }
        Ok((lane, number))
    }

    /// The number of the file, if it is open in a session.
    fn number_in(&self, session: &Arc<Session>) -> Option<u32> {
        let handle = self.current();
        let is_it = std::ptr::eq(handle.session.as_ptr(), Arc::as_ptr(session));
        is_it.then_some(handle.number)
    }

    fn current(&self) -> MutexGuard<'_, Handle> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn request(&self, body: impl FnOnce(u32) -> to_server::Body) -> Result<to_client::Body> {
        let outcome = async {
            let (lane, handle) = self.handle().await?;
            self.host.request_on(lane, body(handle)).await
        };
        outcome.await.map_err(|error: Error| error.at(&self.location))
    }

    async fn begin(&self, range: Range) -> Result<Reading> {
        let (lane, handle) = self.handle().await?;
        let end = range.end().min(self.identity.size);
        let length = end.saturating_sub(range.start());
        let offset = range.start();
        let request = messages::Read { handle, offset, length, ..messages::Read::default() };
        let responses = send_on(&lane, to_server::Body::Read(request))?;
        Ok(Reading::new(lane, responses, Range::between(offset, end.max(offset))))
    }
}

/// An open file, and the read of its beginning.
pub(super) type Opened = (Handle, messages::Opened, Option<Reading>);

/// Opens a file, and reads its first `ahead` bytes in the same RTT.
async fn open(host: &Arc<PeerHost>, lane: Arc<Lane>, path: &RelPath, ahead: u64) -> Result<Opened> {
    let session = Arc::clone(&lane.session);
    let request = to_server::Body::Open(messages::Open { path: path_bytes(path) });
    match host.once_and_read(lane, request, ahead).await? {
        (to_client::Body::Opened(opened), reading) => {
            Ok((Handle::new(host, &session, opened.handle), opened, reading))
        }
        _ => Err(unexpected()),
    }
}

/// The range of data in a response to a search from an offset on.
fn data_from(found: messages::FoundRange, from: u64) -> Result<Option<Range>> {
    let range = found.range.map(Range::try_from).transpose()?;
    // A caller that continues from its end on must make progress.
    match range.is_some_and(|range| range.start() < from || range.is_empty()) {
        true => Err(unexpected()),
        false => Ok(range),
    }
}

/// Bytes per request of a read. The server sends them as fast as the path allows, however slow the consumer is. Two
/// requests are in flight, so a read may hold twice this in memory.
const WINDOW: u64 = 8 << 20;

/// The stream of a read: the request whose pieces are next, the request after it, and what is left to request.
struct Windows {
    file: Arc<PeerFile>,
    current: Option<Reading>,
    next: Option<Reading>,
    left: Range,
    is_over: bool,
}

impl Windows {
    /// Requests the next window; `None` if nothing is left.
    async fn request(&mut self) -> Result<Option<Reading>> {
        if self.left.is_empty() {
            return Ok(None);
        }
        let length = self.left.len().min(WINDOW);
        let window = Range::new(self.left.start(), length);
        self.left = Range::between(window.end(), self.left.end());
        self.file.begin(window).await.map(Some)
    }

    async fn next(&mut self) -> Result<Option<Block>> {
        if self.current.is_none()
            && !self.left.is_empty()
            && let Some(ahead) = &self.file.ahead
            && let Some(block) = ahead.take(self.left).await
        {
            let next = self.left.start() + block.len() as u64;
            self.left = Range::between(next, self.left.end());
            return Ok(Some(block));
        }
        loop {
            if self.current.is_none() {
                self.current = match self.next.take() {
                    Some(next) => Some(next),
                    None => self.request().await?,
                };
                self.next = self.request().await?;
            }
            let Some(current) = &mut self.current else { return Ok(None) };
            if let Some(block) = current.next().await? {
                return Ok(Some(block));
            }
            if current.ended_early {
                return Ok(None);
            }
            self.current = None;
        }
    }
}

async fn step(mut windows: Windows) -> Option<(Result<Block>, Windows)> {
    if windows.is_over {
        return None;
    }
    match windows.next().await {
        Ok(Some(block)) => Some((Ok(block), windows)),
        Ok(None) => None,
        Err(error) => {
            windows.is_over = true;
            let error = error.at(&windows.file.location);
            Some((Err(error), windows))
        }
    }
}

/// A shared reference to a file, for streams that outlive the borrow.
#[derive(Debug, Clone)]
pub(super) struct Shared(pub(super) Arc<PeerFile>);

#[async_trait]
impl ReadAt for Shared {
    fn identity(&self) -> &Identity {
        &self.0.identity
    }

    fn is_ranged(&self) -> bool {
        self.0.is_ranged
    }

    async fn metadata(&self) -> Result<Metadata> {
        let request = |handle| to_server::Body::ReadMetadata(messages::ReadMetadata { handle });
        match self.0.request(request).await? {
            to_client::Body::Metadata(metadata) => Ok(metadata.try_into()?),
            _ => Err(unexpected().at(&self.0.location)),
        }
    }

    async fn recheck(&self) -> Result<Identity> {
        let request = |handle| to_server::Body::Recheck(messages::Recheck { handle });
        match self.0.request(request).await? {
            to_client::Body::Identity(identity) => Ok(identity.try_into()?),
            _ => Err(unexpected().at(&self.0.location)),
        }
    }

    async fn grown(&self) -> Result<Option<Arc<dyn ReadAt>>> {
        // The protocol has no request for it.
        Ok(None)
    }

    fn read_at(&self, range: Range) -> BlockStream {
        let file = Arc::clone(&self.0);
        let end = range.end().min(file.identity.size).max(range.start());
        let left = Range::between(range.start(), end);
        let windows = Windows { file, current: None, next: None, left, is_over: false };
        Box::pin(stream::unfold(windows, step))
    }

    fn read_until(&self, range: Range, _: &Arc<AtomicU64>) -> BlockStream {
        self.read_at(range)
    }

    async fn next_data(&self, from: u64) -> Result<Option<Range>> {
        match self.0.first {
            Some(None) => return Ok(None),
            Some(Some(data)) if from < data.end() => {
                return Ok(Some(Range::between(from.max(data.start()), data.end())));
            }
            Some(Some(data)) if data.end() >= self.0.identity.size => return Ok(None),
            _ => {}
        }
        let request = |handle| to_server::Body::NextData(messages::NextData { handle, from });
        let found = match self.0.request(request).await? {
            to_client::Body::FoundRange(found) => data_from(found, from),
            _ => Err(unexpected()),
        };
        found.map_err(|error| error.at(&self.0.location))
    }
}
