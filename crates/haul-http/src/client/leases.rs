//! The connections to one origin that carry one request at a time: as many as the window wishes for, opened side
//! by side in the background. Whoever has something to ask waits for one that is free, first come, first served.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use haul_net::HostWaits;
use haul_storage::{Block, BufferPool, Error, ErrorKind, LinkStatus, Result, Retry};
use http::Request;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

use super::connect::Connector;
use super::payload::Stream;
use super::pipe::Pipe;
use super::queued::Alone;
use super::reader::Surroundings;
use super::response::{Owner, Pending};
use crate::parse::{Origin, Url};

/// Lanes in the making: enough to open all that a long path needs at once.
const MAKING: usize = 16;

/// From this round trip on a path is long: what a transfer needs is opened side by side from the
/// beginning.
const LONG_RTT: Duration = Duration::from_millis(20);

/// From this round trip on all lanes that a transfer will want are opened at once.
pub const LONGEST_RTT: Duration = Duration::from_millis(300);

/// After so long, and so much longer, without a response the round trip is taken for this. A lane that begins
/// then does not begin a round trip later.
const GUESSES: [(Duration, Duration); 3] = [
    (LONG_RTT, LONG_RTT),
    (Duration::from_millis(40), Duration::from_millis(200)),
    (Duration::from_millis(150), LONGEST_RTT),
];

/// After a refusal no further lane is tried for this long, doubled with each refusal in a row.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// So much before the server ends an idle lane it is no longer used, if that is not half of its time.
const ENDS_BEFORE: Duration = Duration::from_secs(1);

/// The lanes to one origin.
#[derive(Debug)]
pub struct Leases {
    origin: Origin,
    connector: Arc<Connector>,
    around: Surroundings,
    runtime: Handle,
    state: Mutex<State>,
    this: Weak<Self>,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Lane>,
    busy: usize,
    making: usize,
    wished: usize,
    when_long: Option<WhenLong>,
    /// Lanes that are busy for as long as somebody else likes; others are made in their place.
    held: usize,
    waiting: VecDeque<oneshot::Sender<Result<Lane>>>,
    refused: usize,
    refused_in_a_row: u32,
    paused_until: Option<Instant>,
    rtt: Option<Duration>,
    connect: Option<Duration>,
    /// All of them, busy or not.
    pipes: Vec<Weak<Pipe>>,
}

/// What is to be done once, over a long path.
#[derive(Clone)]
struct WhenLong(Arc<dyn Fn(Duration) + Send + Sync>);

impl fmt::Debug for WhenLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WhenLong")
    }
}

/// A connection.
#[derive(Debug)]
struct Lane {
    pipe: Arc<Pipe>,
    /// Whether it has answered before: a server may have closed it meanwhile.
    used: bool,
    /// When it is no longer used, if the server has said how long it keeps it when it is idle.
    ends: Option<Instant>,
}

impl Lane {
    /// Whether it is still there, and will be when a request arrives: what meets a connection that the
    /// server is closing may have been done or not, and a file that was to get its name is looked at
    /// anew (seen with Apache, which keeps them for 5 s, over 200 ms: one upload of four).
    fn is_open(&self) -> bool {
        !self.pipe.is_ended() && self.ends.is_none_or(|ends| Instant::now() < ends)
    }
}

/// A lane that is leased to a request, until the response has ended. It is closed if that never happens.
#[derive(Debug)]
pub struct Lease {
    lane: Mutex<Option<Lane>>,
    held: AtomicBool,
    used: bool,
    leases: Arc<Leases>,
}

impl Leases {
    /// No lane yet.
    pub fn new(origin: Origin, connector: Arc<Connector>, runtime: Handle) -> Arc<Self> {
        let state = Mutex::new(State { wished: 1, ..State::default() });
        // Only what is asked for among others comes in blocks.
        let (buffers, changed) = (BufferPool::new(0, 0), Arc::new(Notify::new()));
        let around = Surroundings { buffers, changed, host: connector.host(&origin) };
        Arc::new_cyclic(|this| Self {
            origin,
            connector,
            around,
            runtime,
            state,
            this: this.clone(),
        })
    }

    /// The waits for the server.
    pub const fn waits(&self) -> &HostWaits {
        &self.around.host.waits
    }

    /// Wishes for `lanes` lanes; those that are too many are closed once they are free.
    pub fn wish(&self, lanes: usize) {
        let mut state = self.lock();
        state.wished = lanes.max(1);
        self.tend(&mut state);
    }

