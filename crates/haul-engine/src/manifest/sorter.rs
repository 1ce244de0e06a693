//! External sorting, for manifests and for the files that are compared with one.
//!
//! Records are held in memory up to a bound, then written as a sorted run to one temporary file
//! without a name (so nothing remains of it even if the process is killed), and merged at the
//! end. Of records with the same key the one that was added last remains.
//!
//! All of it blocks; a spill writes a few MiB at most, to the page cache.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The most records in memory.
const MEMORY_RECORDS: usize = 16 << 10;

/// The most bytes of keys and values in memory: names can be long.
const MEMORY_BYTES: usize = 4 << 20;

/// How many runs are merged at once; each has a buffer of [`BUFFER`] bytes.
const FAN_IN: usize = 64;
const BUFFER: usize = 32 << 10;

/// The longest key or value in a run; longer ones are never written, so a longer one is a damaged file.
const FIELD_MAX: usize = 1 << 20;

/// A key and its value.
pub(crate) type Record = (Vec<u8>, Vec<u8>);

/// Takes records in any order and returns them in the order of their keys.
pub(crate) struct Sorter {
    directory: PathBuf,
    memory: BTreeMap<Vec<u8>, Vec<u8>>,
    memory_bytes: usize,
    spilled: Option<Spilled>,
}

/// Sorted runs, one after the other in one file, the oldest first.
struct Spilled {
    file: File,
    runs: Vec<Run>,
}

#[derive(Clone, Copy)]
struct Run {
    start: u64,
    end: u64,
}

impl Sorter {
    /// A sorter whose temporary file is in `directory`.
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            memory: BTreeMap::new(),
            memory_bytes: 0,
            spilled: None,
        }
    }

    /// Adds a record. Call [`Sorter::spill`] once [`Sorter::is_full`].
    pub(crate) fn add(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.memory_bytes += key.len() + value.len();
        self.memory.insert(key, value);
    }

    /// Whether the records in memory have reached their limit.
    pub(crate) fn is_full(&self) -> bool {
        self.memory.len() >= MEMORY_RECORDS || self.memory_bytes >= MEMORY_BYTES
    }

    /// Writes the records in memory to disk.
    pub(crate) fn spill(&mut self) -> io::Result<()> {
        if self.memory.is_empty() {
            return Ok(());
        }
        let spilled = match &mut self.spilled {
            Some(spilled) => spilled,
            none => none.insert(Spilled { file: temporary(&self.directory)?, runs: Vec::new() }),
        };
        let records = std::mem::take(&mut self.memory).into_iter();
        self.memory_bytes = 0;
        spilled.append(records.map(Ok))
    }

    /// All records in the order of their keys.
    pub(crate) fn into_sorted(mut self) -> io::Result<Sorted> {
        let Some(mut spilled) = self.spilled.take() else {
            return Ok(Sorted::Memory(self.memory.into_iter()));
        };
        // The records in memory are the newest run, and need not be written.
        while spilled.runs.len() > FAN_IN {
            let mut merged = Spilled { file: temporary(&self.directory)?, runs: Vec::new() };
            for runs in spilled.runs.chunks(FAN_IN) {
                merged.append(Merge::new(spilled.file.try_clone()?, runs, BTreeMap::new())?)?;
            }
            spilled = merged;
        }
        Ok(Sorted::Merge(Merge::new(spilled.file, &spilled.runs, self.memory)?))
    }
}

impl Spilled {
    fn append(&mut self, records: impl Iterator<Item = io::Result<Record>>) -> io::Result<()> {
        let start = self.file.seek(SeekFrom::End(0))?;
        let mut end = start;
        let mut out = BufWriter::with_capacity(256 << 10, &mut self.file);
        for record in records {
            let (key, value) = record?;
            end += write_field(&mut out, &key)? + write_field(&mut out, &value)?;
        }
        out.flush()?;
        self.runs.push(Run { start, end });
        Ok(())
    }
}

/// Records in the order of their keys, each key once.
pub(crate) enum Sorted {
    Memory(std::collections::btree_map::IntoIter<Vec<u8>, Vec<u8>>),
    Merge(Merge),
}

impl Iterator for Sorted {
    type Item = io::Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Memory(records) => records.next().map(Ok),
            Self::Merge(merge) => merge.next(),
        }
    }
}

/// Several sorted runs as one.
pub(crate) struct Merge {
    file: File,
    sources: Vec<Source>,
    heads: BinaryHeap<Head>,
    failed: bool,
}

enum Source {
    Run { rest: Run, buffer: Vec<u8>, read: usize },
    Memory(std::collections::btree_map::IntoIter<Vec<u8>, Vec<u8>>),
}

/// The next record of a source. The greatest in the heap has the smallest key, and is the newest among
/// equal keys.
struct Head {
    key: Vec<u8>,
    value: Vec<u8>,
    source: usize,
}

impl Merge {
    fn new(file: File, runs: &[Run], newest: BTreeMap<Vec<u8>, Vec<u8>>) -> io::Result<Self> {
        let run = |run: &Run| Source::Run { rest: *run, buffer: Vec::new(), read: 0 };
        let mut sources: Vec<_> = runs.iter().map(run).collect();
        sources.push(Source::Memory(newest.into_iter()));
        let heads = BinaryHeap::with_capacity(sources.len());
        let mut merge = Self { file, sources, heads, failed: false };
        for source in 0..merge.sources.len() {
            merge.advance(source)?;
        }
        Ok(merge)
    }

