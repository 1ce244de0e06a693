//! The lanes to one origin that parts of files are asked for on: as many as the window wishes for,
//! opened side by side in the background; a lost one is replaced.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use haul_net::ReceiveBudget;
use haul_storage::{Block, BufferPool, Error, LinkStatus, Range, Result, Retry};
use http::header::RANGE;
use http::{HeaderValue, Request};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::connect::Connector;
use super::facts::bytes_of;
use super::load::ENOUGH;
use super::pipe::Pipe;
use super::reader::Surroundings;
use super::response::Pending;
use super::speed::{AT_ONCE, ENOUGH_FOR_SLOW, JUDGED_AFTER, Speed};
use crate::parse::{Origin, Url};

/// Lanes in the making: enough to open all that a long path needs at once.
const MAKING: usize = 64;

const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// After this time without work a lane is idle, and does not only wait for the next request.
const IDLE: Duration = Duration::from_secs(1);

/// After a refusal no further lane is tried for this long, doubled with each refusal in a row.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A new lane that ends within this time without a word was one too many; later it was idle.
const TURNED_AWAY_WITHIN: Duration = Duration::from_secs(5);

/// Lanes that have not answered after so many round trips, and so long, while others have: when they are
/// half of all, the path is too slow for so many. It loses what most of them begin with, and each then
/// waits for seconds until that is sent again (measured at 0.5 Mbit/s and 300 ms, where 48 lanes took a third
/// of the rate for 20 s).
const UNFED_ROUND_TRIPS: u32 = 5;
const UNFED: Duration = Duration::from_secs(1);

/// A single lane without a response is closed after this many times that patience: its first packets were lost,
/// and TCP backs off for up to a minute before it retransmits them.
const LOST_AFTER: u32 = 4;

/// Fewer lanes than this are never closed for lack of a response.
const FEWEST: usize = 8;

/// How often is looked whether a lane has responded.
const LOOK_FOR_FIRST: Duration = Duration::from_millis(5);

/// Bytes that every new lane is asked for before anything is known of the file.
pub const PIECE: u64 = 64 << 10;

/// How long after it was looked at a file is what a new lane is needed for.
const LATELY: Duration = Duration::from_secs(2);

/// Buffers that are kept for when they are needed again.
const BUFFERS_KEPT: usize = 32;
const BUFFER: usize = 256 << 10;

/// The lanes to one origin.
#[derive(Debug)]
pub struct Pipes {
    origin: Origin,
    connector: Arc<Connector>,
    runtime: Handle,
    buffers: BufferPool,
    /// What comes on all of them, over a long path.
    receive_budget: OnceLock<Option<Arc<ReceiveBudget>>>,
    state: Mutex<State>,
    changed: Arc<Notify>,
    this: Weak<Self>,
}

#[derive(Debug, Default)]
struct State {
    open: Vec<Arc<Pipe>>,
    making: usize,
    wished: usize,
    refused: usize,
    refused_in_a_row: u32,
    refused_at: Option<Instant>,
    paused_until: Option<Instant>,
    /// Why the last lane could not be opened, while there is none, and how often that was.
    failure: Option<Error>,
    failures: u64,
    connect: Option<Duration>,
    /// Lanes that are not given up however little the window wishes for: it has not measured
    /// anything yet when they are opened.
    least: usize,
    prefetch: Option<Prefetch>,
    speed: Speed,
    /// Bytes that have arrived on lanes that have ended.
    arrived_before: u64,
}

/// What new lanes are asked at once.
#[derive(Debug)]
struct Prefetch {
    url: Url,
    request: Request<()>,
    since: Instant,
    parts: Vec<(Range, Pending)>,
}

impl Pipes {
    /// No lane yet.
    pub fn new(origin: Origin, connector: Arc<Connector>, runtime: Handle) -> Arc<Self> {
        let state = Mutex::new(State { wished: 1, ..State::default() });
        let buffers = BufferPool::new(BUFFER, BUFFERS_KEPT);
        let changed = Arc::new(Notify::new());
        Arc::new_cyclic(|this| Self {
            origin,
            connector,
            runtime,
            buffers,
            receive_budget: OnceLock::new(),
            state,
            changed,
            this: this.clone(),
        })
    }

    /// Wishes for `lanes` lanes; those that are too many are closed once nothing is under way on
    /// them.
    pub fn wish(&self, lanes: usize) {
        let mut state = self.lock();
        state.wished = lanes.max(1);
        self.tend(&mut state);
    }

    /// Says what new lanes are to ask for at once: one piece of a file each, from the second on.
    pub fn prefetch(&self, url: Url, request: Request<()>) {
        let since = Instant::now();
        self.lock().prefetch = Some(Prefetch { url, request, since, parts: Vec::new() });
    }

    /// The pieces of a file that have been asked for, in order.
    pub fn prefetched(&self, url: &Url) -> Vec<(Range, Pending)> {
        let prefetch = self.lock().prefetch.take();
        prefetch
            .filter(|prefetch| prefetch.url == *url)
            .map_or(Vec::new(), |prefetch| prefetch.parts)
    }

