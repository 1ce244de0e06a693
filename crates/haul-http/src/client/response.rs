//! A response: its head, then its body while it arrives.
//!
//! ```text
//! reader of a connection → Sink ─(window)→ Pending → Response → blocks
//! ```
//!
//! On a shared connection, the reader continues even if no task takes the bytes that have arrived: their consumer may
//! first need a response behind them (deadlock otherwise). On a connection that a response has for itself, the reader
//! stops while a window of bytes waits to be taken.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use haul_storage::{Error, ErrorKind, Result};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};

use super::decoded::Decoder;
use super::error;
use super::head::{Broken, Head};
use crate::parse::{Coding, Url};

/// While this many bytes of a body wait to be taken, the reader stops, if it can.
const WINDOW: u64 = 512 << 10;

/// The owner of a connection that is reserved for one request and its response.
pub trait Owner: fmt::Debug + Send + Sync {
    /// The response may be read at any pace, so the connection may be in use for long.
    fn hold(&self);

    /// The response has ended. `is_reusable`: the connection can be reused; the server closes it after it was idle for
    /// `keep_alive`, if that is known.
    fn done(&self, is_reusable: bool, keep_alive: Option<Duration>);
}

/// A piece of a response.
#[derive(Debug)]
enum Piece {
    /// The head, and whether the server has requested the body before (100 Continue).
    Head(Head, bool),
    Body(Bytes),
    End,
}

#[derive(Debug)]
struct Window {
    /// Bytes that wait to be taken.
    waiting: AtomicU64,
    /// While this many bytes wait, the reader stops.
    most: u64,
    taken: Notify,
}

/// The sending end of a response: the reader of its connection passes the pieces on through it.
#[derive(Debug)]
pub struct Sink {
    pieces: UnboundedSender<Result<Piece, Broken>>,
    window: Arc<Window>,
}

impl Sink {
    /// Passes on the head; `is_continued` if the server has requested the body before (100 Continue).
    pub fn head(&self, head: Head, is_continued: bool) {
        self.push(Ok(Piece::Head(head, is_continued)));
    }

    /// Passes on bytes of the body.
    pub fn body(&self, bytes: Bytes) {
        self.window.waiting.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.push(Ok(Piece::Body(bytes)));
    }

    /// Ends the body.
    pub fn end(&self) {
        self.push(Ok(Piece::End));
    }

    /// Ends the response with an error.
    pub fn fail(&self, broken: Broken) {
        self.push(Err(broken));
    }

    /// Passes on a piece. If the response was dropped, the piece is dropped too, and the connection goes on.
    fn push(&self, piece: Result<Piece, Broken>) {
        drop(self.pieces.send(piece));
    }

    /// Whether the response was dropped.
    pub fn is_closed(&self) -> bool {
        self.pieces.is_closed()
    }

    /// Waits until the response is dropped.
    pub async fn closed(&self) {
        self.pieces.closed().await;
    }

    /// Waits until there is room in the window, or the response is dropped.
    pub async fn room(&self) {
        while self.window.waiting.load(Ordering::Relaxed) >= self.window.most {
            tokio::select! {
                () = self.window.taken.notified() => {}
                () = self.pieces.closed() => return,
            }
        }
    }
}

/// A response whose head was not taken yet.
#[derive(Debug)]
pub struct Pending {
    url: Url,
    pieces: UnboundedReceiver<Result<Piece, Broken>>,
    window: Arc<Window>,
    owner: Option<Arc<dyn Owner>>,
    proof: Option<oneshot::Receiver<bool>>,
}

/// Whether it is known that a response belongs to its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// It does.
    Given,
    /// It cannot be known.
    Refused,
    /// The connection ended before that was known.
    Lost,
}

/// Creates both ends of the response to a request for `url`. `owner` is the owner of the connection, if the request has
/// the connection for itself.
pub fn response(url: Url, owner: Option<Arc<dyn Owner>>) -> (Sink, Pending) {
    let (sender, pieces) = unbounded_channel();
    let most = if owner.is_some() { WINDOW } else { u64::MAX };
    let window = Arc::new(Window { waiting: AtomicU64::new(0), most, taken: Notify::new() });
    let sink = Sink { pieces: sender, window: Arc::clone(&window) };
    (sink, Pending { url, pieces, window, owner, proof: None })
}

impl Pending {
    /// Waits for the head of the response.
    ///
    /// # Errors
    /// If the connection ends before, the response is malformed, or it does not begin in time.
    pub async fn head(mut self) -> Result<Response, Broken> {
        match self.pieces.recv().await {
            Some(Ok(Piece::Head(head, is_continued))) => Ok(Response {
                head: Box::new(head),
                is_continued,
                pieces: self.pieces,
                window: self.window,
                owner: self.owner,
                proof: self.proof,
                is_ended: false,
                decoder: None,
            }),
            Some(Ok(_)) | None => Err(Broken::Lost { is_sent: true }),
            Some(Err(broken)) => Err(broken),
        }
    }

    /// Makes it a response that counts only after `true` from `proof`.
    pub fn proven_by(mut self, proof: oneshot::Receiver<bool>) -> Self {
        self.proof = Some(proof);
        self
    }

    /// Takes the head, if it has arrived. [`Pending::head`] fails after that.
    pub fn take_head(&mut self) -> Option<Head> {
        match self.pieces.try_recv() {
            Ok(Ok(Piece::Head(head, _))) => Some(head),
            _ => None,
        }
    }

