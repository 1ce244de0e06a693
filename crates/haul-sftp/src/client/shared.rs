//! State shared by the tasks of a session: requests that wait to be written, and tasks that wait for responses.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use haul_net::Pace;
use haul_storage::{Block, Error, ErrorKind, Result};
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot, watch};

use super::patience::{self, SILENCE, Silence, Subject};
use super::server::Server;
use super::table::Table;
use crate::codec::{Handle, Request, Response};

/// The longest response to READDIR accepted, in bytes, and the limit for all long ones of a lane that are not consumed
/// yet. AWS Transfer Family and others list a whole directory in one packet.
pub(super) const NAMES_MAX: u32 = 64 << 20;

/// The id of the first request.
pub(super) const FIRST_ID: u32 = 1;

/// Bytes that a lane is expected to carry per RTT, at least.
const FIRST_ALLOWANCE: u64 = 256 << 10;

/// A lane is expected to carry up to this multiple of what it carried in the last RTT, as in TCP's slow start.
const GROWTH: u64 = 2;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) host: String,
    queue: mpsc::UnboundedSender<Outbound>,
    next_id: AtomicU32,
    waiting: Mutex<Waiting>,
    /// Bytes of payload that were reserved, requested or sent, until their response is consumed or abandoned.
    pub(super) outstanding: AtomicU64,
    /// Bytes of long responses to READDIR that are not consumed yet.
    names_held: AtomicU64,
    /// Bytes that the lane is expected to carry per RTT.
    pub(super) allowance: AtomicU64,
    /// Shortest RTT so far, of the channel or of a request without payload, in nanoseconds; `u64::MAX` if unknown.
    pub(super) rtt_ns: AtomicU64,
    pub(super) server: watch::Sender<Option<Arc<Server>>>,
    pub(super) table: Table,
    pub(super) silence: Silence,
}

/// Requests that wait for their responses, and the cause once the session has ended.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) by_id: HashMap<u32, Waiter>,
    pub(super) ended: Option<Ended>,
    pub(super) pace: Pace,
}

/// Why a session has ended.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub(super) kind: ErrorKind,
    pub(super) cause: String,
}

#[derive(Debug)]
pub(super) struct Outbound {
    pub(super) head: Bytes,
    pub(super) payload: Block,
}

/// A pending response. Dropping it abandons the response, but does not cancel the request.
#[derive(Debug)]
pub(super) struct Pending {
    shared: Arc<Shared>,
    response: oneshot::Receiver<Result<Response>>,
    weight: u64,
    subject: Subject,
}

/// Requests that were sent right behind an open, for its predicted handle.
#[derive(Debug)]
pub(super) struct Ahead {
    handle: Handle,
    pending: Vec<Pending>,
}

impl Ahead {
    /// The responses, if the open has returned the predicted `handle`; none otherwise, since they are for no file or
    /// another.
    pub(super) fn of(self, handle: &Handle) -> Vec<Pending> {
        if self.handle == *handle { self.pending } else { Vec::new() }
    }
}

/// The reading task's side of a pending response.
#[derive(Debug)]
pub(super) struct Waiter {
    response: oneshot::Sender<Result<Response>>,
    /// When the request was queued, if its response measures the RTT.
    sent: Option<Instant>,
    weight: u64,
    /// The request opens a file or directory.
    opens: bool,
    /// How long the lane may be silent while this response is pending.
    limit: Duration,
}

