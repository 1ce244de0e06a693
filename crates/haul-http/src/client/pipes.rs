//! The shared lanes to one origin, on which parts of files are requested: as many as the window asks for,
//! opened in parallel in the background; a lost one is replaced.

use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_net::ReceiveBudget;
use haul_net::pool::{Connect, Connecting, Lanes, SharedLane, Supply, WhenFull, close_excess};
use haul_storage::{Block, BufferPool, LinkStatus, Range, Result, Retry};
use http::header::RANGE;
use http::{HeaderValue, Request};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::connect::{Connected, Connector, Link};
use super::facts::bytes_of;
use super::load::Load;
use super::pipe::Pipe;
use super::queued::SerializedMarker;
use super::reader::Surroundings;
use super::response::Pending;
use super::speed::{AT_ONCE, ENOUGH_FOR_SLOW, JUDGED_AFTER, LEAST_BYTES, Speed};
use crate::parse::{Origin, Url};

/// A lane that has had no request for this long counts as idle; shorter gaps occur between two requests.
const IDLE: Duration = Duration::from_secs(1);

/// A new lane that the server closes within this time without a response was one too many; one closed later was idle.
const TURNED_AWAY_WITHIN: Duration = Duration::from_secs(5);

/// A lane should respond within this many RTTs (but no less than `UNFED`). If half of all lanes have not,
/// while others have, the path is too slow for so many: it drops the first packets of most of them, and each
/// then waits seconds for the retransmission (measured at 0.5 Mbit/s and 300 ms: 48 lanes used only a third
/// of the rate for 20 s).
const UNFED_RTTS: u32 = 5;
const UNFED: Duration = Duration::from_secs(1);

/// If fewer than half have no response, they are closed after this many times that duration: their first
/// packets were lost, and TCP backs off for up to a minute before it retransmits them.
const LOST_AFTER: u32 = 4;

/// Lanes are closed for lack of a response only while more than this many remain.
const FEWEST: usize = 8;

/// How often to check whether a lane has responded.
const LOOK_FOR_FIRST: Duration = Duration::from_millis(5);

/// Bytes that every new lane requests before anything is known about the file.
pub const PIECE: u64 = 64 << 10;

/// New lanes prefetch a file for this long after the call of [`Pipes::prefetch`].
const LATELY: Duration = Duration::from_secs(2);

/// Most buffers to retain for reuse.
const MAX_BUFFERS: usize = 32;
const BUFFER: usize = 256 << 10;

/// The lanes to one origin.
#[derive(Debug)]
pub struct Pipes {
    pool: Arc<Lanes<Opener>>,
}

/// Opens lanes, and judges how many the path can feed.
#[derive(Debug)]
struct Opener {
    origin: Origin,
    connector: Arc<Connector>,
    runtime: Handle,
    buffers: BufferPool,
    /// Limits the bytes in flight over all lanes, on a long path; `None` before the first lane.
    receive_budget: Option<Option<Arc<ReceiveBudget>>>,
    refused_at: Option<Instant>,
    prefetch: Option<Prefetch>,
    speed: Speed,
    /// Further lanes than [`AT_ONCE`] are opened once enough bytes have been requested to judge the path.
    waits_for_requests: bool,
    /// Bytes that have arrived on lanes that have ended.
    arrived_before: u64,
}

/// The file whose parts new lanes request at once.
#[derive(Debug)]
struct Prefetch {
    url: Url,
    request: Request<()>,
    since: Instant,
    parts: Vec<(Range, Pending)>,
}

impl Pipes {
    /// Opens no lane yet.
    pub fn new(origin: Origin, connector: Arc<Connector>, runtime: Handle) -> Arc<Self> {
        let opener = Opener {
            origin,
            connector,
            runtime: runtime.clone(),
            buffers: BufferPool::new(BUFFER, MAX_BUFFERS),
            receive_budget: None,
            refused_at: None,
            prefetch: None,
            speed: Speed::default(),
            waits_for_requests: false,
            arrived_before: 0,
        };
        Arc::new(Self { pool: Lanes::new(opener, runtime) })
    }

