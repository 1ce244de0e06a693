//! Serves a signalling connection: of a sharer that registers rooms or offers a spoken code, or of a client that joins
//! a room or uses a code. A client announces its data connections here, and the bridge forwards the announcement to the
//! sharer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use haul_net::{Admitted, Running};
use haul_storage::{Error, ErrorKind, Result};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::{Instant as TokioInstant, sleep, sleep_until};
use tokio_rustls::server::TlsStream;

use super::super::channel::Channel;
use super::super::messages::{
    self, CANDIDATE_MAX, CANDIDATES_MAX, CONNECTIONS_MAX, FromBridge, Incoming, MIN_VERSION,
    ROOMS_MAX, Refusal, ToBridge, VERSION, from_bridge, to_bridge,
};
use super::super::preamble::{ConnectionId, random_id};
use super::super::room::{Room, RoomKey};
use super::action::BridgeAction;
use super::metrics::{Counted, Fault, Gauge};
use super::pairing::{Crossing, Pair};
use super::rooms::{Rooms, Sharer, SharerRegistration, ToPeer};
use super::shared::Bridge;
use crate::tls;
use crate::wire::convert::fixed;
use crate::wire::messages::Empty;

/// Maximum messages that wait to be sent to a sharer.
const INCOMING: usize = 64;

/// A connection is closed after this many refused requests. Up to three are normal: a client tries the rooms of three
/// days.
const REFUSALS: u32 = 4;

/// Serves a signalling connection until it ends.
pub(super) async fn serve(
    bridge: &Arc<Bridge>,
    socket: TcpStream,
    (from, admitted): (SocketAddr, Admitted),
    running: Running,
) -> Result<()> {
    let handshake = tls::accept(socket, Arc::clone(&bridge.tls), bridge.limits.handshake).await;
    let stream = handshake.map_err(|error| {
        bridge.metrics.failed(Fault::Handshake);
        tls::explain(error, &from.to_string())
    })?;
    let connection = stream.get_ref().1;
    let exporter = tls::exporter(connection)?;
    let client_key = tls::peer_key(connection)
        .ok_or_else(|| Error::new(ErrorKind::Unauthenticated, "verify the client"))?;
    let mut caller = Caller {
        bridge: Arc::clone(bridge),
        from,
        exporter,
        client_key,
        admitted,
        channel: Channel::new(stream),
        role: Role::None,
        refusals: 0,
        running,
    };
    let outcome = caller.serve_requests().await;
    if let Role::Sharer(_) = caller.role {
        bridge.observer.notify(from, BridgeAction::Unregistered);
    }
    if outcome.is_ok() {
        caller.channel.close().await;
    }
    outcome
}

/// The other side of a signalling connection.
struct Caller {
    bridge: Arc<Bridge>,
    from: SocketAddr,
    exporter: [u8; 32],
    client_key: [u8; 32],
    admitted: Admitted,
    channel: Channel<TlsStream<TcpStream>>,
    role: Role,
    refusals: u32,
    running: Running,
}

/// The role of the other side: `None` until a request makes it a sharer, or a client in a room.
enum Role {
    None,
    Sharer(Registered),
    Client(Joined),
}

/// A registered sharer.
struct Registered {
    registration: SharerRegistration,
    incoming: Receiver<from_bridge::Body>,
    _counted: Counted,
}

/// A client that has joined a room.
struct Joined {
    /// The room; the client has proved that it knows the key.
    room: Room,
    sharer: Arc<Sharer>,
    /// Messages with the sharer's addresses for crossings, from the tasks of data connections.
    crosses: (ToPeer, Receiver<from_bridge::Body>),
}

impl Joined {
    /// Switches to the sharer's new connection, if it has lost the earlier one and registered the room again.
    fn follow(&mut self, rooms: &Rooms) {
        if let Some((key, sharer)) = rooms.find(&self.room.name)
            && key == self.room.key
        {
            self.sharer = sharer;
        }
    }
}

impl Role {
    /// The next message from other tasks for the other side; waits forever without a role.
    async fn incoming(&mut self) -> from_bridge::Body {
        let received = match self {
            Self::None => None,
            Self::Sharer(sharer) => sharer.incoming.recv().await,
            Self::Client(client) => client.crosses.1.recv().await,
        };
        match received {
            Some(message) => message,
            None => std::future::pending().await,
        }
    }
}

