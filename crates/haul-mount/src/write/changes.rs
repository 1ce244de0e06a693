//! Requests that change a mount: their dispatch, and the state that the parts of `write` share.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haul_engine::budget::LinkShare;
use haul_storage::{Entry, Error, ErrorKind, Range, RelPath, Result};
use rustix::io::Errno;
use tokio::runtime::Handle as Runtime;
use tokio::sync::{RwLock, oneshot};
use tokio::time::{Instant, sleep, timeout};

use super::fill::Filler;
use super::handles::{Handle, Handles};
use super::overlay::Overlay;
use super::pending::Pending;
use super::send::Sender;
use super::spool::Spool;
use super::state::{Onto, State};
use super::upload::Uploader;
use super::warning::{Warning, Warnings};
use crate::errno::errno;
use crate::fuse::{Change, Reply};
use crate::lock::lock;
use crate::names::Names;
use crate::read::{Files, MOST_LISTED};
use crate::status::{OpenFile, Status};
use crate::tree::Tree;

/// How often [`Changes::drained`] checks whether files are uploaded.
const LOOK: Duration = Duration::from_millis(20);

/// How a mount is written.
#[derive(Debug, Clone)]
pub(crate) struct WriteOptions {
    /// `close` returns when the upload is done.
    pub(crate) sync_close: bool,
    /// Where warnings go.
    pub(crate) warnings: Warnings,
}

/// Handles the requests that change a mount.
#[derive(Debug)]
pub(crate) struct Changes {
    pub(super) names: Arc<Names>,
    pub(super) files: Arc<Files>,
    pub(super) overlay: Arc<Overlay>,
    pub(super) spool: Arc<Spool>,
    pub(super) handles: Arc<Handles>,
    pub(super) filler: Arc<Filler>,
    pub(super) uploader: Arc<Uploader>,
    pub(super) runtime: Runtime,
    pub(super) sync_close: bool,
    /// Held for writing by a rename, and for reading by OPEN and by the other changes that go by a path.
    pub(super) paths: RwLock<()>,
    /// Removed entries to which the kernel still has references, by node.
    removed: Mutex<HashMap<u64, Removed>>,
}

/// An entry that was removed, and may still be open.
#[derive(Debug, Clone)]
pub(super) enum Removed {
    /// A file in the spool.
    Local(Arc<Pending>),
    /// An entry of the storage, as it was last.
    Remote(Arc<Entry>),
}

impl Changes {
    /// Changes entries of `names`, whose files are read through `files`. Files that earlier mounts have left in the
    /// spool are shown, and uploaded after [`Changes::resume`].
    ///
    /// # Errors
    /// If the spool cannot be read.
    pub(crate) fn new(
        (names, files): (&Arc<Names>, &Arc<Files>),
        (overlay, spool): (&Arc<Overlay>, Spool),
        share: Arc<LinkShare>,
        options: WriteOptions,
        runtime: &Runtime,
    ) -> Result<Arc<Self>> {
        let spool = Arc::new(spool);
        let filler = Filler::new(names, files, runtime);
        let sender = Sender::new((&names.storage, &names.root), share, names.shown.timeout);
        let means = (options.warnings, runtime);
        let uploader = Uploader::new(names, overlay, &spool, &filler, sender, means);
        let changes = Self {
            names: Arc::clone(names),
            files: Arc::clone(files),
            overlay: Arc::clone(overlay),
            spool,
            handles: Arc::default(),
            filler,
            uploader,
            runtime: runtime.clone(),
            sync_close: options.sync_close,
            paths: RwLock::default(),
            removed: Mutex::default(),
        };
        changes.recover()?;
        let sender = Arc::clone(&changes.uploader.sender);
        // This task ends with the runtime.
        runtime.spawn(async move { sender.watch_link().await });
        Ok(Arc::new(changes))
    }

    /// Shows what earlier mounts have left in the spool.
    fn recover(&self) -> Result<()> {
        let failed = |error| Error::from_io("read the spool", error);
        for (file, record) in self.spool.recover().map_err(failed)? {
            if record.is_left_open() && file.size().map_err(failed)? == 0 {
                // It was opened to be rewritten, and nothing was written: the version on the server stays.
                file.remove();
                continue;
            }
            // A damaged record stays on the disk.
            let Some(path) = record.rel_path() else { continue };
            let path = self.names.root.join_path(&path);
            let times = self.names.storage.capabilities().stored_times;
            let found = Pending::recovered(file, path.clone(), &record, times, &self.names.root);
            let found = found.map_err(failed)?;
            let current = self.overlay.add(&path, &found);
            if !Arc::ptr_eq(&current, &found) {
                // A rename had replaced one by the other when the process ended: both stay.
                self.add_beside(&path, &found);
            }
        }
        Ok(())
    }

