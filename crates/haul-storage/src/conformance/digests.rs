//! `digest`.

use super::fixture::{Fixture, Outcome};
use super::sizes::SIZES;
use crate::memory::Pattern;
use crate::{Digest, DigestKind, ErrorKind, Range};

const KINDS: [DigestKind; 2] = [DigestKind::Blake3, DigestKind::Sha256];

/// An undeclared digest may be returned too, but then it has to be right.
pub(super) async fn every_claimed_digest_is_that_of_the_content(fixture: Fixture) -> Outcome {
    for (size, why) in SIZES {
        let content = Pattern::new(size).bytes(Range::new(0, size));
        let path = fixture.put(format!("file-{size}"), &content).await?;
        for kind in KINDS {
            let found = fixture.storage.digest(&path, kind).await?;
            let is_claimed = fixture.can().digests.contains(&kind);
            ensure!(
                found.is_some() || !is_claimed,
                "{} of {size} bytes ({why}): none",
                kind.name()
            );
            let expected = Digest::of(kind, &content);
            ensure!(
                found.is_none_or(|found| found == expected),
                "{size} bytes ({why}): is {found:?}, should be {expected:?}"
            );
        }
    }
    Ok(())
}

pub(super) async fn a_changed_file_has_another_digest(fixture: Fixture) -> Outcome {
    for content in [&b"one"[..], b"two", b"three"] {
        let path = fixture.put("file", content).await?;
        for kind in KINDS {
            let found = fixture.storage.digest(&path, kind).await?;
            let expected = Digest::of(kind, content);
            ensure!(
                found.is_none_or(|found| found == expected),
                "of a replaced file: is {found:?}, should be {expected:?}"
            );
        }
    }
    Ok(())
}

pub(super) async fn directories_and_missing_files_have_no_digest(fixture: Fixture) -> Outcome {
    let directory = fixture.make_dir("dir").await?;
    let nothing = fixture.path("nothing")?;
    for kind in KINDS {
        let found = fixture.storage.digest(&directory, kind).await;
        ensure!(!matches!(found, Ok(Some(_))), "a directory has a digest: {found:?}");
        match fixture.storage.digest(&nothing, kind).await {
            Ok(None) => {}
            other => ensure_error!(other, ErrorKind::NotFound, "the digest of a missing file"),
        }
    }
    Ok(())
}
