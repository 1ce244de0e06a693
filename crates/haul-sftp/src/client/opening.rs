//! Chooses the lane on which a file or directory is opened: any lane, or one on which nothing else is open, if the
//! server allows few handles ([`super::quirks`]).

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use haul_storage::{Error, ErrorKind, Result};
use tokio::sync::OwnedSemaphorePermit;

use super::host::SftpHost;
use super::quirks::may_be_too_many;
use super::session::{Room, Session};

/// Bytes that a small file is assumed to have when a lane is chosen for it.
const LIKELY: u64 = 16 << 10;

/// A lane for opening a file or directory. Dropping it returns a reserved lane to the idle ones. Its handle must be
/// closed by then, or the CLOSE queued, so that it reaches the server before any later request.
#[derive(Debug)]
pub(super) struct Lane {
    session: Arc<Session>,
    /// Set if the lane is reserved.
    own: Option<Own>,
    _room: Option<Room>,
}

#[derive(Debug)]
struct Own {
    idle: Arc<Mutex<Vec<Arc<Session>>>>,
    _turn: Option<OwnedSemaphorePermit>,
}

impl Lane {
    /// Whether the lane is reserved, so that nothing else is opened on it.
    pub(super) const fn is_own(&self) -> bool {
        self.own.is_some()
    }
}

impl Deref for Lane {
    type Target = Arc<Session>;

    fn deref(&self) -> &Arc<Session> {
        &self.session
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let Some(own) = self.own.take()
            && !self.session.is_ended()
        {
            let mut idle = own.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push(Arc::clone(&self.session));
        }
    }
}

/// An attempt to open something: on a shared lane first and, if the server refuses that, on a reserved one; only on a
/// reserved one if the server is known to allow one handle per session.
#[derive(Debug)]
pub(super) struct Opening<'a> {
    host: &'a SftpHost,
    brief: bool,
    /// The error on the shared lane.
    refused: Option<Error>,
}

impl Opening<'_> {
    /// The lane to try next: a shared one, or one on which nothing is open, after a refusal or if the server is known
    /// to allow one handle per session.
    pub(super) async fn lane(&mut self) -> Result<Lane> {
        if self.refused.is_none() && !self.host.quirks.is_one_handle_a_session() {
            let bytes = if self.brief { LIKELY } else { 0 };
            let room = self.host.choose(bytes).await?;
            let session = Arc::clone(&room);
            return Ok(Lane { session, own: None, _room: Some(room) });
        }
        let lane = self.host.own_lane(self.brief).await;
        lane.map_err(|error| self.refused.take().unwrap_or(error))
    }

    /// A lane on which a prefetched request has opened the file or directory.
    pub(super) const fn ahead(session: Arc<Session>) -> Lane {
        Lane { session, own: None, _room: None }
    }

    /// The open has succeeded. If it was refused on a shared lane before, the server allows one handle per session.
    pub(super) fn opened(&self) {
        if self.refused.is_some() {
            self.host.quirks.learn_one_handle_a_session();
        }
    }

    /// The open was refused. Returns an error, that of the first refusal, unless it may succeed on another lane.
    pub(super) fn refused(&mut self, lane: &Lane, error: Error) -> Result<()> {
        if let Some(first) = self.refused.take() {
            return Err(first);
        }
        // Servers report a missing permission by another status than too many handles.
        let too_many = may_be_too_many(&error) && error.kind() != ErrorKind::PermissionDenied;
        if lane.own.is_some() || !too_many {
            return Err(error);
        }
        self.refused = Some(error);
        Ok(())
    }
}

impl SftpHost {
    /// Begins to open something. `brief`: it will be closed soon, without waiting for other tasks.
    pub(super) const fn opening(&self, brief: bool) -> Opening<'_> {
        Opening { host: self, brief, refused: None }
    }

    async fn own_lane(&self, brief: bool) -> Result<Lane> {
        let turn = match brief {
            // The semaphore is never closed.
            true => Arc::clone(&self.quirks.brief).acquire_owned().await.ok(),
            false => None,
        };
        let idle = Arc::clone(&self.quirks.idle);
        let session = loop {
            let next = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match next {
                Some(session) if session.is_ended() => {}
                Some(session) => break session,
                None => break self.lanes.open_own().await?,
            }
        };
        let own = Some(Own { idle, _turn: turn });
        Ok(Lane { session, own, _room: None })
    }
}
