//! Opens lanes: dialled, authenticated, and bound to their session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use haul_net::pool::{Connect, Connecting, LONG_RTT, Lanes, Supply, close_excess};
use haul_net::{Hold, RttGauge};
use haul_storage::{Error, ErrorKind, LinkPath, PathKind, Result};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, WeakUnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout};
use tokio_rustls::client::TlsStream;

use super::early::{self, First, Sent};
use super::lane::Lane;
use super::pulse;
use super::reach::{Dialled, HANDSHAKE, Phase, Reach, lock};
use super::send::send_notices;
use super::session::{Session, Welcomed, frame, refusal};
use crate::lane::{self, Frames};
use crate::tls::{self, Binding, ProofKey, Role};
use crate::wire::convert::{self, clipped, fixed, required};
use crate::wire::messages::code::Refusal;
use crate::wire::messages::{self, to_client, to_server};
use crate::wire::{FRAME_HEADER, Frame, MIN_VERSION, VERSION, decode};

/// A lane that has dialled waits this long for another one to open the session. Then it drops its connection, because a
/// server refuses one without a Hello after 15 s, and dials again once the session is open or could not be opened.
const PATIENCE: Duration = Duration::from_secs(5);

/// A lane whose Hello the server has accepted.
pub(super) struct Accepted {
    frames: Frames<ReadHalf<TlsStream<TcpStream>>>,
    writing: WriteHalf<TlsStream<TcpStream>>,
    session: Arc<Session>,
    /// The nonce of the Hello, which identifies the lane to the server.
    nonce: Bytes,
    /// The location whose requests were sent with the Hello.
    early: Option<First>,
    rtt: Duration,
    /// `None` through a bridge, where the kernel measures only the RTT to the bridge.
    gauge: Option<(RttGauge, Hold)>,
    path: LinkPath,
}

/// Opens lanes for the pool.
#[derive(Debug)]
pub(super) struct Opener {
    pub(super) reach: Arc<Reach>,
    pub(super) next: u64,
}

impl Connect for Opener {
    type Connection = Accepted;
    type Lane = Lane;
    const MOST_OPENING: usize = 64;

    fn connect(&mut self, lanes: &Arc<Lanes<Self>>) -> Connecting<Accepted> {
        let (reach, lanes) = (Arc::clone(&self.reach), Arc::clone(lanes));
        // Taken at once: otherwise, further lanes would be opened for it.
        let found = reach.paths.found.take();
        Box::pin(async move {
            let on_rtt = |rtt: Duration| {
                lanes.with(|_, _, supply| supply.on_path(rtt >= LONG_RTT));
                lanes.tend();
            };
            reach.open(found, on_rtt).await.map(Some)
        })
    }

    fn start(
        &mut self,
        accepted: Accepted,
        supply: &mut Supply,
        changed: &Arc<Notify>,
    ) -> Arc<Lane> {
        supply.on_admitted();
        let number = self.next;
        self.next += 1;
        let (messages, waiting) = unbounded_channel();
        let is_ended = Arc::<AtomicBool>::default();
        let Accepted { frames, writing, session, nonce, early, rtt, gauge, path } = accepted;
        let early = early.map(|first| Sent::register(&session, number, first));
        let (gauge, hold) = gauge.unzip();
        let run = Run {
            session: Arc::clone(&session),
            number,
            nonce,
            is_ended: Arc::clone(&is_ended),
            changed: Arc::clone(changed),
            pings: messages.downgrade(),
            unsent: Some(Arc::clone(&self.reach.unsent)),
            was_closed: false,
            _hold: hold,
        };
        session.lanes.fetch_add(1, Ordering::Relaxed);
        self.reach.runtime.spawn(run.until_ended(frames, writing, waiting));
        let lane = Arc::new(Lane { session, number, messages, is_ended, rtt, gauge, path });
        let early = early.map(|early| early.on(&lane));
        // Only one lane has sent early requests, and no task locks their responses before that lane exists.
        if early.is_some()
            && let Ok(mut taken) = self.reach.prefetch.early.try_lock()
        {
            *taken = early;
        }
        send_notices(&lane);
        lane
    }