    /// The URL of the request.
    pub const fn url(&self) -> &Url {
        &self.url
    }
}

/// A response. At its end, its connection is free for other requests. If it is dropped before, the rest is read and
/// discarded if that is cheaper than a new connection.
#[derive(Debug)]
pub struct Response {
    head: Box<Head>,
    is_continued: bool,
    pieces: UnboundedReceiver<Result<Piece, Broken>>,
    window: Arc<Window>,
    owner: Option<Arc<dyn Owner>>,
    proof: Option<oneshot::Receiver<bool>>,
    is_ended: bool,
    decoder: Option<Box<Decoder>>,
}

impl Deref for Response {
    type Target = Head;

    fn deref(&self) -> &Head {
        &self.head
    }
}

impl Response {
    /// A response whose body is complete.
    pub fn whole_of(head: Head, body: Bytes) -> Self {
        let (sink, Pending { pieces, window, owner, proof, .. }) = response(head.url.clone(), None);
        if !body.is_empty() {
            sink.body(body);
        }
        sink.end();
        let (head, is_continued, is_ended, decoder) = (Box::new(head), false, false, None);
        Self { head, is_continued, pieces, window, owner, proof, is_ended, decoder }
    }

    /// Decodes the body.
    ///
    /// # Errors
    /// `Unsupported` for any coding but gzip.
    pub fn decoded(mut self, coding: &Coding) -> Result<Self> {
        match coding {
            Coding::Gzip => {
                self.decoder = Some(Box::new(Decoder::gzip()));
                Ok(self)
            }
            Coding::Other(name) => {
                Err(Error::new(ErrorKind::Unsupported, "read").at(&self.url).because(format!(
                    "the server, or a proxy, sends it encoded ({}), which haul did not request",
                    name.escape_debug()
                )))
            }
        }
    }

    /// Whether the server has requested the body before this response (100 Continue).
    pub const fn is_continued(&self) -> bool {
        self.is_continued
    }

    /// Whether it arrives on a shared connection.
    pub const fn is_shared(&self) -> bool {
        self.owner.is_none()
    }

    /// Waits until it is known whether it is the response to its own request.
    pub async fn proof(&mut self) -> Proof {
        let Some(proof) = self.proof.take() else { return Proof::Given };
        match proof.await {
            Ok(true) => Proof::Given,
            Ok(false) => Proof::Refused,
            Err(_) => Proof::Lost,
        }
    }

    /// Announces that the body may be read at any pace.
    pub fn hold(&self) {
        if let Some(owner) = &self.owner {
            owner.hold();
        }
    }

    /// The next bytes of the body; `None` at its end.
    ///
    /// # Errors
    /// If the connection ends before the end of the body, or the response is malformed; `Corrupt` if the body cannot
    /// be decoded.
    pub async fn next(&mut self, operation: &'static str) -> Result<Option<Bytes>> {
        loop {
            if let Some(decoder) = &mut self.decoder {
                let decoded = decoder.next();
                if let Some(bytes) = decoded.map_err(|error| corrupt(&self.head.url, error))? {
                    return Ok(Some(bytes));
                }
            }
            if self.is_ended {
                return Ok(None);
            }
            let sent = self.sent(operation).await?;
            self.is_ended = sent.is_none();
            match (&mut self.decoder, sent) {
                (None, sent) => return Ok(sent),
                (Some(decoder), Some(bytes)) => decoder.push(bytes),
                (Some(decoder), None) => {
                    // A connection that ends early looks like the end of such a body.
                    let may_be_empty = !self.head.is_until_close();
                    let finished = decoder.finish(may_be_empty);
                    finished.map_err(|error| corrupt(&self.head.url, error))?;
                }
            }
        }
    }

    /// The next bytes as the server sends them, before decoding.
    async fn sent(&mut self, operation: &'static str) -> Result<Option<Bytes>> {
        let broken = match self.pieces.recv().await {
            Some(Ok(Piece::Body(bytes))) => {
                self.window.waiting.fetch_sub(bytes.len() as u64, Ordering::Relaxed);
                self.window.taken.notify_one();
                return Ok(Some(bytes));
            }
            Some(Ok(Piece::End)) => return Ok(None),
            Some(Ok(Piece::Head(..))) | None => Broken::Lost { is_sent: true },
            Some(Err(broken)) => broken,
        };
        Err(error::of_broken(&broken, operation, &self.head.url))
    }

    /// All of the body.
    ///
    /// # Errors
    /// Those of [`Response::next`]; `Protocol` if it is longer than `most` bytes.
    pub async fn whole(&mut self, operation: &'static str, most: usize) -> Result<Vec<u8>> {
        let length = self.length().and_then(|length| usize::try_from(length).ok());
        let mut whole = Vec::with_capacity(length.unwrap_or_default().min(most));
        while let Some(bytes) = self.next(operation).await? {
            if whole.len() + bytes.len() > most {
                return Err(Error::new(ErrorKind::Protocol, operation)
                    .at(&self.url)
                    .because(format!("the response is longer than {most} bytes")));
            }
            whole.extend_from_slice(&bytes);
        }
        Ok(whole)
    }
}

fn corrupt(url: &Url, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Corrupt, "read")
        .at(url)
        .because("the response is encoded (gzip) and cannot be decoded")
        .with_source(error)
}
