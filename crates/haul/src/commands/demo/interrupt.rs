//! A step that a signal has stopped.

use haul_storage::{Error, ErrorKind};

use crate::exit::Stop;

/// The error of a step that was stopped by a signal; it is never printed.
pub(super) fn interrupted() -> Stop {
    Error::new(ErrorKind::Interrupted, "go on").into()
}
