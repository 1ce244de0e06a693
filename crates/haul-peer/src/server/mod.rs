//! The side that shares: it accepts lanes, and executes requests on a storage.
//!
//! ```text
//! start_workers → lane (TLS, Hello, Welcome) → session → requests → fan → Storage
//!                  ↑                              │
//!                  └────────── outbox ←───────────┘
//! ```

mod acceptor;
mod access;
mod activity;
mod fan;
mod grant;
mod greeting;
mod lane;
mod lanes;
mod limits;
mod outcomes;
mod requests;
mod served;
mod session;
mod upload;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use haul_net::{Admission, Observer, Running, Stopper, Workers, start_workers};
use haul_storage::{Error, ErrorKind, Result, Storage};
use socket2::{Domain, Socket, Type};
use tokio::net::TcpStream;

pub use self::acceptor::Acceptor;
use self::access::Access;
pub use self::activity::{Route, SessionEnd, SessionStatus};
pub use self::grant::Grant;
use self::served::Served;
pub use self::served::{ClientAction, ClientEvent, Sessions};
use crate::identity::Identity;
use crate::ticket::PeerKey;
use crate::tls;

/// Maximum number of connections at once, and of those that have not proven a secret. The listeners share these limits;
/// connections that come by an [`Acceptor`] have their own.
const CONNECTIONS: (usize, usize) = (2048, 512);

/// Connections that the kernel queues.
const BACKLOG: i32 = 1024;

/// Options of a server.
#[derive(Debug)]
pub struct PeerServerBuilder {
    storage: Arc<dyn Storage>,
    name: String,
    listen: Vec<SocketAddr>,
    /// The port on which to listen at all addresses.
    anywhere: Option<u16>,
    bridged: bool,
    grants: Vec<Grant>,
    observer: Observer<ClientAction>,
}

/// A running server. Dropping it stops it without waiting.
pub struct PeerServer {
    addresses: Vec<SocketAddr>,
    key: PeerKey,
    stopper: Stopper,
    acceptor: Option<Acceptor>,
    served: Arc<Served>,
}

impl PeerServer {
    /// A server for a storage. Without [`PeerServerBuilder::listen`] or [`PeerServerBuilder::listen_anywhere`], it
    /// listens on a free port of the loopback interface.
    pub fn builder(storage: Arc<dyn Storage>, name: impl Into<String>) -> PeerServerBuilder {
        PeerServerBuilder {
            storage,
            name: name.into(),
            listen: Vec::new(),
            anywhere: None,
            bridged: false,
            grants: Vec::new(),
            observer: Observer::default(),
        }
    }

    /// The addresses on which it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Its public key.
    pub const fn key(&self) -> &PeerKey {
        &self.key
    }

    /// Serves connections that the sharer has opened itself, to a bridge or a client; `None` without
    /// [`PeerServerBuilder::bridged`].
    pub fn acceptor(&self) -> Option<Acceptor> {
        self.acceptor.clone()
    }

    /// Its sessions, for a display.
    pub fn sessions(&self) -> Sessions {
        Sessions(Arc::downgrade(&self.served))
    }

    /// Stops the server without notifying its clients, as if it were killed: they connect again. Returns when the last
    /// lane is closed.
    pub async fn stop(self) {
        let Self { stopper, served, .. } = self;
        stopper.stop().await;
        for session in served.access.sessions() {
            served.access.forget(&session);
            served.report_end(&session);
        }
    }

    /// Ends the share: accepts no further lane, notifies the connected clients, and closes their lanes. Clients do
    /// not try to connect again. Returns when the last lane is closed: at once without clients, and in any case within
    /// two seconds.
    pub async fn end(self) {
        self.served.end();
        self.stop().await;
    }
}

impl fmt::Debug for PeerServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerServer({:?})", self.addresses)
    }
}

