//! The sharer's side: it keeps its rooms registered, and opens data connections for clients.
//!
//! ```text
//! connect → Register → Incoming → data connection, or one to the client → accept (a lane of the PeerServer)
//!    ↑                    │
//!    └── lost: pause ─────┘
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use haul_net::Observer;
use haul_storage::{Error, ErrorKind, Result};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::channel::lost;
use super::messages::{
    FromBridge, Incoming, MIN_VERSION, ROOMS_MAX, Register, RoomOffer, VERSION, from_bridge,
    to_bridge,
};
use super::outward::{Accept, IsWanted, Outward};
use super::preamble::ConnectionId;
use super::room::{Room, TokenKey, epoch, epochs};
use super::signal::{
    KEEPALIVE, PATIENCE, SILENCE, Signalling, introduce, key, refusal, unexpected,
};
use crate::lane;
use crate::lock::lock;
use crate::ticket::{BridgeAddress, Secret};
use crate::wire::convert::{clipped, fixed};

/// Pauses between attempts to connect again: the first, and the longest.
pub(super) const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// A connection that has lasted this long was a success: the next pause is short again.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// Maximum data connections being opened. Further ones wait, and nothing is read from the bridge meanwhile.
const OPENING: usize = 128;

/// An event of a registration.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum RegistrationEvent {
    /// The bridge has accepted the rooms, at the start or again.
    Registered {
        /// Address and port from which the bridge sees this machine.
        observed: String,
    },
    /// The connection to the bridge was lost, or could not be opened again. The next attempt follows.
    Lost {
        /// The reason.
        cause: String,
    },
}

/// A sharer's registration at a bridge. It ends when it is dropped; lanes that clients have opened continue.
pub struct Registration {
    observed: Arc<Mutex<String>>,
    task: JoinHandle<()>,
}

/// Options of a registration.
pub struct RegistrationBuilder {
    bridge: BridgeAddress,
    token: Option<haul_net::Secret>,
    secrets: Vec<Secret>,
    dials_back: Option<IsWanted>,
    observer: Observer<RegistrationEvent>,
}

impl Registration {
    /// A registration at `bridge`, whose key must be known.
    pub fn builder(bridge: BridgeAddress) -> RegistrationBuilder {
        RegistrationBuilder {
            bridge,
            token: None,
            secrets: Vec::new(),
            dials_back: None,
            observer: Observer::default(),
        }
    }

    /// Address and port from which the bridge sees this machine.
    pub fn observed(&self) -> String {
        lock(&self.observed).clone()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for RegistrationBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistrationBuilder").field("bridge", &self.bridge).finish_non_exhaustive()
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registration({})", self.observed())
    }
}

impl RegistrationBuilder {
    /// Most tickets of a registration.
    pub const SECRETS_MAX: usize = ROOMS_MAX / 3;

    /// The bridge's token, if it requires one.
    #[must_use]
    pub fn token(mut self, token: Option<haul_net::Secret>) -> Self {
        self.token = token;
        self
    }

    /// Adds a ticket by its secret.
    #[must_use]
    pub fn secret(mut self, secret: Secret) -> Self {
        self.secrets.push(secret);
        self
    }

    /// Connects to clients that cannot reach this machine: to the addresses at which they listen, and by simultaneous
    /// open. They learn this machine's address, and choose the addresses to which it connects. So it connects only
    /// while `is_wanted`, which may block, returns true ([`Acceptor::has_valid_ticket_or_session`]). Off by default.
    ///
    /// [`Acceptor::has_valid_ticket_or_session`]: crate::server::Acceptor::has_valid_ticket_or_session
    #[must_use]
    pub fn dial_back(mut self, is_wanted: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.dials_back = Some(Arc::new(is_wanted));
        self
    }

    /// Sets a callback for events, with the bridge's address. It must not block.
    #[must_use]
    pub fn observer(
        mut self,
        callback: impl Fn(haul_net::ClientEvent<RegistrationEvent>) + Send + Sync + 'static,
    ) -> Self {
        self.observer = Observer::new(callback);
        self
    }

