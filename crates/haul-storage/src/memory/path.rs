//! Paths as tests write them.

use crate::RelPath;

/// Panics where it is no path, as a test should.
pub(super) fn path(bytes: impl AsRef<[u8]>) -> RelPath {
    match RelPath::parse(&bytes) {
        Ok(path) => path,
        Err(error) => panic!("the path {:?} {error}", bytes.as_ref().escape_ascii().to_string()),
    }
}
