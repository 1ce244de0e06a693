//! A file opened for reading.
//!
//! A range is a stream of consecutive blocks. A disk thread fills each into one pooled buffer, with
//! one or more system calls, and starts the next when it is polled for. So the number of ranges
//! that the engine has open bounds the bytes in flight.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use haul_storage::{
    Block, BlockStream, ErrorKind, Identity, Metadata, Range, ReadAt, RelPath, Result, WorkPool,
};
use rustix::fs::Stat;
use rustix::io::Errno;

use crate::stat::{identity_of, metadata_of, mode_of, size_of};
use crate::volume::Volume;

/// The kernel's default read-ahead is enough for shorter files, and advice is an additional call.
const ADVISE_FROM: u64 = 1024 * 1024;

#[derive(Debug)]
pub(crate) struct LocalReader {
    opened: Arc<Opened>,
    pool: WorkPool,
    identity: Identity,
}

/// The part of a reader that disk threads use.
#[derive(Debug)]
pub(crate) struct Opened {
    volume: Arc<Volume>,
    path: RelPath,
    pub(crate) file: Arc<OwnedFd>,
    stat: Stat,
}

impl LocalReader {
    pub(crate) fn new(
        volume: Arc<Volume>,
        pool: WorkPool,
        path: RelPath,
        file: Arc<OwnedFd>,
        stat: Stat,
    ) -> Self {
        let identity = identity_of(&stat);
        Self { opened: Arc::new(Opened::new(volume, path, file, stat)), pool, identity }
    }

    /// For copying inside the kernel.
    pub(crate) fn opened(&self) -> &Arc<Opened> {
        &self.opened
    }
}

#[async_trait]
impl ReadAt for LocalReader {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn is_ranged(&self) -> bool {
        true
    }

    async fn metadata(&self) -> Result<Metadata> {
        let opened = Arc::clone(&self.opened);
        let work = move || {
            let mut metadata = metadata_of(&opened.stat);
            metadata.xattrs = opened.volume.xattrs_of(&opened.file, &opened.path)?;
            Ok(metadata)
        };
        self.pool.run(work).await
    }

    async fn recheck(&self) -> Result<Identity> {
        let opened = Arc::clone(&self.opened);
        let work = move || match rustix::fs::fstat(&opened.file) {
            Ok(stat) => Ok(identity_of(&stat)),
            Err(errno) => Err(opened.volume.error("stat", &opened.path, errno)),
        };
        self.pool.run(work).await
    }

    async fn grown(&self) -> Result<Option<Arc<dyn ReadAt>>> {
        let opened = Arc::clone(&self.opened);
        let work = move || {
            let stat = rustix::fs::fstat(&opened.file);
            stat.map_err(|errno| opened.volume.error("stat", &opened.path, errno))
        };
        let stat = self.pool.run(work).await?;
        let Opened { volume, path, file, .. } = &*self.opened;
        if size_of(&stat) <= self.identity.size {
            return Ok(None);
        }
        let (volume, pool, file) = (Arc::clone(volume), self.pool.clone(), Arc::clone(file));
        Ok(Some(Arc::new(Self::new(volume, pool, path.clone(), file, stat))))
    }

    fn read_at(&self, range: Range) -> BlockStream {
        let (opened, pool) = (Arc::clone(&self.opened), self.pool.clone());
        let blocks = stream::try_unfold(range, move |rest| {
            let (opened, pool) = (Arc::clone(&opened), pool.clone());
            async move {
                if rest.is_empty() {
                    return Ok(None);
                }
                let block = pool.run(move || opened.read(rest)).await?;
                if block.is_empty() {
                    return Ok(None);
                }
                let (_, rest) = rest.split_at(block.len() as u64);
                Ok(Some((block, rest)))
            }
        });
        blocks.boxed()
    }

    fn read_until(&self, range: Range, _end: &Arc<AtomicU64>) -> BlockStream {
        self.read_at(range)
    }

    async fn next_data(&self, from: u64) -> Result<Option<Range>> {
        let opened = Arc::clone(&self.opened);
        self.pool.run(move || opened.next_data(from)).await
    }
}

impl Opened {
    pub(crate) fn new(volume: Arc<Volume>, path: RelPath, file: Arc<OwnedFd>, stat: Stat) -> Self {
        if size_of(&stat) >= ADVISE_FROM {
            volume.platform.advise_sequential(file.as_fd());
        }
        Self { volume, path, file, stat }
    }

    /// The permissions, as in `chmod`.
    pub(crate) fn mode(&self) -> u32 {
        mode_of(&self.stat)
    }

    /// Reads the first bytes of `range`, as many as one job should move; an empty block at the end.
    pub(crate) fn read(&self, range: Range) -> Result<Block> {
        let hop = self.volume.buffers.size();
        let length = usize::try_from(range.len()).unwrap_or(usize::MAX).min(hop);
        let step = self.volume.options.step_bytes();
        let mut buffer = self.volume.buffers.take(length);
        let bytes = buffer.as_mut_slice();
        let mut filled = 0;
        while filled < length {
            let end = length.min(filled + step);
            let offset = range.start() + filled as u64;
            match rustix::io::pread(&self.file, &mut bytes[filled..end], offset) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(Errno::INTR) => {}
                // Return what was read; the error occurs again with the next block.
                Err(_) if filled > 0 => break,
                Err(errno) => return Err(self.volume.error("read", &self.path, errno)),
            }
        }
        Ok(buffer.freeze(filled).into())
    }

    pub(crate) fn next_data(&self, from: u64) -> Result<Option<Range>> {
        let size = size_of(&self.stat);
        let found = self.volume.platform.next_data(self.file.as_fd(), from, size);
        found.map_err(|errno| self.volume.error("find data", &self.path, errno))
    }

    pub(crate) fn size(&self) -> u64 {
        size_of(&self.stat)
    }

    pub(crate) fn shrank(&self) -> haul_storage::Error {
        let cause = "it became shorter";
        self.volume.refuse(ErrorKind::Changed, "copy", &self.path, cause)
    }
}
