//! Reads a file over HTTP, by range requests where the server supports them.
//!
//! ```text
//! open: GET bytes=0-65535 → Facts, and a body that is cached for the first read from offset 0
//! read_at: the cached body, then GET bytes=a-b on free lanes → blocks (`reading`)
//! ```

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::try_unfold;
use haul_storage::{
    BlockStream, Entry, EntryKind, Error, ErrorKind, Identity, Metadata, Range, ReadAt, RelPath,
    Result, UNKNOWN_SIZE, Whole,
};
use http::StatusCode;
use http::header::CONTENT_DISPOSITION;
use tokio::sync::OwnedSemaphorePermit;

use super::error;
use super::exchange::Exchange;
use super::facts::Facts;
use super::head::Head;
use super::reading::Reading;
use super::remote::{FIRST, FirstRequest, Remote, part, whole};
use super::response::Response;
use super::trailing_check;
use crate::parse::Url;

impl Codings {
    /// Decides by the length: if the encoded body has the listed length, the file is stored encoded.
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

/// The result of opening a URL.
#[derive(Debug)]
pub enum Opened {
    /// A file.
    File(HttpFile),
    /// An HTML page that may be a directory listing; its body has not been read.
    Page(Response),
    /// A file that is sent with a `Content-Encoding`, while its name does not show whether it is stored encoded.
    Encoded {
        /// Length of the encoded body, if the server reports it.
        sent_bytes: Option<u64>,
    },
}

/// How to treat a `Content-Encoding`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codings {
    /// Part of the stored file if its name shows that (`.gz`); otherwise [`Opened::Encoded`] leaves it to the caller.
    ByName,
    /// Part of the stored file: the body is not decoded.
    Stored,
    /// Added for the transfer: the body is decoded.
    Decoded,
}

impl HttpFile {
    /// Opens a file by requesting its first bytes. With `page`, an HTML page at a URL that ends with a slash is
    /// returned as `Opened::Page`.
    ///
    /// # Errors
    /// Fails if the file does not exist or cannot be read.
    pub async fn open(exchange: &Arc<Exchange>, url: &Url, page: bool) -> Result<Opened> {
        Self::open_as(exchange, url, page, Codings::ByName).await
    }

    /// Like [`Self::open`], with a given treatment of a `Content-Encoding`.
    ///
    /// # Errors
    /// Fails if the file does not exist or cannot be read.
    pub async fn open_as(
        exchange: &Arc<Exchange>,
        url: &Url,
        page: bool,
        codings: Codings,
    ) -> Result<Opened> {
        Self::open_reading(exchange, url, page, codings, FIRST).await
    }

    /// Like [`Self::open_as`], and requests the first `first` bytes with the open, at least 64 KiB.
    ///
    /// # Errors
    /// Fails if the file does not exist or cannot be read.
    pub async fn open_reading(
        exchange: &Arc<Exchange>,
        url: &Url,
        page: bool,
        codings: Codings,
        first: u64,
    ) -> Result<Opened> {
        // A range would be one of the encoded body, which cannot be decoded from its middle.
        if codings == Codings::Decoded || !exchange.may_have_ranges(url) {
            let response = exchange.patiently(&whole(url)).await?;
            return Self::opened(exchange, url, response, page, codings, FirstRequest::REFUSED)
                .await;
        }
        let first = first.max(FIRST);
        let request = part(url, Range::new(0, first), None);
        if first == FIRST {
            // Further lanes request the bytes after it.
            exchange.prefetch(&request);
        }
        let response = match exchange.patiently(&request).await {
            Ok(response) => response,
            Err(error) => {
                drop(exchange.prefetched(url));
                return Err(error);
            }
        };
        // 416: the file is empty, or was when the server responded. Without a total size, the range is of no use.
        if response.status == StatusCode::RANGE_NOT_SATISFIABLE || is_part_of_unknown(&response) {
            drop(exchange.prefetched(url));
            drop(response);
            let response = exchange.patiently(&whole(url)).await?;
            return Self::opened(exchange, url, response, page, codings, FirstRequest::WHOLE).await;
        }
        let requested = FirstRequest { first, is_refusal: true };
        Self::opened(exchange, url, response, page, codings, requested).await
    }

    /// Evaluates the first response.
    async fn opened(
        exchange: &Arc<Exchange>,
        url: &Url,
        response: Response,
        page: bool,
        codings: Codings,
        requested: FirstRequest,
    ) -> Result<Opened> {
        // Used only if this response is partial; otherwise these are whole files too. After a redirect they are
        // responses for another URL.
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
        if is_html(&response) {
            if page && found.path().ends_with('/') {
                return Ok(Opened::Page(response));
            }
            if found != *url
                && !response.headers.contains_key(CONTENT_DISPOSITION)
                && is_no_page(url)
            {
                drop(response);
                return Err(error::login_page(url, &found));
            }
        }
        let facts = Facts::of(&response, "open")?;
        let is_decoded = codings != Codings::Stored && !facts.is_as_stored([url, &found]);
        if is_decoded && codings == Codings::ByName {
            drop(response);
            return Ok(Opened::Encoded { sent_bytes: facts.size });
        }
        if response.status == StatusCode::PARTIAL_CONTENT && facts.size.is_none() {
            return Err(Error::new(ErrorKind::Unsupported, "open")
                .at(url)
                .because("the server sends only ranges of it, without the total size"));
        }
        let inner =
            Remote::opened(exchange, url, response, facts, is_decoded, requested, prefetched)
                .await?;
        let size = inner.size().unwrap_or(UNKNOWN_SIZE);
        let identity = Identity { size, ..inner.facts.identity() };
        Ok(Opened::File(Self { inner: Arc::new(inner), identity }))
    }

