//! A target that is ready to be copied to, what it was made of, and what takes it down.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::keeps::Keeps;
use crate::grow::Features;
use crate::tree::Tree;

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

/// A target, or why this machine cannot have it.
#[derive(Debug)]
pub enum Made {
    /// It is ready.
    Ready(Box<Target>),
    /// It cannot be made here, for this reason.
    Skipped(String),
}

/// Whether this process may do everything.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
