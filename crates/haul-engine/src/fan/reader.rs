//! A file of the source as one host reads it.

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

/// What is about to be read, as far as that is known: blocks of a disk have this length.
const NEXT_BYTES: u64 = 256 << 10;

/// One host's reader of a file that is open for all.
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

    /// Asks the source each time: what was kept is right only as long as the file is what it was.
    async fn recheck(&self) -> Result<Identity> {
        let now = self.opened.file.reader.recheck().await;
        if !now.as_ref().is_ok_and(|now| *now == self.opened.file.identity) {
            self.opened.forget();
        }
        now
    }

    fn read_at(&self, range: Range) -> BlockStream {
        // Beyond the end of the version that was opened there is nothing to share.
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

/// One `read_at` under way.
struct Reading {
    opened: Arc<Opened>,
    rest: Range,
    /// What it reads along with; as long as somebody has it, it goes on.
    read: Option<Arc<Read>>,
}

/// What pulling a read brought.
enum Pulled {
    /// A block at this offset.
    Block(u64, Block),
    /// Look again: somebody else has pulled, or it has ended.
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
                        self.opened.store().gave(id, seat, range);
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

    /// Pulls the next block of a read, unless somebody else does so first.
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
                // The next who opens the file gets it anew, and maybe on a better connection.
                opened.forget();
                Err(error)
            }
            _ => Ok(Pulled::End),
        }
    }

    /// What of a block at `at` is next for this one; `None` if that lies further on.
    fn own_part(&self, at: u64, mut block: Block) -> Option<Block> {
        let skip = self.rest.start().checked_sub(at)?;
        let mut own = block.split_off(usize::try_from(skip).unwrap_or(usize::MAX));
        own.truncate(usize::try_from(self.rest.len()).unwrap_or(usize::MAX));
        (!own.is_empty()).then_some(own)
    }
}
