//! What a profile and the caller's limits allow, worked out once.

use std::time::Duration;

use super::limits::{Limits, MOST_LANES};
use crate::WindowProfile;

/// About what one TCP lane carries in a round trip with default socket buffers (tcp_wmem of 4 MiB,
/// half of it overhead). Measured: 13.5 MB/s at 200 ms are 2.7 MB.
pub(super) const LANE_BYTES: u64 = 2 << 20;

/// With what each lane of a long path begins: what TCP carries in its first five round trips.
pub(super) const FIRST_LANE_BYTES: u64 = 512 << 10;

/// Bytes per second. A lane that carries no more over a short path meets a limit, of the link or of the
/// server for each connection; more lanes tell.
pub(super) const SLOW_LANE: f64 = 4e6;

/// From this round trip on it takes most of a second to learn what a path carries.
const SLOW_TO_LEARN: Duration = Duration::from_millis(100);

/// Where the search begins: enough to fill a gigabit at 30 ms, little enough for a slow line.
pub(super) const FIRST_WINDOW: u64 = 4 << 20;

const LEAST_WINDOW: u64 = 512 << 10;
const LEAST_MEMORY: u64 = 64 << 10;

/// The ends' own share of a round trip: threads to wake, a disk block to write. Covers what keeps
/// a LAN busy, and is nothing on a long path.
pub(super) const ENDS_DELAY: f64 = 0.004;

/// Bytes per second (25 Gbit/s) that no path exceeds, as far as its window goes.
const FASTEST: f64 = 3.125e9;

const RANGE_STEP: u64 = 64 << 10;
const LEAST_RANGE: u64 = 64 << 10;
const MOST_RANGE: u64 = 16 << 20;

/// So many ranges of each lane fit the window, that no lane waits for its next one.
const RANGES_PER_LANE: u64 = 4;

/// To receive takes a server longer than to send takes haul, and a connection is one processor's work
/// there. Measured on loopback with sshd: 1.17 instead of 1.50 s for 800 MB.
const LANES_FOR_WRITING: usize = 2;

/// Window in BDPs that one request at a time on each lane asks for: lanes wait a round trip between
/// two ranges, and only with ranges that take several round trips does that not matter much.
const ONE_REQUEST_STRETCH: f64 = 4.0;

/// Limits and profile as plain numbers.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    pub(super) max_lanes: usize,
    pub(super) fixed_lanes: Option<usize>,
    /// Lanes that any path deserves, however short.
    least_lanes: usize,
    /// Lanes that are opened for the round trip alone, before more is known.
    pub(super) most_first_lanes: usize,
    /// The rate, in bytes per second, that those lanes are meant for.
    hoped_rate: f64,
    /// By how much the window may exceed what the last round delivered, while that grows.
    pub(super) gain: f64,
    pub(super) fixed_files: Option<usize>,
    pub(super) max_files: usize,
    least_window: u64,
    most_window: u64,
    /// What `most_window` may be, whatever the path.
    allowed_window: u64,
    chunk: Option<u64>,
    ranges_per_lane: u64,
    /// Bytes in flight for each byte on the path, at least.
    pub(super) least_stretch: f64,
    /// Something else bounds what is on the path.
    bounded_elsewhere: bool,
}

impl Bounds {
    pub(super) fn new(limits: Limits) -> Self {
        const GIGABIT: f64 = 125e6;
        let (most_first_lanes, hoped_rate, gain, max_files) = match limits.profile {
            WindowProfile::Safe => (4, GIGABIT / 2.0, 1.5, 64),
            WindowProfile::Default => (16, GIGABIT, 1.5, 512),
            WindowProfile::Aggressive => (32, GIGABIT * 2.0, 2.0, 1024),
        };
        let storage_lanes = limits.max_lanes.clamp(1, MOST_LANES);
        let fixed_lanes = limits.lanes.fixed().map(|lanes| lanes.clamp(1, storage_lanes));
        let memory = limits.memory.max(LEAST_MEMORY);
        let fixed_window = limits.window.fixed().map(|window| window.max(1).min(memory));
        Self {
            max_lanes: limits.most_lanes(),
            fixed_lanes,
            least_lanes: 1,
            most_first_lanes,
            hoped_rate,
            gain,
            fixed_files: limits.files.fixed().map(|files| files.max(1)),
            max_files,
            least_window: fixed_window.unwrap_or(LEAST_WINDOW.min(memory)),
            most_window: fixed_window.unwrap_or(memory),
            allowed_window: fixed_window.unwrap_or(memory),
            chunk: limits.chunk.fixed().map(|chunk| chunk.max(1)),
            ranges_per_lane: RANGES_PER_LANE,
            least_stretch: 1.0,
            bounded_elsewhere: false,
        }
    }

