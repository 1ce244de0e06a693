//! The connections to one origin: as many as the window wishes for, opened side by side in the
//! background. Each carries one request at a time, and whoever has something to ask waits for a lane
//! that is free, first come, first served.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use haul_net::Gauge;
use haul_storage::{Error, ErrorKind, LinkStatus, Result, Retry};
use hyper::client::conn::http1::SendRequest;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::body::Payload;
use super::connect::Connector;
use crate::parse::Origin;

/// Lanes in the making: enough to open all that a long path needs at once.
const MAKING: usize = 16;

/// From this round trip on a transfer opens lanes side by side from the beginning.
const LONG_ROUND_TRIP: Duration = Duration::from_millis(20);

/// After a refusal no further lane is tried for this long, doubled with each refusal in a row.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Whoever has waited for a lane for so long gets one more, if one of the others waits for its reader.
const STARVED: Duration = Duration::from_secs(1);

/// How old a round trip of a packet may be that is shown as that of now.
const RECENT: Duration = Duration::from_millis(200);

/// The lanes to one origin.
#[derive(Debug)]
pub struct Lanes {
    origin: Origin,
    connector: Arc<Connector>,
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
    /// Lanes that are busy for as long as somebody else likes; others are made in their place.
    held: usize,
    /// Lanes whose answers nobody reads at this moment.
    stalled: usize,
    /// Lanes that a transfer will want over a long path.
    expected: usize,
    waiting: VecDeque<oneshot::Sender<Result<Lane>>>,
    refused: usize,
    refused_in_a_row: u32,
    paused_until: Option<Instant>,
    round_trip: Option<Duration>,
    connect: Option<Duration>,
    gauges: Vec<Arc<Option<Gauge>>>,
}

/// A connection.
#[derive(Debug)]
pub struct Lane {
    sender: SendRequest<Payload>,
    _gauge: Arc<Option<Gauge>>,
    /// Whether it has answered before: a server may have closed it meanwhile.
    used: bool,
}

/// A lane in the hands of whoever asks on it. Unless it is given back it is closed.
#[derive(Debug)]
pub struct Lease {
    lane: Option<Lane>,
    held: bool,
    stalled: bool,
    lanes: Arc<Lanes>,
}

impl Lanes {
    /// No lane yet.
    pub fn new(origin: Origin, connector: Arc<Connector>, runtime: Handle) -> Arc<Self> {
        let state = Mutex::new(State { wished: 1, ..State::default() });
        Arc::new_cyclic(|this| Self { origin, connector, runtime, state, this: this.clone() })
    }

    /// Whom they lead to.
    pub const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Wishes for `lanes` lanes; those that are too many are closed once they are free.
    pub fn wish(&self, lanes: usize) {
        let mut state = self.lock();
        state.wished = lanes.max(1);
        self.tend(&mut state);
    }

    /// Says that much is going to be moved, and over `lanes` lanes where the path is long.
    pub fn expect(&self, lanes: usize) {
        self.lock().expected = lanes;
    }

