//! The lanes to one origin that parts of files are asked for on: as many as the window wishes for,
//! opened side by side in the background; a lost one is replaced.

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
use super::queued::AsSent;
use super::reader::Surroundings;
use super::response::Pending;
use super::speed::{AT_ONCE, ENOUGH_FOR_SLOW, JUDGED_AFTER, Speed};
use crate::parse::{Origin, Url};

/// After this time without work a lane is idle, and does not only wait for the next request.
const IDLE: Duration = Duration::from_secs(1);

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
    pool: Arc<Lanes<Opener>>,
}

/// Opens lanes, and judges how many the path can feed.
#[derive(Debug)]
struct Opener {
    origin: Origin,
    connector: Arc<Connector>,
    runtime: Handle,
    buffers: BufferPool,
    /// What comes on all of them, over a long path.
    receive_budget: Option<Option<Arc<ReceiveBudget>>>,
    refused_at: Option<Instant>,
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
        let opener = Opener {
            origin,
            connector,
            runtime: runtime.clone(),
            buffers: BufferPool::new(BUFFER, BUFFERS_KEPT),
            receive_budget: None,
            refused_at: None,
            prefetch: None,
            speed: Speed::default(),
            arrived_before: 0,
        };
        Arc::new(Self { pool: Lanes::new(opener, runtime) })
    }

    /// Wishes for `lanes` lanes; those that are too many are closed once nothing is under way on
    /// them.
    pub fn wish(&self, lanes: usize) {
        self.pool.wish(lanes);
    }

    /// Says what new lanes are to ask for at once: one piece of a file each, from the second on.
    pub fn prefetch(&self, url: Url, request: Request<()>) {
        let prefetch = Prefetch { url, request, since: Instant::now(), parts: Vec::new() };
        self.pool.with(|opener, _, _| opener.prefetch = Some(prefetch));
    }

    /// The pieces of a file that have been asked for, in order.
    pub fn prefetched(&self, url: &Url) -> Vec<(Range, Pending)> {
        let prefetch = self.pool.with(|opener, _, _| opener.prefetch.take());
        prefetch
            .filter(|prefetch| prefetch.url == *url)
            .map_or(Vec::new(), |prefetch| prefetch.parts)
    }

    /// Opens `lanes` lanes now, if there are not as many: a transfer is about to begin. They are not given up
    /// however little the window wishes for: it has not measured anything yet when they are opened.
    pub fn open_now(&self, lanes: usize) {
        self.pool.with(|_, _, supply| {
            supply.expect(supply.expected().max(lanes));
            supply.on_path(true);
        });
        self.pool.open_first();
    }

    /// Whether a lane has had nothing to do for a while, and none is asked for anything new.
    pub fn has_idle(&self) -> bool {
        self.pool.with(|_, open, _| open.iter().any(|lane| lane.idle_for() > IDLE))
    }

    /// How long a response may take that waits behind nothing else.
    pub fn patience(&self) -> Duration {
        self.pool.with(|_, open, _| patience(open))
    }

    /// What the link looks like.
    pub fn status(&self) -> LinkStatus {
        self.pool.status()
    }

    /// Asks for a part of `expected` bytes, or sends `body`, on the lane with the least to do. Gives
    /// that lane, too. With `marker`, the response counts once that is answered.
    ///
    /// # Errors
    /// No lane is open and none can be opened.
    pub async fn ask(
        &self,
        request: &Request<()>,
        url: &Url,
        expected: u64,
        body: &Block,
        marker: Option<&AsSent>,
    ) -> Result<(Pending, Arc<Pipe>)> {
        // What is sent is announced by its answer alone: nothing is known of it meanwhile.
        let when_full = if body.is_empty() { WhenFull::Wait } else { WhenFull::WaitForNew };
        let ask = |lane: &Arc<Pipe>| {
            let pending = match marker {
                Some(marker) => lane.ask_provable(request, url, expected, body, marker.clone()),
                None => lane.ask(request, url, expected, body),
            };
            (pending, Arc::clone(lane))
        };
        self.pool.choose(when_full, ask).await
    }

    /// Asks behind everything that has been asked on the lanes that are open.
    pub fn ask_on_all(&self, request: &Request<()>, url: &Url) -> Vec<Pending> {
        let open = self.pool.with(|_, open, _| open.to_vec());
        open.iter().map(|lane| lane.ask(request, url, 0, &Block::new())).collect()
    }

    /// The server refuses what is asked on a lane because there are too many. Whether others are
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

    /// Enough to open all that a long path needs at once.
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
                        supply.wish(open.len());
                    }
                });
            })?;
            if can_be_fed(&lanes).await {
                return Ok(Some(connected));
            }
            lanes.with(|_, open, supply| supply.expect(supply.expected().min(open.len())));
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
        self.ask_ahead(&pipe);
        Arc::new(pipe)
    }

    fn review(&mut self, lanes: &mut Vec<Arc<Pipe>>, supply: &mut Supply) -> usize {
        self.forget_ended(lanes, supply);
        give_up_unfed(lanes, supply);
        let arrived = self.arrived(lanes);
        self.speed.arrived(Instant::now(), arrived);
        supply.cap(if self.speed.is_slow() { ENOUGH_FOR_SLOW } else { usize::MAX });
        let closed = close_excess(lanes, supply.wished());
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

    fn at_present(&self) -> Option<Duration> {
        self.at_present()
    }
}

