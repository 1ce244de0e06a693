//! What can only be seen while a command runs: bytes on the wire over time, memory of its processes.

use std::time::{Duration, Instant};

use super::stage::Wiring;
use crate::link::Passed;
use crate::processes::{peak_rss, processes, tree};
use crate::record::WireSample;

/// Between two looks at the wire.
const WIRE: Duration = Duration::from_millis(100);
/// Between two looks at all processes, which cost more.
const MEMORY: Duration = Duration::from_millis(300);
/// Soon after the start, for commands that end soon.
const FIRST: Duration = Duration::from_millis(30);

#[derive(Debug)]
pub(super) struct Sampler {
    root: u32,
    before: Option<Passed>,
    next_wire: Duration,
    next_memory: Duration,
    samples: Samples,
}

/// What was seen.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// Since the start of the command; both ways.
    pub(super) wire: Vec<(Duration, Passed)>,
    /// Of the largest process; 0 when none was seen.
    pub(super) peak_rss: u64,
}

impl Sampler {
    /// Of process `root` and its children; `before` is what had passed before they started.
    pub(super) fn new(root: u32, before: Option<Passed>) -> Self {
        Self { root, before, next_wire: FIRST, next_memory: FIRST, samples: Samples::default() }
    }

    /// How long nothing has to be looked at.
    pub(super) fn pause(&self, start: Instant) -> Duration {
        self.next_wire.min(self.next_memory).saturating_sub(start.elapsed())
    }

    /// Looks at what is due.
    pub(super) fn sample(&mut self, start: Instant, wiring: &Wiring) {
        let now = start.elapsed();
        if now >= self.next_wire {
            self.look_at_wire(now, wiring);
            self.next_wire = now + WIRE;
        }
        if now >= self.next_memory {
            // A list that cannot be read now can be in the next round.
            let tree = processes().map(|all| tree(&all, self.root)).unwrap_or_default();
            let largest = tree.iter().filter_map(|process| peak_rss(process.id)).max();
            self.samples.peak_rss = self.samples.peak_rss.max(largest.unwrap_or(0));
            self.next_memory = start.elapsed() + MEMORY;
        }
    }

    /// The last look, at the command's end.
    pub(super) fn end(mut self, end: Duration, wiring: &Wiring) -> Samples {
        self.look_at_wire(end, wiring);
        self.samples
    }

    fn look_at_wire(&mut self, now: Duration, wiring: &Wiring) {
        let Some((passed, before)) = wiring.passed().zip(self.before) else { return };
        let since = Passed {
            up: passed.up - before.up,
            down: passed.down - before.down,
            dropped: passed.dropped.zip(before.dropped).map(|(now, then)| now - then),
            lost: passed.lost.zip(before.lost).map(|(now, then)| now - then),
        };
        self.samples.wire.push((now, since));
    }
}

impl Samples {
    /// The course of one way.
    pub(super) fn course(&self, way: impl Fn(&Passed) -> u64) -> Vec<WireSample> {
        let point = |(at, passed): &(Duration, Passed)| WireSample {
            at: (at.as_secs_f64() * 1e3).round() / 1e3,
            bytes: way(passed),
        };
        self.wire.iter().map(point).collect()
    }

    /// The counters at the end.
    pub(super) fn last(&self) -> Option<Passed> {
        self.wire.last().map(|(_, passed)| *passed)
    }
}
