//! Counts what there is to do, ahead of the plan, for a display that wants to know how much is left.
//!
//! The plan goes no further than a few hundred items ahead of the transfer, and its totals are complete near the end
//! only. This pass lists the sources on its own and keeps sums, nothing else. It begins when the plan is not complete
//! after a moment, and ends with it. A tree in which too many directories wait is not counted to its end.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use haul_storage::{Medium, RelPath, Result, is_part_name};
use tokio::time::sleep;

use super::walk::is_mount;
use crate::Job;
use crate::context::Context;

/// A plan that is complete after this time needs no second listing.
const AFTER: Duration = Duration::from_millis(1500);

/// Directories that may wait. Above that the count is given up, since it would need as much memory as the tree.
const MOST_PENDING: usize = 200_000;

/// Directories of a server that are listed at once: the transfer needs the connection more.
const AT_ONCE: usize = 4;

/// What a directory has in it.
#[derive(Default)]
struct Found {
    files: u64,
    bytes: u64,
    directories: Vec<RelPath>,
}

/// Counts all jobs and says so to the tally. Failures end it: the plan meets and reports them.
pub async fn count(context: &Context, jobs: &[Job]) {
    sleep(AFTER).await;
    let mut sum = Found::default();
    for job in jobs {
        match job_of(context, job).await {
            Ok(Some(found)) => {
                sum.files += found.files;
                sum.bytes = sum.bytes.saturating_add(found.bytes);
                context.tally.counted(sum.files, sum.bytes, false);
            }
            Ok(None) | Err(_) => return,
        }
    }
    context.tally.counted(sum.files, sum.bytes, true);
}

/// `None` if it is given up.
async fn job_of(context: &Context, job: &Job) -> Result<Option<Found>> {
    let top = job.source.stat(&job.source_path).await?;
    let mut sum = Found::default();
    if top.is_file() && context.settings.selection.takes(&top) {
        (sum.files, sum.bytes) = (1, top.known_size().unwrap_or(0));
    }
    if !top.is_dir() {
        return Ok(Some(sum));
    }
    let device = top.id.map(|id| id.device).filter(|_| context.settings.one_file_system);
    let at_once = if job.source.capabilities().medium == Medium::Disk { 1 } else { AT_ONCE };
    let mut pending = vec![top.path];
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < at_once {
            let Some(directory) = pending.pop() else { break };
            running.push(directory_of(context, job, directory, device));
        }
        let Some(found) = running.next().await else { return Ok(Some(sum)) };
        let found = found?;
        sum.files += found.files;
        sum.bytes = sum.bytes.saturating_add(found.bytes);
        pending.extend(found.directories);
        if pending.len() > MOST_PENDING || context.cancel.is_cancelled() {
            return Ok(None);
        }
    }
}

async fn directory_of(
    context: &Context,
    job: &Job,
    directory: RelPath,
    device: Option<u64>,
) -> Result<Found> {
    let mut found = Found::default();
    let top = job.source_path.as_bytes().len();
    let mut listing = job.source.list(&directory).await?;
    while let Some(batch) = listing.next().await {
        for entry in batch? {
            let below = &entry.path.as_bytes()[top..];
            let below = below.strip_prefix(b"/").unwrap_or(below);
            let settings = &context.settings;
            let takes_part = !is_part_name(entry.path.name())
                && settings.filter.takes(below, entry.is_dir())
                && settings.selection.takes(&entry);
            if !takes_part {
                continue;
            }
            if entry.is_file() {
                found.files += 1;
                found.bytes = found.bytes.saturating_add(entry.known_size().unwrap_or(0));
            } else if entry.is_dir() && !is_mount(device, &entry) {
                found.directories.push(entry.path);
            }
        }
    }
    Ok(found)
}
