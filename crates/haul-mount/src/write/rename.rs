//! Renaming.
//!
//! A new file that is only in the spool is renamed there; everything else on the server, with the files of the spool
//! that are below. The gate of each of these is held meanwhile.

use std::sync::Arc;

use haul_storage::{
    Error, ErrorKind, Identity, RelPath, Result, StorageExt as _, aside_name, is_part_name,
};
use rustix::io::Errno;

use super::changes::{Changes, Removed, change_errno};
use super::namespace::{Gate, hold};
use super::pending::Pending;
use super::state::below;
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
    /// They are not uploaded while these are held.
    _gates: Vec<Gate>,
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
        let renamed = match &moved.source {
            Some(file) if file.state().is_new() => self.rename_new(file, &moved).await,
            _ => self.rename_stored(&moved, flags & NO_REPLACE == 0).await,
        };
        self.names.forget_below(&moved.from);
        self.names.forget_below(&moved.to);
        self.files.changed_below(&moved.from);
        self.files.changed_below(&moved.to);
        renamed?;
        let node = self.names.tree().rename((parent, name), (new_parent, new_name));
        let replaced = replaced.map(Removed::Remote);
        if let Some(removed) = moved.target.clone().map(Removed::Local).or(replaced) {
            self.remember(node, removed);
        }
        self.names.forget_removed(&moved.from);
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

    /// Renames a file that is only in the spool. Its upload replaces what is at the new path now.
    async fn rename_new(&self, file: &Arc<Pending>, moved: &Moved) -> Result<(), Errno> {
        let base = self.version_at(moved).await.map_err(|error| errno(&error))?;
        let (from, to, target) = (&moved.from, &moved.to, moved.target.as_ref());
        let was_base = file.state().base.clone();
        if !self.overlay.relocate(file, to, base, target) {
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
            self.overlay.relocate(file, from, was_base, None);
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

    /// The version that is on the server at the new path.
    async fn version_at(&self, moved: &Moved) -> Result<Option<Identity>> {
        if let Some(target) = &moved.target {
            return Ok(target.state().base.clone());
        }
        let cached = self.names.cached(&moved.to);
        if cached.is_some_and(|known| known.entry.is_none()) {
            return Ok(None);
        }
        let found = self.names.requested(&moved.to).await?;
        Ok(found.entry.map(|entry| entry.identity()))
    }

    /// Moves a file of the spool to the path that it has on the server by now. If that cannot be recorded, the next
    /// record does it.
    async fn follow(&self, file: &Arc<Pending>, to: &RelPath, base: Option<Identity>) {
        if self.overlay.relocate(file, to, base, None) && file.is_recorded() {
            drop(file.settle(&self.spool, &self.names.root, false).await);
        }
    }

    /// Renames what is on the server, and the files of the spool that belong to it.
    async fn rename_stored(&self, moved: &Moved, may_replace: bool) -> Result<(), Errno> {
        let Moved { from, to, source, below, target, .. } = moved;
        match (self.rename_on_server(from, to, may_replace).await, source) {
            (Ok(()), _) => {}
            // It was removed on the server: only the version from here is left, if there is one.
            (Err(error), Some(file))
                if error.kind() == ErrorKind::NotFound && file.state().generations.content > 0 =>
            {
                file.state().generations.uploaded = 0;
                return self.rename_new(file, moved).await;
            }
            (Err(error), _) => return Err(change_errno(&error)),
        }
        if let Some(target) = target {
            self.overlay.take(to, target);
        }
        if let Some(file) = source {
            let stat = self.names.retried(|| self.names.storage.stat(to)).await;
            let base = match stat {
                Ok(entry) => Some(entry.identity()),
                // Servers need not change the version when they rename.
                Err(_) => file.state().base.clone(),
            };
            self.follow(file, to, base).await;
        }
        if let Some(target) = target {
            self.drop_file(target, to);
        }
        for file in below {
            let (path, base) = {
                let state = file.state();
                (state.path.clone(), state.base.clone())
            };
            let Some(path) = path else { continue };
            let Some(moved) = rebased(&path, from, to) else { continue };
            self.follow(file, &moved, base).await;
        }
        Ok(())
    }

    async fn rename_on_server(
        &self,
        from: &RelPath,
        to: &RelPath,
        may_replace: bool,
    ) -> Result<(), Error> {
        match self.names.storage.rename(from, to).await {
            // This server replaces nothing.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && may_replace => {
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
        match storage.find(to).await? {
            None => return storage.rename(from, to).await,
            // It is removed only if it is empty.
            Some(found) if found.is_dir() => {
                storage.remove(to).await?;
                return storage.rename(from, to).await;
            }
            Some(_) => {}
        }
        let Ok(aside) = to.with_name(aside_name(to.name())) else { return Err(refused) };
        if let Err(error) = storage.rename(to, &aside).await {
            if error.kind() != ErrorKind::AlreadyExists {
                return Err(error);
            }
            // A file left aside by an earlier process is older than the one that has the name.
            storage.remove(&aside).await?;
            storage.rename(to, &aside).await?;
        }
        if let Err(error) = storage.rename(from, to).await {
            // If this fails, the file stays aside.
            drop(storage.rename(&aside, to).await);
            return Err(error);
        }
        // The rename is done, even if the replaced file cannot be removed.
        drop(storage.remove(&aside).await);
        Ok(())
    }
}

/// A path below `from`, after `from` was renamed to `to`.
fn rebased(path: &RelPath, from: &RelPath, to: &RelPath) -> Option<RelPath> {
    Some(to.join_path(&below(from, path)?))
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
