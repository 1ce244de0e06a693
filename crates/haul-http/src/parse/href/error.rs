//! Why a link is not followed.

/// The longest link that is looked at. Servers refuse requests of some 8 KiB (RFC 9112, section 3
/// recommends to take 8000 bytes); a path of 4096 bytes is three times as long encoded.
pub const LONGEST: usize = 16 * 1024;

/// Why a link is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum HrefError {
    /// There is nothing in it.
    #[error("an empty link")]
    Empty,
    /// Longer than [`LONGEST`].
    #[error("a link of more than {LONGEST} bytes")]
    TooLong,
    /// It has control characters, or a `%` without two digits.
    #[error("a malformed link")]
    Malformed,
    /// A host, port or scheme other than that of the directory.
    #[error("a link to another server")]
    OtherServer,
    /// A scheme other than http and https, or none where one is needed.
    #[error("a link that is not http or https")]
    Scheme,
    /// A user or password in it.
    #[error("a link with credentials in it")]
    Credentials,
    /// A query or a fragment, which no file has.
    #[error("a link with a query or fragment")]
    Query,
    /// Somewhere else on the same server.
    #[error("a link to outside of the directory")]
    Outside,
    /// `..`, encoded or not.
    #[error("a link with '..' in it")]
    DotDot,
    /// A `/` within a name, encoded.
    #[error("a name with an encoded '/' in it")]
    Separator,
    /// A NUL byte in a name.
    #[error("a name with a NUL byte in it")]
    Nul,
    /// Below a directory in the directory.
    #[error("a link to deeper within the directory")]
    Deeper,
}
