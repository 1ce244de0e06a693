//! `create_dir` and `remove`.

use super::ground::{Ground, Outcome};
use crate::{ErrorKind, RelPath, StorageExt as _};

pub(super) async fn a_directory_is_made_once(ground: Ground) -> Outcome {
    let dir = ground.make_dir("dir").await?;
    ensure!(ground.storage.stat(&dir).await?.is_dir(), "it is not a directory");
    let file = ground.put("file", b"content").await?;
    for (path, what) in [(&dir, "a directory"), (&file, "a file"), (&RelPath::root(), "the root")] {
        ensure_error!(ground.storage.create_dir(path).await, ErrorKind::AlreadyExists, "{what}");
    }
    ground.has(&file, b"content").await
}

pub(super) async fn a_directory_needs_its_parent(ground: Ground) -> Outcome {
    let deep = ground.path("missing/dir")?;
    ensure_error!(ground.storage.create_dir(&deep).await, ErrorKind::NotFound, "no parent");
    ground.is_free(&ground.path("missing")?).await
}

pub(super) async fn nothing_is_made_below_a_file(ground: Ground) -> Outcome {
    let file = ground.put("file", b"content").await?;
    let below = file.join("below")?;
    ensure_error!(
        ground.storage.create_dir(&below).await,
        ErrorKind::NotADirectory | ErrorKind::NotFound,
        "a directory below a file"
    );
    ground.has(&file, b"content").await
}

pub(super) async fn a_full_directory_is_not_removed(ground: Ground) -> Outcome {
    let dir = ground.make_dir("dir").await?;
    let file = ground.put("dir/file", b"content").await?;
    ensure_error!(ground.storage.remove(&dir).await, ErrorKind::NotEmpty, "with a file");
    ground.has(&file, b"content").await?;
    ground.storage.remove(&file).await?;
    let inner = ground.make_dir("dir/inner").await?;
    ensure_error!(ground.storage.remove(&dir).await, ErrorKind::NotEmpty, "with a directory");
    ensure!(ground.storage.stat(&inner).await?.is_dir(), "what was in it is harmed");
    Ok(())
}

pub(super) async fn what_is_not_there_is_not_removed(ground: Ground) -> Outcome {
    let nothing = ground.path("nothing")?;
    ensure_error!(ground.storage.remove(&nothing).await, ErrorKind::NotFound, "nothing");
    let below = nothing.join("below")?;
    ensure_error!(ground.storage.remove(&below).await, ErrorKind::NotFound, "below nothing");
    let file = ground.put("file", b"content").await?;
    let below = file.join("below")?;
    ensure_error!(
        ground.storage.remove(&below).await,
        ErrorKind::NotFound | ErrorKind::NotADirectory,
        "below a file"
    );
    Ok(())
}

pub(super) async fn what_is_removed_is_gone(ground: Ground) -> Outcome {
    let file = ground.put("file", b"content").await?;
    let spared = ground.put("spared", b"content").await?;
    let dir = ground.make_dir("dir").await?;
    for path in [&file, &dir] {
        ground.storage.remove(path).await?;
        ground.is_free(path).await?;
    }
    ground.has(&spared, b"content").await?;
    // The name is free for something else.
    ground.make_dir("file").await?;
    ground.put("dir", b"now a file").await?;
    Ok(())
}
