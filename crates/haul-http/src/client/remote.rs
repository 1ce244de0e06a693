//! Reads one file on a server: by ranges if the server supports them, otherwise from its beginning.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haul_storage::{Block, Error, ErrorKind, Identity, Range, Result, Retry, UNKNOWN_SIZE};
use http::header::{ACCEPT_ENCODING, IF_RANGE, RANGE};
use http::{HeaderValue, Method, StatusCode};
use tokio::sync::OwnedSemaphorePermit;

use super::body::{Body, Prefetched};
use super::error;
use super::exchange::{Exchange, MAX_LOST};
use super::facts::{Facts, bytes_of, check_part};
use super::following::may_pass;
use super::head::{Broken, Head};
use super::pipes::PIECE;
use super::request::Request;
use super::response::{Pending, Response};
use super::trailing_check::TrailingCheck;
use crate::parse::Url;

/// Least length of the first range, which is requested before the size of the file is known, in bytes.
pub(super) const FIRST: u64 = PIECE;

/// Bytes of a file of unknown size that are read when it is opened. Most such files end within them, which makes
/// their size known.
const UNKNOWN_SIZE_PREFIX: usize = 256 << 10;

/// How often a part is requested on another lane because the server is busy.
const MAX_REFUSALS: u32 = 16;

/// A file on a server: its metadata, and the state of reading it.
#[derive(Debug)]
pub struct Remote {
    pub(super) exchange: Arc<Exchange>,
    /// The URL before redirects. It is requested again when the one after redirects is gone.
    pub(super) url: Url,
    /// The URL after redirects.
    found: Mutex<Url>,
    pub(super) facts: Facts,
    /// Its length as read (decoded, if it is `decoded`); `None` if that is known only at its end.
    size: Option<u64>,
    /// Its content coding is decoded.
    pub(super) decoded: bool,
    ranged: AtomicBool,
    /// Parts received since the server last sent the whole file instead, including the part that opened the file.
    parts: AtomicU64,
    /// The server's responses have no length and end with the connection, so that they cannot be pipelined.
    alone: AtomicBool,
    /// The ranges requested when the file was opened.
    prefetched: Mutex<Vec<Prefetched>>,
    /// Permits for the prefetched ranges; released once reading of these ranges begins, or they are dropped.
    permits: Mutex<Vec<OwnedSemaphorePermit>>,
    /// Checks at the end whether the file has changed while it was read.
    pub(super) behind: TrailingCheck,
    /// The highest rate of a part, in bytes per second.
    best: AtomicU64,
}

/// The first request for a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct FirstRequest {
    /// Length of the requested range in bytes.
    pub(super) first: u64,
    /// Whether a response with the whole file means that the server does not support ranges of it, despite
    /// `Accept-Ranges`.
    pub(super) is_refusal: bool,
}

impl FirstRequest {
    /// The whole file, because it cannot be read by ranges.
    pub(super) const REFUSED: Self = Self { first: FIRST, is_refusal: true };

    /// The whole file, after the response to a range could not be used.
    pub(super) const WHOLE: Self = Self { first: FIRST, is_refusal: false };
}

