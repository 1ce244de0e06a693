//! The port on which a client listens: the sharer may be able to reach the client, even if the client cannot reach the
//! sharer. The bridge sends the sharer the number of the connection to open; a connection must begin with a preamble
//! that has the hash of an expected number (`preamble`), and any other is closed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use haul_storage::{Error, Result};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::expected::{Awaited, Expected};
use super::messages::CANDIDATES_MAX;
use super::preamble::{self, ConnectionId, LEN};
use crate::lane;
use crate::server::listen_on;
use crate::ticket::Address;

/// Time limit for a preamble.
const PREAMBLE: Duration = Duration::from_secs(5);

/// Maximum connections without a preamble. Further ones are closed.
const UNKNOWN: usize = 64;

/// Pause after a failed accept, which usually means that no descriptors are left.
const PAUSE: Duration = Duration::from_millis(100);

/// A port on which a client listens, until it is dropped.
#[derive(Debug)]
pub(super) struct Listener {
    port: u16,
    expected: Expected<TcpStream>,
    tasks: Vec<JoinHandle<()>>,
}

impl Listener {
    /// Listens on a free port of all addresses: IPv4 and, if the machine has it, IPv6.
    ///
    /// # Errors
    /// If the system refuses to listen on IPv4.
    pub(super) fn start(runtime: &Handle) -> Result<Self> {
        let failed = |error| Error::from_io("listen", error);
        let first = listen_on((Ipv4Addr::UNSPECIFIED, 0).into()).map_err(failed)?;
        let port = first.local_addr().map_err(failed)?.port();
        // Without IPv6, IPv4 must suffice.
        let second = listen_on((Ipv6Addr::UNSPECIFIED, port).into()).ok();
        let expected = Expected::default();
        let unknown = Arc::new(Semaphore::new(UNKNOWN));
        let start =
            |listener| runtime.spawn(accept(listener, expected.clone(), Arc::clone(&unknown)));
        let tasks = std::iter::once(first).chain(second).map(start).collect();
        Ok(Self { port, expected, tasks })
    }

    /// Begins to wait for the connection with the number `id`.
    pub(super) fn expect(&self, id: ConnectionId) -> Awaited<TcpStream> {
        self.expected.expect(preamble::number_hash(&id))
    }

    /// Addresses of this machine at which a peer at one of `targets` may reach it: those from which this machine would
    /// connect to them. Sends nothing.
    pub(super) fn candidates(&self, targets: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
        let mut found: Vec<SocketAddr> = Vec::new();
        for source in targets.filter_map(source) {
            let address = Address::new((source, self.port).into());
            if let Ok(address) = address.map(Address::socket)
                && !found.contains(&address)
            {
                found.push(address);
            }
        }
        found.truncate(CANDIDATES_MAX);
        found
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The address from which this machine would connect to another one; `None` without a route.
fn source(target: SocketAddr) -> Option<IpAddr> {
    let any = match target {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(target).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

async fn accept(
    listener: std::net::TcpListener,
    expected: Expected<TcpStream>,
    unknown: Arc<Semaphore>,
) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&unknown).try_acquire_owned() else { continue };
        let expected = expected.clone();
        tokio::spawn(async move {
            if let Ok(Some((hash, stream))) = timeout(PREAMBLE, identified(stream)).await {
                expected.fulfil(&hash, stream);
            }
            drop(permit);
        });
    }
}

/// The hash with which a connection begins, and the connection.
async fn identified(mut stream: TcpStream) -> Option<([u8; 32], TcpStream)> {
    lane::set(&stream).ok()?;
    let mut preamble = [0; LEN];
    stream.read_exact(&mut preamble).await.ok()?;
    Some((preamble::decode_reverse(&preamble)?, stream))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn only_the_expected_connection_is_accepted() {
        let listener = Listener::start(&Handle::current()).unwrap();
        let here: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let candidates = listener.candidates([here, here].into_iter());
        assert_eq!(candidates, [SocketAddr::from((Ipv4Addr::LOCALHOST, listener.port))]);
        let mut awaited = listener.expect([1; 32]);
        let connect = async |bytes: &[u8]| {
            let mut stream = TcpStream::connect(candidates[0]).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            stream
        };
        let hash = preamble::number_hash(&[1; 32]);
        let others = [
            preamble::encode_reverse(&preamble::number_hash(&[2; 32])),
            preamble::encode_reverse(&[1; 32]),
            preamble::encode(&hash),
            [b'G'; LEN],
        ];
        for bytes in others {
            let mut stream = connect(&bytes).await;
            assert!(matches!(stream.read(&mut [0]).await, Ok(0) | Err(_)));
        }
        let mut near = connect(&preamble::encode_reverse(&hash)).await;
        let mut far = awaited.arrival().await;
        near.write_all(b"x").await.unwrap();
        assert_eq!(far.read_u8().await.unwrap(), b'x');
        drop(listener);
        // The port is closed soon afterwards.
        while TcpStream::connect(candidates[0]).await.is_ok() {
            sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn connections_without_a_preamble_are_limited() {
        let listener = Listener::start(&Handle::current()).unwrap();
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, listener.port));
        let mut silent = Vec::new();
        for _ in 0..UNKNOWN {
            silent.push(TcpStream::connect(at).await.unwrap());
        }
        let mut late = TcpStream::connect(at).await.unwrap();
        assert!(matches!(late.read(&mut [0]).await, Ok(0) | Err(_)));
        drop(silent);
    }
}
