//! The error of a failed mapping.

use haul_storage::{Error, ErrorKind};

/// The error of a failed mapping. Text from the router in `cause` is escaped where it is printed.
pub(super) fn refused(cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unreachable, "map a port").because(cause)
}