impl Remote {
    /// The file that `response` begins to send. `prefetched`: the ranges that were requested along with it.
    pub(super) async fn opened(
        exchange: &Arc<Exchange>,
        url: &Url,
        response: Response,
        facts: Facts,
        is_decoded: bool,
        FirstRequest { first, is_refusal }: FirstRequest,
        prefetched: Vec<(Range, Pending)>,
    ) -> Result<Self> {
        let partial = response.status == StatusCode::PARTIAL_CONTENT;
        let mut size = facts.size.filter(|_| !is_decoded);
        if let (true, Some(size)) = (partial, size) {
            check_part(&response, Range::new(0, first.min(size)), &facts)?;
        }
        let found = response.url.clone();
        let alone = response.is_until_close();
        // A first range of 64 KiB fits into the receive buffer, so its lane becomes free without a reader; a longer one
        // (up to 1 MiB) is read at once. A whole file occupies its lane until it has been read.
        if !partial {
            response.hold();
        }
        let mut response = decoded(response, &facts, is_decoded)?;
        let mut ahead = Block::new();
        if size.is_none() {
            size = read_ahead(&mut response, &mut ahead).await?;
        }
        let end =
            if partial { first.min(size.unwrap_or(first)) } else { size.unwrap_or(UNKNOWN_SIZE) };
        let body = Body { response, range: Range::new(0, end), ahead };
        let mut all = vec![Prefetched::Body(body)];
        if let (true, Some(size)) = (partial, size) {
            let end_of = |range: Range| range.end().min(size);
            for (range, pending) in prefetched {
                let range = Range::between(range.start().min(size), end_of(range));
                all.push(Prefetched::Pending(range, pending));
            }
        }
        // A server that ignored `Range` once does not support it for this file, despite `Accept-Ranges: bytes`.
        let ranged = partial || !is_refusal && facts.ranged == Some(true) && facts.size.is_some();
        Ok(Self {
            exchange: Arc::clone(exchange),
            url: url.clone(),
            found: Mutex::new(found),
            ranged: AtomicBool::new(ranged && !is_decoded),
            parts: AtomicU64::new(u64::from(partial)),
            alone: AtomicBool::new(alone),
            facts,
            size,
            decoded: is_decoded,
            prefetched: Mutex::new(all),
            permits: Mutex::default(),
            behind: TrailingCheck::default(),
            best: AtomicU64::new(0),
        })
    }

    /// The version of a response, if it differs from the one being read. Facts that the response lacks are
    /// not compared.
    pub(super) fn other_version(&self, response: &Head) -> Result<Option<Identity>> {
        let mut now = Facts::of(response, "access")?;
        now.size = now.size.or(self.facts.size);
        now.modified = now.modified.or(self.facts.modified);
        now.tag = now.tag.or_else(|| self.facts.tag.clone());
        Ok(self.facts.differs(&now).map(|_| now.identity()))
    }

    /// Requests a range on a shared lane, or alone where that does not work. From a server that sends only whole files,
    /// reads and discards the bytes before it.
    pub(super) async fn request(self: Arc<Self>, range: Range) -> Result<Body> {
        if !self.is_ranged() {
            return self.skip_to(range).await;
        }
        let (mut refusals, mut lost) = (0, 0);
        loop {
            let found = self.found();
            let order = self.exchange.order(&found.origin);
            if self.alone.load(Ordering::Relaxed) || !order.takes_parts() {
                return self.request_alone(range).await;
            }
            let request = part(&found, range, self.facts.if_range());
            let (pending, lane) = self.exchange.part(&request, range.len(), None).await?;
            let is_last = Some(range.end()) == self.facts.size;
            self.behind.on_part_requested(&self.exchange, &found, &lane, is_last).await?;
            let response = match pending.head().await {
                Ok(response) => response,
                // Servers close a connection after a number of requests (nginx 1000, Apache 100) or when idle.
                Err(Broken::Lost { .. }) if lost < MAX_LOST => {
                    lost += 1;
                    continue;
                }
                Err(broken) => return Err(error::of_broken(&broken, "read", &found)),
            };
            self.exchange.jar().learn(&response);
            match response.status.as_u16() {
                // The server refuses this lane because there are too many; the others continue.
                429 | 503 => {
                    self.exchange.busy(&response);
                    refusals += 1;
                    let others = self.exchange.transport().pipes(&found.origin).refused(&lane);
                    if !others || refusals > MAX_REFUSALS {
                        return Err(error::of_status(response.status, "read", &found));
                    }
                }
                // A request that is not pipelined handles credentials and redirects.
                300..=399 | 401 | 403 | 404 | 407 | 410 => return self.request_alone(range).await,
                // Some servers that take one request at a time refuse pipelined ones.
                400 => {
                    order.strike();
                    return self.request_alone(range).await;
                }
                _ => {
                    if may_pass(response.status) {
                        return Err(error::of_status(response.status, "read", &found));
                    }
                    if let Err(error) = self.check_part(&response, range) {
                        if response.status != StatusCode::PARTIAL_CONTENT {
                            return Err(error);
                        }
                        // It may be the response to another request, if the server or a proxy has lost one.
                        lane.abandon();
                        if error.kind() == ErrorKind::Protocol {
                            order.one_at_a_time();
                        }
                        return self.request_alone(range).await;
                    }
                    if response.is_until_close() {
                        self.alone.store(true, Ordering::Relaxed);
                        continue;
                    }
                    return Ok(Body::new(response, range));
                }
            }
        }
    }

