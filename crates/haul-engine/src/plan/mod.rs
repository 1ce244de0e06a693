//! The plan: turns jobs into items, one by one, so that memory does not grow with their number.
//!
//! The walk lists source directories, creates them at the destination, and sends every file and link to the
//! transfer through a bounded channel. A directory gets its times and mode once everything in it is done,
//! which its [`Directory`](directory::Directory) guard notices.

mod count;
mod delete;
mod directory;
mod folded;
mod item;
mod mount;
mod removal;
mod reserved;
mod settle;
mod target;
mod top;
mod twins;
mod walk;
mod writable;

use std::path::Path;
use std::sync::Arc;

use haul_storage::{
    Entry, EntryKind, Error, ErrorKind, Location, RelPath, Result, StorageExt, is_part_name,
};
use tokio::sync::mpsc;

pub use count::count;
pub use delete::delete_extra;
pub use directory::{Finish, finish_directories};
pub use folded::fold;
pub use item::{Existing, Item};
pub use removal::remove;

use crate::Job;
use crate::context::Context;
use crate::job::NumberedJob;

/// Sends all items of all jobs, and reports failures to the tally. Ends early once the transfer is cancelled.
pub async fn plan(
    context: &Context,
    jobs: Vec<Job>,
    items: mpsc::Sender<Item>,
    finishes: mpsc::UnboundedSender<Finish>,
) {
    for (index, job) in jobs.into_iter().enumerate() {
        let job = Arc::new(NumberedJob { index, job });
        if let Err(error) = plan_job(context, &job, &items, &finishes).await {
            context.tally.fail(error);
        }
        if context.cancel.is_cancelled() {
            return;
        }
    }
    context.tally.planned();
}

async fn plan_job(
    context: &Context,
    job: &Arc<NumberedJob>,
    items: &mpsc::Sender<Item>,
    finishes: &mpsc::UnboundedSender<Finish>,
) -> Result<()> {
    let Job { source_path, destination, destination_path, expected, .. } = &job.job;
    let entry = context.roots.sources.entry(job.index, &job.job).await?;
    refuse_into_itself(context, job, &entry)?;
    if job.is_local() {
        context.roots.ends.note_source(&entry);
    }
    refuse_reserved_name(job)?;
    refuse_twin(context, job).await?;
    let makes_none = context.settings.dry_run || context.settings.existing_only;
    if !context.settings.selection.takes(&entry) {
        return Ok(());
    }
    if let EntryKind::Special(kind) = entry.kind {
        return Err(Error::new(ErrorKind::Unsupported, "copy")
            .at(job.source_name(source_path))
            .because(format!("it is a {kind}; haul cat reads pipes and devices")));
    }
    if !entry.is_dir() {
        if let (false, Some(parent)) = (makes_none, destination_path.parent()) {
            destination.create_dir_all(&parent).await?;
        }
        context.roots.destinations.refuse_twice(job, destination_path, &context.settings).await?;
        if entry.is_file() {
            context.tally.plan_file(entry.known_size().unwrap_or(0));
            context.room.plan_source();
        }
        let item = Item {
            job: Arc::clone(job),
            source: entry,
            destination: destination_path.clone(),
            existing: Existing::Unknown,
            directory: None,
            ticket: context.ticket(),
        };
        // The receiver is closed after an interruption.
        drop(items.send(item).await);
        return Ok(());
    }
    if expected.is_some() {
        return Err(Error::new(ErrorKind::IsADirectory, "verify").at(job.source_name(source_path)));
    }
    if let (false, Some(parent)) = (makes_none, destination_path.parent()) {
        destination.create_dir_all(&parent).await?;
    }
    walk::walk(context, job, entry, items, finishes).await
}