    /// What the link looks like.
    pub fn status(&self) -> LinkStatus {
        let mut state = self.lock();
        self.tend(&mut state);
        let seen = state.gauges.iter().filter_map(|gauge| gauge.as_ref().as_ref()?.round_trips());
        let (mut shortest, mut queueing) = (state.round_trip, Vec::new());
        for seen in seen {
            shortest = Some(shortest.map_or(seen.shortest, |known| known.min(seen.shortest)));
            if seen.idle <= (seen.shortest * 2).max(RECENT) {
                queueing.push(seen.now - seen.shortest);
            }
        }
        queueing.sort_unstable();
        LinkStatus {
            open: state.open(),
            opening: state.making,
            refused: state.refused,
            round_trip: shortest,
            connect: state.connect,
            queueing: queueing.get(queueing.len() / 2).copied(),
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
                    return Ok(Lease {
                        lane: Some(lane),
                        held: false,
                        stalled: false,
                        lanes: Arc::clone(self),
                    });
                }
                None => {
                    let (sender, receiver) = oneshot::channel();
                    state.waiting.push_back(sender);
                    self.tend(&mut state);
                    receiver
                }
            }
        };
        let mut lane = pin!(Waiting { lanes: self, receiver: waiting }.lane());
        loop {
            if let Ok(lane) = timeout(STARVED, &mut lane).await {
                let (lane, lanes) = (Some(lane?), Arc::clone(self));
                return Ok(Lease { lane, held: false, stalled: false, lanes });
            }
            // Whoever does not read may wait for this very request.
            let mut state = self.lock();
            if state.stalled > 0 && state.making == 0 {
                state.making += 1;
                self.runtime.spawn(Arc::clone(self).make());
            }
        }
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
        state.idle.retain(|lane| !lane.sender.is_closed());
        // A lane that has gone has left its gauge.
        state.gauges.retain(|gauge| Arc::strong_count(gauge) > 1);
        while state.open() > state.allowed().max(state.waiting.len().min(1))
            && state.idle.pop().is_some()
        {}
        let begun = state.open() + state.making > 0 || !state.waiting.is_empty();
        let paused = state.paused_until.is_some_and(|until| until > Instant::now());
        while begun && state.making < MAKING && state.open() + state.making < state.allowed() {
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
        let dialled = |round_trip| self.dialled(round_trip);
        let connected = self.connector.connect(&self.origin, dialled).await;
        let mut state = self.lock();
        state.making -= 1;
        match connected {
            Ok(connected) => {
                state.refused_in_a_row = 0;
                state.connect.get_or_insert(began.elapsed());
                let gauge = Arc::new(connected.gauge);
                state.gauges.push(Arc::clone(&gauge));
                self.hand_out(
                    &mut state,
                    Lane { sender: connected.sender, _gauge: gauge, used: false },
                );
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

    /// A first round trip is known: over a long path all lanes are made at once.
    fn dialled(&self, round_trip: Duration) {
        let mut state = self.lock();
        let first = state.round_trip.is_none();
        state.round_trip = Some(state.round_trip.map_or(round_trip, |known| known.min(round_trip)));
        if first && round_trip >= LONG_ROUND_TRIP && state.expected > state.wished {
            state.wished = state.expected;
            self.tend(&mut state);
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

    const fn allowed(&self) -> usize {
        self.wished + self.held
    }

    fn take_idle(&mut self) -> Option<Lane> {
        // The one that was used last is least likely to have been closed.
        while let Some(lane) = self.idle.pop() {
            if !lane.sender.is_closed() {
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
            let same = Error::new(error.kind(), error.operation())
                .at(error.location())
                .because(error.cause())
                .with_retry(error.retry());
            // Whoever stopped waiting needs no reason.
            drop(waiter.send(Err(same)));
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

    /// Says that it waits for something else than the network: bytes to send, or somebody who wants
    /// those that have come. That may need a lane itself, so one more may be open meanwhile.
    pub fn hold(&mut self) {
        if !std::mem::replace(&mut self.held, true) {
            let mut state = self.lanes.lock();
            state.held += 1;
            self.lanes.tend(&mut state);
        }
    }

    /// Says whether somebody reads what comes on it.
    pub fn stall(&mut self, stalled: bool) {
        if std::mem::replace(&mut self.stalled, stalled) != stalled {
            let mut state = self.lanes.lock();
            state.stalled = if stalled { state.stalled + 1 } else { state.stalled - 1 };
        }
    }

    /// It is a lane like others again.
    pub fn release(&mut self) {
        if std::mem::take(&mut self.held) {
            self.lanes.lock().held -= 1;
        }
    }

    /// Whether the lane has answered before, and so may be closed already at the other end.
    pub fn is_used(&self) -> bool {
        self.lane.as_ref().is_some_and(|lane| lane.used)
    }

    /// The lanes that it is one of.
    pub const fn lanes(&self) -> &Arc<Lanes> {
        &self.lanes
    }

    /// All of the answer has been read: the lane is free for the next.
    pub fn give_back(mut self) {
        self.release();
        self.stall(false);
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
        self.stall(false);
        if self.lane.take().is_some() {
            self.lanes.lost();
        }
    }
}

impl Lanes {
    fn returned(&self, lane: Lane) {
        let mut state = self.lock();
        state.busy -= 1;
        if state.open() >= state.allowed() && state.waiting.is_empty() {
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
