//! A file that is written over any lane, as a part file beside its final name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join_all;
use haul_storage::journal::PartJournal;
use haul_storage::{
    Block, CommitOptions, CreateOptions, Error, ErrorKind, Held, Range, RangeSet, ReadAt, RelPath,
    Result, Retry, WriteAt, Writes,
};

use super::attributes;
use super::error;
use super::handles::Handles;
use super::inner::Inner;
use super::opening::Lane;
use super::part_file::part_of;
use super::quirks::may_be_too_many;
use super::read::SftpFile;
use super::session::{Room, Session};
use crate::codec::{Attrs, Extended, FileKind, Handle, OpenFlags, Request, Response, Status, name};

/// Only this user reads what is not finished.
const PART_MODE: u32 = 0o600;

/// So long after its creation was asked for a file may be opened on other lanes, where that may be
/// done sooner. If it is too soon the file is not there, and opened once more when it has to be.
const CREATED: Duration = Duration::from_millis(10);

/// So long a file has room for the byte with which the order of writes is tried out.
const TRIED_BYTES: u64 = 2;

/// A file that is being written.
#[derive(Debug)]
pub(super) struct SftpUpload {
    inner: Arc<Inner>,
    path: RelPath,
    part: RelPath,
    part_on_server: Bytes,
    journal: PartJournal,
    handles: Arc<Handles>,
    /// The server takes bytes from the first to the last only, on one handle.
    in_order: bool,
    /// Where the last byte that was written ends.
    end: AtomicU64,
    /// The part file is all that there is: the old file was renamed aside and could not be renamed back.
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
        let flags = OpenFlags::WRITE;
        let handles = Arc::new(Handles::new(inner, &part, part_on_server.clone(), flags));
        let quirks = &inner.host.quirks;
        // What was begun with one handle cannot be read to be continued.
        let can_resume = quirks.writes() != Some(Writes::InOrder) && !quirks.are_handles_few();
        let found = match options.resume && can_resume {
            true => file_length(inner, &part_on_server).await?,
            false => None,
        };
        let place = inner.journal_path(path);
        let mut journal = PartJournal::look(place, options, found, Writes::AnyOrder).await?;
        if journal.resumes() {
            // Opens it, too: nothing is made, and a link is refused.
            handles.open_ahead(Duration::ZERO);
            handles.any(0).await?;
        } else {
            let open = async || {
                let opened = open_part(inner, &part_on_server, PART_MODE, false).await;
                opened.map_err(|error| inner.at(error, path))
            };
            let unknown = quirks.writes().is_none() && !inner.has_file_system();
            let room = options.size.is_some_and(|size| size >= TRIED_BYTES);
            let any_lane = !unknown && quirks.writes() != Some(Writes::InOrder);
            if any_lane {
                handles.open_ahead(CREATED);
            }
            let (mut lane, mut handle, is_first) = open().await?;
            if !is_first {
                handles.open_anew();
            }
            if any_lane {
                handles.open_on_new();
            }
            let writes = match unknown && room {
                true => try_order(inner, &lane, &handle).await?,
                false => Writes::AnyOrder,
            };
            if writes == Writes::InOrder {
                // It is started anew, so it does not matter what becomes of it.
                drop(lane.request(&Request::Close(handle)).answer().await);
                (lane, handle, _) = open().await?;
            }
            handles.adopt(&lane, handle);
            if quirks.writes() == Some(Writes::InOrder) {
                handles.hold(&lane);
            }
            handles.keep(lane);
        }
        let in_order = quirks.writes() == Some(Writes::InOrder);
        if (in_order || quirks.are_handles_few()) && journal.held().is_recorded() {
            if journal.resumes() {
                // That was learnt only now, by this file or another one.
                let anew = CreateOptions { resume: false, ..options.clone() };
                return Box::pin(Self::create(inner, path, &anew)).await;
            }
            // A part file without a journal is not continued.
            journal = PartJournal::default();
        }
        let upload = Self {
            inner: Arc::clone(inner),
            path: path.clone(),
            part,
            part_on_server,
            journal,
            handles,
            in_order,
            end: AtomicU64::new(0),
            only_copy: AtomicBool::new(false),
        };
        upload.journal.start(&upload).await?;
        Ok(upload)
    }

    /// A lane for so many bytes, and the handle on it.
    async fn lane(&self, bytes: u64) -> Result<(Room, Handle)> {
        if !self.in_order {
            return self.handles.any(bytes).await;
        }
        let first = self.handles.first().map(|(session, handle)| (session.reserve(bytes), handle));
        first.ok_or_else(|| {
            // What was written may be gone with the handle.
            let error = Error::new(ErrorKind::Unreachable, "write").with_retry(Retry::FromStart);
            self.at(
                error.because("the connection was lost, and this server cannot resume an upload")
            )
        })
    }

    fn at(&self, error: Error) -> Error {
        self.inner.at(error, &self.path)
    }

    /// Closes it on all lanes; the requests are made at once. The answers tell whether the file is
    /// there: some servers make it only when it is closed.
    fn close_all(&self) -> impl Future<Output = Result<()>> + Send {
        let open = self.handles.take_all().into_iter();
        let closed: Vec<_> =
            open.map(|(session, handle)| session.request(&Request::Close(handle))).collect();
        async move {
            for closed in closed {
                error::done("close", closed.answer().await?).map_err(|error| self.at(error))?;
            }
            Ok(())
        }
    }

    async fn remove_part(&self) -> Result<()> {
        if self.only_copy.load(Ordering::Relaxed) {
            return Ok(());
        }
        let answer = self.inner.host.tell(&Request::Remove(self.part_on_server.clone())).await?;
        match answer {
            Response::Status { status: Status::NoSuchFile, .. } => Ok(()),
            other => error::done("remove", other).map_err(|error| self.at(error)),
        }
    }

    /// Gives the file its name.
    async fn place(&self, size: u64, options: &CommitOptions) -> Result<()> {
        let (session, handle) = self.lane(0).await?;
        let mut attrs = self.finish((&session, &handle), size, options).await?;
        attributes::lend(&self.inner, &session, &handle, &mut attrs)
            .await
            .map_err(|error| self.at(error))?;
        let sized = attrs.size.take().map(|size| {
            let length = Attrs { size: Some(size), ..Attrs::default() };
            session.request(&Request::Fsetstat(handle.clone(), length))
        });
        let set = attributes::ask(&self.inner, &session, &handle, &attrs);
        let seen =
            attributes::look(&self.inner, &handle, &attrs).map(|look| session.request(&look));
        let synced = (options.sync && self.inner.has(name::FSYNC))
            .then(|| session.request(&Request::Extended(Extended::Fsync(handle))));
        let closed = self.close_all();
        // All bytes are there. Only what may still take some of that back is waited for; and what has the
        // name is not replaced before the server has closed all, since not every disk has told by then.
        let renamed = (sized.is_none() && synced.is_none())
            .then(|| self.inner.rename_behind(&session, &self.part_on_server, &self.path))
            .flatten();
        let sized = match sized {
            Some(sized) => sized.answer().await.and_then(|set| error::done("set the length", set)),
            None => Ok(()),
        };
        let set = attributes::asked(set, &attrs).await;
        let seen = match seen {
            Some(seen) => Some(seen.answer().await),
            None => None,
        };
        if let Some(synced) = synced {
            error::done("sync", synced.answer().await?).map_err(|error| self.at(error))?;
        }
        let closed = closed.await.and(sized.map_err(|error| self.at(error)));
        let renamed = match renamed {
            Some(renamed) => error::done("rename", renamed.answer().await?).is_ok(),
            None => false,
        };
        let at = match renamed {
            true => self.inner.on_server(&self.path),
            false => self.part_on_server.clone(),
        };
        let set = match &closed {
            Ok(()) => {
                let is_set = set.is_ok();
                let set = attributes::settle(&self.inner, set, &at, &attrs).await;
                if let Some(seen) = seen.filter(|_| is_set) {
                    attributes::see(&self.inner, seen, &at, &attrs).await;
                }
                set.map_err(|error| self.at(error))
            }
            Err(_) => Ok(()),
        };
        let whole = closed.and(set);
        if whole.is_err() && renamed {
            // Nothing had the name before, and what has it now is not what was wanted. If this fails as
            // well the first error is the one to report.
            let removed = Request::Remove(self.inner.on_server(&self.path));
            drop(self.inner.host.tell(&removed).await);
        }
        whole?;
        if renamed {
            self.inner.directories.forget(&self.path);
            if options.replace {
                self.inner.clear_aside(&self.path).await?;
            }
            return Ok(());
        }
        // Something is in the way, or a file that is open anywhere cannot be renamed there.
        let named = self.inner.put_in_place(&self.part_on_server, &self.path, options).await;
        if named.is_err() {
            let only = self.inner.is_only_copy(&self.path, options.replace).await;
            self.only_copy.store(only, Ordering::Relaxed);
        }
        named
    }

    /// What is to be set before the file gets its name. The length is among it only where the file
    /// is too long, because some servers empty a file whose length is set (paramiko's); what is too
    /// short gets its last zero.
    async fn finish(
        &self,
        (session, handle): (&Session, &Handle),
        size: u64,
        options: &CommitOptions,
    ) -> Result<Attrs> {
        let mut attrs = attributes::of_new_file(&self.inner, &options.metadata);
        if !self.journal.resumes() && self.end.load(Ordering::Relaxed) == size {
            return Ok(attrs);
        }
        let there = session.request(&Request::Fstat(handle.clone())).answer().await?;
        let there = error::attrs("access", there).map_err(|error| self.at(error))?.size;
        let written = self.end.load(Ordering::Relaxed);
        match there {
            Some(there) if there < written => {
                let cause = format!("the server stored {there} of {written} bytes");
                let lost = Error::new(ErrorKind::Changed, "access").because(cause);
                return Err(self.at(lost.with_retry(Retry::FromStart)));
            }
            Some(there) if there == size => {}
            Some(there) if there < size && !self.in_order => {
                zero_at(session, handle, size - 1).await.map_err(|error| self.at(error))?;
            }
            _ => attrs.size = Some(size),
        }
        Ok(attrs)
    }
}

