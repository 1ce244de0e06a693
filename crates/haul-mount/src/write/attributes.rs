//! Setting attributes: length, permission bits, time of modification.

use std::sync::Arc;

use haul_storage::{Metadata, RelPath, Result};
use rustix::io::Errno;

use super::changes::{Changes, change_errno, spool_errno};
use super::pending::Pending;
use super::state::now;
use crate::errno::errno;
use crate::fuse::{NewAttributes, NewTime, Reply};

impl Changes {
    /// Sets attributes of a node.
    pub(super) async fn set_attributes(
        &self,
        node: u64,
        new: NewAttributes,
    ) -> Result<Reply, Errno> {
        let owner = self.names.shown.owner;
        let is_other = |wanted: Option<u32>, shown| wanted.is_some_and(|one| one != shown);
        if is_other(new.user, owner.0) || is_other(new.group, owner.1) {
            return Err(Errno::PERM);
        }
        let _paths = self.paths.read().await;
        let opened = new.handle.and_then(|handle| self.handles.get(handle));
        let opened = opened.filter(|handle| handle.is_writer).and_then(|handle| handle.local);
        // A removed file can only be changed by processes that have it open.
        let opened = opened.or_else(|| self.removed_file(node));
        if let Some(size) = new.size {
            self.set_size(node, opened.as_ref(), size).await?;
        }
        let modified = new.modified.map(|time| match time {
            NewTime::Now => now(),
            NewTime::At(time) => time,
        });
        if new.mode.is_some() || modified.is_some() {
            let metadata = Metadata { mode: new.mode, modified, ..Metadata::default() };
            self.set_metadata(node, opened, &metadata).await?;
        }
        if let Some(reply) = self.removed_attributes(node) {
            return Ok(reply);
        }
        let path = self.names.path(node)?;
        let known = self.names.known(&path).await.map_err(|error| errno(&error))?;
        Ok(self.names.getattr_response(node, &known))
    }

    async fn set_size(
        &self,
        node: u64,
        opened: Option<&Arc<Pending>>,
        size: u64,
    ) -> Result<(), Errno> {
        if !self.allows_size(size) {
            return Err(Errno::FBIG);
        }
        if let Some(file) = opened {
            file.set_size(size).map_err(|error| spool_errno(&error))?;
            self.filler.begin(file);
            return Ok(());
        }
        let path = self.names.path(node)?;
        let file = self.writable(node, &path).await?;
        let done = file.set_size(size).map_err(|error| spool_errno(&error));
        // If another process has the file open to write, the change is a part of what that process writes, and the file
        // is complete once that process has closed it.
        let is_only_writer = file.state().handles.writers == 1;
        let done = match done {
            Ok(()) if is_only_writer => self.settle(&file, true).await,
            done => done,
        };
        self.writer_closed(&file);
        done
    }

    async fn set_metadata(
        &self,
        node: u64,
        opened: Option<Arc<Pending>>,
        metadata: &Metadata,
    ) -> Result<(), Errno> {
        let can = self.names.storage.capabilities();
        if (metadata.mode.is_some() && !can.mode) || (metadata.modified.is_some() && !can.times) {
            return Err(Errno::OPNOTSUPP);
        }
        let path = self.names.path(node);
        let local = opened.or_else(|| self.overlay.get(path.as_ref().ok()?));
        if let Some(file) = local
            && file.set_metadata(metadata)
        {
            return self.metadata_changed(&file).await;
        }
        self.set_remote(&path?, metadata).await
    }

    /// The metadata of a file in the spool has changed. It is uploaded with the content. If no handle may write, the
    /// file is queued now.
    async fn metadata_changed(&self, file: &Arc<Pending>) -> Result<(), Errno> {
        if file.state().handles.writers > 0 {
            return Ok(());
        }
        if file.is_recorded() {
            self.settle(file, false).await?;
        }
        self.uploader.queue(file);
        Ok(())
    }

    async fn set_remote(&self, path: &RelPath, metadata: &Metadata) -> Result<(), Errno> {
        let storage = &self.names.storage;
        let set = self.names.retried(|| storage.set_metadata(path, metadata)).await;
        self.names.forget(path);
        set.map_err(|error| change_errno(&error))
    }
}
