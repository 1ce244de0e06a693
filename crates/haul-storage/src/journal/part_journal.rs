//! The journal of a part file that is on a server, or consists of several files.
//!
//! ```text
//! look: reads the journal and decides whether to resume → the part file is opened or emptied → start
//!   → record, record, … → remove (with the commit or the abort)
//! ```

use std::io;
use std::sync::{Arc, OnceLock};

use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::spawn_blocking;

use super::{Journal, JournalPath, remove_at};
use crate::{
    CreateOptions, Error, ErrorKind, Held, RangeSet, Result, SourceVersion, WriteAt, Writes,
};

/// The journal of one part file. Its file calls run on tokio's blocking threads. The default keeps no
/// records.
#[derive(Debug, Default)]
pub struct PartJournal {
    /// The path of the journal, and the source of the part file; `None` if nothing is recorded.
    recorded: Option<(JournalPath, SourceVersion)>,
    /// Without a source, the path of the journal that an earlier run may have left.
    leftover: Option<JournalPath>,
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
        path: Option<impl Into<JournalPath>>,
        options: &CreateOptions,
        found: Option<u64>,
        writes: Writes,
    ) -> Result<Self> {
        let path = path.map(Into::into);
        let Some(source) = options.source.clone() else {
            return Ok(Self { resumes: found.is_some(), leftover: path, ..Self::default() });
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

    /// For a part file of which nothing can be recorded, and which is empty: [`Self::start`] removes the journal that
    /// an earlier run may have left.
    #[must_use]
    pub fn unrecorded(self) -> Self {
        let recorded = self.recorded.map(|(path, _)| path);
        Self { leftover: recorded.or(self.leftover), ..Self::default() }
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
    /// If the journal cannot be written, or that of an emptied part file cannot be removed.
    pub async fn start(&self, writer: &dyn WriteAt) -> Result<()> {
        let written = self.held.ranges();
        let is_empty = written.is_empty();
        let (recorded, leftover) = (self.recorded.clone(), self.leftover.clone());
        let started = match (recorded, leftover.filter(|_| !self.resumes)) {
            (Some((path, source)), _) => {
                blocking(move || Journal::start(&path, &source, &written).map(Some)).await
            }
            (None, Some(leftover)) => {
                blocking(move || remove_stale(&leftover).map(|()| None)).await
            }
            (None, None) => Ok(None),
        };
        match started {
            Ok(Some(journal)) => {
                self.journal.get_or_init(|| Arc::new(Mutex::new(journal)));
                Ok(())
            }
            Ok(None) => Ok(()),
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
        if let Some(leftover) = self.leftover.clone().filter(|_| self.resumes) {
            return blocking(move || remove_at(&leftover)).await;
        }
        let Some(journal) = self.journal().await else { return Ok(()) };
        blocking(move || journal.remove()).await
    }

    async fn journal(&self) -> Option<OwnedMutexGuard<Journal>> {
        Some(Arc::clone(self.journal.get()?).lock_owned().await)
    }
}

/// Removes the journal of an emptied part file: with it, holes of that file would look like data to a later run.
fn remove_stale(path: &JournalPath) -> Result<()> {
    match path.open() {
        // Removing nothing could fail as well, on a file system that is read-only.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => remove_at(path),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    spawn_blocking(work).await.unwrap_or_else(|failed| {
        Err(Error::new(ErrorKind::Interrupted, "access the journal").with_source(failed))
    })
}
