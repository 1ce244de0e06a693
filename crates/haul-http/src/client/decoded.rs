//! A body that was encoded on the way, and is decoded as it comes.

use std::io::Write;

use bytes::Bytes;
use flate2::write::MultiGzDecoder;
use haul_storage::{Error, ErrorKind, Result};

use super::answer::Answer;
use crate::parse::Coding;
use crate::parse::Url;

/// Bytes that are decoded at once: they may become a thousand times as many.
const STEP: usize = 4 << 10;

/// A body, decoded.
#[derive(Debug)]
pub struct Decoded {
    answer: Answer,
    decoder: MultiGzDecoder<Vec<u8>>,
    /// What has come and is not decoded.
    ahead: Bytes,
    is_at_end: bool,
}

impl Decoded {
    /// The body of an answer that is encoded so.
    ///
    /// # Errors
    /// `Unsupported` if this cannot be decoded here.
    pub fn new(answer: Answer, coding: &Coding) -> Result<Self> {
        match coding {
            Coding::Gzip => {
                let decoder = MultiGzDecoder::new(Vec::new());
                Ok(Self { answer, decoder, ahead: Bytes::new(), is_at_end: false })
            }
            Coding::Other(name) => {
                Err(Error::new(ErrorKind::Unsupported, "read").at(&answer.url).because(format!(
                    "the server, or a proxy, sends it encoded ({}), which haul did not request",
                    name.escape_debug()
                )))
            }
        }
    }

    /// Where it comes from.
    pub fn url(&self) -> &Url {
        self.answer.url()
    }

    /// The next bytes, decoded; `None` at the end.
    ///
    /// # Errors
    /// `Corrupt` if it is not encoded as the server says, or ends too early.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        while !self.is_at_end {
            if self.ahead.is_empty() {
                match self.answer.next("read").await? {
                    Some(bytes) => self.ahead = bytes,
                    None => {
                        self.is_at_end = true;
                        self.decoder.try_finish().map_err(|error| self.corrupt(error))?;
                    }
                }
            }
            let step = self.ahead.split_to(STEP.min(self.ahead.len()));
            self.decoder.write_all(&step).map_err(|error| self.corrupt(error))?;
            let decoded = std::mem::take(self.decoder.get_mut());
            if !decoded.is_empty() {
                return Ok(Some(decoded.into()));
            }
        }
        Ok(None)
    }

    fn corrupt(&self, error: std::io::Error) -> Error {
        Error::new(ErrorKind::Corrupt, "read")
            .at(self.url())
            .because("the response is encoded (gzip) and cannot be decoded")
            .with_source(error)
    }
}
