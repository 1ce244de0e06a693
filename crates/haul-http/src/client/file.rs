//! A file that is read, by requests for parts of it.
//!
//! ```text
//! open: GET bytes=0-first → Facts, and a body that is kept for who reads from the beginning
//! read_at: what is kept, then GET bytes=a-b on a lane that is free → blocks
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::try_unfold;
use haul_storage::{
    Block, BlockStream, Entry, EntryKind, Error, ErrorKind, Identity, Metadata, Range, ReadAt,
    RelPath, Result, Retry, UNKNOWN_SIZE, Whole,
};
use http::header::{ACCEPT_ENCODING, IF_RANGE, RANGE};
use http::{HeaderValue, Method, StatusCode};
use tokio::task::JoinHandle;

use super::answer::{Answer, Head};
use super::behind::{self, Behind};
use super::decoded::Decoded;
use super::error;
use super::exchange::{Ask, Exchange, LOST_MOST, may_pass};
use super::facts::{Facts, bytes_of, check_part};
use super::pipe::Broken;
use super::pipes::PIECE;
use super::source::{Early, Kept, Source, gather};
use crate::parse::Url;

/// How much of a file is asked for before it is known how long it is.
const FIRST: u64 = PIECE;

/// Bytes of a block, if they come soon enough.
const BLOCK: usize = 512 << 10;

/// How often a part is asked for on another lane because the server has too much to do.
const REFUSALS_MOST: u32 = 16;

/// Of a file whose length is not reported so much is read at once: most of them end within it.
const UNSAID_MOST: usize = 256 << 10;

impl Codings {
    /// What the length says: a file that is sent with the length that it is listed with is stored so.
    pub fn by_length(listed: Option<u64>, sent: Option<u64>) -> Self {
        if listed.is_some() && listed == sent { Self::Stored } else { Self::Decoded }
    }
}

/// A file on a server.
#[derive(Debug)]
pub struct HttpFile {
    inner: Arc<Inner>,
    identity: Identity,
}

#[derive(Debug)]
struct Inner {
    exchange: Arc<Exchange>,
    /// As the user knows it: who is asked when what it was redirected to is gone.
    url: Url,
    /// Where it was found.
    found: Mutex<Url>,
    facts: Facts,
    /// Its length as it is read; `None` where that is known at its end only.
    size: Option<u64>,
    /// What is sent is decoded.
    decoded: bool,
    ranged: AtomicBool,
    /// Parts that came since the server last sent the whole file instead.
    parts: AtomicU64,
    /// The server does not say how long its answers are: they end with a chunk or the connection, and
    /// none can be asked for behind another.
    alone: AtomicBool,
    kept: Mutex<Vec<Kept>>,
    behind: Behind,
}

/// What was found at a URL.
#[derive(Debug)]
pub enum Opened {
    /// A file.
    File(HttpFile),
    /// A page that may be a listing: the answer, and where its body begins.
    Page(Answer),
    /// A file that is sent encoded, and its name does not say that it is stored so.
    Encoded {
        /// Its length as it is sent.
        sent_bytes: Option<u64>,
    },
}

/// What a `Content-Encoding` means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codings {
    /// The file's own, if its name says so; otherwise it is left to the caller.
    ByName,
    /// The file's own.
    Stored,
    /// Put on for the way: it is decoded.
    Decoded,
}

impl HttpFile {
    /// Opens a file. `page` says whether an HTML page may be something else than a file.
    ///
    /// # Errors
    /// It is not there, or may not be read.
    pub async fn open(exchange: &Arc<Exchange>, url: &Url, page: bool) -> Result<Opened> {
        Self::open_as(exchange, url, page, Codings::ByName).await
    }

    /// The same where it is known what a `Content-Encoding` means.
    ///
    /// # Errors
    /// It is not there, or may not be read.
    pub async fn open_as(
        exchange: &Arc<Exchange>,
        url: &Url,
        page: bool,
        codings: Codings,
    ) -> Result<Opened> {
        // What is decoded has no parts: they would be parts of what is sent.
        if codings == Codings::Decoded || !exchange.may_have_ranges(url) {
            let answer = exchange.patiently(&whole(url)).await?;
            return Self::opened(exchange, url, answer, page, codings, true).await;
        }
        let ask = part(url, Range::new(0, FIRST), None);
        exchange.foresee(&ask);
        let answer = match exchange.patiently(&ask).await {
            Ok(answer) => answer,
            Err(error) => {
                drop(exchange.foreseen(url));
                return Err(error);
            }
        };
        // Nothing to ask a part of: it is empty, or was at that moment. Or it is a part of who knows
        // how much.
        if answer.status == StatusCode::RANGE_NOT_SATISFIABLE || is_part_of_unsaid(&answer) {
            drop(exchange.foreseen(url));
            answer.drain().await;
            let answer = exchange.patiently(&whole(url)).await?;
            return Self::opened(exchange, url, answer, page, codings, false).await;
        }
        Self::opened(exchange, url, answer, page, codings, true).await
    }