impl Caller {
    /// Handles requests until the other side closes the connection or is refused too often, or the bridge stops, which
    /// is announced to sharers.
    async fn serve_requests(&mut self) -> Result<()> {
        let mut last_received = TokioInstant::now();
        loop {
            let limits = &self.bridge.limits;
            let is_new = matches!(self.role, Role::None);
            let limit = if is_new { limits.handshake } else { limits.silence };
            tokio::select! {
                message = self.channel.next::<ToBridge>() => {
                    let Some(message) = message? else { return Ok(()) };
                    last_received = TokioInstant::now();
                    self.message(message).await?;
                    if self.refusals >= REFUSALS {
                        return Ok(());
                    }
                }
                incoming = self.role.incoming() => self.send(0, incoming).await?,
                () = self.running.stopped() => {
                    return match self.role {
                        Role::Sharer(_) => self.send_goodbye().await,
                        Role::Client(_) | Role::None => Ok(()),
                    };
                }
                () = sleep_until(last_received + limit) => {
                    return Err(Error::new(ErrorKind::Unreachable, "talk to the client")
                        .because("nothing was received for too long"));
                }
            }
        }
    }

    async fn message(&mut self, message: ToBridge) -> Result<()> {
        let id = message.id;
        let outcome = match message.body {
            Some(to_bridge::Body::Register(request)) => self.register(&request),
            Some(to_bridge::Body::Join(request)) => self.join(&request).await,
            Some(to_bridge::Body::Connect(request)) => self.connect(&request).await,
            Some(to_bridge::Body::Offer(request)) => self.offer(&request),
            Some(to_bridge::Body::Meet(request)) => self.meet(&request).await,
            Some(to_bridge::Body::Ping(_)) => Ok(from_bridge::Body::Pong(Empty {})),
            // A request of a later version.
            None => Err(Refusal::Other),
        };
        let body = outcome.unwrap_or_else(|refusal| {
            self.refusals += 1;
            // A client whose sharer has left has to join again, perhaps the room of another day.
            let has_left = refusal == Refusal::Room && matches!(self.role, Role::Client(_));
            if refusal == Refusal::Token || has_left {
                self.refusals = REFUSALS;
            }
            self.bridge.metrics.refused(refusal);
            let text = refusal.text();
            self.bridge.observer.notify(self.from, BridgeAction::Refused(text));
            let code = refusal.number();
            from_bridge::Body::Refused(messages::Refused { code, text: text.to_owned() })
        });
        self.send(id, body).await
    }

    /// Sends `Busy`, so that the sharer returns later: the bridge may be restarted.
    async fn send_goodbye(&mut self) -> Result<()> {
        let (code, text) = (Refusal::Busy.number(), "the bridge is being stopped".to_owned());
        self.send(0, from_bridge::Body::Refused(messages::Refused { code, text })).await
    }

    async fn send(&mut self, id: u32, body: from_bridge::Body) -> Result<()> {
        self.channel.send(&FromBridge { id, body: Some(body) }).await
    }

    fn register(&mut self, request: &messages::Register) -> Result<from_bridge::Body, Refusal> {
        check_version(request.min_version, request.max_version)?;
        self.check_token(&request.token_proof)?;
        if request.rooms.is_empty() || request.rooms.len() > ROOMS_MAX {
            return Err(Refusal::Invalid);
        }
        let rooms = request.rooms.iter().map(|offer| {
            let key = RoomKey::new(fixed(&offer.key, "key")?);
            Ok(Room { name: fixed(&offer.name, "name")?, key })
        });
        let rooms: Result<Vec<Room>> = rooms.collect();
        let rooms = rooms.map_err(|_| Refusal::Invalid)?;
        match &mut self.role {
            Role::Client(_) => return Err(Refusal::Invalid),
            Role::Sharer(sharer) if sharer.registration.code().is_some() => {
                return Err(Refusal::Invalid);
            }
            Role::Sharer(sharer) => sharer.registration.replace(rooms)?,
            Role::None => {
                let (sender, incoming) = channel(INCOMING);
                let meter = self.bridge.accounts.meter(self.from);
                let registration = self.bridge.rooms.enter(rooms, (self.from, sender, meter))?;
                self.registered(registration, incoming);
            }
        }
        let (observed, ttl_seconds) = (self.from.to_string(), self.ttl());
        Ok(from_bridge::Body::Registered(messages::Registered { observed, ttl_seconds }))
    }

    fn offer(&mut self, request: &messages::Offer) -> Result<from_bridge::Body, Refusal> {
        check_version(request.min_version, request.max_version)?;
        self.check_token(&request.token_proof)?;
        if !matches!(self.role, Role::None) {
            return Err(Refusal::Invalid);
        }
        let key = RoomKey::new(fixed(&request.key, "key").map_err(|_| Refusal::Invalid)?);
        let (sender, incoming) = channel(INCOMING);
        let meter = self.bridge.accounts.meter(self.from);
        let offer = (request.number, key);
        let registration = self.bridge.rooms.offer(offer, (self.from, sender, meter))?;
        let number = registration.code().ok_or(Refusal::Other)?;
        self.registered(registration, incoming);
        let ttl_seconds = self.ttl();
        Ok(from_bridge::Body::Offered(messages::Offered { number, ttl_seconds }))
    }

