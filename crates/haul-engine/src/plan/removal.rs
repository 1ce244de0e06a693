//! Removes an entry of the destination with everything below it, except what has to stay.

use std::collections::HashMap;

use futures_util::StreamExt;
use haul_storage::{Entry, Error, ErrorKind, Metadata, RelPath, Result};

use super::mount::is_mount;
use super::writable::{make_writable, put_back, writable};
use crate::context::Context;
use crate::job::{Job, NumberedJob};
use crate::overlap::Probe;
use crate::transfer::{is_backup, move_to_backup};
use crate::tree::ROUNDS;
use crate::{Action, FileEvent};

/// Entries of a directory that are kept until it is known that the directory is not the source. If more have to be read
/// for that, the directory is listed again.
const KEPT: usize = 1024;

/// Subdirectories that wait while their directory is listed. Beyond that, each is removed at once.
const MAX_PENDING: usize = 4096;

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
/// A dry run removes nothing, and returns and reports the same, except for what only a removal shows: a directory that
/// is the source but whose file ID does not show it, entries that a listing left out, and refusals of the storage.
///
/// # Errors
/// `InvalidInput` if a source of the run is found there, and those of the storages. The first failure ends the removal.
/// Directories that it made writable get their former modes back.
pub async fn remove(context: &Context, job: &NumberedJob, entry: &Entry) -> Result<Option<Stays>> {
    let mut removal = Removal::new(context, job, parent_device(context, job, entry).await?);
    removal.run(entry).await
}

/// What [`remove`] would do with an entry and everything below it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Count {
    /// Entries that it would remove.
    pub removed: u64,
    /// Entries below the first that are neither excluded nor backups, and on the same file system.
    pub below: u64,
}

/// Counts what [`remove`] would remove.
///
/// # Errors
/// Those of listing.
pub async fn count(context: &Context, job: &NumberedJob, entry: &Entry) -> Result<Count> {
    let mut removal = Removal::new(context, job, parent_device(context, job, entry).await?);
    removal.counts = Some(Count::default());
    removal.run(entry).await?;
    Ok(removal.counts.unwrap_or_default())
}

/// The top entry and the directories below it that are left to remove. One that was listed has `Some` with its former
/// mode, if that was changed.
type Pending = Vec<(Entry, Option<Option<u32>>)>;

/// The removal of an entry and everything below it. Memory does not grow with the number of files, each of which is
/// removed when it is listed, nor with that of the subdirectories of a directory ([`MAX_PENDING`]).
struct Removal<'a> {
    context: &'a Context,
    job: &'a NumberedJob,
    /// That of [`parent_device`].
    device: Option<u64>,
    staying: Staying,
    /// How often the directories were listed that were not empty afterwards, for no known reason.
    rounds: HashMap<RelPath, u32>,
    /// For [`count`]: nothing is removed or reported.
    counts: Option<Count>,
}

/// What has become of an entry.
enum Taken {
    Gone,
    Stays(Stays),
    /// It is a directory with entries that were not listed: some listings leave entries out while others are removed.
    Again,
}

impl<'a> Removal<'a> {
    fn new(context: &'a Context, job: &'a NumberedJob, device: Option<u64>) -> Self {
        let (staying, rounds) = (Staying::default(), HashMap::new());
        Self { context, job, device, staying, rounds, counts: None }
    }

    /// Whether nothing is removed.
    fn is_dry(&self) -> bool {
        self.context.settings.dry_run || self.counts.is_some()
    }

    /// Does what [`remove`] documents.
    async fn run(&mut self, entry: &Entry) -> Result<Option<Stays>> {
        let mut pending = vec![(entry.clone(), None)];
        let outcome = self.remove_pending(entry, &mut pending).await;
        if outcome.is_err() {
            // The deepest first: a former mode may deny access to the directories below.
            for (directory, listed) in pending.iter().rev() {
                put_back(self.job, &directory.path, listed.flatten()).await;
            }
        }
        outcome
    }

