//! Checks that the copies fit into the destination, and that `min_free` bytes stay free there.
//!
//! ```text
//! sources that are files, at the start ┐
//! plan: what the destination does not have ├→ least need → more than is free? → stop
//! count, ahead of the plan             ┘
//! each file before it begins → would less than `min_free` be left? → stop
//! ```
//!
//! The need is a lower bound ([`Need`]), and free is the most that can be written, so a transfer that fits
//! is never refused. If the file system may store less than a file's length, or copies may share space, haul
//! only warns, or does nothing. A stopped transfer leaves complete files and part files.

mod file;
mod ledger;
mod named;
mod need;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use haul_storage::text::bytes;
use haul_storage::{Entry, Error, ErrorKind, Medium, RelPath, Result, Space, Storage, Volume};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

pub use file::{DestinationState, stored};
pub use ledger::Ledger;
pub use named::part_bytes;
pub use need::Need;

use crate::sources::Sources;
use crate::tally::Tally;
use crate::{Cancel, Job, Settings};
use file::data_bytes;
use ledger::Slot;

/// Without `min_free`, files shorter than this many bytes do not wait for the first comparison of need and free space.
const GATED: u64 = 1 << 20;

/// The most jobs whose paths are compared with each other.
const APART: usize = 1000;

/// How long files wait for a server that does not report its free space; with `min_free`, they wait without limit.
const PATIENCE: Duration = Duration::from_secs(20);

/// The least time between measurements while free space is nearly too little.
const JUDGE: Duration = Duration::from_millis(500);

/// Interval between checks of the free space: on a disk, and on a server.
const LOOK: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(3));

/// The space of one transfer.
#[derive(Debug)]
pub struct Room {
    settings: Settings,
    tally: Arc<Tally>,
    /// Ends the transfer.
    cancel: Cancel,
    min_free: u64,
    target: Option<Target>,
    /// There are too many jobs to measure their sources at the start.
    has_many: bool,
    slot: Arc<Slot>,
    state: Mutex<State>,
    /// True once the needs known at the start were compared with the free space, or will not be.
    started: watch::Sender<bool>,
    is_stopped: AtomicBool,
    /// Held by the file that is being admitted.
    admitting: tokio::sync::Mutex<()>,
    /// Notified when a file has ended.
    ended: Notify,
}

/// The directory whose file system is measured.
#[derive(Debug)]
struct Target {
    storage: Arc<dyn Storage>,
    path: RelPath,
    /// There is one job, and `path` is its destination.
    is_alone: bool,
    /// No job writes into the directory of another.
    are_apart: bool,
}

/// What does not fit, in bytes.
#[derive(Debug, Clone, Copy)]
enum Lack {
    /// Everything together, and what was free.
    All(ledger::Lack),
    /// A file that was about to begin.
    Next(u64),
    /// More space was used than planned, or by other programs.
    Now,
}

/// Whether needs are compared with the space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Comparison {
    /// Not decided yet: needs are summed up, and compared later.
    #[default]
    Undecided,
    Yes,
    No,
}

#[derive(Debug, Default)]
struct State {
    space: Option<Space>,
    comparison: Comparison,
    /// Whether a file was planned whose need is not known.
    is_unclear: bool,
    /// Whether the need is complete, no longer a lower bound.
    is_complete: bool,
    /// When the need was last found to fit.
    judged: Option<Instant>,
    /// With `min_free`: bytes of files that may begin without another measurement.
    budget: u64,
}

/// Held while a file is being written.
#[derive(Debug)]
pub struct Admission<'a> {
    room: &'a Room,
    bytes: u64,
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        self.room.slot.end(self.bytes);
        self.room.ended.notify_waiters();
    }
}

