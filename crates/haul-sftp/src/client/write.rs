//! A file that is written over any lane, as a part file beside its final name.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::join_all;
use haul_storage::journal::PartJournal;
use haul_storage::{
    Block, Claim, CommitOptions, CreateOptions, Error, ErrorKind, Held, Range, RangeSet, ReadAt,
    RelPath, Result, Retry, WriteAt, Writes,
};

use super::attributes;
use super::error;
use super::handles::Handles;
use super::inner::Inner;
use super::opening::Lane;
use super::quirks::may_be_too_many;
use super::read::SftpFile;
use super::session::{Room, Session};
use crate::codec::{Attrs, Extended, FileKind, Handle, OpenFlags, Request, Response, Status, name};

/// Mode of a part file: only its owner can read an incomplete file.
const PART_MODE: u32 = 0o600;

/// Delay between the request to create a file and those to open it on other lanes, which might overtake it.
/// If the file does not exist yet, a lane opens it again when it needs it.
const CREATE_DELAY: Duration = Duration::from_millis(10);

/// Length of a part file after the probe of the order of writes, which writes its second byte. A shorter file
/// is not used for the probe.
const PROBE_BYTES: u64 = 2;

/// A file that is being written.
#[derive(Debug)]
pub(super) struct SftpUpload {
    inner: Arc<Inner>,
    path: RelPath,
    part: RelPath,
    part_on_server: Bytes,
    claim: Claim,
    journal: PartJournal,
    handles: Arc<Handles>,
    /// The server accepts writes in order only, on one handle.
    in_order: bool,
    /// End of the last byte that was written, as an offset.
    end: AtomicU64,
    /// The part file may be the only copy: the old file was renamed aside and perhaps not renamed back.
    only_copy: AtomicBool,
}

impl SftpUpload {
    /// Creates the part file of `path`, or resumes it with `options.resume`.
    pub(super) async fn create(
        inner: &Arc<Inner>,
        path: &RelPath,
        options: &CreateOptions,
    ) -> Result<Self> {
        inner.check_parent(path).await?;
        Self::create_claimed(inner, path, options, inner.claim(path).await).await
    }

    async fn create_claimed(
        inner: &Arc<Inner>,
        path: &RelPath,
        options: &CreateOptions,
        claim: Claim,
    ) -> Result<Self> {
        let part = inner.part_of(path, &claim)?;
        let part_on_server = inner.on_server(&part);
        let flags = OpenFlags::WRITE;
        let handles = Arc::new(Handles::new(inner, &part, part_on_server.clone(), flags));
        let quirks = &inner.host.quirks;
        // With one handle, a part file cannot be read while it is written, which resuming needs.
        let can_resume = quirks.writes() != Some(Writes::InOrder) && !quirks.are_handles_few();
        // Without a source, only the caller knows what the part file has.
        let may_resume = options.resume && (claim.has_journal() || options.source.is_none());
        let found = match may_resume && can_resume {
            true => existing_part(inner, &part_on_server).await?,
            false => None,
        };
        let length = found.as_ref().map(|found| found.size.unwrap_or_default());
        let mut journal =
            PartJournal::look(claim.journal(), options, length, Writes::AnyOrder).await?;
        if journal.resumes() {
            open_private(inner, &handles, &part_on_server, found).await?;
        } else {
            let has_room = options.size.is_some_and(|size| size >= PROBE_BYTES);
            create_and_probe(inner, &handles, path, &part_on_server, has_room).await?;
        }
        let in_order = quirks.writes() == Some(Writes::InOrder);
        if (in_order || quirks.are_handles_few()) && journal.held().is_recorded() {
            if journal.resumes() {
                // The quirk was detected only now, by this file or another one.
                let anew = CreateOptions { resume: false, ..options.clone() };
                return Box::pin(Self::create_claimed(inner, path, &anew, claim)).await;
            }
            // A part file without a journal is not resumed.
            journal = journal.unrecorded();
        }
        let upload = Self {
            inner: Arc::clone(inner),
            path: path.clone(),
            part,
            part_on_server,
            claim,
            journal,
            handles,
            in_order,
            end: AtomicU64::new(0),
            only_copy: AtomicBool::new(false),
        };
        upload.journal.start(&upload).await?;
        Ok(upload)
    }

    /// A lane for `bytes` bytes, and the handle on it.
    async fn lane(&self, bytes: u64) -> Result<(Room, Handle)> {
        if !self.in_order {
            return self.handles.any(bytes).await;
        }
        let first = self.handles.first().map(|(session, handle)| (session.reserve(bytes), handle));
        first.ok_or_else(|| {
            // The bytes written so far may be lost with the handle.
            let error = Error::new(ErrorKind::Unreachable, "write").with_retry(Retry::FromStart);
            self.at(
                error.because("the connection was lost, and this server cannot resume an upload")
            )
        })
    }

