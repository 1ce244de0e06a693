//! The lanes to one host. A lane serves one operation at a time: a task takes an idle lane and returns it.
//!
//! Downloads and uploads each get up to the requested number; a command takes any free lane. To avoid
//! deadlock (a copy from a host to the same host, a stat of one file while another is written), each of
//! the three purposes can always have one lane, and a lane whose holder is stalled does not count.
//!
//! If the server accepts no further lane, two more rules apply. A download whose bytes are not consumed
//! returns its lane when another task needs it, and continues later. And while something is being read,
//! a second upload does not take the last lane: both might wait for the bytes that are read.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};
use std::time::Duration;

use haul_net::RttGauge;
use haul_net::pool::{self, Connect, Connecting, LONG_RTT, Supply};
use haul_storage::{Error, ErrorKind, LinkStatus, Result};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::learnt::Learnt;
use crate::login::{Login, Opened};
use crate::server::Server;
use crate::session::Session;

/// How long a download stays parked for a reader that may continue it. Servers end transfers that stall
/// for minutes.
const PARKED_LIMIT: Duration = Duration::from_secs(3);

/// How long to wait for the replies to abandoned commands.
const CATCH_UP: Duration = Duration::from_secs(10);

/// How long a task waits while the server refuses further lanes and tasks with other purposes hold all open ones.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often the holder of a lane checks whether another task needs it.
const LOOK: Duration = Duration::from_millis(250);

/// How recent an RTT sample has to be to describe the present queue.
const RECENT: Duration = Duration::from_millis(500);

/// What a lane is taken for. Each purpose has a queue of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Command,
    Read,
    Write,
    /// Replies of abandoned commands have to be read first. No task waits for this.
    CatchUp,
}

const PURPOSES: [Purpose; pool::QUEUES] = [Purpose::Command, Purpose::Read, Purpose::Write];

/// The lanes to one host.
#[derive(Debug)]
pub(crate) struct Lanes {
    login: Arc<Login>,
    pool: Arc<pool::Lanes<Opener>>,
}

/// A lane in use; dropping it returns it.
#[derive(Debug)]
pub(crate) struct Lane {
    /// `None` only while the lane is dropped.
    session: Option<Session>,
    purpose: Purpose,
    is_stalled: bool,
    /// This lane was chosen to be returned for another task.
    is_recalled: bool,
    pool: Arc<pool::Lanes<Opener>>,
}

/// A read that has not ended, whether it has a lane or not.
#[derive(Debug)]
pub(crate) struct Read {
    pool: Arc<pool::Lanes<Opener>>,
}

impl Drop for Read {
    fn drop(&mut self) {
        self.pool.with(|opener, _, _| opener.uses.reads -= 1);
    }
}

impl Lanes {
    /// Opens no lane yet. All work of the lanes, encryption above all, runs on `runtime`.
    pub(crate) fn new(login: Login, runtime: Handle) -> Arc<Self> {
        let login = Arc::new(login);
        // `parked_unused` starts true: with several lanes, a parked download receives more than was
        // requested, which takes bandwidth from the others.
        let (idle, uses, parked_unused) = (Vec::new(), Uses::default(), true);
        let opener = Opener { login: Arc::clone(&login), idle, uses, rtt: None, parked_unused };
        Arc::new(Self { login, pool: pool::Lanes::new(opener, runtime) })
    }

    /// The host as errors name it.
    pub(crate) fn host(&self) -> String {
        self.login.name()
    }

    /// What was learnt about the server.
    pub(crate) fn learnt(&self) -> &Arc<Learnt> {
        self.login.learnt()
    }

    /// The server, known once a lane has been open.
    pub(crate) fn known_server(&self) -> Option<Arc<Server>> {
        self.login.known_server()
    }

    /// Sets the number of lanes to use.
    pub(crate) fn set_target(&self, lanes: usize) {
        self.pool.set_target(lanes);
    }

    /// Announces a large transfer: over a long path at least `lanes` lanes (at most 8) are opened.
    pub(crate) fn expect(&self, lanes: usize) {
        self.pool.with(|_, _, supply| supply.expect(lanes));
    }

