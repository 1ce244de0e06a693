//! The bridge itself: sharers register rooms, clients join them, and their data connections are joined.
//!
//! ```text
//! start_workers → accept → signalling (TLS) → rooms
//!                    │             │ announces
//!                    │             ↓
//!                    └──→ data → pairing
//!                                   ├→ forward (pipe and splice)
//!                                   └→ cross (simultaneous open)
//! ```

mod accept;
mod account;
mod action;
mod carrier;
mod cross;
mod data;
mod forward;
mod limits;
mod metrics;
mod pairing;
mod rooms;
mod shared;
mod signalling;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use haul_net::{Admission, Observer, Running, Secret, Stopper, start_workers};
use haul_storage::{Error, ErrorKind, Result};
use tokio::net::TcpStream;

use self::account::Accounts;
pub use self::action::{BridgeAction, BridgeEvent};
pub use self::limits::BridgeLimits;
use self::limits::JoinRate;
use self::metrics::{Fault, Metrics};
use self::pairing::Pairing;
use self::rooms::Rooms;
use self::shared::Bridge;
use super::room::TokenKey;
use crate::identity::Identity;
use crate::server::listen_on;
use crate::ticket::PeerKey;
use crate::tls;

/// Default limit of registered sharers.
const SESSIONS: usize = 4096;

/// Options of a bridge.
#[derive(Debug)]
pub struct BridgeServerBuilder {
    listen: Vec<SocketAddr>,
    anywhere: Option<u16>,
    token: Option<Secret>,
    open: bool,
    max_sessions: usize,
    max_rate: Option<u64>,
    quota: Option<u64>,
    metrics: Option<SocketAddr>,
    limits: BridgeLimits,
    observer: Observer<BridgeAction>,
}

/// A running bridge. Dropping it stops it without waiting.
pub struct BridgeServer {
    addresses: Vec<SocketAddr>,
    metrics: Option<SocketAddr>,
    key: PeerKey,
    stopper: Stopper,
}

impl BridgeServer {
    /// Without [`BridgeServerBuilder::listen`] and [`BridgeServerBuilder::listen_anywhere`], the bridge listens on a
    /// free port of the loopback interface.
    pub fn builder() -> BridgeServerBuilder {
        BridgeServerBuilder {
            listen: Vec::new(),
            anywhere: None,
            token: None,
            open: false,
            max_sessions: SESSIONS,
            max_rate: None,
            quota: None,
            metrics: None,
            limits: BridgeLimits::default(),
            observer: Observer::default(),
        }
    }

    /// The addresses on which it listens.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The address of its metrics, if there is one.
    pub const fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Its public key.
    pub const fn key(&self) -> &PeerKey {
        &self.key
    }

    /// Stops the bridge, and returns when the last connection is closed.
    pub async fn stop(self) {
        self.stopper.stop().await;
    }
}

impl fmt::Debug for BridgeServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BridgeServer({:?})", self.addresses)
    }
}

