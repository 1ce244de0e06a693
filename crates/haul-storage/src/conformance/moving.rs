//! `rename` and `copy`.

use super::fixture::{Fixture, Outcome, content};
use crate::ErrorKind;

/// Whether the result is a permitted refusal: without the capability, every rename may be `Unsupported`.
fn may_refuse<T>(fixture: &Fixture, result: &crate::Result<T>) -> bool {
    let refused = result.as_ref().err().map(crate::Error::kind);
    !fixture.can().rename && refused == Some(ErrorKind::Unsupported)
}

pub(super) async fn a_file_is_renamed(fixture: Fixture) -> Outcome {
    let from = fixture.put("from", b"content").await?;
    fixture.make_dir("dir").await?;
    for to in ["to", "dir/to"] {
        let to = fixture.path(to)?;
        let result = fixture.storage.rename(&from, &to).await;
        if may_refuse(&fixture, &result) {
            return fixture.has(&from, b"content").await;
        }
        result?;
        fixture.is_free(&from).await?;
        fixture.has(&to, b"content").await?;
        fixture.storage.rename(&to, &from).await?;
    }
    fixture.has(&from, b"content").await
}

pub(super) async fn a_directory_is_renamed_with_what_is_in_it(fixture: Fixture) -> Outcome {
    let from = fixture.make_dir("from").await?;
    fixture.make_dir("from/inner").await?;
    fixture.put("from/inner/file", b"content").await?;
    let to = fixture.path("to")?;
    let result = fixture.storage.rename(&from, &to).await;
    if may_refuse(&fixture, &result) {
        return Ok(());
    }
    result?;
    fixture.is_free(&from).await?;
    fixture.has(&fixture.path("to/inner/file")?, b"content").await
}

pub(super) async fn an_impossible_rename_fails(fixture: Fixture) -> Outcome {
    let storage = &fixture.storage;
    let file = fixture.put("file", b"content").await?;
    let dir = fixture.make_dir("dir").await?;
    let inner = fixture.put("dir/inner", b"inner").await?;
    let nothing = fixture.path("nothing")?;
    let to = fixture.path("to")?;
    let result = storage.rename(&nothing, &to).await;
    if !may_refuse(&fixture, &result) {
        ensure_error!(result, ErrorKind::NotFound, "a missing source");
    }
    let result = storage.rename(&file, &nothing.join("below")?).await;
    if !may_refuse(&fixture, &result) {
        ensure_error!(result, ErrorKind::NotFound, "below a missing directory");
    }
    ensure!(storage.rename(&file, &dir).await.is_err(), "a file replaces a directory");
    ensure!(storage.rename(&dir, &file).await.is_err(), "a directory replaces a file");
    let below = dir.join("below")?;
    ensure!(storage.rename(&dir, &below).await.is_err(), "a directory is moved below itself");
    let full = fixture.make_dir("full").await?;
    let kept = fixture.put("full/kept", b"kept").await?;
    ensure!(storage.rename(&dir, &full).await.is_err(), "a full directory is replaced");
    fixture.has(&file, b"content").await?;
    fixture.has(&inner, b"inner").await?;
    fixture.has(&kept, b"kept").await?;
    fixture.is_free(&to).await
}

pub(super) async fn a_rename_replaces_if_it_can(fixture: Fixture) -> Outcome {
    let from = fixture.put("from", b"new").await?;
    let to = fixture.put("to", b"old content").await?;
    let result = fixture.storage.rename(&from, &to).await;
    if fixture.can().rename {
        result?;
        fixture.is_free(&from).await?;
        return fixture.has(&to, b"new").await;
    }
    ensure_error!(
        result,
        ErrorKind::AlreadyExists | ErrorKind::Unsupported,
        "an existing file that cannot be replaced"
    );
    fixture.has(&from, b"new").await?;
    fixture.has(&to, b"old content").await
}

pub(super) async fn renaming_to_itself_loses_nothing(fixture: Fixture) -> Outcome {
    let path = fixture.put("file", b"content").await?;
    // The storage may treat that as an error or not.
    drop(fixture.storage.rename(&path, &path).await);
    fixture.has(&path, b"content").await
}

pub(super) async fn a_copy_has_the_same_bytes(fixture: Fixture) -> Outcome {
    fixture.make_dir("dir").await?;
    for (n, size) in [0, 1, 1_500_000].into_iter().enumerate() {
        let expected = content(size, 1);
        let from = fixture.put("from", &expected).await?;
        let to = fixture.path(format!("dir/to {n}"))?;
        fixture.storage.copy(&from, &to).await?;
        fixture.has(&to, &expected).await?;
        // The copy is independent of the original.
        fixture.put("from", b"changed").await?;
        fixture.has(&to, &expected).await?;
    }
    Ok(())
}

pub(super) async fn a_copy_replaces_nothing(fixture: Fixture) -> Outcome {
    let storage = &fixture.storage;
    let from = fixture.put("from", b"new").await?;
    let to = fixture.put("to", b"old content").await?;
    ensure_error!(storage.copy(&from, &to).await, ErrorKind::AlreadyExists, "a file exists");
    fixture.has(&to, b"old content").await?;
    let dir = fixture.make_dir("dir").await?;
    ensure!(storage.copy(&from, &dir).await.is_err(), "a directory is replaced");
    ensure!(storage.stat(&dir).await?.is_dir(), "the directory is gone");
    let (nothing, free) = (fixture.path("nothing")?, fixture.path("free")?);
    ensure_error!(storage.copy(&nothing, &free).await, ErrorKind::NotFound, "a missing source");
    fixture.is_free(&free).await?;
    let deep = nothing.join("below")?;
    ensure_error!(storage.copy(&from, &deep).await, ErrorKind::NotFound, "no parent");
    Ok(())
}
