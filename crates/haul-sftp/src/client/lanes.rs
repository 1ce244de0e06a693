//! The sessions to one host, and the requests that new sessions prefetch along with their greeting.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::{Either, select};
use haul_net::pool::{
    self, Connect, Connecting, LONG_RTT, SharedLane, Supply, WhenFull, close_excess,
};
use haul_storage::{Error, ErrorKind, LinkStatus, Result};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::patience::Patience;
use super::prefetch;
use super::session::{Room, Session};
use crate::codec::Request;
use crate::transport::{Channel, Dial};

/// A new lane is assumed to be needed for a file that was opened at most this long ago.
const LATELY: Duration = Duration::from_secs(2);

/// The lanes to one host.
#[derive(Debug)]
pub(super) struct Lanes {
    dial: Arc<dyn Dial>,
    pool: Arc<pool::Lanes<Opener>>,
}

/// Opens lanes, and chooses the requests that they prefetch.
#[derive(Debug)]
struct Opener {
    dial: Arc<dyn Dial>,
    patience: Patience,
    rtts: u32,
    /// Requests that the first lane will prefetch.
    prefetched: Vec<Request>,
    /// The lane that prefetched them.
    lead: Weak<Session>,
    /// That lane is being opened.
    leading: bool,
    /// Requests that every new lane prefetches, to open the current file.
    opened: Option<Ahead>,
    /// A path of the user, and the path to which it resolves.
    resolved: Option<(Bytes, Bytes)>,
}

/// Requests that open a file on a new lane.
#[derive(Debug)]
struct Ahead {
    since: Instant,
    requests: Vec<Request>,
    /// The piece of the file that the next lane reads, if pieces are prefetched.
    piece: Option<u64>,
}

/// A channel, and the requests that were sent on it along with the greeting.
#[derive(Debug)]
struct Greeted {
    channel: Channel,
    prefetched: Vec<Request>,
    /// Whether this is the lane that prefetches for [`Lanes::lead`].
    leads: bool,
}

impl Lanes {
    /// Opens no lane yet. All work of lanes, encryption above all, runs on `runtime`.
    pub(super) fn new(dial: Arc<dyn Dial>, runtime: Handle) -> Arc<Self> {
        let opener = Opener {
            dial: Arc::clone(&dial),
            patience: Patience::new(dial.waits()),
            rtts: 0,
            prefetched: Vec::new(),
            lead: Weak::new(),
            leading: false,
            opened: None,
            resolved: None,
        };
        Arc::new(Self { dial, pool: pool::Lanes::new(opener, runtime) })
    }

    /// The host's name, for errors.
    pub(super) fn host(&self) -> String {
        self.dial.host()
    }

    /// How long a lane may be silent.
    pub(super) fn silence(&self) -> Duration {
        self.pool.with(|opener, _, _| opener.patience.silence())
    }

    /// Sets the number of lanes to open or keep. Excess lanes are closed once nothing is in flight on them.
    pub(super) fn set_target(&self, lanes: usize) {
        self.pool.set_target(lanes);
    }

    /// Announces a large transfer, which needs at least `lanes` lanes over a long path. There they are opened in
    /// parallel from the beginning, because each takes as long as the first.
    pub(super) fn expect(&self, lanes: usize) {
        self.pool.with(|_, _, supply| supply.expect(lanes));
    }

    /// The state of the link, as measured.
    pub(super) fn status(&self) -> LinkStatus {
        self.pool.status()
    }

    /// The number of RTTs that connecting the first lane took.
    pub(super) fn rtts(&self) -> u32 {
        self.pool.with(|opener, _, _| opener.rtts)
    }

    /// Whether there ever was a lane.
    pub(super) fn have_been_open(&self) -> bool {
        self.pool.with(|_, _, supply| supply.has_been_open())
    }

    /// The least loaded lane, on which `bytes` are reserved; opens one if there is none.
    pub(super) async fn choose(&self, bytes: u64) -> Result<Room> {
        let chosen = self.pool.choose(WhenFull::WaitForNew, |lane| lane.reserve(bytes)).await;
        chosen.map_err(|error| error.at(self.dial.host()))
    }

    /// All open lanes but the first, if no lane is busy; otherwise none.
    pub(super) fn others_idle(&self) -> Vec<Arc<Session>> {
        self.pool.with(|_, open, _| {
            let busy = open.iter().any(|lane| lane.outstanding() > prefetch::PIECE);
            open.iter().skip(1).filter(|_| !busy).cloned().collect()
        })
    }

