//! Simultaneous TCP open: both sides connect to each other at the same time, each from the port that the bridge has
//! seen. A router that maps a port to the same one for every destination then lets the other side's SYN in, as the
//! response to this side's.
//!
//! ```text
//! Port::open: from a free port to the bridge, with the preamble of a data connection
//!      ↓ Cross: the address and port at which the bridge sees the other side
//! Port::cross: from the same port to that address, repeatedly for a few seconds
//! ```

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use haul_storage::{Error, ErrorKind, Result, Retry, io_cause};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::messages::Cross;
use super::preamble::ConnectionId;
use super::signal::introduce;
use crate::lane;
use crate::lock::lock;

/// Time limit for reaching the bridge.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest time that a side waits before it begins.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// How long and how many times to try: a router may refuse the other side's SYN until this side has sent one.
const LIMIT: Duration = Duration::from_secs(6);
const ATTEMPTS: usize = 2000;

/// The shortest time between two attempts of an endpoint, over all its ports.
const BETWEEN: Duration = Duration::from_millis(1);

/// Timeout of an attempt without a response. The system repeats the SYN after 1 s.
const ATTEMPT: Duration = Duration::from_millis(2500);

/// Longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// How long to wait before a crossing.
pub(super) fn wait(cross: &Cross) -> Duration {
    Duration::from_micros(cross.wait_us.into())
}

/// A local port, with the connection to the bridge from it.
#[derive(Debug)]
pub(super) struct Port {
    bridge: TcpStream,
    local: SocketAddr,
}

impl Port {
    /// Connects to the bridge from a free port.
    pub(super) async fn open(bridge: SocketAddr, id: &ConnectionId) -> Result<Self> {
        let any = match bridge {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let connecting = async {
            let stream = socket(any)?.connect(bridge).await?;
            lane::set(&stream)?;
            let local = stream.local_addr()?;
            Ok::<_, io::Error>((stream, local))
        };
        let connected = timeout(PATIENCE, connecting).await;
        let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let (mut stream, local) = connected.map_err(|error| failed(&error).at(bridge))?;
        introduce(&mut stream, id).await?;
        Ok(Self { bridge: stream, local })
    }

    /// Waits until the bridge closes its connection.
    pub(super) async fn closed(&mut self) {
        // Nothing is expected on it.
        drop(self.bridge.read(&mut [0]).await);
    }

    /// Connects to the other side, which connects to this one.
    ///
    /// # Errors
    /// If no attempt has succeeded within 6 s, or none of 2000.
    pub(super) async fn cross(
        &self,
        peer: SocketAddr,
        wait: Duration,
        pace: &Pace,
    ) -> Result<TcpStream> {
        sleep(wait.min(LONGEST_WAIT)).await;
        let until = Instant::now() + LIMIT;
        let mut last = io::Error::from(io::ErrorKind::TimedOut);
        for _ in 0..ATTEMPTS {
            pace.turn().await;
            let start = Instant::now();
            let attempt = async { socket(self.local)?.connect(peer).await };
            match timeout_at(until.min(start + ATTEMPT), attempt).await {
                Ok(Ok(stream)) => {
                    lane::set(&stream).map_err(|error| failed(&error).at(peer))?;
                    return Ok(stream);
                }
                Ok(Err(error)) => last = error,
                Err(_) => {}
            }
            let pause = pause(start.elapsed());
            if Instant::now() + pause >= until {
                break;
            }
            sleep(pause).await;
        }
        Err(failed(&last).at(peer).with_retry(Retry::Later))
    }
}

/// The pace of the attempts of a sharer or of a client, over all its ports: a peer that refuses at once is not flooded,
/// however many ports connect to it. Two endpoints in one process do not share a pace: their attempts would never
/// coincide.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When the next attempt may begin.
    next: Mutex<Option<Instant>>,
}

impl Pace {
    async fn turn(&self) {
        let at = {
            let mut next = lock(&self.next);
            let now = Instant::now();
            let at = next.map_or(now, |next| next.max(now));
            *next = Some(at + BETWEEN);
            at
        };
        sleep_until(at).await;
    }
}

/// A socket on a port that other sockets may use, too.
fn socket(local: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if local.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    #[cfg(any(target_os = "linux", target_os = "macos", target_os = "freebsd"))]
    socket.set_reuseport(true)?;
    socket.bind(local)?;
    Ok(socket)
}

