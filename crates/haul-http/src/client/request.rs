//! Requests, and which of them may be repeated.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use haul_storage::Block;
use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Method};

use crate::parse::Url;

/// A lane that sends a request's body more slowly than this, in bytes per second, counts as dead.
pub const SLOWEST: u64 = 4096;

/// A request.
#[derive(Debug, Clone)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The URL.
    pub url: Url,
    /// Header fields.
    pub headers: HeaderMap,
    /// The body.
    pub body: Block,
    /// How long the response may take after the whole request was sent; `None` for the silence timeout.
    pub patience: Option<Duration>,
    /// The operation, for errors.
    pub operation: &'static str,
    /// Whether this request or a clone of it may have changed something.
    has_effect: Arc<AtomicBool>,
}

impl Request {
    /// A request without header fields and body.
    pub fn new(method: Method, url: Url, operation: &'static str) -> Self {
        let (headers, body) = (HeaderMap::new(), Block::new());
        let has_effect = Arc::default();
        Self { method, url, headers, body, patience: None, operation, has_effect }
    }

    /// It was sent to the server, which may have done what it requests.
    pub fn note_effect(&self) {
        self.has_effect.store(true, Ordering::Relaxed);
    }

    /// Whether the server may have done what this request or a clone of it requests: not if no connection could be
    /// opened, or it responded only by challenges and redirects.
    pub fn may_have_effect(&self) -> bool {
        self.has_effect.load(Ordering::Relaxed)
    }

    /// Adds a header field.
    #[must_use]
    pub fn with(mut self, name: impl http::header::IntoHeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Whether sending the request twice has the same effect as sending it once.
    pub fn is_repeatable(&self) -> bool {
        let is_put = self.method == Method::PUT || self.method == Method::PATCH;
        let is_for_a_tag = self.headers.get(IF_MATCH).is_some_and(|tag| tag.as_bytes() != b"*");
        // The second request would fail because the first one has succeeded.
        let is_conditional = is_for_a_tag || self.headers.contains_key(IF_NONE_MATCH);
        repeatable(&self.method) || is_put && !is_conditional
    }

    /// The time limit for the request and the beginning of its response; `silence` is the silence timeout. Includes the
    /// time that the body takes at the slowest rate.
    pub fn limit(&self, silence: Duration) -> Duration {
        self.patience.unwrap_or(silence) + Duration::from_secs(self.body.len() as u64 / SLOWEST)
    }
}

/// Whether a method changes nothing on the server (RFC 9110, 9.2.1).
pub fn is_safe(method: &Method) -> bool {
    matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS" | "PROPFIND")
}

/// Whether every request with this method may be repeated, because the method is idempotent (RFC 9110, 9.2.2). For PUT,
/// see [`Request::is_repeatable`].
pub fn repeatable(method: &Method) -> bool {
    matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS" | "PROPFIND" | "DELETE" | "PROPPATCH")
}
