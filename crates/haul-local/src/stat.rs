//! Conversions from `struct stat`.

use std::os::fd::AsFd;

use haul_storage::{Entry, EntryKind, FileId, Identity, Metadata, RelPath, SpecialKind, Timestamp};
use rustix::fs::{AtFlags, FileType, Mode, Stat};
use rustix::io::Result as SysResult;

/// Stats `name` in `directory` without following it.
pub(crate) fn entry(path: RelPath, directory: impl AsFd, name: &[u8]) -> SysResult<Entry> {
    let stat = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let (kind, size) = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => (EntryKind::File, size_of(&stat)),
        FileType::Directory => (EntryKind::Directory, 0),
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(&directory, name, Vec::new())?;
            (EntryKind::Symlink(target.into_bytes()), 0)
        }
        other => (EntryKind::Special(kind_of(other)), 0),
    };
    let is_link = matches!(kind, EntryKind::Symlink(_));
    let mut entry = Entry::new(path, kind, size);
    entry.modified = Some(modified_of(&stat));
    // The mode of a link means nothing and cannot be set.
    entry.mode = (!is_link).then(|| mode_of(&stat));
    entry.owner = Some((stat.st_uid, stat.st_gid));
    entry.id = Some(id_of(&stat));
    entry.links = widened(stat.st_nlink);
    Ok(entry)
}

/// The version of a file. The change time is left out: a chmod or another hard link moves it
/// without changing the content.
pub(crate) fn identity_of(stat: &Stat) -> Identity {
    Identity {
        size: size_of(stat),
        modified: Some(modified_of(stat)),
        id: Some(id_of(stat)),
        tag: None,
    }
}

/// Everything of `stat` that can be set on a copy.
pub(crate) fn metadata_of(stat: &Stat) -> Metadata {
    Metadata {
        mode: Some(mode_of(stat)),
        modified: Some(modified_of(stat)),
        owner: Some((stat.st_uid, stat.st_gid)),
        xattrs: None,
    }
}

pub(crate) fn kind_of(kind: FileType) -> SpecialKind {
    match kind {
        FileType::Fifo => SpecialKind::Fifo,
        FileType::Socket => SpecialKind::Socket,
        FileType::BlockDevice => SpecialKind::BlockDevice,
        FileType::CharacterDevice => SpecialKind::CharDevice,
        _ => SpecialKind::Unknown,
    }
}

pub(crate) fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

pub(crate) fn mode_of(stat: &Stat) -> u32 {
    u32_of(stat.st_mode) & 0o7777
}

/// Permission bits in the type of the system, which has 16 or 32 bits.
pub(crate) fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode((mode & 0o7777) as rustix::fs::RawMode)
}

pub(crate) fn u32_of(bits: impl Into<u32>) -> u32 {
    bits.into()
}

/// Device numbers are only compared; on some systems they are signed.
#[cfg(target_os = "linux")]
fn device_of(stat: &Stat) -> u64 {
    widened(stat.st_dev)
}

#[cfg(not(target_os = "linux"))]
fn device_of(stat: &Stat) -> u64 {
    stat.st_dev as u64
}

pub(crate) fn id_of(stat: &Stat) -> FileId {
    FileId { device: device_of(stat), inode: stat.st_ino }
}

/// Fields of `struct stat` are 32 or 64 bits wide, depending on the machine.
pub(crate) fn widened(number: impl Into<u64>) -> u64 {
    number.into()
}

fn modified_of(stat: &Stat) -> Timestamp {
    let nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
    Timestamp { seconds: stat.st_mtime, nanos }
}
