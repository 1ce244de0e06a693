//! Predicts the next handle of OpenSSH's server, so that requests for a file or directory can be sent in the same RTT
//! as its open. Its handles are numbers from 0, and it reuses the one that was closed last (`handle_new` and
//! `handle_unused` in sftp-server.c). Callers must check that the server has returned the predicted handle: otherwise
//! the requests referred to no file, or to another one.
//!
//! The table tracks the requests in the order in which they are sent, and applies each one when all earlier opens have
//! responses. So it is exact up to the first open in flight; a prediction assumes that those in flight succeed. After a
//! handle that fits neither this rule nor always new numbers (as of haul's server), it predicts nothing more in that
//! session.

use std::collections::VecDeque;
use std::iter::once;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::codec::{Handle, Request, Response};

/// The open handles of a session, tracked by its requests and responses.
#[derive(Debug, Default)]
pub(super) struct Table(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Count of the numbers that were ever used: those from 0 up to this one, exclusive.
    numbers: u32,
    /// Numbers that were used and are closed, the last closed one last.
    free: Vec<u32>,
    /// The opens in flight, and the CLOSEs behind the first of them.
    sent: VecDeque<Sent>,
    /// Whether the server has reused a number.
    has_reused: bool,
    /// Whether the server does not reuse numbers, like haul's.
    is_always_new: bool,
    /// Whether it has returned a handle that follows neither rule.
    is_unpredictable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    Open,
    Close(u32),
}

impl Table {
    /// Tracks a request; to be called in the order in which requests are sent. Returns whether it opens something: then
    /// call [`Table::on_response`] with its response.
    pub(super) fn on_request(&self, request: &Request) -> bool {
        match request {
            Request::Open { .. } | Request::Opendir(_) => {
                self.lock().sent.push_back(Sent::Open);
                true
            }
            Request::Close(handle) => {
                if let Some(number) = number(handle) {
                    let mut state = self.lock();
                    if state.sent.is_empty() {
                        state.closed(number);
                    } else {
                        state.sent.push_back(Sent::Close(number));
                    }
                }
                false
            }
            _ => false,
        }
    }

    /// Tracks the response to the first open in flight.
    pub(super) fn on_response(&self, response: &Response) {
        let mut state = self.lock();
        state.sent.pop_front();
        if let Response::Handle(handle) = response {
            state.opened(number(handle));
        }
        while let Some(Sent::Close(number)) = state.sent.front().copied() {
            state.sent.pop_front();
            state.closed(number);
        }
    }