    /// `is_refusal`: a whole file is the answer to the question for a part.
    async fn opened(
        exchange: &Arc<Exchange>,
        url: &Url,
        mut answer: Answer,
        page: bool,
        codings: Codings,
        is_refusal: bool,
    ) -> Result<Opened> {
        // Unless the answer is a part they are whole files, which nobody wants.
        let mut foreseen = exchange.foreseen(url);
        if answer.url != *url {
            foreseen.clear();
        }
        if !answer.status.is_success() {
            let error = error::of_status(answer.status, "open", &answer.url);
            answer.drain().await;
            return Err(error);
        }
        let found = answer.url.clone();
        let html = answer
            .header(&http::header::CONTENT_TYPE)
            .is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/html"));
        if page && html && found.path().ends_with('/') {
            return Ok(Opened::Page(answer));
        }
        let facts = Facts::of(&answer, "open")?;
        let partial = answer.status == StatusCode::PARTIAL_CONTENT;
        let decoded = codings != Codings::Stored && !facts.is_as_stored([url, &found]);
        if decoded && codings == Codings::ByName {
            answer.drain().await;
            return Ok(Opened::Encoded { sent_bytes: facts.size });
        }
        if partial && facts.size.is_none() {
            return Err(Error::new(ErrorKind::Unsupported, "open")
                .at(url)
                .because("the server sends only parts of it, and does not say how long it is"));
        }
        let mut size = facts.size.filter(|_| !decoded);
        if let (true, Some(size)) = (partial, size) {
            check_part(&answer, Range::new(0, FIRST.min(size)), &facts)?;
        }
        let says_its_length = answer.length().is_some();
        let mut source = if partial {
            Source::Early(Early::read(answer))
        } else {
            answer.hold();
            source_of(answer, &facts, decoded)?
        };
        let mut ahead = Block::new();
        if size.is_none() {
            while ahead.len() < UNSAID_MOST {
                let Some(bytes) = source.next().await? else {
                    size = Some(ahead.len() as u64);
                    break;
                };
                ahead.push(bytes);
            }
        }
        let end =
            if partial { FIRST.min(size.unwrap_or(FIRST)) } else { size.unwrap_or(UNKNOWN_SIZE) };
        let mut kept = vec![Kept { source, range: Range::new(0, end), ahead }];
        if let (true, Some(size)) = (partial, size) {
            let end_of = |range: Range| range.end().min(size);
            for (range, part) in foreseen {
                let range = Range::between(range.start().min(size), end_of(range));
                let source = Source::Foreseen(part, found.clone());
                kept.push(Kept { source, range, ahead: Block::new() });
            }
        }
        let identity = Identity { size: size.unwrap_or(UNKNOWN_SIZE), ..facts.identity() };
        // One refusal is an answer for the file, whatever the server says of itself.
        let ranged = partial || !is_refusal && facts.ranged == Some(true) && facts.size.is_some();
        let inner = Inner {
            exchange: Arc::clone(exchange),
            url: url.clone(),
            found: Mutex::new(found),
            ranged: AtomicBool::new(ranged && !decoded),
            parts: AtomicU64::new(0),
            alone: AtomicBool::new(!says_its_length),
            facts,
            size,
            decoded,
            kept: Mutex::new(kept),
            behind: Behind::default(),
        };
        Ok(Opened::File(Self { inner: Arc::new(inner), identity }))
    }

    /// The same without its ETag in its identity, for where listings have another one or none. A
    /// file of which only the ETag is another one later has changed all the same.
    #[must_use]
    pub fn without_tag(mut self) -> Self {
        // Without a time it is all that tells this version from another of the same length.
        if self.identity.modified.is_some() {
            self.identity.tag = None;
        }
        self
    }

    /// All of it, in memory.
    ///
    /// # Errors
    /// As those of reading it by parts.
    pub async fn whole(&self) -> Result<Whole> {
        let mut bytes = Vec::new();
        let mut blocks = self.read_at(Range::new(0, self.identity.size));
        while let Some(block) = blocks.next().await {
            block?.pieces().iter().for_each(|piece| bytes.extend_from_slice(piece));
        }
        let identity = self.identity.clone();
        Ok(Whole { bytes: bytes.into(), identity, metadata: self.metadata().await? })
    }

