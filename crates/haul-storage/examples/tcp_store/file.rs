//! Reading and writing files: on the server each content has an id, whether it has a name or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use haul_storage::{
    Block, BlockStream, CommitOptions, Entry, EntryKind, Held, Identity, Metadata, Range, RangeSet,
    ReadAt, RelPath, Result, WriteAt,
};

use crate::client::Client;
use crate::wire::{self, Op, Request};

/// Maximum bytes per request to read or write.
const STEP: u64 = 1 << 20;

/// A file being read, with the content that it had when it was opened.
#[derive(Debug, Clone)]
pub struct Download {
    client: Arc<Client>,
    entry: Entry,
    identity: Identity,
    content: u64,
}

impl Download {
    pub fn new(client: &Arc<Client>, entry: Entry, content: u64) -> Self {
        Self { client: Arc::clone(client), identity: entry.identity(), entry, content }
    }
}

#[async_trait]
impl ReadAt for Download {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn is_ranged(&self) -> bool {
        true
    }

    async fn metadata(&self) -> Result<Metadata> {
        Ok(self.entry.metadata())
    }

    async fn recheck(&self) -> Result<Identity> {
        Ok(self.client.look(Op::Stat, &self.entry.path).await?.0.identity())
    }

    async fn grown(&self) -> Result<Option<Arc<dyn ReadAt>>> {
        // The file is read by its name.
        Ok(None)
    }

    fn read_at(&self, range: Range) -> BlockStream {
        let range = range.intersection(Range::new(0, self.entry.size));
        let steps = stream::try_unfold((self.clone(), range), |(file, left)| async move {
            let (now, later) = left.split_at(STEP);
            if now.is_empty() {
                return Ok(None);
            }
            let request = Request::new(Op::Read, &file.entry.path).number(file.content);
            let request = request.number(now.start()).number(now.len());
            let bytes = file.client.ask(request, |fields| wire::get_exactly(fields, now.len()));
            Ok(Some((Block::from(bytes.await?), (file, later))))
        });
        steps.boxed()
    }

    fn read_until(&self, range: Range, _end: &Arc<AtomicU64>) -> BlockStream {
        self.read_at(range)
    }

    async fn next_data(&self, from: u64) -> Result<Option<Range>> {
        Ok((from < self.entry.size).then(|| Range::between(from, self.entry.size)))
    }
}

/// A file being written. The server discards it when the connection ends, unless it is committed.
#[derive(Debug)]
pub struct Upload {
    client: Arc<Client>,
    path: RelPath,
    content: u64,
    /// End of the furthest byte written.
    end: AtomicU64,
}

impl Upload {
    pub fn new(client: &Arc<Client>, path: &RelPath, content: u64) -> Self {
        Self { client: Arc::clone(client), path: path.clone(), content, end: AtomicU64::new(0) }
    }

    fn request(&self, op: Op) -> Request {
        Request::new(op, &self.path).number(self.content)
    }
}

#[async_trait]
impl WriteAt for Upload {
    fn held(&self) -> &Held {
        &Held::Unrecorded
    }

    async fn record(&self, _: RangeSet) -> Result<()> {
        Ok(())
    }

    async fn write_at(&self, mut offset: u64, mut block: Block) -> Result<()> {
        while !block.is_empty() {
            let later = block.split_off(STEP as usize);
            let bytes = block.into_bytes();
            let end = offset + bytes.len() as u64;
            self.client.tell(self.request(Op::Write).number(offset).payload(bytes)).await?;
            self.end.fetch_max(end, Ordering::Relaxed);
            (offset, block) = (end, later);
        }
        Ok(())
    }

    async fn copy_from(&self, _source: &dyn ReadAt, _range: Range) -> Result<bool> {
        Ok(false)
    }

    async fn sync(&self) -> Result<()> {
        Ok(())
    }

    async fn reopen(&self, _uncached: bool) -> Result<Arc<dyn ReadAt>> {
        let end = self.end.load(Ordering::Relaxed);
        let entry = Entry::new(self.path.clone(), EntryKind::File, end);
        Ok(Arc::new(Download::new(&self.client, entry, self.content)))
    }

    async fn commit(&self, size: u64, options: &CommitOptions) -> Result<()> {
        self.client.tell(self.request(Op::Commit).number(size).commit(options)).await
    }

    async fn abort(&self, _keep: bool) -> Result<()> {
        self.client.tell(self.request(Op::Discard)).await
    }
}
