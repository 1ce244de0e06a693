//! Complete listings that are held for as long as attributes may be used. Without I/O.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use haul_storage::{Entry, RelPath};

use crate::attributes::text_bytes;

/// Most bytes that all listings together may take.
const MOST: usize = 8 << 20;

/// Bytes that a listing takes beside its entries, and an entry beside its texts.
const LISTING: usize = 300;
const ENTRY: usize = 200;

/// Most entries of a listing that is held, and most bytes. A longer one is not read ahead to its end.
pub(super) const MOST_ENTRIES: usize = 8192;
pub(super) const MOST_BYTES: usize = 2 << 20;

/// Entries of a directory, by name.
pub(super) type Entries = Arc<[Arc<Entry>]>;

/// The listings.
#[derive(Debug)]
pub(super) struct Listings {
    age: Duration,
    held: HashMap<RelPath, Held>,
    /// The listings, oldest first, with their numbers; one that was replaced is in the queue twice.
    order: VecDeque<(RelPath, u64)>,
    number: u64,
    weight: usize,
    unused: usize,
}

#[derive(Debug)]
struct Held {
    at: Duration,
    number: u64,
    entries: Entries,
    weight: usize,
    is_used: bool,
    /// Whether it was listed for a program, not at the start of the mount.
    is_counted: bool,
    /// Names of entries that were changed through this mount since it was requested.
    changed: HashSet<Vec<u8>>,
    /// Its directories, and how many of them have been taken.
    directories: Vec<RelPath>,
    taken: usize,
}

impl Listings {
    /// None yet. A listing may be used for `age`.
    pub(super) fn new(age: Duration) -> Self {
        let (held, order) = (HashMap::new(), VecDeque::new());
        Self { age, held, order, number: 0, weight: 0, unused: 0 }
    }

    /// Listings that no program has used yet.
    pub(super) const fn unused(&self) -> usize {
        self.unused
    }

    /// Holds a listing that was requested at `at`. `is_used` unless it was only listed ahead.
    pub(super) fn put(
        &mut self,
        directory: &RelPath,
        at: Duration,
        mut entries: Vec<Arc<Entry>>,
        changed: HashSet<Vec<u8>>,
        (is_used, is_counted): (bool, bool),
    ) {
        if self.held.get(directory).is_some_and(|held| held.at > at) {
            return;
        }
        self.remove(directory);
        entries.sort_by(|one, other| one.path.name().cmp(other.path.name()));
        let directories = entries.iter().filter(|entry| entry.is_dir());
        let directories: Vec<_> = directories.map(|entry| entry.path.clone()).collect();
        let weight = LISTING + entries.iter().map(|entry| weight(entry)).sum::<usize>();
        self.number += 1;
        self.weight += weight;
        self.unused += usize::from(!is_used);
        let (number, taken) = (self.number, 0);
        let held = Held {
            at,
            number,
            entries: entries.into(),
            weight,
            is_used,
            is_counted,
            changed,
            directories,
            taken,
        };
        self.held.insert(directory.clone(), held);
        self.order.push_back((directory.clone(), number));
        while self.weight > MOST {
            let Some((oldest, number)) = self.order.pop_front() else { return };
            if self.held.get(&oldest).is_some_and(|held| held.number == number) {
                self.remove(&oldest);
            }
        }
    }

    /// Drops what is too old. Returns how many of these listings were made for programs and were not used.
    pub(super) fn expire(&mut self, now: Duration) -> usize {
        let mut wasted = 0;
        while let Some((oldest, number)) = self.order.front() {
            let held = self.held.get(oldest).filter(|held| held.number == *number);
            if let Some(held) = held {
                if now.saturating_sub(held.at) < self.age {
                    break;
                }
                wasted += usize::from(held.is_counted && !held.is_used);
            }
            let is_current = held.is_some();
            let Some((oldest, _)) = self.order.pop_front() else { break };
            if is_current {
                self.remove(&oldest);
            }
        }
        wasted
    }

    /// Whether a listing may be used.
    pub(super) fn has(&self, directory: &RelPath, now: Duration) -> bool {
        self.fresh(directory, now).is_some()
    }

