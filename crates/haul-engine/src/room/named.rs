//! What is known at the start: whether needs can be compared with the space, and the need of sources that are
//! files.

use futures_util::{StreamExt, stream};
use haul_storage::{
    Entry, ErrorKind, Location, Medium, RelPath, Result, Space, Storage, StorageExt,
};

use super::file::{DestinationState, stored};
use super::need::Need;
use crate::sources::Sources;
use crate::{Job, Settings};

/// With more sources than this, none is measured before anything is copied. The count ahead of the plan measures those
/// that are files.
const MOST: usize = 64;

/// Sources that are measured at once.
const AT_ONCE: usize = 16;

/// Whether copies take space of their own, and moving frees none at the destination.
pub async fn compares(settings: &Settings, jobs: &[Job], space: &Space) -> bool {
    for job in jobs {
        let local = |storage: &dyn Storage| matches!(storage.location(), Location::Local(_));
        let can = job.destination.capabilities();
        let on_servers = can.medium == Medium::Link
            && job.source.capabilities().medium == Medium::Link
            && can.server_copy;
        if on_servers {
            // A server that copies by itself may let copies share their space.
            return false;
        }
        let both_local = local(&*job.source) && local(&*job.destination);
        if settings.remove_source && !both_local {
            // The source may be the same disk, reached another way, where removed files free space.
            return false;
        }
        if !both_local || !(space.shares || settings.remove_source) {
            continue;
        }
        let source = job.source.space(&job.source_path).await.ok().flatten();
        let may_be_one = source
            .is_none_or(|source| source.volume == space.volume || source.compact && space.compact);
        if may_be_one {
            return false;
        }
    }
    true
}

/// What was found for the sources that are files.
#[derive(Debug)]
pub struct AllFound {
    found: Vec<Found>,
    /// Whether every source was measured.
    is_all: bool,
}

/// What was found for one source.
#[derive(Debug)]
enum Found {
    /// It needs nothing.
    Nothing,
    /// A file.
    File(Box<File>),
}

/// A file, and what exists at its destination.
#[derive(Debug)]
struct File {
    entry: Entry,
    /// The bytes that a copy takes up.
    stored: u64,
    existing: Option<Entry>,
    part_bytes: u64,
}

impl Found {
    /// Its need, where the allocation unit is `block`; `None` if it is unknown.
    fn need(&self, settings: &Settings, block: u64) -> Option<Need> {
        match self {
            Self::Nothing => Some(Need::default()),
            Self::File(file) => {
                let (existing, part_bytes) = (file.existing.as_ref(), file.part_bytes);
                let state = DestinationState { existing, part_bytes, block };
                Need::of(settings, &file.entry, file.stored, state)
            }
        }
    }
}

impl AllFound {
    /// The need of the sources that are files, and whether that is the need of all sources.
    pub fn need(&self, settings: &Settings, block: u64) -> (Need, bool) {
        let (mut sum, mut is_all) = (Need::default(), self.is_all);
        for found in &self.found {
            match found.need(settings, block) {
                Some(need) => sum.add(need),
                None => is_all = false,
            }
        }
        (sum, is_all)
    }
}

/// Looks at the sources that are files, and at their destinations.
pub async fn look_at_all(settings: &Settings, jobs: &[Job], sources: &Sources) -> AllFound {
    let mut all = AllFound { found: Vec::new(), is_all: !are_many(jobs) };
    if !all.is_all {
        return all;
    }
    let looks = jobs.iter().enumerate().map(async |(index, job)| {
        let entry = sources.entry(index, job).await?;
        look(settings, job, &entry).await
    });
    let mut looks = stream::iter(looks).buffer_unordered(AT_ONCE);
    while let Some(found) = looks.next().await {
        // Errors are ignored: they occur again in the plan, which reports them.
        match found.ok().flatten() {
            Some(found) => all.found.push(found),
            None => all.is_all = false,
        }
    }
    all
}

/// Whether there are too many jobs to measure their sources at the start.
pub const fn are_many(jobs: &[Job]) -> bool {
    jobs.len() > MOST
}

/// The need of one source; `None` if it is not a file, or its need is not known.
pub async fn of(settings: &Settings, job: &Job, entry: &Entry, block: u64) -> Result<Option<Need>> {
    let found = look(settings, job, entry).await?;
    Ok(found.and_then(|found| found.need(settings, block)))
}

/// Looks at the destination of one source; `None` if it is not a file, or its size is not known.
async fn look(settings: &Settings, job: &Job, entry: &Entry) -> Result<Option<Found>> {
    if !entry.is_file() || entry.known_size().is_none() {
        return Ok(None);
    }
    if !settings.selection.takes(entry) {
        return Ok(Some(Found::Nothing));
    }
    let (existing, part) = tokio::try_join!(
        job.destination.find(&job.destination_path),
        part(&*job.destination, &job.destination_path)
    )?;
    let part_bytes = match &part {
        Some(part) => match part_bytes(&*job.destination, part).await {
            Some(bytes) => bytes,
            None => return Ok(Some(Found::Nothing)),
        },
        None => 0,
    };
    let stored = stored(settings, job, entry).await;
    let file = File { entry: entry.clone(), stored, existing, part_bytes };
    Ok(Some(Found::File(Box::new(file))))
}

/// The part file of the file `path`.
pub async fn part(storage: &dyn Storage, path: &RelPath) -> Result<Option<Entry>> {
    match path.with_name(storage.part_name(path)) {
        Ok(part) => storage.find(&part).await,
        Err(_) => Ok(None),
    }
}

/// The bytes that a part file takes up: on a disk its space is reserved before it is written. `None` if it
/// was renamed since it was listed, as the file is complete.
pub async fn part_bytes(storage: &dyn Storage, part: &Entry) -> Option<u64> {
    match storage.allocated(&part.path).await {
        Ok(Some(allocated)) => Some(allocated),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        _ => Some(part.known_size().unwrap_or(0)),
    }
}
