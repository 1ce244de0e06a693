//! Assembles packets from bytes as they arrive, without copying.

use std::collections::VecDeque;

use bytes::{Buf, Bytes};
use haul_storage::Block;

use super::{CodecError, kind};

/// A complete packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The packet's type.
    pub kind: u8,
    /// Everything after the type, in the pieces in which it arrived.
    pub body: Block,
}

/// Assembles incoming bytes into packets. Holds at most one packet and the rest of its last piece.
#[derive(Debug)]
pub struct Deframer {
    limit: u32,
    /// Limit for packets of names.
    names_limit: u32,
    pieces: VecDeque<Bytes>,
    held: usize,
}

impl Deframer {
    /// Accepts packets of at most `limit` bytes.
    pub const fn new(limit: u32) -> Self {
        Self { limit, names_limit: limit, pieces: VecDeque::new(), held: 0 }
    }

    /// Accepts packets of names of at most `limit` bytes: some servers list a directory in one
    /// packet.
    #[must_use]
    pub const fn with_names(mut self, limit: u32) -> Self {
        self.names_limit = limit;
        self
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.held += bytes.len();
            self.pieces.push_back(bytes);
        }
    }

    /// The next packet, if it is complete.
    ///
    /// # Errors
    /// If its length is out of range.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, CodecError> {
        let Some(head) = self.peek_head() else { return Ok(None) };
        let length = u32::from_be_bytes(head);
        if length > self.limit {
            let limit = match self.peek_kind() {
                None | Some(kind::NAME) => self.names_limit,
                Some(_) => self.limit,
            };
            if length > limit {
                return Err(CodecError::TooLong { length, limit });
            }
        }
        if length == 0 {
            return Err(CodecError::Empty);
        }
        let length = length as usize;
        if self.held < 4 + length {
            return Ok(None);
        }
        self.skip(4);
        let kind = self.pieces.front().map_or(0, |piece| piece[0]);
        self.skip(1);
        Ok(Some(Frame { kind, body: self.take(length - 1) }))
    }

    /// Whether a packet is incomplete.
    pub const fn is_within_frame(&self) -> bool {
        self.held > 0
    }

    fn peek_head(&self) -> Option<[u8; 4]> {
        if let Some(head) = self.pieces.front().and_then(|piece| piece.first_chunk()) {
            return Some(*head);
        }
        let mut head = [0; 4];
        let mut bytes = self.pieces.iter().flatten();
        for byte in &mut head {
            *byte = *bytes.next()?;
        }
        Some(head)
    }

    /// The type of the next packet, if it has arrived.
    fn peek_kind(&self) -> Option<u8> {
        self.pieces.iter().flatten().nth(4).copied()
    }

    fn skip(&mut self, bytes: usize) {
        drop(self.take(bytes));
    }

    /// Removes the next `bytes` bytes, which must have arrived.
    fn take(&mut self, bytes: usize) -> Block {
        let mut taken = Block::new();
        let mut left = bytes;
        while left > 0 {
            let Some(piece) = self.pieces.front_mut() else { break };
            if piece.len() <= left {
                left -= piece.len();
                taken.push(std::mem::take(piece));
                self.pieces.pop_front();
            } else {
                taken.push(piece.slice(..left));
                piece.advance(left);
                left = 0;
            }
        }
        self.held -= taken.len();
        taken
    }
}