#[async_trait]
impl WriteAt for SftpUpload {
    fn held(&self) -> &Held {
        self.journal.held()
    }

    async fn record(&self, ranges: RangeSet) -> Result<()> {
        self.journal.record(ranges).await
    }

    async fn write_at(&self, offset: u64, block: Block) -> Result<()> {
        let end = offset + block.len() as u64;
        let written = self.end.load(Ordering::Relaxed);
        if self.in_order && offset != written {
            let cause = format!("a write at offset {offset} instead of {written}");
            return Err(self.at(Error::new(ErrorKind::InvalidInput, "write").because(cause)));
        }
        let (room, handle) = self.lane(block.len() as u64).await?;
        let session = Arc::clone(&room);
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
        drop(room);
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
        if self.in_order
            || self.inner.host.quirks.are_handles_few()
            || !source.is_on(&self.inner)
            || !self.inner.has(name::COPY_DATA)
            || range.is_empty()
        {
            return Ok(false);
        }
        let session = self.inner.host.session().await?;
        let [from, to] =
            match [source.handles().on(&session).await, self.handles.on(&session).await] {
                [Ok(from), Ok(to)] => [from, to],
                // One of them may be open elsewhere; there the bytes can be read and written.
                [Err(error), _] | [_, Err(error)] if may_be_too_many(&error) => return Ok(false),
                [Err(error), _] | [_, Err(error)] => return Err(error),
            };
        let request = Request::Extended(Extended::CopyData {
            from,
            from_offset: range.start(),
            length: range.len(),
            to,
            to_offset: range.start(),
        });
        match error::done("copy", session.request(&request).answer().await?) {
            Ok(()) => {
                self.end.fetch_max(range.end(), Ordering::Relaxed);
                Ok(true)
            }
            // Reading and writing may work, and tells otherwise what is wrong.
            Err(error) if may_be_too_many(&error) => Ok(false),
            Err(error) => Err(self.at(error)),
        }
    }

