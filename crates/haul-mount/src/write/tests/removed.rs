//! Files that are removed, here or on the server, while programs or uploads still need them.

use super::*;

/// What the server has in the file `file`.
fn old() -> Vec<u8> {
    (0..32 * MIB).map(|at| (at % 251) as u8).collect()
}

/// Formerly, reading the rest failed with ENOENT.
#[tokio::test(start_paused = true)]
async fn the_rest_of_a_removed_file_can_be_read_by_programs_that_have_it_open() {
    let over = rename("other", "file");
    for (change, is_new) in
        [(Change::Unlink(b"file".to_vec()), false), (over.clone(), false), (over, true)]
    {
        let (storage, mut expected) = (behind_link(), old());
        storage.add_file("file", &expected);
        let world = World::new(&storage);
        if is_new {
            world.create("other").await;
        } else {
            storage.add_file("other", "other");
        }
        let writer = world.open("file").await;
        let node = world.names.tree().refer(ROOT, b"file").unwrap();
        let reader = world.changes.open(node, 0).await.unwrap().file().unwrap();
        world.write(writer, 5, "NEW").await;
        expected[5..8].copy_from_slice(b"NEW");
        done(&world.change(ROOT, change.clone()).await);
        world.changes.release(writer);
        let at = 20 * MIB;
        let read = world.read(reader, at as u64, 100).await;
        assert!(read == expected[at..at + 100], "{change:?}");
        assert_eq!(world.read(reader, 0, 100).await, expected[..100]);
        world.changes.release(reader);
        sleep(RTT * 10).await;
        assert_eq!(world.changes.files.status().files.len(), 0, "{change:?}");
    }
}

/// Formerly, all of it was fetched.
#[tokio::test(start_paused = true)]
async fn the_rest_of_a_removed_file_is_fetched_only_if_it_is_read() {
    let storage = behind_link();
    storage.add_file("file", old());
    let world = World::new(&storage);
    let handle = world.open("file").await;
    world.write(handle, 5, "NEW").await;
    done(&world.change(ROOT, Change::Unlink(b"file".to_vec())).await);
    // Longer than it takes to fetch it.
    sleep(Duration::from_secs(60)).await;
    let kept = world.changes.handles.get(handle).unwrap().local.unwrap();
    let left: u64 = kept.missing(Range::new(0, u64::MAX)).into_iter().map(Range::len).sum();
    assert!(left > 16 << 20, "{left} bytes are left");
    assert_eq!(world.read(handle, 8, 4).await, old()[8..12]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_respond_does_not_keep_a_file_from_being_renamed_in_the_spool() {
    let storage = behind_link();
    storage.add_file("file", old());
    let world = World::new(&storage);
    let handle = world.open("file").await;
    world.create("new").await;
    world.write(handle, 5, "NEW").await;
    storage.faults().on_any().stall();
    let start = Instant::now();
    done(&world.change(ROOT, rename("new", "file")).await);
    assert!(start.elapsed() <= Duration::from_secs(3), "{:?}", start.elapsed());
}

/// Formerly, what was written during the upload was not uploaded before the next mount.
#[tokio::test(start_paused = true)]
async fn a_file_that_was_changed_during_its_upload_and_then_removed_on_the_server_is_uploaded() {
    let storage = behind_link();
    let world = World::new(&storage);
    world.write_file("file", "first").await;
    while storage.faults().count(Operation::WriteWhole) == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    let handle = world.open("file").await;
    world.write(handle, 0, "second").await;
    world.close(handle).await;
    while storage.paths().is_empty() {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(storage.content("file"), "first");
    storage.take_away("file");
    world.uploaded().await;
    assert_eq!(storage.content("file"), "second");
}
