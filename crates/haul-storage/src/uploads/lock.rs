//! A lock on a file that exists only while it is locked.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

/// Attempts to open and lock a file that other runs lock and remove.
const TRIES: usize = 16;

/// A locked file, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct FileLock {
    path: PathBuf,
    /// Closing it releases the lock.
    _file: File,
}

pub(super) enum Locked {
    Yes(FileLock),
    /// Another run holds the lock, or the file cannot be opened or locked.
    ByAnother,
    /// The file system has no locks.
    Unsupported,
}

impl FileLock {
    pub(super) fn acquire(path: PathBuf) -> Locked {
        Self::acquire_by(path, try_lock)
    }

    fn acquire_by(path: PathBuf, try_lock: fn(&File) -> rustix::io::Result<bool>) -> Locked {
        for _ in 0..TRIES {
            let file = match open(&path) {
                Ok(file) => file,
                Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                    // A link. If it cannot be removed, the next attempts fail, too.
                    drop(fs::remove_file(&path));
                    continue;
                }
                // It may be locked by a run of another user, such as root.
                Err(_) => return Locked::ByAnother,
            };
            match try_lock(&file) {
                Ok(true) => {}
                Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => {
                    // Nothing else would remove it.
                    drop(fs::remove_file(&path));
                    return Locked::Unsupported;
                }
                Ok(false) | Err(_) => return Locked::ByAnother,
            }
            // Another run may have removed the file between opening and locking.
            let same = |named: &fs::Metadata, held: &fs::Metadata| {
                (named.dev(), named.ino()) == (held.dev(), held.ino())
            };
            match (fs::symlink_metadata(&path), file.metadata()) {
                (Ok(named), Ok(held)) if same(&named, &held) => {
                    return Locked::Yes(Self { path, _file: file });
                }
                _ => {}
            }
        }
        Locked::ByAnother
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // If the file cannot be removed, the next run locks it again.
        drop(fs::remove_file(&self.path));
    }
}

/// Opens a private file, or creates it. A link is not followed.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    options.open(path)
}

/// Locks a file. Returns false if another run has locked it.
fn try_lock(file: &File) -> rustix::io::Result<bool> {
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formerly, each upload left one.
    #[test]
    fn a_file_system_without_locks_keeps_no_lock_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let locked = FileLock::acquire_by(path, |_| Err(Errno::OPNOTSUPP));
        assert!(matches!(locked, Locked::Unsupported));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
