//! Files and directories behind a session's handles: reading, writing, copying, attributes.
//! All calls block; `session` runs short ones itself (`WorkPool::submit_short`) and the others on disk threads.

use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use haul_net::{Jail, proc_path};
use haul_storage::{Block, BufferPool};
use rustix::fs::{
    Advice, AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, StatVfs as SystemStatVfs,
    StatVfsMountFlags, Timespec, Timestamps, Uid, chmodat, copy_file_range, fadvise, fchmod,
    fchown, fstat, fsync, ftruncate, futimens,
};
use rustix::io::{Errno, IoSlice, pread, pwritev};

use super::listing;
use super::status::Refusal;
use crate::codec::{Attrs, DATA_HEAD, Name, OpenFlags, Response, StatVfs, data_head};

type Result<T, E = Refusal> = std::result::Result<T, E>;

/// Pieces per `pwritev` (`IOV_MAX` is 1 024 on Linux).
const PIECES: usize = 512;

/// Bytes per step of a copy that the kernel does not support.
const COPY_STEP: usize = 256 << 10;

/// A file or directory behind a handle.
#[derive(Debug)]
pub(super) enum Open {
    /// A regular file.
    File(File),
    /// A directory, at the position after the last listing.
    Directory(Mutex<Dir>),
}

/// An open file.
#[derive(Debug)]
pub(super) struct File {
    file: OwnedFd,
    writes: bool,
}

impl Open {
    /// Opens a file for an OPEN request.
    pub(super) fn file(jail: &Jail, path: &[u8], flags: OpenFlags, attrs: &Attrs) -> Result<Self> {
        let writes = flags.has(OpenFlags::WRITE) || flags.has(OpenFlags::APPEND);
        let mut how = match (flags.has(OpenFlags::READ), writes) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            (_, false) => OFlags::RDONLY,
        };
        let mut mode = 0;
        if flags.has(OpenFlags::CREATE) {
            how |= OFlags::CREATE;
            mode = attrs.permissions.unwrap_or(0o666);
            how.set(OFlags::EXCL, flags.has(OpenFlags::EXCLUSIVE));
        }
        how.set(OFlags::TRUNC, flags.has(OpenFlags::TRUNCATE));
        how.set(OFlags::APPEND, flags.has(OpenFlags::APPEND));
        // A pipe without a writer must not block the thread, and a terminal must not become the
        // controlling one.
        let file = jail.open_as(path, how | OFlags::NONBLOCK | OFlags::NOCTTY, mode)?;
        match FileType::from_raw_mode(fstat(&file)?.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Errno::ISDIR.into()),
            _ => return Err(Refusal::Server(crate::codec::Status::Failure, "not a regular file")),
        }
        if !writes {
            // Only advice: errors do not matter.
            let _ = fadvise(&file, 0, None::<NonZeroU64>, Advice::Sequential);
        }
        Ok(Self::File(File { file, writes }))
    }

    /// Opens a directory for listing.
    pub(super) fn directory(jail: &Jail, path: &[u8]) -> Result<Self> {
        let file = jail.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(Self::Directory(Mutex::new(Dir::new(file)?)))
    }

    /// Whether it was opened for writing.
    pub(super) const fn writes(&self) -> bool {
        matches!(self, Self::File(File { writes: true, .. }))
    }

    /// The next entries of a directory; none at its end.
    pub(super) fn list(&self) -> Result<Vec<Name>> {
        match self {
            Self::Directory(directory) => {
                let mut directory = directory.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(listing::next(&mut directory)?)
            }
            Self::File(_) => Err(Refusal::NO_HANDLE),
        }
    }

    /// Its attributes.
    pub(super) fn attrs(&self) -> Result<Attrs> {
        let stat = match self {
            Self::File(file) => fstat(&file.file)?,
            Self::Directory(directory) => {
                fstat(directory.lock().unwrap_or_else(PoisonError::into_inner).fd()?)?
            }
        };
        Ok(listing::attrs(&stat))
    }

    /// Sets the given attributes.
    pub(super) fn set(&self, attrs: &Attrs) -> Result<()> {
        match self {
            Self::File(file) => set_open(&file.file, attrs),
            Self::Directory(directory) => {
                let directory = directory.lock().unwrap_or_else(PoisonError::into_inner);
                set_open(directory.fd()?, attrs)
            }
        }
    }

    /// The file system that it is on.
    pub(super) fn stat_vfs(&self) -> Result<StatVfs> {
        let found = match self {
            Self::File(file) => rustix::fs::fstatvfs(&file.file)?,
            Self::Directory(directory) => {
                let directory = directory.lock().unwrap_or_else(PoisonError::into_inner);
                rustix::fs::fstatvfs(directory.fd()?)?
            }
        };
        Ok(stat_vfs(&found))
    }

    /// The file; an error if the handle refers to a directory.
    pub(super) fn as_file(&self) -> Result<&File> {
        match self {
            Self::File(file) => Ok(file),
            Self::Directory(_) => Err(Refusal::NO_HANDLE),
        }
    }
}

