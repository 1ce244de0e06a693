//! Lists mount points, from `/proc/self/mountinfo`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Mount points at or below `directory`, outer ones before inner ones.
pub(crate) fn mounts_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    // Names need not be UTF-8.
    let table = fs::read("/proc/self/mountinfo")?;
    let lines = table.split(|byte| *byte == b'\n');
    let points = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4)).map(unescape);
    Ok(points.filter(|point| point.starts_with(directory)).collect())
}

/// Decodes octal escapes such as `\040`, which the kernel writes for white space and backslashes.
pub(crate) fn unescape(point: &[u8]) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = point;
    while let Some((&first, after)) = rest.split_first() {
        let octal = after
            .first_chunk::<3>()
            .filter(|_| first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octal_escapes_are_decoded() {
        assert_eq!(unescape(br"/a\040b\011c"), Path::new("/a b\tc"));
        assert_eq!(unescape(br"/plain\"), Path::new(r"/plain\"));
    }

    #[test]
    fn the_root_is_a_mount_point() {
        assert!(mounts_in(Path::new("/")).expect("a list").contains(&PathBuf::from("/")));
    }
}
