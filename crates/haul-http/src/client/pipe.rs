//! Parts of files over one connection, asked for and sent one behind the other (RFC 9112, 9.3.2).
//!
//! A lane that asks for a part when the one before has arrived, or sends one when the one before is
//! answered, is idle for a round trip each time. Here the next request is with the server before the
//! answer to the one before has ended, so that the connection never rests.
//!
//! ```text
//! ask → writer task → server → reader task: head, then blocks → Parts, in order of asking
//! ```
//!
//! The reader always reads on, whoever takes what it has read or not: one part may have to wait for
//! another one that comes behind it. How much can wait is bounded by what was asked for.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use haul_net::{HostWaits, Pace, RttGauge};
use haul_storage::{Block, BufferPool};
use http::header::{CONNECTION, HeaderName, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};

use super::answer::Head;
use super::ask::SLOWEST;
use super::body::Payload;
use super::connect::{Connected, Link};
use super::sending::Sending;
use crate::parse::{Url, length};

/// The longest head that is read.
const HEAD_MOST: usize = 64 << 10;

/// Provisional answers (1xx) before one that counts.
const PROVISIONAL_MOST: usize = 64;
const HEAD_READ: usize = 4 << 10;
const HEADERS_MOST: usize = 128;

/// Bytes of a block, if they come within [`GATHERED`]: a write to a disk is worth its way to a thread.
const BLOCK: usize = 256 << 10;
const GATHERED: Duration = Duration::from_millis(30);

/// What nobody wants any more is read to its end if no more than this is left of it: a new connection
/// costs more.
const SKIPPED_MOST: u64 = 1 << 20;

/// And if that takes no longer than this.
const SKIPPED_FOR: Duration = Duration::from_secs(1);

/// No lane is given more than this, in thousandths of what it carries in two round trips: the first one would have
/// everything, and on a slow path the slowest would have as much left at the end as the fastest had.
pub const ENOUGH: u64 = 2000;

/// What a new lane may be expected to carry in a round trip, and by how much more than it has carried.
const FIRST_ALLOWANCE: u64 = 256 << 10;
const GROWTH: u64 = 2;

/// The same for one that has had so many round trips to show what it carries.
const LEAST_ALLOWANCE: u64 = 32 << 10;
const SHOWN_AFTER: u32 = 8;
const SHOWN_AFTER_AT_LEAST: Duration = Duration::from_secs(1);

/// How old a round trip of a packet may be that is shown as that of now.
const RECENT: Duration = Duration::from_millis(200);

/// A connection that parts are asked for on. It ends when nobody has it any more.
#[derive(Debug)]
pub struct Pipe {
    shared: Arc<Shared>,
    questions: UnboundedSender<Question>,
    gauge: Option<RttGauge>,
    rtt: Duration,
    opened: Instant,
}

#[derive(Debug)]
struct Shared {
    /// Bytes that were asked for and have not arrived.
    outstanding: AtomicU64,
    /// Bytes that the lane may be expected to carry in a round trip.
    allowance: AtomicU64,
    /// Bytes that have arrived.
    arrived: AtomicU64,
    /// When the last that was asked for had arrived.
    idle_since: Mutex<Instant>,
    ended: AtomicBool,
    abandoned: Notify,
    /// Whether the server has said anything.
    answered: AtomicBool,
    asked: AtomicU64,
    /// After how many requests the server ends the connection, if it says so.
    most_asked: AtomicU64,
}

impl Shared {
    fn load(&self) -> u64 {
        let allowance = self.allowance.load(Ordering::Relaxed);
        self.outstanding.load(Ordering::Relaxed) * 1000 / allowance
    }
}

/// The answer to one request, as it comes.
#[derive(Debug)]
pub struct Part {
    pieces: UnboundedReceiver<Result<Piece, Broken>>,
}

