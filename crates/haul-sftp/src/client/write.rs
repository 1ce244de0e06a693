//! A file that is written over any lane, as a part file beside its final name.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::try_join_all;
use haul_storage::{
    Block, CommitOptions, CreateOptions, Error, ErrorKind, Range, ReadAt, RelPath, Result, WriteAt,
    part_name,
};

use super::entry;
use super::error;
use super::read::{Handles, SftpFile};
use super::session::Session;
use super::storage::Inner;
use crate::codec::{Attrs, Extended, FileKind, Handle, OpenFlags, Request, Response, Status, name};

/// Only this user reads what is not finished.
const PART_MODE: u32 = 0o600;

/// A file that is being written.
#[derive(Debug)]
pub(super) struct SftpUpload {
    inner: Arc<Inner>,
    path: RelPath,
    part: RelPath,
    part_on_server: Bytes,
    journal: Option<PathBuf>,
    handles: Handles,
    resumed: bool,
    /// Where the last byte that was written ends.
    end: AtomicU64,
    /// The part file is all that there is: the old file had to go before it could get its name.
    only_copy: AtomicBool,
}

impl SftpUpload {
    /// Starts, or with `options.resume` continues, the part file of `path`.
    pub(super) async fn create(
        inner: &Arc<Inner>,
        path: &RelPath,
        options: &CreateOptions,
    ) -> Result<Self> {
        let part = part_of(path).map_err(|error| inner.at(error, path))?;
        inner.check_parent(path).await?;
        let part_on_server = inner.on_server(&part);
        let handles = Handles::new(inner, &part, part_on_server.clone(), OpenFlags::WRITE);
        let session = inner.host.session().await?;
        let resumed = options.resume && is_file(inner, &session, &part_on_server).await?;
        if resumed {
            // Opens it, too: nothing is made, and a link is refused.
            handles.on(&session).await?;
        } else {
            let handle = create_part(&session, &part_on_server, PART_MODE).await;
            handles.adopt(&session, handle.map_err(|error| inner.at(error, path))?);
        }
        Ok(Self {
            inner: Arc::clone(inner),
            path: path.clone(),
            part,
            part_on_server,
            journal: inner.journal_path(path),
            handles,
            resumed,
            end: AtomicU64::new(0),
            only_copy: AtomicBool::new(false),
        })
    }

    fn at(&self, error: Error) -> Error {
        self.inner.at(error, &self.path)
    }

    /// Length and attributes, on one handle, before the file gets its name.
    fn finish(&self, size: u64, options: &CommitOptions) -> Attrs {
        let mut attrs = entry::attrs(&options.metadata);
        if self.resumed || self.end.load(Ordering::Relaxed) != size {
            attrs.size = Some(size);
        }
        if attrs.permissions.is_none() {
            attrs.permissions = Some(self.inner.default_mode);
        }
        attrs
    }
}

#[async_trait]
impl WriteAt for SftpUpload {
    fn resumed(&self) -> bool {
        self.resumed
    }

    fn journal_path(&self) -> Option<&Path> {
        self.journal.as_deref()
    }

    async fn write_at(&self, offset: u64, block: Block) -> Result<()> {
        let end = offset + block.len() as u64;
        let session = self.inner.host.session().await?;
        let handle = self.handles.on(&session).await?;
        let most = session.server().await?.write as usize;
        let mut answers = Vec::new();
        let (mut at, mut rest) = (offset, block);
        while !rest.is_empty() {
            let after = rest.split_off(most);
            let length = rest.len() as u64;
            let request = Request::Write { handle: handle.clone(), offset: at, data: rest };
            answers.push(session.request(&request));
            at += length;
            rest = after;
        }
        for pending in answers {
            if let Err(error) = error::done("write", pending.answer().await?) {
                return Err(self.at(self.inner.explain_full(error, &self.path).await));
            }
        }
        self.end.fetch_max(end, Ordering::Relaxed);
        Ok(())
    }

    async fn copy_from(&self, source: &dyn ReadAt, range: Range) -> Result<bool> {
        let source: &dyn std::any::Any = source;
        let Some(source) = source.downcast_ref::<SftpFile>() else { return Ok(false) };
        if !source.is_on(&self.inner) || !self.inner.has(name::COPY_DATA) || range.is_empty() {
            return Ok(false);
        }
        let session = self.inner.host.session().await?;
        let from = source.handles().on(&session).await?;
        let to = self.handles.on(&session).await?;
        let request = Request::Extended(Extended::CopyData {
            from,
            from_offset: range.start(),
            length: range.len(),
            to,
            to_offset: range.start(),
        });
        error::done("copy", session.request(&request).answer().await?).map_err(|e| self.at(e))?;
        self.end.fetch_max(range.end(), Ordering::Relaxed);
        Ok(true)
    }

