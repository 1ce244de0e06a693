//! The cache of entries: what the storage has reported about names, and when.
//!
//! [`Ages`] sets how long after the request an entry, or the absence of a name, may be used. The kernel gets the rest
//! of this time, so that no process sees attributes that are older. Times are those of the requests: between a request
//! and its response the entry may have changed.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use haul_storage::{Entry, EntryKind, RelPath};

/// Bytes that a name may take on average: a server may send long names, link targets and tags.
const WEIGHT: usize = 1024;

/// Most changes remembered one by one. A response to a request made before the last dropped one is ignored.
const MOST_CHANGES: usize = 1024;

/// How long entries may be used, and how many are held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ages {
    /// Of an entry.
    pub(crate) entry: Duration,
    /// Of the knowledge that a name does not exist.
    pub(crate) missing: Duration,
    /// Most names held.
    pub(crate) most: usize,
}

/// What is known about a name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Known {
    /// The entry; `None` if the name does not exist.
    pub(crate) entry: Option<Arc<Entry>>,
    /// For how long it may still be used.
    pub(crate) valid: Duration,
}

/// The cache. `now` is the time since any fixed moment.
#[derive(Debug)]
pub(crate) struct AttributeCache {
    ages: Ages,
    names: HashMap<RelPath, Cached>,
    /// The names by age, with the numbers of their insertions; a name that was inserted again appears again.
    order: VecDeque<(RelPath, u64)>,
    inserted: u64,
    /// Bytes that the names take.
    weight: usize,
    changes: Changes,
}

/// The last changes made here: responses to earlier requests may not show them yet.
#[derive(Debug, Default)]
struct Changes {
    /// When a name was last changed.
    names: HashMap<RelPath, Duration>,
    /// When a directory was last changed with all below it.
    trees: HashMap<RelPath, Duration>,
    /// All changes, oldest first, and whether each is of a directory with all below it.
    order: VecDeque<(RelPath, Duration, bool)>,
    /// The time of the last change that was dropped.
    floor: Duration,
}

impl Changes {
    fn note(&mut self, path: &RelPath, at: Duration, is_tree: bool) {
        if self.order.len() >= MOST_CHANGES
            && let Some((oldest, dropped, was_tree)) = self.order.pop_front()
        {
            let changed = if was_tree { &mut self.trees } else { &mut self.names };
            // Unless it was changed again since.
            if changed.get(&oldest) == Some(&dropped) {
                changed.remove(&oldest);
            }
            self.floor = dropped;
        }
        let changed = if is_tree { &mut self.trees } else { &mut self.names };
        changed.insert(path.clone(), at);
        self.order.push_back((path.clone(), at, is_tree));
    }

    /// Whether a name was, or may have been, changed after `at`.
    fn has_changed(&self, path: &RelPath, at: Duration) -> bool {
        let is_later = |change: Option<&Duration>| change.is_some_and(|change| *change > at);
        if at < self.floor || is_later(self.names.get(path)) {
            return true;
        }
        // Usually no directory has changed, and those above need not be looked up.
        let mut above = (!self.trees.is_empty()).then(|| path.clone());
        while let Some(directory) = above {
            if is_later(self.trees.get(&directory)) {
                return true;
            }
            above = directory.parent();
        }
        false
    }
}

#[derive(Debug)]
struct Cached {
    entry: Option<Arc<Entry>>,
    at: Duration,
    number: u64,
}

impl AttributeCache {
    pub(crate) fn new(ages: Ages) -> Self {
        let (names, order, changes) = (HashMap::new(), VecDeque::new(), Changes::default());
        Self { ages, names, order, inserted: 0, weight: 0, changes }
    }

    /// How long entries may be used.
    pub(crate) const fn age(&self) -> Duration {
        self.ages.entry
    }

    /// What is known about a name, if it is recent enough.
    pub(crate) fn get(&self, path: &RelPath, now: Duration) -> Option<Known> {
        let cached = self.names.get(path)?;
        let most = self.age_of(cached.entry.is_some());
        let valid = most.checked_sub(now.saturating_sub(cached.at))?;
        (!valid.is_zero()).then(|| Known { entry: cached.entry.clone(), valid })
    }

    /// Records the response to a request made at `at`, unless that to a later one is cached, or the name was changed
    /// since. Returns for how long it may be used at `now`; 0 if it was not recorded.
    pub(crate) fn put(
        &mut self,
        path: &RelPath,
        entry: Option<Arc<Entry>>,
        at: Duration,
        now: Duration,
    ) -> Duration {
        if self.changes.has_changed(path, at) {
            return Duration::ZERO;
        }
        let valid = self.age_of(entry.is_some()).saturating_sub(now.saturating_sub(at));
        if self.names.get(path).is_some_and(|cached| cached.at > at) {
            return Duration::ZERO;
        }
        self.inserted += 1;
        let number = self.inserted;
        self.weight += weight(path, entry.as_deref());
        if let Some(old) = self.names.insert(path.clone(), Cached { entry, at, number }) {
            self.weight -= weight(path, old.entry.as_deref());
        }
        self.order.push_back((path.clone(), number));
        self.evict();
        valid
    }

