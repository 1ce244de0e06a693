//! Checks one file: a small one in one read, others by ranges, several at once.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use haul_storage::{
    DigestKind, Error, ErrorKind, Medium, Range, ReadAt, RelPath, Result, Storage, UNKNOWN_SIZE,
};
use tokio::sync::Semaphore;

use super::event::{Events, VerifyEvent, VerifyOptions};
use crate::digest::{Digest, FileHasher, reported};
use crate::manifest::{LineError, Listed, listed_path};
use crate::retry::Retries;

/// The unit of the memory budget, in bytes: the number of units has to fit into 32 bits.
const UNIT: u64 = 4 << 10;

/// Bounds of the length of a range; BLAKE3 hashes best in subtrees of 64 KiB.
const RANGE_MAX: u64 = 4 << 20;
const RANGE_MIN: u64 = 64 << 10;

/// Ranges of one file at once. A disk reads ahead by itself; the BDP of a link of 1 Gbit/s and 200 ms is
/// 25 MB.
const RANGES_DISK: usize = 3;
const RANGES_LINK: usize = 16;

/// Longer contents of one read, in bytes, are hashed by the pool.
const INLINE_MAX: usize = 64 << 10;

/// Checks files of one storage within one memory budget.
pub struct Checker<'a> {
    storage: &'a dyn Storage,
    base: &'a RelPath,
    options: &'a VerifyOptions,
    events: Events<'a>,
    memory: Semaphore,
    units: u32,
    range_length: u64,
    ranges: usize,
}

/// The digest of a file and its length, and the file, unless `Storage::read_whole` has read it.
pub type Hashed = (Digest, u64, Option<Arc<dyn ReadAt>>);

/// A file to check.
pub(super) struct Ready {
    path: RelPath,
    /// The same with `/` in place of `\`, if it has any.
    otherwise: Option<RelPath>,
    expected: Digest,
}

impl<'a> Checker<'a> {
    pub fn new(
        storage: &'a dyn Storage,
        base: &'a RelPath,
        options: &'a VerifyOptions,
        events: Events<'a>,
    ) -> Self {
        let units = u32::try_from(options.memory / UNIT).unwrap_or(u32::MAX).max(1);
        // Short enough that every file gets its turn, and one waiting range does not block all others.
        let share = options.memory / (options.parallel.max(1) as u64 * 4);
        let range_length = share.clamp(RANGE_MIN, RANGE_MAX) / RANGE_MIN * RANGE_MIN;
        let ranges = match storage.capabilities().medium {
            Medium::Disk => RANGES_DISK,
            Medium::Link => RANGES_LINK,
        };
        let memory = Semaphore::new(units as usize);
        Self { storage, base, options, events, memory, units, range_length, ranges }
    }

    /// Resolves a line to a file of this storage.
    pub(super) fn prepare(&self, listed: &Listed) -> Result<Ready, LineError> {
        let path = self.base.join_path(&listed_path(&listed.name)?);
        let otherwise = listed.name.contains(&b'\\').then(|| {
            let name: Vec<_> =
                listed.name.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect();
            listed_path(&name).ok().map(|path| self.base.join_path(&path))
        });
        Ok(Ready { path, otherwise: otherwise.flatten(), expected: listed.digest })
    }

    /// Checks a file and returns the result.
    pub(super) async fn check(&self, ready: Ready) -> VerifyEvent {
        let Ready { path, otherwise, expected } = ready;
        match (self.check_path(&path, expected).await, otherwise) {
            (VerifyEvent::Missing { .. }, Some(otherwise)) => {
                match self.check_path(&otherwise, expected).await {
                    VerifyEvent::Missing { .. } => VerifyEvent::Missing { path },
                    event => event,
                }
            }
            (event, _) => event,
        }
    }

    async fn check_path(&self, path: &RelPath, expected: Digest) -> VerifyEvent {
        let path = path.clone();
        if let Some(bytes) = self.reported_size(&path, expected).await {
            return VerifyEvent::Matched { path, bytes, reported: true };
        }
        match Box::pin(self.digest(&path, expected)).await {
            Ok((actual, bytes)) if actual == expected => {
                VerifyEvent::Matched { path, bytes, reported: false }
            }
            Ok((actual, _)) => VerifyEvent::Mismatched { path, expected, actual },
            Err(error) if is_absent(&error) => VerifyEvent::Missing { path },
            Err(error) => {
                let error = error.at(self.storage.location().display(&path));
                VerifyEvent::Unreadable { path, error }
            }
        }
    }

    /// The length of a file if its server reports the expected digest. Another digest proves nothing:
    /// then the file is read.
    async fn reported_size(&self, path: &RelPath, expected: Digest) -> Option<u64> {
        let found = reported(self.storage, path, expected.kind).await?;
        if found != expected {
            return None;
        }
        self.storage.stat(path).await.ok()?.known_size()
    }

