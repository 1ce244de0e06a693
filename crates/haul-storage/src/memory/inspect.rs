//! Methods by which a test prepares, changes and inspects a storage, bypassing its traits. They are
//! not counted as calls, and injected faults and delays do not affect them.
//!
//! On failure they panic with path and cause, because the test is wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::data::Data;
use super::lock::lock;
use super::path::path;
use super::tree::{Content, Node, Refusal, Tree};
use super::{MemoryStorage, Pattern};
use crate::{Block, Entry, EntryKind, Metadata, Range, RelPath, SpecialKind, Timestamp, part_name};

impl MemoryStorage {
    /// Adds a file and its parent directories; replaces an existing file.
    pub fn add_file(&self, at: impl AsRef<[u8]>, content: impl AsRef<[u8]>) {
        let mut data = Data::new();
        let block = Block::from(Bytes::copy_from_slice(content.as_ref()));
        check(&path(&at), data.write(0, &block).map_err(Refusal::not_the_pattern));
        self.add(&path(at), Content::File(data));
    }

    /// Adds a file of `size` bytes with the [`Pattern`] of `seed` as content. It takes no memory.
    pub fn add_pattern_file(&self, at: impl AsRef<[u8]>, size: u64, seed: u64) {
        self.add(&path(at), Content::File(Data::pattern(Pattern::new(seed), size)));
    }

    /// Adds a file of `size` bytes with data only at the given offsets and holes everywhere else.
    pub fn add_sparse_file(&self, at: impl AsRef<[u8]>, size: u64, pieces: &[(u64, &[u8])]) {
        let mut data = Data::new();
        data.resize(size);
        for (offset, piece) in pieces {
            let block = Block::from(Bytes::copy_from_slice(piece));
            check(&path(&at), data.write(*offset, &block).map_err(Refusal::not_the_pattern));
        }
        self.add(&path(at), Content::File(data));
    }

    /// Adds a directory and its parents.
    pub fn add_dir(&self, at: impl AsRef<[u8]>) {
        make_directories(&mut lock(&self.shared.tree), &path(at));
    }

    /// Adds a symbolic link and its parent directories.
    pub fn add_symlink(&self, at: impl AsRef<[u8]>, target: impl AsRef<[u8]>) {
        self.add(&path(at), Content::Symlink(target.as_ref().to_vec()));
    }

    /// Adds a special file and its parent directories.
    pub fn add_special(&self, at: impl AsRef<[u8]>, kind: SpecialKind) {
        self.add(&path(at), Content::Special(kind));
    }

    /// Sets attributes, regardless of the capabilities.
    pub fn set(&self, at: impl AsRef<[u8]>, metadata: &Metadata) {
        let node = self.node(&path(at));
        let mut state = node.lock();
        if let Some(mode) = metadata.mode {
            state.mode = mode;
        }
        if let Some(modified) = metadata.modified {
            state.modified = modified;
        }
        if let Some(owner) = metadata.owner {
            state.owner = owner;
        }
        if let Some(xattrs) = &metadata.xattrs {
            state.xattrs = xattrs.iter().cloned().collect();
        }
    }

    /// Sets the modification time in seconds since the epoch.
    pub fn set_modified(&self, at: impl AsRef<[u8]>, seconds: i64) {
        let modified = Some(Timestamp { seconds, nanos: 0 });
        self.set(at, &Metadata { modified, ..Metadata::default() });
    }

    /// Changes a file in place, as another program would: open readers see the change.
    pub fn overwrite(&self, at: impl AsRef<[u8]>, offset: u64, content: impl AsRef<[u8]>) {
        let block = Block::from(Bytes::copy_from_slice(content.as_ref()));
        self.alter(&path(at), |data| data.write(offset, &block).map_err(Refusal::not_the_pattern));
    }

    /// Truncates or extends a file in place.
    pub fn resize(&self, at: impl AsRef<[u8]>, size: u64) {
        self.alter(&path(at), |data| {
            data.resize(size);
            Ok(())
        });
    }

    /// Removes an entry with everything below it.
    pub fn take_away(&self, at: impl AsRef<[u8]>) {
        let at = path(at);
        check(&at, lock(&self.shared.tree).detach(&at));
    }

    /// From now on a file written to `at` must have the [`Pattern`] of `seed`, and is not stored: any
    /// other byte fails the write with `Corrupt`.
    pub fn expect_pattern(&self, at: impl AsRef<[u8]>, seed: u64) {
        lock(&self.shared.sinks).insert(path(at), Pattern::new(seed));
    }

    /// Whether an entry exists.
    pub fn exists(&self, at: impl AsRef<[u8]>) -> bool {
        lock(&self.shared.tree).find(&path(at)).is_ok()
    }

    /// The content of a file.
    pub fn content(&self, at: impl AsRef<[u8]>) -> Bytes {
        let at = path(at);
        let mut content = Block::new();
        self.look(&at, |data| content = data.read(Range::new(0, data.size())));
        content.into_bytes()
    }

