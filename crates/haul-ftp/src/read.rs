//! A file that is read: each range over a lane of its own, from where it begins.
//!
//! A server sends a file to its end, so a range that ends earlier is a download that is ended from
//! here, and the window is closed towards that end. Where there is one lane it is left standing for a
//! moment first: the next range often begins there, and goes on without a new data connection. What a
//! lane receives passes through a task beside it, which ends the download in good order when nobody
//! wants the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use haul_storage::{
    Block, BlockStream, Error, ErrorKind, Identity, Metadata, Range, ReadAt, RelPath, Result,
};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::data::{reason, receive};
use crate::inner::Inner;
use crate::lanes::Lane;
use crate::stream::Stream;

/// Pieces that wait for whoever reads.
const WAITING: usize = 4;

/// The server is told where to stop when no more than this is left: more is hardly ever under way.
const NEAR: u64 = 32 << 20;

/// Somebody who has not taken a piece for so long does not use the lane.
pub(crate) const STALLED: Duration = Duration::from_secs(2);

/// Openings are numbered, so that what was left standing of one is not taken for the same place in
/// another: there may be another file of that name by then.
static OPENINGS: AtomicU64 = AtomicU64::new(NO_OPENING + 1);

/// The number of none: nothing was left standing that goes on there.
pub(crate) const NO_OPENING: u64 = 0;

/// A file opened for reading.
#[derive(Debug)]
pub(crate) struct FtpFile {
    opening: u64,
    inner: Arc<Inner>,
    path: RelPath,
    identity: Identity,
    metadata: Metadata,
    /// It ends where it was said to end; a part file may be growing.
    complete: bool,
}

impl FtpFile {
    /// Opens `path`.
    pub(crate) async fn open(inner: &Arc<Inner>, path: &RelPath) -> Result<Self> {
        let entry = inner.look(path).await?.entry(path.clone()).into_file();
        let entry = entry.map_err(|error| inner.at(error, path))?;
        Ok(Self {
            opening: OPENINGS.fetch_add(1, Ordering::Relaxed),
            inner: Arc::clone(inner),
            path: path.clone(),
            identity: entry.identity(),
            metadata: entry.metadata(),
            complete: true,
        })
    }

    /// The same while the file may grow behind what is read.
    pub(crate) fn growing(self) -> Self {
        Self { complete: false, ..self }
    }
}

#[async_trait]
impl ReadAt for FtpFile {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn is_ranged(&self) -> bool {
        true
    }

    async fn metadata(&self) -> Result<Metadata> {
        Ok(self.metadata.clone())
    }

    async fn recheck(&self) -> Result<Identity> {
        Ok(self.inner.look(&self.path).await?.entry(self.path.clone()).identity())
    }

    fn read_at(&self, range: Range) -> BlockStream {
        self.read_until(range, &Arc::new(AtomicU64::new(range.end())))
    }

    fn read_until(&self, range: Range, end: &Arc<AtomicU64>) -> BlockStream {
        let size = self.identity.size;
        let range = range.intersection(Range::between(0, size));
        let reading = Reading {
            opening: self.opening,
            inner: Arc::clone(&self.inner),
            path: self.path.clone(),
            range,
            end: Arc::clone(end),
            size,
            complete: self.complete,
        };
        let begin = move || {
            let (sender, receiver) = mpsc::channel(WAITING);
            if !reading.range.is_empty() {
                let inner = Arc::clone(&reading.inner);
                inner.host.lanes.spawn(reading.run(sender));
            }
            receiver
        };
        // Nothing is asked for before somebody wants it.
        stream::once(async move { begin() })
            .flat_map(|receiver| {
                stream::unfold(receiver, |mut receiver| async move {
                    let block: Result<Block> = receiver.recv().await?;
                    Some((block, receiver))
                })
            })
            .boxed()
    }

    async fn next_data(&self, from: u64) -> Result<Option<Range>> {
        Ok((from < self.identity.size).then(|| Range::between(from, self.identity.size)))
    }
}

type Sender = mpsc::Sender<Result<Block>>;

/// One range on its way.
struct Reading {
    opening: u64,
    inner: Arc<Inner>,
    path: RelPath,
    range: Range,
    /// Where it ends now, unless that is farther away.
    end: Arc<AtomicU64>,
    size: u64,
    complete: bool,
}

