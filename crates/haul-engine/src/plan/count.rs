//! Counts files and bytes ahead of the plan, so that progress has complete totals early, and a destination
//! that is too small is noticed early.
//!
//! The plan is only about a thousand items ahead of the transfer (ten thousand more if they are sorted), so
//! its totals are complete only near the end. The count lists the sources on its own and stores nothing but
//! sums; where space is compared, it also lists the existing directories of the destination. It starts if the
//! plan is not complete after a moment, and ends with the plan, unless the need for space is still unknown
//! then. It is abandoned if too many directories are pending.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use haul_storage::{Entry, ErrorKind, Medium, RelPath, Result, is_part_name};
use tokio::time::sleep;

use super::folded::{FoldedNames, fold};
use super::mount::is_mount;
use super::removal::takes;
use crate::Job;
use crate::context::Context;
use crate::room::{DestinationState, Need, part_bytes, stored};

/// The count starts this long after the plan has begun, unless its result is not wanted by then.
const START_DELAY: Duration = Duration::from_millis(1500);

/// Interval at which the count checks whether the plan has begun.
const CHECK: Duration = Duration::from_millis(100);

/// Maximum of pending directories. Beyond it the count is abandoned: its memory would grow with the tree.
const MAX_PENDING: usize = 200_000;

/// Directories of a server that are listed at once: few, since the transfer needs the connection more.
const AT_ONCE: usize = 4;

/// The need in a destination directory with more entries than this is not counted.
const MAX_ENTRIES: usize = 100_000;

/// What was found in a directory, or below a job's source.
#[derive(Default)]
struct Found {
    files: u64,
    bytes: u64,
    directories: Vec<Waiting>,
    need: Need,
    /// True if the need of a file cannot be determined.
    is_unclear: bool,
}

/// A pending directory of the source, and its counterpart at the destination.
struct Waiting {
    source: RelPath,
    counterpart: Counterpart,
}

/// The directory of the destination that a source directory is copied to.
#[derive(Clone)]
enum Counterpart {
    /// Not looked up: needs are not compared, or not below it (another file system, failed listing, clash of names).
    Unknown,
    /// It does not exist, so everything below is new.
    Missing,
    /// It may exist.
    At(RelPath),
}

/// The listing of a destination directory.
enum Listed {
    Unknown,
    Nothing,
    Entries(Names),
}

/// The entries of a directory of the destination by name.
struct Names {
    directory: RelPath,
    exact: HashMap<Vec<u8>, Entry>,
    folded: HashSet<Vec<u8>>,
}

impl Names {
    fn of(directory: RelPath) -> Self {
        Self { directory, exact: HashMap::new(), folded: HashSet::new() }
    }

    fn insert(&mut self, entry: Entry) {
        let name = entry.path.name();
        self.folded.insert(fold(name));
        self.exact.insert(name.to_vec(), entry);
    }

    fn find(&self, name: &[u8]) -> Option<&Entry> {
        self.exact.get(name)
    }

    /// Whether no entry has this name, but one has a name that the destination may not distinguish from it.
    fn has_like(&self, name: &[u8]) -> bool {
        !self.exact.contains_key(name) && self.folded.contains(&fold(name))
    }
}

/// Counts all jobs, and passes the totals to the tally and the need for space to the room. Any error ends the
/// count; the plan will encounter and report it.
pub async fn count(context: &Context, jobs: &[Job]) {
    // Before the first listing has arrived, a second one would only use a lane.
    while !context.tally.is_plan_begun() {
        sleep(CHECK).await;
    }
    sleep(START_DELAY).await;
    // Counting begins once the space is known: directories counted before would be missing from the need.
    if !is_wanted(context) || context.room.started().await.is_err() {
        return;
    }
    context.room.begin_count().await;
    let mut sum = Found::default();
    for job in jobs {
        match count_job(context, job).await {
            Ok(Some(found)) => {
                sum.files += found.files;
                sum.bytes = sum.bytes.saturating_add(found.bytes);
                report(context, &sum, false);
            }
            Ok(None) | Err(_) => return,
        }
    }
    context.room.complete();
    report(context, &sum, true);
}

/// Whether the totals, or the need for space, are still wanted.
fn is_wanted(context: &Context) -> bool {
    let is_shown = context.settings.count_ahead && !context.tally.is_planned();
    is_shown || context.room.needs_count()
}

fn report(context: &Context, sum: &Found, all: bool) {
    if context.settings.count_ahead {
        context.tally.counted(sum.files, sum.bytes, all);
    }
}

/// Counts one job; `None` if the count is abandoned.
async fn count_job(context: &Context, job: &Job) -> Result<Option<Found>> {
    let top = job.source.stat(&job.source_path).await?;
    let mut sum = Found::default();
    if top.is_file() && context.settings.selection.takes(&top) {
        (sum.files, sum.bytes) = (1, top.known_size().unwrap_or(0));
    }
    if !top.is_dir() {
        Box::pin(context.room.count_source(job, &top)).await;
        return Ok((is_wanted(context) && !context.cancel.is_cancelled()).then_some(sum));
    }
    let counterpart = match context.room.counts() {
        true => Counterpart::At(job.destination_path.clone()),
        false => Counterpart::Unknown,
    };
    let device = top.id.map(|id| id.device).filter(|_| context.settings.one_file_system);
    let at_once = if job.source.capabilities().medium == Medium::Disk { 1 } else { AT_ONCE };
    let mut pending = vec![Waiting { source: top.path, counterpart }];
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < at_once {
            let Some(directory) = pending.pop() else { break };
            running.push(count_directory(context, job, directory, device));
        }
        let Some(found) = running.next().await else { return Ok(Some(sum)) };
        let found = found?;
        sum.files += found.files;
        sum.bytes = sum.bytes.saturating_add(found.bytes);
        if context.room.counts() {
            context.room.count((!found.is_unclear).then_some(found.need)).await;
        }
        pending.extend(found.directories);
        if pending.len() > MAX_PENDING || context.cancel.is_cancelled() || !is_wanted(context) {
            return Ok(None);
        }
    }
}

