//! A lane over SSH: a connection of its own with one channel to the SFTP subsystem.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use haul_net::HostWaits;
use haul_storage::{Error, Result};

use crate::ssh::{self, SshHost};
use crate::transport::{Channel, Dial, First, Outgoing};

/// Opens lanes to a host over SSH.
#[derive(Debug)]
pub struct SshDial {
    host: Arc<SshHost>,
}

impl SshDial {
    /// Creates a connector for lanes to `host`; opens none yet.
    pub fn new(host: Arc<SshHost>) -> Self {
        Self { host }
    }

    /// Attributes an error to the host, unless it comes from a jump host.
    fn named(&self, error: Error) -> Error {
        if self.host.is_jump_host(error.location()) {
            return error;
        }
        let named = Error::new(error.kind(), "connect").at(self.host());
        let named = named.because(error.cause()).with_retry(error.retry());
        match error.hint() {
            Some(hint) => named.hinting(hint),
            None => named,
        }
    }
}

#[async_trait]
impl Dial for SshDial {
    async fn dial(&self, first: &First) -> Result<Channel> {
        let connected = self.host.connect_to("sftp", first).await;
        let (mut connection, channel) = connected.map_err(|error| self.named(error))?;
        let gauge = connection.take_gauge();
        let ssh::Channel { incoming, outgoing } = channel;
        let server = connection.server_version().to_owned();
        let rtt = Some(connection.rtt());
        let rtts = connection.rtts();
        // The connection lives as long as its stream.
        let incoming =
            stream::unfold((incoming, connection), |(mut incoming, connection)| async move {
                let next = incoming.next().await.transpose()?;
                Some((next, (incoming, connection)))
            });
        Ok(Channel {
            incoming: incoming.boxed(),
            outgoing: Box::new(outgoing),
            server,
            rtt,
            rtts,
            gauge,
        })
    }

    async fn first_rtt(&self) -> Option<Duration> {
        self.host.first_rtt().await
    }

    fn host(&self) -> String {
        let (user, host) = (self.host.user(), self.host.host_name());
        match self.host.port() {
            22 => format!("{user}@{host}"),
            port => format!("{user}@{host}:{port}"),
        }
    }

    fn waits(&self) -> HostWaits {
        self.host.waits()
    }
}

#[async_trait]
impl Outgoing for ssh::Outgoing {
    async fn send(&self, pieces: &[Bytes]) -> Result<()> {
        let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
        self.send_all(&pieces).await
    }
}