impl PeerServerBuilder {
    /// Adds an address to listen on.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen.push(address);
        self
    }

    /// Listens on all addresses of this machine, on the same port for IPv4 and, if the machine has it, IPv6: on `port`
    /// if it is free, and otherwise on a free one.
    #[must_use]
    pub fn listen_anywhere(mut self, port: Option<u16>) -> Self {
        self.anywhere = Some(port.unwrap_or(0));
        self
    }

    /// Also serves connections that the sharer has opened itself ([`PeerServer::acceptor`]).
    #[must_use]
    pub const fn bridged(mut self) -> Self {
        self.bridged = true;
        self
    }

    /// Adds a ticket's secret.
    #[must_use]
    pub fn grant(mut self, grant: Grant) -> Self {
        self.grants.push(grant);
        self
    }

    /// Sets a callback for events about clients. The server's threads call it, so it must not block.
    #[must_use]
    pub fn observer(mut self, callback: impl Fn(ClientEvent) + Send + Sync + 'static) -> Self {
        self.observer = Observer::new(callback);
        self
    }

    /// Starts the server, on threads of its own.
    ///
    /// # Errors
    /// If an address cannot be listened on, the identity is invalid, or a thread cannot be started.
    pub async fn bind(self, identity: &Identity) -> Result<PeerServer> {
        let key = identity.key();
        let access = Access::new(*key.as_bytes(), self.name, self.storage, self.grants)?;
        let tls = tls::server_config(identity.pkcs8(), &identity.spki())?;
        let served = Served::new(access, tls, self.observer);
        let (stopper, running) = Stopper::new();
        let mut listen = self.listen;
        if let Some(port) = self.anywhere {
            let wanted = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
            let free = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
            // This listener only tests the port, and is closed again.
            listen.push(if listen_on(wanted).is_ok() { wanted } else { free });
        } else if listen.is_empty() {
            listen.push(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        }
        let admission = Admission::new(CONNECTIONS.0, CONNECTIONS.1);
        let mut addresses = Vec::new();
        let mut listeners = Vec::new();
        for address in listen {
            let failed = |error| Error::from_io("listen", error).at(address);
            let listener = listen_on(address).map_err(failed)?;
            addresses.push(listener.local_addr().map_err(failed)?);
            listeners.push(listener);
        }
        if let Some(port) =
            addresses.last().map(SocketAddr::port).filter(|_| self.anywhere.is_some())
        {
            // A machine without IPv6 is served over IPv4 only.
            if let Ok(listener) = listen_on(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))) {
                addresses.push(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
                listeners.push(listener);
            }
        }
        for listener in listeners {
            start(&served, (listener, Arc::clone(&admission)), &running)?;
        }
        let acceptor = match self.bridged {
            true => Some(bridged(&served, &running)?),
            false => None,
        };
        Ok(PeerServer { addresses, key, stopper, acceptor, served })
    }
}

/// Listens; on an IPv6 address for IPv6 only, since IPv4 has a listener of its own.
pub(crate) fn listen_on(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Starts threads for lanes that come by an [`Acceptor`].
fn bridged(served: &Arc<Served>, running: &Running) -> Result<Acceptor> {
    let (of_lanes, of_refused) = (Arc::clone(served), Arc::clone(served));
    let serve = move |socket: TcpStream, from, admitted, running| {
        lane::serve(Arc::clone(&of_lanes), socket, from, admitted, running)
    };
    let workers = Workers::start("haul-peer", running, serve)
        .map_err(|error| Error::new(ErrorKind::Other, "start a thread").with_source(error))?;
    let turn_away = move |from| of_refused.observer.notify(from, ClientAction::TurnedAway);
    let admission = Admission::new(CONNECTIONS.0, CONNECTIONS.1);
    Ok(Acceptor::new(workers, Arc::downgrade(served), admission, turn_away))
}

/// Starts threads for lanes that connect to a listener.
fn start(
    served: &Arc<Served>,
    accepts: (std::net::TcpListener, Arc<Admission>),
    running: &Running,
) -> Result<()> {
    let (of_lanes, of_refused) = (Arc::clone(served), Arc::clone(served));
    let serve = move |socket: TcpStream, from, admitted, running| {
        lane::serve(Arc::clone(&of_lanes), socket, from, admitted, running)
    };
    let turn_away = move |_: TcpStream, from| {
        of_refused.observer.notify(from, ClientAction::TurnedAway);
    };
    start_workers("haul-peer", accepts, running, serve, turn_away)
        .map_err(|error| Error::new(ErrorKind::Other, "start a thread").with_source(error))
}
