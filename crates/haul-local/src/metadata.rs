//! Reads and sets the metadata that a copy preserves: owner, mode, times, extended attributes.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use haul_storage::{Capabilities, ErrorKind, Metadata, RelPath, Result, Timestamp, Xattrs};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, Uid};
use rustix::io::{Errno, Result as SysResult};

use crate::stat::{metadata_of, mode_of, permissions};
use crate::statfs::left_out;
use crate::volume::Volume;
use crate::xattrs::{Holder, has_acl};

/// Set-user-ID and set-group-ID bits, which lend the rights of the owner.
const SET_ID: u32 = 0o6000;

const OWNER_READ_WRITE: u32 = 0o600;

/// Arguments that set the modification time, and the access time to now. File systems on libfuse 2
/// (exfat-fuse, fusefat, and others that do not set `utime_omit_ok`) ignore a request that has only
/// one of the two, and report success.
fn times(modified: Timestamp) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        last_modification: Timespec { tv_sec: modified.seconds, tv_nsec: modified.nanos.into() },
    }
}

/// The IDs of an owner for `chown`. 2³² - 1, which a server may report, is not an ID: `chown` would change nothing.
///
/// # Errors
/// `EINVAL` for that number.
fn ids((user, group): (u32, u32)) -> SysResult<(Option<Uid>, Option<Gid>)> {
    if [user, group].contains(&u32::MAX) {
        return Err(Errno::INVAL);
    }
    Ok((Some(Uid::from_raw(user)), Some(Gid::from_raw(group))))
}

/// Sets the metadata of a file before it gets its name.
///
/// The order is owner, attributes, mode, time: a change of owner clears set-ID bits and
/// capabilities, and a mode without write permission forbids setting `user.*` attributes. Set-ID
/// bits are set only together with the owner, since they lend the owner's rights; the caller leaves
/// out capabilities for the same reason.
pub(crate) fn apply(
    file: BorrowedFd<'_>,
    metadata: &Metadata,
    can: &Capabilities,
) -> Result<(), (&'static str, Errno)> {
    let stat = rustix::fs::fstat(file).map_err(|error| ("access", error))?;
    let owner = metadata.owner.filter(|_| can.owner);
    // Only if it differs: a change needs privilege, and clears set-ID bits.
    if let Some(owner) = owner.filter(|owner| *owner != (stat.st_uid, stat.st_gid)) {
        let set = ids(owner).and_then(|(user, group)| rustix::fs::fchown(file, user, group));
        left_out(set).map_err(|error| ("set owner", error))?;
    }
    let mut changed = false;
    if can.xattrs
        && let Some(xattrs) = &metadata.xattrs
    {
        // A new file may have inherited an ACL from its directory, even one that does not let the owner write.
        let made = Pinned { file, path: None }.make_xattrs(xattrs);
        changed = made.map_err(|error| ("set extended attributes", error))?;
    }
    if can.mode
        && let Some(mode) = metadata.mode
    {
        let mode = if owner.is_some() { mode } else { mode & !SET_ID };
        // An ACL among the attributes changes the mode; a change of owner only clears bits that the
        // file does not have yet.
        if mode != mode_of(&stat) || changed {
            let set = rustix::fs::fchmod(file, permissions(mode));
            left_out(set).map_err(|error| ("set mode", error))?;
        }
    }
    if let Some(modified) = metadata.modified {
        let set = rustix::fs::futimens(file, &times(modified));
        left_out(set).map_err(|error| ("set time", error))?;
    }
    Ok(())
}

/// Sets the mode of a file whose `metadata`, which was applied already, has none. An ACL among it has set the mode.
pub(crate) fn apply_default_mode(
    file: BorrowedFd<'_>,
    metadata: &Metadata,
    mode: u32,
    can: &Capabilities,
) -> Result<(), (&'static str, Errno)> {
    let acl = metadata.xattrs.as_ref().filter(|xattrs| can.xattrs && has_acl(xattrs));
    // The file system may not support ACLs.
    if !can.mode || acl.is_some() && Holder::File(file).has_acl() {
        return Ok(());
    }
    let stat = rustix::fs::fstat(file).map_err(|error| ("access", error))?;
    if mode == mode_of(&stat) {
        return Ok(());
    }
    left_out(rustix::fs::fchmod(file, permissions(mode))).map_err(|error| ("set mode", error))
}

