//! The connections to one origin that carry one request at a time. They are opened in parallel in the background: only
//! as many as requests need, and at most as many as the window asks for, beside those that are held for long. Requests
//! wait for a free one, first come, first served.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_net::HostWaits;
use haul_net::pool::{Connect, Connecting, LONG_RTT, Lanes, Supply};
use haul_storage::{Block, BufferPool, Error, ErrorKind, LinkStatus, Result};
use http::Request;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::connect::{Connected, Connector, Link};
use super::payload::Stream;
use super::pipe::Pipe;
use super::queued::Alone;
use super::reader::Surroundings;
use super::response::{Owner, Pending};
use crate::parse::{Origin, Url};

/// From this RTT on, all lanes that a transfer will use are opened at once.
pub const LONGEST_RTT: Duration = Duration::from_millis(300);

/// Each further wait for the response to the first handshake, and the RTT that is assumed after it: other lanes are
/// opened before the first RTT is known.
const GUESSES: [(Duration, Duration); 3] = [
    (LONG_RTT, LONG_RTT),
    (Duration::from_millis(40), Duration::from_millis(200)),
    (Duration::from_millis(150), LONGEST_RTT),
];

/// haul stops using an idle lane this long before the server closes it, but not before half of the announced time.
const ENDS_BEFORE: Duration = Duration::from_secs(1);

/// The lanes to one origin.
#[derive(Debug)]
pub struct Leases {
    waits: HostWaits,
    pool: Arc<Lanes<Opener>>,
}

/// Opens lanes, and holds the idle ones.
#[derive(Debug)]
struct Opener {
    origin: Origin,
    connector: Arc<Connector>,
    around: Surroundings,
    runtime: Handle,
    idle: Vec<Lane>,
    busy: usize,
    /// Busy lanes that may be in use for any time, by a slow reader or an upload; others are opened in their place.
    held: usize,
    target: usize,
    when_long: Option<WhenLong>,
    /// The shortest RTT of a handshake.
    rtt: Option<Duration>,
}

/// A callback for a long path: runs with each guess of its RTT, and once with the RTT.
#[derive(Clone)]
struct WhenLong(Arc<dyn Fn(Duration) + Send + Sync>);

impl fmt::Debug for WhenLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WhenLong")
    }
}

/// One connection.
#[derive(Debug)]
struct Lane {
    pipe: Arc<Pipe>,
    /// Whether it has responded before: the server may have closed it meanwhile.
    used: bool,
    /// When haul stops using it, if the server has reported how long it keeps an idle connection.
    ends: Option<Instant>,
}

impl Lane {
    /// Whether it is open, and will be when a request arrives. If the server closes the connection meanwhile, it may or
    /// may not have made the requested change, and haul has to look up the result of a rename (seen with Apache, which
    /// keeps idle connections for 5 s, at an RTT of 200 ms: one upload in four).
    fn is_open(&self) -> bool {
        !self.pipe.is_ended() && self.ends.is_none_or(|ends| Instant::now() < ends)
    }
}

/// A lane leased to one request until its response has ended. If that never happens, the lane is closed.
#[derive(Debug)]
pub struct Lease {
    lane: Mutex<Option<Lane>>,
    held: AtomicBool,
    used: bool,
    pool: Arc<Lanes<Opener>>,
}

impl Leases {
    /// Opens no lane yet.
    pub fn new(origin: Origin, connector: Arc<Connector>, runtime: Handle) -> Arc<Self> {
        // Only responses on shared connections are gathered into blocks.
        let (buffers, changed) = (BufferPool::new(0, 0), Arc::new(Notify::new()));
        let around = Surroundings { buffers, changed, host: connector.host(&origin) };
        let waits = around.host.waits.clone();
        let opener = Opener {
            origin,
            connector,
            around,
            runtime: runtime.clone(),
            idle: Vec::new(),
            busy: 0,
            held: 0,
            target: 1,
            when_long: None,
            rtt: None,
        };
        Arc::new(Self { waits, pool: Lanes::new(opener, runtime) })
    }

    /// The waits for the server.
    pub const fn waits(&self) -> &HostWaits {
        &self.waits
    }

    /// Sets the maximum number of lanes, not counting held ones. A lane in excess is closed when its request ends; idle
    /// ones stay open.
    pub fn set_target(&self, lanes: usize) {
        self.pool.with(|opener, _, _| opener.target = lanes.max(1));
        self.pool.tend();
    }

    /// Raises the maximum number of lanes to at least `lanes`, until another one is set.
    pub fn raise_target(&self, lanes: usize) {
        self.pool.with(|opener, _, _| opener.target = opener.target.max(lanes));
        self.pool.tend();
    }

    /// Calls `then` with the RTT once it is known, if the path is long. While the first connection is still being
    /// opened, calls it with up to three growing guesses (`GUESSES`).
    pub fn when_long(&self, then: impl Fn(Duration) + Send + Sync + 'static) {
        self.pool.with(|opener, _, _| opener.when_long = Some(WhenLong(Arc::new(then))));
        let pool = Arc::downgrade(&self.pool);
        self.pool.spawn(async move {
            for (waited, guess) in GUESSES {
                sleep(waited).await;
                let Some(pool) = pool.upgrade() else { break };
                let when_long = pool.with(|opener, _, supply| {
                    let unknown = opener.rtt.is_none() && supply.opening() > 0;
                    opener.when_long.clone().filter(|_| unknown)
                });
                let Some(then) = when_long else { break };
                then.0(guess);
            }
        });
    }

