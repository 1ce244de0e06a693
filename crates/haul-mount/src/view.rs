//! A storage as a file system: handles the requests of the kernel, from memory or by requests to the storage.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use haul_storage::{Entry, EntryKind, ErrorKind, Range, Result};
use rustix::io::Errno;
use tokio::time::timeout;

use crate::attributes::{Known, is_whole};
use crate::directory::{Directories, Directory};
use crate::errno::errno;
use crate::fuse::{
    Change, Handle, Kind, Listing, ListingEntry, Opening, Operation, ROOT, Reply, Request,
    Statistics, statistics,
};
use crate::lock::lock;
use crate::names::{Attempts, Names};
use crate::read::Files;
use crate::session::Handler;
use crate::status::Status;
use crate::write::Changes;

/// The first two entries of each directory.
const DOTS: [&[u8]; 2] = [b".", b".."];

/// How long STATFS waits for the free space.
const STATFS: Duration = Duration::from_secs(1);

/// A directory of a storage, as a file system.
#[derive(Debug)]
pub(crate) struct View {
    names: Arc<Names>,
    files: Arc<Files>,
    directories: Directories,
    /// What changes it; `None` if it is read-only.
    changes: Option<Arc<Changes>>,
    /// The free space that the server has reported last.
    free: Mutex<Option<u64>>,
}

impl View {
    /// The directory of `names`, whose files are read through `files`. It is read-only without `changes`.
    pub(crate) fn new(
        names: Arc<Names>,
        files: Arc<Files>,
        changes: Option<Arc<Changes>>,
    ) -> Arc<Self> {
        let (directories, free) = (Directories::default(), Mutex::default());
        Arc::new(Self { names, files, directories, changes, free })
    }

    /// The state of the mount.
    pub(crate) fn status(&self) -> Status {
        match &self.changes {
            Some(changes) => changes.status(),
            None => self.files.status(),
        }
    }

    /// The entry at a position of a listing, which restarts after a transient failure.
    async fn listed(&self, directory: &mut Directory, at: u64) -> Result<Option<Arc<Entry>>> {
        let mut attempts = Attempts::new(self.names.shown.timeout);
        loop {
            let error = match self.names.listed(directory, at).await {
                Ok(found) => return Ok(found),
                Err(error) => error,
            };
            if !attempts.wait_for_retry(&error).await {
                return Err(error);
            }
        }
    }

    async fn lookup(&self, parent: u64, name: &[u8]) -> Result<Reply, Errno> {
        let names = &self.names;
        let path = names.path_below(parent, name)?;
        self.files.expect(&path);
        names.looked_up(&path);
        let known = names.known(&path).await.map_err(|error| errno(&error))?;
        if !known.entry.as_ref().is_some_and(|entry| entry.is_file()) {
            self.files.cancel_expected(&path);
        }
        Ok(names.lookup_response(parent, &path, &known))
    }

    async fn getattr(&self, node: u64) -> Result<Reply, Errno> {
        let path = self.names.path(node)?;
        let known = self.names.known(&path).await.map_err(|error| errno(&error))?;
        Ok(self.names.getattr_response(node, &known))
    }

    async fn readlink(&self, node: u64) -> Result<Reply, Errno> {
        let path = self.names.path(node)?;
        let known = self.names.known(&path).await.map_err(|error| errno(&error))?;
        target(&known)
    }

    async fn open(&self, node: u64) -> Result<Reply, Errno> {
        let names = &self.names;
        let path = names.path(node)?;
        let file = names.retried(|| self.files.open(&path)).await;
        let file = file.map_err(|error| errno(&error))?;
        names.opened(&path, file.size);
        let (handle, keep_cache) = (file.handle, file.is_same);
        let opening = Opening { handle, keep_cache, direct: file.is_direct };
        // The kernel may have the size of an earlier version, or of a listing, and would read only up to that.
        Ok(Reply { outdated: (!keep_cache).then_some(node), ..Reply::opening(opening) })
    }

    fn release(&self, handle: u64) {
        match &self.changes {
            Some(changes) => changes.release(handle),
            None => self.files.release(handle),
        }
    }

    async fn statfs(&self) -> Reply {
        let names = &self.names;
        let space = names.retried(|| names.storage.space(&names.root));
        // `umount` sends STATFS, too, and must not wait for a server that does not respond.
        let Ok(space) = timeout(STATFS, space).await else {
            return statistics(Statistics { free: *lock(&self.free) }).into();
        };
        match space {
            Ok(space) => {
                let free = space.map(|space| space.free);
                *lock(&self.free) = free;
                statistics(Statistics { free }).into()
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                statistics(Statistics::default()).into()
            }
            Err(error) => errno(&error).into(),
        }
    }

