//! Uploads small files.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join;
use haul_storage::{CommitOptions, ErrorKind, RelPath, Result, Timestamp};
use http::{HeaderName, HeaderValue, Method};

use super::super::inner::Inner;
use super::super::quirks::STORED_TIMES;
use super::super::request::Request;

/// The longest body of a response, in bytes. It has no effect: that of a response to PUT is not read.
const BODY_MOST: u64 = 64 << 10;

/// The modification time of an upload, in seconds since 1970 (ownCloud, Nextcloud, haul).
pub(super) const OC_MTIME: HeaderName = HeaderName::from_static("x-oc-mtime");

/// Writes a file with one PUT if the server has no MOVE, or if a PUT is atomic on it and either may replace a file or
/// can be restricted to new ones; otherwise by a part file.
pub async fn write_whole(
    inner: &Arc<Inner>,
    path: &RelPath,
    bytes: Bytes,
    options: &CommitOptions,
) -> Result<()> {
    inner.writable("write", path)?;
    inner.check_parent(path, "write").await?;
    let quirks = &inner.quirks;
    let directly = quirks.puts_whole && (options.replace || quirks.conditional);
    if directly || !inner.moves(path) {
        return put_directly(inner, path, bytes, options).await;
    }
    let (part, _claim) = inner.brief_part_of(path).await?;
    let size = bytes.len() as u64;
    let put = put(inner, &part, bytes.clone(), options.metadata.modified);
    let look = inner.look_by_properties(path, "write");
    let outcome = match join(put, look).await {
        (Ok(()), Ok(existing)) => inner.rename_part(&part, path, size, existing, options).await,
        (Err(error), _) => Err(inner.why_refused(error, path).await),
        (_, Err(error)) => Err(error),
    };
    if outcome.as_ref().is_err_and(|error| error.kind() != ErrorKind::Unreachable) {
        // Only the first error is reported. The next upload of this file replaces a part file that is left.
        drop(inner.remove_part(&part).await);
    }
    match outcome {
        // The attempt has shown that the server refuses MOVE.
        Err(_) if inner.learnt.moving.is_refused(path) => {
            put_directly(inner, path, bytes, options).await
        }
        outcome => outcome,
    }
}

async fn put_directly(
    inner: &Inner,
    path: &RelPath,
    bytes: Bytes,
    options: &CommitOptions,
) -> Result<()> {
    let request = of_put(inner, path, bytes, options.metadata.modified);
    inner.put_directly(path, &request, &options.replaces()).await?;
    inner.stored_directly(path);
    Ok(())
}

async fn put(
    inner: &Inner,
    path: &RelPath,
    bytes: Bytes,
    modified: Option<Timestamp>,
) -> Result<()> {
    send(inner, &of_put(inner, path, bytes, modified)).await
}

/// Sends a file pipelined, and alone if that fails, to learn the reason. A request that must not be repeated
/// if its outcome is unknown is sent alone at once.
pub(super) async fn send(inner: &Inner, request: &Request) -> Result<()> {
    if request.is_repeatable() && inner.exchange().pipelined(request, BODY_MOST).await.is_some() {
        return Ok(());
    }
    inner.send_change(request).await
}

fn of_put(inner: &Inner, path: &RelPath, bytes: Bytes, modified: Option<Timestamp>) -> Request {
    let mut request = Request::new(Method::PUT, inner.url(path), "write");
    request.body.push(bytes);
    if let (Some(time), Some(_)) = (modified, inner.quirks.times) {
        request = request.with(OC_MTIME, HeaderValue::from(STORED_TIMES.stored(time).seconds));
    }
    request
}
