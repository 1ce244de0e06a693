//! Free space of a disk, and the space that a file occupies.

use haul_storage::{RelPath, Result, Space, Volume as SharedBy};
use rustix::fs::{AtFlags, fstat, fstatvfs, statat};

use crate::stat::id_of;
use crate::volume::Volume;

/// The unit of `st_blocks`, which does not depend on the file system.
const STAT_BLOCK: u64 = 512;

impl Volume {
    /// The space of the file system where `path` is or would be. Quotas count as far as statvfs(3)
    /// shows them: those of projects on XFS and ext4, not those of users or of btrfs subvolumes.
    pub(crate) fn space(&self, path: &RelPath) -> Result<Option<Space>> {
        let mut directory = path.clone();
        loop {
            match self.space_in(&directory) {
                Ok(space) => return Ok(space),
                // Usually it does not exist or is not a directory: use its parent.
                Err(error) => match directory.parent() {
                    Some(parent) => directory = parent,
                    None => return Err(error),
                },
            }
        }
    }

    fn space_in(&self, directory: &RelPath) -> Result<Option<Space>> {
        const OPERATION: &str = "read the free space";
        // With any name in it, the path resolves to the directory itself, opened beneath the root.
        let inside = directory.join(b"x").unwrap_or_else(|_| directory.clone());
        self.at(OPERATION, &inside, |directory, _| {
            let found = fstatvfs(directory)?;
            // A file system without a limit (tmpfs with size=0) reports no blocks at all.
            if found.f_blocks == 0 {
                return Ok(None);
            }
            let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
            let is_root = rustix::process::geteuid().is_root();
            let kind = self.platform.file_system(std::os::fd::AsFd::as_fd(directory));
            Ok(Some(Space {
                free: bytes(found.f_bavail),
                most: bytes(if is_root { found.f_bfree } else { found.f_bavail }),
                block: found.f_frsize.max(found.f_bsize),
                volume: Some(SharedBy {
                    host: String::new(),
                    number: id_of(&fstat(directory)?).device,
                }),
                compact: kind.compact,
                shares: kind.shares,
            }))
        })
    }

    /// Bytes that a file occupies.
    pub(crate) fn allocated(&self, path: &RelPath) -> Result<Option<u64>> {
        self.at("stat", path, |directory, name| {
            let found = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(u64::try_from(found.st_blocks).ok().map(|blocks| blocks.saturating_mul(STAT_BLOCK)))
        })
    }
}
