//! Which directories are listed ahead. Without I/O: `W` waits for the end of a listing.
//!
//! A directory that a program looks at is listed at once. Then the plan goes ahead of the program: it lists the
//! directories in a directory that the program has read, and the directories in those. How far it goes is bounded by
//! the number of listings in flight, and of those that no program has used yet. If programs do not enter the
//! directories that they see, listing ahead soon stops.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use haul_storage::{Entry, RelPath};

use super::held::{Entries, Listings};

/// Most listings ahead in flight. With `MOST_WANTED` listings in flight in all, programs start no more either.
const MOST_AHEAD: usize = 8;
const MOST_WANTED: usize = 32;

/// Most directories that wait to be listed ahead.
const MOST_WAITING: usize = 128;

/// Most listings ahead that no program has used yet; twice as many in directories that a program reads.
const MOST_UNUSED: usize = 64;

/// Directories in one directory that are listed ahead of a program.
const WIDTH: usize = 32;

/// Levels listed ahead below a directory that a program reads, and below one that it only passes through.
const READ: u32 = 2;
const PASSED: u32 = 1;
/// Levels listed ahead at the start of a mount.
const FIRST: u32 = 3;

/// For how long a directory is not listed ahead after that has failed, or after it turned out to be too long.
const AFTER_FAILURE: Duration = Duration::from_secs(30);
const AFTER_TOO_LONG: Duration = Duration::from_secs(600);

/// Directories that are remembered: what is in them, and that they cannot be listed ahead.
const MOST_REMEMBERED: usize = 1024;

/// The score shows whether listings ahead are used: its first value, its maximum, and what a used listing adds. Each
/// unused one subtracts 1.
const AT_FIRST: i32 = 16;
const MAX_SCORE: i32 = 32;
const USED: i32 = 4;

/// The plan.
#[derive(Debug)]
pub(super) struct Plan<W> {
    listings: Listings,
    age: Duration,
    running: HashMap<RelPath, Running<W>>,
    /// Running listings that no program wants yet.
    ahead: usize,
    waiting: VecDeque<Waiting>,
    ready: Vec<RelPath>,
    avoided: HashMap<RelPath, Duration>,
    /// The first directories in each directory when it was last listed, however long ago: only a hint.
    remembered: HashMap<RelPath, Vec<RelPath>>,
    score: i32,
    /// When something was last changed through this mount.
    changed: Option<Duration>,
}

#[derive(Debug)]
struct Running<W> {
    levels: u32,
    is_wanted: bool,
    is_counted: bool,
    /// The directory itself, or one above it, was changed here since it was requested.
    is_outdated: bool,
    /// Names of entries in it that were changed here since.
    changed: HashSet<Vec<u8>>,
    waiter: Option<W>,
}

#[derive(Debug)]
struct Waiting {
    directory: RelPath,
    levels: u32,
    is_counted: bool,
    since: Duration,
    /// Whether a program reads the directory that it is in.
    is_near: bool,
}

/// How a listing ended.
#[derive(Debug)]
pub(super) enum Listed {
    /// With all entries.
    Whole(Vec<Arc<Entry>>),
    /// It was abandoned, because it is too long.
    TooLong,
    /// It failed, or some entries are not known.
    Failed,
}

/// What is known about a directory that a program reads.
#[derive(Debug)]
pub(super) enum Known<W> {
    /// All entries.
    All(Entries),
    /// It is being listed.
    InFlight(W),
    /// Nothing.
    Nothing,
}

impl<W: Clone> Plan<W> {
    /// Nothing is known. A listing may be used for `age`.
    pub(super) fn new(age: Duration) -> Self {
        Self {
            listings: Listings::new(age),
            age,
            running: HashMap::new(),
            ahead: 0,
            waiting: VecDeque::new(),
            ready: Vec::new(),
            avoided: HashMap::new(),
            remembered: HashMap::new(),
            score: AT_FIRST,
            changed: None,
        }
    }

