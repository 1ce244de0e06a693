//! The first messages of a lane: Hello and Welcome.

use bytes::Bytes;
use haul_storage::{Error, ErrorKind, Result};
use tokio::io::AsyncRead;

use super::limits;
use super::session::Session;
use crate::lane::Frames;
use crate::tls::{self, Binding, Role};
use crate::wire::convert::fixed;
use crate::wire::messages::{self, to_client, to_server};
use crate::wire::{Frame, Limits, MIN_VERSION, VERSION, decode, message_frame};

/// Receives the first message of a lane.
///
/// # Errors
/// `Protocol` if it is not a valid Hello, and those of the connection.
pub(super) async fn hello(frames: &mut Frames<impl AsyncRead + Unpin>) -> Result<Hello> {
    let Some(Frame::Message(bytes)) = frames.next().await? else {
        return Err(refused("the first frame is not a message"));
    };
    let message: messages::ToServer = decode(bytes)?;
    let Some(to_server::Body::Hello(hello)) = message.body else {
        return Err(refused("the first message is not a Hello"));
    };
    Ok(Hello {
        has_common_version: hello.min_version <= VERSION && hello.max_version >= MIN_VERSION,
        session: match hello.session.is_empty() {
            true => None,
            false => Some(fixed(&hello.session, "session")?),
        },
        proof: fixed(&hello.proof, "proof")?,
        nonce: fixed(&hello.nonce, "nonce")?,
    })
}

/// A decoded Hello, whose proof is yet to be verified.
pub(super) struct Hello {
    /// Whether client and server have a version of the protocol in common.
    pub(super) has_common_version: bool,
    /// The session to join; `None` for a new one.
    pub(super) session: Option<[u8; 16]>,
    pub(super) proof: [u8; 32],
    pub(super) nonce: [u8; 32],
}

impl Hello {
    /// What the proofs of both sides are bound to.
    pub(super) fn binding(
        &self,
        exporter: [u8; 32],
        client_key: [u8; 32],
        server_key: [u8; 32],
    ) -> Binding {
        Binding {
            exporter,
            client_key,
            server_key,
            session: self.session.unwrap_or_default(),
            nonce: self.nonce,
        }
    }
}

/// The frame of a Welcome. `key` makes the server's proof; `name` is that of the share, `token` the session's.
pub(super) fn welcome(
    session: &Session,
    binding: &Binding,
    key: &tls::ProofKey,
    (name, token): (&str, &[u8; 32]),
) -> Result<Bytes> {
    let mut capabilities = session.storage.capabilities().clone();
    capabilities.owner &= session.rights.owners || !session.rights.writable;
    let capabilities = Some(Box::new((&capabilities).into()));
    let limit = |size: usize| u32::try_from(size).unwrap_or(u32::MAX);
    let body = messages::Welcome {
        version: VERSION,
        session: Bytes::copy_from_slice(&session.id),
        token: Bytes::copy_from_slice(token),
        proof: Bytes::copy_from_slice(&tls::prove(key, Role::Server, binding)),
        name: name.to_owned(),
        writable: session.rights.writable,
        capabilities,
        limits: Some(messages::Limits {
            message: limit(Limits::FULL.message),
            bulk: limit(Limits::FULL.data),
            handles: limit(limits::HANDLES),
        }),
    };
    let body = Some(to_client::Body::Welcome(body));
    Ok(message_frame(&messages::ToClient { id: 0, body })?)
}

pub(super) fn refused(cause: &str) -> Error {
    Error::new(ErrorKind::Protocol, "open a lane").because(cause)
}
