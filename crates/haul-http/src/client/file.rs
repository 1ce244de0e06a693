//! A file that is read, by requests for parts of it.
//!
//! ```text
//! open: GET bytes=0-first → Facts, and a body that is kept for who reads from the beginning
//! read_at: what is kept, then GET bytes=a-b on a lane that is free → blocks (`reading`)
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::try_unfold;
use haul_storage::{
    Block, BlockStream, Entry, EntryKind, Error, ErrorKind, Identity, Metadata, Range, ReadAt,
    RelPath, Result, UNKNOWN_SIZE, Whole,
};
use http::StatusCode;
use http::header::CONTENT_DISPOSITION;

use super::body::{Body, Prefetched};
use super::error;
use super::exchange::Exchange;
use super::facts::{Facts, check_part};
use super::head::Head;
use super::pipes::PIECE;
use super::reading::Reading;
use super::remote::{Remote, decoded, part, whole};
use super::response::Response;
use super::trailing_check::{self, TrailingCheck};
use crate::parse::Url;

/// How much of a file is asked for before it is known how long it is.
const FIRST: u64 = PIECE;

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
    inner: Arc<Remote>,
    identity: Identity,
}

/// What was found at a URL.
#[derive(Debug)]
pub enum Opened {
    /// A file.
    File(HttpFile),
    /// A page that may be a listing: the response, and where its body begins.
    Page(Response),
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
            let response = exchange.patiently(&whole(url)).await?;
            return Self::opened(exchange, url, response, page, codings, true).await;
        }
        let request = part(url, Range::new(0, FIRST), None);
        exchange.prefetch(&request);
        let response = match exchange.patiently(&request).await {
            Ok(response) => response,
            Err(error) => {
                drop(exchange.prefetched(url));
                return Err(error);
            }
        };
        // Nothing to ask a part of: it is empty, or was at that moment. Or it is a part of who knows
        // how much.
        if response.status == StatusCode::RANGE_NOT_SATISFIABLE || is_part_of_unsaid(&response) {
            drop(exchange.prefetched(url));
            drop(response);
            let response = exchange.patiently(&whole(url)).await?;
            return Self::opened(exchange, url, response, page, codings, false).await;
        }
        Self::opened(exchange, url, response, page, codings, true).await
    }

    /// `is_refusal`: a whole file is the answer to the question for a part.
    async fn opened(
        exchange: &Arc<Exchange>,
        url: &Url,
        response: Response,
        page: bool,
        codings: Codings,
        is_refusal: bool,
    ) -> Result<Opened> {
        // Unless the response is a part they are whole files, which nobody wants.
        let mut prefetched = exchange.prefetched(url);
        if response.url != *url {
            prefetched.clear();
        }
        if !response.status.is_success() {
            let error = error::of_status(response.status, "open", &response.url);
            drop(response);
            return Err(error);
        }
        let found = response.url.clone();
        let html = response
            .header(&http::header::CONTENT_TYPE)
            .is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/html"));
        if page && html && found.path().ends_with('/') {
            return Ok(Opened::Page(response));
        }
        if html
            && found != *url
            && !response.headers.contains_key(CONTENT_DISPOSITION)
            && is_no_page(url)
        {
            drop(response);
            return Err(error::page_of_sign_in(url, &found));
        }
        let facts = Facts::of(&response, "open")?;
        let partial = response.status == StatusCode::PARTIAL_CONTENT;
        let is_decoded = codings != Codings::Stored && !facts.is_as_stored([url, &found]);
        if is_decoded && codings == Codings::ByName {
            drop(response);
            return Ok(Opened::Encoded { sent_bytes: facts.size });
        }
        if partial && facts.size.is_none() {
            return Err(Error::new(ErrorKind::Unsupported, "open")
                .at(url)
                .because("the server sends only ranges of it, without the total size"));
        }
        let mut size = facts.size.filter(|_| !is_decoded);
        if let (true, Some(size)) = (partial, size) {
            check_part(&response, Range::new(0, FIRST.min(size)), &facts)?;
        }
        let alone = response.is_until_close();
        // What is asked for first fits into the window of its connection, which is free when it has come.
        if !partial {
            response.hold();
        }
        let mut response = decoded(response, &facts, is_decoded)?;
        let mut ahead = Block::new();
        if size.is_none() {
            while ahead.len() < UNSAID_MOST {
                let Some(bytes) = response.next("read").await? else {
                    size = Some(ahead.len() as u64);
                    break;
                };
                ahead.push(bytes);
            }
        }
        let end =
            if partial { FIRST.min(size.unwrap_or(FIRST)) } else { size.unwrap_or(UNKNOWN_SIZE) };
        let body = Body { response, range: Range::new(0, end), ahead };
        let mut all = vec![Prefetched::Body(body)];
        if let (true, Some(size)) = (partial, size) {
            let end_of = |range: Range| range.end().min(size);
            for (range, pending) in prefetched {
                let range = Range::between(range.start().min(size), end_of(range));
                all.push(Prefetched::Pending(range, pending));
            }
        }
        let identity = Identity { size: size.unwrap_or(UNKNOWN_SIZE), ..facts.identity() };
        // One refusal is a response for the file, whatever the server says of itself.
        let ranged = partial || !is_refusal && facts.ranged == Some(true) && facts.size.is_some();
        let inner = Remote {
            exchange: Arc::clone(exchange),
            url: url.clone(),
            found: Mutex::new(found),
            ranged: AtomicBool::new(ranged && !is_decoded),
            parts: AtomicU64::new(0),
            alone: AtomicBool::new(alone),
            facts,
            size,
            decoded: is_decoded,
            prefetched: Mutex::new(all),
            behind: TrailingCheck::default(),
            best: AtomicU64::new(0),
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

    /// Forgets what opening it has brought along, which is memory, or a waiting lane: a later read sends a new request.
    pub fn forget_beginning(&self) {
        self.inner.forget_prefetched();
    }

    /// Bytes in memory, or to come, that opening it has brought along.
    pub fn beginning_bytes(&self) -> u64 {
        FIRST.min(self.identity.size)
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
        let patience = inner.exchange.transport().pipes(&inner.found().origin).patience();
        let seen = inner.behind.facts(patience).await;
        if seen.is_some_and(|all| all.iter().all(|now| inner.facts.differs(now).is_none())) {
            return Ok(self.identity.clone());
        }
        let response = inner.exchange.patiently(&trailing_check::question(&inner.found())).await?;
        if !response.status.is_success() {
            drop(response);
        } else if inner.other_version(&response)?.is_none() {
            return Ok(self.identity.clone());
        }
        // A URL that is signed for GET alone, one that has expired, a server that answers HEAD as it
        // pleases: what counts is what can be read at the place that the user knows.
        let request = match self.identity.size {
            0 | UNKNOWN_SIZE => whole(&inner.url),
            _ if inner.decoded => whole(&inner.url),
            _ => part(&inner.url, Range::new(0, 1), None),
        };
        let response = inner.exchange.patiently(&request).await?;
        if !response.status.is_success() {
            return Err(error::of_status(response.status, "access", &response.url));
        }
        let other = inner.other_version(&response)?;
        drop(response);
        Ok(other.unwrap_or_else(|| self.identity.clone()))
    }

    fn read_at(&self, range: Range) -> BlockStream {
        let wanted = Range::between(range.start(), range.end().min(self.identity.size));
        let inner = Arc::clone(&self.inner);
        let reading = Reading::new(inner, wanted);
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

/// Whether a response is a part of a file whose length is not said (`bytes 0-99/*`).
fn is_part_of_unsaid(response: &Head) -> bool {
    response.status == StatusCode::PARTIAL_CONTENT
        && Facts::of(response, "open").is_ok_and(|facts| facts.size.is_none())
}

/// Whether a URL is that of a file which is no web page, by the end of its name.
fn is_no_page(url: &Url) -> bool {
    const PAGES: [&str; 9] = ["asp", "aspx", "cgi", "htm", "html", "jsp", "php", "shtml", "xhtml"];
    let name = url.path().rsplit('/').next().unwrap_or_default();
    let Some((_, end)) = name.rsplit_once('.') else { return false };
    let is_type = end.len() <= 8
        && end.starts_with(|first: char| first.is_ascii_alphabetic())
        && end.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_type && !PAGES.contains(&&end.to_ascii_lowercase()[..])
}
