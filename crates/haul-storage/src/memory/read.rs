//! [`ReadAt`] for memory.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::sync::mpsc;

use super::Operation;
use super::faults::{Failure, Verdict};
use super::link::Transfer;
use super::lock::lock;
use super::shared::Shared;
use super::tree::{Node, Refusal};
use crate::{Block, BlockStream, ErrorKind, Identity, Metadata, Range, ReadAt, RelPath, Result};

#[derive(Debug)]
pub(super) struct MemoryReader {
    shared: Arc<Shared>,
    path: RelPath,
    node: Arc<Node>,
    identity: Identity,
    /// As of the open.
    metadata: Metadata,
    /// The range that was requested along with the open, until it is read.
    first: Mutex<Range>,
}

impl MemoryReader {
    pub(super) fn new(shared: &Arc<Shared>, path: RelPath, node: Arc<Node>) -> Self {
        let (identity, metadata) = (shared.identity(&node), shared.metadata(&node));
        let first = Mutex::new(Range::new(0, 0));
        Self { shared: Arc::clone(shared), path, node, identity, metadata, first }
    }

    /// This range was requested along with the open: over a link, its bytes follow the response.
    pub(super) fn with_first(self, first: Range) -> Self {
        Self { first: Mutex::new(first), ..self }
    }

    pub(super) fn node(&self) -> &Arc<Node> {
        &self.node
    }
}

#[async_trait]
impl ReadAt for MemoryReader {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn is_ranged(&self) -> bool {
        true
    }

    async fn metadata(&self) -> Result<Metadata> {
        let work = |_: &mut _| Ok(self.metadata.clone());
        self.shared.perform(Operation::ReadMetadata, &self.path, work).await
    }

    async fn recheck(&self) -> Result<Identity> {
        let work = |_: &mut _| {
            self.node.lock().data()?;
            Ok(self.shared.identity(&self.node))
        };
        self.shared.perform(Operation::Recheck, &self.path, work).await
    }

    async fn grown(&self) -> Result<Option<Arc<dyn ReadAt>>> {
        let now = self.recheck().await?;
        if now.size <= self.identity.size {
            return Ok(None);
        }
        let (path, node) = (self.path.clone(), Arc::clone(&self.node));
        Ok(Some(Arc::new(Self::new(&self.shared, path, node))))
    }

    fn read_at(&self, range: Range) -> BlockStream {
        let is_first = {
            let mut first = lock(&self.first);
            let is_first = !range.is_empty() && first.intersection(range) == range;
            if is_first {
                *first = Range::new(0, 0);
            }
            is_first
        };
        let reading = Reading {
            shared: Arc::clone(&self.shared),
            path: self.path.clone(),
            node: Arc::clone(&self.node),
            rest: range,
            is_first,
            begun: None,
        };
        let blocks = stream::try_unfold(reading, Reading::next);
        if self.shared.link.is_some() { arriving(blocks.boxed()) } else { blocks.boxed() }
    }

    fn read_until(&self, range: Range, _end: &Arc<AtomicU64>) -> BlockStream {
        self.read_at(range)
    }

    async fn next_data(&self, from: u64) -> Result<Option<Range>> {
        let work = |_: &mut _| Ok(self.node.lock().data()?.next_data(from));
        self.shared.perform(Operation::NextData, &self.path, work).await
    }
}

/// A `read_at` in progress.
struct Reading {
    shared: Arc<Shared>,
    path: RelPath,
    node: Arc<Node>,
    rest: Range,
    /// Whether the range was requested along with the open.
    is_first: bool,
    begun: Option<Begun>,
}

struct Begun {
    verdict: Verdict,
    /// Bytes returned so far.
    returned: u64,
    transfer: Option<Transfer>,
}

