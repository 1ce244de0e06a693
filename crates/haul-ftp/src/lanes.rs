//! The lanes to one host: as many as the window wishes for, opened side by side in the background; a
//! lost one is replaced.
//!
//! A lane does one thing at a time, so whoever needs one takes it out of the pool and gives it back;
//! who waits gets one in turn. Downloads and uploads have as many as are wished for; a command takes
//! any that is free. So that nothing waits for itself (a copy from a host to the same host, a look at
//! a file while another one is written), each of the three can always have one, and a lane whose
//! holder does nothing with it does not count.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use haul_net::RttGauge;
use haul_storage::{Error, ErrorKind, LinkStatus, Result};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::learnt::Learnt;
use crate::login::{Login, Opened};
use crate::server::Server;
use crate::session::Session;

/// Lanes in the making.
const MAKING: usize = 8;

/// From this round trip on a transfer opens lanes side by side from the beginning.
const LONG_RTT: Duration = Duration::from_millis(20);

/// After a refusal no further lane is tried for this long, doubled with each refusal in a row.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// So long a download may stand still in case somebody goes on with it. Servers end what stands for
/// minutes.
const STANDS: Duration = Duration::from_secs(3);

/// So long the answers are waited for that nobody wants any more.
const CATCH_UP: Duration = Duration::from_secs(10);

/// So long somebody waits for a lane that the server refuses, while others hold all there are.
const PATIENCE: Duration = Duration::from_secs(60);

/// A round trip that was seen no longer ago tells what the queue is now.
const RECENT: Duration = Duration::from_millis(500);

/// What a lane is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Command,
    Read,
    Write,
}

/// The lanes to one host.
#[derive(Debug)]
pub(crate) struct Lanes {
    login: Login,
    runtime: Handle,
    state: Mutex<State>,
    this: Weak<Self>,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Session>,
    /// By purpose.
    taken: [usize; 3],
    /// Lanes whose holder does nothing with them, by purpose.
    stalled: [usize; 3],
    /// Lanes that are catching up with their answers.
    behind: usize,
    making: usize,
    wished: usize,
    expected: usize,
    waiting: VecDeque<Waiting>,
    refused: usize,
    refused_in_a_row: u32,
    paused_until: Option<Instant>,
    rtt: Option<Duration>,
    connect: Option<Duration>,
    gauges: Vec<Weak<RttGauge>>,
    /// The last download that was left standing was of no use.
    stood_in_vain: bool,
}

#[derive(Debug)]
struct Waiting {
    purpose: Purpose,
    /// Which opening of a file it is going to read, and from where.
    at: Option<(u64, u64)>,
    sender: oneshot::Sender<Result<Lane>>,
}

impl Lanes {
    /// No lane yet. All that lanes do, encryption above all, is done on `runtime`.
    pub(crate) fn new(login: Login, runtime: Handle) -> Arc<Self> {
        // Of several lanes those that receive more than they were asked for are in the way of the others.
        let state = Mutex::new(State { wished: 1, stood_in_vain: true, ..State::default() });
        Arc::new_cyclic(|this| Self { login, runtime, state, this: this.clone() })
    }

    /// The host as errors name it.
    pub(crate) fn host(&self) -> String {
        self.login.name()
    }

    /// What the server turned out to do and not to do.
    pub(crate) const fn learnt(&self) -> &Arc<Learnt> {
        self.login.learnt()
    }

    /// What the server can do, once a lane was open.
    pub(crate) fn known_server(&self) -> Option<Arc<Server>> {
        self.login.known_server()
    }

    /// Wishes for `lanes` lanes.
    pub(crate) fn wish(&self, lanes: usize) {
        {
            let mut state = self.lock();
            let long = state.rtt.is_some_and(|time| time >= LONG_RTT);
            let least = if long { state.expected } else { 1 };
            state.wished = lanes.max(least).max(1);
        }
        self.serve();
    }

