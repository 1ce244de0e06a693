//! Fetches what a file in the spool needs of the version that it replaces.

use std::sync::Arc;

use haul_storage::{Error, ErrorKind, Range, Result, Retry};
use tokio::runtime::Handle;

use super::pending::Pending;
use crate::names::Names;
use crate::read::Files;

/// Bytes that are fetched at a time.
const STEP: u64 = 1 << 20;

/// Fetches the rest of files.
#[derive(Debug)]
pub(super) struct Filler {
    names: Arc<Names>,
    pub(super) files: Arc<Files>,
    runtime: Handle,
}

/// A handle that may be of another version. It is closed unless it is taken, also if the task is cancelled.
struct Unchecked<'a> {
    files: &'a Files,
    handle: Option<u64>,
}

impl Drop for Unchecked<'_> {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.files.release(handle);
        }
    }
}

impl Filler {
    pub(super) fn new(names: &Arc<Names>, files: &Arc<Files>, runtime: &Handle) -> Arc<Self> {
        let (names, files, runtime) = (Arc::clone(names), Arc::clone(files), runtime.clone());
        Arc::new(Self { names, files, runtime })
    }

    /// Fetches the rest in the background, from the first change of a file on.
    pub(super) fn begin(self: &Arc<Self>, file: &Arc<Pending>) {
        if !file.begins_to_fill() {
            return;
        }
        let (own, file) = (Arc::clone(self), Arc::clone(file));
        self.runtime.spawn(async move {
            while let Some(gap) = file.missing(Range::new(0, u64::MAX)).into_iter().next() {
                // Of a removed file, only what is read is needed. What fails here is fetched again by the reader or the
                // upload that needs it.
                let is_removed = file.state().path.is_none();
                if is_removed || own.fill(&file, gap.split_at(STEP).0).await.is_err() {
                    break;
                }
            }
        });
    }

    /// Fetches what is missing of a range.
    ///
    /// # Errors
    /// `Changed` if the file has been replaced on the server, and those of reading and of the spool.
    pub(super) async fn fill(&self, file: &Pending, range: Range) -> Result<()> {
        let mut is_reopened = false;
        while let Some(gap) = file.missing(range).into_iter().next() {
            let handle = self.opened(file).await?;
            let (step, _) = gap.split_at(STEP);
            let block = match self.files.read(handle, step).await {
                Ok(block) => block,
                Err(error) => {
                    let is_gone = matches!(error.kind(), ErrorKind::Changed | ErrorKind::NotFound);
                    if is_gone && file.state().path.is_some() {
                        self.release(file).await;
                        // Its metadata or its path may have changed through this mount: it is opened again, and its
                        // version compared.
                        if !std::mem::replace(&mut is_reopened, true) {
                            continue;
                        }
                    }
                    return Err(error);
                }
            };
            is_reopened = false;
            if (block.len() as u64) < step.len() {
                // It was truncated meanwhile, through this mount or on the server.
                if file.missing(step) != [step] {
                    continue;
                }
                return Err(self.changed(file));
            }
            let filled = file.fill(step.start(), &block.into_bytes());
            filled.map_err(|error| Error::from_io("write to the spool", error))?;
        }
        if file.missing(Range::new(0, u64::MAX)).is_empty() {
            self.release(file).await;
        }
        Ok(())
    }

    /// Closes the handle by which the rest was read. Waits while another task opens it, or sets the metadata of the
    /// file on the server, or renames the file there.
    pub(super) async fn release(&self, file: &Pending) {
        if let Some(handle) = file.remote.lock().await.take() {
            self.files.release(handle);
        }
    }

    /// The handle by which the rest is read.
    ///
    /// # Errors
    /// `Changed` if the file has been replaced on the server, or its rest is lost; `NotFound` if it was removed here;
    /// and those of opening it.
    pub(super) async fn opened(&self, file: &Pending) -> Result<u64> {
        let mut remote = file.remote.lock().await;
        if let Some(handle) = *remote {
            return Ok(handle);
        }
        let (path, base, is_lost) = {
            let state = file.state();
            (state.path.clone(), state.base.clone(), state.is_rest_lost())
        };
        if is_lost {
            return Err(self.changed(file));
        }
        let Some(path) = path else { return Err(Error::new(ErrorKind::NotFound, "read")) };
        let handle = self.names.retried(|| self.files.open_anew(&path)).await?;
        let mut unchecked = Unchecked { files: &self.files, handle: Some(handle) };
        // Requested after the open: if the base is still at the path now, it is what was opened.
        let now = self.names.requested(&path).await;
        let is_same = now.map(|known| known.entry.map(|entry| entry.identity()) == base);
        match is_same {
            Ok(true) => {
                *remote = unchecked.handle.take();
                Ok(handle)
            }
            other => Err(other.err().unwrap_or_else(|| self.changed(file))),
        }
    }

    /// The error if the rest of a file is gone.
    pub(super) fn changed(&self, file: &Pending) -> Error {
        let path = file.state().path.clone().unwrap_or_default();
        Error::new(ErrorKind::Changed, "read")
            .at(self.names.storage.location().display(&path))
            .because(
                "the file was removed, replaced or changed on the server before the parts of it that were not \
                 written here had been read",
            )
            .with_retry(Retry::Never)
    }
}
