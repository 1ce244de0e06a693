//! Opens lanes, and gives them to the tasks that wait for one.
//!
//! When there is no lane, tasks wait for the first; when that cannot be opened, the error is for every task that
//! has waited, and the next one tries anew. Tasks that take turns wait in queues, and each queue is served in
//! order; one that stops waiting leaves what it would have got to the next.

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

/// A lane has enough to do, in thousandths of what it carries in two round trips: the first one would have
/// everything, and on a slow path the slowest would have as much left at the end as the fastest had.
pub const ENOUGH: u64 = 2000;

/// Queues in which tasks take turns.
pub const QUEUES: usize = 3;

/// What lanes have carried is not always announced, nor is the end of a pause.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How a backend opens lanes, and what it knows of them. It is kept within the pool's lock, so its methods must
/// not block.
pub trait Connect: Debug + Send + Sized + 'static {
    /// What a lane is started on.
    type Connection: Send + 'static;
    /// A lane.
    type Lane: Debug + Send + Sync + 'static;
    /// Lanes that are opened at once.
    const MOST_OPENING: usize;

    /// Connects, up to where requests can be sent. `None` if the lane turns out to be too much.
    ///
    /// # Errors
    /// The lane cannot be opened: it counts as refused.
    fn connect(&mut self, lanes: &Arc<Lanes<Self>>) -> Connecting<Self::Connection>;

    /// Starts a lane, which is among the others when this returns. `changed` is to be notified when it can
    /// carry more, if it knows.
    fn start(
        &mut self,
        connection: Self::Connection,
        supply: &mut Supply,
        changed: &Arc<Notify>,
    ) -> Arc<Self::Lane>;

    /// Removes lanes that have ended or are too many, and says what that means. Gives how many more than are
    /// wished for waiting tasks need.
    fn review(&mut self, lanes: &mut Vec<Arc<Self::Lane>>, supply: &mut Supply) -> usize;
}

/// What a lane is started on, while it is being connected.
pub type Connecting<C> = BoxFuture<'static, Result<Option<C>>>;

/// A lane that takes any number of requests.
pub trait SharedLane: Debug + Send + Sync + 'static {
    /// How busy it is, in thousandths of what it can carry in a round trip.
    fn load(&self) -> u64;

    /// Bytes that were requested or sent, and not yet answered.
    fn outstanding(&self) -> u64;

    /// The shortest round trip seen.
    fn rtt(&self) -> Option<Duration>;

    /// The round trip of packets at present, if some were sent of late.
    fn at_present(&self) -> Option<Duration>;
}

/// Closes lanes beyond `most` on which nothing is outstanding, the newest first. Gives those that are closed.
pub fn close_excess<L: SharedLane>(lanes: &mut Vec<Arc<L>>, most: usize) -> Vec<Arc<L>> {
    let mut closed = Vec::new();
    while lanes.len() > most {
        let Some(idle) = lanes.iter().rposition(|lane| lane.outstanding() == 0) else { break };
        closed.push(lanes.remove(idle));
    }
    closed
}

/// What a task waits for when all lanes have [`ENOUGH`] to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// Until one has less to do.
    Wait,
    /// As long as others are being opened.
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
    /// Why the last lane could not be opened, while there is none; and how often that was.
    failure: Option<Error>,
    failures: u64,
}

impl<C: Connect> Lanes<C> {
    /// No lane yet. What lanes do, encryption above all, is done on `runtime`.
    pub fn new(connect: C, runtime: Handle) -> Arc<Self> {
        let (open, supply) = (Vec::new(), Supply::new(C::MOST_OPENING));
        let state = Mutex::new(State { connect, open, supply, failure: None, failures: 0 });
        Arc::new(Self { runtime, state, changed: Arc::default(), turns: Default::default() })
    }

    /// Runs something beside the lanes.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime.spawn(work)
    }

    /// Looks at the lanes while none is opened or closed. `look` must not block.
    pub fn with<T>(&self, look: impl FnOnce(&mut C, &[Arc<C::Lane>], &mut Supply) -> T) -> T {
        let State { connect, open, supply, .. } = &mut *self.lock();
        look(connect, open, supply)
    }

    /// Opens what is missing and closes what is too much, after something has changed.
    pub fn tend(self: &Arc<Self>) {
        self.lock().tend(self);
        self.changed.notify_waiters();
    }

    /// Opens the first lane before a task waits for it.
    pub fn open_first(self: &Arc<Self>) {
        let _waiting = Waiting::new(self, 0);
        self.tend();
    }

    /// Wishes for `lanes` lanes; excess ones are closed once nothing is outstanding on them.
    pub fn wish(self: &Arc<Self>, lanes: usize) {
        self.with(|_, _, supply| supply.wish(lanes));
        self.tend();
    }

    /// Waits in a queue until it is the task's turn and `pick` takes something; opens a lane if there is none.
    /// `pick` must not block, and the future has to be polled: the queue waits for it.
    ///
    /// # Errors
    /// No lane is open, and none can be opened.
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
                // It may have found out that a lane has ended.
                state.tend(self);
            }
            drop(timeout(LOOK_AGAIN, changed).await);
        }
    }

    /// Waits until something has changed that `look` looks for.
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
    /// What the link looks like.
    pub fn status(self: &Arc<Self>) -> LinkStatus {
        self.tend();
        self.with(|_, open, supply| {
            let rtt = open.iter().filter_map(|lane| lane.rtt()).min();
            supply.status(open.len(), rtt, open.iter().filter_map(|lane| lane.at_present()))
        })
    }

    /// Takes the lane with the least to do; opens one if there is none. `take` is called before another task
    /// chooses, and must not block.
    ///
    /// # Errors
    /// No lane is open, and none can be opened.
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

/// A task that waits until this is dropped, and how often opening had failed before.
struct Waiting<'a, C: Connect> {
    lanes: &'a Lanes<C>,
    task: u64,
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
