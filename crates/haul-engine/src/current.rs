//! The files in flight with their rates, for a display that lists them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::CurrentFile;

/// Time over which a rate is averaged.
const RATE_SPAN: Duration = Duration::from_secs(3);

/// The files in flight.
#[derive(Debug)]
pub struct Current {
    /// Whether a display wants them; otherwise nothing is recorded.
    is_shown: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    files: BTreeMap<u64, InFlight>,
}

#[derive(Debug)]
struct InFlight {
    file: CurrentFile,
    /// Counter of the file's bytes that are done, once there is one.
    bytes: Option<Arc<AtomicU64>>,
    /// Values of `bytes`, each with its time since the start of the transfer.
    samples: VecDeque<(Duration, u64)>,
}

/// A guard that lists a file as in flight until it is dropped.
#[derive(Debug)]
pub struct Shown<'a> {
    current: &'a Current,
    number: Option<u64>,
}

impl Current {
    /// No files yet. With `is_shown` false, files are never recorded.
    pub fn new(is_shown: bool) -> Self {
        Self { is_shown, state: Mutex::default() }
    }

    /// Records a file as in flight.
    pub fn begin(&self, file: impl FnOnce() -> CurrentFile) -> Shown<'_> {
        if !self.is_shown {
            return Shown { current: self, number: None };
        }
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state
            .files
            .insert(number, InFlight { file: file(), bytes: None, samples: VecDeque::new() });
        Shown { current: self, number: Some(number) }
    }

    /// The files in flight at `now`, measured from the start of the transfer; `None` if they are not shown.
    pub fn files(&self, now: Duration) -> Option<Vec<CurrentFile>> {
        if !self.is_shown {
            return None;
        }
        Some(self.lock().files.values_mut().map(|file| file.at(now)).collect())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InFlight {
    fn at(&mut self, now: Duration) -> CurrentFile {
        let bytes = self.bytes.as_ref().map_or(0, |bytes| bytes.load(Ordering::Relaxed));
        // After an error the file starts again, with fewer bytes.
        if self.samples.back().is_some_and(|(_, before)| *before > bytes) {
            self.samples.clear();
        }
        self.samples.push_back((now, bytes));
        while self.samples.len() > 2 && self.samples[1].0 + RATE_SPAN <= now {
            self.samples.pop_front();
        }
        let (since, before) = self.samples.front().copied().unwrap_or((now, bytes));
        let seconds = now.saturating_sub(since).as_secs_f64();
        let rate = if seconds > 0.0 { (bytes - before) as f64 / seconds } else { 0.0 };
        CurrentFile { bytes, bytes_per_second: rate as u64, ..self.file.clone() }
    }
}

impl Shown<'_> {
    /// Sets the counter of the file's bytes that are done.
    pub fn counts(&self, bytes: &Arc<AtomicU64>) {
        let Some(number) = self.number else { return };
        if let Some(file) = self.current.lock().files.get_mut(&number) {
            file.bytes = Some(Arc::clone(bytes));
            // Bytes that an earlier run left must not count for the rate of this one.
            file.samples.clear();
        }
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.current.lock().files.remove(&number);
        }
    }
}
