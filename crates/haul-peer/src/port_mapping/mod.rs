//! Has the router of this machine forward a TCP port, so that peers outside can reach a sharer behind it.
//!
//! ```text
//! gateway ─┬→ pcp: PCP, or NAT-PMP ───────────────────────┬→ PortMapping: renewed at half its lease → removed
//!          └→ upnp: find ──→ map, if the router has no PCP ┘
//! ```
//!
//! Both are tried at once, but only one of them maps the port. haul sends requests only to the router's own address,
//! accepts responses only from it, and bounds them; still, any machine on the local network can pose as the router. The
//! worst that it can do is to report a wrong address: a peer that connects to that does not find the ticket's key.

mod external;
mod gateway;
mod limits;
mod pcp;
mod refusal;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod upnp;

#[cfg(feature = "fuzzing")]
pub use self::upnp::fuzzing;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;
use std::pin::pin;
use std::time::{Duration, SystemTime};

use haul_storage::Result;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use self::gateway::Route;
use self::refusal::refused;
use crate::ticket::Address;

/// A change of a mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MappingEvent {
    /// The router does not renew the mapping. haul retries every minute.
    Lost {
        /// The reason. It may contain text that the router has sent.
        cause: String,
    },
    /// The port was mapped again, with the same address.
    Restored,
    /// The mapping has another address now. Existing tickets have the old one.
    Moved {
        /// The new address.
        address: Address,
    },
}

/// A port that the router forwards to this machine, or a request for it. The mapping is removed when this is dropped;
/// [`stop`](Self::stop) waits for that.
pub struct PortMapping {
    outcome: Option<oneshot::Receiver<Result<Address>>>,
    /// The time until which [`address`](Self::address) waits.
    until: Instant,
    /// Dropped to end the task.
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl PortMapping {
    /// Starts to request a mapping from the router, for a port of a server that listens on these addresses: by PCP,
    /// NAT-PMP and UPnP. `observer` gets later changes of the mapping.
    ///
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If there is no router, or the server does not listen towards it by IPv4.
    pub fn start(
        listening: &[SocketAddr],
        observer: impl Fn(MappingEvent) + Send + Sync + 'static,
    ) -> Result<Self> {
        let port = port(listening, Route::current()?.own)
            .ok_or_else(|| refused("the server listens on no address that the router can reach"))?;
        Ok(Self::with_routes(port, Box::new(Route::current), Box::new(observer)))
    }

    fn with_routes(port: NonZeroU16, routes: Routes, observer: Observer) -> Self {
        let (found, outcome) = oneshot::channel();
        let (stop, stopped) = oneshot::channel();
        let keeper = Keeper { port, routes, observer };
        let task = tokio::spawn(keeper.run(found, stopped));
        let until = Instant::now() + limits::PATIENCE;
        Self { outcome: Some(outcome), until, stop, task }
    }

    /// The address at which the router forwards connections, for the ticket. Waits until a second after the start, at
    /// most. A mapping that is granted later is removed at once.
    ///
    /// # Errors
    /// Why there is no mapping: the router does not respond or refuses it, or is itself behind another router. The
    /// cause may contain text that the router has sent. A second call fails, too.
    pub async fn address(&mut self) -> Result<Address> {
        let Some(outcome) = self.outcome.take() else {
            return Err(refused("the address was already returned"));
        };
        match timeout_at(self.until, outcome).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(refused("it was stopped")),
            Err(_) => Err(refused("the router takes too long to respond")),
        }
    }

    /// Removes the mapping. Waits until the router has confirmed that, for at most a second.
    pub async fn stop(self) {
        let Self { outcome, stop, task, .. } = self;
        drop((outcome, stop));
        // If the router does not respond, the mapping ends with its lease.
        drop(timeout(limits::REMOVED, task).await);
    }
}

impl fmt::Debug for PortMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PortMapping")
    }
}

/// The port at which the server can be reached at `own`, this machine's address towards the router.
fn port(listening: &[SocketAddr], own: Ipv4Addr) -> Option<NonZeroU16> {
    let is_towards_router = |address: &&SocketAddr| {
        let ip = address.ip();
        ip == Ipv4Addr::UNSPECIFIED || ip == own
    };
    listening.iter().find(is_towards_router).and_then(|address| NonZeroU16::new(address.port()))
}

/// Returns the current route to the router.
type Routes = Box<dyn Fn() -> Result<Route> + Send + Sync>;

type Observer = Box<dyn Fn(MappingEvent) + Send + Sync>;

/// The task that holds a mapping.
struct Keeper {
    port: NonZeroU16,
    routes: Routes,
    observer: Observer,
}

impl Keeper {
    /// Requests a mapping, renews it until `stopped`, and removes it.
    async fn run(
        self,
        found: oneshot::Sender<Result<Address>>,
        mut stopped: oneshot::Receiver<()>,
    ) {
        let mut mapping = match self.request().await {
            Ok(mapping) => mapping,
            Err(error) => {
                // The receiver may be gone.
                drop(found.send(Err(error)));
                return;
            }
        };
        if found.send(Ok(mapping.address())).is_ok() {
            self.keep(&mut mapping, &mut stopped).await;
        }
        // If that fails, the mapping ends with its lease.
        drop(timeout(limits::REMOVED, mapping.remove()).await);
    }

