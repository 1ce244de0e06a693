//! The client's side: it joins the sharer's room, and opens data connections that the bridge joins with the sharer's.
//! With the bridge's help it also gets direct connections to the sharer: the sharer connects to it, or both connect to
//! each other at the same time.

use std::collections::VecDeque;
use std::fmt;
use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use haul_net::Dialled;
use haul_storage::{Error, ErrorKind, Result, Retry};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use super::candidate::DialPolicy;
use super::channel::lost;
use super::crossing::{Pace, Port, wait};
use super::expected::{Awaited, Expected};
use super::listener::Listener;
use super::messages::{
    CONNECTIONS_MAX, Connect, Cross, FromBridge, Join, Joined, MIN_VERSION, Refusal, VERSION,
    from_bridge, to_bridge,
};
use super::preamble::{ConnectionId, random_id};
use super::room::{Room, epochs};
use super::signal::{
    KEEPALIVE, PATIENCE, SILENCE, Signalling, introduce, key, refusal, tcp, unexpected,
};
use crate::lane;
use crate::lock::lock;
use crate::ticket::{Address, BridgeAddress, Secret};
use crate::wire::convert::{clipped, fixed};

/// How long to wait for the sharer to connect, and for the bridge to bring two ports together.
const ARRIVAL: Duration = Duration::from_secs(10);

/// Opens data connections to a sharer through a bridge. There is one signalling connection for all of them; it is
/// opened with the first one, and again if it was lost.
pub struct Joiner {
    bridge: BridgeAddress,
    secret: Secret,
    runtime: Handle,
    /// Sends to the signalling connection's task, once that was started.
    announce: Mutex<Option<UnboundedSender<Announcement>>>,
    view: Arc<Mutex<BridgeView>>,
    /// The port for the sharer's connections, once one was requested.
    listening: Mutex<Option<Listening>>,
    crosses: Expected<Cross>,
    pace: Pace,
}

/// A port for the sharer's connections.
#[derive(Debug)]
struct Listening {
    listener: Listener,
    /// The address at which the last connection arrived: further ones are requested for it only.
    reached: Option<SocketAddr>,
}

/// What this side has learnt from the bridge.
#[derive(Debug, Default)]
struct BridgeView {
    /// The bridge's address that was reached.
    at: Option<SocketAddr>,
    observed: Option<Observed>,
}

/// Where the bridge sees both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    /// Address and port of this machine.
    pub own: String,
    /// Address and port of the sharer.
    pub sharer: String,
}

/// A data connection. Bytes written to it reach the sharer as soon as the bridge has joined it with the sharer's, so
/// the handshake of a lane can begin at once.
#[derive(Debug)]
pub struct Connection {
    /// The connection to the bridge.
    pub stream: TcpStream,
    /// RTT to the bridge; that to the sharer is not known.
    pub rtt: Duration,
    /// Whether the bridge joins it.
    pub outcome: Outcome,
}

/// Whether the bridge joins a data connection with the sharer's.
#[derive(Debug)]
pub struct Outcome(oneshot::Receiver<Result<()>>);

impl Outcome {
    /// Waits until the bridge has refused the connection or was lost before its response, and returns why; never
    /// returns otherwise. Poll it beside the handshake of the lane, which can only time out after a refusal.
    pub async fn refused(self) -> Error {
        match self.0.await {
            Ok(Err(error)) => error,
            // Accepted, or the signalling connection's task has ended with the joiner or the runtime.
            _ => pending().await,
        }
    }
}

/// A connection to announce.
struct Announcement {
    id: ConnectionId,
    kind: Kind,
    outcome: oneshot::Sender<Result<()>>,
}

/// The purpose of a connection.
enum Kind {
    /// The bridge joins it with one of the sharer's.
    Data,
    /// The sharer opens it, to one of these addresses.
    Reverse(Vec<SocketAddr>),
    /// A simultaneous open from its port and from a port of the sharer.
    Crossing,
}

/// The connections that a request announces.
#[derive(Clone, Default)]
struct Batch {
    connections: Vec<Bytes>,
    reverse: Vec<Bytes>,
    crossings: Vec<Bytes>,
    candidates: Vec<String>,
}

