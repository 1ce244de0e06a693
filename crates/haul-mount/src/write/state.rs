//! What is known about a file in the spool: its content and metadata, which changes are durable and uploaded, which
//! handles may write, and the progress of its upload. `Pending` holds it under a lock.

use std::time::SystemTime;

use haul_storage::{
    Entry, Error, ErrorKind, Identity, Metadata, Range, RangeSet, RelPath, Timestamp,
};

use super::conflict::{ConflictCopy, Reason};
use super::record::{Present, Record, RecordedAttempt, RecordedCopy, Version};
use super::sent::{Attempts, MOST as MOST_ATTEMPTS};
use super::warning::Warning;

/// Most characters of an error message in a record.
const MOST_FAILURE: usize = 1000;

/// Most bytes of paths in a record, besides its own.
const MOST_PATHS: usize = 1024;

/// What is known about a file in the spool.
#[derive(Debug)]
pub(super) struct State {
    /// Its path in the storage; `None` once it is removed.
    pub(super) path: Option<RelPath>,
    pub(super) size: u64,
    pub(super) mode: Option<u32>,
    pub(super) modified: Timestamp,
    /// The version that it replaces; `None` for a new file.
    pub(super) base: Option<Identity>,
    /// What is not in the spool; `None` if everything is.
    rest: Option<Rest>,
    pub(super) generations: Generations,
    pub(super) handles: HandleState,
    pub(super) upload: UploadState,
    /// The record differs from the durable one.
    pub(super) is_record_old: bool,
    /// It is uploaded and no longer in the spool; nothing may be written any more.
    pub(super) has_left: bool,
}

/// The bytes before `end` that are not `present` are those of the base.
#[derive(Debug)]
struct Rest {
    end: u64,
    present: RangeSet,
    /// The missing bytes can no longer be fetched by the path, only by a handle that is still open.
    is_lost: bool,
}

/// What the upload of a file replaces: the version `base`, or one that was uploaded from here.
#[derive(Debug, Clone, Default)]
pub(super) struct Onto {
    pub(super) base: Option<Identity>,
    pub(super) attempts: Attempts,
}

/// Counts of changes, and how many of them are durable and uploaded.
#[derive(Debug, Default)]
pub(super) struct Generations {
    /// Changes of the content.
    pub(super) content: u64,
    /// Changes of the content that are durable.
    pub(super) durable: u64,
    /// Changes of the content that are uploaded.
    pub(super) uploaded: u64,
    /// Changes of the metadata.
    pub(super) metadata: u64,
    /// Changes of the metadata that are uploaded.
    pub(super) metadata_uploaded: u64,
}

/// Which handles are open, and whether the content is complete.
#[derive(Debug, Default)]
pub(super) struct HandleState {
    /// Handles that may write.
    pub(super) writers: usize,
    /// It was closed or synced, and has not changed since; otherwise it may be incomplete.
    pub(super) closed: bool,
    /// An earlier process ended while it was open.
    pub(super) was_left_open: bool,
}

/// The progress of its upload.
#[derive(Debug, Default)]
pub(super) struct UploadState {
    /// What was uploaded, or may have been, until the server has reported its version, which then is the base.
    pub(super) attempts: Attempts,
    /// It is a copy, of which the user does not know yet.
    pub(super) copy: Option<ConflictCopy>,
    /// It waits for its upload, or is being uploaded.
    pub(super) is_queued: bool,
    /// A program waits for its upload, although the file may be open.
    pub(super) is_wanted: bool,
    /// Counts reasons to stop an upload: it is renamed or removed.
    pub(super) interrupts: u64,
    /// Failed uploads in a row.
    pub(super) failures: u32,
    /// Why the last upload failed.
    pub(super) failure: Option<Error>,
}

impl State {
    /// A file that replaces `base` (a new file without it), and begins with its content.
    pub(super) fn new(path: RelPath, size: u64, base: Option<&Entry>) -> Self {
        let modified = base.and_then(|base| base.modified);
        Self {
            path: Some(path),
            size,
            mode: base.and_then(|base| base.mode),
            modified: modified.unwrap_or_else(now),
            base: base.map(Entry::identity),
            rest: (size > 0).then(|| Rest { end: size, present: RangeSet::new(), is_lost: false }),
            generations: Generations {
                // A new file has to be uploaded even if nothing is written.
                content: u64::from(base.is_none()),
                ..Generations::default()
            },
            handles: HandleState::default(),
            upload: UploadState::default(),
            is_record_old: true,
            has_left: false,
        }
    }

