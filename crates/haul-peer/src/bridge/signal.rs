//! What sharers and clients both do with a bridge: open signalling connections and data connections.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use haul_net::{DialOptions, Dialled, dial};
use haul_storage::{Error, ErrorKind, Result, Retry};
use rustls::{AlertDescription, CertificateError};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::channel::{Channel, lost};
use super::messages::{FromBridge, Refusal, Refused, ToBridge, from_bridge, to_bridge};
use super::preamble::{self, ConnectionId};
use super::room::TokenKey;
use crate::identity::Identity;
use crate::lane;
use crate::ticket::BridgeAddress;
use crate::tls;
use crate::wire::convert::clipped;
use crate::wire::messages::Empty;

/// Time limit for the TCP connect, for the TLS handshake, and for each response.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Interval of the Pings to a bridge.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(25);

/// A bridge that has sent nothing for this long is lost.
pub(super) const SILENCE: Duration = Duration::from_secs(90);

/// A signalling connection to a bridge.
pub(super) struct Signalling {
    pub(super) channel: Channel<TlsStream<TcpStream>>,
    pub(super) exporter: [u8; 32],
    pub(super) client_key: [u8; 32],
    /// The bridge's address.
    pub(super) at: SocketAddr,
}

impl Signalling {
    /// Connects to a bridge, with a key that is used for this connection only: the bridge cannot recognize its clients.
    pub(super) async fn open(bridge: &BridgeAddress) -> Result<Self> {
        let expected = key(bridge)?;
        let identity = Identity::ephemeral()?;
        let config = tls::bridge_client_config(identity.pkcs8(), &identity.spki(), expected)?;
        let stream = tcp(bridge).await?.stream;
        let at = stream.peer_addr().map_err(|error| lost(&error).at(bridge))?;
        let stream = tls::connect(stream, config, PATIENCE).await;
        let stream = stream.map_err(|error| explain(error, bridge))?;
        let exporter = tls::exporter(stream.get_ref().1)?;
        let client_key = *identity.key().as_bytes();
        Ok(Self { channel: Channel::new(stream), exporter, client_key, at })
    }

    /// The proof that this side knows the bridge's token; empty if it has none.
    pub(super) fn token_proof(&self, token: Option<&TokenKey>) -> Bytes {
        let prove = |token: &TokenKey| token.prove(&self.exporter, &self.client_key);
        token.map(prove).map(|proof| Bytes::copy_from_slice(&proof)).unwrap_or_default()
    }

    /// Sends a request, and waits for its response: the next message, whatever its `id`. Only for a connection that has
    /// not registered or joined, so that no other message can arrive.
    pub(super) async fn request(&mut self, body: to_bridge::Body) -> Result<from_bridge::Body> {
        self.channel.send(&ToBridge { id: 0, body: Some(body) }).await?;
        let response = timeout(PATIENCE, async {
            loop {
                match self.channel.next::<FromBridge>().await? {
                    Some(FromBridge { body: Some(body), .. }) => return Ok(body),
                    // Of a later version.
                    Some(_) => {}
                    None => return Err(lost(&io::ErrorKind::UnexpectedEof.into())),
                }
            }
        });
        response.await.unwrap_or_else(|_| Err(lost(&io::ErrorKind::TimedOut.into())))
    }

    /// Sends a request without waiting for its response.
    pub(super) async fn send(&mut self, id: u32, body: to_bridge::Body) -> Result<()> {
        self.channel.send(&ToBridge { id, body: Some(body) }).await
    }

    /// Sends a Ping.
    pub(super) async fn ping(&mut self) -> Result<()> {
        self.send(0, to_bridge::Body::Ping(Empty {})).await
    }
}

/// The key of a bridge.
///
/// # Errors
/// `InvalidInput` if it is unknown: nothing is sent to a bridge that cannot be authenticated.
pub(super) fn key(bridge: &BridgeAddress) -> Result<[u8; 32]> {
    bridge.key.ok_or_else(|| {
        Error::new(ErrorKind::InvalidInput, "connect to the bridge")
            .at(bridge)
            .because("its key is unknown")
    })
}

/// A TCP connection to a bridge.
pub(super) async fn tcp(bridge: &BridgeAddress) -> Result<Dialled> {
    let options = DialOptions {
        limit: Some(PATIENCE),
        silence: Some(lane::STALLED),
        ..DialOptions::default()
    };
    let dialled = dial(bridge.host(), bridge.port(), &options).await?;
    lane::set(&dialled.stream).map_err(|error| lost(&error).at(bridge))?;
    Ok(dialled)
}

/// Sends the preamble of a data connection. The bridge does not respond to it: bytes for the peer may follow at once.
pub(super) async fn introduce(stream: &mut TcpStream, id: &ConnectionId) -> Result<()> {
    stream.write_all(&preamble::encode(id)).await.map_err(|error| lost(&error))
}

/// The error of a request that the bridge has refused.
pub(super) fn refusal(refused: &Refused, bridge: &BridgeAddress) -> Error {
    let (kind, retry) = match Refusal::of(refused.code) {
        Some(Refusal::Busy | Refusal::Rate | Refusal::Quota) => (ErrorKind::Busy, Retry::Later),
        Some(Refusal::Room) => (ErrorKind::Unreachable, Retry::Later),
        Some(Refusal::Token | Refusal::Mac) => (ErrorKind::Unauthenticated, Retry::Never),
        _ => (ErrorKind::Protocol, Retry::Never),
    };
    let error = Error::new(kind, "use the bridge").at(bridge).because(clipped(&refused.text));
    let error = error.with_retry(retry);
    match Refusal::of(refused.code) {
        Some(Refusal::Token) => error.hinting("ask the bridge's operator for its token"),
        _ => error,
    }
}

/// The error of a response that does not belong to the request.
pub(super) fn unexpected(bridge: &BridgeAddress) -> Error {
    Error::new(ErrorKind::Protocol, "use the bridge").at(bridge).because("an unexpected response")
}

/// The error of a failed handshake with a bridge.
fn explain(error: io::Error, bridge: &BridgeAddress) -> Error {
    let tls = error.get_ref().and_then(|source| source.downcast_ref::<rustls::Error>());
    let failed = |kind| Error::new(kind, "connect to the bridge").at(bridge);
    match tls {
        Some(rustls::Error::InvalidCertificate(
            CertificateError::ApplicationVerificationFailure,
        )) => failed(ErrorKind::Unauthenticated)
            .because("another machine answers at this address: its key is not that of the bridge")
            .hinting("compare with the line that haul bridge prints"),
        Some(
            rustls::Error::NoApplicationProtocol
            | rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol),
        ) => failed(ErrorKind::Protocol).because("no bridge of haul answers at this address"),
        _ => tls::explain(error, &bridge.to_string()),
    }
}
