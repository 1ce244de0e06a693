//! [`Platform`] for Linux. If `openat2`, `O_TMPFILE` or `AT_EMPTY_PATH` is not supported, this is remembered, so
//! that it is tried once and not for every file.

use std::ffi::CString;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use haul_storage::Range;
use rustix::fs::{
    Advice, AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, ResolveFlags, SeekFrom,
    StatFs, copy_file_range, fadvise, fallocate, fstat, fstatfs, ftruncate, ioctl_ficlone, linkat,
    openat, openat2, renameat_with, seek, statat,
};
use rustix::io::{Errno, Result};

use super::calls::Platform;
use super::portable::{rename_by_link, walk};
use crate::stat::permissions;
use crate::statfs::FileSystem;

#[derive(Debug, Default)]
pub(super) struct Linux {
    /// `openat2` is missing (Linux before 5.6, or a sandbox).
    no_openat2: AtomicBool,
    /// `O_TMPFILE` is missing in this file system.
    no_unnamed: AtomicBool,
    /// Linking a descriptor needs a path in `/proc` (Linux before 6.10 without privilege).
    link_through_proc: AtomicBool,
}

/// How often a path is resolved when concurrent renames make the kernel return EAGAIN.
const RACES: usize = 4;

impl Platform for Linux {
    fn open_directory(&self, root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd> {
        if !self.no_openat2.load(Ordering::Relaxed) {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let resolve =
                ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            for _ in 0..RACES {
                match openat2(root, path, flags, Mode::empty(), resolve) {
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    Err(Errno::NOSYS) => {
                        self.no_openat2.store(true, Ordering::Relaxed);
                        break;
                    }
                    // Old sandboxes return EPERM for unknown calls. Paths longer than PATH_MAX can
                    // still be walked.
                    Err(Errno::PERM | Errno::NAMETOOLONG) => break,
                    outcome => return outcome,
                }
            }
        }
        walk(root, path, OFlags::PATH)
    }

    fn read_flags(&self) -> OFlags {
        OFlags::NOATIME
    }

    fn create_unnamed(&self, directory: BorrowedFd<'_>, mode: u32) -> Result<Option<OwnedFd>> {
        if self.no_unnamed.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        match openat(directory, c".", flags, permissions(mode)) {
            Ok(file) => Ok(Some(file)),
            // Kernels without the flag see an attempt to write a directory.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => {
                self.no_unnamed.store(true, Ordering::Relaxed);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn link_unnamed(&self, file: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &[u8]) -> Result<()> {
        if !self.link_through_proc.load(Ordering::Relaxed) {
            match linkat(file, c"", to, name, AtFlags::EMPTY_PATH) {
                // NOENT also means that the directory is gone; linking through /proc then fails as
                // well.
                Err(Errno::NOENT) => {}
                outcome => return outcome,
            }
        }
        linkat(CWD, proc_path(file), to, name, AtFlags::SYMLINK_FOLLOW)?;
        self.link_through_proc.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn rename_new(&self, directory: BorrowedFd<'_>, from: &[u8], to: &[u8]) -> Result<()> {
        match renameat_with(directory, from, directory, to, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                rename_by_link(directory, from, to)
            }
            outcome => outcome,
        }
    }

    fn reserve(&self, file: BorrowedFd<'_>, size: u64) -> Result<()> {
        if let Ok(on) = fstatfs(file)
            && FileSystem::is_memory(on.f_type as u32)
        {
            return has_room(file, &on, size);
        }
        match fallocate(file, FallocateFlags::KEEP_SIZE, 0, size) {
            Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => {
                // Some file systems keep what they have allocated so far, which other files would
                // then lack.
                let length = u64::try_from(fstat(file)?.st_size).unwrap_or(0);
                ftruncate(file, length)?;
                Err(error)
            }
            _ => Ok(()),
        }
    }

    fn clone_whole(&self, from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> bool {
        // A real error occurs again in the ordinary copy, which reports it.
        ioctl_ficlone(to, from).is_ok()
    }

    fn copy_range(
        &self,
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        offset: u64,
        length: usize,
    ) -> Result<Option<usize>> {
        let (mut read, mut write) = (offset, offset);
        loop {
            return match copy_file_range(from, Some(&mut read), to, Some(&mut write), length) {
                Err(Errno::INTR) => continue,
                Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM) => {
                    Ok(None)
                }
                outcome => outcome.map(Some),
            };
        }
    }

    fn next_data(&self, file: BorrowedFd<'_>, from: u64, size: u64) -> Result<Option<Range>> {
        if from >= size {
            return Ok(None);
        }
        let start = match seek(file, SeekFrom::Data(from)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => from,
            Err(error) => return Err(error),
        };
        let end = match seek(file, SeekFrom::Hole(start)) {
            Ok(end) => end.min(size),
            Err(Errno::NXIO) => return Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => size,
            Err(error) => return Err(error),
        };
        Ok((start < end).then(|| Range::between(start, end)))
    }

    fn advise_sequential(&self, file: BorrowedFd<'_>) {
        // Only advice: errors do not matter.
        let _ = fadvise(file, 0, None::<NonZeroU64>, Advice::Sequential);
    }

    fn drop_cache(&self, file: BorrowedFd<'_>) {
        let _ = fadvise(file, 0, None::<NonZeroU64>, Advice::DontNeed);
    }

    fn pin(&self, directory: BorrowedFd<'_>, name: &[u8]) -> Result<Option<(OwnedFd, CString)>> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        if !has_proc() {
            return Ok(None);
        }
        let file = openat(directory, name, flags, Mode::empty())?;
        let path = proc_path(&file);
        Ok(Some((file, path)))
    }

    fn file_system(&self, directory: BorrowedFd<'_>) -> FileSystem {
        fstatfs(directory).map_or(FileSystem::COMMON, |found| {
            // Magic numbers have 32 bits; the field's type differs between machines.
            let magic = found.f_type as u32;
            FileSystem::of_magic(magic)
        })
    }
}

/// On tmpfs, only checks the free space. Reserving pages of memory beforehand has no advantage and
/// delays the first write (tmpfs, 2 GiB: 0.4 s of the 0.8 s that allocating and filling them
/// takes).
fn has_room(file: BorrowedFd<'_>, on: &StatFs, size: u64) -> Result<()> {
    let held = u64::try_from(fstat(file)?.st_blocks).unwrap_or(0).saturating_mul(512);
    let free = on.f_bavail.saturating_mul(u64::try_from(on.f_bsize).unwrap_or(0));
    // A tmpfs without a limit reports no blocks at all.
    let is_limited = on.f_blocks > 0;
    if is_limited && size.saturating_sub(held) > free { Err(Errno::NOSPC) } else { Ok(()) }
}

/// Whether `/proc` is mounted, which it may not be in a chroot.
fn has_proc() -> bool {
    static HAS_PROC: OnceLock<bool> = OnceLock::new();
    *HAS_PROC.get_or_init(|| statat(CWD, c"/proc/self/fd", AtFlags::empty()).is_ok())
}

fn proc_path(file: impl std::os::fd::AsFd) -> CString {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    // Letters, digits and slashes only, so no NUL.
    CString::new(path).unwrap_or_default()
}
