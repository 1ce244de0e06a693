//! Connects to a peer: tries all its addresses and its bridge at once, and addresses on the local network as they are
//! found. The first connection whose other end has the ticket's key is used; a direct one is preferred to the bridge.
//! A dial waits for the search only if all other attempts have failed. If the bridge connects first, [`Reach::seek`]
//! starts to look for a path without it.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use haul_net::{DialOptions, dial};
use haul_storage::{Error, ErrorKind, PathKind, Result, Retry};
use tokio::time::{Instant, sleep_until, timeout};

use super::reach::{Dialled, HANDSHAKE, Path, Reach, Reached, lock};
use super::seek::Traversal;
use crate::bridge::{Connection, Joiner};
use crate::lan::{Finder, Finds};
use crate::{lane, tls};

/// How long a connection through the bridge waits for a direct one to succeed.
const HEAD_START: Duration = Duration::from_millis(250);

/// While lanes use the bridge, addresses that did not connect in time are not tried again for this long.
const UNREACHED: Duration = Duration::from_secs(60);

/// A traversal is abandoned after this many failed lanes in a row; an address after the first.
const MISSED: u32 = 3;

/// The address (`None` for the bridge), and the outcome.
type Attempt = (Option<SocketAddr>, Result<Dialled>);

/// How a lane is dialled.
enum Plan<'a> {
    /// By all of these candidates at once.
    All(Candidates<'a>),
    /// By the same traversal as the last lane; if that fails, through the bridge.
    Traversal(Traversal, &'a Joiner),
}

/// What to try at once.
struct Candidates<'a> {
    direct: Vec<SocketAddr>,
    joiner: Option<&'a Joiner>,
    /// Further addresses, on the local network.
    finds: Option<Finds>,
}

impl Reach {
    /// Connects to the peer.
    pub(super) async fn dial(
        self: &Arc<Self>,
        on_rtt: &(impl Fn(Duration) + Sync),
    ) -> Result<Dialled> {
        match self.plan() {
            Plan::All(candidates) => self.dial_all(candidates, on_rtt).await,
            Plan::Traversal(traversal, joiner) => {
                match Box::pin(self.dial_by(traversal, joiner)).await {
                    Ok(dialled) => {
                        lock(&self.paths.reached).missed = 0;
                        on_rtt(dialled.rtt);
                        Ok(dialled)
                    }
                    Err(error) => {
                        self.missed(traversal, &error);
                        match Box::pin(self.dial_bridge(joiner, on_rtt)).await {
                            Ok(bridged) => Ok(self.reached(bridged)),
                            Err(other) => {
                                *lock(&self.paths.reached) = Reached::default();
                                Err(all_failed(vec![error, other]))
                            }
                        }
                    }
                }
            }
        }
    }

    /// Counts a lane that could not be opened by the traversal of those before it. After [`MISSED`] in a row, the path
    /// counts as lost.
    fn missed(&self, traversal: Traversal, error: &Error) {
        self.events.failed(traversal.kind(), error);
        let mut reached = lock(&self.paths.reached);
        reached.missed += 1;
        if reached.missed >= MISSED {
            // As if all addresses had failed just now.
            *reached = Reached { failed: Some(Instant::now()), ..Reached::default() };
        }
    }

