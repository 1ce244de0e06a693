//! Open files: creating, opening, reading, writing, syncing and closing them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use haul_storage::{Block, Entry, ErrorKind, Range, RelPath, Result, is_part_name};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use tokio::time::sleep;

use super::changes::{Changes, spool_errno};
use super::handles::Handle;
use super::pending::Pending;
use crate::errno::errno;
use crate::fuse::{Opening, Reply, entry, written};
use crate::read::Files;

/// Flags of `fallocate(2)`.
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;

/// Longest time from the FLUSH of the last descriptor of an open file to its RELEASE.
const RELEASE: Duration = Duration::from_millis(100);

/// How a file is opened.
#[derive(Debug, Clone, Copy)]
struct Access {
    is_writer: bool,
    appends: bool,
    truncates: bool,
    is_exclusive: bool,
}

impl Access {
    fn of(flags: u32) -> Self {
        let flags = OFlags::from_bits_retain(flags);
        let mode = flags & OFlags::RWMODE;
        Self {
            is_writer: mode == OFlags::WRONLY || mode == OFlags::RDWR,
            appends: flags.contains(OFlags::APPEND),
            truncates: flags.contains(OFlags::TRUNC),
            is_exclusive: flags.contains(OFlags::EXCL),
        }
    }
}

impl Changes {
    /// Opens a file.
    pub(crate) async fn open(&self, node: u64, flags: u32) -> Result<Reply, Errno> {
        let access = Access::of(flags);
        let _paths = self.paths.read().await;
        let path = self.names.path(node)?;
        if !access.is_writer && !access.truncates && self.overlay.get(&path).is_none() {
            return self.open_remote(node, &path).await;
        }
        let file = self.writable(node, &path).await?;
        let opening = self.open_local(node, &file, access)?;
        if access.truncates && !access.is_writer {
            // This handle writes nothing more, and its FLUSH has no effect.
            let is_open = file.state().handles.writers > 0;
            if !is_open && let Err(errno) = self.settle(&file, true).await {
                self.undelivered(opening.handle);
                return Err(errno);
            }
        }
        // The kernel may have the size of an earlier version, or of a listing.
        Ok(Reply { outdated: Some(node), ..Reply::opening(opening) })
    }

    async fn open_remote(&self, node: u64, path: &RelPath) -> Result<Reply, Errno> {
        let file = self.names.retried(|| self.files.open(path)).await;
        let file = file.map_err(|error| errno(&error))?;
        self.names.opened(path, file.size);
        // A process that has the file open keeps reading what was written here, also after the upload.
        let is_mixed = self.handles.reads_local(node);
        let handle = self.handles.add(Handle { remote: Some(file.handle), ..Handle::of(node) });
        // Another process may have begun to write it meanwhile.
        let local = self.overlay.get(path);
        if let Some(local) = &local {
            self.handles.attach(node, local);
        }
        let is_local = local.is_some();
        if is_mixed || is_local {
            self.files.mark_mixed(file.handle);
        }
        let keep_cache = file.is_same && !is_mixed && !is_local;
        let opening = Opening { handle, keep_cache, direct: file.is_direct || is_mixed };
        Ok(Reply { outdated: (!keep_cache).then_some(node), ..Reply::opening(opening) })
    }

    /// The file at a path, brought into the spool if necessary. It has one more writer, which the caller has to end.
    pub(super) async fn writable(&self, node: u64, path: &RelPath) -> Result<Arc<Pending>, Errno> {
        loop {
            if let Some(file) = self.overlay.get(path) {
                if file.begin_writing() {
                    return Ok(file);
                }
                // It is leaving the spool at this moment.
                tokio::task::yield_now().await;
                continue;
            }
            let known = self.names.requested(path).await.map_err(|error| errno(&error))?;
            let found = known.entry.ok_or(Errno::NOENT)?;
            self.adopt(node, path, Some(&found))?;
        }
    }

