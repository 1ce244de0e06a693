//! How much room there is on a server: `statvfs@openssh.com`.

use haul_storage::{RelPath, Result, Space, Volume};

use super::error;
use super::inner::Inner;
use crate::codec::{Extended, Request, Response, StatVfs, Status, name};

/// The space where `path` is or would be; `None` if the server does not tell it.
pub(super) async fn at(inner: &Inner, path: &RelPath) -> Result<Option<Space>> {
    if !inner.has(name::STATVFS) {
        return Ok(None);
    }
    let mut directory = path.clone();
    loop {
        let request = Request::Extended(Extended::Statvfs(inner.on_server(&directory)));
        match inner.host.ask(&request).await? {
            Response::Extended(reply) => {
                return Ok(StatVfs::decode(reply).ok().and_then(|found| space(inner, &found)));
            }
            Response::Status { status: Status::NoSuchFile, .. } if !directory.is_root() => {
                directory = directory.parent().unwrap_or_default();
            }
            // Announced and not done, or not for this path.
            Response::Status { .. } => return Ok(None),
            other => return Err(error::unexpected("read the free space", other)),
        }
    }
}

fn space(inner: &Inner, found: &StatVfs) -> Option<Space> {
    // Some servers fill in zeros for what they do not know.
    if found.blocks == 0 || found.frsize == 0 {
        return None;
    }
    let bytes = |blocks: u64| blocks.saturating_mul(found.frsize);
    Some(Space {
        free: bytes(found.bavail),
        // Which user the server writes as is not known.
        most: bytes(found.bfree.max(found.bavail)),
        block: found.frsize.max(found.bsize),
        volume: (found.fsid != 0)
            .then(|| Volume { host: inner.host.lanes.host(), number: found.fsid }),
        compact: false,
        shares: false,
    })
}
