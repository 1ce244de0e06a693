//! Samples a running command: bytes on the wire over time, and the memory of its processes.

use std::time::{Duration, Instant};

use super::stage::Wiring;
use crate::link::Traffic;
use crate::processes::{peak_rss, processes, tree};
use crate::record::ByteSample;

/// Interval between samples of the wire.
const WIRE: Duration = Duration::from_millis(100);
/// Interval between samples of the memory, longer because it lists all processes.
const MEMORY: Duration = Duration::from_millis(300);
/// When the first samples are taken, early because the command may be short.
const FIRST: Duration = Duration::from_millis(30);

#[derive(Debug)]
pub(super) struct Sampler {
    root: u32,
    before: Option<Traffic>,
    next_wire: Duration,
    next_memory: Duration,
    samples: Samples,
}

/// The samples taken.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// Traffic since the start of the command, in both directions, with the time of the sample.
    pub(super) wire: Vec<(Duration, Traffic)>,
    /// Peak resident memory of the largest process; 0 if no process was sampled.
    pub(super) peak_rss: u64,
}

impl Sampler {
    /// Samples process `root` and its descendants; `before` is the traffic before they started.
    pub(super) fn new(root: u32, before: Option<Traffic>) -> Self {
        Self { root, before, next_wire: FIRST, next_memory: FIRST, samples: Samples::default() }
    }

    /// Time until the next sample is due.
    pub(super) fn pause(&self, start: Instant) -> Duration {
        self.next_wire.min(self.next_memory).saturating_sub(start.elapsed())
    }

    /// Takes the samples that are due.
    pub(super) fn sample(&mut self, start: Instant, wiring: &Wiring) {
        let now = start.elapsed();
        if now >= self.next_wire {
            self.sample_wire(now, wiring);
            self.next_wire = now + WIRE;
        }
        if now >= self.next_memory {
            // If the processes cannot be listed now, the next sample tries again.
            let tree = processes().map(|all| tree(&all, self.root)).unwrap_or_default();
            let largest = tree.iter().filter_map(|process| peak_rss(process.id)).max();
            self.samples.peak_rss = self.samples.peak_rss.max(largest.unwrap_or(0));
            self.next_memory = start.elapsed() + MEMORY;
        }
    }

    /// Takes the last sample of the wire, at the end of the command.
    pub(super) fn end(mut self, end: Duration, wiring: &Wiring) -> Samples {
        self.sample_wire(end, wiring);
        self.samples
    }

    fn sample_wire(&mut self, now: Duration, wiring: &Wiring) {
        let Some((traffic, before)) = wiring.traffic().zip(self.before) else { return };
        let since = Traffic {
            up: traffic.up - before.up,
            down: traffic.down - before.down,
            dropped: traffic.dropped.zip(before.dropped).map(|(now, then)| now - then),
            lost: traffic.lost.zip(before.lost).map(|(now, then)| now - then),
        };
        self.samples.wire.push((now, since));
    }
}

impl Samples {
    /// The bytes over time in one direction.
    pub(super) fn course(&self, way: impl Fn(&Traffic) -> u64) -> Vec<ByteSample> {
        let point = |(at, traffic): &(Duration, Traffic)| ByteSample {
            at: (at.as_secs_f64() * 1e3).round() / 1e3,
            bytes: way(traffic),
        };
        self.wire.iter().map(point).collect()
    }

    /// The traffic in the last sample.
    pub(super) fn last(&self) -> Option<Traffic> {
        self.wire.last().map(|(_, traffic)| *traffic)
    }
}
