//! The answer to a PROPFIND, as it arrives: RFC 4918, section 13 and 14.16 to 14.30.
//!
//! Chunks of any size go in, a [`Resource`] comes out for each `response` element as it ends, so a
//! listing of a million files takes the memory of one. `tokens` cuts the bytes into pieces of
//! markup, `tree` follows the elements and their namespaces, and this file holds the two together
//! and remembers an error, after which nothing more comes.
//!
//! An answer is taken from whoever answers, so: a document type is refused, and with it every
//! entity that is declared (the "billion laughs"); each element has a limit in bytes, in depth and
//! in attributes; nothing recurses. How many resources are taken is the caller's to bound.

mod limits;
mod resource;
mod tokens;
mod tree;

pub use limits::{Limits, MultistatusError};
pub use resource::Resource;
use tokens::Tokens;
use tree::Tree;

/// Reads a multistatus document in chunks.
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

    /// Takes the next bytes and gives what is complete with them. An error is final: what was
    /// complete in the same chunk is dropped, and every later call gives the error again.
    pub fn push(&mut self, chunk: &[u8]) -> Result<Vec<Resource>, MultistatusError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.advance(chunk).inspect_err(|error| self.failed = Some(*error))
    }

    /// Whether the document is complete; to be called at the end of the input.
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
