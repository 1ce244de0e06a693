//! Fields of requests and responses: numbers in the byte order of the machine, and names that end with a NUL.

use super::CodecError;

/// Decodes fields from the front of a request or of its body.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    opcode: u32,
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) const fn new(opcode: u32, bytes: &'a [u8]) -> Self {
        Self { opcode, bytes }
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, CodecError> {
        self.array(field).map(u32::from_ne_bytes)
    }

    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, CodecError> {
        self.array(field).map(u64::from_ne_bytes)
    }

    /// Bytes up to the next NUL, which is skipped.
    pub(super) fn name(&mut self, field: &'static str) -> Result<&'a [u8], CodecError> {
        let end = self.bytes.iter().position(|byte| *byte == 0);
        let end = end.ok_or_else(|| self.truncated(field))?;
        let name = &self.bytes[..end];
        self.bytes = &self.bytes[end + 1..];
        Ok(name)
    }

    /// The next `length` bytes.
    pub(super) fn bytes(
        &mut self,
        length: usize,
        field: &'static str,
    ) -> Result<&'a [u8], CodecError> {
        let (bytes, rest) =
            self.bytes.split_at_checked(length).ok_or_else(|| self.truncated(field))?;
        self.bytes = rest;
        Ok(bytes)
    }

    /// Bytes that are left.
    pub(super) const fn remaining(&self) -> usize {
        self.bytes.len()
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], CodecError> {
        let (array, rest) = self.bytes.split_first_chunk().ok_or_else(|| self.truncated(field))?;
        self.bytes = rest;
        Ok(*array)
    }

    const fn truncated(&self, field: &'static str) -> CodecError {
        CodecError::Truncated { opcode: self.opcode, field }
    }
}

/// Encodes fields.
#[derive(Debug, Default)]
pub(super) struct Out {
    bytes: Vec<u8>,
}

impl Out {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes) }
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Self {
        self.raw(&value.to_ne_bytes())
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.raw(&value.to_ne_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.raw(&value.to_ne_bytes())
    }

    pub(super) fn raw(&mut self, value: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(value);
        self
    }

    /// Zeros up to a multiple of eight bytes.
    pub(super) fn align(&mut self) -> &mut Self {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        self
    }

    pub(super) const fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn done(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}
