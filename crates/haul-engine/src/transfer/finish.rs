//! Checks a file of which all bytes are written, and gives it its name.

use haul_storage::{Error, ErrorKind, ReadAt, RelPath, Result, Retry, WriteAt};

use super::outcome::commit_options;
use super::verify::{read_back, read_named};
use super::{backup, expected};
use crate::context::Context;
use crate::digest::{Digest, FileHasher};
use crate::plan::Item;
use crate::retry::Retries;

/// A file of which all bytes have been written.
pub struct Whole<'a> {
    /// The source of the bytes.
    pub reader: &'a dyn ReadAt,
    /// The part file that has them.
    pub writer: &'a dyn WriteAt,
    /// Their number.
    pub bytes: u64,
    /// How many of them an earlier run left.
    pub resumed_bytes: u64,
}

/// Gives a file its name, unless the source has changed meanwhile or a digest differs. Returns the digest, if
/// one was computed. With `--verify`, a file that can be read back only under its name is compared after
/// that.
pub async fn finish(
    context: &Context,
    item: &Item,
    whole: &Whole<'_>,
    hasher: Option<&FileHasher>,
) -> Result<Option<Digest>> {
    let Whole { reader, writer, bytes, resumed_bytes } = *whole;
    let identity = reader.identity();
    let destination_name = || item.job.destination_name(&item.destination);
    let now = reader.recheck().await?;
    if now != *identity {
        return Err(Error::new(ErrorKind::Changed, "copy")
            .because(format!("it changed while being read: {identity} became {now}")));
    }
    let digest = match hasher {
        Some(hasher) => Some(hasher.finish(bytes).await?),
        None => None,
    };
    expected::check(item, digest, resumed_bytes)?;
    let mut unverified = digest.filter(|_| context.settings.verify);
    if let Some(digest) = unverified {
        let read = read_back(context, writer, bytes, digest).await;
        let done = read.map_err(|error| error.at(destination_name()))?;
        unverified = unverified.filter(|_| !done);
    }
    let mut metadata = item.source.metadata();
    if context.settings.preserve.xattrs {
        metadata.xattrs = reader.metadata().await?.xattrs;
    }
    metadata.modified = identity.modified;
    let options = commit_options(context, item, metadata);
    let committing = writer.commit(bytes, &options);
    let committed = backup::with_known_backup(context, item, committing).await;
    let ((), backup) = committed.map_err(|error| error.at(destination_name()))?;
    if let Some(digest) = unverified {
        let verified = verify_named(context, item, backup.as_ref(), bytes, digest).await;
        verified.map_err(|error| error.at(destination_name()))?;
    }
    Ok(digest)
}

/// The error of a file that has its name and could not be read back.
fn unverified(error: Error) -> Error {
    if error.kind() == ErrorKind::NotFound {
        let cause =
            format!("{}; the copy is not verified: it was not found under its name", error.cause());
        return error.because(cause).with_retry(Retry::Never);
    }
    let cause = format!("{}; the copy has its name and is not verified", error.cause());
    let error = error.because(cause).with_retry(Retry::Never);
    if error.hint().is_some() {
        return error;
    }
    error.hinting("haul check --checksum compares it")
}

/// Reads a file back under its name. Only the reading is retried: the file has replaced the old version, of which there
/// may be a `backup`. A file with other bytes does not stay, or a later run would take it for a copy.
async fn verify_named(
    context: &Context,
    item: &Item,
    backup: Option<&RelPath>,
    bytes: u64,
    expected: Digest,
) -> Result<()> {
    let settings = &context.settings;
    let storage = &*item.job.job.destination;
    let mut retries = Retries::new(settings.retries, settings.retry_pause, bytes);
    loop {
        let read = read_named(context, storage, &item.destination, bytes, expected).await;
        let error = match read {
            Ok(None) => return Ok(()),
            Ok(Some(corrupt)) => {
                let done = match backup::take_back(item, backup).await {
                    Ok(done) => done.to_owned(),
                    Err(failed) => {
                        format!("it stays there, since that cannot be undone: {}", failed.cause())
                    }
                };
                let cause = format!("{}; {done}", corrupt.cause());
                return Err(corrupt.because(cause).with_retry(Retry::Never));
            }
            Err(error) => error,
        };
        if error.retry() != Retry::Later || context.cancel.is_cancelled() {
            return Err(unverified(error));
        }
        let (error, pause) = retries.next(error, 0).map_err(unverified)?;
        context.flow.failed(error.kind());
        context.tally.retry(error, retries.attempt(), pause);
        context.pause(pause).await;
    }
}
