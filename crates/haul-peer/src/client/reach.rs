//! How to reach a peer: its addresses, its bridge, and what was learnt of them.

use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use haul_net::HostWaits;
use haul_storage::{Error, LinkPath, PathKind, Result};
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

use super::early::{Early, First};
use super::patience::Patience;
use super::session::Session;
use crate::bridge::Joiner;
use crate::identity::Identity;
use crate::lan::Finder;
use crate::ticket::{Address, Secret, Ticket};
use crate::tls;

/// Time limit to establish a TCP connection, again for the TLS handshake, and again for the Welcome.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(20);

/// Options of a [`PeerHost`](super::PeerHost).
#[derive(Debug, Clone, Default)]
pub struct PeerOptions {
    /// Whether to search for the peer on the local network, too, by multicast DNS ([`crate::lan`]): its addresses may
    /// have changed. Everyone there can see that haul searches for a share, but not which. Nothing is sent for a
    /// ticket whose addresses are all of the loopback interface, nor for one without any: such a sharer announces
    /// nothing.
    pub lan: bool,
    /// Reports long waits for the peer, and limits those for responses.
    pub waits: HostWaits,
}

/// How to reach a peer, and the session with it.
#[derive(Debug)]
pub(super) struct Reach {
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) credentials: Credentials,
    /// The path through the ticket's bridge.
    pub(super) joiner: Option<Joiner>,
    /// Finds further addresses on the local network.
    pub(super) finder: Option<Finder>,
    pub(super) paths: Paths,
    pub(super) events: Events,
    /// Held by each lane until everything has been sent on it.
    pub(super) unsent: Arc<()>,
    pub(super) prefetch: Prefetch,
    pub(super) patience: Arc<Patience>,
    pub(super) session: watch::Sender<Phase>,
    pub(super) runtime: Handle,
}

/// The keys and the secret by which both sides authenticate.
#[derive(Debug)]
pub(super) struct Credentials {
    pub(super) tls: Arc<ClientConfig>,
    pub(super) secret: Secret,
    pub(super) client_key: [u8; 32],
    pub(super) server_key: [u8; 32],
}

/// The paths to the peer: what was reached, and a better connection that was found.
#[derive(Debug, Default)]
pub(super) struct Paths {
    pub(super) reached: Mutex<Reached>,
    /// A connection that is better than one through the bridge.
    pub(super) found: Found,
    /// Whether a path without the bridge is being sought.
    pub(super) is_seeking: AtomicBool,
}

/// The location whose requests the first lane sends with its Hello, and the responses.
#[derive(Debug, Default)]
pub(super) struct Prefetch {
    pub(super) first: Mutex<Option<First>>,
    pub(super) early: tokio::sync::Mutex<Option<Early>>,
}

impl Reach {
    /// How to reach the sharer of a ticket. Does not connect or send anything yet.
    ///
    /// # Errors
    /// If the identity is unusable.
    pub(super) fn of_ticket(
        ticket: &Ticket,
        identity: &Identity,
        options: PeerOptions,
        runtime: Handle,
    ) -> Result<Self> {
        let server_key = *ticket.key.as_bytes();
        let bridge = ticket.bridge.as_ref().filter(|bridge| bridge.key.is_some());
        let joiner = bridge
            .map(|bridge| Joiner::new(bridge.clone(), ticket.secret.clone(), runtime.clone()));
        let may_be_near = |address: &Address| !address.socket().ip().is_loopback();
        let is_sought = options.lan && ticket.addresses().iter().any(may_be_near);
        Ok(Self {
            addresses: ticket.addresses().iter().map(|address| address.socket()).collect(),
            joiner: joiner.transpose()?,
            finder: is_sought.then(|| Finder::new(ticket.secret.clone(), runtime.clone())),
            credentials: Credentials {
                tls: tls::client_config(identity.pkcs8(), &identity.spki(), server_key)?,
                secret: ticket.secret.clone(),
                client_key: *identity.key().as_bytes(),
                server_key,
            },
            paths: Paths::default(),
            events: Events::default(),
            unsent: Arc::default(),
            prefetch: Prefetch::default(),
            patience: Arc::new(Patience::new(options.waits)),
            session: watch::Sender::new(Phase::None),
            runtime,
        })
    }

