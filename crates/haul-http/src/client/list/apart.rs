//! Work for a listing that is done whether somebody takes its entries or not.

use haul_storage::{Error, ErrorKind, Result};

/// Files whose length has to be asked for, at once.
pub(super) const ASKED: usize = 32;

/// Does something as a task of its own. Who lists many directories at once does not go on with one
/// while there is no room for its entries: a lane that it is given then would be nobody's.
pub(super) async fn apart<T: Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    tokio::spawn(work)
        .await
        .unwrap_or_else(|failed| Err(Error::new(ErrorKind::Other, "list").with_source(failed)))
}
