//! What the client needs of whatever carries SFTP: bytes both ways. SSH is one, a pipe in a test
//! another.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use haul_net::{HostWaits, RttGauge};
use haul_storage::Result;

/// Gives what is sent first on a channel, of what the server says it is.
pub type First = dyn Fn(&str) -> Bytes + Send + Sync;

/// Opens channels to one server.
#[async_trait]
pub trait Dial: Debug + Send + Sync {
    /// Opens one more, independent of the others. What `first` gives is sent on it as early as that
    /// is possible, before anything else.
    async fn dial(&self, first: &First) -> Result<Channel>;

    /// Waits until a round trip to the host is known: earlier than the first channel is open.
    /// `None` if it cannot be told.
    async fn first_rtt(&self) -> Option<Duration>;

    /// The host as errors name it.
    fn host(&self) -> String;

    /// Where long waits for the host are reported.
    fn waits(&self) -> HostWaits;
}

/// An open channel with an SFTP server at its other end. Dropping it closes it.
pub struct Channel {
    /// What comes, in whatever pieces it comes; ends when the far end closes.
    pub incoming: BoxStream<'static, Result<Bytes>>,
    /// Where to send.
    pub outgoing: Box<dyn Outgoing>,
    /// What the server says it is (`SSH-2.0-OpenSSH_9.2p1`); empty if it does not say.
    pub server: String,
    /// The round trip as seen while connecting.
    pub rtt: Option<Duration>,
    /// Round trips that connecting took.
    pub round_trips: u32,
    /// Tells how full the way is, where that can be told.
    pub gauge: Option<RttGauge>,
}

/// The way out.
#[async_trait]
pub trait Outgoing: Debug + Send + Sync {
    /// Sends pieces one after the other; waits while the far end does not take them.
    async fn send(&self, pieces: &[Bytes]) -> Result<()>;
}

impl Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("server", &self.server).finish_non_exhaustive()
    }
}