    async fn dial_all(
        self: &Arc<Self>,
        candidates: Candidates<'_>,
        on_rtt: &(impl Fn(Duration) + Sync),
    ) -> Result<Dialled> {
        let Candidates { direct, joiner, mut finds } = candidates;
        let mut left = direct.clone();
        // Without direct attempts, no seek starts: one was started when they last failed, or a traversal has just been
        // abandoned, or the ticket has no addresses.
        let seeks = !direct.is_empty();
        let at = |address| {
            let attempt = self.dial_one(address, on_rtt);
            attempt.map(move |outcome| (Some(address), outcome)).boxed()
        };
        let mut attempts: FuturesUnordered<BoxFuture<'_, Attempt>> =
            direct.into_iter().map(at).collect();
        if let Some(joiner) = joiner {
            attempts.push(self.dial_bridge(joiner, on_rtt).map(|outcome| (None, outcome)).boxed());
        }
        let mut bridged: Option<(Dialled, Instant)> = None;
        let mut failures = Vec::new();
        loop {
            if left.is_empty()
                && let Some((bridged, _)) = bridged.take()
            {
                return Ok(self.reached(bridged));
            }
            if attempts.is_empty() && finds.is_none() {
                break;
            }
            let late = bridged.as_ref().map(|(_, until)| *until);
            let too_late = async {
                match late {
                    Some(until) => sleep_until(until).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(attempt) = attempts.next(), if !attempts.is_empty() => match attempt {
                    (Some(_), Ok(direct)) => return Ok(self.reached(direct)),
                    (None, Ok(connected)) => {
                        bridged = Some((connected, Instant::now() + HEAD_START));
                        if seeks {
                            self.seek();
                        }
                    }
                    (address, Err(error)) => {
                        left.retain(|one| Some(*one) != address);
                        let kind = address.map_or(PathKind::Bridge, |_| PathKind::Direct);
                        self.events.failed(kind, &error);
                        failures.push(error);
                    }
                },
                address = next_of(&mut finds), if finds.is_some() => match address {
                    Some(address) if self.is_to_be_tried(address) => {
                        left.push(address);
                        attempts.push(at(address));
                    }
                    Some(_) => {}
                    None => finds = None,
                },
                () = self.paths.found.arrived.notified() => {
                    if let Some(found) = self.paths.found.take() {
                        on_rtt(found.rtt);
                        return Ok(found);
                    }
                }
                () = too_late => {
                    for address in left.drain(..) {
                        self.events.failed(PathKind::Direct, &too_slow(address));
                    }
                }
            }
        }
        // The peer may have another address by now.
        *lock(&self.paths.reached) = Reached::default();
        Err(all_failed(failures))
    }

    /// How to dial the next lane.
    fn plan(&self) -> Plan<'_> {
        let mut guard = lock(&self.paths.reached);
        let reached = &mut *guard;
        let is_unreached = reached.failed.is_some_and(|at| at.elapsed() < UNREACHED);
        let joiner = self.joiner.as_ref();
        Plan::All(match (&reached.path, joiner) {
            (Some(Path::Direct(address)), _) => {
                Candidates { direct: vec![*address], joiner: None, finds: None }
            }
            (Some(Path::Reverse(_)), Some(joiner)) => {
                return Plan::Traversal(Traversal::Reverse, joiner);
            }
            (Some(Path::SimultaneousOpen(_)), Some(joiner)) => {
                return Plan::Traversal(Traversal::SimultaneousOpen, joiner);
            }
            (Some(Path::Bridge(_)), _) if is_unreached => {
                // Addresses that were found too late for the last lane.
                let finds = self.finder.as_ref().and_then(Finder::last);
                Candidates { direct: Vec::new(), joiner, finds }
            }
            _ => {
                reached.tried.clear();
                let finds = self.finder.as_ref().map(Finder::search);
                Candidates { direct: self.addresses.clone(), joiner, finds }
            }
        })
    }

    /// Whether to try an address that the search has found. Those of the ticket are tried anyway. While lanes use the
    /// bridge, each address is tried only once, since a lane waits for the attempt.
    fn is_to_be_tried(&self, address: SocketAddr) -> bool {
        if self.addresses.contains(&address) {
            return false;
        }
        let mut reached = lock(&self.paths.reached);
        let is_new = !reached.tried.contains(&address);
        if is_new {
            reached.tried.push(address);
        }
        is_new || !matches!(reached.path, Some(Path::Bridge(_)))
    }

    /// Records the path of a lane, unless that is the bridge and a better path was found meanwhile.
    fn reached(&self, dialled: Dialled) -> Dialled {
        let mut reached = lock(&self.paths.reached);
        let known = reached.path.as_ref();
        let is_new = known != Some(&dialled.path);
        if dialled.path.is_bridge() {
            if known.is_some_and(|path| !path.is_bridge()) {
                return dialled;
            }
            if reached.failed.is_none_or(|at| at.elapsed() >= UNREACHED) {
                reached.failed = Some(Instant::now());
            }
        }
        reached.path = Some(dialled.path.clone());
        drop(reached);
        if !dialled.path.is_bridge() {
            self.end_search();
        }
        if is_new {
            self.events.path(&dialled.path);
        }
        dialled
    }