impl File {
    /// Reads up to `length` bytes into a buffer of `pool`, after the head of the response to
    /// request `id`, so that the buffer is the packet to send. `None` at the end of the file.
    pub(super) fn read(
        &self,
        id: u32,
        offset: u64,
        length: usize,
        pool: &BufferPool,
    ) -> Result<Option<Bytes>> {
        let mut buffer = pool.take(DATA_HEAD + length);
        let bytes = buffer.as_mut_slice();
        let read = self.read_into(offset, &mut bytes[DATA_HEAD..])?;
        if read == 0 {
            return Ok(None);
        }
        bytes[..DATA_HEAD].copy_from_slice(&data_head(id, read));
        Ok(Some(buffer.freeze(DATA_HEAD + read)))
    }

    /// Reads into `buffer`. Returns the number of bytes, 0 at the end of the file.
    pub(super) fn read_into(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        loop {
            match pread(&self.file, &mut *buffer, offset) {
                Err(Errno::INTR) => {}
                outcome => return Ok(outcome?),
            }
        }
    }

    /// Writes a block. Returns how many of its bytes were written before an error.
    pub(super) fn write(&self, offset: u64, block: &Block) -> (usize, Result<()>) {
        let mut written = 0;
        let mut pieces: Vec<IoSlice<'_>> =
            block.pieces().iter().map(|piece| IoSlice::new(piece)).collect();
        let mut rest = &mut pieces[..];
        while !rest.is_empty() {
            let step = rest.len().min(PIECES);
            match pwritev(&self.file, &rest[..step], offset + written as u64) {
                Ok(0) => return (written, Err(Errno::IO.into())),
                Ok(count) => {
                    written += count;
                    IoSlice::advance_slices(&mut rest, count);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return (written, Err(errno.into())),
            }
        }
        (written, Ok(()))
    }

    /// Syncs what was written to disk.
    pub(super) fn sync(&self) -> Result<()> {
        Ok(fsync(&self.file)?)
    }

    /// Checks a copy to another file, or within this one if the ranges do not overlap. Returns the
    /// end of the range to copy from this file. `length` 0 means up to the end of the file.
    pub(super) fn end_of_copy(
        &self,
        (offset, length): (u64, u64),
        to: &Self,
        to_offset: u64,
    ) -> Result<u64> {
        let (from_stat, to_stat) = (fstat(&self.file)?, fstat(&to.file)?);
        let size = u64::try_from(from_stat.st_size).unwrap_or(0);
        let end = match length {
            0 => size.max(offset),
            length => offset.checked_add(length).ok_or(Errno::INVAL)?,
        };
        let is_same = (from_stat.st_dev, from_stat.st_ino) == (to_stat.st_dev, to_stat.st_ino);
        let to_end = to_offset.checked_add(end - offset).ok_or(Errno::INVAL)?;
        if is_same && offset < to_end && to_offset < end {
            return Err(Errno::INVAL.into());
        }
        Ok(end)
    }

    /// Copies at most `most` bytes. Returns how many, 0 at the end of the file. Clears `in_kernel`
    /// if the kernel does not support it.
    pub(super) fn copy_some(
        &self,
        offset: u64,
        to: &Self,
        to_offset: u64,
        (most, in_kernel): (usize, &mut bool),
    ) -> Result<usize> {
        while *in_kernel {
            let (mut read, mut write) = (offset, to_offset);
            match copy_file_range(&self.file, Some(&mut read), &to.file, Some(&mut write), most) {
                Err(Errno::INTR) => {}
                Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::BADF) => {
                    // Not supported by these file systems, or the file is open for appending.
                    *in_kernel = false;
                }
                outcome => return Ok(outcome?),
            }
        }
        self.copy_step(offset, to, to_offset, most.min(COPY_STEP))
    }

