//! Dedicated threads for blocking work: disk I/O and digests.
//!
//! Async tasks submit a closure and await its result. A pool has a fixed number of threads and one
//! queue. The queue has no limit of its own: each task waits for its result, and the engine bounds the
//! number of tasks.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// A fixed number of threads that run closures. After the last clone is dropped, they finish the queue
/// and end.
#[derive(Clone)]
pub struct WorkPool {
    owner: Arc<Owner>,
}

/// Where in the queue a job is inserted.
#[derive(Clone, Copy)]
enum Place {
    Front,
    Back,
}

struct Owner {
    shared: Arc<Shared>,
    threads: usize,
}

struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    closed: bool,
}

impl WorkPool {
    /// Starts `threads` threads (at least one) called `name`.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn new(name: &str, threads: usize) -> std::io::Result<Self> {
        let threads = threads.max(1);
        let shared = Arc::new(Shared { queue: Mutex::default(), wake: Condvar::new() });
        let owner = Arc::new(Owner { shared: Arc::clone(&shared), threads });
        for _ in 0..threads {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name(name.to_owned()).spawn(move || shared.work())?;
        }
        Ok(Self { owner })
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.owner.threads
    }

    /// Runs `work` on one of the threads and returns its result. A panic in it continues in the caller.
    /// Once submitted, the work is done even if the future is dropped.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.run_in(Place::Back, work).await
    }

    /// [`WorkPool::run`] ahead of the whole queue: for short work on which much other work depends
    /// (creating a directory, reading the next entries of one).
    pub async fn run_first<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        self.run_in(Place::Front, work).await
    }

    async fn run_in<T: Send + 'static>(
        &self,
        place: Place,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let (sender, receiver) = oneshot::channel();
        self.submit_in(place, move || {
            let outcome = catch_unwind(AssertUnwindSafe(work));
            // Sending fails if the future was dropped, which is no error.
            drop(sender.send(outcome));
        });
        match receiver.await {
            Ok(Ok(value)) => value,
            Ok(Err(panic)) => resume_unwind(panic),
            Err(_) => unreachable!("every submitted job is run, and sends before it ends"),
        }
    }

    /// Runs `work` on one of the threads, without a result.
    pub fn submit(&self, work: impl FnOnce() + Send + 'static) {
        self.submit_in(Place::Back, work);
    }

    fn submit_in(&self, place: Place, work: impl FnOnce() + Send + 'static) {
        let shared = &self.owner.shared;
        let mut queue = shared.lock();
        match place {
            Place::Front => queue.jobs.push_front(Box::new(work)),
            Place::Back => queue.jobs.push_back(Box::new(work)),
        }
        // A wake-up is a system call: only if a thread sleeps. It comes after unlocking, since that thread
        // takes the lock.
        let has_idle = queue.idle > 0;
        drop(queue);
        if has_idle {
            shared.wake.notify_one();
        }
    }
}

impl fmt::Debug for WorkPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkPool({} threads)", self.owner.threads)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.wake.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            // A panic must not end the thread. `run` passes it to its caller.
            drop(catch_unwind(AssertUnwindSafe(job)));
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.closed {
                return None;
            }
            queue.idle += 1;
            queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn run_returns_the_result_of_the_work() {
        let pool = WorkPool::new("test", 2).unwrap();
        let sums = futures_util::future::join_all((0..100u32).map(|n| pool.run(move || n * 2)));
        assert_eq!(sums.await.into_iter().sum::<u32>(), 9900);
    }

    #[tokio::test]
    #[should_panic(expected = "boom")]
    async fn a_panic_continues_in_the_caller() {
        let pool = WorkPool::new("test", 1).unwrap();
        pool.run(|| panic!("boom")).await;
    }

    #[tokio::test]
    async fn a_thread_survives_a_panic() {
        let pool = WorkPool::new("test", 1).unwrap();
        pool.submit(|| panic!("expected in this test"));
        assert_eq!(pool.run(|| 7).await, 7);
    }
}
