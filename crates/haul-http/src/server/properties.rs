//! Dead properties: those that clients set and that mean nothing to the server (RFC 4918, section
//! 4.1).
//!
//! They are stored in memory, up to a limit, and are lost when the server stops. Almost no client
//! sets any, and as extended attributes they would be copied and shown as the user's own.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::limits;
use super::paths::{is_within, trimmed};
use super::xml::Name;

/// Properties of files, by their paths.
#[derive(Debug, Default)]
pub(super) struct Properties {
    stored: Mutex<Stored>,
}

/// Properties of one file: name, and the whole XML element.
pub(super) type Set = BTreeMap<Name, String>;

#[derive(Debug, Default)]
struct Stored {
    files: BTreeMap<Vec<u8>, Set>,
    bytes: usize,
}

/// The limit for all properties is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

/// What a COPY has copied, and replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Copied {
    /// The source with everything below it. Nothing else is left at the destination.
    Tree,
    /// Only the source itself (`Depth: 0`). Nothing else is left at the destination.
    Alone,
    /// Only the properties of a directory (`Depth: 0`): the destination is a directory and keeps its content.
    Onto,
}

impl Properties {
    /// The properties of a file.
    pub(super) fn of(&self, path: &[u8]) -> Set {
        let stored = self.stored();
        if stored.files.is_empty() {
            Set::new()
        } else {
            stored.files.get(trimmed(path)).cloned().unwrap_or_default()
        }
    }

    /// Sets properties, and removes those without a value: all of them or none.
    pub(super) fn change(
        &self,
        path: &[u8],
        changes: &[(Name, Option<String>)],
    ) -> Result<(), Full> {
        let mut stored = self.stored();
        let mut set = stored.files.get(trimmed(path)).cloned().unwrap_or_default();
        for (name, value) in changes {
            match value {
                Some(value) => drop(set.insert(name.clone(), value.clone())),
                None => drop(set.remove(name)),
            }
        }
        let old = stored.files.get(trimmed(path)).map_or(0, |old| weight(trimmed(path), old));
        if stored.bytes - old + weight(trimmed(path), &set) > limits::PROPERTIES {
            return Err(Full);
        }
        stored.put(trimmed(path).to_vec(), set);
        Ok(())
    }

    /// A file, or a directory with everything in it, was removed.
    pub(super) fn removed(&self, path: &[u8]) {
        drop(self.stored().take(trimmed(path)));
    }

    /// A file or directory was moved.
    pub(super) fn moved(&self, from: &[u8], to: &[u8]) {
        let mut stored = self.stored();
        let taken = stored.take(trimmed(from));
        drop(stored.take(trimmed(to)));
        stored.put_all(taken, trimmed(from), trimmed(to));
    }

    /// A file or directory was copied. Properties that would exceed the limit are not copied.
    pub(super) fn copied(&self, from: &[u8], to: &[u8], copied: Copied) {
        let mut stored = self.stored();
        let (from, to) = (trimmed(from), trimmed(to));
        match copied {
            Copied::Tree | Copied::Alone => drop(stored.take(to)),
            Copied::Onto => stored.put(to.to_vec(), Set::new()),
        }
        let copies = match copied {
            Copied::Tree => stored.below(from),
            Copied::Alone | Copied::Onto => vec![from.to_vec()],
        };
        let copies = copies.into_iter().filter_map(|path| {
            let set = stored.files.get(&path)?.clone();
            Some((path, set))
        });
        let copies = copies.collect();
        stored.put_all(copies, from, to);
    }

    fn stored(&self) -> MutexGuard<'_, Stored> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stored {
    fn put(&mut self, path: Vec<u8>, set: Set) {
        if let Some(old) = self.files.remove(&path) {
            self.bytes -= weight(&path, &old);
        }
        if !set.is_empty() {
            self.bytes += weight(&path, &set);
            self.files.insert(path, set);
        }
    }

    /// Stores `sets`, whose paths are `from` or below it, at the same paths relative to `to`.
    fn put_all(&mut self, sets: Vec<(Vec<u8>, Set)>, from: &[u8], to: &[u8]) {
        for (path, set) in sets {
            let path = [to, &path[from.len()..]].concat();
            if self.bytes + weight(&path, &set) <= limits::PROPERTIES {
                self.put(path, set);
            }
        }
    }

