//! An authenticated connection: opens channels to subsystems and tunnels to other hosts.

use std::sync::Arc;
use std::time::Duration;

use haul_storage::{Error, ErrorKind, Result};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::channel::Channel;
use super::connection::{CloseOnDrop, Connection, Entry};
use super::early::{EARLY, Early};
use super::line::{Event, Line, PACKET, WINDOW};
use super::link::{Link, Sink, Source};
use super::state::printable;
use super::wire::{Put, message};
use haul_net::with_port;

/// How long to wait for a DISCONNECT to be sent.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The likely cause when OpenSSH refuses a session channel: its text is only `open failed`.
const SESSION_REMARK: &str = "; MaxSessions may be reached";

/// The result of opening a session channel.
#[derive(Debug)]
pub enum Opened {
    Channel(Channel),
    /// The channel has another number than guessed: the bytes sent on it are lost, so the caller has to
    /// connect again.
    WrongGuess,
}

/// An authenticated connection.
pub struct Session {
    /// Shared with its channels.
    open: Arc<CloseOnDrop>,
    response_limit: Option<Duration>,
}

impl Session {
    pub(super) fn new(close_on_drop: CloseOnDrop, response_limit: Option<Duration>) -> Self {
        Self { open: Arc::new(close_on_drop), response_limit }
    }

    /// The server's identification.
    pub fn server_version(&self) -> String {
        self.open.connection.state.server_version().to_owned()
    }

    /// Opens a session channel and requests a subsystem on it, without waiting for the response to
    /// that, which `Incoming::next` reports. `first` is sent with the request.
    ///
    /// # Errors
    /// `Busy` if the server opens no more channels; a lost connection.
    pub async fn subsystem(&self, name: &str, first: &[u8]) -> Result<Channel> {
        let (line, events) = register(&self.open.connection);
        let mut channel = Channel::new(Arc::clone(&self.open), Arc::clone(&line), events, name);
        self.open.connection.put(&session_channel(&line));
        self.confirmed(&mut channel, SESSION_REMARK).await?;
        channel.start(first, self.takes_at_once(first)).await?;
        Ok(channel)
    }

    /// The channel that was requested early, or else one opened now.
    ///
    /// # Errors
    /// Those of [`Session::subsystem`].
    pub(super) async fn early(&self, early: Early) -> Result<Opened> {
        let (name, first) = (early.subsystem.as_str(), early.first.clone());
        let Some((line, events)) = early.sent else {
            return self.subsystem(name, &first).await.map(Opened::Channel);
        };
        let mut channel = Channel::new(Arc::clone(&self.open), line, events, name);
        if self.confirmed(&mut channel, SESSION_REMARK).await? {
            return Ok(Opened::WrongGuess);
        }
        if !early.guessed {
            channel.start(&first, self.takes_at_once(&first)).await?;
        }
        Ok(Opened::Channel(channel))
    }

    /// Whether `first` may be sent before the window opens: OpenSSH announces a window of 0 and opens it
    /// while it handles the subsystem request.
    fn takes_at_once(&self, first: &[u8]) -> bool {
        first.len() <= EARLY && is_openssh(self.open.connection.state.server_version())
    }

    /// A stream to a host and port that the far end connects to.
    ///
    /// # Errors
    /// `Unreachable` if it cannot or may not connect; a lost connection.
    pub async fn direct_tcpip(&self, host: &str, port: u16) -> Result<Link> {
        let (line, events) = register(&self.open.connection);
        let mut channel = Channel::new(Arc::clone(&self.open), Arc::clone(&line), events, "tunnel");
        let mut open = open_message("direct-tcpip", &line);
        open.string(host.as_bytes());
        open.u32(port.into());
        open.string(b"127.0.0.1");
        open.u32(0);
        self.open.connection.put(&open);
        self.confirmed(&mut channel, "").await.map_err(|error| {
            let cause = error.cause();
            let error = if error.kind() == ErrorKind::Busy {
                Error::new(ErrorKind::Unreachable, "connect through a jump host")
            } else {
                error
            };
            error.because(format!(
                "{} cannot connect to {}: {cause}",
                self.open.connection.state.location(),
                with_port(host, port)
            ))
        })?;
        let source = Source::Tunnel(Box::new(channel.incoming), bytes::Bytes::new());
        Ok((source, Sink::Tunnel(channel.outgoing)))
    }

    /// Waits until a channel is open; `true` if its number was guessed wrong. `remark` follows the server's description
    /// of a refusal.
    async fn confirmed(&self, channel: &mut Channel, remark: &str) -> Result<bool> {
        let state = &self.open.connection.state;
        // Keepalives close the connection if nothing arrives; the limit is for servers that respond to
        // keepalives and nothing else.
        match state.within_limit(self.response_limit, "open a channel", channel.opened()).await? {
            Event::Opened => Ok(false),
            Event::WrongGuess => Ok(true),
            Event::Refused { reason, text } => Err(state
                .error(ErrorKind::Busy, "open a channel")
                .because(refusal(reason, &printable(&text), remark))),
            _ => {
                state.ended().await;
                Err(state.lost("open a channel"))
            }
        }
    }

    /// Sends DISCONNECT and waits up to a second until it is sent.
    pub async fn close(&self) {
        self.open.connection.disconnect();
        // The connection ends either way.
        let _ = timeout(DISCONNECT_TIMEOUT, self.open.connection.state.ended()).await;
    }
}

/// Registers a channel with the reader under a free number.
pub fn register(connection: &Connection) -> (Arc<Line>, mpsc::UnboundedReceiver<Event>) {
    let (inbox, events) = mpsc::unbounded_channel();
    let mut channels = connection.channels();
    let mut id = 0;
    while channels.contains_key(&id) {
        id += 1;
    }
    let line = Arc::new(Line::new(id));
    // On a connection that has ended, the inbox is dropped, so that `events` ends too.
    if connection.state.end().is_none() {
        channels.insert(id, Entry { line: Arc::clone(&line), inbox });
    }
    (line, events)
}

/// The message that opens a session channel.
pub fn session_channel(line: &Line) -> Vec<u8> {
    open_message("session", line)
}

fn open_message(kind: &str, line: &Line) -> Vec<u8> {
    let mut open = vec![message::CHANNEL_OPEN];
    open.string(kind.as_bytes());
    open.u32(line.id);
    open.u32(WINDOW);
    open.u32(PACKET);
    open
}

/// Whether a server is OpenSSH, by its identification.
pub fn is_openssh(version: &str) -> bool {
    version.starts_with("SSH-2.0-OpenSSH_")
}

/// Why a channel was not opened (RFC 4254, 5.1), with the server's description if it sent one.
fn refusal(reason: u32, description: &str, remark: &str) -> String {
    let what = match reason {
        1 => "the server does not allow it",
        2 => "the connection failed",
        3 => "the server does not support this type of channel",
        4 => "the server is short of resources",
        _ => "the server refuses",
    };
    if description.is_empty() { what.to_owned() } else { format!("{what} ({description}{remark})") }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("state", &self.open.connection.state)
            .finish_non_exhaustive()
    }
}
