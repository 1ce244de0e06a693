//! Free space on a WebDAV server: `quota-available-bytes` (RFC 4331).

use haul_storage::{RelPath, Result, Space};

use super::dav;
use super::inner::{Inner, ServerKind};

/// The space where `path` is or would be; `None` if the server does not report it. Each directory may
/// have a quota of its own, so it is unknown which paths share this space (`volume`).
pub(super) async fn at(inner: &Inner, path: &RelPath) -> Result<Option<Space>> {
    if inner.server_kind == ServerKind::Web {
        return Ok(None);
    }
    let mut directory = path.clone();
    loop {
        let seen = dav::quota(inner.exchange(), inner.directory_url(&directory)).await?;
        match seen.filter(|seen| seen.resource.collection) {
            Some(seen) => {
                return Ok(seen.resource.quota_available.map(|free| Space {
                    free,
                    most: free,
                    block: 0,
                    volume: None,
                    compact: false,
                    shares: false,
                }));
            }
            // It does not exist, or is a file.
            None => match directory.parent() {
                Some(parent) => directory = parent,
                None => return Ok(None),
            },
        }
    }
}
