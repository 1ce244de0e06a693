//! Checks of a mount point, before anything is mounted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use haul_storage::{Error, ErrorKind, Result};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::attach::release;
use super::mounts;

/// The canonical path of a mount point. A mount of haul whose process has died is unmounted there first.
///
/// # Errors
/// If it is missing, unreadable, not a directory, not empty (unless `nonempty`), the root directory, or already a mount
/// point of haul or of another program that has ended; or if a dead mount of haul cannot be unmounted. Most of these
/// errors have a hint.
pub(crate) fn checked(point: &Path, nonempty: bool) -> Result<PathBuf> {
    let path = match point.canonicalize() {
        Ok(path) => path,
        Err(error) if is_dead(&error) => recovered(point)?,
        Err(error) => return Err(unusable(point, error)),
    };
    // The root of a dead file system can be found, but not read.
    let path = match fs::symlink_metadata(&path) {
        Ok(_) => path,
        Err(error) if is_dead(&error) => recovered(&path)?,
        Err(error) => return Err(unusable(point, error)),
    };
    let cannot = |kind| Error::new(kind, "mount").at(point.display());
    if !fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir()) {
        return Err(cannot(ErrorKind::NotADirectory)
            .hinting("a mount point is an empty directory: mkdir -p DIR"));
    }
    if mounts::at(&path).is_some_and(|mounted| mounted.is_ours()) {
        return Err(cannot(ErrorKind::Busy)
            .because("haul has mounted something there")
            .hinting(format!("unmount it first: fusermount3 -u {}", path.display())));
    }
    if path == Path::new("/") {
        return Err(cannot(ErrorKind::InvalidInput).because("it is the root of this machine"));
    }
    let mut entries = fs::read_dir(&path).map_err(|error| unusable(point, error))?;
    if !nonempty && entries.next().is_some() {
        return Err(cannot(ErrorKind::NotEmpty)
            .because("its files would be hidden while something is mounted there")
            .hinting("use an empty directory, or pass --nonempty"));
    }
    Ok(path)
}

/// Whether an error means that the process of a FUSE file system has died.
fn is_dead(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error())
}

/// Removes a dead mount of haul. Returns the canonical path.
fn recovered(point: &Path) -> Result<PathBuf> {
    let name = point.file_name();
    let parent = match point.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    };
    let parent = parent.canonicalize().map_err(|error| unusable(point, error))?;
    let path = name.map_or_else(|| parent.clone(), |name| parent.join(name));
    let is_ours = mounts::at(&path).is_some_and(|mounted| mounted.is_ours());
    if !is_ours {
        return Err(Error::new(ErrorKind::Busy, "mount")
            .at(point.display())
            .because("a file system whose program has ended is mounted there")
            .hinting(format!("unmount it first: fusermount3 -u {}", path.display())));
    }
    release(&path, geteuid().is_root()).map(drop)?;
    Ok(path)
}

fn unusable(point: &Path, error: io::Error) -> Error {
    let kind = error.kind();
    let cannot = Error::from_io("mount", error).at(point.display());
    match kind {
        io::ErrorKind::NotFound => {
            cannot.hinting(format!("create it first: mkdir -p {}", point.display()))
        }
        _ => cannot,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_mount_point_has_a_hint() {
        let directory = tempfile::tempdir().unwrap();
        let error = checked(&directory.path().join("none"), false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.hint().unwrap().contains("mkdir -p"));
    }

    #[test]
    fn a_mount_point_is_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "x").unwrap();
        assert_eq!(checked(&file, false).unwrap_err().kind(), ErrorKind::NotADirectory);
    }

    #[test]
    fn a_mount_point_is_empty_unless_that_is_waived() {
        let directory = tempfile::tempdir().unwrap();
        let canonical = directory.path().canonicalize().unwrap();
        assert_eq!(checked(directory.path(), false).unwrap(), canonical);
        fs::write(directory.path().join("file"), "x").unwrap();
        assert_eq!(checked(directory.path(), false).unwrap_err().kind(), ErrorKind::NotEmpty);
        assert_eq!(checked(directory.path(), true).unwrap(), canonical);
    }
}
