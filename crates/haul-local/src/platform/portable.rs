//! [`Platform`] with POSIX calls alone: directories are opened component by component, new names
//! are created by `link`, and data is read and written instead of copied within the kernel.

use std::ffi::CString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use haul_storage::Range;
use rustix::fs::{AtFlags, Mode, OFlags, linkat, openat, renameat, statat, unlinkat};
use rustix::io::{Errno, Result};

use super::calls::Platform;
use crate::statfs::FileSystem;

#[derive(Debug)]
pub(super) struct Portable;

impl Platform for Portable {
    fn open_directory(&self, root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd> {
        walk(root, path, OFlags::RDONLY)
    }

    fn read_flags(&self) -> OFlags {
        OFlags::empty()
    }

    fn create_unnamed(&self, _: BorrowedFd<'_>, _: u32) -> Result<Option<OwnedFd>> {
        Ok(None)
    }

    fn link_unnamed(&self, _: BorrowedFd<'_>, _: BorrowedFd<'_>, _: &[u8]) -> Result<()> {
        Err(Errno::OPNOTSUPP)
    }

    fn rename_new(&self, directory: BorrowedFd<'_>, from: &[u8], to: &[u8]) -> Result<()> {
        rename_by_link(directory, from, to)
    }

    fn reserve(&self, _: BorrowedFd<'_>, _: u64) -> Result<()> {
        Ok(())
    }

    fn clone_whole(&self, _: BorrowedFd<'_>, _: BorrowedFd<'_>) -> bool {
        false
    }

    fn copy_range(
        &self,
        _: BorrowedFd<'_>,
        _: BorrowedFd<'_>,
        _: u64,
        _: usize,
    ) -> Result<Option<usize>> {
        Ok(None)
    }

    fn next_data(&self, _: BorrowedFd<'_>, from: u64, size: u64) -> Result<Option<Range>> {
        Ok((from < size).then(|| Range::between(from, size)))
    }

    fn advise_sequential(&self, _: BorrowedFd<'_>) {}

    fn drop_cache(&self, _: BorrowedFd<'_>) {}

    fn pin(&self, _: BorrowedFd<'_>, _: &[u8]) -> Result<Option<(OwnedFd, CString)>> {
        Ok(None)
    }

    fn file_system(&self, _: BorrowedFd<'_>) -> FileSystem {
        FileSystem::COMMON
    }
}

/// Opens a directory component by component. `O_NOFOLLOW` makes a link an error at each step, and
/// no step goes up, because a path has no `..`.
pub(super) fn walk(root: BorrowedFd<'_>, path: &[u8], access: OFlags) -> Result<OwnedFd> {
    let flags = access | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut current: Option<OwnedFd> = None;
    for name in path.split(|byte| *byte == b'/') {
        let from = current.as_ref().map_or(root, |fd| fd.as_fd());
        current = Some(openat(from, name, flags, Mode::empty())?);
    }
    current.ok_or(Errno::INVAL)
}

/// Renames by `link`, which fails if the new name exists. File systems without hard links (FAT) get
/// a check and a rename instead, between which another program could create the name.
pub(super) fn rename_by_link(directory: BorrowedFd<'_>, from: &[u8], to: &[u8]) -> Result<()> {
    match linkat(directory, from, directory, to, AtFlags::empty()) {
        Ok(()) => unlinkat(directory, from, AtFlags::empty()),
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
            match statat(directory, to, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_) => Err(Errno::EXIST),
                Err(Errno::NOENT) => renameat(directory, from, directory, to),
                Err(error) => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}
