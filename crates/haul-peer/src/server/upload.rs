//! A part file that a client writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use haul_storage::{Block, Error, ErrorKind, RelPath, Result, WriteAt};
use tokio::sync::RwLock;

/// A part file, and the writes to it that are in progress: it is closed behind them, and accepts none afterwards. A
/// write may still run although its client has repeated it on another lane.
pub(super) struct Upload {
    /// The path of the file that it becomes.
    pub(super) path: RelPath,
    pub(super) file: Arc<dyn WriteAt>,
    /// Whether the part file may hold bytes of the file.
    has_data: AtomicBool,
    /// Whether it is open. Each write holds the read lock; closing the file takes the write lock.
    is_open: RwLock<bool>,
}

impl Upload {
    /// The part file of `path`; `resumes` if it was not emptied when it was opened.
    pub(super) fn new(path: RelPath, file: Arc<dyn WriteAt>, resumes: bool) -> Arc<Self> {
        let held = file.held();
        let has_data =
            AtomicBool::new(resumes && !(held.is_recorded() && held.ranges().is_empty()));
        Arc::new(Self { path, file, has_data, is_open: RwLock::new(true) })
    }

    /// Writes a block.
    ///
    /// # Errors
    /// `InvalidInput` if the file has been closed, and those of the storage.
    pub(super) async fn write(&self, offset: u64, data: Block) -> Result<()> {
        let is_open = self.is_open.read().await;
        if !*is_open {
            return Err(no_handle());
        }
        self.has_data.store(true, Ordering::Relaxed);
        self.file.write_at(offset, data).await
    }

    /// Removes the part file of a client that is gone, if a later run could resume nothing from it. Failures are
    /// ignored, since the next run reuses the part file.
    pub(super) async fn remove_if_empty(&self) {
        if !self.has_data.load(Ordering::Relaxed) {
            drop(self.close(self.file.abort(false)).await);
        }
    }

    /// Closes the file by `close` (its commit, for example), after all writes in progress.
    ///
    /// # Errors
    /// `InvalidInput` if it has been closed, and those of `close`: then it stays open.
    pub(super) async fn close(&self, close: impl Future<Output = Result<()>>) -> Result<()> {
        let mut is_open = self.is_open.write().await;
        if !*is_open {
            return Err(no_handle());
        }
        close.await?;
        *is_open = false;
        Ok(())
    }
}

/// The error of a handle that is not open.
pub(super) fn no_handle() -> Error {
    Error::new(ErrorKind::InvalidInput, "access the file").because("it is not open")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use haul_storage::memory::{MemoryStorage, Operation};
    use haul_storage::{CommitOptions, CreateOptions, ErrorKind, Metadata, RelPath, Storage};

    use super::*;

    /// Formerly, a file could be committed without data whose write was still in progress.
    #[tokio::test]
    async fn a_commit_waits_for_writes_in_progress_and_later_ones_fail() {
        let storage = MemoryStorage::new();
        let path = RelPath::parse("file").unwrap();
        let created = storage.create(&path, &CreateOptions::default()).await.unwrap();
        let upload = Upload::new(path.clone(), created, false);
        storage.faults().on(Operation::Write).nth(1).delay(Duration::from_millis(100));
        let write = upload.write(0, Bytes::from_static(b"content").into());
        let commit = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let metadata = Metadata::default();
            let options = CommitOptions { metadata, replace: false, sync: false, expected: None };
            upload.close(upload.file.commit(7, &options)).await
        };
        let (written, committed) = tokio::join!(write, commit);
        written.unwrap();
        committed.unwrap();
        assert_eq!(storage.read_whole(&path, 100).await.unwrap().bytes, "content");
        let late = upload.write(0, Bytes::from_static(b"late").into()).await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::InvalidInput);
    }

    #[tokio::test]
    async fn a_part_file_outlives_its_client_only_if_it_can_be_resumed() {
        let storage = MemoryStorage::new();
        let path = RelPath::parse("file").unwrap();
        let options = |resume| CreateOptions { resume, ..CreateOptions::default() };
        for (resumes, writes) in [(false, false), (false, true), (true, false)] {
            let created = storage.create(&path, &options(resumes)).await.unwrap();
            let upload = Upload::new(path.clone(), created, resumes);
            if writes {
                upload.write(0, Bytes::from_static(b"content").into()).await.unwrap();
            }
            upload.remove_if_empty().await;
            assert_eq!(storage.has_part("file"), resumes || writes);
        }
    }
}
