//! A session as the client sees it: the requests that wait for responses, on all lanes, and notices to the server.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use haul_storage::{Block, Capabilities, Error, ErrorKind, Result, Retry};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::patience::{Lasting, Patience, Subject};
use crate::outbox::Outbox;
use crate::tls::ProofKey;
use crate::wire::convert::clipped;
use crate::wire::messages::code::Refusal;
use crate::wire::messages::{self, to_client, to_server};
use crate::wire::{BulkHeader, LISTED_AHEAD, decode, message_frame, verify};

/// Limit of the outbox: bytes of uploads that are read and not yet sent.
const OUTBOX: usize = 16 << 20;

/// The first number of requests: smaller ones are reserved for those that are sent with a Hello.
const FIRST_NUMBER: u32 = 16;

/// Most outcomes that a server has to remember before the client confirms that they have arrived.
const MOST_UNCONFIRMED: usize = 64;

/// Minimum average length of the pieces of a long read: each piece takes memory besides its data.
const SHORTEST_PIECE: u64 = 4 << 10;

/// What the server states in its Welcome.
#[derive(Debug, Clone)]
pub(super) struct Welcomed {
    pub(super) name: String,
    pub(super) capabilities: Capabilities,
    pub(super) is_writable: bool,
}

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: [u8; 16],
    /// Further lanes prove that they have this key.
    pub(super) key: ProofKey,
    pub(super) welcome: Welcomed,
    pub(super) outbox: Outbox,
    pub(super) patience: Arc<Patience>,
    waiting: Mutex<HashMap<u32, Waiting>>,
    notices: Mutex<Notices>,
    /// Held while notices are sent: a request must not overtake those that another task has taken.
    turn: Mutex<()>,
    next: AtomicU32,
    pub(super) lanes: AtomicUsize,
    /// The server's message that the share has ended.
    goodbye: OnceLock<messages::Refused>,
}

/// A request without its last response.
#[derive(Debug)]
struct Waiting {
    /// The lane on which the request was sent; `None` until a lane has taken it from the outbox.
    lane: Option<u64>,
    caller: Caller,
}

/// The receiver of the responses.
#[derive(Debug)]
enum Caller {
    /// A task waits for the responses.
    Task { expects: Expects, responses: UnboundedSender<Result<Received>> },
    /// No task waits: the request is sent again until a response arrives.
    Notice(Box<messages::ToServer>),
}

/// How much may be sent in response to a request, so that a server cannot fill the client's memory.
#[derive(Debug, Clone, Copy)]
struct Expects {
    /// Whether it is a read, whose pieces may come over any lane.
    is_read: bool,
    /// Whether it is cancelled when its lane is lost, since its caller repeats it under another number.
    is_cancelled: bool,
    /// Bytes of pieces.
    bytes: u64,
    /// Messages and pieces.
    parts: u64,
}

impl Expects {
    /// One message, in response to a write or a request that is executed once.
    const ONE: Self = Self { is_read: false, is_cancelled: false, bytes: 0, parts: 1 };

    /// What the server may send for a request. Of several outcomes, each may have a message of its own, and the last
    /// message may have none.
    fn of(body: &to_server::Body) -> Self {
        let parts = match body {
            to_server::Body::Read(read) => most_pieces(read.length),
            to_server::Body::List(_) => u64::from(LISTED_AHEAD) + 1,
            to_server::Body::Stat(stat) => stat.paths.len() as u64 + 1,
            to_server::Body::ReadWhole(read) => read.paths.len() as u64 + 1,
            _ => 1,
        };
        let (is_read, bytes) = match body {
            to_server::Body::Read(read) => (true, read.length),
            _ => (false, 0),
        };
        Self { is_read, is_cancelled: !body.is_once(), bytes, parts }
    }
}

/// The number of pieces in which that many bytes may arrive.
pub(super) const fn most_pieces(bytes: u64) -> u64 {
    64 + bytes / SHORTEST_PIECE
}

/// Requests to the server for whose response no task waits. They are sent before the next request at the latest.
#[derive(Debug, Default)]
struct Notices {
    requests: Vec<messages::ToServer>,
    /// Requests whose outcomes the server need not remember any longer.
    confirmed: messages::Answered,
}

