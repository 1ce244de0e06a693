//! What a request carries that is sent as it comes.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

/// Bytes that are sent as they come.
#[derive(Debug)]
pub struct Stream {
    pieces: mpsc::Receiver<Bytes>,
    /// How many bytes are still to come, if that is known.
    left: Option<u64>,
    is_finished: bool,
    /// How long the server may take to say that it wants them (`Expect: 100-continue`); nothing is sent before.
    pub expects: Option<Duration>,
}

/// The body was abandoned: what was sent of it is no whole file.
#[derive(Debug)]
pub struct Abandoned;

impl Stream {
    /// What comes through `pieces`, ended by an empty piece, or after `length` bytes. A channel that closes
    /// before abandons the upload: its connection is cut off, which the server notices.
    pub const fn new(pieces: mpsc::Receiver<Bytes>, length: Option<u64>) -> Self {
        Self { pieces, left: length, is_finished: matches!(length, Some(0)), expects: None }
    }

    /// How many bytes are still to come, if that is known.
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
