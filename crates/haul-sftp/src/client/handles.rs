//! The handles of a file: each lane opens the file when it first needs it, or ahead of need.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use haul_storage::{Error, ErrorKind, Identity, Range, RelPath, Result, Retry};
use tokio::sync::{OnceCell, SetError};
use tokio::time::sleep;

use super::entry;
use super::error;
use super::inner::Inner;
use super::opening::{Lane, Opening};
use super::part::{Part, Pieces, read, reads};
use super::prefetch::PIECE;
use super::quirks::may_be_too_many;
use super::session::{Pending, Room, Session};
use super::trailing_check::TrailingCheck;
use crate::codec::{Attrs, FileKind, Handle, OpenFlags, Request, Response};

/// The handles of a file, one per lane. Dropping it closes them.
#[derive(Debug)]
pub(super) struct Handles {
    inner: Arc<Inner>,
    path: RelPath,
    on_server: Bytes,
    flags: OpenFlags,
    /// The version of the file that every lane must find.
    version: OnceLock<Identity>,
    /// Handles by lane.
    open: Mutex<HashMap<usize, OnLane>>,
    /// Lanes reserved for this file, if the server requires that.
    own: Mutex<Vec<Lane>>,
    /// A shared lane that must stay open, even if the window wants fewer lanes.
    retained: OnceLock<Arc<Session>>,
    /// Held while the file is opened, if handles are few.
    opening: tokio::sync::Mutex<()>,
    pieces: Pieces,
    next_piece: AtomicU64,
    /// Only the range that the caller reads first is prefetched, by the first lane; other lanes prefetch no pieces.
    is_first_known: AtomicBool,
    trailing_check: TrailingCheck,
}

#[derive(Debug, Clone)]
struct OnLane {
    session: Weak<Session>,
    handle: Arc<OnceCell<Opened>>,
}

#[derive(Debug, Clone)]
struct Opened {
    handle: Handle,
    /// The version of the file when it was opened, if it was checked.
    found: Option<Identity>,
    /// The handle was passed on, to be closed or used elsewhere. A server may reuse the same handle at once, so closing
    /// it a second time could close another file.
    is_taken: Arc<AtomicBool>,
}

impl Opened {
    fn new(handle: Handle, found: Option<Identity>) -> Self {
        Self { handle, found, is_taken: Arc::default() }
    }

    /// The handle, to the first caller only.
    fn take(&self) -> Option<Handle> {
        (!self.is_taken.swap(true, Ordering::Relaxed)).then(|| self.handle.clone())
    }
}

impl Handles {
    /// Opens no handle yet. Lanes will open `on_server` with `flags`.
    pub(super) fn new(
        inner: &Arc<Inner>,
        path: &RelPath,
        on_server: Bytes,
        flags: OpenFlags,
    ) -> Self {
        let inner = Arc::clone(inner);
        Self {
            inner,
            path: path.clone(),
            on_server,
            flags,
            version: OnceLock::new(),
            open: Mutex::default(),
            own: Mutex::default(),
            retained: OnceLock::new(),
            opening: tokio::sync::Mutex::default(),
            pieces: Pieces::default(),
            next_piece: AtomicU64::new(0),
            is_first_known: AtomicBool::new(false),
            trailing_check: TrailingCheck::default(),
        }
    }

    /// Sets the version of the file that every lane must find.
    pub(super) fn expect(&self, version: Identity) {
        // Called only once, by the function that opens the file.
        drop(self.version.set(version));
    }

    /// Removes and returns a prefetched part at the start of `range`.
    pub(super) fn take_piece(&self, range: Range) -> Option<Part> {
        self.pieces.take(range, self.version.get()?)
    }

    /// From now on, only the range passed to [`Handles::open_first`] is prefetched.
    pub(super) fn expect_first(&self) {
        self.is_first_known.store(true, Ordering::Relaxed);
    }

    /// The request that looks up the file.
    pub(super) fn look(&self) -> Request {
        Request::Lstat(self.on_server.clone())
    }

    /// Sends a stat behind a READ, if it is one of the last.
    pub(super) fn stat_behind(&self, part: &Part) {
        let is_end = self.version.get().is_some_and(|version| version.size == part.range.end());
        let lanes = || self.all().into_iter().map(|(session, _)| session).collect();
        self.trailing_check.send(part, is_end, lanes, &self.look());
    }

