//! The peer protocol on the wire, between decrypted bytes and the types of [`haul_storage`].
//!
//! [`Deframer`] cuts received bytes into frames, [`decode`] parses a frame's message
//! ([`messages`]), and [`convert`] checks it field by field and converts it to a type of `haul_storage`.
//! Bulk data bypasses the messages: it stays in the pieces in which it arrived, and its hash is
//! checked by [`verify`].
//!
//! Everything here is pure: no I/O, no clocks. The other side is not trusted: lengths are checked before
//! anything is allocated, numbers and texts before they are used, and nothing panics.
//! `docs/peer-protocol.md` has the layout in bytes.

pub mod convert;
mod count;
mod frame;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod messages;
mod piece;
#[cfg(test)]
mod tests;

pub use frame::{
    BULK_HEADER, BulkHeader, Deframer, FRAME_HEADER, Frame, Limits, PADDING_MAX, bulk_head,
    message_frame, padding_frame,
};
pub use piece::{Hash, PIECE, Root, piece_hash, verify};

use bytes::Bytes;
use haul_storage::{Error, ErrorKind, RelPathError};

/// The version of the protocol.
pub const VERSION: u32 = 1;

/// The oldest version that this program speaks.
pub const MIN_VERSION: u32 = 1;

/// Maximum number of fields in the body of one message, which includes repeated ones (paths, entries). Checked before
/// the message is decoded, because an item takes more bytes in memory than on the wire.
pub const ITEMS_MAX: usize = 8192;

/// Messages of a listing that are sent before the client has permitted more: a client that consumes them slowly need
/// not hold a whole directory in memory.
pub const LISTED_AHEAD: u32 = 32;

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
    /// A message with more items than [`ITEMS_MAX`], or a field with more than its limit.
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
    /// A path that does not lie below the root.
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

/// Parses the message of a frame. Byte fields of the result are slices of `bytes`.
///
/// # Errors
/// If it is not a valid protobuf message, or has more than [`ITEMS_MAX`] items. Unknown fields are ignored.
pub fn decode<M: prost::Message + Default>(bytes: Bytes) -> Result<M, WireError> {
    if count::items(&bytes)? > ITEMS_MAX {
        return Err(WireError::TooMany);
    }
    M::decode(bytes).map_err(|error| WireError::Malformed(error.to_string()))
}