    fn review(&mut self, lanes: &mut Vec<Arc<Lane>>, supply: &mut Supply) -> usize {
        let lost = lanes.extract_if(.., |lane| lane.is_ended()).count();
        supply.on_lost(lost);
        if self.reach.is_off_bridge() && lanes.iter().any(|lane| !lane.is_bridged()) {
            // Lanes through the bridge finish their requests; other lanes are opened in their place.
            lanes.retain(|lane| !lane.is_bridged());
        }
        drop(close_excess(lanes, supply.target()));
        // A better connection that was found becomes a lane, even if there are enough lanes.
        usize::from(self.reach.paths.found.has_connection())
    }
}

/// A lane's task.
struct Run {
    session: Arc<Session>,
    number: u64,
    nonce: Bytes,
    is_ended: Arc<AtomicBool>,
    changed: Arc<Notify>,
    /// For Pings. Does not keep the lane open.
    pings: WeakUnboundedSender<Bytes>,
    /// Held until this side has closed the lane: see [`PeerHost::is_closed`](super::PeerHost::is_closed).
    unsent: Option<Arc<()>>,
    /// Whether this side has closed the lane, and everything sent before has arrived.
    was_closed: bool,
    _hold: Option<Hold>,
}

impl Run {
    async fn until_ended(
        mut self,
        mut frames: Frames<impl AsyncRead + Unpin>,
        writing: impl AsyncWrite + Unpin,
        waiting: UnboundedReceiver<Bytes>,
    ) {
        let (session, number) = (Arc::clone(&self.session), self.number);
        let (pings, traffic) = (self.pings.clone(), frames.traffic());
        let taken = |piece: &crate::outbox::Outgoing| session.taken(piece.id, number);
        let sending = lane::send(writing, waiting, &session.outbox, &traffic, taken);
        let receiving = async {
            while let Some(frame) = frames.next().await? {
                match frame {
                    Frame::Message(bytes) => {
                        let length = FRAME_HEADER + bytes.len();
                        if !session.message(bytes)? {
                            traffic.add_idle(length);
                        }
                    }
                    Frame::Bulk(header, data) => session.piece(header, data),
                    Frame::Skipped => {}
                }
            }
            Ok::<(), Error>(())
        };
        tokio::pin!(sending, receiving);
        let was_closed = tokio::select! {
            // Receives until the server has closed the lane, too.
            sent = &mut sending => {
                self.unsent = None;
                sent.is_ok()
                    && timeout(lane::STALLED, receiving).await.is_ok_and(|rest| rest.is_ok())
            }
            _ = &mut receiving => false,
            () = pulse::lost(&session, &pings, &traffic) => false,
        };
        self.was_closed = was_closed;
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Release);
        // Without an orderly end, not even a Bye is known to have arrived.
        if !self.was_closed {
            // Sent before the requests that are repeated now.
            let nonce = std::mem::take(&mut self.nonce);
            self.session.notice(to_server::Body::LaneLost(messages::LaneLost { nonce }));
        }
        self.session.lane_ended(self.number, self.was_closed);
        self.changed.notify_waiters();
    }
}

impl Reach {
    /// Opens a lane: of the session, if there is one, or of a new one.
    async fn open(
        self: &Arc<Self>,
        found: Option<Dialled>,
        on_rtt: impl Fn(Duration) + Sync,
    ) -> Result<Accepted> {
        let mut found = found;
        let (Dialled { stream, rtt, .. }, exporter, path, turn) = loop {
            let dialled = match found.take() {
                Some(found) => {
                    on_rtt(found.rtt);
                    found
                }
                None => {
                    let dialled = self.dial(&on_rtt);
                    let waits = self.patience.waits();
                    let dialled = waits.watch(|| "connection".to_owned(), dialled).await;
                    dialled.map_err(|error| self.explained(error))?
                }
            };
            let exporter = tls::exporter(dialled.stream.get_ref().1)?;
            let path = dialled.path.of_link(dialled.stream.get_ref().0);
            let path = path.map_err(|error| lane::lost(&error))?;
            if let Ok(turn) = timeout(PATIENCE, self.turn()).await {
                break (dialled, exporter, path, turn);
            }
            drop(dialled);
            self.settled().await;
        };
        let is_bridged = path.kind == PathKind::Bridge;
        let gauge = (!is_bridged).then(|| RttGauge::of(stream.get_ref().0).ok()).flatten();
        let start = Instant::now();
        let (reading, writing) = tokio::io::split(stream);
        let mut lane = Opening {
            frames: Frames::new(reading),
            writing,
            exporter,
            reach: self,
            nonce: Bytes::new(),
            is_gone: false,
            early: None,
        };
        let session = match turn {
            Turn::Open => lane.first().await?,
            Turn::Join(session) => {
                let joined = lane.join(&session).await;
                if lane.is_gone {
                    // The next attempt opens a new session.
                    self.ended(&session);
                }
                joined?;
                session
            }
        };
        let Opening { mut frames, writing, nonce, early, .. } = lane;
        frames.accept_all();
        // Through a bridge, Hello and Welcome have measured the whole path; `rtt` is that to the bridge.
        let rtt = if is_bridged { start.elapsed() } else { rtt };
        Ok(Accepted { frames, writing, session, nonce, early, rtt, gauge, path })
    }

