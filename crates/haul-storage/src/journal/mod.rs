//! The journal: which ranges of a file have reached its part file.
//!
//! A record is appended after the data it speaks of was written, so a process that is killed loses
//! at most what was in flight. A machine that loses power may lose written data that was not yet
//! durable, and so may a disk that is unplugged. Therefore a journal names the run of the operating system
//! (boot id) and the mount that it lies on, and elsewhere only what was marked as synced counts: a copy
//! that is interrupted is, one that is killed is not. Length and allocation of the part file never
//! count.

mod record;

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::{Identity, Range, RangeSet, rewritten_journal_name};

pub use record::{Header, Record};

/// An open journal of one part file.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
}

/// What an earlier run has left.
#[derive(Debug, PartialEq, Eq)]
pub enum Loaded {
    /// No journal.
    Nothing,
    /// Ranges that are in the part file.
    Ranges(RangeSet),
    /// A journal that cannot be continued, and why, for people.
    Unusable(String),
}

impl Journal {
    /// Reads the journal at `path`, which has to belong to `source`.
    pub fn load(path: &Path, source: &Identity, name: &str) -> io::Result<Loaded> {
        let mut file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Loaded::Nothing),
            Err(error) => return Err(error),
        };
        // The records of a file of 1 TiB in ranges of 1 MiB are 25 MB; read by pieces.
        let mut reader = RecordReader::new(&mut file);
        let this = header(path, source, name);
        let same_boot = match reader.next()? {
            Some(Record::Header(found)) if found.source == this.source => found.boot == this.boot,
            Some(Record::Header(found)) => {
                let was = String::from_utf8_lossy(&found.source).escape_debug().to_string();
                return Ok(Loaded::Unusable(format!("it belongs to another source ({was})")));
            }
            Some(Record::OtherVersion(version)) => {
                return Ok(Loaded::Unusable(format!("it is of version {version}")));
            }
            Some(_) | None => return Ok(Loaded::Unusable("its header is damaged".to_owned())),
        };
        let mut written = RangeSet::new();
        let mut unsynced = RangeSet::new();
        while let Some(record) = reader.next()? {
            match record {
                Record::Range(range) if range.end() <= source.size => unsynced.insert(range),
                Record::Range(range) => {
                    return Ok(Loaded::Unusable(format!("its range {range} is beyond the end")));
                }
                Record::Synced => {
                    let synced = std::mem::take(&mut unsynced);
                    synced.iter().for_each(|range| written.insert(range));
                }
                Record::Header(_) | Record::OtherVersion(_) => break,
            }
        }
        if same_boot {
            unsynced.iter().for_each(|range| written.insert(range));
        }
        Ok(Loaded::Ranges(written))
    }

    /// Starts a journal at `path`, in place of any other, that says that `written` has reached the
    /// part file already.
    pub fn start(
        path: &Path,
        source: &Identity,
        name: &str,
        written: &RangeSet,
    ) -> io::Result<Self> {
        // A journal that is being rewritten must not lose what the old one said.
        let fresh = unfinished(path);
        let mut bytes = Vec::new();
        Record::Header(header(path, source, name)).encode(&mut bytes);
        written.iter().for_each(|range| Record::Range(range).encode(&mut bytes));
        // Whatever has that name: a link is not followed.
        match std::fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // It names the source, which is nobody else's business.
        let mut options = OpenOptions::new();
        options.create_new(true).write(true).mode(0o600);
        let mut file = options.open(&fresh)?;
        file.write_all(&bytes)?;
        std::fs::rename(&fresh, path)?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Records that `ranges` have reached the part file. One small write at the end of the file.
    pub fn append(&mut self, ranges: impl IntoIterator<Item = Range>) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(32);
        ranges.into_iter().for_each(|range| Record::Range(range).encode(&mut bytes));
        self.file.write_all(&bytes)
    }

    /// Says that all ranges recorded in the journal at `path` are durable in the part file.
    pub fn mark_synced(path: &Path) -> io::Result<()> {
        let mut bytes = Vec::new();
        Record::Synced.encode(&mut bytes);
        let mut file = OpenOptions::new().append(true).open(path)?;
        file.write_all(&bytes)?;
        file.sync_data()
    }

    /// Removes the journal: the file is under its name, or is given up.
    pub fn remove(self) -> io::Result<()> {
        Self::remove_at(&self.path)
    }

    /// Removes the journal at `path`, if there is one.
    pub fn remove_at(path: &Path) -> io::Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

fn header(path: &Path, source: &Identity, name: &str) -> Header {
    let mut text = format!("{name}, size {}", source.size);
    if let Some(time) = source.modified {
        text.push_str(&format!(", modified {}.{:09}", time.seconds, time.nanos));
    }
    if let Some(tag) = &source.tag {
        text.push_str(&format!(", tag {tag}"));
    }
    let boot = [boot_id(), mount_of(path)].concat();
    Header { boot, source: text.into_bytes() }
}

/// Which mount the directory of `path` is on: data that was written to a disk before it was unplugged
/// need not be there when it is mounted again. Empty where that cannot be known.
#[cfg(target_os = "linux")]
fn mount_of(path: &Path) -> Vec<u8> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

    // STATX_MNT_ID_UNIQUE of Linux 6.8: a number that no later mount has. The number of STATX_MNT_ID is
    // given again after an unmount.
    const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let wanted = StatxFlags::MNT_ID | UNIQUE;
    let Ok(found) = statx(CWD, parent, AtFlags::empty(), wanted) else { return Vec::new() };
    let device = (found.stx_dev_major, found.stx_dev_minor);
    format!(" mount {} on {}:{}", found.stx_mnt_id, device.0, device.1).into_bytes()
}

#[cfg(not(target_os = "linux"))]
fn mount_of(_path: &Path) -> Vec<u8> {
    Vec::new()
}

/// Which run of the operating system this is; empty where that cannot be known, and then equal to
/// every other unknown one.
fn boot_id() -> Vec<u8> {
    std::fs::read("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim_ascii().to_vec())
        .unwrap_or_default()
}

/// The journal that takes the place of the one at `path` once it is complete.
fn unfinished(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let fresh = rewritten_journal_name(name);
    path.with_file_name(OsStr::from_bytes(&fresh))
}

/// Decodes records from a file in bounded memory.
struct RecordReader<'a> {
    file: &'a mut File,
    buffer: Vec<u8>,
    at: usize,
    ended: bool,
}

impl<'a> RecordReader<'a> {
    const PIECE: u64 = 64 << 10;

    fn new(file: &'a mut File) -> Self {
        Self { file, buffer: Vec::new(), at: 0, ended: false }
    }

    fn next(&mut self) -> io::Result<Option<Record>> {
        loop {
            if let Some((record, length)) = Record::decode(&self.buffer[self.at..]) {
                self.at += length;
                return Ok(Some(record));
            }
            // A whole piece in the buffer that does not decode is damage, not a cut.
            if self.ended || self.buffer.len() - self.at >= Self::PIECE as usize {
                return Ok(None);
            }
            self.buffer.drain(..self.at);
            self.at = 0;
            let more = (&mut *self.file).take(Self::PIECE).read_to_end(&mut self.buffer)?;
            self.ended = more == 0;
        }
    }
}

#[cfg(test)]
mod tests;
