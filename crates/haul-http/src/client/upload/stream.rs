//! Uploads a file from its first byte to its last, by one PUT.
//!
//! ```text
//! write_at → a few pieces that wait → Stream → connection     (a task of its own)
//!                                                    ↘ response: at commit, or early if it is a refusal
//! ```
//!
//! A lost connection loses all bytes sent: the upload cannot be resumed and starts again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use haul_net::HostWaits;
use haul_storage::{
    Block, Claim, CommitOptions, CreateOptions, Error, ErrorKind, Held, Range, RangeSet, ReadAt,
    RelPath, Replaces, Result, Retry, WriteAt,
};
use http::{Method, StatusCode};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::super::condition::Condition;
use super::super::error;
use super::super::inner::Inner;
use super::super::payload::Stream;
use super::super::request::Request;
use super::direct::{is_refusal, on_condition};
use crate::parse::Url;

/// Pieces queued for sending. Together with the kernel's buffers that is enough for a lane.
const WAITING: usize = 2;

/// Time limit of each wait for the server: to read the next piece, and to respond, before which it may have to copy or
/// scan the file.
const RESPONSE_WITHIN: Duration = Duration::from_secs(600);

/// After this time a server has usually noticed that an upload was cut off.
const NOTICED: Duration = Duration::from_millis(300);

/// Zeros to fill the unwritten end of a file.
const ZEROS: &[u8] = &[0; 64 << 10];

/// A file that is being written.
#[derive(Debug)]
pub(super) struct StreamUpload {
    inner: Arc<Inner>,
    path: RelPath,
    /// The path written: the part file, or the final name if there is no MOVE.
    target: RelPath,
    /// `None` if there is no part file.
    claim: Option<Claim>,
    /// Without a part file: what may be replaced, and the condition that ensures it.
    replaces: Replaces,
    condition: Option<Condition>,
    /// Nothing was there before the first attempt of this upload.
    is_new: bool,
    length: Option<u64>,
    sending: Mutex<Sending>,
}

#[derive(Debug)]
struct Sending {
    /// `None` before the PUT has begun, and once nothing more is sent.
    pieces: Option<mpsc::Sender<Bytes>>,
    put: Option<JoinHandle<Result<()>>>,
    /// The request of the PUT.
    request: Option<Request>,
    begun: bool,
    /// Under the final name: no attempt of this process has begun before.
    is_first: bool,
    /// The server refused the PUT, or it was not sent, so nothing at the target is from it.
    refused: bool,
    written: u64,
}

impl StreamUpload {
    /// Prepares the upload of `path`. Nothing is written before the first write or the commit.
    pub(super) async fn create(
        inner: &Arc<Inner>,
        path: &RelPath,
        options: &CreateOptions,
    ) -> Result<Self> {
        let claim = if inner.moves(path) { Some(inner.claim(path).await) } else { None };
        let target = match &claim {
            Some(claim) => inner.part_of(path, claim)?,
            None => path.clone(),
        };
        let (mut condition, mut replaces) = (None, options.replaces.clone());
        if claim.is_none() {
            replaces = inner.may_replace(path, &replaces);
            condition = inner.check_target(path, &replaces, "create").await?;
            condition.take_if(|_| inner.learnt.misjudges_tags.load(Ordering::Relaxed));
        }
        let sending = Sending {
            pieces: None,
            put: None,
            request: None,
            begun: false,
            is_first: false,
            refused: false,
            written: 0,
        };
        Ok(Self {
            inner: Arc::clone(inner),
            path: path.clone(),
            target,
            claim,
            replaces,
            condition,
            is_new: options.replaces == Replaces::Nothing,
            length: options.size,
            sending: Mutex::new(sending),
        })
    }

    /// Begins the PUT, unless it has begun.
    fn begin(&self, sending: &mut Sending) -> Result<()> {
        if std::mem::replace(&mut sending.begun, true) {
            return Ok(());
        }
        let (sender, receiver) = mpsc::channel(WAITING);
        let mut request = Request::new(Method::PUT, self.inner.url(&self.target), "write");
        if self.is_direct() {
            request = on_condition(request, &self.replaces, self.condition.as_ref())?;
            sending.is_first = self.inner.begins(&self.path);
        }
        let body = (self.length != Some(0)).then(|| Stream::new(receiver, self.length));
        sending.pieces = Some(sender);
        sending.request = Some(request.clone());
        sending.put = Some(tokio::spawn(put(Arc::clone(&self.inner), request, body)));
        Ok(())
    }

