//! Renaming.
//!
//! A new file that is only in the spool is renamed there; everything else on the server, with the files of the spool
//! that are below. The gate of each of these is held meanwhile. Of a file that was changed here, only the file of the
//! spool is renamed if the server has no version any more, or if it has another one than the file replaces and not all
//! changes are uploaded.

use std::sync::Arc;

use haul_storage::{
    Entry, Error, ErrorKind, Identity, RelPath, Result, StorageExt as _, aside_name, is_part_name,
};
use rustix::io::Errno;

use super::changes::{Changes, Removed, change_errno};
use super::namespace::{Gate, hold};
use super::pending::Pending;
use super::state::Onto;
use super::warning::Warning;
use crate::errno::errno;
use crate::fuse::Reply;

/// Flag of `renameat2(2)`.
const NO_REPLACE: u32 = 1;

/// What a rename moves, and what is in the way.
struct Moved {
    from: RelPath,
    to: RelPath,
    /// The file of the spool that is renamed.
    source: Option<Arc<Pending>>,
    /// The files of the spool below a directory that is renamed.
    below: Vec<Arc<Pending>>,
    /// The file of the spool that is replaced.
    target: Option<Arc<Pending>>,
    /// These files are not uploaded while their gates are held.
    _gates: Vec<Gate>,
}

/// What the server has at the old path after a rename.
enum Left {
    Nothing,
    /// A version of another program.
    Other,
}

impl Changes {
    /// Renames an entry.
    pub(super) async fn rename(
        &self,
        (parent, name): (u64, &[u8]),
        (new_parent, new_name): (u64, &[u8]),
        flags: u32,
    ) -> Result<Reply, Errno> {
        if flags & !NO_REPLACE != 0 || is_part_name(new_name) {
            return Err(Errno::INVAL);
        }
        let _paths = self.paths.write().await;
        let from = self.names.path_below(parent, name)?;
        let to = self.names.path_below(new_parent, new_name)?;
        if from == to {
            return Ok(Reply::done());
        }
        if !self.overlay.below(&to).is_empty() {
            // The server may not know these yet.
            return Err(Errno::NOTEMPTY);
        }
        let moved = self.moved(from, to).await;
        if flags & NO_REPLACE != 0 && self.is_taken(&moved).await? {
            return Err(Errno::EXIST);
        }
        if let Some(target) = &moved.target {
            self.keep_readable(target).await;
        }
        let replaced = self.names.cached(&moved.to).and_then(|known| known.entry);
        let may_replace = flags & NO_REPLACE == 0;
        let renamed = match &moved.source {
            Some(file) => self.rename_file(file, &moved, may_replace).await,
            None => self.rename_stored(&moved, None, may_replace).await.map(|()| Left::Nothing),
        };
        self.names.forget_below(&moved.from);
        self.names.forget_below(&moved.to);
        self.files.changed_below(&moved.from);
        self.files.changed_below(&moved.to);
        let left = renamed?;
        let node = self.names.tree().rename((parent, name), (new_parent, new_name));
        let replaced = replaced.map(Removed::Remote);
        if let Some(removed) = moved.target.clone().map(Removed::Local).or(replaced) {
            self.remember(node, removed);
        }
        match left {
            Left::Nothing => self.names.forget_removed(&moved.from),
            Left::Other => self.names.created(&moved.from),
        }
        self.names.created(&moved.to);
        let files: Vec<_> = moved.source.iter().chain(&moved.below).cloned().collect();
        drop(moved);
        // Their uploads were stopped.
        let closed = files.iter().filter(|file| file.state().handles.writers == 0);
        closed.for_each(|file| self.uploader.queue(file));
        Ok(Reply::done())
    }

    /// Finds what a rename moves, and waits until none of it is being uploaded.
    async fn moved(&self, from: RelPath, to: RelPath) -> Moved {
        let mut gates = Vec::new();
        let mut source = None;
        let mut target = None;
        if let Some((file, gate)) = self.held(&from).await {
            source = Some(file);
            gates.push(gate);
        }
        if let Some((file, gate)) = self.held(&to).await {
            target = Some(file);
            gates.push(gate);
        }
        let mut below = Vec::new();
        for file in self.overlay.below(&from) {
            let gate = hold(&file).await;
            if file.is_live() {
                below.push(file);
                gates.push(gate);
            }
        }
        Moved { from, to, source, below, target, _gates: gates }
    }

    async fn is_taken(&self, moved: &Moved) -> Result<bool, Errno> {
        if moved.target.is_some() {
            return Ok(true);
        }
        let found = self.names.requested(&moved.to).await.map_err(|error| errno(&error))?;
        Ok(found.entry.is_some())
    }