    /// A file that an earlier process has left at `path`; `size` is that of its content in the spool. `root` is the
    /// mounted directory.
    pub(super) fn recovered(path: RelPath, size: u64, record: &Record, root: &RelPath) -> Self {
        let rest = record.present.as_ref().map(|present| {
            let mut ranges = present.ranges();
            ranges.remove(Range::between(size, u64::MAX));
            Rest { end: present.end().min(size), present: ranges, is_lost: present.is_lost() }
        });
        let (seconds, nanos) = record.modified;
        let attempts = record.attempts.iter().filter_map(|one| one.attempt(&path, root)).collect();
        let copy = record.copy.as_ref().and_then(|copy| copy.copy(&path));
        Self {
            path: Some(path),
            size,
            mode: record.mode,
            modified: Timestamp { seconds, nanos },
            base: record.base.as_ref().map(Identity::from),
            rest,
            generations: Generations {
                content: record.generation.max(1),
                durable: record.generation,
                ..Generations::default()
            },
            handles: HandleState {
                writers: 0,
                closed: record.closed,
                was_left_open: !record.closed,
            },
            upload: UploadState { attempts, copy, ..UploadState::default() },
            is_record_old: false,
            has_left: false,
        }
    }

    /// The record of this moment; `None` once the file is removed. `root` is the mounted directory.
    pub(super) fn record(&self, root: &RelPath) -> Option<Record> {
        let failure = self.upload.failure.as_ref().map(Error::cause);
        let path = self.path.as_ref()?;
        Some(Record {
            path: path.strip_prefix(root)?.to_vec(),
            base: self.base.as_ref().map(Version::from),
            present: self
                .rest
                .as_ref()
                .map(|rest| Present::of(&rest.present, rest.end, rest.is_lost)),
            mode: self.mode,
            modified: (self.modified.seconds, self.modified.nanos),
            generation: self.generations.content,
            // What an earlier process left open does not become complete by being settled.
            closed: self.handles.closed && !self.handles.was_left_open,
            digest: None,
            // A server may send a long text, and a slot is short.
            failure: failure.map(|text| text.chars().take(MOST_FAILURE).collect()),
            attempts: self.recorded_attempts(path, root),
            copy: self.upload.copy.as_ref().map(RecordedCopy::of),
        })
    }

    /// Replaces the attempts of a record, which may be older than a rename of the file, by those of this moment.
    pub(super) fn update_attempts(&self, record: &mut Record, root: &RelPath) {
        if let Some(path) = record.rel_path() {
            record.attempts = self.recorded_attempts(&root.join_path(&path), root);
        }
    }

    /// The same, but keeps attempts that the record has, as far as they fit.
    pub(super) fn add_attempts(&self, record: &mut Record, root: &RelPath) {
        let earlier = std::mem::take(&mut record.attempts);
        self.update_attempts(record, root);
        let mut length: usize = record.attempts.iter().map(RecordedAttempt::path_length).sum();
        for attempt in earlier.into_iter().rev() {
            let with_it = length + attempt.path_length();
            let fits = record.attempts.len() < MOST_ATTEMPTS && with_it <= MOST_PATHS;
            if fits && !record.attempts.contains(&attempt) {
                length = with_it;
                record.attempts.insert(0, attempt);
            }
        }
    }

    /// The attempts as they are in a record of the file at `path`; those with long paths of their own are left out.
    fn recorded_attempts(&self, path: &RelPath, root: &RelPath) -> Vec<RecordedAttempt> {
        let mut length = 0;
        let attempts = self.upload.attempts.recent();
        let recorded = attempts.filter_map(|attempt| RecordedAttempt::of(attempt, path, root));
        recorded
            .filter(|attempt| {
                let with_it = length + attempt.path_length();
                let fits = attempt.path_length() == 0 || with_it <= MOST_PATHS;
                if fits {
                    length = with_it;
                }
                fits
            })
            .collect()
    }

    /// Moves it to another path, where it replaces what `onto` describes.
    pub(super) fn move_to(&mut self, path: RelPath, onto: Onto) {
        if let Some(from) = self.path.take() {
            self.upload.attempts.leave(&from);
        }
        self.upload.attempts.inherit(&onto.attempts, &path);
        (self.path, self.base, self.is_record_old) = (Some(path), onto.base, true);
    }

    /// What its upload replaces.
    pub(super) fn onto(&self) -> Onto {
        Onto { base: self.base.clone(), attempts: self.upload.attempts.clone() }
    }

    /// What is not in the spool can no longer be fetched by its path.
    pub(super) const fn lose_rest(&mut self) {
        if let Some(rest) = &mut self.rest {
            rest.is_lost = true;
            self.is_record_old = true;
        }
    }

