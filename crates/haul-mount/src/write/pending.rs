//! A file in the spool: written, or about to be, and not uploaded yet.
//!
//! Its content is what was written here, and otherwise that of the version that it replaces (`rest`), which is fetched
//! in the background from the first change on, or when it is needed. A file that is no longer in the overlay lives as
//! long as a handle refers to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use haul_storage::{
    Entry, EntryKind, Error, Identity, Metadata, Range, RelPath, Result, StoredTimes,
};
use tokio::sync::Notify;

use super::record::Record;
use super::sent::Attempt;
use super::spool::{Spool, SpoolFile};
use super::state::State;
use crate::lock::lock;

/// A file in the spool.
#[derive(Debug)]
pub(crate) struct Pending {
    file: SpoolFile,
    state: Mutex<State>,
    /// How the storage will show its time.
    times: StoredTimes,
    /// Held while it is uploaded, renamed or removed.
    pub(super) gate: Arc<tokio::sync::Mutex<()>>,
    /// Held while its record is stored.
    settling: tokio::sync::Mutex<()>,
    /// The record that was stored last.
    last: Mutex<Option<Record>>,
    /// The handle by which the rest is read, while it is open.
    pub(super) remote: tokio::sync::Mutex<Option<u64>>,
    /// A task has begun to fetch the rest in the background.
    is_filling: AtomicBool,
    /// Its content or its uploads have changed.
    pub(super) changed: Notify,
    /// It should be uploaded now, without a pause.
    pub(super) hurry: Notify,
}

impl Pending {
    /// A file that replaces `base` (a new file without it), and begins with its content.
    ///
    /// # Errors
    /// Of the spool.
    pub(super) fn new(
        file: SpoolFile,
        path: RelPath,
        base: Option<&Entry>,
        times: StoredTimes,
    ) -> std::io::Result<Arc<Self>> {
        let size = base.and_then(Entry::known_size).unwrap_or(0);
        // The next process finds the size here.
        file.set_size(size)?;
        Ok(Self::with(file, times, State::new(path, size, base)))
    }

    /// A file that an earlier process has left at `path`, which is below the mounted directory `root`.
    ///
    /// # Errors
    /// If the spool cannot be read.
    pub(super) fn recovered(
        file: SpoolFile,
        path: RelPath,
        record: &Record,
        times: StoredTimes,
        root: &RelPath,
    ) -> std::io::Result<Arc<Self>> {
        let size = file.size()?;
        let found = Self::with(file, times, State::recovered(path, size, record, root));
        *lock(&found.last) = Some(record.clone());
        Ok(found)
    }

