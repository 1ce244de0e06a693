//! A session: what a client has open, and its lanes. It outlives its lanes for a while, so that a client whose
//! connections were lost continues where it stopped.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use futures_util::future::AbortHandle;
use haul_storage::{Error, ErrorKind, Metadata, ReadAt, RelPath, Result, Storage};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep};

use super::activity::Activity;
use super::fan::{Fan, SessionId, Source};
use super::grant::Grant;
use super::lanes::{After, Lanes, Refused};
use super::limits;
use super::outcomes::{Begin, Opened, Outcomes};
use super::upload::{Upload, no_handle};
use crate::outbox::Outbox;
use crate::tls::ProofKey;
use crate::wire::LISTED_AHEAD;
use crate::wire::messages;

/// Ends the other sessions that have a part file open and no lanes. Returns whether there were any.
type EndOthers = Box<dyn Fn(&RelPath) -> bool + Send + Sync>;

/// What a client has open, and its lanes.
pub(super) struct Session {
    pub(super) id: SessionId,
    /// The key that further lanes must prove to have.
    pub(super) key: ProofKey,
    pub(super) storage: Arc<dyn Storage>,
    /// The same storage, whose pieces it shares with other sessions.
    pub(super) fan: Arc<Fan>,
    pub(super) rights: Rights,
    pub(super) outbox: Outbox,
    pub(super) activity: Arc<Activity>,
    pub(super) budgets: Budgets,
    handles: Mutex<Handles>,
    outcomes: Mutex<Outcomes>,
    /// Notified when a request that opens a file has ended.
    opened: Notify,
    /// Requests that can be cancelled.
    running: Mutex<HashMap<u32, AbortHandle>>,
    /// Requests that are reads: they are cancelled with the last lane.
    reads: Mutex<HashSet<u32>>,
    /// The lane of each listing, and how many messages may be sent.
    listings: Mutex<HashMap<u32, (u64, Arc<Semaphore>)>>,
    lanes: Mutex<Lanes>,
    end_others: OnceLock<EndOthers>,
}

/// What the client may do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rights {
    pub(super) writable: bool,
    /// Whether the client may set owners, set-ID bits and capabilities.
    pub(super) owners: bool,
    /// When the session ends.
    pub(super) expires: Option<SystemTime>,
}

/// What the client can make the server hold in memory.
#[derive(Debug)]
pub(super) struct Budgets {
    /// Bytes received and not yet written.
    pub(super) received: Arc<Semaphore>,
    /// Bytes of long messages that are not yet sent.
    pub(super) long_messages: Arc<Semaphore>,
    /// Reads in progress: each holds a block of a file.
    pub(super) reading: Semaphore,
    /// Requests whose last response is not yet sent.
    pub(super) pending: Arc<Semaphore>,
}

impl Budgets {
    fn new() -> Self {
        Self {
            received: Arc::new(Semaphore::new(limits::RECEIVED)),
            long_messages: Arc::new(Semaphore::new(limits::LONG_MESSAGES)),
            reading: Semaphore::new(limits::READS),
            pending: Arc::new(Semaphore::new(limits::REQUESTS)),
        }
    }
}

#[derive(Default)]
struct Handles {
    next: u32,
    open: HashMap<u32, Handle>,
    /// The paths of open files.
    names: HashMap<u32, Arc<RelPath>>,
    /// The files that were committed last. A client whose response was lost commits them again.
    committed: VecDeque<u32>,
}

/// An open file.
#[derive(Clone)]
pub(super) enum Handle {
    Reader(Source),
    Writer(Arc<Upload>),
}

impl Session {
    pub(super) fn new(id: SessionId, key: ProofKey, fan: Arc<Fan>, grant: &Grant) -> Arc<Self> {
        Arc::new(Self {
            id,
            key,
            storage: Arc::clone(fan.storage()),
            fan,
            rights: Rights {
                writable: grant.writable,
                owners: grant.owners,
                expires: grant.expires,
            },
            outbox: Outbox::new(limits::OUTBOX),
            activity: Activity::new(),
            budgets: Budgets::new(),
            handles: Mutex::default(),
            outcomes: Mutex::default(),
            opened: Notify::new(),
            running: Mutex::default(),
            reads: Mutex::default(),
            listings: Mutex::default(),
            lanes: Mutex::default(),
            end_others: OnceLock::new(),
        })
    }