    /// Removes the ETag from the identity if there is a modification time, for servers whose listings show another
    /// ETag or none. [`ReadAt::recheck`] still notices a change of the ETag alone.
    #[must_use]
    pub fn without_tag(mut self) -> Self {
        // Without a time, only the ETag distinguishes versions of the same size.
        if self.identity.modified.is_some() {
            self.identity.tag = None;
        }
        self
    }

    /// Reads the whole file into memory.
    ///
    /// # Errors
    /// Those of [`ReadAt::read_at`].
    pub async fn whole(&self) -> Result<Whole> {
        let mut bytes = Vec::new();
        let mut blocks = self.read_at(Range::new(0, self.identity.size));
        while let Some(block) = blocks.next().await {
            block?.pieces().iter().for_each(|piece| bytes.extend_from_slice(piece));
        }
        let identity = self.identity.clone();
        Ok(Whole::new(bytes.into(), identity, self.metadata().await?))
    }

    /// Drops the prefetched beginning of the file, which occupies memory or a lane; later reads send a new request.
    pub fn forget_beginning(&self) {
        self.inner.forget_prefetched();
    }

    /// Holds `permits` until reading of the prefetched beginning starts, or it is dropped.
    pub fn hold_permits(&self, permits: Vec<OwnedSemaphorePermit>) {
        self.inner.hold_permits(permits);
    }

    /// Length in bytes of the beginning that [`Self::open`] prefetches, received or in flight.
    pub fn beginning_bytes(&self) -> u64 {
        FIRST.min(self.identity.size)
    }

    /// Whether the file can be read by ranges.
    pub fn is_ranged(&self) -> bool {
        self.inner.is_ranged()
    }

    /// An entry for this file at `path`.
    pub fn entry(&self, path: &RelPath) -> Entry {
        let mut entry = Entry::new(path.clone(), EntryKind::File, self.identity.size);
        entry.modified = self.identity.modified;
        entry.tag.clone_from(&self.identity.tag);
        entry
    }

    /// The metadata from the first response.
    pub fn facts(&self) -> &Facts {
        &self.inner.facts
    }

    /// The URL after all redirects.
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
        let response =
            inner.exchange.patiently(&trailing_check::head_request(&inner.found())).await?;
        if !response.status.is_success() {
            drop(response);
        } else if inner.other_version(&response)?.is_none() {
            return Ok(self.identity.clone());
        }
        // HEAD fails where the URL is signed for GET only or has expired, and some servers handle it wrongly. A GET of
        // the original URL decides.
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

    async fn grown(&self) -> Result<Option<Arc<dyn ReadAt>>> {
        // The file is read by its name.
        Ok(None)
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

fn is_html(response: &Head) -> bool {
    let kind = response.header(&http::header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/html"))
}

/// Whether a response is a range of a file whose size the server does not report (`bytes 0-99/*`).
fn is_part_of_unknown(response: &Head) -> bool {
    response.status == StatusCode::PARTIAL_CONTENT
        && Facts::of(response, "open").is_ok_and(|facts| facts.size.is_none())
}

/// Whether the extension of a URL shows that it is not a web page: a letter and up to 7 more letters and
/// digits, not one of `PAGES`; or one of `FILES`, as others that begin with a digit may be part of a version
/// (`x-1.2b`).
fn is_no_page(url: &Url) -> bool {
    const PAGES: [&str; 9] = ["asp", "aspx", "cgi", "htm", "html", "jsp", "php", "shtml", "xhtml"];
    const FILES: [&str; 9] = ["3dm", "3ds", "3fr", "3g2", "3gp", "3gpp", "3mf", "7z", "7zip"];
    let name = url.path().rsplit('/').next().unwrap_or_default();
    let Some((_, end)) = name.rsplit_once('.') else { return false };
    let end = end.to_ascii_lowercase();
    let is_type = end.len() <= 8
        && end.starts_with(|first: char| first.is_ascii_alphabetic())
        && end.bytes().all(|byte| byte.is_ascii_alphanumeric());
    FILES.contains(&&end[..]) || is_type && !PAGES.contains(&&end[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formerly, a login page was stored as `disk.7z`.
    #[test]
    fn extensions_of_files_are_distinguished_from_those_of_pages_and_from_versions() {
        let is_no_page = |path: &str| is_no_page(&Url::parse(&format!("http://h/{path}")).unwrap());
        for file in ["a.iso", "a.tar.GZ", "d/a.mp4", "disk.7z", "clip.3GP", "part.3mf"] {
            assert!(is_no_page(file), "{file}");
        }
        for page in ["", "a", "a.html", "a.PHP", "x-1.2", "x-1.2b", "x-3.10rc1", "a.b/c", "a.b_c"] {
            assert!(!is_no_page(page), "{page}");
        }
    }
}
