//! A response: its head, then its body as it comes.
//!
//! ```text
//! reader of a connection → Sink ─(window)→ Pending → Response → blocks
//! ```
//!
//! The reader of a connection that is shared reads on whether anybody takes what has come, because one response
//! may have to wait for another that comes behind it. On a connection that a response has for itself no more
//! than a window of bytes waits to be taken, and the reader stops until there is room.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use haul_storage::{Error, ErrorKind, Result};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::decoded::Decoder;
use super::error;
use super::head::{Broken, Head};
use crate::parse::{Coding, Url};

/// Bytes of a body that wait to be taken, at most, where the reader can stop.
const WINDOW: u64 = 512 << 10;

/// What has a connection for one request and its response.
pub trait Owner: fmt::Debug + Send + Sync {
    /// The response is read as fast as its reader likes.
    fn hold(&self);

    /// The response has ended. `is_kept`: the connection can be used again, and is kept idle by the server for
    /// `keep_alive` if that is known.
    fn done(&self, is_kept: bool, keep_alive: Option<Duration>);
}

/// A piece of a response.
#[derive(Debug)]
enum Piece {
    /// The head, and whether the server had said before that it wants the request's body.
    Head(Head, bool),
    Body(Bytes),
    End,
}

#[derive(Debug)]
struct Window {
    /// Bytes that wait to be taken.
    waiting: AtomicU64,
    most: u64,
    taken: Notify,
}

/// Where a response goes while it comes.
#[derive(Debug)]
pub struct Sink {
    pieces: UnboundedSender<Result<Piece, Broken>>,
    window: Arc<Window>,
}

impl Sink {
    /// The head has come; `is_continued` if the server had said before that it wants the request's body.
    pub fn head(&self, head: Head, is_continued: bool) {
        self.push(Ok(Piece::Head(head, is_continued)));
    }

    /// Some of the body has come.
    pub fn body(&self, bytes: Bytes) {
        self.window.waiting.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.push(Ok(Piece::Body(bytes)));
    }

    /// All of the body has come.
    pub fn end(&self) {
        self.push(Ok(Piece::End));
    }

    /// No more will come.
    pub fn fail(&self, broken: Broken) {
        self.push(Err(broken));
    }

    /// Whoever does not want it any more does not hinder what comes behind.
    fn push(&self, piece: Result<Piece, Broken>) {
        drop(self.pieces.send(piece));
    }

    /// Whether nobody wants the response any more.
    pub fn is_closed(&self) -> bool {
        self.pieces.is_closed()
    }

    /// Waits until nobody wants the response any more.
    pub async fn closed(&self) {
        self.pieces.closed().await;
    }

    /// Waits until there is room in the window, or nobody wants the response any more.
    pub async fn room(&self) {
        while self.window.waiting.load(Ordering::Relaxed) >= self.window.most {
            tokio::select! {
                () = self.window.taken.notified() => {}
                () = self.pieces.closed() => return,
            }
        }
    }
}

/// A response that has not begun.
#[derive(Debug)]
pub struct Pending {
    url: Url,
    pieces: UnboundedReceiver<Result<Piece, Broken>>,
    window: Arc<Window>,
    owner: Option<Arc<dyn Owner>>,
}

/// The response to a request for `url`, and where it goes. What has the connection for it alone is its `owner`.
pub fn response(url: Url, owner: Option<Arc<dyn Owner>>) -> (Sink, Pending) {
    let (sender, pieces) = unbounded_channel();
    let most = if owner.is_some() { WINDOW } else { u64::MAX };
    let window = Arc::new(Window { waiting: AtomicU64::new(0), most, taken: Notify::new() });
    let sink = Sink { pieces: sender, window: Arc::clone(&window) };
    (sink, Pending { url, pieces, window, owner })
}

impl Pending {
    /// The response, once its head has come.
    ///
    /// # Errors
    /// The connection ends before, or what comes is no response.
    pub async fn head(mut self) -> Result<Response, Broken> {
        match self.pieces.recv().await {
            Some(Ok(Piece::Head(head, is_continued))) => Ok(Response {
                head: Box::new(head),
                is_continued,
                pieces: self.pieces,
                window: self.window,
                owner: self.owner,
                is_ended: false,
                decoder: None,
            }),
            Some(Ok(_)) | None => Err(Broken::Lost { is_sent: true }),
            Some(Err(broken)) => Err(broken),
        }
    }

    /// Of what it is.
    pub const fn url(&self) -> &Url {
        &self.url
    }
}

/// What a server responds. Its connection is free for others when it has ended; when it is dropped before, what
/// is left of it is read and thrown away if that is cheaper than a new connection.
#[derive(Debug)]
pub struct Response {
    head: Box<Head>,
    is_continued: bool,
    pieces: UnboundedReceiver<Result<Piece, Broken>>,
    window: Arc<Window>,
    owner: Option<Arc<dyn Owner>>,
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
    /// One that has come as a whole.
    pub fn whole_of(head: Head, body: Bytes) -> Self {
        let (sink, Pending { pieces, window, owner, .. }) = response(head.url.clone(), None);
        if !body.is_empty() {
            sink.body(body);
        }
        sink.end();
        let (head, is_continued, is_ended, decoder) = (Box::new(head), false, false, None);
        Self { head, is_continued, pieces, window, owner, is_ended, decoder }
    }

    /// The same with a body that is decoded.
    ///
    /// # Errors
    /// `Unsupported` if this cannot be decoded here.
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

    /// Whether the server had said before that it wants the request's body.
    pub const fn is_continued(&self) -> bool {
        self.is_continued
    }

    /// Whether it came on a connection that others share.
    pub const fn is_shared(&self) -> bool {
        self.owner.is_none()
    }

    /// Says that the body is read as fast as its reader likes.
    pub fn hold(&self) {
        if let Some(owner) = &self.owner {
            owner.hold();
        }
    }

    /// The next bytes of the body; `None` at its end.
    ///
    /// # Errors
    /// The connection ends before the body; `Corrupt` if that is not encoded as the server says.
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
                    decoder.finish().map_err(|error| corrupt(&self.head.url, error))?;
                }
            }
        }
    }

    /// The next bytes as they are sent.
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
    /// `Protocol` if it is longer than `most` bytes.
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
