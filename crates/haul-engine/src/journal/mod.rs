//! The journal: which ranges of a file have reached its part file.
//!
//! A record is appended after the data it speaks of was written, so a process that is killed loses
//! at most what was in flight. A machine that loses power may lose written data that was not yet
//! durable; therefore a journal names the run of the operating system (boot id), and after another
//! start of the machine only what was marked as synced counts. Length and allocation of the part
//! file never count.

mod record;

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use haul_storage::{Identity, Range, rewritten_journal_name};

use crate::ranges::RangeSet;
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
        let this = header(source, name);
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
        Record::Header(header(source, name)).encode(&mut bytes);
        written.iter().for_each(|range| Record::Range(range).encode(&mut bytes));
        // Whatever has that name: a link is not followed.
        match std::fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().create_new(true).write(true).open(&fresh)?;
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

fn header(source: &Identity, name: &str) -> Header {
    let mut text = format!("{name}, size {}", source.size);
    if let Some(time) = source.modified {
        text.push_str(&format!(", modified {}.{:09}", time.seconds, time.nanos));
    }
    if let Some(tag) = &source.tag {
        text.push_str(&format!(", tag {tag}"));
    }
    Header { boot: boot_id(), source: text.into_bytes() }
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
