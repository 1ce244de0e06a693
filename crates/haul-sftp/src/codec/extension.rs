//! What OpenSSH added to version 3 (its PROTOCOL file, section 4).

use bytes::Bytes;

use super::wire::{Fields, Packet};
use super::{Attrs, CodecError, Handle};

/// Names of extensions.
pub mod name {
    /// Rename that replaces in one step.
    pub const POSIX_RENAME: &[u8] = b"posix-rename@openssh.com";
    /// Make a file durable.
    pub const FSYNC: &[u8] = b"fsync@openssh.com";
    /// A further name of a file.
    pub const HARDLINK: &[u8] = b"hardlink@openssh.com";
    /// Describe a file system.
    pub const STATVFS: &[u8] = b"statvfs@openssh.com";
    /// Describe the file system of an open file.
    pub const FSTATVFS: &[u8] = b"fstatvfs@openssh.com";
    /// Set attributes of a link itself.
    pub const LSETSTAT: &[u8] = b"lsetstat@openssh.com";
    /// Copy a range between open files.
    pub const COPY_DATA: &[u8] = b"copy-data";
    /// Make a path absolute, `~` too.
    pub const EXPAND_PATH: &[u8] = b"expand-path@openssh.com";
    /// The digest of a file (draft-ietf-secsh-filexfer-09, 9.1.2), as haul's server announces it.
    pub const CHECK_FILE_NAME: &[u8] = b"check-file-name";
    /// The same and the digest of an open file, as some servers announce them together.
    pub const CHECK_FILE: &[u8] = b"check-file";
    /// What the server takes at most.
    pub const LIMITS: &[u8] = b"limits@openssh.com";
}

/// Extensions as INIT and VERSION announce them: name and data, mostly a version number.
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
    /// Rename that replaces in one step.
    PosixRename {
        /// From.
        from: Bytes,
        /// To.
        to: Bytes,
    },
    /// Make an open file durable.
    Fsync(Handle),
    /// A further name of a file.
    Hardlink {
        /// The file.
        from: Bytes,
        /// The further name.
        to: Bytes,
    },
    /// Describe the file system of a path.
    Statvfs(Bytes),
    /// Describe the file system of an open file.
    Fstatvfs(Handle),
    /// Set attributes, of a link itself.
    Lsetstat(Bytes, Attrs),
    /// Copy a range between open files; `length` 0 means up to the end.
    CopyData {
        /// From which file.
        from: Handle,
        /// From where.
        from_offset: u64,
        /// How many bytes.
        length: u64,
        /// To which file.
        to: Handle,
        /// To where.
        to_offset: u64,
    },
    /// Make a path absolute, `~` too.
    ExpandPath(Bytes),
    /// What the server takes at most.
    Limits,
    /// Make a digest of a range of a file.
    CheckFileName {
        /// The file.
        path: Bytes,
        /// Names of functions with commas between them; the server uses the first that it knows.
        algorithms: Bytes,
        /// From where.
        offset: u64,
        /// How many bytes; 0 means up to the end.
        length: u64,
        /// Bytes of which each digest is; 0 means one digest of all.
        block: u32,
    },
    /// One that this codec does not know.
    Unknown {
        /// Its name.
        name: Bytes,
        /// What stands behind the name.
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

/// What a server takes at most; 0 means that it does not say.
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
    /// Reads the answer to [`Extended::Limits`].
    pub fn decode(reply: Bytes) -> Result<Self, CodecError> {
        let mut fields = Fields::new(super::kind::EXTENDED_REPLY, reply);
        Ok(Self {
            packet: fields.u64("packet limit")?,
            read: fields.u64("read limit")?,
            write: fields.u64("write limit")?,
            handles: fields.u64("handle limit")?,
        })
    }

    /// The answer to [`Extended::Limits`].
    pub fn encode(&self) -> Bytes {
        let numbers = [self.packet, self.read, self.write, self.handles];
        numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
    }
}

/// What `statvfs(3)` says of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatVfs {
    /// Block size.
    pub bsize: u64,
    /// Fragment size: the unit of the counts.
    pub frsize: u64,
    /// Blocks.
    pub blocks: u64,
    /// Free blocks.
    pub bfree: u64,
    /// Free blocks for users without privilege.
    pub bavail: u64,
    /// Inodes.
    pub files: u64,
    /// Free inodes.
    pub ffree: u64,
    /// Free inodes for users without privilege.
    pub favail: u64,
    /// Which file system.
    pub fsid: u64,
    /// 1 read only, 2 no set-user bits.
    pub flag: u64,
    /// The longest name.
    pub namemax: u64,
}

impl StatVfs {
    /// Reads the answer to [`Extended::Statvfs`].
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

    /// The answer to [`Extended::Statvfs`].
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