    /// Says that much is going to be moved, and over `lanes` lanes at least where the path is long.
    pub(crate) fn expect(&self, lanes: usize) {
        self.lock().expected = lanes.min(MAKING);
    }

    /// What the link looks like.
    pub(crate) fn status(&self) -> LinkStatus {
        self.serve();
        let mut state = self.lock();
        let mut seen = self.known_server().map_or(Vec::new(), |server| server.in_use.round_trips());
        if seen.is_empty() {
            // Nothing is sent over a control connection while a file goes over its data connection.
            state.gauges.retain(|gauge| gauge.strong_count() > 0);
            let control = state.gauges.iter().filter_map(|gauge| gauge.upgrade()?.round_trips());
            seen.extend(control);
        }
        let at_present = seen.iter().filter_map(|seen| seen.at_present(RECENT));
        let shortest = seen.iter().map(|seen| seen.shortest).min();
        let rtt = shortest.into_iter().chain(state.rtt).min();
        LinkStatus {
            open: state.open(),
            opening: state.making,
            refused: state.refused,
            rtt,
            connect: state.connect,
            queueing: haul_net::queueing(at_present, rtt),
        }
    }

    /// Whether there ever was a lane.
    pub(crate) fn have_been_open(&self) -> bool {
        self.lock().connect.is_some()
    }

    /// Whether a download that has come to the end of its range is to be left standing: the next range
    /// often begins there where there is one lane. Where there are several it was worth it last time.
    pub(crate) fn leave_standing(&self) -> bool {
        let state = self.lock();
        state.wished == 1 || !state.stood_in_vain
    }

    /// Runs something beside.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    /// A lane for a moment.
    pub(crate) async fn command(&self) -> Result<Lane> {
        self.take(Purpose::Command, None).await
    }

    /// A lane to read from `offset` on what was opened as `opening`, best the one whose download stands
    /// there.
    pub(crate) async fn reader(&self, opening: u64, offset: u64) -> Result<Lane> {
        self.take(Purpose::Read, Some((opening, offset))).await
    }

    /// A lane to write a file over.
    pub(crate) async fn writer(&self) -> Result<Lane> {
        self.take(Purpose::Write, None).await
    }

    async fn take(&self, purpose: Purpose, at: Option<(u64, u64)>) -> Result<Lane> {
        let (sender, mut receiver) = oneshot::channel();
        self.lock().waiting.push_back(Waiting { purpose, at, sender });
        self.serve();
        loop {
            match timeout(PATIENCE, &mut receiver).await {
                Ok(Ok(outcome)) => return outcome,
                // The sender is given up only with the lanes themselves.
                Ok(Err(_)) => return Err(Error::new(ErrorKind::Interrupted, "connect")),
                Err(_) if self.lock().is_hopeless(purpose) => {
                    return Err(Error::new(ErrorKind::Busy, "connect").at(self.host()).because(
                        "the server accepts no further connection, and all open ones are in use",
                    ));
                }
                Err(_) => self.serve(),
            }
        }
    }

    /// Gives lanes to those who wait, and makes what is missing.
    fn serve(&self) {
        loop {
            let mut unwanted = Vec::new();
            {
                let mut state = self.lock();
                self.hand_out(&mut state, &mut unwanted);
                self.tend(&mut state);
            }
            // What nobody waits for any longer goes back to the pool, which needs the lock.
            if unwanted.is_empty() {
                return;
            }
        }
    }

    fn hand_out(&self, state: &mut State, unwanted: &mut Vec<Lane>) {
        let Some(this) = self.this.upgrade() else { return };
        let mut at = 0;
        while let Some(waiting) = state.waiting.get(at) {
            if waiting.sender.is_closed() {
                state.waiting.remove(at);
                continue;
            }
            let purpose = waiting.purpose;
            let found = state.may_have(purpose).then(|| state.pick(at)).flatten();
            let Some(session) = found else {
                at += 1;
                continue;
            };
            state.taken[purpose as usize] += 1;
            let lane =
                Lane { session: Some(session), purpose, stalled: false, lanes: Arc::clone(&this) };
            if let Some(waiting) = state.waiting.remove(at)
                && let Err(Ok(lane)) = waiting.sender.send(Ok(lane))
            {
                unwanted.push(lane);
            }
        }
    }

