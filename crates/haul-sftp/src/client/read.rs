//! A file that is read over any lane. Each lane opens it when it first reads from it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join;
use futures_util::{StreamExt, stream};
use haul_storage::{
    Block, BlockStream, Error, ErrorKind, Identity, Metadata, Range, ReadAt, RelPath, Result,
};

use super::entry;
use super::error;
use super::handles::Handles;
use super::inner::Inner;
use super::part::{Part, reads};
use crate::codec::{OpenFlags, Request, Response, Status};

/// A file opened for reading.
#[derive(Debug)]
pub(super) struct SftpFile {
    inner: Arc<Inner>,
    path: RelPath,
    identity: Identity,
    metadata: Metadata,
    handles: Arc<Handles>,
    /// This is a later version than the one that was opened: it is read by open handles only, since a new open might
    /// find another file.
    has_grown: bool,
}

impl SftpFile {
    /// Opens `path`; a link is refused. All lanes must find the same version of the file.
    pub(super) async fn open(inner: &Arc<Inner>, path: &RelPath) -> Result<Self> {
        let file = Self::opened(inner, path, None, true).await?;
        file.handles.expect(file.identity.clone());
        Ok(file)
    }

    /// Like [`SftpFile::open`], and reads the range `first` in the same flight, if its handle can be predicted.
    pub(super) async fn open_reading(
        inner: &Arc<Inner>,
        path: &RelPath,
        first: Range,
    ) -> Result<Self> {
        let file = Self::opened(inner, path, Some(first), false).await?;
        file.handles.expect(file.identity.clone());
        Ok(file)
    }

    /// Opens a file that is still being written, whose version may change: what was prefetched might be outdated.
    pub(super) async fn open_changing(inner: &Arc<Inner>, path: &RelPath) -> Result<Self> {
        Self::opened(inner, path, None, false).await
    }

    /// Opens `path` and reads `first`. With `prefetches`, each lane that opens it reads its next piece.
    async fn opened(
        inner: &Arc<Inner>,
        path: &RelPath,
        first: Option<Range>,
        prefetches: bool,
    ) -> Result<Self> {
        let on_server = inner.on_server(path);
        let handles = Arc::new(Handles::new(inner, path, on_server, OpenFlags::READ));
        if !prefetches {
            handles.expect_first();
        }
        handles.open_on_new();
        handles.open_ahead(Duration::ZERO);
        // In one flight: what was opened below a link is closed again, and what was read from it is discarded.
        let (checked, attrs) = join(inner.check_parent(path), handles.open_first(first)).await;
        checked?;
        let attrs = attrs?;
        let entry = entry::entry(path.clone(), &attrs);
        Ok(Self {
            inner: Arc::clone(inner),
            path: path.clone(),
            identity: entry.identity(),
            metadata: entry.metadata(),
            handles,
            has_grown: false,
        })
    }

    /// The handles of the file on the lanes.
    pub(super) fn handles(&self) -> &Arc<Handles> {
        &self.handles
    }

    /// Whether it is on the same server as `inner`.
    pub(super) fn is_on(&self, inner: &Inner) -> bool {
        Arc::ptr_eq(&self.inner.host, &inner.host)
    }
}

#[async_trait]
impl ReadAt for SftpFile {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn is_ranged(&self) -> bool {
        true
    }

    async fn metadata(&self) -> Result<Metadata> {
        Ok(self.metadata.clone())
    }

    async fn recheck(&self) -> Result<Identity> {
        let seen = if self.has_grown { None } else { self.handles.stats_behind().await };
        let responses = match seen {
            Some(seen) => seen,
            None => vec![self.inner.host.request_with_retries(&self.handles.look()).await?],
        };
        let mut now = self.identity.clone();
        for response in responses {
            let attrs =
                error::attrs("access", response).map_err(|e| self.inner.at(e, &self.path))?;
            let seen = entry::entry(self.path.clone(), &attrs).identity();
            if seen != self.identity {
                now = seen;
            }
        }
        Ok(now)
    }