    pub(super) fn one_request_a_lane(&mut self) {
        self.ranges_per_lane = 1;
        self.least_stretch = ONE_REQUEST_STRETCH;
    }

    /// Whether a lane takes no request while one is being answered.
    pub(super) fn has_one_request_a_lane(&self) -> bool {
        self.least_stretch > 1.0
    }

    /// Whether the caller has said how wide the window is.
    pub(super) const fn is_window_fixed(&self) -> bool {
        self.least_window >= self.allowed_window
    }

    pub(super) const fn bounded_elsewhere(&mut self) {
        self.bounded_elsewhere = true;
    }

    pub(super) const fn is_bounded_elsewhere(&self) -> bool {
        self.bounded_elsewhere
    }

    /// With how much so many lanes of a long path begin: enough to double what they carry while nothing
    /// is known yet. Where what is on the path is bounded elsewhere, all that they can carry, if it takes
    /// long to learn more.
    pub(super) fn first_window(&self, lanes: usize, rtt: Duration) -> u64 {
        let all = self.bounded_elsewhere && rtt >= SLOW_TO_LEARN;
        let each = if all { LANE_BYTES } else { FIRST_LANE_BYTES };
        each * lanes as u64
    }

    /// What so many new lanes are given beside what others have been asked for.
    pub(super) const fn room_for(lanes: usize) -> u64 {
        FIRST_LANE_BYTES * lanes as u64
    }

    pub(super) const fn written_to(&mut self) {
        self.least_lanes = LANES_FOR_WRITING;
    }

    /// The nearest window that is allowed with so many lanes: every lane has something to do and
    /// something waiting.
    pub(super) fn clamp_window(&self, bytes: f64, lanes: usize) -> u64 {
        let least = self
            .least_window
            .max(RANGES_PER_LANE * LEAST_RANGE * lanes as u64)
            .min(self.most_window);
        // A cast from float saturates, and NaN becomes 0.
        (bytes as u64).clamp(least, self.most_window)
    }

    /// Lanes that a path of this round trip deserves before anything else is known: enough for
    /// the hoped-for rate (a gigabit by default), if each carries [`LANE_BYTES`] a round trip.
    /// One up to 16 ms (two to write), 3 at 50 ms, 12 at 200 ms.
    pub(super) fn lanes_for_path(&self, rtt: Duration) -> usize {
        let lanes = (rtt.as_secs_f64() * self.hoped_rate / LANE_BYTES as f64).ceil();
        let most = self.most_first_lanes.min(self.max_lanes);
        (lanes as usize).clamp(self.least_lanes.min(most), most)
    }

    /// What a path of this round trip can make use of. Goodput on a short one scatters, and a wider window
    /// that seemed to gain by it is only memory.
    pub(super) fn on_round_trip(&mut self, rtt: Duration) {
        let seconds = (rtt.as_secs_f64() + ENDS_DELAY) * self.least_stretch;
        self.most_window =
            ((FASTEST * seconds) as u64).clamp(self.least_window, self.allowed_window);
    }

    /// Bytes of a range: every lane has several in the window. No more than `most`, if that is said.
    pub(super) fn range_after(
        &self,
        window: u64,
        lanes: usize,
        most: Option<u64>,
        halvings: u32,
    ) -> u64 {
        if let Some(chunk) = self.chunk {
            return chunk;
        }
        let share = window / (lanes as u64 * self.ranges_per_lane);
        let most = most.map_or(MOST_RANGE, |most| most.clamp(LEAST_RANGE, MOST_RANGE));
        let range = (share.clamp(LEAST_RANGE, most) >> halvings.min(8)).max(RANGE_STEP);
        (range / RANGE_STEP * RANGE_STEP).min(window)
    }
}
