//! One lane: an SFTP session over one channel.
//!
//! [`Session::request`] queues a packet at once and returns the future of its response. Requests leave in the order of
//! these calls, and any number may be in flight. Two tasks serve the channel: one only writes queued packets, the other
//! only reads responses and dispatches them by their ids. (A single task for both would deadlock when an upload fills
//! both directions.)
//!
//! Every response has a time limit, see [`super::patience`].
//!
//! The queue is unbounded: callers hold a permit of the engine for the bytes that they request or send.

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
use super::prefetch::{FRESH, LONG, Prefetch};
use super::server::{Server, goes_early, is_eager, is_openssh};
pub(super) use super::shared::{Ahead, Pending};
use super::shared::{FIRST_ID, NAMES_MAX, Outbound, Shared, protocol};
use crate::codec::{
    Deframer, Extended, Extensions, Handle, Limits, OPENSSH_PACKET_MAX, Request, Response, VERSION,
    name,
};
use crate::transport::{Channel, Outgoing};

/// The longest response accepted, in bytes, except lists of names ([`NAMES_MAX`]): OpenSSH's longest packet, and extra
/// room for servers that return all bytes requested and do not count the header.
const RESPONSE_MAX: u32 = OPENSSH_PACKET_MAX + 4096;

/// The age up to which a measured packet RTT is current, if two RTTs are not longer.
const RECENT: Duration = Duration::from_millis(100);

/// One SFTP session.
#[derive(Debug)]
pub(super) struct Session {
    shared: Arc<Shared>,
    tasks: Vec<AbortHandle>,
    /// The number of RTTs that connecting took.
    pub(super) rtts: u32,
    gauge: Option<RttGauge>,
    prefetch: Arc<Prefetch<Pending>>,
    /// The server's SSH identification.
    pub(super) identification: String,
}

impl Session {
    /// Starts a session on a channel on which [`Session::first`] was sent. It can be used at once. All lanes to a host
    /// share `patience`.
    pub(super) fn start(
        channel: Channel,
        host: &str,
        patience: Patience,
        prefetched: Vec<Request>,
    ) -> Self {
        let Channel { incoming, outgoing, server, rtt, rtts, gauge } = channel;
        let (queue, queued) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::new(host, queue, rtt, Silence::new(patience)));
        let limits =
            is_eager(&server).then(|| shared.expect(&Request::Extended(Extended::Limits), SILENCE));
        let prefetched = prefetched.into_iter().filter(|request| goes_early(&server, request));
        let prefetched = prefetched.map(|request| {
            let response = shared.expect(&request, patience::limit(&request));
            (request, response)
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
        Self { shared, tasks, rtts, gauge, identification, prefetch }
    }

    /// The first bytes to a server: INIT. For servers that are known to respond to requests sent before their
    /// greeting, also the request for their limits, and prefetched requests.
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

    /// Queues a request and returns the future of its response. A status that reports a failure is a response, too.
    pub(super) fn request(&self, request: &Request) -> Pending {
        self.shared.request(request)
    }

    /// Like [`request`](Self::request), but takes a recently prefetched response if there is one. Not for requests that
    /// check whether something has changed.
    pub(super) fn request_or_prefetched(&self, request: &Request) -> Pending {
        self.prefetched(request).unwrap_or_else(|| self.request(request))
    }

    /// Removes and returns the prefetched response to a request, if there is one.
    pub(super) fn prefetched(&self, request: &Request) -> Option<Pending> {
        self.prefetch.take(request)
    }

    /// Removes and returns the prefetched response to an OPENDIR, and those to the READDIRs behind it.
    pub(super) fn prefetched_directory(&self, open: &Request) -> Option<(Pending, Vec<Pending>)> {
        self.prefetch.take_directory(open)
    }

    /// Sends a request ahead of need: an equal request soon afterwards gets its response.
    pub(super) fn prefetch(&self, request: Request) {
        let response = self.request(&request);
        self.prefetch.add(request, response);
    }

    /// Whether this request was prefetched and its response has not been used.
    pub(super) fn has_prefetched(&self, request: &Request) -> bool {
        self.prefetch.has(request)
    }

    /// Changes the requests that prefetched responses stand for: those for one path are also valid for another one.
    pub(super) fn same_as_prefetched(&self, change: impl FnMut(&mut Request)) {
        self.prefetch.change(change);
    }

    /// Removes and returns the prefetched READs of a file that was opened by a prefetched request.
    pub(super) fn pieces(&self, handle: &Handle) -> Vec<(Range, Pending)> {
        self.prefetch.take_pieces(handle)
    }

    /// Queues an open, and right behind it requests for the predicted handle, if the path is long and the handle can
    /// be predicted. `is_exact` excludes a handle that may be that of another open in flight: for requests that would
    /// change its state.
    pub(super) fn request_ahead(
        &self,
        open: &Request,
        is_exact: bool,
        then: impl FnOnce(&Handle) -> Vec<Request>,
    ) -> (Pending, Option<Ahead>) {
        match self.is_in_turn() && self.is_far() {
            true => self.shared.request_ahead(open, is_exact, then),
            false => (self.request(open), None),
        }
    }

    /// Whether saving an RTT is worth some bytes requested in vain.
    pub(super) fn is_far(&self) -> bool {
        self.rtt().is_some_and(|rtt| rtt >= LONG)
    }

    /// Whether the server processes requests strictly in order, so that the result of a stat is not older than a read
    /// requested before it.
    pub(super) fn is_in_turn(&self) -> bool {
        is_openssh(&self.identification)
    }

    /// Counts bytes as outstanding before they are requested.
    pub(super) fn reserve(self: &Arc<Self>, bytes: u64) -> Room {
        self.shared.outstanding.fetch_add(bytes, Ordering::Relaxed);
        Room { session: Arc::clone(self), bytes }
    }

    /// Queues a request whose response does not matter.
    pub(super) fn post(&self, request: &Request) {
        self.shared.post(request);
    }

    /// Queues a copy or a digest on the server, which takes longer the more `bytes` the file has.
    pub(super) fn request_copy(&self, request: &Request, bytes: u64) -> Pending {
        self.shared.request_within(request, patience::copied(bytes))
    }

    /// The server's capabilities. Waits for its greeting and its limits.
    pub(super) async fn server(&self) -> Result<Arc<Server>> {
        let mut server = self.shared.server.subscribe();
        let known = async { server.wait_for(Option::is_some).await.map(|server| server.clone()) };
        match self.shared.awaited(|| "SFTP greeting".to_owned(), known).await? {
            Ok(Some(server)) if !self.is_ended() => Ok(server),
            _ => Err(self.shared.ended_error()),
        }
    }

    /// Whether the session has ended.
    pub(super) fn is_ended(&self) -> bool {
        self.shared.lock().ended.is_some()
    }

    /// A number that identifies this session among open ones.
    pub(super) fn id(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }
}

impl SharedLane for Session {
    /// Outstanding bytes, relative to what the lane carries: a new lane carries little, so a long queue on it would
    /// delay the whole transfer.
    fn load(&self) -> u64 {
        self.outstanding() * 1000 / self.shared.allowance.load(Ordering::Relaxed)
    }

