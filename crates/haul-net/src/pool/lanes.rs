//! Opens lanes, and assigns them to waiting tasks.
//!
//! If there is no lane, tasks wait for the first one. If that cannot be opened, all waiting tasks get the error, and
//! the next task tries again. Tasks that take turns wait in queues, each in order of arrival. A task that stops waiting
//! leaves its turn to the next one.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use haul_storage::{Error, LinkStatus, Result};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::supply::Supply;

/// A lane with this load or more gets no further requests, unless [`WhenFull`] allows it: two RTTs' worth, in
/// thousandths of what it carries per RTT.
/// Without such a limit the first lane would get everything, and at the end of a transfer over a slow path, the slowest
/// lane would have as much left as the fastest one had.
pub const ENOUGH: u64 = 2000;

/// Queues in which tasks take turns.
pub const QUEUES: usize = 3;

/// Waiting tasks check again at this interval, since not every change of a load and not every end of a pause wakes
/// them.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How a backend opens lanes, and its state of them. Its methods are called with the pool's lock held, so they must not
/// block.
pub trait Connect: Debug + Send + Sized + 'static {
    /// A connection, ready for a lane.
    type Connection: Send + 'static;
    /// A lane.
    type Lane: Debug + Send + Sync + 'static;
    /// Most lanes being opened at once.
    const MOST_OPENING: usize;

    /// Connects until requests can be sent. `None` if the lane turns out to be one too many.
    ///
    /// # Errors
    /// If the lane cannot be opened; it counts as refused.
    fn connect(&mut self, lanes: &Arc<Lanes<Self>>) -> Connecting<Self::Connection>;

    /// Starts a lane, which is added to the pool under the same lock. Notify `changed` when the lane can carry more, if
    /// that is known.
    fn start(
        &mut self,
        connection: Self::Connection,
        supply: &mut Supply,
        changed: &Arc<Notify>,
    ) -> Arc<Self::Lane>;

    /// Removes lanes that have ended or are too many, and reports lost ones to `supply`. Returns how many lanes are
    /// needed beside those that are open or opening, whatever the target number.
    fn review(&mut self, lanes: &mut Vec<Arc<Self::Lane>>, supply: &mut Supply) -> usize;
}

/// The future of a connection on which a lane is started.
pub type Connecting<C> = BoxFuture<'static, Result<Option<C>>>;

/// A lane that accepts any number of requests.
pub trait SharedLane: Debug + Send + Sync + 'static {
    /// Outstanding bytes, in thousandths of what the lane carries per RTT.
    fn load(&self) -> u64;

    /// What was requested or sent without a response yet: bytes or requests.
    fn outstanding(&self) -> u64;

    /// The shortest RTT so far.
    fn rtt(&self) -> Option<Duration>;

    /// The current RTT of packets, if some were sent recently.
    fn current_rtt(&self) -> Option<Duration>;
}

/// Removes lanes beyond `most` on which nothing is outstanding, the newest first, and returns them.
pub fn close_excess<L: SharedLane>(lanes: &mut Vec<Arc<L>>, most: usize) -> Vec<Arc<L>> {
    let mut closed = Vec::new();
    while lanes.len() > most {
        let Some(idle) = lanes.iter().rposition(|lane| lane.outstanding() == 0) else { break };
        closed.push(lanes.remove(idle));
    }
    closed
}

/// How long a task waits if all lanes are loaded with [`ENOUGH`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// Until the load of one decreases.
    Wait,
    /// Only as long as further lanes are being opened.
    WaitForNew,
}

/// The lanes to one host.
#[derive(Debug)]
pub struct Lanes<C: Connect> {
    runtime: Handle,
    state: Mutex<State<C>>,
    changed: Arc<Notify>,
    /// Held by the task whose turn it is.
    turns: [tokio::sync::Mutex<()>; QUEUES],
}

#[derive(Debug)]
struct State<C: Connect> {
    connect: C,
    open: Vec<Arc<C::Lane>>,
    supply: Supply,
    /// Why the last lane could not be opened, while there is no lane.
    failure: Option<Error>,
    /// How often that has happened.
    failures: u64,
}

impl<C: Connect> Lanes<C> {
    /// Opens no lane yet. All work of lanes, encryption above all, runs on `runtime`.
    pub fn new(connect: C, runtime: Handle) -> Arc<Self> {
        let (open, supply) = (Vec::new(), Supply::new(C::MOST_OPENING));
        let state = Mutex::new(State { connect, open, supply, failure: None, failures: 0 });
        Arc::new(Self { runtime, state, changed: Arc::default(), turns: Default::default() })
    }

