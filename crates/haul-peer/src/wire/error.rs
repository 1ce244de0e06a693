//! Violations of the peer protocol.

use haul_storage::{Error, ErrorKind, RelPathError};

/// A violation of the peer protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A frame is longer than the limit.
    #[error("a frame of {length} bytes, when {limit} are accepted")]
    TooLong {
        /// Its length in bytes, without its header.
        length: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A frame without a kind.
    #[error("an empty frame")]
    Empty,
    /// A bulk frame that is shorter than its header.
    #[error("a bulk frame of {0} bytes is shorter than its header")]
    ShortBulk(usize),
    /// Bulk data before the Hello has been accepted.
    #[error("data before the connection is authenticated")]
    EarlyBulk,
    /// A piece whose hash is wrong.
    #[error("the data at offset {offset} does not have the hash sent with it")]
    WrongHash {
        /// Where the piece begins in the file.
        offset: u64,
    },
    /// A message that cannot be parsed.
    #[error("a message cannot be parsed: {0}")]
    Malformed(String),
    /// A message with more items than [`ITEMS_MAX`](super::ITEMS_MAX), or a field with more than its limit.
    #[error("a message has too many items")]
    TooMany,
    /// A message without a field that it must have, or with a value from a later version in its place.
    #[error("a message has no valid {0}")]
    Missing(&'static str),
    /// A field with an invalid value.
    #[error("a message has an invalid {0}")]
    Invalid(&'static str),
    /// A field that is longer than its limit.
    #[error("a message has a {0} that is too long")]
    LongField(&'static str),
    /// A path that [`RelPath`](haul_storage::RelPath) refuses, or a name that is not one component.
    #[error("a path {0}")]
    Path(RelPathError),
}

impl From<RelPathError> for WireError {
    fn from(error: RelPathError) -> Self {
        Self::Path(error)
    }
}

/// `Protocol`; `Corrupt` for a wrong hash.
impl From<WireError> for Error {
    fn from(error: WireError) -> Self {
        let kind = match error {
            WireError::WrongHash { .. } => ErrorKind::Corrupt,
            _ => ErrorKind::Protocol,
        };
        Self::new(kind, "understand the peer").because(error.to_string())
    }
}