    fn with(file: SpoolFile, times: StoredTimes, state: State) -> Arc<Self> {
        Arc::new(Self {
            file,
            state: Mutex::new(state),
            times,
            gate: Arc::default(),
            settling: tokio::sync::Mutex::default(),
            last: Mutex::default(),
            remote: tokio::sync::Mutex::default(),
            is_filling: AtomicBool::new(false),
            changed: Notify::new(),
            hurry: Notify::new(),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The entry that is shown of it; `None` once it is removed.
    pub(super) fn entry(&self) -> Option<Entry> {
        let state = self.state();
        Some(self.entry_at(state.path.clone()?, &state))
    }

    /// The entry of a removed file, which has no name.
    pub(super) fn nameless_entry(&self) -> Entry {
        let state = self.state();
        self.entry_at(RelPath::root(), &state)
    }

    fn entry_at(&self, path: RelPath, state: &State) -> Entry {
        let mut entry = Entry::new(path, EntryKind::File, state.size);
        (entry.mode, entry.modified) = (state.mode, Some(self.times.stored(state.modified)));
        entry
    }

    /// Whether all changes are uploaded.
    pub(super) fn is_uploaded(&self) -> bool {
        self.state().is_uploaded()
    }

    /// Writes bytes at an offset, or at the end. Returns the offset.
    ///
    /// # Errors
    /// Of the spool, such as a full disk.
    pub(super) fn write(&self, offset: Option<u64>, bytes: &[u8]) -> std::io::Result<u64> {
        let mut state = self.state();
        let offset = offset.unwrap_or(state.size);
        self.before_change(&mut state)?;
        let range = Range::new(offset, bytes.len() as u64);
        if let Err(error) = self.file.write(offset, bytes) {
            // A part may have been written. Behind the end, it would be read later instead of zeros.
            drop(self.file.set_size(state.size));
            let within = range.intersection(Range::new(0, state.size));
            if !within.is_empty() && state.missing(within) != [within] {
                state.on_change();
            }
            return Err(error);
        }
        state.add(range);
        state.size = state.size.max(range.end());
        state.on_change();
        drop(state);
        self.changed.notify_waiters();
        Ok(offset)
    }

    /// Sets the length. Bytes after the old end read as zeros.
    pub(super) fn set_size(&self, size: u64) -> std::io::Result<()> {
        let mut state = self.state();
        self.resize(&mut state, size)?;
        drop(state);
        self.changed.notify_waiters();
        Ok(())
    }

    fn resize(&self, state: &mut State, size: u64) -> std::io::Result<()> {
        self.before_change(state)?;
        self.file.set_size(size)?;
        state.resize(size);
        Ok(())
    }

    /// The content is about to change. If it was recorded as complete, the record is changed to incomplete first, in
    /// case this process ends before the file is closed again.
    fn before_change(&self, state: &mut State) -> std::io::Result<()> {
        let mut last = lock(&self.last);
        let Some(record) = last.as_mut().filter(|record| record.closed) else { return Ok(()) };
        let mut reopened = record.clone();
        reopened.reopen();
        self.file.store(&reopened)?;
        *record = reopened;
        // Also if the change fails.
        state.is_record_old = true;
        Ok(())
    }

    /// It was closed in this generation, but is still open: it may be incomplete.
    pub(super) fn reopen(&self, generation: u64) {
        let mut state = self.state();
        let has_changed = state.generations.content != generation;
        if has_changed || state.is_uploaded() || !state.handles.closed {
            return;
        }
        (state.handles.closed, state.is_record_old) = (false, true);
        // If that fails, it is complete for the next process.
        drop(self.before_change(&mut state));
    }

    /// Reserves space for a range. With `may_grow`, a shorter file is extended to the end of the range.
    pub(super) fn reserve(&self, range: Range, may_grow: bool) -> std::io::Result<()> {
        let mut state = self.state();
        // First the step that may fail for lack of space.
        self.file.reserve(range)?;
        if may_grow && range.end() > state.size {
            self.resize(&mut state, range.end())?;
        }
        Ok(())
    }

    /// Fills a range with zeros.
    pub(super) fn punch(&self, range: Range) -> std::io::Result<()> {
        let mut state = self.state();
        let range = range.intersection(Range::new(0, state.size));
        if range.is_empty() {
            return Ok(());
        }
        self.before_change(&mut state)?;
        self.file.punch(range)?;
        state.add(range);
        state.on_change();
        Ok(())
    }

    /// Reads a range, shorter at the end of the file; `None` if a part of it has to be fetched first.
    pub(super) fn read(&self, range: Range) -> Option<std::io::Result<Vec<u8>>> {
        let range = {
            let state = self.state();
            let range = range.intersection(Range::new(0, state.size));
            if !state.missing(range).is_empty() {
                return None;
            }
            range
        };
        let read = self.file.read(range).map(|mut bytes| {
            // If the spool file is shorter, its missing end reads as zeros.
            bytes.resize(usize::try_from(range.len()).unwrap_or(usize::MAX), 0);
            bytes
        });
        Some(read)
    }

    /// The parts of a range that have to be fetched.
    pub(super) fn missing(&self, range: Range) -> Vec<Range> {
        self.state().missing(range)
    }

    /// Adds bytes of the base, except where something was written meanwhile.
    pub(super) fn fill(&self, offset: u64, bytes: &[u8]) -> std::io::Result<()> {
        let mut state = self.state();
        let fetched = Range::new(offset, bytes.len() as u64);
        for gap in state.missing(fetched) {
            let at = usize::try_from(gap.start() - offset).unwrap_or(usize::MAX);
            let length = usize::try_from(gap.len()).unwrap_or(0);
            let Some(part) = bytes.get(at..).and_then(|rest| rest.get(..length)) else { continue };
            self.file.write(gap.start(), part)?;
            state.add(gap);
        }
        Ok(())
    }

    /// Counts another handle that may write; false if it has left the spool.
    pub(super) fn begin_writing(&self) -> bool {
        let mut state = self.state();
        if state.has_left {
            return false;
        }
        state.handles.writers += 1;
        true
    }

    /// A handle that may write is closed. Returns whether it was the last.
    pub(super) fn end_writing(&self) -> bool {
        let mut state = self.state();
        state.handles.writers = state.handles.writers.saturating_sub(1);
        state.handles.writers == 0
    }

    /// Its next upload replaces this version.
    pub(super) fn replaces(&self, base: Identity) {
        let mut state = self.state();
        if let Some(path) = state.path.clone() {
            state.upload.attempts.settle(&path);
        }
        (state.base, state.is_record_old) = (Some(base), true);
    }

    /// An upload begins. It is recorded, in case this process ends before the response arrives. This is not made
    /// durable, to save a sync: without it, the upload is recognized by its content, as long as that does not change.
    pub(super) fn begin_upload(&self, root: &RelPath, attempt: Attempt) {
        let mut state = self.state();
        state.upload.attempts.begin(attempt);
        self.store_attempts(&state, root);
    }

    /// Stores what is known about uploads.
    fn store_attempts(&self, state: &State, root: &RelPath) {
        if let Some(last) = &mut *lock(&self.last) {
            // Nothing else: what was fetched since that record may not be durable.
            state.update_attempts(last, root);
            drop(self.file.store(last));
        }
    }

    /// The part file of an upload to `path` was removed.
    pub(super) fn forget_part(&self, path: &RelPath) {
        self.state().upload.attempts.forget_part(path);
    }

    /// Stops an upload of it as soon as that is possible without losing track of what the server has.
    pub(super) fn interrupt(&self) {
        self.state().upload.interrupts += 1;
        self.changed.notify_waiters();
        self.hurry.notify_one();
    }

    /// Sets permission bits or time of modification; false if it has left the spool.
    pub(super) fn set_metadata(&self, metadata: &Metadata) -> bool {
        let mut state = self.state();
        if state.has_left {
            return false;
        }
        if let Some(mode) = metadata.mode {
            state.mode = Some(mode);
        }
        if let Some(modified) = metadata.modified {
            state.modified = modified;
        }
        state.generations.metadata += 1;
        state.is_record_old = true;
        true
    }

    /// Makes everything so far durable. With `closed`, or if no handle may write, it counts as complete from now on.
    ///
    /// # Errors
    /// Of the spool.
    pub(super) async fn settle(
        self: &Arc<Self>,
        spool: &Arc<Spool>,
        root: &RelPath,
        closed: bool,
    ) -> Result<()> {
        let _turn = self.settling.lock().await;
        let (record, generation) = {
            let mut state = self.state();
            if (closed || state.handles.writers == 0) && !state.handles.closed {
                (state.handles.closed, state.is_record_old) = (true, true);
            }
            let is_durable =
                state.generations.content == state.generations.durable && !state.is_record_old;
            if is_durable {
                return Ok(());
            }
            let Some(record) = state.record(root) else { return Ok(()) };
            state.is_record_old = false;
            (record, state.generations.content)
        };
        let (own, spool, root) = (Arc::clone(self), Arc::clone(spool), root.clone());
        let store = move |own: &Self, record| own.store(record, generation, &root);
        let work = move || own.file.sync(&spool, record, |record| store(&own, record));
        let done = tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other);
        match done.and_then(|done| done) {
            Ok(()) => {
                let mut state = self.state();
                state.generations.durable = state.generations.durable.max(generation);
                Ok(())
            }
            Err(error) => {
                self.state().is_record_old = true;
                Err(Error::from_io("write to the spool", error))
            }
        }
    }

    /// Stores the record of a generation of the content. An upload may have begun, or ended, while the content was
    /// being synced: the attempts of this moment are added to those of the record, whose base is the version before
    /// them.
    fn store(&self, mut record: Record, generation: u64, root: &RelPath) -> std::io::Result<()> {
        // A change that comes later waits for this lock, and finds the record.
        let state = self.state();
        if state.generations.content != generation {
            record.reopen();
        }
        state.add_attempts(&mut record, root);
        self.file.store(&record)?;
        *lock(&self.last) = Some(record);
        drop(state);
        Ok(())
    }

    /// Records why the last upload failed; not durable, because nothing depends on it.
    pub(super) fn note_failure(&self, root: &RelPath, error: Error) {
        let mut state = self.state();
        state.upload.failures = state.upload.failures.saturating_add(1);
        state.upload.failure = Some(error);
        if state.generations.durable < state.generations.content || state.is_record_old {
            return;
        }
        let failure = state.record(root).and_then(|record| record.failure);
        if let Some(last) = &mut *lock(&self.last) {
            // Nothing else: what was fetched since that record may not be durable.
            last.failure = failure;
            drop(self.file.store(last));
        }
    }

    /// Whether a fetch of the rest in the background should begin: the file is incomplete, and none has begun yet.
    pub(super) fn begins_to_fill(&self) -> bool {
        self.state().is_partial() && !self.is_filling.swap(true, Ordering::AcqRel)
    }

    /// Removes it from the spool. Handles can still read it.
    pub(super) fn remove(&self) {
        self.file.remove();
    }

    /// It has no name any more: it will not be uploaded.
    pub(super) fn discard(&self) {
        self.state().path = None;
        self.file.remove();
        self.changed.notify_waiters();
    }

    /// Whether it has a record, by which the next process would find it.
    pub(super) fn is_recorded(&self) -> bool {
        lock(&self.last).is_some()
    }

    /// Whether it is still in the spool, and has a name.
    pub(super) fn is_live(&self) -> bool {
        !self.file.is_removed() && self.state().path.is_some()
    }
}

#[cfg(test)]
mod tests;
