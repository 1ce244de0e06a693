//! A file that is read, by requests for parts of it.
//!
//! ```text
//! open: GET bytes=0-first → Facts, and a body that is kept for who reads from the beginning
//! read_at: what is kept, then GET bytes=a-b on a lane that is free → blocks
//! ```

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::try_unfold;
use haul_storage::{
    Block, BlockStream, Error, ErrorKind, Identity, Metadata, Range, ReadAt, Result,
};
use http::header::{ACCEPT_ENCODING, IF_RANGE, RANGE};
use http::{HeaderValue, Method, StatusCode};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::answer::Answer;
use super::error;
use super::exchange::{Ask, Exchange, may_pass};
use super::facts::{Facts, check_part};
use crate::parse::Url;

/// How much of a file is asked for before it is known how long it is.
pub const FIRST: u64 = 1 << 20;

/// Bytes of a block, if they come within [`GATHERED`]: a write to a disk is worth its way to a thread.
const BLOCK: usize = 512 << 10;
const GATHERED: Duration = Duration::from_millis(30);

/// A file whose length is not said is held in memory up to this many bytes.
const UNSAID_MOST: usize = 16 << 20;

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
    ranged: bool,
    kept: Mutex<Option<Kept>>,
}

/// The beginning of the file, on its way already.
#[derive(Debug)]
struct Kept {
    answer: Answer,
    range: Range,
    /// Bytes that have been read of it already.
    ahead: Block,
}

/// What was found at a URL.
#[derive(Debug)]
pub enum Opened {
    /// A file.
    File(HttpFile),
    /// A page that may be a listing: the answer, and where its body begins.
    Page(Answer),
}

impl HttpFile {
    /// Opens a file. `page` says whether an HTML page may be something else than a file.
    ///
    /// # Errors
    /// It is not there, or may not be read.
    pub async fn open(exchange: &Arc<Exchange>, url: &Url, page: bool) -> Result<Opened> {
        let ask = part(url, Range::new(0, FIRST), None);
        let answer = exchange.patiently(&ask).await?;
        if answer.status == StatusCode::RANGE_NOT_SATISFIABLE {
            // Nothing to ask a part of: it is empty, or was at that moment.
            answer.drain().await;
            let answer = exchange.patiently(&whole(url)).await?;
            return Self::opened(exchange, url, answer, page).await;
        }
        Self::opened(exchange, url, answer, page).await
    }

    async fn opened(
        exchange: &Arc<Exchange>,
        url: &Url,
        mut answer: Answer,
        page: bool,
    ) -> Result<Opened> {
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
        let mut facts = Facts::of(&answer, "open")?;
        let partial = answer.status == StatusCode::PARTIAL_CONTENT;
        let mut ahead = Block::new();
        if facts.size.is_none() {
            let bytes = answer.whole("read", UNSAID_MOST).await.map_err(|error| {
                Error::new(ErrorKind::Unsupported, "read").at(url).because(format!(
                    "the server does not say how long it is, and it is longer than {} MiB ({})",
                    UNSAID_MOST >> 20,
                    error.cause()
                ))
            })?;
            facts.size = Some(bytes.len() as u64);
            ahead.push(bytes.into());
        }
        let size = facts.size.unwrap_or_default();
        let range = Range::new(0, if partial { FIRST.min(size) } else { size });
        if partial {
            check_part(&answer, range, &facts)?;
        }
        let identity = facts.identity();
        answer.keep();
        let kept = Kept { answer, range, ahead };
        let inner = Inner {
            exchange: Arc::clone(exchange),
            url: url.clone(),
            found: Mutex::new(found),
            ranged: partial || facts.ranged == Some(true),
            facts,
            kept: Mutex::new(Some(kept)),
        };
        Ok(Opened::File(Self { inner: Arc::new(inner), identity }))
    }

    /// The same without its ETag in its identity, for where listings have another one or none. A
    /// file of which only the ETag is another one later has changed all the same.
    #[must_use]
    pub fn without_tag(mut self) -> Self {
        self.identity.tag = None;
        self
    }