    /// Ends the search on the local network: the peer was reached without the bridge.
    pub(super) fn end_search(&self) {
        if let Some(finder) = &self.finder {
            finder.stop();
        }
    }
}

/// The state of the session.
#[derive(Debug, Clone)]
pub(super) enum Phase {
    /// There is none yet, or it has ended.
    None,
    /// A lane is opening it.
    Opening,
    Open(Arc<Session>),
}

/// How a lane reaches a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Path {
    /// At one of its addresses.
    Direct(SocketAddr),
    /// The peer has connected to this machine, from this address.
    Reverse(SocketAddr),
    /// Both have connected to each other at once; the peer's address.
    SimultaneousOpen(SocketAddr),
    /// Through the bridge with this address.
    Bridge(String),
}

impl Path {
    /// The kind of path.
    pub const fn kind(&self) -> PathKind {
        match self {
            Self::Direct(_) => PathKind::Direct,
            Self::Reverse(_) => PathKind::Reverse,
            Self::SimultaneousOpen(_) => PathKind::SimultaneousOpen,
            Self::Bridge(_) => PathKind::Bridge,
        }
    }

    /// The path of a lane on a connection, for the state of the link.
    pub(super) fn of_link(&self, connection: &TcpStream) -> std::io::Result<LinkPath> {
        let address = match self {
            Self::Direct(address) | Self::Reverse(address) | Self::SimultaneousOpen(address) => {
                *address
            }
            // The bridge's name may have several addresses.
            Self::Bridge(_) => connection.peer_addr()?,
        };
        Ok(LinkPath { kind: self.kind(), address })
    }

    /// The address of the peer, or of the bridge.
    pub fn address(&self) -> String {
        match self {
            Self::Direct(address) | Self::Reverse(address) | Self::SimultaneousOpen(address) => {
                address.to_string()
            }
            Self::Bridge(bridge) => bridge.clone(),
        }
    }

    pub(super) const fn is_bridge(&self) -> bool {
        matches!(self, Self::Bridge(_))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct(address) => write!(f, "{address}"),
            Self::Reverse(address) | Self::SimultaneousOpen(address) => {
                write!(f, "{address} ({})", self.kind().name())
            }
            Self::Bridge(bridge) => write!(f, "bridge {bridge}"),
        }
    }
}

/// An event about the paths to a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReachEvent {
    /// Lanes take this path: the first one, or a new one.
    Path(Path),
    /// A path has failed.
    Failed {
        /// The kind of path.
        kind: PathKind,
        /// The address and the reason.
        cause: String,
    },
}

/// What is known of the paths to a peer.
#[derive(Debug, Default)]
pub(super) struct Reached {
    /// The path that lanes take, if one is known.
    pub(super) path: Option<Path>,
    /// When the addresses last failed to respond.
    pub(super) failed: Option<Instant>,
    /// Addresses that were found on the local network, and tried since.
    pub(super) tried: Vec<SocketAddr>,
    /// How many lanes in a row could not be opened by reverse connection or simultaneous open.
    pub(super) missed: u32,
}

/// A connection that is authenticated by TLS.
pub(super) struct Dialled {
    pub(super) stream: TlsStream<TcpStream>,
    /// To the peer, or to its bridge.
    pub(super) rtt: Duration,
    pub(super) path: Path,
}

/// A connection that was found in the background, for the next lane that is opened.
#[derive(Default)]
pub(super) struct Found {
    connection: Mutex<Option<(Dialled, Instant)>>,
    /// Wakes a lane that is dialling.
    pub(super) arrived: Notify,
    /// Makes the pool open a lane.
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Found {
    /// A connection is not used after this time: a server waits 15 s for its first message.
    const LIFETIME: Duration = Duration::from_secs(5);

    /// Sets the callback that makes the pool open a lane.
    pub(super) fn on_put(&self, wake: impl Fn() + Send + Sync + 'static) {
        // It is set once.
        let _ = self.wake.set(Box::new(wake));
    }

    /// Stores a connection for the next lane.
    pub(super) fn put(&self, dialled: Dialled) {
        *lock(&self.connection) = Some((dialled, Instant::now()));
        self.arrived.notify_one();
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }

    /// Takes the connection, if there is one that is not too old.
    pub(super) fn take(&self) -> Option<Dialled> {
        let taken = lock(&self.connection).take();
        taken.filter(|(_, since)| since.elapsed() < Self::LIFETIME).map(|(dialled, _)| dialled)
    }

    /// Whether there is a connection that is not too old.
    pub(super) fn has_connection(&self) -> bool {
        let connection = lock(&self.connection);
        connection.as_ref().is_some_and(|(_, since)| since.elapsed() < Self::LIFETIME)
    }
}

impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Found({})", self.has_connection())
    }
}