    /// The state of the link: RTTs and lanes.
    pub(crate) fn status(&self) -> LinkStatus {
        self.pool.tend();
        self.pool.with(|opener, gauges, supply| {
            let mut seen = self.known_server().map_or(Vec::new(), |server| server.in_use.rtts());
            if seen.is_empty() {
                // Control connections are idle during a transfer, so their RTTs count only if no data
                // connection has any.
                seen.extend(gauges.iter().filter_map(|gauge| gauge.sample()));
            }
            let current_rtts = seen.iter().filter_map(|seen| seen.current_rtt(RECENT));
            let shortest = seen.iter().map(|seen| seen.shortest).min();
            supply.status(gauges.len(), shortest.into_iter().chain(opener.rtt).min(), current_rtts)
        })
    }

    /// Whether any lane has ever been open.
    pub(crate) fn have_been_open(&self) -> bool {
        self.pool.with(|_, _, supply| supply.has_been_open())
    }

    /// Whether to park a download that has reached the end of its range: with one lane the next range
    /// often begins at that end; with several, only if the last parked download was used.
    pub(crate) fn should_park(&self) -> bool {
        self.pool.with(|opener, _, supply| supply.target() == 1 || !opener.parked_unused)
    }

    /// Spawns a task on the lanes' runtime.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.pool.spawn(work);
    }

    /// A lane for a short command.
    pub(crate) async fn command(&self) -> Result<Lane> {
        self.take(Purpose::Command, None).await
    }

    /// Counts a read in progress until the returned guard is dropped.
    pub(crate) fn begin_read(&self) -> Read {
        self.pool.with(|opener, _, _| opener.uses.reads += 1);
        Read { pool: Arc::clone(&self.pool) }
    }

    /// A lane to read the file opened as `opening` from `offset` on, preferably one with a download parked
    /// at that offset.
    pub(crate) async fn reader(&self, opening: u64, offset: u64) -> Result<Lane> {
        self.take(Purpose::Read, Some((opening, offset))).await
    }

    /// A lane for an upload.
    pub(crate) async fn writer(&self) -> Result<Lane> {
        self.take(Purpose::Write, None).await
    }

    async fn take(&self, purpose: Purpose, at: Option<(u64, u64)>) -> Result<Lane> {
        let since = Instant::now();
        let taken = self.pool.take_turn(purpose as usize, |opener, open, supply| {
            let session = opener.take(purpose, at, open.len(), supply);
            let is_hopeless = supply.is_refused() && opener.is_hopeless(purpose);
            if session.is_none() && is_hopeless && since.elapsed() >= PATIENCE {
                let error = Error::new(ErrorKind::Busy, "connect").at(self.host());
                return Some(Err(error.because(
                    "the server accepts no further connection, and all open ones are in use",
                )));
            }
            session.map(Ok)
        });
        let (session, pool) = (Some(taken.await??), Arc::clone(&self.pool));
        Ok(Lane::new(session, purpose, pool))
    }
}

/// The use of lanes, by purpose.
#[derive(Debug, Default)]
struct Uses {
    taken: [usize; pool::QUEUES + 1],
    /// Lanes whose holders are stalled.
    stalled: [usize; pool::QUEUES + 1],
    /// Reads in progress, with or without a lane.
    reads: usize,
    /// A lane is being returned for another task.
    is_recalling: bool,
}

impl Uses {
    /// Whether one more lane may be used for `purpose`, if `target` lanes are requested.
    fn may_have(&self, purpose: Purpose, target: usize) -> bool {
        let most = target + self.stalled[purpose as usize];
        purpose == Purpose::Command || self.taken[purpose as usize] < most
    }

    /// Like [`Self::may_have`], if there are at most `most` lanes (`None`: more can be opened).
    fn may_take(&self, purpose: Purpose, target: usize, most: Option<usize>) -> bool {
        // Uploads on all lanes would wait for a lane that reads what they write.
        let written = self.taken[Purpose::Write as usize];
        let takes_last = most.is_some_and(|most| written > 0 && written + 1 >= most);
        let has_to_leave_it = purpose == Purpose::Write && self.reads > 0 && takes_last;
        self.may_have(purpose, target) && !has_to_leave_it
    }

    /// Whether the first task waiting for `purpose` may take an idle lane and still leave one for each task
    /// ahead of it.
    fn is_next(
        &self,
        purpose: Purpose,
        waiting: &[usize],
        target: usize,
        (idle, most): (usize, Option<usize>),
    ) -> bool {
        let may_take = |purpose| self.may_take(purpose, target, most);
        let before = waiting.iter().take_while(|queue| **queue != purpose as usize);
        let before = before.filter(|queue| may_take(PURPOSES[**queue])).count();
        may_take(purpose) && before < idle
    }

