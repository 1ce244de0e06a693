//! Order for writers that take bytes from the first to the last only.
//!
//! Ranges arrive in any order; each block waits here until it is its turn. Who comes first in the
//! file was also assigned first and already holds its share of memory, so waiting cannot lock.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;

/// Lets blocks through in the order of their offsets.
#[derive(Debug, Default)]
pub struct Sequence {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
}

impl Sequence {
    /// A sequence whose first block is at `offset`.
    pub fn starting_at(offset: u64) -> Self {
        Self { state: Mutex::new(State { next: offset, waiting: BTreeMap::new() }) }
    }

    /// Waits until everything before `offset` has passed.
    pub async fn turn(&self, offset: u64) {
        let receiver = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.next >= offset {
                return;
            }
            let (sender, receiver) = oneshot::channel();
            state.waiting.insert(offset, sender);
            receiver
        };
        // The sender is dropped only with the sequence, which the caller borrows.
        drop(receiver.await);
    }

    /// Says that everything before `offset` has passed.
    pub fn passed(&self, offset: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.next = state.next.max(offset);
        let next = state.next;
        while let Some(entry) = state.waiting.first_entry() {
            if *entry.key() > next {
                break;
            }
            // Whoever no longer waits has been dropped, and its turn with it.
            let _ = entry.remove().send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test]
    async fn blocks_pass_in_the_order_of_their_offsets() {
        let sequence = Arc::new(Sequence::default());
        let order = Arc::new(Mutex::new(Vec::new()));
        let tasks = [30u64, 10, 0, 20].map(|offset| {
            let (sequence, order) = (Arc::clone(&sequence), Arc::clone(&order));
            async move {
                sequence.turn(offset).await;
                order.lock().unwrap().push(offset);
                sequence.passed(offset + 10);
            }
        });
        futures_util::future::join_all(tasks).await;
        assert_eq!(*order.lock().unwrap(), [0, 10, 20, 30]);
    }
}