    /// The state of the link: RTTs and lanes.
    pub fn status(&self) -> LinkStatus {
        self.pool.tend();
        self.pool.with(|opener, open, supply| {
            let shortest = open.iter().map(|pipe| pipe.rtt()).chain(opener.rtt).min();
            let current_rtts = open.iter().filter_map(|pipe| pipe.current_rtt());
            supply.status(open.len(), shortest, current_rtts)
        })
    }

    /// A lane for one request, as soon as one is free.
    ///
    /// # Errors
    /// None is open and none can be opened.
    pub async fn lease(&self) -> Result<Arc<Lease>> {
        let lane = self.pool.take_turn(0, |opener, _, _| opener.take_idle()).await?;
        let (used, held) = (lane.used, AtomicBool::new(false));
        let pool = Arc::clone(&self.pool);
        Ok(Arc::new(Lease { lane: Mutex::new(Some(lane)), held, used, pool }))
    }

    /// The server has refused a request because of too many connections: use fewer lanes.
    pub fn refused(&self) {
        self.pool.with(|_, _, supply| supply.on_refused(Instant::now()));
    }
}

impl Opener {
    fn take_idle(&mut self) -> Option<Lane> {
        // The most recently used one is least likely to have been closed.
        while let Some(lane) = self.idle.pop() {
            if lane.is_open() {
                self.busy += 1;
                return Some(lane);
            }
        }
        None
    }

    /// Takes a lane back, if it is still needed.
    fn take_back(&mut self, lane: Option<Lane>, supply: &Supply) {
        self.busy -= 1;
        let excess = self.idle.len() + self.busy >= self.target + self.held;
        self.idle.extend(lane.filter(|_| !excess || supply.has_waiting_tasks()));
    }

    /// The RTT is known. Returns the callback to run if the path is long.
    fn dialled(&mut self, rtt: Duration) -> Option<WhenLong> {
        self.rtt = Some(self.rtt.map_or(rtt, |known| known.min(rtt)));
        self.when_long.take().filter(|_| rtt >= LONG_RTT)
    }
}

impl Connect for Opener {
    type Connection = Connected<Link>;
    type Lane = Pipe;

    /// `Pipes` open 64 at once, enough for a long path; these are opened only for requests that wait.
    const MOST_OPENING: usize = 16;

    fn connect(&mut self, lanes: &Arc<Lanes<Self>>) -> Connecting<Connected<Link>> {
        let (connector, origin) = (Arc::clone(&self.connector), self.origin.clone());
        let lanes = Arc::clone(lanes);
        Box::pin(async move {
            let dialled = |rtt| {
                if let Some(then) = lanes.with(|opener, _, _| opener.dialled(rtt)) {
                    then.0(rtt);
                }
            };
            connector.reach(&origin, dialled).await.map(Some)
        })
    }

    fn start(
        &mut self,
        connected: Connected<Link>,
        supply: &mut Supply,
        _: &Arc<Notify>,
    ) -> Arc<Pipe> {
        supply.on_admitted();
        let pipe = Arc::new(Pipe::start(connected, self.around.clone(), &self.runtime));
        self.idle.push(Lane { pipe: Arc::clone(&pipe), used: false, ends: None });
        pipe
    }

    fn review(&mut self, pipes: &mut Vec<Arc<Pipe>>, supply: &mut Supply) -> usize {
        self.idle.retain(Lane::is_open);
        // One that is neither idle nor leased is no longer used.
        pipes.retain(|pipe| Arc::strong_count(pipe) > 1);
        // Only as many as tasks wait for: most bytes go through other connections.
        let wanted = self.busy + supply.waiting().len();
        supply.set_target(self.target);
        supply.cap(wanted);
        let most = self.target + self.held;
        most.min(wanted).saturating_sub(pipes.len() + supply.opening())
    }
}

impl Lease {
    /// Sends a request. `limit` bounds the time until the response begins; `stream` is sent behind `body`.
    pub fn request(
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
        Ok(pipe.request_alone(request, url, body, Alone { owner, limit, stream }))
    }

    /// Whether the lane has responded before, so that the server may have closed it already.
    pub const fn is_used(&self) -> bool {
        self.used
    }

    fn lane(&self) -> MutexGuard<'_, Option<Lane>> {
        self.lane.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn release(&self) {
        if self.held.swap(false, Ordering::Relaxed) {
            self.pool.with(|opener, _, _| opener.held -= 1);
        }
    }
}

impl Owner for Lease {
    fn hold(&self) {
        // A lane that was returned already cannot be held.
        let lane = self.lane();
        if lane.is_some() && !self.held.swap(true, Ordering::Relaxed) {
            self.pool.with(|opener, _, _| opener.held += 1);
            // A waiting request may now get another lane.
            self.pool.tend();
        }
    }

    fn done(&self, is_reusable: bool, keep_alive: Option<Duration>) {
        let Some(mut lane) = self.lane().take() else { return };
        self.release();
        lane.used = true;
        let usable = keep_alive.map(|lifetime| lifetime - ENDS_BEFORE.min(lifetime / 2));
        lane.ends = usable.and_then(|usable| Instant::now().checked_add(usable));
        self.pool.with(|opener, _, supply| opener.take_back(is_reusable.then_some(lane), supply));
        self.pool.tend();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.done(false, None);
    }
}
