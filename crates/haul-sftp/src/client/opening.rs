//! Which lane a file or directory is opened on: any, or one on which nothing else is open, where a server takes
//! few handles ([`super::quirks`]).

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use haul_storage::{Error, ErrorKind, Result};
use tokio::sync::OwnedSemaphorePermit;

use super::host::SftpHost;
use super::quirks::may_be_too_many;
use super::session::{Room, Session};

/// What a small file is taken for when a lane is chosen for it.
const LIKELY: u64 = 16 << 10;

/// A lane to open a file or directory on. One of its own goes back to where it came from; what was
/// opened on it has been closed by then, or is going to be before anything else reaches the server.
#[derive(Debug)]
pub(super) struct Lane {
    session: Arc<Session>,
    own: Option<Own>,
    _room: Option<Room>,
}

#[derive(Debug)]
struct Own {
    idle: Arc<Mutex<Vec<Arc<Session>>>>,
    _turn: Option<OwnedSemaphorePermit>,
}

impl Lane {
    /// Whether nobody else has it.
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

/// Something that is being opened, on one lane or another.
#[derive(Debug)]
pub(super) struct Opening<'a> {
    host: &'a SftpHost,
    brief: bool,
    /// Why it was refused on a lane that is shared.
    refused: Option<Error>,
}

impl Opening<'_> {
    /// The lane to try on: any, or after a refusal one on which nothing is open.
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

    /// A lane on which it was opened ahead.
    pub(super) const fn ahead(session: Arc<Session>) -> Lane {
        Lane { session, own: None, _room: None }
    }

    /// It was opened.
    pub(super) fn opened(&self) {
        if self.refused.is_some() {
            self.host.quirks.learn_one_handle_a_session();
        }
    }

    /// It was not opened: whether it may be on another lane. If not, the first refusal is the error.
    pub(super) fn refused(&mut self, lane: &Lane, error: Error) -> Result<()> {
        if let Some(first) = self.refused.take() {
            return Err(first);
        }
        // What is not allowed is said by another status than what is too much.
        let too_many = may_be_too_many(&error) && error.kind() != ErrorKind::PermissionDenied;
        if lane.own.is_some() || !too_many {
            return Err(error);
        }
        self.refused = Some(error);
        Ok(())
    }
}

impl SftpHost {
    /// Begins to open something. `brief`: it is closed without waiting for anybody.
    pub(super) const fn opening(&self, brief: bool) -> Opening<'_> {
        Opening { host: self, brief, refused: None }
    }

    async fn own_lane(&self, brief: bool) -> Result<Lane> {
        let turn = match brief {
            // Nobody closes the semaphore.
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