    /// Runs a task on the runtime of the lanes.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime.spawn(work)
    }

    /// Closes all open lanes, even while further ones are being opened. Each ends when the last task that uses it has
    /// released it.
    pub fn close(&self) {
        let open = std::mem::take(&mut self.lock().open);
        // Without the lock: what a lane does when it is dropped is up to its backend.
        drop(open);
    }

    /// Calls `look` with the pool locked. It must not block.
    pub fn with<T>(&self, look: impl FnOnce(&mut C, &[Arc<C::Lane>], &mut Supply) -> T) -> T {
        let State { connect, open, supply, .. } = &mut *self.lock();
        look(connect, open, supply)
    }

    /// Opens missing lanes and closes excess ones, after something has changed.
    pub fn tend(self: &Arc<Self>) {
        self.lock().tend(self);
        self.changed.notify_waiters();
    }

    /// Opens the first lane before a task waits for it.
    pub fn open_first(self: &Arc<Self>) {
        let _waiting = Waiting::new(self, 0);
        self.tend();
    }

    /// Sets the number of lanes to open or keep. Excess lanes are closed once nothing is outstanding on them.
    pub fn set_target(self: &Arc<Self>, lanes: usize) {
        self.with(|_, _, supply| supply.set_target(lanes));
        self.tend();
    }

    /// Waits in a queue until it is the task's turn and `pick` returns something; opens a lane if there is none. `pick`
    /// must not block. Keep polling the future, since it blocks the queue.
    ///
    /// # Errors
    /// If no lane is open and none can be opened.
    pub async fn take_turn<T>(
        self: &Arc<Self>,
        queue: usize,
        pick: impl Fn(&mut C, &[Arc<C::Lane>], &mut Supply) -> Option<T>,
    ) -> Result<T> {
        let waiting = Waiting::new(self, queue);
        let _turn = self.turns[queue].lock().await;
        self.wait_for(&waiting, pick).await
    }

    async fn wait_for<T>(
        self: &Arc<Self>,
        waiting: &Waiting<'_, C>,
        pick: impl Fn(&mut C, &[Arc<C::Lane>], &mut Supply) -> Option<T>,
    ) -> Result<T> {
        loop {
            let changed = self.changed.notified();
            {
                let state = &mut *self.lock();
                let is_new = state.failures > waiting.failures;
                if let Some(failure) = state.failure.as_ref().filter(|_| is_new) {
                    return Err(failure.again());
                }
                state.tend(self);
                if let Some(found) = pick(&mut state.connect, &state.open, &mut state.supply) {
                    state.supply.on_wait_over(waiting.task);
                    return Ok(found);
                }
                // `pick` may have noticed that a lane has ended.
                state.tend(self);
            }
            drop(timeout(LOOK_AGAIN, changed).await);
        }
    }

    /// Waits until `look` returns something; calls it at every change.
    pub async fn changed_to<T>(&self, look: impl Fn() -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            if let Some(found) = look() {
                return found;
            }
            changed.await;
        }
    }

    fn on_connected(self: &Arc<Self>, connected: Result<Option<C::Connection>>, began: Instant) {
        {
            let State { connect, open, supply, failure, failures } = &mut *self.lock();
            match connected {
                Ok(Some(connection)) => {
                    supply.on_open(began.elapsed());
                    *failure = None;
                    open.push(connect.start(connection, supply, &self.changed));
                }
                Ok(None) => supply.on_excess(),
                Err(error) => {
                    if supply.on_failed(Instant::now().into_std(), open.len()) {
                        (*failure, *failures) = (Some(error), *failures + 1);
                    }
                }
            }
        }
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Connect> Lanes<C>
where
    C::Lane: SharedLane,
{
    /// The state of the link, as measured.
    pub fn status(self: &Arc<Self>) -> LinkStatus {
        self.tend();
        self.with(|_, open, supply| {
            let rtt = open.iter().filter_map(|lane| lane.rtt()).min();
            supply.status(open.len(), rtt, open.iter().filter_map(|lane| lane.current_rtt()))
        })
    }

    /// Picks the least loaded lane; opens one if there is none. `take` is called before another task can choose, and
    /// must not block.
    ///
    /// # Errors
    /// If no lane is open and none can be opened.
    pub async fn choose<T>(
        self: &Arc<Self>,
        when_full: WhenFull,
        take: impl Fn(&Arc<C::Lane>) -> T,
    ) -> Result<T> {
        let pick = |_: &mut C, open: &[Arc<C::Lane>], supply: &mut Supply| {
            let takes_any = when_full == WhenFull::WaitForNew && supply.opening() == 0;
            let least = open.iter().min_by_key(|lane| lane.load());
            least.filter(|lane| takes_any || lane.load() < ENOUGH).map(&take)
        };
        self.wait_for(&Waiting::new(self, 0), pick).await
    }
}

impl<C: Connect> State<C> {
    fn tend(&mut self, lanes: &Arc<Lanes<C>>) {
        let Self { connect, open, supply, .. } = self;
        let missing = connect.review(open, supply);
        for _ in 0..supply.to_open(Instant::now().into_std(), open.len(), missing) {
            let (this, began) = (Arc::clone(lanes), Instant::now());
            let connecting = connect.connect(lanes);
            lanes.runtime.spawn(async move { this.on_connected(connecting.await, began) });
        }
    }
}

/// Registers a waiting task until it is dropped.
struct Waiting<'a, C: Connect> {
    lanes: &'a Lanes<C>,
    task: u64,
    /// How often opening had failed before.
    failures: u64,
}

impl<'a, C: Connect> Waiting<'a, C> {
    fn new(lanes: &'a Lanes<C>, queue: usize) -> Self {
        let state = &mut *lanes.lock();
        Self { lanes, task: state.supply.on_wait(queue), failures: state.failures }
    }
}

impl<C: Connect> Drop for Waiting<'_, C> {
    fn drop(&mut self) {
        self.lanes.lock().supply.on_wait_over(self.task);
    }
}