    /// Whether a file has `size` bytes with the [`Pattern`] of `seed`.
    pub fn is_pattern(&self, at: impl AsRef<[u8]>, size: u64, seed: u64) -> bool {
        let mut same = false;
        self.look(&path(at), |data| same = data.is_pattern(Pattern::new(seed), size));
        same
    }

    /// The ranges of a file that hold data, merged, in order; holes are between them.
    pub fn ranges(&self, at: impl AsRef<[u8]>) -> Vec<Range> {
        let mut ranges = Vec::new();
        self.look(&path(at), |data| ranges = data.written().iter().collect());
        ranges
    }

    /// Whether there is a part file for `at`.
    pub fn has_part(&self, at: impl AsRef<[u8]>) -> bool {
        self.exists(part_of(&path(at)).as_bytes())
    }

    /// The content of the part file for `at`.
    pub fn part_content(&self, at: impl AsRef<[u8]>) -> Bytes {
        self.content(part_of(&path(at)).as_bytes())
    }

    /// The ranges that the part file for `at` holds; none if there is no part file.
    pub fn part_ranges(&self, at: impl AsRef<[u8]>) -> Vec<Range> {
        let part = part_of(&path(at));
        if self.exists(part.as_bytes()) { self.ranges(part.as_bytes()) } else { Vec::new() }
    }

    /// The number of bytes that the part file for `at` holds; 0 if there is none.
    pub fn part_bytes(&self, at: impl AsRef<[u8]>) -> u64 {
        self.part_ranges(at).into_iter().map(Range::len).sum()
    }

    /// The entry at `at`, as `stat` would return it.
    pub fn entry(&self, at: impl AsRef<[u8]>) -> Entry {
        let at = path(at);
        let node = self.node(&at);
        self.shared.entry(at, &node)
    }

    /// All attributes of the entry at `at`, as `metadata` would return them.
    pub fn attributes(&self, at: impl AsRef<[u8]>) -> Metadata {
        self.shared.metadata(&self.node(&path(at)))
    }

    /// Every entry except the root, part files included, each directory before its contents.
    pub fn entries(&self) -> Vec<Entry> {
        let nodes = lock(&self.shared.tree).walk();
        nodes.into_iter().map(|(at, node)| self.shared.entry(at, &node)).collect()
    }

    /// Every file with its content, part files included, to compare trees.
    pub fn files(&self) -> BTreeMap<RelPath, Bytes> {
        let files = self.entries().into_iter().filter(Entry::is_file);
        files.map(|entry| (entry.path.clone(), self.content(entry.path.as_bytes()))).collect()
    }

    /// Every path as text, in the order of [`MemoryStorage::entries`]; those of directories end with
    /// `/`.
    pub fn paths(&self) -> Vec<String> {
        let shown = |entry: Entry| match entry.kind {
            EntryKind::Directory => format!("{}/", entry.path),
            _ => entry.path.to_string(),
        };
        self.entries().into_iter().map(shown).collect()
    }

    /// Bytes of data in all files, part files included.
    pub fn used_bytes(&self) -> u64 {
        lock(&self.shared.tree).used()
    }

    fn add(&self, at: &RelPath, content: Content) {
        let mut tree = lock(&self.shared.tree);
        make_directories(&mut tree, &at.parent().unwrap_or_default());
        let node = tree.node(content);
        check(at, tree.attach(at, node, true));
    }

    fn node(&self, at: &RelPath) -> Arc<Node> {
        check(at, lock(&self.shared.tree).find(at))
    }

    fn look(&self, at: &RelPath, look: impl FnOnce(&Data)) {
        let node = self.node(at);
        let mut state = node.lock();
        look(&*check(at, state.data()));
    }

    fn alter(&self, at: &RelPath, change: impl FnOnce(&mut Data) -> Result<(), Refusal>) {
        let mut tree = lock(&self.shared.tree);
        let node = check(at, tree.find(at));
        let mut state = node.lock();
        state.modified = tree.tick();
        state.version += 1;
        check(at, state.data().and_then(change));
    }
}

fn make_directories(tree: &mut Tree, at: &RelPath) {
    let mut current = RelPath::root();
    for name in at.components() {
        let Ok(below) = current.join(name) else { return };
        current = below;
        if check(&current, tree.find_or_none(&current)).is_none() {
            let node = tree.node(Content::Directory(BTreeMap::new()));
            check(&current, tree.attach(&current, node, false));
        }
    }
}

fn part_of(at: &RelPath) -> RelPath {
    match at.with_name(part_name(at.name())) {
        Ok(part) => part,
        Err(error) => panic!("the part file's name of {at} {error}"),
    }
}

fn check<T>(at: &RelPath, outcome: Result<T, Refusal>) -> T {
    match outcome {
        Ok(value) => value,
        Err(refusal) => panic!("{at}: {}", refusal.cause),
    }
}
