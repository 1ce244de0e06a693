//! The tree of directories, files and links in a [`super::MemoryStorage`].
//!
//! Names refer to nodes as on a Unix file system: a node lives as long as a name or an open file refers
//! to it, and part files are ordinary entries next to the final name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use super::data::Data;
use super::lock::lock;
use crate::{
    Capabilities, DigestKind, Entry, EntryKind, ErrorKind, FileId, Metadata, RangeSet, RelPath,
    SpecialKind, StoredTimes, Timestamp, UNKNOWN_SIZE,
};

/// Error of a tree operation; the storage adds operation and location.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) kind: ErrorKind,
    pub(super) cause: String,
}

impl Refusal {
    pub(super) fn new(kind: ErrorKind, cause: &str) -> Self {
        Self { kind, cause: cause.to_owned() }
    }

    /// The error for a byte at `offset` that differs from the expected content.
    pub(super) fn not_the_pattern(offset: u64) -> Self {
        let cause = format!("byte {offset} is not that of the expected pattern");
        Self { kind: ErrorKind::Corrupt, cause }
    }
}

impl From<ErrorKind> for Refusal {
    fn from(kind: ErrorKind) -> Self {
        Self::new(kind, kind.describe())
    }
}

type Outcome<T> = Result<T, Refusal>;

/// A file, directory, link or special file.
#[derive(Debug)]
pub(super) struct Node {
    inode: u64,
    state: Mutex<NodeState>,
}

#[derive(Debug)]
pub(super) struct NodeState {
    pub(super) content: Content,
    pub(super) mode: u32,
    pub(super) modified: Timestamp,
    pub(super) owner: (u32, u32),
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) links: u64,
    /// Number of changes, for version tags.
    pub(super) version: u64,
    /// True for a part file with a live writer.
    pub(super) held: bool,
    /// What is recorded of a part file: the source and the ranges.
    pub(super) recorded: Option<(String, RangeSet)>,
    /// Removed by a fault: even open files can no longer be read or written.
    pub(super) gone: bool,
}

#[derive(Debug)]
pub(super) enum Content {
    File(Data),
    Directory(Children),
    Symlink(Vec<u8>),
    Special(SpecialKind),
}

impl Node {
    pub(super) fn lock(&self) -> MutexGuard<'_, NodeState> {
        lock(&self.state)
    }

    /// The entry at `path`, limited to the metadata that `capabilities` and `seen` allow.
    pub(super) fn entry(&self, path: RelPath, capabilities: &Capabilities, seen: Seen) -> Entry {
        let state = self.lock();
        let (kind, size) = match &state.content {
            Content::File(_) if !seen.size => (EntryKind::File, UNKNOWN_SIZE),
            Content::File(data) => (EntryKind::File, data.size()),
            Content::Directory(_) => (EntryKind::Directory, 0),
            Content::Symlink(target) => (EntryKind::Symlink(target.clone()), 0),
            Content::Special(kind) => (EntryKind::Special(*kind), 0),
        };
        let modified = seen.times.stored(capabilities.stored_times.stored(state.modified));
        Entry {
            path,
            kind,
            size,
            rounded_size: None,
            modified: seen.modified.then_some(modified),
            mode: capabilities.mode.then_some(state.mode),
            owner: capabilities.owner.then_some(state.owner),
            id: seen.id.then_some(FileId { device: 1, inode: self.inode }),
            links: if capabilities.hard_links { state.links } else { 1 },
            tag: seen.tag.then(|| format!("\"{}-{}\"", self.inode, state.version)),
            digest: match &state.content {
                Content::File(data) => seen.digest.map(|kind| data.digest(kind)),
                _ => None,
            },
        }
    }
}

/// Which optional fields an entry shows, and the resolution of its time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    pub(super) size: bool,
    pub(super) modified: bool,
    pub(super) id: bool,
    pub(super) tag: bool,
    /// The kind of digest that comes with a file.
    pub(super) digest: Option<DigestKind>,
    pub(super) times: StoredTimes,
}

impl NodeState {
    /// Sets the given metadata, as far as the capabilities allow.
    pub(super) fn set(&mut self, metadata: &Metadata, capabilities: &Capabilities) {
        if let Some(mode) = metadata.mode
            && capabilities.mode
            && !matches!(self.content, Content::Symlink(_))
        {
            self.mode = mode & 0o7777;
        }
        if let Some(owner) = metadata.owner
            && capabilities.owner
        {
            self.owner = owner;
        }
        if let Some(xattrs) = &metadata.xattrs
            && capabilities.xattrs
        {
            self.xattrs = xattrs.iter().cloned().collect();
        }
        if let Some(modified) = metadata.modified
            && capabilities.times
        {
            self.modified = capabilities.stored_times.stored(modified);
        }
        self.version += 1;
    }

