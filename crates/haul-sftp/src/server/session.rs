//! One SFTP session: bytes in, bytes out, over any transport.
//!
//! ```text
//! incoming → deframer → request → order → disk threads → response → writer → outgoing
//! ```
//!
//! One task does everything but disk work that may take long. The writer is a separate future, so that the task
//! goes on reading requests while the peer reads no responses: a peer may read only after it has sent more. The
//! task stops reading only while a disk write is in progress, which ends by itself (see [`limits`]).
//!
//! Responses to READ are read into a buffer after the head of their packet and sent as they are. Their bytes count
//! against the session's budget until the transport releases them. Payloads of WRITE, unless short, go to the disk in
//! the pieces in which they arrived, with consecutive writes merged.

mod error;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{Stream, StreamExt};
use haul_storage::{Block, bytes_owning};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

pub use self::error::SessionError;
use super::admission::{admit, number, version};
use super::copying::Copying;
use super::files::Open;
use super::handles;
use super::hashing::Hashing;
use super::job::Job;
use super::limits;
use super::names;
use super::order::{Order, Scope};
use super::pending::{Ended, Kind, Outcome, Pending, copied};
use super::responses::{Outgoing, send_responses};
use super::share::Share;
use super::status::{Refusal, at_end, ok};
use super::turns::Turns;
use crate::codec::{CodecError, Deframer, Extended, Frame, Request, Response, Status};

/// How long a terminated session may take to send its queued responses.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves a session until `incoming` has ended and all requests are executed; digests in progress are then dropped.
/// Once the client has disconnected, for example because it was killed, requests that have not begun are dropped, and
/// copies end with their current step.
///
/// # Errors
/// If the session was terminated; its last requests may not have been executed. Other sessions of
/// the share are not affected.
pub async fn serve_channel<I, O>(
    share: Arc<Share>,
    incoming: I,
    outgoing: O,
) -> Result<(), SessionError>
where
    I: Stream<Item = Bytes> + Unpin + Send,
    O: Outgoing,
{
    let (responses, unsent) = unbounded_channel();
    let unanswered = Arc::new(AtomicUsize::new(0));
    let client = outgoing.client();
    let writer = send_responses(unsent, outgoing, Arc::clone(&unanswered));
    let session = Session::new(share, responses, unanswered, client).run(incoming);
    tokio::pin!(writer);
    let outcome = {
        tokio::pin!(session);
        tokio::select! {
            outcome = &mut session => outcome,
            // The transport takes no more responses; the requests are executed anyway, unless the client is gone.
            () = &mut writer => return session.await,
        }
    };
    if outcome.is_ok() {
        writer.await;
    } else {
        // A terminated client may be one that does not read.
        drop(timeout(FLUSH_TIMEOUT, writer).await);
    }
    outcome
}

struct Session {
    share: Arc<Share>,
    order: Order<Job>,
    ready: Vec<Job>,
    /// Ready jobs that wait for budget for their responses.
    starved: VecDeque<Job>,
    budget: Arc<Semaphore>,
    turns: Turns,
    handles: HashMap<u32, Arc<Open>>,
    /// OPENs in progress.
    opening: usize,
    /// Digests in progress. Each has a file open, and counts as a handle.
    hashing: usize,
    /// Dropped with the session, which ends its digests.
    alive: Arc<()>,
    /// Number of requests admitted.
    count: u64,
    /// CLOSEs that were received and have not started, by request number.
    closes: BTreeSet<u64>,
    /// OPENs that wait for an earlier CLOSE to release a handle.
    unopened: Vec<Job>,
    next_handle: u32,
    is_begun: bool,
    /// Bytes received for unfinished requests.
    held: usize,
    /// Writes in progress.
    writing: usize,
    ended: UnboundedReceiver<Ended>,
    ending: UnboundedSender<Ended>,
    responses: UnboundedSender<Bytes>,
    unanswered: Arc<AtomicUsize>,
    /// Invalid once the client has disconnected.
    client: Weak<()>,
}