    async fn digest(&self, path: &RelPath, expected: Digest) -> Result<(Digest, u64)> {
        let (actual, size, file) = self.hash(path, expected.kind).await?;
        if let Some(file) = file.filter(|_| actual != expected) {
            let now = self.retrying(path, || file.recheck()).await?;
            if now != *file.identity() {
                return Err(Error::new(ErrorKind::Changed, "read")
                    .because(format!("it was {}, and now is {now}", file.identity())));
            }
        }
        Ok((actual, size))
    }

    /// The digest of a file and its length, and the file, unless `Storage::read_whole` has read it.
    pub async fn hash(&self, path: &RelPath, kind: DigestKind) -> Result<Hashed> {
        match self.digest_of_small(path, kind).await {
            // Too long for one read, or changed during it: read by ranges.
            Err(error) if error.kind() == ErrorKind::Changed => {}
            outcome => return outcome.map(|(digest, size)| (digest, size, None)),
        }
        let file = self.retrying(path, || self.storage.open(path)).await?;
        let reported = AtomicU64::new(0);
        let digest_of_file = || self.digest_of_ranges(path, &file, kind, &reported);
        let (digest, size) = match self.is_in_one_read(&*file) {
            // It cannot be continued, so it begins anew.
            true => self.retrying(path, digest_of_file).await?,
            false => digest_of_file().await?,
        };
        Ok((digest, size, Some(file)))
    }

    async fn digest_of_small(&self, path: &RelPath, kind: DigestKind) -> Result<(Digest, u64)> {
        let limit = self.storage.capabilities().whole_limit.min(self.options.memory);
        let _permit = self.memory.acquire_many(self.units_of(limit)).await.map_err(closed)?;
        let whole = self.retrying(path, || self.storage.read_whole(path, limit)).await?;
        let bytes = whole.bytes;
        let length = bytes.len() as u64;
        let digest = if bytes.len() <= INLINE_MAX {
            Digest::of(kind, &bytes)
        } else {
            self.options.pool.run(move || Digest::of(kind, &bytes)).await
        };
        (self.events)(VerifyEvent::Progress { bytes: length });
        Ok((digest, length))
    }

    async fn digest_of_ranges(
        &self,
        path: &RelPath,
        file: &Arc<dyn ReadAt>,
        kind: DigestKind,
        reported: &AtomicU64,
    ) -> Result<(Digest, u64)> {
        let mut size = file.identity().size;
        let hasher = FileHasher::new(kind, self.options.pool.clone());
        let mut pieces = Pieces { at: 0, data: Range::new(0, 0), size };
        let mut reads = FuturesUnordered::new();
        let mut next = None;
        loop {
            if next.is_none() && reads.len() < self.ranges {
                next = self.next_piece(path, &**file, &mut pieces).await?;
            }
            let wanted = next.map_or(0, |piece: Piece| match piece {
                Piece::Data(range) => self.units_of(range.len().min(self.range_length)),
                Piece::Hole(_) => 0,
            });
            // A range gets its memory before any later one of the file, so that the range that SHA-256
            // waits for can always be read.
            tokio::select! {
                permit = self.memory.acquire_many(wanted), if next.is_some() => {
                    let permit = permit.map_err(closed)?;
                    if let Some(piece) = next.take() {
                        let (file, hasher) = (&**file, &hasher);
                        reads.push(async move {
                            let _permit = permit;
                            match piece {
                                Piece::Data(range) => {
                                    self.read(path, file, (hasher, reported), range).await
                                }
                                Piece::Hole(range) => self.skip(hasher, range).await,
                            }
                        });
                    }
                }
                Some(outcome) = reads.next(), if !reads.is_empty() => {
                    let end = outcome?;
                    if size == UNKNOWN_SIZE {
                        // It was one read to the end.
                        size = end;
                    }
                }
                else => break,
            }
        }
        drop(reads);
        Ok((hasher.finish(size).await?, size))
    }

    /// Whether a file is read from its start to its end, because a read cannot begin anywhere else.
    fn is_in_one_read(&self, file: &dyn ReadAt) -> bool {
        let is_ranged = self.storage.capabilities().ranged_reads && file.is_ranged();
        !is_ranged || file.identity().size == UNKNOWN_SIZE
    }

