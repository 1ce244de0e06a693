//! INIT: the version and the features that both sides use.

use super::CodecError;
use super::wire::{Fields, Out};

/// The version of the protocol. All minor versions from [`LEAST_MINOR`] (Linux 5.4) on are supported.
const MAJOR: u32 = 7;
const LEAST_MINOR: u32 = 31;
const MINOR: u32 = 38;

/// Longest request and response in bytes, without their heads.
pub(crate) const MAX_REQUEST: u32 = 1 << 20;

/// Pages of the longest request. With larger pages, these are more than [`MAX_REQUEST`] bytes: the mount option
/// `max_read` limits reads, and `Listing` its own length.
const MAX_PAGES: u16 = (MAX_REQUEST / 4096) as u16;

/// Most requests in flight for which no process waits (read-ahead of the kernel).
const MAX_BACKGROUND: u16 = 64;
/// From this number of such requests on, the kernel reads less ahead.
const CONGESTION: u16 = 48;

/// Flags of `struct fuse_init_in` and `fuse_init_out`. Not `CACHE_SYMLINKS`: the kernel would cache the target of a
/// link for as long as it knows the node, whatever the age of its attributes.
mod flag {
    pub(super) const ASYNC_READ: u32 = 1 << 0;
    /// OPEN with `O_TRUNC` truncates the file itself; otherwise, a SETATTR without a handle would follow.
    pub(super) const ATOMIC_O_TRUNC: u32 = 1 << 3;
    pub(super) const BIG_WRITES: u32 = 1 << 5;
    pub(super) const AUTO_INVAL_DATA: u32 = 1 << 12;
    pub(super) const DO_READDIRPLUS: u32 = 1 << 13;
    pub(super) const READDIRPLUS_AUTO: u32 = 1 << 14;
    pub(super) const ASYNC_DIO: u32 = 1 << 15;
    pub(super) const PARALLEL_DIROPS: u32 = 1 << 18;
    pub(super) const ABORT_ERROR: u32 = 1 << 21;
    pub(super) const MAX_PAGES: u32 = 1 << 22;
}

const WANTED: u32 = flag::ASYNC_READ
    | flag::ATOMIC_O_TRUNC
    | flag::BIG_WRITES
    | flag::AUTO_INVAL_DATA
    | flag::DO_READDIRPLUS
    | flag::READDIRPLUS_AUTO
    | flag::ASYNC_DIO
    | flag::PARALLEL_DIROPS
    | flag::ABORT_ERROR
    | flag::MAX_PAGES;

/// What the kernel offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InitRequest {
    major: u32,
    minor: u32,
    flags: u32,
}

impl InitRequest {
    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self, CodecError> {
        let major = fields.u32("major version")?;
        let minor = fields.u32("minor version")?;
        // A later major version may have other fields: only the two numbers count then.
        let is_known = major == MAJOR;
        let mut next = |field| if is_known { fields.u32(field) } else { Ok(0) };
        next("read-ahead")?;
        let flags = next("flags")?;
        Ok(Self { major, minor, flags })
    }
}

/// The outcome of negotiating the version of the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Negotiated {
    /// The connection is ready; the body of the response.
    Ready(Vec<u8>),
    /// The kernel repeats INIT with this version; the body of the response.
    Again(Vec<u8>),
    /// The kernel is too old.
    TooOld,
}

/// Chooses version and features.
pub(crate) fn negotiate(offered: &InitRequest) -> Negotiated {
    if offered.major > MAJOR {
        return Negotiated::Again(too_new());
    }
    if offered.major < MAJOR || offered.minor < LEAST_MINOR {
        return Negotiated::TooOld;
    }
    let mut out = Out::with_capacity(64);
    // The kernel reads ahead at most the `read_ahead_kb` of the mount: 128 KiB, unless root (also `attach`) sets more.
    out.u32(MAJOR).u32(MINOR).u32(MAX_REQUEST).u32(offered.flags & WANTED);
    // The unit of times, 1 ns.
    out.u16(MAX_BACKGROUND).u16(CONGESTION).u32(MAX_REQUEST).u32(1);
    // No alignment of mappings, no further flags, and unused fields.
    out.u16(MAX_PAGES).u16(0).u32(0).raw(&[0; 28]);
    Negotiated::Ready(out.done())
}

/// The response to a kernel with a later major version.
fn too_new() -> Vec<u8> {
    let mut out = Out::with_capacity(64);
    out.u32(MAJOR).u32(MINOR).raw(&[0; 56]);
    out.done()
}
