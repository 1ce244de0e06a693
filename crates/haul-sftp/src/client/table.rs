//! Predicts the next handle of OpenSSH's server: its handles are numbers, and it returns the lowest free one. So
//! requests for a file can be sent in the same RTT as its open. Callers must then check that the server has returned
//! the predicted handle: otherwise the requests referred to another file.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::codec::{Handle, Request, Response};

/// The open handles of a session, tracked by its requests and responses.
#[derive(Debug, Default)]
pub(super) struct Table(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    used: BTreeSet<u32>,
    /// Number of opens without a response.
    unknown: usize,
}

impl Table {
    /// Tracks a request. Returns whether it opens something: then call [`Table::answered`] with its response.
    pub(super) fn asked(&self, request: &Request) -> bool {
        match request {
            Request::Open { .. } | Request::Opendir(_) => {
                self.lock().unknown += 1;
                true
            }
            Request::Close(handle) => {
                if let Some(number) = number(handle) {
                    self.lock().used.remove(&number);
                }
                false
            }
            _ => false,
        }
    }

    /// Tracks the response to an open.
    pub(super) fn answered(&self, response: &Response) {
        let mut state = self.lock();
        state.unknown = state.unknown.saturating_sub(1);
        if let Response::Handle(handle) = response {
            state.used.extend(number(handle));
        }
    }

    /// The predicted handle of the next open; `None` while the response to another open is missing.
    pub(super) fn next(&self) -> Option<Handle> {
        let state = self.lock();
        let free = (0..).zip(&state.used).find(|(free, used)| free != *used);
        let next = free.map_or(u32::try_from(state.used.len()).ok()?, |(free, _)| free);
        (state.unknown == 0).then(|| Handle::from(Bytes::copy_from_slice(&next.to_be_bytes())))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn number(handle: &Handle) -> Option<u32> {
    let bytes: &[u8] = handle.as_ref();
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Status;

    fn handle(number: u32) -> Handle {
        Handle::from(Bytes::copy_from_slice(&number.to_be_bytes()))
    }

    #[test]
    fn the_lowest_free_number_is_next() {
        let table = Table::default();
        let open = Request::Opendir(Bytes::new());
        assert_eq!(table.next(), Some(handle(0)));
        assert!(table.asked(&open) && table.next().is_none());
        table.answered(&Response::Handle(handle(0)));
        assert_eq!(table.next(), Some(handle(1)));
        for n in 1..3 {
            assert!(table.asked(&open));
            table.answered(&Response::Handle(handle(n)));
        }
        assert!(!table.asked(&Request::Close(handle(1))));
        assert_eq!(table.next(), Some(handle(1)));
        assert!(table.asked(&open));
        table.answered(&Response::Status { status: Status::NoSuchFile, message: Bytes::new() });
        assert_eq!(table.next(), Some(handle(1)));
        table.asked(&Request::Close(handle(0)));
        assert_eq!(table.next(), Some(handle(0)));
    }
}
