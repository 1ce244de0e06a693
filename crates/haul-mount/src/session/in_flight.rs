//! The table of requests in flight. Only the task that removes a request from it sends the response.

use std::collections::HashMap;
use std::sync::Mutex;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::lock::lock;

/// Requests that a task handles, by their numbers.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    tasks: Mutex<HashMap<u64, Task>>,
}

#[derive(Debug)]
struct Task {
    handle: AbortHandle,
    /// The ID of the thread that waits.
    thread: u32,
}

impl InFlight {
    /// Starts a task that handles the request `unique`, for which a thread waits.
    pub(super) fn spawn(
        &self,
        runtime: &Handle,
        (unique, thread): (u64, u32),
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        // The lock is held: the task removes itself when it ends, so it must be in the table before that.
        let mut tasks = lock(&self.tasks);
        let handle = runtime.spawn(task).abort_handle();
        tasks.insert(unique, Task { handle, thread });
    }

    /// The ID of the thread that waits for a request; `None` if it is not in flight.
    pub(super) fn thread(&self, unique: u64) -> Option<u32> {
        lock(&self.tasks).get(&unique).map(|task| task.thread)
    }

    /// Removes a request. Returns whether it was in the table: only then may the caller respond to it.
    pub(super) fn take(&self, unique: u64) -> bool {
        lock(&self.tasks).remove(&unique).is_some()
    }

    /// Removes a request and aborts its task. Returns whether it was in the table.
    pub(super) fn abort(&self, unique: u64) -> bool {
        let task = lock(&self.tasks).remove(&unique);
        // Outside the lock: this passes the task to the runtime, which drops it with whatever it holds.
        task.inspect(|task| task.handle.abort()).is_some()
    }

    /// Aborts all, without a response.
    pub(super) fn abort_all(&self) {
        let tasks: Vec<_> = lock(&self.tasks).drain().collect();
        tasks.iter().for_each(|(_, task)| task.handle.abort());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn an_aborted_request_gets_one_response() {
        let in_flight = Arc::new(InFlight::default());
        let (held, dropped) = oneshot::channel::<()>();
        in_flight.spawn(&Handle::current(), (7, 1), async move {
            std::future::pending::<()>().await;
            drop(held);
        });
        assert!(in_flight.abort(7));
        assert!(!in_flight.take(7));
        assert!(!in_flight.abort(7));
        // The task has ended, and dropped what it held.
        assert!(dropped.await.is_err());
    }

    #[tokio::test]
    async fn a_task_that_ends_at_once_can_remove_itself() {
        let in_flight = Arc::new(InFlight::default());
        for unique in 0..100 {
            let (sender, receiver) = oneshot::channel();
            let own = Arc::clone(&in_flight);
            in_flight.spawn(&Handle::current(), (unique, 1), async move {
                assert!(sender.send(own.take(unique)).is_ok());
            });
            assert_eq!(receiver.await, Ok(true));
        }
    }
}