impl Volume {
    /// Everything that can be set on a copy of `path`.
    pub(crate) fn metadata(&self, path: &RelPath) -> Result<Metadata> {
        const OPERATION: &str = "read metadata";
        let (stat, xattrs) = self.at(OPERATION, path, |directory, name| {
            let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            let kind = FileType::from_raw_mode(stat.st_mode);
            let has_xattrs = matches!(kind, FileType::RegularFile | FileType::Directory);
            let xattrs = if has_xattrs && self.capabilities.xattrs {
                Some(self.handle(directory.as_fd(), name)?.pinned().holder().read()?)
            } else {
                None
            };
            Ok((stat, xattrs))
        })?;
        let mut metadata = metadata_of(&stat);
        metadata.xattrs = xattrs;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            metadata.mode = None;
        }
        Ok(metadata)
    }

    /// Sets the given metadata on an existing entry, which may be a link. Set-ID bits are set as
    /// requested: the caller names one entry.
    ///
    /// All steps use one open handle, so a rename in the directory meanwhile cannot make owner and
    /// mode apply to different files. If a step fails, the others are still done, and the first
    /// error is returned. A link has no handle: its steps use its name.
    pub(crate) fn set_metadata(&self, path: &RelPath, metadata: &Metadata) -> Result<()> {
        const OPERATION: &str = "set metadata";
        let kind = self.at(OPERATION, path, |directory, name| {
            let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(FileType::from_raw_mode(stat.st_mode))
        })?;
        if kind == FileType::Symlink {
            return self.set_metadata_of_link(path, metadata);
        }
        let handle =
            self.at(OPERATION, path, |directory, name| self.handle(directory.as_fd(), name))?;
        let stat =
            rustix::fs::fstat(&handle.file).map_err(|errno| self.error(OPERATION, path, errno))?;
        let can = &self.capabilities;
        let mut outcome = Ok(());
        let mut step = |operation, done: SysResult<()>| {
            if let (Err(errno), true) = (done, outcome.is_ok()) {
                outcome = Err(self.error(operation, path, errno));
            }
        };
        let owner = metadata.owner.filter(|owner| *owner != (stat.st_uid, stat.st_gid));
        if let Some(owner) = owner.filter(|_| can.owner) {
            step("set owner", handle.set_owner(owner));
        }
        if let Some(xattrs) = metadata.xattrs.as_ref().filter(|_| can.xattrs) {
            step("set extended attributes", handle.pinned().make_xattrs(xattrs).map(drop));
        }
        if let Some(mode) = metadata.mode.filter(|_| can.mode) {
            step("set mode", handle.set_mode(mode));
        }
        if let Some(modified) = metadata.modified {
            step("set time", handle.set_time(modified));
        }
        outcome
    }

    fn set_metadata_of_link(&self, path: &RelPath, metadata: &Metadata) -> Result<()> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let mut outcome = Ok(());
        if let Some(owner) = metadata.owner.filter(|_| self.capabilities.owner) {
            outcome = self.at("set owner", path, |directory, name| {
                let stat = rustix::fs::statat(directory, name, flags)?;
                if (stat.st_uid, stat.st_gid) == owner {
                    return Ok(());
                }
                let (user, group) = ids(owner)?;
                left_out(rustix::fs::chownat(directory, name, user, group, flags))
            });
        }
        if let Some(modified) = metadata.modified {
            let set = self.at("set time", path, |directory, name| {
                left_out(rustix::fs::utimensat(directory, name, &times(modified), flags))
            });
            outcome = outcome.and(set);
        }
        outcome
    }

    /// The extended attributes of an open file.
    pub(crate) fn xattrs_of(&self, file: &OwnedFd, path: &RelPath) -> Result<Option<Xattrs>> {
        if !self.capabilities.xattrs {
            return Ok(None);
        }
        let outcome = Holder::File(file.as_fd()).read();
        outcome.map(Some).map_err(|error| self.error("read extended attributes", path, error))
    }

    pub(crate) fn handle(&self, directory: BorrowedFd<'_>, name: &[u8]) -> SysResult<Handle> {
        if let Some((file, path)) = self.platform.pin(directory, name)? {
            return Ok(Handle { file, path: Some(path) });
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
        Ok(Handle { file, path: None })
    }

    /// The mode of a file for which none is given: that of the file it replaces, or 0666 less the umask. An ACL of the
    /// replaced file is lost: its group does not get the rights of the mask, which limits named users and groups.
    pub(crate) fn default_mode(
        &self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        replace: bool,
    ) -> u32 {
        let replaced = replace
            .then(|| rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok())
            .flatten()
            .filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
        match replaced {
            Some(stat) => {
                let handle = self.capabilities.xattrs.then(|| self.handle(directory, name).ok());
                let acl =
                    handle.flatten().and_then(|handle| handle.pinned().holder().mode_without_acl());
                acl.unwrap_or(mode_of(&stat) & 0o777)
            }
            None => 0o666 & !crate::volume::umask(),
        }
    }

    /// Converts an error of [`apply`].
    pub(crate) fn apply_error(
        &self,
        path: &RelPath,
        (operation, errno): (&'static str, Errno),
    ) -> haul_storage::Error {
        if matches!(errno, Errno::PERM | Errno::ACCESS) {
            let cause = errno.to_string();
            return self.refuse(ErrorKind::PermissionDenied, operation, path, cause);
        }
        self.error(operation, path, errno)
    }
}

/// A handle to an entry for calls that would otherwise follow a link put in its place.
pub(crate) struct Handle {
    file: OwnedFd,
    /// A path that names `file` (O_PATH), for calls without a form that takes such a descriptor.
    path: Option<std::ffi::CString>,
}

impl Handle {
    pub(crate) fn set_mode(&self, mode: u32) -> SysResult<()> {
        self.pinned().set_mode(mode)
    }

    fn set_owner(&self, owner: (u32, u32)) -> SysResult<()> {
        let (user, group) = ids(owner)?;
        left_out(match &self.path {
            Some(path) => rustix::fs::chown(path, user, group),
            None => rustix::fs::fchown(&self.file, user, group),
        })
    }

    fn set_time(&self, modified: Timestamp) -> SysResult<()> {
        let times = times(modified);
        left_out(match &self.path {
            Some(path) => rustix::fs::utimensat(rustix::fs::CWD, path, &times, AtFlags::empty()),
            None => rustix::fs::futimens(&self.file, &times),
        })
    }

    fn pinned(&self) -> Pinned<'_> {
        Pinned { file: self.file.as_fd(), path: self.path.as_deref() }
    }
}