    async fn send(&self, sending: &mut Sending, piece: Bytes) -> Result<()> {
        self.begin(sending)?;
        let Some(pieces) = &sending.pieces else { return Err(self.lost("the upload has ended")) };
        let Some(response) = &mut sending.put else {
            return Err(self.lost("the upload has ended"));
        };
        let length = piece.len() as u64;
        let waits = self.waits();
        let what = || format!("send buffer space for PUT {}", self.url().path());
        let ended = tokio::select! {
            biased;
            ended = &mut *response => Some(ended),
            sent = waits.within(RESPONSE_WITHIN, what, pieces.send(piece)) => match sent {
                Some(Ok(())) => {
                    sending.written += length;
                    return Ok(());
                }
                // The body is no longer sent; the response gives the reason.
                Some(Err(_)) => waits.within(RESPONSE_WITHIN, || self.awaited(), response).await,
                None => None,
            },
        };
        let Some(ended) = ended else { return Err(self.stuck(sending).await) };
        sending.pieces = None;
        sending.put = None;
        Err(match ended {
            Ok(Ok(())) => self.lost("the server responded before it had received the whole file"),
            Ok(Err(error)) => {
                self.note_refusal(sending, Some(&error));
                self.explained(error).await
            }
            Err(failed) => self.lost("the upload was stopped").with_source(failed),
        })
    }

    /// Ends an upload that the server neither reads nor responds to.
    async fn stuck(&self, sending: &mut Sending) -> Error {
        sending.pieces = None;
        if let Some(put) = sending.put.take() {
            put.abort();
            // Until it has ended, it may still send its request.
            drop(put.await);
        }
        self.note_refusal(sending, None);
        self.lost("the server stopped reading the upload and did not respond")
    }

    /// Notes how the PUT has failed: by an error, or because the server did not respond.
    fn note_refusal(&self, sending: &mut Sending, error: Option<&Error>) {
        let is_sent = sending.request.as_ref().is_some_and(Request::may_have_effect);
        sending.refused = !is_sent || error.is_some_and(is_refusal);
        if self.is_direct() && sending.refused && sending.is_first {
            self.inner.leaves_nothing(&self.path);
        }
    }

    /// Removes what this upload has stored under the final name. A file with more bytes than were sent is of another
    /// program, and one without a known length may be.
    async fn remove_own(&self, written: u64) -> Result<()> {
        let found = self.inner.look_by_properties(&self.path, "remove").await?;
        match found {
            None => Ok(()),
            Some(entry)
                if entry.is_file() && entry.known_size().is_some_and(|size| size <= written) =>
            {
                self.inner.remove_part(&self.path).await
            }
            Some(_) => Ok(()),
        }
    }

    /// Whether the file is written under its final name.
    fn is_direct(&self) -> bool {
        self.target == self.path
    }

    fn release(&self) {
        self.claim.iter().for_each(Claim::release);
    }

    fn waits(&self) -> HostWaits {
        let lanes = self.inner.exchange().transport().leases(&self.inner.root.origin);
        lanes.waits().clone()
    }

    /// For messages: what is awaited at the end.
    fn awaited(&self) -> String {
        format!("response to PUT {}", self.url().path())
    }

    fn url(&self) -> Url {
        self.inner.url(&self.target)
    }

    /// An error after which the upload has to start again, since it cannot be resumed.
    fn lost(&self, cause: &'static str) -> Error {
        Error::new(ErrorKind::Unreachable, "write")
            .with_retry(Retry::FromStart)
            .at(self.inner.location.display(&self.path))
            .because(cause)
    }

    async fn explained(&self, error: Error) -> Error {
        // 412
        if error.kind() == ErrorKind::AlreadyExists
            && let Some(condition) = &self.condition
        {
            return match self.inner.still_has(&self.path, condition).await {
                Err(error) => error,
                Ok(()) => {
                    self.inner.learnt.misjudges_tags.store(true, Ordering::Relaxed);
                    self.lost("the server misjudges the entity tag that it reports")
                }
            };
        }
        let error = match error.kind() {
            // Credentials may have expired. If a plain request succeeds, so may another upload.
            ErrorKind::Unauthenticated => match self.inner.look(&RelPath::root()).await {
                Ok(_) => error.with_retry(Retry::FromStart),
                Err(_) => error,
            },
            _ if self.is_direct() => {
                self.inner.why_not_written(error, &self.path, &self.replaces).await
            }
            _ => self.inner.why_refused(error, &self.path).await,
        };
        // An earlier upload that was cut off may still have the part file locked. Under the final name, the lock is another
        // client's.
        let is_locked = error.kind() == ErrorKind::Busy && !self.is_direct();
        if error.retry() == Retry::Later || is_locked {
            error.with_retry(Retry::FromStart)
        } else {
            error
        }
    }

    fn invalid(&self, cause: String) -> Error {
        Error::new(ErrorKind::InvalidInput, "write")
            .at(self.inner.location.display(&self.path))
            .because(cause)
    }