/// A piece of an answer: its head first.
#[derive(Debug)]
pub enum Piece {
    /// The head.
    Head(Head),
    /// Some of the body.
    Body(Bytes),
}

/// Why an answer ends too early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broken {
    /// The connection ended before the answer began: nothing is known of the request.
    Lost,
    /// Within the answer.
    Within(String),
    /// What came is no answer, or none that can be read here.
    Unreadable(String),
}

/// A request, and where its answer goes.
#[derive(Debug)]
pub struct Question {
    /// Its head.
    pub(super) bytes: Vec<u8>,
    url: Url,
    pieces: UnboundedSender<Result<Piece, Broken>>,
    expected: u64,
    /// What is sent with it.
    pub(super) body: Block,
    /// How much that is.
    sent: u64,
    method: Method,
}

impl Question {
    /// Whether the answer has no body, whatever it says (RFC 9110, 9.3.2).
    fn is_head(&self) -> bool {
        self.method == Method::HEAD
    }

    /// What is waited for, until the answer begins.
    fn answer(&self) -> String {
        format!("response to {} {}", self.method, self.url.path())
    }

    /// What is waited for, once it has begun.
    fn rest(&self) -> String {
        format!("rest of the {}", self.answer())
    }
}

impl Pipe {
    /// Over a connection. What it does is done on `runtime`; that it can carry more is announced by `changed`.
    pub fn start(
        connected: Connected<Link>,
        buffers: BufferPool,
        waits: HostWaits,
        changed: Arc<Notify>,
        runtime: &Handle,
    ) -> Self {
        let Connected { stream, rtt, gauge } = connected;
        let (reading, writing) = tokio::io::split(stream);
        let (questions, asked) = unbounded_channel();
        let (written, answered) = unbounded_channel();
        let shared = Arc::new(Shared {
            outstanding: AtomicU64::new(0),
            allowance: AtomicU64::new(FIRST_ALLOWANCE),
            arrived: AtomicU64::new(0),
            idle_since: Mutex::new(Instant::now()),
            ended: AtomicBool::new(false),
            abandoned: Notify::new(),
            answered: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            most_asked: AtomicU64::new(u64::MAX),
        });
        let (all_read, is_all_read) = oneshot::channel();
        runtime.spawn(write(writing, asked, written, is_all_read));
        let reader = Reader {
            stream: reading,
            ahead: BytesMut::new(),
            buffers,
            shared: Arc::clone(&shared),
            pace: Pace::new(),
            most: 0,
            began: Instant::now(),
            changed,
            waits,
            rtt,
            number: 0,
            _all_read: all_read,
        };
        runtime.spawn(reader.run(answered));
        Self { shared, questions, gauge, rtt, opened: Instant::now() }
    }

    /// Asks for a part of `expected` bytes, or sends one: `body` goes with the request, which says its
    /// length.
    pub fn ask(&self, request: &Request<Payload>, url: &Url, expected: u64, body: &Block) -> Part {
        let (pieces, receiver) = unbounded_channel();
        let sent = body.len() as u64;
        let expected = expected + sent;
        self.shared.outstanding.fetch_add(expected, Ordering::Relaxed);
        self.shared.asked.fetch_add(1, Ordering::Relaxed);
        let bytes = as_sent(request);
        let (url, body, method) = (url.clone(), body.clone(), request.method().clone());
        let question = Question { bytes, url, pieces, expected, body, sent, method };
        if let Err(refused) = self.questions.send(question) {
            self.shared.outstanding.fetch_sub(expected, Ordering::Relaxed);
            drop(refused.0.pieces.send(Err(Broken::Lost)));
        }
        Part { pieces: receiver }
    }

    /// How busy the lane is, in thousandths of what it can carry in a round trip.
    pub fn load(&self) -> u64 {
        self.shared.load()
    }

    /// Bytes that were asked for and have not arrived.
    pub fn outstanding(&self) -> u64 {
        self.shared.outstanding.load(Ordering::Relaxed)
    }