    /// The predicted handle of the next open; `None` if the server is unpredictable. With `is_exact`, also `None` if
    /// another open in flight may get it: while it is unknown whether the server reuses numbers, opens are in flight,
    /// and there is a number to reuse.
    pub(super) fn next(&self, is_exact: bool) -> Option<Handle> {
        let state = self.lock();
        let is_known = state.has_reused
            || state.is_always_new
            || state.sent.is_empty()
            || (state.free.is_empty() && state.sent.iter().all(|sent| *sent == Sent::Open));
        if state.is_unpredictable || (is_exact && !is_known) {
            return None;
        }
        Some(Handle::from(Bytes::copy_from_slice(&state.next().to_be_bytes())))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn opened(&mut self, number: Option<u32>) {
        let last = self.free.last().copied();
        match number {
            Some(number) if last == Some(number) => {
                self.free.pop();
                self.has_reused = true;
            }
            // Only the next new number: handles of other servers may be any number.
            Some(number) if number == self.numbers && !(last.is_some() && self.has_reused) => {
                self.is_always_new |= last.is_some();
                self.numbers = self.numbers.saturating_add(1);
            }
            _ => self.is_unpredictable = true,
        }
        if self.is_always_new || self.is_unpredictable {
            self.free.clear();
        }
    }

    fn closed(&mut self, number: u32) {
        let is_open = number < self.numbers && !self.free.contains(&number);
        if is_open && !self.is_always_new && !self.is_unpredictable {
            self.free.push(number);
        }
    }

    /// The number of the next open, if those in flight succeed.
    fn next(&self) -> u32 {
        let (mut left, mut numbers, mut closed) = (self.free.len(), self.numbers, Vec::new());
        let mut next = numbers;
        for sent in self.sent.iter().chain(once(&Sent::Open)) {
            match sent {
                Sent::Close(number) if !self.is_always_new => closed.push(*number),
                Sent::Close(_) => {}
                Sent::Open => {
                    next = if let Some(number) = closed.pop() {
                        number
                    } else if left > 0 {
                        left -= 1;
                        self.free[left]
                    } else {
                        numbers = numbers.saturating_add(1);
                        numbers - 1
                    };
                }
            }
        }
        next
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

    fn next(table: &Table) -> Option<Handle> {
        table.next(false)
    }

    fn open(table: &Table) {
        assert!(table.on_request(&Request::Opendir(Bytes::new())));
    }

    fn close(table: &Table, number: u32) {
        assert!(!table.on_request(&Request::Close(handle(number))));
    }

    fn opened(table: &Table, number: u32) {
        table.on_response(&Response::Handle(handle(number)));
    }

    fn refused(table: &Table) {
        table.on_response(&Response::Status { status: Status::NoSuchFile, message: Bytes::new() });
    }

    #[test]
    fn the_number_closed_last_is_next() {
        let table = Table::default();
        assert_eq!(next(&table), Some(handle(0)));
        for n in 0..3 {
            open(&table);
            opened(&table, n);
        }
        assert_eq!(next(&table), Some(handle(3)));
        close(&table, 0);
        close(&table, 1);
        assert_eq!(next(&table), Some(handle(1)));
        open(&table);
        refused(&table);
        assert_eq!(next(&table), Some(handle(1)));
        for n in [1, 0] {
            open(&table);
            opened(&table, n);
        }
        assert_eq!(next(&table), Some(handle(3)));
    }

    /// Formerly, there was no prediction while another open was in flight.
    #[test]
    fn opens_in_flight_are_assumed_to_succeed() {
        let table = Table::default();
        open(&table);
        assert_eq!(next(&table), Some(handle(1)));
        open(&table);
        close(&table, 0);
        // Number 0 is closed behind both.
        assert_eq!(next(&table), Some(handle(0)));
        opened(&table, 0);
        assert_eq!(next(&table), Some(handle(0)));
        // The second one fails, so that the numbers after it are other ones.
        refused(&table);
        assert_eq!(next(&table), Some(handle(0)));
        open(&table);
        open(&table);
        assert_eq!(next(&table), Some(handle(2)));
        refused(&table);
        assert_eq!(next(&table), Some(handle(1)));
        opened(&table, 0);
        assert_eq!(next(&table), Some(handle(1)));
    }

    #[test]
    fn a_handle_of_an_open_in_flight_is_not_predicted_exactly() {
        let table = Table::default();
        assert_eq!(table.next(true), Some(handle(0)));
        open(&table);
        assert_eq!(table.next(true), Some(handle(1)), "whether it reuses numbers or not");
        close(&table, 7);
        assert_eq!(table.next(true), None);
        opened(&table, 0);
        close(&table, 0);
        open(&table);
        assert_eq!(table.next(true), None);
        opened(&table, 0);
        // The server reuses numbers.
        open(&table);
        assert_eq!(table.next(true), Some(handle(2)));
    }

    #[test]
    fn a_server_that_does_not_reuse_numbers_is_remembered() {
        let table = Table::default();
        open(&table);
        open(&table);
        opened(&table, 0);
        close(&table, 0);
        opened(&table, 1);
        assert_eq!(next(&table), Some(handle(0)), "the close was sent after the open");
        open(&table);
        opened(&table, 2);
        assert_eq!(next(&table), Some(handle(3)));
        close(&table, 2);
        assert_eq!(next(&table), Some(handle(3)));
        open(&table);
        assert_eq!(table.next(true), Some(handle(4)));
    }

    #[test]
    fn other_handles_are_not_predicted() {
        let words = Handle::from(Bytes::from_static(b"words"));
        for other in [handle(u32::MAX), handle(7), words] {
            let table = Table::default();
            open(&table);
            table.on_response(&Response::Handle(other));
            assert_eq!(next(&table), None);
            open(&table);
            opened(&table, 0);
            assert_eq!(next(&table), None);
        }
    }

    #[test]
    fn a_server_that_changes_its_rule_is_not_predicted() {
        let table = Table::default();
        open(&table);
        opened(&table, 0);
        close(&table, 0);
        open(&table);
        opened(&table, 0);
        close(&table, 0);
        open(&table);
        opened(&table, 1);
        assert_eq!(next(&table), None);
    }
}
