//! Reads parts as one file.
//!
//! Parts of a stored folder are opened for each range and compared with those found when the file
//! was opened: a replaced part is noticed, and descriptors suffice for any number of parts. Opening
//! a part on a server takes an RTT, so the last few readers of remote parts stay open (`far`). The
//! reader of a file that is being written holds all its parts open.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use haul_storage::{
    Block, BlockStream, Error, ErrorKind, Identity, Medium, Metadata, Range, ReadAt, RelPath,
    Result,
};

use super::Shared;
use super::far::RemoteParts;
use super::layout::{Layout, cut, part_path};

/// Holes of parts read as zeros; at most this many at a time.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

#[derive(Debug)]
pub(super) struct SplitReader {
    parts: Arc<Parts>,
    identity: Identity,
}

#[derive(Debug)]
pub(super) struct Parts {
    shared: Arc<Shared>,
    path: RelPath,
    size: u64,
    part: u64,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// A folder on a disk, and the version of each part.
    Stored(Vec<Identity>),
    /// A folder on a server.
    Remote(RemoteParts),
    /// Open parts of a file that is being written; any of them may be shorter than it will be.
    Growing(Vec<Arc<dyn ReadAt>>),
}

impl SplitReader {
    pub(super) fn stored(shared: Arc<Shared>, path: RelPath, layout: &Layout) -> Self {
        let identity = layout.identity(&path);
        let identities = layout.parts.iter().map(haul_storage::Entry::identity).collect();
        let source = match shared.capabilities.medium {
            Medium::Disk => Source::Stored(identities),
            Medium::Link => Source::Remote(RemoteParts::new(identities)),
        };
        let parts = Parts { shared, path, size: layout.size(), part: layout.part, source };
        Self { parts: Arc::new(parts), identity }
    }

    pub(super) fn growing(
        shared: Arc<Shared>,
        path: RelPath,
        part: u64,
        open: Vec<Arc<dyn ReadAt>>,
    ) -> Self {
        let before = part * (open.len() as u64).saturating_sub(1);
        let size = before + open.last().map_or(0, |last| last.identity().size);
        let first = open.first().map(|first| first.identity().clone()).unwrap_or_default();
        let identity = Identity { size, ..first };
        let parts = Parts { shared, path, size, part, source: Source::Growing(open) };
        Self { parts: Arc::new(parts), identity }
    }
}

impl Parts {
    async fn open(&self, number: u64) -> Result<Arc<dyn ReadAt>> {
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        match &self.source {
            Source::Growing(open) => open.get(index).cloned().ok_or_else(|| self.changed()),
            Source::Stored(identities) => {
                let reader = self.open_stored(number).await?;
                if identities.get(index) != Some(reader.identity()) {
                    return Err(self.changed());
                }
                Ok(reader)
            }
            Source::Remote(remote) => {
                if let Some(reader) = remote.reader(number) {
                    return Ok(reader);
                }
                let reader = self.open_stored(number).await?;
                if remote.insert(number, &reader) { Ok(reader) } else { Err(self.changed()) }
            }
        }
    }

    async fn open_stored(&self, number: u64) -> Result<Arc<dyn ReadAt>> {
        match self.shared.inner.open(&part_path(&self.path, number)).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(self.changed()),
            reader => reader,
        }
    }

    fn changed(&self) -> Error {
        Error::new(ErrorKind::Changed, "read")
            .at(self.shared.inner.location().display(&self.path))
            .because("a part of the split file changed")
    }

    /// Blocks of a range within one part.
    async fn read(&self, number: u64, range: Range) -> Result<BlockStream> {
        let reader = self.open(number).await?;
        let blocks = reader.read_at(range);
        if !matches!(self.source, Source::Growing(_)) {
            return Ok(blocks);
        }
        // `size` ends where the last part ends, so bytes missing before it are a hole.
        let state = (blocks, range.len());
        let filled = stream::try_unfold(state, |(mut blocks, left)| async move {
            if left == 0 {
                return Ok::<_, Error>(None);
            }
            let block = match blocks.next().await {
                Some(block) => block?,
                None => {
                    let length = usize::try_from(left).unwrap_or(usize::MAX).min(ZEROS.len());
                    Block::from(Bytes::from_static(&ZEROS[..length]))
                }
            };
            let left = left.saturating_sub(block.len() as u64);
            Ok(Some((block, (blocks, left))))
        });
        Ok(filled.boxed())
    }
}

/// A range being read: the block stream of the current part, and the parts after it.
struct Reading {
    parts: Arc<Parts>,
    current: Option<(BlockStream, u64)>,
    rest: VecDeque<(u64, Range)>,
}

impl Reading {
    async fn next(mut self) -> Result<Option<(Block, Self)>> {
        loop {
            if let Some((mut blocks, left)) = self.current.take() {
                match blocks.next().await {
                    Some(block) => {
                        let block = block?;
                        self.current = Some((blocks, left.saturating_sub(block.len() as u64)));
                        return Ok(Some((block, self)));
                    }
                    None if left > 0 => return Err(self.parts.changed()),
                    None => {}
                }
            }
            let Some((number, range)) = self.rest.pop_front() else { return Ok(None) };
            let blocks = self.parts.read(number, range).await?;
            self.current = Some((blocks, range.len()));
        }
    }
}

#[async_trait]
impl ReadAt for SplitReader {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn is_ranged(&self) -> bool {
        self.parts.shared.capabilities.ranged_reads
    }

    async fn metadata(&self) -> Result<Metadata> {
        self.parts.open(0).await?.metadata().await
    }

    async fn recheck(&self) -> Result<Identity> {
        let parts = &self.parts;
        match &parts.source {
            Source::Growing(_) => Ok(self.identity.clone()),
            Source::Stored(_) | Source::Remote(_) => {
                match parts.shared.layout(&parts.path).await? {
                    Some(layout) => Ok(layout.identity(&parts.path)),
                    None => Err(parts.changed()),
                }
            }
        }
    }

    async fn grown(&self) -> Result<Option<Arc<dyn ReadAt>>> {
        // Its last part may have become another file.
        Ok(None)
    }

    fn read_at(&self, range: Range) -> BlockStream {
        let range = range.intersection(Range::between(0, self.parts.size));
        let rest = cut(range, self.parts.part).collect();
        let reading = Reading { parts: Arc::clone(&self.parts), current: None, rest };
        stream::try_unfold(reading, Reading::next).boxed()
    }

    fn read_until(&self, range: Range, _end: &Arc<AtomicU64>) -> BlockStream {
        self.read_at(range)
    }

    async fn next_data(&self, from: u64) -> Result<Option<Range>> {
        // Servers do not report holes, and opening a part costs an RTT.
        if matches!(self.parts.source, Source::Remote(_)) {
            return Ok((from < self.parts.size).then(|| Range::between(from, self.parts.size)));
        }
        for (number, range) in cut(Range::between(from, self.parts.size), self.parts.part) {
            let reader = self.parts.open(number).await?;
            if let Some(data) = reader.next_data(range.start()).await? {
                let start = number * self.parts.part;
                return Ok(Some(Range::between(start + data.start(), start + data.end())));
            }
        }
        Ok(None)
    }
}
