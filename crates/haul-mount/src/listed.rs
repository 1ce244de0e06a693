//! Directories whose names are all known, so that a missing name needs no request.
//!
//! A program that creates many files looks each name up first. Once such a lookup has found nothing, the directory is
//! listed; for as long as attributes may be cached, names that are not in the listing count as missing. Without I/O.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use haul_storage::RelPath;

/// Most names of a listing that is held, and most directories.
pub(crate) const MOST_NAMES: usize = 20_000;
const MOST_DIRECTORIES: usize = 64;

type Names = HashSet<Vec<u8>>;

/// The directories. `now` is the time since any fixed moment.
#[derive(Debug)]
pub(crate) struct Listed {
    age: Duration,
    known: HashMap<RelPath, (Duration, Names)>,
    /// Directories that are being listed.
    running: HashMap<RelPath, Running>,
    /// The number of the next listing.
    next: u64,
}

/// A listing in flight.
#[derive(Debug)]
struct Running {
    number: u64,
    /// Names that were changed since it began.
    changed: Names,
}

impl Listed {
    /// None yet. A listing may be used for `age`.
    pub(crate) fn new(age: Duration) -> Self {
        Self { age, known: HashMap::new(), running: HashMap::new(), next: 0 }
    }

    /// For how long a path may be taken for missing; `None` if it may exist.
    pub(crate) fn missing(&self, path: &RelPath, now: Duration) -> Option<Duration> {
        let (at, names) = self.known.get(&path.parent()?)?;
        let left = self.age.checked_sub(now.saturating_sub(*at))?;
        (!left.is_zero() && !names.contains(path.name())).then_some(left)
    }

    /// Whether the caller should list a directory now: it is neither known nor being listed, and listings may be used
    /// at all. If so, it counts as being listed until [`Listed::finish`] is called with the number that this returns.
    pub(crate) fn begin(&mut self, directory: &RelPath, now: Duration) -> Option<u64> {
        let is_known =
            self.known.get(directory).is_some_and(|(at, _)| now.saturating_sub(*at) < self.age);
        if is_known || self.age.is_zero() || self.running.contains_key(directory) {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.running.insert(directory.clone(), Running { number, changed: Names::new() });
        Some(number)
    }

    /// The listing with this number has ended, which was requested at `at`; `names` is `None` if it failed, or there
    /// are too many. One that began before its directory was forgotten is ignored.
    pub(crate) fn finish(
        &mut self,
        directory: &RelPath,
        number: u64,
        at: Duration,
        names: Option<Names>,
    ) {
        if self.running.get(directory).is_none_or(|running| running.number != number) {
            return;
        }
        let changed = self.running.remove(directory).map(|running| running.changed);
        let (Some(mut names), Some(changed)) = (names, changed) else { return };
        names.extend(changed);
        self.hold(directory, at, names);
    }

    fn hold(&mut self, directory: &RelPath, at: Duration, names: Names) {
        if self.known.len() >= MOST_DIRECTORIES {
            self.known.retain(|_, (known, _)| at.saturating_sub(*known) < self.age);
            if self.known.len() >= MOST_DIRECTORIES {
                self.known.clear();
            }
        }
        self.known.insert(directory.clone(), (at, names));
    }

    /// A directory was created: it is empty.
    pub(crate) fn created_empty(&mut self, directory: &RelPath, now: Duration) {
        self.changed(directory);
        let changed = self.running.remove(directory).map(|running| running.changed);
        self.hold(directory, now, changed.unwrap_or_default());
    }

    /// An entry was created or changed: it may exist even if the listing does not have it.
    pub(crate) fn changed(&mut self, path: &RelPath) {
        let Some(parent) = path.parent() else { return };
        if let Some((_, names)) = self.known.get_mut(&parent) {
            names.insert(path.name().to_vec());
        }
        if let Some(running) = self.running.get_mut(&parent) {
            running.changed.insert(path.name().to_vec());
        }
    }

    /// A directory was removed or renamed: nothing is known about what is below.
    pub(crate) fn forget(&mut self, path: &RelPath) {
        self.known.retain(|known, _| !known.starts_with(path));
        self.running.retain(|running, _| !running.starts_with(path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    #[test]
    fn a_name_that_is_not_listed_is_missing_for_the_age_of_the_listing() {
        let mut listed = Listed::new(5 * SECOND);
        assert_eq!(listed.missing(&path("d/a"), SECOND), None);
        let number = listed.begin(&path("d"), SECOND).unwrap();
        assert_eq!(listed.begin(&path("d"), SECOND), None);
        listed.finish(&path("d"), number, SECOND, Some(Names::from([b"b".to_vec()])));
        assert_eq!(listed.missing(&path("d/a"), 2 * SECOND), Some(4 * SECOND));
        assert_eq!(listed.missing(&path("d/b"), 2 * SECOND), None);
        assert_eq!(listed.missing(&path("d/a"), 6 * SECOND), None);
        assert!(listed.begin(&path("d"), 6 * SECOND).is_some());
    }

    #[test]
    fn an_entry_that_was_changed_since_the_listing_is_not_missing() {
        let mut listed = Listed::new(5 * SECOND);
        let number = listed.begin(&path("d"), SECOND).unwrap();
        listed.changed(&path("d/a"));
        listed.finish(&path("d"), number, SECOND, Some(Names::new()));
        assert_eq!(listed.missing(&path("d/a"), 2 * SECOND), None);
        listed.changed(&path("d/c"));
        assert_eq!(listed.missing(&path("d/c"), 2 * SECOND), None);
        assert!(listed.missing(&path("d/x"), 2 * SECOND).is_some());
    }

    #[test]
    fn a_new_directory_is_known_and_a_removed_one_is_not() {
        let mut listed = Listed::new(5 * SECOND);
        listed.created_empty(&path("d"), SECOND);
        assert!(listed.missing(&path("d/a"), SECOND).is_some());
        listed.forget(&path("d"));
        assert_eq!(listed.missing(&path("d/a"), SECOND), None);
        // A directory that was removed while it was listed is not known afterwards.
        let number = listed.begin(&path("d"), SECOND).unwrap();
        listed.forget(&path("d"));
        listed.finish(&path("d"), number, SECOND, Some(Names::new()));
        assert_eq!(listed.missing(&path("d/a"), SECOND), None);
    }

    /// Formerly, its end was taken for that of the later listing, and names that only the later one had counted as
    /// missing.
    #[test]
    fn a_listing_that_began_before_its_directory_was_forgotten_is_ignored() {
        let mut listed = Listed::new(5 * SECOND);
        let early = listed.begin(&path("d"), SECOND).unwrap();
        listed.forget(&path("d"));
        let late = listed.begin(&path("d"), 2 * SECOND).unwrap();
        listed.changed(&path("d/c"));
        listed.finish(&path("d"), early, SECOND, Some(Names::new()));
        assert_eq!(listed.missing(&path("d/a"), 2 * SECOND), None);
        listed.finish(&path("d"), late, 2 * SECOND, Some(Names::from([b"a".to_vec()])));
        assert_eq!(listed.missing(&path("d/a"), 3 * SECOND), None);
        assert_eq!(listed.missing(&path("d/c"), 3 * SECOND), None);
        assert!(listed.missing(&path("d/x"), 3 * SECOND).is_some());
    }
}
