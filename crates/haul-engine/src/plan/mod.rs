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
mod settle;
mod twins;
mod walk;

use std::sync::Arc;

use haul_storage::{
    Entry, EntryKind, Error, ErrorKind, Location, RelPath, Result, StorageExt, is_part_name,
};
use tokio::sync::mpsc;

pub use count::count;
pub use delete::{delete_extra, remove};
pub use directory::{Finish, finish_directories};
pub use folded::fold;
pub use item::{Item, There};

use crate::Job;
use crate::context::Context;
use crate::job::NumberedJob;

/// Sends all items of all jobs. Ends early, without an error, when the receiver is closed.
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
    let entry = context.sources.entry(job.index, &job.job).await?;
    refuse_into_itself(context, job, &entry)?;
    if job.is_local() {
        context.ends.note_source(&entry);
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
        context.destinations.refuse_twice(job, destination_path, &context.settings.filter).await?;
        if entry.is_file() {
            context.tally.plan_file(entry.known_size().unwrap_or(0));
        }
        let item = Item {
            job: Arc::clone(job),
            source: entry,
            destination: destination_path.clone(),
            there: There::Unknown,
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
    let siblings = context.destinations.like(job);
    if siblings.is_empty() {
        return Ok(());
    }
    context.planned_done().await;
    let Job { destination, destination_path: path, .. } = &job.job;
    let directory = path.parent().unwrap_or_default();
    let Some(there) = destination.find(path).await? else { return Ok(()) };
    let listed = twins::listed_like(&**destination, &directory, &[path]).await?;
    let listed = listed.into_values().next().unwrap_or_default();
    match twins::collision(&**destination, &there, &siblings, &listed).await? {
        Some(sibling) => Err(twins::refusal(job, path, sibling)),
        None => Ok(()),
    }
}

fn are_on_servers(job: &NumberedJob) -> bool {
    let is_on_server = |location: &Location| matches!(location, Location::Remote { .. });
    is_on_server(job.job.source.location()) && is_on_server(job.job.destination.location())
}

/// Refuses names that haul gives to unfinished copies: the next copy of the file that such a name belongs to
/// would replace or resume it.
fn refuse_reserved_name(job: &NumberedJob) -> Result<()> {
    let path = &job.job.destination_path;
    let Some(name) = path.components().find(|name| is_part_name(name)) else { return Ok(()) };
    let cause = format!("the name {} is reserved for unfinished copies", name.escape_ascii());
    Err(Error::new(ErrorKind::InvalidInput, "copy").at(job.destination_name(path)).because(cause))
}

/// Guarantee: a directory is never copied into itself, nor removed by `--delete` at its own destination.
/// Local locations contain no symbolic links (the code that opens the storages guarantees that), so it is
/// enough to compare components. On servers the check is only as good as their names.
fn refuse_into_itself(context: &Context, job: &NumberedJob, entry: &Entry) -> Result<()> {
    let full = |location: &Location, path: &RelPath| {
        let mut full = location.as_local()?.as_os_str().as_encoded_bytes().to_vec();
        while full.ends_with(b"/") {
            full.pop();
        }
        path.components().for_each(|name| {
            full.push(b'/');
            full.extend_from_slice(name);
        });
        Some(full)
    };
    let local = (
        full(job.job.source.location(), &job.job.source_path),
        full(job.job.destination.location(), &job.job.destination_path),
    );
    let (source, destination) = match local {
        (Some(source), Some(destination)) => (source, destination),
        (None, None) if are_on_servers(job) => {
            let named = |name: String| name.trim_end_matches('/').as_bytes().to_vec();
            let destination = job.destination_name(&job.job.destination_path);
            (named(job.source_name(&job.job.source_path)), named(destination))
        }
        _ => return Ok(()),
    };
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
        let way = &source[destination.len() + 1..];
        let ends = (0..way.len()).filter(|at| way[*at] == b'/').chain([way.len()]);
        // Excluded directories are not removed, nor what is in them.
        ends.into_iter().all(|end| context.settings.filter.takes(&way[..end], true))
    };
    let is_around = context.settings.delete && is_inside(&source, &destination);
    if entry.kind == EntryKind::Directory && is_around && removes() {
        return refuse("a parent of the source, which --delete would remove");
    }
    Ok(())
}
