//! A file that is read over any lane: each lane opens it for itself when it first has to.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use haul_storage::{
    Block, BlockStream, Error, ErrorKind, Identity, Metadata, Range, ReadAt, RelPath, Result,
};
use tokio::sync::OnceCell;

use super::entry;
use super::error;
use super::habits::{Lane, may_be_too_many};
use super::session::{Pending, Room, Session};
use super::storage::Inner;
use crate::codec::{Attrs, FileKind, Handle, OpenFlags, Request, Response, Status};

/// A file opened for reading.
#[derive(Debug)]
pub(super) struct SftpFile {
    inner: Arc<Inner>,
    path: RelPath,
    on_server: Bytes,
    identity: Identity,
    metadata: Metadata,
    handles: Arc<Handles>,
}

impl SftpFile {
    /// Opens `path`; a link is refused.
    pub(super) async fn open(inner: &Arc<Inner>, path: &RelPath) -> Result<Self> {
        inner.check_parent(path).await?;
        let on_server = inner.on_server(path);
        let handles = Arc::new(Handles::new(inner, path, on_server.clone(), OpenFlags::READ));
        handles.open_ahead();
        let attrs = handles.open_first().await?;
        let entry = entry::entry(path.clone(), &attrs);
        // Nobody else has it yet, so nobody has set it.
        drop(handles.version.set(entry.identity()));
        Ok(Self {
            inner: Arc::clone(inner),
            path: path.clone(),
            on_server,
            identity: entry.identity(),
            metadata: entry.metadata(),
            handles,
        })
    }

    /// Where on the server, and over which lanes.
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

    async fn metadata(&self) -> Result<Metadata> {
        Ok(self.metadata.clone())
    }

    async fn recheck(&self) -> Result<Identity> {
        let answer = self.inner.host.ask(&Request::Lstat(self.on_server.clone())).await?;
        let attrs = error::attrs("look at", answer).map_err(|e| self.inner.at(e, &self.path))?;
        Ok(entry::entry(self.path.clone(), &attrs).identity())
    }

    fn read_at(&self, range: Range) -> BlockStream {
        let reading = Reading {
            inner: Arc::clone(&self.inner),
            path: self.path.clone(),
            handles: Arc::clone(&self.handles),
            range: range.intersection(Range::between(0, self.identity.size)),
            state: State::New,
        };
        stream::unfold(reading, |mut reading| async move {
            let block = reading.next().await.transpose()?;
            Some((block, reading))
        })
        .boxed()
    }

    async fn next_data(&self, from: u64) -> Result<Option<Range>> {
        Ok((from < self.identity.size).then(|| Range::between(from, self.identity.size)))
    }
}

/// One range on its way: all its requests are made at once, on one lane.
struct Reading {
    inner: Arc<Inner>,
    path: RelPath,
    handles: Arc<Handles>,
    range: Range,
    state: State,
}

enum State {
    New,
    Asked { session: Arc<Session>, handle: Handle, parts: VecDeque<Part> },
    Over,
}

/// One READ.
struct Part {
    range: Range,
    pending: Pending,
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
            self.ask().await?;
        }
        let State::Asked { session, handle, parts } = &mut self.state else { return Ok(None) };
        let Some(Part { range, pending }) = parts.pop_front() else { return Ok(None) };
        match pending.answer().await? {
            Response::Data(block) => {
                let length = block.len() as u64;
                if length > range.len() {
                    return Err(Error::new(ErrorKind::Protocol, "read").because(format!(
                        "the server sent {length} bytes where {} were asked for",
                        range.len()
                    )));
                }
                if length == 0 {
                    return Err(Error::new(ErrorKind::Protocol, "read")
                        .because("the server sent no bytes and no end of the file"));
                }
                if length < range.len() {
                    // A short answer: the rest is asked for at once, and comes before all others.
                    let rest = range.split_at(length).1;
                    let pending = session.request(&read(handle, rest));
                    parts.push_front(Part { range: rest, pending });
                }
                Ok(Some(block))
            }
            Response::Status { status: Status::Eof, .. } => Ok(None),
            other => Err(error::unexpected("read", other)),
        }
    }

    async fn ask(&mut self) -> Result<()> {
        if self.range.is_empty() {
            self.state = State::Over;
            return Ok(());
        }
        let (room, handle) = self.handles.any(self.range.len()).await?;
        let session = Arc::clone(&room);
        let most = u64::from(session.server().await?.read);
        let mut parts = VecDeque::new();
        let mut rest = self.range;
        while !rest.is_empty() {
            let (part, after) = rest.split_at(most);
            parts.push_back(Part { range: part, pending: session.request(&read(&handle, part)) });
            rest = after;
        }
        self.state = State::Asked { session, handle, parts };
        Ok(())
    }
}

