//! Removes an entry of the destination with everything below it, except what has to stay.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use futures_util::StreamExt;
use haul_storage::{Entry, Error, ErrorKind, Metadata, RelPath, Result};

use super::mount::is_mount;
use crate::context::Context;
use crate::job::{Job, NumberedJob};
use crate::overlap::Probe;
use crate::transfer::{is_backup, move_to_backup};
use crate::{Action, FileEvent};

/// Permission bits that a directory's owner needs to change its entries.
const OWNER_WRITES: u32 = 0o300;

/// The device of the directory that contains an entry of the destination. `None` without `one_file_system`, or if it
/// is unknown.
async fn parent_device(context: &Context, job: &NumberedJob, entry: &Entry) -> Result<Option<u64>> {
    if !context.settings.one_file_system {
        return Ok(None);
    }
    let directory = match entry.path.parent() {
        Some(parent) => job.job.destination.stat(&parent).await?,
        None => entry.clone(),
    };
    Ok(directory.id.map(|id| id.device))
}

/// Why [`remove`] lets a directory stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stays {
    /// A file system is mounted there.
    Mounted,
    /// File systems are mounted below it.
    HasMounted,
    /// Entries below it are excluded.
    HasExcluded,
    /// Backups are below it.
    HasBackups,
    /// The storage reports that it is not empty, for another reason.
    HasOthers,
}

impl Stays {
    /// The directory, in the words of an error.
    pub const fn directory(self) -> &'static str {
        match self {
            Self::Mounted => "a mounted file system",
            Self::HasMounted => "a directory with a mounted file system",
            Self::HasExcluded => "a directory with excluded files",
            Self::HasBackups => "a directory with backups",
            Self::HasOthers => "a directory that is not empty",
        }
    }
}

/// The directories that are known to stay, and why. Each is dropped when the removal reaches it.
#[derive(Debug, Default)]
struct Staying(HashMap<RelPath, Stays>);

impl Staying {
    fn note(&mut self, directory: RelPath, why: Stays) {
        self.0.entry(directory).or_insert(why);
    }

    /// Notes the directories that contain the backup of a removed file.
    fn note_backup(&mut self, context: &Context, file: &RelPath) {
        let Some(backup) = &context.settings.backup else { return };
        let mut above = match &backup.directory {
            Some(directory) => directory.parent(),
            None => {
                if let Some(parent) = file.parent() {
                    self.note(parent, Stays::HasBackups);
                }
                return;
            }
        };
        while let Some(directory) = above {
            above = directory.parent();
            self.note(directory, Stays::HasBackups);
        }
    }
}

/// The outcome of removing one entry.
enum Removed {
    Done,
    /// It was gone already.
    Gone,
    /// It is a directory with something in it, so it stays.
    NotEmpty,
}

/// Why the removal of a directory leaves out an entry of it. `device` is that of [`parent_device`].
fn why_stays(
    context: &Context,
    job: &NumberedJob,
    device: Option<u64>,
    entry: &Entry,
) -> Option<Stays> {
    if !takes(context, &job.job, &job.job.destination_path, entry) {
        Some(Stays::HasExcluded)
    } else if is_backup(context, entry) {
        Some(Stays::HasBackups)
    } else {
        is_mount(device, entry).then_some(Stays::HasMounted)
    }
}

/// Removes an entry of the destination and everything below it that is neither excluded nor a backup, and reports each.
/// With `one_file_system`, file systems mounted there stay as they are. A directory in which something stays, stays.
/// Returns why `entry` itself stays, if it does.
///
/// A dry run returns and reports the same, and removes nothing.
///
/// # Errors
/// The first failure ends the removal. Directories that it made writable get their former modes back.
pub async fn remove(context: &Context, job: &NumberedJob, entry: &Entry) -> Result<Option<Stays>> {
    let mut pending = vec![(entry.clone(), None)];
    let outcome = remove_pending(context, job, entry, &mut pending).await;
    if outcome.is_err() {
        // The deepest first: a former mode may deny access to the directories below.
        for (directory, listed) in pending.iter().rev() {
            put_back(job, &directory.path, listed.flatten()).await;
        }
    }
    outcome
}

/// The entries left to remove. A directory that was listed has `Some` with its former mode, if that was changed.
type Pending = Vec<(Entry, Option<Option<u32>>)>;