    /// Whether parts of it can be asked for.
    pub fn is_ranged(&self) -> bool {
        self.inner.is_ranged()
    }

    /// As an entry at `path`.
    pub fn entry(&self, path: &RelPath) -> Entry {
        let mut entry = Entry::new(path.clone(), EntryKind::File, self.identity.size);
        entry.modified = self.identity.modified;
        entry.tag.clone_from(&self.identity.tag);
        entry
    }

    /// What is known of it.
    pub fn facts(&self) -> &Facts {
        &self.inner.facts
    }

    /// Where it was found, at the end of all redirects.
    pub fn found(&self) -> Url {
        self.inner.found()
    }
}

#[async_trait]
impl ReadAt for HttpFile {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn is_ranged(&self) -> bool {
        self.inner.is_ranged()
    }

    async fn metadata(&self) -> Result<Metadata> {
        Ok(Metadata { modified: self.identity.modified, ..Metadata::default() })
    }

    async fn recheck(&self) -> Result<Identity> {
        let inner = &self.inner;
        let patience = inner.exchange.pipes(&inner.found().origin).patience();
        let seen = inner.behind.facts(patience).await;
        if seen.is_some_and(|all| all.iter().all(|now| inner.facts.differs(now).is_none())) {
            return Ok(self.identity.clone());
        }
        let answer = inner.exchange.patiently(&behind::question(&inner.found())).await?;
        if !answer.status.is_success() {
            answer.drain().await;
        } else if inner.other_version(&answer)?.is_none() {
            return Ok(self.identity.clone());
        }
        // A URL that is signed for GET alone, one that has expired, a server that answers HEAD as it
        // pleases: what counts is what can be read at the place that the user knows.
        let ask = match self.identity.size {
            0 | UNKNOWN_SIZE => whole(&inner.url),
            _ if inner.decoded => whole(&inner.url),
            _ => part(&inner.url, Range::new(0, 1), None),
        };
        let answer = inner.exchange.patiently(&ask).await?;
        if !answer.status.is_success() {
            return Err(error::of_status(answer.status, "look at", &answer.url));
        }
        let other = inner.other_version(&answer)?;
        answer.drain().await;
        Ok(other.unwrap_or_else(|| self.identity.clone()))
    }

    fn read_at(&self, range: Range) -> BlockStream {
        let wanted = Range::between(range.start(), range.end().min(self.identity.size));
        let inner = Arc::clone(&self.inner);
        let reading = Reading { inner, wanted, current: None, following: None };
        Box::pin(try_unfold(reading, |mut reading| async move {
            let block = reading.block().await?;
            Ok(block.map(|block| (block, reading)))
        }))
    }

    fn read_until(&self, range: Range, _end: &Arc<AtomicU64>) -> BlockStream {
        self.read_at(range)
    }

    async fn next_data(&self, from: u64) -> Result<Option<Range>> {
        Ok((from < self.identity.size).then(|| Range::between(from, self.identity.size)))
    }
}

/// A range that is being read.
struct Reading {
    inner: Arc<Inner>,
    wanted: Range,
    current: Option<Kept>,
    /// What comes after what was kept, asked for meanwhile.
    following: Option<Following>,
}

struct Following {
    from: u64,
    asking: JoinHandle<Result<Kept>>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.asking.abort();
    }
}

impl Reading {
    async fn block(&mut self) -> Result<Option<Block>> {
        if self.wanted.is_empty() {
            return Ok(None);
        }
        if self.current.is_none() {
            self.current = Some(self.next_part().await?);
        }
        let Some(kept) = &mut self.current else { return Ok(None) };
        let mut block = std::mem::take(&mut kept.ahead);
        // A body whose length is not said may be longer than the part that it says it is.
        let until = self.wanted.end().min(kept.range.end());
        let most = until.saturating_sub(self.wanted.start());
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        if block.is_empty() {
            gather(&mut kept.source, &mut block, most.min(BLOCK)).await?;
        }
        if block.is_empty() && self.inner.size.is_none() {
            // That is its end: a body that is cut off is an error before.
            return Ok(None);
        }
        if block.is_empty() {
            return Err(Error::new(ErrorKind::Unreachable, "read").at(kept.source.url()).because(
                format!(
                    "the answer ends at byte {} and should go on to {}",
                    self.wanted.start(),
                    kept.range.end()
                ),
            ));
        }
        block.truncate(most);
        self.wanted = self.wanted.split_at(block.len() as u64).1;
        if self.wanted.start() >= kept.range.end()
            && let Some(Kept { source: Source::Answer(answer), .. }) = self.current.take()
        {
            // What says that a body in chunks has ended is still to come.
            tokio::spawn(answer.drain());
        }
        Ok(Some(block))
    }

