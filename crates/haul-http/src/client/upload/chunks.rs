//! Uploads a large file to Nextcloud or ownCloud in pieces that the server assembles ("chunked upload v2" of
//! Nextcloud's developer manual).
//!
//! ```text
//! MKCOL uploads/USER/ID   →   PUT …/ID/00001, 00002, … (several at once)   →   MOVE …/ID/.file
//! ```
//!
//! Such a server, or a proxy in front of it, often limits the time and size of a request, and one PUT is no
//! faster than one lane. `Destination` is an absolute URL, as in that manual; SabreDAV, on which both
//! are built, uses only its path. Each piece stays in memory until it is stored, so that it can be sent
//! again; the file has no name before the MOVE.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use haul_storage::{
    Block, CommitOptions, CreateOptions, Error, ErrorKind, Held, Range, RangeSet, ReadAt, RelPath,
    Result, Retry, WriteAt,
};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::super::condition::IF;
use super::super::dav::{self, DESTINATION, OVERWRITE, method};
use super::super::error;
use super::super::inner::Inner;
use super::super::quirks::STORED_TIMES;
use super::super::request::Request;
use super::direct::refused;
use super::whole::OC_MTIME;
use crate::parse::Url;

const TOTAL: HeaderName = HeaderName::from_static("oc-total-length");

/// Minimum bytes of a piece (except the last), and the most pieces. Those of a file of more than 50 GB are
/// longer: for 1 TB they have 100 MB each, and two of them are in memory.
const PIECE_LEAST: u64 = 5 << 20;
const PIECES_MOST: u64 = 10_000;

/// Bytes of pieces in flight; one piece is always allowed.
const IN_FLIGHT: u64 = 20 << 20;

/// Time limit of the assembling MOVE: the server copies all pieces.
const ASSEMBLED: Duration = Duration::from_secs(1800);

/// How long to wait for the assembly if the MOVE has no response: the bytes per second that the server is
/// assumed to assemble; the time after a lost connection; the first and the longest pause between checks.
const ASSEMBLED_PER_SECOND: u64 = 10 << 20;
const LOST: Duration = Duration::from_secs(10);
const FIRST_LOOK: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Whether a file is long enough for chunks: it has at least two pieces.
pub(super) fn is_worth_it(size: Option<u64>) -> bool {
    size.is_some_and(|size| size > PIECE_LEAST)
}

/// A file that is being written.
#[derive(Debug)]
pub(super) struct ChunkUpload {
    inner: Arc<Inner>,
    path: RelPath,
    /// The directory of the pieces, with a slash at the end.
    directory: Url,
    destination: HeaderValue,
    size: u64,
    piece: u64,
    room: Arc<Semaphore>,
    sending: Mutex<Sending>,
}

#[derive(Debug, Default)]
struct Sending {
    filling: Block,
    written: u64,
    number: u64,
    pieces: JoinSet<Result<()>>,
}

impl ChunkUpload {
    /// Creates a directory for the pieces of `path`, in `chunks`.
    pub(super) async fn create(
        inner: &Arc<Inner>,
        path: &RelPath,
        chunks: &Url,
        options: &CreateOptions,
    ) -> Result<Self> {
        let size = options.size.unwrap_or_default();
        let mut id = [0; 16];
        aws_lc_rs::rand::fill(&mut id).map_err(|_| {
            let error = Error::new(ErrorKind::Other, "create");
            error.because("the system's random number generator failed")
        })?;
        let id = data_encoding::HEXLOWER.encode(&id);
        let directory = chunks.with_path(&format!("{}haul-{id}/", chunks.path()));
        let destination = HeaderValue::try_from(inner.url(path).absolute()).map_err(|_| {
            let error = Error::new(ErrorKind::InvalidInput, "create");
            error.at(inner.location.display(path)).because("its URL cannot be sent in a header")
        })?;
        let make = Request::new(method("MKCOL"), directory.clone(), "create")
            .with(DESTINATION, destination.clone());
        inner.send_change(&make).await?;
        let piece = PIECE_LEAST.max(size.div_ceil(PIECES_MOST));
        let room = usize::try_from((IN_FLIGHT / piece).max(1)).unwrap_or(1);
        Ok(Self {
            inner: Arc::clone(inner),
            path: path.clone(),
            directory,
            destination,
            size,
            piece,
            room: Arc::new(Semaphore::new(room)),
            sending: Mutex::default(),
        })
    }

