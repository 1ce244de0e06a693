//! A directory tree read into memory, with all the metadata that a copy may preserve.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::at;
use crate::names::canonical;

/// A path relative to the root of a tree, components joined by `/`; empty for the root itself.
pub type Name = Vec<u8>;

/// Extended attributes with their values.
pub type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

/// Type and content of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file with the digest of its content.
    File {
        /// Length in bytes.
        size: u64,
        /// BLAKE3 of the content.
        digest: blake3::Hash,
    },
    /// A symbolic link, with its target.
    Link(Vec<u8>),
    /// A pipe or socket. Trees contain no devices.
    Special,
}

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970-01-01 UTC.
    pub seconds: i64,
    /// Nanoseconds, 0 to 999 999 999.
    pub nanos: u32,
}

/// One entry of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its type and content.
    pub kind: Kind,
    /// Permission bits, 0 to 0o7777.
    pub mode: u32,
    /// User and group ID.
    pub owner: (u32, u32),
    /// Time of the last modification.
    pub time: Time,
    /// Extended attributes in the namespaces that haul preserves.
    pub attributes: Attributes,
    /// Inode number: names with the same number are one file.
    pub inode: u64,
    /// Number of hard links, including those outside the tree.
    pub links: u64,
}

/// A snapshot of a tree. It includes the root under the empty name, unless the root does not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree(pub BTreeMap<Name, Node>);

impl Tree {
    /// Reads the tree at `root`; empty if `root` does not exist.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut tree = Self::default();
        if fs::symlink_metadata(root).is_ok() {
            tree.add(root, b"")?;
        }
        Ok(tree)
    }

    /// Converts every name with [`canonical`].
    #[must_use]
    pub fn canonical(self) -> Self {
        Self(self.0.into_iter().map(|(name, node)| (canonical(&name), node)).collect())
    }

    /// Like [`Tree::read`], but waits for a server that still executes requests of a killed client: reads again
    /// every 50 ms until two results in a row are equal, 200 times at most.
    pub fn read_at_rest(root: &Path) -> io::Result<Self> {
        let mut before = Self::read(root);
        for _ in 0..200 {
            std::thread::sleep(Duration::from_millis(50));
            let now = Self::read(root);
            match (before, now) {
                (Ok(before), Ok(now)) if before == now => return Ok(now),
                // An error counts as a change: a listed entry may be gone before its stat.
                (_, now) => before = now,
            }
        }
        before
    }

    fn add(&mut self, path: &Path, name: &[u8]) -> io::Result<()> {
        let node = Node::read(path)?;
        let is_directory = node.kind == Kind::Directory;
        self.0.insert(name.to_vec(), node);
        if is_directory {
            for entry in fs::read_dir(path).map_err(|error| at("listing", path, &error))? {
                let entry = entry.map_err(|error| at("listing", path, &error))?;
                self.add(&entry.path(), &join(name, entry.file_name().as_bytes()))?;
            }
        }
        Ok(())
    }

    /// The direct children of a directory.
    pub fn children<'a>(&'a self, directory: &'a [u8]) -> impl Iterator<Item = &'a Name> {
        self.0.keys().filter(move |name| !name.is_empty() && parent(name) == directory)
    }

    /// All names below `root`, without `root` itself.
    pub fn below<'a>(&'a self, root: &'a [u8]) -> impl Iterator<Item = &'a Name> {
        self.0.keys().filter(move |name| is_below(name, root))
    }
}

impl Node {
    fn read(path: &Path) -> io::Result<Self> {
        let stat = fs::symlink_metadata(path).map_err(|error| at("looking at", path, &error))?;
        let kind = stat.file_type();
        let kind = if kind.is_dir() {
            Kind::Directory
        } else if kind.is_symlink() {
            let target = fs::read_link(path).map_err(|error| at("reading link", path, &error))?;
            Kind::Link(target.as_os_str().as_bytes().to_vec())
        } else if kind.is_file() {
            let content = fs::read(path).map_err(|error| at("reading", path, &error))?;
            Kind::File { size: content.len() as u64, digest: blake3::hash(&content) }
        } else {
            debug_assert!(kind.is_fifo() || kind.is_socket());
            Kind::Special
        };
        let attributes = match kind {
            Kind::Directory | Kind::File { .. } => attributes(path)?,
            Kind::Link(_) | Kind::Special => Attributes::new(),
        };
        Ok(Self {
            kind,
            mode: stat.mode() & 0o7777,
            owner: (stat.uid(), stat.gid()),
            time: Time { seconds: stat.mtime(), nanos: stat.mtime_nsec() as u32 },
            attributes,
            inode: stat.ino(),
            links: stat.nlink(),
        })
    }
}

/// True if haul preserves the extended attribute of this name (rsync preserves more: `trusted.*`, labels).
fn is_preserved(name: &[u8]) -> bool {
    name.starts_with(b"user.")
        || name.starts_with(b"system.posix_acl_")
        || name == b"security.capability"
}

fn attributes(path: &Path) -> io::Result<Attributes> {
    let mut list = vec![0; 64 << 10];
    let length = match rustix::fs::llistxattr(path, &mut list[..]) {
        Ok(length) => length,
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => 0,
        Err(error) => return Err(at("listing attributes of", path, &error)),
    };
    let mut found = Attributes::new();
    for name in list[..length].split(|byte| *byte == 0).filter(|name| is_preserved(name)) {
        let mut value = vec![0; 64 << 10];
        let length = rustix::fs::lgetxattr(path, name, &mut value[..])
            .map_err(|error| at("reading an attribute of", path, &error))?;
        value.truncate(length);
        found.insert(name.to_vec(), value);
    }
    Ok(found)
}

/// `directory/name`.
pub fn join(directory: &[u8], name: &[u8]) -> Name {
    if directory.is_empty() {
        return name.to_vec();
    }
    [directory, name].join(&b'/')
}

/// The parent directory of a name; empty for a name at the top.
pub fn parent(name: &[u8]) -> &[u8] {
    name.iter().rposition(|byte| *byte == b'/').map_or(b"", |at| &name[..at])
}

/// The last component.
pub fn base(name: &[u8]) -> &[u8] {
    name.iter().rposition(|byte| *byte == b'/').map_or(name, |at| &name[at + 1..])
}

/// True if `name` is below `root` and not `root` itself.
pub fn is_below(name: &[u8], root: &[u8]) -> bool {
    if root.is_empty() {
        return !name.is_empty();
    }
    name.strip_prefix(root).is_some_and(|rest| rest.starts_with(b"/"))
}

/// The path on disk of a name in the tree at `root`.
pub fn path_of(root: &Path, name: &[u8]) -> PathBuf {
    root.join(std::ffi::OsStr::from_bytes(name))
}
