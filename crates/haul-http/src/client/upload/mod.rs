//! Uploads.
//!
//! ```text
//! create ─┬ ranges: PUT or PATCH of parts, in any order, over any lane   ┐
//!         ├ chunks: pieces that the server puts together                 ├→ part file → MOVE → name
//!         └ stream: one PUT that is fed in order                         ┘
//! write_whole: one PUT, to the name where that is whole or nothing, else to the part file
//! ```
//!
//! The server's features decide, see [`super::quirks`]. Without MOVE a file is written under its final
//! name, and is incomplete there when its upload breaks.
//!
//! Credentials are known before a body is sent, because an earlier request to the server found them. A
//! large upload first asks whether it would be refused (see [`super::continues`]); a response that
//! arrives while the body is still being sent (413, 507) ends it at once.

mod chunks;
mod place;
mod ranges;
mod stream;
mod whole;

use std::sync::Arc;

use haul_storage::{CreateOptions, RelPath, Result, Retry, WriteAt};

use super::inner::Inner;
pub use whole::write_whole;

/// Starts or resumes a part file.
pub async fn create(
    inner: &Arc<Inner>,
    path: &RelPath,
    options: &CreateOptions,
) -> Result<Arc<dyn WriteAt>> {
    inner.writable("create", path)?;
    inner.check_parent(path, "create").await?;
    if inner.capabilities.resume {
        return Ok(Arc::new(ranges::RangeUpload::create(inner, path, options).await?));
    }
    if let Some(place) = &inner.quirks.chunks
        && chunks::is_worth_it(options.size)
    {
        match chunks::ChunkUpload::create(inner, path, place, options).await {
            Ok(upload) => return Ok(Arc::new(upload)),
            // No directory for pieces can be created, at least not for this user or file: use one PUT.
            Err(error) if error.retry() == Retry::Never => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Arc::new(stream::StreamUpload::create(inner, path, options)?))
}