    /// Sends a piece, once there is room for it in flight.
    async fn send(&self, sending: &mut Sending, piece: Block) -> Result<()> {
        let room = Arc::clone(&self.room).acquire_owned().await;
        // The semaphore is never closed.
        let room = room.map_err(|_| Error::new(ErrorKind::Interrupted, "write"))?;
        while let Some(stored) = sending.pieces.try_join_next() {
            self.stored(stored)?;
        }
        sending.number += 1;
        let url =
            self.directory.with_path(&format!("{}{:05}", self.directory.path(), sending.number));
        let mut request = Request::new(Method::PUT, url, "write")
            .with(DESTINATION, self.destination.clone())
            .with(TOTAL, HeaderValue::from(self.size));
        request.body = piece;
        sending.pieces.spawn(put(Arc::clone(&self.inner), request, room));
        Ok(())
    }

    fn stored(&self, outcome: Result<Result<()>, tokio::task::JoinError>) -> Result<()> {
        let outcome = outcome.unwrap_or_else(|failed| {
            Err(Error::new(ErrorKind::Interrupted, "write").with_source(failed))
        });
        outcome.map_err(|error| {
            // 412 is about the piece.
            let is_refused = error.kind() == ErrorKind::AlreadyExists;
            let error = if is_refused { refused(&error) } else { error };
            let again = error.retry() == Retry::Later || error.kind() == ErrorKind::NotFound;
            let error = if again { error.with_retry(Retry::FromStart) } else { error };
            error.at(self.inner.location.display(&self.path))
        })
    }

    /// Assembles the pieces, which are all stored, under the file's name.
    async fn assemble(&self, options: &CommitOptions) -> Result<()> {
        let at = |kind| Error::new(kind, "commit").at(self.inner.location.display(&self.path));
        let (existing, mut condition) =
            match self.inner.replaced(&self.path, options.replaced()).await? {
                Some(replaced) => (Some(replaced.entry), replaced.condition),
                None => (self.inner.look_by_properties(&self.path, "commit").await?, None),
            };
        let overwrite = match existing {
            Some(entry) if entry.is_dir() => return Err(at(ErrorKind::IsADirectory)),
            Some(_) if !options.replace => return Err(at(ErrorKind::AlreadyExists)),
            Some(_) => "T",
            None => "F",
        };
        let url = self.directory.with_path(&format!("{}.file", self.directory.path()));
        let mut request = Request::new(method("MOVE"), url, "commit")
            .with(DESTINATION, self.destination.clone())
            .with(OVERWRITE, HeaderValue::from_static(overwrite))
            .with(TOTAL, HeaderValue::from(self.size));
        if let Some(time) = options.metadata.modified {
            request = request.with(OC_MTIME, HeaderValue::from(STORED_TIMES.stored(time).seconds));
        }
        if let Some(condition) = &condition {
            request = condition.on_move(request, &self.inner.url(&self.path))?;
        }
        request.patience = Some(ASSEMBLED);
        let at = |error: Error| error.at(self.inner.location.display(&self.path));
        let mut is_lost = false;
        let (status, url) = loop {
            match self.inner.status_of_change(&request).await {
                Ok((status, _)) if status.is_success() => return Ok(()),
                Ok((StatusCode::PRECONDITION_FAILED, _)) if !is_lost && condition.is_some() => {
                    if let Some(unmet) = condition.take() {
                        self.inner.still_has(&self.path, &unmet).await?;
                    }
                    request.headers.remove(IF);
                }
                Ok(refusal) => break refusal,
                Err(error) if error.kind() == ErrorKind::Unreachable => {
                    if self.is_assembled(LOST).await {
                        return Ok(());
                    }
                    if is_lost {
                        return Err(at(error));
                    }
                    // The request may have been lost as well as the response. Many servers report the
                    // file as locked while they assemble it.
                    is_lost = true;
                }
                Err(error) => return Err(at(error)),
            }
        };
        let wait = match status.as_u16() {
            // A proxy does not wait as long, but the server continues.
            502 | 504 => self.size_wait(),
            // The server may still be working on the first request.
            409 | 412 | 423 | 500 | 503 if is_lost => self.size_wait(),
            _ if is_lost => LOST,
            _ => Duration::ZERO,
        };
        let error = error::of_status(status, "commit", &url);
        let may_be_done = is_lost || error.kind() == ErrorKind::Unreachable;
        if may_be_done && self.is_assembled(wait).await { Ok(()) } else { Err(at(error)) }
    }

