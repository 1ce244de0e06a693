//! Requests the digest of a file from the server (`check-file-name`).

use haul_storage::{Digest, DigestKind, Error, ErrorKind, RelPath, Result};

use super::error;
use super::inner::Inner;
use crate::codec::{Extended, FileHash, FileKind, Request, Response, Status};

/// The digest of a file that the server computes; `None` if it computes none of this kind or refuses, or `path` is not
/// a file.
pub(super) async fn of(inner: &Inner, path: &RelPath, kind: DigestKind) -> Result<Option<Digest>> {
    if !inner.capabilities().digests.contains(&kind) {
        return Ok(None);
    }
    inner.check_parent(path).await?;
    let attrs = inner.host_lstat(path).await.map_err(|error| inner.at(error, path))?;
    // The server would follow a link.
    if attrs.kind() != Some(FileKind::File) {
        return Ok(None);
    }
    // ProFTPD refuses empty files.
    if attrs.size == Some(0) {
        return Ok(Some(Digest::of(kind, b"")));
    }
    let request = Request::Extended(Extended::CheckFileName {
        path: inner.on_server(path),
        algorithms: FileHash::SHA256.into(),
        offset: 0,
        length: 0,
        block: 0,
    });
    let size = attrs.size.unwrap_or(0);
    let mut tries = inner.host.tries();
    let response = loop {
        let session = inner.host.session().await?;
        match session.request_copy(&request, size).response().await {
            Err(error) if tries.again(&error).await => {}
            outcome => break outcome?,
        }
    };
    match response {
        Response::Extended(reply) => {
            let hash = FileHash::decode(reply).ok();
            Ok(hash.and_then(|hash| hash.sha256()).map(|bytes| Digest { kind, bytes }))
        }
        Response::Status { status: Status::NoSuchFile, .. } => {
            Err(inner.at(Error::new(ErrorKind::NotFound, "read the digest"), path))
        }
        // The extension or the hash function is unknown, or the server may not read the file.
        Response::Status { .. } => Ok(None),
        other => Err(inner.at(error::unexpected("read the digest", other), path)),
    }
}
