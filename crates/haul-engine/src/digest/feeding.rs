//! Common to both hash functions: zeros for holes, and errors for bytes fed twice or never.

use haul_storage::{Error, ErrorKind, Range};

/// Zeros for holes: enough for the widest SIMD, small enough for a core's cache.
pub(super) static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The error of an update or a finish that does not fit what was fed before.
pub(super) fn misfed(cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, "hash").because(cause)
}

pub(super) fn fed_twice(range: Range) -> Error {
    misfed(format!("some of bytes {range} were already hashed"))
}

pub(super) fn missing(range: Range) -> Error {
    misfed(format!("bytes {range} were never hashed"))
}
