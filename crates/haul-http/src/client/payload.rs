//! Streamed bodies of requests.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

/// A body that is sent as its bytes become available.
#[derive(Debug)]
pub struct Stream {
    pieces: mpsc::Receiver<Bytes>,
    /// Remaining bytes, if known.
    left: Option<u64>,
    is_finished: bool,
    /// How long to wait for `100 Continue` before anything is sent; `None` without `Expect`.
    pub expects: Option<Duration>,
}

/// The upload was abandoned before the end of its body.
#[derive(Debug)]
pub struct Abandoned;

impl Stream {
    /// A body of the bytes from `pieces`. It ends after `length` bytes, or with an empty piece. If the channel is
    /// closed before, the upload is abandoned: its connection is closed, so that the server notices.
    pub const fn new(pieces: mpsc::Receiver<Bytes>, length: Option<u64>) -> Self {
        Self { pieces, left: length, is_finished: matches!(length, Some(0)), expects: None }
    }

    /// Remaining bytes, if known.
    pub const fn left(&self) -> Option<u64> {
        self.left
    }

    /// The next bytes; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Abandoned> {
        if self.is_finished {
            return Ok(None);
        }
        let mut piece = self.pieces.recv().await.ok_or(Abandoned)?;
        if let Some(left) = &mut self.left {
            piece.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= piece.len() as u64;
            self.is_finished = *left == 0;
        }
        self.is_finished |= piece.is_empty();
        Ok((!piece.is_empty()).then_some(piece))
    }
}
