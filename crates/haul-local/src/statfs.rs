//! The file system that the root is on, and the capabilities that follow from it.

use haul_storage::{Capabilities, Medium, StoredTimes, Writes};
use rustix::io::{Errno, Result as SysResult};

/// The longest file on FAT32, which stores lengths in 32 bits.
#[cfg(any(target_os = "linux", test))]
const FAT_MAX_FILE: u64 = u32::MAX as u64;

/// Files up to this many bytes are moved whole: one job on a disk thread each, instead of one each
/// for opening, every block and the commit.
const WHOLE_LIMIT: u64 = 256 * 1024;

/// Properties of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileSystem {
    /// Links, owners and permission bits.
    pub(crate) unix: bool,
    pub(crate) xattrs: bool,
    pub(crate) stored_times: StoredTimes,
    pub(crate) max_file_size: Option<u64>,
    /// A write is a copy into the page cache rather than a message to a server or a daemon.
    pub(crate) page_cache: bool,
    /// A file may occupy less space than its length even without holes.
    pub(crate) compact: bool,
    /// Copies within it may share space.
    pub(crate) shares: bool,
}

#[cfg(any(target_os = "linux", test))]
const TMPFS: u32 = 0x0102_1994;

impl FileSystem {
    /// All file systems that are not known to offer less, such as NFS and FUSE. They may compress, share
    /// equal data, and send writes to a server or a daemon. (btrfs differs in `page_cache` only.)
    pub(crate) const COMMON: Self = Self {
        unix: true,
        xattrs: true,
        stored_times: StoredTimes::ALL,
        max_file_size: None,
        page_cache: false,
        compact: true,
        shares: true,
    };

    /// The file system with this `f_type` of statfs(2); numbers are from linux/magic.h and the
    /// drivers.
    #[cfg(any(target_os = "linux", test))]
    pub(crate) const fn of_magic(magic: u32) -> Self {
        const MSDOS: u32 = 0x4d44;
        const EXFAT: u32 = 0x2011_bab0;
        const EXT: u32 = 0xef53;
        const XFS: u32 = 0x5846_5342;
        const BTRFS: u32 = 0x9123_683e;
        match magic {
            MSDOS => Self {
                unix: false,
                xattrs: false,
                stored_times: StoredTimes::in_steps_of(2_000_000_000),
                max_file_size: Some(FAT_MAX_FILE),
                page_cache: true,
                compact: false,
                shares: false,
            },
            EXFAT => Self {
                unix: false,
                xattrs: false,
                stored_times: StoredTimes::in_steps_of(10_000_000),
                max_file_size: None,
                page_cache: true,
                compact: false,
                shares: false,
            },
            EXT | TMPFS => Self { page_cache: true, compact: false, shares: false, ..Self::COMMON },
            XFS => Self { page_cache: true, compact: false, ..Self::COMMON },
            BTRFS => Self { page_cache: true, ..Self::COMMON },
            _ => Self::COMMON,
        }
    }

    /// Whether a file system with this `f_type` has its files in memory.
    #[cfg(target_os = "linux")]
    pub(crate) const fn is_memory(magic: u32) -> bool {
        magic == TMPFS
    }

    /// The capabilities of a local storage on it.
    pub(crate) fn capabilities(self) -> Capabilities {
        Capabilities::least(Medium::Disk).with(|can| {
            can.ranged_reads = true;
            can.writes = Writes::AnyOrder;
            can.rename = true;
            can.conditional_commits = true;
            can.server_copy = true;
            can.symlinks = self.unix;
            can.hard_links = self.unix;
            can.sync = true;
            can.resume = true;
            can.lock = true;
            can.times = true;
            can.stored_times = self.stored_times;
            can.mode = self.unix;
            can.owner = self.unix;
            can.xattrs = self.xattrs;
            can.pipelined_reads = true;
            can.pipelined_writes = true;
            can.complete_lists = true;
            can.max_lanes = Some(1);
            can.max_file_size = self.max_file_size;
            can.whole_limit = WHOLE_LIMIT;
        })
    }
}

/// Attributes that a file system does not support are left out, as `Storage::set_metadata` documents. FUSE file
/// systems only report that when an attribute is set: fusefat, for example, supports neither modes nor owners.
pub(crate) fn left_out(outcome: SysResult<()>) -> SysResult<()> {
    match outcome {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fat_has_no_links_and_no_file_of_4_gib() {
        let fat = FileSystem::of_magic(0x4d44).capabilities();
        assert!(!fat.symlinks && !fat.hard_links && !fat.mode && !fat.owner);
        assert_eq!(fat.max_file_size, Some(4 * 1024 * 1024 * 1024 - 1));
        assert!(FileSystem::of_magic(0xef53).page_cache);
    }

    #[test]
    fn file_systems_that_may_compress_or_share_are_known() {
        let properties = |magic| {
            let found = FileSystem::of_magic(magic);
            (found.compact, found.shares)
        };
        let (ext, xfs, btrfs, zfs) = (0xef53, 0x5846_5342, 0x9123_683e, 0x2fc1_2fc1);
        assert_eq!((properties(ext), properties(TMPFS)), ((false, false), (false, false)));
        assert_eq!(properties(xfs), (false, true));
        assert_eq!((properties(btrfs), properties(zfs)), ((true, true), (true, true)));
    }
}