    /// Registers, and reconnects from then on whenever the connection to the bridge is lost. `accept` is called with
    /// each connection of a client, and the client's address: the one that the bridge sees, or that was dialled.
    ///
    /// Must be called within a tokio runtime, on which the registration runs.
    ///
    /// # Errors
    /// If the bridge's key is unknown, or the bridge cannot be reached, has another key, or refuses the registration;
    /// or if there is no ticket, or more than [`RegistrationBuilder::SECRETS_MAX`].
    pub async fn start(
        self,
        accept: impl Fn(TcpStream, SocketAddr) + Send + Sync + 'static,
    ) -> Result<Registration> {
        key(&self.bridge)?;
        if self.secrets.is_empty() || self.secrets.len() > Self::SECRETS_MAX {
            return Err(Error::new(ErrorKind::InvalidInput, "use the bridge")
                .at(&self.bridge)
                .because(format!("it takes 1 to {} tickets", Self::SECRETS_MAX)));
        }
        let accept: Accept = Arc::new(accept);
        let sharer = Sharer {
            token: self.token.map(|token| TokenKey::new(token.expose())).transpose()?,
            bridge: self.bridge,
            secrets: self.secrets,
            observer: self.observer,
            observed: Arc::default(),
            opening: Arc::new(Semaphore::new(OPENING)),
            outward: self.dials_back.map(|wanted| Outward::new(Arc::clone(&accept), wanted)),
            accept,
        };
        let signalling = sharer.register().await?;
        let observed = Arc::clone(&sharer.observed);
        Ok(Registration { observed, task: tokio::spawn(sharer.run(signalling)) })
    }
}

/// The state of the sharer's task.
struct Sharer {
    bridge: BridgeAddress,
    token: Option<TokenKey>,
    secrets: Vec<Secret>,
    observer: Observer<RegistrationEvent>,
    observed: Arc<Mutex<String>>,
    opening: Arc<Semaphore>,
    accept: Accept,
    /// Connects to clients, if that is allowed, and as long as the callback permits it.
    outward: Option<Outward>,
}

impl Sharer {
    async fn run(self, mut signalling: Signalling) {
        let mut pause = PAUSES.0;
        loop {
            let (at, start) = (signalling.at, Instant::now());
            let lost = self.serve(signalling).await;
            self.observer.notify(at, RegistrationEvent::Lost { cause: lost.to_string() });
            if start.elapsed() >= STABLE_AFTER {
                pause = PAUSES.0;
            }
            signalling = loop {
                sleep(jittered(pause)).await;
                pause = (pause * 2).min(PAUSES.1);
                match self.register().await {
                    Ok(signalling) => break signalling,
                    Err(error) => {
                        let cause = error.to_string();
                        self.observer.notify(at, RegistrationEvent::Lost { cause });
                    }
                }
            };
        }
    }

    /// Connects and registers.
    async fn register(&self) -> Result<Signalling> {
        let mut signalling = Box::pin(Signalling::open(&self.bridge)).await?;
        let request = self.request(&signalling)?;
        match signalling.request(request).await.map_err(|error| error.at(&self.bridge))? {
            from_bridge::Body::Registered(registered) => {
                let observed = clipped(&registered.observed);
                let mut last = lock(&self.observed);
                last.clone_from(&observed);
                drop(last);
                self.observer.notify(signalling.at, RegistrationEvent::Registered { observed });
                Ok(signalling)
            }
            from_bridge::Body::Refused(refused) => Err(refusal(&refused, &self.bridge)),
            _ => Err(unexpected(&self.bridge)),
        }
    }

