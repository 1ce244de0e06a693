//! Entries, their versions, and what these consist of.

use bytes::Bytes;
use haul_storage::{
    Digest, DigestKind, Entry, EntryKind, FileId, Identity, SpecialKind, Timestamp,
};

use super::super::messages::{self, code};
use super::{
    TARGET_MAX, WireError, fixed, mode, path, path_bytes, size_from, size_to, tag_from, tag_to,
};

impl From<Timestamp> for messages::Time {
    fn from(time: Timestamp) -> Self {
        Self { seconds: time.seconds, nanos: time.nanos }
    }
}

impl TryFrom<messages::Time> for Timestamp {
    type Error = WireError;

    fn try_from(time: messages::Time) -> Result<Self, WireError> {
        if time.nanos >= 1_000_000_000 {
            return Err(WireError::Invalid("time"));
        }
        Ok(Self { seconds: time.seconds, nanos: time.nanos })
    }
}

pub(super) fn time_from(time: Option<messages::Time>) -> Result<Option<Timestamp>, WireError> {
    time.map(Timestamp::try_from).transpose()
}

pub(super) fn owner_to(owner: Option<(u32, u32)>) -> Option<messages::Owner> {
    owner.map(|(user, group)| messages::Owner { user, group })
}

pub(super) fn owner_from(owner: Option<messages::Owner>) -> Option<(u32, u32)> {
    owner.map(|owner| (owner.user, owner.group))
}

impl From<FileId> for messages::FileId {
    fn from(id: FileId) -> Self {
        Self { device: id.device, inode: id.inode }
    }
}

impl From<messages::FileId> for FileId {
    fn from(id: messages::FileId) -> Self {
        Self { device: id.device, inode: id.inode }
    }
}

impl From<DigestKind> for code::DigestKind {
    fn from(kind: DigestKind) -> Self {
        match kind {
            DigestKind::Blake3 => Self::Blake3,
            DigestKind::Sha256 => Self::Sha256,
        }
    }
}

impl From<code::DigestKind> for DigestKind {
    fn from(kind: code::DigestKind) -> Self {
        match kind {
            code::DigestKind::Blake3 => Self::Blake3,
            code::DigestKind::Sha256 => Self::Sha256,
        }
    }
}

impl From<&Digest> for messages::Digest {
    fn from(digest: &Digest) -> Self {
        Self {
            kind: code::DigestKind::from(digest.kind).number(),
            bytes: Bytes::copy_from_slice(&digest.bytes),
        }
    }
}

/// `None` for a digest of a kind from a later version.
pub(super) fn digest_from(digest: &messages::Digest) -> Result<Option<Digest>, WireError> {
    let Some(kind) = code::DigestKind::of(digest.kind) else { return Ok(None) };
    Ok(Some(Digest { kind: kind.into(), bytes: fixed(&digest.bytes, "digest")? }))
}

/// A tag that is longer than [`TAG_MAX`](super::TAG_MAX) is not sent.
impl From<&Entry> for messages::Entry {
    fn from(entry: &Entry) -> Self {
        let (kind, target) = kind_to(&entry.kind);
        Self {
            path: path_bytes(&entry.path),
            kind: kind.number(),
            target,
            size: if entry.is_file() { size_to(entry.size) } else { None },
            modified: entry.modified.map(Into::into),
            mode: entry.mode,
            owner: owner_to(entry.owner),
            id: entry.id.map(Into::into),
            links: (entry.links != 1).then_some(entry.links),
            tag: tag_to(entry.tag.as_ref()),
            digest: entry.digest.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<messages::Entry> for Entry {
    type Error = WireError;

    fn try_from(entry: messages::Entry) -> Result<Self, WireError> {
        let kind = kind_from(entry.kind, &entry.target)?;
        let size = if kind == EntryKind::File { size_from(entry.size) } else { 0 };
        let mut result = Self::new(path(&entry.path)?, kind, size);
        result.modified = time_from(entry.modified)?;
        result.mode = mode(entry.mode)?;
        result.owner = owner_from(entry.owner);
        result.id = entry.id.map(Into::into);
        result.links = entry.links.unwrap_or(1);
        result.tag = tag_from(entry.tag)?;
        result.digest = entry.digest.as_ref().map(digest_from).transpose()?.flatten();
        Ok(result)
    }
}

fn kind_to(kind: &EntryKind) -> (code::EntryKind, Bytes) {
    let code = match kind {
        EntryKind::File => code::EntryKind::File,
        EntryKind::Directory => code::EntryKind::Directory,
        EntryKind::Symlink(target) => {
            return (code::EntryKind::Symlink, Bytes::copy_from_slice(target));
        }
        EntryKind::Special(special) => match special {
            SpecialKind::Fifo => code::EntryKind::Fifo,
            SpecialKind::Socket => code::EntryKind::Socket,
            SpecialKind::BlockDevice => code::EntryKind::BlockDevice,
            SpecialKind::CharDevice => code::EntryKind::CharDevice,
            SpecialKind::Unknown => code::EntryKind::Special,
        },
    };
    (code, Bytes::new())
}

/// A kind of a later version becomes a special file of unknown kind, which cannot be copied.
fn kind_from(kind: i32, target: &Bytes) -> Result<EntryKind, WireError> {
    let special = match code::EntryKind::of(kind) {
        Some(code::EntryKind::File) => return Ok(EntryKind::File),
        Some(code::EntryKind::Directory) => return Ok(EntryKind::Directory),
        Some(code::EntryKind::Symlink) if target.len() > TARGET_MAX => {
            return Err(WireError::LongField("link target"));
        }
        Some(code::EntryKind::Symlink) => return Ok(EntryKind::Symlink(target.to_vec())),
        Some(code::EntryKind::Fifo) => SpecialKind::Fifo,
        Some(code::EntryKind::Socket) => SpecialKind::Socket,
        Some(code::EntryKind::BlockDevice) => SpecialKind::BlockDevice,
        Some(code::EntryKind::CharDevice) => SpecialKind::CharDevice,
        Some(code::EntryKind::Special) => SpecialKind::Unknown,
        None if kind > 0 => SpecialKind::Unknown,
        None => return Err(WireError::Missing("kind of entry")),
    };
    Ok(EntryKind::Special(special))
}

/// A tag that is longer than [`TAG_MAX`](super::TAG_MAX) is not sent.
impl From<&Identity> for messages::Identity {
    fn from(identity: &Identity) -> Self {
        Self {
            size: size_to(identity.size),
            modified: identity.modified.map(Into::into),
            id: identity.id.map(Into::into),
            tag: tag_to(identity.tag.as_ref()),
        }
    }
}

impl TryFrom<messages::Identity> for Identity {
    type Error = WireError;

    fn try_from(identity: messages::Identity) -> Result<Self, WireError> {
        Ok(Self {
            size: size_from(identity.size),
            modified: time_from(identity.modified)?,
            id: identity.id.map(Into::into),
            tag: tag_from(identity.tag)?,
        })
    }
}
