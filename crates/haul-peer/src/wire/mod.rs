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
mod error;
mod frame;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod messages;
mod piece;
#[cfg(test)]
mod tests;

pub use error::WireError;
pub use frame::{
    BULK_HEADER, BulkHeader, Deframer, FRAME_HEADER, Frame, Limits, PADDING_MAX, bulk_head,
    message_frame, padding_frame,
};
pub use piece::{Hash, PIECE, Root, piece_hash, verify};

use bytes::Bytes;

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