    /// Renames a file of the spool: on the server if that has the version that the file replaces, or one uploaded from
    /// here; otherwise in the spool, and a version of another program keeps the old path. But if nothing was changed
    /// here, or all changes are uploaded, a version of another program is renamed, too.
    async fn rename_file(
        &self,
        file: &Arc<Pending>,
        moved: &Moved,
        may_replace: bool,
    ) -> Result<Left, Errno> {
        let from = &moved.from;
        let (is_new, base, attempts, has_changes, is_uploaded) = {
            let state = file.state();
            let attempts: Vec<_> = state.upload.attempts.at(from).cloned().collect();
            let (has_changes, is_uploaded) = (state.generations.content > 0, state.is_uploaded());
            (state.is_new(), state.base.clone(), attempts, has_changes, is_uploaded)
        };
        if file.state().is_stranded() {
            return Err(Errno::STALE);
        }
        if is_new && attempts.is_empty() {
            self.rename_new(file, moved).await?;
            return Ok(Left::Nothing);
        }
        let storage = &self.names.storage;
        let existing = self.names.retried(|| storage.find(from)).await;
        let existing = existing.map_err(|error| errno(&error))?;
        let is_current = match &existing {
            Some(existing) if base.as_ref() == Some(&existing.identity()) => true,
            Some(existing) => {
                let sender = &self.uploader.sender;
                let is_one = sender.is_one_of(&attempts, existing).await;
                is_one.map_err(|error| errno(&error))?
            }
            None => false,
        };
        // If all of it was uploaded, no change is lost when another version, which the server has by now, is renamed.
        if is_current || !has_changes || (existing.is_some() && is_uploaded) {
            let current = existing.filter(|_| is_current);
            self.rename_stored(moved, current, may_replace).await?;
            return Ok(Left::Nothing);
        }
        // Only the version from here gets the new path.
        if file.state().is_partial() {
            let opened = file.remote.lock().await.is_some();
            if !opened && let Err(error) = self.filler.opened(file).await {
                let error = self.uploader.unless_stranded(file, error).await;
                let number = errno(&error);
                file.note_failure(&self.names.root, error);
                return Err(if number == Errno::NOENT { Errno::STALE } else { number });
            }
            // By its path, its rest would be fetched from another file.
            file.state().lose_rest();
        }
        file.state().generations.uploaded = 0;
        self.rename_new(file, moved).await?;
        Ok(if existing.is_some() { Left::Other } else { Left::Nothing })
    }

    /// Renames a file in the spool. Its upload replaces what is at the new path now.
    async fn rename_new(&self, file: &Arc<Pending>, moved: &Moved) -> Result<(), Errno> {
        let onto = self.version_at(moved).await.map_err(|error| errno(&error))?;
        let (from, to, target) = (&moved.from, &moved.to, moved.target.as_ref());
        let before = file.state().onto();
        if !self.overlay.relocate(file, to, onto, target) {
            // A conflict copy has got this name meanwhile, or the file is gone.
            return Err(if file.is_live() { Errno::BUSY } else { Errno::NOENT });
        }
        // The new path becomes durable before the replaced file is removed. If none is replaced, a file without a
        // record needs none yet.
        let settled = match file.is_recorded() || target.is_some() {
            true => self.settle(file, false).await,
            false => Ok(()),
        };
        if settled.is_err() {
            // Undo the move.
            self.overlay.relocate(file, from, before, None);
            if let Some(target) = target {
                self.overlay.add(to, target);
            }
            return settled;
        }
        if let Some(target) = target {
            self.drop_file(target, to);
        }
        Ok(())
    }

    /// What is on the server at the new path.
    async fn version_at(&self, moved: &Moved) -> Result<Onto> {
        if let Some(target) = &moved.target {
            return Ok(target.state().onto());
        }
        let cached = self.names.cached(&moved.to);
        if cached.is_some_and(|known| known.entry.is_none()) {
            return Ok(Onto::default());
        }
        let found = self.names.requested(&moved.to).await?;
        Ok(Onto { base: found.entry.map(|entry| entry.identity()), ..Onto::default() })
    }

    /// Moves a file of the spool to the path that it has on the server by now. If that cannot be recorded, the next
    /// record does it.
    async fn follow(&self, file: &Arc<Pending>, to: &RelPath, onto: Onto) {
        if self.overlay.relocate(file, to, onto, None) && file.is_recorded() {
            drop(file.settle(&self.spool, &self.names.root, false).await);
        }
    }

