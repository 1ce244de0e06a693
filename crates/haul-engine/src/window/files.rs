//! How many small files are in flight.
//!
//! A small file costs RTTs (open, read, close, rename), not bytes. Files in flight hide them, so a long
//! path starts with many; more are tried as long as small files complete faster, and an error halves them
//! before anything else.

use std::time::Duration;

use super::bounds::Bounds;
use super::meter::Sample;

/// Files in flight until the RTT is known, and at the start on a short path where a lane has one request.
const FIRST_FILES: usize = 8;

/// The least files in flight at the start where a lane takes several requests: with fewer, on a short path, client and
/// server switch between processes for each request. 20 000 files of 16 KiB over SFTP on loopback: 8 at once take 2.9 s
/// up and 2.2 s down, 64 and 128 take 1.5 s.
const FIRST_OF_LINK: usize = 64;

/// Further files per ms of RTT. At 50 ms, 256 files of four RTTs each are 1 280 per second. 2 000 files of 16 KiB at
/// 50 ms and 500 Mbit/s, with 3 files per ms and with 5: SFTP down 1.59 and 1.35 s, up 2.16 and 1.78 s; HTTP down 1.34
/// and 1.20 s; WebDAV up 1.19 and 1.02 s.
const FILES_PER_MS: f64 = 5.0;

/// The most files at the start, on any path.
const MOST_FIRST_FILES: usize = 256;

/// Completed ranges that are, on average, shorter than the present range length divided by this were small files.
const SMALL_PART: u64 = 4;

/// Rounds over which each number of files is measured, after two that are ignored.
const ROUNDS: u32 = 6;
const ROUNDS_LEFT_OUT: u32 = 2;

/// A step up is kept if it completes at least this many times as many files per second.
const WORTH_IT: f64 = 1.1;

/// After an error or a useless step, the pause until the next step up.
const PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub(super) struct Files {
    fixed: bool,
    at_once: usize,
    most: usize,
    before: Option<(usize, f64)>,
    rounds: u32,
    completions: f64,
    seconds: f64,
    next_step: Duration,
}

impl Files {
    pub(super) fn new(bounds: &Bounds) -> Self {
        Self {
            fixed: bounds.fixed_files.is_some(),
            at_once: bounds.fixed_files.unwrap_or(FIRST_FILES),
            most: bounds.max_files,
            before: None,
            rounds: 0,
            completions: 0.0,
            seconds: 0.0,
            next_step: Duration::ZERO,
        }
    }

    pub(super) fn start_for_path(&mut self, rtt: Duration, bounds: &Bounds) {
        if !self.fixed {
            let more = (rtt.as_secs_f64() * 1000.0 * FILES_PER_MS) as usize;
            let most = MOST_FIRST_FILES.min(bounds.max_files);
            // Where a lane has one request, each file in flight needs a connection of its own.
            let least = if bounds.has_one_request_a_lane() { FIRST_FILES } else { FIRST_OF_LINK };
            self.at_once = FIRST_FILES.saturating_add(more).max(least).min(most);
        }
    }

    pub(super) fn at_once(&self) -> usize {
        self.at_once
    }

    /// Halves the number after an error. Returns whether it could be lowered.
    pub(super) fn back_off(&mut self, now: Duration) -> bool {
        if self.fixed || self.at_once <= 1 {
            return false;
        }
        self.at_once /= 2;
        self.restart();
        self.before = None;
        self.next_step = now + PAUSE;
        true
    }

    /// Takes one round's completions. Rounds of large files are ignored.
    pub(super) fn on_sample(&mut self, sample: &Sample, now: Duration, range_bytes: u64) {
        let completions = u64::from(sample.completions);
        let small = sample.completed_bytes < completions.saturating_mul(range_bytes / SMALL_PART);
        if self.fixed || completions == 0 || !small {
            return;
        }
        self.rounds += 1;
        if self.rounds <= ROUNDS_LEFT_OUT {
            return;
        }
        self.completions += f64::from(sample.completions);
        self.seconds += sample.seconds;
        if self.rounds < ROUNDS_LEFT_OUT + ROUNDS {
            return;
        }
        let rate = self.completions / self.seconds;
        self.restart();
        match self.before.take() {
            Some((fewer, rate_before)) if rate < rate_before * WORTH_IT => {
                self.at_once = fewer;
                self.next_step = now + PAUSE;
            }
            _ if now >= self.next_step && self.at_once < self.most => {
                self.before = Some((self.at_once, rate));
                self.at_once = (self.at_once + self.at_once.div_ceil(2)).min(self.most);
            }
            _ => {}
        }
    }

    fn restart(&mut self) {
        self.rounds = 0;
        self.completions = 0.0;
        self.seconds = 0.0;
    }
}