    async fn sync(&self) -> Result<()> {
        if !self.inner.has(name::FSYNC) {
            return Ok(());
        }
        let (session, handle) = self.lane(0).await?;
        let synced = async { sync(&session, &handle).await.map_err(|error| self.at(error)) };
        self.journal.synced(synced).await
    }

    async fn reopen(&self, _uncached: bool) -> Result<Arc<dyn ReadAt>> {
        let quirks = &self.inner.host.quirks;
        if quirks.are_handles_few() {
            self.close_all().await?;
        }
        match SftpFile::open_changing(&self.inner, &self.part).await {
            Err(error) if may_be_too_many(&error) && self.handles.first().is_some() => {
                // It is open for writing: what an earlier run left cannot be looked at meanwhile.
                quirks.learn_one_handle_a_file();
                Err(error.with_retry(Retry::FromStart))
            }
            opened => Ok(Arc::new(opened?)),
        }
    }

    async fn commit(&self, size: u64, options: &CommitOptions) -> Result<()> {
        self.place(size, options).await?;
        self.journal.remove().await
    }

    async fn abort(&self, keep: bool) -> Result<()> {
        let open = self.handles.take_all();
        let closed = open.iter().map(|(session, handle)| async {
            // A close that fails, or a lane that is lost, leaves nothing behind that could be cleared up.
            drop(session.request(&Request::Close(handle.clone())).answer().await);
        });
        join_all(closed).await;
        if keep {
            return Ok(());
        }
        let removed = self.remove_part().await;
        removed.and(self.journal.remove().await)
    }
}

