//! Conflict copies: programs that go on with a file that became one, and files that cannot be uploaded, because parts
//! of them that were not written here are gone from the server.

use super::*;

const REWRITE: u32 = READ_WRITE | 0o1000;

/// Formerly, programs that had it open saw the attributes of the version on the server.
#[tokio::test]
async fn a_program_goes_on_with_the_conflict_copy() {
    let storage = MemoryStorage::new();
    storage.add_file("plan.odt", "old");
    let world = World::new(&storage);
    let handle = world.open_with("plan.odt", REWRITE).await;
    let node = world.names.tree().find(ROOT, b"plan.odt").unwrap();
    world.write(handle, 0, "from here").await;
    storage.add_file("plan.odt", "from there, and longer");
    done(&world.change(ROOT, Change::Fsync(handle)).await);
    let Warning::Conflict { copy, .. } = lock(&world.warnings)[0].clone() else { panic!() };
    assert_eq!(storage.content(copy.as_bytes()), "from here");
    assert_eq!(world.names.path(node), Ok(copy.clone()));
    // It saves once more.
    world.write(handle, 9, "!").await;
    done(&world.change(ROOT, Change::Fsync(handle)).await);
    assert_eq!(storage.content(copy.as_bytes()), "from here!");
    // Another program opens the version on the server, under another node.
    let other = world.open("plan.odt").await;
    assert_ne!(world.names.tree().find(ROOT, b"plan.odt"), Some(node));
    assert_eq!(world.read(other, 0, 100).await, b"from there, and longer");
    world.write(other, 0, "FROM").await;
    world.close(other).await;
    world.write(handle, 0, "FROM").await;
    world.close(handle).await;
    world.uploaded().await;
    assert_eq!(storage.content("plan.odt"), "FROM there, and longer");
    assert_eq!(storage.content(copy.as_bytes()), "FROM here!");
    assert_eq!((storage.paths().len(), lock(&world.warnings).len()), (2, 1));
}

/// Formerly, it was printed before the copy was stored, or, if the spool could not be written then, never.
#[tokio::test(start_paused = true)]
async fn the_name_of_a_conflict_copy_is_reported_once_it_is_stored() {
    let storage = MemoryStorage::new();
    storage.add_file("plan.odt", "old");
    let world = World::new(&storage);
    let handle = world.open_with("plan.odt", REWRITE).await;
    world.write(handle, 0, "from here").await;
    storage.add_file("plan.odt", "from there");
    // Another program takes the name of the copy.
    storage.faults().on(Operation::WriteWhole).first(1).fail(ErrorKind::AlreadyExists);
    world.close(handle).await;
    world.uploaded().await;
    let warnings = lock(&world.warnings).clone();
    let [Warning::Conflict { path, copy }] = &warnings[..] else { panic!("{warnings:?}") };
    assert_eq!(path.to_string(), "plan.odt");
    assert_eq!(storage.content(copy.as_bytes()), "from here");
    assert_eq!(copy.to_string().matches("conflict").count(), 1);
}

/// Formerly, the version on the server could no longer be read, and programs had no way to resolve this.
#[tokio::test(start_paused = true)]
async fn a_file_with_a_rest_that_is_gone_makes_room_for_the_version_on_the_server() {
    for by_reading in [true, false] {
        let storage = MemoryStorage::new();
        storage.add_file("file", vec![7; 2 * MIB]);
        let world = World::new(&storage);
        storage.faults().on(Operation::Open).fail(ErrorKind::PermissionDenied);
        let handle = world.open("file").await;
        world.write(handle, 0, "new").await;
        storage.add_file("file", "other");
        storage.faults().clear();
        if by_reading {
            let rest = Range::new(MIB as u64, 10);
            assert_eq!(failed(&world.changes.read(handle, rest).await), Errno::STALE);
            // It is durable in the spool, and the program learns that it will not be stored.
            done(&world.change(ROOT, Change::Flush(handle)).await);
            assert_eq!(failed(&world.change(ROOT, Change::Fsync(handle)).await), Errno::STALE);
            world.changes.release(handle);
        } else {
            world.close(handle).await;
        }
        sleep(Duration::from_secs(10)).await;
        let warnings = lock(&world.warnings).clone();
        let [Warning::Incomplete { path, copy }] = &warnings[..] else { panic!("{warnings:?}") };
        assert_eq!(path.to_string(), "file");
        // The version on the server can be read and written.
        let theirs = world.open("file").await;
        assert_eq!(world.read(theirs, 0, 100).await, b"other");
        world.write(theirs, 5, "!").await;
        world.close(theirs).await;
        sleep(Duration::from_secs(10)).await;
        assert_eq!(
            (storage.paths(), storage.content("file")),
            (vec!["file".into()], "other!".into())
        );
        // What was written here is in the spool, also for the next mount.
        let listed = world.listed();
        assert_eq!((listed.len(), &listed[0].path), (1, copy));
        assert!(listed[0].failure.as_deref().unwrap().contains("changed on the server"));
        let copy = copy.clone();
        let World { spools, changes, .. } = world;
        assert_eq!(changes.drained(Duration::from_secs(60), true).await, 1);
        drop(changes);
        // The tasks of the mount end.
        sleep(Duration::from_secs(100)).await;
        let world = World::with(&storage, spools);
        let kept = world.open(&copy.to_string()).await;
        assert_eq!(world.read(kept, 0, 3).await, b"new");
        let rest = Range::new(MIB as u64, 10);
        assert_eq!(failed(&world.changes.read(kept, rest).await), Errno::STALE);
        // It is stored once a program has written the rest, or gone once it is removed.
        if by_reading {
            world.write(kept, 3, vec![8; 2 * MIB - 3]).await;
            world.close(kept).await;
            world.uploaded().await;
            assert_eq!(storage.content(copy.as_bytes())[..4], *b"new\x08");
        } else {
            world.changes.release(kept);
            done(&world.change(ROOT, Change::Unlink(copy.name().to_vec())).await);
            world.uploaded().await;
            assert_eq!(storage.paths(), ["file"]);
        }
        assert_eq!(world.listed(), []);
    }
}