    /// The results of the stats behind the last READs.
    pub(super) async fn stats_behind(&self) -> Option<Vec<Response>> {
        self.trailing_check.responses().await
    }

    /// A lane for `bytes` bytes, and the handle on it: the least loaded lane, unless handles are few.
    pub(super) async fn any(&self, bytes: u64) -> Result<(Room, Handle)> {
        let host = &self.inner.host;
        if !host.quirks.are_handles_few() {
            let room = host.choose(bytes).await?;
            match self.on(&room).await {
                Ok(handle) => return Ok((room, handle)),
                Err(error) if !may_be_too_many(&error) => return Err(error),
                Err(_) => {
                    if let Some((session, handle)) = self.current() {
                        host.quirks.learn_one_handle_a_file();
                        return Ok((session.reserve(bytes), handle));
                    }
                }
            }
        }
        let _opening = self.opening.lock().await;
        if let Some((session, handle)) = self.current() {
            return Ok((session.reserve(bytes), handle));
        }
        let mut opening = host.opening(false);
        loop {
            let lane = opening.lane().await?;
            match self.on(&lane).await {
                Ok(handle) => {
                    opening.opened();
                    let room = lane.reserve(bytes);
                    self.retain_own(lane);
                    return Ok((room, handle));
                }
                Err(error) => opening.refused(&lane, error)?,
            }
        }
    }

    /// A handle that is open, and room for `bytes` bytes on its lane; does not open one.
    ///
    /// # Errors
    /// If all lanes with a handle are lost: the file may have been replaced since.
    pub(super) fn open(&self, bytes: u64) -> Result<(Room, Handle)> {
        let lost = || {
            Error::new(ErrorKind::Unreachable, "read")
                .because("the connection on which the file was open is lost")
                .with_retry(Retry::FromStart)
        };
        let (session, handle) = self.current().ok_or_else(lost)?;
        Ok((session.reserve(bytes), handle))
    }

    /// An open handle and its lane; does not open one.
    pub(super) fn first(&self) -> Option<(Arc<Session>, Handle)> {
        self.all().pop()
    }

    /// Keeps a lane that is reserved for this file until the file is closed. Ignores shared lanes.
    pub(super) fn retain_own(&self, lane: Lane) {
        if !lane.is_own() {
            return;
        }
        self.own.lock().unwrap_or_else(PoisonError::into_inner).push(lane);
    }

    /// Keeps a shared lane until the file is closed: an upload in order cannot continue on another lane.
    pub(super) fn retain_shared(&self, session: &Arc<Session>) {
        // Called only once.
        drop(self.retained.set(Arc::clone(session)));
    }

    /// The handle on a lane; opens the file there if it is not open yet.
    pub(super) async fn on(&self, session: &Arc<Session>) -> Result<Handle> {
        let Opened { handle, found, .. } = self.opened(session).await?;
        match (self.version.get(), &found) {
            (Some(version), Some(found)) if version != found => {
                Err(self.inner.at(changed(version, found), &self.path))
            }
            _ => Ok(handle),
        }
    }

    async fn opened(&self, session: &Arc<Session>) -> Result<Opened> {
        self.opened_as(session, &self.on_lane(session)).await
    }

    async fn opened_as(&self, session: &Arc<Session>, on_lane: &OnLane) -> Result<Opened> {
        let open = async || {
            let (attrs, handle) = self.open_on(session, None).await?;
            let found = self.found(&attrs);
            Ok(Opened::new(handle, Some(found)))
        };
        on_lane.handle.get_or_try_init(open).await.cloned()
    }

    /// Opens the file on the other lanes while it is opened on the first one, if they are idle: otherwise they would
    /// have to open it an RTT later. Waits for `after` first, so that a file that the first lane creates exists.
    pub(super) fn open_ahead(self: &Arc<Self>, after: Duration) {
        let host = &self.inner.host;
        if host.quirks.are_handles_few() {
            return;
        }
        for session in host.lanes.others_idle() {
            let handles = Arc::clone(self);
            host.lanes.spawn(async move {
                sleep(after).await;
                let on_lane = handles.on_lane(&session);
                // Errors are ignored: opening it there when it is needed reports them.
                let Ok(opened) = handles.opened_as(&session, &on_lane).await else { return };
                // The other handles may have been taken meanwhile, without this one.
                if !handles.has(&session, &on_lane)
                    && let Some(handle) = opened.take()
                {
                    session.post(&Request::Close(handle));
                }
            });
        }
    }

