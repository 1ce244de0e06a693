//! Requests that change something, and those that only matter to writers.

use haul_storage::Timestamp;

use super::CodecError;
use super::wire::Fields;

/// Numbers of operations (`enum fuse_opcode`).
mod opcode {
    pub(super) const SETATTR: u32 = 4;
    pub(super) const SYMLINK: u32 = 6;
    pub(super) const MKNOD: u32 = 8;
    pub(super) const MKDIR: u32 = 9;
    pub(super) const UNLINK: u32 = 10;
    pub(super) const RMDIR: u32 = 11;
    pub(super) const RENAME: u32 = 12;
    pub(super) const LINK: u32 = 13;
    pub(super) const WRITE: u32 = 16;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const SETXATTR: u32 = 21;
    pub(super) const REMOVEXATTR: u32 = 24;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const CREATE: u32 = 35;
    pub(super) const FALLOCATE: u32 = 43;
    pub(super) const RENAME2: u32 = 45;
    pub(super) const TMPFILE: u32 = 51;
}

/// A write of pages (`FUSE_WRITE_CACHE`).
const WRITE_CACHE: u32 = 1 << 0;

/// What is to be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Sets attributes of the node.
    Setattr(NewAttributes),
    /// Creates a symbolic link in the node.
    Symlink { name: Vec<u8>, target: Vec<u8> },
    /// Creates a file (of a type in `mode`) in the node.
    Mknod { name: Vec<u8>, mode: u32 },
    /// Creates a directory in the node.
    Mkdir { name: Vec<u8>, mode: u32 },
    /// Removes a file from the node.
    Unlink(Vec<u8>),
    /// Removes a directory from the node.
    Rmdir(Vec<u8>),
    /// Moves an entry of the node to `new_name` in `parent`; `flags` are those of `renameat2`.
    Rename { name: Vec<u8>, parent: u64, new_name: Vec<u8>, flags: u32 },
    /// Creates a hard link.
    Link,
    /// Writes to an open file. With `is_page`, these are pages of a mapping, which belong at their offset even if the
    /// file is open for appending: the kernel takes any handle of the file that may write.
    Write { handle: u64, offset: u64, data: Vec<u8>, is_page: bool },
    /// Creates a file in the node unless it exists, and opens it.
    Create { name: Vec<u8>, flags: u32, mode: u32 },
    /// A descriptor of an open file is closed.
    Flush(u64),
    /// Waits until an open file is stored.
    Fsync(u64),
    /// Reserves or removes space of an open file; `mode` is that of `fallocate(2)`.
    Fallocate { handle: u64, offset: u64, length: u64, mode: u32 },
    /// A change that is never possible.
    Unsupported,
}

/// Attributes to set; those that are `None` stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct NewAttributes {
    /// The open file through which they are set.
    pub(crate) handle: Option<u64>,
    pub(crate) mode: Option<u32>,
    pub(crate) user: Option<u32>,
    pub(crate) group: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) modified: Option<NewTime>,
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewTime {
    /// The present time.
    Now,
    /// This time.
    At(Timestamp),
}

impl Change {
    /// Decodes a change; `None` if the operation is not a change.
    pub(super) fn decode(opcode: u32, fields: &mut Fields<'_>) -> Result<Option<Self>, CodecError> {
        Ok(Some(match opcode {
            opcode::SETATTR => Self::Setattr(NewAttributes::decode(fields)?),
            opcode::SYMLINK => {
                let name = fields.name("name")?.to_vec();
                Self::Symlink { name, target: fields.name("target")?.to_vec() }
            }
            opcode::MKNOD => {
                let mode = fields.u32("mode")?;
                fields.bytes(12, "device")?;
                Self::Mknod { name: fields.name("name")?.to_vec(), mode }
            }
            opcode::MKDIR => {
                let mode = fields.u32("mode")?;
                fields.u32("umask")?;
                Self::Mkdir { name: fields.name("name")?.to_vec(), mode }
            }
            opcode::UNLINK => Self::Unlink(fields.name("name")?.to_vec()),
            opcode::RMDIR => Self::Rmdir(fields.name("name")?.to_vec()),
            opcode::RENAME | opcode::RENAME2 => {
                let parent = fields.u64("directory")?;
                let mut flags = 0;
                if opcode == opcode::RENAME2 {
                    flags = fields.u32("flags")?;
                    fields.u32("padding")?;
                }
                let name = fields.name("name")?.to_vec();
                Self::Rename { name, parent, new_name: fields.name("new name")?.to_vec(), flags }
            }
            opcode::LINK => Self::Link,
            opcode::WRITE => {
                let (handle, offset) = (fields.u64("handle")?, fields.u64("offset")?);
                let size = fields.u32("size")? as usize;
                let is_page = fields.u32("flags of the write")? & WRITE_CACHE != 0;
                fields.bytes(16, "owner of locks")?;
                let data = fields.bytes(size, "data")?.to_vec();
                Self::Write { handle, offset, data, is_page }
            }
            opcode::CREATE => {
                let (flags, mode) = (fields.u32("flags")?, fields.u32("mode")?);
                fields.u64("umask")?;
                Self::Create { name: fields.name("name")?.to_vec(), flags, mode }
            }
            opcode::FLUSH => Self::Flush(fields.u64("handle")?),
            opcode::FSYNC => Self::Fsync(fields.u64("handle")?),
            opcode::FALLOCATE => {
                let (handle, offset) = (fields.u64("handle")?, fields.u64("offset")?);
                let (length, mode) = (fields.u64("length")?, fields.u32("mode")?);
                Self::Fallocate { handle, offset, length, mode }
            }
            opcode::SETXATTR | opcode::REMOVEXATTR | opcode::TMPFILE => Self::Unsupported,
            _ => return Ok(None),
        }))
    }
}

impl NewAttributes {
    /// Decodes `struct fuse_setattr_in`.
    fn decode(fields: &mut Fields<'_>) -> Result<Self, CodecError> {
        const MODE: u32 = 1 << 0;
        const USER: u32 = 1 << 1;
        const GROUP: u32 = 1 << 2;
        const SIZE: u32 = 1 << 3;
        const MODIFIED: u32 = 1 << 5;
        const HANDLE: u32 = 1 << 6;
        const MODIFIED_NOW: u32 = 1 << 8;
        let valid = fields.u32("valid")?;
        fields.u32("padding")?;
        let (handle, size) = (fields.u64("handle")?, fields.u64("size")?);
        fields.bytes(16, "owner of locks")?;
        // The kernel takes them as signed.
        let seconds = fields.u64("modified")? as i64;
        fields.bytes(12, "changed")?;
        let nanos = fields.u32("modified")?.min(999_999_999);
        fields.u32("changed")?;
        let mode = fields.u32("mode")?;
        fields.u32("unused")?;
        let (user, group) = (fields.u32("user")?, fields.u32("group")?);
        let set = |flag| valid & flag != 0;
        let modified = if set(MODIFIED_NOW) {
            Some(NewTime::Now)
        } else {
            set(MODIFIED).then_some(NewTime::At(Timestamp { seconds, nanos }))
        };
        Ok(Self {
            handle: set(HANDLE).then_some(handle),
            mode: set(MODE).then_some(mode & 0o7777),
            user: set(USER).then_some(user),
            group: set(GROUP).then_some(group),
            size: set(SIZE).then_some(size),
            modified,
        })
    }
}
