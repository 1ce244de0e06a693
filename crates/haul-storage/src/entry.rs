//! Entries of listings: attributes, version, and the metadata that can be set.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{Digest, Error, ErrorKind, Range, RelPath, Result};

/// A point in time as file systems store it: seconds since 1970-01-01 UTC and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp {
    /// Seconds since the epoch; negative before it.
    pub seconds: i64,
    /// Nanoseconds after that second, 0 to 999 999 999.
    pub nanos: u32,
}

impl Timestamp {
    /// Before all others.
    pub const EARLIEST: Self = Self { seconds: i64::MIN, nanos: 0 };
    /// After all others.
    pub const LATEST: Self = Self { seconds: i64::MAX, nanos: 999_999_999 };

    /// The time, rounded down to a multiple of `precision_ns` within its second; from one second on, to a multiple
    /// of the whole seconds in `precision_ns` (FAT has 2 s).
    #[must_use]
    pub fn rounded_down(self, precision_ns: u64) -> Self {
        const SECOND_NS: u64 = 1_000_000_000;
        if precision_ns <= 1 {
            return self;
        }
        if precision_ns < SECOND_NS {
            let step = u32::try_from(precision_ns).unwrap_or(u32::MAX);
            return Self { nanos: self.nanos / step * step, ..self };
        }
        let step = i64::try_from(precision_ns / SECOND_NS).unwrap_or(i64::MAX);
        Self { seconds: self.seconds.div_euclid(step).saturating_mul(step), nanos: 0 }
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self {
                seconds: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
                nanos: after.subsec_nanos(),
            },
            Err(before) => {
                let before = before.duration();
                let whole = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
                match before.subsec_nanos() {
                    0 => Self { seconds: -whole, nanos: 0 },
                    nanos => Self { seconds: -whole - 1, nanos: 1_000_000_000 - nanos },
                }
            }
        }
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        let nanos = Duration::from_nanos(u64::from(time.nanos));
        let whole = Duration::from_secs(time.seconds.unsigned_abs());
        if time.seconds >= 0 { UNIX_EPOCH + whole + nanos } else { UNIX_EPOCH - whole + nanos }
    }
}

/// The kind of a special file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpecialKind {
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharDevice,
    /// The storage cannot tell.
    Unknown,
}

impl fmt::Display for SpecialKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fifo => "named pipe",
            Self::Socket => "socket",
            Self::BlockDevice => "block device",
            Self::CharDevice => "character device",
            Self::Unknown => "special file",
        })
    }
}

/// The type of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, with its target as stored.
    Symlink(Vec<u8>),
    /// A file without bytes to copy.
    Special(SpecialKind),
}

/// Identifies a file independently of its name, where a storage can tell: device and inode number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    /// The file system's device number.
    pub device: u64,
    /// The inode number in it.
    pub inode: u64,
}

/// The size of a file whose storage does not report one, such as a page that a server generates. It is
/// known once the file has been read to its end.
pub const UNKNOWN_SIZE: u64 = u64::MAX;

/// One entry of a listing. Links are not followed. [`Entry::new`] creates it; other fields are set later.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The path below the storage's root.
    pub path: RelPath,
    /// The type.
    pub kind: EntryKind,
    /// Length in bytes, or [`UNKNOWN_SIZE`]; 0 for anything but files.
    pub size: u64,
    /// The lengths that a rounded length in a listing can mean, if it has no exact one. `size` is then from elsewhere,
    /// and may contradict it: where a server redirects to a login page, for example.
    pub rounded_size: Option<Box<Range>>,
    /// Last modification, if the storage keeps it.
    pub modified: Option<Timestamp>,
    /// Permission bits (`0o7777`), if the storage has them.
    pub mode: Option<u32>,
    /// User and group number, if the storage has them.
    pub owner: Option<(u32, u32)>,
    /// The file's identity, if the storage can tell.
    pub id: Option<FileId>,
    /// Number of hard links; 1 where a storage cannot tell.
    pub links: u64,
    /// Version tag (an ETag), if the storage has one.
    pub tag: Option<String>,
    /// Digest of the content, if the storage reports one with the entry; see [`Storage::digest`](crate::Storage::digest)
    /// for how far it can be relied on.
    pub digest: Option<Digest>,
}

impl Entry {
    /// An entry of which only path, kind and size are known.
    pub fn new(path: RelPath, kind: EntryKind, size: u64) -> Self {
        Self {
            path,
            kind,
            size,
            rounded_size: None,
            modified: None,
            mode: None,
            owner: None,
            id: None,
            links: 1,
            tag: None,
            digest: None,
        }
    }

    /// The same entry at another path.
    #[must_use]
    pub fn at(self, path: RelPath) -> Self {
        Self { path, ..self }
    }