    /// The entries of a directory, unless something in it was changed here.
    pub(super) fn entries(&self, directory: &RelPath, now: Duration) -> Option<Entries> {
        let held = self.fresh(directory, now).filter(|held| held.changed.is_empty())?;
        Some(Arc::clone(&held.entries))
    }

    /// For how long a name may be taken for missing, if the listing of its directory does not have it.
    pub(super) fn missing(&self, path: &RelPath, now: Duration) -> Option<Duration> {
        let held = self.fresh(&path.parent()?, now)?;
        let name = path.name();
        let found = held.entries.binary_search_by(|entry| entry.path.name().cmp(name));
        let is_missing = found.is_err() && !held.changed.contains(name);
        is_missing.then(|| self.age.saturating_sub(now.saturating_sub(held.at)))
    }

    /// A program uses a listing. Returns whether that is its first use.
    pub(super) fn use_up(&mut self, directory: &RelPath) -> bool {
        let Some(held) = self.held.get_mut(directory) else { return false };
        let is_first = !std::mem::replace(&mut held.is_used, true);
        self.unused -= usize::from(is_first);
        is_first
    }

    /// The next directories in a directory that were not taken yet, until `most` have been taken in all.
    pub(super) fn take(&mut self, directory: &RelPath, most: usize) -> Vec<RelPath> {
        let Some(held) = self.held.get_mut(directory) else { return Vec::new() };
        let until = most.min(held.directories.len());
        let next = held.directories.get(held.taken..until).unwrap_or_default().to_vec();
        held.taken = held.taken.max(until);
        next
    }

    /// How many directories in a directory have been taken.
    pub(super) fn taken(&self, directory: &RelPath) -> usize {
        self.held.get(directory).map_or(0, |held| held.taken)
    }

    /// An entry and all below were changed here: listings of these are dropped.
    pub(super) fn drop_below(&mut self, path: &RelPath) {
        let below = self.held.keys().filter(|directory| directory.starts_with(path));
        let below: Vec<_> = below.cloned().collect();
        below.iter().for_each(|directory| self.remove(directory));
    }

    /// An entry was changed here: the listing of its directory no longer holds for it.
    pub(super) fn changed(&mut self, path: &RelPath) {
        if let Some(parent) = path.parent()
            && let Some(held) = self.held.get_mut(&parent)
        {
            held.changed.insert(path.name().to_vec());
        }
    }

    fn fresh(&self, directory: &RelPath, now: Duration) -> Option<&Held> {
        self.held.get(directory).filter(|held| now.saturating_sub(held.at) < self.age)
    }

    fn remove(&mut self, directory: &RelPath) {
        let Some(held) = self.held.remove(directory) else { return };
        self.weight -= held.weight;
        self.unused -= usize::from(!held.is_used);
    }
}

/// Bytes that an entry takes.
pub(super) fn weight(entry: &Entry) -> usize {
    // The path of a directory is also in `Held::directories`.
    let again = if entry.is_dir() { entry.path.as_bytes().len() } else { 0 };
    ENTRY + text_bytes(entry) + again
}

#[cfg(test)]
mod tests {
    use haul_storage::EntryKind;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    /// Entries of which those that begin with `d` are directories.
    fn entries(directory: &str, names: &[&str]) -> Vec<Arc<Entry>> {
        let entry = |name: &&str| {
            let kind = if name.starts_with('d') { EntryKind::Directory } else { EntryKind::File };
            Arc::new(Entry::new(path(directory).join(name).unwrap(), kind, 0))
        };
        names.iter().map(entry).collect()
    }

    fn held(directory: &str, names: &[&str]) -> Listings {
        let mut listings = Listings::new(5 * SECOND);
        put(&mut listings, directory, SECOND, names, (false, true));
        listings
    }

    fn put(
        listings: &mut Listings,
        directory: &str,
        at: Duration,
        names: &[&str],
        flags: (bool, bool),
    ) {
        let entries = entries(directory, names);
        listings.put(&path(directory), at, entries, HashSet::new(), flags);
    }

