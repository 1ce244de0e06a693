//! What is accepted of an answer, and why one is not.

/// How large an answer may be.
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
