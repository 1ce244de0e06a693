//! Parses the response to a PROPFIND while it arrives: RFC 4918, sections 13 and 14.16 to 14.30.
//!
//! Chunks of any size go in, and a [`Resource`] comes out at the end of each `response` element, so a listing
//! of a million files needs the memory of one. `tokens` splits the bytes into markup and text, `tree` follows
//! the elements and their namespaces, and this file connects the two and remembers an error, which
//! every later call returns again.
//!
//! The server is not trusted: a document type is refused, and with it every declared entity ("billion
//! laughs"); each element has limits in bytes, depth and attributes; nothing recurses. The number of
//! resources has no limit here.

mod limits;
mod resource;
mod tokens;
mod tree;

pub use limits::{Limits, MultistatusError};
pub use resource::Resource;
use tokens::Tokens;
use tree::Tree;

/// Parses a multistatus document in chunks.
#[derive(Debug)]
pub struct Multistatus {
    tokens: Tokens,
    tree: Tree,
    failed: Option<MultistatusError>,
}

impl Multistatus {
    /// Begins a document.
    pub fn new(limits: Limits) -> Self {
        Self { tokens: Tokens::new(limits.element_bytes), tree: Tree::new(limits), failed: None }
    }

    /// Takes the next bytes and returns the resources that they complete.
    ///
    /// # Errors
    /// If the document is malformed or exceeds a limit. The error is final: resources of the same chunk are dropped,
    /// and every later call returns it again.
    pub fn push(&mut self, chunk: &[u8]) -> Result<Vec<Resource>, MultistatusError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.advance(chunk).inspect_err(|error| self.failed = Some(*error))
    }

    /// Checks that the document is complete. Call it at the end of the input.
    ///
    /// # Errors
    /// If it is not, or an earlier call failed.
    pub fn finish(self) -> Result<(), MultistatusError> {
        match self.failed {
            Some(error) => Err(error),
            None if self.tree.is_complete() && self.tokens.rest_is_blank() => Ok(()),
            None => Err(MultistatusError::Truncated),
        }
    }

    fn advance(&mut self, chunk: &[u8]) -> Result<Vec<Resource>, MultistatusError> {
        let mut resources = Vec::new();
        self.tokens.push(chunk);
        while let Some(token) = self.tokens.next()? {
            self.tree.take(token, &mut resources)?;
        }
        Ok(resources)
    }
}

#[cfg(test)]
mod tests;
