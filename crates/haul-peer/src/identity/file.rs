//! Private files of the state directory: only their owner may read them, changes are atomic, and changes by several
//! processes are serialized.
//!
//! Everything here blocks, on the disk and up to [`LOCK_WAIT`] on another process.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use haul_storage::{Error, ErrorKind, Result, replace_private};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use zeroize::Zeroizing;

/// How long to wait for another process that changes the file. A change takes two `fsync`s.
const LOCK_WAIT: Duration = Duration::from_secs(10);

/// Largest file that is read, in bytes: ten times a list of a thousand peers.
const MAX_LEN: u64 = 16 << 20;

/// A private file, and the operations that its errors name.
#[derive(Debug, Clone)]
pub(super) struct PrivateFile {
    pub(super) path: PathBuf,
    /// As in "cannot READ (…)".
    pub(super) read: &'static str,
    /// As in "cannot CHANGE (…)".
    pub(super) change: &'static str,
}

/// A lock against changes of a file by others, until it is dropped.
#[derive(Debug)]
pub(super) struct FileLock {
    _locked: File,
}

impl PrivateFile {
    /// The content; `None` if the file does not exist.
    ///
    /// # Errors
    /// If it cannot be read, is accessible to others, belongs to another user, is too large or is no regular file.
    pub(super) fn content(&self) -> Result<Option<Zeroizing<Vec<u8>>>> {
        let failed = |error: io::Error| Error::from_io(self.read, error).at(self.path.display());
        // A named pipe would block when it is opened.
        match fs::metadata(&self.path) {
            Ok(found) if !found.is_file() => return Err(self.refused("it is not a regular file")),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        }
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let found = file.metadata().map_err(failed)?;
        if found.uid() != rustix::process::geteuid().as_raw() {
            return Err(self.refused("it belongs to another user"));
        }
        if found.mode() & 0o077 != 0 {
            let mode = found.mode() & 0o7777;
            let cause = format!("mode {mode:04o} gives others access; make it 0600");
            return Err(self.refused(cause));
        }
        if found.len() > MAX_LEN {
            return Err(self.refused("it is too large"));
        }
        // With spare capacity: a vector that grows leaves copies behind.
        let len = usize::try_from(found.len()).unwrap_or(0);
        let mut content = Zeroizing::new(Vec::<u8>::with_capacity(len + 64));
        io::Read::by_ref(&mut file).take(MAX_LEN).read_to_end(&mut content).map_err(failed)?;
        Ok(Some(content))
    }