    /// Whether the current path does not lead through the bridge.
    fn is_off_bridge(&self) -> bool {
        lock(&self.paths.reached).path.as_ref().is_some_and(|path| !path.is_bridge())
    }

    /// The error of a failed dial: after the sharer has ended the share, that is the reason.
    fn explained(&self, error: Error) -> Error {
        match &*self.session.borrow() {
            Phase::Open(session) => session.goodbye().unwrap_or(error),
            _ => error,
        }
    }

    /// Forgets a session that the server has ended.
    fn ended(&self, session: &Arc<Session>) {
        self.session.send_if_modified(|phase| {
            let is_it = matches!(phase, Phase::Open(open) if Arc::ptr_eq(open, session));
            if is_it {
                *phase = Phase::None;
            }
            is_it
        });
        session.end();
    }

    /// Whether this lane opens the session or joins it. Waits while another lane is opening it.
    async fn turn(&self) -> Turn {
        let mut phases = self.session.subscribe();
        loop {
            let mut turn = None;
            self.session.send_if_modified(|phase| match phase {
                Phase::None => {
                    turn = Some(Turn::Open);
                    *phase = Phase::Opening;
                    true
                }
                Phase::Opening => false,
                Phase::Open(session) => {
                    turn = Some(Turn::Join(Arc::clone(session)));
                    false
                }
            });
            match turn {
                Some(turn) => return turn,
                // Cannot fail: `self` holds the sender.
                None => drop(phases.changed().await),
            }
        }
    }

    /// Waits until no lane is opening the session.
    async fn settled(&self) {
        let mut phases = self.session.subscribe();
        // Cannot fail: `self` holds the sender.
        drop(phases.wait_for(|phase| !matches!(phase, Phase::Opening)).await);
    }
}

/// Whether a lane opens the session or joins it.
enum Turn {
    Open,
    Join(Arc<Session>),
}

/// A lane before its Welcome.
struct Opening<'a> {
    frames: Frames<ReadHalf<TlsStream<TcpStream>>>,
    writing: WriteHalf<TlsStream<TcpStream>>,
    exporter: [u8; 32],
    reach: &'a Reach,
    nonce: Bytes,
    /// Whether the server has refused the lane because it does not know the session.
    is_gone: bool,
    /// The location whose requests were sent with the Hello.
    early: Option<First>,
}

/// Resets the phase if the session could not be opened, so that another lane opens it.
struct Unopened<'a>(&'a Reach);

impl Drop for Unopened<'_> {
    fn drop(&mut self) {
        self.0.session.send_if_modified(|phase| {
            let is_open = matches!(phase, Phase::Open(_));
            if !is_open {
                *phase = Phase::None;
            }
            !is_open
        });
    }
}