    fn advance(&mut self, source: usize) -> io::Result<()> {
        if let Some((key, value)) = self.sources[source].next(&mut self.file)? {
            self.heads.push(Head { key, value, source });
        }
        Ok(())
    }

    fn take(&mut self) -> io::Result<Option<Record>> {
        let Some(head) = self.heads.pop() else { return Ok(None) };
        self.advance(head.source)?;
        while self.heads.peek().is_some_and(|older| older.key == head.key) {
            if let Some(older) = self.heads.pop() {
                self.advance(older.source)?;
            }
        }
        Ok(Some((head.key, head.value)))
    }
}

impl Iterator for Merge {
    type Item = io::Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let taken = self.take();
        self.failed = taken.is_err();
        taken.transpose()
    }
}

impl Source {
    fn next(&mut self, file: &mut File) -> io::Result<Option<Record>> {
        match self {
            Self::Memory(records) => Ok(records.next()),
            Self::Run { rest, buffer, read } => {
                if rest.start == rest.end && *read == buffer.len() {
                    return Ok(None);
                }
                let mut reader = RunReader { file, rest, buffer, read };
                Ok(Some((reader.field()?, reader.field()?)))
            }
        }
    }
}

/// Reads the rest of a run; many runs share one file, so each read seeks first.
struct RunReader<'a> {
    file: &'a mut File,
    rest: &'a mut Run,
    buffer: &'a mut Vec<u8>,
    read: &'a mut usize,
}

impl RunReader<'_> {
    fn field(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > FIELD_MAX {
            return Err(io::Error::new(ErrorKind::InvalidData, "a temporary file is damaged"));
        }
        let mut field = vec![0; length];
        self.read_exact(&mut field)?;
        Ok(field)
    }
}

impl Read for RunReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if *self.read == self.buffer.len() {
            let left = usize::try_from(self.rest.end - self.rest.start).unwrap_or(BUFFER);
            self.buffer.resize(left.min(BUFFER), 0);
            *self.read = 0;
            self.file.seek(SeekFrom::Start(self.rest.start))?;
            self.file.read_exact(self.buffer)?;
            self.rest.start += self.buffer.len() as u64;
        }
        let mut here = &self.buffer[*self.read..];
        let taken = here.read(out)?;
        *self.read += taken;
        Ok(taken)
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key.cmp(&self.key).then(self.source.cmp(&other.source))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}

fn write_field(out: &mut impl Write, field: &[u8]) -> io::Result<u64> {
    let too_long = || io::Error::new(ErrorKind::InvalidInput, "a name is longer than 1 MiB");
    let length = u32::try_from(field.len()).ok().filter(|length| *length as usize <= FIELD_MAX);
    let length = length.ok_or_else(too_long)?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(field)?;
    Ok(4 + u64::from(length))
}

fn temporary(directory: &Path) -> io::Result<File> {
    tempfile::tempfile_in(directory).map_err(|error| {
        let message = format!("no temporary file in {}: {error}", directory.display());
        io::Error::new(error.kind(), message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(sorter: Sorter) -> Vec<(String, String)> {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let records = sorter.into_sorted().unwrap().map(Result::unwrap);
        records.map(|(key, value)| (text(key), text(value))).collect()
    }

    #[test]
    fn the_last_of_several_records_with_one_key_remains() {
        let directory = tempfile::tempdir().unwrap();
        // More runs than are merged at once, so that there is a pass between.
        let mut sorter = Sorter::new(directory.path());
        for run in 0..3 * FAN_IN + 1 {
            sorter.add(b"same".to_vec(), run.to_string().into_bytes());
            sorter.add(format!("k{:03}", run % 100).into_bytes(), run.to_string().into_bytes());
            sorter.spill().unwrap();
        }
        sorter.add(b"k000".to_vec(), b"memory".to_vec());
        let records = collected(sorter);
        assert_eq!(records.len(), 101);
        assert!(records.is_sorted());
        assert_eq!(records[0], ("k000".to_owned(), "memory".to_owned()));
        assert_eq!(records[92], ("k092".to_owned(), "192".to_owned()));
        assert_eq!(records[93], ("k093".to_owned(), "93".to_owned()));
        assert_eq!(records[100], ("same".to_owned(), (3 * FAN_IN).to_string()));
    }

    #[test]
    fn a_run_longer_than_its_buffer_is_read_whole() {
        let directory = tempfile::tempdir().unwrap();
        let mut sorter = Sorter::new(directory.path());
        for number in 0..5000 {
            let key = format!("{:0100}", (number * 7919) % 5000);
            sorter.add(key.into_bytes(), number.to_string().into_bytes());
            if number == 4000 {
                sorter.spill().unwrap();
            }
        }
        sorter.spill().unwrap();
        let records = collected(sorter);
        assert_eq!(records.len(), 5000);
        assert!(records.is_sorted());
    }

    #[test]
    fn the_bound_of_memory_counts_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let mut sorter = Sorter::new(directory.path());
        sorter.add(vec![b'a'; MEMORY_BYTES / 8], Vec::new());
        assert!(!sorter.is_full());
        for byte in b'b'..b'i' {
            sorter.add(vec![byte; MEMORY_BYTES / 8], Vec::new());
        }
        assert!(sorter.is_full());
        sorter.spill().unwrap();
        assert!(!sorter.is_full());
        // The temporary file has no name.
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        assert_eq!(collected(sorter).len(), 8);
    }
}