    /// Renames what is on the server, and the files of the spool that belong to it. `current` is the entry on the
    /// server if it is what the file of the spool replaces.
    async fn rename_stored(
        &self,
        moved: &Moved,
        current: Option<Entry>,
        may_replace: bool,
    ) -> Result<(), Errno> {
        let Moved { from, to, source, below, target, .. } = moved;
        // A task that fetched the rest of these meanwhile would find them at neither path.
        let mut remotes = Vec::new();
        for file in source.iter().chain(below) {
            remotes.push(file.remote.lock().await);
        }
        let renamed = self.rename_on_server(from, to, may_replace).await;
        renamed.map_err(|error| change_errno(&error))?;
        if let Some(target) = target {
            self.overlay.take(to, target);
        }
        if let Some(file) = source {
            let base = match current {
                Some(current) => Some(self.renamed_version(&current, to).await),
                // The server has another version than the one that the file replaces: its upload finds that.
                None => file.state().base.clone(),
            };
            self.follow(file, to, Onto { base, ..Onto::default() }).await;
        }
        if let Some(target) = target {
            self.drop_file(target, to);
        }
        for file in below {
            let mut onto = file.state().onto();
            onto.attempts.follow(|path| rebased(path, from, to));
            let path = file.state().path.clone();
            let Some(moved) = path.and_then(|path| rebased(&path, from, to)) else { continue };
            file.state().upload.attempts.follow(|path| rebased(path, from, to));
            self.follow(file, &moved, onto).await;
        }
        Ok(())
    }

    /// The version at the new path, to which `before` was renamed. Servers may change its tag and file ID.
    async fn renamed_version(&self, before: &Entry, to: &RelPath) -> Identity {
        let was = before.identity();
        // Without a response, the version counts as unchanged: servers need not change it when they rename.
        let found = self.names.retried(|| self.names.storage.stat(to)).await;
        let Ok(found) = found.map(|found| found.identity()) else { return was };
        let is_same = (found.size, found.modified) == (was.size, was.modified)
            || (was.tag.is_some() && found.tag == was.tag);
        // Otherwise another program was faster. The upload finds that.
        if is_same { found } else { was }
    }

    async fn rename_on_server(
        &self,
        from: &RelPath,
        to: &RelPath,
        may_replace: bool,
    ) -> Result<(), Error> {
        match self.names.storage.rename(from, to).await {
            // This server replaces nothing, or no directory.
            Err(error)
                if may_replace
                    && matches!(
                        error.kind(),
                        ErrorKind::AlreadyExists | ErrorKind::IsADirectory
                    ) =>
            {
                self.replace_on_server(from, to, error).await
            }
            renamed => renamed,
        }
    }

    /// Renames on a server that refuses to replace what is at the new path. An empty directory there is removed first;
    /// a file is moved aside, and moved back if the rename fails.
    async fn replace_on_server(
        &self,
        from: &RelPath,
        to: &RelPath,
        refused: Error,
    ) -> Result<(), Error> {
        let storage = &self.names.storage;
        let Some(found) = storage.find(to).await? else { return storage.rename(from, to).await };
        let is_directory = storage.stat(from).await?.is_dir();
        match (is_directory, found.is_dir()) {
            // It is removed only if it is empty.
            (true, true) => {
                storage.remove(to).await?;
                return storage.rename(from, to).await;
            }
            (true, false) => return Err(Error::new(ErrorKind::NotADirectory, "rename")),
            (false, true) => return Err(Error::new(ErrorKind::IsADirectory, "rename")),
            (false, false) => {}
        }
        let Ok(aside) = to.with_name(aside_name(to.name())) else { return Err(refused) };
        if let Err(error) = storage.rename(to, &aside).await {
            if error.kind() != ErrorKind::AlreadyExists {
                return Err(error);
            }
            // If there is no file any more, another machine is replacing it, and what is aside is the only old version.
            if storage.find(to).await?.is_none() {
                return Err(error);
            }
            // A file left aside by an earlier process is older than the one that has the name.
            storage.remove(&aside).await?;
            storage.rename(to, &aside).await?;
        }
        if let Err(error) = storage.rename(from, to).await {
            if storage.rename(&aside, to).await.is_err() {
                let path = to.clone();
                self.uploader.warnings.report(&Warning::Aside { path, aside });
            }
            return Err(error);
        }
        // The rename is done, even if the replaced file cannot be removed.
        drop(storage.remove(&aside).await);
        Ok(())
    }
}

/// A path below `from`, after `from` was renamed to `to`.
fn rebased(path: &RelPath, from: &RelPath, to: &RelPath) -> Option<RelPath> {
    Some(to.join_path(&path.relative_to(from)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_follows_the_directory_above_it() {
        let path = |text| RelPath::parse(text).unwrap();
        assert_eq!(rebased(&path("a/b/c"), &path("a"), &path("x/y")), Some(path("x/y/b/c")));
        assert_eq!(rebased(&path("ab/c"), &path("a"), &path("x")), None);
    }
}
