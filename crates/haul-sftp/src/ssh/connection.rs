//! An authenticated SSH connection, on which SFTP channels are opened.

use std::sync::Arc;
use std::time::Duration;

use haul_net::RttGauge;
use haul_storage::Result;

use super::transport::{Channel, RttCounter, Session};

/// A connection to a host whose key is verified and that has authenticated the user. After it is dropped, the
/// connection ends as soon as none of its channels is in use.
#[derive(Debug)]
pub struct SshConnection {
    session: Arc<Session>,
    version: String,
    rtts: RttCounter,
    path_stats: PathStats,
}

/// Measurements of the path to a host.
#[derive(Debug)]
pub(super) struct PathStats {
    pub(super) rtt: Duration,
    /// Measures queueing on the path, if that is a single TCP connection.
    pub(super) gauge: Option<RttGauge>,
}

impl SshConnection {
    pub(super) fn new(session: Arc<Session>, rtts: RttCounter, path_stats: PathStats) -> Self {
        let version = session.server_version();
        Self { session, version, rtts, path_stats }
    }

    pub(super) fn into_session(self) -> Arc<Session> {
        self.session
    }

    /// Opens a session channel and requests a subsystem on it. Returns when the channel is open, without waiting for
    /// the response to that request. If the server does not have the subsystem,
    /// [`Incoming::next`](super::Incoming::next) returns an error.
    ///
    /// # Errors
    /// `Busy` if the server opens no more channels on this connection (`MaxSessions`); `Unreachable` if the connection
    /// is lost; `Protocol` if the server violates the protocol.
    pub async fn subsystem(&self, name: &str) -> Result<Channel> {
        self.rtts.add(1);
        self.session.subsystem(name, b"").await
    }

    /// The server's identification, such as `SSH-2.0-OpenSSH_9.2p1 Debian-2`.
    pub fn server_version(&self) -> &str {
        &self.version
    }

    /// The number of RTTs that were waited for so far: TCP, identifications and algorithms, keys, each authentication
    /// request, and each channel, except one that was opened together with authentication. Includes those of jump
    /// hosts, but not those of a ProxyCommand, which are unknown.
    pub fn rtts(&self) -> u32 {
        self.rtts.count()
    }

    /// The time of the TCP handshake. With a jump host, the time to connect through it; with a ProxyCommand, the time
    /// of the first exchange, including the start of the command.
    pub fn rtt(&self) -> Duration {
        self.path_stats.rtt
    }

    /// Removes and returns the gauge of the path; `None` behind a jump host or a ProxyCommand, and if the process had
    /// no file descriptor left for it. The gauge does not keep the TCP connection open.
    pub fn take_gauge(&mut self) -> Option<RttGauge> {
        self.path_stats.gauge.take()
    }

    /// Sends DISCONNECT and closes the connection with all its channels. Takes a second at most.
    pub async fn close(&self) {
        self.session.close().await;
    }
}