    /// Waits until no other process or thread changes the file, for at most [`LOCK_WAIT`]. Creates its directory, with
    /// mode 0700.
    ///
    /// The lock is on a file beside it with the suffix `.lock`, which remains: the file itself is replaced.
    ///
    /// # Errors
    /// If the directory or the lock file cannot be created, or if the file cannot be locked: its file system has no
    /// locks, or another process holds the lock.
    pub(super) fn lock(&self) -> Result<FileLock> {
        let mut lock_path = self.path.clone().into_os_string();
        lock_path.push(".lock");
        let lock_path = PathBuf::from(lock_path);
        let failed = |error: io::Error| Error::from_io(self.change, error).at(lock_path.display());
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(self.directory()).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&lock_path).map_err(failed)?;
        let start = Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(FileLock { _locked: file }),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) if start.elapsed() < LOCK_WAIT => {
                    sleep(Duration::from_millis(10));
                }
                Err(Errno::WOULDBLOCK) => {
                    let error = Error::new(ErrorKind::Busy, self.change).at(lock_path.display());
                    return Err(error.because("another program has locked it"));
                }
                Err(errno) => return Err(failed(errno.into())),
            }
        }
    }

    /// Replaces the content. It is on disk when this returns. The mode of the file becomes 0600.
    ///
    /// # Errors
    /// If it cannot be written. The file is unchanged then, unless only the sync of its directory failed.
    pub(super) fn replace(&self, content: &[u8], _lock: &FileLock) -> Result<()> {
        let replaced = replace_private(&self.path, content);
        // Without the sync, a crash could bring back the old content.
        let synced = replaced.and_then(|()| File::open(self.directory())?.sync_all());
        synced.map_err(|error| Error::from_io(self.change, error).at(self.path.display()))
    }

    /// An error: the file or its content is not what it should be.
    pub(super) fn refused(&self, cause: impl Into<String>) -> Error {
        Error::new(ErrorKind::InvalidInput, self.read).at(self.path.display()).because(cause)
    }

    /// The content as TOML, or the default if the file does not exist.
    ///
    /// # Errors
    /// As for [`PrivateFile::content`], or if it is malformed.
    pub(super) fn parsed<T: serde::de::DeserializeOwned + Default>(&self) -> Result<T> {
        let Some(content) = self.content()? else { return Ok(T::default()) };
        let text = std::str::from_utf8(&content).map_err(|_| self.refused("it is not UTF-8"))?;
        toml::from_str(text).map_err(|error| {
            // Not as the error displays itself: it quotes the line, which may contain a secret.
            let start = error.span().map_or(0, |span| span.start.min(content.len()));
            let line = 1 + content[..start].iter().filter(|byte| **byte == b'\n').count();
            self.refused(format!("line {line}: it is malformed"))
        })
    }

    /// Replaces the content by a value as TOML, below a comment.
    ///
    /// # Errors
    /// As for [`PrivateFile::replace`].
    pub(super) fn write<T: serde::Serialize>(
        &self,
        comment: &str,
        value: &T,
        lock: &FileLock,
    ) -> Result<()> {
        let text = toml::to_string(value).map_err(|error| {
            Error::new(ErrorKind::Other, self.change).at(self.path.display()).with_source(error)
        })?;
        let text = Zeroizing::new(text);
        self.replace(Zeroizing::new(format!("{comment}\n{}", *text)).as_bytes(), lock)
    }

    fn directory(&self) -> &Path {
        let directory = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        directory.unwrap_or(Path::new("."))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn file(directory: &Path) -> PrivateFile {
        let path = directory.join("haul/file");
        PrivateFile { path, read: "read the file", change: "change the file" }
    }

    #[test]
    fn a_file_is_private_and_so_is_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let file = file(directory.path());
        assert_eq!(file.content().unwrap(), None);
        let lock = file.lock().unwrap();
        file.replace(b"a", &lock).unwrap();
        file.replace(b"b", &lock).unwrap();
        assert_eq!(**file.content().unwrap().unwrap(), *b"b");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!((mode(&file.path), mode(file.directory())), (0o600, 0o700));
        // The file and its lock.
        assert_eq!(fs::read_dir(file.directory()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_accessible_to_others_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = file(directory.path());
        file.replace(b"a", &file.lock().unwrap()).unwrap();
        for mode in [0o640, 0o604, 0o620] {
            fs::set_permissions(&file.path, fs::Permissions::from_mode(mode)).unwrap();
            let error = file.content().unwrap_err().to_string();
            let cause = format!("mode {mode:04o} gives others access; make it 0600");
            assert!(error.contains(&cause), "{error}");
            assert!(error.contains(&file.path.display().to_string()), "{error}");
        }
    }

    #[test]
    fn a_directory_in_place_of_a_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = file(directory.path());
        fs::create_dir_all(&file.path).unwrap();
        assert_eq!(file.content().unwrap_err().kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn a_lock_excludes_other_threads_until_it_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let file = file(directory.path());
        let lock = file.lock().unwrap();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                file.lock().unwrap();
            });
            sleep(Duration::from_millis(50));
            assert!(!other.is_finished());
            drop(lock);
            other.join().unwrap();
        });
    }

    #[test]
    fn an_error_in_a_file_names_the_line_but_does_not_quote_it() {
        let directory = tempfile::tempdir().unwrap();
        let file = file(directory.path());
        file.replace(b"a = 1\nsecret = hunter2\n", &file.lock().unwrap()).unwrap();
        let error = file.parsed::<BTreeMap<String, String>>().unwrap_err().to_string();
        assert!(error.contains("line ") && !error.contains("hunter2"), "{error}");
    }
}
