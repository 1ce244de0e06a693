//! One lane: an SFTP session over one channel.
//!
//! [`Session::request`] queues a packet at once and gives the future of its answer, so what is
//! requested in a row leaves in that order and any number may be under way. Two tasks serve the
//! channel: one only writes what is queued, the other only reads and hands answers out by their
//! ids. (One task for both stops for ever when an upload fills both directions.)
//!
//! No answer is awaited without bound: see [`super::patience`].
//!
//! The queue itself is not bounded: whoever asks holds a permit of the engine for what will come, or
//! for the payload that goes.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use haul_net::RttGauge;
use haul_net::pool::SharedLane;
use haul_storage::{Error, ErrorKind, Range, Result};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::patience::{self, Patience, SILENCE, Silence};
use super::prefetch::{FRESH, Prefetch};
use super::server::{Server, goes_early, is_eager, is_openssh};
pub(super) use super::shared::Pending;
use super::shared::{FIRST_ID, NAMES_MAX, Outbound, Shared, protocol};
use crate::codec::{
    Deframer, Extended, Extensions, Handle, Limits, OPENSSH_PACKET_MAX, Request, Response, VERSION,
    name,
};
use crate::transport::{Channel, Outgoing};

/// The longest answer that is accepted: OpenSSH's longest packet, and room for servers that send
/// what they are asked for without counting their own head.
const ANSWER_MAX: u32 = OPENSSH_PACKET_MAX + 4096;

/// A round trip of packets is not older than this, or than two of them.
const RECENT: Duration = Duration::from_millis(100);

/// One SFTP session.
#[derive(Debug)]
pub(super) struct Session {
    shared: Arc<Shared>,
    tasks: Vec<AbortHandle>,
    /// Round trips that connecting took.
    pub(super) round_trips: u32,
    gauge: Option<RttGauge>,
    prefetch: Arc<Prefetch<Pending>>,
    /// What the server says it is.
    pub(super) identification: String,
}

impl Session {
    /// Begins a session on a channel to which [`Session::first`] was sent. It can be used at once.
    /// `patience` is what the lanes of a host share.
    pub(super) fn start(
        channel: Channel,
        host: &str,
        patience: Patience,
        prefetched: Vec<Request>,
    ) -> Self {
        let Channel { incoming, outgoing, server, rtt, round_trips, gauge } = channel;
        let (queue, queued) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::new(host, queue, rtt, Silence::new(patience)));
        let limits = is_eager(&server)
            .then(|| shared.expect(&Request::Extended(Extended::Limits), SILENCE, None).1);
        let prefetched = prefetched.into_iter().filter(|request| goes_early(&server, request));
        let prefetched = prefetched.map(|request| {
            let answer = shared.expect(&request, patience::limit(&request), None).1;
            (request, answer)
        });
        let prefetch = Arc::new(Prefetch::new(prefetched.collect()));
        let writer = tokio::spawn(write(Arc::clone(&shared), outgoing, queued)).abort_handle();
        let greeting = Greeting { limits };
        let reader = tokio::spawn(read(Arc::clone(&shared), incoming, greeting)).abort_handle();
        let mut tasks = vec![writer, reader];
        if !prefetch.is_empty() {
            tasks.push(tokio::spawn(forget(Arc::clone(&prefetch))).abort_handle());
        }
        let identification = server;
        Self { shared, tasks, round_trips, gauge, identification, prefetch }
    }

    /// What goes to a server first: the greeting, and to those that are known to answer whatever
    /// they are asked, the question for their limits and what is prefetched.
    pub(super) fn first(server: &str, prefetched: &[Request]) -> Bytes {
        let init = Request::Init { version: VERSION, extensions: Extensions::default() };
        let mut first = init.encode(0).to_vec();
        if is_eager(server) {
            first.extend_from_slice(&Request::Extended(Extended::Limits).encode(FIRST_ID));
        }
        let early = prefetched.iter().filter(|request| goes_early(server, request));
        for (id, request) in (FIRST_ID + 1..).zip(early) {
            first.extend_from_slice(&request.encode(id));
        }
        first.into()
    }

    /// Queues a request; the answer is the future's. Failure statuses are answers, too.
    pub(super) fn request(&self, request: &Request) -> Pending {
        self.shared.request(request)
    }

    /// The same where an answer will do that was asked for a moment ago: not where somebody looks
    /// whether something has changed.
    pub(super) fn request_or_prefetched(&self, request: &Request) -> Pending {
        self.prefetched(request).unwrap_or_else(|| self.request(request))
    }

    /// The answer to what was asked early.
    pub(super) fn prefetched(&self, request: &Request) -> Option<Pending> {
        self.prefetch.take(request)
    }

    /// The answers to early questions for names, whatever directory they are of.
    pub(super) fn prefetched_names(&self) -> Vec<Pending> {
        self.prefetch.take_names()
    }

    /// Asks early: whoever asks the same soon gets this answer.
    pub(super) fn prefetch(&self, request: Request) {
        let answer = self.request(&request);
        self.prefetch.add(request, answer);
    }

    /// Whether this was asked early, and nobody has taken the answer.
    pub(super) fn has_prefetched(&self, request: &Request) -> bool {
        self.prefetch.has(request)
    }

    /// What was asked early of one path is what would be asked of another one.
    pub(super) fn same_as_prefetched(&self, change: impl FnMut(&mut Request)) {
        self.prefetch.change(change);
    }

    /// What was read ahead of a file that was opened ahead.
    pub(super) fn pieces(&self, handle: &Handle) -> Vec<(Range, Pending)> {
        self.prefetch.take_pieces(handle)
    }

    /// The handle of what is going to be opened next, if that is likely.
    pub(super) fn next_handle(&self) -> Option<Handle> {
        self.shared.table.next().filter(|_| self.is_in_turn())
    }

    /// Whether the server does what it is asked one after the other, so that what is seen is not
    /// older than what was read before it.
    pub(super) fn is_in_turn(&self) -> bool {
        is_openssh(&self.identification)
    }

    /// Keeps room for what is going to be asked for.
    pub(super) fn reserve(self: &Arc<Self>, bytes: u64) -> Room {
        self.shared.outstanding.fetch_add(bytes, Ordering::Relaxed);
        Room { session: Arc::clone(self), bytes }
    }

    /// Queues a request whose answer does not matter.
    pub(super) fn post(&self, request: &Request) {
        self.shared.post(request);
    }

    /// Queues a copy within the server, or a digest, of so many bytes as far as is known.
    pub(super) fn request_copy(&self, request: &Request, bytes: u64) -> Pending {
        self.shared.request_within(request, patience::copied(bytes))
    }

    /// What the server can do; waits for its greeting.
    pub(super) async fn server(&self) -> Result<Arc<Server>> {
        let mut server = self.shared.server.subscribe();
        let known = async { server.wait_for(Option::is_some).await.map(|server| server.clone()) };
        match self.shared.awaited(|| "SFTP greeting".to_owned(), known).await? {
            Ok(Some(server)) if !self.is_ended() => Ok(server),
            _ => Err(self.shared.ended_error()),
        }
    }

    /// Whether nothing can be asked any more.
    pub(super) fn is_ended(&self) -> bool {
        self.shared.lock().ended.is_some()
    }

    /// Whether both are the same session.
    pub(super) fn id(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }
}

