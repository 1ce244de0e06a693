//! Conversion between SFTP attributes and haul's entries and metadata.

use haul_storage::{Entry, EntryKind, Metadata, RelPath, SpecialKind, StoredTimes, Timestamp};

use crate::codec::{Attrs, FileKind};

/// Converts attributes to an entry. The target of a symbolic link is left empty: callers that need it send a
/// further request. Without type bits the kind is a file; listings then send a further request.
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
    let mut entry = Entry::new(path, kind, size);
    entry.modified =
        attrs.times.map(|(_, modified)| Timestamp { seconds: i64::from(modified), nanos: 0 });
    entry.mode = attrs.permissions.map(|mode| mode & 0o7777);
    entry.owner = attrs.owner;
    entry
}

/// Times of SFTP version 3: unsigned 32-bit seconds, 1970 to 2106.
pub(super) const STORED_TIMES: StoredTimes = StoredTimes::seconds(0, u32::MAX as i64);

/// The part of `metadata` that version 3 can set; a time out of range becomes the nearest in range.
pub(super) fn attrs(metadata: &Metadata) -> Attrs {
    Attrs {
        size: None,
        owner: metadata.owner,
        permissions: metadata.mode.map(|mode| mode & 0o7777),
        times: metadata.modified.map(|time| {
            let seconds = u32::try_from(STORED_TIMES.stored(time).seconds).unwrap_or(u32::MAX);
            // Version 3 sets access and modification time together.
            (seconds, seconds)
        }),
        extended: Vec::new(),
    }
}
