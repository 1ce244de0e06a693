//! Tests of direct connections between peers that a bridge helps to open.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use haul_local::{LocalOptions, LocalStorage};
use haul_net::Secret as Token;
use haul_peer::bridge::messages::{Cross, Refusal, from_bridge, to_bridge};
use haul_peer::bridge::preamble::random_id;
use haul_peer::bridge::{BridgeAction, BridgeServer, Joiner, Registration};
use haul_peer::client::{PeerHost, PeerStorage, ReachEvent};
use haul_peer::identity::Identity;
use haul_peer::server::{Grant, PeerServer, Route};
use haul_peer::ticket::{Address, Secret, Ticket};
use haul_peer::tls;
use haul_storage::{ErrorKind, LinkPath, Location, PathKind, RelPath, Storage};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use super::peers::address;
use super::{Client, PATIENCE, bind, bytes, data, room, sharer};

struct Share {
    _directory: tempfile::TempDir,
    _registration: Registration,
    /// Bound, so that no other test listens there.
    _closed: TcpSocket,
    server: PeerServer,
    ticket: Ticket,
}

/// A share whose ticket has an address that refuses connections.
async fn share(bridge: &BridgeServer) -> Share {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "content").unwrap();
    let storage = LocalStorage::open(directory.path(), LocalOptions::default()).unwrap();
    let secret = Secret::generate().unwrap();
    let identity = Identity::ephemeral().unwrap();
    let server = PeerServer::builder(storage, "share").grant(Grant::new(secret.clone())).bridged();
    let server = server.bind(&identity).await.unwrap();
    let acceptor = server.acceptor().unwrap();
    let checker = acceptor.clone();
    let registration = Registration::builder(address(bridge))
        .token(Some(Token::new("token")))
        .secret(secret.clone())
        .dial_back(move || checker.has_valid_ticket_or_session())
        .start(move |stream, from| acceptor.accept(stream, from))
        .await
        .unwrap();
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let addresses = [Address::new(closed.local_addr().unwrap()).unwrap()];
    let mut ticket = Ticket::new(identity.key(), secret).with_addresses(addresses);
    ticket.bridge = Some(address(bridge));
    Share { _directory: directory, _registration: registration, _closed: closed, server, ticket }
}

/// A client that has reached the bridge.
async fn joiner(bridge: &BridgeServer, share: &Share) -> Joiner {
    let secret = share.ticket.secret.clone();
    let joiner = Joiner::new(address(bridge), secret, Handle::current()).unwrap();
    drop(joiner.connect().await.unwrap());
    joiner
}