    async fn readdir(
        &self,
        node: u64,
        (handle, offset, size): (u64, u64, u32),
        plus: bool,
    ) -> Result<Reply, Errno> {
        let directory = self.directories.get(handle).ok_or(Errno::BADF)?;
        let mut directory = directory.lock().await;
        let mut listing = Listing::new(size);
        let mut referenced = Vec::new();
        let mut is_empty = true;
        let mut position = offset;
        loop {
            if let Some(name) = usize::try_from(position).ok().and_then(|at| DOTS.get(at)) {
                if !listing.fits(name, plus) {
                    break;
                }
                self.push_dot(&mut listing, node, position, plus);
            } else {
                let at = position - DOTS.len() as u64;
                // Once there is something to return, do not wait: a response that holds references could be dropped
                // meanwhile.
                if !is_empty && !directory.is_known(at) {
                    break;
                }
                let found = self.listed(&mut directory, at).await;
                let Some(entry) = found.map_err(|error| errno(&error))? else { break };
                if !listing.fits(entry.path.name(), plus) {
                    break;
                }
                let entry = self.names.current(&entry);
                referenced.extend(self.push(&mut listing, node, position, &entry, plus));
            }
            is_empty = false;
            position += 1;
        }
        Ok(Reply { referenced, ..Reply::from(listing.done()) })
    }

    fn push_dot(&self, listing: &mut Listing, node: u64, position: u64, plus: bool) {
        let is_parent = position == 1;
        let node = if is_parent { self.names.tree().parent(node) } else { node };
        let listed = ListingEntry { node, next: position + 1, kind: Kind::Directory };
        let name = DOTS[usize::from(is_parent)];
        if plus {
            listing.push_with(name, listed, None);
        } else {
            listing.push(name, listed);
        }
    }

    /// Adds an entry. Returns the node to which the kernel gets a reference, if any.
    fn push(
        &self,
        listing: &mut Listing,
        parent: u64,
        position: u64,
        entry: &Entry,
        plus: bool,
    ) -> Option<u64> {
        let name = entry.path.name();
        let next = position + 1;
        let kind = self.names.attributes(ROOT, entry).kind;
        let mut tree = self.names.tree();
        if !plus {
            let node = tree.find(parent, name).unwrap_or(0);
            listing.push(name, ListingEntry { node, next, kind });
            return None;
        }
        let has_room = !tree.is_full() || tree.find(parent, name).is_some();
        let node = if has_room && is_whole(entry) { tree.refer(parent, name) } else { None };
        drop(tree);
        let known = node.map(|node| self.names.attributes(node, entry));
        let valid = self.names.cached(&entry.path).filter(|known| known.entry.is_some());
        let valid = valid.map_or(Duration::ZERO, |known| known.valid);
        let listed = ListingEntry { node: node.unwrap_or(0), next, kind };
        listing.push_with(name, listed, known.as_ref().map(|known| (known, valid)));
        node
    }

    async fn waited(&self, request: Request) -> Result<Reply, Errno> {
        let node = request.header.node;
        match request.operation {
            Operation::Lookup(name) => self.lookup(node, &name).await,
            Operation::Getattr => self.getattr(node).await,
            Operation::Readlink => self.readlink(node).await,
            Operation::Open(flags) => match &self.changes {
                Some(changes) => changes.open(node, flags).await,
                None => self.open(node).await,
            },
            Operation::Statfs => Ok(self.statfs().await),
            Operation::Readdir { handle, offset, size, plus } => {
                self.readdir(node, (handle, offset, size), plus).await
            }
            // `handle_now` and `handle` handle all others.
            _ => Err(Errno::NOSYS),
        }
    }

    fn forget(&self, nodes: &[(u64, u64)]) {
        let mut tree = self.names.tree();
        nodes.iter().for_each(|(node, lookups)| tree.forget(*node, *lookups));
        if let Some(changes) = &self.changes {
            changes.forgotten(&tree);
        }
    }

    fn open_directory(&self, node: u64) -> Result<Reply, Errno> {
        let path = self.names.path(node)?;
        let local = self.names.local_entries(&path);
        Ok(Reply::opening_directory(self.directories.open(path, local)))
    }

    fn getattr_now(&self, node: u64) -> Option<Reply> {
        if let Some(changes) = &self.changes
            && let Some(reply) = changes.removed_attributes(node)
        {
            return Some(reply);
        }
        let known = self.names.cached(&self.names.path(node).ok()?)?;
        Some(self.names.getattr_response(node, &known))
    }

