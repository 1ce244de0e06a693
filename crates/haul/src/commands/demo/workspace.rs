//! A temporary directory for the demo, with enough free space.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use haul_storage::{Error, ErrorKind};
use tempfile::TempDir;

use crate::exit::Stop;
use crate::units::bytes;

/// A temporary directory, removed when dropped.
#[derive(Debug)]
pub(super) struct Workspace {
    directory: TempDir,
}

impl Workspace {
    /// Creates a directory with room for `needed` bytes: below `wanted` if that is given, otherwise below
    /// the first default directory with enough free space.
    pub(super) fn new(wanted: Option<&Path>, needed: u64) -> Result<Self, Stop> {
        // Small files occupy whole blocks, and directories need space, too.
        let needed = needed + needed / 4;
        let defaults = [std::env::temp_dir(), PathBuf::from("/var/tmp"), PathBuf::from(".")];
        let parents = wanted.map_or(defaults.to_vec(), |wanted| vec![wanted.to_owned()]);
        let mut error = None;
        for parent in parents {
            match Self::within(&parent, needed) {
                Ok(workspace) => return Ok(workspace),
                // Report the error of the first directory, which is the one that users expect.
                Err(found) => _ = error.get_or_insert(found),
            }
        }
        Err(error.unwrap_or_else(|| Error::new(ErrorKind::NotFound, "find room")).into())
    }

    fn within(parent: &Path, needed: u64) -> Result<Self, Error> {
        let at = |error: Error| error.at(parent.display());
        let file_system = rustix::fs::statvfs(parent)
            .map_err(|error| at(Error::from_io("access", error.into())))?;
        let free = file_system.f_bavail.saturating_mul(file_system.f_frsize);
        if free < needed {
            return Err(at(Error::new(ErrorKind::NoSpace, "use for the demo").because(format!(
                "{} are free, and it takes {}",
                bytes(free),
                bytes(needed)
            ))));
        }
        let directory = tempfile::Builder::new().prefix("haul-demo-").tempdir_in(parent);
        let directory =
            directory.map_err(|error| at(Error::from_io("make a directory in", error)))?;
        Ok(Self { directory })
    }

    /// The directory.
    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The home directory for child processes.
    pub(super) fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    /// Removes a directory in the workspace.
    pub(super) fn remove(&self, path: &Path) -> Result<(), Stop> {
        unlock(path);
        let failed = |error| Error::from_io("remove", error).at(path.display());
        Ok(fs::remove_dir_all(path).map_err(failed)?)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        unlock(self.directory.path());
    }
}

/// Writes a file that only its owner can read.
pub(super) fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| Error::from_io("write", error).at(path.display()))
}

/// Makes a directory and all below it writable: entries of a directory without write permission cannot be removed.
fn unlock(directory: &Path) {
    // An error here is ignored: the removal that follows fails too.
    drop(try_unlock(directory));
}

fn try_unlock(directory: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(directory)?;
    if !metadata.is_dir() {
        return Ok(());
    }
    let mode = metadata.permissions().mode();
    if mode & 0o700 != 0o700 {
        fs::set_permissions(directory, fs::Permissions::from_mode(mode | 0o700))?;
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            try_unlock(&entry.path())?;
        }
    }
    Ok(())
}
