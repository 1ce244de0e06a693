//! How many bytes may be on their way.
//!
//! Every range needs a [`Permit`] before it is asked for. A permit counts twice: as in flight until
//! its bytes have arrived (bounded by the window), and as held until they have been written and
//! hashed (bounded by the memory budget). So a slow link does not make memory grow, and a slow disk
//! slows the reader. Permits are given in the order in which they were asked for.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haul_storage::{ErrorKind, LinkStatus};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::Settings;
use crate::limiter::Limiter;
use crate::links::Links;
use crate::window::{Completion, Decision, Limits, Window};

/// Ranges are not made smaller than this to spread the end of a transfer over the lanes.
const LEAST_RANGE: u64 = 256 << 10;

/// Files, or batches of small ones, in flight between disks: enough to keep every thread busy.
const DISK_FILES: usize = 8;

/// What may wait for a disk however small the window is.
const LEAST_HELD: u64 = 8 << 20;

/// The gate that all ranges of a transfer pass. Shared by all its files.
#[derive(Debug)]
pub struct Flow {
    state: Mutex<State>,
    started: Instant,
    links: Links,
}

#[derive(Debug)]
struct State {
    pace: Pace,
    decision: Decision,
    memory: u64,
    in_flight: u64,
    held: u64,
    waiting: VecDeque<Waiter>,
    limiter: Option<Limiter>,
    most_lanes: usize,
    link: LinkStatus,
}

#[derive(Debug)]
enum Pace {
    /// Between disks there is no link to measure: two stages with a queue between them.
    Disk,
    /// A link on at least one side.
    Link(Box<Window>),
}

#[derive(Debug)]
struct Waiter {
    bytes: u64,
    granted: oneshot::Sender<()>,
}

impl Flow {
    /// The gate for a transfer over `links` (none of them if both sides are disks); `writes`: to one
    /// of them.
    pub fn new(settings: &Settings, links: Links, writes: bool) -> Arc<Self> {
        let (pace, decision) = if links.is_empty() {
            (Pace::Disk, disk_decision(settings))
        } else {
            let can = links.can();
            let window = Window::new(Limits::of(settings, can.max_lanes));
            let window = if writes { window.written_to() } else { window };
            let pipelined = if writes { can.pipelined_writes } else { can.pipelined_reads };
            let window = if pipelined { window } else { window.one_request_a_lane() };
            let window = if !writes && can.long_reads { window.of_long_reads() } else { window };
            let bounded = !writes && can.bounded_reads;
            let window = if bounded { window.bounded_elsewhere() } else { window };
            let decision = window.decision();
            (Pace::Link(Box::new(window)), decision)
        };
        let flow = Arc::new(Self {
            state: Mutex::new(State {
                pace,
                decision,
                memory: settings.memory,
                in_flight: 0,
                held: 0,
                waiting: VecDeque::new(),
                limiter: settings.bandwidth_limit.map(Limiter::new),
                most_lanes: 0,
                link: LinkStatus::default(),
            }),
            started: Instant::now(),
            links,
        });
        flow.links.set_lanes(decision.lanes);
        flow
    }

    /// Time since the start of the transfer: the window's clock.
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// When it is so long since the start of the transfer; a day from now at the latest.
    pub fn at(&self, time: Duration) -> Instant {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        self.started + time.min(self.now() + DAY)
    }

    /// What the window says now.
    pub fn decision(&self) -> Decision {
        self.lock().decision
    }

    /// The best length of the next range when `remaining` bytes of the whole transfer are left:
    /// shorter towards the end, so that all lanes end together.
    pub fn range_bytes(&self, remaining: u64) -> u64 {
        let mut state = self.lock();
        let lanes = state.decision.lanes.max(1) as u64;
        let share = match &mut state.pace {
            Pace::Disk => u64::MAX,
            Pace::Link(window) => {
                window.on_left(remaining);
                remaining / (2 * lanes)
            }
        };
        let limit = state.limiter.as_ref().map_or(u64::MAX, Limiter::range_bytes);
        // While one is written the next has to be on its way.
        let room = match state.pace {
            Pace::Disk => u64::MAX,
            Pace::Link(_) => (state.most_held() / 4).max(LEAST_RANGE),
        };
        state.decision.range_bytes.min(share.max(LEAST_RANGE)).min(limit).min(room)
    }

