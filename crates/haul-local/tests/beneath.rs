//! No path below the root leads out of it, neither with this system's calls (openat2) nor with
//! the portable ones.

mod common;

use std::fs;
use std::os::unix::fs::symlink;

use bytes::Bytes;
use common::{both, content, fresh, path, put, replacing};
use haul_storage::{
    CreateOptions, EntryKind, Error, ErrorKind, LinkKind, Metadata, Storage, StorageExt as _,
    part_name,
};

#[tokio::test]
async fn no_operation_follows_a_link_in_its_path() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "precious").unwrap();
    fs::create_dir(outside.path().join("dir")).unwrap();
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("sub")).unwrap();
    fs::write(root.path().join("own"), "own").unwrap();
    symlink(outside.path(), root.path().join("absolute")).unwrap();
    let up = format!("../../{}", outside.path().file_name().unwrap().to_str().unwrap());
    symlink(up, root.path().join("sub/relative")).unwrap();
    // A link to a directory below the root is not followed either: its target may change at any time.
    symlink("sub", root.path().join("within")).unwrap();

    for storage in both(root.path()) {
        for way in ["absolute", "sub/relative", "within", "absolute/dir"] {
            let (file, new) = (path(format!("{way}/file")), path(format!("{way}/new")));
            let own = path("own");
            let metadata = Metadata { mode: Some(0o777), ..Metadata::default() };
            let create = CreateOptions::default();
            let bytes = Bytes::from_static(b"x");
            let refusals: Vec<(&str, Error)> = vec![
                ("stat", storage.stat(&file).await.unwrap_err()),
                ("list", storage.list(&path(format!("{way}/dir"))).await.err().unwrap()),
                ("create_dir", storage.create_dir(&new).await.unwrap_err()),
                (
                    "symlink",
                    storage
                        .create_link(&new, &LinkKind::Symbolic(b"t".to_vec()), true)
                        .await
                        .unwrap_err(),
                ),
                (
                    "link from",
                    storage
                        .create_link(&path("hard"), &LinkKind::Hard(file.clone()), false)
                        .await
                        .unwrap_err(),
                ),
                (
                    "link to",
                    storage
                        .create_link(&new, &LinkKind::Hard(own.clone()), false)
                        .await
                        .unwrap_err(),
                ),
                ("remove", storage.remove(&file).await.unwrap_err()),
                ("rename from", storage.rename(&file, &path("taken")).await.unwrap_err()),
                ("rename to", storage.rename(&own, &new).await.unwrap_err()),
                ("copy from", storage.copy(&file, &path("taken")).await.unwrap_err()),
                ("copy to", storage.copy(&own, &new).await.unwrap_err()),
                ("metadata", storage.metadata(&file).await.unwrap_err()),
                ("set_metadata", storage.set_metadata(&file, &metadata).await.unwrap_err()),
                ("open", storage.open(&file).await.unwrap_err()),
                ("create", storage.create(&new, &create).await.unwrap_err()),
                ("read_whole", storage.read_whole(&file, 100).await.unwrap_err()),
                ("write_whole", storage.write_whole(&new, bytes, &replacing()).await.unwrap_err()),
            ];
            for (operation, error) in refusals {
                assert_eq!(error.kind(), ErrorKind::NotADirectory, "{operation} {way}: {error}");
                assert!(error.to_string().contains("is a symbolic link; not followed"), "{error}");
            }
            // `lock` may succeed, but fails only with `NotADirectory`; nothing outside is created (see below).
            assert!(
                !matches!(storage.lock(&path(way)).await, Err(error) if error.kind() != ErrorKind::NotADirectory)
            );
        }
    }
    assert_eq!(common::names(outside.path()), ["dir", "file"]);
    assert_eq!(fs::read(outside.path().join("file")).unwrap(), b"precious");
    assert_eq!(common::names(root.path()), ["absolute", "own", "sub", "within"]);
}

#[tokio::test]
async fn a_link_as_the_last_component_is_never_followed() {
    for index in 0..2 {
        let outside = tempfile::tempdir().unwrap();
        let victim = outside.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let root = tempfile::tempdir().unwrap();
        let storage = &both(root.path())[index];
        symlink(&victim, root.path().join("link")).unwrap();
        let link = path("link");

        let entry = storage.stat(&link).await.unwrap();
        let target = victim.to_str().unwrap().as_bytes().to_vec();
        assert_eq!(entry.kind, EntryKind::Symlink(target));
        let error = storage.open(&link).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.cause().ends_with("is a symbolic link; not followed"), "{error}");
        assert_eq!(
            storage.read_whole(&link, 100).await.unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
        let listed = storage.list(&link).await.err().unwrap();
        assert_eq!(listed.kind(), ErrorKind::NotADirectory);

        let metadata = Metadata { mode: Some(0o777), ..Metadata::default() };
        let mode = fs::metadata(&victim).unwrap().permissions();
        storage.set_metadata(&link, &metadata).await.unwrap();
        assert_eq!(fs::metadata(&victim).unwrap().permissions(), mode);

        assert!(storage.write_whole(&link, Bytes::new(), &fresh()).await.is_err());
        put(&**storage, "link", b"new").await.unwrap();
        assert!(fs::symlink_metadata(root.path().join("link")).unwrap().is_file());
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
    }
}