impl Batch {
    fn add(&mut self, announcement: &Announcement) {
        let id = Bytes::copy_from_slice(&announcement.id);
        match &announcement.kind {
            Kind::Data => self.connections.push(id),
            Kind::Reverse(candidates) => {
                self.reverse.push(id);
                // The latest ones belong to the port that is open.
                self.candidates = candidates.iter().map(SocketAddr::to_string).collect();
            }
            Kind::Crossing => self.crossings.push(id),
        }
    }

    const fn count(&self) -> usize {
        self.connections.len() + self.reverse.len() + self.crossings.len()
    }
}

impl Joiner {
    /// Opens no connection yet. The signalling connection runs on `runtime`.
    ///
    /// # Errors
    /// If the bridge's key is unknown.
    pub fn new(bridge: BridgeAddress, secret: Secret, runtime: Handle) -> Result<Self> {
        key(&bridge)?;
        let (announce, view) = (Mutex::default(), Arc::default());
        let (listening, crosses) = (Mutex::default(), Expected::default());
        let pace = Pace::default();
        Ok(Self { bridge, secret, runtime, announce, view, listening, crosses, pace })
    }

    /// The bridge.
    pub const fn bridge(&self) -> &BridgeAddress {
        &self.bridge
    }

    /// Where the bridge sees both sides, once it has reported that.
    pub fn observed(&self) -> Option<Observed> {
        lock(&self.view).observed.clone()
    }

    /// Opens a data connection. Returns as soon as the bridge is reached; meanwhile the connection is announced on the
    /// signalling connection.
    ///
    /// # Errors
    /// If the bridge cannot be reached.
    pub async fn connect(&self) -> Result<Connection> {
        let id = random_id()?;
        let outcome = self.announced(id, Kind::Data);
        let Dialled { mut stream, rtt } = self.dial().await?;
        introduce(&mut stream, &id).await.map_err(|error| error.at(&self.bridge))?;
        Ok(Connection { stream, rtt, outcome })
    }

    /// Listens, and has the sharer connect to this machine. `targets` are addresses of the sharer: the candidates are
    /// the addresses from which this machine would connect to them or to the bridge.
    ///
    /// # Errors
    /// If this machine cannot listen, or has no address that the sharer could reach; if the bridge cannot be reached or
    /// refuses; or if no connection arrives within 10 s: an older bridge or sharer ignores the request.
    pub async fn reverse(&self, targets: &[SocketAddr]) -> Result<TcpStream> {
        let id = random_id()?;
        let (mut awaited, candidates) = self.listen(id, targets)?;
        let outcome = self.announced(id, Kind::Reverse(candidates));
        let arrived = tokio::select! {
            stream = awaited.arrival() => Ok(stream),
            error = outcome.refused() => Err(error),
            () = sleep(ARRIVAL) => Err(unavailable("the sharer did not connect to this machine")),
        };
        let reached = arrived.as_ref().ok().and_then(|stream| stream.local_addr().ok());
        if let Some(listening) = &mut *lock(&self.listening) {
            listening.reached = reached;
        }
        arrived
    }

    /// Begins to wait for a connection to this machine. Also returns the addresses at which it listens.
    fn listen(
        &self,
        id: ConnectionId,
        targets: &[SocketAddr],
    ) -> Result<(Awaited<TcpStream>, Vec<SocketAddr>)> {
        let bridge = lock(&self.view).at;
        let mut guard = lock(&self.listening);
        let listening = match &mut *guard {
            Some(listening) => listening,
            none => {
                let listener = Listener::start(&self.runtime)?;
                none.insert(Listening { listener, reached: None })
            }
        };
        let candidates = match listening.reached {
            Some(reached) => vec![reached],
            None => listening.listener.candidates(targets.iter().copied().chain(bridge)),
        };
        if candidates.is_empty() {
            return Err(unavailable("this machine has no address that the sharer could reach"));
        }
        Ok((listening.listener.expect(id), candidates))
    }

    /// Connects to the sharer while it connects to this machine, from ports that the bridge has seen.
    ///
    /// # Errors
    /// If the bridge was not reached before, it does not bring the two sides together, or the connection does not
    /// succeed within some seconds.
    pub async fn cross(&self) -> Result<TcpStream> {
        let id = random_id()?;
        let Some(bridge) = lock(&self.view).at else {
            return Err(unavailable("the bridge was not reached"));
        };
        let mut awaited = self.crosses.expect(id);
        let outcome = self.announced(id, Kind::Crossing);
        let mut port = Port::open(bridge, &id).await?;
        let cross = tokio::select! {
            cross = awaited.arrival() => cross,
            error = outcome.refused() => return Err(error),
            () = port.closed() => {
                return Err(unavailable("the bridge could not bring the two sides together"));
            }
            () = sleep(ARRIVAL) => return Err(unavailable("the sharer did not take part")),
        };
        let peer = cross.peer.parse::<Address>().map(Address::socket);
        let policy = DialPolicy { bridge: bridge.ip(), observed: self.observed_addresses() };
        match peer {
            Ok(peer) if policy.permits(peer) => port.cross(peer, wait(&cross), &self.pace).await,
            _ => Err(unavailable("the bridge named an address that haul does not connect to")),
        }
    }

