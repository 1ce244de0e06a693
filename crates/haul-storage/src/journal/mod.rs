//! The journal records which ranges of a file have reached its part file.
//!
//! A record is appended after its data was written, so a killed process loses at most what was in
//! flight. A power loss, or unplugging a disk, may lose written data that was not yet durable. Therefore
//! a journal names the boot (boot id) and the mount that it was written on; under another boot or mount
//! only ranges marked as synced count. An interrupted copy to a disk sets that mark, a killed one does not. Length
//! and allocation of the part file never count.

mod location;
mod part_journal;
mod record;

use std::fs::File;
use std::io::{self, Read, Write};

use crate::{Error, Held, Range, RangeSet, Result, SourceVersion, Writes};

pub use location::JournalPath;
pub use part_journal::PartJournal;
pub use record::{Header, Record};

/// An open journal of one part file.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: JournalPath,
}

/// The journal of an earlier run.
#[derive(Debug, PartialEq, Eq)]
enum Loaded {
    /// No journal.
    Nothing,
    /// Ranges that are in the part file.
    Ranges(RangeSet),
    /// A journal that cannot be resumed; the reason, for users.
    Unusable(String),
}

impl Journal {
    /// What a part file of `length` bytes holds of `source`, according to the journal at `path`.
    pub fn held(path: &JournalPath, source: &SourceVersion, length: u64, writes: Writes) -> Held {
        match Self::load(path, source) {
            Ok(Loaded::Ranges(ranges)) => Held::of(ranges, length, writes),
            Ok(Loaded::Nothing) => Held::StartedOver("it has no journal".to_owned()),
            Ok(Loaded::Unusable(why)) => Held::StartedOver(format!("{why} (journal {path})")),
            Err(error) => Held::StartedOver(format!("its journal {path} cannot be read: {error}")),
        }
    }

    /// Reads the journal at `path`, which must belong to `source`.
    fn load(path: &JournalPath, source: &SourceVersion) -> io::Result<Loaded> {
        let mut file = match path.open() {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Loaded::Nothing),
            Err(error) => return Err(error),
        };
        // Read in pieces: the records of 1 TiB in ranges of 1 MiB take 25 MiB.
        let mut reader = RecordReader::new(&mut file);
        let this = header(path, source);
        let size = source.identity.size;
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
                Record::Range(range) if range.end() <= size => unsynced.insert(range),
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

    /// Starts a journal at `path`, replacing any other. It records that `written` has already reached
    /// the part file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn start(path: &JournalPath, source: &SourceVersion, written: &RangeSet) -> Result<Self> {
        let mut bytes = Vec::new();
        Record::Header(header(path, source)).encode(&mut bytes);
        written.iter().for_each(|range| Record::Range(range).encode(&mut bytes));
        match path.replace(|file| file.write_all(&bytes)) {
            Ok(file) => Ok(Self { file, path: path.clone() }),
            Err(error) => Err(Error::from_io("start the journal", error).at(path)),
        }
    }

    /// Records that `ranges` have reached the part file. One small write at the end of the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn append(&mut self, ranges: impl IntoIterator<Item = Range>) -> Result<()> {
        let mut bytes = Vec::with_capacity(32);
        ranges.into_iter().for_each(|range| Record::Range(range).encode(&mut bytes));
        self.file.write_all(&bytes).map_err(|error| Error::from_io("write the journal", error))
    }

    /// Marks all ranges recorded so far as synced. Their data must be durable already.
    ///
    /// # Errors
    /// If the mark cannot be written durably.
    pub fn mark_synced(&mut self) -> Result<()> {
        let mut bytes = Vec::new();
        Record::Synced.encode(&mut bytes);
        let marked = self.file.write_all(&bytes).and_then(|()| self.file.sync_data());
        marked.map_err(|error| Error::from_io("sync the journal", error))
    }

    /// Removes the journal, if it still exists: the file was committed or aborted.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(&self) -> Result<()> {
        remove_at(&self.path)
    }
}

/// Removes the journal at `path`, if it exists.
fn remove_at(path: &JournalPath) -> Result<()> {
    path.remove().map_err(|error| Error::from_io("remove the journal", error))
}

fn header(path: &JournalPath, source: &SourceVersion) -> Header {
    let boot = [boot_id(), path.mount()].concat();
    Header::new(boot, source.to_string())
}

/// The boot id of the operating system; empty if unknown, and then equal to every other unknown one.
fn boot_id() -> Vec<u8> {
    std::fs::read("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim_ascii().to_vec())
        .unwrap_or_default()
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
            // A whole piece that does not decode is damaged, not truncated.
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