    /// Whether a stalled download should be ended for a waiting task: another reader, or a purpose that has
    /// no lane yet.
    fn recalls(&self, waiting: &[usize]) -> bool {
        let needs_it = |queue: &usize| *queue == Purpose::Read as usize || self.taken[*queue] == 0;
        !self.is_recalling && waiting.iter().any(needs_it)
    }

    /// How many lanes there may be when a task waits for `purpose`.
    fn most_for(&self, purpose: Purpose, target: usize) -> usize {
        let stalled: usize = self.stalled.iter().sum();
        let others = if self.taken[purpose as usize] == 0 {
            let others = &self.taken[..pool::QUEUES];
            others.iter().filter(|taken| **taken > 0).count()
        } else {
            0
        };
        target + stalled + others
    }

    /// How many more lanes the waiting tasks need, given those that are open and opening.
    fn missing(&self, waiting: &[usize], target: usize, open: usize, opening: usize) -> usize {
        let spare = opening + self.taken[Purpose::CatchUp as usize];
        let in_need = |lanes: usize| {
            let in_need = |queue: &&usize| {
                let purpose = PURPOSES[**queue];
                self.may_have(purpose, target) && lanes < self.most_for(purpose, target)
            };
            waiting.iter().filter(in_need).count()
        };
        let is_missing = |more: &usize| in_need(open + opening + more) > spare + more;
        (0..waiting.len()).take_while(is_missing).count()
    }
}

/// Opens lanes and assigns them.
#[derive(Debug)]
struct Opener {
    login: Arc<Login>,
    /// In the order in which they were returned.
    idle: Vec<Session>,
    uses: Uses,
    /// The shortest RTT of a handshake.
    rtt: Option<Duration>,
    /// The last parked download was not used: another read took its lane, or it reached [`PARKED_LIMIT`].
    parked_unused: bool,
}

impl Opener {
    /// Takes the idle lane that suits best, if it is the turn of the first task waiting for `purpose`.
    fn take(
        &mut self,
        purpose: Purpose,
        at: Option<(u64, u64)>,
        open: usize,
        supply: &mut Supply,
    ) -> Option<Session> {
        let (waiting, target) = (supply.waiting(), supply.target());
        let idle_and_most = (self.idle.len(), supply.is_refused().then_some(open));
        let is_next = self.uses.is_next(purpose, &waiting, target, idle_and_most);
        let session = is_next.then(|| self.best(at, supply)).flatten()?;
        self.uses.taken[purpose as usize] += 1;
        Some(session)
    }

    fn best(&mut self, at: Option<(u64, u64)>, supply: &mut Supply) -> Option<Session> {
        let is_parked_there = |session: &Session| {
            at.is_some_and(|(opening, offset)| session.is_parked_at(opening, offset))
        };
        if let Some(found) = self.idle.iter().position(is_parked_there) {
            self.parked_unused = false;
            return Some(self.idle.remove(found));
        }
        while let Some(free) = self.idle.iter().rposition(|session| session.parked_for().is_none())
        {
            let mut session = self.idle.remove(free);
            if !session.control.has_ended() {
                return Some(session);
            }
            supply.on_lost(1);
        }
        self.parked_unused |= at.is_some() && !self.idle.is_empty();
        (!self.idle.is_empty()).then(|| self.idle.remove(0))
    }

    /// Whether no lane is idle or used for `purpose`, so that a task with another purpose has to return
    /// one first.
    fn is_hopeless(&self, purpose: Purpose) -> bool {
        self.uses.taken[purpose as usize] == 0 && self.idle.is_empty()
    }

    /// Whether the calling holder, a stalled download, has to return its lane for another task.
    fn recall(&mut self, supply: &Supply) -> bool {
        let is_short = supply.is_refused() && self.idle.is_empty();
        let recalls = is_short && self.uses.recalls(&supply.waiting());
        self.uses.is_recalling |= recalls;
        recalls
    }