impl Session {
    fn new(
        share: Arc<Share>,
        responses: UnboundedSender<Bytes>,
        unanswered: Arc<AtomicUsize>,
        client: Weak<()>,
    ) -> Self {
        let (ending, ended) = unbounded_channel();
        Self {
            budget: Arc::new(Semaphore::new(share.response_bytes)),
            share,
            order: Order::default(),
            ready: Vec::new(),
            starved: VecDeque::new(),
            turns: Turns::default(),
            handles: HashMap::new(),
            opening: 0,
            hashing: 0,
            alive: Arc::default(),
            count: 0,
            closes: BTreeSet::new(),
            unopened: Vec::new(),
            next_handle: 0,
            is_begun: false,
            held: 0,
            writing: 0,
            ended,
            ending,
            responses,
            unanswered,
            client,
        }
    }

    async fn run<I>(mut self, incoming: I) -> Result<(), SessionError>
    where
        I: Stream<Item = Bytes> + Unpin,
    {
        let mut deframer = Deframer::new(limits::PACKET);
        // Dropped when no more input is needed, so that the transport does not wait for this task.
        let mut incoming = Some(incoming);
        while incoming.is_some() || !self.order.is_empty() {
            if self.is_gone() && (incoming.take().is_some() || !self.starved.is_empty()) {
                self.drop_starved();
                continue;
            }
            let is_open = incoming.is_some();
            let reads = is_open && !self.is_full();
            let responses = self.responses.clone();
            let wanted = self.starved.front().map(|job| job.cost(self.share.response_bytes));
            let budget = Arc::clone(&self.budget);
            tokio::select! {
                biased;
                Some(ended) = self.ended.recv() => {
                    self.finish(ended);
                    while let Ok(ended) = self.ended.try_recv() {
                        self.finish(ended);
                    }
                }
                permit = budget.acquire_many_owned(wanted.unwrap_or(0)), if wanted.is_some() => {
                    // The semaphore is never closed.
                    if let (Ok(permit), Some(job)) = (permit, self.starved.pop_front()) {
                        self.submit_budgeted(job, permit);
                    }
                }
                piece = next(&mut incoming), if reads => match piece {
                    Some(piece) => {
                        self.receive(&mut deframer, piece)?;
                    }
                    None => incoming = None,
                },
                () = responses.closed(), if is_open => incoming = None,
            }
            self.start_ready();
        }
        Ok(())
    }

    /// Whether reading must pause.
    fn is_full(&self) -> bool {
        self.writing > 0
            && (self.held > limits::HELD || self.share.held() > self.share.options.memory / 2)
    }

    fn receive(&mut self, deframer: &mut Deframer, piece: Bytes) -> Result<(), SessionError> {
        deframer.push(piece);
        while let Some(frame) = deframer.next_frame()? {
            self.take(frame)?;
            self.start_ready();
        }
        if self.unanswered.load(Ordering::Relaxed) > limits::REQUESTS {
            return Err(SessionError::TooManyRequests);
        }
        let is_too_much = self.held > limits::HELD_AT_MOST
            || (self.held > limits::HELD && self.share.held() > self.share.options.memory);
        if is_too_much { Err(SessionError::TooManyBytes) } else { Ok(()) }
    }

    /// Decodes a packet and adds its request to the order, or responds at once if nothing has to be done.
    fn take(&mut self, frame: Frame) -> Result<(), SessionError> {
        let Frame { kind, body } = frame;
        let length = body.len();
        let id_bytes: Vec<u8> =
            body.pieces().iter().flat_map(|piece| piece.iter().copied()).take(4).collect();
        let id = <[u8; 4]>::try_from(id_bytes).map_or(0, u32::from_be_bytes);
        let body = if length < limits::COPIED { copied(&body) } else { body };
        let (id, request) = match Request::decode(Frame { kind, body }) {
            Ok((_, Request::Init { .. })) => {
                self.is_begun = true;
                self.unanswered.fetch_add(1, Ordering::Relaxed);
                self.respond(version().encode(0));
                return Ok(());
            }
            _ if !self.is_begun => return Err(SessionError::NoInit),
            Ok((id, mut request)) => {
                // Extended attributes are not used here, and take eight times as much memory once decoded.
                request.forget_extended();
                (id, request)
            }
            Err(error) => {
                self.unanswered.fetch_add(1, Ordering::Relaxed);
                let status = match error {
                    CodecError::UnknownKind(_) => Status::Unsupported,
                    _ => Status::BadMessage,
                };
                let message = error.to_string().into();
                self.respond(Response::Status { status, message }.encode(id));
                return Ok(());
            }
        };
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        let writes = |handle| self.handles.get(&handle).is_some_and(|open| open.writes());
        match admit(&request, &self.share.options, writes) {
            Ok(scope) => {
                self.held += length;
                self.share.hold(length);
                let number = self.count;
                self.count += 1;
                if matches!(request, Request::Close(_)) {
                    self.closes.insert(number);
                }
                let job = Job { id, number, scope, request, held: length };
                self.order.push(scope, job, &mut self.ready);
            }
            Err(response) => self.respond(response.encode(id)),
        }
        Ok(())
    }

