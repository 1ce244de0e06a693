//! The journal of a part file that is on a server, or consists of several files.
//!
//! ```text
//! look: reads the journal and decides whether to resume → the part file is opened or emptied → start
//!   → record, record, … → remove (with the commit or the abort)
//! ```

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::spawn_blocking;

use super::{Journal, remove_at};
use crate::{
    CreateOptions, Error, ErrorKind, Held, RangeSet, Result, SourceVersion, WriteAt, Writes,
};

/// The journal of one part file. Its file calls run on tokio's blocking threads. The default keeps no
/// records.
#[derive(Debug, Default)]
pub struct PartJournal {
    /// The path of the journal, and the source of the part file; `None` if nothing is recorded.
    recorded: Option<(PathBuf, SourceVersion)>,
    /// If a part file is resumed without a source, the path of the journal that an earlier run may have left.
    leftover: Option<PathBuf>,
    held: Held,
    resumes: bool,
    journal: OnceLock<Arc<Mutex<Journal>>>,
}

impl PartJournal {
    /// Reads the journal at `path`. `found` is the length of the existing part file in bytes; `None` if it does not
    /// exist or shall not be resumed.
    ///
    /// # Errors
    /// `Interrupted` if the runtime shuts down.
    pub async fn look(
        path: Option<PathBuf>,
        options: &CreateOptions,
        found: Option<u64>,
        writes: Writes,
    ) -> Result<Self> {
        let Some(source) = options.source.clone() else {
            let (resumes, leftover) = (found.is_some(), path.filter(|_| found.is_some()));
            return Ok(Self { resumes, leftover, ..Self::default() });
        };
        let Some(path) = path else { return Ok(Self::default()) };
        let held = match found {
            Some(length) => {
                let (path, source) = (path.clone(), source.clone());
                blocking(move || Ok(Journal::held(&path, &source, length, writes))).await?
            }
            None => Held::Ranges(RangeSet::new()),
        };
        let resumes = found.is_some() && matches!(held, Held::Ranges(_));
        Ok(Self { recorded: Some((path, source)), held, resumes, ..Self::default() })
    }

    /// Whether the existing part file is resumed. Otherwise it has to be emptied before [`Self::start`].
    pub const fn resumes(&self) -> bool {
        self.resumes
    }

    /// What the part file holds.
    pub const fn held(&self) -> &Held {
        &self.held
    }

    /// Starts the journal, after the part file was opened or emptied according to [`Self::resumes`]. On
    /// failure, `writer` is aborted if the part file holds nothing; otherwise the part file stays.
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub async fn start(&self, writer: &dyn WriteAt) -> Result<()> {
        let Some((path, source)) = self.recorded.clone() else { return Ok(()) };
        let written = self.held.ranges();
        let is_empty = written.is_empty();
        match blocking(move || Journal::start(&path, &source, &written)).await {
            Ok(journal) => {
                self.journal.get_or_init(|| Arc::new(Mutex::new(journal)));
                Ok(())
            }
            Err(error) => {
                if is_empty {
                    // The error to report is the first one.
                    drop(writer.abort(false).await);
                }
                Err(error)
            }
        }
    }

    /// [`WriteAt::record`].
    ///
    /// # Errors
    /// If the journal cannot be written.
    pub async fn record(&self, ranges: RangeSet) -> Result<()> {
        let Some(mut journal) = self.journal().await else { return Ok(()) };
        blocking(move || journal.append(ranges.iter())).await
    }

    /// Makes written data durable by `sync`, and marks the recorded ranges as synced.
    ///
    /// # Errors
    /// Those of `sync`, and if the journal cannot be written.
    pub async fn synced(&self, sync: impl Future<Output = Result<()>>) -> Result<()> {
        // Locked meanwhile: a range recorded during the sync may not be durable, and must not be marked.
        let journal = self.journal().await;
        sync.await?;
        let Some(mut journal) = journal else { return Ok(()) };
        blocking(move || journal.mark_synced()).await
    }

    /// Removes the journal, also that of an earlier run whose part file was resumed without a source.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub async fn remove(&self) -> Result<()> {
        if let Some(leftover) = self.leftover.clone() {
            return blocking(move || remove_at(&leftover)).await;
        }
        let Some(journal) = self.journal().await else { return Ok(()) };
        blocking(move || journal.remove()).await
    }

    async fn journal(&self) -> Option<OwnedMutexGuard<Journal>> {
        Some(Arc::clone(self.journal.get()?).lock_owned().await)
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    spawn_blocking(work).await.unwrap_or_else(|failed| {
        Err(Error::new(ErrorKind::Interrupted, "access the journal").with_source(failed))
    })
}
