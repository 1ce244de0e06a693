//! What is to be told about a client: that it came, what it asked for, that it went.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::{Method, StatusCode};

/// Something about a client.
pub type ClientEvent = haul_net::ClientEvent<ClientAction>;

/// Who is told about clients.
pub(super) type Observer = haul_net::Observer<ClientAction>;

/// What happened. Names come from the client as they are: nothing is escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientAction {
    /// It has connected.
    Connected,
    /// It was sent away, because there are too many connections.
    TurnedAway,
    /// It did not speak TLS, or not in time.
    NoTls,
    /// It said a wrong name or password.
    Refused {
        /// The name.
        user: String,
    },
    /// A request was answered, or broke off.
    Request {
        /// What was asked for.
        method: String,
        /// Of what: the path as it was sent, percent-encoded.
        path: String,
        /// What was answered.
        status: u16,
        /// Bytes received after the head.
        received: u64,
        /// Bytes sent after the head.
        sent: u64,
        /// How long it took.
        after: Duration,
    },
    /// It is gone, or was cut.
    Left {
        /// How long it was connected.
        after: Duration,
    },
}

/// A client that is there. However its connection ends, that is told.
#[derive(Debug)]
pub(super) struct Visitor {
    observer: Observer,
    address: SocketAddr,
    since: Instant,
}

impl Visitor {
    /// One that has just connected.
    pub(super) fn new(observer: Observer, address: SocketAddr) -> Self {
        observer.tell(address, ClientAction::Connected);
        Self { observer, address, since: Instant::now() }
    }

    pub(super) fn speaks_no_tls(&self) {
        self.observer.tell(self.address, ClientAction::NoTls);
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        self.observer.tell(self.address, ClientAction::Left { after: self.since.elapsed() });
    }
}

/// A request that is being answered. However that ends, it is told.
#[derive(Debug)]
pub(super) struct Told {
    observer: Observer,
    address: SocketAddr,
    method: Method,
    path: String,
    status: StatusCode,
    received: Arc<AtomicU64>,
    sent: AtomicU64,
    since: Instant,
}

impl Told {
    pub(super) fn new(
        observer: Observer,
        address: SocketAddr,
        method: Method,
        path: String,
        received: Arc<AtomicU64>,
    ) -> Self {
        // A client that goes before it has an answer has this one (nginx's number for it).
        let status = StatusCode::from_u16(499).unwrap_or_default();
        let (sent, since) = (AtomicU64::new(0), Instant::now());
        Self { observer, address, method, path, status, received, sent, since }
    }

    /// The answer.
    pub(super) fn answered(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Bytes of it are on their way.
    pub(super) fn sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let action = ClientAction::Request {
            method: self.method.to_string(),
            path: std::mem::take(&mut self.path),
            status: self.status.as_u16(),
            received: self.received.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
            after: self.since.elapsed(),
        };
        self.observer.tell(self.address, action);
    }
}