    /// For how long nothing has been outstanding.
    pub fn idle_for(&self) -> Duration {
        let since = *self.shared.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
        if self.outstanding() == 0 { since.elapsed() } else { Duration::ZERO }
    }

    /// Bytes of bodies that have arrived.
    pub fn arrived(&self) -> u64 {
        self.shared.arrived.load(Ordering::Relaxed)
    }

    /// Whether nothing can be asked any more.
    pub fn is_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Relaxed)
            || self.questions.is_closed()
            || self.shared.asked.load(Ordering::Relaxed)
                >= self.shared.most_asked.load(Ordering::Relaxed)
    }

    /// Whether anything has been answered. Servers that have too many connections close those that
    /// they have just accepted.
    pub fn has_answered(&self) -> bool {
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// When it was opened.
    pub const fn opened(&self) -> Instant {
        self.opened
    }

    /// Nothing more is to be asked.
    pub fn retire(&self) {
        self.shared.ended.store(true, Ordering::Relaxed);
    }

    /// Ends the connection, whatever was asked on it: that is lost.
    pub fn abandon(&self) {
        self.retire();
        self.shared.abandoned.notify_one();
    }

    /// The shortest round trip seen.
    pub fn rtt(&self) -> Duration {
        let seen = self.gauge.as_ref().and_then(RttGauge::round_trips);
        seen.map_or(self.rtt, |seen| seen.shortest.min(self.rtt))
    }

    /// The round trip of packets at present, if some were sent of late.
    pub fn at_present(&self) -> Option<Duration> {
        self.gauge.as_ref()?.round_trips()?.at_present(RECENT)
    }
}

impl Part {
    /// The head of the answer.
    pub async fn head(&mut self) -> Result<Head, Broken> {
        match self.pieces.recv().await {
            Some(Ok(Piece::Head(head))) => Ok(head),
            Some(Ok(Piece::Body(_))) | None => Err(Broken::Lost),
            Some(Err(broken)) => Err(broken),
        }
    }

    /// The next bytes of the body; `None` at its end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Broken> {
        match self.pieces.recv().await {
            Some(Ok(Piece::Body(bytes))) => Ok(Some(bytes)),
            Some(Ok(Piece::Head(_))) | None => Ok(None),
            Some(Err(broken)) => Err(broken),
        }
    }
}

