//! A file that is read from its mirrors.
//!
//! A range is read from one mirror until that fails; the rest is then read from another, so the reader sees
//! one stream without a gap. The stream ends with the error only if no other mirror can continue at once,
//! or if the failed one has changed and its earlier bytes may be of the new version.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::try_unfold;
use haul_storage::{
    Block, BlockStream, Error, ErrorKind, Identity, Metadata, Range, ReadAt, Result, Retry,
    UNKNOWN_SIZE,
};
use tokio::time::timeout;

use super::choice::Failed;
use super::grace::within_grace;
use super::shared::{Mirror, Shared, may_pass};

/// A mirror that sends nothing for this long is stalled.
const STALLED: Duration = Duration::from_secs(10);
/// The same for a mirror without open connections.
const LOST: Duration = Duration::from_millis(500);
/// The rate of a range is checked each time this long was spent waiting for its bytes.
const SPAN: Duration = Duration::from_secs(5);
/// How often silence is checked.
const LOOK: Duration = Duration::from_millis(250);

/// The file, opened on each of its mirrors.
#[derive(Debug)]
pub struct MirrorReader {
    inner: Arc<Inner>,
    identity: Identity,
}

#[derive(Debug)]
struct Inner {
    mirrors: Arc<[Mirror]>,
    shared: Arc<Shared>,
    /// By the numbers of their mirrors; not empty.
    readers: BTreeMap<usize, Arc<dyn ReadAt>>,
    /// Mirrors that have delivered bytes.
    read: Arc<Mutex<Vec<usize>>>,
    size: u64,
    /// Whether any mirror supported ranges at first. Ranges of the file are then read concurrently, so a
    /// mirror without them is of no use: it would send everything before each range.
    in_ranges: bool,
}

impl MirrorReader {
    /// `readers`, at least one, hold the same file. The numbers of mirrors that deliver bytes go to `read`.
    pub fn new(
        mirrors: Arc<[Mirror]>,
        shared: Arc<Shared>,
        readers: Vec<(usize, Arc<dyn ReadAt>)>,
        read: Arc<Mutex<Vec<usize>>>,
    ) -> Self {
        let mut identity =
            readers.first().map(|(_, first)| first.identity().clone()).unwrap_or_default();
        identity.id = None;
        // A later run may begin with another mirror, and each server has its own tags.
        let same_tag = readers.iter().all(|(_, reader)| reader.identity().tag == identity.tag);
        if identity.modified.is_some() || !same_tag {
            identity.tag = None;
        }
        let size = identity.size;
        let in_ranges = readers.iter().any(|(_, reader)| reader.is_ranged());
        let readers = readers.into_iter().collect();
        let inner = Inner { mirrors, shared, readers, read, size, in_ranges };
        Self { inner: Arc::new(inner), identity }
    }

    fn stream(&self, range: Range, end: Arc<AtomicU64>) -> BlockStream {
        let inner = Arc::clone(&self.inner);
        let reading = Reading { inner, at: range.start(), range, end, current: None };
        Box::pin(try_unfold(reading, async |mut reading| {
            let block = reading.next().await?;
            Ok(block.map(|block| (block, reading)))
        }))
    }
}

impl Inner {
    /// Mirrors that support ranges; if there are none, those that are read from their start.
    fn usable(&self) -> Vec<usize> {
        let choice = self.shared.choice();
        let left = || self.readers.iter().filter(|(mirror, _)| !choice.is_dropped(**mirror));
        let ranged: Vec<_> =
            left().filter(|(_, reader)| reader.is_ranged()).map(|(mirror, _)| *mirror).collect();
        if ranged.is_empty() { left().map(|(mirror, _)| *mirror).collect() } else { ranged }
    }