/// An open entry, and the path of a [`Handle`].
#[derive(Clone, Copy)]
struct Pinned<'a> {
    file: BorrowedFd<'a>,
    path: Option<&'a CStr>,
}

impl<'a> Pinned<'a> {
    fn holder(self) -> Holder<'a> {
        self.path.map_or(Holder::File(self.file), Holder::Path)
    }

    fn set_mode(self, mode: u32) -> SysResult<()> {
        let mode = permissions(mode);
        left_out(match self.path {
            Some(path) => rustix::fs::chmod(path, mode),
            None => rustix::fs::fchmod(self.file, mode),
        })
    }

    /// Gives the owner the rights to read and write that `mode` has, and changes no others.
    fn set_owner_bits(self, mode: u32) -> SysResult<()> {
        let now = mode_of(&rustix::fs::fstat(self.file)?);
        self.set_mode(now & !OWNER_READ_WRITE | mode & OWNER_READ_WRITE)
    }

    /// Replaces the attributes by `wanted`; returns whether any differed. `user.*` attributes are accessible only if
    /// the mode lets the owner read and write; if it does not, it is changed temporarily.
    fn make_xattrs(self, wanted: &Xattrs) -> SysResult<bool> {
        let made = self.holder().replace_all(wanted);
        if made != Err(Errno::ACCESS) {
            return made;
        }
        let mode = mode_of(&rustix::fs::fstat(self.file)?);
        if mode & OWNER_READ_WRITE == OWNER_READ_WRITE {
            return made;
        }
        self.set_mode(mode | OWNER_READ_WRITE)?;
        let made = self.holder().replace_all(wanted);
        // An ACL in `wanted` has set the mode. If the file's old ACL was removed, its group has other rights now: only
        // the owner's bits are restored.
        // A file system without ACLs has ignored it.
        let is_set = made.is_ok() && self.holder().sets_acl(wanted);
        let restored = if is_set { Ok(()) } else { self.set_owner_bits(mode) };
        made.and_then(|_| restored.map(|()| true))
    }
}