    /// Wishes for no fewer than `lanes` lanes, until something else is wished for.
    pub fn wish_at_least(&self, lanes: usize) {
        let mut state = self.lock();
        state.wished = state.wished.max(lanes);
        self.tend(&mut state);
    }

    /// Does something as soon as it is known that the path is long: with its round trip, or before
    /// that is known with the time that the first connection has taken so far.
    pub fn when_long(&self, then: impl Fn(Duration) + Send + Sync + 'static) {
        self.lock().when_long = Some(WhenLong(Arc::new(then)));
        let Some(this) = self.this.upgrade() else { return };
        self.runtime.spawn(async move {
            for (waited, guess) in GUESSES {
                sleep(waited).await;
                let when_long = {
                    let state = this.lock();
                    let unknown = state.rtt.is_none() && state.making > 0;
                    state.when_long.clone().filter(|_| unknown)
                };
                let Some(then) = when_long else { break };
                then.0(guess);
            }
        });
    }

    /// What the link looks like.
    pub fn status(&self) -> LinkStatus {
        let mut state = self.lock();
        self.tend(&mut state);
        let pipes: Vec<_> = state.pipes.iter().filter_map(Weak::upgrade).collect();
        let shortest = pipes.iter().map(|pipe| pipe.rtt()).chain(state.rtt).min();
        let at_present = pipes.iter().filter_map(|pipe| pipe.at_present());
        LinkStatus {
            open: state.open(),
            opening: state.making,
            refused: state.refused,
            rtt: shortest,
            connect: state.connect,
            queueing: haul_net::queueing(at_present, shortest),
        }
    }

    /// A lane to ask on, as soon as one is free.
    ///
    /// # Errors
    /// None is open and none can be opened.
    pub async fn lease(self: &Arc<Self>) -> Result<Arc<Lease>> {
        let waiting = {
            let mut state = self.lock();
            match state.take_idle() {
                Some(lane) => {
                    state.busy += 1;
                    return Ok(self.leased(lane));
                }
                None => {
                    let (sender, receiver) = oneshot::channel();
                    state.waiting.push_back(sender);
                    self.tend(&mut state);
                    receiver
                }
            }
        };
        Ok(self.leased(Waiting { leases: self, receiver: waiting }.lane().await?))
    }

    fn leased(self: &Arc<Self>, lane: Lane) -> Arc<Lease> {
        let (used, held) = (lane.used, AtomicBool::new(false));
        Arc::new(Lease { lane: Mutex::new(Some(lane)), held, used, leases: Arc::clone(self) })
    }

    /// The server has refused a request because there are too many: fewer lanes.
    pub fn refused(&self) {
        let mut state = self.lock();
        state.refuse();
    }

    /// Makes what is missing.
    fn tend(&self, state: &mut State) {
        state.idle.retain(Lane::is_open);
        state.pipes.retain(|pipe| pipe.strong_count() > 0);
        let paused = state.paused_until.is_some_and(|until| until > Instant::now());
        // As many as somebody waits for: most of what is moved goes through other connections.
        while state.making < state.waiting.len().min(MAKING)
            && state.open() + state.making < state.wished + state.held
        {
            // One lane has to be there, whatever was refused.
            if paused && state.open() + state.making > 0 {
                break;
            }
            let Some(this) = self.this.upgrade() else { return };
            state.making += 1;
            self.runtime.spawn(this.make());
        }
    }

    async fn make(self: Arc<Self>) {
        let began = Instant::now();
        let dialled = |rtt| self.dialled(rtt);
        let connected = self.connector.reach(&self.origin, dialled).await;
        let mut state = self.lock();
        state.making -= 1;
        match connected {
            Ok(connected) => {
                state.refused_in_a_row = 0;
                state.connect.get_or_insert(began.elapsed());
                let pipe = Pipe::start(connected, self.around.clone(), &self.runtime);
                let pipe = Arc::new(pipe);
                state.pipes.push(Arc::downgrade(&pipe));
                self.hand_out(&mut state, Lane { pipe, used: false, ends: None });
            }
            Err(error) => {
                state.refuse();
                if state.open() + state.making == 0 {
                    state.fail_all(&error);
                }
                self.tend(&mut state);
            }
        }
    }

