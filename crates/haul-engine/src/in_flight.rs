//! The files in flight: the list for a display, the limit on large ones, and the long reads of the path.

use haul_storage::Writes;
use tokio::sync::Semaphore;

use crate::current::Current;
use crate::flow::Flow;
use crate::long::LongReads;
use crate::{Job, Settings};

/// The files of a transfer that are in flight.
#[derive(Debug)]
pub struct FilesInFlight {
    /// The files with their rates, for a display.
    pub current: Current,
    /// The long reads in flight on the path (`Capabilities::long_reads`).
    pub long_reads: LongReads,
    /// A permit for each large file that may be moved at once.
    pub large_files: Semaphore,
}

impl FilesInFlight {
    /// No files yet, of a transfer of `jobs` with this `flow`.
    pub fn new(jobs: &[Job], settings: &Settings, flow: &Flow) -> Self {
        Self {
            current: Current::new(settings.shows_current),
            long_reads: flow.long_reads(),
            large_files: Semaphore::new(most_large_files(jobs, settings, flow)),
        }
    }
}

/// How many large files are moved at once.
fn most_large_files(jobs: &[Job], settings: &Settings, flow: &Flow) -> usize {
    let is_in_order = |job: &Job| job.destination.capabilities().writes == Writes::InOrder;
    // Between disks, two files keep reading and writing busy; more only add seeks. Over a link, a few
    // hide the RTTs of opening and committing; if each file is a single stream, many are needed.
    let most = match (flow.has_links(), jobs.iter().any(is_in_order)) {
        (false, _) => 2,
        (true, false) => 4,
        (true, true) => 16,
    };
    settings.files.fixed().map_or(most, |files| files.min(most)).max(1)
}
