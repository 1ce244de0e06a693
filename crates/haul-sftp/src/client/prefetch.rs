//! Prefetched requests of a lane. They are sent along with the greeting, before their results are needed, so that they
//! cost no RTT of their own. An equal request soon afterwards gets the prefetched response.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use haul_storage::Range;

use crate::codec::{Attrs, Handle, OpenFlags, Request};

/// The age up to which a prefetched response is used; an older one may be outdated.
pub(super) const FRESH: Duration = Duration::from_secs(2);

/// The first handle that OpenSSH returns in a session.
const FIRST_HANDLE: [u8; 4] = [0; 4];

/// Bytes of a file that are requested on every new lane along with its greeting: about what TCP carries in its first
/// two RTTs.
pub(super) const PIECE: u64 = 64 << 10;

/// Prefetched requests, each with its response.
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
    /// Prefetched requests that were just sent.
    pub(super) fn new(asked: Vec<(Request, A)>) -> Self {
        let prefetch = Self { any: AtomicBool::new(false), asked: Mutex::default() };
        asked.into_iter().for_each(|(question, answer)| prefetch.add(question, answer));
        prefetch
    }

    /// Adds a request that was just sent.
    pub(super) fn add(&self, question: Request, answer: A) {
        self.forget();
        self.lock().push(Early { question, answer, until: Instant::now() + FRESH });
        self.any.store(true, Ordering::Release);
    }

    /// Whether no prefetched response is left.
    pub(super) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// Whether there is a fresh response to this request.
    pub(super) fn has(&self, question: &Request) -> bool {
        let now = Instant::now();
        self.lock().iter().any(|early| early.question == *question && early.until >= now)
    }

    /// Removes and returns the fresh response to a request.
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

    /// Removes and returns the READs of a file that a prefetched request has opened as `handle`.
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

    /// Removes and returns the READDIRs of a directory that a prefetched request has opened, in order. However old they
    /// are: the handle's position is behind them.
    pub(super) fn take_names(&self) -> Vec<A> {
        let mut asked = self.lock();
        let is_names = |early: &mut Early<A>| matches!(early.question, Request::Readdir(_));
        let names = asked.extract_if(.., is_names).map(|early| early.answer).collect();
        self.any.store(!asked.is_empty(), Ordering::Release);
        names
    }

    /// Drops outdated responses.
    pub(super) fn forget(&self) {
        let mut asked = self.lock();
        let now = Instant::now();
        asked.retain(|early| early.until >= now);
        self.any.store(!asked.is_empty(), Ordering::Release);
    }

    /// Changes the requests that the remaining responses stand for.
    pub(super) fn change(&self, mut change: impl FnMut(&mut Request)) {
        self.lock().iter_mut().for_each(|early| change(&mut early.question));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Early<A>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests that determine the type of a path that the user gave as source, and list it if it is a directory.
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

/// Requests that find the nearest existing directory on the path to a destination (`on_the_way`), and look up `names`
/// in the destination, if it is a directory.
pub(super) fn of_destination(
    asked: &Bytes,
    on_the_way: &[(Bytes, usize)],
    names: &[Vec<u8>],
) -> Vec<Request> {
    let both = |path: &Bytes| [Request::Realpath(path.clone()), Request::Stat(path.clone())];
    let mut questions: Vec<_> = on_the_way.iter().flat_map(|(path, _)| both(path)).collect();
    questions.push(Request::Lstat(asked.clone()));
    // A second time, for the storage that is opened there.
    questions.push(Request::Stat(asked.clone()));
    let slash: &[u8] = if asked.ends_with(b"/") { b"" } else { b"/" };
    let within = names.iter().map(|name| Request::Lstat([asked, slash, name].concat().into()));
    questions.extend(within);
    questions
}

/// Requests that open a source path if it is a file. Nothing else may be open on the lane.
pub(super) fn of_file(asked: &Bytes) -> Vec<Request> {
    let (path, flags, attrs) = (asked.clone(), OpenFlags::READ, Attrs::default());
    vec![Request::Stat(asked.clone()), Request::Open { path, flags, attrs }]
}

/// The request that reads piece `number` of the first file opened on a lane.
pub(super) fn of_piece(number: u64) -> Request {
    let length = u32::try_from(PIECE).unwrap_or(u32::MAX);
    Request::Read { handle: first_handle(), offset: number * PIECE, length }
}

/// Rewrites a prefetched request for the path that the user gave (`asked`) to the equal request for `path`, to which it
/// resolves. As `path` does not end in a link, STAT becomes LSTAT.
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

/// The handle of the first file or directory opened on a lane.
pub(super) fn first_handle() -> Handle {
    Handle::from(Bytes::from_static(&FIRST_HANDLE))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn each_response_is_used_once_and_only_for_an_equal_request() {
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
    fn prefetched_reads_are_taken_by_their_handle() {
        let asked = of_file(&Bytes::from_static(b"/a")).into_iter().chain([of_piece(3)]);
        let prefetch = Prefetch::new(asked.zip(0..).collect());
        let other = Handle::from(Bytes::from_static(b"other"));
        assert_eq!(prefetch.take_pieces(&other), []);
        assert_eq!(prefetch.take_pieces(&first_handle()), [(Range::new(3 * PIECE, PIECE), 2)]);
        assert_eq!(prefetch.take_pieces(&first_handle()), []);
    }

    #[test]
    fn an_outdated_response_is_not_used() {
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
