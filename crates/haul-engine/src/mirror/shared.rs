//! State shared by the mirror storage and its readers.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haul_storage::{Error, RelPath, Retry, Storage};
use tokio::time::Instant;

use super::choice::Choice;

/// Callback that reports an unused mirror: its name, and the reason.
type Warn = dyn Fn(&str, &str) + Send + Sync;

/// One copy of the file.
#[derive(Debug, Clone)]
pub struct Mirror {
    /// Its location, for messages.
    pub name: String,
    /// The storage that holds the file.
    pub storage: Arc<dyn Storage>,
    /// The file's path in the storage.
    pub path: RelPath,
}

/// State shared by the storage and its readers: the choice of mirrors, its clock, and the callback for warnings.
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

/// True if a mirror's failure is transient, so that a later attempt may succeed.
pub(super) fn may_pass(error: &Error) -> bool {
    error.retry() == Retry::Later
}
