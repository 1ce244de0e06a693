//! The name of a part file.

use haul_storage::{Error, ErrorKind, RelPath, Result, part_name};

/// The part file of a path.
pub(super) fn part_of(path: &RelPath) -> Result<RelPath> {
    path.with_name(part_name(path.name())).map_err(|error| {
        Error::new(ErrorKind::InvalidInput, "create").because(format!("the name {error}"))
    })
}
