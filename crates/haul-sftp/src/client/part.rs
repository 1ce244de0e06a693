//! Single READs in flight, and those that lanes have prefetched along with their greetings.

use std::sync::{Arc, Mutex, PoisonError};

use haul_storage::{Identity, Range};

use super::session::{Pending, Session};
use crate::codec::{Handle, Request};

/// A READ in flight.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) range: Range,
    /// The bytes that were requested: more than the range, if the end of the file was not known.
    pub(super) requested: u64,
    /// Whether it was sent before the handle was known.
    pub(super) is_guessed: bool,
    pub(super) session: Arc<Session>,
    pub(super) handle: Handle,
    pub(super) pending: Pending,
}

impl Part {
    /// Requests a range, which must not be longer than the server's limit (a 32-bit number).
    pub(super) fn ask(session: &Arc<Session>, handle: &Handle, range: Range) -> Self {
        let pending = session.request(&read(handle, range));
        Self { is_guessed: false, ..Self::guessed(session, handle, range, pending) }
    }

    /// A range that was requested before the handle was known.
    pub(super) fn guessed(
        session: &Arc<Session>,
        handle: &Handle,
        range: Range,
        pending: Pending,
    ) -> Self {
        let (session, handle) = (Arc::clone(session), handle.clone());
        Self { range, requested: range.len(), is_guessed: true, session, handle, pending }
    }
}

/// The request for a range, which must not be longer than the server's limit (a 32-bit number).
pub(super) fn read(handle: &Handle, range: Range) -> Request {
    let length = u32::try_from(range.len()).unwrap_or(u32::MAX);
    Request::Read { handle: handle.clone(), offset: range.start(), length }
}

/// Prefetched pieces of a file that have not been used, each with the version of the file it belongs to.
#[derive(Debug, Default)]
pub(super) struct Pieces(Mutex<Vec<(Identity, Part)>>);

impl Pieces {
    /// Adds the pieces that a lane has prefetched with `handle`, of version `found`.
    pub(super) fn add(&self, session: &Arc<Session>, handle: &Handle, found: &Identity) {
        let pieces = session.pieces(handle).into_iter().map(|(range, pending)| {
            (found.clone(), Part::guessed(session, handle, range, pending))
        });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(pieces);
    }

    /// Adds a prefetched piece of version `found`.
    pub(super) fn put(&self, found: Identity, part: Part) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((found, part));
    }

    /// Removes and returns a piece of this version at the start of `range`.
    pub(super) fn take(&self, range: Range, version: &Identity) -> Option<Part> {
        let mut pieces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = pieces.iter().position(|(found, part)| {
            part.range.start() == range.start()
                // The piece must not extend beyond the range, unless both end at the end of the file.
                && (part.range.end() <= range.end() || range.end() == version.size)
                && found == version
                && !part.session.is_ended()
        })?;
        let mut part = pieces.swap_remove(at).1;
        part.range = part.range.intersection(range);
        (!part.range.is_empty()).then_some(part)
    }
}
