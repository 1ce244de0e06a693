//! Decodes a body with a content coding (gzip) while it arrives.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;

/// Encoded bytes to decode per step: they may expand a thousandfold.
const STEP: usize = 4 << 10;

/// A decoder for gzip.
#[derive(Debug)]
pub struct Decoder {
    decoder: MultiGzDecoder<Vec<u8>>,
    /// Bytes that have arrived and are not decoded yet.
    ahead: Bytes,
    /// Nothing has arrived.
    is_empty: bool,
}

impl Decoder {
    /// A decoder that has received nothing yet.
    pub fn gzip() -> Self {
        Self { decoder: MultiGzDecoder::new(Vec::new()), ahead: Bytes::new(), is_empty: true }
    }

    /// Adds bytes that have arrived. [`Decoder::next`] must have returned `None` before.
    pub fn push(&mut self, bytes: Bytes) {
        self.is_empty &= bytes.is_empty();
        self.ahead = bytes;
    }

    /// The next decoded bytes; `None` if more encoded bytes are needed.
    ///
    /// # Errors
    /// If the body is not valid gzip.
    pub fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            let decoded = std::mem::take(self.decoder.get_mut());
            if !decoded.is_empty() {
                return Ok(Some(decoded.into()));
            }
            if self.ahead.is_empty() {
                return Ok(None);
            }
            let step = self.ahead.split_to(STEP.min(self.ahead.len()));
            self.decoder.write_all(&step)?;
        }
    }

    /// Ends the body. [`Decoder::next`] then returns the remaining decoded bytes. With `may_be_empty`, a body of no
    /// bytes at all is valid: some servers announce a coding for empty files, too, and other clients accept that.
    ///
    /// # Errors
    /// If the body is truncated, or its checksum or length differs from that in its trailer.
    pub fn finish(&mut self, may_be_empty: bool) -> io::Result<()> {
        if self.is_empty && may_be_empty { Ok(()) } else { self.decoder.try_finish() }
    }
}