    fn has_delivered(&self, mirror: usize) -> bool {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).contains(&mirror)
    }

    fn note_delivered(&self, mirror: usize) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if !read.contains(&mirror) {
            read.push(mirror);
        }
    }

    /// The next block, or an error if the mirror is silent or far slower while another one would deliver.
    async fn unless_stalled(
        &self,
        request: &mut Request,
        blocks: &mut BlockStream,
    ) -> Option<Result<Block>> {
        let mirror = request.mirror;
        loop {
            if let Some(rate) = request.pace.take_rate() {
                let (usable, now) = (self.usable(), self.shared.now());
                let (choice, pace) = (self.shared.choice(), (rate, SPAN));
                if choice.is_outpaced(mirror, &usable, request.left, pace, now) {
                    let cause = format!("it sent {rate:.0} bytes/s; another mirror is far faster");
                    return Some(Err(Error::new(ErrorKind::Unreachable, "read").because(cause)));
                }
            }
            let began = self.shared.now();
            let next = timeout(LOOK, blocks.next()).await;
            request.pace.waited += self.shared.now().saturating_sub(began);
            if let Ok(next) = next {
                return next;
            }
            // The storage may try for a while to reconnect.
            let is_lost = self.mirrors[mirror].storage.link().open == 0;
            let patience = if is_lost { LOST } else { STALLED };
            let (usable, now) = (self.usable(), self.shared.now());
            if self.shared.choice().is_stalled(mirror, &usable, patience, now) {
                let cause = match is_lost {
                    true => "its connections are lost".to_owned(),
                    false => format!("it sent nothing for {} s", STALLED.as_secs()),
                };
                return Some(Err(Error::new(ErrorKind::Unreachable, "read").because(cause)));
            }
        }
    }

    /// A mirror has failed. `Err` if no other one continues the stream, which then ends with this error; the caller may
    /// retry.
    fn failed(&self, mirror: usize, error: Error) -> Result<()> {
        let error = error.at(&self.mirrors[mirror].name);
        let usable = self.usable();
        let is_ranged = |other: &usize| *other != mirror && self.readers[other].is_ranged();
        let is_last_ranged = self.in_ranges && !usable.iter().any(is_ranged);
        let among: Vec<_> = match is_last_ranged {
            true => self.readers.keys().copied().collect(),
            false => usable,
        };
        let now = self.shared.now();
        let failed = self.shared.choice().failed(mirror, may_pass(&error), &among, now);
        if failed == Failed::Dropped {
            self.shared.warn(&self.mirrors[mirror], &error.cause());
        }
        if is_last_ranged {
            // The others have no ranges: if this one is dropped, the file is read anew from its start, in one stream.
            let is_dropped = self.shared.choice().is_dropped(mirror);
            return Err(if is_dropped { error.with_retry(Retry::FromStart) } else { error });
        }
        // Bytes that it delivered before may be of the new version already: the file restarts without it.
        let is_spoilt = error.kind() == ErrorKind::Changed && self.has_delivered(mirror);
        if failed == Failed::Alone || is_spoilt { Err(error) } else { Ok(()) }
    }
}

/// A range that is being read.
struct Reading {
    inner: Arc<Inner>,
    at: u64,
    range: Range,
    /// Bytes beyond are not needed.
    end: Arc<AtomicU64>,
    current: Option<(Request, BlockStream)>,
}

/// A request to a mirror; dropping it releases the bytes that have not arrived.
struct Request {
    inner: Arc<Inner>,
    mirror: usize,
    left: u64,
    pace: Pace,
}

/// How fast a range arrives.
#[derive(Debug, Default)]
struct Pace {
    /// Time spent waiting for it; time to write it does not count.
    waited: Duration,
    /// Bytes that arrived in that time.
    bytes: u64,
}

impl Pace {
    /// Bytes per second, if the wait was long enough; then a new measurement begins.
    fn take_rate(&mut self) -> Option<f64> {
        let is_due = self.waited >= SPAN;
        let Self { waited, bytes } = is_due.then(|| std::mem::take(self))?;
        Some(bytes as f64 / waited.as_secs_f64())
    }
}

impl Reading {
    async fn next(&mut self) -> Result<Option<Block>> {
        loop {
            let end = self.range.end().min(self.end.load(Ordering::Relaxed)).min(self.inner.size);
            if self.at >= end {
                return Ok(None);
            }
            let (request, blocks) = match &mut self.current {
                Some(current) => current,
                None => {
                    let current = self.begin(end)?;
                    self.current.insert(current)
                }
            };
            let error = match self.inner.unless_stalled(request, blocks).await {
                Some(Ok(block)) => {
                    request.arrived(block.len() as u64);
                    self.at += block.len() as u64;
                    return Ok(Some(block));
                }
                Some(Err(error)) => error,
                // The file's length was unknown: this is its end.
                None if self.inner.size == UNKNOWN_SIZE => {
                    self.at = UNKNOWN_SIZE;
                    return Ok(None);
                }
                None => Error::new(ErrorKind::Changed, "read").because(format!(
                    "it ends at byte {} of {} while being read",
                    self.at, self.inner.size
                )),
            };
            let mirror = request.mirror;
            self.current = None;
            self.inner.failed(mirror, error)?;
        }
    }

