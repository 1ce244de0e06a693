//! Small files: read whole, hashed where they are, written whole.

use haul_storage::{Result, Storage};

use super::file::{Moved, commit_options};
use crate::context::Context;
use crate::digest::Digest;
use crate::plan::Item;

/// Moves a file that fits into one block.
pub async fn move_small(context: &Context, item: &Item) -> Result<Moved> {
    let job = &item.job.job;
    let limit = job.source.capabilities().whole_limit;
    let permit = context.flow.acquire(item.source.size.max(1)).await;
    let issued = context.flow.now();
    let whole = job.source.read_whole(&item.source.path, limit).await?;
    let mut metadata = whole.metadata;
    if context.settings.preserve.xattrs {
        metadata.xattrs = job.source.metadata(&item.source.path).await?.xattrs;
    }
    let digest = context.settings.digest.map(|kind| Digest::of(kind, &whole.bytes));
    let bytes = whole.bytes.len() as u64;
    let options = commit_options(context, item, metadata);
    let destination: &dyn Storage = &*job.destination;
    destination
        .write_whole(&item.destination, whole.bytes, &options)
        .await
        .map_err(|error| error.at(item.job.destination_name(&item.destination)))?;
    context.flow.completed(issued, None, bytes);
    drop(permit);
    context.tally.moved(bytes);
    Ok(Moved { bytes, digest, resumed_bytes: 0, counted_bytes: bytes })
}
