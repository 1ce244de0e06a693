//! Simulated links: a deterministic discrete-event model of lanes over one bottleneck, in virtual
//! time.
//!
//! ```text
//! driver (issues ranges as decided) ──request, ½ round trip──► server lane (BBR or CUBIC sender)
//!    ▲                                                             │ segments
//!    └──── in order, per lane ◄── ½ round trip ◄── bottleneck: drop-tail queue, rate, loss
//! ```
//!
//! `network` has the events, `sender` what a kernel does on each lane, `driver` the side of haul.

mod driver;
mod network;
mod sender;

use std::time::Duration;

pub(crate) use driver::{Control, Point};
pub(crate) use network::run;

/// What a kernel does to avoid congestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Congestion {
    /// BBR v1: paces by the measured rate, does not mind single losses.
    Bbr,
    /// CUBIC with HyStart: gives way at each loss.
    Cubic,
}

/// When a byte counts as arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// With its block, as when reading.
    Blocks,
    /// With its whole range, as when writing.
    Ranges,
}

/// From a time on the path has another round trip and rate, and a queue of one BDP of these.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change {
    pub(crate) at: Duration,
    pub(crate) rtt: Duration,
    pub(crate) rate: f64,
}

/// A link and the server behind it.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) name: &'static str,
    pub(crate) rtt: Duration,
    /// Up to so much is added to each segment's way, without reordering.
    pub(crate) jitter: Duration,
    /// Bytes per second of the bottleneck.
    pub(crate) rate: f64,
    /// Bytes that wait before the bottleneck; what comes on top is dropped.
    pub(crate) queue_bytes: f64,
    /// Part of the packets of 1448 bytes that is lost at random.
    pub(crate) loss: f64,
    /// Unacknowledged bytes that a lane may have (socket buffers of both ends).
    pub(crate) lane_bytes: u64,
    /// Bytes per second of one lane at most (one core's encryption, a throttle).
    pub(crate) lane_rate: f64,
    /// Round trips until a lane is open; the first one is open from the start.
    pub(crate) lane_cost: u32,
    /// Open lanes at most; one more is refused.
    pub(crate) lane_limit: usize,
    /// Whether a lane has one request in flight at a time, like HTTP/1.1.
    pub(crate) one_request: bool,
    /// What the server needs before it begins to answer a request.
    pub(crate) think: Duration,
    /// From each time on, the bytes per second that the server produces for all lanes together.
    pub(crate) server: Vec<(Duration, f64)>,
    /// What becomes of the path, in order of time.
    pub(crate) changes: Vec<Change>,
    pub(crate) congestion: Congestion,
    pub(crate) arrival: Arrival,
    /// Whether the near kernel's round trips are looked at.
    pub(crate) gauge: bool,
    /// Bytes of a segment; larger is faster to simulate.
    pub(crate) segment: u64,
    pub(crate) length: Duration,
}

impl Link {
    /// A clean link with a queue of one BDP (at least 64 segments of 1448 bytes), lanes of 6 MiB
    /// that take 9 round trips to open as those of SSH do, and BBR, as measured in the design.
    pub(crate) fn new(name: &'static str, rtt_ms: f64, megabits: f64) -> Self {
        let rtt = Duration::from_secs_f64(rtt_ms / 1000.0);
        let rate = megabits * 125_000.0;
        let changes = Vec::new();
        Self {
            name,
            rtt,
            jitter: Duration::ZERO,
            rate,
            queue_bytes: queue_bytes(rtt, rate),
            loss: 0.0,
            lane_bytes: 6 << 20,
            lane_rate: f64::INFINITY,
            lane_cost: 9,
            lane_limit: usize::MAX,
            one_request: false,
            think: Duration::ZERO,
            server: vec![(Duration::ZERO, f64::INFINITY)],
            changes,
            congestion: Congestion::Bbr,
            arrival: Arrival::Blocks,
            gauge: false,
            segment: 16 << 10,
            length: rtt.mul_f64(200.0).max(Duration::from_secs(5)),
        }
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// What one round is, for time to settle: a round trip, or 10 ms where that is longer. The shortest
    /// where the path changes.
    pub(crate) fn round(&self) -> Duration {
        let later = self.changes.iter().map(|change| change.rtt);
        later.fold(self.rtt, Duration::min).max(Duration::from_millis(10))
    }
}

/// One BDP, and at least 64 packets.
fn queue_bytes(rtt: Duration, rate: f64) -> f64 {
    (rate * rtt.as_secs_f64()).max(64.0 * 1448.0)
}

/// What a run has shown.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    link: Link,
    /// Bytes delivered in each round.
    rounds: Vec<f64>,
    /// Decisions, whenever they changed.
    pub(crate) points: Vec<Point>,
    pub(crate) sent: u64,
    pub(crate) dropped: u64,
    /// When the queue was looked at, and how long it was.
    pub(crate) queues: Vec<(Duration, Duration)>,
    /// The largest number of lanes that were being opened at a time, and that were refused.
    pub(crate) most_opening: usize,
    pub(crate) refused: usize,
}

