//! Common to all ways of moving a file: how it is planned, committed and reported.

use haul_storage::{CommitOptions, Entry, Identity, Metadata, Replaces, Storage};

use crate::context::Context;
use crate::digest::Digest;
use crate::plan::Item;
use crate::{Action, CurrentFile, FileEvent, Overwrite, Reason};

/// Permission bits by which all users can read a file.
const OTHERS_READ: u32 = 0o044;

/// How the bytes of a file reached their destination.
#[derive(Debug, Clone, Default)]
pub struct Moved {
    /// Its length.
    pub bytes: u64,
    /// Its digest, if one was requested.
    pub digest: Option<Digest>,
    /// Bytes that an earlier run had left.
    pub resumed_bytes: u64,
    /// Bytes that were counted as moved, resumed or skipped (holes) before the end.
    pub counted_bytes: u64,
    /// Why it was copied.
    pub reason: Option<Reason>,
    /// The version of the source, if it was read.
    pub identity: Option<Identity>,
    /// Whether some users may not read the file that existed before, and its mode may have stayed.
    pub is_private: bool,
}

/// The entry of a file that begins, for the display of files in flight.
pub fn current(item: &Item) -> CurrentFile {
    CurrentFile {
        job: item.job.index,
        path: item.destination.clone(),
        size: item.source.known_size(),
        bytes: 0,
        bytes_per_second: 0,
    }
}

/// The length that a file is planned with.
pub fn planned(item: &Item) -> u64 {
    item.source.known_size().unwrap_or(0)
}

/// Whether a file is small: moved whole, in as few steps as the storages allow.
pub fn is_small(context: &Context, item: &Item) -> bool {
    let job = &item.job.job;
    let limit = |storage: &dyn Storage| storage.capabilities().whole_limit;
    let limit = limit(&*job.source).min(limit(&*job.destination));
    item.source.size <= limit.min(context.settings.memory / 8) && !context.settings.verify
}

/// What a file may replace under its name.
pub fn replaces(context: &Context) -> Replaces {
    match context.settings.overwrite {
        Overwrite::Never => Replaces::Nothing,
        Overwrite::Always | Overwrite::Different | Overwrite::Newer => Replaces::Any,
    }
}

/// How the file gets its name.
pub fn commit_options(context: &Context, item: &Item, found: Metadata) -> CommitOptions {
    let can = item.job.job.destination.capabilities();
    let time = found.modified;
    let metadata = context.wanted_metadata(found, &item.job, &item.destination, false);
    if let Some((time, becomes)) = time.zip(metadata.modified).filter(|(time, set)| time != set) {
        let name = item.job.destination_name(&item.destination);
        context.times.warn_lost(&context.tally, name, time, becomes);
    }
    CommitOptions {
        metadata,
        replace: replaces(context) != Replaces::Nothing,
        sync: context.settings.sync && can.sync,
        expected: None,
    }
}

/// Whether some users may not read the source of an item, or may not enter a directory above that is copied
/// as well.
fn is_private(context: &Context, item: &Item) -> bool {
    let mode = context.changed_mode(item.source.mode, false);
    mode.is_some_and(|mode| mode & OTHERS_READ != OTHERS_READ)
        || item.directory.as_ref().is_some_and(|above| above.is_private())
}

/// Whether some users may not read the existing file, and its mode stays.
pub fn keeps_mode(context: &Context, existing: Option<&Entry>) -> bool {
    !context.settings.preserve.mode && existing.is_some_and(keeps_out)
}

/// Whether the mode of a file keeps some users from reading it.
pub fn keeps_out(entry: &Entry) -> bool {
    entry.mode.is_some_and(|mode| mode & OTHERS_READ != OTHERS_READ)
}

/// Reports that an item is done.
pub fn report(context: &Context, item: &Item, action: Action, moved: &Moved) {
    let event = FileEvent {
        job: item.job.index,
        path: item.destination.clone(),
        bytes: moved.bytes,
        action,
        reason: moved.reason,
        resumed_bytes: moved.resumed_bytes,
        digest: moved.digest,
        private: moved.is_private || is_private(context, item),
        dry_run: context.settings.dry_run,
    };
    context.tally.file(event, moved.counted_bytes);
}