/// A response, or a part of one.
#[derive(Debug)]
pub(super) enum Received {
    /// A message.
    Message(to_client::Body),
    /// A piece of a file, whose hash has been verified.
    Piece(BulkHeader, Block),
}

/// The responses to a request.
#[derive(Debug)]
pub(super) struct Responses {
    pub(super) id: u32,
    receiver: UnboundedReceiver<Result<Received>>,
    subject: Subject,
    patience: Arc<Patience>,
    _lasting: Option<Lasting>,
}

impl Responses {
    /// The next response, which may be an error of the server; `None` if a lane was lost, the session has ended,
    /// or the last response was returned. A long wait is reported, and limited: see `patience`.
    pub(super) async fn outcome(&mut self) -> Option<Result<Received>> {
        let received = self.patience.within(&self.subject, self.receiver.recv()).await;
        received.unwrap_or_else(|error| Some(Err(error)))
    }

    /// The next response.
    ///
    /// # Errors
    /// That of the server; `Unreachable` if a lane was lost, or the wait was given up.
    pub(super) async fn next(&mut self) -> Result<Received> {
        match self.outcome().await {
            Some(Ok(Received::Message(to_client::Body::Failed(error)))) => Err(Error::from(error)),
            Some(outcome) => outcome,
            None => Err(lane_lost()),
        }
    }

    /// The next response, which has to be a message.
    ///
    /// # Errors
    /// As [`Responses::next`], and `Protocol`.
    pub(super) async fn message(&mut self) -> Result<to_client::Body> {
        match self.next().await? {
            Received::Message(body) => Ok(body),
            Received::Piece(..) => Err(unexpected()),
        }
    }
}