    fn copy_step(&self, offset: u64, to: &Self, to_offset: u64, step: usize) -> Result<usize> {
        let mut buffer = vec![0; step];
        let read = self.read_into(offset, &mut buffer)?;
        buffer.truncate(read);
        let (_, written) = to.write(to_offset, &Block::from(Bytes::from(buffer)));
        written.map(|()| read)
    }
}

/// Sets the given attributes on a path; on a link itself unless `follow` is set.
pub(super) fn set_named(jail: &Jail, path: &[u8], follow: bool, attrs: &Attrs) -> Result<()> {
    let found = jail.locate(path, follow)?;
    let mut first = None;
    let mut note = |outcome: rustix::io::Result<()>| {
        if let Err(errno) = outcome {
            first.get_or_insert(errno);
        }
    };
    // OpenSSH's order; all are tried even if one fails.
    if let Some(size) = attrs.size {
        note(if follow { truncate(&found, size) } else { Err(Errno::INVAL) });
    }
    if let Some(mode) = attrs.permissions {
        let is_link = FileType::from_raw_mode(fstat(&found)?.st_mode) == FileType::Symlink;
        note(if is_link {
            Err(Errno::OPNOTSUPP)
        } else {
            chmodat(CWD, proc_path(&found), permissions(mode), AtFlags::empty())
        });
    }
    if let Some(times) = timestamps(attrs) {
        note(rustix::fs::utimensat(&found, c"", &times, AtFlags::EMPTY_PATH));
    }
    if let Some((user, group)) = attrs.owner {
        let (user, group) = (changed_user(user), changed_group(group));
        note(rustix::fs::chownat(&found, c"", user, group, AtFlags::EMPTY_PATH));
    }
    first.map_or(Ok(()), |errno| Err(errno.into()))
}

/// Sets the given attributes on an open file.
fn set_open(file: impl AsFd, attrs: &Attrs) -> Result<()> {
    let mut first = None;
    let mut note = |outcome: rustix::io::Result<()>| {
        if let Err(errno) = outcome {
            first.get_or_insert(errno);
        }
    };
    if let Some(size) = attrs.size {
        note(ftruncate(&file, size));
    }
    if let Some(mode) = attrs.permissions {
        note(fchmod(&file, permissions(mode)));
    }
    if let Some(times) = timestamps(attrs) {
        note(futimens(&file, &times));
    }
    if let Some((user, group)) = attrs.owner {
        note(fchown(&file, changed_user(user), changed_group(group)));
    }
    first.map_or(Ok(()), |errno| Err(errno.into()))
}

/// The user to set; `None` for 2³² - 1, which leaves it as it is, as OpenSSH's server does.
fn changed_user(user: u32) -> Option<Uid> {
    (user != u32::MAX).then(|| Uid::from_raw(user))
}

/// The group to set, as [`changed_user`].
fn changed_group(group: u32) -> Option<Gid> {
    (group != u32::MAX).then(|| Gid::from_raw(group))
}

/// Truncates or extends exactly the file that a descriptor refers to.
fn truncate(found: &OwnedFd, size: u64) -> rustix::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    ftruncate(rustix::fs::open(proc_path(found), flags, Mode::empty())?, size)
}

/// The permission bits of a mode.
pub(super) fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o7777)
}

fn timestamps(attrs: &Attrs) -> Option<Timestamps> {
    let (accessed, modified) = attrs.times?;
    let at = |seconds: u32| Timespec { tv_sec: i64::from(seconds), tv_nsec: 0 };
    Some(Timestamps { last_access: at(accessed), last_modification: at(modified) })
}

/// Converts to the protocol's form.
pub(super) fn stat_vfs(found: &SystemStatVfs) -> StatVfs {
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    StatVfs {
        bsize: found.f_bsize,
        frsize: found.f_frsize,
        blocks: found.f_blocks,
        bfree: found.f_bfree,
        bavail: found.f_bavail,
        files: found.f_files,
        ffree: found.f_ffree,
        favail: found.f_favail,
        fsid: found.f_fsid,
        flag: flag(found.f_flag.contains(StatVfsMountFlags::RDONLY), 1)
            | flag(found.f_flag.contains(StatVfsMountFlags::NOSUID), 2),
        namemax: found.f_namemax,
    }
}

/// The response to an extended request about a file system.
pub(super) fn stat_vfs_response(found: &StatVfs) -> Response {
    Response::Extended(found.encode())
}