fn as_sent(request: &Request<Payload>) -> Vec<u8> {
    let mut bytes = format!("{} {} HTTP/1.1\r\n", request.method(), request.uri()).into_bytes();
    for (name, value) in request.headers() {
        bytes.extend_from_slice(name.as_str().as_bytes());
        bytes.extend_from_slice(b": ");
        bytes.extend_from_slice(value.as_bytes());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// Sends what is asked, and hands it on to the reader first, so that no answer comes unexpected.
async fn write(
    mut stream: WriteHalf<Link>,
    mut asked: UnboundedReceiver<Question>,
    written: UnboundedSender<Question>,
    all_read: oneshot::Receiver<()>,
) {
    let mut sending = Sending::default();
    'asked: while let Some(question) = asked.recv().await {
        let mut next = Some(question);
        while let Some(mut question) = next {
            sending.push(&mut question);
            if let Err(refused) = written.send(question) {
                drop(refused.0.pieces.send(Err(Broken::Lost)));
                break 'asked;
            }
            next = if sending.is_enough() { None } else { asked.try_recv().ok() };
        }
        // The reader notices that the connection has ended, and tells those who wait.
        if stream.write_all_buf(&mut sending).await.is_err() || stream.flush().await.is_err() {
            break;
        }
    }
    // Whoever asks from now on learns it at once.
    asked.close();
    while let Some(question) = asked.recv().await {
        drop(question.pieces.send(Err(Broken::Lost)));
    }
    drop(written);
    // A server may take the end of what is asked for the end of who asks. Nothing is ever sent: it is
    // the reader's end that is waited for.
    drop(all_read.await);
    drop(stream.shutdown().await);
}

struct Reader {
    stream: ReadHalf<Link>,
    ahead: BytesMut,
    buffers: BufferPool,
    shared: Arc<Shared>,
    pace: Pace,
    /// The most that it carried in a round trip.
    most: u64,
    began: Instant,
    changed: Arc<Notify>,
    waits: HostWaits,
    rtt: Duration,
    /// Answers that have come.
    number: u64,
    /// Goes with the reader.
    _all_read: oneshot::Sender<()>,
}

/// How long a body is.
enum Length {
    Known(u64),
    /// The server says it in a way that only hyper reads.
    Unknown,
}

impl Reader {
    async fn run(mut self, mut answered: UnboundedReceiver<Question>) {
        let shared = Arc::clone(&self.shared);
        while let Some(question) = self.next_question(&mut answered).await {
            let done = tokio::select! {
                biased;
                done = self.answer(&question) => done,
                () = shared.abandoned.notified() => Err(Broken::Lost),
            };
            let goes_on = match done {
                Ok(goes_on) => goes_on,
                Err(broken) => {
                    drop(question.pieces.send(Err(broken)));
                    false
                }
            };
            self.changed.notify_waiters();
            if !goes_on {
                break;
            }
        }
        self.shared.ended.store(true, Ordering::Relaxed);
        answered.close();
        while let Some(question) = answered.recv().await {
            self.shared.outstanding.fetch_sub(question.expected, Ordering::Relaxed);
            drop(question.pieces.send(Err(Broken::Lost)));
        }
    }

    /// The next question, unless the connection ends while nothing is asked.
    async fn next_question(
        &mut self,
        answered: &mut UnboundedReceiver<Question>,
    ) -> Option<Question> {
        if !self.ahead.is_empty() {
            return answered.try_recv().ok();
        }
        tokio::select! {
            biased;
            question = answered.recv() => question,
            read = self.stream.read_buf(&mut self.ahead) => match read {
                Ok(0) | Err(_) => None,
                // A question is here before it is sent, so this is the answer to none.
                Ok(_) => answered.try_recv().ok(),
            }
        }
    }

    /// Passes an answer on. Whether the connection goes on.
    async fn answer(&mut self, question: &Question) -> Result<bool, Broken> {
        let mut left = Outstanding { shared: &Arc::clone(&self.shared), bytes: question.expected };
        let patience = self.waits.silence() + Duration::from_secs(question.sent / SLOWEST);
        let (head, length) = self.head(question, patience).await?;
        self.shared.answered.store(true, Ordering::Relaxed);
        self.number += 1;
        if let Some(more) = more_requests(&head.headers) {
            self.shared.most_asked.store(self.number.saturating_add(more), Ordering::Relaxed);
        }
        if question.sent > 0 {
            self.carried(question.sent, FIRST_ALLOWANCE);
        }
        let closes = says(&head.headers, &CONNECTION, "close");
        let wanted = head.status == StatusCode::PARTIAL_CONTENT || head.status == StatusCode::OK;
        drop(question.pieces.send(Ok(Piece::Head(head))));
        let length = if question.is_head() { Length::Known(0) } else { length };
        let Length::Known(mut length) = length else {
            return Err(Broken::Unreadable("its length is unknown".to_owned()));
        };
        let unwanted = length > (question.expected - question.sent).saturating_add(SKIPPED_MOST);
        if unwanted && !question.is_head() {
            // Much more than was asked for; it is not kept for whoever may look at it later.
            return Ok(false);
        }
        let mut skipped_since = None;
        while length > 0 {
            if question.pieces.is_closed() || !wanted {
                let since = skipped_since.get_or_insert_with(Instant::now);
                if length > SKIPPED_MOST || since.elapsed() > SKIPPED_FOR {
                    return Ok(false);
                }
            }
            let bytes = self.body(question, length).await?;
            let arrived = bytes.len() as u64;
            length -= arrived;
            left.arrived(arrived);
            self.arrived(arrived);
            // Whoever does not want it any more does not hinder those behind.
            drop(question.pieces.send(Ok(Piece::Body(bytes))));
        }
        Ok(!closes)
    }

    fn arrived(&mut self, bytes: u64) {
        self.shared.arrived.fetch_add(bytes, Ordering::Relaxed);
        let shown_after = SHOWN_AFTER_AT_LEAST.max(self.rtt * SHOWN_AFTER);
        let has_shown = self.began.elapsed() > shown_after;
        self.carried(bytes, if has_shown { LEAST_ALLOWANCE } else { FIRST_ALLOWANCE });
        if self.shared.load() < ENOUGH {
            self.changed.notify_waiters();
        }
    }

    fn carried(&mut self, bytes: u64, least: u64) {
        self.most = self.most.max(self.pace.carry(bytes, self.rtt));
        let allowance = least.max(GROWTH * self.most);
        self.shared.allowance.store(allowance, Ordering::Relaxed);
    }

    /// The next bytes of a body of which `left` are still to come.
    async fn body(&mut self, question: &Question, left: u64) -> Result<Bytes, Broken> {
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        if !self.ahead.is_empty() {
            let length = left.min(self.ahead.len());
            return Ok(self.ahead.split_to(length).freeze());
        }
        let mut buffer = self.buffers.take(left.min(BLOCK));
        let space = buffer.as_mut_slice();
        let (mut filled, mut first) = (0, None);
        while filled < space.len() {
            let read = self.stream.read(&mut space[filled..]);
            let silence = self.waits.silence();
            let read = match self.waits.within(silence, || question.rest(), read).await {
                Some(Ok(length)) => length,
                Some(Err(error)) => return Err(Broken::Within(error.to_string())),
                None => return Err(silent(silence)),
            };
            if read == 0 {
                return Err(Broken::Within("the connection ended".to_owned()));
            }
            filled += read;
            let first = *first.get_or_insert_with(Instant::now);
            if first.elapsed() > GATHERED {
                break;
            }
        }
        Ok(buffer.freeze(filled))
    }

    /// The head of the next answer. Those of provisional ones (1xx) are passed over.
    async fn head(
        &mut self,
        question: &Question,
        patience: Duration,
    ) -> Result<(Head, Length), Broken> {
        let mut provisional = 0;
        let mut until = Instant::now() + patience;
        loop {
            if let Some(parsed) = parse(&mut self.ahead, &question.url)? {
                if !parsed.0.status.is_informational() {
                    return Ok(parsed);
                }
                provisional += 1;
                if provisional > PROVISIONAL_MOST {
                    return Err(Broken::Unreadable("it has too many 1xx responses".to_owned()));
                }
                until = Instant::now() + patience;
                continue;
            }
            if self.ahead.len() >= HEAD_MOST {
                return Err(Broken::Unreadable("its header section is too long".to_owned()));
            }
            let nothing_yet = self.ahead.is_empty();
            self.ahead.reserve(HEAD_READ);
            let left = until.saturating_duration_since(Instant::now());
            let read = self.stream.read_buf(&mut self.ahead);
            match self.waits.within(left, || question.answer(), read).await {
                Some(Ok(0) | Err(_)) if nothing_yet => return Err(Broken::Lost),
                Some(Ok(0)) => return Err(Broken::Within("the connection ended".to_owned())),
                // The rest of it follows at once.
                Some(Ok(_)) if nothing_yet => until = Instant::now() + self.waits.silence(),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(Broken::Within(error.to_string())),
                None => return Err(silent(patience)),
            }
        }
    }
}

/// Bytes that are under way, until they have arrived or nobody expects them any more.
struct Outstanding<'a> {
    shared: &'a Shared,
    bytes: u64,
}

