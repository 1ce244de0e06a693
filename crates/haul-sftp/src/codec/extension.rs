//! OpenSSH's extensions of version 3 (its PROTOCOL file, section 4), and `check-file-name`
//! (draft-ietf-secsh-filexfer-09).

use bytes::Bytes;

use super::wire::{Fields, Packet};
use super::{Attrs, CodecError, Handle};

/// Names of extensions.
pub mod name {
    /// Rename that replaces atomically.
    pub const POSIX_RENAME: &[u8] = b"posix-rename@openssh.com";
    /// Sync a file to disk.
    pub const FSYNC: &[u8] = b"fsync@openssh.com";
    /// Create a hard link.
    pub const HARDLINK: &[u8] = b"hardlink@openssh.com";
    /// Free space and limits of a file system.
    pub const STATVFS: &[u8] = b"statvfs@openssh.com";
    /// The same for the file system of an open file.
    pub const FSTATVFS: &[u8] = b"fstatvfs@openssh.com";
    /// Set attributes of a link itself.
    pub const LSETSTAT: &[u8] = b"lsetstat@openssh.com";
    /// Copy a range between open files.
    pub const COPY_DATA: &[u8] = b"copy-data";
    /// Make a path absolute, including `~`.
    pub const EXPAND_PATH: &[u8] = b"expand-path@openssh.com";
    /// The digest of a file (draft-ietf-secsh-filexfer-09, 9.1.2), as haul's server announces it.
    pub const CHECK_FILE_NAME: &[u8] = b"check-file-name";
    /// Some servers announce both `check-file-name` and `check-file-handle` (the digest of an open file) by this.
    pub const CHECK_FILE: &[u8] = b"check-file";
    /// The server's limits.
    pub const LIMITS: &[u8] = b"limits@openssh.com";
}

/// Extensions announced by INIT and VERSION: name and data, usually a version number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extensions(pub Vec<(Bytes, Bytes)>);

impl Extensions {
    /// Whether `name` is announced.
    pub fn has(&self, name: &[u8]) -> bool {
        self.0.iter().any(|(announced, _)| announced == name)
    }

    pub(super) fn decode(fields: &mut Fields) -> Result<Self, CodecError> {
        let mut extensions = Vec::new();
        while !fields.is_empty() {
            let name = fields.string("extension")?;
            extensions.push((name, fields.string("extension")?));
        }
        Ok(Self(extensions))
    }

    pub(super) fn encode(&self, packet: Packet) -> Packet {
        self.0.iter().fold(packet, |packet, (name, data)| packet.string(name).string(data))
    }
}

/// A request beyond version 3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extended {
    /// Rename that replaces atomically.
    PosixRename {
        /// From.
        from: Bytes,
        /// To.
        to: Bytes,
    },
    /// Sync an open file to disk.
    Fsync(Handle),
    /// Create a hard link.
    Hardlink {
        /// The file.
        from: Bytes,
        /// The new name.
        to: Bytes,
    },
    /// Free space and limits of the file system of a path.
    Statvfs(Bytes),
    /// The same for the file system of an open file.
    Fstatvfs(Handle),
    /// Set attributes of a link itself.
    Lsetstat(Bytes, Attrs),
    /// Copy a range between open files; `length` 0 means up to the end.
    CopyData {
        /// The source.
        from: Handle,
        /// Offset in the source.
        from_offset: u64,
        /// Length in bytes.
        length: u64,
        /// The destination.
        to: Handle,
        /// Offset in the destination.
        to_offset: u64,
    },
    /// Make a path absolute, including `~`.
    ExpandPath(Bytes),
    /// The server's limits.
    Limits,
    /// Compute digests of a range of a file.
    CheckFileName {
        /// The file.
        path: Bytes,
        /// Hash functions, separated by commas; the server uses the first that it supports.
        algorithms: Bytes,
        /// Offset of the range.
        offset: u64,
        /// Length in bytes; 0 means up to the end.
        length: u64,
        /// Bytes per digest; 0 means one digest for the whole range.
        block: u32,
    },
    /// An extension that this codec does not know.
    Unknown {
        /// Its name.
        name: Bytes,
        /// The data after the name.
        data: Bytes,
    },
}

