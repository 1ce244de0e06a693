//! Versions that appear on the server while others are written here, and uploads whose outcome is not known.

use super::*;

#[tokio::test]
async fn a_version_that_has_changed_on_the_server_stays_beside_the_one_from_here() {
    let storage = MemoryStorage::new();
    storage.add_file("plan.odt", "old");
    let world = World::new(&storage);
    let handle = world.open("plan.odt").await;
    let truncated = NewAttributes { handle: Some(handle), size: Some(0), ..<_>::default() };
    let node = world.names.tree().find(ROOT, b"plan.odt").unwrap();
    done(&world.change(node, Change::Setattr(truncated)).await);
    world.write(handle, 0, "from here").await;
    storage.add_file("plan.odt", "from there");
    world.close(handle).await;
    world.uploaded().await;
    let paths = storage.paths();
    let [copy, original] = &paths[..] else { panic!("{paths:?}") };
    assert_eq!((storage.content(original), original.as_str()), ("from there".into(), "plan.odt"));
    assert!(copy.starts_with("plan (conflict ") && copy.ends_with(").odt"), "{copy}");
    assert_eq!(storage.content(copy), "from here");
    let warnings = lock(&world.warnings);
    let [Warning::Conflict { path, copy: named }] = &warnings[..] else { panic!("{warnings:?}") };
    assert_eq!((path.to_string(), named.to_string()), ("plan.odt".to_owned(), copy.clone()));
}

/// Formerly, what was written here replaced it.
#[tokio::test]
async fn a_version_that_appears_between_the_stat_and_the_commit_stays() {
    let storage = MemoryStorage::new();
    let long = vec![7; 5 * MIB];
    // In one request, and in pieces.
    for (operation, content) in
        [(Operation::WriteWhole, b"from here".as_slice()), (Operation::Commit, &long[..])]
    {
        storage.add_file("plan.odt", "from there");
        storage.faults().on(operation).path("plan.odt").first(1).change();
        let world = World::new(&storage);
        let handle = world.open("plan.odt").await;
        world.write(handle, 0, content).await;
        world.close(handle).await;
        world.uploaded().await;
        let paths = storage.paths();
        let [copy, original] = &paths[..] else { panic!("{paths:?}") };
        assert!(original == "plan.odt" && storage.content(original) == "from there");
        assert!(copy.starts_with("plan (conflict ") && storage.content(copy)[..9] == content[..9]);
        assert!(matches!(&lock(&world.warnings)[..], [Warning::Conflict { .. }]));
        storage.take_away(copy);
    }
}

/// Formerly, what was written here replaced it.
#[tokio::test(start_paused = true)]
async fn a_version_that_appears_while_an_upload_waits_for_other_uploads_stays() {
    let storage = MemoryStorage::builder().with_link(SimulatedLink::new(RTT, RATE));
    let storage = storage.with_capabilities(|can| can.conditional_commits = false).build();
    storage.add_file("plan.odt", "old");
    let world = World::new(&storage);
    let handle = world.open("plan.odt").await;
    world.write(handle, 0, "from here").await;
    let others = world.changes.uploader.sender.share.overdraw(1 << 40);
    storage.faults().reset_count();
    world.close(handle).await;
    while storage.faults().count(Operation::Stat) == 0 {
        sleep(RTT).await;
    }
    sleep(RTT * 4).await;
    assert_eq!(storage.faults().count(Operation::WriteWhole), 0);
    storage.add_file("plan.odt", "from there");
    drop(others);
    world.uploaded().await;
    assert_eq!(storage.content("plan.odt"), "from there");
    assert!(matches!(&lock(&world.warnings)[..], [Warning::Conflict { .. }]));
}

#[tokio::test]
async fn a_file_that_is_removed_between_the_stat_and_the_commit_comes_back() {
    let storage = MemoryStorage::new();
    storage.add_file("file", "old");
    storage.faults().on(Operation::WriteWhole).first(1).vanish();
    let world = World::new(&storage);
    let handle = world.open("file").await;
    world.write(handle, 0, "new").await;
    world.close(handle).await;
    world.uploaded().await;
    assert_eq!((storage.paths(), storage.content("file")), (vec!["file".to_owned()], "new".into()));
    assert!(lock(&world.warnings).is_empty());
}

/// The retry finds its own version instead of the one that it replaces.
#[tokio::test(start_paused = true)]
async fn a_replacement_whose_response_was_lost_makes_no_copy() {
    let storage = MemoryStorage::new();
    storage.add_file("file", "old");
    storage.faults().on(Operation::WriteWhole).first(1).lose_response(ErrorKind::Unreachable);
    let world = World::new(&storage);
    let handle = world.open("file").await;
    world.write(handle, 0, "new").await;
    world.close(handle).await;
    world.uploaded().await;
    assert_eq!((storage.paths(), storage.content("file")), (vec!["file".to_owned()], "new".into()));
    assert!(lock(&world.warnings).is_empty());
}

