//! READs: one of them, and those that were made ahead, with the greetings of lanes.

use std::sync::{Arc, Mutex, PoisonError};

use haul_storage::{Identity, Range};

use super::session::{Pending, Session};
use crate::codec::{Handle, Request};

/// One READ that is under way.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) range: Range,
    pub(super) session: Arc<Session>,
    pub(super) handle: Handle,
    pub(super) pending: Pending,
}

impl Part {
    /// Asks for a range that is not longer than the server's limit, which is 32 bits.
    pub(super) fn ask(session: &Arc<Session>, handle: &Handle, range: Range) -> Self {
        let length = u32::try_from(range.len()).unwrap_or(u32::MAX);
        let request = Request::Read { handle: handle.clone(), offset: range.start(), length };
        let pending = session.request(&request);
        Self { range, session: Arc::clone(session), handle: handle.clone(), pending }
    }
}

/// The pieces of a file that were read ahead and that nobody has wanted yet.
#[derive(Debug, Default)]
pub(super) struct Pieces(Mutex<Vec<(Identity, Part)>>);

impl Pieces {
    /// Takes over what was read ahead on a lane of what was `found` there.
    pub(super) fn add(&self, session: &Arc<Session>, handle: &Handle, found: &Identity) {
        let pieces = session.pieces(handle).into_iter().map(|(range, pending)| {
            let (session, handle) = (Arc::clone(session), handle.clone());
            (found.clone(), Part { range, session, handle, pending })
        });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(pieces);
    }

    /// Takes over what was read ahead of what was `found`.
    pub(super) fn put(&self, found: Identity, part: Part) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((found, part));
    }

    /// A piece of this very version with which `range` begins.
    pub(super) fn take(&self, range: Range, version: &Identity) -> Option<Part> {
        let mut pieces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = pieces.iter().position(|(found, part)| {
            part.range.start() == range.start()
                // Only the end of the file makes the answer shorter.
                && (part.range.end() <= range.end() || range.end() == version.size)
                && found == version
                && !part.session.is_ended()
        })?;
        let mut part = pieces.swap_remove(at).1;
        part.range = part.range.intersection(range);
        (!part.range.is_empty()).then_some(part)
    }
}
