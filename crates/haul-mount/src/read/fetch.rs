//! Fetches blocks of one version of a file: which are in flight, which tasks wait for them, and the requests.

use std::collections::HashMap;
use std::ops::Range as Indices;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use haul_engine::budget::{Permit, Priority};
use haul_storage::{
    BlockStream, Error, ErrorKind, Identity, Range, ReadAt, RelPath, Result, Retry,
};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, timeout};

use super::blocks::{BLOCK, Key, STEP};
use super::context::Context;
use super::disk::Disk;
use super::spread::spread;
use crate::lock::lock;

/// The pause before a request is repeated; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The pause between two requests that confirm a version for the cache on disk.
const CONFIRM_PAUSE: Duration = Duration::from_millis(100);

/// Longest range that is spread over the lanes.
const MOST_SPREAD: u64 = 2 * STEP;

/// A task that waits for a block.
#[derive(Debug)]
struct Waiter {
    /// Bytes that it needs from the start of the block. It gets them as soon as they have arrived.
    needed: u64,
    sender: oneshot::Sender<Result<Bytes>>,
}

/// A version of a file, and the blocks of it that are in flight.
#[derive(Debug)]
pub(super) struct Version {
    pub(super) context: Arc<Context>,
    path: RelPath,
    identity: Identity,
    number: u64,
    reader: Mutex<Arc<dyn ReadAt>>,
    /// The waiting tasks of each block in flight. A completed block is in memory before it is removed here.
    flights: Mutex<HashMap<u64, Vec<Waiter>>>,
    /// Notified when a process begins to wait for a block in flight.
    joined: Notify,
    /// Its blocks in the cache on disk.
    disk: Option<Disk>,
}

/// A block that a process reads.
#[derive(Debug)]
pub(super) enum Piece {
    /// It is in memory.
    Cached(Bytes),
    /// It is in flight.
    InFlight(oneshot::Receiver<Result<Bytes>>),
}

impl Version {
    /// The version with this number that `reader` has opened.
    pub(super) fn new(
        context: &Arc<Context>,
        path: RelPath,
        reader: Arc<dyn ReadAt>,
        number: u64,
    ) -> Arc<Self> {
        let identity = reader.identity().clone();
        let location = (context.storage.location(), &*context.identity);
        let cache = context.cache.as_ref();
        let disk = cache.and_then(|cache| Disk::new(cache, location, &path, &identity));
        Arc::new(Self {
            context: Arc::clone(context),
            path,
            identity,
            number,
            reader: Mutex::new(reader),
            flights: Mutex::default(),
            joined: Notify::new(),
            disk,
        })
    }

    /// The path of the file.
    pub(super) const fn path(&self) -> &RelPath {
        &self.path
    }

    /// The number of the version.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// What distinguishes it from other versions.
    pub(super) const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Length in bytes.
    pub(super) const fn size(&self) -> u64 {
        self.identity.size
    }

    /// A block, if it is in memory.
    pub(super) fn held(&self, index: u64) -> Option<Bytes> {
        self.context.blocks().take(self.key(index))
    }

    /// Blocks of a range for a process that waits, and the numbers of those that are neither in memory nor in flight.
    /// The caller has to fetch these. The last piece may be cut at the end of the range.
    pub(super) fn want(&self, range: Range, indices: Indices<u64>) -> (Vec<Piece>, Vec<u64>) {
        let mut flights = lock(&self.flights);
        let (mut missing, mut has_joined) = (Vec::new(), false);
        let want = |index| {
            if let Some(bytes) = self.held(index) {
                return Piece::Cached(bytes);
            }
            let (sender, receiver) = oneshot::channel();
            let waiters = flights.entry(index).or_insert_with(|| {
                missing.push(index);
                Vec::new()
            });
            waiters.push(Waiter { needed: range.end().saturating_sub(index * BLOCK), sender });
            has_joined = true;
            Piece::InFlight(receiver)
        };
        let pieces = indices.map(want).collect();
        drop(flights);
        if has_joined {
            self.joined.notify_waiters();
        }
        (pieces, missing)
    }

