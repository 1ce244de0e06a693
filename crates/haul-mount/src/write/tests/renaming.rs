//! Renaming files that are open, or wait to be uploaded.

use super::*;

const REWRITE: u32 = READ_WRITE | 0o1000;

/// Writes a file anew, and leaves it open.
async fn rewritten(world: &World, name: &str, content: &str) -> u64 {
    let handle = world.open_with(name, REWRITE).await;
    world.write(handle, 0, content).await;
    handle
}

/// Formerly, the version of the other program got the new name, and was overwritten there.
#[tokio::test(start_paused = true)]
async fn a_version_that_appears_before_the_file_is_renamed_stays() {
    for is_closed in [false, true] {
        let storage = MemoryStorage::new();
        storage.add_file("file", "old");
        let world = World::new(&storage);
        let handle = rewritten(&world, "file", "from here").await;
        if is_closed {
            storage.faults().on(Operation::WriteWhole).first(1).fail(ErrorKind::Unreachable);
            world.close(handle).await;
            while storage.faults().count(Operation::WriteWhole) == 0 {
                sleep(Duration::from_millis(1)).await;
            }
        }
        storage.add_file("file", "from there");
        done(&world.change(ROOT, rename("file", "new")).await);
        if !is_closed {
            world.close(handle).await;
        }
        world.uploaded().await;
        assert_eq!(storage.paths(), ["file", "new"]);
        assert_eq!(
            (storage.content("file"), storage.content("new")),
            ("from there".into(), "from here".into())
        );
        // The mount shows both.
        assert!(world.names.known(&RelPath::parse("file").unwrap()).await.unwrap().entry.is_some());
        assert!(lock(&world.warnings).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_appears_during_the_rename_is_not_overwritten() {
    let storage = behind_link();
    storage.add_file("file", "old");
    let world = World::new(&storage);
    let handle = rewritten(&world, "file", "from here").await;
    let appear = async {
        // After the STAT, and before the rename.
        sleep(RTT * 3 / 2).await;
        storage.add_file("file", "from there");
    };
    let (renamed, ()) = tokio::join!(world.change(ROOT, rename("file", "new")), appear);
    done(&renamed);
    world.close(handle).await;
    world.uploaded().await;
    let contents: Vec<_> = storage.files().into_values().collect();
    assert!(contents.contains(&"from there".into()), "{:?}", storage.files());
    assert!(contents.contains(&"from here".into()), "{:?}", storage.files());
}

/// Formerly, the file got parts of the one that it replaces.
#[tokio::test]
async fn a_file_whose_unread_rest_was_replaced_or_removed_cannot_be_renamed() {
    let storage = MemoryStorage::new();
    for theirs in [Some("other"), None] {
        storage.add_file("file", vec![7; 2 * MIB]);
        storage.add_file("target", vec![8; 2 * MIB]);
        let world = World::new(&storage);
        // The handle by which the rest would be read is not opened yet.
        storage.faults().on(Operation::Open).fail(ErrorKind::PermissionDenied);
        let handle = world.open("file").await;
        world.write(handle, 0, "new").await;
        match theirs {
            Some(theirs) => storage.add_file("file", theirs),
            None => storage.take_away("file"),
        }
        storage.faults().clear();
        assert_eq!(failed(&world.change(ROOT, rename("file", "target")).await), Errno::STALE);
        assert_eq!(storage.content("target"), vec![8; 2 * MIB]);
        // Programs see what the server has.
        let shown = world.names.known(&RelPath::parse("file").unwrap()).await.unwrap().entry;
        assert_eq!(shown.map(|entry| entry.size), theirs.map(|theirs| theirs.len() as u64));
        assert_eq!(world.read(handle, 0, 3).await, b"new");
        world.changes.release(handle);
    }
}

/// Formerly, the upload stayed on the server under the old name.
#[tokio::test(start_paused = true)]
async fn a_new_file_whose_upload_may_have_succeeded_is_renamed_on_the_server() {
    let storage = MemoryStorage::new();
    storage.faults().on(Operation::WriteWhole).first(1).lose_response(ErrorKind::Unreachable);
    let world = World::new(&storage);
    world.write_file("temporary", "content").await;
    while storage.faults().count(Operation::WriteWhole) == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    done(&world.change(ROOT, rename("temporary", "file")).await);
    world.uploaded().await;
    assert_eq!((storage.paths(), storage.content("file")), (vec!["file".into()], "content".into()));
    assert!(lock(&world.warnings).is_empty());
}

/// Formerly, the version that it replaces counted as one of another program.
#[tokio::test(start_paused = true)]
async fn a_file_is_renamed_over_one_whose_upload_may_have_succeeded() {
    for is_new in [true, false] {
        let storage = MemoryStorage::new();
        if !is_new {
            storage.add_file("file", "old");
        }
        storage.faults().on(Operation::WriteWhole).first(1).lose_response(ErrorKind::Unreachable);
        let world = World::new(&storage);
        world.write_file("file", "first").await;
        while storage.faults().count(Operation::WriteWhole) == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        let temporary = world.create("temporary").await;
        world.write(temporary, 0, "second").await;
        done(&world.change(ROOT, rename("temporary", "file")).await);
        world.close(temporary).await;
        world.uploaded().await;
        assert_eq!(
            (storage.paths(), storage.content("file")),
            (vec!["file".into()], "second".into())
        );
        assert!(lock(&world.warnings).is_empty());
    }
}

/// Two ways of editors in turn: the old version is renamed to a backup, and the new one written under its name; or the
/// new version is written under another name, and renamed over the old one.
#[tokio::test(start_paused = true)]
async fn an_editor_that_saves_in_quick_succession_leaves_its_last_version_and_backup() {
    let storage = behind_link();
    storage.add_file("file", "version 0");
    let world = World::new(&storage);
    for number in 1..20 {
        let content = format!("version {number}");
        if number % 2 == 0 {
            done(&world.change(ROOT, rename("file", "file~")).await);
            world.write_file("file", &content).await;
        } else {
            let temporary = world.create("file.tmp").await;
            world.write(temporary, 0, &content).await;
            if number % 3 == 0 {
                done(&world.change(ROOT, Change::Fsync(temporary)).await);
            }
            done(&world.change(ROOT, rename("file.tmp", "file")).await);
            world.close(temporary).await;
        }
        // The next version is saved during the upload of this one, or after it.
        sleep(RTT * (number % 5)).await;
    }
    world.uploaded().await;
    assert_eq!(storage.paths(), ["file", "file~"]);
    assert_eq!(
        (storage.content("file"), storage.content("file~")),
        ("version 19".into(), "version 17".into())
    );
    assert!(lock(&world.warnings).is_empty());
}

/// Formerly, the error was EISDIR if the server reported that.
#[tokio::test]
async fn a_directory_that_is_not_empty_is_neither_replaced_nor_removed() {
    for kind in [ErrorKind::IsADirectory, ErrorKind::AlreadyExists, ErrorKind::NotEmpty] {
        let storage = MemoryStorage::new();
        storage.add_dir("a");
        storage.add_dir("b");
        storage.add_file("b/file", "content");
        let world = World::new(&storage);
        storage.faults().on(Operation::Rename).fail(kind);
        assert_eq!(
            failed(&world.change(ROOT, rename("a", "b")).await),
            Errno::NOTEMPTY,
            "{kind:?}"
        );
        storage.faults().on(Operation::Remove).fail(kind);
        let removed = world.change(ROOT, Change::Rmdir(b"b".to_vec())).await;
        assert_eq!(failed(&removed), Errno::NOTEMPTY, "{kind:?}");
        assert_eq!(storage.paths(), ["a/", "b/", "b/file"]);
    }
}