    /// The content of a file.
    ///
    /// # Errors
    /// If this is not a regular file, or a fault removed it.
    pub(super) fn data(&mut self) -> Outcome<&mut Data> {
        if self.gone {
            return Err(Refusal::new(ErrorKind::NotFound, "it vanished"));
        }
        match &mut self.content {
            Content::File(data) => Ok(data),
            Content::Directory(_) => Err(ErrorKind::IsADirectory.into()),
            Content::Symlink(_) => Err(Refusal::new(ErrorKind::InvalidInput, "is a symbolic link")),
            Content::Special(kind) => {
                Err(Refusal::new(ErrorKind::InvalidInput, &format!("is a {kind}")))
            }
        }
    }

    fn children(&mut self) -> Outcome<&mut Children> {
        match &mut self.content {
            Content::Directory(children) => Ok(children),
            Content::Symlink(_) => {
                Err(Refusal::new(ErrorKind::NotADirectory, "a symbolic link is in the path"))
            }
            _ => Err(ErrorKind::NotADirectory.into()),
        }
    }
}

/// Entries of a directory by name.
type Children = BTreeMap<Vec<u8>, Arc<Node>>;

#[derive(Debug)]
pub(super) struct Tree {
    root: Arc<Node>,
    next_inode: u64,
    ticks: i64,
    pub(super) locked: BTreeSet<RelPath>,
    /// Names are case-insensitive (ASCII).
    pub(super) ignores_case: bool,
}

impl Tree {
    pub(super) fn new() -> Self {
        let root = Arc::new(Node {
            inode: 1,
            state: Mutex::new(fresh(Content::Directory(BTreeMap::new()), Timestamp::default())),
        });
        Self { root, next_inode: 2, ticks: 0, locked: BTreeSet::new(), ignores_case: false }
    }

    /// The time of this change. The clock advances by a second and a nanosecond per change and not otherwise, so
    /// that tests are reproducible. It begins at 2023-11-14 22:13:20 UTC.
    pub(super) fn tick(&mut self) -> Timestamp {
        self.ticks += 1;
        Timestamp {
            seconds: 1_700_000_000 + self.ticks,
            nanos: (self.ticks % 1_000_000) as u32 + 1,
        }
    }

    /// Creates a node without a name.
    pub(super) fn node(&mut self, content: Content) -> Arc<Node> {
        let time = self.tick();
        let inode = self.next_inode;
        self.next_inode += 1;
        Arc::new(Node { inode, state: Mutex::new(fresh(content, time)) })
    }

    pub(super) fn find(&self, path: &RelPath) -> Outcome<Arc<Node>> {
        let mut node = Arc::clone(&self.root);
        for name in path.components() {
            let child = self.child(node.lock().children()?, name).map(|(_, child)| child);
            node = child.ok_or(ErrorKind::NotFound)?;
        }
        Ok(node)
    }

    /// Like `find`, but `None` if only the last component is missing.
    pub(super) fn find_or_none(&self, path: &RelPath) -> Outcome<Option<Arc<Node>>> {
        let Some(parent) = path.parent() else { return Ok(Some(Arc::clone(&self.root))) };
        let parent = self.find(&parent)?;
        Ok(self.child(parent.lock().children()?, path.name()).map(|(_, child)| child))
    }

    /// Looks up `name` in a directory: the stored spelling of the name, and the node.
    fn child(&self, children: &Children, name: &[u8]) -> Option<(Vec<u8>, Arc<Node>)> {
        let found = match children.get_key_value(name) {
            None if self.ignores_case => {
                children.iter().find(|(stored, _)| stored.eq_ignore_ascii_case(name))
            }
            found => found,
        };
        found.map(|(stored, node)| (stored.clone(), Arc::clone(node)))
    }

    /// The names and nodes in a directory.
    pub(super) fn list(&self, path: &RelPath) -> Outcome<Vec<(Vec<u8>, Arc<Node>)>> {
        let node = self.find(path)?;
        let mut state = node.lock();
        let children = state.children()?.iter();
        Ok(children.map(|(name, node)| (name.clone(), Arc::clone(node))).collect())
    }

