//! Crossings: two connections whose sides want to connect to each other from the ports that the bridge sees. Each side
//! gets the other one's address, at the same time.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use haul_net::RttGauge;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::super::messages::{Cross, from_bridge};
use super::super::preamble::ConnectionId;
use super::pairing::{Crossing, Parked};
use super::rooms::ToPeer;
use super::shared::Bridge;

/// Sends each side the other one's address, and holds their connections until they have closed them, so that routers
/// retain the ports. Without a common address family, it closes them at once: both sides learn that no crossing is
/// possible.
pub(super) async fn cross(
    bridge: &Bridge,
    crossing: &Crossing,
    joiner: Parked,
    sharer: Parked,
) -> io::Result<()> {
    let seen = (joiner.from(), sharer.from());
    if seen.0.is_ipv4() != seen.1.is_ipv4() {
        return Ok(());
    }
    let ((joiner, joiner_admitted), (sharer, sharer_admitted)) =
        (joiner.into_socket()?, sharer.into_socket()?);
    joiner_admitted.mark_authenticated();
    sharer_admitted.mark_authenticated();
    let waits = waits(rtt(&joiner), rtt(&sharer));
    send(&crossing.joiner, seen.1, waits.0);
    send(&crossing.sharer, seen.0, waits.1);
    let both_ended = async { tokio::join!(ended(joiner), ended(sharer)) };
    // The time limit of waiting connections applies to these, too.
    drop(timeout(bridge.limits.claim, both_ended).await);
    Ok(())
}

/// How long each side waits after the message, which takes half of its RTT, so that both begin at the same time.
fn waits(joiner: Duration, sharer: Duration) -> (Duration, Duration) {
    let longer = joiner.max(sharer);
    ((longer - joiner) / 2, (longer - sharer) / 2)
}

/// The RTT of a connection; zero if it is not known.
fn rtt(socket: &TcpStream) -> Duration {
    let Ok((gauge, _hold)) = RttGauge::of(socket) else { return Duration::ZERO };
    gauge.sample().map_or(Duration::ZERO, |sample| sample.shortest)
}

fn send((id, side): &(ConnectionId, ToPeer), peer: SocketAddr, wait: Duration) {
    let cross = Cross {
        connection: Bytes::copy_from_slice(id),
        peer: peer.to_string(),
        wait_us: u32::try_from(wait.as_micros()).unwrap_or(u32::MAX),
    };
    // A side that reads nothing, or has left, could not connect at the same time anyway.
    drop(side.try_send(from_bridge::Body::Cross(cross)));
}

/// Waits until a connection is closed. Nothing is expected on it.
async fn ended(mut socket: TcpStream) {
    // The reason does not matter.
    drop(socket.read(&mut [0]).await);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_side_that_is_nearer_to_the_bridge_waits() {
        let ms = Duration::from_millis;
        assert_eq!(waits(ms(100), ms(40)), (ms(0), ms(30)));
        assert_eq!(waits(ms(0), ms(40)), (ms(20), ms(0)));
        assert_eq!(waits(ms(7), ms(7)), (ms(0), ms(0)));
    }
}
