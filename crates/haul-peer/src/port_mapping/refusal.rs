//! Why there is no mapping.

use haul_storage::{Error, ErrorKind};

/// An error of mapping a port. What the router has sent in `cause` is escaped where it is printed.
pub(super) fn refused(cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unreachable, "map a port").because(cause)
}
