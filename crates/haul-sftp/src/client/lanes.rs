//! The sessions to one host: as many as the window wishes for, opened side by side in the
//! background, at most [`MAKING`] at a time; a lost one is replaced.
//!
//! Everything that is asked goes to the open lane that is least loaded. When there is
//! none, whoever asks waits for the first; when that cannot be opened, the error is theirs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use haul_storage::{Error, ErrorKind, LinkStatus, Result};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::patience::Patience;
use super::prefetch;
use super::session::{Room, Session};
use crate::codec::Request;
use crate::transport::Dial;

/// Lanes in the making. sshd refuses connections at random above ten that have not authenticated
/// (MaxStartups 10:30:100), and others may be connecting, too.
const MAKING: usize = 8;

/// From this round trip on a transfer opens lanes side by side from the beginning.
const LONG_RTT: Duration = Duration::from_millis(20);

/// While lanes are being opened none is given more than this, in thousandths of what it carries in
/// two round trips: the first one would have everything, and take long for it.
const ENOUGH: u64 = 2000;
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A file that was opened no longer ago is what a new lane is needed for.
const LATELY: Duration = Duration::from_secs(2);

/// After a refusal no further lane is tried for this long, doubled with each refusal in a row.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The lanes to one host.
#[derive(Debug)]
pub(super) struct Lanes {
    dial: Arc<dyn Dial>,
    runtime: Handle,
    patience: Patience,
    state: Mutex<State>,
    changed: Notify,
    this: Weak<Self>,
}

#[derive(Debug)]
struct State {
    open: Vec<Arc<Session>>,
    making: usize,
    wished: usize,
    /// Lanes that a transfer will want over a long path, whatever the window says before it has
    /// measured anything; 0 if nothing is known of a transfer.
    expected: usize,
    /// The path is long: what is expected is wished for.
    long: bool,
    refused: usize,
    refused_in_a_row: u32,
    paused_until: Option<Instant>,
    /// Why the last of those that were being made could not be opened, while there is none.
    failure: Option<Failure>,
    round_trips: u32,
    connect: Option<Duration>,
    /// What the first lane is going to be asked.
    prefetched: Vec<Request>,
    /// The lane that was asked that, and whether it is being made.
    lead: Weak<Session>,
    leading: bool,
    /// What lanes that are being made are going to be asked: to open the file that is wanted.
    opened: Option<Ahead>,
    /// Where a path of a user's leads to.
    resolved: Option<(Bytes, Bytes)>,
}

/// What opens a file on a new lane.
#[derive(Debug)]
struct Ahead {
    since: Instant,
    questions: Vec<Request>,
    /// The piece of the file that the next lane is to read, if nobody reads it yet.
    piece: Option<u64>,
}

#[derive(Debug)]
struct Failure {
    /// It is the outcome for all who have waited since before.
    at: Instant,
    error: Error,
}

impl Lanes {
    /// No lane yet. All that lanes do, encryption above all, is done on `runtime`.
    pub(super) fn new(dial: Arc<dyn Dial>, runtime: Handle) -> Arc<Self> {
        let patience = Patience::new(dial.waits());
        Arc::new_cyclic(|this| Self {
            dial,
            patience,
            runtime,
            state: Mutex::new(State {
                open: Vec::new(),
                making: 0,
                wished: 1,
                expected: 0,
                long: false,
                refused: 0,
                refused_in_a_row: 0,
                paused_until: None,
                failure: None,
                round_trips: 0,
                connect: None,
                prefetched: Vec::new(),
                lead: Weak::new(),
                leading: false,
                opened: None,
                resolved: None,
            }),
            changed: Notify::new(),
            this: this.clone(),
        })
    }

    /// The host as errors name it.
    pub(super) fn host(&self) -> String {
        self.dial.host()
    }

