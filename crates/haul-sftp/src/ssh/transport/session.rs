//! An authenticated connection: channels, streams to other hosts, and the end.

use std::sync::Arc;
use std::time::Duration;

use haul_storage::{Error, ErrorKind, Result};
use russh::client::{self, Handle};
use tokio::time::timeout;

use super::channel::{self, Channel};
use super::events::{Events, State};
use super::link::Knife;
use super::patiently;
use super::tunnel::Tunnel;
use crate::ssh::config::with_port;

/// How long the far end may take to see a farewell.
const FAREWELL: Duration = Duration::from_secs(1);

/// An authenticated connection.
pub struct Session {
    handle: Handle<Events>,
    state: Arc<State>,
    patience: Option<Duration>,
    _knife: Knife,
}

impl Session {
    pub(super) fn new(
        handle: Handle<Events>,
        state: Arc<State>,
        patience: Option<Duration>,
        knife: Knife,
    ) -> Self {
        Self { handle, state, patience, _knife: knife }
    }

    /// What the server calls itself.
    pub fn server_version(&self) -> String {
        self.state.server_version()
    }

    /// Opens a session channel and asks for a subsystem on it, without waiting for the answer to
    /// that: it comes through `Incoming::next`.
    ///
    /// # Errors
    /// `Busy` if the server opens no more channels; a lost connection.
    pub async fn subsystem(self: &Arc<Self>, name: &str) -> Result<Channel> {
        let opened = self.opened(self.handle.channel_open_session()).await?;
        channel::start(opened, Arc::clone(self), Arc::clone(&self.state), name).await
    }

    /// A stream to a host and port that the far end connects to.
    ///
    /// # Errors
    /// `Unreachable` if it cannot or may not connect; a lost connection.
    pub async fn direct_tcpip(self: &Arc<Self>, host: &str, port: u16) -> Result<Tunnel> {
        let (origin, origin_port) = ("127.0.0.1", 0);
        let opening = self.handle.channel_open_direct_tcpip(host, port.into(), origin, origin_port);
        let opened = self.opened(opening).await.map_err(|error| {
            let cause = error.cause();
            let error = if error.kind() == ErrorKind::Busy {
                Error::new(ErrorKind::Unreachable, "connect through a jump host")
            } else {
                error
            };
            error.because(format!(
                "{} does not reach {}: {cause}",
                self.state.location(),
                with_port(host, port)
            ))
        })?;
        Ok(Tunnel::new(opened, Arc::clone(self)))
    }

    async fn opened(
        &self,
        opening: impl Future<Output = Result<russh::Channel<client::Msg>, russh::Error>>,
    ) -> Result<russh::Channel<client::Msg>> {
        // Keepalives end the connection if nothing comes; the limit is for servers that answer
        // these and nothing else.
        let result = patiently(self.patience, &self.state, "open a channel", opening).await?;
        result.map_err(|error| match error {
            russh::Error::ChannelOpenFailure(reason) => self
                .state
                .error(ErrorKind::Busy, "open a channel")
                .because(self.state.refusal(&reason)),
            error => self.state.failed("open a channel", error),
        })
    }

    /// Says goodbye and waits a moment for it to be sent.
    pub async fn close(&self) {
        let goodbye = self.handle.disconnect(russh::Disconnect::ByApplication, "", "");
        // Whether it was heard makes no difference: the connection ends either way.
        let _ = timeout(FAREWELL, async {
            if goodbye.await.is_ok() {
                self.state.ended().await;
            }
        })
        .await;
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("state", &self.state).finish_non_exhaustive()
    }
}