    /// Brings a file into the spool, without its content, unless another task has done so. `base` is what the server
    /// has.
    fn adopt(
        &self,
        node: u64,
        path: &RelPath,
        base: Option<&Entry>,
    ) -> Result<Arc<Pending>, Errno> {
        if let Some(base) = base {
            if base.is_dir() {
                return Err(Errno::ISDIR);
            }
            if !base.is_file() {
                return Err(Errno::INVAL);
            }
            if base.known_size().is_none() {
                return Err(Errno::OPNOTSUPP);
            }
        }
        let spooled = self.spool.create().map_err(|error| spool_errno(&error))?;
        let times = self.names.storage.capabilities().stored_times;
        let file = Pending::new(spooled, path.clone(), base, times);
        let file = file.map_err(|error| spool_errno(&error))?;
        let current = self.overlay.add(path, &file);
        if Arc::ptr_eq(&current, &file) {
            self.handles.attach(node, &file);
        } else {
            file.discard();
        }
        Ok(current)
    }

    /// Opens a file of the spool, whose writer is counted already.
    fn open_local(&self, node: u64, file: &Arc<Pending>, access: Access) -> Result<Opening, Errno> {
        if access.truncates
            && let Err(error) = file.set_size(0)
        {
            self.writer_closed(file);
            return Err(spool_errno(&error));
        }
        if !access.is_writer {
            self.writer_closed(file);
        }
        let (is_writer, appends) = (access.is_writer, access.appends);
        let local = Some(Arc::clone(file));
        let handle = Handle { local, is_writer, appends, ..Handle::of(node) };
        let handle = self.handles.add(handle);
        Ok(Opening { handle, ..Opening::default() })
    }

    /// Creates a file unless it exists, and opens it.
    pub(super) async fn create(
        &self,
        parent: u64,
        name: &[u8],
        flags: u32,
        mode: u32,
    ) -> Result<Reply, Errno> {
        let access = Access::of(flags);
        let _paths = self.paths.read().await;
        let file = self.created_file(parent, name, mode, access.is_exclusive).await?;
        let Some((node, entry)) = self.referred(parent, name, &file) else {
            self.writer_closed(&file);
            return Err(Errno::STALE);
        };
        self.handles.attach(node, &file);
        let opening = self.open_local(node, &file, access);
        let opening = opening.inspect_err(|_| self.names.tree().forget(node, 1))?;
        // It may have been truncated.
        let entry = file.entry().unwrap_or(entry);
        let attributes = self.names.attributes(node, &entry);
        Ok(Reply::creating(&attributes, self.names.shown.ages.missing, opening))
    }

    /// Creates a file without opening it.
    pub(super) async fn make_file(
        &self,
        parent: u64,
        name: &[u8],
        mode: u32,
    ) -> Result<Reply, Errno> {
        if FileType::from_raw_mode(mode) != FileType::RegularFile {
            return Err(Errno::PERM);
        }
        let _paths = self.paths.read().await;
        let file = self.created_file(parent, name, mode, true).await?;
        let settled = self.settle(&file, true).await;
        let referred = self.referred(parent, name, &file);
        self.writer_closed(&file);
        settled?;
        let (node, found) = referred.ok_or(Errno::STALE)?;
        let attributes = self.names.attributes(node, &found);
        Ok(Reply::referring(entry(&attributes, self.names.shown.ages.missing), node))
    }

    /// A new file at a path, or the existing one. It has one more writer, which the caller has to end.
    async fn created_file(
        &self,
        parent: u64,
        name: &[u8],
        mode: u32,
        is_exclusive: bool,
    ) -> Result<Arc<Pending>, Errno> {
        if is_part_name(name) {
            // haul would take it for a part file.
            return Err(Errno::INVAL);
        }
        let path = self.names.path_below(parent, name)?;
        let node = self.names.tree().find(parent, name).unwrap_or(0);
        let known = self.names.known(&path).await.map_err(|error| errno(&error))?;
        if known.entry.is_some() {
            if is_exclusive {
                return Err(Errno::EXIST);
            }
            return self.writable(node, &path).await;
        }
        let file = self.adopt(node, &path, None)?;
        if !file.begin_writing() {
            return Err(Errno::AGAIN);
        }
        if self.names.storage.capabilities().mode {
            file.state().mode = Some(mode & 0o7777);
        }
        self.names.created(&path);
        Ok(file)
    }

    /// The node of a new file, with one more reference of the kernel, and its entry.
    fn referred(&self, parent: u64, name: &[u8], file: &Arc<Pending>) -> Option<(u64, Entry)> {
        let entry = file.entry()?;
        Some((self.names.tree().refer(parent, name)?, entry))
    }

