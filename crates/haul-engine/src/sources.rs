//! The entries of the sources as they were at the start of a transfer. The plan and the measurement of the free space both
//! need them at once; each is requested a single time, because over a link that takes an RTT.

use haul_storage::{Entry, Result};
use tokio::sync::OnceCell;

use crate::Job;

/// Entries to remember. With more sources the RTTs of the first ones no longer matter.
const REMEMBERED: usize = 64;

/// The entries of the first sources.
#[derive(Debug)]
pub struct Sources(Vec<OnceCell<Entry>>);

impl Sources {
    /// Nothing is known of the sources of `jobs`.
    pub fn of(jobs: &[Job]) -> Self {
        Self((0..jobs.len().min(REMEMBERED)).map(|_| OnceCell::new()).collect())
    }

    /// The entry of the source of `job`, which is number `index`. A request that is in flight is shared.
    ///
    /// # Errors
    /// Those of `Storage::stat`. A failed request is repeated by the next call.
    pub async fn entry(&self, index: usize, job: &Job) -> Result<Entry> {
        let request = || job.source.stat(&job.source_path);
        match self.0.get(index) {
            Some(cell) => cell.get_or_try_init(request).await.cloned(),
            None => request().await,
        }
    }
}
