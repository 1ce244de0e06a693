//! What is asked of a server, and what may be asked twice.

use std::time::Duration;

use haul_storage::Block;
use http::header::IF_NONE_MATCH;
use http::{HeaderMap, HeaderValue, Method};

use crate::parse::Url;

/// Bytes per second of a lane that is still taken for a living one.
pub const SLOWEST: u64 = 4096;

/// What to ask, and of whom.
#[derive(Debug, Clone)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// Whom, and for what.
    pub url: Url,
    /// Header fields.
    pub headers: HeaderMap,
    /// The body.
    pub body: Block,
    /// How long the server may take to answer when it has all of it; `None` for as long as it may be silent.
    pub patience: Option<Duration>,
    /// What it is for, in errors.
    pub operation: &'static str,
}

impl Request {
    /// Without header fields and body.
    pub fn new(method: Method, url: Url, operation: &'static str) -> Self {
        let (headers, body) = (HeaderMap::new(), Block::new());
        Self { method, url, headers, body, patience: None, operation }
    }

    /// With a header field.
    #[must_use]
    pub fn with(mut self, name: impl http::header::IntoHeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Whether it does the same when it reaches the server twice.
    pub fn is_repeatable(&self) -> bool {
        let is_put = self.method == Method::PUT || self.method == Method::PATCH;
        // What was only to be made if nothing is there is in its own way the second time.
        repeatable(&self.method) || is_put && !self.headers.contains_key(IF_NONE_MATCH)
    }

    /// How long it may take altogether: what is sent may be slow, but not dead. `silence` is how long the server may
    /// be silent.
    pub fn limit(&self, silence: Duration) -> Duration {
        self.patience.unwrap_or(silence) + Duration::from_secs(self.body.len() as u64 / SLOWEST)
    }
}

/// Whether asking changes nothing (RFC 9110, 9.2.1).
pub fn is_safe(method: &Method) -> bool {
    matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS" | "PROPFIND")
}

/// Whether asking twice is the same as asking once (RFC 9110, 9.2.2).
pub fn repeatable(method: &Method) -> bool {
    matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS" | "PROPFIND" | "DELETE" | "PROPPATCH")
}
