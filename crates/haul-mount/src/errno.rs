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
        ErrorKind::NoSpace if error.is_too_long() => Errno::FBIG,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Formerly, it was ENOSPC, and users looked for space to free.
    #[test]
    fn a_file_that_is_too_long_has_an_errno_of_its_own() {
        let error = Error::from_io("write", Errno::FBIG.into());
        assert_eq!(errno(&error), Errno::FBIG);
        assert_eq!(errno(&error.at("f").hinting("split it")), Errno::FBIG);
        assert_eq!(errno(&Error::new(ErrorKind::NoSpace, "write")), Errno::NOSPC);
    }
}