    /// Reads what needs no request; `None` if a request is needed, or the handle is not open.
    pub(crate) fn read_now(&self, handle: u64, range: Range) -> Option<Reply> {
        let handle = self.handles.get(handle)?;
        let reply = match (&handle.local, handle.remote) {
            (Some(file), _) => content(file.read(range)?),
            (None, Some(remote)) => {
                if self.names.outgrows(self.files.ended(remote, range)) {
                    return None;
                }
                self.files.read_now(remote, range)?.into()
            }
            (None, None) => return None,
        };
        handle.count(&reply);
        Some(reply)
    }

    /// Reads a range.
    pub(crate) async fn read(&self, handle: u64, range: Range) -> Reply {
        let Some(handle) = self.handles.get(handle) else { return Errno::BADF.into() };
        let reply = match (&handle.local, handle.remote) {
            (Some(file), _) => self.read_local(file, range).await,
            (None, Some(remote)) => {
                if self.names.outgrows(self.files.ended(remote, range)) {
                    self.files.follow(remote).await;
                }
                let read = self.files.read(remote, range).await;
                read.map_or_else(|error| errno(&error).into(), Reply::from)
            }
            (None, None) => Errno::BADF.into(),
        };
        handle.count(&reply);
        reply
    }

    async fn read_local(&self, file: &Arc<Pending>, range: Range) -> Reply {
        loop {
            if let Some(read) = file.read(range) {
                return content(read);
            }
            if let Err(error) = self.filler.fill(file, range).await {
                return errno(&self.uploader.unread(file, error).await).into();
            }
        }
    }

    /// Writes to an open file: at its end if it is open for appending, except for pages of a mapping; else at `offset`.
    pub(super) fn write(&self, (handle, is_page): (u64, bool), offset: u64, data: &[u8]) -> Reply {
        let Some(handle) = self.handles.get(handle) else { return Errno::BADF.into() };
        let Some(file) = handle.local.filter(|_| handle.is_writer) else {
            return Errno::BADF.into();
        };
        let end = offset.saturating_add(data.len() as u64);
        if !self.allows_size(end) {
            return Errno::FBIG.into();
        }
        let has_offset = is_page || !handle.appends;
        match file.write(has_offset.then_some(offset), data) {
            Ok(_) => {
                self.filler.begin(&file);
                written(u32::try_from(data.len()).unwrap_or(u32::MAX)).into()
            }
            Err(error) => spool_errno(&error).into(),
        }
    }

    /// Whether the storage can hold a file of this length.
    pub(super) fn allows_size(&self, size: u64) -> bool {
        let most = self.names.storage.capabilities().max_file_size;
        size <= most.unwrap_or(u64::MAX) && i64::try_from(size).is_ok()
    }

    /// Reserves or removes space of an open file.
    pub(super) fn allocate(&self, handle: u64, range: Range, mode: u32) -> Result<Reply, Errno> {
        let handle = self.handles.get(handle).ok_or(Errno::BADF)?;
        let file = handle.local.filter(|_| handle.is_writer).ok_or(Errno::BADF)?;
        if !self.allows_size(range.end()) {
            return Err(Errno::FBIG);
        }
        let done = match mode {
            0 => file.reserve(range, true),
            KEEP_SIZE => file.reserve(range, false),
            both if both == KEEP_SIZE | PUNCH_HOLE => file.punch(range),
            _ => return Err(Errno::OPNOTSUPP),
        };
        done.map_err(|error| spool_errno(&error))?;
        self.filler.begin(&file);
        Ok(Reply::done())
    }

    /// A descriptor of an open file is closed: what was written is durable afterwards.
    ///
    /// It may be one of several, in one process or in more: a shell duplicates what `>` opens, and each program that
    /// it starts has a duplicate. RELEASE follows the last one at once. Until then, the file counts as complete for
    /// [`RELEASE`] at most; one that was opened to be rewritten, and is still empty, does not.
    pub(super) async fn flush(&self, number: u64) -> Result<Reply, Errno> {
        let Some(handle) = self.handles.get(number) else { return Ok(Reply::done()) };
        let Some(file) = handle.local.filter(|_| handle.is_writer) else {
            return Ok(Reply::done());
        };
        let (was_closed, generation) = {
            let state = file.state();
            if state.is_uploaded() || state.is_emptied() {
                return Ok(Reply::done());
            }
            (state.handles.closed, state.generations.content)
        };
        self.settle(&file, true).await?;
        if !was_closed {
            self.expect_release(number, &file, generation);
        }
        if self.sync_close {
            self.uploader.wait(&file).await.map_err(|error| errno(&error))?;
        }
        Ok(Reply::done())
    }