    async fn request(&self) -> Result<Mapping> {
        let request = async { request_mapping((self.routes)()?, self.port).await };
        let outcome = timeout(limits::REQUEST_LIMIT, request).await;
        outcome.unwrap_or_else(|_| Err(refused("the router takes too long to respond")))
    }

    /// Renews a mapping until `stopped`.
    async fn keep(&self, mapping: &mut Mapping, stopped: &mut oneshot::Receiver<()>) {
        let mut due = Due::after(mapping.lease() / 2);
        let mut is_lost = false;
        loop {
            let before = mapping.address();
            tokio::select! {
                _ = &mut *stopped => return,
                () = due.wait() => {}
            }
            let Some(outcome) = self.renew(mapping, stopped).await else { return };
            let is_moved = mapping.address() != before;
            match &outcome {
                Ok(()) if is_moved => {
                    (self.observer)(MappingEvent::Moved { address: mapping.address() });
                }
                Ok(()) if is_lost => (self.observer)(MappingEvent::Restored),
                Err(error) if !is_lost => {
                    (self.observer)(MappingEvent::Lost { cause: error.cause() });
                }
                Ok(()) | Err(_) => {}
            }
            is_lost = outcome.is_err();
            due = Due::after(if is_lost { limits::RETRY } else { mapping.lease() / 2 });
        }
    }

    /// Renews a mapping, or requests a new one: the machine may be in another network, or behind another router. `None`
    /// once it is `stopped`.
    async fn renew(
        &self,
        mapping: &mut Mapping,
        stopped: &mut oneshot::Receiver<()>,
    ) -> Option<Result<()>> {
        let renewed = tokio::select! {
            _ = &mut *stopped => return None,
            renewed = timeout(limits::REQUEST_LIMIT, mapping.renew()) => renewed,
        };
        if let Ok(Ok(())) = renewed {
            return Some(Ok(()));
        }
        // Not cancelled: a mapping that the router grants meanwhile has to be removed.
        let outcome = self.request().await.map(|new| *mapping = new);
        let goes_on = matches!(stopped.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        goes_on.then_some(outcome)
    }
}

/// A mapping of a router.
#[derive(Debug)]
enum Mapping {
    Pcp(pcp::Mapping),
    Upnp(upnp::Mapping),
}

/// Requests a mapping by PCP or NAT-PMP, and if that fails, by UPnP. Searches for UPnP from the start.
async fn request_mapping(route: Route, port: NonZeroU16) -> Result<Mapping> {
    let mut mapping = pin!(pcp::map(route, port));
    let mut finding = pin!(upnp::find(route));
    let mut found = None;
    let refusal = loop {
        tokio::select! {
            outcome = &mut mapping => match outcome {
                Ok(mapping) => return Ok(Mapping::Pcp(mapping)),
                Err(error) => break error,
            },
            outcome = &mut finding, if found.is_none() => found = Some(outcome),
        }
    };
    let found = match found {
        Some(found) => found,
        None => finding.await,
    };
    let mapped = match found {
        Ok(service) => service.map(port).await,
        Err(error) => Err(error),
    };
    mapped.map(Mapping::Upnp).map_err(|error| {
        refused(format!("PCP and NAT-PMP: {}; UPnP: {}", refusal.cause(), error.cause()))
    })
}

impl Mapping {
    fn address(&self) -> Address {
        match self {
            Self::Pcp(mapping) => mapping.address(),
            Self::Upnp(mapping) => mapping.address(),
        }
    }

    fn lease(&self) -> Duration {
        let granted = match self {
            Self::Pcp(mapping) => mapping.lease(),
            Self::Upnp(mapping) => mapping.lease(),
        };
        granted.clamp(limits::SHORTEST_LEASE, limits::LEASE)
    }

    async fn renew(&mut self) -> Result<()> {
        match self {
            Self::Pcp(mapping) => mapping.renew().await,
            Self::Upnp(mapping) => mapping.renew().await,
        }
    }

    async fn remove(self) -> Result<()> {
        match self {
            Self::Pcp(mapping) => mapping.remove().await,
            Self::Upnp(mapping) => mapping.remove().await,
        }
    }
}

/// When something is due: by the timer or by the clock, which also advances while the machine is suspended.
struct Due {
    at: Instant,
    clock: SystemTime,
}

impl Due {
    fn after(time: Duration) -> Self {
        Self { at: Instant::now() + time, clock: SystemTime::now() + time }
    }

    async fn wait(&self) {
        loop {
            let left = self.at.saturating_duration_since(Instant::now());
            if left.is_zero() || SystemTime::now() >= self.clock {
                return;
            }
            sleep(left.min(limits::CLOCK)).await;
        }
    }
}