impl Extended {
    pub(super) fn decode(mut fields: Fields) -> Result<Self, CodecError> {
        let name = fields.string("extension")?;
        let extended = match &name[..] {
            name::POSIX_RENAME => {
                Self::PosixRename { from: fields.string("path")?, to: fields.string("new path")? }
            }
            name::FSYNC => Self::Fsync(fields.handle()?),
            name::HARDLINK => {
                Self::Hardlink { from: fields.string("path")?, to: fields.string("new path")? }
            }
            name::STATVFS => Self::Statvfs(fields.string("path")?),
            name::FSTATVFS => Self::Fstatvfs(fields.handle()?),
            name::LSETSTAT => Self::Lsetstat(fields.string("path")?, Attrs::decode(&mut fields)?),
            name::COPY_DATA => Self::CopyData {
                from: fields.handle()?,
                from_offset: fields.u64("offset")?,
                length: fields.u64("length")?,
                to: fields.handle()?,
                to_offset: fields.u64("offset")?,
            },
            name::EXPAND_PATH => Self::ExpandPath(fields.string("path")?),
            name::LIMITS => Self::Limits,
            name::CHECK_FILE_NAME => Self::CheckFileName {
                path: fields.string("path")?,
                algorithms: fields.string("hash functions")?,
                offset: fields.u64("offset")?,
                length: fields.u64("length")?,
                block: fields.u32("block length")?,
            },
            _ => return Ok(Self::Unknown { name, data: fields.rest() }),
        };
        fields.end()?;
        Ok(extended)
    }

    pub(super) fn encode(&self, packet: Packet) -> Packet {
        match self {
            Self::PosixRename { from, to } => {
                packet.string(name::POSIX_RENAME).string(from).string(to)
            }
            Self::Fsync(handle) => packet.string(name::FSYNC).string(handle),
            Self::Hardlink { from, to } => packet.string(name::HARDLINK).string(from).string(to),
            Self::Statvfs(path) => packet.string(name::STATVFS).string(path),
            Self::Fstatvfs(handle) => packet.string(name::FSTATVFS).string(handle),
            Self::Lsetstat(path, attrs) => attrs.encode(packet.string(name::LSETSTAT).string(path)),
            Self::CopyData { from, from_offset, length, to, to_offset } => packet
                .string(name::COPY_DATA)
                .string(from)
                .u64(*from_offset)
                .u64(*length)
                .string(to)
                .u64(*to_offset),
            Self::ExpandPath(path) => packet.string(name::EXPAND_PATH).string(path),
            Self::Limits => packet.string(name::LIMITS),
            Self::CheckFileName { path, algorithms, offset, length, block } => packet
                .string(name::CHECK_FILE_NAME)
                .string(path)
                .string(algorithms)
                .u64(*offset)
                .u64(*length)
                .u32(*block),
            Self::Unknown { name, data } => packet.string(name).raw(data),
        }
    }
}

/// A server's limits; 0 means unspecified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes in a packet.
    pub packet: u64,
    /// Bytes in one READ.
    pub read: u64,
    /// Bytes in one WRITE.
    pub write: u64,
    /// Open handles.
    pub handles: u64,
}

impl Limits {
    /// Decodes the response to [`Extended::Limits`].
    ///
    /// # Errors
    /// If it is too short.
    pub fn decode(reply: Bytes) -> Result<Self, CodecError> {
        let mut fields = Fields::new(super::kind::EXTENDED_REPLY, reply);
        Ok(Self {
            packet: fields.u64("packet limit")?,
            read: fields.u64("read limit")?,
            write: fields.u64("write limit")?,
            handles: fields.u64("handle limit")?,
        })
    }

    /// Encodes the response to [`Extended::Limits`].
    pub fn encode(&self) -> Bytes {
        let numbers = [self.packet, self.read, self.write, self.handles];
        numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
    }
}

/// The result of `statvfs(3)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatVfs {
    /// Block size.
    pub bsize: u64,
    /// Fragment size: the unit of the counts.
    pub frsize: u64,
    /// Total blocks.
    pub blocks: u64,
    /// Free blocks.
    pub bfree: u64,
    /// Free blocks for users without privilege.
    pub bavail: u64,
    /// Total inodes.
    pub files: u64,
    /// Free inodes.
    pub ffree: u64,
    /// Free inodes for users without privilege.
    pub favail: u64,
    /// File system id.
    pub fsid: u64,
    /// 1: read-only, 2: set-user-ID bits are ignored.
    pub flag: u64,
    /// Longest name in bytes.
    pub namemax: u64,
}

impl StatVfs {
    /// Decodes the response to [`Extended::Statvfs`].
    ///
    /// # Errors
    /// If it is too short.
    pub fn decode(reply: Bytes) -> Result<Self, CodecError> {
        let mut fields = Fields::new(super::kind::EXTENDED_REPLY, reply);
        let mut next = || fields.u64("statvfs");
        Ok(Self {
            bsize: next()?,
            frsize: next()?,
            blocks: next()?,
            bfree: next()?,
            bavail: next()?,
            files: next()?,
            ffree: next()?,
            favail: next()?,
            fsid: next()?,
            flag: next()?,
            namemax: next()?,
        })
    }

    /// Encodes the response to [`Extended::Statvfs`].
    pub fn encode(&self) -> Bytes {
        let numbers = [
            self.bsize,
            self.frsize,
            self.blocks,
            self.bfree,
            self.bavail,
            self.files,
            self.ffree,
            self.favail,
            self.fsid,
            self.flag,
            self.namemax,
        ];
        numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
    }
}