    /// Starts the jobs that are ready, and those that become ready because short jobs end at once.
    fn start_ready(&mut self) {
        while !self.ready.is_empty() {
            for job in std::mem::take(&mut self.ready) {
                self.start(job);
            }
            while let Ok(ended) = self.ended.try_recv() {
                self.finish(ended);
            }
            for job in std::mem::take(&mut self.unopened) {
                self.start_open(job);
            }
        }
    }

    /// Whether the client has disconnected. Its user may repeat the copy, which late requests must not disturb.
    fn is_gone(&self) -> bool {
        self.client.strong_count() == 0
    }

    /// Drops the jobs that wait for budget.
    fn drop_starved(&mut self) {
        for job in std::mem::take(&mut self.starved) {
            self.finish_at_once(&job, &Refusal::GONE);
        }
        self.start_ready();
    }

    fn start(&mut self, job: Job) {
        if self.is_gone() {
            self.closes.remove(&job.number);
            return self.finish_at_once(&job, &Refusal::GONE);
        }
        match &job.request {
            Request::Read { .. }
            | Request::Readdir(_)
            | Request::Readlink(_)
            | Request::Realpath(_)
            | Request::Extended(Extended::ExpandPath(_)) => {
                let cost = job.cost(self.share.response_bytes);
                let budget = Arc::clone(&self.budget);
                match budget.try_acquire_many_owned(cost) {
                    Ok(permit) if self.starved.is_empty() => self.submit_budgeted(job, permit),
                    _ => self.starved.push_back(job),
                }
            }
            Request::Write { .. } => self.start_write(job),
            Request::Open { .. } | Request::Opendir(_) => self.start_open(job),
            Request::Close(handle) => {
                self.closes.remove(&job.number);
                let closed = number(handle).ok().and_then(|handle| self.handles.remove(&handle));
                // Dropping the last reference closes the file, which may take time.
                self.submit(job, move |_, _| {
                    let response =
                        if closed.is_some() { ok() } else { Refusal::NO_HANDLE.response() };
                    drop(closed);
                    response
                });
            }
            Request::Fstat(handle)
            | Request::Fsetstat(handle, _)
            | Request::Extended(Extended::Fsync(handle) | Extended::Fstatvfs(handle)) => {
                let open = self.open(handle);
                self.submit(job, move |_, request| handles::perform(open, request));
            }
            Request::Extended(Extended::CheckFileName { .. }) => self.start_hash(job),
            Request::Extended(Extended::CopyData { from, to, .. }) => {
                match Copying::of(&job.request, self.open(from), self.open(to)) {
                    Some(copying) => {
                        let pending = self.pending(Kind::Other, &job);
                        copying.run(&self.share.pool, job.id, self.client.clone(), pending);
                    }
                    None => self.finish_at_once(&job, &Refusal::NO_HANDLE),
                }
            }
            _ => self.submit(job, |share, request| names::perform(&share.jail, request)),
        }
    }

    fn start_open(&mut self, job: Job) {
        if self.handles.len() + self.opening + self.hashing >= self.share.options.handles {
            // An earlier CLOSE makes room, even if its handle is still busy.
            if self.closes.first().is_some_and(|first| *first < job.number) {
                self.unopened.push(job);
                return;
            }
            return self.finish_at_once(&job, &Refusal::TOO_MANY);
        }
        self.opening += 1;
        let share = Arc::clone(&self.share);
        let pending = self.pending(Kind::Open, &job);
        self.execute(true, move || {
            let outcome = match &job.request {
                Request::Open { path, flags, attrs } => {
                    Open::file(&share.jail, path, *flags, attrs)
                }
                Request::Opendir(path) => Open::directory(&share.jail, path),
                _ => Err(Refusal::NO_HANDLE),
            };
            pending.end(Outcome::Opened { id: job.id, outcome });
        });
    }

