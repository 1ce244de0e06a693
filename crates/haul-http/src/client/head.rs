//! The head of a response, and the reasons why a response is incomplete.

use std::time::Duration;

use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode};

use crate::parse::{Url, length};

/// Status and header fields of a response.
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
    /// A header field as text; `None` if it is missing or not ASCII.
    pub fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The length of the body, if the server reports a valid one: a transfer coding overrides it
    /// (RFC 9112, 6.3). Responses with a malformed length were rejected before.
    pub fn length(&self) -> Option<u64> {
        if self.is_coded() {
            return None;
        }
        let values = self.headers.get_all(CONTENT_LENGTH);
        length::parse(values.iter().map(HeaderValue::as_bytes)).ok().flatten()
    }

    /// Whether the body, if there is one, ends with the connection.
    pub fn is_until_close(&self) -> bool {
        !self.is_coded() && self.length().is_none()
    }

    /// Whether the body has a transfer coding. haul supports only `chunked`, and responses with another
    /// one were rejected before; `identity` is an obsolete name for none (RFC 2616, 3.6).
    pub fn is_coded(&self) -> bool {
        let values = self.headers.get_all(TRANSFER_ENCODING).iter();
        let codings = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
        let mut codings = codings.map(<[u8]>::trim_ascii).filter(|coding| !coding.is_empty());
        codings.any(|coding| !coding.eq_ignore_ascii_case(b"identity"))
    }
}

/// Why a response is incomplete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broken {
    /// The connection ended before the response began.
    Lost {
        /// Whether the request may have reached the server.
        is_sent: bool,
    },
    /// No byte has arrived for this long.
    Silent(Duration),
    /// The connection ended within the response.
    Within(String),
    /// The bytes are not a valid response, or not one that haul supports.
    Unreadable(String),
    /// The same on a reused connection, where the bytes may be left from an earlier response.
    Stray(String),
    /// The body arrives so slowly that haul takes it for endless.
    Endless {
        /// Bytes of the body in the last measurement.
        bytes: u64,
        /// How long haul waited for them.
        seconds: u64,
    },
}

impl Broken {
    /// The same for a request on a reused connection: unreadable bytes there may be left from an
    /// earlier response, so another connection may work.
    pub fn on_reused(self, is_reused: bool) -> Self {
        match self {
            Self::Unreadable(how) if is_reused => Self::Stray(how),
            other => other,
        }
    }
}
