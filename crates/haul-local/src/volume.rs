//! State that all calls of one storage share: the tree, the platform, the capabilities of the file
//! system, and how an error of a system call becomes an [`Error`]. Everything here blocks;
//! `storage` runs it on disk threads.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use haul_storage::{
    BufferPool, Capabilities, CommitOptions, Entry, Error, ErrorKind, LinkKind, Location, RelPath,
    Result,
};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::dir::{Directory, Tree, below_root};
use crate::options::LocalOptions;
use crate::platform::Platform;
use crate::stat::{entry, kind_of, mode_of, permissions, u32_of};

#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) location: Location,
    /// The root with all links resolved, to show the paths of journals.
    pub(crate) root: PathBuf,
    pub(crate) tree: Tree,
    pub(crate) platform: Box<dyn Platform>,
    pub(crate) capabilities: Capabilities,
    pub(crate) options: LocalOptions,
    pub(crate) buffers: BufferPool,
    /// Bytes per write call.
    pub(crate) write_step: usize,
    /// Whether the flags of `Platform::read_flags` were refused once (files of another owner).
    plain_reads: AtomicBool,
}

impl Volume {
    pub(crate) fn new(
        location: Location,
        root: PathBuf,
        tree: Tree,
        platform: Box<dyn Platform>,
        options: LocalOptions,
    ) -> Self {
        let file_system = platform.file_system(tree.root());
        let capabilities = file_system.capabilities();
        let write_step = options.write_step_bytes(file_system.page_cache);
        let buffers = BufferPool::new(options.hop_bytes(), options.buffers);
        let plain_reads = AtomicBool::new(false);
        Self {
            location,
            root,
            tree,
            platform,
            capabilities,
            options,
            buffers,
            write_step,
            plain_reads,
        }
    }

    /// Runs `work` in the directory of `path`; an error names operation and path.
    pub(crate) fn at<T>(
        &self,
        operation: &'static str,
        path: &RelPath,
        work: impl FnMut(&Directory, &[u8]) -> rustix::io::Result<T>,
    ) -> Result<T> {
        let outcome = self.tree.at(self.platform.as_ref(), path, work);
        outcome.map_err(|errno| self.error(operation, path, errno))
    }

    /// Converts the error of a system call.
    pub(crate) fn error(&self, operation: &'static str, path: &RelPath, errno: Errno) -> Error {
        let error = match errno {
            Errno::LOOP | Errno::NOTDIR | Errno::MLINK => {
                match self.tree.obstacle(self.platform.as_ref(), path) {
                    Some(obstacle) => {
                        Error::new(ErrorKind::NotADirectory, operation).because(obstacle)
                    }
                    None if errno == Errno::LOOP => Error::new(ErrorKind::InvalidInput, operation)
                        .because("is a symbolic link; not followed"),
                    None => Error::from_io(operation, errno.into()),
                }
            }
            Errno::XDEV => Error::new(ErrorKind::Unsupported, operation).with_source(errno),
            _ => Error::from_io(operation, errno.into()),
        };
        error.at(self.location.display(path))
    }

    /// An error that was found without a system call.
    pub(crate) fn refuse(
        &self,
        kind: ErrorKind,
        operation: &'static str,
        path: &RelPath,
        cause: impl Into<String>,
    ) -> Error {
        Error::new(kind, operation).because(cause).at(self.location.display(path))
    }

    /// Checks that a commit may replace the version at `path` in `directory`. No system call compares and replaces in
    /// one step: a change between this and the rename, some microseconds later, is not noticed.
    pub(crate) fn check_replaced(
        &self,
        directory: BorrowedFd<'_>,
        path: &RelPath,
        options: &CommitOptions,
    ) -> Result<()> {
        if options.replaced().is_none() {
            return Ok(());
        }
        let found = match entry(path.clone(), directory, path.name()) {
            Ok(entry) => Some(entry.identity()),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(self.error("commit", path, errno)),
        };
        options.check(found.as_ref()).map_err(|error| error.at(self.location.display(path)))
    }

