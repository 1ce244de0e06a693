//! Compares what the server has with what was sent from here, or is about to be.

use bytes::Bytes;
use futures_util::StreamExt as _;
use haul_storage::{Entry, ErrorKind, Range, RelPath, Result};
use tokio::task::yield_now;

use super::pending::Pending;
use super::send::{Sender, Snapshot, content};
use super::sent::{Sent, has_time, is_fine};

/// Bytes that are hashed at a time.
const HASHED: u64 = 1 << 20;

/// Longest file that is read in one request.
const MOST_WHOLE: u64 = 4 << 20;

impl Sender {
    /// Whether the file on the server is one that was sent before.
    pub(super) async fn is_one_of(&self, before: &[Sent], existing: &Entry) -> Result<bool> {
        let mut stored = None;
        for sent in before {
            match sent.is(existing, self.storage.capabilities()) {
                Some(false) => {}
                Some(true) => return Ok(true),
                None => {
                    if stored.is_none() {
                        stored = self.stored_digest(existing).await?;
                    }
                    if stored.is_some() && stored == sent.digest {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Whether the file on the server is still the one that was just sent, as far as its entry shows.
    pub(super) async fn is_still(&self, sent: &[Sent], existing: &Entry) -> Result<bool> {
        let can = self.storage.capabilities();
        let is_alike = |one: &&Sent| existing.is_file() && existing.size == one.size;
        let alike: Vec<_> = sent.iter().filter(is_alike).cloned().collect();
        let is_known = |one: &Sent| {
            let is_compared = can.times && one.digest.is_some() && one.size <= MOST_WHOLE;
            !is_compared || has_time(existing, one.modified, can)
        };
        Ok(alike.iter().any(is_known) || self.is_one_of(&alike, existing).await?)
    }

    /// The digest of a file on the server; `None` if it is changed or removed meanwhile.
    async fn stored_digest(&self, existing: &Entry) -> Result<Option<blake3::Hash>> {
        let (path, size) = (&existing.path, existing.size);
        if size <= MOST_WHOLE {
            let content = self.stored_content(path, size).await?;
            return Ok(content.map(|content| blake3::hash(&content)));
        }
        let mut hasher = blake3::Hasher::new();
        let read = self.read_long(path, size, |stored| {
            hasher.update(&stored);
            Ok(true)
        });
        Ok(read.await?.then(|| hasher.finalize()))
    }

    /// The content of a file on the server; `None` if it is longer than `size` bytes, or changed or removed meanwhile.
    async fn stored_content(&self, path: &RelPath, size: u64) -> Result<Option<Bytes>> {
        match self.storage.read_whole(path, size).await {
            Ok(whole) => Ok(Some(whole.bytes)),
            Err(error) if is_other(error.kind()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the file on the server is this version, from an upload whose response was lost.
    pub(super) async fn is_sent(
        &self,
        file: &Pending,
        snapshot: &Snapshot,
        existing: &Entry,
    ) -> Result<bool> {
        if !existing.is_file() || existing.size != snapshot.size {
            return Ok(false);
        }
        let can = self.storage.capabilities();
        let is_same_time = has_time(existing, snapshot.metadata.modified, can);
        if is_same_time && is_fine(can) {
            return Ok(true);
        }
        if snapshot.size <= MOST_WHOLE {
            let stored = self.stored_content(&snapshot.path, snapshot.size).await?;
            let ours = content(file, Range::new(0, snapshot.size))?;
            return Ok(stored.is_some_and(|stored| stored == ours));
        }
        // A long upload sets its time in the same step that gives it its name.
        if can.times && !is_same_time {
            return Ok(false);
        }
        let mut at = 0;
        let is_ours = |stored: Bytes| {
            snapshot.check(file)?;
            let range = Range::new(at, stored.len() as u64);
            at = range.end();
            Ok(content(file, range)? == stored)
        };
        self.read_long(&snapshot.path, snapshot.size, is_ours).await
    }

    /// Reads a long file on the server as long as `accept` returns true. Returns whether it was read to its end, and
    /// has not changed meanwhile.
    async fn read_long(
        &self,
        path: &RelPath,
        size: u64,
        accept: impl FnMut(Bytes) -> Result<bool>,
    ) -> Result<bool> {
        match self.try_read_long(path, size, accept).await {
            Err(error) if is_other(error.kind()) => Ok(false),
            read => read,
        }
    }

    async fn try_read_long(
        &self,
        path: &RelPath,
        size: u64,
        mut accept: impl FnMut(Bytes) -> Result<bool>,
    ) -> Result<bool> {
        let reader = self.storage.open(path).await?;
        let opened = reader.identity().clone();
        let mut blocks = reader.read_at(Range::new(0, size));
        let mut left = size;
        while left > 0 {
            let next = async { blocks.next().await.transpose() };
            let Some(block) = self.within(MOST_WHOLE, next).await? else { return Ok(false) };
            let stored = block.into_bytes();
            left = left.saturating_sub(stored.len() as u64);
            if !accept(stored)? {
                return Ok(false);
            }
        }
        Ok(opened == reader.recheck().await?)
    }

    /// The digest of a long file in the spool.
    pub(super) async fn spool_digest(
        &self,
        file: &Pending,
        snapshot: &Snapshot,
    ) -> Result<blake3::Hash> {
        let mut hasher = blake3::Hasher::new();
        let mut left = Range::new(0, snapshot.size);
        while !left.is_empty() {
            let (next, rest) = left.split_at(HASHED);
            snapshot.check(file)?;
            hasher.update(&content(file, next)?);
            left = rest;
            // Lets other tasks run on this thread.
            yield_now().await;
        }
        Ok(hasher.finalize())
    }
}

/// Whether an error means that the file was changed, replaced or removed.
const fn is_other(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Changed | ErrorKind::NotFound)
}