    /// Waits until `bytes` more may be on their way.
    pub async fn acquire(self: &Arc<Self>, bytes: u64) -> Permit {
        let permit = self.room(bytes).await;
        self.keep_limit(bytes).await;
        permit
    }

    /// Waits until there is room for `bytes` more, whatever the limit of the rate.
    pub async fn room(self: &Arc<Self>, bytes: u64) -> Permit {
        let mut queued = {
            let mut state = self.lock();
            if let Some(permit) = self.try_grant(&mut state, bytes) {
                return permit;
            }
            let (granted, receiver) = oneshot::channel();
            state.waiting.push_back(Waiter { bytes, granted });
            Queued { flow: self, bytes, receiver }
        };
        // The sender is dropped only after granting, or with the flow that `self` keeps.
        drop((&mut queued.receiver).await);
        self.permit(bytes)
    }

    /// [`Flow::room`], if it need not be waited for.
    pub fn try_room(self: &Arc<Self>, bytes: u64) -> Option<Permit> {
        self.try_grant(&mut self.lock(), bytes)
    }

    fn try_grant(self: &Arc<Self>, state: &mut State, bytes: u64) -> Option<Permit> {
        let is_free = state.waiting.is_empty() && state.fits(bytes);
        is_free.then(|| {
            state.grant(bytes);
            self.permit(bytes)
        })
    }

    fn permit(self: &Arc<Self>, bytes: u64) -> Permit {
        Permit { flow: Arc::clone(self), in_flight: bytes, held: bytes }
    }

    /// Takes `bytes` whether or not there is room: for whoever has something (a lane, a file that is
    /// being written) that those may be waiting for who have the room.
    pub fn overdraw(self: &Arc<Self>, bytes: u64) -> Permit {
        self.lock().grant(bytes);
        self.permit(bytes)
    }

    /// Waits as long as the limit of the rate wants it for `bytes`.
    pub async fn keep_limit(&self, bytes: u64) {
        if let Some(pause) = self.pay(bytes) {
            sleep(pause).await;
        }
    }

    /// Counts `bytes` against the limit of the rate; how long to wait before they may move, if at all.
    pub fn pay(&self, bytes: u64) -> Option<Duration> {
        let now = self.now();
        let pause = self.lock().limiter.as_mut().map(|limiter| limiter.take(now, bytes));
        pause.filter(|pause| !pause.is_zero())
    }

    /// `bytes` that were counted by [`Flow::pay`] do not move after all.
    pub fn give_back(&self, bytes: u64) {
        if let Some(limiter) = &mut self.lock().limiter {
            limiter.give_back(bytes);
        }
    }

    /// What may pass at a time because of the limit of the rate.
    pub fn limit_bytes(&self) -> Option<u64> {
        self.lock().limiter.as_ref().map(Limiter::range_bytes)
    }

    /// What a lane carries in so many round trips, as it was measured.
    pub fn bytes_a_lane(&self, round_trips: u32) -> u64 {
        let state = self.lock();
        let Pace::Link(window) = &state.pace else { return 0 };
        let time = state.link.rtt.unwrap_or_default() * round_trips;
        let lane = window.goodput() / state.link.open.max(1) as u64;
        (lane as f64 * time.as_secs_f64()) as u64
    }

    /// Whether there is a link, with lanes of different speed.
    pub fn has_links(&self) -> bool {
        !self.links.is_empty()
    }

    /// Whether there are several lanes, of which one may be slower than the others.
    pub fn has_lanes(&self) -> bool {
        self.has_links() && self.lock().link.open > 1
    }

    /// Whether a permit for `bytes` would be given at once: a lane is free.
    pub fn has_room(&self, bytes: u64) -> bool {
        let state = self.lock();
        state.waiting.is_empty() && state.fits(bytes)
    }

