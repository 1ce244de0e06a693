//! POSIX ACLs, in the form of their extended attributes (acl(5), `linux/posix_acl_xattr.h`): four bytes of version,
//! then entries of tag and rights (two bytes each) and user or group ID (four), all little-endian.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::XattrFlags;

use crate::at;
use crate::chance::Chance;
use crate::grow::{directories, everything};

/// The ACL of a file or directory.
pub const ACCESS: &str = "system.posix_acl_access";
/// The ACL that new files and directories in a directory get.
pub const DEFAULT: &str = "system.posix_acl_default";

const VERSION: [u8; 4] = [2, 0, 0, 0];
const OWNER: u16 = 1;
const USER: u16 = 2;
const OWNING_GROUP: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHERS: u16 = 32;

/// Whether the file system of a directory keeps ACLs.
pub fn are_kept(directory: &Path) -> bool {
    let acl = encoded(&[(OWNER, 7, !0), (OWNING_GROUP, 5, !0), (OTHERS, 5, !0)]);
    rustix::fs::lsetxattr(directory, DEFAULT, &acl, XattrFlags::empty()).is_ok()
        && rustix::fs::lremovexattr(directory, DEFAULT).is_ok()
}

/// Whether new entries of a directory get an ACL.
pub fn is_inherited(directory: &Path) -> bool {
    // Without room for the value, the call returns its length.
    rustix::fs::lgetxattr(directory, DEFAULT, &mut [0; 0]).is_ok()
}

/// Sets and removes the ACLs of a few random files and directories at and below `root`.
pub fn scatter(chance: &mut Chance, root: &Path) -> io::Result<()> {
    let entries: Vec<PathBuf> = directories(root)?
        .into_iter()
        .chain(everything(root)?.into_iter().filter(|path| path.is_file() && !path.is_symlink()))
        .collect();
    for _ in 0..chance.below(4) {
        let path = chance.pick(&entries);
        let is_directory = fs::symlink_metadata(path)?.is_dir();
        let name = if is_directory && chance.one_in(2) { DEFAULT } else { ACCESS };
        if chance.one_in(4) {
            // It need not have one.
            let _ = rustix::fs::lremovexattr(path, name);
            continue;
        }
        let acl = random(chance);
        rustix::fs::lsetxattr(path, name, &acl, XattrFlags::empty())
            .map_err(|error| at("setting an ACL of", path, &error))?;
    }
    Ok(())
}

/// A random ACL with one or two named users or groups. The owner may read and search.
fn random(chance: &mut Chance) -> Vec<u8> {
    let ids = [0, 1, 1000, 65_534, 70_000];
    let right = |chance: &mut Chance| chance.below(8) as u16;
    let mut entries = vec![(OWNER, 5 | right(chance), !0), (OWNING_GROUP, right(chance), !0)];
    let first = *chance.pick(&[USER, GROUP]);
    entries.push((first, right(chance), *chance.pick(&ids)));
    if chance.one_in(2) {
        let other = if first == USER { GROUP } else { USER };
        entries.push((other, right(chance), *chance.pick(&ids)));
    }
    entries.push((MASK, right(chance), !0));
    entries.push((OTHERS, right(chance), !0));
    // The kernel expects them in this order.
    entries.sort_by_key(|(tag, ..)| *tag);
    encoded(&entries)
}

fn encoded(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut acl = VERSION.to_vec();
    for (tag, rights, id) in entries {
        acl.extend(tag.to_le_bytes());
        acl.extend(rights.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    acl
}

/// The ACL of a file after its mode is set to `mode`: the group's bits go to the mask.
pub fn with_mode(acl: &[u8], mode: u32) -> Vec<u8> {
    let mut acl = acl.to_vec();
    for entry in acl.get_mut(VERSION.len()..).unwrap_or_default().chunks_exact_mut(8) {
        let shift = match u16::from_le_bytes([entry[0], entry[1]]) {
            OWNER => 6,
            MASK => 3,
            OTHERS => 0,
            _ => continue,
        };
        entry[2] = (mode >> shift & 7) as u8;
    }
    acl
}

/// The permission bits of a file once it has lost this ACL: its group has no more rights than before.
pub fn mode_without(acl: &[u8]) -> u32 {
    let entries = acl.get(VERSION.len()..).unwrap_or_default();
    let rights = |wanted: u16| {
        let mut entries = entries.chunks_exact(8);
        let found = entries.find(|entry| u16::from_le_bytes([entry[0], entry[1]]) == wanted);
        found.map(|entry| u32::from(entry[2]))
    };
    let of = |wanted: u16| rights(wanted).unwrap_or(0);
    let group = of(OWNING_GROUP) & rights(MASK).unwrap_or(7);
    of(OWNER) << 6 | group << 3 | of(OTHERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_limits_named_users_and_a_file_without_its_acl_keeps_the_rights_of_its_group() {
        let acl = |owner, mask, others| {
            let named = (USER, 7, 1000);
            let group = (OWNING_GROUP, 5, !0);
            encoded(&[(OWNER, owner, !0), named, group, (MASK, mask, !0), (OTHERS, others, !0)])
        };
        assert_eq!(with_mode(&acl(7, 7, 0), 0o624), acl(6, 2, 4));
        assert_eq!(mode_without(&acl(7, 6, 1)), 0o741);
        assert_eq!(mode_without(&encoded(&[(OWNER, 6, !0), (OWNING_GROUP, 5, !0)])), 0o650);
    }
}
