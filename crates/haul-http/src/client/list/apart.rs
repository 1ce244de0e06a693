//! Runs work of a listing in a task of its own, so that it completes even while the caller does not poll the listing.

use haul_storage::{Error, ErrorKind, Result};

/// Most requests at once for the lengths of files.
pub(super) const MAX_LENGTH_REQUESTS: usize = 32;

/// Runs `work` as a task. A caller that lists many directories at once stops polling one while there is no room for its
/// entries. Without a task, a lane granted to that listing would be idle until then.
pub(super) async fn apart<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    tokio::spawn(work)
        .await
        .unwrap_or_else(|failed| Err(Error::new(ErrorKind::Other, "list").with_source(failed)))
}
