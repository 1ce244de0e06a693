//! Compares two trees, trusting nothing but the file system: every name and byte, and those modes,
//! times and links that the protocol between them preserves.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use haul_storage::{Error, ErrorKind};

use super::interrupt::interrupted;
use crate::exit::Stop;
use crate::signals::Signals;

/// The only entry that a copy may have in addition; it is not compared.
const MANIFEST: &str = "SHA256SUMS";
const BLOCK: usize = 1 << 20;

/// The metadata that a copy preserves, besides names and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Preserved {
    /// Modes, links, and times in nanoseconds.
    Everything,
    /// As SFTP version 3: modes, links, and times in seconds.
    BySftp,
    /// As WebDAV: times of files in seconds; no modes, no links.
    ByDav,
}

/// What was compared.
#[derive(Debug, Default)]
pub(super) struct Compared {
    pub(super) files: u64,
    pub(super) bytes: u64,
}

/// Compares `copy` with `source`; the first difference is an error.
pub(super) fn compare(
    source: &Path,
    copy: &Path,
    preserved: Preserved,
    signals: &Signals,
) -> Result<Compared, Stop> {
    let buffers = [vec![0; BLOCK], vec![0; BLOCK]];
    let mut comparison = Comparison { preserved, signals, compared: Compared::default(), buffers };
    comparison.directories(source, copy, true)?;
    Ok(comparison.compared)
}

struct Comparison<'a> {
    preserved: Preserved,
    signals: &'a Signals,
    compared: Compared,
    buffers: [Vec<u8>; 2],
}

impl Comparison<'_> {
    fn directories(&mut self, source: &Path, copy: &Path, top: bool) -> Result<(), Stop> {
        if self.signals.cancel().is_cancelled() {
            return Err(interrupted());
        }
        let own = |name: &OsString| top && name == MANIFEST && !source.join(name).exists();
        let mut names = names(source)?;
        if self.preserved == Preserved::ByDav {
            names.retain(|name| !source.join(name).is_symlink());
        }
        let mut copied = self::names(copy)?;
        copied.retain(|name| !own(name));
        if names != copied {
            return Err(differs(copy, "its entries differ from the source's"));
        }
        for name in names {
            if top && name == MANIFEST {
                continue;
            }
            self.entries(&source.join(&name), &copy.join(&name))?;
        }
        Ok(())
    }

    fn entries(&mut self, source: &Path, copy: &Path) -> Result<(), Stop> {
        let theirs = fs::symlink_metadata(source).map_err(|error| unreadable(source, error))?;
        let ours = fs::symlink_metadata(copy).map_err(|error| unreadable(copy, error))?;
        if theirs.file_type() != ours.file_type() {
            return Err(differs(copy, "its type differs from the source's"));
        }
        if theirs.is_symlink() {
            let target = |path: &Path| fs::read_link(path).map_err(|error| unreadable(path, error));
            if target(source)? != target(copy)? {
                return Err(differs(copy, "its link target differs from the source's"));
            }
            return Ok(());
        }
        if theirs.is_dir() {
            self.directories(source, copy, false)?;
        } else if theirs.is_file() {
            self.files(source, copy)?;
            self.compared.files += 1;
            self.compared.bytes += theirs.len();
        }
        if self.preserved == Preserved::ByDav && theirs.is_dir() {
            return Ok(());
        }
        let has_modes = self.preserved != Preserved::ByDav;
        if has_modes && theirs.permissions().mode() != ours.permissions().mode() {
            return Err(differs(copy, "its mode differs from the source's"));
        }
        let modified = |metadata: &Metadata| match self.preserved {
            Preserved::Everything => (metadata.mtime(), metadata.mtime_nsec()),
            Preserved::BySftp | Preserved::ByDav => (metadata.mtime(), 0),
        };
        if modified(&theirs) != modified(&ours) {
            return Err(differs(copy, "its time differs from the source's"));
        }
        Ok(())
    }

    fn files(&mut self, source: &Path, copy: &Path) -> Result<(), Stop> {
        let open = |path: &Path| File::open(path).map_err(|error| unreadable(path, error));
        let (mut theirs, mut ours) = (open(source)?, open(copy)?);
        let [a, b] = &mut self.buffers;
        loop {
            let read_a = fill(&mut theirs, a).map_err(|error| unreadable(source, error))?;
            let read_b = fill(&mut ours, b).map_err(|error| unreadable(copy, error))?;
            if a[..read_a] != b[..read_b] {
                return Err(differs(copy, "its content differs from the source's"));
            }
            if read_a == 0 {
                return Ok(());
            }
        }
    }
}

fn names(directory: &Path) -> Result<Vec<OsString>, Stop> {
    let list = || {
        let entries = fs::read_dir(directory)?;
        entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<io::Result<Vec<_>>>()
    };
    let mut names = list().map_err(|error| unreadable(directory, error))?;
    names.sort();
    Ok(names)
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn unreadable(path: &Path, error: io::Error) -> Stop {
    Error::from_io("compare", error).at(path.display()).into()
}

fn differs(path: &Path, cause: &str) -> Stop {
    Error::new(ErrorKind::Corrupt, "compare").at(path.display()).because(cause).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_makes_a_difference() {
        let directory = tempfile::tempdir().unwrap();
        let (a, b) = (directory.path().join("a"), directory.path().join("b"));
        for (path, content) in [(&a, "xyz"), (&b, "xyz")] {
            fs::create_dir(path).unwrap();
            fs::write(path.join("f"), content).unwrap();
        }
        let time = fs::metadata(a.join("f")).unwrap().modified().unwrap();
        let set_time = || {
            let file = File::options().write(true).open(b.join("f")).unwrap();
            file.set_modified(time).unwrap();
        };
        set_time();
        fs::write(b.join(MANIFEST), "").unwrap();
        let compare = |preserved| compare(&a, &b, preserved, &Signals::default());
        assert_eq!(compare(Preserved::Everything).unwrap().bytes, 3);
        fs::write(b.join("f"), "xyy").unwrap();
        set_time();
        assert!(compare(Preserved::Everything).is_err());
        assert!(compare(Preserved::BySftp).is_err());
    }

    #[test]
    fn fractions_of_a_second_are_compared_where_they_are_preserved() {
        use std::time::{Duration, UNIX_EPOCH};
        let directory = tempfile::tempdir().unwrap();
        let (a, b) = (directory.path().join("a"), directory.path().join("b"));
        for (path, time_ms) in [(&a, 7_250), (&b, 7_000)] {
            fs::create_dir(path).unwrap();
            let file = File::create(path.join("f")).unwrap();
            file.set_modified(UNIX_EPOCH + Duration::from_millis(time_ms)).unwrap();
        }
        let compare = |preserved| compare(&a, &b, preserved, &Signals::default());
        assert!(compare(Preserved::Everything).is_err());
        assert_eq!(compare(Preserved::BySftp).unwrap().files, 1);
    }
}
