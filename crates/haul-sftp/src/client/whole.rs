//! Small files: chains of a few requests, hundreds of chains in flight at once.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use haul_storage::{
    Block, CommitOptions, Entry, Error, ErrorKind, Range, ReadAt, RelPath, Result, Whole,
};

use super::attributes;
use super::entry;
use super::error;
use super::inner::Inner;
use super::read::SftpFile;
use super::session::Session;
use super::write::{open_part, sync};
use crate::codec::{Attrs, Handle, OpenFlags, Request, Response, Status, name};

/// Stats and opens the file, then reads, stats again, and closes it: two RTTs.
pub(super) async fn read(inner: &Arc<Inner>, path: &RelPath, limit: u64) -> Result<Whole> {
    inner.check_parent(path).await?;
    match read_at_once(inner, path, limit).await {
        Ok(Some(whole)) => Ok(whole),
        // It does not fit into one response, or the server sent only a part.
        Ok(None) => read_in_parts(inner, path, limit).await,
        Err(error) => Err(inner.at(error, path)),
    }
}

async fn read_at_once(inner: &Arc<Inner>, path: &RelPath, limit: u64) -> Result<Option<Whole>> {
    let on_server = inner.on_server(path);
    let mut opening = inner.host.opening(true);
    let (session, before, handle) = loop {
        let lane = opening.lane().await?;
        let look = lane.request(&Request::Lstat(on_server.clone()));
        let (flags, attrs) = (OpenFlags::READ, Attrs::default());
        let open = lane.request(&Request::Open { path: on_server.clone(), flags, attrs });
        let before = file_entry(path, look.response().await?);
        // A handle that is not used is closed before the lane is released.
        match (before, error::handle("open", open.response().await?)) {
            (Ok(before), Ok(handle)) => break (lane, before, handle),
            (Ok(_), Err(error)) => opening.refused(&lane, error)?,
            (Err(error), opened) => {
                if let Ok(handle) = opened {
                    lane.post(&Request::Close(handle));
                }
                return Err(error);
            }
        }
    };
    opening.opened();
    let most = session.server().await?.read;
    let length = u32::try_from(before.size).unwrap_or(u32::MAX);
    let fits = before.size <= limit && length < most;
    let requested = fits.then(|| {
        // Requesting one byte more than the size reveals whether the file has grown.
        let read = Request::Read { handle: handle.clone(), offset: 0, length: length + 1 };
        (session.request(&read), session.request(&Request::Fstat(handle.clone())))
    });
    session.post(&Request::Close(handle));
    if before.size > limit {
        return Err(longer(before.size, limit));
    }
    let Some((read, look)) = requested else { return Ok(None) };
    let bytes = match read.response().await? {
        Response::Data(block) => block.into_bytes(),
        Response::Status { status: Status::Eof, .. } => Bytes::new(),
        other => return Err(error::unexpected("read", other)),
    };
    let after = entry::entry(path.clone(), &error::attrs("access", look.response().await?)?);
    if after.identity() != before.identity() {
        return Err(changed(&before, &after));
    }
    if bytes.len() as u64 > before.size {
        let cause = format!("the server reported {} bytes and sent more", before.size);
        return Err(Error::new(ErrorKind::Changed, "read").because(cause));
    }
    if (bytes.len() as u64) < before.size {
        return Ok(None);
    }
    Ok(Some(whole(bytes, &before)))
}

async fn read_in_parts(inner: &Arc<Inner>, path: &RelPath, limit: u64) -> Result<Whole> {
    let file = SftpFile::open(inner, path).await?;
    let size = file.identity().size;
    if size > limit {
        return Err(inner.at(longer(size, limit), path));
    }
    let mut block = Block::new();
    let mut blocks = file.read_at(Range::new(0, size));
    while let Some(next) = blocks.next().await {
        block.append(next?);
    }
    let now = file.recheck().await?;
    if now != *file.identity() || block.len() as u64 != size {
        let error = Error::new(ErrorKind::Changed, "read")
            .because(format!("it changed while being read: {} became {now}", file.identity()));
        return Err(inner.at(error, path));
    }
    let identity = file.identity().clone();
    Ok(Whole::new(block.into_bytes(), identity, file.metadata().await?))
}