    #[test]
    fn a_name_that_is_not_listed_is_missing_for_the_age_of_the_listing() {
        let listings = held("a", &["z", "m", "b"]);
        assert_eq!(listings.missing(&path("a/c"), 2 * SECOND), Some(4 * SECOND));
        for name in ["b", "m", "z"] {
            assert_eq!(listings.missing(&path("a").join(name).unwrap(), 2 * SECOND), None);
        }
        assert_eq!(listings.missing(&path("a/c"), 6 * SECOND), None);
        assert_eq!(listings.missing(&path("b/c"), 2 * SECOND), None);
        assert_eq!(listings.missing(&RelPath::root(), 2 * SECOND), None);
    }

    #[test]
    fn directories_are_taken_once() {
        let mut listings = held("a", &["d3", "d1", "x", "d2"]);
        assert_eq!(listings.take(&path("a"), 2), [path("a/d1"), path("a/d2")]);
        assert_eq!(listings.take(&path("a"), 2), []);
        assert_eq!(listings.take(&path("a"), 9), [path("a/d3")]);
        assert_eq!((listings.taken(&path("a")), listings.taken(&path("b"))), (3, 0));
    }

    #[test]
    fn listings_that_were_not_used_are_counted_when_they_expire() {
        let mut listings = held("a", &["x"]);
        put(&mut listings, "b", 2 * SECOND, &["x"], (false, true));
        put(&mut listings, "c", 2 * SECOND, &["x"], (false, false));
        assert_eq!(listings.unused(), 3);
        assert!(listings.use_up(&path("b")) && !listings.use_up(&path("b")));
        assert_eq!((listings.unused(), listings.expire(5 * SECOND)), (2, 0));
        assert_eq!(listings.expire(6 * SECOND), 1);
        assert!(listings.has(&path("b"), 6 * SECOND) && !listings.has(&path("a"), 6 * SECOND));
        assert_eq!((listings.expire(7 * SECOND), listings.unused()), (0, 0));
        assert_eq!((listings.held.len(), listings.weight), (0, 0));
    }

    #[test]
    fn a_listing_is_replaced_only_by_a_later_one() {
        let mut listings = held("a", &["x"]);
        put(&mut listings, "a", 2 * SECOND, &["y"], (false, true));
        put(&mut listings, "a", SECOND, &["z"], (false, true));
        assert_eq!(listings.missing(&path("a/y"), 2 * SECOND), None);
        assert!(listings.missing(&path("a/z"), 2 * SECOND).is_some());
        assert_eq!((listings.unused(), listings.expire(6 * SECOND)), (1, 0));
        listings.drop_below(&path("a"));
        assert_eq!((listings.held.len(), listings.weight, listings.unused()), (0, 0, 0));
    }

    #[test]
    fn an_entry_that_was_changed_here_is_neither_missing_nor_listed() {
        let mut listings = held("a", &["x", "d1"]);
        put(&mut listings, "a/d1", SECOND, &["x"], (false, true));
        assert!(listings.entries(&path("a"), SECOND).is_some());
        listings.changed(&path("a/new"));
        assert_eq!(listings.missing(&path("a/new"), SECOND), None);
        assert!(listings.missing(&path("a/other"), SECOND).is_some());
        assert!(listings.entries(&path("a"), SECOND).is_none());
        assert!(listings.has(&path("a/d1"), SECOND));
        listings.changed(&path("a/d1"));
        assert!(listings.has(&path("a/d1"), SECOND));
        listings.drop_below(&path("a/d1"));
        assert!(!listings.has(&path("a/d1"), SECOND) && listings.has(&path("a"), SECOND));
    }

    #[test]
    fn the_oldest_listings_make_room() {
        let mut listings = Listings::new(5 * SECOND);
        let long = "x".repeat(200);
        let names: Vec<String> = (0..1000).map(|number| format!("{long}{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for number in 0..100 {
            let name = number.to_string();
            put(&mut listings, &name, SECOND, &names, (true, true));
        }
        assert!(listings.weight <= MOST, "{}", listings.weight);
        assert!(listings.has(&path("99"), SECOND) && !listings.has(&path("0"), SECOND));
    }
}
