//! Uploads files of the spool: when, how often, and what follows.
//!
//! ```text
//! queue ─► a task per file ─► room (some small ones, 4 long) ─► gate of the file ─► send ─┬─► done: leaves the spool
//!             ▲                                                                           │
//!             ├────────────────── copy beside it ◄── conflict ◄───────────────────────────┤
//!             └────────────────── pause, doubling ◄── failure ◄───────────────────────────┘
//! ```
//!
//! A file is uploaded once it is closed, or when a process waits for that (fsync). If it changes while it is uploaded,
//! the upload begins anew.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use haul_storage::{Entry, Error, ErrorKind, Range, RelPath, Result, Retry};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::conflict::Reason;
use super::fill::Filler;
use super::kernel::Kernel;
use super::overlay::Overlay;
use super::pending::Pending;
use super::send::{Sender, Snapshot};
use super::sent::Sent;
use super::spool::Spool;
use super::state::State;
use super::warning::{Warning, Warnings};
use crate::names::Names;

/// Most bytes of small files, each sent in one request, that are uploaded at a time. Other requests may have to wait
/// behind them.
const MOST_SMALL: u32 = 8 << 20;

/// Least bytes that each of them counts as: so at most 256 are uploaded at a time.
const LEAST_SMALL: u64 = 32 << 10;

/// Uploads at a time of longer files.
const MOST_LONG: usize = 4;

/// The pause after a failed upload; it doubles each time, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Failures in a row until a warning, if a retry may succeed.
const PATIENCE: u32 = 3;

/// Uploads that begin anew because the file changes; the next one is completed in spite of that.
const MOST_RESTARTS: u32 = 3;

/// Uploads files.
#[derive(Debug)]
pub(super) struct Uploader {
    pub(super) names: Arc<Names>,
    pub(super) overlay: Arc<Overlay>,
    pub(super) spool: Arc<Spool>,
    pub(super) filler: Arc<Filler>,
    pub(super) sender: Arc<Sender>,
    pub(super) warnings: Warnings,
    pub(super) runtime: Handle,
    pub(super) kernel: Kernel,
    small: Arc<Semaphore>,
    long: Arc<Semaphore>,
}

/// How an attempt to upload ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// There is nothing to upload now.
    Done,
    /// The file was changed or moved: try again at once.
    Again,
}

impl Uploader {
    pub(super) fn new(
        names: &Arc<Names>,
        overlay: &Arc<Overlay>,
        spool: &Arc<Spool>,
        filler: &Arc<Filler>,
        sender: Sender,
        (warnings, runtime): (Warnings, &Handle),
    ) -> Arc<Self> {
        Arc::new(Self {
            names: Arc::clone(names),
            overlay: Arc::clone(overlay),
            spool: Arc::clone(spool),
            filler: Arc::clone(filler),
            sender: Arc::new(sender),
            warnings,
            runtime: runtime.clone(),
            kernel: Kernel::default(),
            small: Arc::new(Semaphore::new(MOST_SMALL as usize)),
            long: Arc::new(Semaphore::new(MOST_LONG)),
        })
    }

    /// Uploads a file as soon as possible, unless it is queued already.
    pub(super) fn queue(self: &Arc<Self>, file: &Arc<Pending>) {
        {
            let mut state = file.state();
            if state.upload.is_queued || state.path.is_none() {
                return;
            }
            state.upload.is_queued = true;
        }
        let (own, file) = (Arc::clone(self), Arc::clone(file));
        self.runtime.spawn(async move { own.run(&file).await });
    }

    /// Waits until what was written so far is uploaded.
    ///
    /// # Errors
    /// If an upload fails and a retry cannot help, or uploads still fail after the timeout: the file stays queued. Also
    /// if a part of the file can no longer be fetched: it is not queued then.
    pub(super) async fn wait(self: &Arc<Self>, file: &Arc<Pending>) -> Result<()> {
        let (wanted, failures) = {
            let mut state = file.state();
            state.upload.is_wanted = true;
            (state.generations.content, state.upload.failures)
        };
        file.hurry.notify_one();
        let started = Instant::now();
        loop {
            let mut changed = pin!(file.changed.notified());
            // From here on, no notification is missed.
            changed.as_mut().enable();
            {
                let mut state = file.state();
                // A removed file need not be uploaded.
                if state.generations.uploaded >= wanted || state.path.is_none() {
                    return Ok(());
                }
                if state.is_stranded() {
                    return Err(state.failure());
                }
                if state.upload.failures > failures {
                    let failure = state.failure();
                    let is_late = started.elapsed() > self.names.shown.timeout;
                    if failure.retry() == Retry::Never || is_late {
                        return Err(failure);
                    }
                }
                state.upload.is_wanted = true;
            }
            self.queue(file);
            changed.await;
        }
    }