    /// Opens `lanes` lanes now, if there are not as many: a transfer is about to begin.
    pub fn open_now(&self, lanes: usize) {
        let mut state = self.lock();
        state.least = state.least.max(lanes);
        if state.open.is_empty() && state.making == 0 {
            self.make(&mut state);
        }
        self.tend(&mut state);
    }

    /// Whether a lane has had nothing to do for a while, and none is asked for anything new.
    pub fn has_idle(&self) -> bool {
        self.lock().open.iter().any(|lane| lane.idle_for() > IDLE)
    }

    /// How long a response may take that waits behind nothing else.
    pub fn patience(&self) -> Duration {
        self.lock().patience()
    }

    /// What the link looks like.
    pub fn status(&self) -> LinkStatus {
        let mut state = self.lock();
        self.tend(&mut state);
        let rtt = state.open.iter().map(|lane| lane.rtt()).min();
        let at_present = state.open.iter().filter_map(|lane| lane.at_present());
        LinkStatus {
            open: state.open.len(),
            opening: state.making,
            refused: state.refused,
            rtt,
            connect: state.connect,
            queueing: haul_net::queueing(at_present, rtt),
        }
    }

    /// Asks for a part of `expected` bytes, or sends `body`, on the lane with the least to do. Gives
    /// that lane, too.
    ///
    /// # Errors
    /// No lane is open and none can be opened.
    pub async fn ask(
        &self,
        request: &Request<()>,
        url: &Url,
        expected: u64,
        body: &Block,
    ) -> Result<(Pending, Arc<Pipe>)> {
        let failures = self.lock().failures;
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.lock();
                self.tend(&mut state);
                let least = state.open.iter().min_by_key(|lane| lane.load());
                // What is sent is announced by its response alone: nothing is known of it meanwhile.
                let is_sent = !body.is_empty() && state.making == 0;
                if let Some(least) = least.filter(|lane| is_sent || lane.load() < ENOUGH) {
                    return Ok((least.ask(request, url, expected, body), Arc::clone(least)));
                }
                if state.open.is_empty() && state.making == 0 {
                    // It is the same for all who have waited for it.
                    if let Some(failure) =
                        state.failure.as_ref().filter(|_| state.failures > failures)
                    {
                        return Err(failure.again());
                    }
                    self.make(&mut state);
                }
            }
            // A lane that carries nothing does not announce that it is given up.
            drop(timeout(LOOK_AGAIN, changed).await);
        }
    }

    /// Asks behind everything that has been asked on the lanes that are open.
    pub fn ask_on_all(&self, request: &Request<()>, url: &Url) -> Vec<Pending> {
        let open = self.lock().open.clone();
        open.iter().map(|lane| lane.ask(request, url, 0, &Block::new())).collect()
    }

    /// The server refuses what is asked on a lane because there are too many. Whether others are
    /// left.
    pub fn refused(&self, lane: &Pipe) -> bool {
        let mut state = self.lock();
        lane.retire();
        state.refuse();
        self.tend(&mut state);
        !state.open.is_empty()
    }

    /// Forgets lanes that have ended, closes what is too much, makes what is missing.
    fn tend(&self, state: &mut State) {
        state.forget_ended();
        state.give_up_unfed();
        let mut wished = state.wished.max(state.least);
        let arrived = state.arrived();
        state.speed.arrived(Instant::now(), arrived);
        if state.speed.is_slow() {
            wished = wished.min(ENOUGH_FOR_SLOW);
        }
        while state.open.len() > wished {
            let Some(idle) = state.open.iter().rposition(|lane| lane.outstanding() == 0) else {
                break;
            };
            let lane = state.open.remove(idle);
            state.arrived_before += lane.arrived();
        }
        let paused = state.paused_until.is_some_and(|until| until > Instant::now());
        // The first lane opens when somebody needs it, and the others are worth it only then.
        let begun = !state.open.is_empty() || state.making > 0;
        while begun && !paused && state.making < MAKING && state.open.len() + state.making < wished
        {
            self.make(state);
        }
    }

    fn make(&self, state: &mut State) {
        let Some(this) = self.this.upgrade() else { return };
        state.making += 1;
        self.runtime.spawn(this.open_one());
    }

    async fn open_one(self: Arc<Self>) {
        let began = Instant::now();
        let connected = self.connector.reach(&self.origin, |_| {}).await;
        let excess = connected.is_ok() && !self.can_be_fed().await;
        let mut state = self.lock();
        state.making -= 1;
        if excess {
            state.least = state.least.min(state.open.len());
            drop(state);
            self.changed.notify_waiters();
            return;
        }
        match connected {
            Ok(mut connected) => {
                let receive_budget =
                    self.receive_budget.get_or_init(|| ReceiveBudget::over(connected.rtt));
                if let Some(receive_budget) = receive_budget {
                    connected.stream.feed(receive_budget);
                }
                state.failure = None;
                state.connect.get_or_insert(began.elapsed());
                let (buffers, changed) = (self.buffers.clone(), Arc::clone(&self.changed));
                let host = self.connector.host(&self.origin);
                let around = Surroundings { buffers, changed, host };
                let pipe = Pipe::start(connected, around, &self.runtime);
                state.ask_ahead(&pipe);
                state.open.push(Arc::new(pipe));
            }
            Err(error) => {
                state.refuse();
                if state.open.is_empty() && state.making == 0 {
                    state.failure = Some(error);
                    state.failures += 1;
                } else if error.retry() == Retry::Never {
                    state.wished = state.open.len().max(1);
                    state.least = 0;
                }
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Whether the path is fast enough for a lane more. From [`AT_ONCE`] lanes on this waits for the first
    /// bytes on the others, which are a round trip away.
    async fn can_be_fed(&self) -> bool {
        let began = Instant::now();
        loop {
            let has_answered = {
                let state = self.lock();
                if state.open.len() < AT_ONCE || began.elapsed() > state.patience() {
                    return true;
                }
                if let Some(judged) = state.speed.first_judged() {
                    return !state.speed.is_slow() || began > judged;
                }
                state.open.iter().any(|lane| lane.has_answered())
            };
            if !has_answered {
                sleep(LOOK_FOR_FIRST).await;
                continue;
            }
            sleep(JUDGED_AFTER).await;
            let mut state = self.lock();
            let arrived = state.arrived();
            state.speed.judge(Instant::now(), arrived);
            return !state.speed.is_slow();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Asks a new lane for the next piece of what is going to be read.
    fn ask_ahead(&mut self, pipe: &Pipe) {
        drop(self.prefetch.take_if(|prefetch| prefetch.since.elapsed() > LATELY));
        let Some(prefetch) = &mut self.prefetch else { return };
        let start = (prefetch.parts.len() as u64 + 1) * PIECE;
        let range = Range::new(start, PIECE);
        let Ok(bytes) = HeaderValue::try_from(bytes_of(range)) else { return };
        prefetch.request.headers_mut().insert(RANGE, bytes);
        let part = pipe.ask(&prefetch.request, &prefetch.url, range.len(), &Block::new());
        prefetch.parts.push((range, part));
    }

    /// A lane that ended before it answered anything was refused by a server that has too many:
    /// another one would end like it.
    fn forget_ended(&mut self) {
        let refused_at = self.refused_at;
        let later = |lane: &Pipe| refused_at.is_none_or(|at| lane.opened() > at);
        if self.open.iter().any(|lane| lane.has_answered() && later(lane)) {
            self.refused_in_a_row = 0;
        }
        let turned_away = |lane: &Pipe| {
            let soon = lane.opened().elapsed() < TURNED_AWAY_WITHIN;
            lane.is_ended() && !lane.has_answered() && soon && later(lane)
        };
        let refused = self.open.iter().any(|lane| turned_away(lane));
        let ended = self.open.extract_if(.., |lane| lane.is_ended());
        self.arrived_before += ended.map(|lane| lane.arrived()).sum::<u64>();
        if refused {
            self.refuse();
        }
    }

    /// Bytes that have arrived on all lanes.
    fn arrived(&self) -> u64 {
        self.arrived_before + self.open.iter().map(|lane| lane.arrived()).sum::<u64>()
    }

    /// How long a lane has to respond before others, or another, are asked.
    fn patience(&self) -> Duration {
        let rtt = self.open.iter().map(|lane| lane.rtt()).min().unwrap_or_default();
        UNFED.max(rtt * UNFED_ROUND_TRIPS)
    }

    /// Gives up lanes that a slow path cannot feed. What was asked on them is asked again on others.
    fn give_up_unfed(&mut self) {
        let all = self.open.len();
        if all <= FEWEST || !self.open.iter().any(|lane| lane.has_answered()) {
            return;
        }
        let patience = self.patience();
        let is_unfed = |lane: &Pipe, patience: Duration| {
            !lane.has_answered() && lane.outstanding() > 0 && lane.opened().elapsed() > patience
        };
        let unfed = |patience| self.open.iter().filter(|lane| is_unfed(lane, patience)).count();
        let patience = if 2 * unfed(patience) < all { patience * LOST_AFTER } else { patience };
        let mut excess = unfed(patience).min(all - FEWEST);
        if excess == 0 {
            return;
        }
        self.open.retain(|lane| {
            let stays = excess == 0 || !is_unfed(lane, patience);
            if !stays {
                excess -= 1;
                lane.abandon();
            }
            stays
        });
        self.least = self.least.min(self.open.len());
    }

    fn refuse(&mut self) {
        self.refused_at = Some(Instant::now());
        self.refused += 1;
        self.refused_in_a_row += 1;
        self.least = 0;
        let factor = 1u32 << (self.refused_in_a_row - 1).min(5);
        self.paused_until = Some(Instant::now() + (PAUSE * factor).min(LONGEST_PAUSE));
    }
}