    /// The numbers of the first blocks, at most `most`, that are neither in memory nor in flight. The caller has to
    /// fetch them. Empty if there are fewer than `least`.
    pub(super) fn claim(&self, indices: Indices<u64>, least: u64, most: u64) -> Vec<u64> {
        let mut flights = lock(&self.flights);
        let mut missing: Vec<u64> = {
            let blocks = self.context.blocks();
            let is_missing =
                |index: &u64| !flights.contains_key(index) && !blocks.contains(self.key(*index));
            indices.filter(is_missing).collect()
        };
        missing.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        if (missing.len() as u64) < least.max(1) {
            return Vec::new();
        }
        flights.extend(missing.iter().map(|index| (*index, Vec::new())));
        missing
    }

    /// No process reads it any more.
    pub(super) fn settle(&self) {
        self.context.blocks().settle(self.number);
    }

    const fn key(&self, index: u64) -> Key {
        Key { version: self.number, index }
    }

    /// The open file that it is read from.
    pub(super) fn reader(&self) -> Arc<dyn ReadAt> {
        Arc::clone(&lock(&self.reader))
    }

    /// Passes an arrived block to the cache on disk, which stores it once the version is confirmed.
    fn cache_on_disk(self: &Arc<Self>, index: u64, bytes: &Bytes) {
        let Some(disk) = &self.disk else { return };
        let length = self.size().saturating_sub(index * BLOCK).min(BLOCK);
        // A shorter one belongs to a file that has changed.
        if bytes.len() as u64 == length && disk.add_unconfirmed(index, bytes) {
            tokio::spawn(Arc::clone(self).confirm());
        }
    }

    /// Confirms the version, again and again until no blocks wait for that.
    async fn confirm(self: Arc<Self>) {
        let Some(disk) = &self.disk else { return };
        while let Some(blocks) = disk.unconfirmed() {
            let reader = self.reader();
            match timeout(self.context.timeout, reader.recheck()).await {
                Ok(Ok(identity)) if identity == self.identity => disk.store(blocks),
                Ok(Ok(_)) => disk.end(),
                // These blocks are not stored. A later request may succeed.
                Ok(Err(_)) | Err(_) => drop(blocks),
            }
            sleep(CONFIRM_PAUSE).await;
        }
    }

    /// The first of these blocks that is in the cache on disk, or their end.
    fn first_cached(&self, indices: Indices<u64>) -> u64 {
        let end = indices.end;
        self.disk.as_ref().map_or(end, |disk| disk.first_cached(indices))
    }

    /// Opens the file again, if it is still the same version.
    async fn reopen(&self) -> Result<()> {
        let reader = self.context.storage.open(&self.path).await?;
        if *reader.identity() != self.identity {
            return Err(Error::new(ErrorKind::Changed, "read")
                .at(self.context.storage.location().display(&self.path))
                .with_retry(Retry::Never));
        }
        *lock(&self.reader) = reader;
        Ok(())
    }
}

/// Consecutive blocks that are fetched together. Dropping it abandons those that have not arrived.
#[derive(Debug)]
pub(super) struct Flight {
    version: Arc<Version>,
    next: u64,
    end: u64,
    is_ahead: bool,
    /// Whether it may be spread over the lanes: a process waits for it, or will soon.
    is_urgent: bool,
    /// Whether a process got the start of the next block already.
    is_used: bool,
    /// Whether a request has failed.
    is_retry: bool,
}

impl Flight {
    /// Will fetch blocks that the caller has claimed, and for which a process waits.
    pub(super) fn new(version: &Arc<Version>, indices: &Indices<u64>) -> Self {
        let (version, Indices { start: next, end }) = (Arc::clone(version), indices.clone());
        let (is_ahead, is_urgent, is_used, is_retry) = (false, true, false, false);
        Self { version, next, end, is_ahead, is_urgent, is_used, is_retry }
    }

    /// Will fetch blocks that the caller has claimed, ahead of a process. `is_urgent` if it has read little so far.
    pub(super) fn ahead(version: &Arc<Version>, indices: &Indices<u64>, is_urgent: bool) -> Self {
        version.context.blocks().begin_ahead((indices.end - indices.start) * BLOCK);
        let mut flight = Self::new(version, indices);
        (flight.is_ahead, flight.is_urgent) = (true, is_urgent);
        flight
    }