    /// Uploads a file, with retries, until that is done.
    async fn run(self: Arc<Self>, file: &Arc<Pending>) {
        let mut pause = FIRST_PAUSE;
        let mut restarts = 0;
        loop {
            match self.attempt(file, restarts < MOST_RESTARTS).await {
                Ok(Outcome::Done) => return,
                Ok(Outcome::Again) => {
                    restarts += 1;
                    pause = FIRST_PAUSE;
                    if restarts < 2 * MOST_RESTARTS {
                        continue;
                    }
                }
                Err(error) => self.failed(file, error),
            }
            tokio::select! {
                () = sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
                () = file.hurry.notified() => {}
            }
        }
    }

    fn failed(&self, file: &Pending, error: Error) {
        let was_serious = is_serious(&file.state());
        let text = error.to_string();
        file.note_failure(&self.names.root, error);
        let (path, copy) = {
            let mut state = file.state();
            // The user already knows of a stranded one.
            let warns = !was_serious && is_serious(&state) && !state.is_stranded();
            let path = state.path.clone().filter(|_| warns);
            (path.clone(), path.and_then(|_| state.take_warning()))
        };
        file.changed.notify_waiters();
        copy.iter().for_each(|warning| self.warnings.report(warning));
        if let Some(path) = path {
            self.warnings.report(&Warning::Failed { path, error: text });
        }
    }

