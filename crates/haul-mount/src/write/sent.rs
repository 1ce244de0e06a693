//! What was uploaded, or may have been, to recognize it on the server until the server has reported its version.
//!
//! The response to an upload may be lost, or the process may end before it arrives. So an upload is recorded before it
//! begins: the next upload may find its version on the server, and must not take that for one of another program.

use haul_storage::{Capabilities, Entry, RelPath, Timestamp};

/// Most uploads of a file that are remembered, unless the only trace of a part file would be lost, or fewer than
/// [`OTHERS`] others be left.
pub(super) const MOST: usize = 4;
/// How many are remembered besides the only traces of part files, however many of these there are: one of them may be
/// at the path of the file.
const OTHERS: usize = MOST - 1;
/// Most that are remembered in any case.
const MOST_WITH_PARTS: usize = 64;

/// Coarsest step of times that distinguishes versions of the same size, in nanoseconds.
const FINE: u64 = 1_000_000;

/// What was sent to the server from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) size: u64,
    /// Time of modification.
    pub(super) modified: Option<Timestamp>,
    /// The BLAKE3 digest of the content; `None` for long content where the time distinguishes versions, and for a
    /// version that was found on the server.
    pub(super) digest: Option<blake3::Hash>,
}

impl Sent {
    /// Whether it is what the server has, by the entry there; `None` if the content has to be compared.
    pub(super) fn is(&self, existing: &Entry, can: &Capabilities) -> Option<bool> {
        if !existing.is_file() || existing.size != self.size {
            return Some(false);
        }
        let is_same_time = has_time(existing, self.modified, can);
        if is_same_time && (is_fine(can) || self.digest.is_none()) {
            return Some(true);
        }
        // Without a digest, it counts as another one.
        self.digest.is_none().then_some(false)
    }
}

/// Whether an entry of the server has the time that was set, as the server stores it.
pub(super) fn has_time(existing: &Entry, set: Option<Timestamp>, can: &Capabilities) -> bool {
    let stored = set.map(|time| can.stored_times.stored(time));
    can.times && stored.is_some() && existing.modified == stored
}

/// Whether the times of a storage distinguish versions.
pub(super) const fn is_fine(can: &Capabilities) -> bool {
    can.stored_times.step_ns <= FINE
}

/// An upload that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) path: RelPath,
    pub(super) sent: Sent,
    /// It has, or had, a part file.
    pub(super) has_part: bool,
}

/// The uploads of a file that may have reached the server since the server last reported a version of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Attempts(Vec<Attempt>);

impl Attempts {
    /// An upload begins.
    pub(super) fn begin(&mut self, mut attempt: Attempt) {
        self.0.retain(|known| {
            let is_same = known.path == attempt.path && known.sent == attempt.sent;
            attempt.has_part |= is_same && known.has_part;
            !is_same
        });
        self.0.push(attempt);
        while self.0.len() > MOST && self.others() > OTHERS && self.forget_one() {}
        self.0.drain(..self.0.len().saturating_sub(MOST_WITH_PARTS));
    }

    /// How many are not the only trace of a part file.
    fn others(&self) -> usize {
        let is_other = |(at, one): (usize, &Attempt)| {
            !one.has_part || self.0.iter().skip(at + 1).any(|later| later.path == one.path)
        };
        self.0.iter().enumerate().filter(|one| is_other(*one)).count()
    }

    /// Forgets the oldest one, if that does not leave a part file of which nothing is known; then the next one.
    fn forget_one(&mut self) -> bool {
        for (at, one) in self.0.iter().enumerate() {
            let after = self.0.iter().skip(at + 1).position(|other| other.path == one.path);
            match after {
                None if one.has_part => {}
                // Never the newest one.
                None if at + 1 == self.0.len() => {}
                _ => {
                    let forgotten = self.0.remove(at);
                    if let Some(other) = after.and_then(|after| self.0.get_mut(at + after)) {
                        other.has_part |= forgotten.has_part;
                    }
                    return true;
                }
            }
        }
        false
    }

    /// The versions that may be at a path.
    pub(super) fn at(&self, path: &RelPath) -> impl Iterator<Item = &Sent> {
        self.0.iter().filter(move |attempt| attempt.path == *path).map(|attempt| &attempt.sent)
    }

    /// Whether a part file may be at a path.
    pub(super) fn has_part(&self, path: &RelPath) -> bool {
        self.0.iter().any(|attempt| attempt.has_part && attempt.path == *path)
    }

    /// The version at a path is known: only part files at other paths are left.
    pub(super) fn settle(&mut self, path: &RelPath) {
        self.0.retain(|attempt| attempt.has_part && attempt.path != *path);
    }

    /// An upload has succeeded: its version is at its path, without a part file.
    pub(super) fn succeed(&mut self, path: &RelPath, sent: Sent) {
        self.settle(path);
        self.begin(Attempt { path: path.clone(), sent, has_part: false });
    }

    /// The file is no longer at `path`: only a part file there is left.
    pub(super) fn leave(&mut self, path: &RelPath) {
        self.0.retain(|attempt| attempt.has_part || attempt.path != *path);
    }