    /// Whether both have the same content, judged by their digests; `None` unless both have one of the same
    /// kind. Tags are not compared: servers derive them from names, times and inodes, so they only distinguish
    /// versions of one file.
    ///
    /// ```
    /// use haul_storage::{Digest, DigestKind, Entry, EntryKind, RelPath};
    ///
    /// let mut one = Entry::new(RelPath::root(), EntryKind::File, 4);
    /// let mut other = one.clone();
    /// assert_eq!(one.same_content(&other), None);
    /// one.digest = Some(Digest::of(DigestKind::Sha256, b"haul"));
    /// other.digest = Some(Digest::of(DigestKind::Sha256, b"more"));
    /// assert_eq!(one.same_content(&other), Some(false));
    /// ```
    pub fn same_content(&self, other: &Self) -> Option<bool> {
        let (one, other) = self.digest.zip(other.digest)?;
        (one.kind == other.kind).then_some(one == other)
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == EntryKind::File
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == EntryKind::Directory
    }

    /// This entry, if it is a regular file; nothing else can be opened.
    ///
    /// # Errors
    /// `IsADirectory` or `InvalidInput`, without a location.
    pub fn into_file(self) -> Result<Self> {
        let (kind, cause) = match self.kind {
            EntryKind::File => return Ok(self),
            EntryKind::Directory => (ErrorKind::IsADirectory, "it is a directory"),
            _ => (ErrorKind::InvalidInput, "it is not a regular file"),
        };
        Err(Error::new(kind, "open").because(cause))
    }

    /// Length in bytes, if the storage reports it.
    pub fn known_size(&self) -> Option<u64> {
        (self.size != UNKNOWN_SIZE).then_some(self.size)
    }

    /// The version that this entry describes.
    pub fn identity(&self) -> Identity {
        Identity { size: self.size, modified: self.modified, id: self.id, tag: self.tag.clone() }
    }

    /// The metadata that can be set on a copy, without extended attributes, which no listing contains.
    pub fn metadata(&self) -> Metadata {
        Metadata { mode: self.mode, modified: self.modified, owner: self.owner, xattrs: None }
    }
}

/// Identifies a version of a file: if any field differs later, the file has changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Identity {
    /// Length in bytes, or [`UNKNOWN_SIZE`].
    pub size: u64,
    /// Last modification.
    pub modified: Option<Timestamp>,
    /// The file's identity.
    pub id: Option<FileId>,
    /// Version tag.
    pub tag: Option<String>,
}

impl Identity {
    /// Whether it distinguishes versions of the same length. Without time and tag, a later run cannot
    /// know whether it reads the same version as an earlier run.
    pub fn distinguishes_versions(&self) -> bool {
        self.modified.is_some() || self.tag.is_some()
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size {
            UNKNOWN_SIZE => f.write_str("size unknown")?,
            size => write!(f, "size {size}")?,
        }
        if let Some(time) = self.modified {
            write!(f, ", modified {}.{:09}", time.seconds, time.nanos)?;
        }
        if let Some(tag) = &self.tag {
            write!(f, ", tag {tag}")?;
        }
        Ok(())
    }
}

/// Extended attributes: full name (`user.comment`) and value.
pub type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Metadata that can be set on an entry. Fields that are `None` stay unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    /// Permission bits (`0o7777`).
    pub mode: Option<u32>,
    /// Last modification.
    pub modified: Option<Timestamp>,
    /// User and group number.
    pub owner: Option<(u32, u32)>,
    /// All extended attributes, of the kinds that the storage supports: setting them removes all others.
    /// `None` if the storage has none, or they were not read.
    pub xattrs: Option<Xattrs>,
}

impl Metadata {
    /// Set-user-ID and set-group-ID.
    const SET_ID: u32 = 0o6000;
    /// The extended attribute that holds a file's capabilities on Linux.
    const CAPABILITY: &'static [u8] = b"security.capability";

    /// Whether it grants a file's privileges to other users: set-ID bits or capabilities.
    pub fn has_privileges(&self) -> bool {
        let is_capability = |(name, _): &(Vec<u8>, Vec<u8>)| name == Self::CAPABILITY;
        self.mode.is_some_and(|mode| mode & Self::SET_ID != 0)
            || self.xattrs.as_ref().is_some_and(|xattrs| xattrs.iter().any(is_capability))
    }

    /// Without set-ID bits and capabilities: these may be set only on a file with the owner that they were
    /// granted for.
    #[must_use]
    pub fn without_privileges(mut self) -> Self {
        self.mode = self.mode.map(|mode| mode & !Self::SET_ID);
        if let Some(xattrs) = &mut self.xattrs {
            xattrs.retain(|(name, _)| name != Self::CAPABILITY);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_the_epoch_survive_conversion_to_system_time_and_back() {
        for (seconds, nanos) in [(0, 0), (-1, 999_999_999), (-1, 0), (1, 1), (-7, 5)] {
            let time = Timestamp { seconds, nanos };
            assert_eq!(Timestamp::from(SystemTime::from(time)), time);
        }
    }

    #[test]
    fn rounding_follows_the_precision_of_the_file_system() {
        let time = Timestamp { seconds: 7, nanos: 123_456_789 };
        assert_eq!(time.rounded_down(1), time);
        assert_eq!(time.rounded_down(100).nanos, 123_456_700);
        assert_eq!(time.rounded_down(1_000_000_000), Timestamp { seconds: 7, nanos: 0 });
        assert_eq!(time.rounded_down(2_000_000_000), Timestamp { seconds: 6, nanos: 0 });
    }
}
