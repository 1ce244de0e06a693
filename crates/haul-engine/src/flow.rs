//! Flow control of a transfer: its share of the path's budget, its clock and its rate limit.
//!
//! Every range needs a [`Permit`] before it is requested, so bytes in flight are bounded by the window of the path
//! (see [`crate::budget`]), and bytes held by the memory of the transfer. So a slow disk slows the reader instead of
//! filling memory. Permits of a transfer are granted in the order of the calls to [`Flow::room`] and
//! [`Flow::acquire`].

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haul_storage::{ErrorKind, LinkStatus};
use tokio::time::{Instant, sleep};

use crate::Settings;
use crate::budget::{LinkBudgets, LinkShare, Permit, Priority};
use crate::limiter::Limiter;
use crate::links::Links;
use crate::long::LongReads;
use crate::window::Decision;

/// Files, or batches of small files, in flight between disks: enough to keep every thread busy.
const DISK_FILES: usize = 8;

/// The flow control of one transfer, shared by all its files.
#[derive(Debug)]
pub struct Flow {
    share: Arc<LinkShare>,
    limit: Option<Limit>,
    started: Instant,
    /// The time of the budget when the transfer started.
    joined: Duration,
    most_lanes: AtomicUsize,
}

#[derive(Debug)]
struct Limit {
    limiter: Mutex<Limiter>,
    range_bytes: u64,
}

impl Flow {
    /// Flow control for a transfer over `links` (empty if both sides are disks), which joins the budget of their path
    /// in `budgets`. `writes` is true if the destination is behind one of them.
    pub fn new(
        budgets: &LinkBudgets,
        settings: &Settings,
        links: &Links,
        writes: bool,
    ) -> Arc<Self> {
        let share = budgets.join(settings, links, writes, disk_decision(settings));
        Arc::new(Self {
            joined: share.now(),
            share,
            limit: settings.bandwidth_limit.map(Limit::new),
            started: Instant::now(),
            most_lanes: AtomicUsize::new(0),
        })
    }

