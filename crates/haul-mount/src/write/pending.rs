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
            last.attempts = state.recorded_attempts(root);
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
        let (own, spool) = (Arc::clone(self), Arc::clone(spool));
        let work = move || own.file.sync(&spool, record, |record| own.store(record, generation));
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

    /// Stores the record of a generation of the content.
    fn store(&self, mut record: Record, generation: u64) -> std::io::Result<()> {
        // A change that comes later waits for this lock, and finds the record.
        let state = self.state();
        if state.generations.content != generation {
            record.reopen();
        }
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
mod tests {
    use haul_storage::ErrorKind;
    use tempfile::TempDir;

    use super::*;

    struct World {
        directory: TempDir,
        spool: Arc<Spool>,
    }

    impl World {
        fn new() -> Self {
            let directory = TempDir::new().unwrap();
            let spool = Arc::new(Spool::open(directory.path(), "x").unwrap());
            Self { directory, spool }
        }

        fn pending(&self, base: Option<u64>) -> Arc<Pending> {
            let path = RelPath::parse("a/b").unwrap();
            let base = base.map(|size| Entry::new(path.clone(), EntryKind::File, size));
            Pending::new(self.spool.create().unwrap(), path, base.as_ref(), StoredTimes::ALL)
                .unwrap()
        }

        /// What the next process finds.
        async fn recovered(self, pending: Arc<Pending>) -> (Self, Arc<Pending>) {
            pending.settle(&self.spool, &RelPath::root(), true).await.unwrap();
            drop((pending, self.spool));
            let spool = Arc::new(Spool::open(self.directory.path(), "x").unwrap());
            let (file, record) = spool.recover().unwrap().pop().unwrap();
            let path = record.rel_path().unwrap();
            let found = Pending::recovered(file, path, &record, StoredTimes::ALL, &RelPath::root());
            let found = found.unwrap();
            (Self { directory: self.directory, spool }, found)
        }
    }

    fn read(pending: &Pending, start: u64, length: u64) -> Option<Vec<u8>> {
        pending.read(Range::new(start, length)).map(|read| read.unwrap())
    }

    #[tokio::test]
    async fn written_bytes_are_read_back_also_by_the_next_process() {
        let world = World::new();
        let pending = world.pending(None);
        assert_eq!(pending.write(Some(3), b"abc").unwrap(), 3);
        assert_eq!(pending.write(None, b"def").unwrap(), 6);
        assert_eq!(read(&pending, 0, 100).unwrap(), b"\0\0\0abcdef");
        let (_world, found) = world.recovered(pending).await;
        assert_eq!(read(&found, 0, 100).unwrap(), b"\0\0\0abcdef");
        let entry = found.entry().unwrap();
        assert_eq!((entry.path.to_string(), entry.size), ("a/b".to_owned(), 9));
        assert!(!found.is_uploaded() && found.state().handles.closed);
    }

    #[tokio::test]
    async fn the_rest_of_a_file_is_fetched_around_what_was_written() {
        let world = World::new();
        let pending = world.pending(Some(10));
        assert_eq!(read(&pending, 0, 4), None);
        pending.write(Some(4), b"NEW").unwrap();
        assert_eq!(read(&pending, 4, 3).unwrap(), b"NEW");
        let gaps = [Range::new(0, 4), Range::new(7, 3)];
        assert_eq!(pending.missing(Range::new(0, 100)), gaps);
        let (_world, found) = world.recovered(pending).await;
        assert_eq!(found.missing(Range::new(0, 100)), gaps);
        found.fill(0, b"0123456789").unwrap();
        assert_eq!(read(&found, 0, 100).unwrap(), b"0123NEW789");
    }

    #[tokio::test]
    async fn a_file_that_is_changed_after_it_was_closed_does_not_count_as_closed() {
        let world = World::new();
        let pending = world.pending(None);
        // Too long for a digest in the record.
        pending.write(None, &vec![7; 2 << 20]).unwrap();
        pending.settle(&world.spool, &RelPath::root(), true).await.unwrap();
        pending.write(Some(0), b"new").unwrap();
        let closed = |world: &World| world.spool.recover().unwrap().remove(0).1.closed;
        assert!(!closed(&world));
        pending.settle(&world.spool, &RelPath::root(), true).await.unwrap();
        assert!(closed(&world));
    }

    /// Formerly the next process counted it as complete, if this one ended before the conflict copy was made.
    #[tokio::test]
    async fn a_file_that_was_left_open_stays_so_until_it_is_uploaded() {
        let mut world = World::new();
        let mut pending = world.pending(Some(3));
        assert!(pending.begin_writing());
        pending.write(Some(0), b"new").unwrap();
        pending.settle(&world.spool, &RelPath::root(), false).await.unwrap();
        for _ in 0..2 {
            drop((pending, world.spool));
            let spool = Arc::new(Spool::open(world.directory.path(), "x").unwrap());
            world = World { directory: world.directory, spool };
            let (file, record) = world.spool.recover().unwrap().pop().unwrap();
            assert!(!record.closed);
            let path = record.rel_path().unwrap();
            pending = Pending::recovered(file, path, &record, StoredTimes::ALL, &RelPath::root())
                .unwrap();
            assert!(pending.state().handles.was_left_open);
            pending.settle(&world.spool, &RelPath::root(), true).await.unwrap();
        }
        pending.state().complete();
        pending.settle(&world.spool, &RelPath::root(), true).await.unwrap();
        assert!(world.spool.recover().unwrap().remove(0).1.closed);
    }

    #[test]
    fn a_record_of_an_earlier_generation_is_not_closed() {
        let world = World::new();
        let pending = world.pending(None);
        pending.write(None, &vec![7; 2 << 20]).unwrap();
        let record = pending.state().record(&RelPath::root()).unwrap();
        let (record, generation) =
            (Record { closed: true, ..record }, pending.state().generations.content);
        let closed = || world.spool.recover().unwrap().remove(0).1.closed;
        pending.store(record.clone(), generation).unwrap();
        assert!(closed());
        pending.write(Some(0), b"new").unwrap();
        assert!(!closed());
        // As if the change had come just before the record was stored.
        pending.store(record, generation).unwrap();
        assert!(!closed());
    }

    #[tokio::test]
    async fn a_long_message_of_a_server_does_not_keep_a_file_from_being_recorded() {
        let world = World::new();
        let pending = world.pending(None);
        pending.write(None, b"new").unwrap();
        let error = Error::new(ErrorKind::PermissionDenied, "upload");
        pending.note_failure(&RelPath::root(), error.because("\u{1}".repeat(100_000)));
        pending.settle(&world.spool, &RelPath::root(), true).await.unwrap();
        assert!(world.spool.recover().unwrap().remove(0).1.failure.is_some());
    }

    /// The longest file that the file system of the spool can hold.
    fn longest(file: &SpoolFile) -> u64 {
        let (mut fits, mut fails) = (0, 1 << 63);
        while fails - fits > 1 {
            let middle = fits + (fails - fits) / 2;
            match file.set_size(middle) {
                Ok(()) => fits = middle,
                Err(_) => fails = middle,
            }
        }
        fits
    }

    #[test]
    fn a_write_that_fails_after_a_part_leaves_nothing_behind_the_end() {
        let world = World::new();
        let most = longest(&world.spool.create().unwrap());
        let pending = world.pending(None);
        pending.write(None, b"content").unwrap();
        // The first two bytes fit, unless the file system has no limit of its own.
        pending.write(Some(most - 2), b"long").unwrap_err();
        assert_eq!((pending.file.size().unwrap(), pending.state().size), (7, 7));
    }

    #[test]
    fn bytes_that_were_cut_off_are_not_fetched() {
        let pending = World::new().pending(Some(10));
        pending.set_size(4).unwrap();
        pending.set_size(8).unwrap();
        assert_eq!(pending.missing(Range::new(0, 100)), [Range::new(0, 4)]);
        pending.fill(0, b"0123456789").unwrap();
        assert_eq!(read(&pending, 0, 100).unwrap(), b"0123\0\0\0\0");
        pending.set_size(0).unwrap();
        assert_eq!(read(&pending, 0, 100).unwrap(), b"");
    }

    #[test]
    fn a_hole_is_not_fetched() {
        let pending = World::new().pending(Some(10));
        if pending.punch(Range::new(2, 100)).is_err() {
            // The file system of temporary files has no holes.
            return;
        }
        pending.fill(0, b"0123456789").unwrap();
        assert_eq!(read(&pending, 0, 100).unwrap(), b"01\0\0\0\0\0\0\0\0");
    }
}
