//! haul's side of the link: issues ranges as decided and reports observations to the window, like the
//! real driver.

use std::collections::VecDeque;
use std::time::Duration;

use haul_engine::window::{Completion, Decision, Window};
use haul_storage::LinkStatus;

use super::{Arrival, Link};

/// The source of the decisions.
#[derive(Debug, Clone)]
pub(crate) enum Control {
    /// The controller under test.
    Window(Box<Window>),
    /// An oracle: the best numbers, known beforehand.
    Fixed(Decision),
}

/// A decision and when it was made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    pub(crate) time: Duration,
    pub(crate) lanes: usize,
    pub(crate) open: usize,
    pub(crate) window_bytes: u64,
    pub(crate) range_bytes: u64,
}

/// The least bytes that are reported at once, except at the end of a range.
const BLOCK: u64 = 64 << 10;

#[derive(Debug)]
pub(super) struct Driver {
    control: Control,
    arrival: Arrival,
    pub(super) link: LinkStatus,
    pub(super) in_flight: u64,
    lanes: Vec<LaneSide>,
    pub(super) points: Vec<Point>,
}

#[derive(Debug, Default)]
struct LaneSide {
    closed: bool,
    outstanding: u64,
    ranges: VecDeque<Issued>,
    /// Arrived and not yet reported.
    unreported: u64,
    /// Bytes that arrived in the last complete RTT, and in the present one.
    carried_before: u64,
    carried: u64,
    round_began: Duration,
}

/// The allowance of a new lane, in bytes.
const FIRST_ALLOWANCE: u64 = 256 << 10;

impl LaneSide {
    /// Its load in relation to what it can carry, as a backend computes it.
    fn load(&self) -> u64 {
        let allowance = (2 * self.carried_before.max(self.carried)).max(FIRST_ALLOWANCE);
        self.outstanding * 1000 / allowance
    }

    fn carry(&mut self, now: Duration, bytes: u64, rtt: Duration) {
        if now >= self.round_began + rtt {
            self.carried_before = std::mem::take(&mut self.carried);
            self.round_began = now;
        }
        self.carried += bytes;
    }
}

#[derive(Debug)]
struct Issued {
    bytes: u64,
    left: u64,
    issued: Duration,
    first_byte: Option<Duration>,
}

impl Driver {
    pub(super) fn new(control: Control, link: &Link) -> Self {
        let status = LinkStatus {
            open: 1,
            rtt: Some(link.rtt),
            connect: Some(link.rtt * link.lane_cost),
            ..LinkStatus::default()
        };
        let mut driver = Self {
            control,
            arrival: link.arrival,
            link: status,
            in_flight: 0,
            lanes: vec![LaneSide::default()],
            points: Vec::new(),
        };
        driver.report_link(Duration::ZERO);
        driver
    }

    pub(super) fn decision(&self) -> Decision {
        match &self.control {
            Control::Window(window) => window.decision(),
            Control::Fixed(decision) => *decision,
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<Duration> {
        match &self.control {
            Control::Window(window) => window.next_wakeup(),
            Control::Fixed(_) => None,
        }
    }

    pub(super) fn on_timeout(&mut self, now: Duration) {
        if let Control::Window(window) = &mut self.control {
            window.on_timeout(now);
        }
    }

    pub(super) fn report_link(&mut self, now: Duration) {
        if let Control::Window(window) = &mut self.control {
            window.on_link(now, self.link);
        }
    }

    pub(super) fn open_lane(&mut self) {
        self.lanes.push(LaneSide::default());
        self.link.open += 1;
    }

    /// Closes lanes beyond `target`; bytes in flight on them still arrive.
    pub(super) fn close_lanes(&mut self, target: usize) {
        while self.link.open > target {
            let last = self.lanes.iter().rposition(|lane| !lane.closed);
            let Some(last) = last else { return };
            self.lanes[last].closed = true;
            self.link.open -= 1;
        }
    }

    /// Takes the next range that may be issued, and its lane.
    pub(super) fn issue(&mut self, now: Duration) -> Option<(usize, u64)> {
        let decision = self.decision();
        let last = self.points.last();
        if last.is_none_or(|last| {
            last.window_bytes != decision.window_bytes
                || last.lanes != decision.lanes
                || last.open != self.link.open
        }) {
            self.points.push(Point {
                time: now,
                lanes: decision.lanes,
                open: self.link.open,
                window_bytes: decision.window_bytes,
                range_bytes: decision.range_bytes,
            });
        }
        if self.in_flight > 0 && self.in_flight + decision.range_bytes > decision.window_bytes {
            return None;
        }
        let open = self.lanes.iter().enumerate().filter(|(_, lane)| !lane.closed);
        let (index, _) = open.min_by_key(|(_, lane)| lane.load())?;
        let bytes = decision.range_bytes;
        let lane = &mut self.lanes[index];
        lane.outstanding += bytes;
        lane.ranges.push_back(Issued { bytes, left: bytes, issued: now, first_byte: None });
        self.in_flight += bytes;
        Some((index, bytes))
    }

    /// The next bytes of a lane have arrived, in order.
    pub(super) fn arrive(&mut self, now: Duration, index: usize, mut bytes: u64) {
        let rtt = self.link.rtt.unwrap_or_default();
        self.lanes[index].carry(now, bytes, rtt);
        while bytes > 0 {
            let lane = &mut self.lanes[index];
            let range = lane.ranges.front_mut().expect("only requested bytes are sent");
            range.first_byte.get_or_insert(now);
            let taken = bytes.min(range.left);
            bytes -= taken;
            range.left -= taken;
            lane.unreported += taken;
            if self.arrival == Arrival::Blocks && (lane.unreported >= BLOCK || range.left == 0) {
                let arrived = std::mem::take(&mut lane.unreported);
                lane.outstanding -= arrived;
                self.in_flight -= arrived;
                if let Control::Window(window) = &mut self.control {
                    window.on_progress(now, arrived, self.in_flight);
                }
            }
            let lane = &mut self.lanes[index];
            if let Some(done) = lane.ranges.pop_front() {
                if done.left > 0 {
                    lane.ranges.push_front(done);
                    continue;
                }
                if self.arrival == Arrival::Ranges {
                    lane.outstanding -= done.bytes;
                    lane.unreported = 0;
                    self.in_flight -= done.bytes;
                }
                if let Control::Window(window) = &mut self.control {
                    let Issued { bytes, issued, first_byte, .. } = done;
                    window.on_completion(now, &Completion { bytes, issued, first_byte });
                }
            }
        }
    }
}