/// The handshake of a lane, which shows that the sharer is at the other end, as the TLS server.
async fn lane(stream: TcpStream, share: &Share) {
    let identity = Identity::ephemeral().unwrap();
    let key = *share.server.key().as_bytes();
    let config = tls::client_config(identity.pkcs8(), &identity.spki(), key).unwrap();
    let stream = tls::connect(stream, config, PATIENCE).await.unwrap();
    assert_eq!(tls::peer_key(stream.get_ref().1), Some(key));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sharer_connects_to_a_client_that_listens() {
    let bridge = bind(|builder| builder).await;
    let share = share(&bridge).await;
    let joiner = joiner(&bridge, &share).await;
    let targets = ["127.0.0.1:9".parse().unwrap()];
    lane(joiner.reverse(&targets).await.unwrap(), &share).await;
    // Further lanes, at once.
    let lanes = (0..30).map(|_| async {
        lane(joiner.reverse(&targets).await.unwrap(), &share).await;
    });
    futures_util::future::join_all(lanes).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_connect_to_each_other() {
    let bridge = bind(|builder| builder).await;
    let share = share(&bridge).await;
    let joiner = joiner(&bridge, &share).await;
    // On loopback, the two SYNs rarely cross, so on a busy machine an attempt may fail within its 6 s.
    for _ in 0..20 {
        if let Ok(stream) = joiner.cross().await {
            return lane(stream, &share).await;
        }
    }
    panic!("no attempt has succeeded");
}

#[tokio::test]
async fn a_client_that_has_not_joined_opens_no_direct_connection() {
    let bridge = bind(|builder| builder).await;
    let secret = Secret::generate().unwrap();
    let joiner = Joiner::new(address(&bridge), secret, Handle::current()).unwrap();
    assert_eq!(joiner.cross().await.unwrap_err().kind(), ErrorKind::Unreachable);
    // No sharer has registered a room for its secret.
    let error = joiner.reverse(&["127.0.0.1:9".parse().unwrap()]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text).unwrap()
}

/// Waits until a condition holds, and uses the share meanwhile. `what` is the panic message of a timeout.
async fn until(storage: &PeerStorage, what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        storage.stat(&path("file")).await.unwrap();
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_leave_the_bridge_for_a_direct_path() {
    let forwarded = Arc::new(Mutex::new(0));
    let count = Arc::clone(&forwarded);
    let bridge = bind(|builder| {
        builder.observer(move |event| {
            if matches!(event.action, BridgeAction::Forwarded { .. }) {
                *count.lock().unwrap() += 1;
            }
        })
    })
    .await;
    let share = share(&bridge).await;
    let identity = Identity::ephemeral().unwrap();
    let host = PeerHost::new(&share.ticket, &identity, Handle::current()).unwrap();
    let events = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&events);
    host.on_event(move |event| seen.lock().unwrap().push(event));
    let location = Location::parse("sftp://peer/").unwrap();
    let storage = PeerStorage::open(Arc::clone(&host), location, RelPath::root()).await.unwrap();
    let kind = || host.reached().map(|path| path.kind());
    let is_off_bridge = || matches!(kind(), Some(PathKind::Reverse | PathKind::SimultaneousOpen));
    until(&storage, "the path still leads through the bridge", is_off_bridge).await;
    let has_ended = || *forwarded.lock().unwrap() > 0;
    until(&storage, "the connection through the bridge remains", has_ended).await;
    let sessions = share.server.sessions();
    let is_direct = || sessions.status().iter().any(|session| session.route == Route::Direct);
    until(&storage, "the sharer sees a connection through the bridge", is_direct).await;
    storage.set_lanes(4);
    until(&storage, "further lanes are not opened", || storage.link().open == 4).await;
    assert!(is_off_bridge());
    // The state of the link has the path of the lanes.
    let path = storage.link().path.unwrap();
    assert!(matches!(path.kind, PathKind::Reverse | PathKind::SimultaneousOpen), "{path}");
    let events = events.lock().unwrap();
    let is_failed =
        |event: &ReachEvent| matches!(event, ReachEvent::Failed { kind: PathKind::Direct, .. });
    assert_eq!(events.iter().filter(|event| is_failed(event)).count(), 1, "{events:?}");
    let last = events.iter().rev().find_map(|event| match event {
        ReachEvent::Path(path) => Some(path.kind()),
        _ => None,
    });
    assert_eq!(last, kind(), "{events:?}");
}

/// The tickets of `haul share --bridge-only` have no addresses: the sharer hides them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_without_addresses_is_used_through_the_bridge_only() {
    let bridge = bind(|builder| builder).await;
    let share = share(&bridge).await;
    let Ticket { key, secret, .. } = share.ticket.clone();
    let mut ticket = Ticket::new(key, secret);
    ticket.bridge = Some(address(&bridge));
    let identity = Identity::ephemeral().unwrap();
    let host = PeerHost::new(&ticket, &identity, Handle::current()).unwrap();
    let location = Location::parse("sftp://peer/").unwrap();
    let storage = PeerStorage::open(Arc::clone(&host), location, RelPath::root()).await.unwrap();
    for _ in 0..20 {
        storage.stat(&path("file")).await.unwrap();
        assert_eq!(host.reached().map(|path| path.kind()), Some(PathKind::Bridge));
        let through = LinkPath { kind: PathKind::Bridge, address: bridge.addresses()[0] };
        assert_eq!(storage.link().path, Some(through));
        sleep(Duration::from_millis(20)).await;
    }
}

impl Client {
    /// The message with the address of the other side of a crossing.
    async fn cross(&mut self) -> Cross {
        match self.receive().await.unwrap().body {
            Some(from_bridge::Body::Cross(cross)) => cross,
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn the_bridge_sends_each_side_of_a_crossing_the_address_of_the_other() {
    let bridge = bind(|builder| builder).await;
    let room = room();
    let mut sharer = sharer(&bridge, &room).await;
    let mut client = Client::connect(&bridge).await;
    let id = random_id().unwrap();
    let to_bridge::Body::Join(mut join) = client.join(&room, &[]) else { panic!() };
    join.crossings = bytes(&[id]);
    join.reverse = bytes(&[[9; 32]]);
    join.candidates = vec!["192.0.2.1:5000".to_owned(), "host:5000".to_owned()];
    let joined = client.request(to_bridge::Body::Join(join)).await;
    assert!(matches!(joined, from_bridge::Body::Joined(_)), "{joined:?}");
    let incoming = sharer.incoming().await;
    assert_eq!(incoming.candidates, ["192.0.2.1:5000"]);
    assert_eq!(incoming.reverse, bytes(&[[9; 32]]));
    assert_eq!((incoming.connections.len(), incoming.crossings.len()), (0, 1));
    // The connections of a crossing are not paired: each side receives the address of the other.
    let far = data(&bridge, &incoming.crossings[0]).await;
    let near = data(&bridge, &id).await;
    let (of_client, of_sharer) = (client.cross().await, sharer.cross().await);
    assert_eq!(of_client.connection, Bytes::copy_from_slice(&id));
    assert_eq!(of_sharer.connection, incoming.crossings[0]);
    assert_eq!(of_client.peer, far.local_addr().unwrap().to_string());
    assert_eq!(of_sharer.peer, near.local_addr().unwrap().to_string());
    let mut byte = [0];
    assert!(timeout(Duration::from_millis(50), near.peek(&mut byte)).await.is_err(), "closed");
}

#[tokio::test]
async fn connections_of_all_kinds_count_together() {
    let bridge = bind(|builder| builder).await;
    let room = room();
    let _sharer = sharer(&bridge, &room).await;
    let mut client = Client::connect(&bridge).await;
    let ids = |count: usize| (0..count).map(|_| random_id().unwrap()).collect::<Vec<_>>();
    let to_bridge::Body::Join(join) = client.join(&room, &ids(22)) else { panic!() };
    let mut many = join.clone();
    (many.reverse, many.crossings) = (bytes(&ids(22)), bytes(&ids(21)));
    let mut most = many.clone();
    most.crossings.pop();
    assert_eq!(client.refused(to_bridge::Body::Join(many)).await, Refusal::Invalid);
    let mut cut = join;
    (cut.connections, cut.reverse) = (Vec::new(), vec![Bytes::from_static(&[2; 31])]);
    assert_eq!(client.refused(to_bridge::Body::Join(cut)).await, Refusal::Invalid);
    let response = client.request(to_bridge::Body::Join(most)).await;
    assert!(matches!(response, from_bridge::Body::Joined(_)), "{response:?}");
}
