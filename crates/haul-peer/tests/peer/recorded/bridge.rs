//! The signalling connections of a bridge, recorded and replayed from either side: a sharer, a receiver, a sharer with
//! a wrong token, one that offers a spoken code, and a receiver with a code that does not exist.

use std::collections::{HashMap, HashSet};
use std::mem::discriminant;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use haul_net::Secret as Token;
use haul_peer::bridge::code::{Code, CodeOffer, fetch};
use haul_peer::bridge::messages::{FromBridge, Refused, ToBridge, from_bridge, to_bridge};
use haul_peer::bridge::preamble::{self, ConnectionId};
use haul_peer::bridge::room::{RoomKey, TokenKey};
use haul_peer::bridge::{BridgeServer, Joiner, Registration};
use haul_peer::identity::Identity;
use haul_peer::ticket::{BridgeAddress, PeerKey, Secret, Ticket};
use haul_peer::tls;
use haul_peer::wire::message_frame;
use haul_peer::wire::messages::Empty;
use haul_storage::ErrorKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};
use tokio_rustls::client::TlsStream;
use tokio_rustls::server;

use super::file::{Line, Recorder, receive, replaced, save};
use super::tap::{PATIENCE, message};

/// The name of the recording.
pub(super) const NAME: &str = "bridge";

/// The names of the connections in it.
const SHARER: &str = "sharer";
const RECEIVER: &str = "receiver";
/// A sharer with a wrong token.
const UNAUTHENTICATED: &str = "stranger";
/// A sharer that offers a spoken code.
const OFFERER: &str = "offerer";
/// A receiver with a code that does not exist.
const GUESSER: &str = "guesser";

/// The bridge's token, and a wrong one.
const TOKENS: [&str; 2] = ["token", "other"];

async fn bridge() -> BridgeServer {
    let builder = BridgeServer::builder().token(Some(Token::new(TOKENS[0])));
    builder.bind(&Identity::ephemeral().unwrap()).await.unwrap()
}

fn named(at: SocketAddr, key: PeerKey) -> BridgeAddress {
    let address = BridgeAddress::new(&at.ip().to_string(), at.port()).unwrap();
    address.with_key(Some(*key.as_bytes()))
}

/// A signalling connection to a bridge.
struct Signalling {
    stream: TlsStream<TcpStream>,
    exporter: [u8; 32],
    client_key: [u8; 32],
}

impl Signalling {
    async fn connect((address, key): (SocketAddr, PeerKey)) -> Self {
        let identity = Identity::ephemeral().unwrap();
        let expected = *key.as_bytes();
        let config =
            tls::bridge_client_config(identity.pkcs8(), &identity.spki(), expected).unwrap();
        let socket = TcpStream::connect(address).await.unwrap();
        let stream = tls::connect(socket, config, PATIENCE).await.unwrap();
        let exporter = tls::exporter(stream.get_ref().1).unwrap();
        Self { stream, exporter, client_key: *identity.key().as_bytes() }
    }
}

/// Recomputes the proofs of recorded requests, which are bound to a connection. Learns the keys of rooms from the
/// registrations.
#[derive(Clone, Default)]
struct Proofs(Arc<Mutex<HashMap<Bytes, Bytes>>>);

impl Proofs {
    /// A recorded request with the proof for the connection with this exporter and client key.
    fn renewed(
        &self,
        lane: &str,
        frame: &Bytes,
        (exporter, client_key): (&[u8; 32], &[u8; 32]),
    ) -> Bytes {
        let token = if lane == UNAUTHENTICATED { TOKENS[1] } else { TOKENS[0] };
        let token_proof = || TokenKey::new(token).unwrap().prove(exporter, client_key);
        let request: ToBridge = message(frame).unwrap();
        match request.body {
            Some(to_bridge::Body::Register(register)) => {
                let rooms = register.rooms.into_iter().map(|room| (room.name, room.key));
                self.0.lock().unwrap().extend(rooms);
                replaced(frame, &register.token_proof, &token_proof())
            }
            Some(to_bridge::Body::Offer(offer)) => {
                replaced(frame, &offer.token_proof, &token_proof())
            }
            Some(to_bridge::Body::Join(join)) => {
                let key = self.0.lock().unwrap()[&join.name].clone();
                let key = RoomKey::new(key[..].try_into().unwrap());
                replaced(frame, &join.mac, &key.prove(exporter, client_key))
            }
            _ => frame.clone(),
        }
    }
}

/// Listens in place of the bridge, and records the messages between the bridge and its clients.
struct Taps {
    recorder: Recorder,
    proofs: Proofs,
    to: (SocketAddr, PeerKey),
}