    /// Whether parts of it can be asked for.
    pub fn is_ranged(&self) -> bool {
        self.inner.ranged
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

    async fn metadata(&self) -> Result<Metadata> {
        Ok(Metadata { modified: self.identity.modified, ..Metadata::default() })
    }

    async fn recheck(&self) -> Result<Identity> {
        let inner = &self.inner;
        let mut ask = Ask::new(Method::HEAD, inner.found(), "look at");
        ask = ask.with(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let answer = inner.exchange.patiently(&ask).await?;
        if !answer.status.is_success() {
            return Err(error::of_status(answer.status, "look at", &answer.url));
        }
        let mut now = Facts::of(&answer, "look at")?;
        // Where a HEAD says less than a GET there is less to compare.
        now.size = now.size.or(inner.facts.size);
        now.modified = now.modified.or(inner.facts.modified);
        now.tag = now.tag.or_else(|| inner.facts.tag.clone());
        let is_same = inner.facts.differs(&now).is_none();
        Ok(if is_same { self.identity.clone() } else { now.identity() })
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
        kept.answer.stall(false);
        let mut block = std::mem::take(&mut kept.ahead);
        let most = usize::try_from(self.wanted.len()).unwrap_or(usize::MAX);
        if block.is_empty() {
            gather(&mut kept.answer, &mut block, most.min(BLOCK)).await?;
        }
        if block.is_empty() {
            return Err(Error::new(ErrorKind::Unreachable, "read").at(&kept.answer.url).because(
                format!(
                    "the answer ends at byte {} and should go on to {}",
                    self.wanted.start(),
                    kept.range.end()
                ),
            ));
        }
        block.truncate(most);
        self.wanted = self.wanted.split_at(block.len() as u64).1;
        kept.answer.stall(true);
        if self.wanted.start() >= kept.range.end() {
            self.current = None;
        }
        Ok(Some(block))
    }

    /// The part that begins where something is wanted.
    async fn next_part(&mut self) -> Result<Kept> {
        if let Some(mut following) = self.following.take() {
            return (&mut following.asking).await.unwrap_or_else(|failed| {
                let error = Error::new(ErrorKind::Unreachable, "read").at(&self.inner.url);
                Err(error.with_source(failed))
            });
        }
        let start = self.wanted.start();
        let kept = self.inner.kept().take_if(|kept| kept.range.start() == start);
        let Some(mut kept) = kept else {
            return Arc::clone(&self.inner).ask(self.wanted).await;
        };
        kept.answer.unkeep();
        let rest = Range::between(kept.range.end(), self.wanted.end());
        if !rest.is_empty() && self.inner.ranged {
            let asking = Arc::clone(&self.inner).ask(rest);
            let asking = tokio::spawn(async move {
                let mut kept = asking.await?;
                kept.answer.stall(true);
                Ok(kept)
            });
            self.following = Some(Following { asking });
        }
        Ok(kept)
    }
}

/// Puts what comes into a block until there is enough, or it takes too long.
async fn gather(answer: &mut Answer, block: &mut Block, enough: usize) -> Result<()> {
    let mut until = None;
    while block.len() < enough {
        let next = match until {
            None => answer.next("read").await?,
            Some(until) => match timeout_at(until, answer.next("read")).await {
                Ok(next) => next?,
                Err(_) => return Ok(()),
            },
        };
        let Some(bytes) = next else { return Ok(()) };
        block.push(bytes);
        until.get_or_insert_with(|| Instant::now() + GATHERED);
    }
    Ok(())
}

impl Inner {
    async fn ask(self: Arc<Self>, range: Range) -> Result<Kept> {
        if !self.ranged {
            return self.pass_over(range).await;
        }
        let mut found = self.found();
        loop {
            let ask = part(&found, range, self.facts.if_range());
            let answer = self.exchange.once(&ask).await?;
            // What a redirect led to may be good for some minutes only.
            let expired = matches!(answer.status.as_u16(), 401 | 403 | 404 | 410);
            if expired && found != self.url {
                answer.drain().await;
                found = self.url.clone();
                continue;
            }
            if may_pass(answer.status) {
                let error = error::of_status(answer.status, "read", &answer.url);
                answer.drain().await;
                return Err(error);
            }
            check_part(&answer, range, &self.facts)?;
            *self.lock_found() = answer.url.clone();
            return Ok(Kept { answer, range, ahead: Block::new() });
        }
    }

    /// From a server that sends only whole files: what is before the range is read and thrown away.
    async fn pass_over(&self, range: Range) -> Result<Kept> {
        let mut answer = self.exchange.once(&whole(&self.found())).await?;
        if !answer.status.is_success() {
            return Err(error::of_status(answer.status, "read", &answer.url));
        }
        let now = Facts::of(&answer, "read")?;
        if let Some(how) = self.facts.differs(&now) {
            return Err(Error::new(ErrorKind::Changed, "read").at(&answer.url).because(how));
        }
        let mut at = 0;
        let mut ahead = Block::new();
        while at < range.start() {
            let Some(bytes) = answer.next("read").await? else { break };
            let end = at + bytes.len() as u64;
            if end > range.start() {
                let skipped = usize::try_from(range.start() - at).unwrap_or(usize::MAX);
                ahead.push(bytes.slice(skipped..));
            }
            at = end;
        }
        let size = self.facts.size.unwrap_or_default();
        Ok(Kept { answer, range: Range::between(range.start(), size), ahead })
    }

    fn found(&self) -> Url {
        self.lock_found().clone()
    }

    fn lock_found(&self) -> MutexGuard<'_, Url> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept(&self) -> MutexGuard<'_, Option<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn part(url: &Url, range: Range, version: Option<HeaderValue>) -> Ask {
    let ask = whole(url);
    let bytes = format!("bytes={}-{}", range.start(), range.end().saturating_sub(1));
    // Digits, an equals sign and a hyphen.
    let ask = match HeaderValue::from_str(&bytes) {
        Ok(bytes) => ask.with(RANGE, bytes),
        Err(_) => ask,
    };
    match version {
        Some(version) => ask.with(IF_RANGE, version),
        None => ask,
    }
}

/// All of a file, as it is.
pub fn whole(url: &Url) -> Ask {
    let ask = Ask::new(Method::GET, url.clone(), "read");
    ask.with(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
}