/// Passes events to the callback, each failure once.
#[derive(Default)]
pub(super) struct Events {
    callback: OnceLock<Box<dyn Fn(ReachEvent) + Send + Sync>>,
    reported: Mutex<HashSet<(PathKind, String)>>,
}

impl Events {
    /// Maximum failures that are reported: twice the addresses that a ticket can have.
    const REPORTED: usize = 64;

    /// Sets the callback, once.
    pub(super) fn on_event(&self, callback: impl Fn(ReachEvent) + Send + Sync + 'static) {
        // A second callback has no effect.
        let _ = self.callback.set(Box::new(callback));
    }

    /// Reports that lanes take a path.
    pub(super) fn path(&self, path: &Path) {
        if let Some(callback) = self.callback.get() {
            callback(ReachEvent::Path(path.clone()));
        }
    }

    /// Reports that a path has failed.
    pub(super) fn failed(&self, kind: PathKind, error: &Error) {
        let Some(callback) = self.callback.get() else { return };
        let cause = error.to_string();
        let mut reported = lock(&self.reported);
        let is_new = reported.len() < Self::REPORTED && reported.insert((kind, cause.clone()));
        drop(reported);
        if is_new {
            callback(ReachEvent::Failed { kind, cause });
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use haul_storage::ErrorKind;

    use super::*;

    #[tokio::test]
    async fn the_local_network_is_searched_only_if_enabled_and_an_address_is_not_loopback() {
        let identity = Identity::ephemeral().unwrap();
        let is_sought = |addresses: &[&str], lan: bool| {
            let secret = Secret::generate().unwrap();
            let ticket = Ticket::new(identity.key(), secret);
            let ticket = ticket.with_addresses(addresses.iter().map(|text| text.parse().unwrap()));
            let options = PeerOptions { lan, ..PeerOptions::default() };
            let reach = Reach::of_ticket(&ticket, &identity, options, Handle::current());
            reach.unwrap().finder.is_some()
        };
        assert!(is_sought(&["127.0.0.1:7", "192.0.2.1:7"], true));
        assert!(!is_sought(&["192.0.2.1:7"], false));
        assert!(!is_sought(&["127.0.0.1:7", "[::1]:7"], true));
        assert!(!is_sought(&[], true));
        assert!(!PeerOptions::default().lan);
    }

    #[test]
    fn a_path_is_printed_with_its_kind_unless_it_is_direct() {
        let address: SocketAddr = "192.0.2.1:7".parse().unwrap();
        for (path, shown, kind) in [
            (Path::Direct(address), "192.0.2.1:7", "direct"),
            (Path::Reverse(address), "192.0.2.1:7 (reverse)", "reverse"),
            (
                Path::SimultaneousOpen(address),
                "192.0.2.1:7 (simultaneous open)",
                "simultaneous open",
            ),
            (Path::Bridge("bridge:7".to_owned()), "bridge bridge:7", "bridge"),
        ] {
            assert_eq!((path.to_string().as_str(), path.kind().name()), (shown, kind));
            assert!(path.address().ends_with(":7"));
        }
    }

    /// Each of many lanes tries all addresses.
    #[test]
    fn a_failure_is_reported_once() {
        let events = Events::default();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let found = Arc::clone(&seen);
        events.on_event(move |event| lock(&found).push(event));
        let error = Error::new(ErrorKind::Unreachable, "connect").at("192.0.2.1:7");
        for kind in [PathKind::Direct, PathKind::Direct, PathKind::Reverse] {
            events.failed(kind, &error);
        }
        assert_eq!(lock(&seen).len(), 2);
        for port in 0..1000 {
            let error = Error::new(ErrorKind::Unreachable, "connect").at(port);
            events.failed(PathKind::Direct, &error);
        }
        assert_eq!(lock(&seen).len(), Events::REPORTED);
    }
}
