//! Between SFTP's attributes and haul's entries.

use haul_storage::{Entry, EntryKind, KeptTimes, Metadata, RelPath, SpecialKind, Timestamp};

use crate::codec::{Attrs, FileKind};

/// An entry; of a link the target is still missing. Servers that give no type bits get a second
/// look by who asks.
pub(super) fn entry(path: RelPath, attrs: &Attrs) -> Entry {
    let kind = match attrs.kind() {
        Some(FileKind::File) | None => EntryKind::File,
        Some(FileKind::Directory) => EntryKind::Directory,
        Some(FileKind::Symlink) => EntryKind::Symlink(Vec::new()),
        Some(FileKind::Fifo) => EntryKind::Special(SpecialKind::Fifo),
        Some(FileKind::Socket) => EntryKind::Special(SpecialKind::Socket),
        Some(FileKind::BlockDevice) => EntryKind::Special(SpecialKind::BlockDevice),
        Some(FileKind::CharDevice) => EntryKind::Special(SpecialKind::CharDevice),
        Some(FileKind::Unknown) => EntryKind::Special(SpecialKind::Unknown),
    };
    let size = if kind == EntryKind::File { attrs.size.unwrap_or(0) } else { 0 };
    Entry {
        modified: attrs
            .times
            .map(|(_, modified)| Timestamp { seconds: i64::from(modified), nanos: 0 }),
        mode: attrs.permissions.map(|mode| mode & 0o7777),
        owner: attrs.owner,
        ..Entry::new(path, kind, size)
    }
}

/// Version 3 has 32 bits without a sign: 1970 to 2106.
pub(super) const KEPT_TIMES: KeptTimes = KeptTimes::seconds(0, u32::MAX as i64);

/// What of `metadata` version 3 can set. Of times the nearest that it has is set.
pub(super) fn attrs(metadata: &Metadata) -> Attrs {
    Attrs {
        size: None,
        owner: metadata.owner,
        permissions: metadata.mode.map(|mode| mode & 0o7777),
        times: metadata.modified.map(|time| {
            let seconds = u32::try_from(KEPT_TIMES.kept(time).seconds).unwrap_or(u32::MAX);
            // There is no way to set one without the other.
            (seconds, seconds)
        }),
        extended: Vec::new(),
    }
}