    /// Time since the start of the transfer.
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
        self.share.decision()
    }

    /// The length in bytes of the next range when `remaining` bytes of the whole transfer are left:
    /// shorter towards the end, so that all lanes finish together.
    pub fn range_bytes(&self, remaining: u64) -> u64 {
        self.share.range_bytes(remaining).min(self.limit_bytes().unwrap_or(u64::MAX))
    }

    /// Waits for room for `bytes` more in flight and for the rate limit.
    pub async fn acquire(&self, bytes: u64) -> Permit {
        let permit = self.room(bytes).await;
        self.keep_limit(bytes).await;
        permit
    }

    /// Waits for room for `bytes` more in flight, regardless of the rate limit.
    pub async fn room(&self, bytes: u64) -> Permit {
        self.share.acquire(Priority::Bulk, bytes).await
    }

    /// Like [`Flow::room`], but returns `None` instead of waiting.
    pub fn try_room(&self, bytes: u64) -> Option<Permit> {
        self.share.try_acquire(Priority::Bulk, bytes)
    }

    /// Enlarges a permit by `bytes` if there is room without waiting, and no rate limit, which would require waiting.
    pub fn try_grow(&self, permit: &mut Permit, bytes: u64) {
        if self.limit.is_none() {
            permit.try_grow(Priority::Bulk, bytes);
        }
    }

    /// Grants `bytes` even without room. For a caller that holds a resource (a lane) that the holders of all permits
    /// may be waiting for (deadlock otherwise).
    pub fn overdraw(&self, bytes: u64) -> Permit {
        self.share.overdraw(bytes)
    }

    /// Counts `bytes` against the rate limit and waits until they may move.
    pub async fn keep_limit(&self, bytes: u64) {
        if let Some(pause) = self.pay(bytes) {
            sleep(pause).await;
        }
    }

    /// Counts `bytes` against the rate limit; returns how long to wait before they may move, if at all.
    pub fn pay(&self, bytes: u64) -> Option<Duration> {
        let limit = self.limit.as_ref()?;
        Some(limit.lock().take(self.now(), bytes)).filter(|pause| !pause.is_zero())
    }

    /// Refunds `bytes` that were counted by [`Flow::pay`] but will not move.
    pub fn refund(&self, bytes: u64) {
        if let Some(limit) = &self.limit {
            limit.lock().refund(bytes);
        }
    }

    /// Maximum bytes per range under the rate limit; `None` without a limit.
    pub fn limit_bytes(&self) -> Option<u64> {
        self.limit.as_ref().map(|limit| limit.range_bytes)
    }

    /// Bytes that a lane delivers in `rtts` RTTs, from the measured goodput; 0 between disks.
    pub fn bytes_a_lane(&self, rtts: u32) -> u64 {
        self.share.bytes_a_lane(rtts)
    }

    /// The RTT of the path; zero until it is known, and between disks.
    pub fn rtt(&self) -> Duration {
        self.share.link().rtt.unwrap_or_default()
    }

    /// The long reads in flight on the path.
    pub fn long_reads(&self) -> LongReads {
        self.share.long_reads()
    }

    /// True if at least one side is behind a link.
    pub fn has_links(&self) -> bool {
        self.share.has_links()
    }

    /// True if several lanes are open, so that one may be slower than the others.
    pub fn has_lanes(&self) -> bool {
        self.has_links() && self.share.link().open > 1
    }

    /// True if a permit for `bytes` would be granted without waiting.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.share.has_room(Priority::Bulk, bytes)
    }

    /// Reports to the window that a range requested at `issued` has arrived.
    pub fn completed(&self, issued: Duration, first_byte: Option<Duration>, bytes: u64) {
        let first_byte = first_byte.map(|at| self.joined + at);
        self.share.completed(self.joined + issued, first_byte, bytes);
    }

    /// Reports to the window that a lane has nothing to read.
    pub fn idle_lane(&self) {
        self.share.idle_lane();
    }

    /// Reports to the window that an operation on the link failed.
    pub fn failed(&self, kind: ErrorKind) {
        self.share.failed(kind);
    }

    /// Polls the links' status and the window's timers. Call it often enough to follow lanes as they open.
    pub fn tick(&self) {
        if let Some(status) = self.share.tick() {
            self.most_lanes.fetch_max(status.open, Ordering::Relaxed);
        }
    }

    /// The link's status at the last tick, and the largest number of lanes open so far.
    pub fn link(&self) -> (LinkStatus, usize) {
        (self.share.link(), self.most_lanes.load(Ordering::Relaxed))
    }

    /// Bytes in flight and bytes held.
    #[cfg(test)]
    pub fn counted(&self) -> (u64, u64) {
        self.share.counted()
    }
}

impl Limit {
    fn new(bytes_per_second: u64) -> Self {
        let limiter = Limiter::new(bytes_per_second);
        Self { range_bytes: limiter.range_bytes(), limiter: Mutex::new(limiter) }
    }

    fn lock(&self) -> MutexGuard<'_, Limiter> {
        self.limiter.lock().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::Auto;

    fn flow() -> Arc<Flow> {
        let settings = Settings { window: Auto::Fixed(1 << 20), ..Settings::default() };
        Flow::new(&LinkBudgets::default(), &settings, &Links::default(), false)
    }

    #[tokio::test]
    async fn a_grant_to_a_dropped_task_is_released() {
        let flow = flow();
        let first = flow.acquire(1 << 20).await;
        let mut second = Box::pin(flow.acquire(512 << 10));
        assert!((&mut second).now_or_never().is_none(), "the window is full");
        drop(first);
        drop(second);
        assert!(flow.acquire(1 << 20).now_or_never().is_some(), "no permit is held");
    }

    #[tokio::test]
    async fn a_dropped_waiter_does_not_block_the_queue() {
        let flow = flow();
        let first = flow.acquire(1 << 20).await;
        let mut second = Box::pin(flow.acquire(512 << 10));
        assert!((&mut second).now_or_never().is_none(), "the window is full");
        drop(second);
        drop(first);
        assert!(flow.acquire(1 << 20).now_or_never().is_some(), "no permit is held");
    }

    #[tokio::test]
    async fn a_grant_waits_until_overdrawn_bytes_are_released() {
        let flow = flow();
        let first = flow.acquire(1 << 20).await;
        let over = flow.overdraw(256 << 10);
        drop(first);
        assert!(flow.acquire(1 << 20).now_or_never().is_none(), "some of it is overdrawn");
        drop(over);
        assert!(flow.acquire(1 << 20).now_or_never().is_some(), "no permit is held");
    }
}