    fn outstanding(&self) -> u64 {
        self.shared.outstanding.load(Ordering::Relaxed)
    }

    fn rtt(&self) -> Option<Duration> {
        match self.shared.rtt_ns.load(Ordering::Relaxed) {
            u64::MAX => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }

    fn current_rtt(&self) -> Option<Duration> {
        self.gauge.as_ref()?.sample()?.current_rtt(RECENT)
    }
}

/// A lane on which bytes are about to be requested. They count as outstanding already, since otherwise all reads that
/// begin at the same moment would choose the same lane. Drop it once the requests are made.
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
        // Wake all tasks that wait for a response.
        self.shared.end_because(ErrorKind::Unreachable, "the lane was closed".to_owned());
    }
}

/// Drops prefetched responses that were not used in time, and closes the handles among them.
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
        shared.silence.on_activity();
    }
}

/// State of the reader until the server's greeting arrives.
struct Greeting {
    /// The early request for the server's limits.
    limits: Option<Pending>,
}

async fn read(
    shared: Arc<Shared>,
    mut incoming: BoxStream<'static, Result<Bytes>>,
    greeting: Greeting,
) {
    let mut deframer = Deframer::new(RESPONSE_MAX).with_names(NAMES_MAX);
    let mut greeting = Some(greeting);
    let error = loop {
        match incoming.next().await {
            Some(Ok(bytes)) => {
                shared.silence.on_activity();
                deframer.push(bytes);
            }
            Some(Err(error)) => break error,
            None if greeting.is_some() => {
                // Permanent: the account has no SFTP, or its server fails at start.
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
            response => shared.complete(id, response)?,
        }
    }
    Ok(())
}

/// Completes the server's capabilities once the response with its limits has arrived, which follows the greeting.
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
        Some(pending) => match pending.response().await {
            Ok(Response::Extended(reply)) => Limits::decode(reply).ok(),
            // Without the extension, the minimum that every server must accept applies.
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

    /// Formerly, a response that was ready when its future was dropped was lost, and its handle stayed open for as long
    /// as the lane existed.
    #[tokio::test]
    async fn a_handle_is_closed_if_the_future_of_its_open_is_dropped() {
        let (sent, mut requests) = mpsc::unbounded_channel();
        let (responses, incoming) = mpsc::unbounded_channel();
        let incoming = stream::unfold(incoming, |mut incoming| async move {
            incoming.recv().await.map(|bytes| (Ok(bytes), incoming))
        });
        let channel = Channel {
            incoming: incoming.boxed(),
            outgoing: Box::new(Sent(sent)),
            server: String::new(),
            rtt: None,
            rtts: 0,
            gauge: None,
        };
        let session = Session::start(channel, "test", Patience::default(), Vec::new());
        let version = Response::Version { version: VERSION, extensions: Extensions::default() };
        responses.send(version.encode(0)).unwrap();
        session.server().await.unwrap();
        let [early, late] = [1, 2].map(|number| Handle::from(Bytes::from(vec![number])));
        let open = Request::Opendir(Bytes::from_static(b"/"));

        let pending = session.request(&open);
        responses.send(Response::Handle(early.clone()).encode(FIRST_ID)).unwrap();
        while !session.shared.lock().by_id.is_empty() {
            tokio::task::yield_now().await;
        }
        drop(pending);
        assert_eq!(requests.recv().await.unwrap(), open.encode(FIRST_ID));
        let closed = Request::Close(early).encode(FIRST_ID + 1);
        assert_eq!(requests.recv().await.unwrap(), closed);

        drop(session.request(&open));
        responses.send(Response::Handle(late.clone()).encode(FIRST_ID + 2)).unwrap();
        assert_eq!(requests.recv().await.unwrap(), open.encode(FIRST_ID + 2));
        let closed = Request::Close(late).encode(FIRST_ID + 3);
        assert_eq!(requests.recv().await.unwrap(), closed);
    }
}