    /// The addresses at which the bridge sees this side and the sharer.
    fn observed_addresses(&self) -> (Option<IpAddr>, Option<IpAddr>) {
        let Some(Observed { own, sharer }) = self.observed() else { return (None, None) };
        let ip = |text: &str| text.parse::<SocketAddr>().ok().map(|address| address.ip());
        (ip(&own), ip(&sharer))
    }

    /// Announces a connection. The result reports a refusal by the bridge.
    fn announced(&self, id: ConnectionId, kind: Kind) -> Outcome {
        let (sender, outcome) = oneshot::channel();
        self.announce(Announcement { id, kind, outcome: sender });
        Outcome(outcome)
    }

    /// The first connection tries all addresses of the bridge; further ones first try the address that was reached.
    async fn dial(&self) -> Result<Dialled> {
        let reached = lock(&self.view).at;
        if let Some(at) = reached {
            let start = Instant::now();
            if let Ok(Ok(stream)) = timeout(PATIENCE, TcpStream::connect(at)).await
                && lane::set(&stream).is_ok()
            {
                return Ok(Dialled { stream, rtt: start.elapsed() });
            }
            lock(&self.view).at = None;
        }
        let dialled = tcp(&self.bridge).await?;
        lock(&self.view).at = dialled.stream.peer_addr().ok();
        Ok(dialled)
    }

    /// Passes a connection to the signalling connection's task, which is started if there is none.
    fn announce(&self, announcement: Announcement) {
        let mut announce = lock(&self.announce);
        let rest = match announce.as_ref() {
            Some(sender) => match sender.send(announcement) {
                Ok(()) => return,
                Err(failed) => failed.0,
            },
            None => announcement,
        };
        let (sender, announcements) = unbounded_channel();
        // Cannot fail: the receiver exists.
        drop(sender.send(rest));
        *announce = Some(sender);
        let client = Client {
            bridge: self.bridge.clone(),
            secret: self.secret.clone(),
            view: Arc::clone(&self.view),
            crosses: self.crosses.clone(),
            unsent: VecDeque::new(),
            waiting: Vec::new(),
        };
        self.runtime.spawn(client.run(announcements));
    }
}

impl fmt::Debug for Joiner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Joiner({})", self.bridge)
    }
}

/// Announcements without a response, by the number of their request.
type Waiting = (u32, Vec<oneshot::Sender<Result<()>>>);

/// The state of the signalling connection's task.
struct Client {
    bridge: BridgeAddress,
    secret: Secret,
    view: Arc<Mutex<BridgeView>>,
    crosses: Expected<Cross>,
    /// Not sent to the bridge yet.
    unsent: VecDeque<Announcement>,
    waiting: Vec<Waiting>,
}

impl Client {
    /// Runs until the [`Joiner`] is dropped. Connects when there is something to announce, also after a loss.
    async fn run(mut self, mut announcements: UnboundedReceiver<Announcement>) {
        while self.wait(&mut announcements).await {
            let Err(error) = self.serve(&mut announcements).await else { return };
            // The bridge may have received these announcements, so they are not repeated.
            for (_, outcomes) in std::mem::take(&mut self.waiting) {
                fail(outcomes, &error);
            }
        }
    }

    /// Waits until there is something to announce; `false` if the [`Joiner`] was dropped.
    async fn wait(&mut self, announcements: &mut UnboundedReceiver<Announcement>) -> bool {
        if self.unsent.is_empty() {
            self.unsent.extend(announcements.recv().await);
        }
        !self.unsent.is_empty()
    }