    /// Sends the end of the body, and waits for the response.
    async fn finish(&self, size: u64) -> Result<()> {
        let mut sending = self.sending.lock().await;
        self.begin(&mut sending)?;
        let announced = self.length.unwrap_or(size);
        if sending.written > size || announced != size {
            let written = sending.written;
            return Err(self.invalid(format!(
                "{written} of {announced} announced bytes were written, but the file has {size}"
            )));
        }
        while sending.written < size {
            let left = usize::try_from(size - sending.written).unwrap_or(usize::MAX);
            let zeros = Bytes::from_static(&ZEROS[..left.min(ZEROS.len())]);
            self.send(&mut sending, zeros).await?;
        }
        if let Some(pieces) = sending.pieces.take() {
            // An empty piece ends a body of unknown length. With an announced length nothing reads it.
            let what = || format!("send buffer space for the end of PUT {}", self.url().path());
            let sent = self.waits().within(RESPONSE_WITHIN, what, pieces.send(Bytes::new())).await;
            if sent.is_none() {
                return Err(self.stuck(&mut sending).await);
            }
        }
        let Some(response) = sending.put.take() else {
            return Err(self.lost("the upload has ended"));
        };
        match self.waits().within(RESPONSE_WITHIN, || self.awaited(), response).await {
            Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => {
                self.note_refusal(&mut sending, Some(&error));
                Err(self.explained(error).await)
            }
            Some(Err(failed)) => Err(self.lost("the upload was stopped").with_source(failed)),
            None => Err(self.lost("the server received the whole file and did not respond")),
        }
    }
}

async fn put(inner: Arc<Inner>, request: Request, body: Option<Stream>) -> Result<()> {
    let response = inner.exchange().upload(&request, body).await?;
    let (status, url) = (response.status, response.url.clone());
    if !status.is_success() {
        // The rest of the body is not sent: the lane ends with the response.
        if status == StatusCode::EXPECTATION_FAILED {
            // The retry does not send `Expect: 100-continue`.
            let error = Error::new(ErrorKind::Unreachable, "write").at(&url);
            return Err(error
                .because("the server returned 417 Expectation Failed")
                .with_retry(Retry::FromStart));
        }
        return Err(error::of_status(status, "write", &url));
    }
    drop(response);
    Ok(())
}

#[async_trait]
impl WriteAt for StreamUpload {
    fn held(&self) -> &Held {
        &Held::Unrecorded
    }

    async fn record(&self, _: RangeSet) -> Result<()> {
        Ok(())
    }

    async fn write_at(&self, offset: u64, block: Block) -> Result<()> {
        let mut sending = self.sending.lock().await;
        if offset != sending.written {
            let written = sending.written;
            return Err(self.invalid(format!("a write at offset {offset} instead of {written}")));
        }
        for piece in block.pieces() {
            self.send(&mut sending, piece.clone()).await?;
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
        if !self.is_direct() {
            self.finish(size).await?;
            self.inner.commit_part(&self.target, &self.path, size, options).await?;
            self.release();
            return Ok(());
        }
        self.finish(size).await?;
        self.inner.stored_directly(&self.path);
        match options.metadata.modified {
            Some(time) => self.inner.set_time(&self.path, time).await,
            None => Ok(()),
        }
    }

    async fn abort(&self, _keep: bool) -> Result<()> {
        let mut sending = self.sending.lock().await;
        // Nothing was there before, so an incomplete file is from this PUT.
        let is_own = self.is_new && !self.inner.quirks.puts_whole;
        if self.is_direct() && !(is_own && sending.begun) {
            // It is unknown whether the final name has the old file or bytes of the new one, so nothing is removed.
            // A PUT that was not sent yet must not be sent any more.
            if let Some(put) = sending.put.take() {
                put.abort();
                drop(put.await);
                self.note_refusal(&mut sending, None);
            }
            sending.pieces = None;
            return Ok(());
        }
        // Dropping the sender cuts off the body.
        sending.pieces = None;
        let mut is_cut = false;
        if let Some(put) = sending.put.take() {
            let ended = self.waits().within(RESPONSE_WITHIN, || self.awaited(), put).await;
            if let Some(Ok(Err(error))) = &ended {
                self.note_refusal(&mut sending, Some(error));
            }
            is_cut = !self.inner.quirks.puts_whole;
        }
        if self.is_direct() {
            if sending.refused {
                return Ok(());
            }
            self.remove_own(sending.written).await?;
            if is_cut {
                // The server may have stored the incomplete file only after that.
                sleep(NOTICED).await;
                self.remove_own(sending.written).await?;
            }
            self.inner.leaves_nothing(&self.path);
            return Ok(());
        }
        self.inner.remove_part(&self.target).await?;
        if is_cut {
            sleep(NOTICED).await;
            self.inner.remove_part(&self.target).await?;
        }
        self.release();
        Ok(())
    }
}