    /// Begins to read the rest from the mirror that is likely to deliver it first.
    fn begin(&self, end: u64) -> Result<(Request, BlockStream)> {
        let bytes = end - self.at;
        let usable = self.inner.usable();
        let now = self.inner.shared.now();
        let mirror = {
            let mut choice = self.inner.shared.choice();
            // Opening has already read the beginning of the file.
            let first = usable.first().copied();
            let first = first.filter(|first| self.at == 0 && !choice.rests(*first, now));
            let chosen = choice.choose(first.as_slice(), bytes, now);
            let mirror =
                chosen.or_else(|| choice.choose(&usable, bytes, now)).ok_or_else(|| {
                    Error::new(ErrorKind::Unreachable, "read").because("no mirror is left")
                })?;
            choice.requested(mirror, bytes, now);
            mirror
        };
        let request =
            Request { inner: Arc::clone(&self.inner), mirror, left: bytes, pace: Pace::default() };
        let range = Range::between(self.at, self.range.end());
        Ok((request, self.inner.readers[&mirror].read_until(range, &self.end)))
    }
}

impl Request {
    fn arrived(&mut self, bytes: u64) {
        let now = self.inner.shared.now();
        self.inner.shared.choice().arrived(self.mirror, bytes.min(self.left), now);
        self.left = self.left.saturating_sub(bytes);
        self.pace.bytes += bytes;
        self.inner.note_delivered(self.mirror);
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.inner.shared.choice().released(self.mirror, self.left);
    }
}

#[async_trait]
impl ReadAt for MirrorReader {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn is_ranged(&self) -> bool {
        let usable = self.inner.usable();
        usable.iter().any(|mirror| self.inner.readers[mirror].is_ranged())
    }

    async fn metadata(&self) -> Result<Metadata> {
        let modified = self.identity.modified;
        Ok(Metadata { modified, ..Metadata::default() })
    }

    /// Rechecks the mirrors that have delivered bytes and were not dropped. One that fails, or does not respond in time
    /// after the first, is ignored if another one is unchanged: its bytes were checked as they arrived, as far as its
    /// protocol allows.
    async fn recheck(&self) -> Result<Identity> {
        let read = self.inner.read.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let read: Vec<_> = {
            let choice = self.inner.shared.choice();
            read.into_iter().filter(|mirror| !choice.is_dropped(*mirror)).collect()
        };
        let requests = read.iter().map(|mirror| self.inner.readers[mirror].recheck()).collect();
        let (mut confirmed, mut first) = (false, None);
        for (mirror, now) in read.iter().zip(within_grace(requests).await) {
            let known = self.inner.readers[mirror].identity();
            let name = &self.inner.mirrors[*mirror].name;
            match now {
                Ok(now) if now == *known => confirmed = true,
                Ok(now) => {
                    return Err(Error::new(ErrorKind::Changed, "copy")
                        .at(name)
                        .because(format!("it changed while being read: {known} became {now}")));
                }
                Err(Some(error)) => _ = first.get_or_insert(error.at(name)),
                Err(None) => {}
            }
        }
        match first {
            Some(error) if !confirmed => Err(error),
            _ => Ok(self.identity.clone()),
        }
    }

    async fn grown(&self) -> Result<Option<Arc<dyn ReadAt>>> {
        // Other mirrors have the version that was opened.
        Ok(None)
    }

    fn read_at(&self, range: Range) -> BlockStream {
        self.stream(range, Arc::new(AtomicU64::new(u64::MAX)))
    }

    fn read_until(&self, range: Range, end: &Arc<AtomicU64>) -> BlockStream {
        self.stream(range, Arc::clone(end))
    }

    async fn next_data(&self, from: u64) -> Result<Option<Range>> {
        Ok((from < self.inner.size).then(|| Range::between(from, self.inner.size)))
    }
}
