//! The bounds that follow from a profile and the caller's limits, computed once.

use std::time::Duration;

use super::limits::{Limits, MOST_LANES};
use crate::WindowProfile;

/// About what one TCP lane carries per RTT with default socket buffers (tcp_wmem of 4 MiB, half of it
/// overhead). Measured: 13.5 MB/s at 200 ms are 2.7 MB.
pub(super) const LANE_BYTES: u64 = 2 << 20;

/// The first window of each lane of a long path: what TCP carries in its first five RTTs.
pub(super) const FIRST_LANE_BYTES: u64 = 512 << 10;

/// Bytes per second. A lane that carries no more over a short path is limited by the link, or by the server
/// per connection; more lanes show which.
pub(super) const SLOW_LANE: f64 = 4e6;

/// From this RTT on it takes most of a second to learn what a path carries.
const SLOW_TO_LEARN: Duration = Duration::from_millis(100);

/// Where the search begins: enough to fill a gigabit at 30 ms, little enough for a slow line.
pub(super) const FIRST_WINDOW: u64 = 4 << 20;

const LEAST_WINDOW: u64 = 512 << 10;
const LEAST_MEMORY: u64 = 64 << 10;

/// The delay of both hosts in seconds, on top of the RTT: threads to wake, a disk block to write. It matters
/// on a LAN, and is negligible on a long path.
pub(super) const ENDS_DELAY: f64 = 0.004;

/// Bytes per second (25 Gbit/s), the fastest path that a window is made for.
const FASTEST: f64 = 3.125e9;

const RANGE_STEP: u64 = 64 << 10;
const LEAST_RANGE: u64 = 64 << 10;
const MOST_RANGE: u64 = 16 << 20;

/// Ranges of each lane that fit into the window, so that no lane waits for its next one.
const RANGES_PER_LANE: u64 = 4;

/// Minimum number of lanes for uploads: receiving is slower for a server than sending is for haul, and a server
/// uses one processor per connection. Measured on loopback with sshd: 1.17 instead of 1.50 s for 800 MB.
const LANES_FOR_WRITING: usize = 2;

/// Window in BDPs where each lane takes one request at a time: lanes wait an RTT between two ranges, which
/// matters little only if a range takes several RTTs.
const ONE_REQUEST_STRETCH: f64 = 4.0;

/// Limits and profile as plain numbers.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    pub(super) max_lanes: usize,
    pub(super) fixed_lanes: Option<usize>,
    /// The least lanes, also for a short path.
    least_lanes: usize,
    /// The most lanes that are opened for the RTT alone, before more is known.
    pub(super) most_first_lanes: usize,
    /// The rate, in bytes per second, that those lanes are for.
    hoped_rate: f64,
    /// The ratio by which the window may exceed the bytes of the last round, while these grow.
    pub(super) gain: f64,
    pub(super) fixed_files: Option<usize>,
    pub(super) max_files: usize,
    least_window: u64,
    most_window: u64,
    /// The limit of `most_window` for any path.
    allowed_window: u64,
    chunk: Option<u64>,
    ranges_per_lane: u64,
    /// The least bytes in flight for each byte on the path.
    pub(super) least_stretch: f64,
    /// The backend bounds the bytes on the path.
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

    /// Whether a lane takes one request at a time.
    pub(super) fn has_one_request_a_lane(&self) -> bool {
        self.least_stretch > 1.0
    }

    /// Whether the window cannot change: the caller has set it, or `memory` is at most [`LEAST_WINDOW`].
    pub(super) const fn is_window_fixed(&self) -> bool {
        self.least_window >= self.allowed_window
    }

    pub(super) const fn bounded_elsewhere(&mut self) {
        self.bounded_elsewhere = true;
    }

    pub(super) const fn is_bounded_elsewhere(&self) -> bool {
        self.bounded_elsewhere
    }

    /// The first window of `lanes` lanes on a long path: enough for their slow start until there are
    /// measurements. If the backend bounds the bytes on the path, and measuring takes long
    /// ([`SLOW_TO_LEARN`]), all that they can carry.
    pub(super) fn first_window(&self, lanes: usize, rtt: Duration) -> u64 {
        let all = self.bounded_elsewhere && rtt >= SLOW_TO_LEARN;
        let each = if all { LANE_BYTES } else { FIRST_LANE_BYTES };
        each * lanes as u64
    }

    /// The room for `lanes` new lanes besides the bytes requested on others.
    pub(super) const fn room_for(lanes: usize) -> u64 {
        FIRST_LANE_BYTES * lanes as u64
    }

    pub(super) const fn written_to(&mut self) {
        self.least_lanes = LANES_FOR_WRITING;
    }

    /// The nearest window that is allowed with `lanes` lanes: every lane has a range in transfer and others
    /// waiting.
    pub(super) fn clamp_window(&self, bytes: f64, lanes: usize) -> u64 {
        let least = self
            .least_window
            .max(RANGES_PER_LANE * LEAST_RANGE * lanes as u64)
            .min(self.most_window);
        // A cast from float saturates, and NaN becomes 0.
        (bytes as u64).clamp(least, self.most_window)
    }

    /// Lanes for a path of this RTT before anything else is known: enough for the hoped-for rate (a gigabit
    /// by default), if each carries [`LANE_BYTES`] per RTT. One up to 16 ms (two to write), 3 at 50 ms, 12
    /// at 200 ms.
    pub(super) fn lanes_for_path(&self, rtt: Duration) -> usize {
        let lanes = (rtt.as_secs_f64() * self.hoped_rate / LANE_BYTES as f64).ceil();
        let most = self.most_first_lanes.min(self.max_lanes);
        (lanes as usize).clamp(self.least_lanes.min(most), most)
    }

    /// Limits the window to what a path of this RTT can use. Goodput on a short path scatters, so a wider
    /// window may seem to help and only costs memory.
    pub(super) fn on_rtt(&mut self, rtt: Duration) {
        let seconds = (rtt.as_secs_f64() + ENDS_DELAY) * self.least_stretch;
        self.most_window =
            ((FASTEST * seconds) as u64).clamp(self.least_window, self.allowed_window);
    }

    /// The length of a range: the caller's, or such that the window holds [`RANGES_PER_LANE`] for every lane (one if a
    /// lane takes one request at a time); at most `most` if that is given, and halved `halvings` times.
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
