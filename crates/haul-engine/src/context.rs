//! What all parts of one transfer share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use haul_storage::{
    Capabilities, Error, ErrorKind, FileId, Lock, Medium, Metadata, RelPath, Result, WorkPool,
};
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;

use crate::budget::LinkBudgets;
use crate::collision::Destinations;
use crate::current::Current;
use crate::digest::Digest;
use crate::ends::Ends;
use crate::flow::Flow;
use crate::job::NumberedJob;
use crate::kept_times::LearntTimes;
use crate::links::Links;
use crate::long::LongReads;
use crate::room::Room;
use crate::sources::Sources;
use crate::tally::Tally;
use crate::{Cancel, Job, Settings};

/// One running transfer.
#[derive(Debug)]
pub struct Context {
    /// What was asked for.
    pub settings: Settings,
    /// The gate that every range passes.
    pub flow: Arc<Flow>,
    /// Counters and events.
    pub tally: Arc<Tally>,
    /// Stops it: the caller's, or want of space.
    pub cancel: Cancel,
    /// The space at the destination.
    pub room: Room,
    pub sources: Sources,
    /// The files in flight.
    pub current: Current,
    /// Threads for digests.
    pub pool: WorkPool,
    /// Reads that last, of sources where each is dear to begin.
    pub long_reads: LongReads,
    /// How many large files are moved at once.
    pub large_files: Semaphore,
    /// What destinations keep of modification times.
    pub times: LearntTimes,
    /// Files with several names.
    pub hard_links: HardLinks,
    /// Where all jobs go.
    pub destinations: Destinations,
    locks: Mutex<Vec<(Option<FileId>, Lock)>>,
    /// The roots that are copied between on this machine.
    pub ends: Ends,
    /// Whether a listing of a source failed, so that what is missing in it may be there.
    failed_listing: AtomicBool,
    /// Jobs of directories, and whether their destination was made by this run.
    roots: Mutex<HashMap<usize, bool>>,
    owner_lost: AtomicBool,
    /// Every item that is planned and not done holds a receiver.
    planned: watch::Sender<()>,
    /// How many wait until all items are done that were planned so far.
    awaited: watch::Sender<usize>,
}

/// Held by an item until it is done.
pub type Ticket = watch::Receiver<()>;

impl Context {
    /// Everything for a transfer of `jobs`, which shares `budgets` with others.
    pub fn new(
        budgets: &LinkBudgets,
        jobs: &[Job],
        settings: Settings,
        tally: Tally,
        cancel: &Cancel,
        pool: WorkPool,
    ) -> Self {
        let links = Links::of(jobs);
        let (mut in_order, mut writes) = (false, false);
        for job in jobs {
            writes |= job.destination.capabilities().medium == Medium::Link;
            in_order |= job.destination.capabilities().writes == haul_storage::Writes::InOrder;
        }
        // Between disks two files keep both stages busy; more only spread the heads. Over a link a
        // few hide opening and committing, and where a file takes one stream it takes many files.
        let large = match (links.is_empty(), in_order) {
            (true, _) => 2,
            (false, false) => 4,
            (false, true) => 16,
        };
        let large = settings.files.fixed().map_or(large, |files| files.min(large));
        let (tally, cancel) = (Arc::new(tally), cancel.child());
        let flow = Flow::new(budgets, &settings, &links, writes);
        Self {
            long_reads: flow.long_reads(),
            flow,
            room: Room::new(jobs, &settings, &tally, &cancel),
            sources: Sources::of(jobs),
            current: Current::new(settings.shows_current),
            settings,
            tally,
            cancel,
            pool,
            large_files: Semaphore::new(large.max(1)),
            times: LearntTimes::default(),
            hard_links: HardLinks::default(),
            destinations: Destinations::new(jobs),
            locks: Mutex::default(),
            ends: Ends::default(),
            failed_listing: AtomicBool::new(false),
            roots: Mutex::default(),
            owner_lost: AtomicBool::new(false),
            planned: watch::Sender::new(()),
            awaited: watch::Sender::new(0),
        }
    }