    /// A round trip is known.
    fn dialled(&self, rtt: Duration) {
        let when_long = {
            let mut state = self.lock();
            let known = state.rtt.unwrap_or(rtt);
            state.rtt = Some(known.min(rtt));
            state.when_long.take()
        };
        if let Some(then) = when_long.filter(|_| rtt >= LONG_RTT) {
            then.0(rtt);
        }
    }

    /// Gives a free lane to who has waited longest.
    fn hand_out(&self, state: &mut State, lane: Lane) {
        let mut lane = lane;
        while let Some(waiter) = state.waiting.pop_front() {
            match waiter.send(Ok(lane)) {
                Ok(()) => {
                    state.busy += 1;
                    return;
                }
                Err(Ok(back)) => lane = back,
                Err(Err(_)) => return,
            }
        }
        state.idle.push(lane);
        self.tend(state);
    }

    fn returned(&self, lane: Lane) {
        let mut state = self.lock();
        state.busy -= 1;
        if state.open() >= state.wished + state.held && state.waiting.is_empty() {
            return;
        }
        self.hand_out(&mut state, lane);
    }

    fn lost(&self) {
        let mut state = self.lock();
        state.busy -= 1;
        self.tend(&mut state);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn open(&self) -> usize {
        self.idle.len() + self.busy
    }

    fn take_idle(&mut self) -> Option<Lane> {
        // The one that was used last is least likely to have been closed.
        while let Some(lane) = self.idle.pop() {
            if lane.is_open() {
                return Some(lane);
            }
        }
        None
    }

    fn refuse(&mut self) {
        self.refused += 1;
        self.refused_in_a_row += 1;
        let factor = 1u32 << (self.refused_in_a_row - 1).min(5);
        self.paused_until = Some(Instant::now() + (PAUSE * factor).min(LONGEST_PAUSE));
    }

    fn fail_all(&mut self, error: &Error) {
        for waiter in self.waiting.drain(..) {
            // Whoever stopped waiting needs no reason.
            drop(waiter.send(Err(error.again())));
        }
    }
}

/// Waits for a lane. If it is dropped when the lane has come already, the lane goes to the next.
struct Waiting<'a> {
    leases: &'a Leases,
    receiver: oneshot::Receiver<Result<Lane>>,
}

impl Waiting<'_> {
    async fn lane(mut self) -> Result<Lane> {
        let received = (&mut self.receiver).await;
        received.unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::Interrupted, "connect").with_retry(Retry::Never))
        })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.receiver.close();
        if let Ok(Ok(lane)) = self.receiver.try_recv() {
            let mut state = self.leases.lock();
            state.busy -= 1;
            self.leases.hand_out(&mut state, lane);
        }
    }
}

impl Lease {
    /// Sends a request. The response may take `limit` to begin, if that is limited; `stream` is sent behind what
    /// is in memory.
    pub fn ask(
        self: &Arc<Self>,
        request: &Request<()>,
        url: &Url,
        body: &Block,
        limit: Option<Duration>,
        stream: Option<Stream>,
    ) -> Result<Pending> {
        let pipe = self.lane().as_ref().map(|lane| Arc::clone(&lane.pipe));
        let pipe = pipe.ok_or_else(|| Error::new(ErrorKind::Unreachable, "connect").at(url))?;
        let owner = Arc::clone(self);
        Ok(pipe.ask_alone(request, url, body, Alone { owner, limit, stream }))
    }

    /// Whether the lane has answered before, and so may be closed already at the other end.
    pub const fn is_used(&self) -> bool {
        self.used
    }

    fn lane(&self) -> MutexGuard<'_, Option<Lane>> {
        self.lane.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn release(&self) {
        if self.held.swap(false, Ordering::Relaxed) {
            self.leases.lock().held -= 1;
        }
    }
}

impl Owner for Lease {
    fn hold(&self) {
        // A lane that is free again is nobody's to hold.
        let lane = self.lane();
        if lane.is_some() && !self.held.swap(true, Ordering::Relaxed) {
            let mut state = self.leases.lock();
            state.held += 1;
            // There may be another one now for somebody who waits.
            self.leases.tend(&mut state);
        }
    }

    fn done(&self, is_kept: bool, keep_alive: Option<Duration>) {
        let Some(mut lane) = self.lane().take() else { return };
        self.release();
        if !is_kept {
            return self.leases.lost();
        }
        lane.used = true;
        let used = keep_alive.map(|kept| kept - ENDS_BEFORE.min(kept / 2));
        lane.ends = used.and_then(|used| Instant::now().checked_add(used));
        self.leases.returned(lane);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.done(false, None);
    }
}
