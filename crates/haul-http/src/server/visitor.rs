//! Events about clients: connections, requests and their ends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::{Method, StatusCode};

/// An event about a client.
pub type ClientEvent = haul_net::ClientEvent<ClientAction>;

/// The callback for events about clients.
pub(super) type Observer = haul_net::Observer<ClientAction>;

/// The kind of an event. Names are as the client sent them, not escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientAction {
    /// The client has connected.
    Connected,
    /// The connection was closed, because there are too many.
    TurnedAway,
    /// The TLS handshake failed or took too long.
    NoTls,
    /// The user name or password was wrong.
    Refused {
        /// The user name.
        user: String,
    },
    /// A request has been served or was aborted.
    Request {
        /// The method.
        method: String,
        /// The path as the client sent it, percent-encoded.
        path: String,
        /// The status of the response; 499 if the client left before it.
        status: u16,
        /// Bytes received after the head.
        received: u64,
        /// Bytes sent after the head.
        sent: u64,
        /// How long it took.
        after: Duration,
    },
    /// The connection has ended.
    Disconnected {
        /// How long it was connected.
        after: Duration,
    },
}

/// A connected client. Dropping it reports the end of the connection.
#[derive(Debug)]
pub(super) struct Visitor {
    observer: Observer,
    address: SocketAddr,
    since: Instant,
}

impl Visitor {
    /// Reports a new connection.
    pub(super) fn new(observer: Observer, address: SocketAddr) -> Self {
        observer.notify(address, ClientAction::Connected);
        Self { observer, address, since: Instant::now() }
    }

    pub(super) fn speaks_no_tls(&self) {
        self.observer.notify(self.address, ClientAction::NoTls);
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        self.observer
            .notify(self.address, ClientAction::Disconnected { after: self.since.elapsed() });
    }
}

/// A request that is being served. Dropping it reports the request, however it ended.
#[derive(Debug)]
pub(super) struct RequestReport {
    observer: Observer,
    address: SocketAddr,
    method: Method,
    path: String,
    status: StatusCode,
    received: Arc<AtomicU64>,
    sent: AtomicU64,
    since: Instant,
}

impl RequestReport {
    pub(super) fn new(
        observer: Observer,
        address: SocketAddr,
        method: Method,
        path: String,
        received: Arc<AtomicU64>,
    ) -> Self {
        // The status if the client leaves before the response, as in nginx.
        let status = StatusCode::from_u16(499).unwrap_or_default();
        let (sent, since) = (AtomicU64::new(0), Instant::now());
        Self { observer, address, method, path, status, received, sent, since }
    }

    /// Sets the status of the response.
    pub(super) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Counts bytes of the response's body.
    pub(super) fn sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for RequestReport {
    fn drop(&mut self) {
        let action = ClientAction::Request {
            method: self.method.to_string(),
            path: std::mem::take(&mut self.path),
            status: self.status.as_u16(),
            received: self.received.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            after: self.since.elapsed(),
        };
        self.observer.notify(self.address, action);
    }
}
