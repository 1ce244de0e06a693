//! `--verify`: reads back what was written, before it gets its name where that can be done.

use futures_util::future::try_join_all;
use haul_storage::{
    DigestKind, Error, ErrorKind, Range, ReadAt, RelPath, Result, Storage, WriteAt,
};

use super::bytes::digest_range;
use crate::context::Context;
use crate::digest::{Digest, FileHasher};

/// Compares the bytes on the medium with the digest made on the way,
/// before it gets its name. Whether that could be done: some servers show a file only when it has
/// its name.
pub async fn read_back(
    context: &Context,
    writer: &dyn WriteAt,
    size: u64,
    expected: Digest,
) -> Result<bool> {
    match writer.reopen(true).await {
        Ok(reader) => compare(context, &*reader, size, expected).await.map(|()| true),
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(false),
        Err(error) => Err(error),
    }
}

/// Compares the bytes of a file that has its name already.
pub async fn read_named(
    context: &Context,
    storage: &dyn Storage,
    path: &RelPath,
    size: u64,
    expected: Digest,
) -> Result<()> {
    let reader = storage.open(path).await?;
    let found = reader.identity().size;
    if found != size {
        let cause = format!("it has {found} bytes and should have {size}");
        return Err(Error::new(ErrorKind::Corrupt, "verify").because(cause));
    }
    compare(context, &*reader, size, expected).await
}

async fn compare(
    context: &Context,
    reader: &dyn ReadAt,
    size: u64,
    expected: Digest,
) -> Result<()> {
    let hasher = FileHasher::new(expected.kind, context.pool.clone());
    // A part file gets its length at the commit; a hole at its end is not there yet.
    let present = reader.identity().size.min(size);
    let stretches = stretches(expected.kind, present);
    let reads = stretches.iter().map(|range| digest_range(context, reader, &hasher, *range));
    // The zeros may wait for reads that fail, so the first failure ends both.
    tokio::try_join!(try_join_all(reads), hasher.zeros(present, size - present))?;
    let found = hasher.finish(size).await?;
    if found == expected {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Corrupt, "verify")
        .because(format!("the data read back has {} {found}, not {expected}", found.kind.name())))
}

/// BLAKE3 can be made in two places at once; SHA-256 only from front to back.
fn stretches(kind: DigestKind, size: u64) -> Vec<Range> {
    let middle = match kind {
        DigestKind::Sha256 => size,
        DigestKind::Blake3 => (size / 2).next_multiple_of(1 << 20).min(size),
    };
    vec![Range::between(0, middle), Range::between(middle, size)]
}