    /// The same, without giving modes back: after an error, `pending` contains the directories left.
    async fn remove_pending(
        &mut self,
        entry: &Entry,
        pending: &mut Pending,
    ) -> Result<Option<Stays>> {
        let (context, job) = (self.context, self.job);
        if is_mount(self.device, entry) {
            return Ok(Some(Stays::Mounted));
        }
        while let Some((next, listed)) = pending.pop() {
            if next.is_dir() && listed.is_none() {
                let is_counted = self.counts.is_some();
                if !is_counted && job.is_local() && context.roots.ends.is_source(&next) {
                    return Err(Error::new(ErrorKind::InvalidInput, "delete")
                        .at(job.destination_name(&next.path))
                        .because("it is a source of this run, under another path"));
                }
                let path = next.path.clone();
                let may = writable(&next).is_some() && !self.is_dry();
                let restore = if may { make_writable(job, &path).await } else { None };
                pending.push((next, Some(restore)));
                // Boxed: the futures of all transfers contain that of a removal.
                Box::pin(self.clear(&path, pending)).await?;
                continue;
            }
            match self.take(&next, listed.flatten()).await? {
                Taken::Again => pending.push((next, None)),
                Taken::Stays(why) if pending.is_empty() => return Ok(Some(why)),
                Taken::Stays(_) | Taken::Gone => {}
            }
        }
        Ok(None)
    }

    /// Removes the files and links in a directory, and adds its subdirectories to `pending`, or removes them as well if
    /// too many are pending.
    async fn clear(&mut self, directory: &RelPath, pending: &mut Pending) -> Result<()> {
        let (context, job) = (self.context, self.job);
        let mut listing = job.job.destination.list(directory).await?.fuse();
        let mut batch = Vec::new();
        if !self.is_dry() {
            while batch.len() < KEPT
                && let Some(next) = listing.next().await
            {
                batch.extend(next?);
            }
            let mut has_read_on = false;
            let answer = async |probe: Probe<'_>| {
                let decides = |below: &Entry| probe.decided_by(below.path.name());
                let mut decided = batch.iter().find_map(decides);
                while decided.is_none()
                    && let Some(next) = listing.next().await
                {
                    has_read_on = true;
                    decided = next?.iter().find_map(decides);
                }
                Ok(decided.unwrap_or(probe.otherwise()))
            };
            context.roots.overlaps.refuse_source(job, directory, answer).await?;
            if has_read_on {
                listing = job.job.destination.list(directory).await?.fuse();
                batch.clear();
            }
        }
        loop {
            for below in batch {
                let stays = why_stays(context, job, self.device, &below);
                if let (Some(counts), None) = (&mut self.counts, stays) {
                    counts.below += 1;
                }
                match stays {
                    Some(why) => self.staying.note(directory.clone(), why),
                    None if below.is_dir() && pending.len() < MAX_PENDING => {
                        pending.push((below, None));
                    }
                    None if below.is_dir() => drop(self.run(&below).await?),
                    None => {
                        self.take(&below, None).await?;
                    }
                }
            }
            match listing.next().await {
                Some(next) => batch = next?,
                None => return Ok(()),
            }
        }
    }

    /// Removes and reports a file, a link, or a directory that has been listed. A directory that stays gets back
    /// `mode`, its former one.
    async fn take(&mut self, entry: &Entry, mode: Option<u32>) -> Result<Taken> {
        let (context, job) = (self.context, self.job);
        let dry_run = context.settings.dry_run;
        let why = self.staying.0.remove(&entry.path);
        let removed = match (self.is_dry(), why) {
            (true, Some(_)) => Removed::NotEmpty,
            (true, None) => Removed::Done,
            (false, _) => remove_one(context, job, entry, mode).await?,
        };
        match removed {
            Removed::Gone => return Ok(Taken::Gone),
            Removed::NotEmpty => {
                if why.is_none() {
                    let rounds = self.rounds.entry(entry.path.clone()).or_default();
                    *rounds += 1;
                    if *rounds < ROUNDS {
                        return Ok(Taken::Again);
                    }
                }
                let why = why.unwrap_or(Stays::HasOthers);
                if let Some(parent) = entry.path.parent() {
                    self.staying.note(parent, why);
                }
                return Ok(Taken::Stays(why));
            }
            Removed::Done if entry.is_dir() => {}
            Removed::Done => self.staying.note_backup(context, &entry.path),
        }
        if let Some(counts) = &mut self.counts {
            counts.removed += 1;
            return Ok(Taken::Gone);
        }
        context.tally.note(FileEvent {
            job: job.index,
            bytes: entry.known_size().unwrap_or(0),
            path: entry.path.clone(),
            action: Action::Removed,
            reason: None,
            resumed_bytes: 0,
            digest: None,
            private: false,
            dry_run,
        });
        Ok(Taken::Gone)
    }
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

/// Whether the filter includes an entry of a job's source or destination; `root` is the job's path there.
pub(super) fn takes(context: &Context, job: &Job, root: &RelPath, entry: &Entry) -> bool {
    let below = entry.path.strip_prefix(root).unwrap_or(entry.path.as_bytes());
    context.settings.filter.takes_in(job, below, entry.is_dir())
}
