//! Digests that the far side reports, so that a file need not be read.

use haul_storage::{DigestKind, Medium, RelPath, Storage};

use super::Digest;

/// The kind that servers report, requested where any kind will do.
pub const REPORTED: DigestKind = DigestKind::Sha256;

/// The digest of a file as a server reports it; `None` if it must be read. Errors are ignored: reading reports them.
pub async fn reported(storage: &dyn Storage, path: &RelPath, kind: DigestKind) -> Option<Digest> {
    if storage.capabilities().medium == Medium::Disk {
        return None;
    }
    let digest = storage.digest(path, kind).await.ok()??;
    (digest.kind == kind).then_some(digest)
}
