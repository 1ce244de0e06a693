//! Attempts to connect that wait for a connection or a message, by the number of their connection or its hash.

use std::collections::HashMap;
use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use super::preamble::ConnectionId;
use crate::lock::lock;

type Table<T> = Arc<Mutex<HashMap<ConnectionId, oneshot::Sender<T>>>>;

/// The waiting attempts.
pub(super) struct Expected<T>(Table<T>);

/// One attempt. Dropping it ends the wait.
pub(super) struct Awaited<T> {
    id: ConnectionId,
    table: Table<T>,
    receiver: oneshot::Receiver<T>,
}

impl<T> Expected<T> {
    /// Begins to wait for the arrival with the number `id`.
    pub(super) fn expect(&self, id: ConnectionId) -> Awaited<T> {
        let (sender, receiver) = oneshot::channel();
        lock(&self.0).insert(id, sender);
        Awaited { id, table: Arc::clone(&self.0), receiver }
    }

    /// Passes an arrival to the attempt that waits for it. It is dropped if there is no such attempt, or it is a second
    /// arrival.
    pub(super) fn fulfil(&self, id: &ConnectionId, arrival: T) {
        let sender = lock(&self.0).remove(id);
        if let Some(sender) = sender {
            // The attempt may have been dropped just now.
            drop(sender.send(arrival));
        }
    }
}

impl<T> Awaited<T> {
    /// Waits for the arrival.
    pub(super) async fn arrival(&mut self) -> T {
        match (&mut self.receiver).await {
            Ok(arrival) => arrival,
            // Another attempt has the same number.
            Err(_) => pending().await,
        }
    }
}

impl<T> Drop for Awaited<T> {
    fn drop(&mut self) {
        lock(&self.table).remove(&self.id);
    }
}

impl<T> Clone for Expected<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Expected<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> fmt::Debug for Expected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expected({})", lock(&self.0).len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_number_is_used_once_and_only_while_it_is_awaited() {
        let expected = Expected::default();
        let (mut one, two) = (expected.expect([1; 32]), expected.expect([2; 32]));
        drop(two);
        expected.fulfil(&[2; 32], "late");
        expected.fulfil(&[1; 32], "first");
        expected.fulfil(&[1; 32], "again");
        assert_eq!(one.arrival().await, "first");
        drop(one);
        assert_eq!(format!("{expected:?}"), "Expected(0)");
    }
}