impl Session {
    pub(super) fn new(
        id: [u8; 16],
        key: ProofKey,
        welcome: Welcomed,
        patience: Arc<Patience>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            key,
            welcome,
            outbox: Outbox::new(OUTBOX),
            patience,
            waiting: Mutex::default(),
            notices: Mutex::default(),
            turn: Mutex::default(),
            next: AtomicU32::new(FIRST_NUMBER),
            lanes: AtomicUsize::new(0),
            goodbye: OnceLock::new(),
        })
    }

    /// A number for a request.
    pub(super) fn number(&self) -> u32 {
        let waiting = self.lock();
        loop {
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            if id != 0 && !waiting.contains_key(&id) {
                return id;
            }
        }
    }

    /// Registers a request that is sent on `lane`.
    pub(super) fn register(&self, lane: u64, body: &to_server::Body) -> Responses {
        self.register_as(self.number(), lane, body)
    }

    /// Registers a request that already has a number.
    pub(super) fn register_as(&self, id: u32, lane: u64, body: &to_server::Body) -> Responses {
        self.insert(id, Some(lane), Expects::of(body), Subject::of(body))
    }

    /// Registers a request that already has a number, and has one response.
    pub(super) fn register_once(&self, id: u32, lane: u64, subject: Subject) -> Responses {
        self.insert(id, Some(lane), Expects::ONE, subject)
    }

    /// Registers a write of `length` bytes, which is sent by a lane that takes it from the outbox.
    pub(super) fn register_write(&self, length: usize) -> Responses {
        self.insert(self.number(), None, Expects::ONE, Subject::write(length))
    }

    fn insert(&self, id: u32, lane: Option<u64>, expects: Expects, subject: Subject) -> Responses {
        let (responses, receiver) = unbounded_channel();
        let caller = Caller::Task { expects, responses };
        self.lock().insert(id, Waiting { lane, caller });
        let patience = Arc::clone(&self.patience);
        let _lasting = patience.expect(subject.limit);
        Responses { id, receiver, subject, patience, _lasting }
    }

    /// Permits further messages in response to a request.
    pub(super) fn permit(&self, id: u32, messages: u32) {
        if let Some(Waiting { caller: Caller::Task { expects, .. }, .. }) = self.lock().get_mut(&id)
        {
            expects.parts += u64::from(messages);
        }
    }

    /// Forgets a request. Returns whether it was waiting.
    pub(super) fn forget(&self, id: u32) -> bool {
        self.lock().remove(&id).is_some()
    }

    /// Notes that a lane has taken a request from the outbox.
    pub(super) fn taken(&self, id: u32, lane: u64) {
        if let Some(waiting) = self.lock().get_mut(&id) {
            waiting.lane = Some(lane);
        }
    }

    /// Passes a message to the request that it responds to. Returns whether it is progress: see `patience`.
    ///
    /// # Errors
    /// If it cannot be decoded, which ends the lane.
    pub(super) fn message(&self, bytes: Bytes) -> Result<bool> {
        let messages::ToClient { id, body } = decode(bytes)?;
        // A kind of response that only a later version has; no request of this one expects it.
        let Some(body) = body else { return Ok(false) };
        if let (0, to_client::Body::Refused(refused)) = (id, &body) {
            self.dismiss(refused);
            return Ok(true);
        }
        let mut all = self.lock();
        let is_progress = is_progress(all.get(&id).map(|waiting| &waiting.caller), &body);
        if is_progress {
            self.patience.on_progress();
        }
        let Some(waiting) = all.get_mut(&id) else { return Ok(is_progress) };
        match &mut waiting.caller {
            Caller::Notice(notice) => {
                let once = notice.body.as_ref().is_some_and(to_server::Body::is_once);
                let is_repeated = notice.again;
                all.remove(&id);
                drop(all);
                if once {
                    self.confirm(id, is_repeated);
                }
            }
            Caller::Task { expects, responses } => {
                let is_expected = expects.parts > 0;
                let is_last = is_last(&body) || !is_expected;
                expects.parts = expects.parts.saturating_sub(1);
                let outcome = match is_expected {
                    true => Ok(Received::Message(body)),
                    false => Err(unexpected()),
                };
                // Fails if the caller has dropped its receiver.
                drop(responses.send(outcome));
                if is_last {
                    all.remove(&id);
                }
            }
        }
        Ok(is_progress)
    }

    /// Fails all requests, since the server has ended the share: neither a retry nor another lane helps.
    fn dismiss(&self, refused: &messages::Refused) {
        let refused = self.goodbye.get_or_init(|| refused.clone());
        let all = std::mem::take(&mut *self.lock());
        for waiting in all.into_values() {
            if let Caller::Task { responses, .. } = waiting.caller {
                // Fails if the caller has dropped the request.
                drop(responses.send(Err(end(refused))));
            }
        }
        self.outbox.close();
        *self.lock_notices() = Notices::default();
    }

    /// The error of requests after the server has ended the share; `None` before.
    pub(super) fn goodbye(&self) -> Option<Error> {
        self.goodbye.get().map(end)
    }

    /// Passes a piece to its read.
    pub(super) fn piece(&self, header: BulkHeader, data: Block) {
        self.patience.on_progress();
        let outcome = verify(&header, &data).map_err(Error::from);
        let length = data.len() as u64;
        let mut all = self.lock();
        let Some(waiting) = all.get_mut(&header.id) else { return };
        let Caller::Task { expects, responses } = &mut waiting.caller else { return };
        let is_wanted = length > 0 && length <= expects.bytes && expects.parts > 0;
        expects.bytes = expects.bytes.saturating_sub(length);
        expects.parts = expects.parts.saturating_sub(1);
        let outcome = match is_wanted {
            true => outcome.map(|()| Received::Piece(header, data)),
            false => Err(unexpected()),
        };
        let has_failed = outcome.is_err();
        // Fails if the caller has dropped its receiver.
        drop(responses.send(outcome));
        if has_failed {
            all.remove(&header.id);
        }
    }

    /// Fails the requests that may have been lost with a lane, and cancels those that are repeated under another
    /// number: the server may still execute them. Notices are sent again. If the lane was closed, not lost, all pieces
    /// and notices on it have arrived. The end of the last lane fails all requests, and clears the outbox.
    pub(super) fn lane_ended(&self, lane: u64, was_closed: bool) {
        let is_last = self.lanes.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last {
            self.outbox.clear();
        }
        let is_lost = |request: &Waiting| {
            let is_on_it = request.lane == Some(lane);
            match &request.caller {
                Caller::Task { expects, .. } => {
                    is_last || is_on_it || (expects.is_read && !was_closed)
                }
                Caller::Notice(_) => is_on_it && !was_closed,
            }
        };
        let lost: Vec<_> = self.lock().extract_if(|_, request| is_lost(request)).collect();
        let mut tasks = Vec::new();
        for (id, Waiting { caller, .. }) in lost {
            match caller {
                Caller::Task { expects, responses } => {
                    if expects.is_cancelled {
                        self.notice(to_server::Body::Cancel(messages::Cancel { id, once: false }));
                    }
                    tasks.push(responses);
                }
                Caller::Notice(notice) => self.notice_again(*notice),
            }
        }
        // A task learns of the loss when its sender is dropped. This is last, so that its next request follows the
        // notices: the server must know of a lost lane before it sends pieces of a repeated read.
        drop(tasks);
    }

    /// The number of requests that were sent on a lane and for whose responses a task waits.
    pub(super) fn waiting_on(&self, lane: u64) -> u64 {
        let is_on_it = |request: &&Waiting| {
            request.lane == Some(lane) && matches!(request.caller, Caller::Task { .. })
        };
        self.lock().values().filter(is_on_it).count() as u64
    }

    /// Whether any response is due.
    pub(super) fn is_waiting(&self) -> bool {
        !self.lock().is_empty()
    }

    /// Fails everything: the server has ended the session.
    pub(super) fn end(&self) {
        self.outbox.close();
        self.lock().clear();
        *self.lock_notices() = Notices::default();
    }

    /// Queues a notice to the server, such as that a request is cancelled or a file is closed.
    pub(super) fn notice(&self, body: to_server::Body) {
        let notice = messages::ToServer { id: self.number(), body: Some(body), again: false };
        self.lock_notices().requests.push(notice);
    }

    /// Notes that the server need not remember the outcome of a request.
    pub(super) fn confirm(&self, id: u32, is_repeated: bool) {
        let confirmed = &mut self.lock_notices().confirmed;
        match is_repeated {
            true => confirmed.repeated.push(id),
            false => confirmed.ids.push(id),
        }
    }

    /// Takes the notices to be sent before the next request.
    pub(super) fn take_notices(&self) -> Vec<messages::ToServer> {
        let confirmed = {
            let confirmed = &mut self.lock_notices().confirmed;
            let is_enough = confirmed.ids.len() + confirmed.repeated.len() >= MOST_UNCONFIRMED;
            is_enough.then(|| std::mem::take(confirmed))
        };
        if let Some(confirmed) = confirmed {
            self.notice(to_server::Body::Answered(confirmed));
        }
        std::mem::take(&mut self.lock_notices().requests)
    }

    /// Waits while another task sends notices. Hold the guard while sending them.
    pub(super) fn notices_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a notice that is about to be sent on a lane.
    pub(super) fn register_notice(&self, lane: u64, notice: messages::ToServer) {
        let (id, lane) = (notice.id, Some(lane));
        self.lock().insert(id, Waiting { lane, caller: Caller::Notice(Box::new(notice)) });
    }

    /// Queues a notice again whose lane has ended, unless [`lane_ended`](Self::lane_ended) has done so already.
    pub(super) fn requeue(&self, id: u32) {
        let taken = self.lock().remove(&id);
        if let Some(Waiting { caller: Caller::Notice(notice), .. }) = taken {
            self.notice_again(*notice);
        }
    }

    fn notice_again(&self, notice: messages::ToServer) {
        self.lock_notices().requests.push(messages::ToServer { again: true, ..notice });
    }

    fn lock_notices(&self) -> MutexGuard<'_, Notices> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a response shows that the server makes progress. Pongs do not, nor do responses to notices: the server sends
