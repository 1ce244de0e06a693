//! Why a link is not followed.

/// The longest link that is accepted. Servers refuse request lines above some 8 KiB (RFC 9112, section 3,
/// recommends to support 8000 bytes); a path of 4096 bytes is up to three times as long when encoded.
pub const LONGEST: usize = 16 * 1024;

/// Why a link is not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum HrefError {
    /// It is empty.
    #[error("an empty link")]
    Empty,
    /// Longer than [`LONGEST`].
    #[error("a link of more than {LONGEST} bytes")]
    TooLong,
    /// It has control characters, a `%` without two hexadecimal digits, an invalid host or port, or no `//`
    /// after the scheme.
    #[error("a malformed link")]
    Malformed,
    /// A host, port or scheme other than that of the directory.
    #[error("a link to another server")]
    OtherServer,
    /// A scheme other than http and https, or none where one is required.
    #[error("a link that is not http or https")]
    Scheme,
    /// It contains a user name or password.
    #[error("a link with credentials in it")]
    Credentials,
    /// It has a query or a fragment, which no file has.
    #[error("a link with a query or fragment")]
    Query,
    /// Somewhere else on the same server.
    #[error("a link outside the directory")]
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
    /// Below a subdirectory of the directory.
    #[error("a link into a subdirectory")]
    Deeper,
}
