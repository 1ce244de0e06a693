//! Limits of a response, and the reasons why one is refused.

/// How large a response may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one `response` element, and of one piece of markup or text.
    pub element_bytes: usize,
    /// Depth of nested elements.
    pub depth: usize,
    /// Attributes of one element.
    pub attributes: usize,
}

impl Default for Limits {
    /// Far above what servers send: Nextcloud's longest responses have some 5 KiB per file, at depth 6.
    fn default() -> Self {
        Self { element_bytes: 1 << 20, depth: 32, attributes: 64 }
    }
}

/// Why a response is not a usable multistatus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MultistatusError {
    /// Not in UTF-8, or declared to be in another encoding. With a declared superset of ASCII (ISO 8859,
    /// Windows-125x) only bytes beyond ASCII are refused.
    #[error("the listing is not in UTF-8")]
    Encoding,
    /// A document type or entity declaration.
    #[error("the listing declares a document type, which is not accepted")]
    DocumentType,
    /// Not well-formed, with the reason.
    #[error("the listing is malformed: {0}")]
    Malformed(&'static str),
    /// Above one of the [`Limits`].
    #[error("the listing exceeds the limit of {0}")]
    TooLarge(&'static str),
    /// Another document, or text outside the root element.
    #[error("the response is not a WebDAV listing")]
    NotMultistatus,
    /// A `response` without `href`.
    #[error("the listing has an entry without a name")]
    MissingHref,
    /// The input ends before the document does.
    #[error("the listing is truncated")]
    Truncated,
}
