//! `sync --delete`: removes entries of the destination that the source does not have.
//!
//! The pass runs over the destination's tree after everything was copied, when it is known whether all
//! listings of the source were complete: if one failed, nothing is removed anywhere (without
//! `--ignore-errors`). Each entry of the destination is looked up at the source by name, and is a candidate
//! only if the response is a plain "not found", or if the filter excludes the source's entry. Candidates stay
//! if the source lists them nevertheless (a server may report as missing what the user may not access), or if
//! they are entries of the source whose names the destination changed: file systems ignore case, normalise
//! characters, drop dots at the end of a name.

use std::collections::HashSet;
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt, stream};
use haul_storage::{
    Entry, Error, ErrorKind, Medium, Metadata, RelPath, Result, StorageExt, is_part_name,
};

use super::folded::fold;
use super::mount::is_mount;
use super::removal::{count, remove, takes};
use super::writable::{make_writable, put_back};
use crate::context::Context;
use crate::job::NumberedJob;
use crate::marker::{is_stale_marker, remove_stale_marker};
use crate::overlap::Probe;
use crate::transfer::is_backup;
use crate::{DeleteLimit, Job};

/// Candidates of a directory that are checked against one listing of the source.
const BATCH: usize = 8192;

/// Maximum of pending directories. Beyond it a subdirectory is visited at once.
const MAX_PENDING: usize = 4096;

/// Removes the entries of a job's destination that its source does not have. Excluded entries stay.
///
/// # Errors
///
/// If the deletion is refused as a whole, or that cannot be decided (a root, or a directory to count, cannot be read);
/// failures of single entries are reported and counted.
pub async fn delete_extra(context: &Context, job: &NumberedJob) -> Result<()> {
    if let Some(limit) = context.settings.delete_limit {
        let pass = Pass::new(context, job, false).await?;
        pass.run().await?;
        let (candidates, entries) = (pass.candidates.into_inner(), pass.entries.into_inner());
        let most = match limit {
            DeleteLimit::Entries(most) => most,
            DeleteLimit::Percent(percent) => (entries as f64 * percent / 100.0) as u64,
        };
        if candidates > most {
            return Err(refusal(job, &job.job.destination_path).because(format!(
                "{candidates} of {entries} entries would be removed, and at most {most} are allowed; \
                 nothing was removed"
            )));
        }
    }
    Pass::new(context, job, true).await?.run().await
}

fn refusal(job: &NumberedJob, path: &RelPath) -> Error {
    Error::new(ErrorKind::InvalidInput, "delete").at(job.destination_name(path))
}

/// One pass over the destination's tree, to count or to remove.
struct Pass<'a> {
    context: &'a Context,
    job: &'a NumberedJob,
    removes: bool,
    pending: Mutex<Vec<RelPath>>,
    /// Whether the source is known not to be empty, or is allowed to be (`delete_from_empty`).
    source_has_entries: AtomicBool,
    candidates: AtomicU64,
    /// Entries of the destination that may be removed if the source does not have them.
    entries: AtomicU64,
    /// Devices of the roots of source and destination, with `one_file_system`.
    devices: [Option<u64>; 2],
}

impl<'a> Pass<'a> {
    async fn new(context: &'a Context, job: &'a NumberedJob, removes: bool) -> Result<Self> {
        let Job { source, source_path, destination, destination_path, .. } = &job.job;
        let mut devices = [None, None];
        if context.settings.one_file_system {
            let device = |entry: Entry| entry.id.map(|id| id.device);
            devices[0] = device(source.stat(source_path).await?);
            devices[1] = device(destination.stat(destination_path).await?);
        }
        Ok(Self {
            devices,
            context,
            job,
            removes,
            pending: Mutex::new(vec![RelPath::root()]),
            source_has_entries: AtomicBool::new(context.settings.delete_from_empty),
            candidates: AtomicU64::new(0),
            entries: AtomicU64::new(0),
        })
    }

    /// Whether a file system other than that of the destination's root is mounted at an entry.
    fn is_mount(&self, entry: &Entry) -> bool {
        is_mount(self.devices[1], entry)
    }

