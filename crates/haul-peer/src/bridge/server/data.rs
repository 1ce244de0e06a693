//! A data connection: its preamble, then the wait for its counterpart, then bytes in both directions, or a crossing, in
//! which both sides get each other's address for a TCP simultaneous open.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use haul_net::Admitted;
use haul_storage::Result;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::super::channel::lost;
use super::super::preamble;
use super::action::BridgeAction;
use super::cross::cross;
use super::forward::{Flow, forward};
use super::metrics::{Fault, Gauge};
use super::pairing::{Arrival, Pair, Parked};
use super::shared::Bridge;

/// Serves a data connection until it ends, or waits for its counterpart, whose task takes it over.
pub(super) async fn serve(
    bridge: &Bridge,
    mut socket: TcpStream,
    from: SocketAddr,
    admitted: Admitted,
) -> Result<()> {
    let mut preamble = [0; preamble::LEN];
    let read = timeout(bridge.limits.handshake, socket.read_exact(&mut preamble)).await;
    let read = read.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    read.map_err(|error| lost(&error))?;
    let Some(id) = preamble::decode(&preamble) else {
        bridge.metrics.failed(Fault::Garbage);
        return Ok(());
    };
    let parked = Parked::new(socket, from, admitted).map_err(|error| lost(&error))?;
    match bridge.pairing.arrive(id, parked) {
        Arrival::Unclaimed => {
            sleep(bridge.limits.claim).await;
            if bridge.pairing.forget(&id) {
                bridge.metrics.failed(Fault::Unclaimed);
            }
        }
        Arrival::Waits => {}
        Arrival::Paired(expected, first, second) => match &expected.crossing {
            // The second one has just arrived.
            Some(crossing) => {
                let (joiner, sharer) = match id == crossing.sharer.0 {
                    true => (first, second),
                    false => (second, first),
                };
                cross(bridge, crossing, joiner, sharer).await.map_err(|error| lost(&error))?;
            }
            None => {
                pair(bridge, &expected, first, second, from).await.map_err(|error| lost(&error))?;
            }
        },
        Arrival::Refused => bridge.metrics.failed(Fault::Data),
    }
    Ok(())
}

async fn pair(
    bridge: &Bridge,
    expected: &Pair,
    first: Parked,
    second: Parked,
    from: SocketAddr,
) -> io::Result<()> {
    let ((first, first_admitted), (second, second_admitted)) =
        (first.into_socket()?, second.into_socket()?);
    first_admitted.mark_authenticated();
    second_admitted.mark_authenticated();
    let _counted = bridge.metrics.counted(Gauge::Pairs);
    let moved = AtomicU64::new(0);
    let flow = Flow {
        meter: expected.connected.meter(),
        total: &bridge.metrics.bytes,
        moved: &moved,
        idle: bridge.limits.idle,
    };
    let outcome = forward(&first, &second, flow).await;
    let bytes = moved.load(Ordering::Relaxed);
    bridge.observer.notify(from, BridgeAction::Forwarded { bytes });
    outcome
}
