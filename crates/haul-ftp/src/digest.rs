//! Requests the digest of a file from the server: by `HASH` (draft-bryan-ftp-hash), or by `XSHA256`, which is
//! older and not standardised.

use haul_storage::{Digest, DigestKind, Error, ErrorKind, RelPath, Result};

use crate::inner::Inner;
use crate::learnt::Lesson;
use crate::wire::{Command, HashCommand};

/// The digest of a file as the server reports it; `None` if it reports none of this kind.
pub(crate) async fn of(inner: &Inner, path: &RelPath, kind: DigestKind) -> Result<Option<Digest>> {
    let Some(how) = inner.server.hash().filter(|_| kind == DigestKind::Sha256) else {
        return Ok(None);
    };
    let on_server = inner.on_server(path);
    // XSHA256 takes what follows a space for the bounds of a range.
    if how == HashCommand::Xsha256 && on_server.contains(&b' ') {
        return Ok(None);
    }
    let command = Command::new(how.verb(), &on_server).map_err(|error| inner.at(error, path))?;
    let reply = inner.host.hash(how, command).await.map_err(|error| inner.at(error, path))?;
    if let Some(digest) = how.digest(&reply) {
        return Ok(Some(digest));
    }
    if reply.is_unknown_command() {
        inner.server.learnt.learn(Lesson::NoHash);
    }
    // The same code is sent for a directory, an unreadable file and a missing one.
    match inner.find(path).await? {
        None => Err(inner.at(Error::new(ErrorKind::NotFound, "read the digest"), path)),
        // ProFTPD refuses empty files.
        Some(found) if found.is_file() && found.size == Some(0) => Ok(Some(Digest::of(kind, b""))),
        Some(_) => Ok(None),
    }
}
