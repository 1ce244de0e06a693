//! Dedicated threads for blocking work: disk I/O and digests.
//!
//! Async tasks submit a closure and usually await its result. A pool has a fixed number of threads and one
//! queue. The queue has no limit of its own: the engine and the servers bound the number of jobs.
//!
//! Handing a job to a thread and its result back costs two wake-ups, more than most system calls on
//! small files. [`WorkPool::run_short`] saves them as long as such jobs are quick.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// A job that takes longer than this on the caller's thread is slow: its data is not in the page cache,
/// or it is on a network file system.
const SLOW: Duration = Duration::from_millis(1);

/// After a slow job, this many short ones run on the pool's threads.
const AFTER_SLOW: u32 = 64;

/// A fixed number of threads that run closures. After the last clone is dropped, they finish the queue
/// and end.
#[derive(Clone)]
pub struct WorkPool {
    owner: Arc<Owner>,
}

/// Where in the queue a job is inserted.
#[derive(Clone, Copy)]
enum QueueEnd {
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
    /// How many of the next short jobs run on the pool's threads.
    threaded: AtomicU32,
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
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            wake: Condvar::new(),
            threaded: AtomicU32::new(0),
        });
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
        self.run_in(QueueEnd::Back, work).await
    }

    /// [`WorkPool::run`] ahead of the whole queue: for short work on which much other work depends
    /// (creating a directory, reading the next entries of one).
    pub async fn run_first<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        self.run_in(QueueEnd::Front, work).await
    }

    async fn run_in<T: Send + 'static>(
        &self,
        end: QueueEnd,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let (sender, receiver) = oneshot::channel();
        self.submit_in(end, move || {
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
        self.submit_in(QueueEnd::Back, work);
    }

    /// [`WorkPool::run`] for work that usually takes microseconds, such as a call on a small file whose
    /// data are in the page cache: it runs on the caller's thread. After work that was slow, the next
    /// jobs run on the pool's threads, side by side, and do not block the caller.
    pub async fn run_short<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        if self.owner.shared.is_threaded() {
            return self.run(work).await;
        }
        self.owner.shared.timed(work)
    }

    /// [`WorkPool::submit`] for short work, as [`WorkPool::run_short`].
    pub fn submit_short(&self, work: impl FnOnce() + Send + 'static) {
        if self.owner.shared.is_threaded() {
            return self.submit(work);
        }
        // As on a thread, a panic ends the job only.
        drop(self.owner.shared.timed(|| catch_unwind(AssertUnwindSafe(work))));
    }

    fn submit_in(&self, end: QueueEnd, work: impl FnOnce() + Send + 'static) {
        let shared = &self.owner.shared;
        let mut queue = shared.lock();
        match end {
            QueueEnd::Front => queue.jobs.push_front(Box::new(work)),
            QueueEnd::Back => queue.jobs.push_back(Box::new(work)),
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

    /// Whether the next short job runs on a thread of the pool. Counts it.
    fn is_threaded(&self) -> bool {
        let counted = |left: u32| left.checked_sub(1);
        self.threaded.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted).is_ok()
    }

    /// Runs a short job on this thread.
    fn timed<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let outcome = work();
        if start.elapsed() > SLOW {
            self.threaded.store(AFTER_SLOW, Ordering::Relaxed);
        }
        outcome
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
    async fn after_a_slow_job_short_ones_run_on_threads_for_a_while() {
        let pool = WorkPool::new("test", 2).unwrap();
        let here = thread::current().id();
        let is_here = || async { pool.run_short(move || thread::current().id() == here).await };
        assert!(is_here().await);
        pool.run_short(|| thread::sleep(2 * SLOW)).await;
        for _ in 0..AFTER_SLOW {
            assert!(!is_here().await);
        }
        // A busy machine may make a short job slow, too, so this takes more than one attempt at times.
        for _ in 0..1000 {
            if is_here().await {
                return;
            }
        }
        panic!("all jobs run on threads");
    }

    #[tokio::test]
    async fn a_panic_in_a_short_job_ends_that_job_only() {
        let pool = WorkPool::new("test", 1).unwrap();
        pool.submit_short(|| panic!("expected in this test"));
        assert_eq!(pool.run_short(|| 7).await, 7);
    }

    #[tokio::test]
    async fn a_thread_survives_a_panic() {
        let pool = WorkPool::new("test", 1).unwrap();
        pool.submit(|| panic!("expected in this test"));
        assert_eq!(pool.run(|| 7).await, 7);
    }
}