    fn read_now(&self, handle: u64, range: Range) -> Option<Reply> {
        match &self.changes {
            Some(changes) => changes.read_now(handle, range),
            None if self.names.outgrows(self.files.ended(handle, range)) => None,
            None => self.files.read_now(handle, range).map(Reply::from),
        }
    }

    fn change_now(&self, change: &Change) -> Option<Reply> {
        match (&self.changes, change) {
            (Some(changes), change) => changes.handle_now(change),
            // There is nothing to store. After ENOSYS, the kernel does not send it again.
            (None, Change::Flush(_) | Change::Fsync(_)) => Some(Errno::NOSYS.into()),
            (None, _) => Some(Errno::ROFS.into()),
        }
    }
}

impl Handler for View {
    fn handle_now(self: &Arc<Self>, request: &Request) -> Option<Reply> {
        let node = request.header.node;
        Some(match &request.operation {
            Operation::Lookup(name) => {
                let path = self.names.path_below(node, name).ok()?;
                let known = self.names.cached(&path)?;
                let is_file = known.entry.as_ref().is_some_and(|entry| entry.is_file());
                if is_file && !self.names.is_local(&path) {
                    self.files.expect(&path);
                }
                self.names.lookup_response(node, &path, &known)
            }
            Operation::Getattr => return self.getattr_now(node),
            Operation::Readlink => {
                let known = self.names.cached(&self.names.path(node).ok()?)?;
                target(&known).unwrap_or_else(Reply::from)
            }
            Operation::Read { handle, offset, size } => {
                self.names.on_read(node);
                return self.read_now(*handle, Range::new(*offset, u64::from(*size)));
            }
            Operation::Opendir => self.open_directory(node).unwrap_or_else(Reply::from),
            Operation::Forget(lookups) => {
                self.forget(&[(node, *lookups)]);
                Reply::none()
            }
            Operation::BatchForget(nodes) => {
                self.forget(nodes);
                Reply::none()
            }
            Operation::Release(handle) => {
                self.release(*handle);
                Reply::done()
            }
            Operation::Releasedir(handle) => {
                self.directories.release(*handle);
                Reply::done()
            }
            Operation::Access => Reply::done(),
            Operation::Change(change) => return self.change_now(change),
            // After ENOSYS, the kernel does not send most of these again.
            Operation::Other => Errno::NOSYS.into(),
            Operation::Open(_) | Operation::Readdir { .. } | Operation::Statfs => return None,
            Operation::Init(_) | Operation::Interrupt(_) | Operation::Destroy => return None,
        })
    }

    async fn handle(self: Arc<Self>, request: Request) -> Reply {
        let node = request.header.node;
        match request.operation {
            Operation::Read { handle, offset, size } => {
                // It has a timeout of its own, which counts from the last progress.
                let range = Range::new(offset, u64::from(size));
                match &self.changes {
                    Some(changes) => changes.read(handle, range).await,
                    None => {
                        if self.names.outgrows(self.files.ended(handle, range)) {
                            self.files.follow(handle).await;
                        }
                        let read = self.files.read(handle, range).await;
                        read.map_or_else(|error| errno(&error).into(), Reply::from)
                    }
                }
            }
            Operation::Change(change) => match &self.changes {
                Some(changes) => Arc::clone(changes).handle(node, change).await,
                None => Errno::ROFS.into(),
            },
            _ => {
                let waited = timeout(self.names.shown.timeout, self.waited(request)).await;
                waited.unwrap_or(Err(Errno::TIMEDOUT)).unwrap_or_else(Reply::from)
            }
        }
    }

    fn undelivered(&self, reply: &Reply) {
        match reply.opened {
            Some(Handle::File(handle)) => match &self.changes {
                Some(changes) => changes.undelivered(handle),
                None => self.files.undelivered(handle),
            },
            Some(Handle::Directory(handle)) => self.directories.release(handle),
            None => {}
        }
        if !reply.referenced.is_empty() {
            let nodes: Vec<_> = reply.referenced.iter().map(|node| (*node, 1)).collect();
            self.forget(&nodes);
        }
    }
}

/// The response to READLINK.
fn target(known: &Known) -> Result<Reply, Errno> {
    match known.entry.as_deref().map(|entry| &entry.kind) {
        Some(EntryKind::Symlink(target)) => Ok(target.clone().into()),
        Some(_) => Err(Errno::INVAL),
        None => Err(Errno::NOENT),
    }
}

#[cfg(test)]
mod tests;