    async fn grown(&self) -> Result<Option<Arc<dyn ReadAt>>> {
        // By an open handle, since the path may name another file by now.
        let Some((session, handle)) = self.handles.current() else { return Ok(None) };
        let response = session.request(&Request::Fstat(handle)).response().await?;
        let attrs = error::attrs("access", response).map_err(|e| self.inner.at(e, &self.path))?;
        let entry = entry::entry(self.path.clone(), &attrs);
        if entry.known_size().is_none_or(|size| size <= self.identity.size) {
            return Ok(None);
        }
        Ok(Some(Arc::new(Self {
            inner: Arc::clone(&self.inner),
            path: self.path.clone(),
            identity: entry.identity(),
            metadata: entry.metadata(),
            handles: Arc::clone(&self.handles),
            has_grown: true,
        })))
    }

    fn read_at(&self, range: Range) -> BlockStream {
        let reading = Reading {
            inner: Arc::clone(&self.inner),
            path: self.path.clone(),
            handles: Arc::clone(&self.handles),
            range: range.intersection(Range::between(0, self.identity.size)),
            has_grown: self.has_grown,
            state: State::New,
        };
        stream::unfold(reading, |mut reading| async move {
            let block = reading.next().await.transpose()?;
            Some((block, reading))
        })
        .boxed()
    }

    fn read_until(&self, range: Range, _end: &Arc<AtomicU64>) -> BlockStream {
        self.read_at(range)
    }

    async fn next_data(&self, from: u64) -> Result<Option<Range>> {
        Ok((from < self.identity.size).then(|| Range::between(from, self.identity.size)))
    }
}

/// One range in flight. Except for prefetched pieces, all its requests are sent at once, on one lane.
struct Reading {
    inner: Arc<Inner>,
    path: RelPath,
    handles: Arc<Handles>,
    range: Range,
    has_grown: bool,
    state: State,
}

enum State {
    New,
    Requested(VecDeque<Part>),
    Over,
}

impl Reading {
    async fn next(&mut self) -> Result<Option<Block>> {
        let outcome = self.advance().await;
        if !matches!(outcome, Ok(Some(_))) {
            self.state = State::Over;
        }
        outcome.map_err(|error| self.inner.at(error, &self.path))
    }

    async fn advance(&mut self) -> Result<Option<Block>> {
        if let State::New = self.state {
            self.request().await?;
        }
        loop {
            let State::Requested(parts) = &mut self.state else { return Ok(None) };
            let Some(part) = parts.pop_front() else { return Ok(None) };
            let Part { range, requested, is_guessed, session, handle, pending } = part;
            match pending.response().await? {
                Response::Data(mut block) => {
                    let length = block.len() as u64;
                    if length > requested {
                        return Err(Error::new(ErrorKind::Protocol, "read").because(format!(
                            "the server sent {length} bytes, {requested} were requested"
                        )));
                    }
                    if length == 0 {
                        return Err(Error::new(ErrorKind::Protocol, "read")
                            .because("the server sent neither data nor end-of-file"));
                    }
                    // A range requested along with the open may contain bytes beyond the size that the open reported.
                    let length = length.min(range.len());
                    block.truncate(usize::try_from(length).unwrap_or(usize::MAX));
                    if length < range.len() {
                        // A short response: the rest is requested at once, and returned before later parts.
                        let rest = range.split_at(length).1;
                        let rest = Part::request(&session, &handle, rest);
                        self.handles.stat_behind(&rest);
                        parts.push_front(rest);
                    }
                    return Ok(Some(block));
                }
                Response::Status { status: Status::Eof, .. } => return Ok(None),
                // The file was not open yet, on a server that does not process requests in order.
                Response::Status { .. } if is_guessed => {
                    let again = Part::request(&session, &handle, range);
                    self.handles.stat_behind(&again);
                    parts.push_front(again);
                }
                other => return Err(error::unexpected("read", other)),
            }
        }
    }

    async fn request(&mut self) -> Result<()> {
        if self.range.is_empty() {
            self.state = State::Over;
            return Ok(());
        }
        let mut parts = VecDeque::new();
        let mut rest = self.range;
        while !self.has_grown
            && let Some(part) = self.handles.take_piece(rest)
        {
            rest = rest.split_at(part.range.len()).1;
            parts.push_back(part);
        }
        if !rest.is_empty() {
            let (room, handle) = match self.has_grown {
                true => self.handles.open(rest.len())?,
                false => self.handles.any(rest.len()).await?,
            };
            let most = u64::from(room.server().await?.read);
            let reads = reads(rest, most, room.is_far());
            parts.extend(reads.into_iter().map(|range| Part::request(&room, &handle, range)));
        }
        for part in &parts {
            self.handles.stat_behind(part);
        }
        self.state = State::Requested(parts);
        Ok(())
    }
}