    /// The mount begins: the first levels below `root` will probably be looked at.
    pub(super) fn begin(&mut self, root: &RelPath, now: Duration) {
        self.want(root, FIRST, false, now);
    }

    /// A path is looked up, and nothing is known about it: lists its directory, and the path itself if it may be a
    /// directory (its name has no dot), so that the next lookups need no request.
    pub(super) fn looked_up(&mut self, path: &RelPath, now: Duration) {
        if let Some(parent) = path.parent() {
            self.want(&parent, PASSED, true, now);
        }
        if !path.name().contains(&b'.') && self.score > 0 {
            self.want(path, PASSED, true, now);
        }
        self.prefetch_remembered(path, now);
    }

    /// A path was looked up, and exists.
    pub(super) fn found(&mut self, path: &RelPath, is_directory: bool, now: Duration) {
        if let Some(parent) = path.parent() {
            self.use_up(&parent);
        }
        if is_directory {
            self.use_up(path);
            self.want(path, PASSED, true, now);
        }
    }

    /// A program reads a directory.
    pub(super) fn read(&mut self, directory: &RelPath, now: Duration) -> Known<W> {
        self.expire(now);
        // If its listing has not begun, the program's own request lists it.
        self.waiting.retain(|waiting| waiting.directory != *directory);
        if let Some(parent) = directory.parent() {
            self.prioritize(&parent);
        }
        if let Some(entries) = self.listings.entries(directory, now) {
            self.use_up(directory);
            self.prefetch_siblings(directory, now);
            self.prefetch_below(directory, READ, true, now);
            self.prioritize(directory);
            return Known::All(entries);
        }
        if let Some(running) = self.running.get(directory)
            && let Some(waiter) = running.waiter.clone()
        {
            return Known::InFlight(waiter);
        }
        if directory.parent().is_some_and(|parent| self.remembered.contains_key(&parent)) {
            // Listing it ahead would have helped.
            self.score = (self.score + USED).min(MAX_SCORE);
        }
        Known::Nothing
    }

    /// A program has read a whole directory, which was requested at `at`. It is not held if something was changed
    /// through this mount since.
    pub(super) fn hold(
        &mut self,
        directory: &RelPath,
        at: Duration,
        entries: Vec<Arc<Entry>>,
        now: Duration,
    ) {
        self.expire(now);
        if self.changed.is_none_or(|changed| changed < at) {
            self.put(directory, at, entries, HashSet::new(), (true, true));
            self.prefetch_below(directory, READ, true, now);
            self.prioritize(directory);
        }
    }

    /// For how long a path may be taken for missing, if its directory does not have it.
    pub(super) fn missing(&mut self, path: &RelPath, now: Duration) -> Option<Duration> {
        let valid = self.listings.missing(path, now)?;
        if let Some(parent) = path.parent() {
            self.use_up(&parent);
        }
        Some(valid)
    }

    /// The waiter for the listing of the directory of a path, if that is in flight.
    pub(super) fn waiter(&self, path: &RelPath) -> Option<W> {
        self.running.get(&path.parent()?)?.waiter.clone()
    }

    /// Whether a directory is known, or being listed.
    pub(super) fn lists(&self, directory: &RelPath, now: Duration) -> bool {
        self.listings.has(directory, now) || self.running.contains_key(directory)
    }

    /// An entry was changed here: listings no longer hold for it, nor for anything below it.
    pub(super) fn changed(&mut self, path: &RelPath, now: Duration) {
        self.changed_attributes(path, now);
        self.listings.drop_below(path);
        for (directory, running) in &mut self.running {
            running.is_outdated |= directory.starts_with(path);
        }
    }

    /// Attributes of an entry were changed here: listings no longer hold for it, but still for what is below it.
    pub(super) fn changed_attributes(&mut self, path: &RelPath, now: Duration) {
        self.changed = Some(now);
        self.listings.changed(path);
        if let Some(parent) = path.parent()
            && let Some(running) = self.running.get_mut(&parent)
        {
            running.changed.insert(path.name().to_vec());
        }
    }

