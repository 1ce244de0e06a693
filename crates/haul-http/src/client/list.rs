//! What is in a directory.

use std::sync::Arc;

use haul_storage::{EntryStream, RelPath, Result};

use super::storage::Inner;

impl Inner {
    pub(super) async fn list(self: Arc<Self>, path: &RelPath) -> Result<EntryStream> {
        Err(self.unsupported("list", path))
    }
}
