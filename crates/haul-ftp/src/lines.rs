//! Splits a listing into lines, and joins the lines of an entry that has two.

use bytes::{Buf, BytesMut};
use haul_storage::Result;

use crate::data::receive;
use crate::error::protocol;
use crate::session::Session;
use crate::wire::Command;
use crate::wire::listing::Joined;

/// The longest line in bytes: a name, the target of a link, and their attributes.
const LONGEST: usize = 16 << 10;

/// Most bytes received at once.
pub(crate) const RECEIVED: u64 = 64 << 10;

/// Sends a command that lists, and calls `line` with each line.
pub(crate) async fn each(
    session: &mut Session,
    command: Command,
    mut line: impl FnMut(&[u8]),
) -> Result<()> {
    let mut data = session.transfer(0, command, "list").await?;
    let mut lines = Lines::default();
    loop {
        // The error of the data connection is reported, and not the server's reply to the broken transfer, which proves
        // nothing about a name.
        let piece = receive(&mut data, RECEIVED).await?;
        let over = piece.is_empty();
        lines.add(&piece);
        loop {
            match lines.next(over) {
                Ok(Some(next)) => line(&next),
                Ok(None) => break,
                Err(error) => {
                    session.stop(data).await?;
                    return Err(error);
                }
            }
        }
        if over {
            drop(data);
            return session.finish("list").await;
        }
    }
}

/// Splits received bytes into lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    received: BytesMut,
    joined: Joined,
}

impl Lines {
    pub(crate) fn add(&mut self, piece: &[u8]) {
        self.received.extend_from_slice(piece);
    }

    /// Whether no received bytes are left.
    pub(crate) fn is_empty(&self) -> bool {
        self.received.is_empty()
    }

    /// The next line without its line end. With `over`, the remaining bytes are a line too.
    pub(crate) fn next(&mut self, over: bool) -> Result<Option<Vec<u8>>> {
        loop {
            let Some(line) = self.cut(over)? else {
                return Ok(if over { self.joined.rest() } else { None });
            };
            if let Some(whole) = self.joined.add(line) {
                return Ok(Some(whole));
            }
        }
    }

    fn cut(&mut self, over: bool) -> Result<Option<Vec<u8>>> {
        let end = self.received.iter().position(|byte| *byte == b'\n');
        if end.unwrap_or(self.received.len()) > LONGEST {
            return Err(protocol("list", "a line of the listing is longer than 16 KiB"));
        }
        let Some(end) = end.or((over && !self.received.is_empty()).then_some(self.received.len()))
        else {
            return Ok(None);
        };
        let line = &self.received[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line).to_vec();
        self.received.advance((end + 1).min(self.received.len()));
        Ok(Some(line))
    }
}
