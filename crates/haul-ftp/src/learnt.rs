//! Features that a server turns out to support or not, whatever it announced. The first lane that notices
//! learns it for the host; from then on all lanes act on it.
//!
//! An operation that failed while a lesson was learnt is retried at once ([`Learnt::since`]). There are few
//! lessons, so these retries end.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// One thing to learn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Lesson {
    /// Commands that arrive together are lost: send one, then wait for its reply.
    OneAtATime = 1,
    /// `MLSD` is unknown.
    NoMlsd = 1 << 1,
    /// `MLST` is unknown.
    NoMlst = 1 << 2,
    /// `SIZE` is unknown, or refused for files that exist.
    NoSize = 1 << 3,
    /// `SIZE` has succeeded once, or is known to work by the greeting: if it is refused, there is no such
    /// file.
    SizeWorks = 1 << 4,
    /// `MDTM` is unknown.
    NoMdtm = 1 << 5,
    /// `REST` is refused.
    NoRest = 1 << 6,
    /// `EPSV` is refused.
    NoEpsv = 1 << 7,
    /// A data connection to a port from `EPSV` succeeded.
    EpsvWorks = 1 << 8,
    /// A data connection to a port from `EPSV` failed, and none has succeeded: try `PASV` first.
    EpsvLeadsNowhere = 1 << 9,
    /// `LIST -a` lists what `LIST` lists, plus hidden names.
    ListAllWorks = 1 << 10,
    /// `LIST -a` is refused, or taken for a path.
    ListPlain = 1 << 11,
    /// The server announces the beginning of a transfer (150).
    AnnouncesBegin = 1 << 12,
    /// A rename does not replace an existing file.
    RenameDoesNotReplace = 1 << 13,
    /// Times cannot be set, although it seemed possible.
    NoTimes = 1 << 14,
    /// A time was set once: a later refusal concerns that file only.
    TimesWork = 1 << 15,
    /// It computes no digests, although it announced them.
    NoHash = 1 << 16,
}

/// The most unlistable directories that are remembered.
const UNLISTABLE: usize = 4096;

/// Everything that was learnt about a host.
#[derive(Debug, Default)]
pub(crate) struct Learnt {
    lessons: AtomicU32,
    unlistable: Mutex<HashSet<Vec<u8>>>,
}

impl Learnt {
    /// Remembers a lesson.
    pub(crate) fn learn(&self, lesson: Lesson) {
        self.lessons.fetch_or(lesson as u32, Ordering::Relaxed);
    }

    /// Whether it was learnt.
    pub(crate) fn knows(&self, lesson: Lesson) -> bool {
        self.lessons.load(Ordering::Relaxed) & lesson as u32 != 0
    }

    /// Remembers that a directory cannot be listed.
    pub(crate) fn learn_unlistable(&self, directory: &[u8]) {
        let mut unlistable = self.unlistable.lock().unwrap_or_else(PoisonError::into_inner);
        if unlistable.len() < UNLISTABLE {
            unlistable.insert(directory.to_vec());
        }
    }

    /// Whether a directory is known to be unlistable.
    pub(crate) fn is_unlistable(&self, directory: &[u8]) -> bool {
        let unlistable = self.unlistable.lock().unwrap_or_else(PoisonError::into_inner);
        unlistable.contains(directory)
    }

    /// The present state, for [`Self::since`].
    pub(crate) fn mark(&self) -> u32 {
        self.lessons.load(Ordering::Relaxed)
    }

    /// Whether something was learnt since `mark`; updates `mark`.
    pub(crate) fn since(&self, mark: &mut u32) -> bool {
        let now = self.mark();
        std::mem::replace(mark, now) != now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lesson_is_new_once() {
        let learnt = Learnt::default();
        let mut mark = learnt.mark();
        assert!(!learnt.since(&mut mark) && !learnt.knows(Lesson::NoTimes));
        for _ in 0..2 {
            learnt.learn(Lesson::NoTimes);
        }
        assert!(learnt.knows(Lesson::NoTimes) && !learnt.knows(Lesson::OneAtATime));
        assert!(learnt.since(&mut mark) && !learnt.since(&mut mark));
    }
}