impl Room {
    /// The space at the destination of `jobs`. If it is too little, that is reported to `tally`, and `cancel`
    /// stops the transfer.
    pub fn new(jobs: &[Job], settings: &Settings, tally: &Arc<Tally>, cancel: &Cancel) -> Self {
        let min_free = settings.min_free.unwrap_or(0);
        let wanted = !settings.dry_run && (settings.check_space || min_free > 0);
        let target = wanted.then(|| Target::of(jobs)).flatten();
        let comparison = match target.is_some() && settings.check_space {
            true => Comparison::Undecided,
            false => Comparison::No,
        };
        Self {
            settings: settings.clone(),
            tally: Arc::clone(tally),
            cancel: cancel.clone(),
            min_free,
            target,
            has_many: named::are_many(jobs),
            slot: Slot::new(tally.moved_bytes()),
            state: Mutex::new(State { comparison, ..State::default() }),
            started: watch::Sender::new(!wanted),
            is_stopped: AtomicBool::new(false),
            admitting: tokio::sync::Mutex::default(),
            ended: Notify::new(),
        }
    }

    /// Whether the transfer was stopped for lack of space.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// Measures the space and the sources that are files, then watches that `min_free` stays free; never ends.
    pub async fn watch(&self, jobs: &[Job], sources: &Sources) {
        let patience = if self.min_free > 0 { Duration::MAX } else { PATIENCE };
        // Without a response the space stays unknown, and nothing waits for it any longer.
        drop(timeout(patience, self.start(jobs, sources)).await);
        self.decide(Comparison::No);
        self.started.send_replace(true);
        if let Some(target) = &self.target {
            let is_disk = target.storage.capabilities().medium == Medium::Disk;
            while self.min_free > 0 || self.compares() {
                sleep(if is_disk { LOOK.0 } else { LOOK.1 }).await;
                if self.min_free > 0
                    && self.slot.is_writing()
                    && let Some(space) = self.measure().await
                    && space.free < self.min_free
                {
                    self.stop(self.too_little(&space, Lack::Now));
                }
                self.judge().await;
            }
        }
        std::future::pending::<()>().await;
    }

    async fn start(&self, jobs: &[Job], sources: &Sources) {
        let Some(target) = &self.target else { return };
        let look = async || named::look_at_all(&self.settings, jobs, sources).await;
        // Over a link, everything is requested at once.
        let is_link = target.storage.capabilities().medium == Medium::Link;
        let early =
            async || if self.settings.check_space && is_link { Some(look().await) } else { None };
        let (space, found) = tokio::join!(self.begin(target, jobs), early());
        let Some(space) = space else { return };
        let found = match found {
            Some(found) => found,
            None => look().await,
        };
        let (need, is_all) = found.need(&self.settings, space.block);
        self.slot.plan(need);
        self.lock().is_complete = is_all;
        self.judge().await;
    }

    /// Measures the free space. Returns it if needs are compared with it.
    async fn begin(&self, target: &Target, jobs: &[Job]) -> Option<Space> {
        let Some(space) = self.measure().await else {
            if self.min_free > 0 {
                let error = Error::new(ErrorKind::Unsupported, "keep space free")
                    .at(target.name())
                    .because("the free space is unknown")
                    .hinting("omit --min-free");
                self.stop(error);
            }
            return None;
        };
        self.slot.start(&self.settings.ledger, space.volume.clone(), self.usable(&space));
        if !self.settings.check_space || !named::compares(&self.settings, jobs, &space).await {
            return None;
        }
        self.decide(Comparison::Yes);
        Some(space)
    }

    /// Whether needs are compared with the space. False before that is known.
    pub fn compares(&self) -> bool {
        self.lock().comparison == Comparison::Yes && !self.is_stopped()
    }

    /// Decides whether needs are compared, if that is not known yet.
    fn decide(&self, comparison: Comparison) {
        let mut state = self.lock();
        if state.comparison == Comparison::Undecided {
            state.comparison = comparison;
            if comparison == Comparison::No {
                self.slot.forget_planned();
            }
        }
    }

    /// Whether the need of directories can be counted.
    pub fn counts(&self) -> bool {
        self.compares() && self.target.as_ref().is_some_and(|target| target.are_apart)
    }

    /// Whether an existing directory is on the file system that was measured.
    pub async fn holds(&self, directory: &RelPath) -> bool {
        if self.target.as_ref().is_some_and(|target| target.is_alone && target.path == *directory) {
            return true;
        }
        let volume = |space: Option<Space>| space.and_then(|space| space.volume);
        let Some(target) = &self.target else { return false };
        let Some(measured) = volume(self.lock().space.clone()) else { return false };
        let found: Option<Volume> = volume(target.storage.space(directory).await.ok().flatten());
        found == Some(measured)
    }