/// them at once, even if its disk hangs. Only an `Abort` waits for the disk. A late response to a request that was
/// forgotten is progress, too.
const fn is_progress(caller: Option<&Caller>, body: &to_client::Body) -> bool {
    match (caller, body) {
        (_, to_client::Body::Pong(_)) => false,
        (Some(Caller::Notice(notice)), to_client::Body::Done(_)) => {
            matches!(notice.body, Some(to_server::Body::Abort(_)))
        }
        (Some(Caller::Notice(_)), _) => false,
        (Some(Caller::Task { .. }) | None, _) => true,
    }
}

/// Whether no further response follows. The end of a read may arrive before pieces on other lanes, so it is not counted
/// as the last: the reader forgets the request when it has everything.
const fn is_last(body: &to_client::Body) -> bool {
    match body {
        to_client::Body::Entries(messages::Entries { last, .. })
        | to_client::Body::Wholes(messages::Wholes { last, .. }) => *last,
        to_client::Body::ReadEnd(_) => false,
        _ => true,
    }
}

/// The frame of a request.
///
/// # Errors
/// If the message is too long.
pub(super) fn frame(id: u32, body: to_server::Body) -> Result<Bytes> {
    Ok(message_frame(&messages::ToServer { id, body: Some(body), again: false })?)
}

