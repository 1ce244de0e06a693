//! `Expect: 100-continue`: whether a large upload would be refused is asked before it is sent
//! (RFC 9110, 10.1.1).
//!
//! It costs a round trip, so it is asked only as long as nothing as large was taken, and not of a server
//! that does not respond to it. A refusal comes back as the answer to the upload, of which nothing was sent.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::StatusCode;

use crate::parse::Origin;

/// What is shorter is sent sooner than asked for (curl asks from here on, too).
const LARGE: u64 = 1 << 20;

/// What is known of servers.
#[derive(Debug, Default)]
pub struct Continues {
    known: Mutex<HashMap<Origin, Known>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// It says nothing, or that it cannot do that (417).
    ignores: bool,
    /// Length of the largest file that was taken.
    taken: u64,
}

impl Continues {
    /// Whether it is asked before a file of this length is sent.
    pub fn is_asked(&self, origin: &Origin, length: Option<u64>) -> bool {
        let known = self.lock().get(origin).copied().unwrap_or_default();
        // A file of which nobody knows the length may be larger than any.
        let length = length.unwrap_or(u64::MAX);
        !known.ignores && length >= LARGE && length > known.taken
    }

    /// Remembers a response; `said` whether the server had said that it wants the file.
    pub fn answered(
        &self,
        origin: &Origin,
        length: Option<u64>,
        asked: bool,
        said: bool,
        status: StatusCode,
    ) {
        let mut all = self.lock();
        let known = all.entry(origin.clone()).or_default();
        if status == StatusCode::EXPECTATION_FAILED || (asked && !said && status.is_success()) {
            known.ignores = true;
        }
        if status.is_success() {
            known.taken = known.taken.max(length.unwrap_or(0));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Origin, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::Url;

    #[test]
    fn it_is_asked_until_as_much_was_taken_or_nobody_answers() {
        let origin = |url: &str| Url::parse(url).unwrap().origin;
        let (one, other) = (origin("http://one/"), origin("http://other/"));
        let continues = Continues::default();
        assert!(!continues.is_asked(&one, Some(LARGE - 1)));
        assert!(continues.is_asked(&one, Some(LARGE)));
        continues.answered(&one, Some(5 << 20), true, false, StatusCode::PAYLOAD_TOO_LARGE);
        assert!(continues.is_asked(&one, Some(5 << 20)));
        continues.answered(&one, Some(4 << 20), true, true, StatusCode::CREATED);
        assert!(!continues.is_asked(&one, Some(4 << 20)));
        assert!(continues.is_asked(&one, Some(5 << 20)));
        assert!(continues.is_asked(&one, None));
        continues.answered(&one, Some(5 << 20), true, false, StatusCode::CREATED);
        assert!(!continues.is_asked(&one, None));
        assert!(continues.is_asked(&other, None));
        continues.answered(&other, None, true, false, StatusCode::EXPECTATION_FAILED);
        assert!(!continues.is_asked(&other, None));
    }
}