    /// Adds the attempts of a file that is replaced at a path: the next upload to that path continues its part file.
    pub(super) fn inherit(&mut self, other: &Self, path: &RelPath) {
        let others = other.0.iter().filter(|attempt| attempt.path == *path);
        others.for_each(|attempt| self.begin(attempt.clone()));
    }

    /// The paths of part files that no upload to `path` continues.
    pub(super) fn stray_parts(&self, path: Option<&RelPath>) -> Vec<RelPath> {
        let strays = self.0.iter().filter(|one| one.has_part && Some(&one.path) != path);
        let mut paths: Vec<_> = strays.map(|attempt| attempt.path.clone()).collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }

    /// The part file at a path was removed.
    pub(super) fn forget_part(&mut self, path: &RelPath) {
        let here = self.0.iter_mut().filter(|attempt| attempt.path == *path);
        here.for_each(|attempt| attempt.has_part = false);
    }

    /// A directory was renamed: `moved` returns the new path of an attempt below it, and `None` for others.
    pub(super) fn follow(&mut self, moved: impl Fn(&RelPath) -> Option<RelPath>) {
        for attempt in &mut self.0 {
            if let Some(path) = moved(&attempt.path) {
                attempt.path = path;
            }
        }
    }

    /// The last ones, as many as a record has room for.
    pub(super) fn recent(&self) -> impl Iterator<Item = &Attempt> {
        self.0.iter().skip(self.0.len().saturating_sub(MOST))
    }
}

impl FromIterator<Attempt> for Attempts {
    fn from_iter<I: IntoIterator<Item = Attempt>>(attempts: I) -> Self {
        let mut all = Self::default();
        attempts.into_iter().for_each(|attempt| all.begin(attempt));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    fn attempt(at: &str, size: u64, has_part: bool) -> Attempt {
        Attempt { path: path(at), sent: Sent { size, modified: None, digest: None }, has_part }
    }

    fn sizes(attempts: &Attempts, at: &str) -> Vec<u64> {
        attempts.at(&path(at)).map(|sent| sent.size).collect()
    }

    /// Formerly, the oldest one was always forgotten, and its part file stayed on the server.
    #[test]
    fn a_part_file_is_remembered_however_many_uploads_follow() {
        let mut attempts: Attempts = [attempt("a", 1, true)].into_iter().collect();
        for size in 2..9 {
            attempts.begin(attempt("b", size, false));
        }
        assert_eq!(attempts.stray_parts(Some(&path("b"))), [path("a")]);
        assert_eq!(sizes(&attempts, "b"), [6, 7, 8]);
        // All at one path.
        for size in 10..20 {
            attempts.begin(attempt("a", size, false));
        }
        assert!(attempts.has_part(&path("a")));
        assert_eq!(sizes(&attempts, "a"), [16, 17, 18, 19]);
        assert!(attempts.stray_parts(Some(&path("a"))).is_empty());
    }

    /// Formerly, only the newest version was remembered then, and an earlier one that had reached the server was taken
    /// for that of another program.
    #[test]
    fn versions_are_remembered_however_many_part_files_are_elsewhere() {
        for parts in 0..10 {
            let elsewhere = (10..10 + parts).map(|name| attempt(&name.to_string(), 1, true));
            let mut attempts: Attempts = elsewhere.collect();
            for size in 2..9 {
                attempts.begin(attempt("b", size, false));
            }
            assert_eq!(attempts.stray_parts(Some(&path("b"))).len(), parts);
            let sizes = sizes(&attempts, "b");
            assert!(sizes.ends_with(&[6, 7, 8]), "{parts}: {sizes:?}");
        }
    }

    #[test]
    fn part_files_at_many_paths_are_all_remembered_up_to_a_limit() {
        let paths: Vec<_> = (10..74).map(|name| name.to_string()).collect();
        let mut attempts = Attempts::default();
        paths.iter().for_each(|path| attempts.begin(attempt(path, 1, true)));
        let strays = attempts.stray_parts(None);
        assert_eq!(strays, paths.iter().map(|name| path(name)).collect::<Vec<_>>());
        assert_eq!(attempts.recent().count(), MOST);
        attempts.begin(attempt("another", 1, true));
        assert_eq!(attempts.stray_parts(None).len(), MOST_WITH_PARTS);
        for path in &strays {
            attempts.forget_part(path);
        }
        attempts.begin(attempt("another", 2, false));
        assert_eq!(attempts.0.len(), MOST);
        assert_eq!(sizes(&attempts, "another"), [1, 2]);
    }

    /// Formerly, the part file was forgotten.
    #[test]
    fn the_same_version_is_sent_whole_after_an_attempt_in_parts() {
        let mut attempts: Attempts = [attempt("a", 1, true)].into_iter().collect();
        attempts.begin(attempt("a", 1, false));
        assert!(attempts.has_part(&path("a")));
        attempts.succeed(&path("a"), attempt("a", 1, false).sent);
        assert!(!attempts.has_part(&path("a")));
    }
}
