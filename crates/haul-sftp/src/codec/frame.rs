//! Assembles packets from bytes as they arrive, without copying.

use bytes::Bytes;
use haul_net::Received;
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

/// Assembles incoming bytes into packets. If all complete packets are taken after each push, it holds at most one
/// packet and the rest of its last piece.
#[derive(Debug)]
pub struct Deframer {
    limit: u32,
    /// Limit for packets of names.
    names_limit: u32,
    received: Received,
}

impl Deframer {
    /// Accepts packets of at most `limit` bytes.
    pub const fn new(limit: u32) -> Self {
        Self { limit, names_limit: limit, received: Received::new() }
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
        self.received.push(bytes);
    }

    /// The next packet, if it is complete.
    ///
    /// # Errors
    /// If its length is out of range.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, CodecError> {
        let Some(head) = self.received.first() else { return Ok(None) };
        let length = u32::from_be_bytes(head);
        if length > self.limit {
            let limit = match self.received.first() {
                None | Some([_, _, _, _, kind::NAME]) => self.names_limit,
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
        if self.received.len() < 4 + length {
            return Ok(None);
        }
        let Some([_, _, _, _, kind]) = self.received.first() else { return Ok(None) };
        drop(self.received.take(5));
        Ok(Some(Frame { kind, body: self.received.take(length - 1) }))
    }

    /// Whether a packet is incomplete, after all complete ones were taken.
    pub const fn is_within_frame(&self) -> bool {
        !self.received.is_empty()
    }
}
