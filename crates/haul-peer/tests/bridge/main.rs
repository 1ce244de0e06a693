//! Tests of a bridge on loopback, with scripted sharers and clients, and with those of haul.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod codes;
mod direct;
mod hostile;
mod limits;
mod peers;

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use haul_net::Secret as Token;
use haul_peer::bridge::messages::{
    Connect, FromBridge, Incoming, Join, Refusal, Register, RoomOffer, ToBridge, from_bridge,
    to_bridge,
};
use haul_peer::bridge::preamble::{self, ConnectionId};
use haul_peer::bridge::room::{Room, TokenKey, epoch};
use haul_peer::bridge::{BridgeLimits, BridgeServer, BridgeServerBuilder};
use haul_peer::identity::Identity;
use haul_peer::ticket::Secret;
use haul_peer::tls;
use haul_peer::wire::{Deframer, Frame, Limits, decode, message_frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

/// Timeout of each step, longer than any takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

async fn bind(change: impl FnOnce(BridgeServerBuilder) -> BridgeServerBuilder) -> BridgeServer {
    let builder =
        BridgeServer::builder().token(Some(Token::new("token"))).limits(unlimited_attempts());
    let builder = change(builder);
    builder.bind(&Identity::ephemeral().unwrap()).await.unwrap()
}

/// Limits without a practical bound on attempts, for tests that retry until a condition holds.
fn unlimited_attempts() -> BridgeLimits {
    let unlimited = 1_000_000;
    BridgeLimits {
        joins_per_minute: unlimited,
        codes_per_minute: unlimited,
        ..BridgeLimits::default()
    }
}

async fn with_limits(limits: BridgeLimits) -> BridgeServer {
    bind(|builder| builder.limits(limits)).await
}

/// A signalling connection, of a client or a sharer.
struct Client {
    stream: TlsStream<TcpStream>,
    deframer: Deframer,
    exporter: [u8; 32],
    key: [u8; 32],
}

impl Client {
    async fn connect(bridge: &BridgeServer) -> Self {
        let identity = Identity::ephemeral().unwrap();
        let expected = *bridge.key().as_bytes();
        let config =
            tls::bridge_client_config(identity.pkcs8(), &identity.spki(), expected).unwrap();
        let stream = TcpStream::connect(bridge.addresses()[0]).await.unwrap();
        let stream = tls::connect(stream, config, PATIENCE).await.unwrap();
        let exporter = tls::exporter(stream.get_ref().1).unwrap();
        let key = *identity.key().as_bytes();
        Self { stream, deframer: Deframer::new(Limits::EARLY), exporter, key }
    }

    async fn send(&mut self, body: to_bridge::Body) {
        let frame = message_frame(&ToBridge { id: 7, body: Some(body) }).unwrap();
        self.stream.write_all(&frame).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The next message; `None` if the bridge has closed the connection.
    async fn receive(&mut self) -> Option<FromBridge> {
        loop {
            if let Some(frame) = self.deframer.next_frame().unwrap() {
                let Frame::Message(bytes) = frame else { continue };
                return Some(decode(bytes).unwrap());
            }
            let mut received = vec![0; 4096];
            let read = timeout(PATIENCE, self.stream.read(&mut received)).await.unwrap();
            match read {
                Ok(read) if read > 0 => self.deframer.push(received[..read].to_vec()),
                _ => return None,
            }
        }
    }

    /// Sends a request, and receives its response.
    async fn request(&mut self, body: to_bridge::Body) -> from_bridge::Body {
        self.send(body).await;
        let response = self.receive().await.unwrap();
        assert_eq!(response.id, 7);
        response.body.unwrap()
    }

    /// The refusal of a request.
    async fn refused(&mut self, body: to_bridge::Body) -> Refusal {
        match self.request(body).await {
            from_bridge::Body::Refused(refused) => Refusal::of(refused.code).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn registration(&self, token: &str, room: &Room) -> to_bridge::Body {
        let proof = TokenKey::new(token).unwrap().prove(&self.exporter, &self.key);
        let rooms = vec![RoomOffer {
            name: Bytes::copy_from_slice(&room.name),
            key: Bytes::copy_from_slice(room.key.expose()),
        }];
        to_bridge::Body::Register(Register {
            min_version: 1,
            max_version: 1,
            token_proof: Bytes::copy_from_slice(&proof),
            rooms,
        })
    }

    fn join(&self, room: &Room, connections: &[ConnectionId]) -> to_bridge::Body {
        to_bridge::Body::Join(Join {
            min_version: 1,
            max_version: 1,
            name: Bytes::copy_from_slice(&room.name),
            mac: Bytes::copy_from_slice(&room.key.prove(&self.exporter, &self.key)),
            connections: bytes(connections),
            ..Join::default()
        })
    }

    /// The next request of a client, as the bridge forwards it to this sharer.
    async fn incoming(&mut self) -> Incoming {
        match self.receive().await.unwrap().body {
            Some(from_bridge::Body::Incoming(incoming)) => incoming,
            other => panic!("{other:?}"),
        }
    }
}

fn bytes(connections: &[ConnectionId]) -> Vec<Bytes> {
    connections.iter().map(|id| Bytes::copy_from_slice(id)).collect()
}

/// A room that no other test has.
fn room() -> Room {
    static NEXT: AtomicU8 = AtomicU8::new(0);
    let secret = Secret::new([NEXT.fetch_add(1, Ordering::Relaxed); 16]);
    Room::new(&secret, epoch(SystemTime::now())).unwrap()
}

/// A sharer that has registered a room.
async fn sharer(bridge: &BridgeServer, room: &Room) -> Client {
    let mut sharer = Client::connect(bridge).await;
    let request = sharer.registration("token", room);
    let response = sharer.request(request).await;
    assert!(matches!(response, from_bridge::Body::Registered(_)), "{response:?}");
    sharer
}

/// A data connection.
async fn data(bridge: &BridgeServer, id: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(bridge.addresses()[0]).await.unwrap();
    stream.write_all(&preamble::encode(&id.try_into().unwrap())).await.unwrap();
    stream
}

/// Waits until the bridge closes a connection.
async fn closed(stream: &mut TcpStream) {
    // An alert may come before it, and the end may be a reset.
    drop(timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await.unwrap());
}

/// A pair of data connections: the client's, and the sharer's.
async fn pair(bridge: &BridgeServer, sharer: &mut Client, room: &Room) -> (TcpStream, TcpStream) {
    let mut client = Client::connect(bridge).await;
    let id = preamble::random_id().unwrap();
    let near = data(bridge, &id).await;
    let request = client.join(room, &[id]);
    let response = client.request(request).await;
    assert!(matches!(response, from_bridge::Body::Joined(_)), "{response:?}");
    let incoming = sharer.incoming().await;
    assert_eq!(incoming.connections.len(), 1);
    let far = data(bridge, &incoming.connections[0]).await;
    // The pair outlives the client's signalling connection.
    (near, far)
}

async fn receive(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut received = vec![0; length];
    timeout(PATIENCE, stream.read_exact(&mut received)).await.unwrap().unwrap();
    received
}

#[tokio::test]
async fn a_pair_forwards_both_directions_and_the_end_of_each() {
    let bridge = bind(|builder| builder).await;
    let room = room();
    let mut sharer = sharer(&bridge, &room).await;
    let (mut near, mut far) = pair(&bridge, &mut sharer, &room).await;
    near.write_all(b"question").await.unwrap();
    assert_eq!(receive(&mut far, 8).await, b"question");
    near.shutdown().await.unwrap();
    assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
    let content: Vec<u8> = (0..5_000_000_u32).map(|at| (at / 3) as u8).collect();
    let sent = content.clone();
    let sending = tokio::spawn(async move {
        far.write_all(&sent).await.unwrap();
        far.shutdown().await.unwrap();
        far
    });
    let mut received = Vec::new();
    near.read_to_end(&mut received).await.unwrap();
    assert!(received == content);
    drop(sending.await.unwrap());
    bridge.stop().await;
}

/// A client's first bytes may arrive together with the preamble, before the connection is announced.
#[tokio::test]
async fn bytes_behind_the_preamble_are_not_lost() {
    let bridge = bind(|builder| builder).await;
    let room = room();
    let mut sharer = sharer(&bridge, &room).await;
    let mut client = Client::connect(&bridge).await;
    let id = preamble::random_id().unwrap();
    let mut near = TcpStream::connect(bridge.addresses()[0]).await.unwrap();
    near.write_all(&[&preamble::encode(&id)[..], b"hello"].concat()).await.unwrap();
    let request = client.join(&room, &[id]);
    client.request(request).await;
    let incoming = sharer.incoming().await;
    let mut far = data(&bridge, &incoming.connections[0]).await;
    assert_eq!(receive(&mut far, 5).await, b"hello");
}

#[tokio::test]
async fn a_client_that_has_joined_opens_further_connections() {
    let bridge = bind(|builder| builder).await;
    let room = room();
    let mut sharer = sharer(&bridge, &room).await;
    let mut client = Client::connect(&bridge).await;
    let request = client.join(&room, &[]);
    let from_bridge::Body::Joined(joined) = client.request(request).await else { panic!() };
    assert!(joined.observed.starts_with("127.0.0.1:"), "{joined:?}");
    assert!(joined.sharer_observed.starts_with("127.0.0.1:"), "{joined:?}");
    let ids = [preamble::random_id().unwrap(), preamble::random_id().unwrap()];
    let connect =
        to_bridge::Body::Connect(Connect { connections: bytes(&ids), ..Connect::default() });
    client.request(connect.clone()).await;
    let incoming = sharer.incoming().await;
    assert_eq!(incoming.joiner_observed, joined.observed);
    for (at, id) in ids.iter().enumerate() {
        // The sharer's connection comes first.
        let mut far = data(&bridge, &incoming.connections[at]).await;
        far.write_all(&[at as u8]).await.unwrap();
        let mut near = data(&bridge, id).await;
        assert_eq!(receive(&mut near, 1).await, [at as u8]);
    }
    let mut without_join = Client::connect(&bridge).await;
    assert_eq!(without_join.refused(connect).await, Refusal::Invalid);
}

#[tokio::test]
async fn a_sharer_needs_the_token() {
    let bridge = bind(|builder| builder).await;
    let room = room();
    let mut wrong = Client::connect(&bridge).await;
    let request = wrong.registration("other", &room);
    assert_eq!(wrong.refused(request).await, Refusal::Token);
    assert!(wrong.receive().await.is_none(), "the connection stays open");
    let mut client = Client::connect(&bridge).await;
    let request = client.join(&room, &[]);
    assert_eq!(client.refused(request).await, Refusal::Room);
    // A proof of another connection.
    let (mut one, other) = (Client::connect(&bridge).await, Client::connect(&bridge).await);
    let request = other.registration("token", &room);
    assert_eq!(one.refused(request).await, Refusal::Token);
}

#[tokio::test]
async fn a_client_needs_the_key_of_a_room_that_exists() {
    let bridge = bind(|builder| builder).await;
    let (known, unknown) = (room(), room());
    let mut sharer = sharer(&bridge, &known).await;
    let mut client = Client::connect(&bridge).await;
    let request = client.join(&unknown, &[]);
    assert_eq!(client.refused(request).await, Refusal::Room);
    let wrong = Room { name: known.name, key: unknown.key };
    let request = client.join(&wrong, &[]);
    assert_eq!(client.refused(request).await, Refusal::Mac);
    // The same connection may try another room.
    let id = preamble::random_id().unwrap();
    let request = client.join(&known, &[id]);
    assert!(matches!(client.request(request).await, from_bridge::Body::Joined(_)));
    assert_eq!(sharer.incoming().await.connections.len(), 1);
    drop(sharer);
    let start = Instant::now();
    loop {
        let mut late = Client::connect(&bridge).await;
        let request = late.join(&known, &[]);
        if let from_bridge::Body::Refused(refused) = late.request(request).await {
            assert_eq!(Refusal::of(refused.code), Some(Refusal::Room));
            return;
        }
        // The bridge may not have noticed yet.
        assert!(start.elapsed() < PATIENCE, "the room of a sharer that has left still exists");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_lost_sharer_returns_and_takes_over_its_room() {
    let bridge = bind(|builder| builder).await;
    let room = room();
    let _lost = sharer(&bridge, &room).await;
    let mut again = sharer(&bridge, &room).await;
    let (mut near, mut far) = pair(&bridge, &mut again, &room).await;
    far.write_all(b"x").await.unwrap();
    assert_eq!(receive(&mut near, 1).await, b"x");
    // A sharer without the room's key cannot.
    let mut thief = Client::connect(&bridge).await;
    let other = Room { name: room.name, key: self::room().key };
    let request = thief.registration("token", &other);
    assert_eq!(thief.refused(request).await, Refusal::Mac);
}

/// Formerly, further connections of the client were announced on the sharer's lost connection.
#[tokio::test]
async fn a_client_follows_a_sharer_that_returns() {
    let bridge = bind(|builder| builder).await;
    let room = room();
    let _lost = sharer(&bridge, &room).await;
    let mut client = Client::connect(&bridge).await;
    let request = client.join(&room, &[]);
    assert!(matches!(client.request(request).await, from_bridge::Body::Joined(_)));
    let mut again = sharer(&bridge, &room).await;
    let ids = [preamble::random_id().unwrap()];
    let connect =
        to_bridge::Body::Connect(Connect { connections: bytes(&ids), ..Connect::default() });
    assert!(matches!(client.request(connect).await, from_bridge::Body::Joined(_)));
    assert_eq!(again.incoming().await.connections.len(), 1);
}

/// Formerly, connections beyond the 64th could be refused, and the fourth refusal closed the signalling connection.
#[tokio::test]
async fn a_client_may_announce_many_connections_one_by_one() {
    const COUNT: usize = 384;
    let bridge = bind(|builder| builder).await;
    let room = room();
    let mut sharer = sharer(&bridge, &room).await;
    let mut client = Client::connect(&bridge).await;
    let request = client.join(&room, &[]);
    assert!(matches!(client.request(request).await, from_bridge::Body::Joined(_)));
    for _ in 0..COUNT {
        let ids = [preamble::random_id().unwrap()];
        client
            .send(to_bridge::Body::Connect(Connect {
                connections: bytes(&ids),
                ..Connect::default()
            }))
            .await;
    }
    for at in 0..COUNT {
        let response = client.receive().await.unwrap().body;
        assert!(matches!(response, Some(from_bridge::Body::Joined(_))), "{at}: {response:?}");
    }
    for _ in 0..COUNT {
        assert_eq!(sharer.incoming().await.connections.len(), 1);
    }
}

#[tokio::test]
async fn a_bridge_is_accepted_with_its_key_and_protocol_only() {
    let bridge = bind(|builder| builder).await;
    let identity = Identity::ephemeral().unwrap();
    let config = tls::bridge_client_config(identity.pkcs8(), &identity.spki(), [7; 32]).unwrap();
    let stream = TcpStream::connect(bridge.addresses()[0]).await.unwrap();
    tls::connect(stream, config, PATIENCE).await.unwrap_err();
    // It does not speak the peer protocol.
    let expected = *bridge.key().as_bytes();
    let config = tls::client_config(identity.pkcs8(), &identity.spki(), expected).unwrap();
    let stream = TcpStream::connect(bridge.addresses()[0]).await.unwrap();
    tls::connect(stream, config, PATIENCE).await.unwrap_err();
}

#[tokio::test]
async fn metrics_are_served_over_http() {
    let bridge = bind(|builder| builder.metrics(Some("127.0.0.1:0".parse().unwrap()))).await;
    let room = room();
    let mut sharer = sharer(&bridge, &room).await;
    let (mut near, mut far) = pair(&bridge, &mut sharer, &room).await;
    near.write_all(&[0; 1000]).await.unwrap();
    receive(&mut far, 1000).await;
    // Bytes are counted once they have been forwarded: the receiver may have them a moment earlier.
    let counted = async {
        loop {
            let text = metrics(&bridge).await;
            if text.lines().any(|line| line == "haul_bridge_bytes_total 1000") {
                return text;
            }
        }
    };
    let text = timeout(PATIENCE, counted).await.unwrap();
    for line in ["haul_bridge_sharers 1", "haul_bridge_pairs 1", "haul_bridge_bytes_total 1000"] {
        assert!(text.lines().any(|one| one == line), "{line}: {text}");
    }
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
}

async fn metrics(bridge: &BridgeServer) -> String {
    let mut stream = TcpStream::connect(bridge.metrics().unwrap()).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: bridge\r\n\r\n").await.unwrap();
    let mut text = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut text)).await.unwrap().unwrap();
    text
}