    /// Removes and returns the properties of a path and of everything below it.
    fn take(&mut self, path: &[u8]) -> Vec<(Vec<u8>, Set)> {
        let taken = self.below(path).into_iter().filter_map(|path| {
            let set = self.files.remove(&path)?;
            self.bytes -= weight(&path, &set);
            Some((path, set))
        });
        taken.collect()
    }

    /// Paths with properties: this one and those below it.
    fn below(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let from = (Bound::Included(path), Bound::Unbounded);
        let paths = self.files.range::<[u8], _>(from).map(|(path, _)| path);
        let paths = paths.take_while(|candidate| candidate.starts_with(path));
        paths.filter(|candidate| is_within(candidate, path)).cloned().collect()
    }
}

/// Bytes that the properties of a file occupy. An empty set is not stored.
fn weight(path: &[u8], set: &Set) -> usize {
    if set.is_empty() {
        return 0;
    }
    let each =
        |(name, value): (&Name, &String)| name.namespace.len() + name.local.len() + value.len();
    // An estimate for the maps themselves is included.
    128 + path.len() + set.iter().map(|entry| 64 + each(entry)).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(local: &str) -> Name {
        Name { namespace: String::new(), local: local.to_owned() }
    }

    fn set(properties: &Properties, path: &[u8], value: &str) {
        properties.change(path, &[(name("p"), Some(value.to_owned()))]).unwrap();
    }

    fn value(properties: &Properties, path: &[u8]) -> Option<String> {
        properties.of(path).remove(&name("p"))
    }

    #[test]
    fn properties_follow_moves_copies_and_removals() {
        let properties = Properties::default();
        set(&properties, b"/a/", "1");
        set(&properties, b"/a/b", "2");
        set(&properties, b"/ab", "3");
        properties.copied(b"/a", b"/c/", Copied::Tree);
        properties.moved(b"/a/", b"/d");
        assert_eq!(value(&properties, b"/c/b").as_deref(), Some("2"));
        assert_eq!(value(&properties, b"/d").as_deref(), Some("1"));
        assert_eq!(value(&properties, b"/a"), None);
        properties.removed(b"/d");
        properties.removed(b"/c");
        assert_eq!(value(&properties, b"/d/b"), None);
        assert_eq!(value(&properties, b"/ab").as_deref(), Some("3"));
        properties.change(b"/ab", &[(name("p"), None)]).unwrap();
        assert_eq!(properties.stored().bytes, 0);
    }

    #[test]
    fn a_shallow_copy_takes_only_the_properties_of_its_source() {
        let properties = Properties::default();
        for path in [&b"/a"[..], b"/a/b", b"/c", b"/c/b", b"/d", b"/d/b"] {
            set(&properties, path, std::str::from_utf8(path).unwrap());
        }
        properties.copied(b"/a/", b"/c", Copied::Alone);
        properties.copied(b"/a/", b"/d", Copied::Onto);
        properties.copied(b"/a/", b"/e", Copied::Alone);
        let values = [&b"/c"[..], b"/c/b", b"/d", b"/d/b", b"/e", b"/e/b"];
        let values = values.map(|path| value(&properties, path));
        let expected = [Some("/a"), None, Some("/a"), Some("/d/b"), Some("/a"), None];
        assert_eq!(values, expected.map(|value| value.map(str::to_owned)));
    }

    #[test]
    fn properties_are_limited_in_memory() {
        let properties = Properties::default();
        let half = "x".repeat(limits::PROPERTIES / 2);
        set(&properties, b"/a", &half);
        assert_eq!(properties.change(b"/b", &[(name("p"), Some(half.clone()))]), Err(Full));
        set(&properties, b"/a", &half);
        properties.copied(b"/a", b"/c", Copied::Tree);
        assert_eq!(value(&properties, b"/c"), None);
    }

    /// Regression: the empty set that a removal leaves counted as if it were stored.
    #[test]
    fn removing_properties_succeeds_at_the_limit() {
        let properties = Properties::default();
        let empty = weight(b"/a", &Set::from([(name("p"), String::new())]));
        set(&properties, b"/a", &"x".repeat(limits::PROPERTIES - empty));
        assert_eq!(properties.stored().bytes, limits::PROPERTIES);
        assert_eq!(properties.change(b"/b", &[(name("p"), None)]), Ok(()));
        assert_eq!(properties.change(b"/b", &[(name("p"), Some(String::new()))]), Err(Full));
        assert_eq!(properties.change(b"/a", &[(name("p"), None)]), Ok(()));
        assert_eq!(properties.stored().bytes, 0);
    }
}
