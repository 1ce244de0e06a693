//! The budget itself, without I/O: the window of a path, the queue for it, and how long nothing was in flight.
//!
//! `now` is the time since the budget was made, real or simulated.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use haul_storage::{ErrorKind, LinkStatus};

use super::grants::{Grants, Priority, Ticket};
use crate::window::{Completion, Decision, Window};

/// After this long without a byte in flight, measurements are discarded: other traffic may use the path by
/// now, and each lane begins with a slow start again (RFC 5681, section 4.1).
pub const QUIET: Duration = Duration::from_secs(60);

/// Smallest range in bytes when the end of a transfer is spread over the lanes.
const LEAST_RANGE: u64 = 256 << 10;

/// Bytes that a member with enough memory may hold (in flight or waiting for a disk), however small the window is.
const LEAST_HELD: u64 = 8 << 20;

/// Window and queue of one path, shared by its members: transfers and other readers. After each change
/// [`Budget::poll_granted`] returns what was granted by it.
#[derive(Debug)]
pub struct Budget<T> {
    pace: Pace,
    decision: Decision,
    grants: Grants<T>,
    granted: VecDeque<T>,
    /// Bytes that members have left to move.
    left: BTreeMap<u64, u64>,
    link: LinkStatus,
    /// When the last bytes in flight were released; `None` if none were since the measurements were discarded.
    quiet_since: Option<Duration>,
}

#[derive(Debug)]
enum Pace {
    /// No link to measure: between disks, a read and a write stage with a queue in between; or one user of a disk.
    Fixed,
    /// At least one side is behind a link: the window is measured.
    Measured(Box<Window>),
}

impl<T> Budget<T> {
    /// The budget of a path over links.
    pub fn measured(window: Window) -> Self {
        Self::new(window.decision(), Pace::Measured(Box::new(window)))
    }

    /// A budget that never changes.
    pub fn fixed(decision: Decision) -> Self {
        Self::new(decision, Pace::Fixed)
    }

    fn new(decision: Decision, pace: Pace) -> Self {
        let most_held = pace.most_held(decision.window_bytes);
        Self {
            grants: Grants::new(decision.window_bytes, most_held),
            pace,
            decision,
            granted: VecDeque::new(),
            left: BTreeMap::new(),
            link: LinkStatus::default(),
            quiet_since: None,
        }
    }

    /// Adds a member that may hold `memory` bytes. Returns its number.
    pub fn join(&mut self, now: Duration, memory: u64) -> u64 {
        if self.grants.is_empty()
            && self.quiet_since.is_some()
            && let Pace::Measured(window) = &mut self.pace
        {
            // There was no work since the last member left.
            window.on_pause(now);
        }
        self.discard_old(now);
        self.grants.join(memory)
    }

    /// Removes a member and withdraws its waiting requests. Returns whether it was the last.
    pub fn leave(&mut self, member: u64) -> bool {
        self.left.remove(&member);
        self.grants.leave(member);
        self.grant();
        self.grants.is_empty()
    }

    /// The window's decision for `member`: the files are shared among the members that are active.
    pub fn decision(&self, member: u64) -> Decision {
        let files = (self.decision.files / self.grants.active(member).max(1)).max(1);
        Decision { files, ..self.decision }
    }

    /// The target number of lanes.
    pub const fn lanes(&self) -> usize {
        self.decision.lanes
    }

    /// The length in bytes of the next range of `member`, which has `remaining` bytes left: shorter towards the end,
    /// so that all lanes finish together.
    pub fn range_bytes(&mut self, member: u64, remaining: u64) -> u64 {
        let range = self.decision.range_bytes;
        let Pace::Measured(window) = &mut self.pace else { return range };
        self.left.insert(member, remaining);
        window.on_left(self.left.values().fold(0, |sum, left| sum.saturating_add(*left)));
        let share = remaining / (2 * self.decision.lanes.max(1) as u64);
        // Leave room for the next ranges to be in flight while one is written.
        let room = (self.grants.most_held(member) / 4).max(LEAST_RANGE);
        range.min(share.max(LEAST_RANGE)).min(room)
    }

    /// Whether a request would be granted without waiting.
    pub fn would_grant(&self, member: u64, priority: Priority, bytes: u64) -> bool {
        self.grants.would_grant(member, priority, bytes)
    }

    /// Grants a request if it need not wait. Returns whether it was granted.
    pub fn try_grant(&mut self, member: u64, priority: Priority, bytes: u64) -> bool {
        self.grants.try_grant(member, priority, bytes)
    }

    /// Grants `bytes` even without room.
    pub fn overdraw(&mut self, member: u64, bytes: u64) {
        self.grants.overdraw(member, bytes);
    }