    /// Tries to upload a file once. `strictly`: not if it changes meanwhile.
    async fn attempt(self: &Arc<Self>, file: &Arc<Pending>, strictly: bool) -> Result<Outcome> {
        let size = file.state().size;
        let (room, counted) = match size <= self.sender.whole_limit() {
            true => (&self.small, u32::try_from(size.max(LEAST_SMALL)).unwrap_or(MOST_SMALL)),
            false => (&self.long, 1),
        };
        let _room = room.acquire_many(counted.min(MOST_SMALL)).await;
        let _gate = file.gate.lock().await;
        if !self.is_due(file) {
            return Ok(Outcome::Done);
        }
        let (is_uploaded, interrupts) = {
            let state = file.state();
            (state.is_uploaded(), state.upload.interrupts)
        };
        self.remove_stray_parts(file).await;
        if is_uploaded {
            return self.finish(file).await;
        }
        tokio::select! {
            filled = self.filler.fill(file, Range::new(0, u64::MAX)) => {
                if let Err(error) = filled {
                    return Err(self.unless_stranded(file, error).await);
                }
            }
            () = interrupted(file, interrupts) => return Ok(Outcome::Again),
        }
        file.settle(&self.spool, &self.names.root, false).await?;
        // A program may have opened it again meanwhile: what it has written so far is not complete.
        if !self.is_due(file) {
            return Ok(Outcome::Done);
        }
        let Some(snapshot) = Snapshot::of(file, strictly) else { return Ok(Outcome::Again) };
        if file.state().handles.was_left_open && snapshot.base.is_some() {
            // It may be incomplete, and must not replace what is complete.
            self.put_beside(file, Reason::LeftOpen).await?;
            return Ok(Outcome::Again);
        }
        match self.sender.send(file, &snapshot).await {
            Ok(sent) => self.sent(file, &snapshot, sent).await,
            Err(error)
                if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::IsADirectory) =>
            {
                self.put_beside(file, Reason::Conflict).await?;
                Ok(Outcome::Again)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Outcome::Again),
            Err(error) => Err(error),
        }
    }

    /// Whether there is something to upload now. If not, closing the file queues it again.
    fn is_due(self: &Arc<Self>, file: &Arc<Pending>) -> bool {
        {
            let mut state = file.state();
            let is_open = state.handles.writers > 0 && !state.upload.is_wanted;
            let is_done = state.is_uploaded() && state.is_metadata_uploaded();
            if state.path.is_some() && !is_open && !is_done && !state.is_stranded() {
                return true;
            }
            state.upload.is_queued = false;
        }
        self.leave(file);
        false
    }

    /// A version was uploaded.
    async fn sent(
        self: &Arc<Self>,
        file: &Arc<Pending>,
        snapshot: &Snapshot,
        sent: Sent,
    ) -> Result<Outcome> {
        // Even if the server reports the same version, blocks in memory are of the one before.
        self.filler.files.changed(&snapshot.path);
        self.publish(file, &snapshot.path);
        self.names.changed_in_parent(&snapshot.path);
        let copy = {
            let mut state = file.state();
            (state.generations.uploaded, state.generations.metadata_uploaded) =
                (snapshot.generation, snapshot.metadata_changes);
            state.upload.attempts.succeed(&snapshot.path, sent);
            (state.upload.failures, state.upload.failure) = (0, None);
            state.complete();
            state.upload.is_wanted = false;
            state.take_warning()
        };
        copy.iter().for_each(|warning| self.warnings.report(warning));
        if self.leave(file) {
            file.changed.notify_waiters();
            return Ok(Outcome::Done);
        }
        self.finish(file).await
    }

    /// From now on, programs see what was uploaded, even when the file has left the spool: responses that are in flight
    /// describe what was there before.
    fn publish(&self, file: &Pending, path: &RelPath) {
        let shown = file.entry().map(|entry| Arc::new(entry.at(path.clone())));
        self.names.record(path, shown);
    }

    /// Does what is left after the content was uploaded: metadata that has changed since, and the version that the next
    /// upload replaces.
    async fn finish(self: &Arc<Self>, file: &Arc<Pending>) -> Result<Outcome> {
        let Some(path) = file.state().path.clone() else { return Ok(Outcome::Again) };
        match self.present(&path).await {
            // It was removed from the server after its upload: there is no file left for its metadata.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.names.record(&path, None);
                let mut state = file.state();
                state.generations.metadata_uploaded = state.generations.metadata;
            }
            found => self.finish_metadata(file, &path, &found?).await?,
        }
        let is_done = {
            let mut state = file.state();
            // A task that still waits queues it again.
            let is_done =
                state.handles.writers > 0 || (state.is_uploaded() && state.is_metadata_uploaded());
            if is_done {
                (state.upload.is_queued, state.upload.is_wanted) = (false, false);
            }
            is_done
        };
        self.leave(file);
        file.changed.notify_waiters();
        Ok(if is_done { Outcome::Done } else { Outcome::Again })
    }

    /// Sets metadata that has changed since the content was uploaded, which is `found` on the server.
    async fn finish_metadata(&self, file: &Pending, path: &RelPath, found: &Entry) -> Result<()> {
        let sent: Vec<_> = file.state().upload.attempts.at(path).cloned().collect();
        if !sent.is_empty() && !self.sender.is_still(&sent, found).await? {
            // Another program has replaced it since. The next upload finds that.
            let mut state = file.state();
            state.generations.metadata_uploaded = state.generations.metadata;
            return Ok(());
        }
        // Parts of the version before must not be mixed with parts of this one.
        let is_base = file.missing(Range::new(0, u64::MAX)).is_empty()
            || file.state().base == Some(found.identity());
        if is_base {
            file.replaces(found.identity());
        }
        let (mut metadata, changes, is_metadata_uploaded) = {
            let state = file.state();
            (state.metadata(), state.generations.metadata, state.is_metadata_uploaded())
        };
        if !is_base {
            // It is the time of the version before: with it, another version could be mistaken for that one.
            metadata.modified = None;
        }
        if !is_metadata_uploaded {
            // A task that fetches parts meanwhile would find neither the version before nor the one after.
            let _remote = file.remote.lock().await;
            self.names.storage.set_metadata(path, &metadata).await?;
            self.publish(file, path);
            file.state().generations.metadata_uploaded = changes;
            if is_base {
                // In case its version cannot be requested.
                let sent = Sent { size: found.size, modified: metadata.modified, digest: None };
                file.state().upload.attempts.succeed(path, sent);
                file.replaces(self.present(path).await?.identity());
            }
        }
        Ok(())
    }

    /// What is at a path now.
    async fn present(&self, path: &RelPath) -> Result<Entry> {
        self.names.retried(|| self.names.storage.stat(path)).await
    }

    /// A file whose changes are all uploaded leaves the spool, unless a handle may still write to it. Returns whether
    /// it has left.
    pub(super) fn leave(self: &Arc<Self>, file: &Arc<Pending>) -> bool {
        let strays = {
            let mut state = file.state();
            let is_done =
                state.is_uploaded() && state.is_metadata_uploaded() && state.handles.writers == 0;
            if !is_done || state.has_left {
                return state.has_left;
            }
            state.has_left = true;
            // Under the lock: once a change finds that the file has left, the overlay must not show it any more.
            if let Some(path) = &state.path {
                self.overlay.take(path, file);
            }
            state.upload.attempts.stray_parts(state.path.as_ref())
        };
        file.remove();
        self.remove_parts_later(strays);
        true
    }
}

/// Whether the last failed uploads of a file are worth a warning.
fn is_serious(state: &State) -> bool {
    let is_final = |error: &Error| error.retry() == Retry::Never;
    state.upload.failures >= PATIENCE || state.upload.failure.as_ref().is_some_and(is_final)
}

/// Waits until there is a reason to stop the upload of a file.
async fn interrupted(file: &Pending, interrupts: u64) {
    loop {
        let mut changed = pin!(file.changed.notified());
        changed.as_mut().enable();
        if file.state().upload.interrupts != interrupts {
            return;
        }
        changed.await;
    }
}
