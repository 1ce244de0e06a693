//! `--verify`: reads back what was written, before it gets its name.

use futures_util::future::try_join_all;
use haul_storage::{DigestKind, Error, ErrorKind, Range, Result, WriteAt};

use super::bytes::digest_range;
use crate::context::Context;
use crate::digest::{Digest, FileHasher};

/// Compares the bytes on the medium with the digest made on the way.
pub async fn read_back(
    context: &Context,
    writer: &dyn WriteAt,
    size: u64,
    expected: Digest,
) -> Result<()> {
    let reader = writer.reopen(true).await?;
    let hasher = FileHasher::new(expected.kind, context.pool.clone());
    // A part file gets its length at the commit; a hole at its end is not there yet.
    let present = reader.identity().size.min(size);
    let stretches = stretches(expected.kind, present);
    let reads = stretches.iter().map(|range| digest_range(context, &*reader, &hasher, *range));
    // The zeros may wait for reads that fail, so the first failure ends both.
    tokio::try_join!(try_join_all(reads), hasher.zeros(present, size - present))?;
    let found = hasher.finish(size).await?;
    if found == expected {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Corrupt, "verify").because(format!(
        "what was written reads back as {} {found}, not {expected}",
        found.kind.name()
    )))
}

/// BLAKE3 can be made in two places at once; SHA-256 only from front to back.
fn stretches(kind: DigestKind, size: u64) -> Vec<Range> {
    let middle = match kind {
        DigestKind::Sha256 => size,
        DigestKind::Blake3 => (size / 2).next_multiple_of(1 << 20).min(size),
    };
    vec![Range::between(0, middle), Range::between(middle, size)]
}
