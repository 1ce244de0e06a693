//! Names: creating directories and links, and removing entries.

use std::sync::Arc;
use std::time::Duration;

use haul_storage::{
    Entry, EntryKind, Error, ErrorKind, LinkKind, Metadata, RelPath, Result, StorageExt as _,
    is_part_name,
};
use rustix::io::Errno;
use tokio::sync::OwnedMutexGuard;
use tokio::time::timeout;

use super::changes::{Changes, Removed, change_errno};
use super::pending::Pending;
use super::state::now;
use crate::errno::errno;
use crate::fuse::{Reply, entry};

/// Permission bits that the umask of haul, or a server, often removes from those of a new directory. The kernel has
/// already removed those of the program's umask.
const OFTEN_MASKED: u32 = 0o7022;

/// Longest time to open the rest of a file before it is removed or replaced: other changes wait meanwhile.
const OPEN_TIMEOUT: Duration = Duration::from_secs(2);

/// Held to rename or remove a file of the spool, which is not uploaded meanwhile.
pub(super) type Gate = OwnedMutexGuard<()>;

impl Changes {
    /// Creates a directory.
    pub(super) async fn make_directory(
        &self,
        parent: u64,
        name: &[u8],
        mode: u32,
    ) -> Result<Reply, Errno> {
        let _paths = self.paths.read().await;
        let path = self.free_path(parent, name)?;
        let storage = &self.names.storage;
        let mode = storage.capabilities().mode.then_some(mode & 0o7777);
        let made = storage.create_dir_as(&path, mode).await;
        made.map_err(|error| change_errno(&error))?;
        if let Some(mode) = mode.filter(|mode| mode & OFTEN_MASKED != 0) {
            let metadata = Metadata { mode: Some(mode), ..Metadata::default() };
            // If it fails, the directory exists nevertheless, with permissions of the server's choice.
            drop(storage.set_metadata(&path, &metadata).await);
        }
        self.names.created_directory(&path);
        let mut made = Entry::new(path, EntryKind::Directory, 0);
        (made.mode, made.modified) = (mode, Some(now()));
        self.referring(parent, name, &made)
    }

    /// Creates a symbolic link.
    pub(super) async fn make_link(
        &self,
        parent: u64,
        name: &[u8],
        target: Vec<u8>,
    ) -> Result<Reply, Errno> {
        let _paths = self.paths.read().await;
        let path = self.free_path(parent, name)?;
        let link = LinkKind::Symbolic(target);
        let made = self.names.storage.create_link(&path, &link, false).await;
        made.map_err(|error| change_errno(&error))?;
        self.names.created(&path);
        let LinkKind::Symbolic(target) = link else { return Err(Errno::IO) };
        let mut made = Entry::new(path, EntryKind::Symlink(target), 0);
        made.modified = Some(now());
        self.referring(parent, name, &made)
    }

    /// The path of a new entry.
    fn free_path(&self, parent: u64, name: &[u8]) -> Result<RelPath, Errno> {
        if is_part_name(name) {
            // haul would take it for a part file.
            return Err(Errno::INVAL);
        }
        let path = self.names.path_below(parent, name)?;
        if self.overlay.get(&path).is_some() {
            return Err(Errno::EXIST);
        }
        Ok(path)
    }

    fn referring(&self, parent: u64, name: &[u8], made: &Entry) -> Result<Reply, Errno> {
        let node = self.names.tree().refer(parent, name).ok_or(Errno::STALE)?;
        // The storage may report other attributes, so these are valid only for a short time.
        let valid = self.names.shown.ages.missing;
        Ok(Reply::referring(entry(&self.names.attributes(node, made), valid), node))
    }