    /// A Register with the rooms of today, yesterday and tomorrow.
    fn request(&self, signalling: &Signalling) -> Result<to_bridge::Body> {
        let days = epochs(SystemTime::now());
        let pairs = self.secrets.iter().flat_map(|one| days.iter().map(move |day| (one, *day)));
        let rooms = pairs.map(|(secret, day)| {
            let room = Room::new(secret, day)?;
            Ok(RoomOffer {
                name: Bytes::copy_from_slice(&room.name),
                key: Bytes::copy_from_slice(room.key.expose()),
            })
        });
        let rooms = rooms.collect::<Result<_>>()?;
        Ok(to_bridge::Body::Register(Register {
            min_version: MIN_VERSION,
            max_version: VERSION,
            token_proof: signalling.token_proof(self.token.as_ref()),
            rooms,
        }))
    }

    /// Opens data connections as the bridge requests, until the connection to it is lost. Returns why.
    async fn serve(&self, mut signalling: Signalling) -> Error {
        let mut registered = epoch(SystemTime::now());
        let mut wanted = VecDeque::new();
        let mut last_received = Instant::now();
        let mut keepalive = interval(KEEPALIVE);
        // After a suspension, one ping is enough.
        keepalive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.open_next(&mut wanted), if !wanted.is_empty() => {
                    // Messages that the bridge has sent meanwhile are not yet read.
                    last_received = Instant::now();
                }
                message = signalling.channel.next::<FromBridge>(), if wanted.is_empty() => {
                    last_received = Instant::now();
                    let body = match message {
                        Ok(Some(message)) => message.body,
                        Ok(None) => return lost(&io::ErrorKind::UnexpectedEof.into()),
                        Err(error) => return error,
                    };
                    match body {
                        Some(from_bridge::Body::Incoming(incoming)) => {
                            wanted.extend(Wanted::all(&incoming, signalling.at));
                            self.dial_back(&incoming, signalling.at);
                        }
                        Some(from_bridge::Body::Cross(cross)) => {
                            if let Some(outward) = &self.outward {
                                outward.crossed(cross);
                            }
                        }
                        Some(from_bridge::Body::Refused(refused)) => {
                            return refusal(&refused, &self.bridge);
                        }
                        _ => {}
                    }
                }
                _ = keepalive.tick() => {
                    if last_received.elapsed() > SILENCE {
                        return lost(&io::ErrorKind::TimedOut.into());
                    }
                    let today = epoch(SystemTime::now());
                    let sent = match today == registered {
                        true => signalling.ping().await,
                        false => match self.request(&signalling) {
                            Ok(request) => signalling.send(0, request).await,
                            Err(error) => Err(error),
                        },
                    };
                    registered = today;
                    if let Err(error) = sent {
                        return error;
                    }
                }
            }
        }
    }

    /// Connects to a client as it requests, if that is allowed.
    fn dial_back(&self, incoming: &Incoming, bridge: SocketAddr) {
        let Some(outward) = &self.outward else { return };
        let observed = lock(&self.observed);
        let own = observed.parse::<SocketAddr>().ok().map(|own| own.ip());
        drop(observed);
        outward.incoming(incoming, bridge, own);
    }

    /// Opens the first of these data connections, as soon as fewer than [`OPENING`] are being opened. If the future is
    /// dropped, nothing is lost.
    async fn open_next(&self, wanted: &mut VecDeque<Wanted>) {
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&self.opening).acquire_owned().await else { return };
        let Some(Wanted { id, at, from }) = wanted.pop_front() else { return };
        let accept = Arc::clone(&self.accept);
        tokio::spawn(async move {
            // The reason of a failure is not reported: the bridge closes the client's connection.
            if let Ok(Ok(stream)) = timeout(PATIENCE, connect(at, id)).await {
                accept(stream, from);
            }
            drop(permit);
        });
    }
}

/// A data connection that the bridge requests.
struct Wanted {
    id: ConnectionId,
    /// The bridge's address.
    at: SocketAddr,
    /// The client's address.
    from: SocketAddr,
}