    async fn serve(&mut self, announcements: &mut UnboundedReceiver<Announcement>) -> Result<()> {
        let signalling = Box::pin(Signalling::open(&self.bridge)).await;
        let mut signalling = match signalling {
            Ok(signalling) => signalling,
            Err(error) => {
                // This concerns all waiting announcements.
                self.gather(announcements, usize::MAX);
                fail(self.unsent.drain(..).map(|one| one.outcome), &error);
                return Err(error);
            }
        };
        self.join(&mut signalling, announcements).await?;
        let mut number = 0_u32;
        let mut last_received = Instant::now();
        let mut keepalive = interval(KEEPALIVE);
        keepalive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            while !self.unsent.is_empty() {
                let batch = self.gather(announcements, CONNECTIONS_MAX);
                number = number.wrapping_add(1);
                let count = batch.count();
                let Batch { connections, reverse, crossings, candidates } = batch;
                let connect = Connect { connections, reverse, crossings, candidates };
                let request = to_bridge::Body::Connect(connect);
                // Connections that cannot be announced now are announced on the next signalling connection.
                signalling.send(number, request).await?;
                self.sent(number, count);
            }
            tokio::select! {
                first = announcements.recv() => {
                    // The joiner was dropped.
                    let Some(first) = first else { return Ok(()) };
                    self.unsent.push_back(first);
                }
                message = signalling.channel.next::<FromBridge>() => {
                    last_received = Instant::now();
                    let Some(message) = message? else {
                        return Err(lost(&io::ErrorKind::UnexpectedEof.into()));
                    };
                    match message.body {
                        Some(from_bridge::Body::Joined(_)) => self.complete(message.id, None),
                        Some(from_bridge::Body::Refused(refused)) => {
                            let error = refusal(&refused, &self.bridge);
                            self.complete(message.id, Some(&error));
                        }
                        Some(from_bridge::Body::Cross(cross)) => self.crossed(cross),
                        _ => {}
                    }
                }
                _ = keepalive.tick() => {
                    if last_received.elapsed() > SILENCE {
                        return Err(lost(&io::ErrorKind::TimedOut.into()));
                    }
                    signalling.ping().await?;
                }
            }
        }
    }

    /// Joins the room of today, or of another day if the clocks differ.
    async fn join(
        &mut self,
        signalling: &mut Signalling,
        announcements: &mut UnboundedReceiver<Announcement>,
    ) -> Result<()> {
        let batch = self.gather(announcements, CONNECTIONS_MAX);
        self.sent(0, batch.count());
        let mut unknown = None;
        for day in epochs(SystemTime::now()) {
            let room = Room::new(&self.secret, day)?;
            let mac = room.key.prove(&signalling.exporter, &signalling.client_key);
            let request = Join {
                min_version: MIN_VERSION,
                max_version: VERSION,
                name: Bytes::copy_from_slice(&room.name),
                mac: Bytes::copy_from_slice(&mac),
                candidates: batch.candidates.clone(),
                connections: batch.connections.clone(),
                reverse: batch.reverse.clone(),
                crossings: batch.crossings.clone(),
            };
            let response = signalling.request(to_bridge::Body::Join(request)).await;
            match response.map_err(|error| error.at(&self.bridge))? {
                from_bridge::Body::Joined(joined) => {
                    self.joined(&joined, signalling.at);
                    self.complete(0, None);
                    return Ok(());
                }
                from_bridge::Body::Refused(refused) => {
                    let error = refusal(&refused, &self.bridge);
                    if Refusal::of(refused.code) != Some(Refusal::Room) {
                        return Err(error);
                    }
                    unknown = Some(error);
                }
                _ => return Err(unexpected(&self.bridge)),
            }
        }
        // `unknown` is set: there are three days.
        Err(unknown.unwrap_or_else(|| Error::new(ErrorKind::Unreachable, "use the bridge")))
    }

    fn joined(&self, joined: &Joined, at: SocketAddr) {
        let mut view = lock(&self.view);
        view.at.get_or_insert(at);
        view.observed = Some(Observed {
            own: clipped(&joined.observed),
            sharer: clipped(&joined.sharer_observed),
        });
    }

    /// Passes the bridge's message for a crossing to the attempt that waits for it.
    fn crossed(&self, cross: Cross) {
        if let Ok(id) = fixed(&cross.connection, "connection") {
            self.crosses.fulfil(&id, cross);
        }
    }

    /// Collects the announcements that wait. Returns the first ones, at most `most`.
    fn gather(
        &mut self,
        announcements: &mut UnboundedReceiver<Announcement>,
        most: usize,
    ) -> Batch {
        while self.unsent.len() < most
            && let Ok(next) = announcements.try_recv()
        {
            self.unsent.push_back(next);
        }
        let mut batch = Batch::default();
        self.unsent.iter().take(most).for_each(|one| batch.add(one));
        batch
    }

    /// Records that the first `count` announcements were sent, with a request of this number.
    fn sent(&mut self, number: u32, count: usize) {
        let outcomes = self.unsent.drain(..count).map(|one| one.outcome).collect();
        self.waiting.push((number, outcomes));
    }

    /// Reports the response to a request to the lanes whose connections it announced.
    fn complete(&mut self, number: u32, error: Option<&Error>) {
        for (_, outcomes) in self.waiting.extract_if(.., |(one, _)| *one == number) {
            for outcome in outcomes {
                // The lane may have been dropped.
                let _ = outcome.send(error.map_or(Ok(()), |error| Err(error.again())));
            }
        }
    }
}

