//! Reads a file from end to end: time to the first bytes, rate, and bytes over time.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use super::view::{View, outcome};
use crate::data::Dataset;
use crate::record::ByteSample;

/// Bytes of the first read, a page.
const FIRST: usize = 4 << 10;
/// Bytes of each further read, a size that programs commonly use.
const READ: usize = 128 << 10;
/// Interval between samples.
const INTERVAL: Duration = Duration::from_millis(100);

/// Reads the first file of `data` in the mount on `point`.
pub(super) fn read(data: &Dataset, point: &Path) -> io::Result<View> {
    let name = data.names().next().unwrap_or_default();
    let path = point.join(&name);
    // The lookup is not measured.
    fs::metadata(&path)?;
    let (mut buffer, mut hasher) = (vec![0; READ], blake3::Hasher::new());
    let start = Instant::now();
    let mut file = File::open(&path)?;
    let (mut course, mut bytes, mut first_byte) = (Course::default(), 0_u64, None);
    loop {
        let wanted = if first_byte.is_some() { READ } else { FIRST };
        let length = file.read(&mut buffer[..wanted])?;
        let now = start.elapsed();
        first_byte.get_or_insert(now);
        if length == 0 {
            let wrong = !data.holds(0, &hasher.finalize());
            return Ok(View {
                ready: Duration::ZERO,
                first_byte,
                rate: Some(bytes as f64 / now.as_secs_f64()),
                read: course.end(),
                parts: Vec::new(),
                outcome: outcome(wrong.then(|| format!("{name} differs in content"))),
            });
        }
        bytes += length as u64;
        course.note(now, bytes);
        hasher.update(&buffer[..length]);
    }
}

/// Bytes over time, about ten samples a second.
#[derive(Debug, Default)]
struct Course {
    samples: Vec<ByteSample>,
    /// What was noted last.
    last: (Duration, u64),
    /// When the next sample is due.
    next: Duration,
}

impl Course {
    /// Notes that `bytes` have been read by `now`.
    fn note(&mut self, now: Duration, bytes: u64) {
        if now >= self.next {
            // After a long wait: a sample at its start, so that earlier bytes do not seem to arrive during the wait.
            if now - self.last.0 > INTERVAL {
                self.sample_last();
            }
            self.last = (now, bytes);
            self.sample_last();
            self.next = now + INTERVAL;
        }
        self.last = (now, bytes);
    }

    fn end(mut self) -> Vec<ByteSample> {
        self.sample_last();
        self.samples
    }

    fn sample_last(&mut self) {
        let (at, bytes) = self.last;
        let sample = ByteSample { at: (at.as_secs_f64() * 1e3).round() / 1e3, bytes };
        if self.samples.last() != Some(&sample) {
            self.samples.push(sample);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::DataSpec;
    use crate::record::Outcome;

    fn course(notes: &[(u64, u64)]) -> Vec<(f64, u64)> {
        let mut course = Course::default();
        for (ms, bytes) in notes {
            course.note(Duration::from_millis(*ms), *bytes);
        }
        course.end().iter().map(|sample| (sample.at, sample.bytes)).collect()
    }

    #[test]
    fn samples_are_a_tenth_of_a_second_apart_and_end_with_the_last_byte() {
        let notes: Vec<(u64, u64)> = (1..=25).map(|n| (n * 10, n)).collect();
        assert_eq!(course(&notes), [(0.01, 1), (0.11, 11), (0.21, 21), (0.25, 25)]);
    }

    #[test]
    fn a_stall_does_not_blur_into_the_time_before_it() {
        let samples = course(&[(400, 1), (450, 6), (2000, 7), (2010, 8)]);
        assert_eq!(samples, [(0.0, 0), (0.4, 1), (0.45, 6), (2.0, 7), (2.01, 8)]);
    }

    #[test]
    fn a_file_is_read_to_its_end_and_compared() {
        let temp = tempfile::tempdir().expect("a directory");
        let spec = DataSpec { files: 1, bytes: 300_001, directories: 0, sparse_size: None };
        let data = spec.make(&temp.path().join("data")).expect("writable");
        let view = read(&data, data.root()).expect("readable");
        assert_eq!(view.outcome, Outcome::Ok);
        assert_eq!(view.read.last().map(|sample| sample.bytes), Some(300_001));
        assert!(view.first_byte.is_some() && view.rate.is_some_and(|rate| rate > 0.0));
        fs::write(data.root().join("file"), "other").expect("writable");
        let view = read(&data, data.root()).expect("readable");
        let cause = "file differs in content".to_owned();
        assert_eq!(view.outcome, Outcome::Wrong { cause });
    }
}