    /// Sets how to end other sessions, see [`Session::end_others`].
    pub(super) fn set_end_others(&self, end: impl Fn(&RelPath) -> bool + Send + Sync + 'static) {
        // It is set once, when the session is opened.
        drop(self.end_others.set(Box::new(end)));
    }

    /// Ends the other sessions that have the part file of `path` open and no lanes: their client was killed, and this
    /// one may be its next run. Returns whether there were any.
    pub(super) fn end_others(&self, path: &RelPath) -> bool {
        self.end_others.get().is_some_and(|end| end(path))
    }

    /// Whether it has the part file of `path` open.
    pub(super) fn writes(&self, path: &RelPath) -> bool {
        let is_its = |handle: &Handle| match handle {
            Handle::Writer(upload) => upload.path == *path,
            Handle::Reader(_) => false,
        };
        lock(&self.handles).open.values().any(is_its)
    }

    /// Whether its ticket has expired.
    pub(super) fn is_expired(&self) -> bool {
        self.rights.expires.is_some_and(|expires| expires <= SystemTime::now())
    }

    /// Waits until its ticket expires, by the clock of this machine. Checks that every [`limits::CLOCK`]: the clock may
    /// be set, and timers stand still while the machine is suspended.
    pub(super) async fn expired(&self) {
        let Some(expires) = self.rights.expires else { return pending().await };
        while let Ok(rest) = expires.duration_since(SystemTime::now()) {
            if rest.is_zero() {
                return;
            }
            sleep(rest.min(limits::CLOCK)).await;
        }
    }

    /// The part of `metadata` that the client may set.
    pub(super) fn permitted(&self, metadata: Metadata) -> Metadata {
        match self.rights.owners {
            true => metadata,
            false => Metadata { owner: None, ..metadata }.without_privileges(),
        }
    }

    /// Adds a lane, whose Hello had this nonce.
    pub(super) fn add_lane(
        &self,
        messages: UnboundedSender<Bytes>,
        nonce: Bytes,
    ) -> Result<u64, Refused> {
        lock(&self.lanes).join(messages, nonce)
    }

    /// Closes a lane that the client has lost, but that may still seem open here: the client repeats its reads, and
    /// pieces that this lane takes would not arrive. `on` is the lane of the message.
    pub(super) fn lose_lane(&self, nonce: &Bytes, on: u64) {
        let lost = lock(&self.lanes).find(nonce).filter(|lost| *lost != on);
        if let Some(lost) = lost {
            self.remove_lane(lost);
        }
    }

    /// The length of the next piece of a read of `length` bytes.
    pub(super) fn piece(&self, length: u64) -> u64 {
        self.outbox.piece(lock(&self.lanes).count(), length)
    }

    /// Removes a lane: what is queued on it is still sent, but nothing else.
    pub(super) fn remove_lane(&self, number: u64) {
        let is_last = lock(&self.lanes).remove(number);
        for (_, permits) in lock(&self.listings).values().filter(|(lane, _)| *lane == number) {
            permits.close();
        }
        if is_last {
            // The client abandons its reads when it loses a lane, and repeats them. Its other requests continue.
            let reads = std::mem::take(&mut *lock(&self.reads));
            reads.into_iter().for_each(|id| self.cancel(id));
            self.outbox.clear();
        }
    }

    /// Decides what becomes of the session after a lane was removed.
    pub(super) fn after_lane(&self, is_lost: bool) -> After {
        lock(&self.lanes).after(is_lost)
    }

    /// Ends the session if it has no lane, and none has joined beyond the first `joined`.
    pub(super) fn end_if_idle(&self, joined: u64) -> bool {
        lock(&self.lanes).end_if_idle(joined)
    }