    pub(super) fn is_ranged(&self) -> bool {
        self.ranged.load(Ordering::Relaxed)
    }

    /// Checks a part. If the server sends the whole file instead, twice without a part in between, it does not support
    /// ranges of this file, which is then read from its beginning.
    fn check_part(&self, response: &Head, range: Range) -> Result<()> {
        let outcome = check_part(response, range, &self.facts);
        match &outcome {
            Ok(()) => _ = self.parts.fetch_add(1, Ordering::Relaxed),
            Err(error) if response.status == StatusCode::OK && error.retry() == Retry::Later => {
                if self.parts.swap(0, Ordering::Relaxed) == 0 {
                    self.ranged.store(false, Ordering::Relaxed);
                    self.exchange.refuses_ranges(&self.url);
                }
            }
            Err(_) => {}
        }
        outcome
    }

    /// Requests a part on a connection of its own, from the URL before redirects.
    async fn request_alone(&self, range: Range) -> Result<Body> {
        let request = part(&self.url, range, self.facts.if_range());
        let response = self.exchange.once(&request).await?;
        if may_pass(response.status) {
            let error = error::of_status(response.status, "read", &response.url);
            return Err(error);
        }
        self.check_part(&response, range)?;
        *self.lock_found() = response.url.clone();
        Ok(Body::new(response, range))
    }

    /// The prefetched piece that begins at `start`, and the end of the last prefetched piece that follows it
    /// without a gap.
    pub(super) fn take_prefetched(&self, start: u64) -> (Option<Prefetched>, u64) {
        let mut all = self.prefetched();
        let found = all.iter().position(|one| one.range().start() == start);
        let taken = found.map(|at| all.remove(at)).filter(|one| !one.range().is_empty());
        if taken.is_some() {
            self.permits().clear();
        }
        let mut until = taken.as_ref().map_or(start, |taken| taken.range().end());
        while let Some(next) = all.iter().map(Prefetched::range).find(|next| next.start() == until)
        {
            if next.is_empty() {
                break;
            }
            until = next.end();
        }
        (taken, until)
    }

    pub(super) fn forget_prefetched(&self) {
        self.prefetched().clear();
        self.permits().clear();
    }

    /// Holds `permits` until reading of the prefetched ranges begins, or they are dropped.
    pub(super) fn hold_permits(&self, permits: Vec<OwnedSemaphorePermit>) {
        *self.permits() = permits;
    }

    /// Checks the head of a part that was requested before anything was known about the file; `None` if it cannot be
    /// used.
    pub(super) async fn checked(self: Arc<Self>, prefetched: Prefetched) -> Option<Body> {
        let (range, pending) = match prefetched {
            Prefetched::Body(body) => return Some(body),
            Prefetched::Pending(range, pending) => (range, pending),
        };
        let response = match pending.head().await {
            // Its lane was closed: request the part on another one.
            Err(Broken::Lost { .. }) => return self.request(range).await.ok(),
            response => response.ok()?,
        };
        // A response without length is not read on a shared connection.
        if response.is_until_close() || check_part(&response, range, &self.facts).is_err() {
            return None;
        }
        self.parts.fetch_add(1, Ordering::Relaxed);
        Some(Body::new(response, range))
    }

