//! Reads the responses on a connection in the order of their requests, and passes each on.
//!
//! On a shared connection the reader never stops, even if no task takes the bytes: their consumer may
//! first need a response behind them (deadlock otherwise). The requested lengths bound how many bytes wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use haul_net::HostWaits;
use haul_storage::BufferPool;
use http::header::HeaderName;
use http::{HeaderMap, StatusCode};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

use super::connect::Host;
use super::framing::{Event, Framing};
use super::head::{Broken, Head};
use super::load::{Load, Meter, Outstanding};
use super::order::{FEW_RESPONSES, Verdict};
use super::queued::{Queued, Step};
use super::request::SLOWEST;
use crate::parse::keep_alive;

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Bytes read at once: for a head, and for a body twice as many as last time, within these limits.
const HEAD_READ: usize = 4 << 10;
const READ_LEAST: usize = 16 << 10;
const READ_MOST: usize = 256 << 10;

/// Bytes of a block on a shared connection, if they arrive within [`GATHERED`], so that a disk write is
/// worth the thread switch.
const BLOCK: usize = 256 << 10;
const GATHERED: Duration = Duration::from_millis(30);

/// An abandoned body is read to its end if at most this many bytes are left: a new connection costs more.
const SKIPPED_MOST: u64 = 1 << 20;

/// And if that takes no longer than this, or than four RTTs on a long path. Some servers send an endless
/// body with a response of which only the head matters.
const SKIPPED_FOR: Duration = Duration::from_secs(1);

/// The same, once such a body of that server has neither ended nor delivered a byte in time.
const SKIPPED_FOR_ENDLESS: Duration = Duration::from_millis(50);

/// How long to wait after a response until all of its request is sent, which usually is the case already.
const SENT_WITHIN: Duration = Duration::from_millis(100);

/// A body that delivers fewer than [`ENDLESS_BELOW`] bytes per second over this waiting time is taken for
/// endless. Time in which its consumer does not read does not count.
const ENDLESS_AFTER: Duration = Duration::from_secs(300);
const ENDLESS_BELOW: u64 = 64;

/// State that a reader shares with others.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// The pool of buffers for blocks.
    pub buffers: BufferPool,
    /// Announces that the connection can carry more.
    pub changed: Arc<Notify>,
    /// The server.
    pub host: Host,
}

/// The receiving side of a connection.
pub struct Reader<R> {
    stream: R,
    ahead: BytesMut,
    around: Surroundings,
    load: Arc<Load>,
    meter: Meter,
    rtt: Duration,
    /// Responses received.
    number: u64,
    /// The status of the last one.
    status: StatusCode,
    /// For each response that still needs the proof of a marker behind it (see `order`): receives the result.
    unproven: Vec<oneshot::Sender<bool>>,
    /// Bytes of the last read of a body into `ahead`.
    last_read: usize,
    /// The writer notices the end of the reader when this is dropped.
    _is_read: oneshot::Sender<()>,
}