/// The error of a lane that is refused when it opens.
pub(super) fn refusal(refused: &messages::Refused) -> Error {
    let is_end = Refusal::of(refused.code) == Some(Refusal::Ended);
    refused_to(if is_end { USE } else { "open a session" }, refused)
}

/// The error of a session that the server ends.
fn end(refused: &messages::Refused) -> Error {
    refused_to(USE, refused)
}

const USE: &str = "use the share";

fn refused_to(operation: &'static str, refused: &messages::Refused) -> Error {
    let code = Refusal::of(refused.code);
    let (kind, retry) = match code {
        Some(Refusal::Busy) => (ErrorKind::Busy, Retry::Later),
        Some(Refusal::Session) => (ErrorKind::Unreachable, Retry::Later),
        Some(Refusal::Version | Refusal::Hello) => (ErrorKind::Protocol, Retry::Never),
        Some(Refusal::Ended) => (ErrorKind::Unreachable, Retry::Never),
        _ => (ErrorKind::Unauthenticated, Retry::Never),
    };
    Error::new(kind, operation).because(clipped(&refused.text)).with_retry(retry)
}

pub(super) fn lane_lost() -> Error {
    Error::new(ErrorKind::Unreachable, "talk to the peer").because("the connection was lost")
}

/// The error of a response that does not belong to the request.
pub(super) fn unexpected() -> Error {
    Error::new(ErrorKind::Protocol, "talk to the peer").because("an unexpected response")
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Wake, Waker};

    use haul_storage::Medium;
    use prost::Message;

    use super::*;

    fn session(lanes: usize) -> Arc<Session> {
        let capabilities = Capabilities::least(Medium::Link);
        let welcome = Welcomed { name: String::new(), capabilities, is_writable: true };
        let key = ProofKey::from_token(&[1; 32]).unwrap();
        let session = Session::new([1; 16], key, welcome, Arc::default());
        session.lanes.store(lanes, Ordering::Relaxed);
        session
    }

    /// A request with one response.
    fn remove() -> to_server::Body {
        to_server::Body::Remove(messages::PathOf { path: Bytes::from_static(b"file") })
    }

    fn respond(session: &Session, id: u32, body: to_client::Body) {
        let message = messages::ToClient { id, body: Some(body) };
        session.message(message.encode_to_vec().into()).unwrap();
    }

    /// Formerly, a notice was lost if it was sent on a lane that had ended.
    #[test]
    fn a_notice_is_sent_until_a_response_arrives() {
        let session = session(3);
        session.notice(to_server::Body::Close(messages::Close { handle: 7 }));
        let mut id = None;
        for lane in 0..3 {
            let notices = session.take_notices();
            let [notice] = &notices[..] else { panic!("{notices:?}") };
            assert_eq!(*id.get_or_insert(notice.id), notice.id);
            assert_eq!(notice.again, lane > 0);
            session.register_notice(lane, notice.clone());
            match lane {
                // Its lane had ended before.
                0 => session.requeue(notice.id),
                1 => session.lane_ended(lane, false),
                _ => respond(&session, notice.id, to_client::Body::Done(messages::Empty {})),
            }
        }
        session.lane_ended(2, false);
        assert!(session.take_notices().is_empty());
    }

    /// Formerly, a repeated read could overtake the notice about a lost lane: the server sent its pieces on that lane.
    #[tokio::test]
    async fn a_task_learns_of_a_lost_lane_once_all_notices_can_be_sent() {
        let session = session(3);
        let lost = to_server::Body::LaneLost(messages::LaneLost::default());
        session.notice(lost.clone());
        let notices = session.take_notices();
        session.register_notice(1, notices[0].clone());
        let mut responses = session.register(1, &remove());
        struct Look(Arc<Session>, Mutex<Vec<messages::ToServer>>);
        impl Wake for Look {
            fn wake(self: Arc<Self>) {
                self.1.lock().unwrap().extend(self.0.take_notices());
            }
        }
        let look = Arc::new(Look(Arc::clone(&session), Mutex::default()));
        let waker = Waker::from(Arc::clone(&look));
        let mut outcome = pin!(responses.outcome());
        assert!(outcome.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        session.lane_ended(1, false);
        let seen = look.1.lock().unwrap();
        assert!(seen.iter().any(|notice| notice.again && notice.body == Some(lost.clone())));
    }

    /// Formerly, a share that had been ended looked like a lost connection, which is retried for minutes.
    #[tokio::test]
    async fn requests_of_an_ended_share_fail_at_once_with_the_reason() {
        let session = session(2);
        let mut responses = session.register(0, &remove());
        let (code, text) = (Refusal::Ended.number(), "it is over\u{1b}[2J".to_owned());
        let refused = to_client::Body::Refused(messages::Refused { code, text });
        respond(&session, 0, refused);
        for error in [responses.message().await.unwrap_err(), session.goodbye().unwrap()] {
            assert_eq!((error.kind(), error.retry()), (ErrorKind::Unreachable, Retry::Never));
            assert!(error.to_string().contains("it is over"), "{error}");
            assert_eq!(error.operation(), "use the share");
        }
        assert!(session.outbox.room(1).await.is_err() && !session.is_waiting());
        // A ticket that expires during a transfer has opened its session.
        let refused =
            messages::Refused { code: Refusal::Expired.number(), text: "late".to_owned() };
        assert_eq!(end(&refused).to_string(), "cannot use the share (late)");
        assert_eq!(refusal(&refused).to_string(), "cannot open a session (late)");
    }

    #[tokio::test]
    async fn a_server_that_sends_more_than_was_requested_fails_the_request() {
        let session = session(1);
        let stat = messages::Stat { paths: vec![Bytes::new()] };
        let mut responses = session.register(0, &to_server::Body::Stat(stat));
        for _ in 0..4 {
            let entries = messages::Entries { outcomes: Vec::new(), last: false };
            respond(&session, responses.id, to_client::Body::Entries(entries));
        }
        responses.message().await.unwrap();
        responses.message().await.unwrap();
        assert_eq!(responses.message().await.unwrap_err().kind(), ErrorKind::Protocol);
        assert!(responses.outcome().await.is_none());
    }

    /// Formerly, only reads were: the server hashed a file for the lost request and for its repetition.
    #[test]
    fn requests_that_are_lost_with_their_lane_are_cancelled_unless_they_are_sent_again() {
        let session = session(2);
        let path = || Bytes::from_static(b"file");
        let digest = to_server::Body::Digest(messages::DigestOf { path: path(), kind: 1 });
        let requests = [digest, to_server::Body::Read(messages::Read::default()), remove()];
        let mut sent: Vec<_> = requests.iter().map(|body| session.register(1, body)).collect();
        sent.push(session.register_once(session.number(), 1, Subject::of(&remove())));
        let write = session.register_write(7);
        session.taken(write.id, 1);
        session.lane_ended(1, false);
        let mut cancelled: Vec<_> = session
            .take_notices()
            .into_iter()
            .map(|notice| match notice.body {
                Some(to_server::Body::Cancel(messages::Cancel { id, once: false })) => id,
                other => panic!("{other:?}"),
            })
            .collect();
        cancelled.sort();
        assert_eq!(cancelled, [sent[0].id, sent[1].id]);
    }

    #[test]
    fn outcomes_are_confirmed_many_at_a_time() {
        let session = session(1);
        for id in 1..MOST_UNCONFIRMED as u32 {
            session.confirm(id, false);
            assert!(session.take_notices().is_empty());
        }
        session.confirm(1000, true);
        let notices = session.take_notices();
        let [messages::ToServer { body: Some(to_server::Body::Answered(confirmed)), .. }] =
            &notices[..]
        else {
            panic!("{notices:?}")
        };
        assert_eq!(
            (confirmed.ids.len(), &confirmed.repeated[..]),
            (MOST_UNCONFIRMED - 1, &[1000][..])
        );
    }
}