    /// Sets the number of lanes; excess lanes are closed once nothing is in flight on them.
    pub fn set_target(&self, lanes: usize) {
        self.pool.set_target(lanes);
    }

    /// Sets the file of which each new lane requests one piece at once, starting with the second piece.
    pub fn prefetch(&self, url: Url, request: Request<()>) {
        let prefetch = Prefetch { url, request, since: Instant::now(), parts: Vec::new() };
        self.pool.with(|opener, _, _| opener.prefetch = Some(prefetch));
    }

    /// The prefetched pieces of a file, in order.
    pub fn prefetched(&self, url: &Url) -> Vec<(Range, Pending)> {
        let is_of_file = |prefetch: &mut Prefetch| prefetch.url == *url;
        let prefetch = self.pool.with(|opener, _, _| opener.prefetch.take_if(is_of_file));
        prefetch.map_or(Vec::new(), |prefetch| prefetch.parts)
    }

    /// Opens up to `lanes` lanes now, since a transfer is about to begin. They stay open even if the
    /// window asks for fewer: it has not measured anything yet.
    pub fn open_now(&self, lanes: usize) {
        self.pool.with(|_, _, supply| {
            supply.expect(supply.expected().max(lanes));
            supply.on_path(true);
        });
        self.pool.open_first();
    }

    /// Whether a lane has been idle for a while.
    pub fn has_idle(&self) -> bool {
        self.pool.with(|_, open, _| open.iter().any(|lane| lane.idle_for() > IDLE))
    }

    /// How long a response may take if no other one is before it on its lane.
    pub fn patience(&self) -> Duration {
        self.pool.with(|_, open, _| patience(open))
    }

    /// The state of the link: RTTs and lanes.
    pub fn status(&self) -> LinkStatus {
        self.pool.status()
    }

    /// Requests a part of `expected` bytes, or sends `body`, on the least loaded lane. Also returns that
    /// lane. With `marker`, the response counts only once a marker request behind it has shown that responses are in
    /// order.
    ///
    /// # Errors
    /// No lane is open and none can be opened.
    pub async fn request(
        &self,
        request: &Request<()>,
        url: &Url,
        expected: u64,
        body: &Block,
        marker: Option<&SerializedMarker>,
    ) -> Result<(Pending, Arc<Pipe>)> {
        // The progress of an upload is unknown until its response arrives.
        let when_full = if body.is_empty() { WhenFull::Wait } else { WhenFull::WaitForNew };
        let send = |lane: &Arc<Pipe>| {
            let pending = match marker {
                Some(marker) => lane.request_provable(request, url, expected, body, marker.clone()),
                None => lane.request(request, url, expected, body),
            };
            (pending, Arc::clone(lane))
        };
        self.pool.choose(when_full, send).await
    }

    /// Sends a request on every open lane, behind all earlier ones.
    pub fn request_on_all(&self, request: &Request<()>, url: &Url) -> Vec<Pending> {
        let open = self.pool.with(|_, open, _| open.to_vec());
        open.iter().map(|lane| lane.request(request, url, 0, &Block::new())).collect()
    }

    /// The server refuses requests on a lane because there are too many lanes. Returns whether others are
    /// left.
    pub fn refused(&self, lane: &Pipe) -> bool {
        self.pool.with(|opener, _, supply| {
            lane.retire();
            opener.refuse(supply);
        });
        self.pool.tend();
        self.pool.with(|_, open, _| !open.is_empty())
    }
}

impl Connect for Opener {
    type Connection = Connected<Link>;
    type Lane = Pipe;

    /// Enough to open all lanes of a long path at once.
    const MOST_OPENING: usize = 64;