    /// Fetches the blocks, with retries until there was no progress for the timeout.
    pub(super) async fn run(mut self) {
        let mut progress = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let before = self.next;
            self.take_cached().await;
            if self.next >= self.end {
                return;
            }
            let outcome = self.attempt().await;
            if self.next > before {
                (progress, pause) = (Instant::now(), FIRST_PAUSE);
            }
            let Err(error) = outcome else { continue };
            self.is_retry = true;
            let is_late = progress.elapsed() + pause > self.version.context.timeout;
            if error.retry() == Retry::Never || is_late {
                return self.fail(&error);
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            if error.retry() == Retry::FromStart
                && let Err(error) = self.version.reopen().await
                && error.retry() == Retry::Never
            {
                return self.fail(&error);
            }
        }
    }

    /// Takes the next blocks from the cache on disk, up to the first that is not cached.
    async fn take_cached(&mut self) {
        let Some(disk) = &self.version.disk else { return };
        let blocks = disk.read(self.next..self.end).await;
        self.version.context.counters.disk.add(blocks.len() as u64);
        for bytes in &blocks {
            self.deliver(bytes);
        }
    }

    /// Requests once the blocks up to the next one in the cache on disk. If it succeeds, all of them have arrived.
    async fn attempt(&mut self) -> Result<()> {
        let context = Arc::clone(&self.version.context);
        // The first one is requested in any case: it was not cached, or could not be read.
        let until = self.version.first_cached(self.next + 1..self.end);
        let end = until.saturating_mul(BLOCK).min(self.version.size());
        let range = Range::between(self.next * BLOCK, end);
        let share = &context.share;
        let mut permit = self.permit(&context, range.len()).await;
        context.requested();
        let (issued, mut first_byte, mut arrived) = (share.now(), None, 0);
        let mut arriving = self.arriving(range);
        let mut block: Vec<u8> = Vec::new();
        while let Some(bytes) = self.within(&context, arriving.next()).await? {
            first_byte.get_or_insert_with(|| share.now());
            permit.arrived(bytes.len() as u64);
            arrived += bytes.len() as u64;
            context.counters.fetched.add(bytes.len() as u64);
            for piece in bytes.pieces() {
                let mut piece = &piece[..];
                while !piece.is_empty() {
                    let room = BLOCK as usize - block.len();
                    let (head, rest) = piece.split_at(room.min(piece.len()));
                    if block.is_empty() {
                        let left = range.end().saturating_sub(self.next * BLOCK).min(BLOCK);
                        block.reserve_exact(left as usize);
                    }
                    block.extend_from_slice(head);
                    piece = rest;
                    if block.len() as u64 == BLOCK {
                        permit.split(BLOCK).consumed();
                        self.fetched(&Bytes::from(std::mem::take(&mut block)));
                    }
                }
                if !block.is_empty() {
                    self.serve(&block);
                }
            }
        }
        share.completed(issued, first_byte, arrived);
        // The last block of a file is shorter. Blocks after it are empty, also if the file has become shorter.
        if self.next < until {
            self.fetched(&Bytes::from(block));
        }
        while self.next < until {
            self.deliver(&Bytes::new());
        }
        permit.consumed();
        Ok(())
    }

    /// Requests a range. If a process waits for it, or will soon, it is spread over the lanes of a long path, except at
    /// the start of the file, which usually comes along with the open.
    fn arriving(&self, range: Range) -> BlockStream {
        let reader = self.version.reader();
        let is_spread = self.is_urgent
            && !self.is_retry
            && range.start() > 0
            && range.len() <= MOST_SPREAD
            // A server may have refused ranges meanwhile: then each part would begin at the start of the file.
            && reader.is_ranged();
        match is_spread {
            true => spread(&*reader, range, self.version.context.part(range.len())),
            false => reader.read_at(range),
        }
    }

