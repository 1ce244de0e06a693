//! Fan-out: sessions that read the same file at about the same position share what is read and hashed.
//!
//! ```text
//! Read of session 1 ┐
//! Read of session 2 ┼→ Membership → State: the pieces that another session still needs → Piece: read once, hashed once
//! Read of session 3 ┘
//! ```
//!
//! Each time that a session opens a file, it gets a [`Membership`] for the file's version (path and identity). While no
//! other session has one, its reads bypass this module, and nothing is cached. With others, it reads in pieces of
//! [`PIECE`] bytes: the first session that needs a piece reads it, and the others wait for that read. A piece is
//! dropped when all of them have received it, or when there is no room: a session that has fallen far behind reads for
//! itself, and none waits for a slow one.
//!
//! A member receives only pieces whose read began after the session had opened the file. So if the file changes later,
//! `ReadAt::recheck` reports that as if the session had read everything itself; and if it has changed before, no
//! piece of the old version is used, even if size and time are the same again.

mod piece;
mod state;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haul_storage::{Identity, Medium, Range, ReadAt, RelPath, Result, Storage, UNKNOWN_SIZE};

pub(super) use self::piece::Filled;
use self::piece::Piece;
pub(super) use self::state::SessionId;
use self::state::{MembershipId, State, Version};
use crate::wire::PIECE;

/// The storage of a server, and the pieces of its files that sessions share.
#[derive(Debug)]
pub(super) struct Fan {
    storage: Arc<dyn Storage>,
    state: Mutex<State>,
}

/// A file that a session has open.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) file: Arc<dyn ReadAt>,
    /// `None` if its pieces cannot be shared.
    pub(super) membership: Option<Arc<Membership>>,
}

/// Registers that a session has a version of a file open, until it is dropped.
#[derive(Debug)]
pub(super) struct Membership {
    fan: Arc<Fan>,
    id: MembershipId,
    size: u64,
}

impl Fan {
    pub(super) fn new(storage: Arc<dyn Storage>) -> Arc<Self> {
        Arc::new(Self { storage, state: Mutex::default() })
    }

    /// The storage that is served.
    pub(super) fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// Opens a file for a session.
    pub(super) async fn open(
        self: &Arc<Self>,
        session: SessionId,
        path: &RelPath,
    ) -> Result<Source> {
        let file = self.storage.open(path).await?;
        let identity = file.identity();
        let membership = self.can_share(&*file).then(|| {
            let version = Version { path: path.clone(), identity: identity.clone() };
            let id = self.lock().join(version, session);
            Arc::new(Membership { fan: Arc::clone(self), id, size: identity.size })
        });
        Ok(Source { file, membership })
    }

    /// Whether the pieces of a file can be shared: two files of the same name must not be taken for one, and behind a
    /// link, each piece would take an RTT.
    fn can_share(&self, file: &dyn ReadAt) -> bool {
        let Identity { size, id, tag, .. } = file.identity();
        self.storage.capabilities().medium == Medium::Disk
            && file.is_ranged()
            && *size != UNKNOWN_SIZE
            && (id.is_some() || tag.is_some())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source {
    /// A file whose pieces are not shared.
    pub(super) const fn of_one(file: Arc<dyn ReadAt>) -> Self {
        Self { file, membership: None }
    }
}

impl Membership {
    /// The length of the file in bytes.
    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// Whether to read a range in shared pieces: another session has this version open, and the range is not shorter
    /// than a piece, or is the last, short piece, so that little more than the range is read. Otherwise, the session
    /// reads the range itself.
    pub(super) fn shares(&self, range: Range) -> bool {
        let mut state = self.fan.lock();
        let is_last = range.end() >= self.size && range.start().is_multiple_of(PIECE);
        let shares = (range.len() >= PIECE || is_last) && state.is_shared(self.id.file);
        if !shares {
            // A piece counts as received once its last byte is.
            let end = if range.end() >= self.size { u64::MAX } else { range.end() / PIECE };
            state.pass(&self.id, Range::between(range.start() / PIECE, end));
        }
        shares
    }

    /// The piece that contains `offset`, which lies in the file, for a read that ends at `end`. It is read from `file`
    /// unless it is cached, or another session is reading it. `None` if the file has become shorter.
    ///
    /// # Errors
    /// If it cannot be read. Other sessions that wait for it then try themselves.
    pub(super) async fn piece(
        &self,
        file: &dyn ReadAt,
        offset: u64,
        end: u64,
    ) -> Result<Option<Filled>> {
        let start = offset - offset % PIECE;
        let range = Range::new(start, PIECE).intersection(Range::between(0, self.size));
        let piece = self.fan.lock().claim(&self.id, range, end >= range.end());
        Piece::fill(piece, file).await
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.fan.lock().leave(&self.id);
    }
}