    /// Has new lanes open the file along with their greeting.
    pub(super) fn open_on_new(&self) {
        let host = &self.inner.host;
        if !host.quirks.are_handles_few() {
            host.lanes.prefetch_on_new(self.open_requests().into());
        }
    }

    /// Closes all handles: those that were opened ahead may belong to a file that was replaced since.
    pub(super) fn open_anew(&self) {
        for (session, handle) in self.take_all() {
            session.post(&Request::Close(handle));
        }
    }

    /// Opens the file on its first lane, and reads the range `first` along with it, if that is given. Returns the
    /// attributes of the file.
    pub(super) async fn open_first(&self, first: Option<Range>) -> Result<Attrs> {
        let mut opening = self.inner.host.opening(false);
        let [_, open] = self.open_requests();
        let mut ahead = self.inner.host.lanes.ahead(&open);
        loop {
            let lane = match ahead.take() {
                Some(session) => Opening::ahead(session),
                None => opening.lane().await?,
            };
            match self.open_on(&lane, first).await {
                Ok((attrs, handle)) => {
                    opening.opened();
                    self.adopt(&lane, handle);
                    self.retain_own(lane);
                    return Ok(attrs);
                }
                Err(error) => opening.refused(&lane, error)?,
            }
        }
    }

    /// Takes over a handle that its caller has opened.
    pub(super) fn adopt(&self, session: &Arc<Session>, handle: Handle) {
        let on_lane = self.on_lane(session);
        let adopted = on_lane.handle.set(Opened::new(handle, None));
        // The file was opened ahead on this lane, too: close the second handle.
        if let Err(
            SetError::AlreadyInitializedError(second) | SetError::InitializingError(second),
        ) = adopted
        {
            session.post(&Request::Close(second.handle));
        }
    }

    /// All open handles with their lanes.
    pub(super) fn all(&self) -> Vec<(Arc<Session>, Handle)> {
        self.live(|_| true)
    }

    /// An open handle of the version that every lane must find, with its lane.
    pub(super) fn current(&self) -> Option<(Arc<Session>, Handle)> {
        let version = self.version.get();
        self.live(|Opened { found, .. }| match (version, found) {
            (Some(version), Some(found)) => version == found,
            _ => true,
        })
        .pop()
    }

    fn live(&self, which: impl Fn(&Opened) -> bool) -> Vec<(Arc<Session>, Handle)> {
        let live = live(&self.lock(), which).into_iter();
        live.map(|(session, opened)| (session, opened.handle)).collect()
    }

    /// Passes all handles to the caller, who must close them.
    pub(super) fn take_all(&self) -> Vec<(Arc<Session>, Handle)> {
        let mut open = self.lock();
        let taken = live(&open, |_| true).into_iter().filter_map(|(session, opened)| {
            let handle = opened.take()?;
            Some((session, handle))
        });
        let taken = taken.collect();
        open.clear();
        taken
    }

    /// Looks up and opens the file in one RTT, or uses prefetched responses to both. The returned attributes
    /// show which version of the file is transferred. It must be a regular file, not a link.
    async fn open_on(
        &self,
        session: &Arc<Session>,
        first: Option<Range>,
    ) -> Result<(Attrs, Handle)> {
        let [look, open] = self.open_requests().map(|request| session.prefetched(&request));
        if let (Some(look), Some(open)) = (look, open)
            && let Ok((attrs, handle)) = self.opened_by(session, look, open).await
        {
            // Take the prefetched READs now: later another file may have the same handle.
            self.pieces.add(session, &handle, &self.found(&attrs));
            return Ok((attrs, handle));
        }
        // The prefetched open may have failed because the file did not exist yet, so open it again.
        let most = match first {
            Some(_) => u64::from(session.server().await?.read),
            None => PIECE,
        };
        let [look, open] = self.open_requests();
        let look = session.request(&look);
        let mut ranges = Vec::new();
        let (open, ahead) = session.request_ahead(&open, false, |handle| {
            ranges = self.ahead(first, most);
            ranges.iter().map(|range| read(handle, *range)).collect()
        });
        let (attrs, handle) = self.opened_by(session, look, open).await?;
        let pending = ahead.map(|ahead| ahead.of(&handle)).unwrap_or_default();
        let found = self.found(&attrs);
        for (range, pending) in ranges.into_iter().zip(pending) {
            // READs beyond the end of the file are dropped, since they would count as outstanding on the lane.
            if range.start() < found.size {
                self.pieces.put(found.clone(), Part::guessed(session, &handle, range, pending));
            }
        }
        Ok((attrs, handle))
    }

