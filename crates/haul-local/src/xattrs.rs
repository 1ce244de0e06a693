//! Extended attributes. haul reads and sets `user.*`, POSIX ACLs (`system.posix_acl_*`) and `security.capability`.
//!
//! It ignores labels of security modules (`security.selinux`), which belong to the machine and not to the file, and
//! `trusted.*`, which belongs to the daemon that set it.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use haul_storage::Xattrs;
use rustix::fs::XattrFlags;
use rustix::io::{Errno, Result as SysResult};

use crate::statfs::left_out;

const CAPABILITY: &[u8] = b"security.capability";
const ACL: &[u8] = b"system.posix_acl_access";

/// The limit of Linux for the list of names and for each value, in bytes (`XATTR_LIST_MAX`, `XATTR_SIZE_MAX`).
const MAX_BYTES: usize = 64 * 1024;

/// The file whose attributes are read or set.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Holder<'a> {
    /// An open file.
    File(BorrowedFd<'a>),
    /// A path that cannot lead to another entry meanwhile, such as `/proc/self/fd/N`.
    Path(&'a CStr),
}

impl Holder<'_> {
    fn list(self, names: &mut [u8]) -> SysResult<usize> {
        match self {
            Self::File(file) => rustix::fs::flistxattr(file, names),
            Self::Path(path) => rustix::fs::listxattr(path, names),
        }
    }

    fn get(self, name: &[u8], value: &mut [u8]) -> SysResult<usize> {
        match self {
            Self::File(file) => rustix::fs::fgetxattr(file, name, value),
            Self::Path(path) => rustix::fs::getxattr(path, name, value),
        }
    }

    fn set(self, name: &[u8], value: &[u8]) -> SysResult<()> {
        match self {
            Self::File(file) => rustix::fs::fsetxattr(file, name, value, XattrFlags::empty()),
            Self::Path(path) => rustix::fs::setxattr(path, name, value, XattrFlags::empty()),
        }
    }

    fn remove(self, name: &[u8]) -> SysResult<()> {
        match self {
            Self::File(file) => rustix::fs::fremovexattr(file, name),
            Self::Path(path) => rustix::fs::removexattr(path, name),
        }
    }

    /// All attributes of the kinds that a copy preserves.
    pub(crate) fn read(self) -> SysResult<Xattrs> {
        // Enough for most files, which have no attributes.
        let mut names = vec![0; 256];
        let length = match self.list(&mut names) {
            Err(Errno::RANGE) => {
                names = vec![0; MAX_BYTES];
                self.list(&mut names)?
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Vec::new()),
            outcome => outcome?,
        };
        let mut found = Vec::new();
        for name in names[..length].split(|byte| *byte == 0).filter(|name| is_preserved(name)) {
            let mut value = vec![0; MAX_BYTES];
            match self.get(name, &mut value) {
                Ok(length) => {
                    value.truncate(length);
                    value.shrink_to_fit();
                    found.push((name.to_vec(), value));
                }
                // Removed since it was listed.
                Err(Errno::NODATA) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Whether it has an ACL beyond its mode.
    pub(crate) fn has_acl(self) -> bool {
        // Without room for the value, the call returns its length.
        self.get(ACL, &mut []).is_ok()
    }

    /// The permission bits that it has without its ACL; `None` if it has no ACL.
    pub(crate) fn mode_without_acl(self) -> Option<u32> {
        let mut acl = vec![0; MAX_BYTES];
        let length = self.get(ACL, &mut acl).ok()?;
        let [owner, group, others] = rights_without(&acl[..length])?.map(u32::from);
        Some(owner << 6 | group << 3 | others)
    }

    /// Sets the attributes in `wanted` and removes all others of the kinds that a copy preserves. Values that are equal
    /// already are not written. Returns whether any differed, even if `allowed` ignored an error.
    ///
    /// The ACL comes last: it also sets the mode, and `user.*` attributes can be set only while the owner may write.
    pub(crate) fn replace_all(self, wanted: &Xattrs) -> SysResult<bool> {
        let found = self.read()?;
        let mut changed = false;
        for (name, value) in &found {
            if wanted.iter().any(|(other, _)| other == name) {
                continue;
            }
            // Without its ACL, the file's group would get the rights of the mask, which limits named users and groups.
            let removed = match minimal_acl(value).filter(|_| name == ACL) {
                Some(acl) => self.set(name, &acl),
                None => self.remove(name),
            };
            match allowed(name, removed) {
                Ok(()) | Err(Errno::NODATA) => changed = true,
                Err(error) => return Err(error),
            }
        }
        let (acl, others): (Vec<_>, Vec<_>) = wanted.iter().partition(|(name, _)| name == ACL);
        for attribute in others.into_iter().chain(acl).filter(|(name, _)| is_preserved(name)) {
            if !found.contains(attribute) {
                let (name, value) = attribute;
                allowed(name, self.set(name, value))?;
                changed = true;
            }
        }
        Ok(changed)
    }

    /// Sets the access ACL of `xattrs` once more. Returns false if there is none, or the file system does not take it.
    pub(crate) fn sets_acl(self, xattrs: &Xattrs) -> bool {
        let acl = xattrs.iter().find(|(name, _)| *name == ACL);
        acl.is_some_and(|(name, value)| self.set(name, value).is_ok())
    }
}

/// Whether the attributes include an access ACL. Setting it also changes the mode.
pub(crate) fn has_acl(xattrs: &Xattrs) -> bool {
    xattrs.iter().any(|(name, _)| name == ACL)
}

const USER: u16 = 1;
const GROUP: u16 = 4;
const MASK: u16 = 16;
const OTHERS: u16 = 32;

/// The rights of owner, group (limited by the mask) and others in `acl`. `None` if it is not an ACL of version 2: four
/// bytes of version, then entries of tag and rights (two bytes each) and user or group id (four).
fn rights_without(acl: &[u8]) -> Option<[u16; 3]> {
    let entries = acl.strip_prefix(&[2, 0, 0, 0])?;
    let rights = |wanted: u16| {
        entries.chunks_exact(8).find_map(|entry| {
            let tag = u16::from_le_bytes([entry[0], entry[1]]);
            (tag == wanted).then(|| u16::from_le_bytes([entry[2], entry[3]]))
        })
    };
    Some([rights(USER)?, rights(GROUP)? & rights(MASK).unwrap_or(7), rights(OTHERS)?])
}

/// An ACL with the entries of `acl` for owner, group (limited by the mask) and others only. Setting it
/// removes the ACL and moves these rights to the mode, in one step.
fn minimal_acl(acl: &[u8]) -> Option<Vec<u8>> {
    let [owner, group, others] = rights_without(acl)?;
    let mut minimal = vec![2, 0, 0, 0];
    for (tag, rights) in [(USER, owner), (GROUP, group), (OTHERS, others)] {
        minimal.extend(tag.to_le_bytes());
        minimal.extend(rights.to_le_bytes());
        minimal.extend(u32::MAX.to_le_bytes());
    }
    Some(minimal)
}

fn is_preserved(name: &[u8]) -> bool {
    name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_") || name == CAPABILITY
}

/// Ignores errors of attributes that the file system does not support, and of capabilities, which only root may change.
fn allowed(name: &[u8], outcome: SysResult<()>) -> SysResult<()> {
    match left_out(outcome) {
        Err(Errno::PERM) if name == CAPABILITY => Ok(()),
        outcome => outcome,
    }
}
