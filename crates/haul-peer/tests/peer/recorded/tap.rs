//! A proxy that terminates TLS on both sides, and records the frames between a client and a server in plaintext. A
//! proof is bound to its connection, so it is recomputed for the other connection; all else is forwarded unchanged.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use haul_peer::identity::Identity;
use haul_peer::ticket::{PeerKey, Secret};
use haul_peer::tls::{self, Binding, ProofKey, Role};
use haul_peer::wire::messages::{ToClient, ToServer, to_client, to_server};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{client, server};

use super::file::{Line, Recorder, receive, replaced};

/// The name of the only lane in recordings between peers.
pub(super) const LANE: &str = "lane";

/// Longer than any step takes, also on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The values of a connection to which proofs are bound.
#[derive(Clone)]
pub(super) struct Bound {
    pub(super) exporter: [u8; 32],
    pub(super) client_key: [u8; 32],
    pub(super) server_key: [u8; 32],
}

impl Bound {
    /// The proof of a side for the first lane of a session.
    pub(super) fn proof(&self, role: Role, secret: &Secret, nonce: &[u8]) -> [u8; 32] {
        let binding = Binding {
            exporter: self.exporter,
            client_key: self.client_key,
            server_key: self.server_key,
            session: [0; 16],
            nonce: nonce.try_into().unwrap(),
        };
        tls::prove(&ProofKey::from_secret(secret.expose()).unwrap(), role, &binding)
    }
}

/// Connects to a server as a new client.
pub(super) async fn dial(
    address: SocketAddr,
    key: PeerKey,
) -> (client::TlsStream<TcpStream>, Bound) {
    let (identity, server_key) = (Identity::ephemeral().unwrap(), *key.as_bytes());
    let config = tls::client_config(identity.pkcs8(), &identity.spki(), server_key).unwrap();
    let socket = TcpStream::connect(address).await.unwrap();
    let stream = tls::connect(socket, config, PATIENCE).await.unwrap();
    let exporter = tls::exporter(stream.get_ref().1).unwrap();
    (stream, Bound { exporter, client_key: *identity.key().as_bytes(), server_key })
}

/// Accepts a client as the server with `identity`.
pub(super) async fn accept(
    socket: TcpStream,
    identity: &Identity,
) -> (server::TlsStream<TcpStream>, Bound) {
    let config = tls::server_config(identity.pkcs8(), &identity.spki()).unwrap();
    let stream = tls::accept(socket, config, PATIENCE).await.unwrap();
    let exporter = tls::exporter(stream.get_ref().1).unwrap();
    let client_key = tls::peer_key(stream.get_ref().1).unwrap();
    (stream, Bound { exporter, client_key, server_key: *identity.key().as_bytes() })
}

/// The nonce and the proof of a Hello.
pub(super) fn hello(frame: &Bytes) -> Option<(Bytes, Bytes)> {
    match message::<ToServer>(frame)?.body? {
        to_server::Body::Hello(hello) => Some((hello.nonce, hello.proof)),
        _ => None,
    }
}

/// The proof of a Welcome.
pub(super) fn welcome(frame: &Bytes) -> Option<Bytes> {
    match message::<ToClient>(frame)?.body? {
        to_client::Body::Welcome(welcome) => Some(welcome.proof),
        _ => None,
    }
}

pub(super) fn message<M: prost::Message + Default>(frame: &Bytes) -> Option<M> {
    Line { lane: String::new(), is_sent: true, frame: frame.clone() }.message()
}

/// Accepts one client as the server with `identity`, and records the frames between it and the server at `address`
/// until both connections have ended.
pub(super) async fn record(
    listener: TcpListener,
    identity: Identity,
    (address, key): (SocketAddr, PeerKey),
    secret: Secret,
) -> Vec<Line> {
    let (socket, _) = listener.accept().await.unwrap();
    // Further lanes are refused, so that all frames have one order.
    drop(listener);
    let (near, near_bound) = accept(socket, &identity).await;
    let (far, far_bound) = dial(address, key).await;
    let (mut near_reading, near_writing) = tokio::io::split(near);
    let (far_reading, mut far_writing) = tokio::io::split(far);
    let recorder = Recorder::default();
    let first = receive(&mut near_reading).await.unwrap();
    recorder.add(LANE, true, &first);
    let (nonce, proof) = hello(&first).unwrap();
    let proven = far_bound.proof(Role::Client, &secret, &nonce);
    far_writing.write_all(&replaced(&first, &proof, &proven)).await.unwrap();
    far_writing.flush().await.unwrap();
    let server_proof = near_bound.proof(Role::Server, &secret, &nonce);
    let upstream = forward(near_reading, far_writing, (&recorder, true), Bytes::clone);
    let downstream =
        forward(far_reading, near_writing, (&recorder, false), |frame| match welcome(frame) {
            Some(proof) => replaced(frame, &proof, &server_proof),
            None => frame.clone(),
        });
    tokio::join!(upstream, downstream);
    recorder.lines()
}

/// Records and forwards frames until the stream ends.
async fn forward(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    (recorder, is_sent): (&Recorder, bool),
    changed: impl Fn(&Bytes) -> Bytes,
) {
    while let Some(frame) = receive(&mut from).await {
        recorder.add(LANE, is_sent, &frame);
        // The other side may have closed its connection.
        if to.write_all(&changed(&frame)).await.is_err() || to.flush().await.is_err() {
            break;
        }
    }
    drop(to.shutdown().await);
}