    /// An empty directory was created here.
    pub(super) fn created_empty(&mut self, directory: &RelPath, now: Duration) {
        self.changed(directory, now);
        self.put(directory, now, Vec::new(), HashSet::new(), (true, true));
    }

    /// The directories to list now. [`Plan::begun`] has to be called for each, then [`Plan::finish`].
    pub(super) fn ready(&mut self, now: Duration) -> Vec<RelPath> {
        self.expire(now);
        self.first(|waiting| waiting.is_near);
        while self.ahead < MOST_AHEAD
            && let Some(next) = self.waiting.pop_front()
        {
            // A directory that a program will probably read next does not wait until the others are used.
            let most = if next.is_near { 2 * MOST_UNUSED } else { MOST_UNUSED };
            if self.listings.unused() + self.ahead >= most {
                self.waiting.push_front(next);
                break;
            }
            let Waiting { directory, levels, is_counted, since, .. } = next;
            let is_late = now.saturating_sub(since) >= self.age;
            if !is_late && !self.is_known(&directory, now) {
                self.start(directory, levels, (false, is_counted));
            }
        }
        std::mem::take(&mut self.ready)
    }

    /// A directory is being listed.
    pub(super) fn begun(&mut self, directory: &RelPath, waiter: W) {
        if let Some(running) = self.running.get_mut(directory) {
            running.waiter = Some(waiter);
        }
    }

    /// Whether an entry of a listing in flight is still right.
    pub(super) fn is_current(&self, directory: &RelPath, entry: &Entry) -> bool {
        self.running.get(directory).is_some_and(|running| {
            !running.is_outdated && !running.changed.contains(entry.path.name())
        })
    }

    /// A listing that was requested at `at` has ended.
    pub(super) fn finish(
        &mut self,
        directory: &RelPath,
        at: Duration,
        listed: Listed,
        now: Duration,
    ) {
        let Some(running) = self.running.remove(directory) else { return };
        self.ahead -= usize::from(!running.is_wanted);
        match listed {
            Listed::Whole(_) if running.is_outdated => {}
            Listed::Whole(entries) => {
                let flags = (running.is_wanted, running.is_counted);
                self.put(directory, at, entries, running.changed, flags);
                self.prefetch_below(directory, running.levels, running.is_counted, now);
            }
            Listed::TooLong => self.avoid(directory, now + AFTER_TOO_LONG, now),
            Listed::Failed => self.avoid(directory, now + AFTER_FAILURE, now),
        }
    }

    /// Lists a directory at once, unless it is known.
    fn want(&mut self, directory: &RelPath, levels: u32, is_counted: bool, now: Duration) {
        self.expire(now);
        if self.listings.has(directory, now) {
            if self.listings.taken(directory) == 0 {
                self.prefetch_below(directory, levels, is_counted, now);
            }
        } else if let Some(running) = self.running.get_mut(directory) {
            running.levels = running.levels.max(levels);
            self.ahead -= usize::from(!running.is_wanted);
            running.is_wanted = true;
        } else if !self.is_known(directory, now) && self.running.len() < MOST_WANTED {
            self.start(directory.clone(), levels, (true, is_counted));
        }
    }

    /// Lists the directories that a directory had when it was last listed: a program that looks it up will probably go
    /// on.
    fn prefetch_remembered(&mut self, directory: &RelPath, now: Duration) {
        let mut found = vec![directory.clone()];
        let mut next = 0;
        while found.len() < MOST_AHEAD
            && let Some(directory) = found.get(next)
        {
            let below = self.remembered.get(directory).cloned().unwrap_or_default();
            found.extend(below);
            next += 1;
        }
        found.truncate(MOST_AHEAD);
        for (number, directory) in found.into_iter().enumerate() {
            if number > 0 || self.remembered.contains_key(&directory) {
                self.prefetch(directory, 0, true, now);
            }
        }
    }

