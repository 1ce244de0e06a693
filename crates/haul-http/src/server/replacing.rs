//! The lock of a share's replacements. What was replaced is removed after the lock is released (`aside`, [`hold`]):
//! that may take long, and must not make other requests wait.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{Mode, OFlags, openat};

/// The lock of a share's replacements.
#[derive(Debug, Default)]
pub(super) struct Replacing(Mutex<()>);

impl Replacing {
    /// Held from the comparison of a version to its replacement, so that of two requests for the same version one is
    /// refused.
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Opens an entry that is about to be replaced or removed; `None` if that fails, as for one that does not exist. Its
/// blocks are freed when the descriptor is closed.
pub(super) fn hold(directory: impl AsFd, name: &[u8]) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::empty()).ok()
}
