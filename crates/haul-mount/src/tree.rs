//! The table of nodes: numbers by which the kernel knows entries, and their names.
//!
//! A node has its parent and its name, so that renaming a directory does not touch what is below. It stays as long as
//! the kernel has references to it (one for each response that refers to it, released by FORGET) or it has children
//! here. Numbers are not reused.

use std::collections::HashMap;
use std::sync::Arc;

use haul_storage::RelPath;

use crate::fuse::ROOT;

/// The nodes that the kernel knows.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: HashMap<u64, Node>,
    names: HashMap<(u64, Arc<[u8]>), u64>,
    next: u64,
    most: usize,
}

#[derive(Debug)]
struct Node {
    parent: u64,
    name: Arc<[u8]>,
    lookups: u64,
    children: u64,
    /// It was removed: it has no name any more.
    is_removed: bool,
}

impl Tree {
    /// A table with the root. Beyond `most` nodes, listings add none; names that are looked up are always added.
    pub(crate) fn new(most: usize) -> Self {
        let root = Node {
            parent: ROOT,
            name: Arc::from(&b""[..]),
            lookups: 1,
            children: 0,
            is_removed: false,
        };
        Self { nodes: HashMap::from([(ROOT, root)]), names: HashMap::new(), next: ROOT + 1, most }
    }

    /// Number of nodes.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether listings should add no more nodes.
    pub(crate) fn is_full(&self) -> bool {
        self.nodes.len() >= self.most
    }

    /// The path of a node; `None` if it is not known, or was removed.
    pub(crate) fn path(&self, node: u64) -> Option<RelPath> {
        let mut names = Vec::new();
        let mut current = node;
        while current != ROOT {
            let found = self.nodes.get(&current).filter(|found| !found.is_removed)?;
            names.push(&found.name);
            current = found.parent;
        }
        let mut bytes = Vec::new();
        for name in names.into_iter().rev() {
            if !bytes.is_empty() {
                bytes.push(b'/');
            }
            bytes.extend_from_slice(name);
        }
        RelPath::parse(bytes).ok()
    }

    /// The number of the directory that contains a node; that of the root is the root.
    pub(crate) fn parent(&self, node: u64) -> u64 {
        self.nodes.get(&node).map_or(ROOT, |node| node.parent)
    }

    /// The node of a name, if it is known.
    pub(crate) fn find(&self, parent: u64, name: &[u8]) -> Option<u64> {
        let name: Arc<[u8]> = Arc::from(name);
        self.names.get(&(parent, name)).copied()
    }

    /// The node of a path, if it is known.
    pub(crate) fn find_path(&self, path: &RelPath) -> Option<u64> {
        let names = path.as_bytes().split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        names.into_iter().try_fold(ROOT, |parent, name| self.find(parent, name))
    }

    /// The node of a name, with one more reference of the kernel. It is added if necessary; `None` if its parent is
    /// not known.
    pub(crate) fn refer(&mut self, parent: u64, name: &[u8]) -> Option<u64> {
        let name: Arc<[u8]> = Arc::from(name);
        if let Some(number) = self.names.get(&(parent, Arc::clone(&name))).copied() {
            let node = self.nodes.get_mut(&number)?;
            node.lookups = node.lookups.saturating_add(1);
            return Some(number);
        }
        let above = self.nodes.get_mut(&parent)?;
        above.children += 1;
        let number = self.next;
        self.next += 1;
        self.names.insert((parent, Arc::clone(&name)), number);
        self.nodes
            .insert(number, Node { parent, name, lookups: 1, children: 0, is_removed: false });
        Some(number)
    }

    /// Whether a node is known.
    pub(crate) fn contains(&self, node: u64) -> bool {
        self.nodes.contains_key(&node)
    }

    /// An entry was removed: its node, which is returned, has no path any more, and the name is free for another.
    pub(crate) fn remove(&mut self, parent: u64, name: &[u8]) -> Option<u64> {
        let number = self.names.remove(&(parent, Arc::from(name)))?;
        if let Some(node) = self.nodes.get_mut(&number) {
            node.is_removed = true;
        }
        self.drop_child(parent);
        Some(number)
    }

    /// An entry was renamed. The entry that had the new name is removed; its node is returned.
    pub(crate) fn rename(
        &mut self,
        (parent, name): (u64, &[u8]),
        (new_parent, new_name): (u64, &[u8]),
    ) -> Option<u64> {
        if (parent, name) == (new_parent, new_name) {
            return None;
        }
        let replaced = self.remove(new_parent, new_name);
        let Some(number) = self.names.remove(&(parent, Arc::from(name))) else { return replaced };
        let new_name: Arc<[u8]> = Arc::from(new_name);
        if let Some(above) = self.nodes.get_mut(&new_parent) {
            above.children += 1;
        }
        if let Some(node) = self.nodes.get_mut(&number) {
            (node.parent, node.name) = (new_parent, Arc::clone(&new_name));
        }
        self.names.insert((new_parent, new_name), number);
        self.drop_child(parent);
        replaced
    }