    fn connect(&mut self, lanes: &Arc<Lanes<Self>>) -> Connecting<Connected<Link>> {
        let (connector, origin) = (Arc::clone(&self.connector), self.origin.clone());
        let lanes = Arc::clone(lanes);
        Box::pin(async move {
            let connected = connector.reach(&origin, |_| {}).await.inspect_err(|error| {
                lanes.with(|opener, open, supply| {
                    opener.refused_at = Some(Instant::now());
                    supply.expect(0);
                    if error.retry() == Retry::Never && open.len() + supply.opening() > 1 {
                        supply.set_target(open.len());
                    }
                });
            })?;
            match can_be_fed(&lanes).await {
                Some(true) => return Ok(Some(connected)),
                Some(false) => {
                    lanes.with(|_, open, supply| supply.expect(supply.expected().min(open.len())));
                }
                None => lanes.with(|opener, _, _| opener.waits_for_requests = true),
            }
            Ok(None)
        })
    }

    fn start(
        &mut self,
        mut connected: Connected<Link>,
        _: &mut Supply,
        changed: &Arc<Notify>,
    ) -> Arc<Pipe> {
        let receive_budget =
            self.receive_budget.get_or_insert_with(|| ReceiveBudget::over(connected.rtt));
        if let Some(receive_budget) = receive_budget {
            connected.stream.feed(receive_budget);
        }
        let (buffers, changed) = (self.buffers.clone(), Arc::clone(changed));
        let host = self.connector.host(&self.origin);
        let pipe = Pipe::start(connected, Surroundings { buffers, changed, host }, &self.runtime);
        self.prefetch_piece(&pipe);
        Arc::new(pipe)
    }

    fn review(&mut self, lanes: &mut Vec<Arc<Pipe>>, supply: &mut Supply) -> usize {
        self.forget_ended(lanes, supply);
        close_unfed(lanes, supply);
        let arrived = self.arrived(lanes);
        self.speed.arrived(Instant::now(), arrived);
        self.waits_for_requests &= outstanding(lanes) < LEAST_BYTES;
        supply.cap(match (self.speed.is_slow(), self.waits_for_requests) {
            (true, _) => ENOUGH_FOR_SLOW,
            (false, true) => AT_ONCE,
            (false, false) => usize::MAX,
        });
        let closed = close_excess(lanes, supply.target());
        self.arrived_before += closed.iter().map(|lane| lane.arrived()).sum::<u64>();
        0
    }
}

impl SharedLane for Pipe {
    fn load(&self) -> u64 {
        Load::load(self)
    }

    fn outstanding(&self) -> u64 {
        Load::outstanding(self)
    }

    fn rtt(&self) -> Option<Duration> {
        Some(self.rtt())
    }

    fn current_rtt(&self) -> Option<Duration> {
        self.current_rtt()
    }
}

/// Whether the path is fast enough for another lane. From [`AT_ONCE`] lanes on this waits for the first
/// bytes on the others, which are one RTT away. If these are late: `true`, or `None` if too few bytes have been
/// requested to judge the path.
async fn can_be_fed(lanes: &Lanes<Opener>) -> Option<bool> {
    let began = Instant::now();
    // Bytes that had arrived before those by which the path is judged.
    let mut before = lanes.with(|opener, open, _| opener.arrived(open));
    loop {
        let (can_be_fed, is_late, requested) = lanes.with(|opener, open, _| {
            let judged = opener.speed.first_judged();
            let judged = judged.map(|judged| !opener.speed.is_slow() || began > judged);
            let can_be_fed = if open.len() < AT_ONCE { Some(true) } else { judged };
            (can_be_fed, began.elapsed() > patience(open), outstanding(open))
        });
        if can_be_fed.is_some() {
            return can_be_fed;
        }
        if is_late {
            return (requested >= LEAST_BYTES).then_some(true);
        }
        let (arrived, is_enough) = lanes.with(|opener, open, _| opener.seen(open, before));
        if arrived == before || !is_enough {
            before = arrived;
            sleep(LOOK_FOR_FIRST).await;
            continue;
        }
        sleep(JUDGED_AFTER).await;
        lanes.with(|opener, open, _| {
            let (arrived, is_enough) = opener.seen(open, before);
            if is_enough {
                opener.speed.judge(Instant::now(), before, arrived);
            } else {
                // The responses were shorter than expected.
                before = arrived;
            }
        });
    }
}

