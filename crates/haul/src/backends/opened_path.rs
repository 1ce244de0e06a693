//! A path in an opened storage, and how locations are split into root and path.

use std::path::PathBuf;
use std::sync::Arc;

use haul_storage::{Error, ErrorKind, Location, RelPath, RelPathError, Result, Storage};

/// A file or directory in an opened storage, which need not exist.
#[derive(Debug, Clone)]
pub(crate) struct OpenedPath {
    /// The storage.
    pub(crate) storage: Arc<dyn Storage>,
    /// The path in it.
    pub(crate) path: RelPath,
    /// Whether it is a directory.
    pub(crate) is_directory: bool,
    /// Whether it exists.
    pub(crate) exists: bool,
    /// The canonical path, if it is on a disk of this machine. Its last component may be a link that is not followed.
    pub(crate) local: Option<PathBuf>,
}

/// The location of a storage's root, for display.
pub(super) fn at_root(location: &Location, root: &[u8]) -> Location {
    let mut at = location.clone();
    if let Location::Remote { path, written, .. } = &mut at {
        *path = root.to_owned();
        *written = None;
    }
    if let Location::Peer { path, .. } = &mut at {
        *path = root.to_owned();
    }
    at
}

/// The root of the storage for what was found at the absolute `path` of a server, its path there, and whether it is
/// a directory: a directory is a root, anything else is in one.
///
/// # Errors
/// `NotFound` if nothing was found, `NotADirectory` if the location ends with a slash and it is not a directory,
/// `InvalidInput` if the name of a file cannot be part of a path.
pub(super) fn found_at<'a>(
    location: &Location,
    path: &'a [u8],
    is_directory: Option<bool>,
) -> Result<(&'a [u8], RelPath, bool)> {
    match is_directory {
        None => Err(Error::new(ErrorKind::NotFound, "open").at(location)),
        Some(true) => Ok((path, RelPath::root(), true)),
        Some(false) if location.has_trailing_slash() => {
            Err(Error::new(ErrorKind::NotADirectory, "open").at(location))
        }
        Some(false) => {
            let (root, name) = split(path);
            Ok((root, rel_path(location, &[name])?, false))
        }
    }
}

/// The directory of an absolute path, and the name in it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let slash = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    (&path[..slash.max(1)], &path[(slash + 1).min(path.len())..])
}

/// The path of `names` below the root of a storage.
pub(super) fn rel_path(location: &Location, names: &[&[u8]]) -> Result<RelPath> {
    let mut path = RelPath::root();
    for name in names {
        path = path.join(name).map_err(|error| invalid(location, error))?;
    }
    Ok(path)
}

/// The error of a name that cannot be part of a path.
pub(super) fn invalid(location: &Location, error: RelPathError) -> Error {
    Error::new(ErrorKind::InvalidInput, "open").at(location).because(format!("the name {error}"))
}