    /// Records the entries of a listing that was requested at `at`, except where a size is missing: programs would take
    /// these files for empty.
    pub(crate) fn put_listed<'a>(
        &mut self,
        entries: impl Iterator<Item = &'a Arc<Entry>>,
        at: Duration,
        now: Duration,
    ) {
        for entry in entries.filter(|entry| is_whole(entry)) {
            self.put(&entry.path, Some(Arc::clone(entry)), at, now);
        }
    }

    /// An entry was changed here, just now: forgets it, and ignores responses to earlier requests.
    pub(crate) fn change(&mut self, path: &RelPath, now: Duration) {
        self.drop_name(path);
        self.changes.note(path, now, false);
    }

    /// A directory and all below it were changed here, just now.
    pub(crate) fn change_below(&mut self, path: &RelPath, now: Duration) {
        self.forget_below(path);
        self.changes.note(path, now, true);
    }

    fn drop_name(&mut self, path: &RelPath) {
        if let Some(old) = self.names.remove(path) {
            self.weight -= weight(path, old.entry.as_deref());
        }
    }

    fn is_full(&self) -> bool {
        self.names.len() > self.ages.most || self.weight > self.ages.most.saturating_mul(WEIGHT)
    }

    fn forget_below(&mut self, path: &RelPath) {
        self.names.retain(|name, cached| {
            let stays = !name.starts_with(path);
            if !stays {
                self.weight -= weight(name, cached.entry.as_deref());
            }
            stays
        });
    }

    const fn age_of(&self, exists: bool) -> Duration {
        if exists { self.ages.entry } else { self.ages.missing }
    }

    /// Drops the oldest names. The queue has at most as many outdated items as names, and one more.
    fn evict(&mut self) {
        while self.is_full() || self.order.len() > 2 * self.names.len() + 1 {
            let Some((path, number)) = self.order.pop_front() else { return };
            match self.names.get(&path) {
                Some(cached) if cached.number != number => {}
                // If only the outdated items are too many, a current one moves to the end and stays: the order by age
                // is approximate.
                Some(_) if !self.is_full() => self.order.push_back((path, number)),
                _ => self.drop_name(&path),
            }
        }
    }
}

/// Whether a listed entry has all the attributes that programs see.
pub(crate) fn is_whole(entry: &Entry) -> bool {
    !entry.is_file() || entry.known_size().is_some()
}

/// Bytes that a name takes beside its fixed part.
fn weight(path: &RelPath, entry: Option<&Entry>) -> usize {
    // The name is in the table and in the queue.
    2 * path.as_bytes().len() + entry.map_or(0, text_bytes)
}