    /// The ranges to request right behind the open on a lane, each of at most `most` bytes: what the caller will read
    /// first, or the next piece of the file. None once the file is open: the reads themselves request the rest.
    fn ahead(&self, first: Option<Range>, most: u64) -> Vec<Range> {
        if self.flags != OpenFlags::READ || self.version.get().is_some() {
            return Vec::new();
        }
        let Some(first) = first else {
            if self.is_first_known.load(Ordering::Relaxed) {
                return Vec::new();
            }
            let number = self.next_piece.fetch_add(1, Ordering::Relaxed);
            return vec![Range::new(number * PIECE, PIECE)];
        };
        // These are sent only over a long path ([`Session::request_ahead`]).
        reads(first, most, true)
    }

    async fn opened_by(
        &self,
        session: &Session,
        look: Pending,
        open: Pending,
    ) -> Result<(Attrs, Handle)> {
        let at = |error: Error| self.inner.at(error, &self.path);
        let attrs = error::attrs("open", look.response().await?).map_err(at)?;
        let handle = error::handle("open", open.response().await?);
        let kind = match attrs.kind() {
            Some(FileKind::File) | None => None,
            Some(FileKind::Directory) => Some((ErrorKind::IsADirectory, "a directory")),
            Some(FileKind::Symlink) => Some((ErrorKind::InvalidInput, "a symbolic link")),
            Some(_) => Some((ErrorKind::InvalidInput, "not a regular file")),
        };
        if let Some((kind, what)) = kind {
            if let Ok(handle) = handle {
                session.post(&Request::Close(handle));
            }
            return Err(at(Error::new(kind, "open").because(format!("it is {what}"))));
        }
        Ok((attrs, handle.map_err(at)?))
    }

    fn found(&self, attrs: &Attrs) -> Identity {
        entry::entry(self.path.clone(), attrs).identity()
    }

    /// The requests that look up and open the file.
    fn open_requests(&self) -> [Request; 2] {
        let (path, flags, attrs) = (self.on_server.clone(), self.flags, Attrs::default());
        [Request::Lstat(path.clone()), Request::Open { path, flags, attrs }]
    }

    fn on_lane(&self, session: &Arc<Session>) -> OnLane {
        let mut open = self.lock();
        open.retain(|_, on_lane| on_lane.session.strong_count() > 0);
        let new = || OnLane { session: Arc::downgrade(session), handle: Arc::default() };
        open.entry(session.id()).or_insert_with(new).clone()
    }

    /// Whether `on_lane` is still the current entry of a lane.
    fn has(&self, session: &Session, on_lane: &OnLane) -> bool {
        let open = self.lock();
        open.get(&session.id()).is_some_and(|current| Arc::ptr_eq(&current.handle, &on_lane.handle))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<usize, OnLane>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        self.inner.host.lanes.drop_prefetched(&self.open_requests());
        for (session, handle) in self.take_all() {
            session.post(&Request::Close(handle));
        }
    }
}

/// Open handles on lanes that have not ended.
fn live(
    open: &HashMap<usize, OnLane>,
    which: impl Fn(&Opened) -> bool,
) -> Vec<(Arc<Session>, Opened)> {
    let live = open.values().filter_map(|on_lane| {
        let opened = on_lane.handle.get().filter(|opened| which(opened))?;
        Some((on_lane.session.upgrade()?, opened.clone()))
    });
    live.filter(|(session, _)| !session.is_ended()).collect()
}

fn changed(was: &Identity, is: &Identity) -> Error {
    Error::new(ErrorKind::Changed, "read")
        .because(format!("it changed while being read: {was} became {is}"))
}
