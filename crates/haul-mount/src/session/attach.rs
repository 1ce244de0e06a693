//! Mounts and unmounts, as root by system calls and as a user through `fusermount3`.

use std::ffi::CString;
use std::fmt::Write as _;
use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use haul_storage::{Error, Result};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{getegid, geteuid};

use super::device::Device;
use super::helper;
use super::mounts::{self, TYPE, escaped};
use crate::fuse::MAX_REQUEST;

/// How to mount.
#[derive(Debug, Clone)]
pub(crate) struct AttachOptions {
    /// What `mount` and `df` show as the source.
    pub(crate) source: String,
    /// Other users may use the mount; the kernel checks permission bits then.
    pub(crate) allow_other: bool,
    /// No file may be executed.
    pub(crate) noexec: bool,
    /// Nothing can be changed.
    pub(crate) read_only: bool,
}

/// A mounted file system, until it is dropped.
#[derive(Debug)]
pub(crate) struct Attached {
    point: PathBuf,
    /// The mount as it was in the beginning; `None` if it could not be determined.
    mounted: Option<mounts::Mounted>,
    is_root: bool,
    is_done: bool,
}

/// What was unmounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detached {
    /// A mount that no process used: all files were closed.
    Unused,
    /// A mount that is in use.
    InUse,
    /// Nothing: it was unmounted before.
    Nothing,
}

/// Mounts at `point`, which is canonical.
pub(crate) fn attach(point: &Path, options: &AttachOptions) -> Result<(Attached, Device)> {
    let is_root = geteuid().is_root();
    let fd = if is_root { as_root(point, options)? } else { as_user(point, options)? };
    let mounted = mounts::at(point).filter(mounts::Mounted::is_ours);
    if let Some(mounted) = mounted.as_ref().filter(|_| is_root) {
        // The requests of a sequential reader are as long as the kernel reads ahead: 128 KiB by default. With 1 MiB
        // there are an eighth as many, and each costs a switch to haul and back. How many bytes are in flight over
        // the link is not the kernel's decision, but that of the module `read`. Only root may set this; mounts of
        // other users are slower, but work.
        let path = format!("/sys/class/bdi/{}/read_ahead_kb", mounted.device);
        drop(fs::write(path, (MAX_REQUEST / 1024).to_string()));
    }
    let attached = Attached { point: point.to_owned(), mounted, is_root, is_done: false };
    let device = Device::new(fd);
    Ok((attached, device.map_err(|error| Error::from_io("mount", error).at(point.display()))?))
}

fn as_root(point: &Path, options: &AttachOptions) -> Result<OwnedFd> {
    let failed = |error: Errno| Error::from_io("mount", error.into()).at(point.display());
    let fd = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let fd = fd.map_err(|error| device_error(error, point))?;
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},max_read={MAX_REQUEST}",
        fd.as_raw_fd(),
        geteuid().as_raw(),
        getegid().as_raw(),
    );
    if options.allow_other {
        data.push_str(",allow_other,default_permissions");
    }
    // Numbers and words have no NUL, so this never fails.
    let data = CString::new(data).unwrap_or_default();
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    if options.noexec {
        flags |= MountFlags::NOEXEC;
    }
    if options.read_only {
        flags |= MountFlags::RDONLY;
    }
    match mount(options.source.as_str(), point, TYPE, flags, Some(data.as_c_str())) {
        Ok(()) => Ok(fd),
        Err(error @ Errno::PERM) => Err(failed(error).hinting(
            "root may not mount here (a container?): run it with CAP_SYS_ADMIN and /dev/fuse",
        )),
        Err(error @ Errno::NODEV) => {
            Err(failed(error).because("the kernel has no FUSE").hinting("run: modprobe fuse"))
        }
        Err(error) => Err(failed(error)),
    }
}

fn as_user(point: &Path, options: &AttachOptions) -> Result<OwnedFd> {
    // The helper reports a missing device, too, but without a hint.
    match open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        Ok(fd) => drop(fd),
        Err(error) => return Err(device_error(error, point)),
    }
    let access = if options.read_only { "ro" } else { "rw" };
    let mut text = format!("{access},nosuid,nodev,noatime,subtype=haul,max_read={MAX_REQUEST}");
    if options.allow_other {
        text.push_str(",allow_other,default_permissions");
    }
    if options.noexec {
        text.push_str(",noexec");
    }
    // Writing to a string cannot fail.
    _ = write!(text, ",fsname={}", escaped(&options.source));
    helper::mount(point, &text)
}

fn device_error(error: Errno, point: &Path) -> Error {
    let cannot = Error::from_io("mount", error.into()).at(point.display());
    match error {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => cannot
            .because("there is no /dev/fuse")
            .hinting("run: modprobe fuse (in a container, pass the device: --device /dev/fuse)"),
        Errno::ACCESS | Errno::PERM => cannot
            .because("this user may not open /dev/fuse")
            .hinting("as root: chmod 666 /dev/fuse, or add the user to the group that owns it"),
        _ => cannot,
    }
}

impl Attached {
    /// Unmounts. If processes use the mount, it disappears from the tree of files at once, and the processes get errors
    /// once the device is closed.
    ///
    /// # Errors
    /// If it cannot be unmounted at all.
    pub(crate) fn detach(&mut self) -> Result<Detached> {
        if std::mem::replace(&mut self.is_done, true) {
            return Ok(Detached::Nothing);
        }
        match self.mounted() {
            Some(mounted) => release(&mounted.point, self.is_root),
            None => Ok(Detached::Nothing),
        }
    }

    /// This file system, if it is still mounted: it may have been unmounted, and another one mounted.
    fn mounted(&self) -> Option<mounts::Mounted> {
        let now = match &self.mounted {
            Some(mounted) => mounts::again(mounted),
            None => mounts::at(&self.point),
        };
        now.filter(mounts::Mounted::is_ours)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // Errors are ignored here; `detach` reports them.
        drop(self.detach());
    }
}

/// Unmounts what is at `point`, lazily if it is in use.
pub(super) fn release(point: &Path, is_root: bool) -> Result<Detached> {
    if is_root {
        let failed = |error: Errno| Error::from_io("unmount", error.into()).at(point.display());
        return match unmount(point, UnmountFlags::NOFOLLOW) {
            Ok(()) => Ok(Detached::Unused),
            Err(Errno::BUSY) => {
                let gone = unmount(point, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH);
                gone.map(|()| Detached::InUse).map_err(failed)
            }
            Err(error) => Err(failed(error)),
        };
    }
    if helper::unmount(point, false).is_ok() {
        return Ok(Detached::Unused);
    }
    // If the first attempt failed for another reason than that the mount is in use, this one fails the same way.
    helper::unmount(point, true).map(|()| Detached::InUse)
}