    /// A directory has one child less; it is dropped if nothing refers to it.
    fn drop_child(&mut self, parent: u64) {
        if let Some(above) = self.nodes.get_mut(&parent) {
            above.children = above.children.saturating_sub(1);
        }
        self.forget(parent, 0);
    }

    /// Drops references of the kernel, and nodes that nothing refers to.
    pub(crate) fn forget(&mut self, node: u64, lookups: u64) {
        let Some(found) = self.nodes.get_mut(&node) else { return };
        found.lookups = found.lookups.saturating_sub(lookups);
        let mut current = node;
        while current != ROOT {
            let Some(found) = self.nodes.get(&current) else { return };
            if found.lookups > 0 || found.children > 0 {
                return;
            }
            let parent = found.parent;
            if let Some(gone) = self.nodes.remove(&current) {
                if gone.is_removed {
                    return;
                }
                self.names.remove(&(parent, gone.name));
            }
            if let Some(above) = self.nodes.get_mut(&parent) {
                above.children = above.children.saturating_sub(1);
            }
            current = parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Option<RelPath> {
        Some(RelPath::parse(text).unwrap())
    }

    #[test]
    fn a_node_has_the_path_of_its_names() {
        let mut tree = Tree::new(100);
        let a = tree.refer(ROOT, b"a").unwrap();
        let b = tree.refer(a, b"b").unwrap();
        assert_eq!(tree.path(ROOT), path(""));
        assert_eq!(tree.path(b), path("a/b"));
        assert_eq!((tree.parent(b), tree.parent(a), tree.parent(ROOT)), (a, ROOT, ROOT));
        assert_eq!(tree.find(a, b"b"), Some(b));
        assert_eq!(tree.find(ROOT, b"b"), None);
        assert_eq!(tree.refer(77, b"x"), None);
    }

    #[test]
    fn a_node_stays_until_all_references_are_dropped() {
        let mut tree = Tree::new(100);
        let a = tree.refer(ROOT, b"a").unwrap();
        assert_eq!(tree.refer(ROOT, b"a"), Some(a));
        tree.forget(a, 1);
        assert_eq!(tree.path(a), path("a"));
        tree.forget(a, 1);
        assert_eq!(tree.path(a), None);
        // A later node has a number of its own.
        assert_ne!(tree.refer(ROOT, b"a"), Some(a));
    }

    #[test]
    fn a_forgotten_directory_stays_while_it_has_children() {
        let mut tree = Tree::new(100);
        let a = tree.refer(ROOT, b"a").unwrap();
        let b = tree.refer(a, b"b").unwrap();
        tree.forget(a, 1);
        assert_eq!(tree.path(b), path("a/b"));
        tree.forget(b, 1);
        assert_eq!(tree.len(), 1);
    }

    #[test]
    fn a_removed_entry_has_no_path_and_frees_its_name() {
        let mut tree = Tree::new(100);
        let a = tree.refer(ROOT, b"a").unwrap();
        let b = tree.refer(a, b"b").unwrap();
        assert_eq!(tree.remove(a, b"b"), Some(b));
        assert_eq!((tree.path(b), tree.contains(b)), (None, true));
        let other = tree.refer(a, b"b").unwrap();
        assert_ne!(other, b);
        tree.forget(b, 1);
        assert!(!tree.contains(b));
        assert_eq!(tree.path(other), path("a/b"));
        tree.forget(other, 1);
        tree.forget(a, 1);
        assert_eq!(tree.len(), 1);
    }

    #[test]
    fn a_renamed_directory_moves_what_is_below() {
        let mut tree = Tree::new(100);
        let a = tree.refer(ROOT, b"a").unwrap();
        let b = tree.refer(a, b"b").unwrap();
        let c = tree.refer(ROOT, b"c").unwrap();
        let old = tree.refer(c, b"new").unwrap();
        assert_eq!(tree.rename((ROOT, b"a"), (c, b"new")), Some(old));
        assert_eq!((tree.path(b), tree.path(old)), (path("c/new/b"), None));
        assert_eq!((tree.find(c, b"new"), tree.find(ROOT, b"a")), (Some(a), None));
        for (node, lookups) in [(b, 1), (old, 1), (a, 1), (c, 1)] {
            tree.forget(node, lookups);
        }
        assert_eq!(tree.len(), 1);
    }

    #[test]
    fn the_root_is_never_forgotten() {
        let mut tree = Tree::new(100);
        tree.forget(ROOT, u64::MAX);
        tree.forget(99, 1);
        assert_eq!(tree.path(ROOT), path(""));
    }

    #[test]
    fn names_that_are_looked_up_are_added_to_a_full_table() {
        let mut tree = Tree::new(2);
        assert!(!tree.is_full());
        tree.refer(ROOT, b"a").unwrap();
        assert!(tree.is_full());
        assert!(tree.refer(ROOT, b"b").is_some());
    }
}
