//! Tests of haul's sharer and client, through a bridge.

use std::time::{Duration, Instant};

use haul_local::{LocalOptions, LocalStorage};
use haul_net::Secret as Token;
use haul_peer::bridge::{BridgeServer, Connection, Joiner, Registration, RegistrationEvent};
use haul_peer::identity::Identity;
use haul_peer::server::{Grant, PeerServer};
use haul_peer::ticket::{BridgeAddress, Secret};
use haul_peer::tls;
use haul_storage::ErrorKind;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::{PATIENCE, bind, unlimited_attempts};

struct Share {
    _directory: tempfile::TempDir,
    server: PeerServer,
    secret: Secret,
    registration: Registration,
    events: std::sync::mpsc::Receiver<RegistrationEvent>,
}

pub(super) fn address(bridge: &BridgeServer) -> BridgeAddress {
    let at = bridge.addresses()[0];
    let address = BridgeAddress::new(&at.ip().to_string(), at.port()).unwrap();
    address.with_key(Some(*bridge.key().as_bytes()))
}

async fn share(bridge: &BridgeServer) -> Share {
    let directory = tempfile::tempdir().unwrap();
    let storage = LocalStorage::open(directory.path(), LocalOptions::default()).unwrap();
    let secret = Secret::generate().unwrap();
    let grant = Grant::new(secret.clone());
    let identity = Identity::ephemeral().unwrap();
    let server = PeerServer::builder(storage, "share").grant(grant).bridged();
    let server = server.bind(&identity).await.unwrap();
    let acceptor = server.acceptor().unwrap();
    let (events, received) = std::sync::mpsc::channel();
    let registration = Registration::builder(address(bridge))
        .token(Some(Token::new("token")))
        .secret(secret.clone())
        .observer(move |event| drop(events.send(event.action)))
        .start(move |stream, from| acceptor.accept(stream, from))
        .await
        .unwrap();
    Share { _directory: directory, server, secret, registration, events: received }
}

/// The handshake of a lane, which shows that the sharer is at the other end.
async fn lane(connection: Connection, server: &PeerServer) -> haul_storage::Result<()> {
    let identity = Identity::ephemeral().unwrap();
    let key = *server.key().as_bytes();
    let config = tls::client_config(identity.pkcs8(), &identity.spki(), key).unwrap();
    let Connection { stream, outcome, .. } = connection;
    let handshake = async {
        let stream = tls::connect(stream, config, PATIENCE).await;
        stream.map_err(|error| tls::explain(error, "bridge"))
    };
    tokio::select! {
        stream = handshake => {
            assert_eq!(tls::peer_key(stream?.get_ref().1), Some(key));
            Ok(())
        }
        error = outcome.refused() => Err(error),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_reach_the_sharer() {
    let bridge = bind(|builder| builder).await;
    let share = share(&bridge).await;
    assert!(share.registration.observed().starts_with("127.0.0.1:"));
    let joiner = Joiner::new(address(&bridge), share.secret.clone(), Handle::current()).unwrap();
    assert_eq!(joiner.observed(), None);
    lane(joiner.connect().await.unwrap(), &share.server).await.unwrap();
    let observed = joiner.observed().unwrap();
    assert_eq!(observed.sharer, share.registration.observed());
    // Many at once, more than a message announces.
    let lanes = (0..100).map(|_| async {
        lane(joiner.connect().await.unwrap(), &share.server).await.unwrap();
    });
    futures_util::future::join_all(lanes).await;
    share.server.stop().await;
    bridge.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_learns_why_it_is_refused() {
    let bridge = bind(|builder| builder).await;
    let share = share(&bridge).await;
    let wrong = Secret::generate().unwrap();
    let joiner = Joiner::new(address(&bridge), wrong, Handle::current()).unwrap();
    let connection = joiner.connect().await.unwrap();
    let error = timeout(PATIENCE, connection.outcome.refused()).await.unwrap();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains("the sharer is not connected to the bridge"), "{error}");
    // The bridge at the address has another key.
    let other = address(&bridge).with_key(Some([7; 32]));
    let joiner = Joiner::new(other, share.secret.clone(), Handle::current()).unwrap();
    let connection = joiner.connect().await.unwrap();
    let error = timeout(PATIENCE, connection.outcome.refused()).await.unwrap();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    assert!(error.to_string().contains("its key is not that of the bridge"), "{error}");
    let unknown = address(&bridge).with_key(None);
    assert!(Joiner::new(unknown, share.secret.clone(), Handle::current()).is_err());
}

#[tokio::test]
async fn the_error_of_the_first_registration_is_returned() {
    let bridge = bind(|builder| builder).await;
    let start = async |address, token: Option<&str>| {
        let secret = Secret::generate().unwrap();
        let builder = Registration::builder(address).token(token.map(Token::new)).secret(secret);
        builder.start(|_, _| {}).await.map(drop)
    };
    let error = start(address(&bridge), Some("other")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(error.to_string().contains("requires another token"), "{error}");
    let error = start(address(&bridge), None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    let gone = address(&bridge);
    bridge.stop().await;
    let error = start(gone, Some("token")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sharer_registers_again_at_a_restarted_bridge() {
    let identity = Identity::ephemeral().unwrap();
    let start = |listen| {
        BridgeServer::builder()
            .token(Some(Token::new("token")))
            .limits(unlimited_attempts())
            .listen(listen)
    };
    let first = start("127.0.0.1:0".parse().unwrap()).bind(&identity).await.unwrap();
    let at = first.addresses()[0];
    let share = share(&first).await;
    let joiner = Joiner::new(address(&first), share.secret.clone(), Handle::current()).unwrap();
    lane(joiner.connect().await.unwrap(), &share.server).await.unwrap();
    first.stop().await;
    let second = loop {
        match start(at).bind(&identity).await {
            Ok(bridge) => break bridge,
            // The port may still be in use for a moment.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    };
    let next = || share.events.recv_timeout(PATIENCE).unwrap();
    tokio::task::block_in_place(|| {
        assert!(matches!(next(), RegistrationEvent::Registered { .. }));
        assert!(matches!(next(), RegistrationEvent::Lost { .. }));
        while matches!(next(), RegistrationEvent::Lost { .. }) {}
    });
    let start = Instant::now();
    while let Err(error) = lane(joiner.connect().await.unwrap(), &share.server).await {
        // The client may not have noticed that its signalling connection was lost.
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(start.elapsed() < PATIENCE, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(second);
}
