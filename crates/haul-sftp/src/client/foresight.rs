//! What a lane was asked before anybody wanted to know it: together with the greeting, so that it
//! takes no round trip of its own. Whoever asks the same soon after gets the answer to that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::codec::{Handle, Request};

/// An answer that nobody wanted for so long may not be true any more.
const FRESH: Duration = Duration::from_secs(2);

/// The handle that OpenSSH gives first.
const FIRST_HANDLE: [u8; 4] = [0; 4];

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

    /// Changes what the answers that are left are taken for.
    pub(super) fn change(&self, mut change: impl FnMut(&mut Request)) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.iter_mut().for_each(|(early, _)| change(early));
    }
}

/// What finds out what a path of a user's is, and lists it if it is a directory.
pub(super) fn of_source(asked: &bytes::Bytes) -> Vec<Request> {
    let names = || Request::Readdir(Handle::from(bytes::Bytes::from_static(&FIRST_HANDLE)));
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
