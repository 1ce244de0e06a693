//! A request that is queued on a connection: what is sent, and where the response goes.

use std::sync::Arc;
use std::time::Duration;

use haul_storage::Block;
use http::{Method, Request};
use tokio::sync::oneshot;

use super::payload::Stream;
use super::response::{Owner, Sink};
use crate::parse::Url;

/// A request with a connection for itself.
#[derive(Debug)]
pub struct Alone {
    /// What has the connection for it.
    pub owner: Arc<dyn Owner>,
    /// How long the response may take to begin; `None` for as long as it is waited for.
    pub limit: Option<Duration>,
    /// What is sent after its head, if that is not in memory.
    pub stream: Option<Stream>,
}

/// A request, and where its response goes.
#[derive(Debug)]
pub struct Queued {
    pub method: Method,
    pub url: Url,
    /// Its head, and what is in memory of its body.
    pub head: Vec<u8>,
    pub body: Block,
    /// Where the response goes.
    pub sink: Sink,
    /// Bytes that it makes the connection carry, in both directions, and of these those of its body.
    pub expected: u64,
    pub sent: u64,
    pub alone: Option<Alone>,
    pub sending: Option<Sending>,
    /// Whether the server has said that it wants the body (100).
    pub is_continued: bool,
}

/// What is known of a body that is being sent.
#[derive(Debug)]
pub struct Sending {
    /// Says that the server wants it.
    pub wanted: Option<oneshot::Sender<()>>,
    /// Reports that all of it was sent.
    pub is_sent: oneshot::Receiver<()>,
}

impl Queued {
    /// Whether the response has no body, whatever it says (RFC 9110, 9.3.2).
    pub fn is_head(&self) -> bool {
        self.method == Method::HEAD
    }

    /// What is waited for, until the response begins.
    pub fn answer(&self) -> String {
        format!("response to {} {}", self.method, self.url.path())
    }

    /// What is waited for, once it has begun.
    pub fn rest(&self) -> String {
        format!("rest of the {}", self.answer())
    }
}

/// The head of a request as it is sent.
pub fn as_sent(request: &Request<()>) -> Vec<u8> {
    let mut bytes = format!("{} {} HTTP/1.1\r\n", request.method(), request.uri()).into_bytes();
    for (name, value) in request.headers() {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}
