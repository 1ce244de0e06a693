//! The kernel's FUSE protocol, version 7.31 and later (`include/uapi/linux/fuse.h`), without I/O.
//!
//! [`Request::decode`] parses what was read from `/dev/fuse`; [`Reply`] is the response, encoded by the functions of
//! `reply`. Numbers are in the byte order of the machine. Each length is checked against the bytes present before
//! anything is allocated.

mod change;
mod init;
mod reply;
mod request;
#[cfg(test)]
mod tests;
mod wire;

pub(crate) use change::{Change, NewAttributes, NewTime};
pub(crate) use init::{MAX_REQUEST, Negotiated, negotiate};
pub(crate) use reply::{
    Attributes, Body, Handle, Kind, Listing, ListingEntry, Opening, Reply, Statistics, attributes,
    entry, no_entry, outdated, outdated_entry, reply_head, statistics, written,
};
pub(crate) use request::{Header, Operation, Request};

/// The node number of the root.
pub(crate) const ROOT: u64 = 1;

/// Longest name in bytes: programs have no room for longer ones.
pub(crate) const NAME_MAX: usize = 255;

/// Bytes that are not a FUSE request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CodecError {
    /// A request ends before its last field.
    #[error("a request of type {opcode} ends within its {field}")]
    Truncated {
        /// The operation.
        opcode: u32,
        /// The field.
        field: &'static str,
    },
    /// The length in the header is not that of the request, or the header is incomplete.
    #[error("a request of {bytes} bytes has the length {length} in its header")]
    Length {
        /// The length in the header.
        length: u32,
        /// Bytes present.
        bytes: usize,
    },
}
