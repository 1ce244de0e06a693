//! Ways to a peer without its bridge, while lanes run through the bridge: the peer connects to this machine, or both
//! connect to each other at once. Both are tried in the background. The connection of the first one that succeeds is left
//! to the next lane, further lanes are opened the same way, and those through the bridge are closed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use haul_net::RttGauge;
use haul_storage::Result;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::reach::{Dialled, HANDSHAKE, Path, Reach, lock};
use crate::bridge::Joiner;
use crate::{lane, tls};

/// A way to a peer without its bridge, other than to its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The peer connects to this machine.
    Reverse,
    /// Both connect to each other.
    SimultaneousOpen,
}

impl Way {
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Reverse => "reverse",
            Self::SimultaneousOpen => "simultaneous open",
        }
    }

    const fn path(self, peer: SocketAddr) -> Path {
        match self {
            Self::Reverse => Path::Reverse(peer),
            Self::SimultaneousOpen => Path::SimultaneousOpen(peer),
        }
    }
}

impl Reach {
    /// Seeks a way without the bridge in the background, unless that is in progress already. A ticket without addresses
    /// is used through the bridge only, as its sharer wants it.
    pub(super) fn seek(self: &Arc<Self>) {
        if self.joiner.is_none()
            || self.addresses.is_empty()
            || self.is_seeking.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let reach = Arc::clone(self);
        self.runtime.spawn(async move {
            reach.find().await;
            reach.is_seeking.store(false, Ordering::Release);
        });
    }

    /// Tries all ways at once, and uses the first that succeeds.
    async fn find(&self) {
        let Some(joiner) = &self.joiner else { return };
        let mut ways: FuturesUnordered<BoxFuture<'_, (Way, Result<Dialled>)>> =
            [Way::Reverse, Way::SimultaneousOpen]
                .into_iter()
                .map(|way| self.dial_way(way, joiner).map(move |outcome| (way, outcome)).boxed())
                .collect();
        while let Some((way, outcome)) = ways.next().await {
            match outcome {
                Ok(dialled) => return self.offer(dialled),
                Err(error) => self.events.failed(way.kind(), &error),
            }
        }
    }

    /// Leaves a connection to the next lane, unless a direct one was opened meanwhile.
    fn offer(&self, dialled: Dialled) {
        let mut reached = lock(&self.reached);
        if reached.path.as_ref().is_some_and(|path| !path.is_bridge()) {
            return;
        }
        reached.path = Some(dialled.path.clone());
        reached.failed = None;
        drop(reached);
        self.end_search();
        self.events.path(&dialled.path);
        self.found.put(dialled);
    }

    /// A connection by one of the ways.
    pub(super) async fn dial_way(&self, way: Way, joiner: &Joiner) -> Result<Dialled> {
        let stream = match way {
            Way::Reverse => joiner.reverse(&self.addresses).await?,
            Way::SimultaneousOpen => joiner.cross().await?,
        };
        let peer = stream.peer_addr().map_err(|error| lane::lost(&error))?;
        let start = Instant::now();
        let measured = measured(&stream);
        if let Some(rtt) = measured {
            lane::adapt(&stream, rtt).map_err(|error| lane::lost(&error))?;
        }
        let stream = tls::connect(stream, Arc::clone(&self.tls), HANDSHAKE).await;
        let stream = stream.map_err(|error| tls::explain(error, &peer.to_string()))?;
        let rtt = measured.unwrap_or_else(|| start.elapsed());
        Ok(Dialled { stream, rtt, path: way.path(peer) })
    }
}

/// The RTT of a connection that this side did not open by an ordinary connect, if the kernel knows it.
fn measured(stream: &TcpStream) -> Option<Duration> {
    let (gauge, _hold) = RttGauge::of(stream).ok()?;
    gauge.round_trips().map(|sample| sample.shortest)
}