    /// Says that a range that was asked for at `issued` has arrived.
    pub fn completed(&self, issued: Duration, first_byte: Option<Duration>, bytes: u64) {
        let now = self.now();
        self.with_window(|window| {
            window.on_completion(now, &Completion { bytes, issued, first_byte });
        });
    }

    /// Says that an operation on the link failed.
    pub fn failed(&self, kind: ErrorKind) {
        let now = self.now();
        self.with_window(|window| window.on_failure(now, kind));
    }

    /// Looks at the link and at the clock; called often enough to follow lanes that open.
    pub fn tick(&self) {
        let Some(status) = self.links.status() else { return };
        let now = self.now();
        self.with_window(|window| {
            window.on_link(now, status);
            if window.next_wakeup().is_some_and(|at| at <= now) {
                window.on_timeout(now);
            }
        });
        let mut state = self.lock();
        state.most_lanes = state.most_lanes.max(status.open);
        state.link = status;
    }

    /// The link as it was at the last tick, and the most lanes that were ever open.
    pub fn link(&self) -> (LinkStatus, usize) {
        let state = self.lock();
        (state.link, state.most_lanes)
    }

    /// Bytes in flight, and bytes held.
    #[cfg(test)]
    pub fn counted(&self) -> (u64, u64) {
        let state = self.lock();
        (state.in_flight, state.held)
    }

    fn with_window(&self, change: impl FnOnce(&mut Window)) {
        let lanes = {
            let mut state = self.lock();
            let Pace::Link(window) = &mut state.pace else { return };
            change(window);
            let decision = window.decision();
            let before = std::mem::replace(&mut state.decision, decision);
            state.pump();
            (before.lanes != decision.lanes).then_some(decision.lanes)
        };
        if let Some(lanes) = lanes {
            self.links.set_lanes(lanes);
        }
    }

    /// Takes back what a permit counted; `arrived` of it because the bytes are there.
    fn release(&self, in_flight: u64, held: u64, arrived: bool) {
        let now = self.now();
        let mut state = self.lock();
        state.in_flight = state.in_flight.saturating_sub(in_flight);
        state.held = state.held.saturating_sub(held);
        let left = state.in_flight;
        state.pump();
        let idle = state.waiting.is_empty() && state.fits(state.decision.range_bytes);
        if let Pace::Link(window) = &mut state.pace {
            if arrived && in_flight > 0 {
                window.on_progress(now, in_flight, left);
            } else if idle {
                window.on_starved(now);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// One range is always let through, however long it is and however small the window.
    fn fits(&self, bytes: u64) -> bool {
        let window = self.in_flight == 0 || self.in_flight + bytes <= self.decision.window_bytes;
        let held = self.held == 0 || self.held + bytes <= self.most_held();
        window && held
    }

    /// Between disks the queue is all there is. Behind a link a disk that stutters may fall behind
    /// by a second window, so that the link need not wait for it; more would only be memory.
    fn most_held(&self) -> u64 {
        let window = self.decision.window_bytes;
        match self.pace {
            Pace::Disk => window,
            Pace::Link(_) => window.saturating_mul(2).max(LEAST_HELD),
        }
        .min(self.memory)
    }

    const fn grant(&mut self, bytes: u64) {
        self.in_flight += bytes;
        self.held += bytes;
    }

    fn pump(&mut self) {
        while let Some(first) = self.waiting.front() {
            let bytes = first.bytes;
            if !self.fits(bytes) {
                break;
            }
            let Some(waiter) = self.waiting.pop_front() else { break };
            // Whoever stopped waiting takes nothing.
            if waiter.granted.send(()).is_ok() {
                self.grant(bytes);
            }
        }
    }
}

/// A place in the queue. What was granted to somebody who is gone by then is given back.
struct Queued<'a> {
    flow: &'a Flow,
    bytes: u64,
    receiver: oneshot::Receiver<()>,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.receiver.close();
        // What was received is not received again.
        if self.receiver.try_recv().is_ok() {
            self.flow.release(self.bytes, self.bytes, false);
        }
    }
}

/// Between disks: a range is a block, or as many small ones as are worth the way to a thread;
/// `queue_size` of them may be between reading and writing. Blocks that stay in a core's cache from
/// one stage to the next cost a third of the time of blocks of 1 MiB and more (measured on ext4).
fn disk_decision(settings: &Settings) -> Decision {
    // A block may be as long as 1 GiB; the budget still has to hold several ranges.
    let longest = (settings.memory / 8).max(64 << 10);
    let wanted = settings.chunk.fixed().unwrap_or(settings.block_size.max(256 << 10));
    let range_bytes = wanted.clamp(64 << 10, longest).next_multiple_of(64 << 10);
    let queued = range_bytes.saturating_mul(settings.queue_size.max(2) as u64);
    let window_bytes = settings.window.fixed().unwrap_or(queued).min(settings.memory);
    Decision {
        lanes: 1,
        window_bytes,
        range_bytes,
        files: settings.files.fixed().unwrap_or(DISK_FILES),
    }
}

/// The right to have bytes on their way; given back when it is dropped.
#[derive(Debug)]
pub struct Permit {
    flow: Arc<Flow>,
    in_flight: u64,
    held: u64,
}

impl Permit {
    /// The right to `bytes` of it as a permit of its own.
    #[must_use]
    pub fn split(&mut self, bytes: u64) -> Self {
        let (in_flight, held) = (bytes.min(self.in_flight), bytes.min(self.held));
        self.in_flight -= in_flight;
        self.held -= held;
        Self { flow: Arc::clone(&self.flow), in_flight, held }
    }

