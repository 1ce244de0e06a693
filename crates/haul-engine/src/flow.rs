//! Flow control of a transfer: limits bytes in flight and bytes in memory.
//!
//! Every range needs a [`Permit`] before it is requested. A permit counts twice: as in flight until its
//! bytes have arrived (bounded by the window), and as held until they have been written and hashed
//! (bounded by the memory budget). So a slow disk slows the reader instead of filling memory. Permits
//! are granted in the order of the calls to [`Flow::room`] and [`Flow::acquire`].

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

/// Smallest range in bytes when the end of a transfer is spread over the lanes.
const LEAST_RANGE: u64 = 256 << 10;

/// Files, or batches of small files, in flight between disks: enough to keep every thread busy.
const DISK_FILES: usize = 8;

/// Bytes that may wait for a disk, however small the window is.
const LEAST_HELD: u64 = 8 << 20;

/// The flow control of one transfer, shared by all its files.
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
    /// Disk to disk: no link to measure, but a read and a write stage with a queue in between.
    Disk,
    /// At least one side is behind a link: the window is measured.
    Link(Box<Window>),
}

#[derive(Debug)]
struct Waiter {
    bytes: u64,
    granted: oneshot::Sender<()>,
}

impl Flow {
    /// Flow control for a transfer over `links` (empty if both sides are disks). `writes` is true if the
    /// destination is behind one of them.
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

    /// Time since the start of the transfer, the clock of the window.
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// The instant that is `time` after the start of the transfer, at most a day from now.
    pub fn at(&self, time: Duration) -> Instant {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        self.started + time.min(self.now() + DAY)
    }

    /// The window's current decision.
    pub fn decision(&self) -> Decision {
        self.lock().decision
    }

    /// The length in bytes of the next range when `remaining` bytes of the whole transfer are left:
    /// shorter towards the end, so that all lanes finish together.
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
        // Leave room for the next ranges to be in flight while one is written.
        let room = match state.pace {
            Pace::Disk => u64::MAX,
            Pace::Link(_) => (state.most_held() / 4).max(LEAST_RANGE),
        };
        state.decision.range_bytes.min(share.max(LEAST_RANGE)).min(limit).min(room)
    }

    /// Waits for room for `bytes` more in flight and for the rate limit.
    pub async fn acquire(self: &Arc<Self>, bytes: u64) -> Permit {
        let permit = self.room(bytes).await;
        self.keep_limit(bytes).await;
        permit
    }

    /// Waits for room for `bytes` more in flight, regardless of the rate limit.
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
        // The sender is dropped only after the grant, or with the flow, which `self` keeps alive.
        drop((&mut queued.receiver).await);
        self.permit(bytes)
    }

    /// Like [`Flow::room`], but returns `None` instead of waiting.
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

    /// Grants `bytes` even without room. For a caller that holds a resource (a lane, a file being
    /// written) that the holders of all permits may be waiting for (deadlock otherwise).
    pub fn overdraw(self: &Arc<Self>, bytes: u64) -> Permit {
        self.lock().grant(bytes);
        self.permit(bytes)
    }

    /// Counts `bytes` against the rate limit and waits until they may move.
    pub async fn keep_limit(&self, bytes: u64) {
        if let Some(pause) = self.pay(bytes) {
            sleep(pause).await;
        }
    }

    /// Counts `bytes` against the rate limit; returns how long to wait before they may move, if at all.
    pub fn pay(&self, bytes: u64) -> Option<Duration> {
        let now = self.now();
        let pause = self.lock().limiter.as_mut().map(|limiter| limiter.take(now, bytes));
        pause.filter(|pause| !pause.is_zero())
    }

    /// Refunds `bytes` that were counted by [`Flow::pay`] but will not move.
    pub fn give_back(&self, bytes: u64) {
        if let Some(limiter) = &mut self.lock().limiter {
            limiter.give_back(bytes);
        }
    }

    /// Maximum bytes per range under the rate limit; `None` without a limit.
    pub fn limit_bytes(&self) -> Option<u64> {
        self.lock().limiter.as_ref().map(Limiter::range_bytes)
    }

    /// Bytes that a lane delivers in `round_trips` RTTs, from the measured goodput; 0 between disks.
    pub fn bytes_a_lane(&self, round_trips: u32) -> u64 {
        let state = self.lock();
        let Pace::Link(window) = &state.pace else { return 0 };
        let time = state.link.rtt.unwrap_or_default() * round_trips;
        let lane = window.goodput() / state.link.open.max(1) as u64;
        (lane as f64 * time.as_secs_f64()) as u64
    }

    /// True if at least one side is behind a link.
    pub fn has_links(&self) -> bool {
        !self.links.is_empty()
    }

    /// True if several lanes are open, so that one may be slower than the others.
    pub fn has_lanes(&self) -> bool {
        self.has_links() && self.lock().link.open > 1
    }

    /// True if a permit for `bytes` would be granted without waiting.
    pub fn has_room(&self, bytes: u64) -> bool {
        let state = self.lock();
        state.waiting.is_empty() && state.fits(bytes)
    }

    /// Reports to the window that a range requested at `issued` has arrived.
    pub fn completed(&self, issued: Duration, first_byte: Option<Duration>, bytes: u64) {
        let now = self.now();
        self.with_window(|window| {
            window.on_completion(now, &Completion { bytes, issued, first_byte });
        });
    }

    /// Reports to the window that an operation on the link failed.
    pub fn failed(&self, kind: ErrorKind) {
        let now = self.now();
        self.with_window(|window| window.on_failure(now, kind));
    }

    /// Polls the links' status and the window's timers. Call it often enough to follow lanes as they open.
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

    /// The link's status at the last tick, and the largest number of lanes open so far.
    pub fn link(&self) -> (LinkStatus, usize) {
        let state = self.lock();
        (state.link, state.most_lanes)
    }

    /// Bytes in flight and bytes held.
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

    /// Releases the counts of a permit; `arrived` if its bytes were received, not abandoned.
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
    /// True if `bytes` fit into window and memory. One range always fits, however long it is.
    fn fits(&self, bytes: u64) -> bool {
        let window = self.in_flight == 0 || self.in_flight + bytes <= self.decision.window_bytes;
        let held = self.held == 0 || self.held + bytes <= self.most_held();
        window && held
    }

    /// Maximum bytes held. Between disks it is the queue. With a link, a disk that stalls briefly may
    /// fall behind by a second window without stalling the link; more would only use memory.
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
            // A waiter that was dropped gets no grant.
            if waiter.granted.send(()).is_ok() {
                self.grant(bytes);
            }
        }
    }
}