impl Outstanding<'_> {
    fn arrived(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.shared.outstanding.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Outstanding<'_> {
    fn drop(&mut self) {
        self.shared.outstanding.fetch_sub(self.bytes, Ordering::Relaxed);
        let mut since = self.shared.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = Instant::now();
    }
}

fn silent(patience: Duration) -> Broken {
    Broken::Within(format!("no data for {} s", patience.as_secs()))
}

/// Takes a head from the beginning of `bytes`, if all of it is there.
fn parse(bytes: &mut BytesMut, url: &Url) -> Result<Option<(Head, Length)>, Broken> {
    let mut fields = [httparse::EMPTY_HEADER; HEADERS_MOST];
    let mut response = httparse::Response::new(&mut fields);
    let unreadable = |what: &str| Broken::Unreadable(what.to_owned());
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(Broken::Unreadable(error.to_string())),
    };
    let status = StatusCode::from_u16(response.code.unwrap_or_default());
    let status = status.map_err(|_| unreadable("its status line is malformed"))?;
    let mut headers = HeaderMap::new();
    for field in response.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_bytes(field.value);
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(unreadable("a header field is malformed"));
        };
        headers.append(name, value);
    }
    let old = response.version != Some(1);
    bytes.advance(length);
    if old {
        // HTTP/1.0 ends the connection with the answer.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let head = Head { status, headers, url: url.clone() };
    let length = body_length(&head)?;
    Ok(Some((head, length)))
}