    /// The part that begins where something is wanted.
    async fn next_part(&mut self) -> Result<Kept> {
        let start = self.wanted.start();
        if let Some(mut following) = self.following.take_if(|following| following.from == start) {
            return (&mut following.asking).await.unwrap_or_else(|failed| {
                let error = Error::new(ErrorKind::Unreachable, "read").at(&self.inner.url);
                Err(error.with_source(failed))
            });
        }
        loop {
            let start = self.wanted.start();
            let (kept, until) = self.inner.take_kept(start);
            let Some(kept) = kept else { break };
            // What was kept ends somewhere, and what comes then is asked for meanwhile.
            let rest = Range::between(until, self.wanted.end());
            if !rest.is_empty() && self.inner.is_ranged() && self.following.is_none() {
                let asking = tokio::spawn(Arc::clone(&self.inner).ask(rest));
                self.following = Some(Following { from: rest.start(), asking });
            }
            if let Some(kept) = Arc::clone(&self.inner).looked_at(kept).await {
                return Ok(kept);
            }
            // It was not what it should have been: it is asked for as if it had never been.
            self.inner.forget_kept();
            self.following = None;
        }
        Arc::clone(&self.inner).ask(self.wanted).await
    }
}

impl Inner {
    /// Which version an answer is of, if it is another one than is being read. Where it says less than
    /// what is known there is less to compare.
    fn other_version(&self, answer: &Head) -> Result<Option<Identity>> {
        let mut now = Facts::of(answer, "look at")?;
        now.size = now.size.or(self.facts.size);
        now.modified = now.modified.or(self.facts.modified);
        now.tag = now.tag.or_else(|| self.facts.tag.clone());
        Ok(self.facts.differs(&now).map(|_| now.identity()))
    }

    async fn ask(self: Arc<Self>, range: Range) -> Result<Kept> {
        if !self.is_ranged() {
            return self.pass_over(range).await;
        }
        let (mut refusals, mut lost) = (0, 0);
        loop {
            if self.alone.load(Ordering::Relaxed) {
                return self.ask_alone(range).await;
            }
            let found = self.found();
            let ask = part(&found, range, self.facts.if_range());
            let (mut part, lane) = self.exchange.part(&ask, range.len()).await?;
            let is_last = Some(range.end()) == self.facts.size;
            self.behind.part_asked(&self.exchange, &found, &lane, is_last).await?;
            let head = match part.head().await {
                Ok(head) => head,
                // Servers end a connection after so many requests (nginx 1000, Apache 100), or rest.
                Err(Broken::Lost) if lost < LOST_MOST => {
                    lost += 1;
                    continue;
                }
                Err(broken) => return Err(error::of_broken(&broken, "read", &found)),
            };
            match head.status.as_u16() {
                // As many lanes as there are now are too many, but others go on.
                429 | 503 => {
                    self.exchange.busy(&head);
                    refusals += 1;
                    let others = self.exchange.pipes(&found.origin).refused(&lane);
                    if !others || refusals > REFUSALS_MOST {
                        return Err(error::of_status(head.status, "read", &found));
                    }
                }
                // Who we are, and where it is, is found out by a request of its own.
                300..=399 | 401 | 403 | 404 | 407 | 410 => return self.ask_alone(range).await,
                _ => {
                    if may_pass(head.status) {
                        return Err(error::of_status(head.status, "read", &found));
                    }
                    self.check_part(&head, range)?;
                    if head.length().is_none() {
                        self.alone.store(true, Ordering::Relaxed);
                        continue;
                    }
                    let source = Source::Part(part, found);
                    return Ok(Kept { source, range, ahead: Block::new() });
                }
            }
        }
    }

    fn is_ranged(&self) -> bool {
        self.ranged.load(Ordering::Relaxed)
    }

    /// Checks a part. A server that sends the whole file instead, and no part between that and the last
    /// time that it did, has no parts of this file; it is read from its beginning from then on.
    fn check_part(&self, answer: &Head, range: Range) -> Result<()> {
        let outcome = check_part(answer, range, &self.facts);
        match &outcome {
            Ok(()) => _ = self.parts.fetch_add(1, Ordering::Relaxed),
            Err(error) if answer.status == StatusCode::OK && error.retry() == Retry::Later => {
                if self.parts.swap(0, Ordering::Relaxed) == 0 {
                    self.ranged.store(false, Ordering::Relaxed);
                    self.exchange.refuses_ranges(&self.url);
                }
            }
            Err(_) => {}
        }
        outcome
    }

