//! The wire format of SFTP version 3, both directions (draft-ietf-secsh-filexfer-02 and OpenSSH's PROTOCOL file).
//!
//! [`Deframer`] assembles packets from decrypted bytes without copying. [`Request::decode`] and [`Response::decode`]
//! parse packets; the payload of WRITE and of a response to READ is a [`Block`](haul_storage::Block) of slices of the
//! received bytes. Each length is checked against the bytes present, and the length of a packet against a limit, before
//! anything is allocated.
//!
//! Encoding returns the header in one piece and leaves the payload as it is, so that it is not copied either.

mod attrs;
mod extension;
mod file_hash;
mod frame;
mod names;
mod request;
mod response;
#[cfg(test)]
mod tests;
mod wire;

pub use attrs::{Attrs, FileKind};
pub use extension::{Extended, Extensions, Limits, StatVfs, name};
pub use file_hash::FileHash;
pub use frame::{Deframer, Frame};
pub use names::{Name, Names};
pub use request::{OpenFlags, Request};
pub use response::{DATA_HEAD, Response, Status, data_head};

use bytes::Bytes;

/// The version of the protocol.
pub const VERSION: u32 = 3;

/// The longest handle (draft 02, section 7: "MUST NOT exceed 256 data bytes").
pub const HANDLE_MAX: usize = 256;

/// The longest packet that OpenSSH accepts or sends (`SFTP_MAX_MSG_LENGTH`).
pub const OPENSSH_PACKET_MAX: u32 = 256 * 1024;

/// The packet size that every server should support (draft 02, section 3).
pub const LEAST_PACKET: u32 = 34_000;

/// A server's name for an open file or directory.
pub type Handle = Bytes;

/// The error for received bytes that are not valid SFTP.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// A packet is longer than the limit.
    #[error("a packet of {length} bytes, when {limit} are accepted")]
    TooLong {
        /// Its length.
        length: u32,
        /// The limit.
        limit: u32,
    },
    /// A packet without a type.
    #[error("an empty packet")]
    Empty,
    /// A packet ends before its last field.
    #[error("a packet of type {kind} ends within its {field}")]
    Truncated {
        /// The packet's type.
        kind: u8,
        /// The field.
        field: &'static str,
    },
    /// There are bytes after the last field of a packet.
    #[error("a packet of type {kind} has {bytes} bytes too many")]
    Trailing {
        /// The packet's type.
        kind: u8,
        /// The number of bytes after the last field.
        bytes: usize,
    },
    /// A packet of an unknown type, or of one that is not valid in this direction.
    #[error("a packet of unknown type {0}")]
    UnknownKind(u8),
    /// A field has an invalid value.
    #[error("a packet of type {kind} has an impossible {field}")]
    Invalid {
        /// The packet's type.
        kind: u8,
        /// The field.
        field: &'static str,
    },
}

/// Packet types.
pub(crate) mod kind {
    pub const INIT: u8 = 1;
    pub const VERSION: u8 = 2;
    pub const OPEN: u8 = 3;
    pub const CLOSE: u8 = 4;
    pub const READ: u8 = 5;
    pub const WRITE: u8 = 6;
    pub const LSTAT: u8 = 7;
    pub const FSTAT: u8 = 8;
    pub const SETSTAT: u8 = 9;
    pub const FSETSTAT: u8 = 10;
    pub const OPENDIR: u8 = 11;
    pub const READDIR: u8 = 12;
    pub const REMOVE: u8 = 13;
    pub const MKDIR: u8 = 14;
    pub const RMDIR: u8 = 15;
    pub const REALPATH: u8 = 16;
    pub const STAT: u8 = 17;
    pub const RENAME: u8 = 18;
    pub const READLINK: u8 = 19;
    pub const SYMLINK: u8 = 20;
    pub const STATUS: u8 = 101;
    pub const HANDLE: u8 = 102;
    pub const DATA: u8 = 103;
    pub const NAME: u8 = 104;
    pub const ATTRS: u8 = 105;
    pub const EXTENDED: u8 = 200;
    pub const EXTENDED_REPLY: u8 = 201;
}
