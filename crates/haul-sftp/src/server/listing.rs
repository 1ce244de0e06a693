//! Directory entries for READDIR, and attributes in the protocol's form.

use std::ffi::CStr;

use bytes::Bytes;
use haul_storage::Timestamp;
use rustix::fs::{AtFlags, Dir, FileType, Stat, fstat, statat};
use rustix::io::{Errno, Result};

use super::limits;
use crate::codec::{Attrs, Name};

/// The next entries; none at the end. Includes `.` and `..`, like OpenSSH.
pub(super) fn next(directory: &mut Dir) -> Result<Vec<Name>> {
    next_by(directory, |directory, name| match name.to_bytes() {
        // The parent may be outside of the jail; it gets the attributes of the directory itself.
        b"." | b".." => fstat(directory.fd()?),
        _ => statat(directory.fd()?, name, AtFlags::SYMLINK_NOFOLLOW),
    })
}

/// [`next`] with a function that reads the attributes of an entry.
fn next_by(directory: &mut Dir, look: impl Fn(&Dir, &CStr) -> Result<Stat>) -> Result<Vec<Name>> {
    let mut names = Vec::new();
    while names.len() < limits::ENTRIES {
        let Some(entry) = directory.read() else { break };
        let entry = entry?;
        let name = entry.file_name();
        match look(directory, name) {
            Ok(stat) => names.push(entry_of(name.to_bytes(), &stat)),
            // It was removed meanwhile.
            Err(Errno::NOENT) => {}
            // The entry exists. OpenSSH omits it, and a client that mirrors the listing then removes its copy.
            Err(_) => names.push(path_only(name.to_bytes().to_vec())),
        }
    }
    Ok(names)
}

/// A path without attributes: a response to REALPATH and READLINK, or an entry whose attributes cannot be read.
pub(super) fn path_only(path: Vec<u8>) -> Name {
    let path = Bytes::from(path);
    Name { name: path.clone(), long: path, attrs: Attrs::default() }
}

/// Converts to the protocol's form.
pub(super) fn attrs(stat: &Stat) -> Attrs {
    // Version 3 has unsigned seconds: times before 1970 become 1970.
    let seconds = |seconds: i64| u32::try_from(seconds.max(0)).unwrap_or(u32::MAX);
    Attrs {
        size: u64::try_from(stat.st_size).ok(),
        owner: Some((stat.st_uid, stat.st_gid)),
        permissions: Some(stat.st_mode),
        times: Some((seconds(stat.st_atime), seconds(stat.st_mtime))),
        extended: Vec::new(),
    }
}

fn entry_of(name: &[u8], stat: &Stat) -> Name {
    let mut long = format!(
        "{} {:>4} {:<8} {:<8} {:>10} {} ",
        mode(stat.st_mode),
        stat.st_nlink,
        stat.st_uid,
        stat.st_gid,
        stat.st_size,
        date(stat.st_mtime),
    )
    .into_bytes();
    long.extend_from_slice(name);
    Name { name: Bytes::copy_from_slice(name), long: long.into(), attrs: attrs(stat) }
}

/// `drwxr-xr-x`, with set-user, set-group and sticky bits as `ls` shows them.
fn mode(mode: u32) -> String {
    let kind = match FileType::from_raw_mode(mode) {
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
        FileType::BlockDevice => 'b',
        FileType::CharacterDevice => 'c',
        _ => '-',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// `Feb  3 04:05`, or `Feb  3  2001` if that is more than half a year away; UTC.
fn date(seconds: i64) -> String {
    const HALF_A_YEAR: i64 = 183 * 86_400;
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
    let form =
        if now.saturating_sub(seconds).abs() < HALF_A_YEAR { "%b %e %H:%M" } else { "%b %e  %Y" };
    let time = Timestamp { seconds, nanos: 0 }.utc();
    // A time outside of the calendar. The wrong date is visible only in clients that show this line.
    time.map_or_else(|| "Jan  1  1970".to_owned(), |time| time.strftime(form).to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::{CWD, Mode, OFlags, openat};

    use super::*;

    /// Regression: one such entry failed the whole listing.
    #[test]
    fn an_entry_whose_attributes_cannot_be_read_is_listed_without_them() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["broken", "gone", "whole"] {
            fs::write(directory.path().join(name), "content").unwrap();
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let opened = openat(CWD, directory.path(), flags, Mode::empty()).unwrap();
        let mut names =
            next_by(&mut Dir::new(opened).unwrap(), |directory, name| match name.to_bytes() {
                b"broken" => Err(Errno::IO),
                b"gone" => Err(Errno::NOENT),
                _ => statat(directory.fd()?, name, AtFlags::SYMLINK_NOFOLLOW),
            })
            .unwrap();
        names.sort_by(|a, b| a.name.cmp(&b.name));
        let names: Vec<_> = names.iter().map(|name| (&name.name[..], name.attrs.size)).collect();
        let names: Vec<_> = names.into_iter().filter(|(name, _)| !name.starts_with(b".")).collect();
        assert_eq!(names, [(&b"broken"[..], None), (&b"whole"[..], Some(7))]);
    }

    #[test]
    fn modes_are_formatted_like_ls() {
        assert_eq!(mode(0o100_644), "-rw-r--r--");
        assert_eq!(mode(0o041_777), "drwxrwxrwt");
        assert_eq!(mode(0o104_655), "-rwSr-xr-x");
        assert_eq!(mode(0o120_777), "lrwxrwxrwx");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "Jan  1  1970");
        assert_eq!(date(-1), "Dec 31  1969");
        assert_eq!(date(951_782_400), "Feb 29  2000");
        assert_eq!(date(i64::MAX), "Jan  1  1970");
    }
}
