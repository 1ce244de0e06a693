//! Attributes of a file, all of them optional.

use bytes::Bytes;

use super::CodecError;
use super::wire::{Fields, Packet};

const SIZE: u32 = 1;
const OWNER: u32 = 1 << 1;
const PERMISSIONS: u32 = 1 << 2;
const TIMES: u32 = 1 << 3;
const EXTENDED: u32 = 1 << 31;

const TYPE_MASK: u32 = 0o170_000;

/// The file type in the permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharDevice,
    /// Undefined type bits.
    Unknown,
}

/// Attributes of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attrs {
    /// Length in bytes.
    pub size: Option<u64>,
    /// User and group number.
    pub owner: Option<(u32, u32)>,
    /// Type and permission bits, as in `st_mode`.
    pub permissions: Option<u32>,
    /// Last access and last modification, in seconds since 1970, unsigned.
    pub times: Option<(u32, u32)>,
    /// Anything else, as name and value.
    pub extended: Vec<(Bytes, Bytes)>,
}

impl Attrs {
    /// The file type; `None` if the type bits are missing.
    pub fn kind(&self) -> Option<FileKind> {
        let bits = self.permissions? & TYPE_MASK;
        Some(match bits {
            0 => return None,
            0o100_000 => FileKind::File,
            0o040_000 => FileKind::Directory,
            0o120_000 => FileKind::Symlink,
            0o010_000 => FileKind::Fifo,
            0o140_000 => FileKind::Socket,
            0o060_000 => FileKind::BlockDevice,
            0o020_000 => FileKind::CharDevice,
            _ => FileKind::Unknown,
        })
    }

    pub(super) fn decode(fields: &mut Fields) -> Result<Self, CodecError> {
        let flags = fields.u32("attributes")?;
        let mut attrs = Self::default();
        if flags & SIZE != 0 {
            attrs.size = Some(fields.u64("size")?);
        }
        if flags & OWNER != 0 {
            attrs.owner = Some((fields.u32("user")?, fields.u32("group")?));
        }
        if flags & PERMISSIONS != 0 {
            attrs.permissions = Some(fields.u32("permissions")?);
        }
        if flags & TIMES != 0 {
            attrs.times = Some((fields.u32("access time")?, fields.u32("modification time")?));
        }
        if flags & EXTENDED != 0 {
            let count = fields.u32("extended attributes")? as usize;
            // Each has at least eight bytes. The error is `Truncated`, not `Invalid`: a long listing is decoded in
            // parts (`Names::take`), and the next part may have the rest.
            fields.need(count.saturating_mul(8), "extended attributes")?;
            for _ in 0..count {
                let name = fields.string("extended attribute")?;
                attrs.extended.push((name, fields.string("extended attribute")?));
            }
        }
        Ok(attrs)
    }

    pub(super) fn encode(&self, packet: Packet) -> Packet {
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let flags = flag(self.size.is_some(), SIZE)
            | flag(self.owner.is_some(), OWNER)
            | flag(self.permissions.is_some(), PERMISSIONS)
            | flag(self.times.is_some(), TIMES)
            | flag(!self.extended.is_empty(), EXTENDED);
        let mut packet = packet.u32(flags);
        if let Some(size) = self.size {
            packet = packet.u64(size);
        }
        if let Some((user, group)) = self.owner {
            packet = packet.u32(user).u32(group);
        }
        if let Some(permissions) = self.permissions {
            packet = packet.u32(permissions);
        }
        if let Some((accessed, modified)) = self.times {
            packet = packet.u32(accessed).u32(modified);
        }
        if !self.extended.is_empty() {
            packet = packet.u32(u32::try_from(self.extended.len()).unwrap_or(u32::MAX));
            for (name, value) in &self.extended {
                packet = packet.string(name).string(value);
            }
        }
        packet
    }
}
