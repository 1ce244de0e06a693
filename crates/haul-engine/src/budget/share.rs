//! One user's share of a budget, and its permits: the asynchronous shell around `machine`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haul_storage::{ErrorKind, LinkStatus};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::grants::{Priority, Ticket};
use super::hosts::HostLink;
use super::machine::Budget;
use crate::long::LongReads;
use crate::window::{Completion, Decision};

/// The budget of one path, shared by its members.
#[derive(Debug)]
pub struct LinkBudget {
    number: u64,
    state: Mutex<Budget<oneshot::Sender<()>>>,
    started: Instant,
    long_reads: LongReads,
}

impl LinkBudget {
    /// The budget with this number, by which hosts know it. Its clock starts now.
    pub fn new(number: u64, budget: Budget<oneshot::Sender<()>>) -> Arc<Self> {
        let (state, long_reads) = (Mutex::new(budget), LongReads::default());
        Arc::new(Self { number, state, started: Instant::now(), long_reads })
    }

    /// Whether the measurements are too old to be used.
    pub fn is_old(&self) -> bool {
        self.lock().is_old(self.started.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, Budget<oneshot::Sender<()>>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The share of one transfer or reader in the budget of a path.
///
/// Every range needs a [`Permit`] before it is requested. A permit counts twice: as in flight until its bytes have
/// arrived (bounded by the window of the path), and as held until they have been used (bounded by the
/// memory of this share). Dropping the share and its permits releases everything.
///
/// While bytes are in flight, call [`LinkShare::tick`] about every 25 ms.
#[derive(Debug)]
pub struct LinkShare {
    budget: Arc<LinkBudget>,
    member: u64,
    /// The hosts that are read.
    sources: Vec<HostLink>,
    /// The hosts that are written.
    destinations: Vec<HostLink>,
    /// The number of lanes last requested from the hosts.
    lanes: AtomicUsize,
}

impl LinkShare {
    /// Joins the budget of a path between these hosts; both lists are empty if both sides are disks. `memory` is in
    /// bytes.
    pub(super) fn join(
        budget: Arc<LinkBudget>,
        memory: u64,
        sources: Vec<HostLink>,
        destinations: Vec<HostLink>,
    ) -> Arc<Self> {
        let (member, lanes) = {
            let mut state = budget.lock();
            (state.join(budget.started.elapsed(), memory), state.lanes())
        };
        let last_lanes = AtomicUsize::new(lanes);
        let share = Self { budget, member, sources, destinations, lanes: last_lanes };
        share.set_target(lanes);
        Arc::new(share)
    }

    /// Waits until `bytes` more may be in flight.
    ///
    /// Permits are granted by priority, then in the order of the calls. A class that waits is passed over by at most
    /// seven grants to higher ones.
    pub async fn acquire(self: &Arc<Self>, priority: Priority, bytes: u64) -> Permit {
        let mut queued = {
            let mut state = self.lock();
            if state.try_grant(self.member, priority, bytes) {
                return self.permit(bytes);
            }
            let (granted, receiver) = oneshot::channel();
            let ticket = state.wait(self.member, priority, bytes, granted);
            Queued { share: self, bytes, ticket: Some(ticket), receiver }
        };
        // The sender is dropped only after the grant, or with the budget, which `self` keeps alive.
        drop((&mut queued.receiver).await);
        queued.ticket = None;
        self.permit(bytes)
    }

    /// Like [`LinkShare::acquire`], but returns `None` instead of waiting.
    pub fn try_acquire(self: &Arc<Self>, priority: Priority, bytes: u64) -> Option<Permit> {
        let is_granted = self.lock().try_grant(self.member, priority, bytes);
        is_granted.then(|| self.permit(bytes))
    }

    /// Grants `bytes` even without room. For a caller that holds a resource (a lane) that the holders of all permits
    /// may be waiting for (deadlock otherwise).
    pub fn overdraw(self: &Arc<Self>, bytes: u64) -> Permit {
        self.lock().overdraw(self.member, bytes);
        self.permit(bytes)
    }

    fn permit(self: &Arc<Self>, bytes: u64) -> Permit {
        Permit { share: Arc::clone(self), in_flight: bytes, held: bytes }
    }

    /// True if a permit for `bytes` would be granted without waiting.
    pub fn has_room(&self, priority: Priority, bytes: u64) -> bool {
        self.lock().would_grant(self.member, priority, bytes)
    }

    /// The clock of the budget: the time since it was created.
    pub fn now(&self) -> Duration {
        self.budget.started.elapsed()
    }

    /// The current decision of the window for this share: its number of files is divided equally among the users that
    /// hold or wait for permits.
    pub fn decision(&self) -> Decision {
        self.lock().decision(self.member)
    }

    /// The length in bytes of the next range when this user has `remaining` bytes left in all.
    pub fn range_bytes(&self, remaining: u64) -> u64 {
        self.lock().range_bytes(self.member, remaining)
    }

    /// Reports that a range of `bytes` has arrived. `issued` and `first_byte` are times of [`LinkShare::now`].
    pub fn completed(&self, issued: Duration, first_byte: Option<Duration>, bytes: u64) {
        let now = self.now();
        self.change(|state| state.on_completion(now, &Completion { bytes, issued, first_byte }));
    }

    /// Reports that a lane has nothing to read.
    pub(crate) fn idle_lane(&self) {
        let now = self.now();
        self.change(|state| state.on_idle_lane(now));
    }

    /// Reports that an operation on the link failed.
    pub fn failed(&self, kind: ErrorKind) {
        let now = self.now();
        self.change(|state| state.on_failure(now, kind));
    }

    /// Polls the links' status and the window's timers. Returns the status; `None` between disks.
    pub fn tick(&self) -> Option<LinkStatus> {
        let status = self.status()?;
        let now = self.now();
        self.change(|state| state.on_link(now, status));
        // Other paths of a host may have changed their target.
        self.set_target(self.lanes.load(Ordering::Relaxed));
        Some(status)
    }

    /// The link's status at the last tick.
    pub fn link(&self) -> LinkStatus {
        self.lock().link()
    }

    /// True if at least one side is behind a link.
    pub fn has_links(&self) -> bool {
        self.hosts().next().is_some()
    }

    /// Bytes that a lane delivers in `rtts` RTTs, from the measured goodput; 0 between disks.
    pub(crate) fn bytes_a_lane(&self, rtts: u32) -> u64 {
        self.lock().bytes_a_lane(rtts)
    }

    /// The long reads of all users of the path, which share its lanes.
    pub(crate) fn long_reads(&self) -> LongReads {
        self.budget.long_reads.clone()
    }

    /// Bytes in flight on the path, and bytes that this user holds.
    pub fn counted(&self) -> (u64, u64) {
        let state = self.lock();
        (state.in_flight(), state.held(self.member))
    }

    fn change(&self, change: impl FnOnce(&mut Budget<oneshot::Sender<()>>)) {
        let lanes = {
            let mut state = self.lock();
            change(&mut state);
            deliver(&mut state);
            state.lanes()
        };
        if self.lanes.swap(lanes, Ordering::Relaxed) != lanes {
            self.set_target(lanes);
        }
    }

    fn hosts(&self) -> impl Iterator<Item = &HostLink> {
        self.sources.iter().chain(&self.destinations)
    }

    /// The status of the path now; `None` between disks.
    fn status(&self) -> Option<LinkStatus> {
        let all = |hosts: &[HostLink]| {
            hosts.iter().map(|host| host.status(self.budget.number)).reduce(LinkStatus::beside)
        };
        match (all(&self.sources), all(&self.destinations)) {
            (Some(source), Some(destination)) => Some(source.behind(destination)),
            (one, other) => one.or(other),
        }
    }

    fn set_target(&self, lanes: usize) {
        self.hosts().for_each(|host| host.set_target(self.budget.number, lanes));
    }

    /// Releases the counts of a permit; `arrived` if its bytes were received, not abandoned.
    fn release(&self, in_flight: u64, held: u64, arrived: bool) {
        let now = self.now();
        let mut state = self.lock();
        state.release(now, self.member, (in_flight, held), arrived);
        deliver(&mut state);
    }

    fn lock(&self) -> MutexGuard<'_, Budget<oneshot::Sender<()>>> {
        self.budget.lock()
    }
}

/// Wakes the tasks whose requests were granted. A task that was dropped meanwhile has withdrawn its request.
fn deliver(state: &mut Budget<oneshot::Sender<()>>) {
    while let Some(granted) = state.poll_granted() {
        // A receiver that is being dropped releases the grant: see `Queued`.
        _ = granted.send(());
    }
}

impl Drop for LinkShare {
    fn drop(&mut self) {
        let is_last = {
            let mut state = self.lock();
            let is_last = state.leave(self.member);
            deliver(&mut state);
            is_last
        };
        if is_last {
            self.hosts().for_each(|host| host.leave(self.budget.number));
        }
    }
}

/// A request in the queue. If the waiting task is dropped after the grant, the grant is released.
struct Queued<'a> {
    share: &'a LinkShare,
    bytes: u64,
    /// `None` once the grant is taken.
    ticket: Option<Ticket>,
    receiver: oneshot::Receiver<()>,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let was_waiting = {
            let mut state = self.share.lock();
            let was_waiting = state.withdraw(self.share.member, ticket);
            deliver(&mut state);
            was_waiting
        };
        if !was_waiting {
            self.share.release(self.bytes, self.bytes, false);
        }
    }
}

