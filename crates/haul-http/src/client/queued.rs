//! A request that is queued on a connection: the bytes to send, and the receiver of its response.

use std::sync::Arc;
use std::time::Duration;

use haul_storage::Block;
use http::{Method, Request};
use tokio::sync::oneshot;

use super::order::Marker;
use super::payload::Stream;
use super::response::{Owner, Pending, Sink, response};
use crate::parse::Url;

/// Properties of a request that has a connection for itself.
#[derive(Debug)]
pub struct Alone {
    /// The owner of the connection.
    pub owner: Arc<dyn Owner>,
    /// How long the response may take to begin; `None` for no limit.
    pub limit: Option<Duration>,
    /// The body, if it is streamed and not in memory.
    pub stream: Option<Stream>,
}

/// Bytes on the connection for a request.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Expected in both directions together.
    pub expected: u64,
    /// Of these, the request's body.
    pub sent: u64,
}

/// A request, and where its response goes.
#[derive(Debug)]
pub struct Queued {
    pub method: Method,
    pub url: Url,
    /// The head as it is sent.
    pub head: Vec<u8>,
    /// The body, if it is in memory.
    pub body: Block,
    /// The receiver of the response.
    pub sink: Sink,
    pub size: Size,
    pub alone: Option<Alone>,
    pub sending: Option<Sending>,
    /// Whether the server has requested the body (100 Continue).
    pub is_continued: bool,
    pub step: Step,
}

/// What a response proves about the order of responses.
#[derive(Debug)]
pub enum Step {
    /// Nothing: it has the connection for itself, or is compared with its request.
    Plain,
    /// It counts once the response to a marker behind it has arrived.
    Unproven { marker: Option<SerializedMarker>, proof: oneshot::Sender<bool> },
    /// It is the response to a marker.
    Marker(Marker, Pending),
}

/// A marker and its request, as it is sent.
#[derive(Debug, Clone)]
pub struct SerializedMarker {
    pub marker: Marker,
    pub head: Vec<u8>,
}

/// The channels to the task that sends a body.
#[derive(Debug)]
pub struct Sending {
    /// Signals to the task that the server requests the body (100 Continue).
    pub wanted: Option<oneshot::Sender<()>>,
    /// Reports that the whole body was sent.
    pub is_sent: oneshot::Receiver<()>,
}

impl Queued {
    /// A marker, whose response the reader itself evaluates.
    pub fn marker(SerializedMarker { marker, head }: SerializedMarker) -> Self {
        let (sink, pending) = response(marker.url.clone(), None);
        Self {
            method: Method::GET,
            url: marker.url.clone(),
            head,
            body: Block::new(),
            sink,
            size: Size { expected: 1, sent: 0 },
            alone: None,
            sending: None,
            is_continued: false,
            step: Step::Marker(marker, pending),
        }
    }

    /// Whether the response has no body, whatever its header fields say (RFC 9110, 9.3.2).
    pub fn is_head(&self) -> bool {
        self.method == Method::HEAD
    }

    /// For messages: what is awaited until the response begins.
    pub fn awaited_response(&self) -> String {
        format!("response to {} {}", self.method, self.url.path())
    }

    /// For messages: what is awaited once the response has begun.
    pub fn rest(&self) -> String {
        format!("rest of the {}", self.awaited_response())
    }
}

/// The head of a request as it is sent.
pub fn serialize(request: &Request<()>) -> Vec<u8> {
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
