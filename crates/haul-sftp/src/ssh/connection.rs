//! An authenticated connection in the hands of whoever speaks SFTP over it.

use std::sync::Arc;
use std::time::Duration;

use haul_net::RttGauge;
use haul_storage::Result;

use super::transport::{Channel, RttSample, Session};

/// A connection to a host that is who it should be and that has let us in. Dropping it ends it as
/// soon as none of its channels is in use.
#[derive(Debug)]
pub struct SshConnection {
    session: Arc<Session>,
    version: String,
    round_trips: RttSample,
    way: Way,
}

/// What is known of the way to a host.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) rtt: Duration,
    /// Tells how full it is, where one TCP connection is the whole way.
    pub(super) gauge: Option<RttGauge>,
}

impl SshConnection {
    pub(super) fn new(session: Arc<Session>, round_trips: RttSample, way: Way) -> Self {
        let version = session.server_version();
        Self { session, version, round_trips, way }
    }

    pub(super) fn into_session(self) -> Arc<Session> {
        self.session
    }

    /// Opens a session channel and asks for a subsystem on it. It returns when the channel is open;
    /// what may be sent with the request can be sent now. A server without the subsystem shows as
    /// an error of [`Incoming::next`](super::Incoming::next).
    ///
    /// # Errors
    /// `Busy` if the server opens no more channels on this connection (MaxSessions); `Unreachable`
    /// if the connection was lost.
    pub async fn subsystem(&self, name: &str) -> Result<Channel> {
        self.round_trips.add(1);
        self.session.subsystem(name, b"").await
    }

    /// What the server calls itself, `SSH-2.0-OpenSSH_9.2p1 Debian-2`.
    pub fn server_version(&self) -> &str {
        &self.version
    }

    /// Round trips that were waited for so far: TCP, versions and algorithms, keys, each request of
    /// authentication, and each channel that was opened, but for one that was opened together with
    /// authentication. With a jump host its own are in it; what a
    /// ProxyCommand spends is not known.
    pub fn round_trips(&self) -> u32 {
        self.round_trips.count()
    }

    /// How long the TCP handshake took. With a jump host, how long it took to connect through it;
    /// with a ProxyCommand, how long the first exchange took, its start included.
    pub fn rtt(&self) -> Duration {
        self.way.rtt
    }

    /// What tells how full the way is, once; `None` behind another host or a ProxyCommand. As long
    /// as it is kept, the TCP connection is.
    pub fn take_gauge(&mut self) -> Option<RttGauge> {
        self.way.gauge.take()
    }

    /// Ends the connection with a farewell, and with it all its channels. Takes a second at most.
    pub async fn close(&self) {
        self.session.close().await;
    }
}
