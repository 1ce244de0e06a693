//! Reads files to compute their digests.

use futures_util::StreamExt;
use futures_util::future::join;
use haul_storage::{
    DigestKind, Error, ErrorKind, Identity, Medium, Range, ReadAt, RelPath, Result, Storage,
    UNKNOWN_SIZE,
};

use crate::context::Context;
use crate::digest::{Digest, FileHasher, REPORTED, reported};
use crate::plan::Item;

/// The digest of an unchanged file. Reads the destination if that is a disk, otherwise the source, which is
/// equal and usually nearer.
pub async fn digest_existing(context: &Context, item: &Item, kind: DigestKind) -> Result<Digest> {
    let job = &item.job.job;
    if job.destination.capabilities().medium == Medium::Disk {
        digest_destination(context, item, kind).await
    } else {
        digest_file(context, &*job.source, &item.source.path, kind).await
    }
}

/// The digest of the file at an item's destination.
pub async fn digest_destination(
    context: &Context,
    item: &Item,
    kind: DigestKind,
) -> Result<Digest> {
    digest_file(context, &*item.job.job.destination, &item.destination, kind)
        .await
        .map_err(|error| error.at(item.job.destination_name(&item.destination)))
}

/// Whether the file at an item's destination has the content of its source, and the version of the source
/// that was compared. If a server reports a digest, only the other side is read; but not if the source is
/// removed afterwards, because the last copy of a file must not depend on what a server claims.
pub async fn same_content(context: &Context, item: &Item) -> Result<(bool, Identity)> {
    if !context.settings.remove_source
        && let Some(found) = same_reported(context, item).await?
    {
        return Ok(found);
    }
    let kind = context.settings.digest.unwrap_or(DigestKind::Blake3);
    let source = async {
        digest_version(context, &*item.job.job.source, &item.source.path, kind)
            .await
            .map_err(|error| error.at(item.job.source_name(&item.source.path)))
    };
    let destination = digest_destination(context, item, kind);
    let ((source, identity), destination) = tokio::try_join!(source, destination)?;
    Ok((source == destination, identity))
}

/// Like [`same_content`], by digests that servers report; `None` if they report none.
async fn same_reported(context: &Context, item: &Item) -> Result<Option<(bool, Identity)>> {
    let job = &item.job.job;
    let listed = item.source.digest.filter(|digest| digest.kind == REPORTED);
    let source = async {
        match listed {
            Some(listed) => Some(listed),
            None => reported(&*job.source, &item.source.path, REPORTED).await,
        }
    };
    let requests = join(source, reported(&*job.destination, &item.destination, REPORTED));
    let responses = tokio::select! {
        biased;
        () = context.cancel.cancelled() => return Err(Error::new(ErrorKind::Interrupted, "read")),
        responses = requests => responses,
    };
    Ok(match responses {
        (None, None) => None,
        (Some(source), Some(destination)) => Some((source == destination, item.source.identity())),
        (Some(source), None) => {
            let found = digest_destination(context, item, source.kind).await?;
            Some((source == found, item.source.identity()))
        }
        (None, Some(destination)) => {
            let read = digest_version(context, &*job.source, &item.source.path, destination.kind);
            let read =
                read.await.map_err(|error| error.at(item.job.source_name(&item.source.path)));
            let (found, identity) = read?;
            Some((found == destination, identity))
        }
    })
}

async fn digest_file(
    context: &Context,
    storage: &dyn Storage,
    path: &RelPath,
    kind: DigestKind,
) -> Result<Digest> {
    digest_version(context, storage, path, kind).await.map(|(digest, _)| digest)
}

async fn digest_version(
    context: &Context,
    storage: &dyn Storage,
    path: &RelPath,
    kind: DigestKind,
) -> Result<(Digest, Identity)> {
    let small = storage.capabilities().whole_limit;
    let reader = storage.open(path).await?;
    let size = reader.identity().size;
    if size <= small {
        let permit = context.flow.acquire(size.max(1)).await;
        let whole = storage.read_whole(path, small).await?;
        drop(permit);
        return Ok((Digest::of(kind, &whole.bytes), whole.identity));
    }
    let hasher = FileHasher::new(kind, context.pool.clone());
    let end = digest_range(context, &*reader, &hasher, Range::new(0, size)).await?;
    let digest = hasher.finish(end).await?;
    let (before, now) = (reader.identity(), reader.recheck().await?);
    if now != *before {
        return Err(Error::new(ErrorKind::Changed, "read")
            .because(format!("it changed while being read: {before} became {now}")));
    }
    Ok((digest, now))
}

/// Feeds a range of a file to a hasher, reading ahead by one block. Takes no permits: it holds at most two
/// blocks, and holders of permits may be waiting for it (deadlock otherwise). Returns the offset of the end: that of
/// the range, or that of the file if the range ends at [`UNKNOWN_SIZE`].
pub async fn digest_range(
    context: &Context,
    reader: &dyn ReadAt,
    hasher: &FileHasher,
    range: Range,
) -> Result<u64> {
    let mut blocks = reader.read_at(range);
    let mut at = range.start();
    let mut next = blocks.next().await;
    while let Some(block) = next {
        let block = block?;
        if context.cancel.is_cancelled() {
            return Err(Error::new(ErrorKind::Interrupted, "read"));
        }
        let offset = at;
        at += block.len() as u64;
        let (hashed, following) = tokio::join!(hasher.update(offset, block), blocks.next());
        hashed?;
        next = following;
    }
    if at < range.end() && range.end() != UNKNOWN_SIZE {
        return Err(Error::new(ErrorKind::Changed, "read")
            .because(format!("it ends at {at}, not at {}", range.end())));
    }
    Ok(at)
}
