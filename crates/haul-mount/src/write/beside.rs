//! Files that are not stored under their name (conflict copies, and files that can no longer be completed), and part
//! files on the server that no upload continues.

use std::sync::Arc;
use std::time::Duration;

use haul_storage::{Error, ErrorKind, RelPath, Result, Retry};
use tokio::time::sleep;

use super::conflict::{ConflictCopy, Reason, copy_path};
use super::pending::Pending;
use super::state::{Onto, now};
use super::upload::Uploader;

/// Most conflict copies of a file on a day.
const MOST_COPIES: u32 = 1000;

/// The pauses after failed attempts to remove a part file, in seconds.
const PAUSES: [u64; 6] = [1, 4, 15, 60, 240, 900];

impl Uploader {
    /// Makes a file that must not be stored under its name a copy beside that name. Programs that have it open go on
    /// with the copy. The caller holds the gate of the file.
    pub(super) async fn put_beside(&self, file: &Arc<Pending>, reason: Reason) -> Result<()> {
        let (path, before) = {
            let state = file.state();
            (state.path.clone(), state.upload.copy.clone())
        };
        let Some(path) = path else { return Ok(()) };
        // A file that is a copy already, and whose name was taken meanwhile, remains a copy of the same original.
        let before = before.filter(|copy| copy.original.parent() == path.parent());
        let copy = before.unwrap_or_else(|| ConflictCopy { original: path.clone(), reason });
        let Some(to) = self.free_copy(&copy.original).await? else {
            return Err(Error::new(ErrorKind::AlreadyExists, "upload")
                .at(self.names.storage.location().display(&path))
                .because("there are too many conflict copies of it"));
        };
        if !self.overlay.relocate(file, &to, Onto::default(), None) {
            return Ok(());
        }
        {
            let mut state = file.state();
            state.complete();
            if reason == Reason::Incomplete {
                state.lose_rest();
            }
            (state.upload.copy, state.is_record_old) = (Some(copy), true);
        }
        // A program that opens the path from now on gets what the server has.
        if let Some((parent, name)) = self.names.move_node(&path, &to) {
            self.kernel.forget_entry(parent, &name);
        }
        self.names.created(&to);
        self.names.forget(&path);
        file.settle(&self.spool, &self.names.root, false).await
    }

    /// Returns the error of fetching the rest of a file. If the rest is gone, the file becomes a copy beside its name,
    /// which then shows what the server has; the copy stays in the spool. The caller holds the gate of the file.
    pub(super) async fn unless_stranded(&self, file: &Arc<Pending>, error: Error) -> Error {
        if !matches!(error.kind(), ErrorKind::Changed | ErrorKind::NotFound) {
            return error;
        }
        // The error may be of a version before.
        let is_gone = match self.filler.opened(file).await {
            Ok(_) => false,
            Err(error) => matches!(error.kind(), ErrorKind::Changed | ErrorKind::NotFound),
        };
        let is_new = {
            let state = file.state();
            state.path.is_some() && state.is_partial() && !state.is_stranded()
        };
        if !is_gone || !is_new {
            return error;
        }
        let error = self.filler.changed(file);
        if let Err(failed) = self.put_beside(file, Reason::Incomplete).await
            && !file.state().is_stranded()
        {
            return failed;
        }
        let warning = {
            let state = file.state();
            let copy = state.upload.copy.clone();
            state.path.clone().and_then(|path| copy.map(|copy| copy.warning(path)))
        };
        warning.iter().for_each(|warning| self.warnings.report(warning));
        error
    }

    /// As [`Uploader::unless_stranded`], for a read: acquires the gate of the file itself.
    pub(super) async fn unread(&self, file: &Arc<Pending>, error: Error) -> Error {
        let _gate = file.gate.lock().await;
        let was_stranded = file.state().is_stranded();
        let error = self.unless_stranded(file, error).await;
        if !was_stranded && file.state().is_stranded() {
            file.note_failure(&self.names.root, error.again());
        }
        error
    }

    /// A free path for a conflict copy; `None` if there are too many copies.
    async fn free_copy(&self, path: &RelPath) -> Result<Option<RelPath>> {
        for number in 1..=MOST_COPIES {
            let Some(copy) = copy_path(path, now(), number) else { break };
            if self.overlay.get(&copy).is_some() {
                continue;
            }
            match self.names.storage.stat(&copy).await {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Some(copy)),
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        Ok(None)
    }

    /// Removes part files at paths that a file no longer has, or leaves them to a file that uses them. What fails is
    /// tried again with the next upload, or once the file has left the spool. The caller holds the gate of the file.
    pub(super) async fn remove_stray_parts(&self, file: &Arc<Pending>) {
        let strays = {
            let state = file.state();
            state.upload.attempts.stray_parts(state.path.as_ref())
        };
        for path in strays {
            let other = self.overlay.get(&path);
            let is_gone = match &other {
                None => self.sender.remove_part(&path).await.is_ok(),
                Some(other) if uses_part(other, &path) => true,
                // Its gate is not waited for: the task that holds that may wait for the gate of this file.
                Some(other) => match other.gate.try_lock() {
                    Ok(_gate) => self.sender.remove_part(&path).await.is_ok(),
                    Err(_) => false,
                },
            };
            if is_gone {
                file.forget_part(&path);
            }
        }
    }

    /// Removes part files of a file that was removed, or has left the spool.
    pub(super) fn remove_parts_later(self: &Arc<Self>, parts: Vec<RelPath>) {
        for path in parts {
            let own = Arc::clone(self);
            self.runtime.spawn(async move {
                let mut pauses = PAUSES.into_iter();
                loop {
                    match own.remove_unused_part(&path).await {
                        Err(error) if error.retry() == Retry::Later => {}
                        _ => return,
                    }
                    let Some(pause) = pauses.next() else { return };
                    sleep(Duration::from_secs(pause)).await;
                }
            });
        }
    }

    /// Removes the part file at a path, unless uploads of the file now at that path use it (those of a short file do
    /// not). The caller holds no gate.
    async fn remove_unused_part(&self, path: &RelPath) -> Result<()> {
        let Some(other) = self.overlay.get(path) else {
            return self.sender.remove_part(path).await;
        };
        // Its upload would use the part file.
        let _gate = other.gate.lock().await;
        if uses_part(&other, path) { Ok(()) } else { self.sender.remove_part(path).await }
    }
}

/// Whether uploads of a file continue the part file at a path, or remove it.
fn uses_part(file: &Pending, path: &RelPath) -> bool {
    file.state().upload.attempts.has_part(path)
}