/// Bytes that were requested on all lanes and have not arrived.
fn outstanding(lanes: &[Arc<Pipe>]) -> u64 {
    lanes.iter().map(|lane| lane.outstanding()).sum()
}

impl Opener {
    /// Requests the next piece of the prefetched file on a new lane.
    fn prefetch_piece(&mut self, pipe: &Pipe) {
        drop(self.prefetch.take_if(|prefetch| prefetch.since.elapsed() > LATELY));
        let Some(prefetch) = &mut self.prefetch else { return };
        let start = (prefetch.parts.len() as u64 + 1) * PIECE;
        let range = Range::new(start, PIECE);
        let Ok(bytes) = HeaderValue::try_from(bytes_of(range)) else { return };
        prefetch.request.headers_mut().insert(RANGE, bytes);
        let part = pipe.request(&prefetch.request, &prefetch.url, range.len(), &Block::new());
        prefetch.parts.push((range, part));
    }

    /// Removes closed lanes. One that the server closed before any response was refused as one too many:
    /// another one would be closed as well.
    fn forget_ended(&mut self, lanes: &mut Vec<Arc<Pipe>>, supply: &mut Supply) {
        let refused_at = self.refused_at;
        let later = |lane: &Pipe| refused_at.is_none_or(|at| lane.opened() > at);
        if lanes.iter().any(|lane| lane.has_responded() && later(lane)) {
            supply.on_admitted();
        }
        let mut is_refused = false;
        for lane in lanes.extract_if(.., |lane| lane.is_ended()) {
            let soon = lane.opened().elapsed() < TURNED_AWAY_WITHIN;
            // One that has reached its limit of requests is not refused, but only full.
            is_refused |= lane.is_closed() && !lane.has_responded() && soon && later(&lane);
            self.arrived_before += lane.arrived();
        }
        if is_refused {
            self.refuse(supply);
        }
    }

    /// Bytes that have arrived on all lanes.
    fn arrived(&self, lanes: &[Arc<Pipe>]) -> u64 {
        self.arrived_before + lanes.iter().map(|lane| lane.arrived()).sum::<u64>()
    }

    /// Bytes that have arrived, and whether those after the first `before`, and the rest of the responses that have
    /// begun, are enough to judge the path.
    fn seen(&self, lanes: &[Arc<Pipe>], before: u64) -> (u64, bool) {
        let arrived = self.arrived(lanes);
        let receiving: u64 = lanes.iter().map(|lane| lane.receiving()).sum();
        (arrived, arrived.saturating_sub(before) + receiving >= LEAST_BYTES)
    }

    fn refuse(&mut self, supply: &mut Supply) {
        let now = Instant::now();
        self.refused_at = Some(now);
        supply.expect(0);
        supply.on_refused(now);
    }
}

/// How long a lane has to respond before its requests are sent elsewhere.
fn patience(lanes: &[Arc<Pipe>]) -> Duration {
    let rtt = lanes.iter().map(|lane| lane.rtt()).min().unwrap_or_default();
    UNFED.max(rtt * UNFED_RTTS)
}

/// Closes lanes that are too many for a slow path. Their requests are repeated on others.
fn close_unfed(lanes: &mut Vec<Arc<Pipe>>, supply: &mut Supply) {
    let all = lanes.len();
    if all <= FEWEST || !lanes.iter().any(|lane| lane.has_responded()) {
        return;
    }
    let patience = patience(lanes);
    let is_unfed = |lane: &Pipe, patience: Duration| {
        !lane.has_responded() && lane.outstanding() > 0 && lane.opened().elapsed() > patience
    };
    let unfed = |patience| lanes.iter().filter(|lane| is_unfed(lane, patience)).count();
    let patience = if 2 * unfed(patience) < all { patience * LOST_AFTER } else { patience };
    let mut excess = unfed(patience).min(all - FEWEST);
    if excess == 0 {
        return;
    }
    lanes.retain(|lane| {
        let stays = excess == 0 || !is_unfed(lane, patience);
        if !stays {
            excess -= 1;
            lane.abandon();
        }
        stays
    });
    supply.expect(supply.expected().min(lanes.len()));
}
