//! Requests of the kernel.

use super::CodecError;
use super::change::Change;
use super::init::InitRequest;
use super::wire::Fields;

/// Length of `struct fuse_in_header`.
const HEADER: usize = 40;

/// Numbers of operations (`enum fuse_opcode`). Those of changes are in `change`.
mod opcode {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const READLINK: u32 = 5;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const INIT: u32 = 26;
    pub(super) const OPENDIR: u32 = 27;
    pub(super) const READDIR: u32 = 28;
    pub(super) const RELEASEDIR: u32 = 29;
    pub(super) const ACCESS: u32 = 34;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const BATCH_FORGET: u32 = 42;
    pub(super) const READDIRPLUS: u32 = 44;
}

/// The fields that all requests have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The number of the request, which its response repeats.
    pub(crate) unique: u64,
    /// The node that it concerns.
    pub(crate) node: u64,
    /// The ID of the thread that waits for the response; 0 if it has none in the PID namespace of the mount.
    pub(crate) thread: u32,
}

/// A request of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// The fields that all requests have.
    pub(crate) header: Header,
    /// The requested operation.
    pub(crate) operation: Operation,
}

/// The operation of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Starts the connection.
    Init(InitRequest),
    /// Finds a name in a directory, and counts a reference to its node.
    Lookup(Vec<u8>),
    /// Drops references to the node; has no response.
    Forget(u64),
    /// Drops references to several nodes (node, references); has no response.
    BatchForget(Vec<(u64, u64)>),
    /// Attributes of a node.
    Getattr,
    /// The target of a symbolic link.
    Readlink,
    /// Opens a file, with these flags of `open(2)`.
    Open(u32),
    /// Reads an open file.
    Read {
        /// The open file.
        handle: u64,
        /// Offset in bytes.
        offset: u64,
        /// Most bytes to return.
        size: u32,
    },
    /// Closes a file.
    Release(u64),
    /// Opens a directory.
    Opendir,
    /// Lists an open directory.
    Readdir {
        /// The open directory.
        handle: u64,
        /// The position after the last entry that the kernel has.
        offset: u64,
        /// Most bytes to return.
        size: u32,
        /// Whether entries come with attributes, and a reference to each node.
        plus: bool,
    },
    /// Closes a directory.
    Releasedir(u64),
    /// Space of the file system.
    Statfs,
    /// Whether the caller may access a node.
    Access,
    /// Cancels the request with this number.
    Interrupt(u64),
    /// The file system was unmounted.
    Destroy,
    /// A change, or a request that only matters to writers.
    Change(Change),
    /// Any other operation.
    Other,
}

impl Request {
    /// The number of a request that cannot be decoded, to respond with an error: without a response, its process would
    /// wait forever.
    pub(crate) fn number(bytes: &[u8]) -> Option<u64> {
        let number = bytes.get(8..16)?.try_into().ok()?;
        Some(u64::from_ne_bytes(number))
    }

    /// Decodes a request. Bytes after the last known field are ignored: later versions add fields there.
    ///
    /// # Errors
    /// If it is shorter than its fields, or has another length than that in its header.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut fields = Fields::new(0, bytes);
        let length = fields.u32("length")?;
        let opcode = fields.u32("opcode")?;
        if length as usize != bytes.len() || bytes.len() < HEADER {
            return Err(CodecError::Length { length, bytes: bytes.len() });
        }
        let unique = fields.u64("unique")?;
        let node = fields.u64("node")?;
        let (_user, _group) = (fields.u32("user")?, fields.u32("group")?);
        let thread = fields.u32("thread")?;
        let body = Fields::new(opcode, &bytes[HEADER..]);
        let operation = Operation::decode(opcode, body)?;
        Ok(Self { header: Header { unique, node, thread }, operation })
    }
}

impl Operation {
    fn decode(opcode: u32, mut fields: Fields<'_>) -> Result<Self, CodecError> {
        Ok(match opcode {
            opcode::INIT => Self::Init(InitRequest::decode(&mut fields)?),
            opcode::LOOKUP => Self::Lookup(fields.name("name")?.to_vec()),
            opcode::FORGET => Self::Forget(fields.u64("lookups")?),
            opcode::BATCH_FORGET => Self::BatchForget(forgotten(&mut fields)?),
            opcode::GETATTR => Self::Getattr,
            opcode::READLINK => Self::Readlink,
            opcode::OPEN => Self::Open(fields.u32("flags")?),
            opcode::READ => {
                let (handle, offset, size) = read(&mut fields)?;
                Self::Read { handle, offset, size }
            }
            opcode::RELEASE => Self::Release(fields.u64("handle")?),
            opcode::OPENDIR => Self::Opendir,
            opcode::READDIR | opcode::READDIRPLUS => {
                let (handle, offset, size) = read(&mut fields)?;
                Self::Readdir { handle, offset, size, plus: opcode == opcode::READDIRPLUS }
            }
            opcode::RELEASEDIR => Self::Releasedir(fields.u64("handle")?),
            opcode::STATFS => Self::Statfs,
            opcode::ACCESS => Self::Access,
            opcode::INTERRUPT => Self::Interrupt(fields.u64("unique")?),
            opcode::DESTROY => Self::Destroy,
            other => match Change::decode(other, &mut fields)? {
                Some(change) => Self::Change(change),
                None => Self::Other,
            },
        })
    }
}

/// Handle, offset and size of `struct fuse_read_in`.
fn read(fields: &mut Fields<'_>) -> Result<(u64, u64, u32), CodecError> {
    Ok((fields.u64("handle")?, fields.u64("offset")?, fields.u32("size")?))
}

/// `struct fuse_batch_forget_in`, and each `struct fuse_forget_one` after it.
fn forgotten(fields: &mut Fields<'_>) -> Result<Vec<(u64, u64)>, CodecError> {
    const FORGET_ONE: usize = 16;
    let count = fields.u32("count")? as usize;
    fields.u32("padding")?;
    let mut nodes = Vec::with_capacity(count.min(fields.remaining() / FORGET_ONE));
    for _ in 0..count {
        nodes.push((fields.u64("node")?, fields.u64("lookups")?));
    }
    Ok(nodes)
}