    /// The allocation unit in bytes; 0 if unknown.
    pub fn block(&self) -> u64 {
        self.lock().space.as_ref().map_or(0, |space| space.block)
    }

    /// Adds the need of a planned file that the destination does not have.
    pub async fn plan(&self, job: &Job, entry: &Entry) {
        let is_compared = |state: &State| state.comparison != Comparison::No;
        if is_compared(&self.lock()) && !self.is_stopped() {
            let need = Need::new(stored(&self.settings, job, entry).await);
            {
                let state = self.lock();
                if is_compared(&state) {
                    // Locked, so that `decide` drops this need as well.
                    self.slot.plan(need);
                }
            }
            self.judge().await;
        }
    }

    /// A file was planned that the destination may have, so its need is unknown.
    pub fn plan_unclear(&self) {
        self.lock().is_unclear = true;
    }

    /// A source that is a file was planned. Its need is unknown if it was not measured at the start.
    pub fn plan_source(&self) {
        if self.has_many {
            self.plan_unclear();
        }
    }

    /// Whether only the count can determine the need.
    pub fn needs_count(&self) -> bool {
        self.counts() && self.lock().is_unclear
    }

    /// The old version of a file was replaced.
    pub fn free(&self, old: &Entry) {
        if self.settings.backup.is_none() && old.is_file() {
            let (size, block) = (old.known_size().unwrap_or(0), self.block().max(1));
            self.slot.free(size.checked_next_multiple_of(block).unwrap_or(size));
        }
    }

    /// The count begins.
    pub async fn begin_count(&self) {
        if self.counts()
            && let Some(space) = self.measure().await
        {
            self.slot.begin_count(self.usable(&space));
        }
    }

    /// Adds what was counted; `None` if it is unknown.
    pub async fn count(&self, need: Option<Need>) {
        match need {
            Some(need) => {
                self.slot.count(need);
                self.judge().await;
            }
            None => self.stop_comparing(),
        }
    }

    /// Counts a job whose source is the file `entry`, unless it was measured at the start.
    pub async fn count_source(&self, job: &Job, entry: &Entry) {
        // Errors are ignored: they occur again in the plan, which reports them.
        if self.has_many
            && self.counts()
            && let Ok(Some(need)) = named::of(&self.settings, job, entry, self.block()).await
        {
            self.count(Some(need)).await;
        }
    }

    /// Stops comparing, because the need cannot be known any more.
    pub fn stop_comparing(&self) {
        self.lock().comparison = Comparison::No;
    }

    /// Everything was counted: the need is complete.
    pub fn complete(&self) {
        self.lock().is_complete = true;
    }

    /// Stops the transfer if more is needed than is free; if the file system may compress files, only warns.
    async fn judge(&self) {
        if !self.compares() {
            return;
        }
        let judged = self.lock().judged;
        if !self.slot.exceeds() || judged.is_some_and(|judged| judged.elapsed() < JUDGE) {
            return;
        }
        // Other programs may have freed space.
        let seen = self.slot.seen();
        let Some(space) = self.measure().await else { return };
        let Some(lack) = self.slot.lack(self.usable(&space), seen) else {
            self.lock().judged = Some(Instant::now());
            return;
        };
        if !space.compact {
            return self.stop(self.too_little(&space, Lack::All(lack)));
        }
        self.stop_comparing();
        let (needed, free) = (bytes(lack.needed), bytes(lack.free));
        let message = format!(
            "the files need {needed}, and {free} is free; they fit only if the file system \
             compresses them"
        );
        self.tally.warn(self.name(), message);
    }

    /// Bytes that may be written.
    fn usable(&self, space: &Space) -> u64 {
        match self.min_free {
            0 => space.most,
            min_free => space.free.saturating_sub(min_free),
        }
    }