impl Pending {
    /// Waits for the response. Closes the lane if it is silent for too long.
    pub(super) async fn response(mut self) -> Result<Response> {
        let Self { shared, response, subject, .. } = &mut self;
        let received = match response.try_recv() {
            Err(TryRecvError::Empty) => shared.awaited(|| subject.to_string(), response).await?,
            Ok(response) => Ok(response),
            Err(TryRecvError::Closed) => return Err(shared.ended_error()),
        };
        match received {
            Ok(response) => {
                self.shared.taken(&response);
                response
            }
            Err(_) => Err(self.shared.ended_error()),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.shared.outstanding.fetch_sub(self.weight, Ordering::Relaxed);
        // If a handle arrives from now on, the reading task closes it. If it has arrived before, it is closed here.
        self.response.close();
        if let Ok(response) = self.response.try_recv() {
            self.shared.taken(&response);
            if let Ok(Response::Handle(handle)) = response {
                self.shared.post(&Request::Close(handle));
            }
        }
    }
}

impl Shared {
    pub(super) fn new(
        host: &str,
        queue: mpsc::UnboundedSender<Outbound>,
        rtt: Option<Duration>,
        silence: Silence,
    ) -> Self {
        Self {
            host: host.to_owned(),
            queue,
            next_id: AtomicU32::new(FIRST_ID),
            waiting: Mutex::new(Waiting { by_id: HashMap::new(), ended: None, pace: Pace::new() }),
            outstanding: AtomicU64::new(0),
            names_held: AtomicU64::new(0),
            allowance: AtomicU64::new(FIRST_ALLOWANCE),
            rtt_ns: AtomicU64::new(rtt.map_or(u64::MAX, nanos)),
            server: watch::Sender::new(None),
            table: Table::default(),
            silence,
        }
    }

    pub(super) fn request(self: &Arc<Self>, request: &Request) -> Pending {
        self.request_within(request, patience::limit(request))
    }

    /// Queues a request whose response does not matter. It does not extend the time limit of other requests.
    pub(super) fn post(self: &Arc<Self>, request: &Request) {
        drop(self.request_within(request, SILENCE));
    }

    pub(super) fn request_within(self: &Arc<Self>, request: &Request, limit: Duration) -> Pending {
        self.send(&mut self.lock(), request, limit)
    }

    /// Queues an open and, right behind it, the requests that `then` makes for the predicted handle, so that nothing
    /// else is sent between them. `is_exact`: see [`Table::next`].
    pub(super) fn request_ahead(
        self: &Arc<Self>,
        open: &Request,
        is_exact: bool,
        then: impl FnOnce(&Handle) -> Vec<Request>,
    ) -> (Pending, Option<Ahead>) {
        let mut waiting = self.lock();
        let handle = self.table.next(is_exact);
        let mut send =
            |request: &Request| self.send(&mut waiting, request, patience::limit(request));
        let opened = send(open);
        let ahead = handle.map(|handle| {
            let pending = then(&handle).iter().map(send).collect();
            Ahead { handle, pending }
        });
        (opened, ahead)
    }

    /// Registers and queues a request, both under one lock: the table of handles relies on the order of sending.
    fn send(
        self: &Arc<Self>,
        waiting: &mut Waiting,
        request: &Request,
        limit: Duration,
    ) -> Pending {
        let (id, pending) = self.register(waiting, request, limit, Some(Instant::now()));
        let payload = request.payload().cloned().unwrap_or_default();
        self.push(Outbound { head: request.encode(id), payload });
        pending
    }

    /// Registers a request that was sent with the greeting.
    pub(super) fn expect(self: &Arc<Self>, request: &Request, limit: Duration) -> Pending {
        self.register(&mut self.lock(), request, limit, None).1
    }

