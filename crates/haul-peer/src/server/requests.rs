//! Executes the requests of a session on the shared storage.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use haul_storage::{
    Block, CommitOptions, CreateOptions, Error, ErrorKind, Metadata, Range, ReadAt, RelPath,
    Result, UNKNOWN_SIZE, Whole, WriteAt, bytes_owning,
};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;

use super::fan::{Membership, Source};
use super::limits;
use super::session::{Handle, Session};
use super::upload::Upload;
use crate::outbox::Outgoing;
use crate::wire::convert::{self, mode, path, paths, required};
use crate::wire::messages::{self, to_client, to_server};
use crate::wire::{BulkHeader, Hash, WireError, bulk_head, message_frame, piece_hash};

type Request = to_server::Body;
type Response = to_client::Body;

/// Where responses to a request go.
#[derive(Clone)]
pub(super) struct Reply {
    pub(super) session: Arc<Session>,
    pub(super) lane: u64,
    pub(super) id: u32,
    /// Counts the request until its last response is sent.
    pub(super) counted: Arc<OwnedSemaphorePermit>,
}

impl Reply {
    /// Sends a response.
    pub(super) fn send(&self, body: Response) {
        if let Some(frame) = self.frame(body) {
            self.session.send(self.lane, &frame, true);
        }
    }

    /// Sends the response that the request has failed.
    pub(super) fn fail(&self, error: &Error) {
        self.send(Response::Failed(error.into()));
    }

    /// Sends a long response; waits until enough earlier ones are sent.
    async fn send_long(&self, body: Response) {
        let Some(frame) = self.frame(body) else { return };
        let bytes = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        // The semaphore is never closed, and has room for the longest message.
        if let Ok(room) =
            Arc::clone(&self.session.budgets.long_messages).acquire_many_owned(bytes).await
        {
            self.session.send(self.lane, &bytes_owning(frame, room), false);
        }
    }

    /// Stores the outcome of a request that must not be executed twice, and sends it.
    fn send_once(&self, body: Response) {
        let opened = match &body {
            Response::Opened(opened) => Some(opened.handle),
            Response::Created(created) => Some(created.handle),
            _ => None,
        };
        let Some(frame) = self.uncounted(body) else { return };
        if let Some(lane) = self.session.finish_once(self.id, &frame, opened) {
            self.session.send(lane, &self.count(frame), true);
        }
    }

    /// Sends a response again.
    pub(super) fn repeat(&self, response: Bytes) {
        self.session.send(self.lane, &self.count(response), true);
    }

    fn frame(&self, body: Response) -> Option<Bytes> {
        self.uncounted(body).map(|frame| self.count(frame))
    }

    /// Attaches the count of the request to a frame: it is released once the frame is sent.
    fn count(&self, frame: Bytes) -> Bytes {
        bytes_owning(frame, Arc::clone(&self.counted))
    }

    /// The frame of a response. One that is too long is replaced by an error.
    fn uncounted(&self, body: Response) -> Option<Bytes> {
        let message = |body| messages::ToClient { id: self.id, body: Some(body) };
        let frame = message_frame(&message(body)).or_else(|error| {
            let failed = Response::Failed(messages::Error::from(&Error::from(error)));
            message_frame(&message(failed))
        });
        frame.ok()
    }
}

/// Executes a request, and sends its responses.
pub(super) async fn execute(running: Running, request: Request) {
    let reply = &running.0;
    let outcome = match request {
        Request::List(request) => list(reply, &request).await,
        Request::Read(request) => {
            reply.session.begin_read(reply.id);
            read(reply, &request).await
        }
        Request::ReadWhole(request) => read_whole(reply, &request).await,
        Request::Stat(request) => stat(reply, &request).await,
        request if request.is_once() => {
            let outcome = match request.is_change() && !reply.session.rights.writable {
                true => Err(read_only()),
                false => single(&reply.session, request).await,
            };
            reply.send_once(outcome.unwrap_or_else(|error| Response::Failed((&error).into())));
            Ok(())
        }
        request => single(&reply.session, request).await.map(|response| reply.send(response)),
    };
    if let Err(error) = outcome {
        reply.fail(&error);
    }
}