    async fn sync(&self) -> Result<()> {
        if !self.inner.has(name::FSYNC) {
            return Ok(());
        }
        let session = self.inner.host.session().await?;
        let handle = self.handles.on(&session).await?;
        sync(&session, &handle).await.map_err(|error| self.at(error))
    }

    async fn reopen(&self, _uncached: bool) -> Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(SftpFile::open(&self.inner, &self.part).await?))
    }

    async fn commit(&self, size: u64, options: &CommitOptions) -> Result<()> {
        let session = self.inner.host.session().await?;
        let handle = self.handles.on(&session).await?;
        let set = Request::Fsetstat(handle.clone(), self.finish(size, options));
        let set = session.request(&set);
        let synced = async {
            match options.sync && self.inner.has(name::FSYNC) {
                true => sync(&session, &handle).await,
                false => Ok(()),
            }
        };
        let (set, synced) = futures_util::join!(set.answer(), synced);
        error::done("set attributes", set?).map_err(|error| self.at(error))?;
        synced.map_err(|error| self.at(error))?;
        for (session, handle) in self.handles.take_all() {
            session.post(&Request::Close(handle));
        }
        let named = self.inner.take_name(&self.part_on_server, &self.path, options.replace).await;
        if named.is_err() {
            let only = self.inner.is_only_copy(&self.path, options.replace).await;
            self.only_copy.store(only, Ordering::Relaxed);
        }
        named
    }

    async fn abort(&self, keep: bool) -> Result<()> {
        let open = self.handles.take_all();
        try_join_all(open.iter().map(|(session, handle)| async {
            // A close that fails leaves nothing behind that could be cleared up here.
            session.request(&Request::Close(handle.clone())).answer().await.map(drop)
        }))
        .await?;
        if keep || self.only_copy.load(Ordering::Relaxed) {
            return Ok(());
        }
        let answer = self.inner.host.tell(&Request::Remove(self.part_on_server.clone())).await?;
        match answer {
            Response::Status { status: Status::NoSuchFile, .. } => Ok(()),
            other => error::done("remove", other).map_err(|error| self.at(error)),
        }
    }
}

/// Opens a new part file, whatever had its name before: a link of that name is not followed.
pub(super) async fn create_part(session: &Session, part: &Bytes, mode: u32) -> Result<Handle> {
    let flags = OpenFlags::WRITE.and(OpenFlags::CREATE).and(OpenFlags::EXCLUSIVE);
    let attrs = Attrs { permissions: Some(mode), ..Attrs::default() };
    let create = Request::Open { path: part.clone(), flags, attrs };
    let answer = session.request(&create).answer().await?;
    let first = match answer {
        Response::Handle(handle) => return Ok(handle),
        other => error::unexpected("create", other),
    };
    if first.kind() == ErrorKind::NotFound || first.kind() == ErrorKind::PermissionDenied {
        return Err(first);
    }
    // Version 3 has no word for "there is one already", so it is tried.
    let removed = session.request(&Request::Remove(part.clone()));
    let created = session.request(&create);
    error::done("create", removed.answer().await?).map_err(|_| first)?;
    error::handle("create", created.answer().await?)
}

pub(super) fn part_of(path: &RelPath) -> Result<RelPath> {
    path.with_name(part_name(path.name())).map_err(|error| {
        Error::new(ErrorKind::InvalidInput, "create").because(format!("the name {error}"))
    })
}

/// Makes what was written durable, where the server can.
pub(super) async fn sync(session: &Session, handle: &Handle) -> Result<()> {
    let request = Request::Extended(Extended::Fsync(handle.clone()));
    error::done("sync", session.request(&request).answer().await?)
}

async fn is_file(inner: &Inner, session: &Session, path: &Bytes) -> Result<bool> {
    match session.request(&Request::Lstat(path.clone())).answer().await? {
        Response::Attrs(attrs) => Ok(attrs.kind() == Some(FileKind::File)),
        Response::Status { status: Status::NoSuchFile, .. } => Ok(false),
        other => Err(inner.at_root(error::unexpected("look at", other))),
    }
}
