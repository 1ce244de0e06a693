//! Files that are open when the mount ends.

use super::*;

/// Formerly, such a file had no record unless it had been flushed, and the next mount removed it.
#[tokio::test]
async fn a_file_that_is_open_at_the_unmount_stays_for_the_next_mount() {
    let storage = MemoryStorage::new();
    let world = World::new(&storage);
    let handle = world.create("new").await;
    world.write(handle, 0, "content").await;
    assert_eq!(world.changes.drained(Duration::from_millis(10), false).await, 1);
    let listed = world.listed();
    assert_eq!((listed.len(), listed[0].path.to_string()), (1, "new".to_owned()));
}

/// Formerly, such a file had no record unless its rest could be fetched, and the next mount removed it.
#[test]
fn a_file_with_thousands_of_changes_is_durable_before_its_rest_is_fetched() {
    const CHANGES: usize = 3000;
    const STEP: usize = 8192;
    // The tasks of the mount end with its runtime, as with the process of a mount.
    let runtime = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().start_paused(true).build().unwrap()
    };
    for closes in [true, false] {
        let storage = behind_link();
        let mut expected = vec![7; CHANGES * STEP];
        storage.add_file("file", &expected);
        let spools = runtime().block_on(async {
            let world = World::new(&storage);
            let handle = world.open("file").await;
            storage.faults().on_any().fail(ErrorKind::Unreachable);
            for at in (0..expected.len()).step_by(STEP) {
                world.write(handle, at as u64, "N").await;
                expected[at] = b'N';
            }
            if closes {
                world.close(handle).await;
            }
            assert_eq!(world.changes.drained(Duration::ZERO, false).await, 1);
            world.spools
        });
        storage.faults().clear();
        runtime().block_on(async {
            let world = World::with(&storage, spools);
            world.uploaded().await;
            let mut paths = storage.paths().into_iter();
            let path = paths.find(|path| closes || path != "file").unwrap();
            assert!(storage.content(&path) == expected, "{path}");
            let spool = std::fs::read_dir(world.spools.path()).unwrap().next().unwrap().unwrap();
            let files = std::fs::read_dir(spool.path()).unwrap().count();
            assert_eq!(files, 2, "more than the lock and the location");
        });
    }
}

/// Formerly, its incomplete content replaced the version on the server.
#[tokio::test]
async fn a_file_that_changes_after_a_flush_is_not_uploaded_at_the_unmount() {
    let storage = MemoryStorage::new();
    storage.add_file("file", "complete");
    let world = World::new(&storage);
    let handle = world.open("file").await;
    world.write(handle, 0, "half").await;
    done(&world.change(ROOT, Change::Flush(handle)).await);
    world.write(handle, 4, "-done").await;
    assert_eq!(world.changes.drained(Duration::from_millis(10), false).await, 1);
    assert_eq!(storage.content("file"), "complete");
    assert_eq!(world.listed().len(), 1);
    assert!(!world.changes.spool.recover().unwrap().remove(0).1.closed);
}

/// Formerly, the next mount made a conflict copy of it.
#[tokio::test]
async fn an_open_file_without_changes_leaves_the_spool_at_the_unmount() {
    let storage = MemoryStorage::new();
    storage.add_file("file", "content");
    let world = World::new(&storage);
    world.open("file").await;
    assert_eq!(world.changes.drained(Duration::from_millis(10), false).await, 0);
    assert_eq!(world.listed(), []);
}