impl SharedLane for Session {
    /// A lane that has just opened can carry little, and what is put on it holds up the rest.
    fn load(&self) -> u64 {
        self.outstanding() * 1000 / self.shared.allowance.load(Ordering::Relaxed)
    }

    fn outstanding(&self) -> u64 {
        self.shared.outstanding.load(Ordering::Relaxed)
    }

    fn rtt(&self) -> Option<Duration> {
        match self.shared.round_trip_ns.load(Ordering::Relaxed) {
            u64::MAX => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }

    fn at_present(&self) -> Option<Duration> {
        self.gauge.as_ref()?.round_trips()?.at_present(RECENT)
    }
}

/// A lane that somebody is about to ask for so many bytes. Whoever chooses a lane meanwhile sees
/// them as outstanding, or all that begin at the same moment would choose the same one. To be dropped
/// when the requests are made.
#[derive(Debug)]
pub(super) struct Room {
    session: Arc<Session>,
    bytes: u64,
}

impl Deref for Room {
    type Target = Arc<Session>;

    fn deref(&self) -> &Arc<Session> {
        &self.session
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.session.shared.outstanding.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        // Nobody should wait for what will not come.
        self.shared.end_because(ErrorKind::Unreachable, "the lane was closed".to_owned());
    }
}

/// Gives up what was asked early and nobody has wanted. What was opened is closed.
async fn forget(prefetch: Arc<Prefetch<Pending>>) {
    sleep(FRESH + RECENT).await;
    prefetch.forget();
}

async fn write(
    shared: Arc<Shared>,
    outgoing: Box<dyn Outgoing>,
    mut queued: mpsc::UnboundedReceiver<Outbound>,
) {
    while let Some(Outbound { head, payload }) = queued.recv().await {
        let pieces: Vec<Bytes> = std::iter::once(&head).chain(payload.pieces()).cloned().collect();
        if let Err(error) = outgoing.send(&pieces).await {
            shared.end(&error);
            return;
        }
        shared.silence.heard();
    }
}

/// What the reader still has to learn of the server.
struct Greeting {
    limits: Option<Pending>,
}

async fn read(
    shared: Arc<Shared>,
    mut incoming: BoxStream<'static, Result<Bytes>>,
    greeting: Greeting,
) {
    let mut deframer = Deframer::new(ANSWER_MAX).with_names(NAMES_MAX);
    let mut greeting = Some(greeting);
    let error = loop {
        match incoming.next().await {
            Some(Ok(bytes)) => {
                shared.silence.heard();
                deframer.push(bytes);
            }
            Some(Err(error)) => break error,
            None if greeting.is_some() => {
                // It would do the same next time: the account has no SFTP, or its server fails.
                break Error::new(ErrorKind::Protocol, "read")
                    .because("the server closed the channel without a greeting");
            }
            None => {
                let cause = if deframer.is_within_frame() {
                    "the server closed the channel within a response"
                } else {
                    "the server closed the channel"
                };
                break Error::new(ErrorKind::Unreachable, "read").because(cause);
            }
        }
        if let Err(error) = dispatch(&shared, &mut deframer, &mut greeting) {
            break error;
        }
    };
    shared.end(&error.at(&shared.host));
}

fn dispatch(
    shared: &Arc<Shared>,
    deframer: &mut Deframer,
    greeting: &mut Option<Greeting>,
) -> Result<()> {
    while let Some(frame) = deframer.next_frame().map_err(protocol)? {
        let (id, response) = Response::decode(frame).map_err(protocol)?;
        match response {
            Response::Version { version, extensions } => {
                let Some(greeting) = greeting.take() else {
                    return Err(protocol("a second greeting"));
                };
                if version != VERSION {
                    return Err(protocol(format!(
                        "the server uses SFTP version {version}, haul \
                                                 supports version 3"
                    )));
                }
                tokio::spawn(learn(Arc::clone(shared), extensions, greeting.limits));
            }
            _ if greeting.is_some() => {
                return Err(protocol("a response before the greeting"));
            }
            response => shared.answer(id, response)?,
        }
    }
    Ok(())
}

/// Completes what is known of the server: its limits come one answer later.
async fn learn(shared: Arc<Shared>, extensions: Extensions, limits: Option<Pending>) {
    let limits = match limits {
        Some(pending) => Some(pending),
        None if extensions.has(name::LIMITS) => {
            Some(shared.request(&Request::Extended(Extended::Limits)))
        }
        None => None,
    };
    let limits = match limits {
        None => None,
        Some(pending) => match pending.answer().await {
            Ok(Response::Extended(reply)) => Limits::decode(reply).ok(),
            // Without the extension the least that every server takes holds.
            _ => None,
        },
    };
    let server = Arc::new(Server::new(extensions, limits));
    shared.server.send_if_modified(|known| {
        let unknown = known.is_none();
        if unknown {
            *known = Some(server);
        }
        unknown
    });
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use futures_util::stream;

    use super::*;
    use crate::codec::Handle;

    #[derive(Debug)]
    struct Sent(mpsc::UnboundedSender<Bytes>);

    #[async_trait]
    impl Outgoing for Sent {
        async fn send(&self, pieces: &[Bytes]) -> Result<()> {
            self.0.send(pieces.concat().into()).unwrap();
            Ok(())
        }
    }

    /// An answer that lay ready when its future was dropped was neither taken nor given back, and
    /// the server kept what was open for as long as the lane lasted.
    #[tokio::test]
    async fn what_was_opened_for_somebody_who_has_gone_is_closed() {
        let (sent, mut requests) = mpsc::unbounded_channel();
        let (answers, incoming) = mpsc::unbounded_channel();
        let incoming = stream::unfold(incoming, |mut incoming| async move {
            incoming.recv().await.map(|bytes| (Ok(bytes), incoming))
        });
        let channel = Channel {
            incoming: incoming.boxed(),
            outgoing: Box::new(Sent(sent)),
            server: String::new(),
            rtt: None,
            round_trips: 0,
            gauge: None,
        };
        let session = Session::start(channel, "test", Patience::default(), Vec::new());
        let version = Response::Version { version: VERSION, extensions: Extensions::default() };
        answers.send(version.encode(0)).unwrap();
        session.server().await.unwrap();
        let [early, late] = [1, 2].map(|number| Handle::from(Bytes::from(vec![number])));
        let open = Request::Opendir(Bytes::from_static(b"/"));

        let pending = session.request(&open);
        answers.send(Response::Handle(early.clone()).encode(FIRST_ID)).unwrap();
        while !session.shared.lock().by_id.is_empty() {
            tokio::task::yield_now().await;
        }
        drop(pending);
        assert_eq!(requests.recv().await.unwrap(), open.encode(FIRST_ID));
        let closed = Request::Close(early).encode(FIRST_ID + 1);
        assert_eq!(requests.recv().await.unwrap(), closed);

        drop(session.request(&open));
        answers.send(Response::Handle(late.clone()).encode(FIRST_ID + 2)).unwrap();
        assert_eq!(requests.recv().await.unwrap(), open.encode(FIRST_ID + 2));
        let closed = Request::Close(late).encode(FIRST_ID + 3);
        assert_eq!(requests.recv().await.unwrap(), closed);
    }
}