    async fn run(&self) -> Result<()> {
        let at_once = match self.job.job.source.capabilities().medium {
            Medium::Disk => 1,
            Medium::Link => 16,
        };
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < at_once {
                let next = self.pending.lock().unwrap_or_else(PoisonError::into_inner).pop();
                let Some(below) = next else { break };
                running.push(Box::pin(self.visit(below)));
            }
            let Some(outcome) = running.next().await else { return Ok(()) };
            outcome?;
            if self.context.cancel.is_cancelled() {
                return Ok(());
            }
        }
    }

    fn source_path(&self, below: &RelPath) -> Result<RelPath> {
        joined(&self.job.job.source_path, below)
    }

    fn destination_path(&self, below: &RelPath) -> Result<RelPath> {
        joined(&self.job.job.destination_path, below)
    }

    /// Visits a directory that both sides have. An error that is returned ends the pass; errors of single
    /// entries are reported here.
    async fn visit(&self, below: RelPath) -> Result<()> {
        let (source, destination) = (self.source_path(&below)?, self.destination_path(&below)?);
        let mut touched = Touched::default();
        let outcome = self.clear(&below, &source, &destination, &mut touched).await;
        if touched.removed {
            self.finish_again(&source, &destination, touched.restore).await;
        }
        outcome
    }

    /// Counts or removes the entries of one directory that the source does not have.
    async fn clear(
        &self,
        below: &RelPath,
        source: &RelPath,
        destination: &RelPath,
        touched: &mut Touched,
    ) -> Result<()> {
        let mut missing = Vec::new();
        let mut listing = match self.job.job.destination.list(destination).await {
            Ok(listing) => listing,
            Err(error) => {
                self.context.tally.fail(error.at(self.job.destination_name(destination)));
                return Ok(());
            }
        };
        let at_once = self.lookups_at_once();
        while let Some(batch) = listing.next().await {
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => {
                    self.context.tally.fail(error.at(self.job.destination_name(destination)));
                    continue;
                }
            };
            let looked = stream::iter(batch).map(|entry| self.look(source, entry));
            let looked: Vec<Looked> = looked.buffer_unordered(at_once).collect().await;
            for looked in looked {
                match looked {
                    Looked::Skip => {}
                    Looked::Missing(entry) => missing.push(entry),
                    Looked::Directory(entry) => self.descend(below, entry.path.name()).await?,
                    Looked::InTheWay(entry) => {
                        match count(self.context, self.job, &entry).await {
                            Ok(count) => _ = self.entries.fetch_add(count.below, Ordering::Relaxed),
                            // Without it the limit is lower. The directory stays in any case.
                            Err(error) => {
                                let at = self.job.destination_name(&entry.path);
                                self.context.tally.fail(error.at(at));
                            }
                        }
                    }
                }
            }
            if missing.len() >= BATCH {
                self.take(below, source, destination, &mut missing, touched).await?;
            }
        }
        self.take(below, source, destination, &mut missing, touched).await
    }

    /// Adds a directory to the pending ones, or visits it now if too many are pending.
    async fn descend(&self, below: &RelPath, name: &[u8]) -> Result<()> {
        let below = below.join(name).map_err(invalid)?;
        {
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            if pending.len() < MAX_PENDING {
                pending.push(below);
                return Ok(());
            }
        }
        Box::pin(self.visit(below)).await
    }

    /// Whether the filter includes an entry of the source.
    fn is_copied(&self, entry: &Entry) -> bool {
        takes(self.context, &self.job.job, &self.job.job.source_path, entry)
    }

    /// Whether all entries of the destination are counted, and not only those to remove.
    fn counts_all(&self) -> bool {
        let limit = self.context.settings.delete_limit;
        !self.removes && matches!(limit, Some(DeleteLimit::Percent(_)))
    }

    async fn look(&self, source: &RelPath, entry: Entry) -> Looked {
        // While counting as well: too many extra entries would otherwise keep it. Failures are ignored: the next run
        // tries it again.
        if is_stale_marker(&entry) && !self.context.settings.dry_run {
            drop(remove_stale_marker(&*self.job.job.destination, &entry.path).await);
        }
        if is_part_name(entry.path.name()) || self.context.cancel.is_cancelled() {
            return Looked::Skip;
        }
        if !may_go(self.context, self.job, &entry) || self.is_mount(&entry) {
            return Looked::Skip;
        }
        self.entries.fetch_add(1, Ordering::Relaxed);
        let found = match source.join(entry.path.name()).map_err(invalid) {
            Ok(path) => self.job.job.source.find(&path).await,
            Err(error) => Err(error),
        };
        match found {
            Ok(None) => Looked::Missing(entry),
            // File systems mounted in the source were not listed.
            Ok(Some(found)) if is_mount(self.devices[0], &found) => Looked::Skip,
            Ok(Some(found)) if found.is_dir() && entry.is_dir() => Looked::Directory(entry),
            // E.g. `--exclude=build/`, where `build` is a directory of the source and a file here.
            Ok(Some(found)) if !self.is_copied(&found) => Looked::Missing(entry),
            Ok(Some(_)) if entry.is_dir() && self.counts_all() => Looked::InTheWay(entry),
            Ok(Some(_)) => Looked::Skip,
            Err(error) => {
                self.context.tally.fail(error.at(self.job.destination_name(&entry.path)));
                Looked::Skip
            }
        }
    }

    /// Counts or removes candidates of one directory.
    async fn take(
        &self,
        below: &RelPath,
        source: &RelPath,
        destination: &RelPath,
        missing: &mut Vec<Entry>,
        touched: &mut Touched,
    ) -> Result<()> {
        if missing.is_empty() {
            return Ok(());
        }
        let missing = std::mem::take(missing);
        let (gone, renamed) = match self.without_renamed(source, destination, missing).await {
            Ok(found) => found,
            Err(error) => {
                self.context.tally.fail(error.at(self.job.source_name(source)));
                return Ok(());
            }
        };
        for name in renamed {
            self.descend(below, &name).await?;
        }
        if gone.is_empty() {
            return Ok(());
        }
        self.refuse_empty_source().await?;
        if !self.removes {
            for entry in &gone {
                let count = count(self.context, self.job, entry).await?;
                self.entries.fetch_add(count.below, Ordering::Relaxed);
                self.candidates.fetch_add(count.removed, Ordering::Relaxed);
            }
            return Ok(());
        }
        if !self.context.settings.dry_run {
            let job = &self.job.job;
            let overlaps = &self.context.roots.overlaps;
            overlaps.refuse_untested(self.job)?;
            // Before the test, which may have to create a file.
            touched.removed = true;
            touched.restore = touched.restore.or(make_writable(self.job, destination).await);
            let mut names = gone.iter().map(|entry| entry.path.name());
            let answer = async |probe: Probe<'_>| match probe {
                Probe::IsEmpty => Ok(names.all(|name| name.starts_with(b"."))),
                Probe::Has(wanted) => {
                    let path = destination.join(wanted).map_err(invalid)?;
                    Ok(job.destination.find(&path).await?.is_some()
                        || names.any(|name| name.eq_ignore_ascii_case(wanted)))
                }
            };
            overlaps.refuse_source(self.job, destination, answer).await?;
        }
        stream::iter(gone)
            .for_each_concurrent(self.lookups_at_once().min(64), async |entry| {
                if self.context.cancel.is_cancelled() {
                    return;
                }
                if let Err(error) = remove(self.context, self.job, &entry).await {
                    self.context.tally.fail(error.at(self.job.destination_name(&entry.path)));
                }
            })
            .await;
        Ok(())
    }

    /// The candidates that are not copied entries of the source after all, under their own or a changed name; and the
    /// names of source directories that the destination has renamed, which may contain entries to remove.
    async fn without_renamed(
        &self,
        source: &RelPath,
        destination: &RelPath,
        mut candidates: Vec<Entry>,
    ) -> Result<(Vec<Entry>, Vec<Vec<u8>>)> {
        let mut renamed = Vec::new();
        let mut left: HashSet<Vec<u8>> =
            candidates.iter().map(|entry| entry.path.name().to_vec()).collect();
        let mut folded: Option<Vec<Vec<u8>>> = None;
        // Hashes of all names: 8 bytes each, and only for a directory that has something to remove.
        let mut existing = HashSet::new();
        let hasher = std::hash::RandomState::new();
        let mut listing = self.job.job.destination.list(destination).await?;
        while let Some(batch) = listing.next().await {
            existing.extend(batch?.iter().map(|entry| hasher.hash_one(entry.path.name())));
        }
        let mut listing = self.job.job.source.list(source).await?;
        while let Some(batch) = listing.next().await {
            let batch = batch?;
            for listed in &batch {
                let name = listed.path.name();
                if left.contains(name) && self.is_copied(listed) {
                    left.remove(name);
                }
            }
            let others = batch.iter().filter(|listed| {
                let name = listed.path.name();
                !is_part_name(name) && !existing.contains(&hasher.hash_one(name))
            });
            // Names that the destination does not list, but may find nevertheless.
            let found = others.map(|listed| async move {
                let path = destination.join(listed.path.name()).map_err(invalid)?;
                let found = self.job.job.destination.find(&path).await?;
                Ok::<_, Error>(found.map(|found| (found, listed)))
            });
            let found: Vec<_> =
                stream::iter(found).buffer_unordered(self.lookups_at_once()).collect().await;
            for found in found {
                let Some((found, listed)) = found? else { continue };
                // FUSE file systems may report several inode numbers for one file.
                let found_folded = fold(found.path.name());
                let folded = folded.get_or_insert_with(|| {
                    candidates.iter().map(|entry| fold(entry.path.name())).collect()
                });
                let before = left.len();
                for (entry, folded) in candidates.iter().zip(folded.iter()) {
                    if is_same(entry, &found) || *folded == found_folded {
                        left.remove(entry.path.name());
                    }
                }
                if left.len() < before && found.is_dir() && listed.is_dir() {
                    renamed.push(listed.path.name().to_vec());
                }
            }
            if left.is_empty() {
                break;
            }
        }
        candidates.retain(|entry| left.contains(entry.path.name()));
        Ok((candidates, renamed))
    }

    /// Guarantee: an empty source (a disk that is not mounted) does not empty the destination.
    async fn refuse_empty_source(&self) -> Result<()> {
        if self.source_has_entries.load(Ordering::Relaxed) {
            return Ok(());
        }
        let path = &self.job.job.source_path;
        let mut listing = self.job.job.source.list(path).await?;
        while let Some(batch) = listing.next().await {
            if !batch?.is_empty() {
                self.source_has_entries.store(true, Ordering::Relaxed);
                return Ok(());
            }
        }
        Err(refusal(self.job, &self.job.job.destination_path)
            .because(format!(
                "the source {} is empty, and everything in the destination would be removed; \
             nothing was removed",
                self.job.source_name(path)
            ))
            .hinting("if SOURCE is empty on purpose, --delete-from-empty allows it"))
    }

    /// Sets mode and times of a directory again: removing entries has changed its time, and its mode if its
    /// owner could not write to it.
    async fn finish_again(&self, source: &RelPath, destination: &RelPath, restore: Option<u32>) {
        let job = &self.job.job;
        let outcome = async {
            let found = job.source.stat(source).await?.metadata();
            let wanted = self.context.wanted_metadata(found, self.job, destination, true);
            let mode = wanted.mode.or(restore);
            let wanted = Metadata { owner: None, mode, ..wanted };
            if wanted == Metadata::default() {
                return Ok(());
            }
            job.destination.set_metadata(destination, &wanted).await
        };
        if let Err(error) = outcome.await {
            put_back(self.job, destination, restore).await;
            self.context.tally.fail(error.at(self.job.destination_name(destination)));
        }
    }

    fn lookups_at_once(&self) -> usize {
        let is_link =
            |storage: &dyn haul_storage::Storage| storage.capabilities().medium == Medium::Link;
        let job = &self.job.job;
        if is_link(&*job.source) || is_link(&*job.destination) { 64 } else { 4 }
    }
}