    fn too_little(&self, space: &Space, lack: Lack) -> Error {
        let least = if self.lock().is_complete { "" } else { "at least " };
        let free_text = |free: u64| match self.min_free {
            0 => format!("{} is free", bytes(free)),
            min_free => {
                format!("{} is free, of which --min-free keeps {}", bytes(free), bytes(min_free))
            }
        };
        let cause = match lack {
            Lack::All(ledger::Lack { needed, free }) => {
                let free = free.saturating_add(self.min_free.min(space.free));
                format!("it needs {least}{}, and {}", bytes(needed), free_text(free))
            }
            Lack::Next(needed) => {
                format!("the next file needs {}, and {}", bytes(needed), free_text(space.free))
            }
            Lack::Now => {
                let (free, min_free) = (bytes(space.free), bytes(self.min_free));
                format!("only {free} is free, and --min-free keeps {min_free}")
            }
        };
        let error = Error::new(ErrorKind::NoSpace, "copy").at(self.name()).because(cause);
        match (lack, self.min_free) {
            (Lack::All(_), 0) => {
                error.hinting("free space there, or use --no-space-check to copy as much as fits")
            }
            (Lack::All(_), _) => error.hinting("free space there, or lower --min-free"),
            (Lack::Next(_) | Lack::Now, _) => error,
        }
    }

    fn name(&self) -> String {
        self.target.as_ref().map(Target::name).unwrap_or_default()
    }

    fn stop(&self, error: Error) {
        if !self.is_stopped.swap(true, Ordering::AcqRel) {
            self.tally.fail(error);
            self.cancel.cancel();
        }
    }

    /// Measures the space.
    async fn measure(&self) -> Option<Space> {
        let target = self.target.as_ref()?;
        // An error counts as unknown.
        let space = target.storage.space(&target.path).await.ok().flatten()?;
        let mut state = self.lock();
        state.space = Some(space.clone());
        let usable = space.free.saturating_sub(self.min_free);
        state.budget = usable.saturating_sub(self.slot.reserved());
        Some(space)
    }

    /// Waits until the needs known at the start were compared with the free space.
    ///
    /// # Errors
    ///
    /// `Interrupted` if they do not fit, which ends the transfer, or if it was cancelled.
    pub async fn started(&self) -> Result<()> {
        let mut started = self.started.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let known = async { drop(started.wait_for(|started| *started).await) };
        let is_known = tokio::select! {
            biased;
            () = known => true,
            () = self.cancel.cancelled() => false,
        };
        if self.is_stopped() || !is_known {
            return Err(Error::new(ErrorKind::Interrupted, "copy"));
        }
        Ok(())
    }

