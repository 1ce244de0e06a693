//! Writes a manifest: collects digests in any order, and merges them with an existing manifest.
//!
//! A run of haul adds the files that it moved (and drops those that it removed); entries of an earlier
//! run or of `sha256sum` stay if they are about other files. The new manifest replaces the old one
//! atomically.

use std::cmp::Ordering;
use std::fmt;
use std::io;
use std::iter::Peekable;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use haul_storage::{
    CommitOptions, CreateOptions, DigestKind, Error, ErrorKind, Metadata, RelPath, Result, Storage,
    StorageExt, WorkPool, WriteAt,
};

use super::line::{LineError, format_line, listed_path};
use super::reader::ManifestReader;
use super::sorter::{Record, Sorted, Sorter};
use crate::digest::Digest;

/// Bytes of the manifest that are made and written at once.
const BLOCK: usize = 1 << 20;

/// The value of a record that removes a name; other values are digests.
const REMOVED: &[u8] = b"";

/// Collects digests and writes them as a manifest. Until [`ManifestWriter::finish`] it writes at most one
/// nameless temporary file, in the scratch directory, which vanishes with the writer.
pub struct ManifestWriter {
    kind: DigestKind,
    base: RelPath,
    scratch: PathBuf,
    pool: WorkPool,
    sorter: Sorter,
    /// Everything in an existing manifest is dropped.
    removed_all: bool,
    changes: u64,
}

