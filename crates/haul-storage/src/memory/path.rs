//! Paths as tests pass them.

use crate::RelPath;

/// Parses a path; panics if it is invalid, because the test is wrong.
pub(super) fn path(bytes: impl AsRef<[u8]>) -> RelPath {
    match RelPath::parse(&bytes) {
        Ok(path) => path,
        Err(error) => panic!("the path {:?} {error}", bytes.as_ref().escape_ascii().to_string()),
    }
}
