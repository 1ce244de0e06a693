//! The mounted file systems, from `/proc/thread-self/mountinfo`.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// The type of haul's file systems.
pub(super) const TYPE: &str = "fuse.haul";

/// The mounts that this thread sees: it may have a mount namespace of its own.
const TABLE: &str = "/proc/thread-self/mountinfo";

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mounted {
    /// The number of the mount. The kernel may reuse it after an unmount.
    pub(super) id: u64,
    /// The number of its device, as `0:57`.
    pub(super) device: String,
    /// The mount point.
    pub(super) point: PathBuf,
    /// Its type.
    pub(super) kind: Vec<u8>,
}

impl Mounted {
    /// Whether it is the same mount, whose number another one may have by now.
    fn is(&self, other: &Self) -> bool {
        (self.id, &self.device) == (other.id, &other.device)
    }

    /// Whether haul has mounted it.
    pub(super) fn is_ours(&self) -> bool {
        self.kind == TYPE.as_bytes()
    }
}

/// The file system that is seen at `point`; `None` if nothing is mounted there, or if it is not known.
pub(super) fn at(point: &Path) -> Option<Mounted> {
    let table = fs::read(TABLE).ok()?;
    // Later ones cover earlier ones.
    table.split(|byte| *byte == b'\n').rev().filter_map(parse).find(|one| one.point == point)
}

/// The same mount, wherever it is now: a directory above it may have been renamed. `None` if it is not mounted any
/// more, or if another one covers it.
pub(super) fn again(mounted: &Mounted) -> Option<Mounted> {
    let table = fs::read(TABLE).ok()?;
    let found = table.split(|byte| *byte == b'\n').filter_map(parse).find(|one| one.is(mounted))?;
    at(&found.point).filter(|top| top.is(mounted))
}

/// Parses a line: `36 35 98:0 /root /point options … - type source options`.
fn parse(line: &[u8]) -> Option<Mounted> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let device = std::str::from_utf8(fields.nth(1)?).ok()?.to_owned();
    let point = unescaped(fields.nth(1)?);
    let mut fields = fields.skip_while(|field| *field != b"-");
    let kind = fields.nth(1)?.to_vec();
    Some(Mounted { id, device, point: PathBuf::from(OsString::from_vec(point)), kind })
}

/// Spaces, tabs, line ends and backslashes are written as three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = |digits: &[u8]| {
            let text = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(text, 8).ok()
        };
        match after.get(..3).filter(|_| *first == b'\\').and_then(octal) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

/// A value for the options of a mount: commas and backslashes are escaped.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, ',' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// The path as an argument that cannot be taken for an option.
pub(super) fn as_argument(point: &Path) -> &std::ffi::OsStr {
    debug_assert!(point.as_os_str().as_bytes().starts_with(b"/"), "mount points are canonical");
    point.as_os_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_mount_point_and_the_type() {
        let line = br"36 35 0:57 / /mnt/a\040b rw,nosuid shared:1 master:2 - fuse.haul sftp://h ro";
        let mounted = parse(line).unwrap();
        assert_eq!((mounted.id, mounted.point.as_path()), (36, Path::new("/mnt/a b")));
        assert!(mounted.is_ours() && mounted.device == "0:57");
        let other = parse(b"22 1 8:1 / / rw - ext4 /dev/sda1 rw").unwrap();
        assert!(!other.is_ours());
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"22 1 8:1 / / rw"), None);
    }

    #[test]
    fn a_mount_is_found_by_its_path_and_by_its_number_and_device() {
        assert!(at(Path::new("/proc")).is_some_and(|proc| proc.kind == b"proc"));
        assert_eq!(at(Path::new("/proc/self")), None);
        let proc = at(Path::new("/proc")).unwrap();
        assert_eq!(
            again(&Mounted { point: PathBuf::from("/renamed"), ..proc.clone() }),
            Some(proc.clone())
        );
        assert_eq!(again(&Mounted { id: u64::MAX, ..proc.clone() }), None);
        // Another file system may have got the number. Formerly, it was unmounted.
        assert_eq!(again(&Mounted { device: "0:0".to_owned(), ..proc }), None);
    }

    #[test]
    fn a_backslash_that_begins_no_number_stays() {
        assert_eq!(unescaped(br"a\040b\x\13"), br"a b\x\13");
    }
}