    /// Hashes a range, or everything from its start if the size of the file is unknown. Returns the offset
    /// of the end. A read that began anew reports only bytes beyond `reported`, where the earlier ones stopped.
    async fn read(
        &self,
        path: &RelPath,
        file: &dyn ReadAt,
        (hasher, reported): (&FileHasher, &AtomicU64),
        range: Range,
    ) -> Result<u64> {
        let is_sized = file.identity().size != UNKNOWN_SIZE;
        let is_in_one_read = self.is_in_one_read(file);
        let mut retries = self.retries(range.start());
        let mut at = range.start();
        while at < range.end() {
            let mut blocks = file.read_at(Range::between(at, range.end()));
            let failed = loop {
                match blocks.next().await {
                    Some(Ok(block)) => {
                        let length = block.len() as u64;
                        if length > range.end() - at {
                            return Err(Error::new(ErrorKind::Protocol, "read")
                                .because("the server sent more than was requested"));
                        }
                        hasher.update(at, block).await?;
                        at += length;
                        retries.reset();
                        let bytes = match is_in_one_read {
                            true => at.saturating_sub(reported.fetch_max(at, Ordering::Relaxed)),
                            false => length,
                        };
                        (self.events)(VerifyEvent::Progress { bytes: bytes.min(length) });
                    }
                    Some(Err(error)) => break Some(error),
                    None => break None,
                }
            };
            match failed {
                Some(error) if !is_in_one_read => {
                    self.pause(path, error, &mut retries, at).await?;
                }
                Some(error) => return Err(error),
                None if !is_sized => break,
                None if at < range.end() => {
                    return Err(Error::new(ErrorKind::Changed, "read")
                        .because(format!("it ended at byte {at} of {}", file.identity().size)));
                }
                None => {}
            }
        }
        Ok(at)
    }

    async fn skip(&self, hasher: &FileHasher, hole: Range) -> Result<u64> {
        hasher.zeros(hole.start(), hole.len()).await?;
        (self.events)(VerifyEvent::Progress { bytes: hole.len() });
        Ok(hole.end())
    }

    async fn next_piece(
        &self,
        path: &RelPath,
        file: &dyn ReadAt,
        pieces: &mut Pieces,
    ) -> Result<Option<Piece>> {
        let Pieces { at, size, .. } = *pieces;
        if at == size {
            return Ok(None);
        }
        if self.is_in_one_read(file) {
            pieces.at = size;
            return Ok(Some(Piece::Data(Range::between(0, size))));
        }
        if at >= pieces.data.end() {
            let found = self.retrying(path, || file.next_data(at)).await?;
            let whole = Range::between(at, size);
            // Nothing before `at` or beyond the end, even if the storage returns that.
            pieces.data = found.map_or(Range::new(size, 0), |data| data.intersection(whole));
            if pieces.data.is_empty() {
                pieces.data = Range::new(size, 0);
            }
        }
        let end = match pieces.data.start() {
            start if start > at => start,
            _ => {
                let end = at - at % self.range_length + self.range_length;
                end.min(pieces.data.end())
            }
        };
        let range = Range::between(at, end);
        let piece = if at < pieces.data.start() { Piece::Hole(range) } else { Piece::Data(range) };
        pieces.at = end;
        Ok(Some(piece))
    }

    /// Tries an operation until it succeeds or is not to be retried any more.
    async fn retrying<T, F: Future<Output = Result<T>>>(
        &self,
        path: &RelPath,
        operation: impl Fn() -> F,
    ) -> Result<T> {
        let mut retries = self.retries(0);
        loop {
            match operation().await {
                Ok(value) => return Ok(value),
                Err(error) => self.pause(path, error, &mut retries, 0).await?,
            }
        }
    }

    /// Waits until it is time for a retry; returns the error if there is none. `progress` is the progress of
    /// the operation.
    async fn pause(
        &self,
        path: &RelPath,
        error: Error,
        retries: &mut Retries,
        progress: u64,
    ) -> Result<()> {
        let (error, pause) = retries.next(error, progress)?;
        let error = error.at(self.storage.location().display(path));
        let attempt = retries.attempt();
        (self.events)(VerifyEvent::Retry { path: path.clone(), error, attempt, pause });
        tokio::time::sleep(pause).await;
        Ok(())
    }

    fn retries(&self, salt: u64) -> Retries {
        Retries::new(self.options.retries, self.options.retry_pause, salt)
    }

    fn units_of(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).min(self.units)
    }
}

/// The position in a file that is read by ranges.
struct Pieces {
    at: u64,
    /// The range of data at or after `at`; empty at the end if the rest is a hole.
    data: Range,
    size: u64,
}

#[derive(Clone, Copy)]
enum Piece {
    Data(Range),
    Hole(Range),
}

/// If a parent is not a directory, the file does not exist either.
fn is_absent(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// The semaphore is never closed while files are checked.
fn closed(error: tokio::sync::AcquireError) -> Error {
    Error::new(ErrorKind::Interrupted, "read").with_source(error)
}
