//! A target that is ready for copies, and the guards that take it down.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::keeps::Keeps;
use crate::grow::Features;
use crate::quoted::quoted;
use crate::tree::Tree;

/// A destination for copies. Dropping it unmounts its file systems and stops its server.
#[derive(Debug)]
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// A directory on this machine for sources.
    pub source: PathBuf,
    /// The local path of the destination.
    pub destination: PathBuf,
    /// The local path of the destination of rsync's copy, on the same file system as `destination`.
    pub oracle: PathBuf,
    /// The destination argument of haul.
    pub argument: OsString,
    /// Further arguments of haul, for a server.
    pub arguments: Vec<OsString>,
    /// Further arguments of rsync, if it runs as root and preserves extended attributes.
    pub oracle_arguments: &'static [&'static str],
    /// The metadata that the destination preserves.
    pub keeps: Keeps,
    /// The metadata that rsync's copy preserves.
    pub oracle_keeps: Keeps,
    /// Features of the file trees to generate.
    pub features: Features,
    /// Whether a server process executes haul's requests, and may still do so after haul was killed.
    pub is_server: bool,
    /// Whether to run haul as an unprivileged user, too.
    pub users: bool,
    /// Whether the file system stores other names than requested. rsync cannot be the oracle then, as `--delete`
    /// removes files that it has just copied. Filters and manifests are not tested either, since they use the source's
    /// names.
    pub renames: bool,
    /// Mounts and servers, taken down in this order.
    pub guards: Vec<Guard>,
}

impl Target {
    /// Reads the tree at `root`. Names are in a form that can be compared.
    pub fn tree(&self, root: &Path) -> io::Result<Tree> {
        self.comparable(Tree::read(root))
    }

    /// Like [`Target::tree`], but waits until nothing changes any more; see [`Tree::read_at_rest`].
    pub fn tree_at_rest(&self, root: &Path) -> io::Result<Tree> {
        self.comparable(Tree::read_at_rest(root))
    }

    /// Leaves all mounts and servers as they are. Returns the shell commands that take them down, in order.
    pub fn leave(mut self) -> Vec<String> {
        let commands = self.guards.iter().map(Guard::command).collect();
        self.guards.drain(..).for_each(std::mem::forget);
        commands
    }

    fn comparable(&self, tree: io::Result<Tree>) -> io::Result<Tree> {
        if self.renames { tree.map(Tree::canonical) } else { tree }
    }
}

/// Part of a target that has to be taken down. Dropping it does so.
#[derive(Debug)]
pub enum Guard {
    /// A mounted file system.
    Mount(PathBuf),
    /// A loop device of an image.
    Loop(PathBuf),
    /// A server.
    Process(std::process::Child),
}

impl Guard {
    /// The shell command that does the same as dropping it.
    fn command(&self) -> String {
        match self {
            Self::Mount(point) => format!("umount -l {}", quoted(point.as_os_str())),
            Self::Loop(device) => format!("losetup --detach {}", quoted(device.as_os_str())),
            Self::Process(child) => format!("kill {}", child.id()),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let run = |words: [&std::ffi::OsStr; 3]| {
            // Errors are ignored: mounts end with their namespace. A loop device that is still in use causes no error:
            // the kernel detaches it later (losetup(8)).
            let _ = std::process::Command::new(words[0]).args(&words[1..]).status();
        };
        match self {
            Self::Mount(point) => run(["umount".as_ref(), "-l".as_ref(), point.as_os_str()]),
            Self::Loop(device) => {
                run(["losetup".as_ref(), "--detach".as_ref(), device.as_os_str()]);
            }
            Self::Process(child) => {
                // The process may have ended already.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// The resources for setting up a target.
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    /// An empty directory.
    pub work: &'a Path,
    /// The haul executable for `haul serve` and `haul share`.
    pub haul: &'a Path,
}

/// A target, or the reason why it is not available on this machine.
#[derive(Debug)]
pub enum Made {
    /// The target.
    Ready(Box<Target>),
    /// The reason.
    Skipped(String),
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
