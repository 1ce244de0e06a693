//! A body that was encoded on the way, and is decoded as it comes.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::write::MultiGzDecoder;

/// Bytes that are decoded at once: they may become a thousand times as many.
const STEP: usize = 4 << 10;

/// What decodes a body in gzip.
#[derive(Debug)]
pub struct Decoder {
    decoder: MultiGzDecoder<Vec<u8>>,
    /// What has come and is not decoded.
    ahead: Bytes,
}

impl Decoder {
    /// Nothing has come yet.
    pub fn gzip() -> Self {
        Self { decoder: MultiGzDecoder::new(Vec::new()), ahead: Bytes::new() }
    }

    /// More has come. All of what came before has been taken.
    pub fn push(&mut self, bytes: Bytes) {
        self.ahead = bytes;
    }

    /// The next bytes, decoded; `None` if more has to come first.
    ///
    /// # Errors
    /// It is not encoded in gzip.
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

    /// All has come. What is left to be taken comes from [`Decoder::next`].
    ///
    /// # Errors
    /// It ends too early.
    pub fn finish(&mut self) -> io::Result<()> {
        self.decoder.try_finish()
    }
}