    /// Waits for room in the window. Read-ahead has a lower priority, until a process waits for one of its blocks.
    async fn permit(&self, context: &Context, bytes: u64) -> Permit {
        if self.is_ahead {
            tokio::select! {
                biased;
                permit = context.share.acquire(Priority::ReadAhead, bytes) => return permit,
                () = self.wanted() => {}
            }
        }
        context.share.acquire(Priority::Interactive, bytes).await
    }

    /// Waits until a process waits for any of the blocks.
    async fn wanted(&self) {
        loop {
            let mut joined = pin!(self.version.joined.notified());
            // From here on, no notification is missed.
            joined.as_mut().enable();
            if self.has_waiters() {
                return;
            }
            joined.await;
        }
    }

    fn has_waiters(&self) -> bool {
        let flights = lock(&self.version.flights);
        let is_open = |waiter: &Waiter| !waiter.sender.is_closed();
        (self.next..self.end)
            .any(|index| flights.get(&index).is_some_and(|waiters| waiters.iter().any(is_open)))
    }

    /// Waits for the next bytes, at most for the timeout.
    async fn within<T>(
        &self,
        context: &Context,
        next: impl Future<Output = Option<Result<T>>>,
    ) -> Result<Option<T>> {
        let outcome = match timeout(context.timeout, next).await {
            Ok(outcome) => outcome.transpose(),
            Err(_) => Err(Error::new(ErrorKind::Unreachable, "read")
                .at(context.storage.location().display(&self.version.path))
                .because("no bytes arrive")),
        };
        outcome.inspect_err(|error| context.share.failed(error.kind()))
    }

    /// Completes the next block, which the storage has sent.
    fn fetched(&mut self, bytes: &Bytes) {
        if self.next < self.end {
            self.version.cache_on_disk(self.next, bytes);
        }
        self.deliver(bytes);
    }

    /// Serves the waiters that need only the first bytes of the next block, once these have arrived: over a new
    /// connection, the rest takes some RTTs more.
    fn serve(&mut self, arrived: &[u8]) {
        let mut flights = lock(&self.version.flights);
        let Some(waiters) = flights.get_mut(&self.next) else { return };
        let is_served = |waiter: &mut Waiter| waiter.needed <= arrived.len() as u64;
        let served: Vec<Waiter> = waiters.extract_if(.., is_served).collect();
        drop(flights);
        self.is_used |= !served.is_empty();
        for Waiter { needed, sender } in served {
            let needed = usize::try_from(needed).unwrap_or(usize::MAX).min(arrived.len());
            // The process may no longer wait.
            drop(sender.send(Ok(Bytes::copy_from_slice(&arrived[..needed]))));
        }
    }

    /// Completes the next block.
    fn deliver(&mut self, bytes: &Bytes) {
        if self.next >= self.end {
            return;
        }
        let key = self.version.key(self.next);
        let has_waiters = |waiters: &Vec<Waiter>| !waiters.is_empty();
        let is_wanted = std::mem::take(&mut self.is_used)
            || lock(&self.version.flights).get(&self.next).is_some_and(has_waiters);
        {
            let mut blocks = self.version.context.blocks();
            if self.is_ahead {
                blocks.end_ahead(BLOCK);
            }
            if !bytes.is_empty() {
                blocks.insert(key, bytes.clone(), self.is_ahead && !is_wanted);
            }
        }
        let waiters = lock(&self.version.flights).remove(&self.next).unwrap_or_default();
        self.next += 1;
        for waiter in waiters {
            // The process may no longer wait.
            drop(waiter.sender.send(Ok(bytes.clone())));
        }
    }

    /// Reports an error to all waiters.
    fn fail(&mut self, error: &Error) {
        for waiter in self.abandon() {
            drop(waiter.sender.send(Err(error.again())));
        }
    }

    /// Abandons the missing blocks. Returns their waiters.
    fn abandon(&mut self) -> Vec<Waiter> {
        let missing = self.next..self.end;
        self.next = self.end;
        if self.is_ahead {
            self.version.context.blocks().end_ahead((missing.end - missing.start) * BLOCK);
        }
        let mut flights = lock(&self.version.flights);
        missing.flat_map(|index| flights.remove(&index).unwrap_or_default()).collect()
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        // Waiters see that their channels are closed.
        drop(self.abandon());
    }
}