/// A request that runs. Dropping it, also if it is cancelled before it begins, removes the request from its session.
pub(super) struct Running(pub(super) Reply);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.session.end(self.0.id);
    }
}

/// Writes the data of a bulk frame.
pub(super) async fn write(reply: Reply, header: BulkHeader, data: Block) {
    let outcome = async {
        if !reply.session.rights.writable {
            return Err(read_only());
        }
        let (writer, length) = (reply.session.writer(header.handle)?, data.len());
        writer.write(header.offset, data).await?;
        reply.session.transfers(header.handle);
        reply.session.activity.received(length);
        Ok(())
    };
    reply.send(match outcome.await {
        Ok(()) => done(),
        Err(error) => Response::Failed((&error).into()),
    });
}

const fn done() -> Response {
    Response::Done(messages::Empty {})
}

fn read_only() -> Error {
    Error::new(ErrorKind::PermissionDenied, "change the share")
        .because("it is shared read-only")
        .hinting("the sharer can allow changes: haul share --writable")
}

/// Executes a request with one response.
async fn single(session: &Session, request: Request) -> Result<Response> {
    let storage = &session.storage;
    match request {
        Request::Open(request) => {
            let at = path(&request.path)?;
            opened(session, session.fan.open(session.id, &at).await?, Some(at)).await
        }
        Request::Recheck(request) => {
            let identity = session.reader(request.handle)?.recheck().await?;
            Ok(Response::Identity((&identity).into()))
        }
        Request::ReadMetadata(request) => {
            let metadata = session.reader(request.handle)?.metadata().await?;
            Ok(Response::Metadata((&metadata).into()))
        }
        Request::Metadata(request) => {
            let metadata = storage.metadata(&path(&request.path)?).await?;
            Ok(Response::Metadata((&metadata).into()))
        }
        Request::NextData(request) => {
            let range = session.reader(request.handle)?.next_data(request.from).await?;
            let range = range.map(Into::into);
            Ok(Response::FoundRange(messages::FoundRange { range }))
        }
        Request::Close(request) => {
            drop(session.close(request.handle));
            Ok(done())
        }
        Request::Digest(request) => {
            let digest = match convert::digest_kind(request.kind) {
                Ok(kind) => storage.digest(&path(&request.path)?, kind).await?,
                // A kind of a later version.
                Err(_) => None,
            };
            let digest = digest.as_ref().map(Into::into);
            Ok(Response::DigestIs(messages::DigestIs { digest }))
        }
        Request::Space(request) => {
            let space = storage.space(&path(&request.path)?).await?;
            let space = space.as_ref().map(|space| Box::new(space.into()));
            Ok(Response::SpaceIs(messages::SpaceIs { space }))
        }
        Request::Allocated(request) => {
            let bytes = storage.allocated(&path(&request.path)?).await?;
            Ok(Response::AllocatedIs(messages::AllocatedIs { bytes }))
        }
        Request::Ping(_) => Ok(Response::Pong(messages::Empty {})),
        request => change(session, request).await,
    }
}