async fn count_directory(
    context: &Context,
    job: &Job,
    directory: Waiting,
    device: Option<u64>,
) -> Result<Found> {
    let mut found = Found::default();
    let listed = listed(context, job, &directory.counterpart).await;
    // Of names that the destination may not distinguish, only one may be copied.
    let mut names = FoldedNames::default();
    let mut listing = job.source.list(&directory.source).await?;
    while let Some(batch) = listing.next().await {
        let batch = batch?;
        let admitted = match listed {
            Listed::Unknown => batch.into_iter().map(|entry| (entry, false)).collect(),
            _ => names.admit(batch),
        };
        for (entry, is_twin) in admitted {
            let settings = &context.settings;
            let takes_part = !is_part_name(entry.path.name())
                && takes(context, job, &job.source_path, &entry)
                && settings.selection.takes(&entry);
            if !takes_part {
                continue;
            }
            if entry.is_file() {
                found.files += 1;
                found.bytes = found.bytes.saturating_add(entry.known_size().unwrap_or(0));
                if !is_twin && !matches!(listed, Listed::Unknown) {
                    match need(context, job, &entry, &listed).await {
                        Some(need) => found.need.add(need),
                        None => found.is_unclear = true,
                    }
                }
            } else if entry.is_dir() && !is_mount(device, &entry) {
                let counterpart = match &listed {
                    _ if is_twin => Counterpart::Unknown,
                    Listed::Unknown => Counterpart::Unknown,
                    Listed::Nothing => Counterpart::Missing,
                    Listed::Entries(known) => match known.find(entry.path.name()) {
                        None if known.has_like(entry.path.name()) => Counterpart::Unknown,
                        None => Counterpart::Missing,
                        Some(same) if same.is_dir() => Counterpart::At(same.path.clone()),
                        Some(_) => Counterpart::Unknown,
                    },
                };
                found.directories.push(Waiting { source: entry.path, counterpart });
            }
        }
    }
    Ok(found)
}

/// Lists a directory of the destination; `Unknown` if that fails, or its need is not counted.
async fn listed(context: &Context, job: &Job, counterpart: &Counterpart) -> Listed {
    let path = match counterpart {
        Counterpart::Unknown => return Listed::Unknown,
        Counterpart::Missing => return Listed::Nothing,
        Counterpart::At(path) => path,
    };
    if !context.room.counts() || !context.room.holds(path).await {
        return Listed::Unknown;
    }
    let mut listing = match job.destination.list(path).await {
        Ok(listing) => listing,
        Err(error) if error.kind() == ErrorKind::NotFound => return Listed::Nothing,
        Err(_) => return Listed::Unknown,
    };
    let mut names = Names::of(path.clone());
    while let Some(batch) = listing.next().await {
        let Ok(batch) = batch else { return Listed::Unknown };
        batch.into_iter().for_each(|entry| names.insert(entry));
        if names.exact.len() > MAX_ENTRIES {
            return Listed::Unknown;
        }
    }
    Listed::Entries(names)
}

/// The space that a file needs; `None` if that cannot be determined.
async fn need(context: &Context, job: &Job, entry: &Entry, listed: &Listed) -> Option<Need> {
    let name = entry.path.name();
    let (existing, part) = match listed {
        Listed::Entries(names) => {
            let part_name = job.destination.part_name(&names.directory.join(name).ok()?);
            // It may be one of the existing files, and need nothing.
            if names.has_like(name) || names.has_like(&part_name) {
                return Some(Need::default());
            }
            (names.find(name), names.find(&part_name))
        }
        Listed::Unknown | Listed::Nothing => (None, None),
    };
    let part_bytes = match part {
        Some(part) => match part_bytes(&*job.destination, part).await {
            Some(bytes) => bytes,
            None => return Some(Need::default()),
        },
        None => 0,
    };
    // Most files of a rerun exist already.
    if existing.is_some_and(|existing| existing.is_file() && existing.size == entry.size)
        && context.settings.overwrite != crate::Overwrite::Always
    {
        return Some(Need::default());
    }
    let state = DestinationState { existing, part_bytes, block: context.room.block() };
    Need::of(&context.settings, entry, stored(&context.settings, job, entry).await, state)
}

#[cfg(test)]
mod tests {
    use haul_storage::EntryKind;

    use super::*;

    /// Regression test: a rerun to FAT was refused because a name that FAT stores differently counted as new.
    #[test]
    fn a_name_that_the_destination_may_not_distinguish_from_another_is_not_new() {
        let mut names = Names::of(RelPath::root());
        names.insert(Entry::new(RelPath::parse("Read me").unwrap(), EntryKind::File, 1));
        assert!(names.find(b"Read me").is_some() && !names.has_like(b"Read me"));
        for like in ["READ ME", "Read me.", "read me "] {
            assert!(names.find(like.as_bytes()).is_none() && names.has_like(like.as_bytes()));
        }
        assert!(!names.has_like(b"other"));
    }
}