    /// Lets a file begin, if `min_free` stays free when it is written.
    ///
    /// # Errors
    ///
    /// `Interrupted` if it would not stay free, which ends the transfer, or if it was cancelled.
    pub async fn admit_file(
        &self,
        job: &Job,
        entry: &Entry,
        destination: &RelPath,
    ) -> Result<Admission<'_>> {
        let mut bytes = entry.known_size().unwrap_or(0);
        if self.min_free > 0 && self.target.is_some() {
            bytes = data_bytes(job, entry).await;
            // A part file of an earlier run has its space already.
            let part = named::part(&*job.destination, destination).await.ok().flatten();
            if let Some(part) = part {
                let part_bytes = part_bytes(&*job.destination, &part).await;
                bytes = bytes.saturating_sub(part_bytes.unwrap_or(0));
            }
        }
        self.admit(bytes).await
    }

    /// Like [`Room::admit_file`], for files of `bytes` bytes together.
    ///
    /// # Errors
    ///
    /// As for [`Room::admit_file`].
    pub async fn admit(&self, bytes: u64) -> Result<Admission<'_>> {
        if self.target.is_some() && (self.min_free > 0 || bytes >= GATED) {
            self.started().await?;
        }
        if self.target.is_some() && self.min_free > 0 {
            let _turn = self.admitting.lock().await;
            while !self.take(bytes) {
                let ended = self.ended.notified();
                let space = self.measure().await;
                if self.is_stopped() || self.cancel.is_cancelled() {
                    return Err(Error::new(ErrorKind::Interrupted, "copy"));
                }
                let Some(space) = space else { break };
                if self.take(bytes) {
                    break;
                }
                if !self.slot.is_writing() {
                    self.stop(self.too_little(&space, Lack::Next(bytes)));
                    return Err(Error::new(ErrorKind::Interrupted, "copy"));
                }
                // Files that are being written count twice until they are complete.
                tokio::select! {
                    () = ended => {}
                    () = self.cancel.cancelled() => {}
                }
            }
        }
        self.slot.begin(bytes);
        Ok(Admission { room: self, bytes })
    }

    /// Lets `bytes` more of a file of unknown length be written.
    ///
    /// # Errors
    ///
    /// `Interrupted` if less than `min_free` would be left, which ends the transfer.
    pub async fn more(&self, bytes: u64) -> Result<()> {
        if self.min_free == 0 || self.take(bytes) {
            return Ok(());
        }
        match self.measure().await {
            Some(space) if !self.take(bytes) => {
                self.stop(self.too_little(&space, Lack::Now));
                Err(Error::new(ErrorKind::Interrupted, "copy"))
            }
            _ => Ok(()),
        }
    }

    fn take(&self, bytes: u64) -> bool {
        let mut state = self.lock();
        let left = state.budget.checked_sub(bytes);
        state.budget = left.unwrap_or(state.budget);
        left.is_some() && (bytes > 0 || state.budget > 0)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Target {
    /// `None` without jobs, or if they go to several storages, each of which may be full by itself, or to unrelated
    /// directories.
    fn of(jobs: &[Job]) -> Option<Self> {
        let first = jobs.first()?;
        if jobs.iter().any(|job| !Arc::ptr_eq(&job.destination, &first.destination)) {
            return None;
        }
        let is_alone = jobs.len() == 1;
        let paths = || jobs.iter().map(|job| &job.destination_path).enumerate();
        let are_apart = jobs.len() <= APART
            && paths().all(|(at, path)| {
                paths().all(|(other, above)| at == other || !path.starts_with(above))
            });
        let above = first.destination_path.parent().unwrap_or_default();
        let path = if is_alone {
            first.destination_path.clone()
        } else if jobs.iter().all(|job| job.destination_path.parent().as_ref() == Some(&above)) {
            above
        } else {
            // The content of one source goes into the base itself, the other sources below it.
            let is_base = |base: &&Job| {
                jobs.iter().all(|job| job.destination_path.starts_with(&base.destination_path))
            };
            jobs.iter().find(is_base)?.destination_path.clone()
        };
        Some(Self { storage: Arc::clone(&first.destination), path, is_alone, are_apart })
    }

    fn name(&self) -> String {
        self.storage.location().display(&self.path).to_string()
    }
}

#[cfg(test)]
mod tests {
    use haul_storage::EntryKind;
    use haul_storage::memory::MemoryStorage;

    use super::*;
    use crate::EventSink;

    /// Once, Ctrl-C waited for a server that did not report its free space.
    #[tokio::test]
    async fn an_interrupt_ends_the_wait_for_the_space() {
        let cancel = Cancel::default();
        let tally = Arc::new(Tally::new(EventSink::new(|_| {})));
        let settings = Settings { check_space: true, ..Settings::default() };
        let room = Room::new(&[], &settings, &tally, &cancel);
        cancel.cancel();
        let ended = timeout(Duration::from_secs(5), room.started()).await.unwrap();
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::Interrupted);
    }

    /// Formerly, the needs of files that were planned before a server reported its free space were not added up.
    #[tokio::test]
    async fn files_planned_before_the_space_is_known_are_compared_with_it() {
        let root = RelPath::root;
        let job = Job {
            source: MemoryStorage::new(),
            source_path: root(),
            destination: MemoryStorage::builder().with_capacity(20).build(),
            destination_path: root(),
            expected: None,
        };
        let settings = Settings { check_space: true, ..Settings::default() };
        for (bytes, fits) in [(30, false), (20, true)] {
            let cancel = Cancel::default();
            let tally = Arc::new(Tally::new(EventSink::new(|_| {})));
            let jobs = [job.clone()];
            let room = Room::new(&jobs, &settings, &tally, &cancel);
            let file = Entry::new(RelPath::parse("file").unwrap(), EntryKind::File, bytes);
            room.plan(&job, &file).await;
            let sources = Sources::of(&jobs);
            let started = tokio::select! {
                () = room.watch(&jobs, &sources) => unreachable!("it never ends"),
                started = room.started() => started,
            };
            assert_eq!((started.is_ok(), room.is_stopped()), (fits, !fits), "{bytes}");
        }
    }
}
