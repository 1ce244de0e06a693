//! Files whose length nobody knows before their end: read from the first byte to the last in one
//! stream, in order, with no more than two blocks in memory. Such a file has no ranges, no journal, and
//! begins anew when it breaks.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::ready;
use haul_storage::{
    Block, CreateOptions, Error, ErrorKind, Medium, Range, ReadAt, Result, Retry, UNKNOWN_SIZE,
    WriteAt,
};

use super::expected;
use super::finish::{Whole, finish};
use super::listed;
use super::open::create;
use super::outcome::Moved;
use crate::context::Context;
use crate::current::Shown;
use crate::digest::FileHasher;
use crate::flow::Permit;
use crate::plan::Item;
use crate::retry::Retries;

/// What a block needs room for before it comes.
const BLOCK: u64 = 512 << 10;

/// Moves a file whose end is where its stream ends.
pub async fn move_to_the_end(
    context: &Context,
    item: &Item,
    reader: &dyn ReadAt,
    shown: &Shown<'_>,
) -> Result<Moved> {
    let options = CreateOptions { resume: false, size: None, sparse: false };
    let writer = create(item, &options).await?;
    let counted = Arc::new(AtomicU64::new(0));
    shown.counts(&counted);
    let kind = expected::digest_kind(context, item);
    let hasher = kind.map(|kind| FileHasher::new(kind, context.pool.clone()));
    let streaming = Streaming { context, item, writer: &*writer, hasher, counted: &counted };
    match streaming.run(reader).await {
        Ok(moved) => Ok(moved),
        Err(error) => {
            context.tally.forget(counted.load(Ordering::Relaxed));
            // The first error is the one to report; what cannot be removed the next run finds.
            drop(writer.abort(false).await);
            Err(error)
        }
    }
}

struct Streaming<'a> {
    context: &'a Context,
    item: &'a Item,
    writer: &'a dyn WriteAt,
    hasher: Option<FileHasher>,
    counted: &'a AtomicU64,
}

impl Streaming<'_> {
    async fn run(&self, reader: &dyn ReadAt) -> Result<Moved> {
        let mut blocks = reader.read_at(Range::new(0, UNKNOWN_SIZE));
        let issued = self.context.flow.now();
        let mut permit = self.room().await;
        let mut next = blocks.next().await;
        let mut bytes = 0;
        while let Some(block) = next.take().transpose()? {
            if self.context.cancel.is_cancelled() {
                return Err(Error::new(ErrorKind::Interrupted, "copy"));
            }
            self.context.room.more(block.len() as u64).await?;
            let offset = bytes;
            bytes += block.len() as u64;
            self.context.flow.keep_limit(block.len() as u64).await;
            let is_link = self.item.job.job.destination.capabilities().medium == Medium::Link;
            if !is_link {
                permit.arrived(block.len() as u64);
            }
            let following = async {
                let permit = self.room().await;
                (permit, blocks.next().await)
            };
            let (put, (room, following)) = tokio::join!(self.put(offset, block), following);
            put?;
            permit.consumed();
            permit = room;
            next = following;
        }
        drop(permit);
        self.context.flow.completed(issued, None, bytes);
        listed::check(self.item, bytes)?;
        let whole = Whole { reader, writer: self.writer, bytes, resumed_bytes: 0 };
        let digest = finish(self.context, self.item, &whole, self.hasher.as_ref()).await?;
        let identity = Some(reader.identity().clone());
        Ok(Moved { bytes, digest, counted_bytes: bytes, identity, ..Moved::default() })
    }

    /// Room for the next block. The file has a lane, and those who have the room may be waiting for
    /// one: it goes on with or without.
    async fn room(&self) -> Permit {
        let flow = &self.context.flow;
        let mut room = pin!(flow.room(BLOCK));
        tokio::select! {
            biased;
            permit = &mut room => permit,
            () = ready(()) => flow.overdraw(BLOCK),
        }
    }

    /// Hashes and writes a block.
    async fn put(&self, offset: u64, block: Block) -> Result<()> {
        let bytes = block.len() as u64;
        let hash = async {
            match &self.hasher {
                Some(hasher) => hasher.update(offset, block.clone()).await,
                None => Ok(()),
            }
        };
        let (written, hashed) = tokio::join!(self.write(offset, block.clone()), hash);
        written?;
        hashed?;
        self.counted.fetch_add(bytes, Ordering::Relaxed);
        self.context.tally.moved(bytes);
        Ok(())
    }

    /// Writes a block, again while that may help: it is in hand and need not be read again.
    async fn write(&self, offset: u64, block: Block) -> Result<()> {
        let settings = &self.context.settings;
        let pause = settings.retry_pause.max(Duration::from_millis(1));
        let mut retries = Retries::new(settings.retries, pause, offset);
        loop {
            let error = match self.writer.write_at(offset, block.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) => error.at(self.item.job.destination_name(&self.item.destination)),
            };
            let (error, pause) = match retries.next(error, offset) {
                Ok(again) if !self.context.cancel.is_cancelled() => again,
                Ok((error, _)) => return Err(error.with_retry(Retry::Never)),
                Err(error) => return Err(error),
            };
            self.context.flow.failed(error.kind());
            self.context.tally.retry(error, retries.attempt(), pause);
            self.context.pause(pause).await;
        }
    }
}