impl Reading {
    async fn next(mut self) -> Result<Option<(Block, Self)>> {
        let mut begun = match self.begun.take() {
            Some(begun) => begun,
            None => self.begin().await?,
        };
        let drip = begun.verdict.drip;
        if let Some(pause) = drip {
            tokio::time::sleep(pause).await;
        }
        let most = drip.map_or(self.shared.options.read_block, |_| 1);
        let (head, rest) = self.rest.split_at(most);
        let fold = |refusal| self.shared.error(Operation::Read, &self.path, refusal);
        let mut block = self.node.lock().data().map_err(fold)?.read(head);
        if let Some(transfer) = &mut begun.transfer {
            transfer.carry(block.len() as u64).await;
        }
        let failure = begun.verdict.distort_next(&mut begun.returned, &mut block);
        if block.is_empty() {
            return match failure {
                Some(Some(failure)) => {
                    Err(self.shared.ordered(Operation::Read, &self.path, failure))
                }
                _ => Ok(None),
            };
        }
        self.rest =
            if (block.len() as u64) < head.len() { Range::new(rest.end(), 0) } else { rest };
        if failure.is_some() {
            // The next call has no bytes left, and ends or fails as injected.
            self.rest = head;
        }
        self.begun = Some(begun);
        Ok(Some((block, self)))
    }

    async fn begin(&self) -> Result<Begun> {
        let (shared, path) = (&self.shared, &self.path);
        let call = shared.begin(Operation::Read, path).await?;
        if self.rest.start() > 0 && !shared.capabilities.ranged_reads {
            let refusal = Refusal::new(ErrorKind::Unsupported, "a read has to start at 0");
            return Err(shared.error(Operation::Read, path, refusal));
        }
        let transfer = match &shared.link {
            None => None,
            Some(link) => {
                let transfer = match self.is_first {
                    true => link.follow(self.rest.len()).await,
                    false => link.request(self.rest.len()).await,
                };
                Some(
                    transfer
                        .map_err(|refused| shared.unreachable(Operation::Read, path, &refused))?,
                )
            }
        };
        Ok(Begun { verdict: call.verdict, returned: 0, transfer })
    }
}

impl Verdict {
    /// Distorts content that moves in one call; returns what is left of it, and the failure of the call.
    pub(super) fn distort(&self, mut block: Block) -> (Block, Option<Failure>) {
        let failure = self.distort_next(&mut 0, &mut block);
        (block, failure.flatten())
    }

    /// Applies cuts, tears and corruption to a block that follows `returned` bytes. `Some` if it is the
    /// last one, with the failure that follows it, if any.
    fn distort_next(&self, returned: &mut u64, block: &mut Block) -> Option<Option<Failure>> {
        if let Some(at) = self.corrupt
            && (*returned..*returned + block.len() as u64).contains(&at)
        {
            let mut bytes = std::mem::take(block).into_bytes().to_vec();
            bytes[(at - *returned) as usize] ^= 0x20;
            *block = Block::from(bytes::Bytes::from(bytes));
        }
        let (end, failure) = match (self.cut, self.tear) {
            (_, Some((bytes, failure))) => (bytes, Some(failure)),
            (Some(bytes), None) => (bytes, None),
            (None, None) => (u64::MAX, None),
        };
        let left = end.saturating_sub(*returned);
        let last = (block.len() as u64) > left || (failure.is_some() && block.is_empty());
        block.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        *returned += block.len() as u64;
        last.then_some(failure)
    }
}

/// The blocks as they arrive: after the first poll, requested bytes flow even if the stream is not polled, until
/// it is dropped.
fn arriving(mut blocks: BlockStream) -> BlockStream {
    let start = async move {
        let (sender, receiver) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            while let Some(block) = blocks.next().await {
                if sender.send(block).is_err() {
                    break;
                }
            }
        });
        let state = (receiver, AbortOnDrop(task));
        Ok(stream::unfold(state, |(mut receiver, task)| async move {
            let block = receiver.recv().await?;
            Some((block, (receiver, task)))
        }))
    };
    stream::once(start).try_flatten().boxed()
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