/// Whether the path is fast enough for a lane more. From [`AT_ONCE`] lanes on this waits for the first
/// bytes on the others, which are a round trip away.
async fn can_be_fed(lanes: &Lanes<Opener>) -> bool {
    let began = Instant::now();
    loop {
        let (can_be_fed, has_answered) = lanes.with(|opener, open, _| {
            let can_be_fed = if open.len() < AT_ONCE || began.elapsed() > patience(open) {
                Some(true)
            } else {
                let judged = opener.speed.first_judged();
                judged.map(|judged| !opener.speed.is_slow() || began > judged)
            };
            (can_be_fed, open.iter().any(|lane| lane.has_answered()))
        });
        if let Some(can_be_fed) = can_be_fed {
            return can_be_fed;
        }
        if !has_answered {
            sleep(LOOK_FOR_FIRST).await;
            continue;
        }
        sleep(JUDGED_AFTER).await;
        return lanes.with(|opener, open, _| {
            let arrived = opener.arrived(open);
            opener.speed.judge(Instant::now(), arrived);
            !opener.speed.is_slow()
        });
    }
}

impl Opener {
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
    fn forget_ended(&mut self, lanes: &mut Vec<Arc<Pipe>>, supply: &mut Supply) {
        let refused_at = self.refused_at;
        let later = |lane: &Pipe| refused_at.is_none_or(|at| lane.opened() > at);
        if lanes.iter().any(|lane| lane.has_answered() && later(lane)) {
            supply.on_taken_in();
        }
        let mut is_refused = false;
        for lane in lanes.extract_if(.., |lane| lane.is_ended()) {
            let soon = lane.opened().elapsed() < TURNED_AWAY_WITHIN;
            is_refused |= !lane.has_answered() && soon && later(&lane);
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

    fn refuse(&mut self, supply: &mut Supply) {
        let now = Instant::now();
        self.refused_at = Some(now);
        supply.expect(0);
        supply.on_refused(now);
    }
}

/// How long a lane has to respond before others, or another, are asked.
fn patience(lanes: &[Arc<Pipe>]) -> Duration {
    let rtt = lanes.iter().map(|lane| lane.rtt()).min().unwrap_or_default();
    UNFED.max(rtt * UNFED_ROUND_TRIPS)
}

/// Gives up lanes that a slow path cannot feed. What was asked on them is asked again on others.
fn give_up_unfed(lanes: &mut Vec<Arc<Pipe>>, supply: &mut Supply) {
    let all = lanes.len();
    if all <= FEWEST || !lanes.iter().any(|lane| lane.has_answered()) {
        return;
    }
    let patience = patience(lanes);
    let is_unfed = |lane: &Pipe, patience: Duration| {
        !lane.has_answered() && lane.outstanding() > 0 && lane.opened().elapsed() > patience
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