    /// Runs a task on the runtime of the lanes.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.pool.spawn(work);
    }

    /// Sets the requests that the first lane prefetches along with its greeting. No effect if a lane is open or being
    /// opened.
    pub(super) fn prefetch(&self, requests: Vec<Request>) {
        self.pool.with(|opener, open, supply| {
            if open.is_empty() && supply.opening() == 0 {
                opener.prefetched = requests;
            }
        });
    }

    /// Like [`Lanes::prefetch`], for a source path. If a large transfer was announced, further lanes prefetch a piece
    /// of it each, in case it is a file.
    pub(super) fn prefetch_source(&self, requested: &Bytes) {
        self.pool.with(|opener, open, supply| {
            if !open.is_empty() || supply.opening() > 0 {
                return;
            }
            opener.prefetched = prefetch::of_source(requested);
            let is_directory = requested.ends_with(b"/");
            if supply.expected() > 1 && !is_directory {
                let file = prefetch::of_file(requested);
                opener.prefetched.extend(file.iter().cloned());
                opener.prefetched.push(prefetch::of_piece(0));
                opener.opened =
                    Some(Ahead { since: Instant::now(), requests: file, piece: Some(1) });
            }
        });
    }

    /// The lane that prefetches, if it opens at most two RTTs after the first lane; otherwise the least loaded one.
    /// Without prefetched responses, a request takes one RTT and a listing two, so waiting longer would not pay.
    pub(super) async fn lead(&self) -> Result<Arc<Session>> {
        let first = self.choose(0).await?;
        let worth = 2 * first.rtt().unwrap_or_default();
        let lead = self.pool.changed_to(|| {
            self.pool.with(|opener, _, _| {
                let lead = opener.lead.upgrade().filter(|lead| !lead.is_ended());
                (lead.is_some() || !opener.leading).then_some(lead)
            })
        });
        let lead = timeout(worth, lead).await.ok().flatten();
        Ok(lead.unwrap_or_else(|| Arc::clone(&first)))
    }

    /// Prefetches a request on the least loaded lane, if one is open and the request was not prefetched already.
    pub(super) fn prefetch_now(&self, request: Request) {
        if self.ahead(&request).is_some() {
            return;
        }
        let least =
            self.pool.with(|_, open, _| open.iter().min_by_key(|lane| lane.load()).cloned());
        if let Some(lane) = least.filter(|lane| !lane.is_ended()) {
            lane.prefetch(request);
        }
    }

    /// A lane that has prefetched this request.
    pub(super) fn ahead(&self, request: &Request) -> Option<Arc<Session>> {
        self.pool.with(|opener, open, _| {
            let mut lanes = opener.lead.upgrade().into_iter().chain(open.iter().cloned());
            lanes.find(|lane| !lane.is_ended() && lane.has_prefetched(request))
        })
    }

    /// Sets the path to which a path of the user resolves: responses prefetched for `requested` are used for `path`.
    pub(super) fn resolved(&self, requested: Bytes, path: Bytes) {
        self.pool.with(|opener, open, _| {
            for lane in open {
                lane.same_as_prefetched(|early| prefetch::resolved(early, &requested, &path));
            }
            opener.resolved = Some((requested, path));
        });
    }

    /// Sets the requests that lanes opened within the next [`LATELY`] prefetch.
    pub(super) fn prefetch_on_new(&self, requests: Vec<Request>) {
        let ahead = Ahead { since: Instant::now(), requests, piece: None };
        self.pool.with(|opener, _, _| opener.opened = Some(ahead));
    }

    /// A file was closed: new lanes no longer prefetch the requests that open it, and unused responses are dropped.
    pub(super) fn drop_prefetched(&self, requests: &[Request]) {
        let lanes = self.pool.with(|opener, open, _| {
            drop(opener.opened.take_if(|ahead| ahead.requests == requests));
            open.to_vec()
        });
        for lane in lanes {
            requests.iter().for_each(|request| drop(lane.prefetched(request)));
        }
    }

    /// Opens an additional lane, which is not in the pool.
    pub(super) async fn open_own(&self) -> Result<Arc<Session>> {
        let dial = Arc::clone(&self.dial);
        let patience = self.pool.with(|opener, _, _| opener.patience.clone());
        let opening = self.pool.spawn(async move {
            let channel = dial.dial(&|server: &str| Session::first(server, &[])).await?;
            Ok(Arc::new(Session::start(channel, &dial.host(), patience, Vec::new())))
        });
        opening.await.unwrap_or_else(|failed| {
            let error = Error::new(ErrorKind::Unreachable, "connect");
            Err(error.at(self.dial.host()).with_source(failed))
        })
    }
}