/// Executes a request that changes something.
async fn change(session: &Session, request: Request) -> Result<Response> {
    let storage = &session.storage;
    match request {
        Request::CreateDir(request) => {
            let mode = mode(request.mode)?;
            let mode = session.permitted(Metadata { mode, ..Metadata::default() }).mode;
            storage.create_dir_as(&path(&request.path)?, mode).await?;
        }
        Request::CreateLink(request) => {
            let link = required(request.link, "link")?.try_into()?;
            storage.create_link(&path(&request.path)?, &link, request.replace).await?;
        }
        Request::Remove(request) => storage.remove(&path(&request.path)?).await?,
        Request::Rename(request) => {
            storage.rename(&path(&request.from)?, &path(&request.to)?).await?;
        }
        Request::Copy(request) => {
            storage.copy(&path(&request.from)?, &path(&request.to)?).await?;
        }
        Request::SetMetadata(request) => {
            let metadata = required(request.metadata, "metadata")?.try_into()?;
            let metadata = session.permitted(metadata);
            storage.set_metadata(&path(&request.path)?, &metadata).await?;
        }
        Request::Create(request) => {
            let options = required(request.options, "options")?.try_into()?;
            let path = path(&request.path)?;
            let writer = create(session, &path, &options).await?;
            let held = Some(writer.held().into());
            let upload = Upload::new(path.clone(), writer, options.resume);
            let handle = session.add(Handle::Writer(upload))?;
            session.name(handle, path);
            return Ok(Response::Created(messages::Created { handle, held }));
        }
        Request::Record(request) => {
            let ranges = required(request.ranges, "ranges")?.try_into()?;
            session.writer(request.handle)?.file.record(ranges).await?;
        }
        Request::Sync(request) => session.writer(request.handle)?.file.sync().await?,
        Request::Commit(request) => {
            let options = commit_options(session, request.options)?;
            match session.writer(request.handle) {
                Ok(upload) => upload.close(upload.file.commit(request.size, &options)).await?,
                Err(_) if session.is_committed(request.handle) => return Ok(done()),
                Err(error) => return Err(error),
            }
            session.close_committed(request.handle);
        }
        Request::Abort(request) => {
            let upload = session.writer(request.handle)?;
            upload.close(upload.file.abort(request.keep)).await?;
            drop(session.close(request.handle));
        }
        Request::Reopen(request) => {
            let reader = session.writer(request.handle)?.file.reopen(request.uncached).await?;
            return opened(session, Source::of_one(reader), None).await;
        }
        Request::WriteWhole(request) => {
            let options = commit_options(session, request.options)?;
            let (at, length) = (path(&request.path)?, request.data.len());
            storage.write_whole(&at, request.data, &options).await?;
            session.activity.set_file(&Arc::new(at));
            session.activity.received(length);
        }
        // A Hello on an open lane. A request of a later version has no body.
        _ => return Err(Error::new(ErrorKind::Unsupported, "execute the request")),
    }
    Ok(done())
}

/// Opens a part file. If a session without lanes has it open, that session ends: its client was killed, and the next
/// run of that client could not resume the file for a minute otherwise.
async fn create(
    session: &Session,
    path: &RelPath,
    options: &CreateOptions,
) -> Result<Arc<dyn WriteAt>> {
    let mut has_ended = false;
    for _ in 0..limits::RELEASES {
        match session.storage.create(path, options).await {
            Err(error) if error.kind() == ErrorKind::Busy => {
                has_ended |= session.end_others(path);
                if !has_ended {
                    return Err(error);
                }
                // Writes in progress still use it.
                sleep(limits::RELEASE).await;
            }
            created => return created,
        }
    }
    session.storage.create(path, options).await
}

/// Options of a commit, with the metadata that the client may set.
fn commit_options(
    session: &Session,
    options: Option<messages::CommitOptions>,
) -> Result<CommitOptions> {
    let options: CommitOptions = required(options, "options")?.try_into()?;
    Ok(CommitOptions { metadata: session.permitted(options.metadata), ..options })
}

async fn opened(session: &Session, source: Source, at: Option<RelPath>) -> Result<Response> {
    let identity = Some(source.file.identity().into());
    let ranged = source.file.is_ranged();
    // It is left out after an error: the client then sends a NextData.
    let first = source.file.next_data(0).await.ok();
    let first = first.map(|range| messages::FoundRange { range: range.map(Into::into) });
    let handle = session.add(Handle::Reader(source))?;
    if let Some(at) = at {
        session.name(handle, at);
    }
    Ok(Response::Opened(messages::Opened { handle, identity, ranged, entry: None, first }))
}