/// RFC 9112, 6.3.
fn body_length(head: &Head) -> Result<Length, Broken> {
    let status = head.status;
    if status.is_informational() || matches!(status.as_u16(), 204 | 304) {
        return Ok(Length::Known(0));
    }
    if head.headers.contains_key(TRANSFER_ENCODING) {
        return Ok(Length::Unknown);
    }
    let lengths = head.headers.get_all(http::header::CONTENT_LENGTH);
    match length::parse(lengths.iter().map(HeaderValue::as_bytes)) {
        Ok(Some(length)) => Ok(Length::Known(length)),
        Ok(None) => Ok(Length::Unknown),
        Err(error) => Err(Broken::Unreadable(format!("it has {error}"))),
    }
}

/// How many more requests the server takes on this connection (`Keep-Alive: timeout=5, max=99`).
fn more_requests(headers: &HeaderMap) -> Option<u64> {
    let said = headers.get("keep-alive")?.to_str().ok()?;
    said.split(',').find_map(|word| word.trim().strip_prefix("max=")?.parse().ok())
}

fn says(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    headers.get_all(name).iter().any(|value| {
        let mut words = value.to_str().unwrap_or_default().split(',');
        words.any(|found| found.trim().eq_ignore_ascii_case(word))
    })
}

#[cfg(test)]
mod tests {
    use futures_util::future::join;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::timeout;

    use super::super::connect::Connector;
    use super::super::options::HttpOptions;
    use super::*;
    use crate::parse::{Origin, WebScheme};

    const LONG: Duration = Duration::from_secs(10);