fn read(handle: &Handle, range: Range) -> Request {
    // A part is never longer than the server's limit, which is 32 bits.
    let length = u32::try_from(range.len()).unwrap_or(u32::MAX);
    Request::Read { handle: handle.clone(), offset: range.start(), length }
}

/// A file's handles, one a lane. Dropped, they are closed.
#[derive(Debug)]
pub(super) struct Handles {
    inner: Arc<Inner>,
    path: RelPath,
    on_server: Bytes,
    flags: OpenFlags,
    /// What every lane has to find there.
    version: OnceLock<Identity>,
    open: Mutex<HashMap<usize, OnLane>>,
    /// Lanes of its own, where a server wants that.
    own: Mutex<Vec<Lane>>,
    /// Held by who opens it where handles are few.
    opening: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone)]
struct OnLane {
    session: Weak<Session>,
    handle: Arc<OnceCell<Opened>>,
}

#[derive(Debug, Clone)]
struct Opened {
    handle: Handle,
    /// What was found there when it was opened, if that was looked at.
    found: Option<Identity>,
}

impl Handles {
    /// No handle yet; lanes open `on_server` with `flags`.
    pub(super) fn new(
        inner: &Arc<Inner>,
        path: &RelPath,
        on_server: Bytes,
        flags: OpenFlags,
    ) -> Self {
        let inner = Arc::clone(inner);
        let (version, open, own, opening) = Default::default();
        Self { inner, path: path.clone(), on_server, flags, version, open, own, opening }
    }

    /// A lane for so many bytes and the handle on it: the lane with the least to do, unless handles
    /// are few.
    pub(super) async fn any(&self, bytes: u64) -> Result<(Room, Handle)> {
        let host = &self.inner.host;
        if !host.habits.are_handles_few() {
            let room = host.choose(bytes).await?;
            match self.on(&room).await {
                Ok(handle) => return Ok((room, handle)),
                Err(error) if !may_be_too_many(&error) => return Err(error),
                Err(_) => {
                    if let Some((session, handle)) = self.all().pop() {
                        host.habits.learn_one_handle_a_file();
                        return Ok((session.reserve(bytes), handle));
                    }
                }
            }
        }
        let _opening = self.opening.lock().await;
        if let Some((session, handle)) = self.all().pop() {
            return Ok((session.reserve(bytes), handle));
        }
        let mut opening = host.opening(false);
        loop {
            let lane = opening.lane().await?;
            match self.on(&lane).await {
                Ok(handle) => {
                    opening.opened();
                    let room = lane.reserve(bytes);
                    self.keep(lane);
                    return Ok((room, handle));
                }
                Err(error) => opening.refused(&lane, error)?,
            }
        }
    }

    /// A lane that is open; does not open another one.
    pub(super) fn first(&self) -> Option<(Arc<Session>, Handle)> {
        self.all().pop()
    }

    /// Keeps a lane of its own for as long as the file is open; others may be closed meanwhile.
    pub(super) fn keep(&self, lane: Lane) {
        if !lane.is_own() {
            return;
        }
        self.own.lock().unwrap_or_else(PoisonError::into_inner).push(lane);
    }

    /// The handle on a lane; opens the file there if it is not open yet.
    pub(super) async fn on(&self, session: &Arc<Session>) -> Result<Handle> {
        let Opened { handle, found } = self.opened(session).await?;
        match (self.version.get(), &found) {
            (Some(version), Some(found)) if version != found => {
                Err(self.inner.at(changed(version, found), &self.path))
            }
            _ => Ok(handle),
        }
    }

    async fn opened(&self, session: &Arc<Session>) -> Result<Opened> {
        let on_lane = self.on_lane(session);
        let open = async || {
            let (attrs, handle) = self.open_on(session, true).await?;
            let found = entry::entry(self.path.clone(), &attrs).identity();
            Ok(Opened { handle, found: Some(found) })
        };
        on_lane.handle.get_or_try_init(open).await.cloned()
    }