/// Describes paths in batches, so that not all entries are in memory.
async fn stat(reply: &Reply, request: &messages::Stat) -> Result<()> {
    let paths = paths(&request.paths)?;
    let mut left = paths.len();
    for some in paths.chunks(limits::ENTRIES) {
        left -= some.len();
        let outcomes = reply.session.storage.stat_many(some.to_vec()).await;
        let outcomes: Vec<_> = outcomes.iter().map(convert::entry_outcome).collect();
        for (outcomes, last) in in_messages(outcomes, left == 0) {
            reply.send_long(Response::Entries(messages::Entries { outcomes, last })).await;
        }
    }
    if paths.is_empty() {
        reply.send(Response::Entries(messages::Entries { outcomes: Vec::new(), last: true }));
    }
    Ok(())
}

async fn list(reply: &Reply, request: &messages::List) -> Result<()> {
    let permits = reply.session.begin_listing(reply.id, reply.lane);
    let _end = EndListing(reply);
    let mut entries = reply.session.storage.list(&path(&request.path)?).await?;
    while let Some(batch) = entries.next().await {
        let outcomes: Vec<_> = match batch {
            Ok(batch) => batch.into_iter().map(|one| convert::entry_outcome(&Ok(one))).collect(),
            Err(error) => vec![convert::entry_outcome(&Err(error))],
        };
        for (outcomes, last) in in_messages(outcomes, false) {
            // The semaphore is closed with the lane, since the rest cannot be sent on another one.
            match permits.acquire().await {
                Ok(permit) => permit.forget(),
                Err(_) => return Ok(()),
            }
            reply.send_long(Response::Entries(messages::Entries { outcomes, last })).await;
        }
    }
    reply
        .send_long(Response::Entries(messages::Entries { outcomes: Vec::new(), last: true }))
        .await;
    Ok(())
}

/// Forgets the permits of a listing when it is dropped.
struct EndListing<'a>(&'a Reply);

impl Drop for EndListing<'_> {
    fn drop(&mut self) {
        self.0.session.end_listing(self.0.id);
    }
}

/// Divides entries into messages of a bounded length, at least one. The last message has the flag `last`, the others
/// false.
fn in_messages(
    outcomes: Vec<messages::EntryOutcome>,
    last: bool,
) -> Vec<(Vec<messages::EntryOutcome>, bool)> {
    let mut parts = vec![Vec::new()];
    let mut bytes = 0;
    for outcome in outcomes {
        let length = prost::Message::encoded_len(&outcome);
        let is_full = parts.last().is_some_and(|part: &Vec<_>| part.len() >= limits::ENTRIES);
        if is_full || (bytes > 0 && bytes + length > limits::ENTRIES_BYTES) {
            parts.push(Vec::new());
            bytes = 0;
        }
        bytes += length;
        if let Some(part) = parts.last_mut() {
            part.push(outcome);
        }
    }
    let count = parts.len();
    parts.into_iter().enumerate().map(|(at, part)| (part, last && at + 1 == count)).collect()
}

async fn read_whole(reply: &Reply, request: &messages::ReadWhole) -> Result<()> {
    let paths = paths(&request.paths)?;
    let limit = request.limit.min(limits::WHOLE);
    let count = paths.len();
    let mut sent = 0;
    // A few at a time, so that not all of them are in memory.
    for some in paths.chunks(limits::WHOLES) {
        let wholes: Vec<Result<Whole>> = match some {
            [only] => vec![reply.session.storage.read_whole(only, limit).await],
            some => reply.session.storage.read_many(some.to_vec(), limit).await,
        };
        for (at, whole) in some.iter().zip(wholes) {
            if let Ok(whole) = &whole {
                reply.session.activity.set_file(&Arc::new(at.clone()));
                reply.session.activity.sent(whole.bytes.len());
            }
            // Each in a message of its own: two files of maximum length would exceed its limit.
            let outcomes = vec![convert::whole_outcome(&whole)];
            sent += 1;
            let last = sent == count;
            reply.send_long(Response::Wholes(messages::Wholes { outcomes, last })).await;
        }
    }
    if paths.is_empty() {
        reply.send(Response::Wholes(messages::Wholes { outcomes: Vec::new(), last: true }));
    }
    Ok(())
}

