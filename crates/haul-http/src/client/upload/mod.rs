//! Uploads.
//!
//! ```text
//! create ─┬ ranges: PUT or PATCH of parts, in any order, over any lane → part file ┐
//!         ├ chunks: pieces that the server assembles                               ├→ MOVE → name
//!         └ stream: one PUT that is fed in order                       → part file ┘
//! write_whole: one PUT, to the name if a PUT is atomic on this server, otherwise to a part file
//! ```
//!
//! The server's features decide, see [`super::quirks`]. Without MOVE a file is written under its final
//! name, and may stay incomplete if its upload fails. What it may replace is checked before ([`direct`]).
//!
//! Credentials are known before a body is sent, because an earlier request to the server found them. The
//! server can refuse a large upload before its body is sent (see [`super::continues`]); a response that
//! arrives while the body is still being sent (413, 507) ends it at once.

mod chunks;
mod direct;
mod place;
mod ranges;
mod stream;
mod whole;

use std::sync::Arc;

use haul_storage::{CreateOptions, RelPath, Result, Retry, WriteAt};

use super::inner::Inner;
pub use whole::write_whole;

/// Starts an upload, or resumes its part file.
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
    if let Some(directory) = &inner.quirks.chunks
        && chunks::is_worth_it(options.size)
    {
        match chunks::ChunkUpload::create(inner, path, directory, options).await {
            Ok(upload) => return Ok(Arc::new(upload)),
            // No directory for pieces can be created, at least not for this user or file: use one PUT.
            Err(error) if error.retry() == Retry::Never => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Arc::new(stream::StreamUpload::create(inner, path, options).await?))
}