    /// Wishes for `lanes` lanes; those that are too many are closed once nothing is under way on
    /// them.
    pub(super) fn wish(&self, lanes: usize) {
        let mut state = self.lock();
        let least = if state.long { state.expected } else { 1 };
        state.wished = lanes.max(least).max(1);
        self.tend(&mut state);
    }

    /// Says that much is going to be moved, and over `lanes` lanes at least where the path is long:
    /// there they are opened side by side from the beginning, because each takes as long as the
    /// first.
    pub(super) fn expect(&self, lanes: usize) {
        self.lock().expected = lanes.min(MAKING);
    }

    /// What the link looks like.
    pub(super) fn status(&self) -> LinkStatus {
        let mut state = self.lock();
        self.tend(&mut state);
        let rtt = state.open.iter().filter_map(|lane| lane.rtt()).min();
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

    /// Round trips that connecting the first lane took.
    pub(super) fn round_trips(&self) -> u32 {
        self.lock().round_trips
    }

    /// Whether there ever was a lane.
    pub(super) fn have_been_open(&self) -> bool {
        self.lock().connect.is_some()
    }

    /// The lane with the least to do, for `bytes` that are going to be moved on it; opens one if
    /// there is none.
    pub(super) async fn choose(&self, bytes: u64) -> Result<Room> {
        let since = Instant::now();
        loop {
            let changed = self.changed.notified();
            {
                let mut state = self.lock();
                self.tend(&mut state);
                let least = state.open.iter().min_by_key(|lane| lane.load());
                let more_come = state.making > 0;
                if let Some(least) = least.filter(|lane| !more_come || lane.load() < ENOUGH) {
                    return Ok(least.reserve(bytes));
                }
                if let Some(failure) = state.failure.as_ref().filter(|it| it.at >= since) {
                    return Err(failure.error.again().at(self.dial.host()));
                }
                if state.making == 0 {
                    self.make(&mut state);
                    if state.expected > 1 && !state.long {
                        self.make_side_by_side();
                    }
                }
            }
            // What lanes have carried is not announced.
            drop(timeout(LOOK_AGAIN, changed).await);
        }
    }

    /// All open lanes but the one that is chosen next, if nothing is under way on any; else none.
    pub(super) fn others_idle(&self) -> Vec<Arc<Session>> {
        let state = self.lock();
        let busy = state.open.iter().any(|lane| lane.outstanding() > prefetch::PIECE);
        state.open.iter().skip(1).filter(|_| !busy).cloned().collect()
    }

    /// Runs something beside the lanes.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    /// Says what the first lane is going to be asked, so that it goes with the greeting. Nothing to
    /// do where there is a lane, or one is being made.
    pub(super) fn prefetch(&self, questions: Vec<Request>) {
        let mut state = self.lock();
        if state.open.is_empty() && state.making == 0 {
            state.prefetched = questions;
        }
    }

    /// The same for a path that is going to be looked at, and copied if much is going to be moved:
    /// then the other lanes are asked for a part of it, too, in case it is a file.
    pub(super) fn prefetch_source(&self, asked: &Bytes) {
        let mut questions = prefetch::of_source(asked);
        {
            let mut state = self.lock();
            let is_directory = asked.ends_with(b"/");
            let much = state.expected > 1 && !is_directory;
            if state.open.is_empty() && state.making == 0 && much {
                let file = prefetch::of_file(asked);
                questions.extend(file.iter().cloned());
                questions.push(prefetch::of_piece(0));
                state.opened =
                    Some(Ahead { since: Instant::now(), questions: file, piece: Some(1) });
            }
        }
        self.prefetch(questions);
    }

    /// The lane that was asked something with its greeting, if it opens soon after the first; else
    /// the one with the least to do. Asking anew takes a round trip, listing a second one: for the
    /// answers that are under way nobody waits longer.
    pub(super) async fn lead(&self) -> Result<Arc<Session>> {
        let first = self.choose(0).await?;
        let worth = 2 * first.rtt().unwrap_or_default();
        let lead = async {
            loop {
                let changed = self.changed.notified();
                {
                    let state = self.lock();
                    let lead = state.lead.upgrade().filter(|lead| !lead.is_ended());
                    if lead.is_some() || !state.leading {
                        return lead;
                    }
                }
                changed.await;
            }
        };
        let lead = timeout(worth, lead).await.ok().flatten();
        Ok(lead.unwrap_or_else(|| Arc::clone(&first)))
    }

    /// Asks early on the lane with the least to do, if one is open and it was not asked before.
    pub(super) fn ask_early(&self, request: Request) {
        if self.ahead(&request).is_some() {
            return;
        }
        let least = self.lock().open.iter().min_by_key(|lane| lane.load()).cloned();
        if let Some(lane) = least.filter(|lane| !lane.is_ended()) {
            lane.prefetch(request);
        }
    }

    /// A lane that was asked this early.
    pub(super) fn ahead(&self, request: &Request) -> Option<Arc<Session>> {
        let state = self.lock();
        let lanes = state.lead.upgrade().into_iter().chain(state.open.iter().cloned());
        lanes.into_iter().find(|lane| !lane.is_ended() && lane.has_prefetched(request))
    }

    /// Says where a path of a user's leads to: what was asked of it is an answer for that.
    pub(super) fn resolved(&self, asked: Bytes, path: Bytes) {
        let mut state = self.lock();
        for lane in &state.open {
            lane.same_as_prefetched(|early| prefetch::resolved(early, &asked, &path));
        }
        state.resolved = Some((asked, path));
    }

    /// Says what every lane is going to be asked that is being made now.
    pub(super) fn prefetch_on_new(&self, questions: Vec<Request>) {
        self.lock().opened = Some(Ahead { since: Instant::now(), questions, piece: None });
    }

    /// A file is closed: what opens it on lanes that are being made, or has opened it there for
    /// nobody yet, is given up.
    pub(super) fn give_up(&self, questions: &[Request]) {
        let mut state = self.lock();
        drop(state.opened.take_if(|ahead| ahead.questions == questions));
        let lanes = state.open.clone();
        drop(state);
        for lane in lanes {
            questions.iter().for_each(|question| drop(lane.prefetched(question)));
        }
    }

    fn opened_lately(&self) -> Vec<Request> {
        let mut state = self.lock();
        let lately = state.opened.take_if(|ahead| ahead.since.elapsed() > LATELY);
        drop(lately);
        let Some(ahead) = &mut state.opened else { return Vec::new() };
        let mut questions = ahead.questions.clone();
        if let Some(piece) = &mut ahead.piece {
            questions.push(prefetch::of_piece(*piece));
            *piece += 1;
        }
        questions
    }

    /// One more lane, which is not among those that are shared.
    pub(super) async fn open_own(&self) -> Result<Arc<Session>> {
        let (dial, patience) = (Arc::clone(&self.dial), self.patience.clone());
        let opening = self.runtime.spawn(async move {
            let channel = dial.dial(&|server: &str| Session::first(server, &[])).await?;
            Ok(Arc::new(Session::start(channel, &dial.host(), patience, Vec::new())))
        });
        opening.await.unwrap_or_else(|failed| {
            let error = Error::new(ErrorKind::Unreachable, "connect");
            Err(error.at(self.dial.host()).with_source(failed))
        })
    }

    /// Forgets lanes that have ended, closes what is too much, makes what is missing.
    fn tend(&self, state: &mut State) {
        let before = state.open.len();
        state.open.retain(|lane| !lane.is_ended());
        let lost = before - state.open.len();
        if lost > 0 {
            state.refused += lost;
        }
        while state.open.len() > state.wished {
            let Some(idle) = state.open.iter().rposition(|lane| lane.outstanding() == 0) else {
                break;
            };
            state.open.remove(idle);
        }
        let paused = state.paused_until.is_some_and(|until| until > Instant::now());
        // The first lane opens when somebody needs it, and the others are worth it only then. While there is
        // none and one was refused, those that are being made are waited for, or nobody is ever told.
        let is_hopeful = state.making > 0 && state.refused_in_a_row == 0;
        let begun = !state.open.is_empty() || is_hopeful;
        while begun
            && !paused
            && state.making < MAKING
            && state.open.len() + state.making < state.wished
        {
            self.make(state);
        }
    }

    fn make(&self, state: &mut State) {
        let Some(this) = self.this.upgrade() else { return };
        state.making += 1;
        let prefetched = std::mem::take(&mut state.prefetched);
        state.leading |= !prefetched.is_empty();
        self.runtime.spawn(async move { this.open_one(prefetched).await });
    }

    /// Waits for the first round trip of the first lane, and makes the others if it is long.
    fn make_side_by_side(&self) {
        let Some(this) = self.this.upgrade() else { return };
        let since = Instant::now();
        self.runtime.spawn(async move {
            let Some(rtt) = this.dial.first_rtt().await else { return };
            let mut state = this.lock();
            let has_failed = state.failure.as_ref().is_some_and(|it| it.at >= since);
            if rtt >= LONG_RTT && !has_failed {
                state.long = true;
                state.wished = state.wished.max(state.expected);
                this.tend(&mut state);
            }
        });
    }

    async fn open_one(self: Arc<Self>, prefetched: Vec<Request>) {
        let began = Instant::now();
        let leads = !prefetched.is_empty();
        let asked = Arc::new(Mutex::new(prefetched));
        let (this, early) = (Arc::downgrade(&self), Arc::clone(&asked));
        let first = move |server: &str| {
            let mut early = early.lock().unwrap_or_else(PoisonError::into_inner);
            if early.is_empty() {
                *early = this.upgrade().map(|this| this.opened_lately()).unwrap_or_default();
            }
            Session::first(server, &early)
        };
        let dialled = self.dial.dial(&first).await;
        let prefetched = std::mem::take(&mut *asked.lock().unwrap_or_else(PoisonError::into_inner));
        let mut state = self.lock();
        state.making -= 1;
        state.leading &= !leads;
        match dialled {
            Ok(channel) => {
                let early = prefetched.clone();
                let patience = self.patience.clone();
                let session = Session::start(channel, &self.dial.host(), patience, prefetched);
                state.refused_in_a_row = 0;
                state.failure = None;
                state.connect.get_or_insert(began.elapsed());
                if state.round_trips == 0 {
                    state.round_trips = session.round_trips;
                }
                if let Some((asked, path)) = &state.resolved {
                    session.same_as_prefetched(|early| prefetch::resolved(early, asked, path));
                }
                if !leads && !state.wants(&early) {
                    for question in state.as_resolved(&early) {
                        drop(session.prefetched(&question));
                    }
                }
                let session = Arc::new(session);
                if leads {
                    state.lead = Arc::downgrade(&session);
                }
                state.open.push(session);
            }
            Err(error) => {
                state.refused += 1;
                state.refused_in_a_row += 1;
                let factor = 1u32 << (state.refused_in_a_row - 1).min(5);
                let pause = (PAUSE * factor).min(LONGEST_PAUSE);
                state.paused_until = Some(Instant::now() + pause);
                if state.open.is_empty() && state.making == 0 {
                    state.failure = Some(Failure { at: Instant::now(), error });
                }
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether the file is still open that a new lane was told to open.
    fn wants(&self, early: &[Request]) -> bool {
        let Some(ahead) = &self.opened else { return false };
        self.as_resolved(early).starts_with(&self.as_resolved(&ahead.questions))
    }

    /// What was asked of a path of a user's, as what would be asked of where it leads to.
    fn as_resolved(&self, questions: &[Request]) -> Vec<Request> {
        let mut questions = questions.to_vec();
        if let Some((asked, path)) = &self.resolved {
            questions.iter_mut().for_each(|early| prefetch::resolved(early, asked, path));
        }
        questions
    }
}