    /// Whether no lane can join any more.
    pub(super) fn has_ended(&self) -> bool {
        lock(&self.lanes).has_ended()
    }

    /// When its last lane ended; `None` if it has one, or none has joined yet.
    pub(super) fn without_lanes_since(&self) -> Option<Instant> {
        lock(&self.lanes).without_lanes_since()
    }

    /// Ends the session if all its lanes have ended: no lane can join any more. Returns whether they have.
    pub(super) fn end_if_without_lanes(&self) -> bool {
        lock(&self.lanes).end_if_without_lanes()
    }

    pub(super) fn has_lane(&self, number: u64) -> bool {
        lock(&self.lanes).is_open(number)
    }

    /// Notes that a request is a read.
    pub(super) fn begin_read(&self, id: u32) {
        lock(&self.reads).insert(id);
    }

    /// Sends a message on a lane, or if it may, on another one: see [`Lanes::send`].
    pub(super) fn send(&self, lane: u64, message: &Bytes, falls_back: bool) {
        lock(&self.lanes).send(lane, message, falls_back);
    }

    /// Assigns a number to an open file.
    pub(super) fn add(&self, handle: Handle) -> Result<u32> {
        let mut handles = lock(&self.handles);
        if handles.open.len() >= limits::HANDLES {
            return Err(Error::new(ErrorKind::Busy, "open").because("too many files are open"));
        }
        while handles.open.contains_key(&handles.next) {
            handles.next = handles.next.wrapping_add(1);
        }
        let number = handles.next;
        handles.next = number.wrapping_add(1);
        handles.open.insert(number, handle);
        Ok(number)
    }

    /// Records the path of an open file, unless the client has closed it already: it can guess the number.
    pub(super) fn name(&self, number: u32, path: RelPath) {
        let mut handles = lock(&self.handles);
        if handles.open.contains_key(&number) {
            handles.names.insert(number, Arc::new(path));
        }
    }

    /// Records that data of an open file was requested or received.
    pub(super) fn transfers(&self, number: u32) {
        let name = lock(&self.handles).names.get(&number).cloned();
        name.iter().for_each(|name| self.activity.set_file(name));
    }

    /// Removes an open file.
    pub(super) fn close(&self, number: u32) -> Option<Handle> {
        let mut handles = lock(&self.handles);
        handles.names.remove(&number);
        handles.open.remove(&number)
    }

    /// Closes a file that was committed.
    pub(super) fn close_committed(&self, number: u32) {
        let mut handles = lock(&self.handles);
        handles.open.remove(&number);
        handles.names.remove(&number);
        if handles.committed.len() >= limits::HANDLES {
            handles.committed.pop_front();
        }
        handles.committed.push_back(number);
    }

    pub(super) fn is_committed(&self, number: u32) -> bool {
        lock(&self.handles).committed.contains(&number)
    }

    pub(super) fn reader(&self, number: u32) -> Result<Arc<dyn ReadAt>> {
        self.source(number).map(|source| source.file)
    }

    pub(super) fn source(&self, number: u32) -> Result<Source> {
        match lock(&self.handles).open.get(&number) {
            Some(Handle::Reader(source)) => Ok(source.clone()),
            _ => Err(no_handle()),
        }
    }

    pub(super) fn writer(&self, number: u32) -> Result<Arc<Upload>> {
        match lock(&self.handles).open.get(&number) {
            Some(Handle::Writer(writer)) => Ok(Arc::clone(writer)),
            _ => Err(no_handle()),
        }
    }