impl Taps {
    /// An address for one of the clients.
    async fn open(&self, lane: &'static str) -> BridgeAddress {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let identity = Identity::ephemeral().unwrap();
        let address = named(listener.local_addr().unwrap(), identity.key());
        let (identity, to) = (Arc::new(identity), self.to);
        let (recorder, proofs) = (self.recorder.clone(), self.proofs.clone());
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let (recorder, proofs) = (recorder.clone(), proofs.clone());
                let identity = Arc::clone(&identity);
                tokio::spawn(async move {
                    if is_signalling(&socket).await {
                        tap((lane, socket, identity), to, (&recorder, &proofs)).await;
                    } else {
                        let mut far = TcpStream::connect(to.0).await.unwrap();
                        drop(copy_bidirectional(&mut socket, &mut far).await);
                    }
                });
            }
        });
        address
    }

    /// Waits until the bridge has announced this many connections to the sharer.
    async fn until_announced(&self, count: usize) {
        let announced = || -> usize {
            let lines = self.recorder.lines();
            let incoming = lines.iter().filter_map(|line| match from(line)?.body? {
                from_bridge::Body::Incoming(incoming) => Some(incoming.connections.len()),
                _ => None,
            });
            incoming.sum()
        };
        let waiting = async {
            while announced() < count {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(PATIENCE, waiting).await.unwrap();
    }
}

/// The message in a line, if the bridge sent it.
fn from(line: &Line) -> Option<FromBridge> {
    if line.is_sent { None } else { line.message() }
}

async fn is_signalling(socket: &TcpStream) -> bool {
    let mut first = [0];
    socket.peek(&mut first).await.unwrap();
    first[0] == preamble::TLS
}

/// Accepts a signalling connection, as the bridge with an identity.
async fn accept(socket: TcpStream, identity: &Identity) -> server::TlsStream<TcpStream> {
    let config = tls::bridge_server_config(identity.pkcs8(), &identity.spki()).unwrap();
    tls::accept(socket, config, PATIENCE).await.unwrap()
}

/// Records and forwards the frames of a signalling connection.
async fn tap(
    (lane, socket, identity): (&str, TcpStream, Arc<Identity>),
    to: (SocketAddr, PeerKey),
    (recorder, proofs): (&Recorder, &Proofs),
) {
    let near = accept(socket, &identity).await;
    let Signalling { stream, exporter, client_key } = Signalling::connect(to).await;
    let (mut near_reading, mut near_writing) = tokio::io::split(near);
    let (mut far_reading, mut far_writing) = tokio::io::split(stream);
    let upstream = async {
        while let Some(frame) = receive(&mut near_reading).await {
            recorder.add(lane, true, &frame);
            let frame = proofs.renewed(lane, &frame, (&exporter, &client_key));
            drop(far_writing.write_all(&frame).await);
            drop(far_writing.flush().await);
        }
        drop(far_writing.shutdown().await);
    };
    let downstream = async {
        while let Some(frame) = receive(&mut far_reading).await {
            recorder.add(lane, false, &frame);
            drop(near_writing.write_all(&frame).await);
            drop(near_writing.flush().await);
        }
        drop(near_writing.shutdown().await);
    };
    tokio::join!(upstream, downstream);
}

fn ticket() -> Ticket {
    Ticket::new(Identity::ephemeral().unwrap().key(), Secret::generate().unwrap())
}

fn unknown_code() -> Code {
    "999999-acorn-angle".parse().unwrap()
}

async fn registration(
    bridge: BridgeAddress,
    token: &str,
    secret: &Secret,
) -> haul_storage::Result<Registration> {
    let builder = Registration::builder(bridge).token(Some(Token::new(token)));
    builder.secret(secret.clone()).start(|_, _| {}).await
}

/// Records the messages between haul's own clients and a bridge.
pub(super) async fn record() {
    let bridge = bridge().await;
    let to = (bridge.addresses()[0], *bridge.key());
    let taps = Taps { recorder: Recorder::default(), proofs: Proofs::default(), to };
    let secret = Secret::generate().unwrap();
    let registered = registration(taps.open(SHARER).await, TOKENS[0], &secret).await.unwrap();
    let joiner = Joiner::new(taps.open(RECEIVER).await, secret, Handle::current()).unwrap();
    let mut connections = Vec::new();
    for count in 1..=2 {
        // The first one is announced by a Join, the other one by a Connect.
        connections.push(joiner.connect().await.unwrap());
        taps.until_announced(count).await;
    }
    let other = Secret::generate().unwrap();
    registration(taps.open(UNAUTHENTICATED).await, TOKENS[1], &other).await.unwrap_err();
    let builder = CodeOffer::builder(taps.open(OFFERER).await, ticket());
    let offer = builder.token(Some(Token::new(TOKENS[0]))).start().await.unwrap();
    fetch(&taps.open(GUESSER).await, &unknown_code()).await.unwrap_err();
    save(NAME, &taps.recorder.lines());
    drop((registered, connections, offer));
    bridge.stop().await;
}

/// Replays the recorded clients against this build's bridge.
pub(super) async fn replay_to_bridge(lines: &[Line]) {
    let bridge = bridge().await;
    let to = (bridge.addresses()[0], *bridge.key());
    let proofs = Proofs::default();
    let mut clients: HashMap<&str, Client> = HashMap::new();
    for line in lines {
        let lane = line.lane.as_str();
        let mut client = match clients.remove(lane) {
            Some(client) => client,
            None => Client { signalling: Signalling::connect(to).await, received: Vec::new() },
        };
        match from(line) {
            Some(expected) => client.wait_for(lane, masked(expected)).await,
            None => client.send(lane, &line.frame, &proofs).await,
        }
        clients.insert(lane, client);
    }
    bridge.stop().await;
}

/// A recorded client, on a new connection.
struct Client {
    signalling: Signalling,
    /// Messages that were received and not expected yet.
    received: Vec<FromBridge>,
}

impl Client {
    async fn send(&mut self, lane: &str, frame: &Bytes, proofs: &Proofs) {
        let bound = (&self.signalling.exporter, &self.signalling.client_key);
        let frame = proofs.renewed(lane, frame, bound);
        self.signalling.stream.write_all(&frame).await.unwrap();
        self.signalling.stream.flush().await.unwrap();
    }

    /// Waits for a message. Messages for different requests may arrive in another order than in the recording.
    async fn wait_for(&mut self, lane: &str, expected: FromBridge) {
        loop {
            if let Some(at) = self.received.iter().position(|received| *received == expected) {
                self.received.remove(at);
                return;
            }
            let next = timeout(PATIENCE, receive(&mut self.signalling.stream)).await;
            let next = next.unwrap_or_else(|_| panic!("{lane}: no {expected:?}"));
            let next = next.unwrap_or_else(|| panic!("{lane}: closed before {expected:?}"));
            self.received.push(masked(message(&next).unwrap()));
        }
    }
}

/// A message of a bridge without the parts that may differ: addresses, random numbers, and texts.
fn masked(mut message: FromBridge) -> FromBridge {
    let seen = |address: &mut String| {
        if !address.is_empty() {
            "seen".clone_into(address);
        }
    };
    match &mut message.body {
        Some(from_bridge::Body::Registered(registered)) => seen(&mut registered.observed),
        Some(from_bridge::Body::Joined(joined)) => {
            seen(&mut joined.observed);
            seen(&mut joined.sharer_observed);
        }
        Some(from_bridge::Body::Refused(refused)) => refused.text.clear(),
        Some(from_bridge::Body::Incoming(incoming)) => {
            incoming.connections.fill(Bytes::new());
            seen(&mut incoming.joiner_observed);
        }
        Some(from_bridge::Body::Offered(offered)) => offered.number = 0,
        _ => {}
    }
    message
}

/// A recorded bridge, as one of its clients sees it.
struct Played {
    address: BridgeAddress,
    /// Its first response.
    first: from_bridge::Body,
    /// The ids of the data connections that it requests.
    demanded: HashSet<Bytes>,
    /// The ids of the data connections that arrive.
    arrived: UnboundedReceiver<ConnectionId>,
}

/// Starts the bridge of a recording for the client of this lane.
async fn play(lines: &[Line], lane: &str) -> Played {
    let mut part = Part { exchanges: Vec::new(), unsolicited: Vec::new() };
    let mut demanded = HashSet::new();
    let mut requests = Vec::new();
    for line in lines.iter().filter(|line| line.lane == lane) {
        match (line.is_sent, from(line).and_then(|message| message.body)) {
            (true, _) => requests.extend(line.message::<ToBridge>().unwrap().body),
            (false, Some(from_bridge::Body::Incoming(incoming))) => {
                demanded.extend(incoming.connections);
                part.unsolicited.push(line.frame.clone());
            }
            (false, Some(from_bridge::Body::Pong(_)) | None) => {}
            (false, Some(_)) => {
                requests.retain(|one| !matches!(one, to_bridge::Body::Ping(_)));
                part.exchanges.push((requests.remove(0), line.frame.clone()));
            }
        }
    }
    let first: FromBridge = message(&part.exchanges[0].1).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let identity = Identity::ephemeral().unwrap();
    let address = named(listener.local_addr().unwrap(), identity.key());
    let (sender, arrived) = unbounded_channel();
    tokio::spawn(part.serve(listener, identity, sender));
    Played { address, first: first.body.unwrap(), demanded, arrived }
}

/// The messages of a bridge to one of its clients.
struct Part {
    exchanges: Vec<(to_bridge::Body, Bytes)>,
    /// Messages without a request, which are sent after the first response.
    unsolicited: Vec<Bytes>,
}

impl Part {
    async fn serve(
        mut self,
        listener: TcpListener,
        identity: Identity,
        arrived: UnboundedSender<ConnectionId>,
    ) {
        let mut open = Vec::new();
        let mut signalling = None;
        loop {
            let next = async {
                match signalling.as_mut() {
                    Some(stream) => receive(stream).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                accepted = listener.accept() => {
                    let (mut socket, _) = accepted.unwrap();
                    if is_signalling(&socket).await {
                        signalling = Some(accept(socket, &identity).await);
                        continue;
                    }
                    let mut bytes = [0; preamble::LEN];
                    socket.read_exact(&mut bytes).await.unwrap();
                    // Fails if the test has ended.
                    let _ = arrived.send(preamble::decode(&bytes).unwrap());
                    open.push(socket);
                }
                frame = next => {
                    let Some(frame) = frame else { return };
                    let responses = self.respond(&frame).concat();
                    let stream = signalling.as_mut().unwrap();
                    drop(stream.write_all(&responses).await);
                    drop(stream.flush().await);
                }
            }
        }
    }

    /// The recorded response to the first request of this kind that is left, with the id of this one.
    fn respond(&mut self, frame: &Bytes) -> Vec<Bytes> {
        let ToBridge { id, body } = message(frame).unwrap();
        let response = |body| message_frame(&FromBridge { id, body: Some(body) }).unwrap();
        let body = match body {
            Some(to_bridge::Body::Ping(_)) => {
                return vec![response(from_bridge::Body::Pong(Empty {}))];
            }
            body => body,
        };
        let is_same =
            |one: &to_bridge::Body| body.as_ref().map(discriminant) == Some(discriminant(one));
        let Some(at) = self.exchanges.iter().position(|(one, _)| is_same(one)) else {
            let refused = Refused { code: 1, text: "the recording has no such request".to_owned() };
            return vec![response(from_bridge::Body::Refused(refused))];
        };
        let recorded = self.exchanges.remove(at).1;
        let then: FromBridge = message(&recorded).unwrap();
        let mut frames = match then.id == id {
            true => vec![recorded],
            false => vec![response(then.body.unwrap())],
        };
        frames.append(&mut self.unsolicited);
        frames
    }
}

/// Runs this build's clients against a recorded bridge.
pub(super) async fn replay_to_clients(lines: &[Line]) {
    let secret = Secret::generate().unwrap();
    let mut played = play(lines, SHARER).await;
    let registered = registration(played.address, TOKENS[0], &secret).await.unwrap();
    let from_bridge::Body::Registered(then) = played.first else { panic!("{:?}", played.first) };
    assert_eq!(registered.observed(), then.observed);
    assert!(!played.demanded.is_empty());
    while !played.demanded.is_empty() {
        let id = timeout(PATIENCE, played.arrived.recv()).await.unwrap().unwrap();
        assert!(played.demanded.remove(&id[..]), "{id:?} was not requested");
    }

    let mut played = play(lines, RECEIVER).await;
    let joiner = Joiner::new(played.address, secret.clone(), Handle::current()).unwrap();
    let from_bridge::Body::Joined(then) = played.first else { panic!("{:?}", played.first) };
    for _ in 0..2 {
        let connection = joiner.connect().await.unwrap();
        timeout(PATIENCE, played.arrived.recv()).await.unwrap().unwrap();
        let refused = timeout(Duration::from_millis(500), connection.outcome.refused()).await;
        assert!(refused.is_err(), "{refused:?}");
    }
    let observed = joiner.observed().unwrap();
    assert_eq!((observed.own, observed.sharer), (then.observed, then.sharer_observed));

    let played = play(lines, UNAUTHENTICATED).await;
    let error = registration(played.address, TOKENS[1], &secret).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");

    let played = play(lines, OFFERER).await;
    let builder = CodeOffer::builder(played.address, ticket());
    let (_offer, code) = builder.token(Some(Token::new(TOKENS[0]))).start().await.unwrap();
    let from_bridge::Body::Offered(then) = played.first else { panic!("{:?}", played.first) };
    assert_eq!(code.number(), then.number);

    let played = play(lines, GUESSER).await;
    let error = fetch(&played.address, &unknown_code()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}