    /// Lists the first directories in a directory ahead, before those that wait already.
    fn prefetch_below(
        &mut self,
        directory: &RelPath,
        levels: u32,
        is_counted: bool,
        now: Duration,
    ) {
        if levels == 0 || self.score <= 0 {
            return;
        }
        for below in self.listings.take(directory, WIDTH).into_iter().rev() {
            self.prefetch(below, levels - 1, is_counted, now);
        }
    }

    /// A program reads one of several directories in their parent: lists up to two of the next ones ahead.
    fn prefetch_siblings(&mut self, directory: &RelPath, now: Duration) {
        let Some(parent) = directory.parent().filter(|_| self.score > 0) else { return };
        let begun = self.listings.unused() + self.ahead + self.waiting.len();
        let more = MOST_UNUSED.saturating_sub(begun).min(2);
        let taken = self.listings.taken(&parent);
        for directory in self.listings.take(&parent, taken + more) {
            if !self.is_known(&directory, now) {
                let (levels, is_counted, since, is_near) = (PASSED, true, now, true);
                let waiting = Waiting { directory, levels, is_counted, since, is_near };
                self.waiting.push_back(waiting);
            }
        }
    }

    /// A program reads a directory: what waits in it is listed before all else.
    fn prioritize(&mut self, directory: &RelPath) {
        self.first(|waiting| {
            let is_in = waiting.directory.parent().as_ref() == Some(directory);
            waiting.is_near |= is_in;
            is_in
        });
    }

    /// Moves the waiting directories that match before the others.
    fn first(&mut self, mut is_first: impl FnMut(&mut Waiting) -> bool) {
        let mut others = VecDeque::new();
        for mut waiting in std::mem::take(&mut self.waiting) {
            let to = if is_first(&mut waiting) { &mut self.waiting } else { &mut others };
            to.push_back(waiting);
        }
        self.waiting.append(&mut others);
    }

    /// Lists a directory before those that wait already.
    fn prefetch(&mut self, directory: RelPath, levels: u32, is_counted: bool, now: Duration) {
        if !self.is_known(&directory, now) {
            let (since, is_near) = (now, false);
            let waiting = Waiting { directory, levels, is_counted, since, is_near };
            self.waiting.push_front(waiting);
            self.waiting.truncate(MOST_WAITING);
        }
    }

    /// Whether a directory need not, or cannot, be listed.
    fn is_known(&self, directory: &RelPath, now: Duration) -> bool {
        self.listings.has(directory, now)
            || self.running.contains_key(directory)
            || self.avoided.get(directory).is_some_and(|until| now < *until)
    }

    fn start(&mut self, directory: RelPath, levels: u32, (is_wanted, is_counted): (bool, bool)) {
        self.ahead += usize::from(!is_wanted);
        let (is_outdated, changed, waiter) = (false, HashSet::new(), None);
        let running = Running { levels, is_wanted, is_counted, is_outdated, changed, waiter };
        self.running.insert(directory.clone(), running);
        self.ready.push(directory);
    }

    fn put(
        &mut self,
        directory: &RelPath,
        at: Duration,
        entries: Vec<Arc<Entry>>,
        changed: HashSet<Vec<u8>>,
        flags: (bool, bool),
    ) {
        let below = entries.iter().filter(|entry| entry.is_dir()).take(WIDTH);
        let below: Vec<_> = below.map(|entry| entry.path.clone()).collect();
        if self.remembered.len() >= MOST_REMEMBERED && !self.remembered.contains_key(directory) {
            self.remembered.clear();
        }
        self.remembered.insert(directory.clone(), below);
        self.listings.put(directory, at, entries, changed, flags);
    }

    fn avoid(&mut self, directory: &RelPath, until: Duration, now: Duration) {
        if self.avoided.len() >= MOST_REMEMBERED {
            self.avoided.retain(|_, until| now < *until);
            if self.avoided.len() >= MOST_REMEMBERED {
                self.avoided.clear();
            }
        }
        self.avoided.insert(directory.clone(), until);
    }