/// Creates, writes, sets attributes, closes, and renames: three RTTs, since the rename must wait
/// until everything else is confirmed.
pub(super) async fn write(
    inner: &Arc<Inner>,
    path: &RelPath,
    bytes: Bytes,
    options: &CommitOptions,
) -> Result<()> {
    inner.check_parent(path).await?;
    let options = &*inner.with_old_mode(path, options).await;
    let (part, _claim) = inner.brief_part_of(path).await?;
    let part = inner.on_server(&part);
    // Without set-ID bits until the file is complete and has its owner.
    let mode = options.metadata.mode.unwrap_or(inner.default_mode) & 0o777;
    let (session, handle, _) = match open_part(inner, &part, mode, true).await {
        Ok(opened) => opened,
        Err(error) => return Err(inner.explain_full(error, path).await),
    };
    let outcome = match write_part(inner, &session, handle, &part, bytes, options).await {
        Ok(()) => {
            let named = inner.put_in_place(&part, path, options).await;
            if named.is_err() && inner.is_only_copy(path, options.replace).await {
                // The part file remains.
                return named;
            }
            named
        }
        // Before the part file is removed, which would free space.
        Err(error) => Err(inner.explain_full(error, path).await),
    };
    drop(session);
    if outcome.as_ref().is_err_and(|error| error.kind() != ErrorKind::Unreachable) {
        // The first error is the one to report; the next run finds the part file.
        drop(inner.host.request_once(&Request::Remove(part)).await);
    }
    outcome
}

async fn write_part(
    inner: &Arc<Inner>,
    session: &Session,
    handle: Handle,
    part: &Bytes,
    bytes: Bytes,
    options: &CommitOptions,
) -> Result<()> {
    // Includes the mode, since the server's umask may have removed bits.
    let mut attrs = attributes::of_new_file(inner, &options.metadata);
    let most = session.server().await?.write as usize;
    let mut responses = Vec::new();
    let (mut offset, mut rest) = (0, Block::from(bytes));
    while !rest.is_empty() {
        let after = rest.split_off(most);
        let length = rest.len() as u64;
        let request = Request::Write { handle: handle.clone(), offset, data: rest };
        responses.push(session.request(&request));
        offset += length;
        rest = after;
    }
    if let Err(error) = attributes::set_owner_first(inner, session, &handle, &mut attrs).await {
        session.post(&Request::Close(handle));
        return Err(error);
    }
    let set = attributes::request_set(inner, session, &handle, &attrs);
    let seen = attributes::times_request(inner, &handle, &attrs).map(|look| session.request(&look));
    let synced = match options.sync && inner.has(name::FSYNC) {
        true => sync(session, &handle).await,
        false => Ok(()),
    };
    responses.push(session.request(&Request::Close(handle)));
    let set = attributes::set_outcome(set, &attrs).await;
    let seen = match seen {
        Some(seen) => Some(seen.response().await),
        None => None,
    };
    let mut outcome = synced;
    for pending in responses {
        let written = pending.response().await.and_then(|response| error::done("write", response));
        outcome = outcome.and(written);
    }
    outcome?;
    if set.is_ok()
        && let Some(seen) = seen
    {
        attributes::check_times(inner, seen, part, &attrs).await;
    }
    attributes::settle(inner, set, part, &attrs).await
}

fn file_entry(path: &RelPath, response: Response) -> Result<Entry> {
    entry::entry(path.clone(), &error::attrs("open", response)?).into_file()
}

fn whole(bytes: Bytes, entry: &Entry) -> Whole {
    Whole::new(bytes, entry.identity(), entry.metadata())
}

fn longer(size: u64, limit: u64) -> Error {
    Error::new(ErrorKind::Changed, "read")
        .because(format!("it has {size} bytes, more than the {limit} that were expected"))
}

fn changed(before: &Entry, after: &Entry) -> Error {
    Error::new(ErrorKind::Changed, "read").because(format!(
        "it changed while being read: {} became {}",
        before.identity(),
        after.identity()
    ))
}
