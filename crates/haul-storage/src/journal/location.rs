//! Where a journal is: at a path, or in an open directory.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

use crate::rewritten_journal_name;

/// Where a journal is. `Display` shows its path.
#[derive(Debug, Clone)]
pub struct JournalPath {
    /// The directory that has the journal. Without it, the system resolves `path`.
    directory: Option<Arc<OwnedFd>>,
    path: PathBuf,
}

impl JournalPath {
    /// The last name of `path`, in an open directory. The rest of the path, which may be of any length, is only shown:
    /// the journal stays beside its part file, also if another program replaces the directory by a link.
    pub const fn within(directory: Arc<OwnedFd>, path: PathBuf) -> Self {
        Self { directory: Some(directory), path }
    }

    fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_ref().map_or(CWD, |directory| directory.as_fd())
    }

    /// The journal, relative to [`Self::directory`].
    fn name(&self) -> &Path {
        match self.directory {
            Some(_) => Path::new(self.path.file_name().unwrap_or_default()),
            None => &self.path,
        }
    }

    /// A new journal, relative to [`Self::directory`], until it is complete and replaces the old one.
    fn unfinished(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().as_encoded_bytes();
        self.name().with_file_name(OsStr::from_bytes(&rewritten_journal_name(name)))
    }

    /// Opens the journal for reading. A link is not followed, and a pipe does not block.
    pub(super) fn open(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(self.directory(), self.name(), flags, Mode::empty())?.into())
    }

    /// Replaces the journal by a new one that `write` fills. It is written beside the old one and renamed, so that a
    /// kill loses no records.
    pub(super) fn replace(
        &self,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<File> {
        let (directory, fresh) = (self.directory(), self.unfinished());
        // Removes a file or link of that name; a link is not followed.
        match unlinkat(directory, &fresh, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        // Private, because the journal names the source.
        let mut file = File::from(openat(directory, &fresh, flags, Mode::from_raw_mode(0o600))?);
        write(&mut file)?;
        renameat(directory, &fresh, directory, self.name())?;
        Ok(file)
    }

    /// Removes the journal, if it exists.
    pub(super) fn remove(&self) -> io::Result<()> {
        match unlinkat(self.directory(), self.name(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Identifies the mount of the directory: data written before a disk was unplugged may be missing when it is
    /// mounted again. Empty if unknown.
    #[cfg(target_os = "linux")]
    pub(super) fn mount(&self) -> Vec<u8> {
        use rustix::fs::{StatxFlags, statx};

        // STATX_MNT_ID_UNIQUE of Linux 6.8: never reused. The number of STATX_MNT_ID is reused after an unmount.
        const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
        let parent = self.name().parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let wanted = StatxFlags::MNT_ID | UNIQUE;
        let found = statx(self.directory(), parent, AtFlags::empty(), wanted);
        let Ok(found) = found else { return Vec::new() };
        let device = (found.stx_dev_major, found.stx_dev_minor);
        format!(" mount {} on {}:{}", found.stx_mnt_id, device.0, device.1).into_bytes()
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn mount(&self) -> Vec<u8> {
        Vec::new()
    }
}

impl From<PathBuf> for JournalPath {
    fn from(path: PathBuf) -> Self {
        Self { directory: None, path }
    }
}

impl fmt::Display for JournalPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}