/// How a manifest is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinishOptions {
    /// Keep the entries of other files in an existing manifest; otherwise it is replaced unread.
    pub merge: bool,
    /// The manifest is in the storage whose files it lists, so it must not list itself.
    pub beside: bool,
    /// Sync it to disk before it gets its name.
    pub sync: bool,
    /// It lists files that some users may not read, so only its owner may read it.
    pub private: bool,
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Finished {
    /// Files that it lists.
    pub files: u64,
    /// Of these, the ones that the existing manifest listed and this run did not touch.
    pub unchanged: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

impl ManifestWriter {
    /// A manifest of `kind` whose names are relative to `base`. `scratch` is an existing directory
    /// on this machine for records that do not fit in memory (more than 16 384 files, or 4 MiB); `pool`
    /// runs the blocking work of [`ManifestWriter::finish`].
    pub fn new(kind: DigestKind, base: RelPath, scratch: &Path, pool: WorkPool) -> Self {
        let sorter = Sorter::new(scratch);
        Self {
            kind,
            base,
            scratch: scratch.to_owned(),
            pool,
            sorter,
            removed_all: false,
            changes: 0,
        }
    }

    /// Lists a file, in place of any earlier entry; `path` is below the base.
    ///
    /// Blocks only once in 16 384 calls, when it writes about 2 MiB to the scratch directory, or if names
    /// are long, after 4 MiB.
    ///
    /// # Errors
    /// If `path` is not below the base, the digest is of another kind than the manifest, or the scratch directory
    /// cannot be written.
    pub fn add(&mut self, path: &RelPath, digest: &Digest) -> Result<()> {
        if digest.kind != self.kind {
            return Err(Error::new(ErrorKind::InvalidInput, "add to manifest")
                .at(path)
                .because(format!("{} in a list of {}", digest.kind.name(), self.kind.name())));
        }
        let name = self.relative(path)?;
        self.change(name, digest.bytes.to_vec())
    }

    /// Removes a file from the list.
    ///
    /// # Errors
    /// If it is not below the base, or the scratch directory cannot be written.
    pub fn remove(&mut self, path: &RelPath) -> Result<()> {
        let name = self.relative(path)?;
        self.change(name, REMOVED.to_vec())
    }

    /// Removes everything that an existing manifest lists below a directory.
    ///
    /// # Errors
    /// If the directory is not below the base, or the scratch directory cannot be written.
    pub fn remove_below(&mut self, directory: &RelPath) -> Result<()> {
        if *directory == self.base {
            self.changes += 1;
            self.removed_all = true;
            return Ok(());
        }
        let mut name = self.relative(directory)?;
        // No file has this name, and it sorts right before everything below.
        name.push(b'/');
        self.change(name, REMOVED.to_vec())
    }

    /// Whether nothing was added or removed.
    pub fn is_empty(&self) -> bool {
        self.changes == 0
    }

    /// Writes the manifest as `path` of `storage`, sorted by the bytes of the names.
    ///
    /// If nothing was added or removed, nothing is done, except that without `merge` an existing
    /// manifest becomes empty.
    ///
    /// # Errors
    /// If an existing manifest cannot be parsed: the error names the line, and the manifest stays as it is. If one of
    /// the files cannot be read or written.
    pub async fn finish(
        mut self,
        storage: &dyn Storage,
        path: &RelPath,
        options: FinishOptions,
    ) -> Result<Finished> {
        let existing = storage.find(path).await?;
        if let Some(entry) = existing.as_ref().filter(|entry| !entry.is_file()) {
            let kind =
                if entry.is_dir() { ErrorKind::IsADirectory } else { ErrorKind::AlreadyExists };
            return Err(Error::new(kind, "write manifest")
                .at(storage.location().display(path))
                .because("it exists, but is not a regular file"));
        }
        let merge = options.merge && existing.is_some();
        if self.is_empty() && (merge || existing.is_none()) {
            return Ok(Finished::default());
        }
        let own_name = if options.beside { self.relative(path).ok() } else { None };
        let older = match merge {
            true => self.read_existing(storage, path).await?,
            false => Sorter::new(&self.scratch),
        };
        let kind = self.kind;
        let newer = std::mem::replace(&mut self.sorter, Sorter::new(&self.scratch));
        let merged = self.pool.run(move || Merged::new(kind, own_name, older, newer)).await;
        let merged = merged.map_err(|error| self.scratch_error(error))?;

        let file = storage.create(path, &CreateOptions::default()).await?;
        let outcome = self.write(&*file, merged).await;
        let mode = existing.and_then(|entry| entry.mode);
        let mode = if options.private { Some(0o600) } else { mode };
        let metadata = Metadata { mode, ..Metadata::default() };
        let commit = CommitOptions { metadata, replace: true, sync: options.sync, expected: None };
        let outcome = match outcome {
            Ok(finished) => file.commit(finished.bytes, &commit).await.map(|()| finished),
            Err(error) => Err(error),
        };
        if outcome.is_err() {
            // Its own error is ignored: that of the write is returned, and the next run finds a part file that stays.
            _ = file.abort(false).await;
        }
        outcome.map_err(|error| error.at(storage.location().display(path)))
    }

    async fn read_existing(&self, storage: &dyn Storage, path: &RelPath) -> Result<Sorter> {
        let mut reader = ManifestReader::open(storage, path, self.kind).await?;
        let mut sorter = Sorter::new(&self.scratch);
        while let Some(line) = reader.next().await? {
            let checked = line.listed.and_then(|listed| match listed.digest.kind {
                kind if kind == self.kind => Ok((listed_path(&listed.name)?, listed.digest)),
                kind => Err(LineError::Kind(kind)),
            });
            let (name, digest) = checked.map_err(|error| reader.line_error(line.number, error))?;
            if self.removed_all {
                continue;
            }
            sorter.add(name.as_bytes().to_vec(), digest.bytes.to_vec());
            if sorter.is_full() {
                let spill = move || sorter.spill().map(|()| sorter);
                sorter = self.pool.run(spill).await.map_err(|error| self.scratch_error(error))?;
            }
        }
        Ok(sorter)
    }

    async fn write(&self, file: &dyn WriteAt, mut merged: Merged) -> Result<Finished> {
        loop {
            let offset = merged.finished.bytes;
            let next = move || merged.next_block().map(|block| (merged, block));
            let (rest, block) =
                self.pool.run(next).await.map_err(|error| self.scratch_error(error))?;
            merged = rest;
            if block.is_empty() {
                return Ok(merged.finished);
            }
            file.write_at(offset, block.into()).await?;
        }
    }

    fn change(&mut self, name: Vec<u8>, value: Vec<u8>) -> Result<()> {
        self.changes += 1;
        self.sorter.add(name, value);
        if self.sorter.is_full() {
            self.sorter.spill().map_err(|error| self.scratch_error(error))?;
        }
        Ok(())
    }

    fn relative(&self, path: &RelPath) -> Result<Vec<u8>> {
        if path.is_root() || *path == self.base || !path.starts_with(&self.base) {
            return Err(Error::new(ErrorKind::InvalidInput, "add to manifest")
                .at(path)
                .because(format!("is not below {}", self.base)));
        }
        let below = match self.base.as_bytes().len() {
            0 => 0,
            length => length + 1,
        };
        Ok(path.as_bytes()[below..].to_vec())
    }

    fn scratch_error(&self, error: io::Error) -> Error {
        Error::from_io("sort manifest", error).at(self.scratch.display())
    }
}

impl fmt::Debug for ManifestWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ManifestWriter({}, {} changes)", self.kind.name(), self.changes)
    }
}

