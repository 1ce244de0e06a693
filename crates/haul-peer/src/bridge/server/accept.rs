//! Dispatches a connection to a bridge by its first byte: signalling or data.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use haul_net::{Admitted, Running};
use haul_storage::Result;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::super::channel::lost;
use super::super::preamble;
use super::action::BridgeAction;
use super::metrics::Fault;
use super::shared::Bridge;
use super::{data, signalling};
use crate::lane;

/// How long a bridge that is being stopped may take to notify its sharers.
const GOODBYE: Duration = Duration::from_secs(1);

/// Serves a connection until it ends, or the bridge stops.
pub(super) async fn serve(
    bridge: Arc<Bridge>,
    socket: TcpStream,
    from: SocketAddr,
    admitted: Admitted,
    mut running: Running,
) {
    let stopping = running.clone();
    let too_late = async {
        running.stopped().await;
        sleep(GOODBYE).await;
    };
    tokio::select! {
        outcome = dispatch(&bridge, socket, from, admitted, stopping) => {
            if let Err(error) = outcome {
                bridge.observer.notify(from, BridgeAction::Failed(error.cause()));
            }
        }
        () = too_late => {}
    }
}

async fn dispatch(
    bridge: &Arc<Bridge>,
    socket: TcpStream,
    from: SocketAddr,
    admitted: Admitted,
    mut running: Running,
) -> Result<()> {
    lane::set(&socket).map_err(|error| lost(&error))?;
    let mut first = [0];
    let peeked = timeout(bridge.limits.handshake, socket.peek(&mut first)).await;
    let peeked = peeked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let peeked = peeked.map_err(|error| lost(&error))?;
    match first[0] {
        _ if peeked == 0 => Ok(()),
        // Boxed, so that the future of a data connection is not as large as that of a handshake.
        preamble::TLS => {
            Box::pin(signalling::serve(bridge, socket, (from, admitted), running)).await
        }
        preamble::FIRST => tokio::select! {
            outcome = data::serve(bridge, socket, from, admitted) => outcome,
            () = running.stopped() => Ok(()),
        },
        _ => {
            bridge.metrics.failed(Fault::Garbage);
            Ok(())
        }
    }
}