    pub(crate) fn stat(&self, path: &RelPath) -> Result<Entry> {
        self.at("stat", path, |directory, name| entry(path.clone(), directory, name))
    }

    /// Opens a regular file for reading. Refuses anything else, without waiting for the writer of a
    /// pipe.
    pub(crate) fn open_file(
        &self,
        operation: &'static str,
        path: &RelPath,
    ) -> Result<(OwnedFd, Stat)> {
        let (file, stat) = self.at(operation, path, |directory, name| {
            let file = self.open_for_reading(directory, name)?;
            let stat = rustix::fs::fstat(&file)?;
            Ok((file, stat))
        })?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok((file, stat)),
            FileType::Directory => {
                Err(self.refuse(ErrorKind::IsADirectory, operation, path, "is a directory"))
            }
            other => {
                let cause = format!("is a {}", kind_of(other));
                Err(self.refuse(ErrorKind::InvalidInput, operation, path, cause))
            }
        }
    }

    fn open_for_reading(&self, directory: impl AsFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let extra = self.platform.read_flags();
        if !extra.is_empty() && !self.plain_reads.load(Ordering::Relaxed) {
            match rustix::fs::openat(&directory, name, flags | extra, Mode::empty()) {
                Err(Errno::PERM) => self.plain_reads.store(true, Ordering::Relaxed),
                outcome => return no_device(outcome),
            }
        }
        no_device(rustix::fs::openat(directory, name, flags, Mode::empty()))
    }

    pub(crate) fn create_dir(&self, path: &RelPath, mode: Option<u32>) -> Result<()> {
        if path.is_root() {
            return Err(self.refuse(
                ErrorKind::AlreadyExists,
                "create directory",
                path,
                "it is the root",
            ));
        }
        self.at("create directory", path, |directory, name| {
            rustix::fs::mkdirat(directory, name, permissions(mode.unwrap_or(0o777)))?;
            // It is created already, so a failure is left to the calls that need the rights.
            let _ = mode.map(|mode| self.give_owner(directory, name, mode & 0o700));
            Ok(())
        })
    }

    /// Gives the owner of a new directory the rights `owner`, which the default ACL of the directory above may have
    /// reduced.
    fn give_owner(&self, directory: &Directory, name: &[u8], owner: u32) -> rustix::io::Result<()> {
        let made = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if mode_of(&made) & owner == owner || !self.capabilities.mode {
            return Ok(());
        }
        self.handle(directory.as_fd(), name)?.set_mode(mode_of(&made) | owner)
    }

    pub(crate) fn create_link(&self, path: &RelPath, link: &LinkKind, replace: bool) -> Result<()> {
        const OPERATION: &str = "create link";
        below_root(OPERATION, path).map_err(|error| error.at(&self.location))?;
        let possible = match link {
            LinkKind::Symbolic(_) => self.capabilities.symlinks,
            LinkKind::Hard(_) => self.capabilities.hard_links,
        };
        if !possible {
            let cause = "this file system does not support such links";
            return Err(self.refuse(ErrorKind::Unsupported, OPERATION, path, cause));
        }
        match self.make_link(path, link) {
            Err(error) if replace && error.kind() == ErrorKind::AlreadyExists => {}
            outcome => return outcome,
        }
        // Always the same name, so the leftover of a killed run is removed by the next one.
        let name = haul_storage::temporary_name(path.name(), "link");
        let temporary = path.with_name(name).map_err(|error| {
            self.refuse(ErrorKind::InvalidInput, OPERATION, path, format!("its name {error}"))
        })?;
        match self.make_link(&temporary, link) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                self.at(OPERATION, &temporary, |directory, name| {
                    rustix::fs::unlinkat(directory, name, AtFlags::empty())
                })?;
                self.make_link(&temporary, link)?;
            }
            made => made?,
        }
        let renamed = self.at(OPERATION, path, |directory, name| {
            rustix::fs::renameat(directory, temporary.name(), directory, name)
        });
        // Renaming a file over another link to it does nothing, so the temporary name remains.
        let is_hard = matches!(link, LinkKind::Hard(_));
        if renamed.is_err() || is_hard {
            let _ = self.tree.at(self.platform.as_ref(), &temporary, |directory, name| {
                rustix::fs::unlinkat(directory, name, AtFlags::empty())
            });
        }
        renamed
    }

    fn make_link(&self, path: &RelPath, link: &LinkKind) -> Result<()> {
        const OPERATION: &str = "create link";
        match link {
            LinkKind::Symbolic(target) => self.at(OPERATION, path, |directory, name| {
                rustix::fs::symlinkat(target.as_slice(), directory, name)
            }),
            LinkKind::Hard(existing) => {
                self.between(OPERATION, existing, path, |from, old, to, new| {
                    rustix::fs::linkat(from, old, to, new, AtFlags::empty())
                })
            }
        }
    }

    /// Runs `work` with two paths. An error names the first path only if that is certainly at
    /// fault.
    fn between(
        &self,
        operation: &'static str,
        from: &RelPath,
        to: &RelPath,
        work: impl Fn(&Directory, &[u8], &Directory, &[u8]) -> rustix::io::Result<()>,
    ) -> Result<()> {
        let platform = self.platform.as_ref();
        let outcome = self.tree.at(platform, from, |from_directory, old| {
            self.tree
                .at(platform, to, |to_directory, new| work(from_directory, old, to_directory, new))
        });
        outcome.map_err(|errno| {
            let from_is_bad = self.tree.obstacle(platform, from).is_some()
                || (errno == Errno::NOENT && self.stat(from).is_err());
            if from_is_bad {
                return self.error(operation, from, errno);
            }
            let error = self.error(operation, to, errno);
            if error.kind() == ErrorKind::NotADirectory {
                return error;
            }
            error.because(format!("from '{from}'"))
        })
    }

    pub(crate) fn remove(&self, path: &RelPath) -> Result<()> {
        const OPERATION: &str = "remove";
        below_root(OPERATION, path).map_err(|error| error.at(&self.location))?;
        let is_dir = self.at(OPERATION, path, |directory, name| {
            match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
                // For a directory, POSIX has EPERM and Linux EISDIR; EPERM has other causes as
                // well.
                Err(Errno::ISDIR | Errno::PERM) => {
                    match rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR) {
                        Err(Errno::EXIST) => Err(Errno::NOTEMPTY),
                        Err(Errno::NOTDIR) => Err(Errno::PERM),
                        outcome => outcome.map(|()| true),
                    }
                }
                outcome => outcome.map(|()| false),
            }
        })?;
        if is_dir {
            self.tree.forget(path);
        }
        Ok(())
    }

    pub(crate) fn rename(&self, from: &RelPath, to: &RelPath) -> Result<()> {
        const OPERATION: &str = "rename";
        for path in [from, to] {
            below_root(OPERATION, path).map_err(|error| error.at(&self.location))?;
        }
        let outcome =
            self.between(OPERATION, from, to, |from_directory, old, to_directory, new| {
                rustix::fs::renameat(from_directory, old, to_directory, new)
            });
        // Only directories are in the cache: for a file this drops nothing.
        self.tree.forget(from);
        self.tree.forget(to);
        outcome
    }
}

/// Opening a socket, or a device without a driver, returns ENXIO; it is of the wrong kind in any case.
fn no_device(outcome: rustix::io::Result<OwnedFd>) -> rustix::io::Result<OwnedFd> {
    outcome.map_err(|error| if error == Errno::NXIO { Errno::INVAL } else { error })
}

/// A unique name beside `name`.
pub(crate) fn temporary_name(name: &[u8]) -> Vec<u8> {
    haul_storage::temporary_name(name, &haul_storage::unique())
}

/// The umask.
pub(crate) fn umask() -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    *UMASK.get_or_init(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        match line.and_then(|digits| u32::from_str_radix(digits.trim(), 8).ok()) {
            Some(mask) => mask,
            None => {
                // The only portable way to read it is to set it.
                let mask = rustix::process::umask(permissions(0o077));
                rustix::process::umask(mask);
                u32_of(mask.bits())
            }
        }
    })
}