    async fn dial_one(
        &self,
        address: SocketAddr,
        on_rtt: &(impl Fn(Duration) + Sync),
    ) -> Result<Dialled> {
        let options = DialOptions {
            limit: Some(HANDSHAKE),
            silence: Some(lane::STALLED),
            ..DialOptions::default()
        };
        let dialled = dial(&address.ip().to_string(), address.port(), &options).await?;
        on_rtt(dialled.rtt);
        lane::set(&dialled.stream).map_err(|error| lane::lost(&error))?;
        lane::adapt(&dialled.stream, dialled.rtt).map_err(|error| lane::lost(&error))?;
        let stream =
            tls::connect(dialled.stream, Arc::clone(&self.credentials.tls), HANDSHAKE).await;
        let stream = stream.map_err(|error| tls::explain(error, &address.to_string()))?;
        Ok(Dialled { stream, rtt: dialled.rtt, path: Path::Direct(address) })
    }

    async fn dial_bridge(
        &self,
        joiner: &Joiner,
        on_rtt: &(impl Fn(Duration) + Sync),
    ) -> Result<Dialled> {
        let name = joiner.bridge().to_string();
        let connection = timeout(HANDSHAKE, joiner.connect()).await.unwrap_or_else(|_| {
            let error = Error::new(ErrorKind::Unreachable, "connect to the bridge");
            Err(error.because("it does not respond").with_retry(Retry::Later))
        })?;
        let Connection { stream, rtt, outcome } = connection;
        // The sharer may be as far from the bridge as this machine.
        on_rtt(2 * rtt);
        lane::adapt(&stream, rtt).map_err(|error| lane::lost(&error))?;
        let handshake = tls::connect(stream, Arc::clone(&self.credentials.tls), HANDSHAKE);
        tokio::select! {
            stream = handshake => {
                let stream = stream.map_err(|error| tls::explain(error, &name))?;
                Ok(Dialled { stream, rtt, path: Path::Bridge(name) })
            }
            error = outcome.refused() => Err(error),
        }
    }
}

/// The next address that is found; `None` once the search is over.
async fn next_of(finds: &mut Option<Finds>) -> Option<SocketAddr> {
    match finds {
        Some(finds) => finds.next().await,
        None => None,
    }
}

/// The error of an address that did not connect within [`HEAD_START`] after the bridge.
fn too_slow(address: SocketAddr) -> Error {
    let error = Error::new(ErrorKind::Unreachable, "connect").at(address);
    let limit = HEAD_START.as_millis();
    error.because(format!("no connection within {limit} ms of the one through the bridge"))
}