    /// Removes a directory.
    pub(super) async fn remove_directory(&self, parent: u64, name: &[u8]) -> Result<Reply, Errno> {
        let _paths = self.paths.read().await;
        let path = self.names.path_below(parent, name)?;
        if !self.overlay.below(&path).is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        let found = self.names.known(&path).await.map_err(|error| errno(&error))?.entry;
        let found = found.ok_or(Errno::NOENT)?;
        if !found.is_dir() {
            return Err(Errno::NOTDIR);
        }
        let removed = self.names.storage.remove(&path).await;
        removed.map_err(|error| match error.kind() {
            // Some servers report these for a directory that is not empty.
            ErrorKind::AlreadyExists | ErrorKind::IsADirectory => Errno::NOTEMPTY,
            _ => change_errno(&error),
        })?;
        self.names.forget_below(&path);
        self.names.forget_removed(&path);
        let node = self.names.tree().remove(parent, name);
        self.remember(node, Removed::Remote(found));
        Ok(Reply::done())
    }

    /// Removes a file or a link.
    pub(super) async fn unlink(&self, parent: u64, name: &[u8]) -> Result<Reply, Errno> {
        let _paths = self.paths.read().await;
        let path = self.names.path_below(parent, name)?;
        let removed = match self.held(&path).await {
            Some((file, gate)) => {
                self.keep_readable(&file).await;
                self.remove_stored(&file, &path).await.map_err(|error| change_errno(&error))?;
                self.drop_file(&file, &path);
                drop(gate);
                Removed::Local(file)
            }
            None => {
                let found = self.names.known(&path).await.map_err(|error| errno(&error))?;
                let found = found.entry.ok_or(Errno::NOENT)?;
                if found.is_dir() {
                    return Err(Errno::ISDIR);
                }
                let storage = &self.names.storage;
                storage.remove(&path).await.map_err(|error| change_errno(&error))?;
                Removed::Remote(found)
            }
        };
        self.names.forget_removed(&path);
        let node = self.names.tree().remove(parent, name);
        self.remember(node, removed);
        Ok(Reply::done())
    }

    /// The file of the spool at a path, once it is not being uploaded; `None` if there is none then.
    pub(super) async fn held(&self, path: &RelPath) -> Option<(Arc<Pending>, Gate)> {
        let file = self.overlay.get(path)?;
        let gate = hold(&file).await;
        let is_current = self.overlay.get(path).is_some_and(|current| Arc::ptr_eq(&current, &file));
        is_current.then_some((file, gate))
    }

    /// The file on the server is about to be removed or replaced: programs that have it open go on reading what was not
    /// fetched yet, if the server lets open files be read after that.
    pub(super) async fn keep_readable(&self, file: &Arc<Pending>) {
        let is_partial = file.state().is_partial();
        // Where files have no ranges, an open reads the whole file.
        let is_ranged = self.names.storage.capabilities().ranged_reads;
        if is_partial && is_ranged && self.handles.refers_to(file) {
            // If it cannot be opened, a read of its rest fails.
            drop(timeout(OPEN_TIMEOUT, self.filler.opened(file)).await);
        }
    }

    /// Removes the version of a file that is on the server, if there is one.
    async fn remove_stored(&self, file: &Pending, path: &RelPath) -> Result<(), Error> {
        let (is_new, attempts) = {
            let state = file.state();
            let attempts: Vec<_> = state.upload.attempts.at(path).cloned().collect();
            (state.is_new(), attempts)
        };
        let storage = &self.names.storage;
        if is_new {
            if attempts.is_empty() {
                return Ok(());
            }
            // An upload may have succeeded although its response was lost.
            let Some(existing) = storage.find(path).await? else { return Ok(()) };
            if !self.uploader.sender.is_one_of(&attempts, &existing).await? {
                return Ok(());
            }
        }
        match storage.remove(path).await {
            // Another program was faster.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    /// A file of the spool is removed, or replaced by another.
    pub(super) fn drop_file(&self, file: &Arc<Pending>, path: &RelPath) {
        self.overlay.take(path, file);
        file.discard();
        self.stop_filling(file);
        let parts = file.state().upload.attempts.stray_parts(None);
        self.uploader.remove_parts_later(parts);
    }
}

/// Stops an upload of a file as soon as possible, and waits until the file is not being uploaded.
pub(super) async fn hold(file: &Arc<Pending>) -> Gate {
    file.interrupt();
    Arc::clone(&file.gate).lock_owned().await
}