    fn use_up(&mut self, directory: &RelPath) {
        if self.listings.use_up(directory) {
            self.score = (self.score + USED).min(MAX_SCORE);
        }
    }

    fn expire(&mut self, now: Duration) {
        let wasted = i32::try_from(self.listings.expire(now)).unwrap_or(i32::MAX);
        self.score = self.score.saturating_sub(wasted).max(-AT_FIRST);
    }
}

#[cfg(test)]
mod tests {
    use haul_storage::EntryKind;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const AGE: Duration = Duration::from_secs(5);

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    fn directories(directory: &str, count: usize) -> Vec<Arc<Entry>> {
        let entry = |number| {
            let path = path(directory).join(format!("{number:03}")).unwrap();
            Arc::new(Entry::new(path, EntryKind::Directory, 0))
        };
        (0..count).map(entry).collect()
    }

    /// What the plan lists now.
    fn ready(plan: &mut Plan<()>, now: Duration) -> Vec<String> {
        let ready = plan.ready(now);
        ready.iter().for_each(|directory| plan.begun(directory, ()));
        ready.iter().map(ToString::to_string).collect()
    }

    /// Ends a listing with `count` directories.
    fn finish(plan: &mut Plan<()>, directory: &str, count: usize, now: Duration) {
        let entries = directories(directory, count);
        plan.finish(&path(directory), now, Listed::Whole(entries), now);
    }

    #[test]
    fn a_lookup_lists_the_directory_of_a_name_and_the_name_itself_if_it_has_no_dot() {
        let mut plan = Plan::new(AGE);
        plan.looked_up(&path("a/b"), SECOND);
        assert_eq!(ready(&mut plan, SECOND), ["a", "a/b"]);
        plan.looked_up(&path("a/c.txt"), SECOND);
        assert_eq!(ready(&mut plan, SECOND), [""; 0]);
        assert!(plan.waiter(&path("a/x")).is_some() && plan.waiter(&path("x/a")).is_none());
        finish(&mut plan, "a", 2, 2 * SECOND);
        assert_eq!(ready(&mut plan, 2 * SECOND), ["a/000", "a/001"]);
        // The directory is known now, and so are the names that it does not have.
        plan.looked_up(&path("a/c.txt"), 3 * SECOND);
        assert_eq!(ready(&mut plan, 3 * SECOND), [""; 0]);
        assert_eq!(plan.missing(&path("a/c.txt"), 3 * SECOND), Some(4 * SECOND));
        assert_eq!(plan.missing(&path("a/001"), 3 * SECOND), None);
    }

    #[test]
    fn few_directories_are_listed_ahead_at_a_time() {
        let mut plan = Plan::new(AGE);
        plan.hold(&path("a"), SECOND, directories("a", 1000), SECOND);
        let first = ready(&mut plan, SECOND);
        assert_eq!((first.len(), &first[0][..]), (MOST_AHEAD, "a/000"));
        assert_eq!(ready(&mut plan, SECOND), [""; 0]);
        let mut listed = first.len();
        let mut next = first;
        // As long as no program uses them, listing ahead stops at a limit.
        while let Some(directory) = next.pop() {
            finish(&mut plan, &directory, 100, SECOND);
            let more = ready(&mut plan, SECOND);
            listed += more.len();
            next.extend(more);
        }
        assert_eq!(listed, MOST_UNUSED);
    }

    #[test]
    fn a_program_that_walks_a_tree_finds_each_directory_listed() {
        let mut plan = Plan::new(AGE);
        plan.hold(&path("a"), SECOND, directories("a", 200), SECOND);
        for number in 0..200 {
            // All that is in flight arrives before the program goes on.
            loop {
                let next = ready(&mut plan, SECOND);
                if next.is_empty() {
                    break;
                }
                next.iter().for_each(|directory| finish(&mut plan, directory, 0, SECOND));
            }
            let directory = path(&format!("a/{number:03}"));
            assert!(matches!(plan.read(&directory, SECOND), Known::All(_)), "{directory}");
        }
    }

