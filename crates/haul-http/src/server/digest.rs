//! SHA-256 digests of files, requested with a HEAD (RFC 9530).
//!
//! They are computed in steps on the disk threads, which serve other requests in between, and end after
//! a step once the client has closed its sending side.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use http::HeaderName;
use http::header::{HeaderMap, HeaderValue};
use rustix::fs::fstat;
use sha2::{Digest as _, Sha256};

use super::client::Client;
use super::described::Described;
use super::limits;
use super::share::Share;
use crate::parse::repr_digest;

const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");
const WANT_REPR_DIGEST: HeaderName = HeaderName::from_static("want-repr-digest");

/// Bytes of a step: a few milliseconds.
const STEP: u64 = 8 << 20;

/// Whether a request wants a SHA-256 digest.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    let values = headers.get_all(&WANT_REPR_DIGEST).iter();
    repr_digest::wants_sha256(values.filter_map(|value| value.to_str().ok()))
}

/// Adds the digest of a file to the head of its response. It is left out if the file cannot be read, or
/// changes meanwhile: the rest of the head describes the earlier version.
pub(super) async fn add(
    share: &Share,
    client: &Client,
    (file, described): (File, Described),
    headers: &mut HeaderMap,
) {
    // The semaphore is never closed.
    let _permit = share.hashes.acquire().await;
    let Ok(Some(digest)) = hash(share, client, Arc::new(file), &described).await else { return };
    if let Ok(value) = HeaderValue::from_str(&repr_digest::value(digest)) {
        headers.insert(REPR_DIGEST, value);
    }
}

/// The digest; `None` if the file has changed, or the client is gone.
async fn hash(
    share: &Share,
    client: &Client,
    file: Arc<File>,
    described: &Described,
) -> io::Result<Option<[u8; 32]>> {
    let (mut hasher, mut offset) = (Sha256::new(), 0);
    while offset < described.size {
        if client.has_closed() {
            return Ok(None);
        }
        let file = Arc::clone(&file);
        let end = described.size.min(offset + STEP);
        let step = share.pool.run(move || step(&file, hasher, offset, end));
        (hasher, offset) = step.await?;
    }
    let now = Described::new(&fstat(&file)?);
    Ok((now == *described).then(|| hasher.finalize().into()))
}

/// Hashes a part of a file, and returns where it ends.
fn step(file: &File, mut hasher: Sha256, mut offset: u64, end: u64) -> io::Result<(Sha256, u64)> {
    let mut buffer = vec![0; limits::BLOCK];
    while offset < end {
        let most = usize::try_from(end - offset).unwrap_or(limits::BLOCK).min(limits::BLOCK);
        match file.read_at(&mut buffer[..most], offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                hasher.update(&buffer[..read]);
                offset += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok((hasher, offset))
}
