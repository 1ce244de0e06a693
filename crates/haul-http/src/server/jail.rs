//! The directory that is served, and the only way into it.
//!
//! A client's path is given to `openat2` with `RESOLVE_IN_ROOT`: the kernel resolves it as if the
//! directory were `/`, in one step, so that neither `..`, nor an absolute link, nor a link that
//! somebody puts there at the wrong moment leads out. What changes a name opens the directory of
//! that name in this way and then acts on the last component without following it.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use haul_storage::{Error, ErrorKind};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, readlinkat};
use rustix::io::{Errno, Result};

use super::limits;

/// How often a path is resolved again when renames elsewhere made the kernel give up.
const RACES: usize = 16;

/// A directory below which every path of a client is.
#[derive(Debug)]
pub(super) struct Jail {
    root: OwnedFd,
}

impl Jail {
    /// Opens the directory.
    pub(super) fn open(directory: &Path) -> haul_storage::Result<Self> {
        let failed = |errno: Errno| Error::from_io("serve", errno.into()).at(directory.display());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let jail = Self { root: openat(CWD, directory, flags, Mode::empty()).map_err(failed)? };
        match jail.resolve(b"/", OFlags::PATH) {
            Ok(_) => Ok(jail),
            Err(Errno::NOSYS | Errno::PERM) => {
                Err(Error::new(ErrorKind::Unsupported, "serve").at(directory.display()).because(
                    "this system has no openat2 (Linux 5.6), which keeps clients in the directory",
                ))
            }
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Opens what a path names, following links that stay inside. Nothing is made.
    pub(super) fn resolve(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd> {
        if path.len() > limits::PATH {
            return Err(Errno::NAMETOOLONG);
        }
        // `dav-server` knows the parent of what is at the top by no name.
        let path = if path.is_empty() { b"/" } else { path };
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..RACES {
            match openat2(&self.root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                outcome => return outcome,
            }
        }
        Err(Errno::AGAIN)
    }

    /// What is at a path; a link itself if `follow` is not set.
    pub(super) fn stat(&self, path: &[u8], follow: bool) -> Result<Stat> {
        let (path, nofollow) = match follow {
            true => (path, OFlags::empty()),
            // With a slash at its end the kernel follows even so.
            false => (trimmed(path), OFlags::NOFOLLOW),
        };
        fstat(self.resolve(path, OFlags::PATH | nofollow)?)
    }

    /// The directory of a path's last component, and that component. `BUSY` if it has none, which is
    /// the served directory itself.
    pub(super) fn parent<'a>(&self, path: &'a [u8]) -> Result<(OwnedFd, &'a [u8])> {
        let path = trimmed(path);
        let Some(slash) = path.iter().rposition(|byte| *byte == b'/') else {
            return Err(Errno::BUSY);
        };
        let (directory, name) = (&path[..=slash], &path[slash + 1..]);
        if matches!(name, b"" | b"." | b"..") {
            return Err(Errno::BUSY);
        }
        Ok((self.resolve(directory, OFlags::PATH | OFlags::DIRECTORY)?, name))
    }

    /// A path without links, `.` and `..`, as the client sees it. Its last component need not exist.
    pub(super) fn canonical(&self, path: &[u8]) -> Result<Vec<u8>> {
        match self.resolve(path, OFlags::PATH) {
            Ok(found) => self.name_of(found.as_fd()),
            Err(Errno::NOENT) => {
                let (directory, name) = self.parent(path)?;
                let mut whole = self.name_of(directory.as_fd())?;
                if whole != b"/" {
                    whole.push(b'/');
                }
                whole.extend_from_slice(name);
                Ok(whole)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Where a descriptor is, as the client sees it; `ACCESS` if that is no longer inside.
    fn name_of(&self, found: BorrowedFd<'_>) -> Result<Vec<u8>> {
        let (root, path) = (system_path(self.root.as_fd())?, system_path(found)?);
        let rest = if root == b"/" { Some(&path[..]) } else { path.strip_prefix(&root[..]) };
        match rest {
            Some(b"") => Ok(b"/".to_vec()),
            Some(rest) if rest[0] == b'/' => Ok(rest.to_vec()),
            _ => Err(Errno::ACCESS),
        }
    }
}

/// A path by which calls that know no descriptors reach exactly what one stands for.
fn system_path(found: BorrowedFd<'_>) -> Result<Vec<u8>> {
    let link = format!("/proc/self/fd/{}", found.as_raw_fd());
    Ok(readlinkat(CWD, link, Vec::new())?.into_bytes())
}

/// Without slashes at its end.
pub(super) fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    if end == 0 { b"/" } else { &path[..end] }
}
