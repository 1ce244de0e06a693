//! `create_dir` and `remove`.

use super::fixture::{Fixture, Outcome};
use crate::{ErrorKind, RelPath, StorageExt as _};

pub(super) async fn a_directory_is_made_once(fixture: Fixture) -> Outcome {
    let dir = fixture.make_dir("dir").await?;
    ensure!(fixture.storage.stat(&dir).await?.is_dir(), "it is not a directory");
    let file = fixture.put("file", b"content").await?;
    for (path, what) in [(&dir, "a directory"), (&file, "a file"), (&RelPath::root(), "the root")] {
        ensure_error!(fixture.storage.create_dir(path).await, ErrorKind::AlreadyExists, "{what}");
    }
    fixture.has(&file, b"content").await
}

pub(super) async fn a_directory_needs_its_parent(fixture: Fixture) -> Outcome {
    let deep = fixture.path("missing/dir")?;
    ensure_error!(fixture.storage.create_dir(&deep).await, ErrorKind::NotFound, "no parent");
    fixture.is_free(&fixture.path("missing")?).await
}

pub(super) async fn no_directory_is_made_below_a_file(fixture: Fixture) -> Outcome {
    let file = fixture.put("file", b"content").await?;
    let below = file.join("below")?;
    ensure_error!(
        fixture.storage.create_dir(&below).await,
        ErrorKind::NotADirectory | ErrorKind::NotFound,
        "a directory below a file"
    );
    fixture.has(&file, b"content").await
}

pub(super) async fn a_nonempty_directory_is_not_removed(fixture: Fixture) -> Outcome {
    let dir = fixture.make_dir("dir").await?;
    let file = fixture.put("dir/file", b"content").await?;
    ensure_error!(fixture.storage.remove(&dir).await, ErrorKind::NotEmpty, "with a file");
    fixture.has(&file, b"content").await?;
    fixture.storage.remove(&file).await?;
    let inner = fixture.make_dir("dir/inner").await?;
    ensure_error!(fixture.storage.remove(&dir).await, ErrorKind::NotEmpty, "with a directory");
    ensure!(fixture.storage.stat(&inner).await?.is_dir(), "the directory in it is gone");
    Ok(())
}

pub(super) async fn removing_a_missing_entry_is_not_found(fixture: Fixture) -> Outcome {
    let nothing = fixture.path("nothing")?;
    ensure_error!(fixture.storage.remove(&nothing).await, ErrorKind::NotFound, "a missing entry");
    let below = nothing.join("below")?;
    ensure_error!(fixture.storage.remove(&below).await, ErrorKind::NotFound, "no parent");
    let file = fixture.put("file", b"content").await?;
    let below = file.join("below")?;
    ensure_error!(
        fixture.storage.remove(&below).await,
        ErrorKind::NotFound | ErrorKind::NotADirectory,
        "below a file"
    );
    Ok(())
}

pub(super) async fn a_removed_entry_is_gone(fixture: Fixture) -> Outcome {
    let file = fixture.put("file", b"content").await?;
    let spared = fixture.put("spared", b"content").await?;
    let dir = fixture.make_dir("dir").await?;
    for path in [&file, &dir] {
        fixture.storage.remove(path).await?;
        fixture.is_free(path).await?;
    }
    fixture.has(&spared, b"content").await?;
    // The name is free for something else.
    fixture.make_dir("file").await?;
    fixture.put("dir", b"now a file").await?;
    Ok(())
}
