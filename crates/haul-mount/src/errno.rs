//! The errno that a process gets for an error of a storage.

use haul_storage::{Error, ErrorKind};
use rustix::io::Errno;

/// The errno for an error.
pub(crate) fn errno(error: &Error) -> Errno {
    match error.kind() {
        ErrorKind::NotFound => Errno::NOENT,
        ErrorKind::PermissionDenied | ErrorKind::Unauthenticated => Errno::ACCESS,
        ErrorKind::AlreadyExists => Errno::EXIST,
        ErrorKind::IsADirectory => Errno::ISDIR,
        ErrorKind::NotADirectory => Errno::NOTDIR,
        ErrorKind::NotEmpty => Errno::NOTEMPTY,
        ErrorKind::NoSpace => Errno::NOSPC,
        ErrorKind::Changed => Errno::STALE,
        ErrorKind::Unsupported => Errno::OPNOTSUPP,
        ErrorKind::Unreachable => Errno::HOSTUNREACH,
        ErrorKind::Busy => Errno::BUSY,
        ErrorKind::Interrupted => Errno::INTR,
        ErrorKind::InvalidInput => Errno::INVAL,
        _ => Errno::IO,
    }
}
