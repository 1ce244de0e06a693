//! Where copies go: a file system or a server, with what it keeps.

pub mod image;
pub mod local;
mod renaming;
pub mod server;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::grow::Features;
use crate::names::Alphabet;
use crate::tree::{Time, Tree};

/// What a destination keeps of what it is given.
#[derive(Debug, Clone, Copy)]
pub struct Keeps {
    /// Permission bits.
    pub mode: bool,
    /// User and group.
    pub owner: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Symbolic links.
    pub symlinks: bool,
    /// Names of one file.
    pub hard_links: bool,
    /// It says which names are one file. Where it does not, a rerun has to link them anew.
    pub tells_links: bool,
    /// Times of files.
    pub times: bool,
    /// Times of symbolic links.
    pub link_times: bool,
    /// Times of directories.
    pub directory_times: bool,
    /// Times are rounded down to this.
    pub precision_ns: u64,
    /// Times before it become it, in seconds since 1970.
    pub earliest: i64,
    /// Times after it become it.
    pub latest: i64,
}

impl Keeps {
    /// Everything.
    pub const ALL: Self = Self {
        mode: true,
        owner: true,
        xattrs: true,
        symlinks: true,
        hard_links: true,
        tells_links: true,
        times: true,
        link_times: true,
        directory_times: true,
        precision_ns: 1,
        earliest: i64::MIN,
        latest: i64::MAX,
    };

    /// What ext4 keeps with inodes of 256 bytes: 34 bits of seconds, from 1901 on.
    pub const EXT4: Self = Self { earliest: -0x8000_0000, latest: 0x3_7fff_ffff, ..Self::ALL };

    /// What becomes of a time, as the kernel does it (`timestamp_truncate`).
    pub fn time(&self, time: Time) -> Time {
        let seconds = time.seconds.clamp(self.earliest, self.latest);
        if seconds == self.earliest || seconds == self.latest {
            return Time { seconds, nanos: 0 };
        }
        let total = i128::from(seconds) * 1_000_000_000 + i128::from(time.nanos);
        let total = total - total.rem_euclid(i128::from(self.precision_ns));
        Time {
            seconds: total.div_euclid(1_000_000_000) as i64,
            nanos: total.rem_euclid(1_000_000_000) as u32,
        }
    }
}

/// A place for copies, ready. Dropping it takes it down.
#[derive(Debug)]
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// A directory on this machine for sources.
    pub source: PathBuf,
    /// The destination as this machine sees it.
    pub destination: PathBuf,
    /// Where rsync makes its copy, on a file system that keeps the same.
    pub oracle: PathBuf,
    /// What haul is told as its destination.
    pub argument: OsString,
    /// Further arguments, for a server.
    pub arguments: Vec<OsString>,
    /// What it keeps.
    pub keeps: Keeps,
    /// What rsync's copy keeps.
    pub oracle_keeps: Keeps,
    /// What may be in sources and destinations.
    pub features: Features,
    /// Whether a process of its own does what haul asks for, also after haul was killed.
    pub is_server: bool,
    /// Whether runs as an ordinary user make sense.
    pub users: bool,
    /// Whether it gives files other names than it was asked for. rsync is no judge there: `--delete` removes what it
    /// has just copied. Neither are filters and manifests, which have the names of the source.
    pub renames: bool,
    /// Mounts and servers, taken down in this order.
    pub guards: Vec<Guard>,
}

impl Target {
    /// The tree at `root`, under names that can be compared.
    pub fn tree(&self, root: &Path) -> io::Result<Tree> {
        self.comparable(Tree::read(root))
    }

    /// As [`Target::tree`], once nothing changes any more.
    pub fn tree_at_rest(&self, root: &Path) -> io::Result<Tree> {
        self.comparable(Tree::read_at_rest(root))
    }

    fn comparable(&self, tree: io::Result<Tree>) -> io::Result<Tree> {
        if self.renames { tree.map(Tree::canonical) } else { tree }
    }
}

/// Something that has to be taken down.
#[derive(Debug)]
pub enum Guard {
    /// A mounted file system.
    Mount(PathBuf),
    /// A block device made of an image.
    Loop(PathBuf),
    /// A server.
    Process(std::process::Child),
}

impl Drop for Guard {
    fn drop(&mut self) {
        let run = |words: [&std::ffi::OsStr; 3]| {
            // Mounts go with their namespace in any case, and devices with what holds them.
            let _ = std::process::Command::new(words[0]).args(&words[1..]).status();
        };
        match self {
            Self::Mount(point) => run(["umount".as_ref(), "-l".as_ref(), point.as_os_str()]),
            Self::Loop(device) => {
                run(["losetup".as_ref(), "--detach".as_ref(), device.as_os_str()]);
            }
            Self::Process(child) => {
                // It may have ended by itself.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// What a target is made of.
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    /// An empty directory.
    pub work: &'a Path,
    /// The haul that serves.
    pub haul: &'a Path,
}

/// A kind of target.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// Whether the short test runs it.
    pub short: bool,
    make: fn(&Site<'_>) -> io::Result<Made>,
}

/// A target, or why this machine cannot have it.
#[derive(Debug)]
pub enum Made {
    /// It is ready.
    Ready(Box<Target>),
    /// It cannot be made here, for this reason.
    Skipped(String),
}

impl Kind {
    /// Makes it.
    pub fn make(&self, site: &Site<'_>) -> io::Result<Made> {
        (self.make)(site)
    }
}

/// All kinds.
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
];

/// Whether this process may do everything.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Everything that a file system of Unix can hold.
pub(crate) fn unix_features() -> Features {
    Features {
        alphabet: Alphabet::Bytes,
        like_own: true,
        modes: true,
        owners: is_root(),
        set_id: true,
        locked: is_root(),
        symlinks: true,
        hard_links: true,
        xattrs: true,
        specials: true,
        in_place: true,
        alike: true,
        far_times: true,
        largest: u64::MAX,
    }
}
