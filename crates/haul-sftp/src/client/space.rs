//! Queries the free space of a server (`statvfs@openssh.com`).

use haul_storage::{RelPath, Result, Space, Volume};

use super::error;
use super::inner::Inner;
use crate::codec::{Extended, Request, Response, StatVfs, Status, name};

/// The space of the file system where `path` is or would be; `None` if the server does not report it.
pub(super) async fn at(inner: &Inner, path: &RelPath) -> Result<Option<Space>> {
    if !inner.has(name::STATVFS) {
        return Ok(None);
    }
    let mut directory = path.clone();
    loop {
        let request = Request::Extended(Extended::Statvfs(inner.on_server(&directory)));
        match inner.host.request_with_retries(&request).await? {
            Response::Extended(reply) => {
                return Ok(StatVfs::decode(reply).ok().and_then(|found| space(inner, &found)));
            }
            Response::Status { status: Status::NoSuchFile, .. } if !directory.is_root() => {
                directory = directory.parent().unwrap_or_default();
            }
            // The server announces the extension but does not implement it, or not for this path.
            Response::Status { .. } => return Ok(None),
            other => {
                return Err(inner.at(error::unexpected("read the free space", other), &directory));
            }
        }
    }
}

fn space(inner: &Inner, found: &StatVfs) -> Option<Space> {
    // Some servers send zeros for unknown values.
    if found.blocks == 0 || found.frsize == 0 {
        return None;
    }
    let bytes = |blocks: u64| blocks.saturating_mul(found.frsize);
    Some(Space {
        free: bytes(found.bavail),
        // The server may write as root, who can also use the reserved blocks.
        most: bytes(found.bfree.max(found.bavail)),
        block: found.frsize.max(found.bsize),
        volume: (found.fsid != 0)
            .then(|| Volume { host: inner.host.lanes.host(), number: found.fsid }),
        compact: false,
        shares: false,
    })
}
