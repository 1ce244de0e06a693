//! `read_whole` and `write_whole`.

use bytes::Bytes;

use super::fixture::{Fixture, Outcome, content, fresh, replacing, same};
use super::sizes::SIZES;
use crate::{CommitOptions, ErrorKind, Retry};

pub(super) async fn every_size_is_read_back(fixture: Fixture) -> Outcome {
    for (size, why) in SIZES {
        let expected = content(size, size);
        let path = fixture.put(format!("{size}"), &expected).await?;
        let whole = fixture.storage.read_whole(&path, size).await?;
        same(&whole.bytes, &expected)?;
        ensure_eq!(whole.identity.size, size, "the identity's size ({why})");
        fixture.has(&path, &expected).await?;
    }
    Ok(())
}

pub(super) async fn a_longer_file_than_the_limit_is_refused(fixture: Fixture) -> Outcome {
    let path = fixture.put("file", &content(5000, 1)).await?;
    for limit in [0, 1, 4096, 4999] {
        let result = fixture.storage.read_whole(&path, limit).await;
        ensure_error!(result, ErrorKind::Changed, "5000 bytes with a limit of {limit}");
    }
    for limit in [5000, 5001, 1 << 40] {
        let whole = fixture.storage.read_whole(&path, limit).await?;
        ensure_eq!(whole.bytes.len(), 5000, "the length with a limit of {limit}");
    }
    Ok(())
}

pub(super) async fn an_existing_file_is_replaced_only_if_requested(fixture: Fixture) -> Outcome {
    let path = fixture.put("file", b"old content").await?;
    let new = Bytes::from_static(b"new");
    let refused = fixture.storage.write_whole(&path, new.clone(), &fresh()).await;
    ensure_error!(refused, ErrorKind::AlreadyExists, "without replace");
    fixture.has(&path, b"old content").await?;
    fixture.storage.write_whole(&path, new, &replacing()).await?;
    fixture.has(&path, b"new").await?;
    ensure_eq!(fixture.all_names(&fixture.dir).await?, vec![b"file".to_vec()], "all names");
    Ok(())
}

/// The sizes differ, because a backend may store times only to the second.
pub(super) async fn only_the_expected_version_is_replaced(fixture: Fixture) -> Outcome {
    let path = fixture.put("file", b"first").await?;
    let first = fixture.storage.stat(&path).await?.identity();
    fixture.put("file", b"second version").await?;
    let second = fixture.storage.stat(&path).await?.identity();
    let third = Bytes::from_static(b"third");
    let expecting = |version| CommitOptions { expected: Some(version), ..replacing() };
    let refused = fixture.storage.write_whole(&path, third.clone(), &expecting(first)).await;
    ensure_refused!(refused, "another version exists");
    fixture.has(&path, b"second version").await?;
    fixture.storage.write_whole(&path, third.clone(), &expecting(second)).await?;
    fixture.has(&path, b"third").await?;
    let gone = fixture.storage.stat(&path).await?.identity();
    fixture.storage.remove(&path).await?;
    let refused = fixture.storage.write_whole(&path, third, &expecting(gone)).await;
    ensure_refused!(refused, "the file is missing");
    fixture.is_free(&path).await?;
    ensure_eq!(fixture.all_names(&fixture.dir).await?, Vec::<Vec<u8>>::new(), "all names");
    Ok(())
}

pub(super) async fn reading_a_directory_or_a_missing_file_fails(fixture: Fixture) -> Outcome {
    let nothing = fixture.path("nothing")?;
    let result = fixture.storage.read_whole(&nothing, 100).await;
    ensure_error!(result, ErrorKind::NotFound, "a missing file");
    let dir = fixture.make_dir("dir").await?;
    let result = fixture.storage.read_whole(&dir, 1 << 20).await;
    ensure_error!(result, ErrorKind::IsADirectory, "a directory");
    Ok(())
}

pub(super) async fn writing_to_an_impossible_path_fails(fixture: Fixture) -> Outcome {
    let storage = &fixture.storage;
    let bytes = Bytes::from_static(b"content");
    let deep = fixture.path("missing/file")?;
    let result = storage.write_whole(&deep, bytes.clone(), &replacing()).await;
    ensure_error!(result, ErrorKind::NotFound, "no parent");
    fixture.is_free(&fixture.path("missing")?).await?;

    let file = fixture.put("file", b"content").await?;
    let result = storage.write_whole(&file.join("below")?, bytes.clone(), &replacing()).await;
    ensure_error!(result, ErrorKind::NotADirectory | ErrorKind::NotFound, "below a file");

    let dir = fixture.make_dir("dir").await?;
    for options in [replacing(), fresh()] {
        let result = storage.write_whole(&dir, bytes.clone(), &options).await;
        ensure_error!(
            result,
            ErrorKind::IsADirectory | ErrorKind::AlreadyExists,
            "a directory exists"
        );
        ensure!(storage.stat(&dir).await?.is_dir(), "the directory is gone");
    }
    let names = fixture.all_names(&fixture.dir).await?;
    ensure_eq!(names, vec![b"dir".to_vec(), b"file".to_vec()], "all names");
    Ok(())
}

pub(super) async fn write_whole_leaves_no_other_entries(fixture: Fixture) -> Outcome {
    for size in [0, 10, 100_000] {
        fixture.put("file", &content(size, 1)).await?;
        let names = fixture.all_names(&fixture.dir).await?;
        ensure_eq!(names, vec![b"file".to_vec()], "all names after {size} bytes");
    }
    Ok(())
}

pub(super) async fn the_identity_equals_that_of_stat(fixture: Fixture) -> Outcome {
    let path = fixture.put("file", b"content").await?;
    let whole = fixture.storage.read_whole(&path, 100).await?;
    let entry = fixture.storage.stat(&path).await?;
    ensure_eq!(whole.identity, entry.identity(), "the identity");
    ensure_eq!(whole.metadata, entry.metadata(), "the metadata");
    Ok(())
}
