//! Simulated links: a deterministic discrete-event model of lanes over one bottleneck, in virtual time.
//!
//! ```text
//! driver (issues ranges as decided) ────request, ½ RTT────► server lane (BBR or CUBIC sender)
//!    ▲                                                             │ segments
//!    └──── in order, per lane ◄──── ½ RTT ◄──── bottleneck: drop-tail queue, rate, loss
//! ```
//!
//! `network` processes the events, `sender` models the server's kernel on each lane, `driver` models haul.

mod driver;
mod network;
mod sender;

use std::time::Duration;

pub(crate) use driver::{Control, Point};
pub(crate) use network::run;

/// Congestion control of the server's kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Congestion {
    /// BBR v1: paces at the measured rate and ignores single losses.
    Bbr,
    /// CUBIC with HyStart: reduces its window at each loss.
    Cubic,
}

/// When a byte counts as arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// With its block, as in reads.
    Blocks,
    /// With its whole range, as in writes.
    Ranges,
}

/// A change of the path's RTT and rate; the queue's capacity becomes one BDP of the new path.
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
    /// Maximum extra delay of a segment, without reordering.
    pub(crate) jitter: Duration,
    /// Bytes per second of the bottleneck.
    pub(crate) rate: f64,
    /// Capacity of the bottleneck's drop-tail queue in bytes.
    pub(crate) queue_bytes: f64,
    /// Probability that a packet of 1448 bytes is lost.
    pub(crate) loss: f64,
    /// Maximum unacknowledged bytes of a lane (socket buffers of both ends).
    pub(crate) lane_bytes: u64,
    /// Maximum bytes per second of a lane (one core's encryption, or a throttle).
    pub(crate) lane_rate: f64,
    /// RTTs until a lane is open; the first one is open from the start.
    pub(crate) lane_cost: u32,
    /// Maximum number of open lanes; further ones are refused.
    pub(crate) lane_limit: usize,
    /// Whether a lane has one request in flight at a time, like HTTP/1.1.
    pub(crate) one_request: bool,
    /// The server's delay before it starts to respond to a request.
    pub(crate) think: Duration,
    /// Bytes per second that the server produces for all lanes together, from each time on.
    pub(crate) server: Vec<(Duration, f64)>,
    /// Changes of the path, in order of time.
    pub(crate) changes: Vec<Change>,
    pub(crate) congestion: Congestion,
    pub(crate) arrival: Arrival,
    /// Whether the window reads the RTT from the local kernel.
    pub(crate) gauge: bool,
    /// Bytes per segment; larger segments are faster to simulate.
    pub(crate) segment: u64,
    pub(crate) length: Duration,
}

impl Link {
    /// A link without loss or jitter, with a queue of one BDP (at least 64 packets of 1448 bytes), BBR, and
    /// lanes of 6 MiB that take 9 RTTs to open, as SSH once did (now 4).
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

    /// The length of a round in which settling time is measured: the RTT (the shortest one, if the path
    /// changes), at least 10 ms.
    pub(crate) fn round(&self) -> Duration {
        let later = self.changes.iter().map(|change| change.rtt);
        later.fold(self.rtt, Duration::min).max(Duration::from_millis(10))
    }
}

/// One BDP, and at least 64 packets.
fn queue_bytes(rtt: Duration, rate: f64) -> f64 {
    (rate * rtt.as_secs_f64()).max(64.0 * 1448.0)
}

/// Results of a simulated run.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    link: Link,
    /// Bytes delivered per round.
    rounds: Vec<f64>,
    /// The decision at the start, and each time its lanes or window, or the open lanes, have changed.
    pub(crate) points: Vec<Point>,
    pub(crate) sent: u64,
    pub(crate) dropped: u64,
    /// Samples of the queue: time, and queueing delay.
    pub(crate) queues: Vec<(Duration, Duration)>,
    /// The largest number of lanes being opened at once.
    pub(crate) most_opening: usize,
    /// Lanes that were refused, in total.
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

    /// Utilization of the bottleneck in the second half of the run, in per cent.
    pub(crate) fn share(&self) -> f64 {
        100.0 * self.goodput(self.link.length / 2, self.link.length) / self.link.rate
    }

    /// Rounds after `from` until the mean goodput of four consecutive rounds first reaches nine tenths of
    /// `settled`.
    pub(crate) fn rounds_until(&self, from: Duration, settled: f64) -> usize {
        let round = self.link.round().as_secs_f64();
        let first = (from.as_secs_f64() / round) as usize;
        let wanted = 0.9 * settled * round * 4.0;
        let reached = self.rounds[first..].windows(4).position(|w| w.iter().sum::<f64>() >= wanted);
        reached.unwrap_or(self.rounds.len() - first)
    }

    /// Rounds from the start until goodput reaches nine tenths of that of the second half.
    pub(crate) fn rounds_to_settle(&self) -> usize {
        let settled = self.goodput(self.link.length / 2, self.link.length);
        self.rounds_until(Duration::ZERO, settled)
    }

    /// Percentage of segments that the full queue dropped.
    pub(crate) fn dropped_percent(&self) -> f64 {
        100.0 * self.dropped as f64 / self.sent.max(1) as f64
    }

    /// The median queueing delay between two times.
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

    /// The decision in effect at a time.
    pub(crate) fn at(&self, time: Duration) -> Point {
        *self.points.iter().rev().find(|point| point.time <= time).expect("one at the start")
    }

    /// Number of window changes of at least 5 % between two times, and the ratio of the largest to the
    /// smallest window.
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
