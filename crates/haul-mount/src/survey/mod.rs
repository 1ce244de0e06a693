//! Listings ahead of programs, over a long network path.
//!
//! A LOOKUP is for one name. Along with its request, the directory of the name is listed: the first response counts,
//! and the next lookups need no request. Directories in a directory that a program looks at are listed ahead, so that a
//! program that walks a tree (`find`, `git status`) waits for few of them, and not once per name.
//!
//! ```text
//! LOOKUP, READDIR ─► Survey ─► Plan (what to list) ─► Storage::list ─┬─► AttributeCache
//!                      ▲         │                                   │
//!                      └ waits ──┴── Listings (complete ones) ◄──────┘
//! ```
//!
//! A complete listing serves a program that reads the directory, and shows which names are missing, for as long as
//! attributes may be used. Nothing is listed ahead if a listing may leave names out, if attributes may not be cached,
//! on a disk, or over a short network path.

mod held;
mod plan;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt as _;
use haul_storage::{Entry, Medium, RelPath, Storage};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

use crate::attributes::AttributeCache;
use crate::directory::is_usable;
use crate::lock::lock;
use held::{Entries, MOST_BYTES, MOST_ENTRIES, weight};
use plan::{Known, Listed, Plan};

/// Shortest RTT of a long network path. On a shorter one, a program hardly waits, and its own requests are the best
/// guide.
const LONG: Duration = Duration::from_millis(5);

/// Waits for the end of a listing: its sender is dropped then.
type Ended = watch::Receiver<()>;

/// The listings ahead of one mount.
#[derive(Debug)]
pub(crate) struct Survey(Option<Arc<Surveyor>>);

#[derive(Debug)]
struct Surveyor {
    storage: Arc<dyn Storage>,
    cache: Arc<Mutex<AttributeCache>>,
    plan: Mutex<Plan<Ended>>,
    started: Instant,
    timeout: Duration,
    runtime: Handle,
    is_far: AtomicBool,
}

impl Survey {
    /// Nothing is listed yet. Entries go into `cache`, whose clock begins at `started`; a listing fails after
    /// `timeout`.
    pub(crate) fn new(
        storage: &Arc<dyn Storage>,
        cache: &Arc<Mutex<AttributeCache>>,
        started: Instant,
        timeout: Duration,
        runtime: &Handle,
    ) -> Self {
        let can = storage.capabilities();
        let age = lock(cache).age();
        let pays = can.medium == Medium::Link && can.complete_lists && !age.is_zero();
        Self(pays.then(|| {
            Arc::new(Surveyor {
                storage: Arc::clone(storage),
                cache: Arc::clone(cache),
                plan: Mutex::new(Plan::new(age)),
                started,
                timeout,
                runtime: runtime.clone(),
                is_far: AtomicBool::new(false),
            })
        }))
    }

    /// The mount begins.
    pub(crate) fn begin(&self, root: &RelPath) {
        self.change(|plan, now| plan.begin(root, now));
    }

    /// A path is looked up, and nothing is known about it.
    pub(crate) fn looked_up(&self, path: &RelPath) {
        self.change(|plan, now| plan.looked_up(path, now));
    }

    /// A path was looked up, and exists.
    pub(crate) fn found(&self, path: &RelPath, is_directory: bool) {
        self.change(|plan, now| plan.found(path, is_directory, now));
    }

    /// For how long a path may be taken for missing, if its directory does not have it.
    pub(crate) fn missing(&self, path: &RelPath, now: Duration) -> Option<Duration> {
        lock(&self.0.as_ref()?.plan).missing(path, now)
    }

    /// Waits until the directory of a path has been listed. Never returns if no such listing is in flight.
    pub(crate) async fn listed(&self, path: &RelPath) {
        let waiter = self.0.as_ref().and_then(|surveyor| lock(&surveyor.plan).waiter(path));
        match waiter {
            Some(waiter) => ended(waiter).await,
            None => std::future::pending().await,
        }
    }

    /// All entries of a directory that a program reads, if a listing is held. Waits for one in flight.
    pub(crate) async fn read(&self, directory: &RelPath) -> Option<Entries> {
        loop {
            match self.change(|plan, now| plan.read(directory, now))? {
                Known::All(entries) => return Some(entries),
                Known::InFlight(waiter) => ended(waiter).await,
                Known::Nothing => return None,
            }
        }
    }

    /// A program has read a whole directory, which was requested at `at`.
    pub(crate) fn hold(&self, directory: &RelPath, at: Duration, entries: Vec<Arc<Entry>>) {
        let bytes: usize = entries.iter().map(|entry| weight(entry)).sum();
        if entries.len() <= MOST_ENTRIES && bytes <= MOST_BYTES {
            self.change(|plan, now| plan.hold(directory, at, entries, now));
        }
    }

    /// Whether a directory is known, or being listed.
    pub(crate) fn lists(&self, directory: &RelPath) -> bool {
        self.0.as_ref().is_some_and(|one| lock(&one.plan).lists(directory, one.now()))
    }

