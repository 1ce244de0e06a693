//! Download of ranges of a file, each over a lane of its own (`REST`, `RETR`).
//!
//! A server sends a file to its end. For a range that ends earlier, the client has to abort the download, and it closes
//! the TCP window as that end comes near. The download is parked for a moment instead if there is one lane only, if the
//! last parked one was continued, or if the server processes commands in order (ending it later then costs no RTT): the
//! next range often begins where this one ends, and continues without a new data connection.
//!
//! A task per range receives the data and passes it on, so that the download is ended cleanly even if the reader is
//! dropped. The task also ends the download if the reader takes nothing and another task needs the lane, and continues
//! over another lane once the reader goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use haul_storage::{
    Block, BlockStream, Error, ErrorKind, Identity, Metadata, Range, ReadAt, RelPath, Result,
};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::SendError;
use tokio::time::timeout;

use crate::data::{reason, receive};
use crate::inner::Inner;
use crate::lanes::Lane;
use crate::stream::Stream;

/// Pieces queued for the reader.
const QUEUED_PIECES: usize = 4;

/// The TCP window is limited to the rest of a range once this many bytes or fewer are left; more is hardly ever in
/// flight.
const NEAR_END: u64 = 32 << 20;

/// If the reader takes no piece for this long, or an upload gets no block, its lane counts as stalled.
pub(crate) const STALLED: Duration = Duration::from_secs(2);

/// Each opened file has a number, so that a parked download is continued only for the same opened file: later, another
/// file may have that name.
static OPENINGS: AtomicU64 = AtomicU64::new(NO_OPENING + 1);

/// A number that no opened file has: no parked download belongs to it.
pub(crate) const NO_OPENING: u64 = 0;

/// A file opened for reading.
#[derive(Debug)]
pub(crate) struct FtpFile {
    opening: u64,
    inner: Arc<Inner>,
    path: RelPath,
    identity: Identity,
    metadata: Metadata,
    /// The file must end at the size that was reported. False for a part file, which may be growing.
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

    /// The same for a file that may grow while it is read.
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
        // Without `REST`, each read receives everything before its range.
        self.inner.server.rest()
    }

    async fn metadata(&self) -> Result<Metadata> {
        Ok(self.metadata.clone())
    }

    async fn recheck(&self) -> Result<Identity> {
        Ok(self.inner.look(&self.path).await?.entry(self.path.clone()).identity())
    }

    async fn grown(&self) -> Result<Option<Arc<dyn ReadAt>>> {
        // The file is read by its name.
        Ok(None)
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
            let (sender, receiver) = mpsc::channel(QUEUED_PIECES);
            if !reading.range.is_empty() {
                let inner = Arc::clone(&reading.inner);
                inner.host.lanes.spawn(reading.run(sender));
            }
            receiver
        };
        // The request is sent when the stream is first polled.
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
type Permit<'a> = mpsc::Permit<'a, Result<Block>>;

/// The task that downloads one range.
struct Reading {
    opening: u64,
    inner: Arc<Inner>,
    path: RelPath,
    range: Range,
    /// The engine may lower this while the range is read; the range then ends here.
    end: Arc<AtomicU64>,
    size: u64,
    complete: bool,
}

impl Reading {
    async fn run(self, sender: Sender) {
        if let Err(error) = self.read(&sender).await {
            let error = self.inner.at(error, &self.path);
            // The reader may have been dropped.
            drop(sender.send(Err(error)).await);
        }
    }

    async fn read(&self, sender: &Sender) -> Result<()> {
        let _counted = self.inner.host.lanes.begin_read();
        let mut from = Some(self.range.start());
        while let Some(start) = from.filter(|from| *from < self.ends_at()) {
            from = self.read_from(start, sender).await?;
        }
        Ok(())
    }

    /// The offset at which the range ends now.
    fn ends_at(&self) -> u64 {
        self.range.end().min(self.end.load(Ordering::Relaxed))
    }

    /// Reads from `start` on over one lane. Returns where to continue if another task needed the lane.
    async fn read_from(&self, start: u64, sender: &Sender) -> Result<Option<u64>> {
        let path = self.inner.on_server(&self.path);
        let mut lessons = self.inner.server.learnt.mark();
        let (mut lane, mut data, mut at) = loop {
            let at = if self.inner.server.rest() { start } else { 0 };
            let mut lane = tokio::select! {
                lane = self.inner.host.lanes.reader(self.opening, at) => lane?,
                () = sender.closed() => return Ok(None),
            };
            match lane.retrieve(&path, self.opening, at).await {
                Ok(data) => break (lane, data, at),
                Err(_) if self.inner.server.learnt.since(&mut lessons) => {}
                Err(error) if error.kind() == ErrorKind::Other => {
                    // The reply does not show whether the file was removed since it was opened, or may not be read.
                    drop(lane);
                    let exists = self.inner.find(&self.path).await?.is_some();
                    let kind =
                        if exists { ErrorKind::PermissionDenied } else { ErrorKind::NotFound };
                    return Err(Error::new(kind, "read").because(error.cause()));
                }
                Err(error) => return Err(error),
            }
        };
        loop {
            let before = at < start;
            let end = self.ends_at().max(at);
            let until = if before { start } else { end };
            if at == until {
                return lane.stop(data).await.map(|()| None);
            }
            let near = end < self.size && end - at <= NEAR_END;
            data.expect_at_most(if near { end - at } else { u64::MAX });
            let piece = tokio::select! {
                piece = receive(&mut data, until - at) => piece,
                () = sender.closed() => return lane.stop(data).await.map(|()| None),
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
                // The last piece counts only once the server has confirmed a complete transfer.
                self.end(lane, data).await?;
                drop(sender.send(Ok(Block::from(piece))).await);
                return Ok(None);
            }
            let Some(permit) = permit_or_recall(&mut lane, sender).await else {
                // If stopping fails, the lane is closed, which makes room for another one.
                drop(lane.stop(data).await);
                drop(lane);
                let is_taken = sender.send(Ok(Block::from(piece))).await.is_ok();
                return Ok(is_taken.then_some(at));
            };
            let Ok(permit) = permit else { return lane.stop(data).await.map(|()| None) };
            permit.send(Ok(Block::from(piece)));
            if last && (self.inner.server.processes_in_order || self.inner.host.lanes.should_park())
            {
                lane.park(self.opening, at, data);
                return Ok(None);
            }
            if last {
                return lane.stop(data).await.map(|()| None);
            }
        }
    }

    /// Checks that the data ends here and that the server confirms the transfer.
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
        // If the server reports an error, that is the cause.
        if let Err(error) = lane.finish("read").await {
            return error;
        }
        Error::new(ErrorKind::Changed, "read").because(format!(
            "the server reported a size of {} bytes and ended at byte {at}",
            self.size
        ))
    }
}

/// A permit to hand on a piece; an error if the reader is gone; `None` if the reader takes no piece and another task
/// needs the lane.
async fn permit_or_recall<'a>(
    lane: &mut Lane,
    sender: &'a Sender,
) -> Option<std::result::Result<Permit<'a>, SendError<()>>> {
    if let Ok(permit) = timeout(STALLED, sender.reserve()).await {
        return Some(permit);
    }
    lane.stall(true);
    let permit = tokio::select! {
        permit = sender.reserve() => permit,
        () = lane.recalled() => return None,
    };
    lane.stall(false);
    Some(permit)
}