    /// Opens it on the other lanes while it is opened on the first, if nothing is moved yet: then
    /// they would have to wait for that a round trip later.
    fn open_ahead(self: &Arc<Self>) {
        let host = &self.inner.host;
        if host.habits.are_handles_few() {
            return;
        }
        host.lanes.foresee_on_new(self.questions().into());
        for session in host.lanes.others_idle() {
            let handles = Arc::clone(self);
            host.lanes.spawn(async move {
                // Whoever needs it there tries again, and hears what is wrong.
                drop(handles.opened(&session).await);
            });
        }
    }

    /// Opens the file on its first lane, and says what it is.
    async fn open_first(&self) -> Result<Attrs> {
        let mut opening = self.inner.host.opening(false);
        loop {
            let lane = opening.lane().await?;
            match self.open_on(&lane, false).await {
                Ok((attrs, handle)) => {
                    opening.opened();
                    self.adopt(&lane, handle);
                    self.keep(lane);
                    return Ok(attrs);
                }
                Err(error) => opening.refused(&lane, error)?,
            }
        }
    }

    /// Takes over a handle that was opened otherwise.
    pub(super) fn adopt(&self, session: &Arc<Session>, handle: Handle) {
        let on_lane = self.on_lane(session);
        // It is new, so nobody has set it.
        drop(on_lane.handle.set(Opened { handle, found: None }));
    }

    /// The handles that are open, with their lanes.
    pub(super) fn all(&self) -> Vec<(Arc<Session>, Handle)> {
        let open = self.lock();
        let live = open.values().filter_map(|on_lane| {
            Some((on_lane.session.upgrade()?, on_lane.handle.get()?.handle.clone()))
        });
        live.filter(|(session, _)| !session.is_ended()).collect()
    }

    /// Gives all handles away: they are no longer closed by this.
    pub(super) fn take_all(&self) -> Vec<(Arc<Session>, Handle)> {
        let all = self.all();
        self.lock().clear();
        all
    }

    /// Looks and opens in one round trip. What is there has to be a file, and no link. `early`: as it
    /// was found a moment ago will do, because it is compared with what the first lane found.
    async fn open_on(&self, session: &Session, early: bool) -> Result<(Attrs, Handle)> {
        let at = |error: Error| self.inner.at(error, &self.path);
        let [look, open] = self.questions().map(|question| match early {
            true => session.request_or_foreseen(&question),
            false => session.request(&question),
        });
        let attrs = error::attrs("open", look.answer().await?).map_err(at)?;
        let handle = error::handle("open", open.answer().await?);
        let kind = match attrs.kind() {
            Some(FileKind::File) | None => None,
            Some(FileKind::Directory) => Some((ErrorKind::IsADirectory, "a directory")),
            Some(FileKind::Symlink) => Some((ErrorKind::InvalidInput, "a symbolic link")),
            Some(_) => Some((ErrorKind::InvalidInput, "no regular file")),
        };
        if let Some((kind, what)) = kind {
            if let Ok(handle) = handle {
                session.post(&Request::Close(handle));
            }
            return Err(at(Error::new(kind, "open").because(format!("it is {what}"))));
        }
        Ok((attrs, handle.map_err(at)?))
    }

    fn questions(&self) -> [Request; 2] {
        let (path, flags, attrs) = (self.on_server.clone(), self.flags, Attrs::default());
        [Request::Lstat(path.clone()), Request::Open { path, flags, attrs }]
    }

    fn on_lane(&self, session: &Arc<Session>) -> OnLane {
        let mut open = self.lock();
        open.retain(|_, on_lane| on_lane.session.strong_count() > 0);
        let new = || OnLane { session: Arc::downgrade(session), handle: Arc::default() };
        open.entry(session.id()).or_insert_with(new).clone()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, OnLane>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        for (session, handle) in self.all() {
            session.post(&Request::Close(handle));
        }
    }
}

fn changed(was: &Identity, is: &Identity) -> Error {
    Error::new(ErrorKind::Changed, "read")
        .because(format!("it changed while being read: {was} became {is}"))
}