    fn add_beside(&self, path: &RelPath, file: &Arc<Pending>) {
        let modified = file.state().modified;
        let copies = (1..).map_while(|number| super::conflict::copy_path(path, modified, number));
        for copy in copies {
            if self.overlay.get(&copy).is_none() {
                let mut state = file.state();
                state.move_to(copy.clone(), Onto::default());
                // The rest would be fetched from the path of the copy.
                state.lose_rest();
                drop(state);
                self.overlay.add(&copy, file);
                return;
            }
        }
    }

    /// From now on, the kernel gets notices.
    pub(crate) fn connect(&self, send: impl Fn(Vec<u8>) + Send + Sync + 'static) {
        self.uploader.kernel.connect(send);
    }

    /// Uploads what earlier mounts have left in the spool.
    pub(crate) fn resume(&self) {
        self.overlay.all().iter().for_each(|file| self.uploader.queue(file));
    }

    /// Handles a change without waiting; `None` if it has to wait.
    pub(crate) fn handle_now(&self, change: &Change) -> Option<Reply> {
        match change {
            Change::Write { handle, offset, data, is_page } => {
                Some(self.write((*handle, *is_page), *offset, data))
            }
            // Files of a mount have one name.
            Change::Link => Some(Errno::PERM.into()),
            // After ENOSYS, the kernel does not send it again.
            Change::Unsupported => Some(Errno::NOSYS.into()),
            _ => None,
        }
    }

    /// Handles a change of `node`. It is completed even if the process is interrupted.
    pub(crate) async fn handle(self: Arc<Self>, node: u64, change: Change) -> Reply {
        let may_last = matches!(change, Change::Fsync(_) | Change::Flush(_));
        let most = self.names.shown.timeout;
        let (sender, receiver) = oneshot::channel();
        let runtime = self.runtime.clone();
        runtime.spawn(async move {
            let reply = self.changed(node, change).await.unwrap_or_else(Reply::from);
            // If it is not received, dropping it releases the references and the handle in it.
            drop(sender.send(Response { changes: self, reply: Some(reply) }));
        });
        let outcome = if may_last { Ok(receiver.await) } else { timeout(most, receiver).await };
        match outcome {
            Ok(Ok(mut response)) => response.reply.take().unwrap_or_else(|| Errno::IO.into()),
            // The task has panicked; the others are not affected.
            Ok(Err(_)) => Errno::IO.into(),
            Err(_) => Errno::TIMEDOUT.into(),
        }
    }

    /// A response was not delivered: releases the references and the handle in it.
    fn undo(&self, reply: &Reply) {
        if let Some(handle) = reply.file() {
            self.undelivered(handle);
        }
        if !reply.referenced.is_empty() {
            let mut tree = self.names.tree();
            reply.referenced.iter().for_each(|node| tree.forget(*node, 1));
            self.forgotten(&tree);
        }
    }

    async fn changed(&self, node: u64, change: Change) -> Result<Reply, Errno> {
        match change {
            Change::Create { name, flags, mode } => self.create(node, &name, flags, mode).await,
            Change::Mknod { name, mode } => self.make_file(node, &name, mode).await,
            Change::Setattr(new) => self.set_attributes(node, new).await,
            Change::Flush(handle) => self.flush(handle).await,
            Change::Fsync(handle) => self.fsync(handle).await,
            Change::Fallocate { handle, offset, length, mode } => {
                self.allocate(handle, Range::new(offset, length), mode)
            }
            Change::Mkdir { name, mode } => self.make_directory(node, &name, mode).await,
            Change::Symlink { name, target } => self.make_link(node, &name, target).await,
            Change::Unlink(name) => self.unlink(node, &name).await,
            Change::Rmdir(name) => self.remove_directory(node, &name).await,
            Change::Rename { name, parent, new_name, flags } => {
                self.rename((node, &name), (parent, &new_name), flags).await
            }
            Change::Write { handle, offset, data, is_page } => {
                Ok(self.write((handle, is_page), offset, &data))
            }
            Change::Link | Change::Unsupported => Err(Errno::OPNOTSUPP),
        }
    }

    /// Stores an entry that was removed, for processes that have it open.
    pub(super) fn remember(&self, node: Option<u64>, removed: Removed) {
        if let Some(node) = node.filter(|node| self.names.tree().contains(*node)) {
            lock(&self.removed).insert(node, removed);
        }
    }

    /// The spool file of a removed node, if its file was in the spool.
    pub(super) fn removed_file(&self, node: u64) -> Option<Arc<Pending>> {
        match lock(&self.removed).get(&node)? {
            Removed::Local(file) => Some(Arc::clone(file)),
            Removed::Remote(_) => None,
        }
    }

