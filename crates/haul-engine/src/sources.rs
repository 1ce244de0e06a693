//! The entries of the sources at the start of a transfer. The plan and the check of free space both need them
//! at once; each is requested only once, because over a link that takes an RTT.

use std::time::Duration;

use haul_storage::{Entry, Result};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::Job;

/// Number of cached entries. With more sources, the RTTs of the first ones no longer matter.
const CACHED: usize = 64;

/// An older entry is requested again: the plan may come to a source hours after the start.
const FRESH: Duration = Duration::from_secs(1);

/// Caches the entries of the first sources for a moment.
#[derive(Debug)]
pub struct Sources(Vec<OnceCell<(Entry, Instant)>>);

impl Sources {
    /// An empty cache for the sources of `jobs`.
    pub fn of(jobs: &[Job]) -> Self {
        Self((0..jobs.len().min(CACHED)).map(|_| OnceCell::new()).collect())
    }

    /// The entry of the source of `job`, which is number `index`, not older than a second. Concurrent calls share one
    /// request.
    ///
    /// # Errors
    /// Those of `Storage::stat`. A failed request is repeated by the next call.
    pub async fn entry(&self, index: usize, job: &Job) -> Result<Entry> {
        let request = || job.source.stat(&job.source_path);
        let Some(cell) = self.0.get(index) else { return request().await };
        let dated = || async { Ok((request().await?, Instant::now())) };
        let (entry, at) = cell.get_or_try_init(dated).await?;
        if at.elapsed() > FRESH { request().await } else { Ok(entry.clone()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use haul_storage::memory::MemoryStorage;
    use haul_storage::{CommitOptions, Metadata, RelPath, Storage};
    use tokio::time::advance;

    use super::*;

    /// Formerly, a source that changed before the plan came to it was compared by its old entry, and not copied.
    #[tokio::test(start_paused = true)]
    async fn an_entry_is_cached_for_a_moment_only() {
        let storage: Arc<dyn Storage> = MemoryStorage::new();
        let path = RelPath::parse("file").unwrap();
        let options = CommitOptions {
            replace: true,
            sync: false,
            metadata: Metadata::default(),
            expected: None,
        };
        let job = Job {
            source: Arc::clone(&storage),
            source_path: path.clone(),
            destination: Arc::clone(&storage),
            destination_path: RelPath::parse("copy").unwrap(),
            expected: None,
        };
        let sources = Sources::of(std::slice::from_ref(&job));
        let size = async || sources.entry(0, &job).await.unwrap().size;
        storage.write_whole(&path, Bytes::from_static(b"one"), &options).await.unwrap();
        assert_eq!(size().await, 3);
        storage.write_whole(&path, Bytes::from_static(b"longer"), &options).await.unwrap();
        assert_eq!(size().await, 3, "the cached entry");
        advance(FRESH * 2).await;
        assert_eq!(size().await, 6);
    }
}
