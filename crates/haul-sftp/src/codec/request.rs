//! Requests of a client.

use bytes::{Buf, Bytes};
use haul_storage::Block;

use super::extension::Extended;
use super::wire::{Fields, Packet};
use super::{Attrs, CodecError, Extensions, Frame, HANDLE_MAX, Handle, kind};

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenFlags(pub u32);

impl OpenFlags {
    /// For reading.
    pub const READ: Self = Self(1);
    /// For writing.
    pub const WRITE: Self = Self(2);
    /// Appending.
    pub const APPEND: Self = Self(4);
    /// Create the file if it does not exist.
    pub const CREATE: Self = Self(8);
    /// Truncate it to 0 bytes.
    pub const TRUNCATE: Self = Self(16);
    /// Fail if it exists.
    pub const EXCLUSIVE: Self = Self(32);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` is set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A request of a client. Paths are bytes, as in the server's file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Starts the session; has no id.
    Init {
        /// The highest version that the client supports.
        version: u32,
        /// Extensions of the client.
        extensions: Extensions,
    },
    /// Opens a file.
    Open {
        /// The path.
        path: Bytes,
        /// The flags.
        flags: OpenFlags,
        /// Attributes for a file that is created.
        attrs: Attrs,
    },
    /// Closes a file or directory.
    Close(Handle),
    /// Reads a range.
    Read {
        /// The file.
        handle: Handle,
        /// Offset in bytes.
        offset: u64,
        /// Length in bytes.
        length: u32,
    },
    /// Writes a range.
    Write {
        /// The file.
        handle: Handle,
        /// Offset in bytes.
        offset: u64,
        /// The data.
        data: Block,
    },
    /// Stats an entry; does not follow links.
    Lstat(Bytes),
    /// Stats an open file.
    Fstat(Handle),
    /// Sets attributes.
    Setstat(Bytes, Attrs),
    /// Sets attributes of an open file.
    Fsetstat(Handle, Attrs),
    /// Opens a directory.
    Opendir(Bytes),
    /// Requests more entries of a directory.
    Readdir(Handle),
    /// Removes a file or link.
    Remove(Bytes),
    /// Creates a directory.
    Mkdir(Bytes, Attrs),
    /// Removes an empty directory.
    Rmdir(Bytes),
    /// Makes a path absolute.
    Realpath(Bytes),
    /// Stats an entry; follows links.
    Stat(Bytes),
    /// Renames; fails if the new name exists.
    Rename {
        /// From.
        from: Bytes,
        /// To.
        to: Bytes,
    },
    /// Requests the target of a link.
    Readlink(Bytes),
    /// Creates a symbolic link. The fields on the wire are in OpenSSH's order, which differs from
    /// the draft's (OpenSSH PROTOCOL, section 4.1).
    Symlink {
        /// The target.
        target: Bytes,
        /// The path of the link.
        link: Bytes,
    },
    /// Extensions of version 3.
    Extended(Extended),
}

impl Request {
    /// Drops extended attributes, for which version 3 defines no meaning.
    pub(crate) fn forget_extended(&mut self) {
        match self {
            Self::Open { attrs, .. }
            | Self::Setstat(_, attrs)
            | Self::Fsetstat(_, attrs)
            | Self::Mkdir(_, attrs)
            | Self::Extended(Extended::Lsetstat(_, attrs)) => attrs.extended = Vec::new(),
            _ => {}
        }
    }

    /// Decodes a request and its id (0 for `Init`).
    ///
    /// # Errors
    /// If it is malformed, or of an unknown kind.
    pub fn decode(frame: Frame) -> Result<(u32, Self), CodecError> {
        let Frame { kind, body } = frame;
        if kind == kind::WRITE {
            return decode_write(body);
        }
        let mut fields = Fields::new(kind, body.into_bytes());
        if kind == kind::INIT {
            let version = fields.u32("version")?;
            let extensions = Extensions::decode(&mut fields)?;
            return Ok((0, Self::Init { version, extensions }));
        }
        let id = fields.u32("id")?;
        let request = match kind {
            kind::OPEN => Self::Open {
                path: fields.string("path")?,
                flags: OpenFlags(fields.u32("flags")?),
                attrs: Attrs::decode(&mut fields)?,
            },
            kind::CLOSE => Self::Close(fields.handle()?),
            kind::READ => Self::Read {
                handle: fields.handle()?,
                offset: fields.u64("offset")?,
                length: fields.u32("length")?,
            },
            kind::LSTAT => Self::Lstat(fields.string("path")?),
            kind::FSTAT => Self::Fstat(fields.handle()?),
            kind::SETSTAT => Self::Setstat(fields.string("path")?, Attrs::decode(&mut fields)?),
            kind::FSETSTAT => Self::Fsetstat(fields.handle()?, Attrs::decode(&mut fields)?),
            kind::OPENDIR => Self::Opendir(fields.string("path")?),
            kind::READDIR => Self::Readdir(fields.handle()?),
            kind::REMOVE => Self::Remove(fields.string("path")?),
            kind::MKDIR => Self::Mkdir(fields.string("path")?, Attrs::decode(&mut fields)?),
            kind::RMDIR => Self::Rmdir(fields.string("path")?),
            kind::REALPATH => Self::Realpath(fields.string("path")?),
            kind::STAT => Self::Stat(fields.string("path")?),
            kind::RENAME => {
                Self::Rename { from: fields.string("path")?, to: fields.string("new path")? }
            }
            kind::READLINK => Self::Readlink(fields.string("path")?),
            kind::SYMLINK => {
                Self::Symlink { target: fields.string("target")?, link: fields.string("path")? }
            }
            kind::EXTENDED => return Ok((id, Self::Extended(Extended::decode(fields)?))),
            other => return Err(CodecError::UnknownKind(other)),
        };
        // Some clients append more than they should to REALPATH and MKDIR (attributes, a control
        // byte of a later version); OpenSSH's server ignores it, too.
        Ok((id, request))
    }

    /// Encodes the packet without the payload of a `Write`, which has to follow unchanged.
    pub fn encode(&self, id: u32) -> Bytes {
        let head = |kind: u8| Packet::new(kind).u32(id);
        match self {
            Self::Init { version, extensions } => {
                extensions.encode(Packet::new(kind::INIT).u32(*version)).done()
            }
            Self::Open { path, flags, attrs } => {
                attrs.encode(head(kind::OPEN).string(path).u32(flags.0)).done()
            }
            Self::Close(handle) => head(kind::CLOSE).string(handle).done(),
            Self::Read { handle, offset, length } => {
                head(kind::READ).string(handle).u64(*offset).u32(*length).done()
            }
            Self::Write { handle, offset, data } => {
                let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
                let head = head(kind::WRITE).string(handle).u64(*offset).u32(length);
                head.done_before(data.len())
            }
            Self::Lstat(path) => head(kind::LSTAT).string(path).done(),
            Self::Fstat(handle) => head(kind::FSTAT).string(handle).done(),
            Self::Setstat(path, attrs) => attrs.encode(head(kind::SETSTAT).string(path)).done(),
            Self::Fsetstat(handle, attrs) => {
                attrs.encode(head(kind::FSETSTAT).string(handle)).done()
            }
            Self::Opendir(path) => head(kind::OPENDIR).string(path).done(),
            Self::Readdir(handle) => head(kind::READDIR).string(handle).done(),
            Self::Remove(path) => head(kind::REMOVE).string(path).done(),
            Self::Mkdir(path, attrs) => attrs.encode(head(kind::MKDIR).string(path)).done(),
            Self::Rmdir(path) => head(kind::RMDIR).string(path).done(),
            Self::Realpath(path) => head(kind::REALPATH).string(path).done(),
            Self::Stat(path) => head(kind::STAT).string(path).done(),
            Self::Rename { from, to } => head(kind::RENAME).string(from).string(to).done(),
            Self::Readlink(path) => head(kind::READLINK).string(path).done(),
            Self::Symlink { target, link } => {
                head(kind::SYMLINK).string(target).string(link).done()
            }
            Self::Extended(extended) => extended.encode(head(kind::EXTENDED)).done(),
        }
    }

    /// The bytes that follow the packet from [`Request::encode`].
    pub fn payload(&self) -> Option<&Block> {
        match self {
            Self::Write { data, .. } => Some(data),
            _ => None,
        }
    }
}

/// Fields before the payload are copied if they are in several pieces; the payload is not.
fn decode_write(mut body: Block) -> Result<(u32, Request), CodecError> {
    let kind = kind::WRITE;
    // id, the handle's length
    let rest = body.split_off(8);
    let mut fields = Fields::new(kind, body.into_bytes());
    let id = fields.u32("id")?;
    let handle_length = fields.u32("handle")? as usize;
    if handle_length > HANDLE_MAX {
        return Err(fields.invalid("handle"));
    }
    let mut head = rest;
    let mut data = head.split_off(handle_length + 12);
    let mut head = head.into_bytes();
    if head.len() < handle_length + 12 {
        return Err(CodecError::Truncated { kind, field: "head" });
    }
    let handle = head.split_to(handle_length);
    let offset = head.get_u64();
    let length = head.get_u32() as usize;
    match data.len() {
        found if found < length => Err(CodecError::Truncated { kind, field: "data" }),
        _ => {
            // rclone's library sends the rest of its buffer after the last piece of a file, which
            // OpenSSH's server ignores.
            data.truncate(length);
            Ok((id, Request::Write { handle, offset, data }))
        }
    }
}
