//! Decides how many lanes a pool opens and when, without I/O and with the time passed in.
//!
//! Lanes are opened for waiting tasks and, once the first is open or opening, up to a target
//! number. After a refusal no lane is opened for a pause, except when there is no lane and a task waits.

use std::time::{Duration, Instant};

use haul_storage::LinkStatus;

/// The RTT from which a path is long: all lanes that a transfer is expected to use are then opened concurrently at the
/// start, because each takes as long to open as the first.
pub const LONG_RTT: Duration = Duration::from_millis(20);

/// The pause before another lane is opened after a refusal, doubled with each consecutive refusal up to
/// `LONGEST_PAUSE`.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Decides how many lanes a pool opens.
#[derive(Debug)]
pub struct Supply {
    most_opening: usize,
    opening: usize,
    target: usize,
    /// Lanes to open at once on a long path, regardless of the target, which starts low before the window has
    /// measured.
    expected: usize,
    is_long: bool,
    /// Maximum number of lanes, regardless of the target.
    most: usize,
    refused: usize,
    refused_in_a_row: u32,
    paused_until: Option<Instant>,
    /// Waiting tasks: their number and queue, oldest first.
    waiting: Vec<(u64, usize)>,
    tasks: u64,
    connect: Option<Duration>,
}

impl Supply {
    /// Starts with a target of one lane. At most `most_opening` lanes are being opened at once.
    pub const fn new(most_opening: usize) -> Self {
        Self {
            most_opening,
            opening: 0,
            target: 1,
            expected: 0,
            is_long: false,
            most: usize::MAX,
            refused: 0,
            refused_in_a_row: 0,
            paused_until: None,
            waiting: Vec::new(),
            tasks: 0,
            connect: None,
        }
    }

    /// Sets the target number of lanes.
    pub fn set_target(&mut self, lanes: usize) {
        self.target = lanes;
    }

    /// Expects a transfer that uses `lanes` lanes if the path is long; limited to `most_opening`.
    pub fn expect(&mut self, lanes: usize) {
        self.expected = lanes.min(self.most_opening);
    }

    /// Lanes that a transfer is expected to use on a long path.
    pub const fn expected(&self) -> usize {
        self.expected
    }

    /// Sets whether the path is long; if so, the target is at least the number of expected lanes.
    pub fn on_path(&mut self, is_long: bool) {
        self.is_long = is_long;
    }

    /// Sets the maximum number of lanes, regardless of the target.
    pub fn cap(&mut self, lanes: usize) {
        self.most = lanes;
    }

    /// The target number of lanes, at least 1.
    pub fn target(&self) -> usize {
        let expected = if self.is_long { self.expected } else { 0 };
        self.target.max(expected).clamp(1, self.most.max(1))
    }

    /// Records that a task waits in `queue`. Returns its number.
    pub fn on_wait(&mut self, queue: usize) -> u64 {
        self.tasks += 1;
        self.waiting.push((self.tasks, queue));
        self.tasks
    }

    /// Records that a task no longer waits.
    pub fn on_wait_over(&mut self, task: u64) {
        self.waiting.retain(|(waiting, _)| *waiting != task);
    }

    /// The queues of the waiting tasks, one per task, oldest first.
    pub fn waiting(&self) -> Vec<usize> {
        self.waiting.iter().map(|(_, queue)| *queue).collect()
    }

    /// Whether a task waits.
    pub const fn has_waiting_tasks(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Lanes that are being opened.
    pub const fn opening(&self) -> usize {
        self.opening
    }

    /// Whether a lane has ever been opened.
    pub const fn has_been_open(&self) -> bool {
        self.connect.is_some()
    }

    /// Whether the server has refused a lane since it last accepted one.
    pub const fn is_refused(&self) -> bool {
        self.refused_in_a_row > 0
    }

    /// How many lanes to open now; they count as opening from then on. `open` lanes are open, and `missing` more are
    /// needed beside these and those that are opening, whatever the target.
    pub fn to_open(&mut self, now: Instant, open: usize, missing: usize) -> usize {
        let count = open + self.opening;
        let first = usize::from(count == 0 && self.has_waiting_tasks());
        let is_paused = self.paused_until.is_some_and(|until| now < until);
        // Further lanes are of use only with a first one. If none is open after a refusal, those that are opening
        // have to end first: otherwise there would always be one, and waiting tasks would never get the error.
        let has_begun = open > 0 || (self.opening > 0 && !self.is_refused());
        let target = if has_begun { self.target().saturating_sub(count) } else { 0 };
        let more = if is_paused { first } else { first.max(missing).max(target) };
        let more = more.min(self.most_opening.saturating_sub(self.opening));
        self.opening += more;
        more
    }

    /// Records that a lane was opened, and how long that took.
    pub fn on_open(&mut self, took: Duration) {
        self.opening -= 1;
        self.connect.get_or_insert(took);
    }

    /// Records that a lane was opened but is no longer needed, which does not count as a refusal.
    pub fn on_excess(&mut self) {
        self.opening -= 1;
    }

    /// Records that a lane could not be opened, while `open` others are open. Returns whether no lane is open or
    /// opening: then all waiting tasks get the error, and the next task tries again without a pause.
    pub fn on_failed(&mut self, now: Instant, open: usize) -> bool {
        self.opening -= 1;
        self.on_refused(now);
        let is_last = open + self.opening == 0;
        if is_last {
            self.paused_until = None;
            // These tasks get the error, so no lane is opened for them.
            self.waiting.clear();
        }
        is_last
    }

    /// Records that the server refused a lane.
    pub fn on_refused(&mut self, now: Instant) {
        self.refused += 1;
        let pause = PAUSE * (1 << self.refused_in_a_row.min(5));
        self.refused_in_a_row += 1;
        self.paused_until = Some(now + pause.min(LONGEST_PAUSE));
    }

    /// Records that the server accepted a lane, which ends a series of refusals.
    pub fn on_admitted(&mut self) {
        self.refused_in_a_row = 0;
    }

    /// Records that `lanes` open lanes were lost.
    pub fn on_lost(&mut self, lanes: usize) {
        self.refused += lanes;
    }

    /// The state of the link with `open` lanes; `rtt` is the shortest RTT seen, `current_rtts` the current RTTs of the
    /// lanes.
    pub fn status(
        &self,
        open: usize,
        rtt: Option<Duration>,
        current_rtts: impl IntoIterator<Item = Duration>,
    ) -> LinkStatus {
        LinkStatus {
            open,
            opening: self.opening,
            refused: self.refused,
            rtt,
            connect: self.connect,
            queueing: crate::queueing(current_rtts, rtt),
            path: None,
        }
    }
}
