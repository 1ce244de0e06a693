//! The connections to one origin: as many as the window wishes for, opened side by side in the
//! background. Each carries one request at a time, and whoever has something to ask waits for a lane
//! that is free, first come, first served.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use haul_net::{HostWaits, RttGauge};
use haul_storage::{Error, ErrorKind, LinkStatus, Result, Retry};
use hyper::client::conn::http1::SendRequest;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::body::Payload;
use super::connect::Connector;
use crate::parse::Origin;

/// Lanes in the making: enough to open all that a long path needs at once.
const MAKING: usize = 16;

/// From this round trip on a path is long: what a transfer needs is opened side by side from the
/// beginning.
const LONG_RTT: Duration = Duration::from_millis(20);

/// From this round trip on all lanes that a transfer will want are opened at once.
pub const LONGEST_RTT: Duration = Duration::from_millis(300);

/// After so long, and so much longer, without an answer the round trip is taken for this. A lane that begins
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

/// How old a round trip of a packet may be that is shown as that of now.
const RECENT: Duration = Duration::from_millis(200);

/// The lanes to one origin.
#[derive(Debug)]
pub struct Lanes {
    origin: Origin,
    connector: Arc<Connector>,
    waits: HostWaits,
    /// Whether a body has not ended that nobody wanted.
    endless: AtomicBool,
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
    gauges: Vec<Arc<Option<RttGauge>>>,
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
pub struct Lane {
    sender: SendRequest<Payload>,
    _gauge: Arc<Option<RttGauge>>,
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
        !self.sender.is_closed() && self.ends.is_none_or(|ends| Instant::now() < ends)
    }
}

/// A lane in the hands of whoever asks on it. Unless it is given back it is closed.
#[derive(Debug)]
pub struct Lease {
    lane: Option<Lane>,
    held: bool,
    lanes: Arc<Lanes>,
}

impl Lanes {
    /// No lane yet.
    pub fn new(origin: Origin, connector: Arc<Connector>, runtime: Handle) -> Arc<Self> {
        let state = Mutex::new(State { wished: 1, ..State::default() });
        let (waits, endless) = (connector.waits(&origin), AtomicBool::new(false));
        Arc::new_cyclic(|this| Self {
            origin,
            connector,
            waits,
            endless,
            runtime,
            state,
            this: this.clone(),
        })
    }

    /// Whom they lead to.
    pub const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The waits for the server.
    pub const fn waits(&self) -> &HostWaits {
        &self.waits
    }

    /// The shortest round trip of a handshake, once there was one.
    pub fn rtt(&self) -> Option<Duration> {
        self.lock().rtt
    }

    /// Whether the server is one whose bodies do not end where only the head matters.
    pub fn is_endless(&self) -> bool {
        self.endless.load(Ordering::Relaxed)
    }

    /// It is one from now on.
    pub fn is_endless_from_now_on(&self) {
        self.endless.store(true, Ordering::Relaxed);
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
        let seen = state.gauges.iter().filter_map(|gauge| gauge.as_ref().as_ref()?.round_trips());
        let (mut shortest, mut at_present) = (state.rtt, Vec::new());
        for seen in seen {
            shortest = Some(shortest.map_or(seen.shortest, |known| known.min(seen.shortest)));
            at_present.extend(seen.at_present(RECENT));
        }
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
    pub async fn lease(self: &Arc<Self>) -> Result<Lease> {
        let waiting = {
            let mut state = self.lock();
            match state.take_idle() {
                Some(lane) => {
                    state.busy += 1;
                    return Ok(Lease { lane: Some(lane), held: false, lanes: Arc::clone(self) });
                }
                None => {
                    let (sender, receiver) = oneshot::channel();
                    state.waiting.push_back(sender);
                    self.tend(&mut state);
                    receiver
                }
            }
        };
        let lane = Waiting { lanes: self, receiver: waiting }.lane().await?;
        Ok(Lease { lane: Some(lane), held: false, lanes: Arc::clone(self) })
    }

    /// The server has refused a request because there are too many: fewer lanes.
    pub fn refused(&self) {
        let mut state = self.lock();
        state.refuse();
    }

    /// Lanes that are open.
    pub fn open(&self) -> usize {
        self.lock().open()
    }

    /// Makes what is missing.
    fn tend(&self, state: &mut State) {
        state.idle.retain(Lane::is_open);
        // A lane that has gone has left its gauge.
        state.gauges.retain(|gauge| Arc::strong_count(gauge) > 1);
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
        let connected = self.connector.connect(&self.origin, dialled).await;
        let mut state = self.lock();
        state.making -= 1;
        match connected {
            Ok(connected) => {
                state.refused_in_a_row = 0;
                state.connect.get_or_insert(began.elapsed());
                let gauge = Arc::new(connected.gauge);
                state.gauges.push(Arc::clone(&gauge));
                let lane =
                    Lane { sender: connected.stream, _gauge: gauge, used: false, ends: None };
                self.hand_out(&mut state, lane);
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
    lanes: &'a Lanes,
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
            let mut state = self.lanes.lock();
            state.busy -= 1;
            self.lanes.hand_out(&mut state, lane);
        }
    }
}

impl Lease {
    /// The connection.
    pub fn sender(&mut self) -> Option<&mut SendRequest<Payload>> {
        self.lane.as_mut().map(|lane| &mut lane.sender)
    }

    /// Whether the lane has answered before, and so may be closed already at the other end.
    pub fn is_used(&self) -> bool {
        self.lane.as_ref().is_some_and(|lane| lane.used)
    }

    /// The server has answered, and said for how long it keeps the lane when it is idle from now on.
    pub fn is_kept(&mut self, kept: Option<Duration>) {
        if let Some(lane) = &mut self.lane {
            let used = kept.map(|kept| kept - ENDS_BEFORE.min(kept / 2));
            lane.ends = used.and_then(|used| Instant::now().checked_add(used));
        }
    }

    /// The lanes that it is one of.
    pub const fn lanes(&self) -> &Arc<Lanes> {
        &self.lanes
    }

    /// Says that the lane is busy for as long as somebody else likes.
    pub fn hold(&mut self) {
        if !std::mem::replace(&mut self.held, true) {
            let mut state = self.lanes.lock();
            state.held += 1;
            // There may be another one now for somebody who waits.
            self.lanes.tend(&mut state);
        }
    }

    fn release(&mut self) {
        if std::mem::take(&mut self.held) {
            self.lanes.lock().held -= 1;
        }
    }

    /// All of the answer has been read: the lane is free for the next.
    pub fn give_back(mut self) {
        self.release();
        let Some(mut lane) = self.lane.take() else { return };
        lane.used = true;
        let lanes = Arc::clone(&self.lanes);
        if lane.sender.is_ready() {
            return lanes.returned(lane);
        }
        // The task of the connection has yet to notice that the answer has ended.
        let runtime = lanes.runtime.clone();
        runtime.spawn(async move {
            if lane.sender.ready().await.is_ok() {
                lanes.returned(lane);
            } else {
                lanes.lost();
            }
        });
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.release();
        if self.lane.take().is_some() {
            self.lanes.lost();
        }
    }
}

impl Lanes {
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
}
