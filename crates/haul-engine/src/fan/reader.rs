//! A reader of a source file for one host, which shares reads with the other hosts.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use haul_storage::{
    Block, BlockStream, Error, ErrorKind, Identity, Metadata, Range, ReadAt, Result,
};

use super::memo::Key;
use super::seat::Seat;
use super::shelf::{Blocks, Found, Read};
use super::store::{OpenFile, Store};

/// The expected length of the next block: that of blocks from a disk.
const NEXT_BYTES: u64 = 256 << 10;

/// The reader of one host for a file that is open for all hosts.
#[derive(Debug)]
pub struct SharedReader {
    opened: Arc<Opened>,
}

/// Keeps the file open for its host.
struct Opened {
    file: Arc<OpenFile>,
    key: Key,
    seat: Arc<Seat>,
}

impl SharedReader {
    /// A reader of a file that the store counts as opened by this host.
    pub fn new(file: Arc<OpenFile>, key: Key, seat: Arc<Seat>) -> Self {
        Self { opened: Arc::new(Opened { file, key, seat }) }
    }
}

#[async_trait]
impl ReadAt for SharedReader {
    fn identity(&self) -> &Identity {
        &self.opened.file.identity
    }

    fn is_ranged(&self) -> bool {
        self.opened.file.reader.is_ranged()
    }

    async fn metadata(&self) -> Result<Metadata> {
        self.opened.file.reader.metadata().await
    }

    /// Queries the source each time: cached pieces are valid only as long as the file does not change.
    async fn recheck(&self) -> Result<Identity> {
        let now = self.opened.file.reader.recheck().await;
        if !now.as_ref().is_ok_and(|now| *now == self.opened.file.identity) {
            self.opened.forget();
        }
        now
    }

    async fn grown(&self) -> Result<Option<Arc<dyn ReadAt>>> {
        // Only bytes of the version that was opened are shared.
        Ok(None)
    }

    fn read_at(&self, range: Range) -> BlockStream {
        // Only bytes of the version that was opened are shared.
        let range = Range::between(range.start(), range.end().min(self.identity().size));
        let reading = Reading { opened: Arc::clone(&self.opened), rest: range, read: None };
        stream::try_unfold(reading, Reading::next).boxed()
    }

    fn read_until(&self, range: Range, _end: &Arc<AtomicU64>) -> BlockStream {
        self.read_at(range)
    }

    async fn next_data(&self, from: u64) -> Result<Option<Range>> {
        self.opened.file.reader.next_data(from).await
    }
}

impl Opened {
    fn store(&self) -> &Store {
        self.seat.store()
    }

    fn forget(&self) {
        self.store().forget(&self.key, self.file.id);
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.store().close(&self.key, self.file.id, self.seat.number());
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opened({}, for seat {})", self.key.1, self.seat.number())
    }
}

/// The stream of one `read_at`.
struct Reading {
    opened: Arc<Opened>,
    rest: Range,
    /// The shared read that it follows. The read continues as long as any stream holds it.
    read: Option<Arc<Read>>,
}

/// The result of polling a shared read.
enum Pulled {
    /// A block at this offset.
    Block(u64, Block),
    /// Look again: another host has polled the read, or it has ended.
    Again,
    /// The file ends here.
    End,
}

impl Reading {
    async fn next(mut self) -> Result<Option<(Block, Self)>> {
        while !self.rest.is_empty() {
            let (id, seat) = (self.opened.file.id, self.opened.seat.number());
            let block = match self.opened.store().find(id, seat, self.rest) {
                Some(Found::Here(block)) => block,
                Some(Found::Coming(read)) => match self.pull(read).await? {
                    Pulled::End => return Ok(None),
                    Pulled::Again => continue,
                    Pulled::Block(at, block) => {
                        let Some(block) = self.own_part(at, block) else { continue };
                        let range = Range::new(self.rest.start(), block.len() as u64);
                        self.opened.store().received(id, seat, range);
                        block
                    }
                },
                None => {
                    return Err(Error::new(ErrorKind::Other, "read").because("the file is closed"));
                }
            };
            self.rest = self.rest.split_at(block.len() as u64).1;
            return Ok(Some((block, self)));
        }
        Ok(None)
    }

    /// Polls the next block of a shared read, unless another host does so first.
    async fn pull(&mut self, read: Arc<Read>) -> Result<Pulled> {
        let opened = Arc::clone(&self.opened);
        let (store, id) = (opened.store(), opened.file.id);
        let read = &*self.read.insert(read);
        store.keep_together(opened.seat.number(), NEXT_BYTES).await;
        let before = store.left_of(id, read);
        let mut blocks = read.blocks.lock().await;
        let left = store.left_of(id, read);
        if left.is_empty() || (left != before && left.start() > self.rest.start()) {
            return Ok(Pulled::Again);
        }
        if let Blocks::Wanted(range) = *blocks {
            *blocks = Blocks::Coming(opened.file.reader.read_at(range));
        }
        let Blocks::Coming(coming) = &mut *blocks else { return Ok(Pulled::Again) };
        let pulled = coming.next().await;
        if let Some(Ok(block)) = pulled {
            let seat = opened.seat.number();
            let (at, block) = store.arrived(id, read, block, seat, self.rest);
            if store.left_of(id, read).is_empty() {
                *blocks = Blocks::Ended;
                store.ended(id, read);
            }
            return Ok(Pulled::Block(at, block));
        }
        *blocks = Blocks::Ended;
        store.ended(id, read);
        match pulled {
            Some(Err(error)) => {
                // The next host opens the file again, perhaps over a better connection.
                opened.forget();
                Err(error)
            }
            _ => Ok(Pulled::End),
        }
    }

    /// The part of a block at `at` that this stream needs next; `None` if the block does not contain it.
    fn own_part(&self, at: u64, mut block: Block) -> Option<Block> {
        let skip = self.rest.start().checked_sub(at)?;
        let mut own = block.split_off(usize::try_from(skip).unwrap_or(usize::MAX));
        own.truncate(usize::try_from(self.rest.len()).unwrap_or(usize::MAX));
        (!own.is_empty()).then_some(own)
    }
}