    /// For an item that is planned now.
    pub fn ticket(&self) -> Ticket {
        self.planned.subscribe()
    }

    /// Waits until all items that were planned so far are done.
    pub async fn planned_done(&self) {
        self.awaited.send_modify(|awaited| *awaited += 1);
        self.planned.closed().await;
        self.awaited.send_modify(|awaited| *awaited -= 1);
    }

    /// Whether [`Context::planned_done`] waits.
    pub fn is_awaited_now(&self) -> bool {
        *self.awaited.borrow() > 0
    }

    /// Waits until [`Context::planned_done`] waits: what was planned must not be held back then.
    pub async fn is_awaited(&self) {
        // The sender lives as long as `self`, so waiting cannot fail.
        drop(self.awaited.subscribe().wait_for(|awaited| *awaited > 0).await);
    }

    /// Of what a source has, what is to be kept and can be. Everything that is set on a copy passes
    /// through here, so that what lends the owner's rights is kept only together with the owner.
    pub fn wanted_metadata(
        &self,
        found: Metadata,
        job: &NumberedJob,
        path: &RelPath,
        is_directory: bool,
    ) -> Metadata {
        let can = job.job.destination.capabilities();
        let mode = self.changed_mode(found.mode, is_directory);
        let mut wanted = self.wanted_by(Metadata { mode, ..found }, can);
        if let Some(owner) = wanted.owner.filter(|_| can.medium == Medium::Disk) {
            wanted.owner = self.settings.owners.settable(owner);
            if wanted.owner != Some(owner) {
                // What lends the rights of an owner goes with the owner.
                wanted = wanted.without_privileges();
                if !self.owner_lost.swap(true, Ordering::Relaxed) {
                    let message = format!(
                        "its owner (user {}, group {}) cannot be kept by an ordinary user; this is reported once",
                        owner.0, owner.1
                    );
                    self.tally.warn(job.destination_name(path), message);
                }
            }
        }
        wanted
    }

    /// The mode that a copy gets where modes are kept. A source without modes counts as 644 and 755.
    pub fn changed_mode(&self, mode: Option<u32>, is_directory: bool) -> Option<u32> {
        let changes = &self.settings.modes;
        if changes.is_empty() {
            return mode;
        }
        let usual = if is_directory { 0o755 } else { 0o644 };
        Some(changes.apply(mode.unwrap_or(usual), is_directory))
    }

    fn wanted_by(&self, found: Metadata, can: &Capabilities) -> Metadata {
        let keep = self.settings.preserve;
        let change = self.settings.change_owner;
        let owner = change.map(|change| change.apply(found.owner)).or(found.owner);
        let wanted = Metadata {
            mode: found.mode.filter(|_| keep.mode && can.mode),
            modified: found
                .modified
                .filter(|_| keep.times && can.times)
                .map(|time| can.kept_times.in_range(time)),
            owner: owner.filter(|_| keep.owner && can.owner),
            xattrs: found.xattrs.filter(|_| keep.xattrs && can.xattrs),
        };
        if wanted.owner.is_some() { wanted } else { wanted.without_privileges() }
    }

    /// Notes that a listing of a source was not complete.
    pub fn note_failed_listing(&self) {
        self.failed_listing.store(true, Ordering::Relaxed);
    }

    /// Whether any listing of a source was not complete.
    pub fn has_failed_listing(&self) -> bool {
        self.failed_listing.load(Ordering::Relaxed)
    }

    /// Notes that the walk has reached the destination of a job, and whether it was made now.
    pub fn note_root(&self, job: usize, fresh: bool) {
        self.roots.lock().unwrap_or_else(PoisonError::into_inner).insert(job, fresh);
    }

    /// Whether the destination of a job was made by this run; `None` if no walk has reached it.
    pub fn was_fresh(&self, job: usize) -> Option<bool> {
        self.roots.lock().unwrap_or_else(PoisonError::into_inner).get(&job).copied()
    }

    /// Waits, unless the transfer is stopped.
    pub async fn pause(&self, pause: Duration) {
        tokio::select! {
            () = sleep(pause) => {}
            () = self.cancel.cancelled() => {}
        }
    }