/// The lines of the new manifest, made from the existing one and the changes.
struct Merged {
    kind: DigestKind,
    own_name: Option<Vec<u8>>,
    older: Peekable<Sorted>,
    newer: Peekable<Sorted>,
    /// The last removed directory, with its `/`: older entries below it are dropped.
    removed_below: Option<Vec<u8>>,
    finished: Finished,
}

impl Merged {
    fn new(
        kind: DigestKind,
        own_name: Option<Vec<u8>>,
        older: Sorter,
        newer: Sorter,
    ) -> io::Result<Self> {
        Ok(Self {
            kind,
            own_name,
            older: older.into_sorted()?.peekable(),
            newer: newer.into_sorted()?.peekable(),
            removed_below: None,
            finished: Finished::default(),
        })
    }

    /// About [`BLOCK`] bytes of lines; empty at the end.
    fn next_block(&mut self) -> io::Result<Bytes> {
        let mut block = Vec::with_capacity(BLOCK + (64 << 10));
        while block.len() < BLOCK {
            let Some((name, bytes)) = self.next_listed()? else { break };
            let path = RelPath::parse(&name).map_err(io::Error::other)?;
            let bytes = <[u8; 32]>::try_from(bytes).map_err(|_| damaged())?;
            block.extend_from_slice(&format_line(&path, &Digest { kind: self.kind, bytes }));
            self.finished.files += 1;
        }
        self.finished.bytes += block.len() as u64;
        Ok(block.into())
    }

    fn next_listed(&mut self) -> io::Result<Option<Record>> {
        loop {
            let Some((is_new, (name, value))) = self.next_record()? else { return Ok(None) };
            if is_new && name.ends_with(b"/") {
                // A removed directory within a removed one adds nothing.
                if !self.is_removed(&name) {
                    self.removed_below = Some(name);
                }
                continue;
            }
            let gone = if is_new { value == REMOVED } else { self.is_removed(&name) };
            if gone || self.own_name.as_ref() == Some(&name) {
                continue;
            }
            self.finished.unchanged += u64::from(!is_new);
            return Ok(Some((name, value)));
        }
    }

    /// The record with the smallest name, and whether it is of this run; of two with the same name, the one
    /// of this run.
    fn next_record(&mut self) -> io::Result<Option<(bool, Record)>> {
        let order = match (peek_name(&mut self.older)?, peek_name(&mut self.newer)?) {
            (None, None) => return Ok(None),
            (None, _) => Ordering::Greater,
            (_, None) => Ordering::Less,
            (Some(older), Some(newer)) => older.cmp(newer),
        };
        if order.is_eq() {
            self.older.next();
        }
        let is_new = order.is_ge();
        let source = if is_new { &mut self.newer } else { &mut self.older };
        Ok(source.next().transpose()?.map(|record| (is_new, record)))
    }

    fn is_removed(&self, name: &[u8]) -> bool {
        self.removed_below.as_ref().is_some_and(|prefix| name.starts_with(prefix))
    }
}

fn peek_name(source: &mut Peekable<Sorted>) -> io::Result<Option<&Vec<u8>>> {
    match source.next_if(Result::is_err) {
        Some(Err(error)) => Err(error),
        _ => Ok(source.peek().and_then(|record| record.as_ref().ok()).map(|(name, _)| name)),
    }
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a temporary file is damaged")
}
