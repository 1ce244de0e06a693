//! Metadata of a file or directory for HTTP.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dav_server::fs::{DavMetaData, FsResult};
use rustix::fs::{FileType, Stat};

/// A file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Described {
    pub(super) kind: FileType,
    pub(super) size: u64,
    pub(super) modified: SystemTime,
    /// Stands for the creation time, which `stat` does not have: the earlier of modification and change time.
    pub(super) created: SystemTime,
    pub(super) is_executable: bool,
    tag: String,
}

impl Described {
    /// From the system's `stat`.
    pub(super) fn new(stat: &Stat) -> Self {
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let modified = time(stat.st_mtime, stat.st_mtime_nsec);
        let changed = time(stat.st_ctime, stat.st_ctime_nsec);
        let kind = FileType::from_raw_mode(stat.st_mode);
        let (seconds, nanoseconds) = (stat.st_mtime, stat.st_mtime_nsec);
        Self {
            kind,
            size,
            modified,
            created: modified.min(changed),
            is_executable: kind == FileType::RegularFile && stat.st_mode & 0o100 != 0,
            tag: format!("{:x}-{seconds:x}.{nanoseconds:x}-{size:x}", stat.st_ino),
        }
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind == FileType::Directory
    }

    /// The ETag. It is sent as a strong one: another file under this name has another inode number, and a
    /// file that was written to has another time, unless the number was reused with the same time and
    /// length, the time was set back, or both writes fall into one tick of the file system's clock.
    pub(super) fn etag(&self) -> String {
        format!("\"{}\"", self.tag)
    }
}

impl DavMetaData for Described {
    fn len(&self) -> u64 {
        self.size
    }

    fn modified(&self) -> FsResult<SystemTime> {
        Ok(self.modified)
    }

    fn is_dir(&self) -> bool {
        self.is_directory()
    }

    fn is_symlink(&self) -> bool {
        self.kind == FileType::Symlink
    }

    fn is_file(&self) -> bool {
        self.kind == FileType::RegularFile
    }

    fn etag(&self) -> Option<String> {
        Some(self.tag.clone())
    }
}

fn time(seconds: i64, nanoseconds: u64) -> SystemTime {
    let fraction = Duration::from_nanos(nanoseconds);
    match u64::try_from(seconds) {
        Ok(seconds) => UNIX_EPOCH + Duration::from_secs(seconds) + fraction,
        // Times before 1970 become 1970.
        Err(_) => UNIX_EPOCH,
    }
}