    /// Keeps other runs out of a job's destination until the end of the transfer.
    pub async fn lock_destination(&self, job: &NumberedJob) -> Result<()> {
        let Job { destination, destination_path, .. } = &job.job;
        if !destination.capabilities().lock {
            return Ok(());
        }
        // Another job of this run may have it: `cp A/ B/ DEST`.
        let id = destination.stat(destination_path).await?.id;
        let is_held = |held: &(Option<FileId>, Lock)| id.is_some() && held.0 == id;
        if self.locks.lock().unwrap_or_else(PoisonError::into_inner).iter().any(is_held) {
            return Ok(());
        }
        let lock = destination.lock(destination_path).await.map_err(|error| {
            if error.kind() == ErrorKind::Busy {
                // Waiting would not help: the other run is doing the same work.
                error.with_retry(haul_storage::Retry::Never)
            } else {
                error
            }
        })?;
        self.locks.lock().unwrap_or_else(PoisonError::into_inner).push((id, lock));
        Ok(())
    }
}

/// Files with several names, so that a copy has them too.
#[derive(Debug, Default)]
pub struct HardLinks {
    files: Mutex<HashMap<(usize, FileId), Arc<FirstName>>>,
    refused: AtomicBool,
}

#[derive(Debug)]
struct FirstName {
    destination: RelPath,
    outcome: watch::Sender<Option<Outcome>>,
    names_left: Mutex<u64>,
}

/// How the copy of a file under its first name ended: with what digest, or not at all.
pub type Outcome = Result<Option<Digest>, ()>;

/// What to do with one of several names.
#[derive(Debug)]
pub enum Name {
    /// Copy it, and say how that ended.
    First(FirstGuard),
    /// The file was copied under this name; link to it.
    Other(RelPath, Option<Digest>),
    /// Copying under the first name failed: copy it under this one.
    Alone,
}

/// Says how the copy under the first name ended; dropped without a word it failed.
#[derive(Debug)]
pub struct FirstGuard {
    first: Arc<FirstName>,
}

impl FirstGuard {
    /// The file is there, with this digest.
    pub fn done(self, digest: Option<Digest>) {
        self.first.outcome.send_replace(Some(Ok(digest)));
    }
}

impl Drop for FirstGuard {
    fn drop(&mut self) {
        self.first.outcome.send_if_modified(|outcome| {
            let open = outcome.is_none();
            if open {
                *outcome = Some(Err(()));
            }
            open
        });
    }
}

impl HardLinks {
    /// Says once in a transfer that files are copied instead of being linked.
    pub fn say_refused(&self, context: &Context, name: String, error: &Error) {
        if !self.refused.swap(true, Ordering::Relaxed) {
            let message = format!(
                "is copied, since the hard link was refused ({error}); this is reported once"
            );
            context.tally.warn(name, message);
        }
    }

    /// Asks what to do with the name `destination` of file `id`, which has `names` names at the
    /// source. Waits for the first name if that is being copied; names are asked for in the order
    /// in which their copies start, so that cannot lock.
    pub async fn ask(&self, job: usize, id: FileId, names: u64, destination: &RelPath) -> Name {
        let first = {
            let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(first) = files.get(&(job, id)).map(Arc::clone) else {
                let first = Arc::new(FirstName {
                    destination: destination.clone(),
                    outcome: watch::Sender::new(None),
                    names_left: Mutex::new(names.saturating_sub(1)),
                });
                files.insert((job, id), Arc::clone(&first));
                return Name::First(FirstGuard { first });
            };
            // Memory holds only files of which some names have not been met.
            let mut left = first.names_left.lock().unwrap_or_else(PoisonError::into_inner);
            *left = left.saturating_sub(1);
            if *left == 0 {
                files.remove(&(job, id));
            }
            drop(left);
            first
        };
        let mut receiver = first.outcome.subscribe();
        let outcome = receiver.wait_for(Option::is_some).await.map(|outcome| *outcome);
        match outcome {
            Ok(Some(Ok(digest))) => Name::Other(first.destination.clone(), digest),
            _ => Name::Alone,
        }
    }
}
