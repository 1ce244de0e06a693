//! TLS of a lane, and the proofs of the access secret.
//!
//! ```text
//! client_config → connect ⇄ accept ← server_config
//!                    │         │
//!         peer_key, exporter → Binding → prove / verify (in Hello and Welcome)
//! ```
//!
//! A handshake that fails has sent no application data in either direction. A client's handshake
//! has finished as soon as it has sent its `Finished`, so a refusal of the client's key is an error
//! of its first read, which [`explain`] describes as well.

mod config;
mod proof;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use haul_storage::{Error, ErrorKind, Retry};
use rustls::{AlertDescription, CertificateError, ClientConfig, CommonState, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

pub use config::{
    ALPN, BRIDGE_ALPN, CODE_ALPN, bridge_client_config, bridge_server_config, client_config,
    code_client_config, code_server_config, peer_key, server_config, server_name,
};
pub use proof::{Binding, PROOF_LEN, ProofKey, Role, exporter, prove, verify};

/// Performs the handshake as the TLS client, whichever side has opened `stream`, within `limit`.
///
/// # Errors
/// If the handshake fails or takes longer, or if the server has not agreed on the ALPN of `config`. See
/// [`explain`].
pub async fn connect<S>(
    stream: S,
    config: Arc<ClientConfig>,
    limit: Duration,
) -> io::Result<client::TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let protocols = config.alpn_protocols.clone();
    let handshake = TlsConnector::from(config).connect(server_name(), stream);
    let stream = tokio::time::timeout(limit, handshake).await.map_err(|_| timed_out())??;
    speaks_one_of(&protocols, stream.get_ref().1)?;
    Ok(stream)
}

/// Performs the handshake as the TLS server, within `limit`.
///
/// # Errors
/// If the handshake fails or takes longer, or if the client has not offered the ALPN of `config`. See
/// [`explain`].
pub async fn accept<S>(
    stream: S,
    config: Arc<ServerConfig>,
    limit: Duration,
) -> io::Result<server::TlsStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let protocols = config.alpn_protocols.clone();
    let handshake = TlsAcceptor::from(config).accept(stream);
    let stream = tokio::time::timeout(limit, handshake).await.map_err(|_| timed_out())??;
    speaks_one_of(&protocols, stream.get_ref().1)?;
    Ok(stream)
}

/// Explains why a handshake with the peer at an address failed. A wrong key and another protocol are
/// not retried, as a retry would fail the same way.
pub fn explain(error: io::Error, address: &str) -> Error {
    let tls = error.get_ref().and_then(|source| source.downcast_ref::<rustls::Error>());
    let Some(tls) = tls else {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                lost("the peer closed the connection during the handshake")
            }
            io::ErrorKind::TimedOut => lost("the peer did not finish the handshake in time"),
            _ => Error::from_io("negotiate TLS", error),
        }
        .at(address);
    };
    let explained = match tls {
        rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
            Error::new(ErrorKind::Unauthenticated, "verify the peer")
                .because(
                    "another machine answers at this address: its key is not that of the \
                     ticket; nothing was sent",
                )
                .hinting("ask for a new ticket if the sharer's address has changed")
        }
        rustls::Error::InvalidCertificate(CertificateError::BadSignature) => {
            Error::new(ErrorKind::Unauthenticated, "verify the peer")
                .because("the peer does not own the key that it presents; nothing was sent")
        }
        rustls::Error::NoApplicationProtocol
        | rustls::Error::AlertReceived(
            AlertDescription::NoApplicationProtocol | AlertDescription::ProtocolVersion,
        ) => Error::new(ErrorKind::Protocol, "negotiate TLS")
            .because("the peer does not speak the protocol haul/1")
            .hinting("use compatible versions of haul on both sides"),
        rustls::Error::DecryptError
        | rustls::Error::AlertReceived(
            AlertDescription::BadRecordMac | AlertDescription::DecryptError,
        ) => lost("data was altered on the way"),
        rustls::Error::AlertReceived(alert) => Error::new(ErrorKind::Protocol, "negotiate TLS")
            .because(format!("the peer rejected the handshake: {alert:?}")),
        other => Error::new(ErrorKind::Protocol, "negotiate TLS")
            .because(format!("{other}; does haul listen on this port?")),
    };
    explained.at(address)
}

/// The error of a lost connection; a retry may succeed.
fn lost(cause: &str) -> Error {
    Error::new(ErrorKind::Unreachable, "negotiate TLS").because(cause).with_retry(Retry::Later)
}

/// Checks that the agreed ALPN is one of `protocols`: rustls accepts a peer that ignores ALPN.
fn speaks_one_of(protocols: &[Vec<u8>], connection: &CommonState) -> io::Result<()> {
    let agreed = connection.alpn_protocol();
    if protocols.iter().any(|protocol| agreed == Some(protocol.as_slice())) {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, rustls::Error::NoApplicationProtocol))
}

fn timed_out() -> io::Error {
    io::ErrorKind::TimedOut.into()
}
