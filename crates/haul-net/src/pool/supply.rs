//! How many lanes to open, and when: the decisions of a pool, without I/O and with the time passed in.
//!
//! A lane is opened because a task needs one, and once the first is open or opening, because it is wished
//! for. After a refusal none is opened for a while, but the one without which there is none.

use std::time::{Duration, Instant};

use haul_storage::LinkStatus;

/// From this round trip on a path is long: the lanes that a transfer will want are opened side by side from
/// the beginning, because each takes as long as the first.
pub const LONG_RTT: Duration = Duration::from_millis(20);

/// After a refusal no further lane is tried for this long, doubled with each refusal in a row.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Decides how many lanes a pool opens.
#[derive(Debug)]
pub struct Supply {
    most_opening: usize,
    opening: usize,
    wished: usize,
    /// Lanes that a transfer will want over a long path, whatever the window wishes for before it has
    /// measured anything.
    expected: usize,
    is_long: bool,
    /// No more than this, whatever is wished for.
    most: usize,
    refused: usize,
    refused_in_a_row: u32,
    paused_until: Option<Instant>,
    /// Tasks with their queues.
    waiting: Vec<(u64, usize)>,
    tasks: u64,
    connect: Option<Duration>,
}

impl Supply {
    /// One lane is wished for, none is open. At most `most_opening` are opened at once.
    pub const fn new(most_opening: usize) -> Self {
        Self {
            most_opening,
            opening: 0,
            wished: 1,
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

    /// Wishes for `lanes` lanes.
    pub fn wish(&mut self, lanes: usize) {
        self.wished = lanes;
    }

    /// Expects a transfer that wants `lanes` lanes where the path is long, no more than are opened at once.
    pub fn expect(&mut self, lanes: usize) {
        self.expected = lanes.min(self.most_opening);
    }

    /// Lanes that a transfer will want over a long path.
    pub const fn expected(&self) -> usize {
        self.expected
    }

    /// Whether the path is long: expected lanes are wished for.
    pub fn on_path(&mut self, is_long: bool) {
        self.is_long = is_long;
    }

    /// Opens no more than `lanes`, whatever is wished for.
    pub fn cap(&mut self, lanes: usize) {
        self.most = lanes;
    }

    /// Lanes that there are to be.
    pub fn wished(&self) -> usize {
        let expected = if self.is_long { self.expected } else { 0 };
        self.wished.max(expected).clamp(1, self.most.max(1))
    }

    /// A task begins to wait in a queue. Gives its number.
    pub fn on_wait(&mut self, queue: usize) -> u64 {
        self.tasks += 1;
        self.waiting.push((self.tasks, queue));
        self.tasks
    }

    /// A task does not wait any longer.
    pub fn on_wait_over(&mut self, task: u64) {
        self.waiting.retain(|(waiting, _)| *waiting != task);
    }

    /// The queues that tasks wait in, one for each task, first come first.
    pub fn waiting(&self) -> Vec<usize> {
        self.waiting.iter().map(|(_, queue)| *queue).collect()
    }

    /// Whether a task waits.
    pub const fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Lanes that are being opened.
    pub const fn opening(&self) -> usize {
        self.opening
    }

    /// Whether a lane has ever been open.
    pub const fn has_been_open(&self) -> bool {
        self.connect.is_some()
    }

    /// Whether the last lane that was tried was refused.
    pub const fn is_refused(&self) -> bool {
        self.refused_in_a_row > 0
    }

    /// How many lanes to open now; they count as opening from here on. `open` are; waiting tasks need `missing`
    /// beyond those that are open, opening or wished for.
    pub fn to_open(&mut self, now: Instant, open: usize, missing: usize) -> usize {
        let there = open + self.opening;
        let first = usize::from(there == 0 && self.is_waited_for());
        let is_paused = self.paused_until.is_some_and(|until| now < until);
        // The others are worth it only with the first. While there is none and one was refused, those that are
        // opening are awaited, or no task ever learns that it fails.
        let has_begun = open > 0 || (self.opening > 0 && !self.is_refused());
        let wished = if has_begun { self.wished().saturating_sub(there) } else { 0 };
        let more = if is_paused { first } else { first.max(missing).max(wished) };
        let more = more.min(self.most_opening.saturating_sub(self.opening));
        self.opening += more;
        more
    }

    /// One has been opened, which took so long.
    pub fn on_open(&mut self, took: Duration) {
        self.opening -= 1;
        self.connect.get_or_insert(took);
    }

    /// One that has been opened is too much: it was no refusal.
    pub fn on_excess(&mut self) {
        self.opening -= 1;
    }

    /// One could not be opened, while `open` others are. Whether none is left or coming: the error is for all
    /// tasks that wait, and the next one finds out anew.
    pub fn on_failed(&mut self, now: Instant, open: usize) -> bool {
        self.opening -= 1;
        self.on_refused(now);
        let is_last = open + self.opening == 0;
        if is_last {
            self.paused_until = None;
            // None is opened for those who are about to learn that it failed.
            self.waiting.clear();
        }
        is_last
    }

    /// The server has refused a lane.
    pub fn on_refused(&mut self, now: Instant) {
        self.refused += 1;
        let pause = PAUSE * (1 << self.refused_in_a_row.min(5));
        self.refused_in_a_row += 1;
        self.paused_until = Some(now + pause.min(LONGEST_PAUSE));
    }

    /// The server has taken a lane in: the next refusal is the first in a row.
    pub fn on_taken_in(&mut self) {
        self.refused_in_a_row = 0;
    }

    /// So many open lanes were lost.
    pub fn on_lost(&mut self, lanes: usize) {
        self.refused += lanes;
    }

    /// What the link looks like, with `open` lanes, the shortest round trip and those of packets at present.
    pub fn status(
        &self,
        open: usize,
        rtt: Option<Duration>,
        at_present: impl IntoIterator<Item = Duration>,
    ) -> LinkStatus {
        LinkStatus {
            open,
            opening: self.opening,
            refused: self.refused,
            rtt,
            connect: self.connect,
            queueing: crate::queueing(at_present, rtt),
        }
    }
}