/// Bytes of the texts of an entry: its path, its tag, and the target of a link. Servers choose their lengths.
pub(crate) fn text_bytes(entry: &Entry) -> usize {
    let target = if let EntryKind::Symlink(target) = &entry.kind { target.len() } else { 0 };
    entry.path.as_bytes().len() + target + entry.tag.as_ref().map_or(0, String::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn cache(most: usize) -> AttributeCache {
        AttributeCache::new(Ages { entry: 5 * SECOND, missing: SECOND, most })
    }

    fn path(name: &str) -> RelPath {
        RelPath::parse(name).unwrap()
    }

    fn entry(name: &str, size: u64) -> Option<Arc<Entry>> {
        Some(Arc::new(Entry::new(path(name), EntryKind::File, size)))
    }

    fn size(cache: &AttributeCache, name: &str, now: Duration) -> Option<u64> {
        Some(cache.get(&path(name), now)?.entry?.size)
    }

    #[test]
    fn an_entry_is_used_for_the_rest_of_its_age() {
        let mut cache = cache(10);
        let valid = cache.put(&path("a"), entry("a", 1), SECOND, 2 * SECOND);
        assert_eq!(valid, 4 * SECOND);
        assert_eq!(cache.get(&path("a"), 4 * SECOND).unwrap().valid, 2 * SECOND);
        assert_eq!(cache.get(&path("a"), 6 * SECOND), None);
    }

    #[test]
    fn a_missing_name_has_an_age_of_its_own() {
        let mut cache = cache(10);
        cache.put(&path("a"), None, SECOND, SECOND);
        let known = cache.get(&path("a"), SECOND * 3 / 2).unwrap();
        assert_eq!((known.entry, known.valid), (None, SECOND / 2));
        assert_eq!(cache.get(&path("a"), 2 * SECOND), None);
    }

    #[test]
    fn the_response_to_an_earlier_request_does_not_replace_a_later_one() {
        let mut cache = cache(10);
        cache.put(&path("a"), entry("a", 2), 2 * SECOND, 3 * SECOND);
        let valid = cache.put(&path("a"), entry("a", 1), SECOND, 4 * SECOND);
        assert_eq!(size(&cache, "a", 4 * SECOND), Some(2));
        // The kernel does not use it, either.
        assert!(valid.is_zero());
    }

    /// Formerly, a listing in flight during a chmod brought the old mode back for a while.
    #[test]
    fn a_response_from_before_a_change_is_not_used_after_it() {
        let mut cache = cache(10);
        let put = |cache: &mut AttributeCache, name: &str, at: u32| {
            cache.put(&path(name), entry(name, 1), at * SECOND, 9 * SECOND).as_secs()
        };
        cache.change(&path("a"), 6 * SECOND);
        cache.change_below(&path("d"), 7 * SECOND);
        assert_eq!(
            ["a", "d", "d/e", "ab", "de"].map(|name| put(&mut cache, name, 5)),
            [0, 0, 0, 1, 1]
        );
        assert_eq!(size(&cache, "a", 9 * SECOND), None);
        assert_eq!(["a", "d", "d/e"].map(|name| put(&mut cache, name, 8)), [4; 3]);
        for _ in 0..MOST_CHANGES {
            cache.change(&path("x"), 8 * SECOND);
        }
        assert_eq!([6, 8].map(|at| put(&mut cache, "y", at)), [0, 4]);
    }

    #[test]
    fn a_name_that_was_changed_again_stays_changed_when_its_first_change_is_dropped() {
        for change in [AttributeCache::change, AttributeCache::change_below] {
            let mut cache = cache(10);
            change(&mut cache, &path("a"), SECOND);
            change(&mut cache, &path("a"), 5 * SECOND);
            while cache.changes.floor < SECOND {
                change(&mut cache, &path("x"), 5 * SECOND);
            }
            assert_eq!(cache.changes.order.len(), MOST_CHANGES);
            cache.put(&path("a"), entry("a", 1), 4 * SECOND, 5 * SECOND);
            assert_eq!(size(&cache, "a", 5 * SECOND), None);
        }
    }

    #[test]
    fn the_oldest_entries_are_evicted_first() {
        let mut cache = cache(2);
        for (number, name) in ["a", "b", "c"].into_iter().enumerate() {
            cache.put(&path(name), entry(name, number as u64), SECOND, SECOND);
        }
        let now = SECOND;
        assert_eq!(size(&cache, "a", now), None);
        assert_eq!((size(&cache, "b", now), size(&cache, "c", now)), (Some(1), Some(2)));
    }

    #[test]
    fn entries_with_long_targets_are_evicted_sooner() {
        let mut cache = cache(10);
        let link = |name: &str, length: usize| {
            let kind = EntryKind::Symlink(vec![b'x'; length]);
            Some(Arc::new(Entry::new(path(name), kind, 0)))
        };
        for name in ["a", "b", "c"] {
            cache.put(&path(name), link(name, 4000), SECOND, SECOND);
        }
        let held = ["a", "b", "c"].map(|name| cache.get(&path(name), SECOND).is_some());
        assert_eq!(held, [false, true, true]);
        cache.put(&path("b"), link("b", 10), SECOND, SECOND);
        cache.put(&path("d"), link("d", 20_000), SECOND, SECOND);
        cache.drop_name(&path("b"));
        cache.drop_name(&path("c"));
        assert_eq!((cache.names.len(), cache.weight), (0, 0));
    }

    #[test]
    fn a_name_that_is_inserted_again_and_again_takes_no_more_memory() {
        let mut cache = cache(10);
        cache.put(&path("b"), entry("b", 7), SECOND, SECOND);
        for number in 0..1000 {
            cache.put(&path("a"), entry("a", number), SECOND, SECOND);
        }
        assert!(cache.order.len() <= 5, "{}", cache.order.len());
        assert_eq!((size(&cache, "a", SECOND), size(&cache, "b", SECOND)), (Some(999), Some(7)));
        cache.change(&path("a"), SECOND);
        assert_eq!(size(&cache, "a", SECOND), None);
        cache.put(&path("b/c"), entry("b/c", 7), SECOND, SECOND);
        cache.put(&path("bc"), entry("bc", 7), SECOND, SECOND);
        cache.change_below(&path("b"), SECOND);
        assert_eq!((size(&cache, "b", SECOND), size(&cache, "b/c", SECOND)), (None, None));
        assert_eq!(size(&cache, "bc", SECOND), Some(7));
        cache.change(&path("bc"), SECOND);
        assert_eq!(cache.weight, 0);
    }
}