impl Opening<'_> {
    /// Opens a session.
    async fn first(&mut self) -> Result<Arc<Session>> {
        let unopened = Unopened(self.reach);
        let key = ProofKey::from_secret(self.reach.credentials.secret.expose())?;
        let welcome = self.greet(&key, None).await?;
        let id = fixed(&welcome.session, "session")?;
        let token = fixed::<32>(&welcome.token, "token")?;
        let capabilities = required(welcome.capabilities, "capabilities")?;
        let welcomed = Welcomed {
            name: clipped(&welcome.name),
            capabilities: convert::capabilities(*capabilities)?,
            is_writable: welcome.writable,
        };
        let patience = Arc::clone(&self.reach.patience);
        let session = Session::new(id, ProofKey::from_token(&token)?, welcomed, patience);
        self.reach.session.send_replace(Phase::Open(Arc::clone(&session)));
        drop(unopened);
        Ok(session)
    }

    /// Joins a session.
    async fn join(&mut self, session: &Session) -> Result<()> {
        self.greet(&session.key, Some(session.id)).await.map(drop)
    }

    /// Sends a Hello, and verifies the Welcome.
    async fn greet(
        &mut self,
        key: &ProofKey,
        session: Option<[u8; 16]>,
    ) -> Result<messages::Welcome> {
        let mut nonce = [0; 32];
        aws_lc_rs::rand::fill(&mut nonce)
            .map_err(|_| Error::new(ErrorKind::Other, "generate random numbers"))?;
        let binding = Binding {
            exporter: self.exporter,
            client_key: self.reach.credentials.client_key,
            server_key: self.reach.credentials.server_key,
            session: session.unwrap_or_default(),
            nonce,
        };
        self.nonce = Bytes::copy_from_slice(&nonce);
        let hello = messages::Hello {
            min_version: MIN_VERSION,
            max_version: VERSION,
            session: session.map_or_else(Bytes::new, |id| Bytes::copy_from_slice(&id)),
            proof: Bytes::copy_from_slice(&tls::prove(key, Role::Client, &binding)),
            nonce: self.nonce.clone(),
            client: concat!("haul ", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        let mut hello = frame(0, to_server::Body::Hello(hello))?.to_vec();
        if session.is_none() {
            // Taken, so that these requests are sent only once.
            self.early = lock(&self.reach.prefetch.first).take();
            if let Some(first) = &self.early {
                hello.extend(early::frames(first)?);
            }
        }
        let waits = self.reach.patience.waits();
        let welcome = async {
            self.writing.write_all(&hello).await.map_err(|error| lane::lost(&error))?;
            self.writing.flush().await.map_err(|error| lane::lost(&error))?;
            self.welcome().await
        };
        let welcome = waits.within(HANDSHAKE, || "response to HELLO".to_owned(), welcome).await;
        let welcome = welcome.unwrap_or_else(|| {
            let error = Error::new(ErrorKind::Unreachable, "open a session");
            Err(error.because("the peer does not respond"))
        })?;
        if !tls::verify(key, Role::Server, &binding, &welcome.proof) {
            return Err(Error::new(ErrorKind::Unauthenticated, "verify the peer")
                .because("the peer does not know the ticket's secret; its data was not used"));
        }
        if !(MIN_VERSION..=VERSION).contains(&welcome.version) {
            return Err(Error::new(ErrorKind::Protocol, "open a session")
                .because("the peer chose a version that was not offered"));
        }
        Ok(welcome)
    }

    async fn welcome(&mut self) -> Result<messages::Welcome> {
        let Some(Frame::Message(bytes)) = self.frames.next().await? else {
            return Err(lane::lost(&std::io::ErrorKind::UnexpectedEof.into()));
        };
        let messages::ToClient { body, .. } = decode(bytes)?;
        match body {
            Some(to_client::Body::Welcome(welcome)) => Ok(welcome),
            Some(to_client::Body::Refused(refused)) => {
                self.is_gone = Refusal::of(refused.code) == Some(Refusal::Session);
                Err(refusal(&refused))
            }
            _ => Err(Error::new(ErrorKind::Protocol, "open a session")
                .because("the peer's first message is neither Welcome nor Refused")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Mutex;

    use bytes::BytesMut;
    use futures_util::future::join_all;
    use haul_net::Waits;
    use haul_storage::Retry;
    use tokio::io::{AsyncReadExt, DuplexStream, duplex, split};
    use tokio::sync::mpsc::UnboundedSender;
    use tokio::time::sleep;

    use super::super::reach::Path;
    use super::super::reading::Reading;
    use super::super::testing::World;
    use super::*;
    use crate::wire::{Deframer, Limits, message_frame};

    /// The task of a further lane.
    fn run(session: &Arc<Session>, messages: &UnboundedSender<Bytes>) -> Run {
        session.lanes.fetch_add(1, Ordering::Relaxed);
        Run {
            session: Arc::clone(session),
            number: 7,
            nonce: Bytes::from_static(b"nonce"),
            is_ended: Arc::default(),
            changed: Arc::default(),
            pings: messages.downgrade(),
            unsent: None,
            was_closed: false,
            _hold: None,
        }
    }

    /// Formerly, a server that had not received the Bye kept sending pieces on the lane forever.
    #[tokio::test(start_paused = true)]
    async fn a_closed_lane_is_reported_as_lost_unless_the_server_closes_it_too() {
        for closes in [true, false] {
            let World { session, .. } = World::new().await;
            let (near, mut far) = duplex(1 << 20);
            let (reading, writing) = split(near);
            let (messages, waiting) = unbounded_channel();
            let run = run(&session, &messages);
            drop(messages);
            let server = tokio::spawn(async move {
                far.read_to_end(&mut Vec::new()).await.unwrap();
                if !closes {
                    pending::<()>().await;
                }
            });
            run.until_ended(Frames::new(reading), writing, waiting).await;
            server.abort();
            let is_lost = session.take_notices().into_iter().any(|notice| match notice.body {
                Some(to_server::Body::LaneLost(lost)) => lost.nonce == "nonce",
                _ => false,
            });
            assert_eq!(is_lost, !closes);
        }
    }

    /// Formerly, a client waited forever if the sharer was stopped (`SIGSTOP`), or a bridge forwarded nothing.
    #[tokio::test(start_paused = true)]
    async fn a_lane_on_which_nothing_arrives_is_lost() {
        let World { session, .. } = World::new().await;
        let (near, mut far) = duplex(1 << 20);
        let (reading, writing) = split(near);
        let (messages, waiting) = unbounded_channel();
        let run = run(&session, &messages);
        let is_ended = Arc::clone(&run.is_ended);
        let mut responses = session.register(7, &to_server::Body::Ping(messages::Empty {}));
        let start = Instant::now();
        let running = tokio::spawn(run.until_ended(Frames::new(reading), writing, waiting));
        let error = responses.message().await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Unreachable, Retry::Later));
        assert_eq!(start.elapsed().as_secs(), 30);
        running.await.unwrap();
        assert!(is_ended.load(Ordering::Relaxed));
        let mut sent = Vec::new();
        far.read_to_end(&mut sent).await.unwrap();
        let sent: messages::ToServer = decode(Bytes::from(sent).slice(FRAME_HEADER..)).unwrap();
        assert_eq!(sent.body, Some(to_server::Body::Ping(messages::Empty {})));
        drop(messages);
    }

    /// A server whose disk hangs: it responds to Pings and Cancels only.
    async fn respond_without_a_disk(mut lane: DuplexStream) {
        let mut deframer = Deframer::new(Limits::FULL);
        let mut buffer = BytesMut::new();
        while lane.read_buf(&mut buffer).await.unwrap() > 0 {
            deframer.push(buffer.split().freeze());
            while let Some(Frame::Message(bytes)) = deframer.next_frame().unwrap() {
                let request: messages::ToServer = decode(bytes).unwrap();
                let body = match request.body {
                    Some(to_server::Body::Ping(_)) => to_client::Body::Pong(messages::Empty {}),
                    Some(to_server::Body::Cancel(_)) => to_client::Body::Done(messages::Empty {}),
                    _ => continue,
                };
                let response = messages::ToClient { id: request.id, body: Some(body) };
                lane.write_all(&message_frame(&response).unwrap()).await.unwrap();
            }
        }
    }

    /// A lane to a server whose disk hangs.
    fn lane_without_a_disk(session: &Arc<Session>) -> Arc<Lane> {
        let (near, far) = duplex(1 << 20);
        let (reading, writing) = split(near);
        let (messages, waiting) = unbounded_channel();
        let run = run(session, &messages);
        let (is_ended, rtt) = (Arc::clone(&run.is_ended), Duration::ZERO);
        let path = LinkPath { kind: PathKind::Direct, address: "192.0.2.1:7".parse().unwrap() };
        let (number, gauge, session) = (run.number, None, Arc::clone(session));
        tokio::spawn(respond_without_a_disk(far));
        tokio::spawn(run.until_ended(Frames::new(reading), writing, waiting));
        Arc::new(Lane { session, number, messages, is_ended, rtt, gauge, path })
    }

    /// Formerly, the responses to the Cancels of the first requests that were given up counted as progress, and each of
    /// the other requests waited once more.
    #[tokio::test(start_paused = true)]
    async fn requests_that_are_given_up_do_not_extend_the_wait_for_others() {
        // One response to a Cancel arrives alone, or many in a second.
        for (count, apart) in [(2, 100), (100, 25)] {
            let World { session, .. } = World::new().await;
            let lane = lane_without_a_disk(&session);
            let reads = (0..count).map(|nth| {
                let lane = &lane;
                async move {
                    sleep(Duration::from_millis(nth * apart)).await;
                    let start = Instant::now();
                    let mut reading = Reading::ahead(lane, 7, 100).unwrap();
                    let reading = timeout(Duration::from_secs(3600), reading.next());
                    assert!(reading.await.unwrap().is_err());
                    assert_eq!(start.elapsed().as_secs(), 60, "{nth} of {count}");
                }
            });
            join_all(reads).await;
        }
    }

    /// Formerly, such a request waited forever, and silently: the disk of a share may hang.
    #[tokio::test(start_paused = true)]
    async fn a_request_without_a_response_is_reported_and_given_up_though_pings_get_responses() {
        let reports = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&reports);
        let waits =
            Waits::new(move |wait| lock(&sink).push((wait.what.clone(), wait.waited.as_secs())));
        let taken = || std::mem::take(&mut *lock(&reports));
        let World { host, session, .. } = World::with(waits.of("peer")).await;
        let lane = lane_without_a_disk(&session);
        let photos = || Bytes::from_static(b"photos");
        let create = messages::Create { path: photos(), options: None };
        for (request, what, limit) in [
            (to_server::Body::List(messages::List { path: photos() }), "LIST photos", 60),
            (to_server::Body::Create(create), "CREATE photos", 30 * 60),
        ] {
            let start = Instant::now();
            let request = host.request_on(Arc::clone(&lane), request);
            let error = timeout(Duration::from_secs(86_400), request).await.unwrap().unwrap_err();
            assert_eq!(start.elapsed().as_secs(), limit);
            assert_eq!((error.kind(), error.retry()), (ErrorKind::Unreachable, Retry::Later));
            let what = format!("response to {what}");
            let cause = format!("the peer made no progress for {limit} s ({what})");
            assert!(error.to_string().contains(&cause), "{error}");
            let reports = taken();
            assert_eq!(reports[0], (what.clone(), 10));
            assert!(reports.iter().all(|(reported, _)| *reported == what), "{reports:?}");
            // Nothing is reported once it has ended, and the lane stays open.
            sleep(Duration::from_secs(3600)).await;
            assert_eq!((taken(), lane.is_ended()), (Vec::new(), false));
        }
        // A part file that the server may yet create does not stay open.
        let is_cancelled = session.take_notices().into_iter().any(|notice| {
            matches!(
                notice.body,
                Some(to_server::Body::Cancel(messages::Cancel { once: true, .. }))
            )
        });
        assert!(is_cancelled);
    }

    #[tokio::test]
    async fn lanes_through_the_bridge_end_once_there_is_a_better_one() {
        let World { host, session, .. } = World::new().await;
        let lane = |number, is_bridged| {
            let (messages, sent) = unbounded_channel();
            let (session, is_ended) = (Arc::clone(&session), Arc::default());
            let rtt = Duration::ZERO;
            let kind = if is_bridged { PathKind::Bridge } else { PathKind::Reverse };
            let path = LinkPath { kind, address: "192.0.2.1:7".parse().unwrap() };
            let lane = Lane { session, number, messages, is_ended, rtt, gauge: None, path };
            (Arc::new(lane), sent)
        };
        let mut opener = Opener { reach: Arc::clone(&host.reach), next: 0 };
        let mut supply = Supply::new(Opener::MOST_OPENING);
        supply.set_target(4);
        let ((bridged, mut sent), (better, _rest)) = (lane(7, true), lane(8, false));
        let mut lanes = vec![bridged, better];
        let take = |path| lock(&host.reach.paths.reached).path = Some(path);
        take(Path::Bridge("bridge:7".to_owned()));
        assert_eq!(opener.review(&mut lanes, &mut supply), 0);
        assert_eq!(lanes.len(), 2);
        take(Path::Reverse("192.0.2.1:7".parse().unwrap()));
        assert_eq!(opener.review(&mut lanes, &mut supply), 0);
        assert_eq!((lanes.len(), lanes[0].number), (1, 8));
        // The lane is closed after what was sent on it.
        let bye: messages::ToServer =
            decode(sent.try_recv().unwrap().slice(FRAME_HEADER..)).unwrap();
        assert_eq!(bye.body, Some(to_server::Body::Bye(messages::Empty {})));
        // The only lane stays open.
        let (bridged, _sent) = lane(9, true);
        let mut lanes = vec![bridged];
        opener.review(&mut lanes, &mut supply);
        assert_eq!(lanes.len(), 1);
    }
}