/// Reports to the lanes that their connections cannot be joined.
fn fail(outcomes: impl IntoIterator<Item = oneshot::Sender<Result<()>>>, error: &Error) {
    for outcome in outcomes {
        // The lane may have been dropped.
        let _ = outcome.send(Err(error.again()));
    }
}

/// The error of a path to the sharer that is not available. Another path may be.
fn unavailable(cause: &str) -> Error {
    let error = Error::new(ErrorKind::Unreachable, "connect without the bridge");
    error.because(cause).with_retry(Retry::Later)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio_rustls::server::TlsStream;

    use super::super::channel::Channel;
    use super::super::messages::ToBridge;
    use super::*;
    use crate::identity::Identity;
    use crate::tls;

    /// A bridge that the test controls.
    struct Bridge {
        listener: TcpListener,
        identity: Identity,
    }

    impl Bridge {
        async fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            Self { listener, identity: Identity::ephemeral().unwrap() }
        }

        fn client(&self) -> Client {
            let at = self.listener.local_addr().unwrap();
            let bridge = BridgeAddress::new(&at.ip().to_string(), at.port()).unwrap();
            Client {
                bridge: bridge.with_key(Some(*self.identity.key().as_bytes())),
                secret: Secret::new([7; 16]),
                view: Arc::default(),
                crosses: Expected::default(),
                unsent: VecDeque::new(),
                waiting: Vec::new(),
            }
        }

        /// The next signalling connection, and the connections that its Join announces.
        async fn joined(&self) -> (Channel<TlsStream<TcpStream>>, u32, Vec<Bytes>) {
            let (stream, _) = self.listener.accept().await.unwrap();
            let identity = &self.identity;
            let config = tls::bridge_server_config(identity.pkcs8(), &identity.spki()).unwrap();
            let mut channel = Channel::new(tls::accept(stream, config, PATIENCE).await.unwrap());
            let ToBridge { id, body } = channel.next().await.unwrap().unwrap();
            let Some(to_bridge::Body::Join(join)) = body else { panic!("{body:?}") };
            (channel, id, join.connections)
        }
    }

    /// Formerly, such connections failed together with those that had been announced.
    #[tokio::test]
    async fn connections_not_announced_before_a_loss_are_announced_on_the_next_connection() {
        let bridge = Bridge::new().await;
        let (sender, announcements) = unbounded_channel();
        let running = tokio::spawn(bridge.client().run(announcements));
        let announce = |id: u8| {
            let (outcome, received) = oneshot::channel();
            assert!(sender.send(Announcement { id: [id; 32], kind: Kind::Data, outcome }).is_ok());
            received
        };
        let first = announce(1);
        let (channel, _, connections) = bridge.joined().await;
        assert_eq!(connections, [Bytes::from_static(&[1; 32])]);
        let second = announce(2);
        drop(channel);
        assert_eq!(first.await.unwrap().unwrap_err().kind(), ErrorKind::Unreachable);
        let (mut channel, id, connections) = bridge.joined().await;
        assert_eq!(connections, [Bytes::from_static(&[2; 32])]);
        let body = Some(from_bridge::Body::Joined(Joined::default()));
        channel.send(&FromBridge { id, body }).await.unwrap();
        second.await.unwrap().unwrap();
        // Without a bridge, all of them fail, and the client tries to connect again for the next announcement.
        drop((channel, bridge));
        for id in 3..5 {
            assert!(announce(id).await.unwrap().is_err());
        }
        drop(sender);
        running.await.unwrap();
    }
}