/// How removing entries has changed a directory.
#[derive(Debug, Default)]
struct Touched {
    removed: bool,
    /// The mode that it had before it was made writable.
    restore: Option<u32>,
}

/// The result of looking an entry up at the source.
enum Looked {
    /// It stays: the source has it, it must not be removed, or the lookup failed.
    Skip,
    /// The source does not have it, or the filter excludes what the source has under this name.
    Missing(Entry),
    /// A directory on both sides.
    Directory(Entry),
    /// A directory where the source has something else. The copy left it because of the limit.
    InTheWay(Entry),
}

fn invalid(error: haul_storage::RelPathError) -> Error {
    Error::new(ErrorKind::InvalidInput, "delete").with_source(error)
}

fn joined(root: &RelPath, below: &RelPath) -> Result<RelPath> {
    below.components().try_fold(root.clone(), |path, name| path.join(name)).map_err(invalid)
}

/// Whether two entries of the destination are the same one: by file ID, or, where there is none, by kind,
/// size and time.
pub fn is_same(one: &Entry, other: &Entry) -> bool {
    match (one.id, other.id) {
        (Some(one), Some(other)) => one == other,
        _ => (&one.kind, one.size, one.modified) == (&other.kind, other.size, other.modified),
    }
}

/// Whether an entry of a job's destination may be removed: it is not excluded, and no backup.
fn may_go(context: &Context, job: &NumberedJob, entry: &Entry) -> bool {
    takes(context, &job.job, &job.job.destination_path, entry) && !is_backup(context, entry)
}

/// Replaces `entry`, a file or link, with a directory.
pub async fn replace_with_directory(
    context: &Context,
    job: &NumberedJob,
    entry: &Entry,
    mode: Option<u32>,
) -> Result<()> {
    remove(context, job, entry).await?;
    if !context.settings.dry_run {
        job.job.destination.create_dir_as(&entry.path, mode).await?;
        context.tally.directory();
    }
    Ok(())
}
