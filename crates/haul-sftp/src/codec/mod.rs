//! SFTP version 3 on the wire, both directions, as draft-ietf-secsh-filexfer-02 and OpenSSH's
//! PROTOCOL file have it.
//!
//! Bytes come in as they were decrypted; [`Deframer`] strings them into packets without copying;
//! [`Request::decode`] and [`Response::decode`] give the meaning, with the payload of READ's answer
//! and of WRITE as a [`Block`](haul_storage::Block) of slices of what came in. Every length is
//! checked against what is there, and a packet's length against a limit, before anything is
//! allocated.
//!
//! Encoding gives the header in one piece and leaves the payload as it is, so that it is not copied
//! either.

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
pub use names::Names;
pub use request::{OpenFlags, Request};
pub use response::{DATA_HEAD, Name, Response, Status, data_head};

use bytes::Bytes;

/// The version of the protocol.
pub const VERSION: u32 = 3;

/// The longest handle (draft 02, section 3: "must not exceed 256 bytes").
pub const HANDLE_MAX: usize = 256;

/// The longest packet that OpenSSH takes or sends (`SFTP_MAX_MSG_LENGTH`).
pub const OPENSSH_PACKET_MAX: u32 = 256 * 1024;

/// What every server has to take in one packet (draft 02, section 3).
pub const LEAST_PACKET: u32 = 34_000;

/// What a server calls an open file or directory.
pub type Handle = Bytes;

/// Bytes that are not SFTP.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// A packet says that it is longer than is accepted.
    #[error("a packet of {length} bytes, when {limit} are accepted")]
    TooLong {
        /// What it says.
        length: u32,
        /// What is accepted.
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
        /// Which field.
        field: &'static str,
    },
    /// There is something behind a packet's last field.
    #[error("a packet of type {kind} has {bytes} bytes too many")]
    Trailing {
        /// The packet's type.
        kind: u8,
        /// How many.
        bytes: usize,
    },
    /// A packet of a type that does not belong here.
    #[error("a packet of unknown type {0}")]
    UnknownKind(u8),
    /// A field has a value that it must not have.
    #[error("a packet of type {kind} has an impossible {field}")]
    Invalid {
        /// The packet's type.
        kind: u8,
        /// Which field.
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