    #[test]
    fn listing_ahead_stops_if_programs_do_not_enter_directories() {
        let mut plan = Plan::new(AGE);
        let (mut now, mut listed) = (SECOND, 0);
        for number in 0..10 {
            let name = format!("{number}");
            plan.hold(&path(&name), now, directories(&name, 10), now);
            let mut next = ready(&mut plan, now);
            while let Some(directory) = next.pop() {
                listed += 1;
                finish(&mut plan, &directory, 0, now);
                next.extend(ready(&mut plan, now));
            }
            now += 2 * AGE;
        }
        assert!((10..=40).contains(&listed), "{listed}");
        // A program that enters them makes it resume.
        for number in 0..8 {
            let name = format!("{number}/000");
            assert!(matches!(plan.read(&path(&name), now), Known::Nothing));
            plan.hold(&path(&name), now, directories(&name, 10), now);
        }
        assert!(!ready(&mut plan, now).is_empty());
    }

    #[test]
    fn a_directory_that_is_too_long_or_fails_is_not_listed_again_for_a_while() {
        let mut plan = Plan::new(AGE);
        for listed in [Listed::Failed, Listed::TooLong] {
            let now = 1000 * SECOND;
            plan.looked_up(&path("a/x.y"), now);
            assert_eq!(ready(&mut plan, now), ["a"]);
            let pause =
                if matches!(listed, Listed::Failed) { AFTER_FAILURE } else { AFTER_TOO_LONG };
            plan.finish(&path("a"), now, listed, now);
            plan.looked_up(&path("a/x.y"), now + pause - SECOND);
            assert_eq!(ready(&mut plan, now + pause - SECOND), [""; 0]);
            plan.looked_up(&path("a/x.y"), now + pause);
            assert_eq!(ready(&mut plan, now + pause), ["a"]);
            plan = Plan::new(AGE);
        }
    }

    #[test]
    fn a_listing_does_not_hold_for_entries_that_were_changed_meanwhile() {
        let mut plan = Plan::new(AGE);
        plan.looked_up(&path("a/x.y"), SECOND);
        assert_eq!(ready(&mut plan, SECOND), ["a"]);
        plan.changed(&path("a/001"), SECOND);
        let entries = directories("a", 2);
        assert!(plan.is_current(&path("a"), &entries[0]));
        assert!(!plan.is_current(&path("a"), &entries[1]));
        finish(&mut plan, "a", 1, SECOND);
        assert_eq!(plan.missing(&path("a/001"), SECOND), None);
        assert!(plan.missing(&path("a/002"), SECOND).is_some());
        // A listing that a program has read may be older than a change.
        plan.hold(&path("b"), SECOND, directories("b", 2), 2 * SECOND);
        assert_eq!(plan.missing(&path("b/x"), 2 * SECOND), None);
        plan.hold(&path("b"), 2 * SECOND, directories("b", 2), 2 * SECOND);
        assert!(plan.missing(&path("b/x"), 2 * SECOND).is_some());
        // A directory that was created here is known, until one above it is changed.
        plan.created_empty(&path("b/new"), 3 * SECOND);
        assert!(plan.missing(&path("b/new/x"), 3 * SECOND).is_some());
        plan.changed(&path("b"), 3 * SECOND);
        assert_eq!(plan.missing(&path("b/new/x"), 3 * SECOND), None);
    }

    #[test]
    fn directories_that_were_below_a_directory_are_listed_along_with_it() {
        let mut plan = Plan::new(AGE);
        plan.hold(&path("a"), SECOND, directories("a", 1), SECOND);
        plan.hold(&path("a/000"), SECOND, directories("a/000", 1), SECOND);
        let later = 100 * SECOND;
        plan.waiting.clear();
        plan.looked_up(&path("a"), later);
        let mut found = ready(&mut plan, later);
        found.sort();
        assert_eq!(found, [".", "a", "a/000", "a/000/000"]);
    }
}
