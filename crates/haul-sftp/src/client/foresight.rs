//! What a lane was asked before anybody wanted to know it: together with the greeting, so that it
//! takes no round trip of its own. Whoever asks the same soon after gets the answer to that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
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
pub(super) struct Foresight<A> {
    any: AtomicBool,
    asked: Mutex<Vec<(Request, A)>>,
    until: Instant,
}

impl<A> Foresight<A> {
    /// Of what has just been asked.
    pub(super) fn new(asked: Vec<(Request, A)>) -> Self {
        Self {
            any: AtomicBool::new(!asked.is_empty()),
            asked: Mutex::new(asked),
            until: Instant::now() + FRESH,
        }
    }

    /// Whether nothing was asked, or everything was taken.
    pub(super) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// Whether there is an answer to this.
    pub(super) fn has(&self, request: &Request) -> bool {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        Instant::now() <= self.until && asked.iter().any(|(early, _)| early == request)
    }

    /// The answer to a question that was asked early, once.
    pub(super) fn take(&self, request: &Request) -> Option<A> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if Instant::now() > self.until {
            asked.clear();
        }
        let at = asked.iter().position(|(early, _)| early == request);
        let found = at.map(|at| asked.remove(at).1);
        self.any.store(!asked.is_empty(), Ordering::Release);
        found
    }

    /// What was read ahead of a file that was opened ahead, and turned out to have `handle`.
    pub(super) fn take_pieces(&self, handle: &Handle) -> Vec<(Range, A)> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut pieces, mut rest) = (Vec::new(), Vec::new());
        for (request, answer) in asked.drain(..) {
            match request {
                Request::Read { handle: of, offset, length } if of == *handle => {
                    pieces.push((Range::new(offset, length.into()), answer));
                }
                request => rest.push((request, answer)),
            }
        }
        *asked = rest;
        pieces
    }

    /// The answers that nobody wanted in time.
    pub(super) fn rest(&self) -> Vec<A> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        self.any.store(false, Ordering::Release);
        asked.drain(..).map(|(_, answer)| answer).collect()
    }

    /// Changes what the answers that are left are taken for.
    pub(super) fn change(&self, mut change: impl FnMut(&mut Request)) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.iter_mut().for_each(|(early, _)| change(early));
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
        _ => {}
    }
}

fn first_handle() -> Handle {
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
        let foresight = Foresight::new(questions.into_iter().zip(0..).collect());
        assert_eq!(foresight.take(&Request::Stat(asked.clone())), Some(1));
        assert_eq!(foresight.take(&Request::Lstat(asked.clone())), None);
        assert_eq!(foresight.take(&Request::Stat(asked.clone())), Some(2));
        assert_eq!(foresight.take(&Request::Stat(asked.clone())), None);
        let other = Bytes::from_static(b"/b");
        foresight.change(|early| {
            if let Request::Opendir(path) = early {
                path.clone_from(&other);
            }
        });
        assert_eq!(foresight.take(&Request::Opendir(asked)), None);
        assert_eq!(foresight.take(&Request::Opendir(other)), Some(3));
        assert_eq!(count, 7);
    }

    #[test]
    fn an_answer_that_is_old_is_not_given() {
        let asked = Bytes::from_static(b"/a");
        let mut foresight = Foresight::new(vec![(Request::Stat(asked.clone()), 1)]);
        foresight.until = Instant::now() - Duration::from_millis(1);
        assert_eq!(foresight.take(&Request::Stat(asked)), None);
    }
}
