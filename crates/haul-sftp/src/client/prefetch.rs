//! What a lane was asked before anybody wanted to know it: together with the greeting, so that it
//! takes no round trip of its own. Whoever asks the same soon after gets the answer to that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use haul_storage::Range;

use crate::codec::{Attrs, Handle, OpenFlags, Request};

/// An answer that nobody wanted for so long may not be true any more.
pub(super) const FRESH: Duration = Duration::from_secs(2);

/// The handle that OpenSSH gives first.
const FIRST_HANDLE: [u8; 4] = [0; 4];

/// Bytes of a file that every lane is asked for with its greeting: about what TCP carries in its
/// first two round trips.
pub(super) const PIECE: u64 = 64 << 10;

/// Questions and the answers that are on their way.
#[derive(Debug)]
pub(super) struct Prefetch<A> {
    any: AtomicBool,
    asked: Mutex<Vec<Early<A>>>,
}

#[derive(Debug)]
struct Early<A> {
    question: Request,
    answer: A,
    until: Instant,
}

impl<A> Prefetch<A> {
    /// Of what has just been asked.
    pub(super) fn new(asked: Vec<(Request, A)>) -> Self {
        let prefetch = Self { any: AtomicBool::new(false), asked: Mutex::default() };
        asked.into_iter().for_each(|(question, answer)| prefetch.add(question, answer));
        prefetch
    }

    /// Something has just been asked early.
    pub(super) fn add(&self, question: Request, answer: A) {
        self.forget();
        self.lock().push(Early { question, answer, until: Instant::now() + FRESH });
        self.any.store(true, Ordering::Release);
    }

    /// Whether nothing was asked, or everything was taken.
    pub(super) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// Whether there is an answer to this.
    pub(super) fn has(&self, question: &Request) -> bool {
        let now = Instant::now();
        self.lock().iter().any(|early| early.question == *question && early.until >= now)
    }

    /// The answer to a question that was asked early, once.
    pub(super) fn take(&self, question: &Request) -> Option<A> {
        if self.is_empty() {
            return None;
        }
        let mut asked = self.lock();
        let now = Instant::now();
        let fresh = |early: &Early<A>| early.question == *question && early.until >= now;
        let found = asked.iter().position(fresh).map(|at| asked.remove(at).answer);
        self.any.store(!asked.is_empty(), Ordering::Release);
        found
    }

    /// What was read ahead of a file that was opened ahead, and turned out to have `handle`.
    pub(super) fn take_pieces(&self, handle: &Handle) -> Vec<(Range, A)> {
        let mut asked = self.lock();
        let (mut pieces, mut rest) = (Vec::new(), Vec::new());
        for early in asked.drain(..) {
            match early.question {
                Request::Read { handle: of, offset, length } if of == *handle => {
                    pieces.push((Range::new(offset, length.into()), early.answer));
                }
                question => rest.push(Early { question, ..early }),
            }
        }
        *asked = rest;
        pieces
    }

    /// What was listed of a directory that was opened ahead, in order and however old it is: the
    /// handle has gone on behind it.
    pub(super) fn take_names(&self) -> Vec<A> {
        let mut asked = self.lock();
        let is_names = |early: &mut Early<A>| matches!(early.question, Request::Readdir(_));
        let names = asked.extract_if(.., is_names).map(|early| early.answer).collect();
        self.any.store(!asked.is_empty(), Ordering::Release);
        names
    }

    /// Gives up the answers that nobody wanted in time.
    pub(super) fn forget(&self) {
        let mut asked = self.lock();
        let now = Instant::now();
        asked.retain(|early| early.until >= now);
        self.any.store(!asked.is_empty(), Ordering::Release);
    }