#[tokio::test]
async fn a_new_file_does_not_replace_one_that_appeared_on_the_server() {
    let storage = MemoryStorage::new();
    let world = World::new(&storage);
    let handle = world.create("new").await;
    world.write(handle, 0, "from here").await;
    storage.add_file("new", "from there");
    world.close(handle).await;
    world.uploaded().await;
    assert_eq!(storage.content("new"), "from there");
    assert_eq!(storage.paths().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_upload_whose_response_was_lost_makes_no_copy() {
    let storage = MemoryStorage::new();
    storage.faults().on(Operation::WriteWhole).first(1).lose_response(ErrorKind::Unreachable);
    let world = World::new(&storage);
    world.write_file("new", "content").await;
    world.uploaded().await;
    assert_eq!(storage.paths(), ["new"]);
    assert!(lock(&world.warnings).is_empty());
}

/// Formerly, the upload of a later change took the one before for a change by another program.
#[tokio::test(start_paused = true)]
async fn an_upload_whose_version_is_unknown_is_replaced_by_the_next() {
    for can_times in [true, false] {
        let storage = MemoryStorage::builder();
        let storage = storage.with_capabilities(|can| can.times = can_times).build();
        let world = World::new(&storage);
        let handle = world.create("new").await;
        world.write(handle, 0, "first").await;
        storage.faults().on(Operation::Stat).fail(ErrorKind::Unreachable);
        done(&world.change(ROOT, Change::Fsync(handle)).await);
        assert_eq!(storage.content("new"), "first");
        storage.faults().clear();
        world.write(handle, 0, "later").await;
        world.close(handle).await;
        world.uploaded().await;
        assert_eq!(
            (storage.paths(), storage.content("new")),
            (vec!["new".to_owned()], "later".into())
        );
        assert!(lock(&world.warnings).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_whose_version_is_unknown_is_removed_with_its_file() {
    let storage = MemoryStorage::new();
    let world = World::new(&storage);
    let handle = world.create("new").await;
    world.write(handle, 0, "first").await;
    storage.faults().on(Operation::Stat).fail(ErrorKind::Unreachable);
    done(&world.change(ROOT, Change::Fsync(handle)).await);
    storage.faults().clear();
    world.write(handle, 5, " and more").await;
    done(&world.change(ROOT, Change::Unlink(b"new".to_vec())).await);
    assert!(storage.paths().is_empty());
}

/// Formerly, the next upload replaced that version by content with parts of the one before.
#[tokio::test(start_paused = true)]
async fn a_version_that_appears_before_the_permissions_are_set_is_not_replaced() {
    let storage = behind_link();
    storage.add_file("file", "one-two");
    let world = World::new(&storage);
    let handle = world.open("file").await;
    assert_eq!(world.read(handle, 0, 3).await, b"one");
    let node = world.names.tree().find(ROOT, b"file").unwrap();
    let new = NewAttributes { mode: Some(0o600), ..NewAttributes::default() };
    done(&world.change(node, Change::Setattr(new)).await);
    storage.add_file("file", "ONE-TWO");
    storage.set_modified("file", 2_000_000_000);
    world.changes.release(handle);
    // While the permissions are being set.
    sleep(RTT / 2).await;
    let handle = world.open("file").await;
    sleep(10 * RTT).await;
    world.write(handle, 3, "+").await;
    // It may fail, since the version is gone.
    world.change(ROOT, Change::Flush(handle)).await;
    world.changes.release(handle);
    sleep(100 * RTT).await;
    assert_eq!(storage.content("file"), "ONE-TWO");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_appears_while_another_is_renamed_without_replacing_stays() {
    const NO_REPLACE: u32 = 1;
    let link = SimulatedLink::new(RTT, RATE);
    let storage = MemoryStorage::builder().with_capabilities(|can| can.rename = false);
    let storage = storage.with_link(link).build();
    storage.add_file("a", "new");
    let world = World::new(&storage);
    let (name, new_name) = (b"a".to_vec(), b"b".to_vec());
    let change = Change::Rename { name, parent: ROOT, new_name, flags: NO_REPLACE };
    let appear = async {
        // After the STAT, and before the rename.
        sleep(RTT * 3 / 2).await;
        storage.add_file("b", "other");
    };
    let (renamed, ()) = tokio::join!(world.change(ROOT, change), appear);
    assert_eq!(failed(&renamed), Errno::EXIST);
    assert_eq!((storage.content("a"), storage.content("b")), ("new".into(), "other".into()));
}

#[tokio::test]
async fn a_file_left_open_by_a_process_that_died_replaces_nothing() {
    let storage = MemoryStorage::new();
    storage.add_file("file", "complete");
    let world = World::new(&storage);
    let handle = world.open("file").await;
    world.write(handle, 0, "half").await;
    assert_eq!(world.read(handle, 0, 8).await, b"halflete");
    done(&world.change(ROOT, Change::Flush(handle)).await);
    // As if the machine had stopped before the content was complete.
    world.write(handle, 4, "-done").await;
    let path = world.listed().remove(0).spool_file;
    let left = std::fs::read(&path).unwrap();
    drop(world);
    let other = TempDir::new().unwrap();
    let spool = Spool::open(other.path(), "memory:").unwrap();
    drop(spool);
    let directory = std::fs::read_dir(other.path()).unwrap().next().unwrap().unwrap().path();
    std::fs::write(directory.join(path.file_name().unwrap()), left).unwrap();
    let world = World::with(&storage, other);
    world.uploaded().await;
    assert_eq!(storage.content("file"), "complete");
    assert_eq!(storage.paths().len(), 2);
    assert!(matches!(&lock(&world.warnings)[..], [Warning::LeftOpen { .. }]));
}