impl Reading {
    async fn run(self, sender: Sender) {
        if let Err(error) = self.read(&sender).await {
            let error = self.inner.at(error, &self.path);
            // Nobody may be there any more to hear of it.
            drop(sender.send(Err(error)).await);
        }
    }

    async fn read(&self, sender: &Sender) -> Result<()> {
        let path = self.inner.on_server(&self.path);
        let mut lessons = self.inner.server.learnt.mark();
        let (mut lane, mut data, mut at) = loop {
            let at = if self.inner.server.rest() { self.range.start() } else { 0 };
            let mut lane = tokio::select! {
                lane = self.inner.host.lanes.reader(self.opening, at) => lane?,
                () = sender.closed() => return Ok(()),
            };
            match lane.retrieve(&path, self.opening, at).await {
                Ok(data) => break (lane, data, at),
                Err(_) if self.inner.server.learnt.since(&mut lessons) => {}
                Err(error) if error.kind() == ErrorKind::Other => {
                    // It was there when it was opened.
                    drop(lane);
                    let there = self.inner.find(&self.path).await?.is_some();
                    let kind =
                        if there { ErrorKind::PermissionDenied } else { ErrorKind::NotFound };
                    return Err(Error::new(kind, "read").because(error.cause()));
                }
                Err(error) => return Err(error),
            }
        };
        loop {
            let before = at < self.range.start();
            let end = self.range.end().min(self.end.load(Ordering::Relaxed)).max(at);
            let until = if before { self.range.start() } else { end };
            if at == until {
                return lane.stop(data).await;
            }
            let near = end < self.size && end - at <= NEAR;
            data.expect_at_most(if near { end - at } else { u64::MAX });
            let piece = tokio::select! {
                piece = receive(&mut data, until - at) => piece,
                () = sender.closed() => return lane.stop(data).await,
            };
            let piece = match piece {
                Ok(piece) => piece,
                Err(error) => return Err(reason(&mut lane, data, error).await),
            };
            if piece.is_empty() {
                return Err(self.ended_early(lane, data, at).await);
            }
            at += piece.len() as u64;
            if before {
                continue;
            }
            let last = at == end;
            if last && at == self.size && self.complete {
                // It counts when the server says that this was all, and well.
                self.end(lane, data).await?;
                drop(sender.send(Ok(Block::from(piece))).await);
                return Ok(());
            }
            if !hand_on(&mut lane, sender, piece).await {
                return lane.stop(data).await;
            }
            if last && (self.inner.server.in_turn || self.inner.host.lanes.leave_standing()) {
                lane.park(self.opening, at, data);
                return Ok(());
            }
            if last {
                return lane.stop(data).await;
            }
        }
    }

    /// The end of the file is where it was said to be.
    async fn end(&self, mut lane: Lane, mut data: Stream) -> Result<()> {
        match receive(&mut data, 1).await {
            Err(error) => return Err(reason(&mut lane, data, error).await),
            Ok(more) if !more.is_empty() => {
                drop(lane.stop(data).await);
                return Err(Error::new(ErrorKind::Changed, "read").because(format!(
                    "the server reported a size of {} bytes and sent more",
                    self.size
                )));
            }
            Ok(_) => {}
        }
        drop(data);
        lane.finish("read").await
    }

    async fn ended_early(&self, mut lane: Lane, data: Stream, at: u64) -> Error {
        drop(data);
        // If the server says that something went wrong, that is the reason.
        if let Err(error) = lane.finish("read").await {
            return error;
        }
        Error::new(ErrorKind::Changed, "read").because(format!(
            "the server reported a size of {} bytes and ended at byte {at}",
            self.size
        ))
    }
}

/// Hands a piece on; false if nobody wants it.
async fn hand_on(lane: &mut Lane, sender: &Sender, piece: Bytes) -> bool {
    let permit = match timeout(STALLED, sender.reserve()).await {
        Ok(permit) => permit,
        Err(_) => {
            lane.stall(true);
            let permit = sender.reserve().await;
            lane.stall(false);
            permit
        }
    };
    permit.map(|permit| permit.send(Ok(Block::from(piece)))).is_ok()
}
