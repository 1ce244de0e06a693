//! A host with a lane whose other end is the test.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use haul_net::HostWaits;
use haul_storage::{Capabilities, LinkPath, Medium, PathKind, RelPath};
use prost::Message as _;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::early::{First, Sent};
use super::session::{Session, Welcomed};
use super::{Lane, PeerHost, PeerOptions};
use crate::identity::Identity;
use crate::ticket::{Secret, Ticket};
use crate::tls::ProofKey;
use crate::wire::messages::{self, to_client};
use crate::wire::{FRAME_HEADER, decode};

/// A host whose lane has sent early requests, and what the lane sends.
pub(super) struct World {
    pub(super) host: Arc<PeerHost>,
    pub(super) session: Arc<Session>,
    pub(super) lane: Arc<Lane>,
    /// The path that was requested early.
    pub(super) path: RelPath,
    pub(super) sent: UnboundedReceiver<Bytes>,
}

impl World {
    pub(super) async fn new() -> Self {
        Self::with(HostWaits::default()).await
    }

    /// As [`World::new`], with reports of long waits.
    pub(super) async fn with(waits: HostWaits) -> Self {
        let identity = Identity::ephemeral().unwrap();
        let ticket = Ticket::new(identity.key(), Secret::generate().unwrap());
        let options = PeerOptions { waits, ..PeerOptions::default() };
        let host = PeerHost::with_options(&ticket, &identity, options, Handle::current()).unwrap();
        let capabilities = Capabilities::least(Medium::Link);
        let welcome = Welcomed { name: String::new(), capabilities, is_writable: true };
        let (key, patience) = (ProofKey::from_token(&[1; 32]).unwrap(), &host.reach.patience);
        let session = Session::new([1; 16], key, welcome, Arc::clone(patience));
        let path = RelPath::parse("file").unwrap();
        let early = Sent::register(&session, 0, First { path: path.clone(), is_read: true });
        let (messages, sent) = unbounded_channel();
        let lane = Arc::new(Lane {
            session: Arc::clone(&session),
            number: 0,
            messages,
            is_ended: Arc::default(),
            rtt: Duration::ZERO,
            gauge: None,
            path: LinkPath { kind: PathKind::Direct, address: "192.0.2.1:7".parse().unwrap() },
        });
        *host.reach.prefetch.early.lock().await = Some(early.on(&lane));
        Self { host, session, lane, path, sent }
    }
}

/// Passes a response to its request.
pub(super) fn respond(session: &Session, id: u32, body: to_client::Body) {
    let message = messages::ToClient { id, body: Some(body) };
    session.message(message.encode_to_vec().into()).unwrap();
}

/// What was sent since the last call.
pub(super) fn requests(sent: &mut UnboundedReceiver<Bytes>) -> Vec<messages::ToServer> {
    let frames = std::iter::from_fn(|| sent.try_recv().ok());
    frames.map(|frame| decode(frame.slice(FRAME_HEADER..)).unwrap()).collect()
}