/// `chown` takes `u32::MAX` as "no change". Formerly, if a server reported it, the copy silently retained the user or
/// group that it had, and a debug build panicked.
#[tokio::test]
async fn an_owner_that_means_no_change_is_refused() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("own"), "own").unwrap();
    symlink("own", root.path().join("link")).unwrap();
    for storage in both(root.path()) {
        for owner in [(u32::MAX, 0), (0, u32::MAX)] {
            let metadata = Metadata { owner: Some(owner), ..Metadata::default() };
            for name in ["own", "link"] {
                let error = storage.set_metadata(&path(name), &metadata).await.unwrap_err();
                assert_eq!(
                    (error.kind(), error.operation()),
                    (ErrorKind::InvalidInput, "set owner")
                );
            }
        }
    }
}

#[tokio::test]
async fn a_link_in_place_of_the_part_file_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let victim = root.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    for storage in both(root.path()) {
        let part = String::from_utf8(part_name(b"file")).unwrap();
        symlink(&victim, root.path().join(&part)).unwrap();
        for resume in [false, true] {
            let options = CreateOptions { resume, ..CreateOptions::default() };
            let error = storage.create(&path("file"), &options).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        fs::remove_file(root.path().join(part)).unwrap();
    }
}

/// Cached directory descriptors must be invalidated when their path refers to another directory.
#[tokio::test]
async fn a_moved_or_replaced_directory_is_not_confused_with_the_new_one() {
    let root = tempfile::tempdir().unwrap();
    for storage in both(root.path()) {
        for name in ["a", "a/deep"] {
            storage.create_dir(&path(name)).await.unwrap();
        }
        put(&*storage, "a/deep/file", b"old").await.unwrap();
        storage.rename(&path("a"), &path("b")).await.unwrap();
        storage.create_dir(&path("a")).await.unwrap();
        storage.create_dir(&path("a/deep")).await.unwrap();
        put(&*storage, "a/deep/file", b"new").await.unwrap();
        assert_eq!(content(&*storage, "b/deep/file").await.unwrap(), b"old");
        assert_eq!(content(&*storage, "a/deep/file").await.unwrap(), b"new");

        storage.remove(&path("a/deep/file")).await.unwrap();
        storage.remove(&path("a/deep")).await.unwrap();
        let gone = put(&*storage, "a/deep/file", b"x").await.unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::NotFound);

        // Another program removes the directory and creates it anew.
        put(&*storage, "b/deep/other", b"x").await.unwrap();
        fs::remove_dir_all(root.path().join("b/deep")).unwrap();
        fs::create_dir(root.path().join("b/deep")).unwrap();
        put(&*storage, "b/deep/other", b"y").await.unwrap();
        assert_eq!(fs::read(root.path().join("b/deep/other")).unwrap(), b"y");
        fs::remove_dir_all(root.path().join("a")).unwrap();
        fs::remove_dir_all(root.path().join("b")).unwrap();
    }
}

#[tokio::test]
async fn writing_into_more_directories_than_are_cached_works() {
    let root = tempfile::tempdir().unwrap();
    let storage = common::open(root.path());
    for round in 0..2 {
        for number in 0..300 {
            let name = format!("d{number}");
            if round == 0 {
                storage.create_dir(&path(&name)).await.unwrap();
            }
            put(&*storage, format!("{name}/f{round}"), name.as_bytes()).await.unwrap();
        }
    }
    assert_eq!(content(&*storage, "d7/f1").await.unwrap(), b"d7");
}

#[tokio::test]
async fn the_root_itself_cannot_be_removed_or_renamed() {
    let root = tempfile::tempdir().unwrap();
    let storage = common::open(root.path());
    let top = path("");
    for outcome in [
        storage.remove(&top).await,
        storage.rename(&top, &path("x")).await,
        storage.write_whole(&top, Bytes::new(), &fresh()).await,
        storage.create(&top, &CreateOptions::default()).await.map(drop),
    ] {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.location().contains(root.path().to_str().unwrap()), "{error:?}");
    }
}