    /// How long a server may need to assemble the file.
    fn size_wait(&self) -> Duration {
        Duration::from_secs(10 + self.size / ASSEMBLED_PER_SECOND).min(ASSEMBLED)
    }

    /// Whether only the response was lost: the pieces are gone, and the file exists with its full length.
    /// While the pieces exist the server may still be assembling; this waits up to `wait` for it.
    async fn is_assembled(&self, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        let mut pause = FIRST_LOOK;
        loop {
            let pieces = dav::look(self.inner.exchange(), self.directory.clone(), "commit").await;
            let file = self.inner.look_by_properties(&self.path, "commit").await;
            if matches!(pieces, Ok(None)) {
                return matches!(file, Ok(Some(file)) if file.size == self.size);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            sleep(pause.min(left)).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    fn invalid(&self, cause: String) -> Error {
        Error::new(ErrorKind::InvalidInput, "write")
            .at(self.inner.location.display(&self.path))
            .because(cause)
    }
}

async fn put(inner: Arc<Inner>, request: Request, room: OwnedSemaphorePermit) -> Result<()> {
    let response = inner.exchange().patiently(&request).await?;
    let (status, url) = (response.status, response.url.clone());
    drop(response);
    drop(room);
    if status.is_success() {
        Ok(())
    } else {
        Err(error::of_status(status, request.operation, &url))
    }
}

#[async_trait]
impl WriteAt for ChunkUpload {
    fn held(&self) -> &Held {
        &Held::Unrecorded
    }

    async fn record(&self, _: RangeSet) -> Result<()> {
        Ok(())
    }

    async fn write_at(&self, offset: u64, block: Block) -> Result<()> {
        let mut sending = self.sending.lock().await;
        let length = block.len() as u64;
        if offset != sending.written || offset + length > self.size {
            let (written, size) = (sending.written, self.size);
            return Err(self.invalid(format!(
                "a write of {length} bytes at {offset}, but {written} of {size} are written"
            )));
        }
        sending.filling.append(block);
        sending.written += length;
        while sending.filling.len() as u64 >= self.piece {
            let at = usize::try_from(self.piece).unwrap_or(usize::MAX);
            let rest = sending.filling.split_off(at);
            let piece = std::mem::replace(&mut sending.filling, rest);
            self.send(&mut sending, piece).await?;
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
        Err(self.inner.unsupported("open", &self.path))
    }

    async fn commit(&self, size: u64, options: &CommitOptions) -> Result<()> {
        let mut sending = self.sending.lock().await;
        if sending.written != size || size != self.size {
            let written = sending.written;
            return Err(self.invalid(format!(
                "{written} of {} announced bytes were written, but the file has {size}",
                self.size
            )));
        }
        let last = std::mem::take(&mut sending.filling);
        if !last.is_empty() {
            self.send(&mut sending, last).await?;
        }
        while let Some(stored) = sending.pieces.join_next().await {
            self.stored(stored)?;
        }
        self.assemble(options).await
    }

    async fn abort(&self, _keep: bool) -> Result<()> {
        self.sending.lock().await.pieces.shutdown().await;
        match self
            .inner
            .send_change(&Request::new(Method::DELETE, self.directory.clone(), "remove"))
            .await
        {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}