/// Opens a new part file on whichever lane that can be done. Whether nothing had its name before.
pub(super) async fn open_part(
    inner: &Inner,
    part: &Bytes,
    mode: u32,
    brief: bool,
) -> Result<(Lane, Handle, bool)> {
    let mut opening = inner.host.opening(brief);
    loop {
        let lane = opening.lane().await?;
        match create_part(&lane, part, mode).await {
            Ok((handle, is_first)) => {
                opening.opened();
                attributes::try_again(inner, &lane, &handle, mode);
                return Ok((lane, handle, is_first));
            }
            Err(error) => opening.refused(&lane, error)?,
        }
    }
}

/// Opens a new part file, whatever had its name before: a link of that name is not followed.
async fn create_part(session: &Session, part: &Bytes, mode: u32) -> Result<(Handle, bool)> {
    let flags = OpenFlags::WRITE.and(OpenFlags::CREATE).and(OpenFlags::EXCLUSIVE);
    let attrs = Attrs { permissions: Some(mode), ..Attrs::default() };
    let create = Request::Open { path: part.clone(), flags, attrs };
    let answer = session.request(&create).answer().await?;
    let first = match answer {
        Response::Handle(handle) => return Ok((handle, true)),
        other => error::unexpected("create", other),
    };
    if first.kind() == ErrorKind::NotFound || first.kind() == ErrorKind::PermissionDenied {
        return Err(first);
    }
    // Version 3 has no word for "there is one already", so it is tried.
    let removed = session.request(&Request::Remove(part.clone()));
    let created = session.request(&create);
    let removed = error::done("create", removed.answer().await?);
    let created = error::handle("create", created.answer().await?);
    // Whatever was in the way may have gone by itself.
    match created {
        Ok(handle) => Ok((handle, false)),
        Err(second) => Err(if removed.is_ok() { second } else { first }),
    }
}

/// Makes what was written durable, where the server can.
pub(super) async fn sync(session: &Session, handle: &Handle) -> Result<()> {
    let request = Request::Extended(Extended::Fsync(handle.clone()));
    error::done("sync", session.request(&request).answer().await?)
}

/// Finds out whether the server takes bytes in any order, with a zero behind the first byte of a new
/// part file. If it does, nothing is in the file that should not be.
async fn try_order(inner: &Inner, session: &Session, handle: &Handle) -> Result<Writes> {
    let written = zero_at(session, handle, TRIED_BYTES - 1);
    let look = || session.request(&Request::Fstat(handle.clone()));
    let length = look();
    let written = written.await;
    let mut length = length.answer().await;
    if written.is_ok() && !has_tried_length(&length) {
        // Some servers look before they have written what came before (those of Go's sftp package).
        length = look().answer().await;
    }
    let written = match written {
        // That says nothing; where it happens again it is the server's way of refusing.
        Err(error) if is_lost(&error) && inner.host.quirks.is_first_loss() => return Err(error),
        written => written,
    };
    // A server that puts bytes where they do not belong says that all is well.
    let fits = has_tried_length(&length);
    let writes = if written.is_ok() && fits { Writes::AnyOrder } else { Writes::InOrder };
    inner.host.quirks.learn_writes(writes);
    Ok(writes)
}

/// Whether that is what is there when the order of writes was tried out and any will do.
fn has_tried_length(there: &Result<Response>) -> bool {
    matches!(there, Ok(Response::Attrs(attrs)) if attrs.size == Some(TRIED_BYTES))
}

/// Writes a zero; it is asked for at once.
fn zero_at(
    session: &Session,
    handle: &Handle,
    offset: u64,
) -> impl Future<Output = Result<()>> + Send + use<> {
    let zero = Block::from(Bytes::from_static(&[0]));
    let write = Request::Write { handle: handle.clone(), offset, data: zero };
    let written = session.request(&write);
    async move { error::done("write", written.answer().await?) }
}

fn is_lost(error: &Error) -> bool {
    error.kind() == ErrorKind::Unreachable
}

/// The length of what is at `path`; `None` if that is no file.
async fn file_length(inner: &Inner, path: &Bytes) -> Result<Option<u64>> {
    let look = Request::Lstat(path.clone());
    let prefetched = inner.host.prefetched(&look).await;
    let found = match prefetched {
        Some(found) => found,
        None => inner.host.ask(&look).await?,
    };
    match found {
        Response::Attrs(attrs) if attrs.kind() == Some(FileKind::File) => {
            Ok(Some(attrs.size.unwrap_or_default()))
        }
        Response::Attrs(_) | Response::Status { status: Status::NoSuchFile, .. } => Ok(None),
        other => Err(inner.at_root(error::unexpected("access", other))),
    }
}
