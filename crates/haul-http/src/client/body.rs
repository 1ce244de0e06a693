//! What a request carries.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use haul_storage::Block;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Sleep, sleep};

/// The body of a request.
#[derive(Debug)]
pub enum Payload {
    /// Nothing.
    Empty,
    /// All of it.
    Whole(Whole),
    /// What comes through a channel.
    Stream(Stream),
}

/// Bytes that are in memory, in as many pieces as they were read in.
#[derive(Debug)]
pub struct Whole {
    pieces: std::vec::IntoIter<Bytes>,
    left: u64,
}

impl From<&Block> for Payload {
    fn from(block: &Block) -> Self {
        if block.is_empty() {
            return Self::Empty;
        }
        let pieces = block.pieces().to_vec().into_iter();
        Self::Whole(Whole { pieces, left: block.len() as u64 })
    }
}

/// Bytes that are sent as they come.
#[derive(Debug)]
pub struct Stream {
    pieces: mpsc::Receiver<Bytes>,
    /// How many bytes are still to come, if that was said; a body that ends earlier is cut off, which
    /// the server notices.
    left: Option<u64>,
    finished: bool,
    /// Nothing is sent before the server wants it.
    wanted: Option<Wanted>,
}

/// What a body waits for.
#[derive(Debug)]
struct Wanted {
    said: oneshot::Receiver<()>,
    /// Servers that know nothing of it say nothing (RFC 9110, 10.1.1).
    until: Pin<Box<Sleep>>,
}

impl Wanted {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // That nobody can say it any more is met by whoever waits for the answer.
        let said = Pin::new(&mut self.said).poll(context).map(drop);
        if said.is_ready() { said } else { self.until.as_mut().poll(context) }
    }
}

/// The body was given up: what was sent of it is no whole file.
#[derive(Debug, thiserror::Error)]
#[error("the upload was aborted")]
pub struct GivenUp;

impl Stream {
    /// What comes through `pieces`, ended by an empty piece. A channel that closes without one gives
    /// the upload up.
    pub const fn new(pieces: mpsc::Receiver<Bytes>, length: Option<u64>) -> Self {
        Self { pieces, left: length, finished: false, wanted: None }
    }
}

impl Payload {
    /// The length of what comes through a channel; `None` if this is something else, or it was not
    /// said.
    pub const fn streams(&self) -> Option<Option<u64>> {
        match self {
            Self::Stream(stream) => Some(stream.left),
            _ => None,
        }
    }

    /// Waits with what comes through a channel until the server says that it wants it, for `longest` at
    /// most. Gives how that is said.
    pub fn when_wanted(&mut self, longest: Duration) -> Option<oneshot::Sender<()>> {
        let Self::Stream(stream) = self else { return None };
        let (say, said) = oneshot::channel();
        stream.wanted = Some(Wanted { said, until: Box::pin(sleep(longest)) });
        Some(say)
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = GivenUp;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, GivenUp>>> {
        match &mut *self {
            Self::Empty => Poll::Ready(None),
            Self::Whole(whole) => Poll::Ready(whole.pieces.next().map(|piece| {
                whole.left -= piece.len() as u64;
                Ok(Frame::data(piece))
            })),
            Self::Stream(stream) => {
                if stream.finished {
                    return Poll::Ready(None);
                }
                if let Some(wanted) = &mut stream.wanted {
                    if wanted.poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    stream.wanted = None;
                }
                match stream.pieces.poll_recv(context) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(None) => Poll::Ready(Some(Err(GivenUp))),
                    Poll::Ready(Some(piece)) if piece.is_empty() => {
                        stream.finished = true;
                        Poll::Ready(None)
                    }
                    Poll::Ready(Some(piece)) => {
                        if let Some(left) = &mut stream.left {
                            *left = left.saturating_sub(piece.len() as u64);
                            stream.finished = *left == 0;
                        }
                        Poll::Ready(Some(Ok(Frame::data(piece))))
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Whole(whole) => whole.left == 0,
            Self::Stream(stream) => stream.finished || stream.left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Whole(whole) => SizeHint::with_exact(whole.left),
            Self::Stream(stream) => {
                stream.left.map_or_else(SizeHint::default, SizeHint::with_exact)
            }
        }
    }
}