impl Wanted {
    /// The data connections of a client's request.
    fn all(incoming: &Incoming, at: SocketAddr) -> impl Iterator<Item = Self> {
        let from = incoming.joiner_observed.parse().unwrap_or(at);
        let ids = incoming.connections.iter().filter_map(|id| fixed(id, "connection").ok());
        ids.map(move |id| Self { id, at, from })
    }
}

/// A data connection to the bridge at an address, with its preamble.
pub(super) async fn connect(at: SocketAddr, id: ConnectionId) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(at).await.map_err(|error| lost(&error))?;
    lane::set(&stream).map_err(|error| lost(&error))?;
    introduce(&mut stream, &id).await?;
    Ok(stream)
}

/// Between a half and the whole of a pause, so that the clients of a restarted bridge do not reconnect all at once.
pub(super) fn jittered(pause: Duration) -> Duration {
    let mut byte = [0];
    // Without random numbers, this is the whole pause.
    let share = aws_lc_rs::rand::fill(&mut byte).map_or(1.0, |()| f64::from(byte[0]) / 255.0);
    pause.mul_f64(0.5 + share / 2.0)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::super::preamble;
    use super::*;

    #[test]
    fn a_pause_varies_by_half() {
        let pauses: Vec<_> = (0..64).map(|_| jittered(Duration::from_secs(10))).collect();
        let range = Duration::from_secs(5)..=Duration::from_secs(10);
        assert!(pauses.iter().all(|pause| range.contains(pause)), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause != pauses[0]));
    }

    #[tokio::test]
    async fn a_bridge_without_a_key_is_not_connected_to() {
        let bridge = BridgeAddress::new("bridge.invalid", 1).unwrap();
        let registration = Registration::builder(bridge).secret(Secret::new([7; 16]));
        let error = registration.start(|_, _| {}).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }

    /// A sharer without permits to open data connections.
    fn sharer(outward: Option<Outward>) -> Sharer {
        Sharer {
            bridge: BridgeAddress::new("bridge.invalid", 1).unwrap(),
            token: None,
            secrets: Vec::new(),
            observer: Observer::default(),
            observed: Arc::default(),
            opening: Arc::new(Semaphore::new(0)),
            accept: Arc::new(|_, _| {}),
            outward,
        }
    }

    /// Formerly, the holder of an expired or used ticket could have the sharer connect to addresses.
    #[tokio::test]
    async fn a_sharer_does_not_connect_to_clients_of_an_expired_ticket() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let incoming = Incoming {
            candidates: vec![at.to_string()],
            reverse: vec![Bytes::from_static(&[1; 32])],
            ..Incoming::default()
        };
        for is_wanted in [false, true] {
            let outward = Outward::new(Arc::new(|_, _| {}), Arc::new(move || is_wanted));
            let sharer = sharer(Some(outward));
            sharer.dial_back(&incoming, at);
            let limit = Duration::from_millis(if is_wanted { 60_000 } else { 50 });
            assert_eq!(timeout(limit, listener.accept()).await.is_ok(), is_wanted);
        }
    }

    /// Formerly, data connections beyond the limit were dropped, and their clients waited in vain.
    #[tokio::test]
    async fn data_connections_wait_until_earlier_ones_are_open() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let sharer = sharer(None);
        let ids: [ConnectionId; 3] = [[1; 32], [2; 32], [3; 32]];
        let connections = ids.iter().map(|id| Bytes::copy_from_slice(id)).collect();
        let incoming = Incoming { connections, ..Incoming::default() };
        let mut wanted: VecDeque<Wanted> = Wanted::all(&incoming, at).collect();
        let opening = timeout(Duration::from_millis(50), sharer.open_next(&mut wanted));
        assert!(opening.await.is_err());
        assert_eq!(wanted.len(), 3);
        // One at a time.
        sharer.opening.add_permits(1);
        for id in ids {
            sharer.open_next(&mut wanted).await;
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut received = preamble::encode(&[0; 32]);
            stream.read_exact(&mut received).await.unwrap();
            assert!(received == preamble::encode(&id));
        }
        assert!(wanted.is_empty());
    }
}