    /// The attributes of a removed node.
    pub(crate) fn removed_attributes(&self, node: u64) -> Option<Reply> {
        let removed = lock(&self.removed).get(&node).cloned()?;
        let entry = match removed {
            Removed::Local(file) => Arc::new(file.nameless_entry()),
            Removed::Remote(entry) => entry,
        };
        Some(self.names.removed_response(node, &entry))
    }

    /// The kernel has dropped references to nodes.
    pub(crate) fn forgotten(&self, tree: &Tree) {
        lock(&self.removed).retain(|node, _| tree.contains(*node));
    }

    /// Files that wait to be uploaded.
    pub(crate) fn pending(&self) -> usize {
        let is_pending = |file: &&Arc<Pending>| {
            let state = file.state();
            state.handles.writers == 0 || !state.is_uploaded()
        };
        self.overlay.all().iter().filter(is_pending).count()
    }

    /// The state of the mount.
    pub(crate) fn status(&self) -> Status {
        let (mut listed, open_files) = self.handles.listed(MOST_LISTED);
        listed.sort_by_key(|(number, _)| *number);
        let described = |(number, handle): (u64, Handle)| {
            let (path, size) = match (&handle.local, handle.remote) {
                // A removed file has no path.
                (Some(file), _) => file.entry().map(|entry| (entry.path, entry.size))?,
                (None, remote) => self.files.described(remote?)?,
            };
            Some(OpenFile::new(number, path, size, handle.read.load(Ordering::Relaxed)))
        };
        let files = listed.into_iter().filter_map(described).collect();
        Status { files, open_files, pending: self.pending(), ..self.files.status() }
    }
}

/// The response to a change. Dropping it before it is taken releases the references and the handle in it.
#[derive(Debug)]
struct Response {
    changes: Arc<Changes>,
    reply: Option<Reply>,
}

impl Drop for Response {
    fn drop(&mut self) {
        if let Some(reply) = self.reply.take() {
            self.changes.undo(&reply);
        }
    }
}

impl Changes {
    /// Waits until the files that were closed are uploaded, at most `patience` without progress. Returns how many files
    /// are left. The file system must be unmounted already. `all_closed`: no process had a file open when it was
    /// unmounted, so handles that are left are those whose RELEASE did not arrive.
    pub(crate) async fn drained(&self, patience: Duration, all_closed: bool) -> usize {
        let files = self.overlay.all();
        for file in &files {
            let (may_be_incomplete, is_emptied) = {
                let mut state = file.state();
                let is_closed = all_closed || state.handles.writers == 0 || state.handles.closed;
                let may_be_incomplete = !is_closed && !state.is_uploaded();
                if !may_be_incomplete {
                    state.handles.writers = 0;
                }
                (may_be_incomplete, may_be_incomplete && state.is_emptied())
            };
            if is_emptied {
                // What was to be written is unknown, so the version on the server stays.
                let path = file.state().path.clone();
                path.inspect(|path| self.drop_file(file, path));
            } else if may_be_incomplete {
                // Its writer had no time to close it. Without a record, the next mount would remove it.
                let settled = file.settle(&self.spool, &self.names.root, false).await;
                let path = file.state().path.clone();
                if let (Err(error), Some(path)) = (settled, path) {
                    let error = error.to_string();
                    self.uploader.warnings.report(&Warning::Unrecorded { path, error });
                }
            }
            if !self.uploader.leave(file) {
                self.uploader.queue(file);
            }
        }
        let is_left = |file: &&Arc<Pending>| {
            let is_live = file.is_live();
            let state = file.state();
            is_live && !(state.is_uploaded() && state.is_metadata_uploaded())
        };
        let left = || files.iter().filter(is_left).count();
        let is_waiting = |file: &Arc<Pending>| {
            let is_due = |state: &State| state.handles.writers == 0 && !state.is_stranded();
            is_left(&file) && is_due(&file.state())
        };
        let (mut seen, mut since) = ((0, 0), Instant::now());
        while files.iter().any(is_waiting) {
            let now = (left(), self.uploader.sender.written());
            if now != seen {
                (seen, since) = (now, Instant::now());
            }
            if since.elapsed() > patience {
                break;
            }
            sleep(LOOK).await;
        }
        left()
    }
}

/// The error of a spool, for a process.
pub(super) fn spool_errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The error of a storage, for a process that changes something.
pub(super) fn change_errno(error: &Error) -> Errno {
    match error.kind() {
        ErrorKind::Unsupported => Errno::PERM,
        _ => errno(error),
    }
}
