//! Reads and writes small files, each in one transfer.

use std::sync::Arc;

use bytes::Bytes;
use haul_storage::{Block, CommitOptions, Entry, Error, ErrorKind, RelPath, Result, Whole};

use crate::data::{end_upload, reason, receive, send};
use crate::inner::Inner;
use crate::lanes::Lane;
use crate::learnt::Lesson;
use crate::look;
use crate::read::NO_OPENING;
use crate::wire::Command;

/// Stats and reads a file, then stats it again to detect changes.
pub(crate) async fn read(inner: &Arc<Inner>, path: &RelPath, limit: u64) -> Result<Whole> {
    let mut tries = inner.host.tries();
    loop {
        match try_read(inner, path, limit).await {
            Err(error) if tries.again(&error).await => {}
            outcome => return outcome.map_err(|error| inner.at(error, path)),
        }
    }
}

async fn try_read(inner: &Inner, path: &RelPath, limit: u64) -> Result<Whole> {
    let on_server = inner.on_server(path);
    let mut lane = inner.host.lanes.reader(NO_OPENING, 0).await?;
    let before = entry(&mut lane, &on_server, path).await?;
    if before.size > limit {
        return Err(Error::new(ErrorKind::Changed, "read").because(format!(
            "it has {} bytes, more than the {limit} that were expected",
            before.size
        )));
    }
    let mut data = lane.retrieve(&on_server, NO_OPENING, 0).await?;
    let mut block = Block::new();
    // Reading one byte more than expected shows whether the file has grown.
    let most = before.size + 1;
    while (block.len() as u64) < most {
        match receive(&mut data, most - block.len() as u64).await {
            Ok(piece) if piece.is_empty() => break,
            Ok(piece) => block.push(piece),
            Err(error) => return Err(reason(&mut lane, data, error).await),
        }
    }
    if block.len() as u64 == most {
        drop(lane.stop(data).await);
        return Err(changed(format!("the server reported {} bytes and sent more", before.size)));
    }
    drop(data);
    lane.finish("read").await?;
    if (block.len() as u64) < before.size {
        let (sent, reported) = (block.len(), before.size);
        return Err(changed(format!("the server reported {reported} bytes and sent {sent}")));
    }
    let after = entry(&mut lane, &on_server, path).await?;
    if after.identity() != before.identity() {
        let (before, after) = (before.identity(), after.identity());
        return Err(changed(format!("it changed while being read: {before} became {after}")));
    }
    let (identity, metadata) = (before.identity(), before.metadata());
    Ok(Whole::new(block.into_bytes(), identity, metadata))
}

async fn entry(lane: &mut Lane, on_server: &[u8], path: &RelPath) -> Result<Entry> {
    let found = look::look(lane, on_server).await?;
    let found = found.ok_or_else(|| Error::new(ErrorKind::NotFound, "open"))?;
    found.entry(path.clone()).into_file()
}

fn changed(cause: String) -> Error {
    Error::new(ErrorKind::Changed, "read").because(cause)
}

/// Writes a part file, and renames it once the server has confirmed its size (if it supports `SIZE`).
pub(crate) async fn write(
    inner: &Arc<Inner>,
    path: &RelPath,
    bytes: Bytes,
    options: &CommitOptions,
) -> Result<()> {
    let (part, _claim) = inner.brief_part_of(path).await?;
    let part = inner.on_server(&part);
    Command::new("STOR", &part).map_err(|error| inner.at(error, path))?;
    let block = Block::from(bytes);
    let mut tries = inner.host.tries();
    let written = loop {
        match write_part(inner, &part, &block, options).await {
            Err(error) if tries.again(&error).await => {}
            outcome => break outcome,
        }
    };
    let outcome = match written {
        Ok(()) => inner.take_name(&part, path, options.replace).await,
        Err(error) => Err(inner.explain(error, path).await),
    };
    let Err(error) = outcome else { return Ok(()) };
    // If the old file is still aside, no file has this name: then the part file is retained.
    let only_copy = options.replace && error.kind() != ErrorKind::NotFound && {
        inner.find(path).await.is_ok_and(|found| found.is_none())
            && inner.host.look(&part).await.is_ok_and(|found| {
                found.is_some_and(|found| found.size == Some(block.len() as u64))
            })
    };
    if error.kind() != ErrorKind::Unreachable && !only_copy {
        // Only the first error is reported; the next run finds a file that is left.
        drop(inner.host.exchange(&[Command::new("DELE", &part)?]).await);
    }
    Err(error)
}

async fn write_part(
    inner: &Inner,
    part: &[u8],
    block: &Block,
    options: &CommitOptions,
) -> Result<()> {
    let time = inner.set_time(part, options.metadata.modified)?;
    let mut lane = inner.host.lanes.writer().await?;
    let mut data = lane.store(part, 0).await?;
    if let Err(error) = send(&mut data, block).await {
        return Err(reason(&mut lane, data, error).await);
    }
    end_upload(&mut lane, data).await?;
    let mut commands = Vec::new();
    let sized = inner.server.size();
    if sized {
        commands.push(Command::new("SIZE", part)?);
    }
    commands.extend(time);
    let mut replies = lane.exchange(&commands).await?.into_iter();
    let size = replies.by_ref().take(usize::from(sized)).next();
    if let Some(size) = size.as_ref().and_then(look::size) {
        inner.server.learnt.learn(Lesson::SizeWorks);
        check_size(size, block)?;
    }
    replies.try_for_each(|reply| inner.time_was_set(&reply))
}

fn check_size(size: u64, block: &Block) -> Result<()> {
    if size != block.len() as u64 {
        let cause = format!("the server stored {size} bytes instead of {}", block.len());
        return Err(Error::new(ErrorKind::Changed, "write").because(cause));
    }
    Ok(())
}
