//! A file whose digest is known beforehand: it gets its name only with that content.
//!
//! The digest is computed while the file is copied, over the bytes of earlier runs as well, and compared
//! before the file gets its name. If it differs, the copy is discarded. The file is then restarted where that
//! may help: if part of it came from an earlier run, or if there are mirrors, which are tried one by one.

use haul_storage::{DigestKind, Entry, Error, ErrorKind, Result, Retry};

use super::bytes;
use super::compare::Verdict;
use crate::context::Context;
use crate::digest::Digest;
use crate::mirror::MirrorStorage;
use crate::plan::Item;
use crate::{Overwrite, Reason};

/// The kind of digest to compute while an item is copied.
pub fn digest_kind(context: &Context, item: &Item) -> Option<DigestKind> {
    item.job.job.expected.map(|expected| expected.kind).or(context.settings.digest)
}

/// Checks the digest before the file gets its name. `resumed_bytes` of the file are from earlier runs.
///
/// # Errors
/// `Corrupt` if it differs from the expected one; to be retried from the start if that may help.
pub fn check(item: &Item, found: Option<Digest>, resumed_bytes: u64) -> Result<()> {
    let (Some(expected), Some(found)) = (item.job.job.expected, found) else { return Ok(()) };
    if found == expected {
        return Ok(());
    }
    let kind = expected.kind.name();
    let cause = format!("its {kind} is {found}, and should be {expected}");
    let has_another_way = MirrorStorage::of(&*item.job.job.source)
        .is_some_and(|mirrors| mirrors.refuted(&cause))
        || resumed_bytes > 0;
    let retry = if has_another_way { Retry::FromStart } else { Retry::Never };
    Err(Error::new(ErrorKind::Corrupt, "verify").because(cause).with_retry(retry))
}

/// Decides by digest what to do with an existing file; `usual` is the verdict without it. Returns the digest too, if
/// the file has the expected one.
///
/// # Errors
/// `Corrupt` if the file must not be replaced, and has another digest or is not a regular file.
pub async fn judge(
    context: &Context,
    item: &Item,
    existing: &Entry,
    expected: Digest,
    usual: Verdict,
) -> Result<(Verdict, Option<Digest>)> {
    let overwrite = context.settings.overwrite;
    if overwrite == Overwrite::Always {
        return Ok((usual, None));
    }
    if !existing.is_file() {
        if usual == Verdict::Leave {
            return Err(not_replaced(item, "it exists and is not a file".to_owned()));
        }
        return Ok((usual, None));
    }
    let sizes = existing.known_size().zip(item.source.known_size());
    let same_size = sizes.is_none_or(|(existing, source)| existing == source);
    let replaces = matches!(usual, Verdict::Replace(_)) || overwrite == Overwrite::Different;
    if !same_size && replaces {
        return Ok((Verdict::Replace(Reason::Size), None));
    }
    let found = bytes::digest_destination(context, item, expected.kind).await?;
    if found == expected {
        return Ok((Verdict::Keep, Some(found)));
    }
    if replaces {
        return Ok((Verdict::Replace(Reason::Content), None));
    }
    let kind = expected.kind.name();
    Err(not_replaced(item, format!("its {kind} is {found}, and should be {expected}")))
}

/// The digest of a file whose destination is the source itself, under another name.
///
/// # Errors
/// `Corrupt` if it differs from the expected one.
pub async fn prove(context: &Context, item: &Item, expected: Digest) -> Result<Digest> {
    let found = bytes::digest_destination(context, item, expected.kind).await?;
    if found == expected {
        return Ok(found);
    }
    let kind = expected.kind.name();
    Err(Error::new(ErrorKind::Corrupt, "verify")
        .at(item.job.destination_name(&item.destination))
        .because(format!("its {kind} is {found}, and should be {expected}")))
}

fn not_replaced(item: &Item, cause: String) -> Error {
    Error::new(ErrorKind::Corrupt, "verify")
        .at(item.job.destination_name(&item.destination))
        .because(cause)
        .hinting("--overwrite different replaces it")
}