    /// Registers a request. `sent`: when it was queued; `None` if it was sent with the greeting.
    fn register(
        self: &Arc<Self>,
        waiting: &mut Waiting,
        request: &Request,
        limit: Duration,
        sent: Option<Instant>,
    ) -> (u32, Pending) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, response) = oneshot::channel();
        let weight = weight(request);
        self.outstanding.fetch_add(weight, Ordering::Relaxed);
        // If the session has ended, the sender is dropped here, and its receiver reports the cause.
        if waiting.ended.is_none() {
            let sent = sent.filter(|_| weight == 0);
            let opens = self.table.on_request(request);
            self.silence.on_request(limit);
            waiting.by_id.insert(id, Waiter { response: sender, sent, weight, opens, limit });
        }
        (id, Pending { shared: Arc::clone(self), response, weight, subject: Subject::of(request) })
    }

    fn push(&self, outbound: Outbound) {
        // The writing task ends only with the session, and then every pending response reports the cause.
        drop(self.queue.send(outbound));
    }

    /// Ends the session: all pending responses report the error. Only the first cause counts.
    pub(super) fn end(&self, error: &Error) {
        self.end_because(error.kind(), error.to_string());
    }

    pub(super) fn end_because(&self, kind: ErrorKind, cause: String) {
        let mut waiting = self.lock();
        if waiting.ended.is_none() {
            waiting.ended = Some(Ended { kind, cause });
            for (_, waiter) in waiting.by_id.drain() {
                self.silence.on_response(waiter.limit);
            }
            drop(waiting);
            // Wake the tasks that wait for the greeting.
            self.server.send_modify(|server| {
                server.get_or_insert_with(|| Arc::new(Server::unknown()));
            });
        }
    }

    /// Waits for something from the server. Closes the lane if it is silent for too long.
    pub(super) async fn awaited<T>(
        &self,
        what: impl Fn() -> String,
        future: impl Future<Output = T>,
    ) -> Result<T> {
        let longest = || self.lock().by_id.values().map(|waiter| waiter.limit).max();
        let longest = || longest().unwrap_or(SILENCE);
        self.silence.within(&what, longest, future).await.map_err(|limit| {
            let silent = format!("the server was silent for {} s ({})", limit.as_secs(), what());
            self.end_because(ErrorKind::Unreachable, silent);
            self.ended_error()
        })
    }

    pub(super) fn ended_error(&self) -> Error {
        let ended = self.lock().ended.clone();
        let ended = ended.unwrap_or(Ended {
            kind: ErrorKind::Unreachable,
            cause: "the connection was closed".to_owned(),
        });
        Error::new(ended.kind, "use the connection").at(&self.host).because(ended.cause)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a long response to READDIR.
    ///
    /// # Errors
    /// If more than [`NAMES_MAX`] bytes of them are not consumed yet.
    pub(super) fn hold(&self, response: &Response) -> Result<()> {
        let Response::ManyNames(names) = response else { return Ok(()) };
        let held = names.held() as u64;
        let all = self.names_held.fetch_add(held, Ordering::Relaxed) + held;
        match all > u64::from(NAMES_MAX) {
            true => Err(protocol(format!(
                "{all} bytes of names at once, when {NAMES_MAX} are accepted"
            ))),
            false => Ok(()),
        }
    }

    /// A response was consumed.
    pub(super) fn taken(&self, response: &Result<Response>) {
        if let Ok(Response::ManyNames(names)) = response {
            self.names_held.fetch_sub(names.held() as u64, Ordering::Relaxed);
        }
    }

    /// Passes a response to the task that waits for it.
    pub(super) fn complete(self: &Arc<Self>, id: u32, response: Response) -> Result<()> {
        let waiter = {
            let mut waiting = self.lock();
            let Some(waiter) = waiting.by_id.remove(&id) else {
                return Err(protocol(format!("a response to the unknown request {id}")));
            };
            if waiter.weight > 0 {
                let rtt = self.rtt_ns.load(Ordering::Relaxed);
                let carried = waiting.pace.carry(waiter.weight, Duration::from_nanos(rtt));
                let allowance = FIRST_ALLOWANCE.max(GROWTH * carried);
                self.allowance.store(allowance, Ordering::Relaxed);
            }
            waiter
        };
        self.silence.on_response(waiter.limit);
        if waiter.opens {
            self.table.on_response(&response);
        }
        if let Some(sent) = waiter.sent {
            self.rtt_ns.fetch_min(nanos(sent.elapsed()), Ordering::Relaxed);
        }
        self.hold(&response)?;
        if let Err(unwanted) = waiter.response.send(Ok(response)) {
            self.taken(&unwanted);
            // The open was abandoned.
            if let Ok(Response::Handle(handle)) = unwanted {
                self.post(&Request::Close(handle));
            }
        }
        Ok(())
    }
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Bytes of payload that a request moves.
pub(super) fn weight(request: &Request) -> u64 {
    match request {
        Request::Read { length, .. } => u64::from(*length),
        Request::Write { data, .. } => data.len() as u64,
        _ => 0,
    }
}

pub(super) fn protocol(cause: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Protocol, "read a response").because(cause.to_string())
}