    /// Gives `node` the name `path`. With `replace`, an existing file or link is replaced.
    ///
    /// # Errors
    /// If a directory has the name, anything has it without `replace`, or the parent is not an existing directory.
    pub(super) fn attach(&mut self, path: &RelPath, node: Arc<Node>, replace: bool) -> Outcome<()> {
        if let Some(old) = self.find_or_none(path)? {
            if matches!(old.lock().content, Content::Directory(_)) {
                let kind = if replace { ErrorKind::IsADirectory } else { ErrorKind::AlreadyExists };
                return Err(kind.into());
            }
            if !replace {
                return Err(ErrorKind::AlreadyExists.into());
            }
            self.detach(path)?;
        }
        let time = self.tick();
        let parent = self.find(&path.parent().unwrap_or_default())?;
        let mut parent = parent.lock();
        parent.modified = time;
        node.lock().links += 1;
        parent.children()?.insert(path.name().to_vec(), node);
        Ok(())
    }

    /// Removes the name `path` and returns its node.
    pub(super) fn detach(&mut self, path: &RelPath) -> Outcome<Arc<Node>> {
        let Some(parent) = path.parent() else {
            return Err(Refusal::new(ErrorKind::InvalidInput, "it is the root"));
        };
        let time = self.tick();
        let parent = self.find(&parent)?;
        let mut parent = parent.lock();
        let found = self.child(parent.children()?, path.name());
        let (name, node) = found.ok_or(ErrorKind::NotFound)?;
        parent.children()?.remove(&name);
        parent.modified = time;
        node.lock().links -= 1;
        Ok(node)
    }

    pub(super) fn remove(&mut self, path: &RelPath) -> Outcome<()> {
        if let Content::Directory(children) = &self.find(path)?.lock().content
            && !children.is_empty()
        {
            return Err(ErrorKind::NotEmpty.into());
        }
        self.detach(path).map(drop)
    }

    pub(super) fn rename(&mut self, from: &RelPath, to: &RelPath, replace: bool) -> Outcome<()> {
        let node = self.find(from)?;
        if to.starts_with(from) {
            if to == from {
                return Ok(());
            }
            return Err(Refusal::new(ErrorKind::InvalidInput, "it would be below itself"));
        }
        let is_directory = matches!(node.lock().content, Content::Directory(_));
        let old = self.find_or_none(to)?;
        if self.ignores_case && from.as_bytes().eq_ignore_ascii_case(to.as_bytes()) {
            // It is the same entry: only the case of its name changes.
            let node = self.detach(from)?;
            return self.attach(to, node, false);
        }
        if let Some(old) = old {
            let old_is_directory = matches!(old.lock().content, Content::Directory(_));
            if is_directory && replace {
                if !old_is_directory {
                    return Err(ErrorKind::NotADirectory.into());
                }
                self.remove(to)?;
            }
        }
        if from.is_root() {
            return Err(Refusal::new(ErrorKind::InvalidInput, "it is the root"));
        }
        self.attach(to, node, replace)?;
        self.detach(from).map(drop)
    }

    /// All entries except the root, each directory before its content.
    pub(super) fn walk(&self) -> Vec<(RelPath, Arc<Node>)> {
        let mut found = Vec::new();
        let mut pending = vec![(RelPath::root(), Arc::clone(&self.root))];
        while let Some((path, node)) = pending.pop() {
            if let Content::Directory(children) = &node.lock().content {
                for (name, child) in children.iter().rev() {
                    if let Ok(below) = path.join(name) {
                        pending.push((below, Arc::clone(child)));
                    }
                }
            }
            if !path.is_root() {
                found.push((path, node));
            }
        }
        found
    }

    /// Bytes of data in all files, without holes.
    pub(super) fn used(&self) -> u64 {
        let mut seen = BTreeSet::new();
        let nodes = self.walk().into_iter().filter(|(_, node)| seen.insert(node.inode));
        nodes
            .map(|(_, node)| match &node.lock().content {
                Content::File(data) => data.written().total(),
                _ => 0,
            })
            .sum()
    }
}

fn fresh(content: Content, modified: Timestamp) -> NodeState {
    let mode = match content {
        Content::Directory(_) => 0o755,
        Content::Symlink(_) => 0o777,
        _ => 0o644,
    };
    NodeState {
        content,
        mode,
        modified,
        owner: (1000, 1000),
        xattrs: BTreeMap::new(),
        links: 0,
        version: 0,
        held: false,
        recorded: None,
        gone: false,
    }
}
