//! What a server turns out to do or not to do, whatever it announced. A lesson is learnt once for the
//! host, by whichever lane meets it; from then on all lanes go the other way.
//!
//! Whatever failed while a lesson was learnt is tried again at once ([`Learnt::since`]): there are few
//! lessons, so that ends.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// One thing to learn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Lesson {
    /// Commands that arrive together with others are lost: send one, wait for its reply.
    OneAtATime = 1,
    /// `MLSD` is not known.
    NoMlsd = 1 << 1,
    /// `MLST` is not known.
    NoMlst = 1 << 2,
    /// `SIZE` is not known, or refused for files that are there.
    NoSize = 1 << 3,
    /// `SIZE` has been answered: where it is refused, there is no such file.
    SizeWorks = 1 << 4,
    /// `MDTM` is not known.
    NoMdtm = 1 << 5,
    /// `REST` is refused.
    NoRest = 1 << 6,
    /// `EPSV` is refused.
    NoEpsv = 1 << 7,
    /// A data connection to a port from `EPSV` was made.
    EpsvWorks = 1 << 8,
    /// None could be made; ask `PASV`.
    EpsvLeadsNowhere = 1 << 9,
    /// `LIST -a` lists what `LIST` lists, and hidden names.
    ListAllWorks = 1 << 10,
    /// `LIST -a` is refused, or taken for a path.
    ListPlain = 1 << 11,
    /// The server says when a transfer begins (150).
    SaysBegin = 1 << 12,
    /// A rename does not replace what has the name.
    RenameKeeps = 1 << 13,
    /// Times are not set, although it seemed so.
    NoTimes = 1 << 14,
    /// A time was set: where that is refused, it is about the one file.
    TimesWork = 1 << 15,
    /// It makes no digests, although it announced that.
    NoHash = 1 << 16,
}

/// Directories that cannot be listed and are remembered.
const UNLISTABLE: usize = 4096;

/// All that was learnt of a host.
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

    /// Remembers that a directory cannot be listed, so that nothing can be found out that way.
    pub(crate) fn learn_unlistable(&self, directory: &[u8]) {
        let mut unlistable = self.unlistable.lock().unwrap_or_else(PoisonError::into_inner);
        if unlistable.len() < UNLISTABLE {
            unlistable.insert(directory.to_vec());
        }
    }

    /// Whether a directory is known not to be listed.
    pub(crate) fn is_unlistable(&self, directory: &[u8]) -> bool {
        let unlistable = self.unlistable.lock().unwrap_or_else(PoisonError::into_inner);
        unlistable.contains(directory)
    }

    /// What is known now, for [`Self::since`].
    pub(crate) fn mark(&self) -> u32 {
        self.lessons.load(Ordering::Relaxed)
    }

    /// Whether something was learnt since `mark`, which is brought up to date.
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