    /// Changes what the answers that are left are taken for.
    pub(super) fn change(&self, mut change: impl FnMut(&mut Request)) {
        self.lock().iter_mut().for_each(|early| change(&mut early.question));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Early<A>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What finds out what a path of a user's is, and lists it if it is a directory.
pub(super) fn of_source(asked: &Bytes) -> Vec<Request> {
    let names = || Request::Readdir(first_handle());
    vec![
        Request::Realpath(asked.clone()),
        Request::Stat(asked.clone()),
        Request::Stat(asked.clone()),
        Request::Opendir(asked.clone()),
        names(),
        names(),
        names(),
    ]
}

/// What finds the directory nearest to a path that is to be written, of all on the way to it; and
/// what is at the `names` in it, if it is a directory.
pub(super) fn of_destination(
    asked: &Bytes,
    on_the_way: &[(Bytes, usize)],
    names: &[Vec<u8>],
) -> Vec<Request> {
    let both = |path: &Bytes| [Request::Realpath(path.clone()), Request::Stat(path.clone())];
    let mut questions: Vec<_> = on_the_way.iter().flat_map(|(path, _)| both(path)).collect();
    questions.push(Request::Lstat(asked.clone()));
    // Once more, for the storage that is opened there.
    questions.push(Request::Stat(asked.clone()));
    let slash: &[u8] = if asked.ends_with(b"/") { b"" } else { b"/" };
    let within = names.iter().map(|name| Request::Lstat([asked, slash, name].concat().into()));
    questions.extend(within);
    questions
}

/// What opens a path of a user's if it is a file. Nothing else may be open on the lane.
pub(super) fn of_file(asked: &Bytes) -> Vec<Request> {
    let (path, flags, attrs) = (asked.clone(), OpenFlags::READ, Attrs::default());
    vec![Request::Stat(asked.clone()), Request::Open { path, flags, attrs }]
}

/// What reads a piece of the file that was opened first on a lane.
pub(super) fn of_piece(number: u64) -> Request {
    let length = u32::try_from(PIECE).unwrap_or(u32::MAX);
    Request::Read { handle: first_handle(), offset: number * PIECE, length }
}

/// What was asked of a path as it was written is what would be asked of `path`, which it leads to,
/// with no link at its end.
pub(super) fn resolved(early: &mut Request, asked: &Bytes, path: &Bytes) {
    match early {
        Request::Stat(of) if of == asked => *early = Request::Lstat(path.clone()),
        Request::Opendir(of) | Request::Open { path: of, .. } if of == asked => {
            of.clone_from(path);
        }
        Request::Lstat(of) => {
            let below = of.strip_prefix(&asked[..]).filter(|below| below.starts_with(b"/"));
            if let Some(below) = below.filter(|_| asked != path) {
                *of = [&path[..], below].concat().into();
            }
        }
        _ => {}
    }
}

pub(super) fn first_handle() -> Handle {
    Handle::from(Bytes::from_static(&FIRST_HANDLE))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn each_answer_is_given_once_and_only_for_its_question() {
        let asked = Bytes::from_static(b"/a");
        let questions = of_source(&asked);
        let count = questions.len();
        let prefetch = Prefetch::new(questions.into_iter().zip(0..).collect());
        assert_eq!(prefetch.take(&Request::Stat(asked.clone())), Some(1));
        assert_eq!(prefetch.take(&Request::Lstat(asked.clone())), None);
        assert_eq!(prefetch.take(&Request::Stat(asked.clone())), Some(2));
        assert_eq!(prefetch.take(&Request::Stat(asked.clone())), None);
        let other = Bytes::from_static(b"/b");
        prefetch.change(|early| {
            if let Request::Opendir(path) = early {
                path.clone_from(&other);
            }
        });
        assert_eq!(prefetch.take(&Request::Opendir(asked)), None);
        assert_eq!(prefetch.take(&Request::Opendir(other)), Some(3));
        assert_eq!(count, 7);
    }

    #[test]
    fn pieces_are_of_the_file_that_has_the_handle() {
        let asked = of_file(&Bytes::from_static(b"/a")).into_iter().chain([of_piece(3)]);
        let prefetch = Prefetch::new(asked.zip(0..).collect());
        let other = Handle::from(Bytes::from_static(b"other"));
        assert_eq!(prefetch.take_pieces(&other), []);
        assert_eq!(prefetch.take_pieces(&first_handle()), [(Range::new(3 * PIECE, PIECE), 2)]);
        assert_eq!(prefetch.take_pieces(&first_handle()), []);
    }

    #[test]
    fn an_answer_that_is_old_is_not_given() {
        let asked = Bytes::from_static(b"/a");
        let prefetch = Prefetch::new(vec![(Request::Stat(asked.clone()), 1)]);
        prefetch.forget();
        assert!(prefetch.has(&Request::Stat(asked.clone())) && !prefetch.is_empty());
        prefetch.lock()[0].until = Instant::now() - Duration::from_millis(1);
        assert!(!prefetch.has(&Request::Stat(asked.clone())));
        assert_eq!(prefetch.take(&Request::Stat(asked)), None);
        assert!(!prefetch.is_empty());
        prefetch.forget();
        assert!(prefetch.is_empty() && prefetch.lock().is_empty());
    }
}
