//! Replaces entries of any type: the old one is moved aside, and removed later, without holding a lock.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::{Errno, Result};

use super::part::{part_beside, rename_new};

/// A replaced entry of any type, under the name of a part file.
#[derive(Debug)]
pub(super) struct Aside {
    directory: OwnedFd,
    name: Vec<u8>,
}

impl Aside {
    /// Removes the entry. Its replacement succeeded, which is all that the client needs to know. Entries that cannot be
    /// removed remain.
    pub(super) fn remove(self) {
        let _ = remove_all(self.directory.as_fd(), &self.name);
    }
}

/// Renames over an existing entry of any type. The old entry is moved aside, and moved back if the
/// rename fails. The caller removes it. `None` if there was none.
pub(super) fn rename_over(
    (from, old): (impl AsFd, &[u8]),
    (to, new): (OwnedFd, &[u8]),
) -> Result<Option<Aside>> {
    let aside = part_beside(new)?;
    match rename_new((&to, new), (&to, &aside)) {
        Ok(()) => {}
        Err(Errno::NOENT) => return renameat(from, old, to, new).map(|()| None),
        Err(errno) => return Err(errno),
    }
    if let Err(errno) = renameat(from, old, &to, new) {
        rename_new((&to, &aside), (&to, new))?;
        return Err(errno);
    }
    Ok(Some(Aside { directory: to, name: aside }))
}

/// Removes a file, or a directory with everything in it. Links are removed, not followed.
pub(super) fn remove_all(directory: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {}
        outcome => return outcome,
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inside = openat(directory, name, flags, Mode::empty())?;
    for entry in Dir::read_from(&inside)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            remove_all(inside.as_fd(), name)?;
        }
    }
    unlinkat(directory, name, AtFlags::REMOVEDIR)
}