    /// Grows by `bytes` if there is room for them at once.
    pub fn try_grow(&mut self, bytes: u64) {
        let mut state = self.flow.lock();
        // A limit of the rate is kept by waiting.
        if state.limiter.is_none() && state.waiting.is_empty() && state.fits(bytes) {
            state.grant(bytes);
            self.in_flight += bytes;
            self.held += bytes;
        }
    }

    /// Bytes that may still arrive.
    pub const fn left(&self) -> u64 {
        self.in_flight
    }

    /// Bytes that are held.
    #[cfg(test)]
    pub const fn held(&self) -> u64 {
        self.held
    }

    /// `bytes` have arrived and are no longer in flight.
    pub fn arrived(&mut self, bytes: u64) {
        let bytes = bytes.min(self.in_flight);
        self.in_flight -= bytes;
        self.flow.release(bytes, 0, true);
    }

    /// All bytes have been written and hashed.
    pub fn consumed(mut self) {
        let (in_flight, held) = (self.in_flight, self.held);
        (self.in_flight, self.held) = (0, 0);
        self.flow.release(in_flight, held, true);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.flow.release(self.in_flight, self.held, false);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::Auto;

    fn gate() -> Arc<Flow> {
        let settings = Settings { window: Auto::Fixed(1 << 20), ..Settings::default() };
        Flow::new(&settings, Links::default(), false)
    }

    #[tokio::test]
    async fn what_was_granted_to_somebody_who_is_gone_is_given_back() {
        let flow = gate();
        let first = flow.acquire(1 << 20).await;
        let mut second = Box::pin(flow.acquire(512 << 10));
        assert!((&mut second).now_or_never().is_none(), "the window is full");
        drop(first);
        drop(second);
        assert!(flow.acquire(1 << 20).now_or_never().is_some(), "nobody has anything");
    }

    #[tokio::test]
    async fn who_stopped_waiting_is_in_nobodys_way() {
        let flow = gate();
        let first = flow.acquire(1 << 20).await;
        let mut second = Box::pin(flow.acquire(512 << 10));
        assert!((&mut second).now_or_never().is_none(), "the window is full");
        drop(second);
        drop(first);
        assert!(flow.acquire(1 << 20).now_or_never().is_some(), "nobody has anything");
    }

    #[tokio::test]
    async fn what_is_overdrawn_has_to_be_given_back_before_others_get_something() {
        let flow = gate();
        let first = flow.acquire(1 << 20).await;
        let over = flow.overdraw(256 << 10);
        drop(first);
        assert!(flow.acquire(1 << 20).now_or_never().is_none(), "some of it is overdrawn");
        drop(over);
        assert!(flow.acquire(1 << 20).now_or_never().is_some(), "nobody has anything");
    }
}
