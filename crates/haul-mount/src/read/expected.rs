//! Whether a file that is looked up will be opened, and the files that are opened ahead for that.
//!
//! A program that opens a file makes the kernel look it up first. If lookups have led to opens lately, the file is
//! opened along with the lookup, and its first block requested: that saves an RTT or two. If a program only looks at
//! attributes, this soon stops, until files are opened again. Without I/O: `T` is a file that is being opened.

use std::collections::VecDeque;
use std::time::Duration;

use haul_storage::RelPath;

/// For how long a file that was opened ahead may be used. After that, the file is opened again.
const AGE: Duration = Duration::from_secs(2);

/// Most files opened ahead at a time.
const MOST: usize = 16;

/// The limit of the score, and what an open after a lookup adds to it.
const MAX_SCORE: i32 = 4;
const HIT: i32 = 2;

/// The prediction, and the files opened ahead.
#[derive(Debug)]
pub(super) struct Expected<T> {
    /// Files are opened ahead while it is positive.
    score: i32,
    files: VecDeque<(RelPath, Duration, T)>,
    /// The last path that was looked up.
    last: Option<RelPath>,
}

impl<T> Default for Expected<T> {
    fn default() -> Self {
        Self { score: MAX_SCORE, files: VecDeque::new(), last: None }
    }
}

impl<T> Expected<T> {
    /// A path is looked up. Returns whether it should be opened ahead, and files that will not be used.
    pub(super) fn on_lookup(&mut self, path: &RelPath, now: Duration) -> (bool, Vec<T>) {
        let mut unused = Vec::new();
        while let Some((_, at, _)) = self.files.front()
            && now.saturating_sub(*at) > AGE
        {
            self.score = (self.score - 1).max(-MAX_SCORE);
            unused.extend(self.files.pop_front().map(|(_, _, file)| file));
        }
        self.last = Some(path.clone());
        // A file opened along with an earlier lookup may be older than the attributes of this one.
        unused.extend(self.on_other(path));
        (self.score > 0 && self.files.len() < MOST, unused)
    }

    /// A file is being opened ahead.
    pub(super) fn add(&mut self, path: RelPath, now: Duration, file: T) {
        self.files.push_back((path, now, file));
    }

    /// A file is opened. Returns the one that was opened ahead for it, unless that was too long ago.
    pub(super) fn on_open(&mut self, path: &RelPath, now: Duration) -> Option<T> {
        if self.last.as_ref() == Some(path) {
            self.score = (self.score + HIT).min(MAX_SCORE);
        }
        let (at, file) = self.take(path)?;
        (now.saturating_sub(at) <= AGE).then_some(file)
    }

    /// A path turned out to be no file, was changed, or is looked up again. Returns the file that was opened ahead for
    /// it.
    pub(super) fn on_other(&mut self, path: &RelPath) -> Option<T> {
        self.take(path).map(|(_, file)| file)
    }

    /// Entries at or below a path have changed. Returns the files that were opened ahead for them.
    pub(super) fn on_change(&mut self, path: &RelPath) -> VecDeque<(RelPath, Duration, T)> {
        let files = std::mem::take(&mut self.files).into_iter();
        let (changed, others) = files.partition(|(known, _, _)| known.starts_with(path));
        self.files = others;
        changed
    }

    fn take(&mut self, path: &RelPath) -> Option<(Duration, T)> {
        let at = self.files.iter().position(|(known, _, _)| known == path)?;
        self.files.remove(at).map(|(_, at, file)| (at, file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn path(number: u64) -> RelPath {
        RelPath::parse(number.to_string()).unwrap()
    }

    /// Looks a path up and opens it ahead if expected.
    fn lookup(expected: &mut Expected<u64>, number: u64, now: Duration) -> bool {
        let (is_expected, _) = expected.on_lookup(&path(number), now);
        if is_expected {
            expected.add(path(number), now, number);
        }
        is_expected
    }

    #[test]
    fn the_last_lookup_of_a_file_counts() {
        let mut expected = Expected::default();
        assert!(lookup(&mut expected, 1, SECOND));
        assert_eq!(expected.on_lookup(&path(1), SECOND), (true, vec![1]));
        expected.add(path(1), SECOND, 1);
        assert_eq!(expected.on_open(&path(1), SECOND), Some(1));
        assert_eq!(expected.on_open(&path(1), SECOND), None);
    }

    #[test]
    fn a_file_opened_ahead_long_ago_is_not_used() {
        let mut expected = Expected::default();
        lookup(&mut expected, 1, SECOND);
        assert_eq!(expected.on_open(&path(1), 4 * SECOND), None);
        lookup(&mut expected, 2, 5 * SECOND);
        assert_eq!(expected.on_lookup(&path(3), 8 * SECOND).1, [2]);
    }

    #[test]
    fn lookups_without_opens_stop_opening_ahead_and_opens_resume_it() {
        let mut expected = Expected::default();
        let ahead = (0..100).filter(|n| lookup(&mut expected, *n, 3 * SECOND * *n as u32)).count();
        assert!(ahead <= 5, "{ahead}");
        for number in 200..204 {
            lookup(&mut expected, number, 400 * SECOND);
            expected.on_open(&path(number), 400 * SECOND);
        }
        assert!(lookup(&mut expected, 300, 401 * SECOND));
    }

    #[test]
    fn few_files_are_opened_ahead_at_a_time() {
        let mut expected = Expected::default();
        let ahead = (0..100).filter(|number| lookup(&mut expected, *number, SECOND)).count();
        assert_eq!(ahead, MOST);
        assert_eq!(expected.on_other(&path(3)), Some(3));
        let changed = expected.on_change(&path(4));
        assert_eq!(changed.into_iter().map(|(_, _, file)| file).collect::<Vec<_>>(), [4]);
        assert!(lookup(&mut expected, 200, SECOND));
    }
}
