//! The transport below the SFTP client: byte streams in both directions. Implementations are SSH, and in
//! tests pipes and servers in the same process.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use haul_net::{HostWaits, RttGauge};
use haul_storage::Result;

/// Returns the first bytes to send on a channel, given the server's identification string.
pub type First = dyn Fn(&str) -> Bytes + Send + Sync;

/// A connector that opens channels to one server.
#[async_trait]
pub trait Dial: Debug + Send + Sync {
    /// Opens another independent channel. The bytes that `first` returns are sent on it as early as
    /// possible, before anything else.
    async fn dial(&self, first: &First) -> Result<Channel>;

    /// Waits for the first RTT measurement, available before the first channel is open. `None` if the
    /// RTT cannot be measured.
    async fn first_rtt(&self) -> Option<Duration>;

    /// The host's name for error messages.
    fn host(&self) -> String;

    /// Where to report long waits for the host.
    fn waits(&self) -> HostWaits;
}

/// An open channel to an SFTP server. Dropping it closes the channel.
pub struct Channel {
    /// Received bytes, in pieces of any length; ends when the server closes the channel.
    pub incoming: BoxStream<'static, Result<Bytes>>,
    /// The sending half.
    pub outgoing: Box<dyn Outgoing>,
    /// The server's identification (`SSH-2.0-OpenSSH_9.2p1`); empty if unknown.
    pub server: String,
    /// RTT measured while connecting.
    pub rtt: Option<Duration>,
    /// Number of RTTs that connecting took.
    pub rtts: u32,
    /// Measures the RTT, and from it the queueing delay of the path, where the system reports it.
    pub gauge: Option<RttGauge>,
}

/// The sending half of a channel.
#[async_trait]
pub trait Outgoing: Debug + Send + Sync {
    /// Sends the pieces in order; waits while the server's receive window is full.
    ///
    /// # Errors
    /// If the channel or its connection has failed.
    async fn send(&self, pieces: &[Bytes]) -> Result<()>;
}

impl Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("server", &self.server).finish_non_exhaustive()
    }
}
