//! `Expect: 100-continue` (RFC 9110, 10.1.1): a server can refuse a large upload before the body is sent.
//!
//! It costs an RTT. So it is used only until the server has accepted a file as large, and not for servers that ignore
//! it. A refusal arrives as the response to the upload, of which nothing was sent.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use http::StatusCode;

use crate::parse::Origin;

/// Shorter bodies are sent without `Expect`, which is faster; curl has the same threshold.
const LARGE: u64 = 1 << 20;

/// How servers have responded to `Expect` so far.
#[derive(Debug, Default)]
pub struct Continues {
    known: Mutex<HashMap<Origin, Known>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// The server does not respond to it, or responds that it does not support it (417).
    ignores: bool,
    /// Length of the largest file that the server has accepted.
    accepted: u64,
}

impl Continues {
    /// Whether to send `Expect` with a file of this length.
    pub fn expects_continue(&self, origin: &Origin, length: Option<u64>) -> bool {
        let known = self.lock().get(origin).copied().unwrap_or_default();
        // A file of unknown length may be arbitrarily large.
        let length = length.unwrap_or(u64::MAX);
        !known.ignores && length >= LARGE && length > known.accepted
    }

    /// Records the response to an upload. `expected`: `Expect` was sent; `continued`: the server has responded with
    /// 100.
    pub fn on_response(
        &self,
        origin: &Origin,
        length: Option<u64>,
        expected: bool,
        continued: bool,
        status: StatusCode,
    ) {
        let mut all = self.lock();
        let known = all.entry(origin.clone()).or_default();
        if status == StatusCode::EXPECTATION_FAILED
            || (expected && !continued && status.is_success())
        {
            known.ignores = true;
        }
        if status.is_success() {
            known.accepted = known.accepted.max(length.unwrap_or(0));
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
    fn expect_is_sent_until_a_file_as_large_was_accepted_or_it_was_ignored() {
        let origin = |url: &str| Url::parse(url).unwrap().origin;
        let (one, other) = (origin("http://one/"), origin("http://other/"));
        let continues = Continues::default();
        assert!(!continues.expects_continue(&one, Some(LARGE - 1)));
        assert!(continues.expects_continue(&one, Some(LARGE)));
        continues.on_response(&one, Some(5 << 20), true, false, StatusCode::PAYLOAD_TOO_LARGE);
        assert!(continues.expects_continue(&one, Some(5 << 20)));
        continues.on_response(&one, Some(4 << 20), true, true, StatusCode::CREATED);
        assert!(!continues.expects_continue(&one, Some(4 << 20)));
        assert!(continues.expects_continue(&one, Some(5 << 20)));
        assert!(continues.expects_continue(&one, None));
        continues.on_response(&one, Some(5 << 20), true, false, StatusCode::CREATED);
        assert!(!continues.expects_continue(&one, None));
        assert!(continues.expects_continue(&other, None));
        continues.on_response(&other, None, true, false, StatusCode::EXPECTATION_FAILED);
        assert!(!continues.expects_continue(&other, None));
    }
}