/// Sends a range in pieces that end at multiples of the current piece length. Pieces of 256 KiB that begin at a
/// multiple of it are subtrees of the file's BLAKE3 tree.
async fn read(reply: &Reply, request: &messages::Read) -> Result<()> {
    let handle = match request.opened_by {
        0 => request.handle,
        id => reply.session.opened_by(id).await?,
    };
    // The semaphore is never closed.
    let _reading = reply.session.budgets.reading.acquire().await;
    let Source { file, membership } = reply.session.source(handle)?;
    reply.session.transfers(handle);
    let to = (handle, request.priority);
    let end = request.offset.checked_add(request.length).ok_or(WireError::Invalid("length"))?;
    let range = Range::between(request.offset, end);
    let mut offset = request.offset;
    let mut last = end;
    if let Some(membership) = membership.filter(|membership| membership.shares(range)) {
        last = end.min(membership.size());
        offset = read_shared(reply, to, (&*file, &*membership), range).await?;
    }
    if offset < last {
        offset = read_alone(reply, to, &*file, Range::between(offset, end)).await?;
    }
    reply.send(Response::ReadEnd(messages::ReadEnd { offset }));
    Ok(())
}

/// Sends a range that is not shared with other sessions. Returns the offset behind what it has sent.
async fn read_alone(reply: &Reply, to: (u32, u32), file: &dyn ReadAt, range: Range) -> Result<u64> {
    let mut blocks = file.read_at(range);
    let mut rest = Block::new();
    let mut offset = range.start();
    let size = Some(file.identity().size).filter(|size| *size != UNKNOWN_SIZE);
    while let Some(block) = blocks.next().await {
        rest.append(block?);
        loop {
            let length = reply.session.piece(range.len());
            let until = usize::try_from(length - offset % length).unwrap_or(usize::MAX);
            if rest.len() < until {
                break;
            }
            let later = rest.split_off(until);
            let piece = std::mem::replace(&mut rest, later);
            offset = send_piece(reply, to, (offset, piece), size).await?;
        }
    }
    if !rest.is_empty() {
        offset = send_piece(reply, to, (offset, rest), size).await?;
    }
    Ok(offset)
}

/// Sends a range, up to the end of the file, in pieces that other sessions read, too. Returns the offset behind what it
/// has sent: less if the file has become shorter.
async fn read_shared(
    reply: &Reply,
    to: (u32, u32),
    (file, membership): (&dyn ReadAt, &Membership),
    range: Range,
) -> Result<u64> {
    let (mut offset, end) = (range.start(), range.end().min(membership.size()));
    while offset < end {
        let Some(filled) = membership.piece(file, offset, end).await? else { break };
        let until = end.min(filled.end());
        while offset < until {
            let length = reply.session.piece(range.len());
            let next = until.min(offset.saturating_add(length - offset % length));
            let part = Range::between(offset, next);
            let data = filled.part(part);
            let room = reply.session.outbox.room(data.len()).await?;
            let hashed = filled.hash(part, &data, membership.size());
            offset = push(reply, to, (offset, data), (hashed, room));
        }
    }
    Ok(offset)
}

/// Waits for room, and passes a piece of a file to the outbox. Returns the offset behind it.
async fn send_piece(
    reply: &Reply,
    to: (u32, u32),
    (offset, data): (u64, Block),
    file_size: Option<u64>,
) -> Result<u64> {
    let room = reply.session.outbox.room(data.len()).await?;
    let hashed = piece_hash(offset, &data, file_size);
    Ok(push(reply, to, (offset, data), (hashed, room)))
}

/// Passes a piece to the outbox, with its hash and the room for it. Returns the offset behind it.
fn push(
    reply: &Reply,
    (handle, priority): (u32, u32),
    (offset, data): (u64, Block),
    ((hash, is_subtree), room): ((Hash, bool), OwnedSemaphorePermit),
) -> u64 {
    let id = reply.id;
    let header = BulkHeader { id, handle, offset, is_last: false, is_subtree, hash };
    let head = Bytes::copy_from_slice(&bulk_head(&header, data.len()));
    let end = offset + data.len() as u64;
    reply.session.outbox.push(Outgoing { id, priority, head, data, room });
    end
}