    /// Takes a lane back.
    fn take_back(
        &mut self,
        (session, purpose): (Session, Purpose),
        (is_stalled, is_recalled): (bool, bool),
        pool: &Arc<pool::Lanes<Self>>,
        supply: &mut Supply,
    ) {
        self.uses.taken[purpose as usize] -= 1;
        self.uses.stalled[purpose as usize] -= usize::from(is_stalled);
        self.uses.is_recalling &= !is_recalled;
        if session.control.is_broken() {
            supply.on_lost(1);
        } else if session.is_worn_out() {
            // It is replaced, and does not count as lost.
        } else if session.is_usable() {
            if session.parked_for().is_some() {
                pool.spawn(end_parked(Arc::downgrade(pool)));
            }
            self.idle.push(session);
        } else {
            self.uses.taken[Purpose::CatchUp as usize] += 1;
            pool.spawn(catch_up(session, Arc::downgrade(pool)));
        }
    }
}

impl Connect for Opener {
    type Connection = Opened;
    /// A session's gauge, shared as long as the session lives.
    type Lane = RttGauge;

    const MOST_OPENING: usize = 8;

    fn connect(&mut self, _: &Arc<pool::Lanes<Self>>) -> Connecting<Opened> {
        let login = Arc::clone(&self.login);
        Box::pin(async move { login.open().await.map(Some) })
    }

    fn start(&mut self, opened: Opened, supply: &mut Supply, _: &Arc<Notify>) -> Arc<RttGauge> {
        let Opened { session, rtt } = opened;
        let shortest = self.rtt.map_or(rtt, |seen| seen.min(rtt));
        self.rtt = Some(shortest);
        supply.on_path(shortest >= LONG_RTT);
        // The login succeeded.
        supply.on_admitted();
        let gauge = Arc::clone(session.gauge());
        self.idle.push(session);
        gauge
    }

    fn review(&mut self, gauges: &mut Vec<Arc<RttGauge>>, supply: &mut Supply) -> usize {
        gauges.retain(|gauge| Arc::strong_count(gauge) > 1);
        while gauges.len() > supply.target() && !supply.has_waiting_tasks() && !self.idle.is_empty()
        {
            // The one that was returned first has been idle for the longest.
            let closed = self.idle.remove(0);
            gauges.retain(|gauge| !Arc::ptr_eq(gauge, closed.gauge()));
        }
        let (waiting, target) = (supply.waiting(), supply.target());
        self.uses.missing(&waiting, target, gauges.len(), supply.opening())
    }
}

/// Reads the replies to abandoned commands.
async fn catch_up(mut session: Session, pool: Weak<pool::Lanes<Opener>>) {
    let caught_up = timeout(CATCH_UP, async {
        while !session.control.is_in_step() && !session.control.is_broken() {
            drop(session.control.last_reply().await);
        }
    });
    if caught_up.await.is_err() {
        session.control.break_off();
    }
    let Some(pool) = pool.upgrade() else { return };
    drop(Lane::new(Some(session), Purpose::CatchUp, pool));
}

/// Ends downloads that have been parked for [`PARKED_LIMIT`].
async fn end_parked(pool: Weak<pool::Lanes<Opener>>) {
    sleep(PARKED_LIMIT).await;
    while let Some(pool) = pool.upgrade() {
        let old = |session: &Session| session.parked_for().is_some_and(|time| time >= PARKED_LIMIT);
        let session = pool.with(|opener, _, _| {
            let at = opener.idle.iter().position(old)?;
            opener.uses.taken[Purpose::Command as usize] += 1;
            opener.parked_unused = true;
            Some(opener.idle.remove(at))
        });
        let Some(session) = session else { return };
        let mut lane = Lane::new(Some(session), Purpose::Command, pool);
        // If it fails, the lane is broken and not reused.
        drop(lane.unpark().await);
    }
}

impl Lane {
    const fn new(
        session: Option<Session>,
        purpose: Purpose,
        pool: Arc<pool::Lanes<Opener>>,
    ) -> Self {
        Self { session, purpose, is_stalled: false, is_recalled: false, pool }
    }

    /// Waits until another task needs this lane; its stalled holder has to return it then. Only one
    /// such lane is recalled at a time.
    pub(crate) async fn recalled(&mut self) {
        while !self.pool.with(|opener, _, supply| opener.recall(supply)) {
            sleep(LOOK).await;
        }
        self.is_recalled = true;
    }

    /// Sets whether the holder is stalled.
    pub(crate) fn stall(&mut self, stalls: bool) {
        let was_stalled = std::mem::replace(&mut self.is_stalled, stalls);
        self.pool.with(|opener, _, _| {
            let stalled = &mut opener.uses.stalled[self.purpose as usize];
            *stalled = *stalled + usize::from(stalls) - usize::from(was_stalled);
        });
        self.pool.tend();
    }
}

impl Deref for Lane {
    type Target = Session;