    /// Opens the file to be hashed. Only the opening is ordered with other requests, so later ones need
    /// not wait for the digest of a long file.
    fn start_hash(&mut self, job: Job) {
        if self.handles.len() + self.opening + self.hashing >= self.share.options.handles {
            return self.finish_at_once(&job, &Refusal::TOO_MANY);
        }
        self.hashing += 1;
        let share = Arc::clone(&self.share);
        let pending = self.pending(Kind::Hash, &job);
        self.execute(false, move || {
            let outcome = Hashing::open(&share.jail, &job.request);
            pending.end(Outcome::Hashing { id: job.id, outcome });
        });
    }

    /// Starts a write, merged with later ones that continue where it ends.
    fn start_write(&mut self, job: Job) {
        let scope = job.scope;
        let mut pending = self.pending(Kind::Write, &job);
        let Request::Write { handle, offset, data } = job.request else { return };
        let open = self.open(&handle);
        let mut parts = vec![(job.id, data.len())];
        let mut block: Block = data;
        let number = number(&handle).unwrap_or_default();
        loop {
            let end = offset.saturating_add(block.len() as u64);
            let room = limits::MERGED.saturating_sub(block.len());
            let next = self.order.join(number, |job| match &job.request {
                Request::Write { offset, data, .. } => *offset == end && data.len() <= room,
                _ => false,
            });
            let Some(next) = next else { break };
            pending.add(next.id, next.held);
            if let Request::Write { data, .. } = next.request {
                parts.push((next.id, data.len()));
                block.append(data);
            }
        }
        debug_assert!(matches!(scope, Scope::Write(_)), "a write changes a file");
        self.writing += 1;
        self.execute(block.len() <= limits::SHORT, move || {
            let (written, outcome) =
                match open.as_deref().ok_or(Refusal::NO_HANDLE).and_then(Open::as_file) {
                    Ok(file) => file.write(offset, &block),
                    Err(refusal) => (0, Err(refusal)),
                };
            let refusal = outcome.err().unwrap_or(Refusal::NO_HANDLE);
            let mut end = 0;
            let packets = parts.iter().map(|(id, length)| {
                end += length;
                if end <= written { ok().encode(*id) } else { refusal.response().encode(*id) }
            });
            let packets = packets.collect();
            drop(block);
            pending.end(Outcome::Packets(packets));
        });
    }

    /// Submits a job with a long response, whose share of the budget is `permit`.
    fn submit_budgeted(&mut self, job: Job, permit: OwnedSemaphorePermit) {
        let open = match &job.request {
            Request::Read { handle, .. } | Request::Readdir(handle) => match self.open(handle) {
                Some(open) => Some(open),
                None => return self.finish_at_once(&job, &Refusal::NO_HANDLE),
            },
            _ => None,
        };
        let share = Arc::clone(&self.share);
        let kind = match job.scope {
            Scope::Read(handle) => {
                self.turns.begin(handle, job.id);
                Kind::Read { handle, id: job.id }
            }
            _ => Kind::Other,
        };
        let pending = self.pending(kind, &job);
        let is_short = match &job.request {
            Request::Read { length, .. } => limits::read_length(*length) <= limits::SHORT,
            _ => true,
        };
        self.execute(is_short, move || {
            let id = job.id;
            let packet = match (&job.request, &open) {
                (Request::Read { offset, length, .. }, Some(open)) => open
                    .as_file()
                    .and_then(|file| {
                        file.read(id, *offset, limits::read_length(*length), &share.buffers)
                    })
                    .map(|packet| packet.unwrap_or_else(|| at_end("End of file").encode(id))),
                (Request::Readdir(_), Some(open)) => {
                    open.list().map(|names| match names.is_empty() {
                        true => at_end("End of directory").encode(id),
                        false => Response::Names(names).encode(id),
                    })
                }
                (request, _) => Ok(names::perform(&share.jail, request).encode(id)),
            };
            let bytes = packet.unwrap_or_else(|refusal| refusal.response().encode(id));
            // The file may be closed as soon as the response is sent.
            drop(open);
            // The budget is released when the last byte was sent.
            pending.end(Outcome::Packet(bytes_owning(bytes, permit)));
        });
    }