/// Permission for bytes in flight and in memory; dropping it releases both.
#[derive(Debug)]
pub struct Permit {
    share: Arc<LinkShare>,
    in_flight: u64,
    held: u64,
}

impl Permit {
    /// Splits off a permit for `bytes`, or for fewer if this one has fewer. Bytes that have arrived are
    /// split off before bytes in flight.
    #[must_use]
    pub fn split(&mut self, bytes: u64) -> Self {
        let held = bytes.min(self.held);
        let arrived = self.held - self.in_flight;
        let in_flight = held.saturating_sub(arrived);
        self.in_flight -= in_flight;
        self.held -= held;
        Self { share: Arc::clone(&self.share), in_flight, held }
    }

    /// Adds another permit of the same member to this one.
    pub fn join(&mut self, mut other: Self) {
        debug_assert!(Arc::ptr_eq(&self.share, &other.share), "permits of two members");
        self.in_flight += std::mem::take(&mut other.in_flight);
        self.held += std::mem::take(&mut other.held);
    }

    /// Grows by `bytes` if there is room without waiting.
    pub fn try_grow(&mut self, priority: Priority, bytes: u64) {
        if self.share.lock().try_grant(self.share.member, priority, bytes) {
            self.in_flight += bytes;
            self.held += bytes;
        }
    }

    /// Bytes that may still arrive.
    pub const fn left(&self) -> u64 {
        self.in_flight
    }

    /// Bytes that are held.
    pub const fn held(&self) -> u64 {
        self.held
    }

    /// Reports that `bytes` have arrived: they are held, but no longer in flight.
    pub fn arrived(&mut self, bytes: u64) {
        let bytes = bytes.min(self.in_flight);
        self.in_flight -= bytes;
        self.share.release(bytes, 0, true);
    }

    /// Reports that all bytes have been used (written and hashed), and releases the permit.
    pub fn consumed(mut self) {
        let (in_flight, held) = (self.in_flight, self.held);
        (self.in_flight, self.held) = (0, 0);
        self.share.release(in_flight, held, true);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.share.release(self.in_flight, self.held, false);
    }
}