    /// Asks the server that the user knows.
    async fn ask_alone(&self, range: Range) -> Result<Kept> {
        let ask = part(&self.url, range, self.facts.if_range());
        let answer = self.exchange.once(&ask).await?;
        if may_pass(answer.status) {
            let error = error::of_status(answer.status, "read", &answer.url);
            answer.drain().await;
            return Err(error);
        }
        self.check_part(&answer, range)?;
        *self.lock_found() = answer.url.clone();
        Ok(Kept { source: Source::Answer(answer), range, ahead: Block::new() })
    }

    /// The piece that was kept and begins at `start`, and where the last of those ends that follow
    /// each other from there.
    fn take_kept(&self, start: u64) -> (Option<Kept>, u64) {
        let mut all = self.kept();
        let found = all.iter().position(|kept| kept.range.start() == start);
        let kept = found.map(|at| all.remove(at)).filter(|kept| !kept.range.is_empty());
        let mut until = kept.as_ref().map_or(start, |kept| kept.range.end());
        while let Some(next) = all.iter().find(|kept| kept.range.start() == until) {
            if next.range.is_empty() {
                break;
            }
            until = next.range.end();
        }
        (kept, until)
    }

    fn forget_kept(&self) {
        self.kept().clear();
    }

    /// Looks at the head of what was asked for before anything was known of the file.
    async fn looked_at(self: Arc<Self>, kept: Kept) -> Option<Kept> {
        let Kept { source, range, ahead } = kept;
        let Source::Foreseen(mut part, url) = source else {
            return Some(Kept { source, range, ahead });
        };
        let head = match part.head().await {
            // Its lane has ended, and the others go on.
            Err(Broken::Lost) => return self.ask(range).await.ok(),
            head => head.ok()?,
        };
        // A pipe cannot tell where such an answer ends.
        head.length()?;
        check_part(&head, range, &self.facts).ok()?;
        Some(Kept { source: Source::Part(part, url), range, ahead })
    }

    /// From a server that sends only whole files: what is before the range is read and thrown away.
    async fn pass_over(&self, range: Range) -> Result<Kept> {
        let mut answer = self.exchange.once(&whole(&self.found())).await?;
        if !answer.status.is_success() {
            return Err(error::of_status(answer.status, "read", &answer.url));
        }
        let now = Facts::of(&answer, "read")?;
        self.facts.check_coding(&now, &answer.url)?;
        if let Some(how) = self.facts.differs(&now) {
            return Err(Error::new(ErrorKind::Changed, "read")
                .at(&answer.url)
                .because(format!("it has changed: {how}")));
        }
        answer.hold();
        let mut source = source_of(answer, &now, self.decoded)?;
        let mut at = 0;
        let mut ahead = Block::new();
        while at < range.start() {
            let Some(bytes) = source.next().await? else { break };
            let end = at + bytes.len() as u64;
            if end > range.start() {
                let skipped = usize::try_from(range.start() - at).unwrap_or(usize::MAX);
                ahead.push(bytes.slice(skipped..));
            }
            at = end;
        }
        let range = Range::between(range.start(), self.size.unwrap_or(UNKNOWN_SIZE));
        Ok(Kept { source, range, ahead })
    }

    fn found(&self) -> Url {
        self.lock_found().clone()
    }

    fn lock_found(&self) -> MutexGuard<'_, Url> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn part(url: &Url, range: Range, version: Option<HeaderValue>) -> Ask {
    let ask = whole(url);
    let ask = match HeaderValue::try_from(bytes_of(range)) {
        Ok(bytes) => ask.with(RANGE, bytes),
        Err(_) => ask,
    };
    match version {
        Some(version) => ask.with(IF_RANGE, version),
        None => ask,
    }
}

/// The body of an answer that is a whole file.
fn source_of(answer: Answer, facts: &Facts, decoded: bool) -> Result<Source> {
    match facts.coding.as_ref().filter(|_| decoded) {
        Some(coding) => Ok(Source::Decoded(Box::new(Decoded::new(answer, coding)?))),
        None => Ok(Source::Answer(answer)),
    }
}

/// Whether an answer is a part of a file whose length is not said (`bytes 0-99/*`).
fn is_part_of_unsaid(answer: &Head) -> bool {
    answer.status == StatusCode::PARTIAL_CONTENT
        && Facts::of(answer, "open").is_ok_and(|facts| facts.size.is_none())
}

/// All of a file, as it is.
pub fn whole(url: &Url) -> Ask {
    let ask = Ask::new(Method::GET, url.clone(), "read");
    ask.with(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
}
