//! Exit statuses, and errors that stop a command.

use std::process::ExitCode;

use haul_storage::Error;

/// The exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All done.
    Done,
    /// Something failed and was reported; everything that does not depend on it was done.
    Failed,
    /// Wrong usage; nothing was done.
    Usage,
    /// Stopped by SIGINT; a rerun continues.
    Interrupted,
    /// Stopped by SIGTERM; a rerun continues.
    Terminated,
}

impl Exit {
    /// The number that the shell sees; for a signal 128 plus its number, as in shells.
    pub(crate) const fn status(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Interrupted => 130,
            Self::Terminated => 143,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.status())
    }
}

/// Why a command cannot continue at all. Not yet printed.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The arguments or the configuration are invalid.
    Usage(String),
    /// An operation failed that everything else depends on.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}