/// The response body that is being read.
struct Receiving<'a> {
    queued: &'a mut Queued,
    left: Outstanding<'a>,
    /// Bytes of the body received, and how long the reader waited for them.
    received: u64,
    waited: Duration,
    /// Both at the last check of its rate.
    judged: (u64, Duration),
    /// For an abandoned body: until when it is skipped, and the bytes received before.
    skipped: Option<(Instant, u64)>,
    /// Whether the consumer needs the body: on a shared connection only that of a 200 or 206. Any other is
    /// skipped.
    is_wanted: bool,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// A reader that has read nothing yet. `is_read` is dropped with it.
    pub fn new(
        stream: R,
        around: Surroundings,
        load: Arc<Load>,
        rtt: Duration,
        is_read: oneshot::Sender<()>,
    ) -> Self {
        let (ahead, meter) = (BytesMut::new(), Meter::new(rtt));
        let (number, status, unproven, last_read) = (0, StatusCode::OK, Vec::new(), 0);
        let _is_read = is_read;
        Self {
            stream,
            ahead,
            around,
            load,
            meter,
            rtt,
            number,
            status,
            unproven,
            last_read,
            _is_read,
        }
    }

    /// Reads the responses to the requests from `requests`, until the connection ends.
    pub async fn run(mut self, mut requests: UnboundedReceiver<Queued>) {
        let load = Arc::clone(&self.load);
        while let Some(mut queued) = self.next(&mut requests).await {
            let done = tokio::select! {
                biased;
                done = self.response(&mut queued, &load) => done,
                () = load.abandoned() => Err(Broken::Lost { is_sent: true }),
            };
            let step = std::mem::replace(&mut queued.step, Step::Plain);
            let goes_on = match done {
                Ok(is_reusable) => {
                    let is_in_step = self.on_complete(step, &load);
                    if is_in_step && !is_reusable && queued.alone.is_none() {
                        self.on_ended(&load);
                    }
                    is_in_step && is_reusable
                }
                Err(broken) => {
                    if queued.alone.is_none() {
                        self.on_broken(&broken, &step, !requests.is_empty(), &load);
                    }
                    queued.sink.fail(broken);
                    false
                }
            };
            self.around.changed.notify_waiters();
            if !goes_on {
                load.retire();
                // An owner with exclusive use has to know before it sends its next request.
                if let Some(alone) = &queued.alone {
                    alone.owner.done(false, None);
                }
                break;
            }
        }
        load.retire();
        requests.close();
        while let Some(queued) = requests.recv().await {
            load.forget(queued.size.expected);
            queued.sink.fail(Broken::Lost { is_sent: true });
        }
    }

    /// A response is complete. Returns whether the connection can continue, as far as the order of
    /// responses is concerned.
    fn on_complete(&mut self, step: Step, load: &Load) -> bool {
        let (marker, mut pending) = match step {
            Step::Plain => return true,
            // No range was requested here: this is the response to a marker, in the wrong place.
            Step::Unproven { .. } if self.status == StatusCode::PARTIAL_CONTENT => {
                self.around.host.order.only_ranges();
                return false;
            }
            Step::Unproven { proof, .. } => {
                self.unproven.push(proof);
                return true;
            }
            Step::Marker(marker, pending) => (marker, pending),
        };
        load.on_marker_response();
        let order = &self.around.host.order;
        let head = pending.take_head();
        let verdict = head.map_or(Verdict::NoProof, |head| order.on_marker(&marker, &head));
        let unproven = std::mem::take(&mut self.unproven);
        if verdict != Verdict::OutOfStep {
            for proof in unproven {
                // The task that requested it may be gone.
                let _ = proof.send(verdict == Verdict::InStep);
            }
        }
        verdict != Verdict::OutOfStep
    }

    /// A response is incomplete. `has_others`: requests were sent behind it.
    fn on_broken(&self, broken: &Broken, step: &Step, has_others: bool, load: &Load) {
        let order = &self.around.host.order;
        let is_lost = matches!(broken, Broken::Lost { .. });
        if is_lost {
            self.on_ended(load);
        }
        match step {
            // The server may have sent the whole file instead of the marker's range, longer than is
            // accepted here.
            Step::Marker(..) if !is_lost => order.only_ranges(),
            // The server seems to drop requests that arrive together.
            _ if matches!(broken, Broken::Silent(_)) && self.number > 0 && has_others => {
                order.only_ranges();
                order.strike();
            }
            _ => {}
        }
    }

    /// A shared connection has ended; unless it was abandoned, the server has most likely closed it.
    fn on_ended(&self, load: &Load) {
        let order = &self.around.host.order;
        match self.number {
            _ if load.is_abandoned() => {}
            0 => {}
            1..=FEW_RESPONSES => order.strike(),
            number => order.on_end(number),
        }
    }

    /// The next request, unless the connection ends while there is none.
    async fn next(&mut self, requests: &mut UnboundedReceiver<Queued>) -> Option<Queued> {
        if !self.ahead.is_empty() {
            return requests.try_recv().ok();
        }
        self.ahead.reserve(HEAD_READ);
        tokio::select! {
            biased;
            queued = requests.recv() => queued,
            read = self.stream.read_buf(&mut self.ahead) => match read {
                Ok(0) | Err(_) => None,
                // A request is queued here before it is sent, so this is unsolicited, unless one is
                // queued now.
                Ok(_) => requests.try_recv().ok(),
            }
        }
    }

    /// Passes on a response. Returns whether the connection can be reused.
    async fn response(&mut self, queued: &mut Queued, load: &Load) -> Result<bool, Broken> {
        let left = Outstanding::new(load, queued.size.expected);
        let mut framing = Framing::new(queued.url.clone(), queued.is_head());
        let head = self.head(queued, &mut framing).await?;
        self.number += 1;
        self.status = head.status;
        if self.number > FEW_RESPONSES {
            self.around.host.order.goes_on();
        }
        load.on_response(self.number, more_requests(&head.headers));
        if queued.size.sent > 0 {
            self.meter.sent(load, queued.size.sent);
        }
        let is_wanted = queued.alone.is_some()
            || matches!(head.status, StatusCode::PARTIAL_CONTENT | StatusCode::OK);
        let keep_alive = head.header(&KEEP_ALIVE).and_then(keep_alive::parse);
        let (received, waited, skipped) = (0, Duration::ZERO, None);
        let judged = (received, waited);
        let mut body = Receiving { queued, left, received, waited, judged, skipped, is_wanted };
        let mut head = Some(head);
        loop {
            let (pieces, is_end) = self.here(&mut framing);
            let is_end = is_end.as_ref().copied();
            // When the consumer sees the end, the connection is already free for the next request.
            let mut is_reusable =
                is_end == Ok(true) && body.is_sent().await && framing.keeps_open();
            if let (Ok(true), Some(alone)) = (is_end, &body.queued.alone) {
                // Bytes behind this response would be taken for the next one.
                is_reusable &= self.ahead.is_empty();
                if !is_reusable {
                    load.retire();
                }
                alone.owner.done(is_reusable, keep_alive);
            }
            if let Some(head) = head.take() {
                body.queued.sink.head(head, body.queued.is_continued);
            }
            for piece in pieces {
                self.pass_on(&mut body, piece);
            }
            if is_end.map_err(Clone::clone)? {
                body.queued.sink.end();
                return Ok(is_reusable);
            }
            body.check(&framing)?;
            if !self.more(&mut body, &mut framing).await? {
                return Ok(false);
            }
        }
    }

    /// The parts of the body that have arrived, and whether it is complete.
    fn here(&mut self, framing: &mut Framing) -> (Vec<Bytes>, Result<bool, Broken>) {
        let mut pieces = Vec::new();
        loop {
            match framing.poll(&mut self.ahead) {
                Ok(Some(Event::Body(bytes))) => pieces.push(bytes),
                Ok(Some(Event::End)) => return (pieces, Ok(true)),
                // There is one head, and it was read before.
                Ok(Some(Event::Provisional(_) | Event::Head(_))) => {}
                Ok(None) => return (pieces, Ok(false)),
                Err(broken) => return (pieces, Err(broken)),
            }
        }
    }

    fn pass_on(&mut self, body: &mut Receiving<'_>, bytes: Bytes) {
        let arrived = bytes.len() as u64;
        body.received += arrived;
        body.left.arrived(arrived);
        if self.meter.arrived(&self.load, arrived) {
            self.around.changed.notify_waiters();
        }
        body.queued.sink.body(bytes);
    }

    /// Waits for more of a body. `false` if the rest of it is not worth reading.
    async fn more(
        &mut self,
        body: &mut Receiving<'_>,
        framing: &mut Framing,
    ) -> Result<bool, Broken> {
        body.queued.sink.room().await;
        if body.skipped.is_none() && (body.queued.sink.is_closed() || !body.is_wanted) {
            // Nothing can be sent behind an incomplete request.
            let is_cut = !body.is_sent().await;
            if is_cut || framing.left().is_some_and(|left| left > SKIPPED_MOST) {
                return Ok(false);
            }
            body.skipped = Some((Instant::now() + self.skipped_for(), body.received));
        }
        let began = Instant::now();
        let is_shared = body.queued.alone.is_none();
        match body.skipped {
            Some((_, before)) if body.received - before > SKIPPED_MOST => return Ok(false),
            Some((until, _)) => {
                let Ok(read) = timeout_at(until, self.ahead(body.queued, framing)).await else {
                    if framing.left().is_none() && body.received == 0 {
                        self.around.host.endless.store(true, Ordering::Relaxed);
                    }
                    return Ok(false);
                };
                read?;
            }
            None if is_shared && framing.plain() > 0 => {
                let bytes = self.block(body.queued, framing.plain()).await?;
                framing.took(bytes.len() as u64);
                self.pass_on(body, bytes);
            }
            None if is_shared => self.ahead(body.queued, framing).await?,
            None => tokio::select! {
                biased;
                read = self.ahead(body.queued, framing) => read?,
                () = body.queued.sink.closed() => {}
            },
        }
        body.waited += began.elapsed();
        Ok(true)
    }

    fn skipped_for(&self) -> Duration {
        match self.around.host.endless.load(Ordering::Relaxed) {
            true => SKIPPED_FOR_ENDLESS,
            false => SKIPPED_FOR.max(4 * self.rtt),
        }
    }

    /// Reads more of a response behind the bytes in `ahead`.
    async fn ahead(&mut self, queued: &Queued, framing: &mut Framing) -> Result<(), Broken> {
        let left = framing.left().and_then(|left| usize::try_from(left).ok());
        let most = left.unwrap_or(READ_MOST).clamp(1, READ_MOST);
        self.ahead.reserve((2 * self.last_read).max(READ_LEAST).min(most));
        let read = self.stream.read_buf(&mut self.ahead);
        self.last_read = in_time(&self.around.host.waits, queued, read).await?;
        if self.last_read == 0 { framing.on_close() } else { Ok(()) }
    }

    /// Reads a block of a body with `left` missing bytes.
    async fn block(&mut self, queued: &Queued, left: u64) -> Result<Bytes, Broken> {
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let mut buffer = self.around.buffers.take(left.min(BLOCK));
        let space = buffer.as_mut_slice();
        let (mut filled, mut first) = (0, None);
        while filled < space.len() {
            let read = self.stream.read(&mut space[filled..]);
            let read = in_time(&self.around.host.waits, queued, read).await?;
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

    /// Reads the head of the next response. Provisional ones (1xx) are skipped.
    async fn head(&mut self, queued: &mut Queued, framing: &mut Framing) -> Result<Head, Broken> {
        let limit = match &queued.alone {
            Some(alone) => alone.limit,
            None => Some(
                self.around.host.waits.silence() + Duration::from_secs(queued.size.sent / SLOWEST),
            ),
        };
        let waits = self.around.host.waits.clone();
        let mut until = limit.map(|limit| Instant::now() + limit);
        loop {
            match framing.poll(&mut self.ahead)? {
                Some(Event::Head(head)) => return Ok(head),
                Some(Event::Provisional(status)) => {
                    if status == StatusCode::CONTINUE {
                        queued.is_continued = true;
                        let sending = queued.sending.as_mut();
                        if let Some(wanted) = sending.and_then(|sending| sending.wanted.take()) {
                            // The body may have been abandoned.
                            let _ = wanted.send(());
                        }
                    }
                    until = limit.map(|limit| Instant::now() + limit);
                    continue;
                }
                Some(Event::Body(_) | Event::End) | None => {}
            }
            let nothing_yet = self.ahead.is_empty();
            self.ahead.reserve(HEAD_READ);
            let read = self.stream.read_buf(&mut self.ahead);
            let read = async {
                let Some(until) = until else { return Some(read.await) };
                let left = until.saturating_duration_since(Instant::now());
                waits.within(left, || queued.awaited_response(), read).await
            };
            let is_alone = queued.alone.is_some();
            let read = tokio::select! {
                biased;
                read = read => read,
                // On a shared connection it is read nevertheless, since others wait behind it.
                () = queued.sink.closed(), if is_alone => return Err(Broken::Lost { is_sent: true }),
            };
            match read {
                Some(Ok(0) | Err(_)) if nothing_yet => return Err(Broken::Lost { is_sent: true }),
                Some(Ok(0)) => return Err(Broken::Within("the connection ended".to_owned())),
                // The rest of the head follows at once, so the silence timeout applies to it, unless there is no limit.
                Some(Ok(_)) if nothing_yet => {
                    until = until.map(|_| Instant::now() + self.around.host.waits.silence());
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(Broken::Within(error.to_string())),
                None => return Err(Broken::Silent(limit.unwrap_or_default())),
            }
        }
    }
}

impl Receiving<'_> {
    /// Whether the whole request was sent.
    async fn is_sent(&mut self) -> bool {
        let Some(sending) = &mut self.queued.sending else { return true };
        let is_sent = matches!(timeout(SENT_WITHIN, &mut sending.is_sent).await, Ok(Ok(())));
        if is_sent {
            self.queued.sending = None;
        }
        is_sent
    }

    /// Checks that a body on a shared connection has an end and at most [`SKIPPED_MOST`] bytes more than
    /// requested, and that no body trickles.
    fn check(&mut self, framing: &Framing) -> Result<(), Broken> {
        let Self { queued, received, .. } = self;
        if queued.alone.is_none() {
            let most = (queued.size.expected - queued.size.sent).saturating_add(SKIPPED_MOST);
            if framing.is_until_close() {
                return Err(Broken::Unreadable("its length is unknown".to_owned()));
            }
            if received.saturating_add(framing.left().unwrap_or_default()) > most {
                // It must not be buffered for a consumer that may read it later.
                return Err(Broken::Unreadable("it is longer than the requested range".to_owned()));
            }
        }
        let (received, waited) = self.judged;
        let (bytes, waited) = (self.received - received, self.waited - waited);
        if waited <= ENDLESS_AFTER {
            return Ok(());
        }
        self.judged = (self.received, self.waited);
        let seconds = waited.as_secs();
        match bytes < seconds * ENDLESS_BELOW {
            true => Err(Broken::Endless { bytes, seconds }),
            false => Ok(()),
        }
    }
}

/// Reads; fails after the server's silence timeout.
async fn in_time(
    waits: &HostWaits,
    queued: &Queued,
    read: impl Future<Output = std::io::Result<usize>>,
) -> Result<usize, Broken> {
    let silence = waits.silence();
    match waits.within(silence, || queued.rest(), read).await {
        Some(Ok(length)) => Ok(length),
        Some(Err(error)) => Err(Broken::Within(error.to_string())),
        None => Err(Broken::Silent(silence)),
    }
}

/// How many more requests the server accepts on this connection (`Keep-Alive: timeout=5, max=99`).
fn more_requests(headers: &HeaderMap) -> Option<u64> {
    let value = headers.get(KEEP_ALIVE)?.to_str().ok()?;
    value.split(',').find_map(|word| word.trim().strip_prefix("max=")?.parse().ok())
}
