//! Targets of copies: file systems and servers, with the metadata that they preserve.

pub mod image;
mod keeps;
pub mod local;
mod ready;
mod renaming;
pub mod server;

use std::io;

pub use keeps::Keeps;
pub use ready::{Guard, Made, Site, Target, is_root};

/// A kind of target.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// Whether the short test runs it.
    pub short: bool,
    make: fn(&Site<'_>) -> io::Result<Made>,
}

impl Kind {
    /// Sets up a target of this kind.
    pub fn make(&self, site: &Site<'_>) -> io::Result<Made> {
        (self.make)(site)
    }
}

/// All kinds of targets.
pub const ALL: &[Kind] = &[
    Kind { name: "disk", short: true, make: local::disk },
    Kind { name: "tmpfs", short: true, make: local::tmpfs },
    Kind { name: "ext4-128", short: true, make: image::ext4_small_inodes },
    Kind { name: "ext3", short: false, make: image::ext3 },
    Kind { name: "xfs", short: false, make: image::xfs },
    Kind { name: "btrfs", short: false, make: image::btrfs },
    Kind { name: "ntfs-3g", short: true, make: image::ntfs },
    Kind { name: "exfat-fuse", short: true, make: image::exfat },
    Kind { name: "renaming", short: true, make: renaming::renaming },
    Kind { name: "sftp-haul", short: true, make: server::haul_sftp },
    Kind { name: "sftp-openssh", short: true, make: server::openssh },
    Kind { name: "dav-haul", short: true, make: server::haul_dav },
    Kind { name: "peer", short: true, make: server::haul_share },
];