/// Fails if the destination does not distinguish the job's name from that of an earlier source of the run.
async fn refuse_twin(context: &Context, job: &NumberedJob) -> Result<()> {
    let siblings = context.roots.destinations.like(job);
    if siblings.is_empty() {
        return Ok(());
    }
    context.planned_done().await;
    let Job { destination, destination_path: path, .. } = &job.job;
    let directory = path.parent().unwrap_or_default();
    let Some(existing) = destination.find(path).await? else { return Ok(()) };
    let listed = twins::listed_like(&**destination, &directory, &[path]).await?;
    let listed = listed.into_values().next().unwrap_or_default();
    match twins::collision(&**destination, &existing, &siblings, &listed).await? {
        Some(sibling) => Err(twins::refusal(job, path, sibling)),
        None => Ok(()),
    }
}

/// Refuses names that haul gives to unfinished copies: the next copy of the file that such a name belongs to
/// would replace or resume it.
fn refuse_reserved_name(job: &NumberedJob) -> Result<()> {
    let path = &job.job.destination_path;
    let Some(name) = path.components().find(|name| is_part_name(name)) else { return Ok(()) };
    let cause = format!("the name {} is reserved for unfinished copies", name.escape_ascii());
    Err(Error::new(ErrorKind::InvalidInput, "copy").at(job.destination_name(path)).because(cause))
}

/// The paths of source and destination, if they may be on one file system: on disks of this machine, on servers (as
/// text, with the host), or in one share of a peer.
fn comparable_paths(job: &NumberedJob) -> Option<(Vec<u8>, Vec<u8>)> {
    let Job { source, source_path, destination, destination_path, .. } = &job.job;
    let full = |root: &[u8], path: &RelPath| {
        let mut full = root.to_vec();
        while full.ends_with(b"/") {
            full.pop();
        }
        path.components().for_each(|name| {
            full.push(b'/');
            full.extend_from_slice(name);
        });
        full
    };
    match (source.location(), destination.location()) {
        (Location::Local(from), Location::Local(to)) => {
            let bytes = |path: &Path| path.as_os_str().as_encoded_bytes().to_vec();
            Some((full(&bytes(from), source_path), full(&bytes(to), destination_path)))
        }
        (Location::Remote { .. }, Location::Remote { .. }) => {
            let named = |name: String| name.trim_end_matches('/').as_bytes().to_vec();
            let destination = job.destination_name(destination_path);
            Some((named(job.source_name(source_path)), named(destination)))
        }
        // Not as text: a peer is displayed without most of its ticket.
        (
            Location::Peer { ticket: one, path: from },
            Location::Peer { ticket: other, path: to },
        ) if one.is_of_share(other) => {
            let rooted = |path: &[u8]| [&b"/"[..], path].concat();
            Some((full(&rooted(from), source_path), full(&rooted(to), destination_path)))
        }
        _ => None,
    }
}

/// Fails if the destination is the source, is inside it, or is a parent of it from which `--delete` would remove
/// it. Local locations contain no symbolic links (the code that opens the storages guarantees that),
/// so it is enough to compare components. Locations on servers are compared as text: links and aliases of a
/// host are not recognised.
fn refuse_into_itself(context: &Context, job: &NumberedJob, entry: &Entry) -> Result<()> {
    let Some((source, destination)) = comparable_paths(job) else { return Ok(()) };
    let refuse = |kind: &str| {
        Err(Error::new(ErrorKind::InvalidInput, "copy")
            .at(job.source_name(&job.job.source_path))
            .because(format!(
                "the destination {} is {kind}",
                job.destination_name(&job.job.destination_path)
            )))
    };
    if source == destination {
        return refuse("the same as the source");
    }
    let is_inside = |inner: &[u8], outer: &[u8]| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with(b"/"))
    };
    if entry.kind == EntryKind::Directory && is_inside(&destination, &source) {
        return refuse("inside the source");
    }
    let removes = || {
        let relative = &source[destination.len() + 1..];
        let ends = (0..relative.len()).filter(|at| relative[*at] == b'/').chain([relative.len()]);
        // Excluded directories are not removed, nor what is in them.
        let filter = &context.settings.filter;
        ends.into_iter().all(|end| filter.takes_in(&job.job, &relative[..end], true))
    };
    let may_remove_source = context.settings.delete && is_inside(&source, &destination);
    if entry.kind == EntryKind::Directory && may_remove_source && removes() {
        return refuse("a parent of the source, which --delete would remove");
    }
    Ok(())
}