    /// If a handle is not closed soon after a FLUSH, another descriptor of it is open: the file may be incomplete.
    fn expect_release(&self, handle: u64, file: &Arc<Pending>, generation: u64) {
        // Neither the file nor the handles live longer for that.
        let (handles, file) = (Arc::downgrade(&self.handles), Arc::downgrade(file));
        self.runtime.spawn(async move {
            sleep(RELEASE).await;
            let is_open = handles.upgrade().is_some_and(|handles| handles.get(handle).is_some());
            if let Some(file) = file.upgrade().filter(|_| is_open) {
                file.reopen(generation);
            }
        });
    }

    /// Makes a file durable. With `closed` it counts as complete from now on.
    pub(super) async fn settle(&self, file: &Arc<Pending>, closed: bool) -> Result<(), Errno> {
        let settled = file.settle(&self.spool, &self.names.root, closed).await;
        settled.map_err(|error| errno(&error))
    }

    /// Waits until what was written to an open file is uploaded.
    pub(super) async fn fsync(&self, handle: u64) -> Result<Reply, Errno> {
        let Some(handle) = self.handles.get(handle) else { return Err(Errno::BADF) };
        let Some(file) = handle.local else { return Ok(Reply::done()) };
        if file.is_uploaded() || !file.is_live() {
            return Ok(Reply::done());
        }
        // First into the spool: a failed upload must lose nothing.
        self.settle(&file, true).await?;
        let waited = self.uploader.wait(&file).await;
        waited.map_err(|error| match error.kind() {
            // The file may be missing, but the process has it open.
            ErrorKind::NotFound | ErrorKind::AlreadyExists => Errno::IO,
            _ => errno(&error),
        })?;
        Ok(Reply::done())
    }

    /// Closes a file.
    pub(crate) fn release(&self, handle: u64) {
        self.end(handle, Files::release);
    }

    /// The response to an OPEN was not delivered: the kernel will not close the file.
    pub(crate) fn undelivered(&self, handle: u64) {
        self.end(handle, Files::undelivered);
    }

    /// Closes a handle; `close` closes the one of the storage in it.
    fn end(&self, handle: u64, close: impl FnOnce(&Files, u64)) {
        let Some((handle, is_last)) = self.handles.remove(handle) else { return };
        if let Some(remote) = handle.remote {
            close(&self.files, remote);
        }
        let Some(file) = handle.local else { return };
        if handle.is_writer && is_last {
            self.closed(&file);
        } else if !file.is_live() {
            self.stop_filling(&file);
        }
    }

    /// A writer without a handle has finished with a file.
    pub(super) fn writer_closed(&self, file: &Arc<Pending>) {
        if file.end_writing() {
            self.closed(file);
        }
    }

    /// The last writer of a file has closed it: it is uploaded, or leaves the spool if it was not changed.
    fn closed(&self, file: &Arc<Pending>) {
        if self.uploader.leave(file) || !file.is_live() {
            self.stop_filling(file);
        } else {
            self.uploader.queue(file);
        }
    }

    /// A file is no longer in the spool: closes the handle by which its rest was read. Readers that need more of it
    /// open another one; those of a removed file cannot, so for these it stays open.
    pub(super) fn stop_filling(&self, file: &Arc<Pending>) {
        let is_removed = file.state().path.is_none();
        if is_removed && self.handles.refers_to(file) {
            return;
        }
        let (filler, file) = (Arc::clone(&self.filler), Arc::clone(file));
        self.runtime.spawn(async move { filler.release(&file).await });
    }
}

/// The response to READ.
fn content(read: std::io::Result<Vec<u8>>) -> Reply {
    match read {
        Ok(bytes) => Block::from(Bytes::from(bytes)).into(),
        Err(error) => spool_errno(&error).into(),
    }
}