    /// Whether a part of it is not in the spool, and can no longer be fetched by its path.
    pub(super) fn is_rest_lost(&self) -> bool {
        self.rest.as_ref().is_some_and(|rest| rest.is_lost)
    }

    /// It has been uploaded, or moved to where it replaces nothing: it no longer counts as left open.
    pub(super) const fn complete(&mut self) {
        self.is_record_old |= self.handles.was_left_open;
        self.handles.was_left_open = false;
    }

    /// Whether nothing of it is on the server, as far as is known.
    pub(super) const fn is_new(&self) -> bool {
        self.base.is_none() && self.generations.uploaded == 0
    }

    /// It would replace a file by an empty one.
    pub(super) const fn is_emptied(&self) -> bool {
        self.size == 0 && self.generations.content > 0 && !self.is_new()
    }

    /// A range is in the spool.
    pub(super) fn add(&mut self, range: Range) {
        let Some(rest) = &mut self.rest else { return };
        rest.present.insert(range);
        if rest.present.prefix() >= rest.end {
            self.rest = None;
        }
    }

    /// The length of the content has changed.
    pub(super) fn resize(&mut self, size: u64) {
        if let Some(rest) = &mut self.rest {
            rest.end = rest.end.min(size);
            rest.present.remove(Range::between(size, u64::MAX));
            if rest.present.prefix() >= rest.end {
                self.rest = None;
            }
        }
        self.size = size;
        self.on_change();
    }

    /// Whether a part of it is not in the spool.
    pub(super) const fn is_partial(&self) -> bool {
        self.rest.is_some()
    }

    /// The content has changed.
    pub(super) fn on_change(&mut self) {
        self.generations.content += 1;
        self.handles.closed = false;
        self.modified = now();
    }

    pub(super) fn missing(&self, range: Range) -> Vec<Range> {
        let Some(rest) = &self.rest else { return Vec::new() };
        rest.present.gaps(range.intersection(Range::between(0, rest.end)))
    }

    /// It cannot be uploaded, because a part of it is neither in the spool nor on the server.
    pub(super) fn is_stranded(&self) -> bool {
        let is_incomplete = |copy: &ConflictCopy| copy.reason == Reason::Incomplete;
        self.is_partial() && self.upload.copy.as_ref().is_some_and(is_incomplete)
    }

    /// The warning about the copy that the file has become, to be reported once; `None` if there is none to report.
    pub(super) fn take_warning(&mut self) -> Option<Warning> {
        let path = self.path.clone()?;
        let copy = self.upload.copy.take()?;
        self.is_record_old = true;
        // An incomplete one was reported at once.
        (copy.reason != Reason::Incomplete).then(|| copy.warning(path))
    }

    /// Whether all changes are uploaded.
    pub(super) const fn is_uploaded(&self) -> bool {
        self.generations.uploaded >= self.generations.content
    }

    /// Whether all changes of metadata are uploaded.
    pub(super) const fn is_metadata_uploaded(&self) -> bool {
        self.generations.metadata_uploaded >= self.generations.metadata
    }

    /// Metadata to set on its upload.
    pub(super) fn metadata(&self) -> Metadata {
        let modified = Some(self.modified);
        Metadata { mode: self.mode, modified, ..Metadata::default() }
    }

    /// The error of a failed upload, for a program that waits for the upload.
    pub(super) fn failure(&self) -> Error {
        let failure = self.upload.failure.as_ref().map(Error::again);
        failure.unwrap_or_else(|| Error::new(ErrorKind::Interrupted, "upload"))
    }
}

/// The time of this moment.
pub(super) fn now() -> Timestamp {
    SystemTime::now().into()
}

#[cfg(test)]
mod tests {
    use super::super::sent::{Attempt, Sent};
    use super::*;

    /// Formerly, none of those after it was recorded, unless it was at the path of the file.
    #[test]
    fn an_attempt_with_a_path_that_is_too_long_leaves_room_for_the_others() {
        let path = |text: &str| RelPath::parse(text).unwrap();
        let mut state = State::new(path("file"), 0, None);
        let long = format!("{0}/{0}/{0}/{0}/{0}/{0}", "n".repeat(200));
        for path in [path(&long), path("before"), path("file")] {
            let sent = Sent { size: 1, modified: None, digest: None };
            state.upload.attempts.begin(Attempt { path, sent, has_part: true });
        }
        let recorded = state.recorded_attempts(&path("file"), &RelPath::root());
        assert_eq!(recorded.iter().map(RecordedAttempt::path_length).collect::<Vec<_>>(), [6, 0]);
    }
}
