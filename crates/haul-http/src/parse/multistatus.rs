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

mod tokens;
mod tree;

use haul_storage::Timestamp;

use tokens::Tokens;
use tree::Tree;

/// What is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one `response` element, and of one piece of markup or text.
    pub element_bytes: usize,
    /// Elements within one another.
    pub depth: usize,
    /// Attributes of one element.
    pub attributes: usize,
}

impl Default for Limits {
    /// Far above what servers send: Nextcloud's longest answers have some 5 KiB for a file, depth 6.
    fn default() -> Self {
        Self { element_bytes: 1 << 20, depth: 32, attributes: 64 }
    }
}

/// One `response`: something in the directory, or the directory itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resource {
    /// Where, as sent, but for the XML around it. See [`resolve`](super::href::resolve).
    pub href: String,
    /// Whether it is a directory.
    pub collection: bool,
    /// Length in bytes, if said and a file.
    pub size: Option<u64>,
    /// Last modification, in seconds for all servers that are known.
    pub modified: Option<Timestamp>,
    /// Version, with its quotes and `W/` as sent.
    pub etag: Option<String>,
    /// Bytes used below it (RFC 4331).
    pub quota_used: Option<u64>,
    /// Bytes that could still be written (RFC 4331). Nextcloud says less than 0 for "unknown" and
    /// "unlimited", which is `None` here.
    pub quota_available: Option<u64>,
    /// Media type.
    pub content_type: Option<String>,
    /// Status of the resource itself, where the answer has one: then it has no properties.
    pub status: Option<u16>,
    /// Status of the first group of properties that is not 200: in a PROPPATCH's answer, why
    /// something was not set. In a PROPFIND's it is mostly 404, for what is not there.
    pub property_status: Option<u16>,
    /// Whether anything is said of it: a group of properties has status 200, or names some that are
    /// not there. Of what does not exist some servers say 404 in an empty group.
    pub described: bool,
    /// `oc:permissions` of ownCloud and Nextcloud, such as `RGDNVW`.
    pub permissions: Option<String>,
    /// `oc:checksums` of ownCloud and Nextcloud, as words: `SHA1:da39…`, `MD5:d41d…`.
    pub checksums: Vec<String>,
}

impl Resource {
    /// The status that says that it cannot be described: its own, or that of groups of properties
    /// without a property in them.
    pub fn failure(&self) -> Option<u16> {
        match self.status {
            Some(status) => (!(200..300).contains(&status)).then_some(status),
            None if self.described => None,
            None => self.property_status.filter(|status| matches!(status, 404 | 410)),
        }
    }
}

/// Why bytes are no multistatus that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MultistatusError {
    /// Not in UTF-8, or said to be in something else.
    #[error("the listing is not in UTF-8")]
    Encoding,
    /// A document type or entity declaration.
    #[error("the listing declares a document type, which is not accepted")]
    DocumentType,
    /// Not well-formed, with what is wrong.
    #[error("the listing is malformed: {0}")]
    Malformed(&'static str),
    /// Above one of the [`Limits`].
    #[error("the listing is above the limit of {0}")]
    TooLarge(&'static str),
    /// XML, but another document.
    #[error("the response is not a WebDAV listing")]
    NotMultistatus,
    /// A `response` that does not say of what.
    #[error("the listing has an entry without a name")]
    MissingHref,
    /// The input ends before the document does.
    #[error("the listing ends too early")]
    Truncated,
}

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
