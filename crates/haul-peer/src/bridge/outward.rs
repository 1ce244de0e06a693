//! Connections from a sharer to a client that cannot reach it: to the addresses at which the client listens, and to
//! its port in a simultaneous open. The connections become lanes like those through the bridge, with the sharer as
//! TLS server.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use haul_storage::Result;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::candidate::DialPolicy;
use super::channel::lost;
use super::crossing::{Pace, Port, wait};
use super::expected::Expected;
use super::messages::{CANDIDATES_MAX, Cross, Incoming};
use super::preamble::{self, ConnectionId};
use crate::lane;
use crate::ticket::Address;
use crate::wire::convert::fixed;

/// Serves an open connection as a lane of the client at this address.
pub(super) type Accept = Arc<dyn Fn(TcpStream, SocketAddr) + Send + Sync>;

/// Whether to connect to clients at present. It may block.
pub(super) type IsWanted = Arc<dyn Fn() -> bool + Send + Sync>;

/// Maximum connections being opened, and maximum dialled within [`LEAST`]. Further ones are left out: the client uses
/// the bridge.
const OPENING: usize = 128;

/// How long a dialled connection counts at least. The client or the bridge chooses its target, and a connection that is
/// refused, or accepted and dropped, takes almost no time.
const LEAST: Duration = Duration::from_secs(1);

/// Time limit for reaching a client at one of its addresses.
const DIAL: Duration = Duration::from_secs(5);

/// Time limit for the bridge to bring the two ports of a crossing together.
const CROSS: Duration = Duration::from_secs(10);

/// Opens connections to clients.
#[derive(Clone)]
pub(super) struct Outward {
    accept: Accept,
    is_wanted: IsWanted,
    opening: Arc<Semaphore>,
    crosses: Expected<Cross>,
    pace: Arc<Pace>,
}

impl Outward {
    pub(super) fn new(accept: Accept, is_wanted: IsWanted) -> Self {
        let opening = Arc::new(Semaphore::new(OPENING));
        Self { accept, is_wanted, opening, crosses: Expected::default(), pace: Arc::default() }
    }

    /// Opens the connections that a client requests, if they are wanted, in the background. `bridge` is the bridge's
    /// address, `own` that of this side as the bridge sees it.
    pub(super) fn incoming(&self, incoming: &Incoming, bridge: SocketAddr, own: Option<IpAddr>) {
        let joiner = incoming.joiner_observed.parse::<SocketAddr>().ok();
        let observed = (own, joiner.map(|joiner| joiner.ip()));
        let policy = DialPolicy { bridge: bridge.ip(), observed };
        let candidates = candidates(&incoming.candidates, joiner, &policy);
        for id in ids(&incoming.reverse) {
            for candidate in &candidates {
                let Some(permit) = self.permit() else { return };
                tokio::spawn(self.clone().dial(*candidate, id, permit));
            }
        }
        for id in ids(&incoming.crossings) {
            let Some(permit) = self.permit() else { return };
            tokio::spawn(self.clone().cross(id, bridge, policy, permit));
        }
    }

    /// Passes the bridge's message for a crossing to the attempt that waits for it.
    pub(super) fn crossed(&self, cross: Cross) {
        if let Ok(id) = fixed(&cross.connection, "connection") {
            self.crosses.fulfil(&id, cross);
        }
    }

    fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.opening).try_acquire_owned().ok()
    }

    async fn is_wanted(&self) -> bool {
        let is_wanted = Arc::clone(&self.is_wanted);
        spawn_blocking(move || is_wanted()).await.unwrap_or(false)
    }

    /// Failures are not reported: only the client needs to know whether it can be reached.
    async fn dial(self, candidate: SocketAddr, id: ConnectionId, permit: OwnedSemaphorePermit) {
        let least = Instant::now() + LEAST;
        if self.is_wanted().await
            && let Ok(Ok(stream)) = timeout(DIAL, dial_back(candidate, &id)).await
        {
            (self.accept)(stream, candidate);
        }
        sleep_until(least).await;
        drop(permit);
    }

    async fn cross(
        self,
        id: ConnectionId,
        bridge: SocketAddr,
        policy: DialPolicy,
        permit: OwnedSemaphorePermit,
    ) {
        let least = Instant::now() + LEAST;
        if self.is_wanted().await {
            self.try_cross(id, bridge, policy).await;
        }
        sleep_until(least).await;
        drop(permit);
    }

    async fn try_cross(&self, id: ConnectionId, bridge: SocketAddr, policy: DialPolicy) {
        let mut awaited = self.crosses.expect(id);
        let Ok(mut port) = Port::open(bridge, &id).await else { return };
        let cross = tokio::select! {
            cross = awaited.arrival() => cross,
            () = port.closed() => return,
            () = sleep(CROSS) => return,
        };
        if let Ok(peer) = cross.peer.parse::<Address>().map(Address::socket)
            && policy.permits(peer)
            && let Ok(stream) = port.cross(peer, wait(&cross), &self.pace).await
        {
            (self.accept)(stream, peer);
        }
    }
}

/// A connection to a client that listens, with its preamble.
async fn dial_back(candidate: SocketAddr, id: &ConnectionId) -> Result<TcpStream> {
    let connecting = async {
        let mut stream = TcpStream::connect(candidate).await?;
        lane::set(&stream)?;
        stream.write_all(&preamble::encode_reverse(&preamble::number_hash(id))).await?;
        Ok::<_, std::io::Error>(stream)
    };
    connecting.await.map_err(|error| lost(&error))
}