    fn deref(&self) -> &Session {
        let Some(session) = &self.session else { unreachable!("only dropping takes it") };
        session
    }
}

impl DerefMut for Lane {
    fn deref_mut(&mut self) -> &mut Session {
        let Some(session) = &mut self.session else { unreachable!("only dropping takes it") };
        session
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let (taken, state) = ((session, self.purpose), (self.is_stalled, self.is_recalled));
            self.pool.with(|opener, _, supply| opener.take_back(taken, state, &self.pool, supply));
            self.pool.tend();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [usize; 3] = [0, 1, 2];

    #[test]
    fn each_purpose_gets_a_lane_whatever_the_others_hold() {
        for purpose in PURPOSES {
            let waiting = [purpose as usize];
            let mut uses = Uses { taken: [1, 1, 1, 0], ..Uses::default() };
            assert_eq!(uses.missing(&waiting, 1, 3, 0), 0, "{purpose:?}");
            uses.taken[purpose as usize] = 0;
            assert_eq!(uses.missing(&waiting, 1, 2, 0), 1, "{purpose:?}");
            assert_eq!(uses.missing(&waiting, 1, 2, 1), 0, "{purpose:?}: it is being opened");
        }
        assert_eq!(Uses::default().missing(&ALL, 1, 0, 0), 1, "one lane serves all three in turn");
    }

    #[test]
    fn a_stalled_lane_does_not_count() {
        let mut uses = Uses { taken: [0, 2, 0, 0], ..Uses::default() };
        assert!(!uses.may_have(Purpose::Read, 2));
        assert_eq!(uses.missing(&[1], 2, 2, 0), 0);
        uses.stalled[1] = 1;
        assert!(uses.may_have(Purpose::Read, 2));
        assert_eq!(uses.missing(&[1], 2, 2, 0), 1);
    }

    #[test]
    fn a_lane_that_catches_up_is_not_replaced() {
        let uses = Uses { taken: [0, 0, 0, 1], ..Uses::default() };
        assert_eq!(uses.missing(&[0], 2, 1, 0), 0);
    }

    #[test]
    fn an_idle_lane_is_left_to_the_task_that_has_waited_longer() {
        let uses = Uses { taken: [0, 1, 0, 0], ..Uses::default() };
        assert!(uses.is_next(Purpose::Command, &[0, 2], 1, (1, None)));
        assert!(!uses.is_next(Purpose::Write, &[0, 2], 1, (1, None)));
        assert!(uses.is_next(Purpose::Write, &[0, 2], 1, (2, None)));
        assert!(
            uses.is_next(Purpose::Write, &[1, 2], 1, (1, None)),
            "no lane is allowed for a further read"
        );
    }

    #[test]
    fn a_second_upload_leaves_the_last_lane_to_readers() {
        let uses = Uses { taken: [0, 0, 1, 0], reads: 1, ..Uses::default() };
        assert!(!uses.is_next(Purpose::Write, &[2], 4, (1, Some(2))));
        assert!(uses.is_next(Purpose::Read, &[2, 1], 4, (1, Some(2))), "the upload has to wait");
        assert!(uses.is_next(Purpose::Write, &[2], 4, (2, Some(3))), "there is another lane");
        assert!(uses.is_next(Purpose::Write, &[2], 4, (1, None)), "there will be another lane");
        let uses = Uses { reads: 0, ..uses };
        assert!(uses.is_next(Purpose::Write, &[2], 4, (1, Some(2))), "nothing is read");
        let uses = Uses { taken: [0, 0, 0, 0], reads: 1, ..uses };
        assert!(uses.is_next(Purpose::Write, &[2], 4, (1, Some(1))), "it is the first upload");
    }

    #[test]
    fn a_stalled_download_is_ended_for_another_reader_or_the_first_upload() {
        let mut uses = Uses { taken: [0, 1, 1, 0], stalled: [0, 1, 0, 0], ..Uses::default() };
        assert!(uses.recalls(&[2, 1]));
        assert!(uses.recalls(&[0]), "no lane is used for commands");
        assert!(!uses.recalls(&[2]), "there is an upload that may end");
        assert!(!uses.recalls(&[]));
        uses.is_recalling = true;
        assert!(!uses.recalls(&[1]), "one lane at a time");
        let uses = Uses { taken: [0, 2, 0, 0], ..Uses::default() };
        assert!(uses.recalls(&[2]));
    }
}
