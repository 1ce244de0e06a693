//! The state that all parts of a transfer share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use haul_storage::{Capabilities, Error, FileId, Medium, Metadata, RelPath, Result, WorkPool};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::budget::LinkBudgets;
use crate::digest::Digest;
use crate::flow::Flow;
use crate::in_flight::FilesInFlight;
use crate::job::NumberedJob;
use crate::links::Links;
use crate::room::Room;
use crate::roots::Roots;
use crate::stored_times::LearntTimes;
use crate::tally::Tally;
use crate::{Cancel, Job, Settings};

/// One running transfer.
#[derive(Debug)]
pub struct Context {
    /// The options of the transfer.
    pub settings: Settings,
    /// Flow control: every range needs a permit from it.
    pub flow: Arc<Flow>,
    /// Counters and events.
    pub tally: Arc<Tally>,
    /// Stops the transfer, if the caller cancels it or space runs out.
    pub cancel: Cancel,
    /// The space at the destination.
    pub room: Room,
    /// Threads for digests.
    pub pool: WorkPool,
    /// The files in flight, and the limit on large ones.
    pub in_flight: FilesInFlight,
    /// The roots of the jobs at their sources and destinations.
    pub roots: Roots,
    /// Resolution and range of the modification times that destinations can store, as far as known.
    pub times: LearntTimes,
    /// Files with several names.
    pub hard_links: HardLinks,
    /// Whether a listing of a source has failed. Entries missing from it may exist, so nothing is deleted from then on
    /// (unless `ignore_errors` is set).
    failed_listing: AtomicBool,
    owner_lost: AtomicBool,
    /// Every item that is planned and not done holds a receiver.
    planned: watch::Sender<()>,
    /// The number of tasks that wait in [`Context::planned_done`].
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
        let is_on_link = |job: &Job| job.destination.capabilities().medium == Medium::Link;
        let writes = jobs.iter().any(is_on_link);
        let (tally, cancel) = (Arc::new(tally), cancel.child());
        let flow = Flow::new(budgets, &settings, &links, writes);
        Self {
            in_flight: FilesInFlight::new(jobs, &settings, &flow),
            flow,
            room: Room::new(jobs, &settings, &tally, &cancel),
            settings,
            tally,
            cancel,
            pool,
            roots: Roots::of(jobs),
            times: LearntTimes::default(),
            hard_links: HardLinks::default(),
            failed_listing: AtomicBool::new(false),
            owner_lost: AtomicBool::new(false),
            planned: watch::Sender::new(()),
            awaited: watch::Sender::new(0),
        }
    }

    /// A ticket for an item that is planned now.
    pub fn ticket(&self) -> Ticket {
        self.planned.subscribe()
    }

    /// Waits until every planned item is done, including items that are planned meanwhile.
    pub async fn planned_done(&self) {
        self.awaited.send_modify(|awaited| *awaited += 1);
        self.planned.closed().await;
        self.awaited.send_modify(|awaited| *awaited -= 1);
    }

    /// Whether [`Context::planned_done`] waits.
    pub fn is_awaited_now(&self) -> bool {
        *self.awaited.borrow() > 0
    }

    /// Waits until a task waits in [`Context::planned_done`]: items must not be held back for sorting then.
    pub async fn is_awaited(&self) {
        // The sender lives as long as `self`, so waiting cannot fail.
        drop(self.awaited.subscribe().wait_for(|awaited| *awaited > 0).await);
    }

    /// The metadata to set on a copy: requested by the options, and storable at the destination. All metadata of
    /// copies passes through here, so that set-ID bits and capabilities are set only together with the owner.
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
                // Set-ID bits and capabilities would grant the rights of another owner.
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

    /// The mode of a copy: the source's, with the changes of the settings. If there are changes, a missing mode counts
    /// as 644 (files) or 755 (directories).
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
                .map(|time| can.stored_times.in_range(time)),
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

    /// Waits for `pause`, or until the transfer is stopped.
    pub async fn pause(&self, pause: Duration) {
        tokio::select! {
            () = sleep(pause) => {}
            () = self.cancel.cancelled() => {}
        }
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

/// The outcome of copying a file under its first name: its digest if there is one, or failure.
pub type Outcome = Result<Option<Digest>, ()>;

/// What to do with one of several names.
#[derive(Debug)]
pub enum Name {
    /// The first name: copy the file, and report the outcome.
    First(FirstGuard),
    /// The file was copied under this name; link to it.
    Other(RelPath, Option<Digest>),
    /// Copying under the first name failed: copy it under this one.
    Alone,
}

/// Reports the outcome of the copy under the first name. Dropping it reports a failure.
#[derive(Debug)]
pub struct FirstGuard {
    first: Arc<FirstName>,
}

impl FirstGuard {
    /// Reports that the copy is complete, with its digest.
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
    /// Warns, once in a transfer, that files are copied instead of being linked.
    pub fn warn_refused(&self, context: &Context, name: String, error: &Error) {
        if !self.refused.swap(true, Ordering::Relaxed) {
            let message = format!(
                "is copied, since the hard link was refused ({error}); this is reported once"
            );
            context.tally.warn(name, message);
        }
    }

    /// Decides what to do with the name `destination` of file `id`, which has `names` names at the
    /// source. Waits while the file is copied under its first name. That cannot deadlock: the first name
    /// is that of the first call, so its copy has started.
    pub async fn claim(&self, job: usize, id: FileId, names: u64, destination: &RelPath) -> Name {
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
            // A file is forgotten once all its names have been seen.
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