    /// Runs a job, on a disk thread if it may take long.
    fn submit(&self, job: Job, work: impl FnOnce(&Share, &Request) -> Response + Send + 'static) {
        let share = Arc::clone(&self.share);
        let pending = self.pending(Kind::Other, &job);
        // Removing a large file frees many blocks.
        let is_long =
            matches!(job.request, Request::Remove(_) | Request::Extended(Extended::Fsync(_)));
        self.execute(!is_long, move || {
            let packet = work(&share, &job.request).encode(job.id);
            pending.end(Outcome::Packet(packet));
        });
    }

    /// Runs work, on a disk thread unless it is short. If the client disconnects while it is queued, it is dropped,
    /// which ends its job.
    fn execute(&self, is_short: bool, work: impl FnOnce() + Send + 'static) {
        let (pool, client) = (&self.share.pool, self.client.clone());
        let work = move || {
            if client.strong_count() > 0 {
                work();
            }
        };
        if is_short { pool.submit_short(work) } else { pool.submit(work) }
    }

    fn pending(&self, kind: Kind, job: &Job) -> Pending {
        Pending::new(Some(job.scope), job.id, job.held, kind, self.ending.clone())
    }

    fn finish_at_once(&mut self, job: &Job, refusal: &Refusal) {
        let outcome = Outcome::Packet(refusal.response().encode(job.id));
        let kind = Kind::Other;
        self.finish(Ended { scope: Some(job.scope), requests: 1, held: job.held, kind, outcome });
    }

    fn finish(&mut self, ended: Ended) {
        self.held -= ended.held;
        self.share.release(ended.held);
        match ended.kind {
            Kind::Write => self.writing -= 1,
            Kind::Open => self.opening -= 1,
            Kind::Hash => self.hashing -= 1,
            Kind::Read { .. } | Kind::Other => {}
        }
        match ended.outcome {
            Outcome::Packet(packet) => self.respond_in_turn(ended.kind, packet),
            Outcome::Packets(packets) => {
                for packet in packets {
                    self.respond_in_turn(ended.kind, packet);
                }
            }
            Outcome::Opened { id, outcome } => {
                let response = match outcome {
                    Ok(open) => Response::Handle(self.name(open)),
                    Err(refusal) => refusal.response(),
                };
                self.respond(response.encode(id));
            }
            Outcome::Hashing { id, outcome: Ok(hashing) } => {
                self.hashing += 1;
                let pending = Pending::new(None, id, 0, Kind::Hash, self.ending.clone());
                let session = Arc::downgrade(&self.alive);
                let respond = |packet| pending.end(Outcome::Packet(packet));
                hashing.run(&self.share.pool, id, session, respond);
            }
            Outcome::Hashing { id, outcome: Err(refusal) } => {
                self.respond(refusal.response().encode(id));
            }
        }
        let Some(scope) = ended.scope else { return };
        for _ in 0..ended.requests {
            self.order.finish(scope, &mut self.ready);
        }
    }

    /// Assigns a handle; a number is reused only after 2^32 others.
    fn name(&mut self, open: Open) -> Bytes {
        while self.handles.contains_key(&self.next_handle) {
            self.next_handle = self.next_handle.wrapping_add(1);
        }
        let handle = self.next_handle;
        self.next_handle = handle.wrapping_add(1);
        self.handles.insert(handle, Arc::new(open));
        Bytes::copy_from_slice(&handle.to_be_bytes())
    }

    fn open(&self, handle: &[u8]) -> Option<Arc<Open>> {
        self.handles.get(&number(handle).ok()?).cloned()
    }

    fn respond_in_turn(&mut self, kind: Kind, packet: Bytes) {
        match kind {
            Kind::Read { handle, id } => {
                for packet in self.turns.end(handle, id, packet) {
                    self.respond(packet);
                }
            }
            _ => self.respond(packet),
        }
    }

    fn respond(&self, packet: Bytes) {
        // Fails once the writer has ended: the transport accepts no more responses.
        drop(self.responses.send(packet));
    }
}

/// Releases the bytes that an unfinished session still holds.
impl Drop for Session {
    fn drop(&mut self) {
        self.share.release(self.held);
    }
}

async fn next(incoming: &mut Option<impl Stream<Item = Bytes> + Unpin>) -> Option<Bytes> {
    incoming.as_mut()?.next().await
}

#[cfg(test)]
mod tests;