    /// The caller has become a sharer.
    fn registered(
        &mut self,
        registration: SharerRegistration,
        incoming: Receiver<from_bridge::Body>,
    ) {
        let counted = self.bridge.metrics.counted(Gauge::Sharers);
        self.role = Role::Sharer(Registered { registration, incoming, _counted: counted });
        self.admitted.mark_authenticated();
        self.bridge.observer.notify(self.from, BridgeAction::Registered);
    }

    fn check_token(&self, proof: &[u8]) -> Result<(), Refusal> {
        match &self.bridge.token {
            Some(token) if !token.verify(&self.exporter, &self.client_key, proof) => {
                Err(Refusal::Token)
            }
            _ => Ok(()),
        }
    }

    fn ttl(&self) -> u32 {
        u32::try_from(self.bridge.limits.silence.as_secs()).unwrap_or(u32::MAX)
    }

    async fn join(&mut self, request: &messages::Join) -> Result<from_bridge::Body, Refusal> {
        check_version(request.min_version, request.max_version)?;
        if !matches!(self.role, Role::None) {
            return Err(Refusal::Invalid);
        }
        if !self.bridge.joins.allows(self.from, Instant::now()) {
            return Err(Refusal::Rate);
        }
        let name = fixed(&request.name, "name").map_err(|_| Refusal::Invalid)?;
        let (key, sharer) = self.bridge.rooms.find(&name).ok_or(Refusal::Room)?;
        if !key.verify(&self.exporter, &self.client_key, &request.mac) {
            return Err(Refusal::Mac);
        }
        let crosses = channel(CONNECTIONS_MAX);
        let announced = Announced {
            connections: &request.connections,
            reverse: &request.reverse,
            crossings: &request.crossings,
            candidates: candidates(&request.candidates)?,
            to_joiner: Some(&crosses.0),
        };
        announce(&self.bridge, self.from, &sharer, announced).await?;
        let joined = messages::Joined {
            observed: self.from.to_string(),
            sharer_observed: sharer.from.to_string(),
        };
        self.role = Role::Client(Joined { room: Room { name, key }, sharer, crosses });
        self.admitted.mark_authenticated();
        self.bridge.metrics.joins.fetch_add(1, Ordering::Relaxed);
        self.bridge.observer.notify(self.from, BridgeAction::Joined);
        Ok(from_bridge::Body::Joined(joined))
    }

    /// Announces a client's connection to the sharer of a code. The client proves nothing to the bridge, does not learn
    /// the sharer's address, and has no room afterwards.
    async fn meet(&mut self, request: &messages::Meet) -> Result<from_bridge::Body, Refusal> {
        check_version(request.min_version, request.max_version)?;
        if !matches!(self.role, Role::None) {
            return Err(Refusal::Invalid);
        }
        let now = Instant::now();
        if !self.bridge.codes.allows(self.from, now) || !self.bridge.joins.allows(self.from, now) {
            return Err(Refusal::Rate);
        }
        let sharer = self.bridge.rooms.find_code(request.number).ok_or(Refusal::Room)?;
        let connections = std::slice::from_ref(&request.connection);
        let announced = Announced { connections, ..Announced::default() };
        announce(&self.bridge, self.from, &sharer, announced).await?;
        self.bridge.metrics.joins.fetch_add(1, Ordering::Relaxed);
        self.bridge.observer.notify(self.from, BridgeAction::Joined);
        let observed = self.from.to_string();
        Ok(from_bridge::Body::Joined(messages::Joined { observed, ..Default::default() }))
    }

    async fn connect(&mut self, request: &messages::Connect) -> Result<from_bridge::Body, Refusal> {
        let Role::Client(joined) = &mut self.role else { return Err(Refusal::Invalid) };
        joined.follow(&self.bridge.rooms);
        let sharer = Arc::clone(&joined.sharer);
        let to_joiner = joined.crosses.0.clone();
        let announced = Announced {
            connections: &request.connections,
            reverse: &request.reverse,
            crossings: &request.crossings,
            candidates: candidates(&request.candidates)?,
            to_joiner: Some(&to_joiner),
        };
        let is_empty = announced.count() == 0;
        announce(&self.bridge, self.from, &sharer, announced).await?;
        if !is_empty {
            // Occasional refusals must not add up over a long connection.
            self.refusals = 0;
        }
        Ok(from_bridge::Body::Joined(messages::Joined::default()))
    }
}