    /// An entry was changed, created or removed here: nothing that was listed below it is used any more.
    pub(crate) fn changed(&self, path: &RelPath) {
        if let Some(surveyor) = &self.0 {
            lock(&surveyor.plan).changed(path, surveyor.now());
        }
    }

    /// Attributes of a directory have changed, because an entry in it was created or removed here. That entry has to be
    /// reported by [`Survey::changed`].
    pub(crate) fn changed_attributes(&self, directory: &RelPath) {
        if let Some(surveyor) = &self.0 {
            lock(&surveyor.plan).changed_attributes(directory, surveyor.now());
        }
    }

    /// An empty directory was created here.
    pub(crate) fn created_empty(&self, directory: &RelPath) {
        self.change(|plan, now| plan.created_empty(directory, now));
    }

    /// Changes the plan, and starts the listings that are then due; `None` if nothing is listed ahead.
    fn change<T>(&self, change: impl FnOnce(&mut Plan<Ended>, Duration) -> T) -> Option<T> {
        let surveyor = self.0.as_ref().filter(|surveyor| surveyor.is_far())?;
        Some(surveyor.change(change))
    }
}

impl Surveyor {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether the network path is long. Once true, it stays true.
    fn is_far(&self) -> bool {
        if self.is_far.load(Ordering::Relaxed) {
            return true;
        }
        let is_far = self.storage.link().rtt.is_some_and(|rtt| rtt >= LONG);
        self.is_far.fetch_or(is_far, Ordering::Relaxed) || is_far
    }

    fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut Plan<Ended>, Duration) -> T) -> T {
        let (value, tasks) = {
            let mut plan = lock(&self.plan);
            let now = self.now();
            let value = change(&mut plan, now);
            let mut tasks = Vec::new();
            for directory in plan.ready(now) {
                let (ended, waiter) = watch::channel(());
                plan.begun(&directory, waiter);
                let (surveyor, listed, has_run) = (Arc::clone(self), Listed::Failed, false);
                tasks.push(Task { surveyor, directory, at: now, listed, has_run, _ended: ended });
            }
            (value, tasks)
        };
        tasks.into_iter().for_each(|task| drop(self.runtime.spawn(task.run())));
        value
    }

    /// The entries of a directory that is requested at `at`. They go into the cache as they arrive.
    async fn entries(&self, directory: &RelPath, at: Duration) -> Listed {
        // Errors are ignored: a program that needs the directory gets them.
        let Ok(mut stream) = self.storage.list(directory).await else { return Listed::Failed };
        let (mut entries, mut bytes, mut is_whole) = (Vec::new(), 0, true);
        while let Some(batch) = stream.next().await {
            let Ok(batch) = batch else {
                is_whole = false;
                continue;
            };
            let batch: Vec<_> = batch.into_iter().map(Arc::new).collect();
            self.note(directory, &batch, at);
            bytes += batch.iter().map(|entry| weight(entry)).sum::<usize>();
            entries.extend(batch);
            if entries.len() > MOST_ENTRIES || bytes > MOST_BYTES {
                return Listed::TooLong;
            }
        }
        if is_whole { Listed::Whole(entries) } else { Listed::Failed }
    }

    fn note(&self, directory: &RelPath, batch: &[Arc<Entry>], at: Duration) {
        let plan = lock(&self.plan);
        let is_right = |entry: &&Arc<Entry>| is_usable(entry) && plan.is_current(directory, entry);
        lock(&self.cache).put_listed(batch.iter().filter(is_right), at, self.now());
    }
}

/// A listing in flight. However it ends, the plan is informed.
#[derive(Debug)]
struct Task {
    surveyor: Arc<Surveyor>,
    directory: RelPath,
    at: Duration,
    listed: Listed,
    has_run: bool,
    /// Dropped after the plan knows what was listed.
    _ended: watch::Sender<()>,
}

impl Task {
    async fn run(mut self) {
        // Requests that a program waits for go first.
        yield_now().await;
        self.at = self.surveyor.now();
        let entries = self.surveyor.entries(&self.directory, self.at);
        let listed = timeout(self.surveyor.timeout, entries).await;
        self.listed = listed.unwrap_or(Listed::Failed);
        self.has_run = true;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        let listed = std::mem::replace(&mut self.listed, Listed::Failed);
        let (surveyor, directory, at) = (&self.surveyor, &self.directory, self.at);
        if self.has_run {
            surveyor.change(|plan, now| plan.finish(directory, at, listed, now));
        } else {
            // The mount ends: nothing else begins.
            lock(&surveyor.plan).finish(directory, at, listed, surveyor.now());
        }
    }
}

/// Waits until a listing has ended.
async fn ended(mut waiter: Ended) {
    // Nothing is ever sent: this returns an error once the sender is dropped.
    drop(waiter.changed().await);
}
