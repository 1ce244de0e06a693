//! Copies a file within a server (`copy-data`). The copy is made in a part file, so that an incomplete one never has
//! the final name, even if the lane is lost meanwhile. A part file that is left is replaced by the next one of that
//! name.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join;
use haul_storage::{Error, ErrorKind, ReadAt, RelPath, Result};

use super::error;
use super::inner::Inner;
use super::read::SftpFile;
use super::write::create_part;
use crate::codec::{Extended, Request};

/// Copies `source` to `to`, which must not exist.
pub(super) async fn copy(inner: &Arc<Inner>, source: &SftpFile, to: &RelPath) -> Result<()> {
    let (part, _claim) = inner.brief_part_of(to).await?;
    let part = inner.on_server(&part);
    let outcome = match copy_data(inner, source, &part).await {
        // Again, after a copy that may have taken long: on some servers RENAME replaces.
        Ok(()) => match refuse_existing(inner, to).await {
            Ok(()) => inner.take_name(&part, to, false).await,
            refused => refused,
        },
        Err(error) => Err(inner.explain_full(error, to).await),
    };
    if outcome.is_err() {
        // The first error is the one to report. If the lane was lost, this goes over another one.
        drop(inner.host.request_with_retries(&Request::Remove(part)).await);
    }
    outcome
}

/// Checks that nothing exists at a path, as far as LSTAT succeeds.
///
/// # Errors
/// `AlreadyExists` if something does.
pub(super) async fn refuse_existing(inner: &Inner, path: &RelPath) -> Result<()> {
    if inner.host_lstat(path).await.is_err() {
        return Ok(());
    }
    let error = Error::new(ErrorKind::AlreadyExists, "copy");
    Err(inner.at(error.because("the name already exists"), path))
}

async fn copy_data(inner: &Inner, source: &SftpFile, part: &Bytes) -> Result<()> {
    let session = inner.host.session().await?;
    let from = source.handles().on(&session).await?;
    let mode = source.metadata().await?.mode.unwrap_or(inner.default_mode);
    let (to, _) = create_part(&session, part, mode).await?;
    let request = Request::Extended(Extended::CopyData {
        from,
        from_offset: 0,
        length: 0,
        to: to.clone(),
        to_offset: 0,
    });
    let copied = session.request_copy(&request, source.identity().size);
    let closed = session.request(&Request::Close(to));
    let (copied, closed) = join(copied.response(), closed.response()).await;
    error::done("copy", copied?).and(error::done("copy", closed?))
}
