//! A share that is reached through a bridge only.

use std::path::Path;
use std::sync::Arc;

use haul_local::{LocalOptions, LocalStorage};
use haul_peer::bridge::{BridgeServer, Registration};
use haul_peer::client::{self, PeerStorage};
use haul_peer::identity::Identity;
use haul_peer::server::PeerServer;
use haul_peer::ticket::{BridgeAddress, Secret, Ticket};
use haul_storage::{Location, RelPath, Storage, conformance};

use super::{grant, host};

/// A writable share, its registration at a bridge, and a ticket without addresses.
struct Bridged {
    server: PeerServer,
    bridge: BridgeServer,
    ticket: Ticket,
    _registration: Registration,
}

async fn share_bridged(directory: &Path) -> Bridged {
    let bridge = BridgeServer::builder().open(true);
    let bridge = bridge.bind(&Identity::ephemeral().unwrap()).await.unwrap();
    let at = bridge.addresses()[0];
    let address = BridgeAddress::new(&at.ip().to_string(), at.port()).unwrap();
    let address = address.with_key(Some(*bridge.key().as_bytes()));
    let storage = LocalStorage::open(directory, LocalOptions::default()).unwrap();
    let (identity, secret) = (Identity::ephemeral().unwrap(), Secret::generate().unwrap());
    let server = PeerServer::builder(storage, "share").grant(grant(&secret, true)).bridged();
    let server = server.bind(&identity).await.unwrap();
    let acceptor = server.acceptor().unwrap();
    let registration = Registration::builder(address.clone())
        .secret(secret.clone())
        .start(move |stream, from| acceptor.accept(stream, from))
        .await
        .unwrap();
    let mut ticket = Ticket::new(identity.key(), secret);
    ticket.bridge = Some(address);
    Bridged { server, bridge, ticket, _registration: registration }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writable_share_conforms_through_a_bridge() {
    for lanes in [1, 5] {
        let directory = tempfile::tempdir().unwrap();
        let shared = share_bridged(directory.path()).await;
        let host = host(&shared.ticket);
        let location = Location::parse("sftp://peer/").unwrap();
        let storage = PeerStorage::open(Arc::clone(&host), location, RelPath::root());
        let storage = storage.await.unwrap();
        storage.set_lanes(lanes);
        conformance::run_all(storage).await;
        assert!(matches!(host.reached(), Some(client::Path::Bridge(_))), "{:?}", host.reached());
        shared.server.stop().await;
        shared.bridge.stop().await;
    }
}