/// A place in the queue. If the waiting task is dropped after the grant, the grant is released.
struct Queued<'a> {
    flow: &'a Flow,
    bytes: u64,
    receiver: oneshot::Receiver<()>,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.receiver.close();
        // After a completed `room` this is empty: the grant was received there.
        if self.receiver.try_recv().is_ok() {
            self.flow.release(self.bytes, self.bytes, false);
        }
    }
}

/// The fixed decision between disks. A range is one block, or several small ones up to 256 KiB to make
/// the hand-over to a thread worthwhile; `queue_size` ranges may be between reading and writing. Blocks
/// that stay in a core's cache from one stage to the next take a third of the time of blocks of 1 MiB
/// and more (measured on ext4).
fn disk_decision(settings: &Settings) -> Decision {
    // A block may be as large as 1 GiB, but the memory budget must hold several ranges.
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

/// Permission for bytes in flight and in memory; dropping it releases both.
#[derive(Debug)]
pub struct Permit {
    flow: Arc<Flow>,
    in_flight: u64,
    held: u64,
}

impl Permit {
    /// Splits off a permit for `bytes`, or for fewer if this one has fewer.
    #[must_use]
    pub fn split(&mut self, bytes: u64) -> Self {
        let (in_flight, held) = (bytes.min(self.in_flight), bytes.min(self.held));
        self.in_flight -= in_flight;
        self.held -= held;
        Self { flow: Arc::clone(&self.flow), in_flight, held }
    }

    /// Grows by `bytes` if there is room without waiting, and no rate limit.
    pub fn try_grow(&mut self, bytes: u64) {
        let mut state = self.flow.lock();
        // A rate limit requires waiting, which this function does not do.
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

    /// Reports that `bytes` have arrived: they are held, but no longer in flight.
    pub fn arrived(&mut self, bytes: u64) {
        let bytes = bytes.min(self.in_flight);
        self.in_flight -= bytes;
        self.flow.release(bytes, 0, true);
    }

    /// Reports that all bytes have been written and hashed, and releases the permit.
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
    async fn a_grant_to_a_dropped_task_is_released() {
        let flow = gate();
        let first = flow.acquire(1 << 20).await;
        let mut second = Box::pin(flow.acquire(512 << 10));
        assert!((&mut second).now_or_never().is_none(), "the window is full");
        drop(first);
        drop(second);
        assert!(flow.acquire(1 << 20).now_or_never().is_some(), "nobody has anything");
    }

    #[tokio::test]
    async fn a_dropped_waiter_does_not_block_the_queue() {
        let flow = gate();
        let first = flow.acquire(1 << 20).await;
        let mut second = Box::pin(flow.acquire(512 << 10));
        assert!((&mut second).now_or_never().is_none(), "the window is full");
        drop(second);
        drop(first);
        assert!(flow.acquire(1 << 20).now_or_never().is_some(), "nobody has anything");
    }

    #[tokio::test]
    async fn overdrawn_bytes_are_released_before_the_next_grant() {
        let flow = gate();
        let first = flow.acquire(1 << 20).await;
        let over = flow.overdraw(256 << 10);
        drop(first);
        assert!(flow.acquire(1 << 20).now_or_never().is_none(), "some of it is overdrawn");
        drop(over);
        assert!(flow.acquire(1 << 20).now_or_never().is_some(), "nobody has anything");
    }
}