    /// Closes what is too much, makes what is missing.
    fn tend(&self, state: &mut State) {
        while state.open() > state.wished && state.waiting.is_empty() && !state.idle.is_empty() {
            // The one that was given back first has been idle for the longest.
            state.idle.remove(0);
        }
        let paused = state.paused_until.is_some_and(|until| until > Instant::now());
        while !paused && state.making < MAKING && state.needs_more() {
            let Some(this) = self.this.upgrade() else { return };
            state.making += 1;
            self.runtime.spawn(this.open_one());
        }
    }

    async fn open_one(self: Arc<Self>) {
        let began = Instant::now();
        let opened = self.login.open().await;
        let mut failed = Vec::new();
        {
            let mut state = self.lock();
            state.making -= 1;
            match opened {
                Ok(Opened { session, rtt }) => {
                    state.refused_in_a_row = 0;
                    state.connect.get_or_insert(began.elapsed());
                    let shortest = state.rtt.map_or(rtt, |seen| seen.min(rtt));
                    state.rtt = Some(shortest);
                    if shortest >= LONG_RTT {
                        state.wished = state.wished.max(state.expected);
                    }
                    state.gauges.push(Arc::downgrade(session.gauge()));
                    state.idle.push(session);
                }
                Err(error) => {
                    let pause = state.refuse();
                    // Lanes that nobody uses any more end at once, not after the pause.
                    let this = self.this.clone();
                    self.spawn(async move {
                        sleep(pause).await;
                        if let Some(this) = this.upgrade() {
                            this.serve();
                        }
                    });
                    if state.open() + state.making == 0 {
                        failed.extend(state.waiting.drain(..));
                        // Who asks next finds out anew.
                        state.paused_until = None;
                    }
                    for waiting in failed.drain(..) {
                        // Whoever no longer waits has no need of it.
                        drop(waiting.sender.send(Err(error.again())));
                    }
                }
            }
        }
        self.serve();
    }

    /// Takes a lane back.
    fn give_back(&self, mut session: Session, purpose: Purpose, stalled: bool) {
        {
            let mut state = self.lock();
            state.taken[purpose as usize] -= 1;
            if stalled {
                state.stalled[purpose as usize] -= 1;
            }
            if session.control.is_broken() {
                state.refused += 1;
            } else if session.is_worn_out() {
                // It is replaced, and nothing was wrong with it.
            } else if session.is_usable() {
                let stands = session.parked_for().is_some();
                state.idle.push(session);
                if stands {
                    self.end_standing();
                }
            } else {
                state.behind += 1;
                let this = self.this.clone();
                self.spawn(async move {
                    let caught_up = timeout(CATCH_UP, async {
                        while !session.control.is_in_step() && !session.control.is_broken() {
                            drop(session.control.last_reply().await);
                        }
                    });
                    let in_time = caught_up.await.is_ok();
                    let Some(this) = this.upgrade() else { return };
                    {
                        let mut state = this.lock();
                        state.behind -= 1;
                        if in_time && session.control.is_in_step() {
                            state.idle.push(session);
                        } else {
                            state.refused += 1;
                        }
                    }
                    this.serve();
                });
            }
        }
        self.serve();
    }

    /// Ends downloads that stand for too long, a while from now.
    fn end_standing(&self) {
        let this = self.this.clone();
        self.spawn(async move {
            sleep(STANDS).await;
            while let Some(mut lane) = this.upgrade().and_then(|this| this.standing()) {
                // If it fails the lane is broken and not given back.
                drop(lane.unpark().await);
            }
        });
    }

