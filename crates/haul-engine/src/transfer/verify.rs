//! `--verify`: reads a file back and compares its digest, before it gets its name where the destination allows that.

use futures_util::future::try_join_all;
use haul_storage::{
    DigestKind, Error, ErrorKind, Range, ReadAt, RelPath, Result, Storage, UNKNOWN_SIZE, WriteAt,
};

use super::bytes::digest_range;
use crate::context::Context;
use crate::digest::{Digest, FileHasher};

/// Reads a part file back from the medium and compares it with the digest of the source. `false` if the destination
/// cannot read it before it has its name, as with some servers.
///
/// # Errors
/// `Corrupt` if the digest differs; those of reading.
pub async fn read_back(
    context: &Context,
    writer: &dyn WriteAt,
    size: u64,
    expected: Digest,
) -> Result<bool> {
    match writer.reopen(true).await {
        Ok(reader) => match compare(context, &*reader, size, expected).await? {
            None => Ok(true),
            Some(corrupt) => Err(corrupt),
        },
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads a finished file back and compares it with the digest of the source. Returns how it differs, a `Corrupt` error.
///
/// # Errors
/// Those of reading, which say nothing about the file. One may be `Corrupt`, too: of a response that cannot be decoded.
pub async fn read_named(
    context: &Context,
    storage: &dyn Storage,
    path: &RelPath,
    size: u64,
    expected: Digest,
) -> Result<Option<Error>> {
    let reader = storage.open(path).await?;
    match reader.identity().size {
        UNKNOWN_SIZE => compare_to_end(context, &*reader, size, expected).await,
        found if found != size => Ok(Some(other_size(found, size))),
        _ => compare(context, &*reader, size, expected).await,
    }
}

fn other_size(found: u64, size: u64) -> Error {
    let cause = format!("it has {found} bytes and should have {size}");
    Error::new(ErrorKind::Corrupt, "verify").because(cause)
}

/// Compares a finished file whose size the server does not report.
async fn compare_to_end(
    context: &Context,
    reader: &dyn ReadAt,
    size: u64,
    expected: Digest,
) -> Result<Option<Error>> {
    let hasher = FileHasher::new(expected.kind, context.pool.clone());
    let end = digest_range(context, reader, &hasher, Range::new(0, UNKNOWN_SIZE)).await?;
    if end != size {
        return Ok(Some(other_size(end, size)));
    }
    Ok(difference(hasher.finish(size).await?, expected))
}

async fn compare(
    context: &Context,
    reader: &dyn ReadAt,
    size: u64,
    expected: Digest,
) -> Result<Option<Error>> {
    let hasher = FileHasher::new(expected.kind, context.pool.clone());
    // A part file gets its length on commit; until then, a hole at its end is missing.
    let present = reader.identity().size.min(size);
    let ranges = concurrent_ranges(expected.kind, present);
    let reads = ranges.iter().map(|range| digest_range(context, reader, &hasher, *range));
    // Hashing the zeros may wait for reads that have failed, so the first failure ends both.
    tokio::try_join!(try_join_all(reads), hasher.zeros(present, size - present))?;
    Ok(difference(hasher.finish(size).await?, expected))
}

fn difference(found: Digest, expected: Digest) -> Option<Error> {
    let cause = || format!("the data read back has {} {found}, not {expected}", found.kind.name());
    (found != expected).then(|| Error::new(ErrorKind::Corrupt, "verify").because(cause()))
}

/// The ranges to read concurrently: two halves for BLAKE3, a tree hash; everything in order for SHA-256.
fn concurrent_ranges(kind: DigestKind, size: u64) -> Vec<Range> {
    let middle = match kind {
        DigestKind::Sha256 => size,
        DigestKind::Blake3 => (size / 2).next_multiple_of(1 << 20).min(size),
    };
    vec![Range::between(0, middle), Range::between(middle, size)]
}
