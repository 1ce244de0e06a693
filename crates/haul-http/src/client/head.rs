//! The head of a response, and why a response ends too early.

use std::time::Duration;

use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode};

use crate::parse::{Url, length};

/// What a server sends before the body.
#[derive(Debug, Clone)]
pub struct Head {
    /// The status.
    pub status: StatusCode,
    /// The header fields.
    pub headers: HeaderMap,
    /// The URL that responded, at the end of all redirects.
    pub url: Url,
}

impl Head {
    /// A header field as text; `None` if it is not there or no text.
    pub fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The length of the body, if the server reports one that counts: a transfer coding overrides it
    /// (RFC 9112, 6.3). Responses whose length is malformed do not come this far.
    pub fn length(&self) -> Option<u64> {
        if self.is_coded() {
            return None;
        }
        let values = self.headers.get_all(CONTENT_LENGTH);
        length::parse(values.iter().map(HeaderValue::as_bytes)).ok().flatten()
    }

    /// Whether the body, if there is one, ends with the connection.
    pub fn is_until_close(&self) -> bool {
        let codings = self.headers.get_all(TRANSFER_ENCODING);
        let Some(last) = codings.iter().next_back() else { return self.length().is_none() };
        let last = last.to_str().ok().and_then(|value| value.rsplit(',').next());
        !last.unwrap_or_default().trim().eq_ignore_ascii_case("chunked")
    }

    /// Whether the body has a transfer coding.
    pub fn is_coded(&self) -> bool {
        self.headers.contains_key(TRANSFER_ENCODING)
    }
}

/// Why a response ends too early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broken {
    /// The connection ended before the response began.
    Lost {
        /// Whether the request may have reached the server.
        is_sent: bool,
    },
    /// Nothing has come for so long.
    Silent(Duration),
    /// The connection ended within the response.
    Within(String),
    /// What came is no response, or none that can be read here.
    Unreadable(String),
    /// What comes is so little that it will never end.
    Endless {
        /// Bytes of the body so far.
        bytes: u64,
        /// For how long they were waited for.
        seconds: u64,
    },
}