impl Run {
    /// Mean goodput between two times, bytes per second.
    pub(crate) fn goodput(&self, from: Duration, to: Duration) -> f64 {
        let round = self.link.round().as_secs_f64();
        let index = |time: Duration| (time.as_secs_f64() / round) as usize;
        let (first, last) = (index(from), index(to).min(self.rounds.len()));
        self.rounds[first..last].iter().sum::<f64>() / ((last - first) as f64 * round)
    }

    /// Share of the bottleneck, in per cent, in the second half of the run.
    pub(crate) fn share(&self) -> f64 {
        100.0 * self.goodput(self.link.length / 2, self.link.length) / self.link.rate
    }

    /// Rounds after `from` until goodput reaches nine tenths of `settled` for good: on average
    /// over the four rounds that follow.
    pub(crate) fn rounds_until(&self, from: Duration, settled: f64) -> usize {
        let round = self.link.round().as_secs_f64();
        let first = (from.as_secs_f64() / round) as usize;
        let wanted = 0.9 * settled * round * 4.0;
        let reached = self.rounds[first..].windows(4).position(|w| w.iter().sum::<f64>() >= wanted);
        reached.unwrap_or(self.rounds.len() - first)
    }

    /// Rounds until it has reached what it moves in the second half.
    pub(crate) fn rounds_to_settle(&self) -> usize {
        let settled = self.goodput(self.link.length / 2, self.link.length);
        self.rounds_until(Duration::ZERO, settled)
    }

    /// Percentage of segments that the full queue dropped.
    pub(crate) fn dropped_percent(&self) -> f64 {
        100.0 * self.dropped as f64 / self.sent.max(1) as f64
    }

    /// The median queue between two times.
    pub(crate) fn queue(&self, from: Duration, to: Duration) -> Duration {
        let between = self.queues.iter().filter(|(at, _)| (from..to).contains(at));
        let mut queues: Vec<Duration> = between.map(|(_, queue)| *queue).collect();
        queues.sort();
        queues[queues.len() / 2]
    }

    /// The last decision.
    pub(crate) fn end(&self) -> Point {
        *self.points.last().expect("there is a decision from the start")
    }

    /// Decision at a time.
    pub(crate) fn at(&self, time: Duration) -> Point {
        *self.points.iter().rev().find(|point| point.time <= time).expect("one at the start")
    }

    /// How often the window changed by a twentieth or more between two times, and its largest
    /// divided by its smallest.
    pub(crate) fn swing(&self, from: Duration, to: Duration) -> (usize, f64) {
        let mut window = self.at(from).window_bytes;
        let (mut least, mut most, mut changes) = (window, window, 0);
        for point in self.points.iter().filter(|point| point.time > from && point.time < to) {
            if point.window_bytes.abs_diff(window) * 20 >= window {
                changes += 1;
                window = point.window_bytes;
                least = least.min(window);
                most = most.max(window);
            }
        }
        (changes, most as f64 / least as f64)
    }
}
