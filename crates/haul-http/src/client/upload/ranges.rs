//! Uploads a file in parts, in any order and over any lane: each block is a request of its own,
//! pipelined behind others; its response confirms that the bytes are in the part file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use haul_storage::journal::PartJournal;
use haul_storage::{
    Block, Claim, CommitOptions, CreateOptions, Entry, Error, ErrorKind, Held, Range, RangeSet,
    ReadAt, RelPath, Replaces, Result, Retry, WriteAt, Writes,
};
use http::header::{CONTENT_RANGE, CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use tokio::time::timeout;

use super::super::error;
use super::super::file::{Codings, HttpFile, Opened};
use super::super::head::Broken;
use super::super::inner::Inner;
use super::super::order::Marker;
use super::super::quirks::Partial;
use super::super::request::Request;
use super::super::response::Proof;
use super::direct::is_refusal;
use super::stream::StreamUpload;

const UPDATE_RANGE: HeaderName = HeaderName::from_static("x-update-range");
const UPDATE: &str = "application/x-sabredav-partialupdate";

/// How often a part is sent again on another lane.
const TRIES: u32 = 4;

/// Time to remove an empty file after a lost response. The connection may be gone for good.
const REMOVED_WITHIN: Duration = Duration::from_secs(5);

/// Whether a status confirms that a range was written.
fn is_written(status: StatusCode) -> bool {
    matches!(status, StatusCode::OK | StatusCode::CREATED | StatusCode::NO_CONTENT)
}

/// A file that is being written.
#[derive(Debug)]
pub(super) struct RangeUpload {
    inner: Arc<Inner>,
    path: RelPath,
    /// The part file, or the final name if the server turned out to have no MOVE.
    part: RelPath,
    /// `None` if there is no part file.
    claim: Option<Claim>,
    journal: PartJournal,
    /// The end of the highest range written.
    end: AtomicU64,
}

impl RangeUpload {
    /// Starts the part file of `path`, or resumes it with `options.resume`.
    pub(super) async fn create(
        inner: &Arc<Inner>,
        path: &RelPath,
        options: &CreateOptions,
    ) -> Result<Self> {
        if !inner.moves(path) {
            create_directly(inner, path, &options.replaces).await?;
            return Ok(Self {
                inner: Arc::clone(inner),
                path: path.clone(),
                part: path.clone(),
                claim: None,
                journal: PartJournal::default(),
                end: AtomicU64::new(0),
            });
        }
        let claim = inner.claim(path).await;
        let part = inner.part_of(path, &claim)?;
        let (mut made, mut found) = (false, None);
        // Without a source, only the caller knows what the part file has.
        if options.resume && (claim.has_journal() || options.source.is_none()) {
            // A conditional PUT also shows whether the part file exists.
            made = inner.quirks.conditional && begin(inner, path, &part, true).await?;
            if !made {
                found = inner.look_by_properties(&part, "create").await?;
            }
        }
        // If the length of a part file is unknown, nothing shows whether it holds what the journal records.
        let found = found.filter(Entry::is_file).and_then(|entry| entry.known_size());
        let journal = PartJournal::look(claim.journal(), options, found, Writes::AnyOrder).await?;
        if !made && !journal.resumes() {
            begin(inner, path, &part, false).await?;
        }
        let upload = Self {
            inner: Arc::clone(inner),
            path: path.clone(),
            part,
            claim: Some(claim),
            journal,
            end: AtomicU64::new(0),
        };
        upload.journal.start(&upload).await?;
        Ok(upload)
    }

    async fn put(&self, offset: u64, block: Block) -> Result<()> {
        let last = offset + block.len() as u64 - 1;
        let url = self.inner.url(&self.part);
        let range = |text: String| {
            HeaderValue::try_from(text)
                .map_err(|error| Error::new(ErrorKind::InvalidInput, "write").with_source(error))
        };
        let mut request = match self.inner.quirks.partial {
            Some(Partial::UpdateRange) => Request::new(Method::PATCH, url, "write")
                .with(UPDATE_RANGE, range(format!("bytes={offset}-{last}"))?)
                .with(CONTENT_TYPE, HeaderValue::from_static(UPDATE)),
            _ => Request::new(Method::PUT, url, "write")
                .with(CONTENT_RANGE, range(format!("bytes {offset}-{last}/*"))?),
        };
        // Without this header, the server would recreate a removed file, with a hole in place of everything
        // written before.
        request = request.with(IF_MATCH, HeaderValue::from_static("*"));
        request.body = block;
        if self.send(&request, offset).await? {
            return Ok(());
        }
        let outcome = self.inner.status_of_change(&request).await;
        let sent = outcome.and_then(|(status, url)| match is_written(status) {
            true => Ok(()),
            false => Err(error::of_status(status, "write", &url)),
        });
        sent.map_err(|error| {
            let at = self.inner.location.display(&self.path);
            match error.kind() {
                // 412 (the condition is not met) is reported as `AlreadyExists`.
                ErrorKind::NotFound | ErrorKind::AlreadyExists => {
                    Error::new(ErrorKind::Changed, "write")
                        .at(at)
                        .because("its part file was removed during the upload")
                        .with_retry(Retry::FromStart)
                }
                _ => error.at(at),
            }
        })
    }

    /// Sends a part pipelined on a shared lane. `false` if it has to be sent alone: it was refused, its response was
    /// malformed, nothing proves that the confirmation belongs to it, connections were lost too often, or this origin
    /// gets only requests for ranges on shared lanes.
    async fn send(&self, request: &Request, offset: u64) -> Result<bool> {
        let exchange = self.inner.exchange();
        let order = exchange.order(&request.url.origin);
        let mut tries = 0;
        while order.takes_whole() {
            let marker = Marker::behind_part(request.url.clone(), offset);
            let (response, lane) = exchange.part(request, 0, Some(marker)).await?;
            match response.head().await {
                Ok(mut head) if is_written(head.status) => match head.proof().await {
                    Proof::Given => return Ok(true),
                    Proof::Lost if tries < TRIES => {}
                    Proof::Lost => return Ok(false),
                    // The marker reads a byte of the part file. If the server forbids that, each part would
                    // have to be sent twice.
                    Proof::Refused => {
                        order.only_ranges();
                        return Ok(false);
                    }
                },
                // The server refuses this lane because there are too many; the others continue.
                Ok(head) if matches!(head.status.as_u16(), 429 | 503) => {
                    exchange.busy(&head);
                    let others = exchange.transport().pipes(&request.url.origin).refused(&lane);
                    if !others || tries >= TRIES {
                        return Err(error::of_status(head.status, "write", &request.url));
                    }
                }
                // Servers close a connection after a number of requests.
                Err(Broken::Lost { .. }) if tries < TRIES => {}
                Ok(_) | Err(Broken::Lost { .. } | Broken::Unreadable(_)) => return Ok(false),
                Err(broken) => return Err(error::of_broken(&broken, "write", &request.url)),
            }
            tries += 1;
        }
        Ok(false)
    }

    fn release(&self) {
        self.claim.iter().for_each(Claim::release);
    }

    async fn open(&self) -> Result<HttpFile> {
        // The server may derive a content coding from the name, but the bytes read are those written.
        let (exchange, url) = (self.inner.exchange(), self.inner.url(&self.part));
        match HttpFile::open_as(exchange, &url, false, Codings::Stored).await? {
            Opened::File(file) => Ok(file.without_tag()),
            Opened::Page(_) | Opened::Encoded { .. } => {
                Err(Error::new(ErrorKind::IsADirectory, "open").at(&url))
            }
        }
    }

    /// Sets the length of the part file. If the file is too short, a zero is written as its last byte. WebDAV cannot
    /// truncate a file, so a file that is too long is written again.
    async fn fit(&self, size: u64) -> Result<()> {
        let mut length = self.end.load(Ordering::Relaxed);
        if self.journal.resumes() {
            let found = self.inner.look_by_properties(&self.part, "commit").await?;
            let held = self.journal.held().ranges().iter().last().map_or(0, Range::end);
            // If the server does not report the length, it follows from what was written.
            length = found.map_or(0, |entry| entry.known_size().unwrap_or(length.max(held)));
        }
        if length < size {
            return self.put(size - 1, Block::from(Bytes::from_static(&[0]))).await;
        }
        if length == size {
            return Ok(());
        }
        let file = self.open().await?;
        let options = CreateOptions { size: Some(size), ..CreateOptions::default() };
        let shorter = StreamUpload::create(&self.inner, &self.part, &options).await?;
        let written = copy(&file, &shorter, size).await;
        if written.is_err() {
            // Only the first error is reported.
            drop(shorter.abort(false).await);
        }
        written
    }
}

async fn copy(file: &HttpFile, shorter: &StreamUpload, size: u64) -> Result<()> {
    let (mut blocks, mut offset) = (file.read_at(Range::new(0, size)), 0);
    while let Some(block) = blocks.next().await {
        let block = block?;
        let length = block.len() as u64;
        shorter.write_at(offset, block).await?;
        offset += length;
    }
    let replace =
        CommitOptions { metadata: <_>::default(), replace: true, sync: false, expected: None };
    shorter.commit(size, &replace).await
}

/// Creates the part file of `path`, or empties an existing one; with `only_new`, leaves that unchanged and returns
/// `false`.
async fn begin(inner: &Inner, path: &RelPath, part: &RelPath, only_new: bool) -> Result<bool> {
    let mut empty = Request::new(Method::PUT, inner.url(part), "create");
    if only_new {
        empty = empty.with(IF_NONE_MATCH, HeaderValue::from_static("*"));
    }
    match inner.send_change(&empty).await {
        Ok(()) => Ok(true),
        Err(error) if only_new && error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => {
            if !is_refusal(&error) && empty.may_have_effect() {
                remove_empty(inner, part).await;
            }
            Err(inner.why_refused(error, path).await)
        }
    }
}

/// Creates an empty file under its final name.
async fn create_directly(inner: &Inner, path: &RelPath, replaces: &Replaces) -> Result<()> {
    // A server that evaluates conditions detects an existing file itself, perhaps with the response that was lost.
    let is_looked_up = *replaces == Replaces::Nothing && !inner.quirks.conditional;
    let is_first = !inner.has_begun(path);
    let empty = Request::new(Method::PUT, inner.url(path), "create");
    let created = inner.put_directly(path, &empty, replaces).await;
    // Nothing was there before, the PUT was sent, and its response was lost. If it was not even sent, an empty file is
    // that of another program.
    if created.is_err()
        && (is_looked_up && is_first && inner.has_begun(path))
        && remove_empty(inner, path).await
    {
        inner.leaves_nothing(path);
    }
    created
}

/// Removes what a PUT without a body has left, if its response was lost. Returns whether it was found and removed; if
/// the server cannot be reached, it stays.
async fn remove_empty(inner: &Inner, path: &RelPath) -> bool {
    let removed = async {
        match inner.look_by_properties(path, "remove").await? {
            Some(entry) if entry.is_file() && entry.known_size() == Some(0) => {
                inner.remove_part(path).await.map(|()| true)
            }
            _ => Ok(false),
        }
    };
    let removed: Result<Result<bool>, _> = timeout(REMOVED_WITHIN, removed).await;
    matches!(removed, Ok(Ok(true)))
}

#[async_trait]
impl WriteAt for RangeUpload {
    fn held(&self) -> &Held {
        self.journal.held()
    }

    async fn record(&self, ranges: RangeSet) -> Result<()> {
        self.journal.record(ranges).await
    }

    async fn write_at(&self, offset: u64, block: Block) -> Result<()> {
        if block.is_empty() {
            return Ok(());
        }
        let end = offset + block.len() as u64;
        self.put(offset, block).await?;
        self.end.fetch_max(end, Ordering::Relaxed);
        Ok(())
    }

    async fn copy_from(&self, _source: &dyn ReadAt, _range: Range) -> Result<bool> {
        Ok(false)
    }

    async fn sync(&self) -> Result<()> {
        Ok(())
    }

    async fn reopen(&self, _uncached: bool) -> Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(self.open().await?))
    }

    async fn commit(&self, size: u64, options: &CommitOptions) -> Result<()> {
        if self.part == self.path {
            self.fit(size).await?;
            self.inner.stored_directly(&self.path);
            return match options.metadata.modified {
                Some(time) => self.inner.set_time(&self.path, time).await,
                None => Ok(()),
            };
        }
        let is_whole = !self.journal.resumes() && self.end.load(Ordering::Relaxed) == size;
        if is_whole && self.inner.quirks.conditional {
            // The server has confirmed each part, and replaces an existing file only if the request allows it.
            self.inner.rename_part(&self.part, &self.path, size, None, options).await?;
        } else {
            self.fit(size).await?;
            self.inner.commit_part(&self.part, &self.path, size, options).await?;
        }
        let removed = self.journal.remove().await;
        self.release();
        removed
    }

    async fn abort(&self, keep: bool) -> Result<()> {
        // An incomplete file must not stay under its final name.
        let is_found_again = self.claim.as_ref().is_some_and(|claim| claim.journal().is_some());
        let outcome = match keep && is_found_again {
            true => Ok(()),
            false => self.inner.remove_part(&self.part).await.and(self.journal.remove().await),
        };
        if self.part == self.path && outcome.is_ok() {
            self.inner.leaves_nothing(&self.path);
        }
        self.release();
        outcome
    }
}