/// The pause after an attempt that took this long. A refusal comes from a router on the path, or from the other side:
/// the nearer its origin, the shorter the time in which both SYNs are in flight. The pause is random, so that the two
/// sides do not keep missing each other.
fn pause(took: Duration) -> Duration {
    let mut bytes = [0; 2];
    // Without random numbers, at least the other side's pauses vary.
    let share = aws_lc_rs::rand::fill(&mut bytes)
        .map_or(1.0, |()| f64::from(u16::from_be_bytes(bytes)) / f64::from(u16::MAX));
    (took * 4).clamp(Duration::from_millis(2), LONGEST_PAUSE).mul_f64(share)
}

fn failed(error: &io::Error) -> Error {
    Error::new(ErrorKind::Unreachable, "connect by simultaneous open").because(io_cause(error))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::super::preamble::{self, LEN};
    use super::*;

    /// A port, and the connection from it as the bridge has it.
    async fn port(bridge: &TcpListener) -> (Port, TcpStream) {
        let at = bridge.local_addr().unwrap();
        let (port, accepted) = tokio::join!(Port::open(at, &[7; 32]), bridge.accept());
        let (mut stream, from) = accepted.unwrap();
        let mut received = [0; LEN];
        stream.read_exact(&mut received).await.unwrap();
        assert_eq!(preamble::decode(&received), Some([7; 32]));
        let port = port.unwrap();
        assert_eq!(port.local, from);
        (port, stream)
    }

    /// On loopback, a SYN that finds no SYN of the other side is refused at once, so it takes some attempts.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn two_ports_connect_to_each_other() {
        let bridge = TcpListener::bind("127.0.0.1:0").await.unwrap();
        for _ in 0..20 {
            let ((one, _of_one), (two, _of_two)) = (port(&bridge).await, port(&bridge).await);
            let (at_one, at_two) = (one.local, two.local);
            let near = async move { one.cross(at_two, Duration::ZERO, &Pace::default()).await };
            let far = async move { two.cross(at_one, Duration::ZERO, &Pace::default()).await };
            let (near, far) = (tokio::spawn(near), tokio::spawn(far));
            if let (Ok(near), Ok(far)) = (near.await.unwrap(), far.await.unwrap()) {
                assert_eq!(near.peer_addr().unwrap(), at_two);
                assert_eq!(near.local_addr().unwrap(), at_one);
                assert_eq!(far.peer_addr().unwrap(), at_one);
                return;
            }
        }
        panic!("no attempt has succeeded");
    }

    /// Formerly, many ports together could send tens of thousands of SYNs per second to a peer that refuses.
    #[tokio::test]
    async fn attempts_of_all_ports_are_spread_over_time() {
        let (start, pace) = (Instant::now(), Pace::default());
        futures_util::future::join_all((0..100).map(|_| pace.turn())).await;
        assert!(start.elapsed() >= 99 * BETWEEN, "{:?}", start.elapsed());
    }

    #[tokio::test]
    async fn a_refused_attempt_is_repeated() {
        let bridge = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (one, _of_one) = port(&bridge).await;
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let peer = free.local_addr().unwrap();
        drop(free);
        let crossing =
            tokio::spawn(async move { one.cross(peer, Duration::ZERO, &Pace::default()).await });
        sleep(Duration::from_millis(50)).await;
        let late = TcpListener::bind(peer).await.unwrap();
        let (_stream, _) = timeout(LIMIT, late.accept()).await.unwrap().unwrap();
        crossing.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_port_notices_that_the_bridge_closes_its_connection() {
        let bridge = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (mut one, of_one) = port(&bridge).await;
        assert!(timeout(Duration::from_millis(20), one.closed()).await.is_err());
        drop(of_one);
        timeout(LIMIT, one.closed()).await.unwrap();
    }

    #[test]
    fn pauses_follow_the_time_of_a_refusal() {
        let ms = Duration::from_millis;
        for (took, longest) in [(ms(0), ms(2)), (ms(20), ms(80)), (ms(2500), LONGEST_PAUSE)] {
            assert!((0..64).all(|_| pause(took) <= longest));
            assert!((0..64).any(|_| pause(took) > longest / 4));
        }
    }
}