impl BridgeServerBuilder {
    /// Adds an address to listen on. An IPv6 address accepts IPv6 only.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen.push(address);
        self
    }

    /// Listens on this port of all addresses of this machine: IPv4 and, if the machine has it, IPv6.
    #[must_use]
    pub const fn listen_anywhere(mut self, port: u16) -> Self {
        self.anywhere = Some(port);
        self
    }

    /// Requires this token from sharers. Clients need none: they have a ticket.
    #[must_use]
    pub fn token(mut self, token: Option<Secret>) -> Self {
        self.token = token;
        self
    }

    /// Whether sharers without a token are admitted. It has no effect with [`BridgeServerBuilder::token`].
    #[must_use]
    pub const fn open(mut self, open: bool) -> Self {
        self.open = open;
        self
    }

    /// Limits the sharers that are registered at once.
    #[must_use]
    pub const fn max_sessions(mut self, most: usize) -> Self {
        self.max_sessions = most;
        self
    }

    /// Limits what is forwarded for a sharer, both directions together, in bytes per second.
    #[must_use]
    pub const fn max_rate(mut self, bytes_per_second: Option<u64>) -> Self {
        self.max_rate = bytes_per_second;
        self
    }

    /// Limits what is forwarded for the sharers of an address in a day (UTC), in bytes.
    #[must_use]
    pub const fn quota(mut self, bytes: Option<u64>) -> Self {
        self.quota = bytes;
        self
    }

    /// Serves metrics for Prometheus over HTTP at this address, without encryption or login.
    #[must_use]
    pub const fn metrics(mut self, address: Option<SocketAddr>) -> Self {
        self.metrics = address;
        self
    }

    /// Sets other limits.
    #[must_use]
    pub const fn limits(mut self, limits: BridgeLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets a callback for events about clients. The bridge's threads call it, so it must not block.
    #[must_use]
    pub fn observer(mut self, callback: impl Fn(BridgeEvent) + Send + Sync + 'static) -> Self {
        self.observer = Observer::new(callback);
        self
    }

    /// Starts the bridge, on threads of its own.
    ///
    /// # Errors
    /// If it has no token and is not open, or an address cannot be listened on.
    pub async fn bind(mut self, identity: &Identity) -> Result<BridgeServer> {
        if self.token.is_none() && !self.open {
            return Err(Error::new(ErrorKind::InvalidInput, "start the bridge")
                .because("it has no token, and is not open to everyone"));
        }
        if let Some(port) = self.anywhere {
            self.listen.push(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)));
        } else if self.listen.is_empty() {
            self.listen.push(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        }
        let token = self.token.as_ref().map(|token| TokenKey::new(token.expose())).transpose()?;
        let metrics = Arc::<Metrics>::default();
        let admission = Admission::new(self.limits.connections, self.limits.unpaired);
        let bridge = Arc::new(Bridge {
            tls: tls::bridge_server_config(identity.pkcs8(), &identity.spki())?,
            token,
            rooms: Arc::new(Rooms::new(self.max_sessions)),
            pairing: Arc::new(Pairing::new(&self.limits)),
            joins: JoinRate::new(self.limits.joins_per_minute),
            codes: JoinRate::new(self.limits.codes_per_minute),
            accounts: Accounts::new(self.quota, self.max_rate),
            metrics: Arc::clone(&metrics),
            observer: self.observer,
            limits: self.limits,
        });
        let (stopper, running) = Stopper::new();
        let mut addresses = Vec::new();
        let mut listeners = Vec::new();
        for address in self.listen {
            let (listener, address) = listen(address)?;
            listeners.push(listener);
            addresses.push(address);
        }
        let port = addresses.last().map(SocketAddr::port).filter(|_| self.anywhere.is_some());
        // Without IPv6, IPv4 must suffice.
        if let Some(port) = port
            && let Ok((listener, address)) = listen((Ipv6Addr::UNSPECIFIED, port).into())
        {
            listeners.push(listener);
            addresses.push(address);
        }
        let mut metrics_address = None;
        if let Some(address) = self.metrics {
            let (listener, address) = listen(address)?;
            metrics::serve(listener, metrics, running.clone()).map_err(no_thread)?;
            metrics_address = Some(address);
        }
        for listener in listeners {
            start(&bridge, (listener, Arc::clone(&admission)), &running)?;
        }
        Ok(BridgeServer { addresses, metrics: metrics_address, key: identity.key(), stopper })
    }
}

/// A listener, and its address.
fn listen(address: SocketAddr) -> Result<(std::net::TcpListener, SocketAddr)> {
    let failed = |error| Error::from_io("listen", error).at(address);
    let listener = listen_on(address).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

fn start(
    bridge: &Arc<Bridge>,
    accepts: (std::net::TcpListener, Arc<Admission>),
    running: &Running,
) -> Result<()> {
    let (of_connections, of_refused) = (Arc::clone(bridge), Arc::clone(bridge));
    let serve = move |socket: TcpStream, from, admitted, running| {
        accept::serve(Arc::clone(&of_connections), socket, from, admitted, running)
    };
    let turn_away = move |_: TcpStream, from| {
        of_refused.metrics.failed(Fault::Connections);
        of_refused.observer.notify(from, BridgeAction::TurnedAway);
    };
    start_workers("haul-bridge", accepts, running, serve, turn_away).map_err(no_thread)
}

fn no_thread(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Other, "start a thread").with_source(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_bridge_needs_a_token_unless_it_is_open() {
        let identity = Identity::ephemeral().unwrap();
        let error = BridgeServer::builder().bind(&identity).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let token = Some(Secret::new("token"));
        let bridge = BridgeServer::builder().token(token).bind(&identity).await.unwrap();
        assert_eq!(bridge.key(), &identity.key());
        bridge.stop().await;
        let bridge = BridgeServer::builder().open(true).bind(&identity).await.unwrap();
        assert!(bridge.addresses()[0].ip().is_loopback());
    }
}
