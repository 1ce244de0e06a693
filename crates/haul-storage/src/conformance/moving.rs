//! `rename` and `copy`.

use super::ground::{Ground, Outcome, content};
use crate::ErrorKind;

/// Whether the result is a permitted refusal: without the capability, every rename may be `Unsupported`.
fn may_refuse<T>(ground: &Ground, result: &crate::Result<T>) -> bool {
    let refused = result.as_ref().err().map(crate::Error::kind);
    !ground.can().rename && refused == Some(ErrorKind::Unsupported)
}

pub(super) async fn a_file_is_renamed(ground: Ground) -> Outcome {
    let from = ground.put("from", b"content").await?;
    ground.make_dir("dir").await?;
    for to in ["to", "dir/to"] {
        let to = ground.path(to)?;
        let result = ground.storage.rename(&from, &to).await;
        if may_refuse(&ground, &result) {
            return ground.has(&from, b"content").await;
        }
        result?;
        ground.is_free(&from).await?;
        ground.has(&to, b"content").await?;
        ground.storage.rename(&to, &from).await?;
    }
    ground.has(&from, b"content").await
}

pub(super) async fn a_directory_is_renamed_with_what_is_in_it(ground: Ground) -> Outcome {
    let from = ground.make_dir("from").await?;
    ground.make_dir("from/inner").await?;
    ground.put("from/inner/file", b"content").await?;
    let to = ground.path("to")?;
    let result = ground.storage.rename(&from, &to).await;
    if may_refuse(&ground, &result) {
        return Ok(());
    }
    result?;
    ground.is_free(&from).await?;
    ground.has(&ground.path("to/inner/file")?, b"content").await
}

pub(super) async fn renaming_what_cannot_be_fails(ground: Ground) -> Outcome {
    let storage = &ground.storage;
    let file = ground.put("file", b"content").await?;
    let dir = ground.make_dir("dir").await?;
    let inner = ground.put("dir/inner", b"inner").await?;
    let nothing = ground.path("nothing")?;
    let to = ground.path("to")?;
    let result = storage.rename(&nothing, &to).await;
    if !may_refuse(&ground, &result) {
        ensure_error!(result, ErrorKind::NotFound, "nothing");
    }
    let result = storage.rename(&file, &nothing.join("below")?).await;
    if !may_refuse(&ground, &result) {
        ensure_error!(result, ErrorKind::NotFound, "to where no directory is");
    }
    ensure!(storage.rename(&file, &dir).await.is_err(), "a file takes the place of a directory");
    ensure!(storage.rename(&dir, &file).await.is_err(), "a directory takes the place of a file");
    let below = dir.join("below")?;
    ensure!(storage.rename(&dir, &below).await.is_err(), "a directory is moved below itself");
    let full = ground.make_dir("full").await?;
    let kept = ground.put("full/kept", b"kept").await?;
    ensure!(storage.rename(&dir, &full).await.is_err(), "a full directory is replaced");
    ground.has(&file, b"content").await?;
    ground.has(&inner, b"inner").await?;
    ground.has(&kept, b"kept").await?;
    ground.is_free(&to).await
}

pub(super) async fn a_rename_replaces_if_it_can(ground: Ground) -> Outcome {
    let from = ground.put("from", b"new").await?;
    let to = ground.put("to", b"old content").await?;
    let result = ground.storage.rename(&from, &to).await;
    if ground.can().rename {
        result?;
        ground.is_free(&from).await?;
        return ground.has(&to, b"new").await;
    }
    ensure_error!(
        result,
        ErrorKind::AlreadyExists | ErrorKind::Unsupported,
        "a file is there that cannot be replaced"
    );
    ground.has(&from, b"new").await?;
    ground.has(&to, b"old content").await
}

pub(super) async fn renaming_to_itself_loses_nothing(ground: Ground) -> Outcome {
    let path = ground.put("file", b"content").await?;
    // The storage may treat that as an error or not.
    drop(ground.storage.rename(&path, &path).await);
    ground.has(&path, b"content").await
}

pub(super) async fn a_copy_has_the_same_bytes(ground: Ground) -> Outcome {
    ground.make_dir("dir").await?;
    for (n, size) in [0, 1, 1_500_000].into_iter().enumerate() {
        let expected = content(size, 1);
        let from = ground.put("from", &expected).await?;
        let to = ground.path(format!("dir/to {n}"))?;
        ground.storage.copy(&from, &to).await?;
        ground.has(&to, &expected).await?;
        // The copy is independent of the original.
        ground.put("from", b"changed").await?;
        ground.has(&to, &expected).await?;
    }
    Ok(())
}

pub(super) async fn a_copy_replaces_nothing(ground: Ground) -> Outcome {
    let storage = &ground.storage;
    let from = ground.put("from", b"new").await?;
    let to = ground.put("to", b"old content").await?;
    ensure_error!(storage.copy(&from, &to).await, ErrorKind::AlreadyExists, "a file is there");
    ground.has(&to, b"old content").await?;
    let dir = ground.make_dir("dir").await?;
    ensure!(storage.copy(&from, &dir).await.is_err(), "a directory is there");
    ensure!(storage.stat(&dir).await?.is_dir(), "the directory is gone");
    let (nothing, free) = (ground.path("nothing")?, ground.path("free")?);
    ensure_error!(storage.copy(&nothing, &free).await, ErrorKind::NotFound, "nothing to copy");
    ground.is_free(&free).await?;
    let deep = nothing.join("below")?;
    ensure_error!(storage.copy(&from, &deep).await, ErrorKind::NotFound, "no parent");
    Ok(())
}