    async fn pipe() -> (Pipe, TcpStream, Url) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let origin = Origin::new(WebScheme::Http, "127.0.0.1", Some(port)).unwrap();
        let connector = Connector::new(&HttpOptions::default(), Handle::current());
        let (connected, accepted) = join(connector.reach(&origin, |_| {}), listener.accept()).await;
        let buffers = BufferPool::new(4096, 1);
        let waits = HostWaits::default();
        let changed = Arc::new(Notify::new());
        let pipe = Pipe::start(connected.unwrap(), buffers, waits, changed, &Handle::current());
        (pipe, accepted.unwrap().0, Url::new(origin, b"/file", None).unwrap())
    }

    #[tokio::test]
    async fn a_lane_that_nobody_has_any_more_is_closed() {
        let (pipe, mut server, _) = pipe().await;
        drop(pipe);
        let read = timeout(LONG, server.read(&mut [0; 16])).await;
        assert_eq!(read.unwrap().unwrap(), 0);
    }

    #[tokio::test]
    async fn what_was_asked_is_answered_before_the_lane_is_closed() {
        let (pipe, mut server, url) = pipe().await;
        let request = Request::put("/file").header("content-length", "5").body(Payload::Empty);
        let body = Block::from(Bytes::from_static(b"hello"));
        let mut part = pipe.ask(&request.unwrap(), &url, 0, &body);
        drop(pipe);
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\nhello") {
            assert_ne!(timeout(LONG, server.read_buf(&mut seen)).await.unwrap().unwrap(), 0);
        }
        let too_soon = timeout(Duration::from_millis(100), server.read(&mut [0; 16])).await;
        assert!(too_soon.is_err(), "the lane has ended before the answer came");
        server.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        assert_eq!(part.head().await.unwrap().status, StatusCode::NO_CONTENT);
        assert_eq!(timeout(LONG, server.read(&mut [0; 16])).await.unwrap().unwrap(), 0);
    }

    async fn ends(pipe: &Pipe) {
        let ended = timeout(LONG, async {
            while !pipe.is_ended() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        assert!(ended.await.is_ok(), "the lane goes on");
    }

    #[tokio::test]
    async fn provisional_answers_without_end_are_none() {
        let (pipe, mut server, url) = pipe().await;
        let request = Request::get("/file").body(Payload::Empty).unwrap();
        let mut part = pipe.ask(&request, &url, 100, &Block::new());
        let provisional = "HTTP/1.1 102 Processing\r\n\r\n".repeat(PROVISIONAL_MOST);
        server.write_all(provisional.as_bytes()).await.unwrap();
        server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        assert_eq!(part.head().await.unwrap().status, StatusCode::OK);
        let mut part = pipe.ask(&request, &url, 100, &Block::new());
        server.write_all(provisional.as_bytes()).await.unwrap();
        server.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
        assert!(matches!(part.head().await, Err(Broken::Unreadable(_))));
    }

    #[tokio::test]
    async fn what_was_asked_on_a_lane_that_is_abandoned_is_lost_at_once() {
        let (pipe, mut server, url) = pipe().await;
        let request = Request::get("/file").body(Payload::Empty).unwrap();
        let mut parts: Vec<_> =
            (0..3).map(|_| pipe.ask(&request, &url, 100, &Block::new())).collect();
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\n") {
            assert_ne!(timeout(LONG, server.read_buf(&mut seen)).await.unwrap().unwrap(), 0);
        }
        pipe.abandon();
        for part in &mut parts {
            assert_eq!(timeout(LONG, part.head()).await.unwrap().unwrap_err(), Broken::Lost);
        }
        assert!(pipe.is_ended());
        assert_eq!(pipe.outstanding(), 0);
    }

    /// They were taken for the answer to the next question, and its answer for that to the one after.
    #[tokio::test]
    async fn bytes_that_nobody_asked_for_end_the_lane() {
        let (pipe, mut server, _) = pipe().await;
        server.write_all(b"HTTP/1.1 408 Too late\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        ends(&pipe).await;
    }

    /// Whoever asked for a part and got the file may look at that late, or never.
    #[tokio::test]
    async fn much_more_than_was_asked_for_is_not_kept() {
        let (pipe, mut server, url) = pipe().await;
        let request = Request::get("/file").body(Payload::Empty).unwrap();
        let mut part = pipe.ask(&request, &url, 100, &Block::new());
        server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4000000000\r\n\r\n").await.unwrap();
        ends(&pipe).await;
        assert_eq!(part.head().await.unwrap().status, StatusCode::OK);
        assert!(part.next().await.is_ok_and(|piece| piece.is_none()), "it ends there");
    }
}