impl Connect for Opener {
    type Connection = Greeted;
    type Lane = Session;

    /// From ten unauthenticated connections on, sshd refuses further ones at random (MaxStartups 10:30:100), and other
    /// clients may be connecting, too.
    const MOST_OPENING: usize = 8;

    fn connect(&mut self, lanes: &Arc<pool::Lanes<Self>>) -> Connecting<Greeted> {
        let prefetched = std::mem::take(&mut self.prefetched);
        let leads = !prefetched.is_empty();
        self.leading |= leads;
        let (dial, lanes) = (Arc::clone(&self.dial), Arc::clone(lanes));
        Box::pin(async move {
            let greeted = greet(dial.as_ref(), &lanes, prefetched, leads).await;
            if leads && greeted.is_err() {
                lanes.with(|opener, _, _| opener.leading = false);
            }
            greeted.map(Some)
        })
    }

    fn start(&mut self, greeted: Greeted, supply: &mut Supply, _: &Arc<Notify>) -> Arc<Session> {
        // The connection is authenticated.
        supply.on_admitted();
        let Greeted { channel, prefetched, leads } = greeted;
        let (host, patience) = (self.dial.host(), self.patience.clone());
        let session = Session::start(channel, &host, patience, prefetched.clone());
        if self.rtts == 0 {
            self.rtts = session.rtts;
        }
        if let Some((requested, path)) = &self.resolved {
            session.same_as_prefetched(|early| prefetch::resolved(early, requested, path));
        }
        if !leads && !self.wants(&prefetched) {
            for request in self.as_resolved(&prefetched) {
                drop(session.prefetched(&request));
            }
        }
        let session = Arc::new(session);
        if leads {
            (self.lead, self.leading) = (Arc::downgrade(&session), false);
        }
        session
    }

    fn review(&mut self, lanes: &mut Vec<Arc<Session>>, supply: &mut Supply) -> usize {
        let lost = lanes.extract_if(.., |lane| lane.is_ended()).count();
        supply.on_lost(lost);
        close_excess(lanes, supply.target());
        0
    }
}

/// Opens a channel and sends `prefetched` along with the greeting, or if that is empty, the requests that open the
/// current file.
async fn greet(
    dial: &dyn Dial,
    lanes: &Arc<pool::Lanes<Opener>>,
    prefetched: Vec<Request>,
    leads: bool,
) -> Result<Greeted> {
    let prefetched = Arc::new(Mutex::new(prefetched));
    let (pool, early) = (Arc::clone(lanes), Arc::clone(&prefetched));
    let first = move |server: &str| {
        let mut early = early.lock().unwrap_or_else(PoisonError::into_inner);
        if early.is_empty() {
            *early = pool.with(|opener, _, _| opener.opened_lately());
        }
        Session::first(server, &early)
    };
    // As soon as the RTT is known to be long, the pool opens the other lanes.
    let measured = pin!(async {
        if let Some(rtt) = dial.first_rtt().await {
            lanes.with(|_, _, supply| supply.on_path(rtt >= LONG_RTT));
            lanes.tend();
        }
    });
    let channel = match select(measured, dial.dial(&first)).await {
        Either::Left(((), dialling)) => dialling.await?,
        Either::Right((dialled, _)) => dialled?,
    };
    let mut prefetched = prefetched.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(Greeted { channel, prefetched: std::mem::take(&mut *prefetched), leads })
}

impl Opener {
    /// Requests that open the current file, and read the next piece of it if pieces are prefetched.
    fn opened_lately(&mut self) -> Vec<Request> {
        drop(self.opened.take_if(|ahead| ahead.since.elapsed() > LATELY));
        let Some(ahead) = &mut self.opened else { return Vec::new() };
        let mut requests = ahead.requests.clone();
        if let Some(piece) = &mut ahead.piece {
            requests.push(prefetch::of_piece(*piece));
            *piece += 1;
        }
        requests
    }

    /// Whether the file that a new lane has opened is still the current one.
    fn wants(&self, early: &[Request]) -> bool {
        let Some(ahead) = &self.opened else { return false };
        self.as_resolved(early).starts_with(&self.as_resolved(&ahead.requests))
    }

    /// Rewrites requests for a path of the user to those for the path to which it resolves.
    fn as_resolved(&self, requests: &[Request]) -> Vec<Request> {
        let mut requests = requests.to_vec();
        if let Some((requested, path)) = &self.resolved {
            requests.iter_mut().for_each(|early| prefetch::resolved(early, requested, path));
        }
        requests
    }
}
