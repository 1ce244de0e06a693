//! Data of the plots: rates in bins from counter samples, and the figures that haul reports itself.

use crate::record::{ByteSample, ProgressSample};

/// (seconds on the time axis, value).
pub(super) type Points = Vec<(f64, f64)>;

/// Width of a bin in seconds: short enough to show a stall of one or two RTTs, long enough to hide sampling noise.
const BIN: f64 = 0.25;
/// Runs longer than this many seconds get bins of at least twice the width: on a telephone, narrower ones would be
/// about a pixel wide.
const LONG: f64 = 60.0;
/// The most bins that a plot as wide as a telephone's screen can show.
const MAX_BINS: f64 = 300.0;

/// The width of bins in seconds, if the longest run of a plot takes `longest` seconds. All runs of a plot use the same
/// width, since a rate looks steadier in wider bins.
pub(super) fn bin_width(longest: f64) -> f64 {
    let narrowest = if longest > LONG { 2.0 * BIN } else { BIN };
    narrowest.max((longest / MAX_BINS / BIN).ceil() * BIN)
}

/// Bytes per second in bins of `width` seconds, each as a point at the middle of its bin.
pub(super) fn rate(samples: &[ByteSample], width: f64) -> Points {
    let Some(end) = samples.last().map(|sample| sample.at).filter(|end| *end > 0.0) else {
        return Points::new();
    };
    // A last bin of less than half the width is omitted: its rate would depend on one or two packets.
    let bins = (end / width).round().max(1.0) as usize;
    let mut counter = Counter { samples, next: 0 };
    let mut before = counter.at(0.0);
    if bins == 1 {
        // A horizontal line at its mean: a single point would be invisible.
        let mean = (counter.at(end) - before).max(0.0) / end;
        return vec![(0.0, mean), (end, mean)];
    }
    let mut points = Points::with_capacity(bins);
    for bin in 0..bins {
        let from = bin as f64 * width;
        let to = (from + width).min(end);
        let bytes = counter.at(to);
        if to > from {
            points.push((f64::midpoint(from, to), (bytes - before).max(0.0) / (to - from)));
        }
        before = bytes;
    }
    points
}

/// Connections in use.
pub(super) fn lanes(samples: &[ProgressSample]) -> Points {
    stepped(samples.iter().map(|sample| (sample.at, f64::from(sample.lanes))))
}

/// Bytes that may be in flight.
pub(super) fn window(samples: &[ProgressSample]) -> Points {
    stepped(samples.iter().map(|sample| (sample.at, sample.window as f64)))
}

/// RTT in milliseconds, at the samples that have one.
pub(super) fn rtt(samples: &[ProgressSample]) -> Points {
    samples.iter().filter_map(|sample| Some((sample.at, sample.rtt_ms?))).collect()
}

/// Points of a step function: each value holds until the next sample.
fn stepped(values: impl Iterator<Item = (f64, f64)>) -> Points {
    let mut points = Points::new();
    for (at, value) in values {
        if let Some((_, before)) = points.last().copied().filter(|(_, before)| *before != value) {
            points.push((at, before));
        }
        points.push((at, value));
    }
    points
}

/// Interpolates a counter between its samples, for times in ascending order.
struct Counter<'a> {
    samples: &'a [ByteSample],
    /// The first sample after the last time requested.
    next: usize,
}

impl Counter<'_> {
    /// The interpolated value at `time`, which must not be before that of the previous call.
    fn at(&mut self, time: f64) -> f64 {
        while self.samples.get(self.next).is_some_and(|sample| sample.at <= time) {
            self.next += 1;
        }
        let before = self.next.checked_sub(1).and_then(|last| self.samples.get(last));
        let (t0, b0) = before.map_or((0.0, 0.0), |sample| (sample.at, sample.bytes as f64));
        match self.samples.get(self.next) {
            Some(after) if after.at > t0 => {
                b0 + (after.bytes as f64 - b0) * (time - t0) / (after.at - t0)
            }
            _ => b0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn irregular_samples_of_a_steady_counter_give_a_steady_rate() {
        let times = [0.1, 0.13, 0.4, 0.9, 1.0];
        let samples = times.map(|at| ByteSample { at, bytes: (at * 1e6) as u64 });
        let points = rate(&samples, 0.25);
        assert_eq!(points.len(), 4);
        assert!(points.iter().all(|(_, rate)| (rate - 1e6).abs() < 10.0), "{points:?}");
        assert_eq!(points[0].0, 0.125);
    }

    #[test]
    fn a_stall_is_a_rate_of_zero() {
        let samples =
            [(0.5, 500), (1.0, 500), (1.5, 1000)].map(|(at, bytes)| ByteSample { at, bytes });
        let rates: Vec<f64> = rate(&samples, 0.25).into_iter().map(|(_, rate)| rate).collect();
        assert_eq!(rates, [1000.0, 1000.0, 0.0, 0.0, 1000.0, 1000.0]);
    }

    #[test]
    fn a_run_of_one_bin_is_a_line_at_its_mean() {
        let points = rate(&[ByteSample { at: 0.2, bytes: 100 }], 0.25);
        assert_eq!(points, [(0.0, 500.0), (0.2, 500.0)]);
        // Formerly, the mean was that of the first 0.25 s.
        let samples = [(0.25, 0), (0.3125, 625)].map(|(at, bytes)| ByteSample { at, bytes });
        assert_eq!(rate(&samples, 0.25), [(0.0, 2000.0), (0.3125, 2000.0)]);
    }

    #[test]
    fn without_samples_there_are_no_points() {
        assert!(rate(&[], 0.25).is_empty());
        assert!(rate(&[ByteSample { at: 0.0, bytes: 0 }], 0.25).is_empty());
    }

    #[test]
    fn long_runs_have_wider_bins() {
        assert_eq!(bin_width(10.0), 0.25);
        assert_eq!(bin_width(100.0), 0.5);
        assert_eq!(bin_width(1250.0), 4.25);
    }

    #[test]
    fn a_held_value_makes_a_step() {
        let points = stepped([(0.0, 1.0), (1.0, 1.0), (2.0, 3.0)].into_iter());
        assert_eq!(points, [(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (2.0, 3.0)]);
    }
}