/// What a client announces to the sharer.
#[derive(Debug, Default)]
struct Announced<'a> {
    connections: &'a [Bytes],
    reverse: &'a [Bytes],
    crossings: &'a [Bytes],
    candidates: Vec<String>,
    /// The client's signalling connection, for crossings.
    to_joiner: Option<&'a ToPeer>,
}

impl Announced<'_> {
    /// Connections of all kinds.
    const fn count(&self) -> usize {
        self.connections.len() + self.reverse.len() + self.crossings.len()
    }
}

/// Announces a client's connections to the sharer.
async fn announce(
    bridge: &Arc<Bridge>,
    from: SocketAddr,
    sharer: &Arc<Sharer>,
    announced: Announced<'_>,
) -> Result<(), Refusal> {
    let is_invalid = |id: &Bytes| fixed::<32>(id, "connection").is_err();
    if announced.count() > CONNECTIONS_MAX || announced.reverse.iter().any(is_invalid) {
        return Err(Refusal::Invalid);
    }
    if sharer.meter.is_used_up() {
        return Err(Refusal::Quota);
    }
    if announced.count() == 0 && announced.candidates.is_empty() {
        return Ok(());
    }
    let mut expected = Vec::new();
    let outcome = expect(bridge, from, sharer, &announced, &mut expected);
    let outcome = match outcome {
        Ok((connections, crossings)) => {
            let incoming = Incoming {
                connections,
                joiner_observed: from.to_string(),
                candidates: announced.candidates,
                reverse: announced.reverse.to_vec(),
                crossings,
            };
            sharer.request(from_bridge::Body::Incoming(incoming), bridge.limits.claim).await
        }
        Err(refusal) => Err(refusal),
    };
    if outcome.is_err() {
        bridge.pairing.expire(&expected);
        return outcome;
    }
    let bridge = Arc::clone(bridge);
    tokio::spawn(async move {
        sleep(bridge.limits.claim).await;
        if bridge.pairing.expire(&expected) {
            bridge.metrics.failed(Fault::Unclaimed);
        }
    });
    Ok(())
}

/// Registers the data connections to expect. Returns the numbers of the sharer's connections: those to be joined, and
/// those for crossings. Adds all registered numbers to `expected`, even if a later connection is refused.
fn expect(
    bridge: &Bridge,
    from: SocketAddr,
    sharer: &Arc<Sharer>,
    announced: &Announced<'_>,
    expected: &mut Vec<ConnectionId>,
) -> Result<(Vec<Bytes>, Vec<Bytes>), Refusal> {
    let mut one = |id: &Bytes, to_joiner: Option<&ToPeer>| -> Result<Bytes, Refusal> {
        let id: ConnectionId = fixed(id, "connection").map_err(|_| Refusal::Invalid)?;
        let connected = sharer.connection(from.ip(), &bridge.limits).ok_or(Refusal::Busy)?;
        let other = random_id().map_err(|_| Refusal::Other)?;
        let crossing = to_joiner.map(|to_joiner| Crossing {
            joiner: (id, to_joiner.clone()),
            sharer: (other, sharer.signalling()),
        });
        let pair = Pair::new(connected, crossing);
        if !bridge.pairing.claim(id, &pair) {
            return Err(Refusal::Invalid);
        }
        bridge.pairing.claim(other, &pair);
        expected.extend([id, other]);
        Ok(Bytes::copy_from_slice(&other))
    };
    let connections = announced.connections.iter().map(|id| one(id, None));
    let connections = connections.collect::<Result<Vec<Bytes>, Refusal>>()?;
    let crossings = match announced.to_joiner {
        Some(to_joiner) => {
            let crossings = announced.crossings.iter().map(|id| one(id, Some(to_joiner)));
            crossings.collect::<Result<Vec<Bytes>, Refusal>>()?
        }
        None => Vec::new(),
    };
    Ok((connections, crossings))
}

fn check_version(min: u32, max: u32) -> Result<(), Refusal> {
    if min <= VERSION && max >= MIN_VERSION { Ok(()) } else { Err(Refusal::Version) }
}

/// The addresses on which a client states that it listens, without malformed ones.
///
/// # Errors
/// `Invalid` if there are too many, or one is too long.
fn candidates(texts: &[String]) -> Result<Vec<String>, Refusal> {
    if texts.len() > CANDIDATES_MAX || texts.iter().any(|text| text.len() > CANDIDATE_MAX) {
        return Err(Refusal::Invalid);
    }
    let addresses = texts.iter().filter_map(|text| text.parse::<SocketAddr>().ok());
    Ok(addresses.map(|address| address.to_string()).collect())
}