    fn standing(self: Arc<Self>) -> Option<Lane> {
        let session = {
            let mut state = self.lock();
            let old = |session: &Session| session.parked_for().is_some_and(|time| time >= STANDS);
            let at = state.idle.iter().position(old)?;
            state.taken[Purpose::Command as usize] += 1;
            state.idle.remove(at)
        };
        Some(Lane {
            session: Some(session),
            purpose: Purpose::Command,
            stalled: false,
            lanes: self,
        })
    }

    fn stall(&self, purpose: Purpose, stalls: bool) {
        {
            let stalled = &mut self.lock().stalled[purpose as usize];
            *stalled = if stalls { *stalled + 1 } else { stalled.saturating_sub(1) };
        }
        self.serve();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn open(&self) -> usize {
        self.idle.len() + self.taken.iter().sum::<usize>() + self.behind
    }

    /// Whether one more lane may be used for that.
    fn may_have(&self, purpose: Purpose) -> bool {
        let taken = self.taken[purpose as usize];
        let most = self.wished + self.stalled[purpose as usize];
        purpose == Purpose::Command || taken < most.max(1)
    }

    /// How many lanes there may be for the sake of somebody who wants one for that.
    fn most_for(&self, purpose: Purpose) -> usize {
        let stalled: usize = self.stalled.iter().sum();
        let others = if self.taken[purpose as usize] == 0 {
            self.taken.iter().filter(|taken| **taken > 0).count()
        } else {
            0
        };
        self.wished + stalled + others
    }

    /// Whether a lane is to be made: because somebody waits, or, once there is one, because it is
    /// wished for.
    fn needs_more(&self) -> bool {
        let total = self.open() + self.making;
        let spare = self.making + self.behind;
        let in_need = self.waiting.iter().filter(|waiting| {
            !waiting.sender.is_closed()
                && self.may_have(waiting.purpose)
                && total < self.most_for(waiting.purpose)
        });
        in_need.count() > spare || (self.connect.is_some() && total > 0 && total < self.wished)
    }

    /// Takes the idle lane that suits best.
    fn pick(&mut self, waiting: usize) -> Option<Session> {
        let at = self.waiting.get(waiting).and_then(|waiting| waiting.at);
        let stands_there = |session: &Session| {
            at.is_some_and(|(opening, offset)| session.is_parked_at(opening, offset))
        };
        if let Some(found) = self.idle.iter().position(stands_there) {
            self.stood_in_vain = false;
            return Some(self.idle.remove(found));
        }
        loop {
            let free = self.idle.iter().rposition(|session| session.parked_for().is_none());
            let Some(free) = free else { break };
            let mut session = self.idle.remove(free);
            if !session.control.has_ended() {
                return Some(session);
            }
            self.refused += 1;
        }
        self.stood_in_vain |= at.is_some() && !self.idle.is_empty();
        (!self.idle.is_empty()).then(|| self.idle.remove(0))
    }

    /// Notes a refusal; gives the pause after it.
    fn refuse(&mut self) -> Duration {
        self.refused += 1;
        self.refused_in_a_row += 1;
        let factor = 1u32 << (self.refused_in_a_row - 1).min(5);
        let pause = (PAUSE * factor).min(LONGEST_PAUSE);
        self.paused_until = Some(Instant::now() + pause);
        pause
    }

    /// Whether waiting longer is of no use: no lane is coming, and none that is used for something
    /// else needs to come back.
    fn is_hopeless(&self, purpose: Purpose) -> bool {
        self.refused_in_a_row > 0 && self.taken[purpose as usize] == 0 && self.idle.is_empty()
    }
}

/// A lane that is taken; it goes back when it is dropped.
#[derive(Debug)]
pub(crate) struct Lane {
    /// Only dropping takes it.
    session: Option<Session>,
    purpose: Purpose,
    stalled: bool,
    lanes: Arc<Lanes>,
}

impl Lane {
    /// Says whether the holder does nothing with it.
    pub(crate) fn stall(&mut self, stalls: bool) {
        if self.stalled != stalls {
            self.stalled = stalls;
            self.lanes.stall(self.purpose, stalls);
        }
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
            self.lanes.give_back(session, self.purpose, self.stalled);
        }
    }
}