    /// Notes a request, which is about to run until [`Session::end`]. Returns false if one with that number runs.
    pub(super) fn begin(&self, id: u32, task: AbortHandle) -> bool {
        match lock(&self.running).entry(id) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(task);
                true
            }
        }
    }

    /// Notes that the task of a request has ended, or was cancelled.
    pub(super) fn end(&self, id: u32) {
        lock(&self.running).remove(&id);
        lock(&self.reads).remove(&id);
        lock(&self.outcomes).drop_running(id);
        self.opened.notify_waiters();
    }

    /// Decides what to do with a request that must not be executed twice.
    pub(super) fn begin_once(&self, id: u32, lane: u64, again: bool) -> Begin {
        lock(&self.outcomes).begin(id, lane, again)
    }

    /// Stores the outcome of such a request. Returns the lane for the response; `None` if the client has cancelled the
    /// request: then a file that it has opened is closed.
    pub(super) fn finish_once(
        &self,
        id: u32,
        response: &Bytes,
        opened: Option<u32>,
    ) -> Option<u64> {
        let lane = lock(&self.outcomes).finish(id, response, opened);
        self.opened.notify_waiters();
        if let (None, Some(handle)) = (lane, opened) {
            drop(self.close(handle));
        }
        lane
    }

    /// The file that a request has opened. Waits while the request runs.
    pub(super) async fn opened_by(&self, id: u32) -> Result<u32> {
        loop {
            let mut ended = std::pin::pin!(self.opened.notified());
            // From here on no notification is missed.
            ended.as_mut().enable();
            match lock(&self.outcomes).opened(id) {
                Opened::Running => {}
                Opened::File(handle) => return Ok(handle),
                Opened::Nothing => return Err(no_handle()),
            }
            ended.await;
        }
    }

    /// Forgets outcomes that the client has received.
    pub(super) fn confirmed(&self, confirmed: &messages::Answered) {
        let mut outcomes = lock(&self.outcomes);
        confirmed.ids.iter().for_each(|id| outcomes.confirmed(*id, false));
        confirmed.repeated.iter().for_each(|id| outcomes.confirmed(*id, true));
    }

    /// Cancels a request that must not be executed twice, and closes the file that it has opened.
    pub(super) fn cancel_once(&self, id: u32) {
        let opened = lock(&self.outcomes).cancel(id);
        self.cancel(id);
        if let Some(handle) = opened {
            drop(self.close(handle));
        }
    }

    /// Begins a listing. Returns a semaphore with a permit for each message that may be sent, closed with the lane.
    pub(super) fn begin_listing(&self, id: u32, lane: u64) -> Arc<Semaphore> {
        let permits = Arc::new(Semaphore::new(LISTED_AHEAD as usize));
        lock(&self.listings).insert(id, (lane, Arc::clone(&permits)));
        if !self.has_lane(lane) {
            permits.close();
        }
        permits
    }

    pub(super) fn end_listing(&self, id: u32) {
        lock(&self.listings).remove(&id);
    }

    /// Permits further messages of a listing.
    pub(super) fn permit(&self, id: u32, messages: u32) {
        if let Some((_, permits)) = lock(&self.listings).get(&id)
            && permits.available_permits() < limits::LISTED as usize
        {
            permits.add_permits(messages.min(limits::LISTED) as usize);
        }
    }

    /// Cancels a request.
    pub(super) fn cancel(&self, id: u32) {
        // Dropping the request's future calls [`Session::end`].
        let task = lock(&self.running).get(&id).cloned();
        task.iter().for_each(AbortHandle::abort);
        self.end_listing(id);
        self.outbox.cancel(id);
    }

    /// Ends the session and all its requests. Part files with data remain, as after a lost connection. Returns whether
    /// the session had not ended before.
    pub(super) fn close_all(&self) -> bool {
        let tasks: Vec<_> = lock(&self.running).values().cloned().collect();
        tasks.iter().for_each(AbortHandle::abort);
        self.outbox.close();
        *lock(&self.outcomes) = Outcomes::default();
        let open = {
            let mut handles = lock(&self.handles);
            handles.names.clear();
            std::mem::take(&mut handles.open)
        };
        for handle in open.into_values() {
            if let Handle::Writer(upload) = handle {
                tokio::spawn(async move { upload.remove_if_empty().await });
            }
        }
        lock(&self.lanes).end()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("writable", &self.rights.writable).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::future::Abortable;
    use haul_storage::memory::{MemoryStorage, Operation};
    use tokio::time::{sleep, timeout};

    use super::super::requests::{Reply, Running, execute};
    use super::*;
    use crate::ticket::Secret;
    use crate::wire::messages::to_server;

    fn writable() -> Grant {
        Grant { writable: true, ..Grant::new(Secret::generate().unwrap()) }
    }

    /// Formerly, a cancelled read stayed in one of `running` and `reads`, and one that had ended early in the other.
    #[tokio::test]
    async fn cancelled_reads_leave_nothing_behind() {
        let memory = MemoryStorage::new();
        memory.add_file("file", "content");
        memory.faults().on(Operation::Read).stall();
        let file = memory.open(&RelPath::parse("file").unwrap()).await.unwrap();
        let key = ProofKey::from_token(&[1; 32]).unwrap();
        let session = Session::new([1; 16], key, Fan::new(memory), &writable());
        let handle = session.add(Handle::Reader(Source::of_one(file))).unwrap();
        for runs in [false, true] {
            let counted = Arc::clone(&session.budgets.pending).acquire_owned().await.unwrap();
            let counted = Arc::new(counted);
            let reply = Reply { session: Arc::clone(&session), lane: 0, id: 5, counted };
            let (task, registration) = AbortHandle::new_pair();
            assert!(session.begin(5, task.clone()));
            assert!(!session.begin(5, task));
            let read = messages::Read { handle, length: 7, ..messages::Read::default() };
            let read = execute(Running(reply), to_server::Body::Read(read));
            let read = tokio::spawn(Abortable::new(read, registration));
            if runs {
                while lock(&session.reads).is_empty() {
                    sleep(Duration::from_millis(1)).await;
                }
            }
            session.cancel(5);
            timeout(Duration::from_secs(60), read).await.unwrap().unwrap().unwrap_err();
            assert!(lock(&session.running).is_empty() && lock(&session.reads).is_empty());
            assert_eq!(session.budgets.pending.available_permits(), limits::REQUESTS);
            assert_eq!(session.budgets.reading.available_permits(), limits::READS);
        }
    }

    /// Formerly, the name of a file that was closed between `add` and `name` was stored until the session ended.
    #[tokio::test]
    async fn a_closed_file_has_no_name() {
        let memory = MemoryStorage::new();
        memory.add_file("file", "content");
        let at = RelPath::parse("file").unwrap();
        let file = memory.open(&at).await.unwrap();
        let key = ProofKey::from_token(&[1; 32]).unwrap();
        let session = Session::new([1; 16], key, Fan::new(memory), &writable());
        for closes in [true, false] {
            let handle = session.add(Handle::Reader(Source::of_one(Arc::clone(&file)))).unwrap();
            if closes {
                assert!(session.close(handle).is_some());
            }
            session.name(handle, at.clone());
            assert_eq!(lock(&session.handles).names.len(), usize::from(!closes));
        }
    }

    #[tokio::test]
    async fn a_file_that_a_cancelled_request_has_opened_is_closed() {
        let memory = MemoryStorage::new();
        memory.add_file("file", "content");
        let file = memory.open(&RelPath::parse("file").unwrap()).await.unwrap();
        let key = ProofKey::from_token(&[1; 32]).unwrap();
        let session = Session::new([1; 16], key, Fan::new(memory), &writable());
        let response = Bytes::from_static(b"opened");
        // The request is cancelled before and after its outcome is stored.
        for is_open in [false, true] {
            let id = u32::from(is_open) + 1;
            assert_eq!(session.begin_once(id, 0, false), Begin::Execute);
            let handle = session.add(Handle::Reader(Source::of_one(Arc::clone(&file)))).unwrap();
            if is_open {
                assert_eq!(session.finish_once(id, &response, Some(handle)), Some(0));
                session.cancel_once(id);
            } else {
                session.cancel_once(id);
                assert_eq!(session.finish_once(id, &response, Some(handle)), None);
            }
            assert!(session.reader(handle).is_err());
        }
    }
}