/// Like [`remove`]. After an error, `pending` contains the entries left.
async fn remove_pending(
    context: &Context,
    job: &NumberedJob,
    entry: &Entry,
    pending: &mut Pending,
) -> Result<Option<Stays>> {
    let destination = &job.job.destination;
    let dry_run = context.settings.dry_run;
    let device = parent_device(context, job, entry).await?;
    if is_mount(device, entry) {
        return Ok(Some(Stays::Mounted));
    }
    let mut staying = Staying::default();
    // Hashes of the names in a directory: 8 bytes each.
    let hasher = RandomState::new();
    while let Some((next, listed)) = pending.pop() {
        if next.is_dir() && listed.is_none() {
            if job.is_local() && context.roots.ends.is_source(&next) {
                return Err(Error::new(ErrorKind::InvalidInput, "delete")
                    .at(job.destination_name(&next.path))
                    .because("it is a source of this run, under another path"));
            }
            let path = next.path.clone();
            let may = writable(&next).is_some() && !dry_run;
            let restore = if may { make_writable(job, &path).await } else { None };
            pending.push((next, Some(restore)));
            let mut listing = destination.list(&path).await?;
            let (mut names, mut seems_empty) = (HashSet::new(), true);
            while let Some(batch) = listing.next().await {
                for below in batch? {
                    let name = below.path.name();
                    names.insert(hasher.hash_one(name.to_ascii_lowercase()));
                    seems_empty &= name.starts_with(b".");
                    match why_stays(context, job, device, &below) {
                        Some(why) => staying.note(path.clone(), why),
                        None => pending.push((below, None)),
                    }
                }
            }
            if !dry_run {
                let answer = async |probe: Probe<'_>| match probe {
                    Probe::IsEmpty => Ok(seems_empty),
                    Probe::Has(name) => {
                        Ok(names.contains(&hasher.hash_one(name.to_ascii_lowercase())))
                    }
                };
                context.roots.overlaps.refuse_source(job, &path, answer).await?;
            }
            continue;
        }
        let why = staying.0.remove(&next.path);
        let removed = match (dry_run, why) {
            (true, Some(_)) => Removed::NotEmpty,
            (true, None) => Removed::Done,
            (false, _) => remove_one(context, job, &next, listed.flatten()).await?,
        };
        match removed {
            Removed::Gone => continue,
            Removed::NotEmpty => {
                let why = why.unwrap_or(Stays::HasOthers);
                if next.path == entry.path {
                    return Ok(Some(why));
                }
                if let Some(parent) = next.path.parent() {
                    staying.note(parent, why);
                }
                continue;
            }
            Removed::Done if next.is_dir() => {}
            Removed::Done => staying.note_backup(context, &next.path),
        }
        context.tally.note(FileEvent {
            job: job.index,
            bytes: next.known_size().unwrap_or(0),
            path: next.path,
            action: Action::Removed,
            reason: None,
            resumed_bytes: 0,
            digest: None,
            private: false,
            dry_run,
        });
    }
    Ok(None)
}

/// Removes one entry. A directory that stays gets back `mode`, its former one.
async fn remove_one(
    context: &Context,
    job: &NumberedJob,
    entry: &Entry,
    mode: Option<u32>,
) -> Result<Removed> {
    let destination = &job.job.destination;
    let removed = async {
        if !entry.is_dir() && move_to_backup(context, job, &entry.path).await? {
            return Ok(());
        }
        destination.remove(&entry.path).await
    };
    match removed.await {
        Ok(()) => Ok(Removed::Done),
        Err(error) if error.kind() == ErrorKind::NotEmpty => {
            if mode.is_some() {
                let metadata = Metadata { mode, ..Metadata::default() };
                let set = destination.set_metadata(&entry.path, &metadata).await;
                set.map_err(|error| error.at(job.destination_name(&entry.path)))?;
            }
            Ok(Removed::NotEmpty)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Removed::Gone),
        Err(error) => {
            put_back(job, &entry.path, mode).await;
            Err(error.at(job.destination_name(&entry.path)))
        }
    }
}

/// Gives a directory its former mode again after a failure. Errors here are ignored: the failure is reported.
pub(super) async fn put_back(job: &NumberedJob, directory: &RelPath, mode: Option<u32>) {
    if mode.is_some() {
        let metadata = Metadata { mode, ..Metadata::default() };
        drop(job.job.destination.set_metadata(directory, &metadata).await);
    }
}

/// Whether the filter includes an entry of a job's source or destination; `root` is the job's path there.
pub(super) fn takes(context: &Context, job: &Job, root: &RelPath, entry: &Entry) -> bool {
    let below = entry.path.strip_prefix(root).unwrap_or(entry.path.as_bytes());
    context.settings.filter.takes_in(job, below, entry.is_dir())
}

/// Lets the owner of a directory change its entries. Returns its former mode if that was necessary. Failures
/// are ignored: the removals that follow report theirs.
pub(super) async fn make_writable(job: &NumberedJob, directory: &RelPath) -> Option<u32> {
    let destination = &job.job.destination;
    let entry = destination.stat(directory).await.ok()?;
    let metadata = Metadata { mode: Some(writable(&entry)?), ..Metadata::default() };
    destination.set_metadata(directory, &metadata).await.ok()?;
    entry.mode
}

/// The mode that lets a directory's owner change its entries; `None` if the present one does or is unknown, and
/// for entries that are no directories.
pub fn writable(entry: &Entry) -> Option<u32> {
    let mode = entry.mode.filter(|mode| entry.is_dir() && mode & OWNER_WRITES != OWNER_WRITES)?;
    Some(mode | 0o700)
}