    /// From a server that sends only whole files: reads and discards the bytes before the range.
    async fn skip_to(&self, range: Range) -> Result<Body> {
        let response = self.exchange.once(&whole(&self.found())).await?;
        if !response.status.is_success() {
            return Err(error::of_status(response.status, "read", &response.url));
        }
        let now = Facts::of(&response, "read")?;
        self.facts.check_coding(&now, &response.url)?;
        if let Some(how) = self.facts.differs(&now) {
            return Err(Error::new(ErrorKind::Changed, "read")
                .at(&response.url)
                .because(format!("it has changed: {how}")));
        }
        response.hold();
        let mut response = decoded(response, &now, self.decoded)?;
        let mut at = 0;
        let mut ahead = Block::new();
        while at < range.start() {
            let Some(bytes) = response.next("read").await? else { break };
            let end = at + bytes.len() as u64;
            if end > range.start() {
                let skipped = usize::try_from(range.start() - at).unwrap_or(usize::MAX);
                ahead.push(bytes.slice(skipped..));
            }
            at = end;
        }
        let range = Range::between(range.start(), self.size.unwrap_or(UNKNOWN_SIZE));
        Ok(Body { response, range, ahead })
    }

    pub(super) fn found(&self) -> Url {
        self.lock_found().clone()
    }

    /// The URL before redirects.
    pub(super) const fn url(&self) -> &Url {
        &self.url
    }

    /// The length of the file as read, if that is known before its end.
    pub(super) const fn size(&self) -> Option<u64> {
        self.size
    }

    /// The highest rate of its parts, including `rate` of the last one; bytes per second.
    pub(super) fn best_rate(&self, rate: f64) -> f64 {
        // A cast from float saturates.
        let rate = rate as u64;
        self.best.fetch_max(rate, Ordering::Relaxed).max(rate) as f64
    }

    /// Whether a shared lane is idle.
    pub(super) fn has_idle_lane(&self) -> bool {
        self.exchange.transport().pipes(&self.found().origin).has_idle()
    }

    fn lock_found(&self) -> MutexGuard<'_, Url> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn permits(&self) -> MutexGuard<'_, Vec<OwnedSemaphorePermit>> {
        self.permits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prefetched(&self) -> MutexGuard<'_, Vec<Prefetched>> {
        self.prefetched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a file whose size is unknown, up to [`UNKNOWN_SIZE_PREFIX`]. Returns its length if it ends within that.
async fn read_ahead(response: &mut Response, ahead: &mut Block) -> Result<Option<u64>> {
    while ahead.len() < UNKNOWN_SIZE_PREFIX {
        let Some(bytes) = response.next("read").await? else {
            return Ok(Some(ahead.len() as u64));
        };
        ahead.push(bytes);
    }
    Ok(None)
}

/// The request for a part of a file, on condition that the file still has `version` (`If-Range`).
pub fn part(url: &Url, range: Range, version: Option<HeaderValue>) -> Request {
    let request = whole(url);
    let request = match HeaderValue::try_from(bytes_of(range)) {
        Ok(bytes) => request.with(RANGE, bytes),
        Err(_) => request,
    };
    match version {
        Some(version) => request.with(IF_RANGE, version),
        None => request,
    }
}

/// The response with a whole file, decoded if `decoded`.
pub fn decoded(response: Response, facts: &Facts, decoded: bool) -> Result<Response> {
    match facts.coding.as_ref().filter(|_| decoded) {
        Some(coding) => response.decoded(coding),
        None => Ok(response),
    }
}

/// The request for a whole file, not encoded.
pub fn whole(url: &Url) -> Request {
    let request = Request::new(Method::GET, url.clone(), "read");
    request.with(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
}