    /// Queues a request; `token` is returned once it is granted.
    pub fn wait(&mut self, member: u64, priority: Priority, bytes: u64, token: T) -> Ticket {
        self.grants.wait(member, priority, bytes, token)
    }

    /// Withdraws a request. Returns whether it was still waiting; otherwise it was granted and must be
    /// released.
    pub fn withdraw(&mut self, member: u64, ticket: Ticket) -> bool {
        let was_waiting = self.grants.withdraw(member, ticket);
        self.grant();
        was_waiting
    }

    /// A request that waited and has been granted.
    pub fn poll_granted(&mut self) -> Option<T> {
        self.granted.pop_front()
    }

    /// Releases bytes of a permit; `arrived` if they were received, not abandoned.
    pub fn release(
        &mut self,
        now: Duration,
        member: u64,
        (in_flight, held): (u64, u64),
        arrived: bool,
    ) {
        self.grants.release(member, in_flight, held);
        let left = self.grants.in_flight();
        // Bytes that have arrived may be held for long: their release does not show that the path was used.
        if left == 0 && in_flight > 0 {
            self.quiet_since = Some(now);
        }
        self.grant();
        let idle = self.grants.is_free(member, self.decision.range_bytes);
        let Pace::Measured(window) = &mut self.pace else { return };
        if arrived && in_flight > 0 {
            window.on_progress(now, in_flight, left);
        } else if idle {
            window.on_starved(now);
        }
    }

    /// A range has arrived.
    pub fn on_completion(&mut self, now: Duration, completion: &Completion) {
        self.change(|window| window.on_completion(now, completion));
    }

    /// A lane has nothing to read.
    pub fn on_idle_lane(&mut self, now: Duration) {
        self.change(|window| window.on_idle_lane(now));
    }

    /// An operation on the link failed.
    pub fn on_failure(&mut self, now: Duration, kind: ErrorKind) {
        self.change(|window| window.on_failure(now, kind));
    }

    /// Takes the state of the link and runs timers that are due. Call it often enough to follow lanes as
    /// they open.
    pub fn on_link(&mut self, now: Duration, link: LinkStatus) {
        self.discard_old(now);
        self.change(|window| {
            window.on_link(now, link);
            if window.next_wakeup().is_some_and(|at| at <= now) {
                window.on_timeout(now);
            }
        });
        self.link = link;
    }

    /// The last reported state of the link.
    pub const fn link(&self) -> LinkStatus {
        self.link
    }

    /// Bytes in flight.
    pub const fn in_flight(&self) -> u64 {
        self.grants.in_flight()
    }

    /// Bytes that `member` holds.
    pub fn held(&self, member: u64) -> u64 {
        self.grants.held(member)
    }

    /// Bytes that a lane delivers in `rtts` RTTs, from the measured goodput; 0 between disks.
    pub fn bytes_a_lane(&self, rtts: u32) -> u64 {
        let Pace::Measured(window) = &self.pace else { return 0 };
        let time = self.link.rtt.unwrap_or_default() * rtts;
        let lane = window.goodput() / self.link.open.max(1) as u64;
        (lane as f64 * time.as_secs_f64()) as u64
    }

    /// Whether there are no usable measurements: nothing has been in flight for [`QUIET`], or at all since the budget
    /// was made or its measurements were discarded.
    pub fn is_old(&self, now: Duration) -> bool {
        let is_quiet = self.grants.in_flight() == 0;
        is_quiet && self.quiet_since.is_none_or(|since| now >= since.saturating_add(QUIET))
    }

    fn discard_old(&mut self, now: Duration) {
        if self.quiet_since.is_some() && self.is_old(now) {
            self.quiet_since = None;
            self.change(|window| window.forget(now));
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut Window)) {
        let Pace::Measured(window) = &mut self.pace else { return };
        change(window);
        self.decision = window.decision();
        let most_held = self.pace.most_held(self.decision.window_bytes);
        self.grants.set_window(self.decision.window_bytes, most_held);
        self.grant();
    }

    fn grant(&mut self) {
        while let Some(token) = self.grants.poll_grant() {
            self.granted.push_back(token);
        }
    }
}

impl Pace {
    /// Maximum bytes that a member holds. Without a link it is the fixed window. With a link, a disk that stalls
    /// briefly may fall behind by a second window without stalling the link; more would only use memory.
    fn most_held(&self, window: u64) -> u64 {
        match self {
            Self::Fixed => window,
            Self::Measured(_) => window.saturating_mul(2).max(LEAST_HELD),
        }
    }
}