/// One error for all candidates: only if no retry helps for any of them, none helps at all.
fn all_failed(failures: Vec<Error>) -> Error {
    let mut failures = failures;
    if failures.len() == 1
        && let Some(only) = failures.pop()
    {
        return only;
    }
    let all: Vec<String> = failures.iter().map(ToString::to_string).collect();
    let retry = match failures.iter().all(|error| error.retry() == Retry::Never) {
        true => Retry::Never,
        false => Retry::Later,
    };
    let error = Error::new(ErrorKind::Unreachable, "connect to the peer").with_retry(retry);
    match all.is_empty() {
        true => error.because("the ticket has no address"),
        false => error.because(all.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::net::{TcpListener, TcpSocket};
    use tokio::runtime::Handle;
    use tokio::time::sleep;

    use super::super::reach::{PeerOptions, ReachEvent};
    use super::super::testing::World;
    use super::*;
    use crate::identity::Identity;
    use crate::ticket::{Address, Secret, Ticket};

    /// A peer with these addresses in its ticket.
    fn reach(addresses: &[SocketAddr], finder: Option<Finder>) -> Arc<Reach> {
        let identity = Identity::ephemeral().unwrap();
        let ticket = Ticket::new(identity.key(), Secret::generate().unwrap());
        let ticket =
            ticket.with_addresses(addresses.iter().map(|address| Address::new(*address).unwrap()));
        let options = PeerOptions::default();
        let reach = Reach::of_ticket(&ticket, &identity, options, Handle::current());
        Arc::new(Reach { finder, ..reach.unwrap() })
    }

    /// An address at which nothing listens. It stays bound, so that no other test listens there.
    fn closed() -> SocketAddr {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        std::mem::forget(socket);
        address
    }

    #[tokio::test]
    async fn an_address_on_the_local_network_is_dialled_beside_those_of_the_ticket() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let found = listener.local_addr().unwrap();
        let reach = reach(&[closed()], Some(Finder::found(&[found], false)));
        let dialling = tokio::spawn(async move { reach.dial(&|_| {}).await.map(drop) });
        let accepted = timeout(Duration::from_secs(60), listener.accept()).await;
        assert!(accepted.unwrap().is_ok());
        dialling.abort();
    }

    #[tokio::test]
    async fn a_dial_fails_once_the_search_is_over() {
        let waiting = reach(&[closed()], Some(Finder::found(&[], false)));
        let outcome = timeout(Duration::from_millis(100), waiting.dial(&|_| {})).await;
        assert!(outcome.is_err(), "it does not wait for the search");
        for finder in [None, Some(Finder::found(&[closed()], true))] {
            let failing = reach(&[closed()], finder);
            let outcome = timeout(Duration::from_secs(60), failing.dial(&|_| {})).await;
            assert!(outcome.unwrap().is_err());
        }
    }

    #[tokio::test]
    async fn an_address_that_was_found_is_reported_if_it_fails() {
        let reach = reach(&[closed()], Some(Finder::found(&[closed()], false)));
        let causes = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&causes);
        reach.events.on_event(move |event| {
            if let ReachEvent::Failed { kind: PathKind::Direct, cause } = event {
                lock(&seen).push(cause);
            }
        });
        let dialling = tokio::spawn(async move { reach.dial(&|_| {}).await.map(drop) });
        let both_failed = async {
            while lock(&causes).len() < 2 {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(60), both_failed).await.unwrap();
        dialling.abort();
    }

    /// Otherwise, each lane through the bridge would wait for an address that another machine has announced.
    #[tokio::test]
    async fn while_the_bridge_is_used_an_address_is_tried_once() {
        let (found, of_ticket) = (closed(), closed());
        let reach = reach(&[of_ticket], Some(Finder::found(&[found], true)));
        assert!(reach.is_to_be_tried(found) && reach.is_to_be_tried(found));
        assert!(!reach.is_to_be_tried(of_ticket));
        *lock(&reach.paths.reached) = Reached {
            path: Some(Path::Bridge("bridge".to_owned())),
            failed: Some(Instant::now()),
            ..Reached::default()
        };
        let Plan::All(candidates) = reach.plan() else { panic!() };
        assert!(candidates.direct.is_empty() && candidates.finds.is_some());
        assert!(reach.is_to_be_tried(found) && !reach.is_to_be_tried(found));
    }

    /// A simultaneous open fails occasionally.
    #[tokio::test]
    async fn a_traversal_is_abandoned_after_several_failed_lanes_in_a_row() {
        let World { host, .. } = World::new().await;
        let reach = &host.reach;
        let path = Path::SimultaneousOpen("192.0.2.1:7".parse().unwrap());
        lock(&reach.paths.reached).path = Some(path.clone());
        let error = Error::new(ErrorKind::Unreachable, "connect");
        for _ in 1..MISSED {
            reach.missed(Traversal::SimultaneousOpen, &error);
        }
        assert_eq!(host.reached(), Some(path));
        reach.missed(Traversal::SimultaneousOpen, &error);
        assert_eq!(host.reached(), None);
        // As if all addresses had failed.
        assert!(lock(&reach.paths.reached).failed.is_some());
    }
}