/// The addresses to dial: those that the client has named and, since its router may forward all ports to it, the
/// address at which the bridge sees it, with the port of the first one.
fn candidates(
    named: &[String],
    joiner: Option<SocketAddr>,
    policy: &DialPolicy,
) -> Vec<SocketAddr> {
    // In the form that the policy checks: no IPv4 address within an IPv6 address, no scope.
    let named = named.iter().take(CANDIDATES_MAX).filter_map(|text| text.parse::<Address>().ok());
    let mut found: Vec<SocketAddr> = named.map(Address::socket).collect();
    if let (Some(joiner), Some(first)) = (joiner, found.first().copied()) {
        let seen = SocketAddr::new(joiner.ip(), first.port());
        if !found.contains(&seen) {
            found.push(seen);
        }
    }
    found.retain(|candidate| policy.permits(*candidate));
    found
}

fn ids(numbers: &[Bytes]) -> impl Iterator<Item = ConnectionId> {
    numbers.iter().filter_map(|id| fixed(id, "connection").ok())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::preamble::LEN;
    use super::*;

    fn policy(bridge: &str) -> DialPolicy {
        DialPolicy { bridge: bridge.parse().unwrap(), observed: (None, None) }
    }

    fn parsed(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_client_is_also_dialled_where_the_bridge_sees_it() {
        let joiner = Some("203.0.113.1:5000".parse().unwrap());
        let of = |named: &[&str]| {
            let named: Vec<String> = named.iter().map(|text| (*text).to_owned()).collect();
            candidates(&named, joiner, &policy("192.0.2.1"))
        };
        // A machine in a cloud, whose own address is a private one.
        assert_eq!(of(&["10.0.0.7:40000"]), parsed(&["203.0.113.1:40000"]));
        let known = ["203.0.113.1:40000", "[2001:db8::1]:40000"];
        assert_eq!(of(&known), parsed(&known));
        assert!(of(&[]).is_empty() && of(&["host:40000", "127.0.0.1"]).is_empty());
    }

    #[tokio::test]
    async fn a_client_that_listens_is_dialled_with_the_hash_of_its_number() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (accepted, taken) = channel();
        let accept = move |_: TcpStream, from: SocketAddr| accepted.send(from).unwrap();
        let outward = Outward::new(Arc::new(accept), Arc::new(|| true));
        let incoming = Incoming {
            candidates: vec![at.to_string(), "127.0.0.1:80".to_owned()],
            reverse: vec![Bytes::from_static(&[1; 32]), Bytes::from_static(&[2; 31])],
            ..Incoming::default()
        };
        outward.incoming(&incoming, "127.0.0.1:1".parse().unwrap(), None);
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = [0; LEN];
        stream.read_exact(&mut received).await.unwrap();
        assert_eq!(preamble::decode_reverse(&received), Some(preamble::number_hash(&[1; 32])));
        let from = spawn_blocking(move || taken.recv().unwrap()).await.unwrap();
        assert_eq!(from, at);
        // From a bridge elsewhere, services of this machine are out of reach.
        outward.incoming(&incoming, "192.0.2.1:1".parse().unwrap(), None);
        let more = timeout(Duration::from_millis(50), listener.accept()).await;
        assert!(more.is_err());
    }

    /// A bridge can name any number of addresses.
    #[tokio::test]
    async fn connections_that_are_being_opened_are_limited() {
        let outward = Outward::new(Arc::new(|_, _| {}), Arc::new(|| true));
        let incoming = Incoming {
            candidates: (0..16).map(|at| format!("127.0.0.1:{}", 1024 + at)).collect(),
            reverse: vec![Bytes::from_static(&[1; 32]); 64],
            ..Incoming::default()
        };
        outward.incoming(&incoming, "127.0.0.1:1".parse().unwrap(), None);
        assert_eq!(outward.opening.available_permits(), 0);
    }

    /// Formerly, the sharer sent the number that the client had chosen, which could be a command for a service at that
    /// address.
    #[tokio::test]
    async fn a_client_does_not_choose_the_bytes_that_are_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let outward = Outward::new(Arc::new(|_, _| {}), Arc::new(|| true));
        let command = b"\r\nFLUSHALL\r\n";
        let mut number = [b' '; 32];
        number[..command.len()].copy_from_slice(command);
        let incoming = Incoming {
            candidates: vec![listener.local_addr().unwrap().to_string()],
            reverse: vec![Bytes::copy_from_slice(&number)],
            ..Incoming::default()
        };
        outward.incoming(&incoming, "127.0.0.1:1".parse().unwrap(), None);
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = [0; LEN];
        stream.read_exact(&mut received).await.unwrap();
        assert!(!received.windows(command.len()).any(|bytes| bytes == command));
    }

    /// Formerly, a refused or accepted connection made room for another one at once.
    #[tokio::test]
    async fn a_dialled_connection_still_counts_after_it_is_dropped() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let outward = Outward::new(Arc::new(|_, _| {}), Arc::new(|| true));
        let incoming = Incoming {
            candidates: vec![listener.local_addr().unwrap().to_string()],
            reverse: vec![Bytes::from_static(&[1; 32])],
            ..Incoming::default()
        };
        outward.incoming(&incoming, "127.0.0.1:1".parse().unwrap(), None);
        let (mut stream, _) = listener.accept().await.unwrap();
        // It is dropped after the preamble, and still counts.
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await.unwrap();
        assert_eq!((received.len(), outward.opening.available_permits()), (LEN, OPENING - 1));
        let is_released = async {
            while outward.opening.available_permits() < OPENING {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(3 * LEAST, is_released).await.unwrap();
    }
}
