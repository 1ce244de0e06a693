//! The entries of the sources at the start of a transfer. The plan and the check of free space both need them
//! at once; each is requested a single time, because over a link that takes an RTT.

use haul_storage::{Entry, Result};
use tokio::sync::OnceCell;

use crate::Job;

/// Number of cached entries. With more sources, the RTTs of the first ones no longer matter.
const CACHED: usize = 64;

/// Caches the entries of the first sources.
#[derive(Debug)]
pub struct Sources(Vec<OnceCell<Entry>>);

impl Sources {
    /// An empty cache for the sources of `jobs`.
    pub fn of(jobs: &[Job]) -> Self {
        Self((0..jobs.len().min(CACHED)).map(|_| OnceCell::new()).collect())
    }

    /// The entry of the source of `job`, which is number `index`. Concurrent calls share one request.
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