    fn at(&self, error: Error) -> Error {
        self.inner.at(error, &self.path)
    }

    /// Closes the file on all lanes; the call sends the requests. The responses matter: some servers create
    /// the file only when it is closed.
    fn close_all(&self) -> impl Future<Output = Result<()>> + Send {
        let open = self.handles.take_all().into_iter();
        let closed: Vec<_> =
            open.map(|(session, handle)| session.request(&Request::Close(handle))).collect();
        async move {
            for closed in closed {
                error::done("close", closed.response().await?).map_err(|error| self.at(error))?;
            }
            Ok(())
        }
    }

    async fn remove_part(&self) -> Result<()> {
        if self.only_copy.load(Ordering::Relaxed) {
            return Ok(());
        }
        let response =
            self.inner.host.request_once(&Request::Remove(self.part_on_server.clone())).await?;
        match response {
            Response::Status { status: Status::NoSuchFile, .. } => Ok(()),
            other => error::done("remove", other).map_err(|error| self.at(error)),
        }
    }

    /// Sets the attributes, closes the file and renames it to its final name.
    async fn finalize(&self, size: u64, options: &CommitOptions) -> Result<()> {
        let options = &*self.inner.with_old_mode(&self.path, options).await;
        let (session, handle) = self.lane(0).await?;
        let mut attrs = self.finish((&session, &handle), size, options).await?;
        attributes::set_owner_first(&self.inner, &session, &handle, &mut attrs)
            .await
            .map_err(|error| self.at(error))?;
        let sized = attrs.size.take().map(|size| {
            let length = Attrs { size: Some(size), ..Attrs::default() };
            session.request(&Request::Fsetstat(handle.clone(), length))
        });
        let set = attributes::request_set(&self.inner, &session, &handle, &attrs);
        let seen = attributes::times_request(&self.inner, &handle, &attrs)
            .map(|look| session.request(&look));
        let synced = (options.sync && self.inner.has(name::FSYNC))
            .then(|| session.request(&Request::Extended(Extended::Fsync(handle))));
        let closed = self.close_all();
        // All bytes have been written, so a rename that replaces nothing is sent along, unless setting the
        // length or syncing may still fail. A replacing rename waits for the CLOSEs: some disks report failed
        // writes only then.
        let renamed = (sized.is_none() && synced.is_none())
            .then(|| self.inner.rename_behind(&session, &self.part_on_server, &self.path))
            .flatten();
        let sized = match sized {
            Some(sized) => {
                sized.response().await.and_then(|set| error::done("set the length", set))
            }
            None => Ok(()),
        };
        let set = attributes::set_outcome(set, &attrs).await;
        let seen = match seen {
            Some(seen) => Some(seen.response().await),
            None => None,
        };
        if let Some(synced) = synced {
            error::done("sync", synced.response().await?).map_err(|error| self.at(error))?;
        }
        let closed = closed.await.and(sized.map_err(|error| self.at(error)));
        let renamed = match renamed {
            Some(renamed) => error::done("rename", renamed.response().await?).is_ok(),
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
                    attributes::check_times(&self.inner, seen, &at, &attrs).await;
                }
                set.map_err(|error| self.at(error))
            }
            Err(_) => Ok(()),
        };
        let whole = closed.and(set);
        if whole.is_err() && renamed {
            // The name was free before, and the file that has it now is not as requested. If the removal
            // fails too, the first error is the one to report.
            let removed = Request::Remove(self.inner.on_server(&self.path));
            drop(self.inner.host.request_once(&removed).await);
        }
        whole?;
        if renamed {
            self.inner.directories.forget(&self.path);
            if options.replace {
                self.inner.clear_aside(&self.path).await?;
            }
            return Ok(());
        }
        // The rename was not sent, the name exists, or the server cannot rename a file that is open.
        let named = self.inner.put_in_place(&self.part_on_server, &self.path, options).await;
        if named.is_err() {
            let only = self.inner.is_only_copy(&self.path, options.replace).await;
            self.only_copy.store(only, Ordering::Relaxed);
        }
        named
    }

    /// The attributes to set before the rename. The length is among them only if the file is too long or its
    /// length unknown, because some servers empty a file whose length is set (paramiko's). If the file is too
    /// short, its last byte is written, a zero; where writes must be in order, the length is set.
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
        let found = session.request(&Request::Fstat(handle.clone())).response().await?;
        let found = error::attrs("access", found).map_err(|error| self.at(error))?.size;
        let written = self.end.load(Ordering::Relaxed);
        match found {
            Some(found) if found < written => {
                let cause = format!("the server stored {found} of {written} bytes");
                let lost = Error::new(ErrorKind::Changed, "access").because(cause);
                return Err(self.at(lost.with_retry(Retry::FromStart)));
            }
            Some(found) if found == size => {}
            Some(found) if found < size && !self.in_order => {
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
        let mut writes = Vec::new();
        let (mut at, mut rest) = (offset, block);
        while !rest.is_empty() {
            let after = rest.split_off(most);
            let length = rest.len() as u64;
            let request = Request::Write { handle: handle.clone(), offset: at, data: rest };
            writes.push(session.request(&request));
            at += length;
            rest = after;
        }
        drop(room);
        for pending in writes {
            if let Err(error) = error::done("write", pending.response().await?) {
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
                // Both files may be open on other lanes, over which the bytes can be read and written.
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
        let response = session.request(&request).response().await?;
        // The source has become shorter.
        let is_cut = matches!(response, Response::Status { status: Status::Eof, .. });
        match error::done("copy", response) {
            Ok(()) => {
                self.end.fetch_max(range.end(), Ordering::Relaxed);
                Ok(true)
            }
            // Reading and writing may work, and otherwise reports the cause.
            Err(error) if is_cut || may_be_too_many(&error) => Ok(false),
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
                // The file is open for writing, so bytes from an earlier run cannot be read meanwhile.
                quirks.learn_one_handle_a_file();
                Err(error.with_retry(Retry::FromStart))
            }
            opened => Ok(Arc::new(opened?)),
        }
    }

    async fn commit(&self, size: u64, options: &CommitOptions) -> Result<()> {
        self.finalize(size, options).await?;
        let removed = self.journal.remove().await;
        self.claim.release();
        removed
    }

    async fn abort(&self, keep: bool) -> Result<()> {
        let open = self.handles.take_all();
        let closed = open.iter().map(|(session, handle)| async {
            // If the CLOSE fails or the lane is lost, there is nothing to clean up.
            drop(session.request(&Request::Close(handle.clone())).response().await);
        });
        join_all(closed).await;
        let outcome = match keep && self.claim.journal().is_some() {
            true => Ok(()),
            false => self.remove_part().await.and(self.journal.remove().await),
        };
        self.claim.release();
        outcome
    }
}

/// Creates the part file of `path`. If it is not known whether the server takes writes in any order, and the file
/// `has_room` for the probe, probes it.
async fn create_and_probe(
    inner: &Inner,
    handles: &Arc<Handles>,
    path: &RelPath,
    part: &Bytes,
    has_room: bool,
) -> Result<()> {
    let quirks = &inner.host.quirks;
    let open = async || {
        let opened = open_part(inner, part, PART_MODE, false).await;
        opened.map_err(|error| inner.at(error, path))
    };
    let unknown = quirks.writes().is_none() && !inner.has_file_system();
    let any_lane = !unknown && quirks.writes() != Some(Writes::InOrder);
    if any_lane {
        handles.open_ahead(CREATE_DELAY);
    }
    let (mut lane, mut handle, is_first) = open().await?;
    if !is_first {
        handles.open_anew();
    }
    if any_lane {
        handles.open_on_new();
    }
    let writes = match unknown && has_room {
        true => probe_order(inner, &lane, &handle).await?,
        false => Writes::AnyOrder,
    };
    if writes == Writes::InOrder {
        // The file is created again, so the outcome does not matter.
        drop(lane.request(&Request::Close(handle)).response().await);
        (lane, handle, _) = open().await?;
    }
    handles.adopt(&lane, handle);
    if quirks.writes() == Some(Writes::InOrder) {
        handles.retain_shared(&lane);
    }
    handles.retain_own(lane);
    Ok(())
}

/// Creates a part file, on any lane that allows it. Also returns whether its name was free.
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

/// Creates a part file and removes any entry that has its name; a link of that name is not followed. Also
/// returns whether the name was free.
pub(super) async fn create_part(
    session: &Session,
    part: &Bytes,
    mode: u32,
) -> Result<(Handle, bool)> {
    let flags = OpenFlags::WRITE.and(OpenFlags::CREATE).and(OpenFlags::EXCLUSIVE);
    let attrs = Attrs { permissions: Some(mode), ..Attrs::default() };
    let create = Request::Open { path: part.clone(), flags, attrs };
    let response = session.request(&create).response().await?;
    let first = match response {
        Response::Handle(handle) => return Ok((handle, true)),
        other => error::unexpected("create", other),
    };
    if first.kind() == ErrorKind::NotFound || first.kind() == ErrorKind::PermissionDenied {
        return Err(first);
    }
    // Version 3 has no status for "already exists", so haul tries to remove an entry of that name.
    let removed = session.request(&Request::Remove(part.clone()));
    let created = session.request(&create);
    let removed = error::done("create", removed.response().await?);
    let created = error::handle("create", created.response().await?);
    // The entry may have disappeared meanwhile, so a failed removal does not count if the file was created.
    match created {
        Ok(handle) => Ok((handle, false)),
        Err(second) => Err(if removed.is_ok() { second } else { first }),
    }
}

/// Syncs the written bytes to the server's disk (`fsync@openssh.com`).
pub(super) async fn sync(session: &Session, handle: &Handle) -> Result<()> {
    let request = Request::Extended(Extended::Fsync(handle.clone()));
    error::done("sync", session.request(&request).response().await?)
}

/// Probes whether the server accepts writes in any order, with a zero as the second byte of a new part file.
/// If it does, the file can be used: it holds two zeros, like bytes that were not written.
async fn probe_order(inner: &Inner, session: &Session, handle: &Handle) -> Result<Writes> {
    let written = zero_at(session, handle, PROBE_BYTES - 1);
    let look = || session.request(&Request::Fstat(handle.clone()));
    let length = look();
    let written = written.await;
    let mut length = length.response().await;
    if written.is_ok() && !has_probe_length(&length) {
        // Some servers stat a file before they have processed an earlier WRITE (those of Go's sftp package).
        length = look().response().await;
    }
    let written = match written {
        // The first lost connection proves nothing; a second one is the server's way of refusing.
        Err(error) if is_lost(&error) && inner.host.quirks.is_first_loss() => return Err(error),
        written => written,
    };
    // A server that writes to the wrong offset reports success, so the length counts as well.
    let fits = has_probe_length(&length);
    let writes = if written.is_ok() && fits { Writes::AnyOrder } else { Writes::InOrder };
    inner.host.quirks.learn_writes(writes);
    Ok(writes)
}

/// Whether a file has the length that a successful probe leaves.
fn has_probe_length(found: &Result<Response>) -> bool {
    matches!(found, Ok(Response::Attrs(attrs)) if attrs.size == Some(PROBE_BYTES))
}

/// Writes a zero. The call sends the request, the future waits for the response.
fn zero_at(
    session: &Session,
    handle: &Handle,
    offset: u64,
) -> impl Future<Output = Result<()>> + Send + use<> {
    let zero = Block::from(Bytes::from_static(&[0]));
    let write = Request::Write { handle: handle.clone(), offset, data: zero };
    let written = session.request(&write);
    async move { error::done("write", written.response().await?) }
}

fn is_lost(error: &Error) -> bool {
    error.kind() == ErrorKind::Unreachable
}

/// The attributes of the part file at `path`; `None` if no regular file has that name.
async fn existing_part(inner: &Inner, path: &Bytes) -> Result<Option<Attrs>> {
    let look = Request::Lstat(path.clone());
    let prefetched = inner.host.prefetched(&look).await;
    let found = match prefetched {
        Some(found) => found,
        None => inner.host.request_with_retries(&look).await?,
    };
    match found {
        Response::Attrs(attrs) if attrs.kind() == Some(FileKind::File) => Ok(Some(attrs)),
        Response::Attrs(_) | Response::Status { status: Status::NoSuchFile, .. } => Ok(None),
        other => Err(inner.at_root(error::unexpected("access", other))),
    }
}

/// Opens the part file at `path`, whose attributes are `found`, and gives it the mode of a new one: a run that was
/// interrupted just before the rename had set the final mode, which may let others read the file, or keep its owner
/// from writing to it. Never creates a file, and refuses a link. A server's refusal to set the mode is ignored.
async fn open_private(
    inner: &Inner,
    handles: &Arc<Handles>,
    path: &Bytes,
    found: Option<Attrs>,
) -> Result<()> {
    let mode = found.and_then(|found| found.permissions);
    let is_private = mode.is_none_or(|mode| mode & 0o7777 == PART_MODE)
        || attributes::set_mode_of_file(inner, path, PART_MODE).await?;
    if is_private {
        handles.open_ahead(Duration::ZERO);
        return handles.any(0).await.map(drop);
    }
    let attrs = Attrs { permissions: Some(PART_MODE), ..Attrs::default() };
    match handles.any(0).await {
        Ok((session, handle)) => {
            session.request(&Request::Fsetstat(handle, attrs)).response().await.map(drop)
        }
        // SETSTAT follows a link, so it is used only if nothing else helps.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            inner.host.request_with_retries(&Request::Setstat(path.clone(), attrs)).await?;
            handles.any(0).await.map(drop)
        }
        Err(error) => Err(error),
    }
}
