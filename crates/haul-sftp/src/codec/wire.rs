//! Fields of packets: numbers in network byte order, and strings with a length.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{CodecError, HANDLE_MAX, Handle};

/// Decodes fields from the front of a packet's body.
#[derive(Debug)]
pub(super) struct Fields {
    kind: u8,
    bytes: Bytes,
}

impl Fields {
    pub(super) const fn new(kind: u8, bytes: Bytes) -> Self {
        Self { kind, bytes }
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, CodecError> {
        self.need(4, field)?;
        Ok(self.bytes.get_u32())
    }

    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, CodecError> {
        self.need(8, field)?;
        Ok(self.bytes.get_u64())
    }

    /// A string, as a slice of the packet.
    pub(super) fn string(&mut self, field: &'static str) -> Result<Bytes, CodecError> {
        let length = self.u32(field)? as usize;
        self.need(length, field)?;
        Ok(self.bytes.split_to(length))
    }

    /// A handle, which is a string of limited length.
    pub(super) fn handle(&mut self) -> Result<Handle, CodecError> {
        let handle = self.string("handle")?;
        if handle.len() > HANDLE_MAX {
            return Err(self.invalid("handle"));
        }
        Ok(handle)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) const fn remaining(&self) -> usize {
        self.bytes.len()
    }

    /// All remaining bytes.
    pub(super) fn rest(self) -> Bytes {
        self.bytes
    }

    /// Checks that nothing remains.
    pub(super) fn end(&self) -> Result<(), CodecError> {
        match self.bytes.len() {
            0 => Ok(()),
            bytes => Err(CodecError::Trailing { kind: self.kind, bytes }),
        }
    }

    pub(super) const fn invalid(&self, field: &'static str) -> CodecError {
        CodecError::Invalid { kind: self.kind, field }
    }

    /// Checks that at least `bytes` bytes remain.
    pub(super) const fn need(&self, bytes: usize, field: &'static str) -> Result<(), CodecError> {
        if self.bytes.len() < bytes {
            return Err(CodecError::Truncated { kind: self.kind, field });
        }
        Ok(())
    }
}

/// Builds a packet; its length is filled in at the end.
#[derive(Debug)]
pub(super) struct Packet {
    bytes: BytesMut,
}

impl Packet {
    /// Starts a packet of `kind`.
    pub(super) fn new(kind: u8) -> Self {
        let mut bytes = BytesMut::with_capacity(64);
        bytes.put_u32(0);
        bytes.put_u8(kind);
        Self { bytes }
    }

    #[must_use]
    pub(super) fn u32(mut self, value: u32) -> Self {
        self.bytes.put_u32(value);
        self
    }

    #[must_use]
    pub(super) fn u64(mut self, value: u64) -> Self {
        self.bytes.put_u64(value);
        self
    }

    #[must_use]
    pub(super) fn string(mut self, value: &[u8]) -> Self {
        self.bytes.put_u32(length(value.len()));
        self.bytes.put_slice(value);
        self
    }

    #[must_use]
    pub(super) fn raw(mut self, value: &[u8]) -> Self {
        self.bytes.put_slice(value);
        self
    }

    /// Starts the payload of a packet, without length and kind.
    pub(super) fn payload() -> Self {
        Self { bytes: BytesMut::new() }
    }

    /// The payload.
    pub(super) fn payload_done(self) -> Bytes {
        self.bytes.freeze()
    }

    /// The packet.
    pub(super) fn done(self) -> Bytes {
        self.done_before(0)
    }

    /// The head of a packet that is followed by `payload` more bytes.
    pub(super) fn done_before(mut self, payload: usize) -> Bytes {
        let total = length(self.bytes.len() - 4 + payload);
        self.bytes[..4].copy_from_slice(&total.to_be_bytes());
        self.bytes.freeze()
    }
}

/// A length as encoded. Nothing that haul sends approaches the maximum: payloads are bounded by the
/// server's limits, names by the file system's.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
