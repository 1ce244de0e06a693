//! What the storage of mirrors and its readers share.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haul_storage::{Error, RelPath, Retry, Storage};
use tokio::time::Instant;

use super::choice::Choice;

/// Reports that a mirror is not used: where it is, and why.
type Warn = dyn Fn(&str, &str) + Send + Sync;

/// One place that holds the file.
#[derive(Debug, Clone)]
pub struct Mirror {
    /// Where it is, for people.
    pub name: String,
    /// The storage.
    pub storage: Arc<dyn Storage>,
    /// The file in it.
    pub path: RelPath,
}

/// What the storage and its readers share.
pub(super) struct Shared {
    choice: Mutex<Choice>,
    started: Instant,
    warn: Box<Warn>,
}

impl Shared {
    pub(super) fn new(mirrors: usize, warn: impl Fn(&str, &str) + Send + Sync + 'static) -> Self {
        Self {
            choice: Mutex::new(Choice::new(mirrors)),
            started: Instant::now(),
            warn: Box::new(warn),
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn choice(&self) -> MutexGuard<'_, Choice> {
        self.choice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn warn(&self, mirror: &Mirror, cause: &str) {
        (self.warn)(&mirror.name, &format!("this mirror is not used: {cause}"));
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("choice", &self.choice).finish_non_exhaustive()
    }
}

/// Whether a failure of a mirror may pass.
pub(super) fn may_pass(error: &Error) -> bool {
    error.retry() == Retry::Later
}
