//! Looks for a path to a peer without its bridge, while lanes run through the bridge: the peer connects to this
//! machine, or both connect to each other at once. Both are tried in the background. The first connection that succeeds
//! is handed to the next lane; further lanes are opened the same way, and those through the bridge are closed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use haul_net::RttGauge;
use haul_storage::{PathKind, Result};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::reach::{Dialled, HANDSHAKE, Path, Reach, lock};
use crate::bridge::Joiner;
use crate::{lane, tls};

/// How a peer behind NAT is reached without its bridge, other than at its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Traversal {
    /// The peer connects to this machine.
    Reverse,
    /// Both sides connect to each other at once.
    SimultaneousOpen,
}

impl Traversal {
    pub(super) const fn kind(self) -> PathKind {
        match self {
            Self::Reverse => PathKind::Reverse,
            Self::SimultaneousOpen => PathKind::SimultaneousOpen,
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
    /// Seeks a path without the bridge in the background, unless a search is in progress already. A ticket without
    /// addresses is used through the bridge only, as its sharer intended.
    pub(super) fn seek(self: &Arc<Self>) {
        if self.joiner.is_none()
            || self.addresses.is_empty()
            || self.paths.is_seeking.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let reach = Arc::clone(self);
        self.runtime.spawn(async move {
            reach.find().await;
            reach.paths.is_seeking.store(false, Ordering::Release);
        });
    }

    /// Tries all kinds of traversal at once, and uses the first that succeeds.
    async fn find(&self) {
        let Some(joiner) = &self.joiner else { return };
        let dial = |traversal| {
            let dialling = self.dial_by(traversal, joiner);
            dialling.map(move |outcome| (traversal, outcome)).boxed()
        };
        let mut attempts: FuturesUnordered<BoxFuture<'_, (Traversal, Result<Dialled>)>> =
            [Traversal::Reverse, Traversal::SimultaneousOpen].into_iter().map(dial).collect();
        while let Some((traversal, outcome)) = attempts.next().await {
            match outcome {
                Ok(dialled) => return self.offer(dialled),
                Err(error) => self.events.failed(traversal.kind(), &error),
            }
        }
    }

    /// Hands a connection to the next lane, unless one without the bridge was opened meanwhile.
    fn offer(&self, dialled: Dialled) {
        let mut reached = lock(&self.paths.reached);
        if reached.path.as_ref().is_some_and(|path| !path.is_bridge()) {
            return;
        }
        reached.path = Some(dialled.path.clone());
        reached.failed = None;
        drop(reached);
        self.end_search();
        self.events.path(&dialled.path);
        self.paths.found.put(dialled);
    }

    pub(super) async fn dial_by(&self, traversal: Traversal, joiner: &Joiner) -> Result<Dialled> {
        let stream = match traversal {
            Traversal::Reverse => joiner.reverse(&self.addresses).await?,
            Traversal::SimultaneousOpen => joiner.cross().await?,
        };
        let peer = stream.peer_addr().map_err(|error| lane::lost(&error))?;
        let start = Instant::now();
        let measured = measured(&stream);
        if let Some(rtt) = measured {
            lane::adapt(&stream, rtt).map_err(|error| lane::lost(&error))?;
        }
        let stream = tls::connect(stream, Arc::clone(&self.credentials.tls), HANDSHAKE).await;
        let stream = stream.map_err(|error| tls::explain(error, &peer.to_string()))?;
        let rtt = measured.unwrap_or_else(|| start.elapsed());
        Ok(Dialled { stream, rtt, path: traversal.path(peer) })
    }
}

/// The RTT of a connection that this side did not open by an ordinary connect, if the kernel knows it.
fn measured(stream: &TcpStream) -> Option<Duration> {
    let (gauge, _hold) = RttGauge::of(stream).ok()?;
    gauge.sample().map(|sample| sample.shortest)
}
