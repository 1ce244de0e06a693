//! Uploads of which the outcome is not known, and what they leave on the server.

use haul_storage::StoredTimes;

use super::*;

/// Waits until an operation has reached the server.
async fn until(storage: &MemoryStorage, operation: Operation) {
    while storage.faults().count(operation) == 0 {
        sleep(Duration::from_millis(1)).await;
    }
}

/// Formerly, the upload of the next version found the one before, and took it for that of another program.
#[tokio::test(start_paused = true)]
async fn a_file_is_saved_again_after_the_response_to_its_upload_was_lost() {
    for (is_new, length) in [(true, 5), (false, 5), (true, 5 * MIB), (false, 5 * MIB)] {
        let storage = MemoryStorage::new();
        if !is_new {
            storage.add_file("file", "old");
        }
        let operation = if length < MIB { Operation::WriteWhole } else { Operation::Commit };
        storage.faults().on(operation).first(1).lose_response(ErrorKind::Unreachable);
        let world = World::new(&storage);
        world.write_file("file", vec![1; length]).await;
        until(&storage, operation).await;
        world.write_file("file", vec![2; length + 1]).await;
        world.uploaded().await;
        assert_eq!(storage.paths(), ["file"]);
        assert!(storage.content("file") == vec![2; length + 1]);
        assert!(lock(&world.warnings).is_empty());
    }
}

/// Formerly, this was a conflict, too.
#[test]
fn a_file_is_saved_again_after_the_mount_was_killed_during_its_upload() {
    for (is_new, length) in [(true, 5), (false, 5), (true, 5 * MIB), (false, 5 * MIB)] {
        let storage = behind_link();
        if !is_new {
            storage.add_file("file", "old");
        }
        let operation = if length < MIB { Operation::WriteWhole } else { Operation::Commit };
        storage.faults().on(operation).first(1).lose_response(ErrorKind::Unreachable);
        let spools = killed(&storage, async |world| {
            world.write_file("file", vec![1; length]).await;
            // Without the response, the mount knows as much as if it was killed before that arrives.
            while !storage.exists("file") || storage.content("file") != vec![1; length] {
                sleep(Duration::from_millis(1)).await;
            }
        });
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let world = World::with(&storage, spools);
            storage.faults().on_any().fail(ErrorKind::Unreachable);
            world.write_file("file", vec![2; length + 1]).await;
            storage.faults().clear();
            world.uploaded().await;
            assert_eq!(storage.paths(), ["file"]);
            assert!(storage.content("file") == vec![2; length + 1]);
            assert!(lock(&world.warnings).is_empty());
        });
    }
}

/// Formerly, the version of another program counted as the upload from here, whose content was lost.
#[tokio::test(start_paused = true)]
async fn a_version_of_the_same_size_and_second_is_compared() {
    let seconds = StoredTimes::seconds(0, 1 << 32);
    for (length, is_same) in [(20 * MIB, false), (20 * MIB, true), (100, false)] {
        let storage = MemoryStorage::builder();
        let storage = storage.with_capabilities(|can| can.stored_times = seconds).build();
        let world = World::new(&storage);
        let handle = world.create("file").await;
        let ours: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let mut theirs = ours.clone();
        theirs[length - 1] ^= u8::from(!is_same);
        world.write(handle, 0, &ours).await;
        let modified = Some(NewTime::At(Timestamp { seconds: 1_000_000, nanos: 0 }));
        let time = NewAttributes { modified, handle: Some(handle), ..NewAttributes::default() };
        let node = world.names.tree().find(ROOT, b"file").unwrap();
        done(&world.change(node, Change::Setattr(time)).await);
        // The first attempt fails, so that the next one may find its own version.
        let faults = storage.faults();
        faults.on(Operation::WriteWhole).first(1).fail(ErrorKind::Unreachable);
        faults.on(Operation::Commit).first(1).fail(ErrorKind::Unreachable);
        world.close(handle).await;
        until(&storage, if length < MIB { Operation::WriteWhole } else { Operation::Commit }).await;
        storage.add_file("file", &theirs);
        storage.set_modified("file", 1_000_000);
        world.uploaded().await;
        assert!(storage.content("file") == theirs);
        let files = storage.files();
        assert_eq!(files.len(), 1 + usize::from(!is_same));
        assert!(files.values().any(|content| *content == ours));
        assert!(!storage.has_part("file"));
    }
}

/// The spools of a mount that was killed while it uploaded a file.
fn killed_during_an_upload(storage: &Arc<MemoryStorage>) -> TempDir {
    let spools = killed(storage, async |world| {
        world.write_file("file", vec![7; 64 * MIB]).await;
        while storage.part_bytes("file") < 16 << 20 {
            sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(storage.has_part("file") && !storage.exists("file"));
    spools
}

fn with_records() -> Arc<MemoryStorage> {
    MemoryStorage::builder().with_link(SimulatedLink::new(RTT, RATE)).with_records().build()
}

#[test]
fn the_next_mount_continues_an_upload() {
    let storage = with_records();
    let spools = killed_during_an_upload(&storage);
    let before = storage.faults().count(Operation::Write);
    mounted_again(&storage, spools);
    assert!(storage.content("file") == vec![7; 64 * MIB]);
    assert!(!storage.has_part("file"));
    let written = storage.faults().count(Operation::Write) - before;
    assert!(written < 64, "{written} writes");
}

/// Formerly, the part file stayed on servers that store a short file without one.
#[test]
fn a_short_version_of_a_file_removes_the_part_file_of_a_long_one() {
    let storage = with_records();
    let spools = killed_during_an_upload(&storage);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        storage.faults().reset_count();
        storage.faults().on(Operation::Create).first(1).fail(ErrorKind::Unreachable);
        let world = World::with(&storage, spools);
        until(&storage, Operation::Create).await;
        let handle = world.open_with("file", READ_WRITE | 0o1000).await;
        world.write(handle, 0, "short").await;
        world.close(handle).await;
        world.uploaded().await;
    });
    assert_eq!(storage.content("file"), "short");
    assert!(!storage.has_part("file"));
}

/// Formerly, the part file stayed on the server.
#[test]
fn the_next_mount_removes_the_part_file_of_an_upload_that_is_not_continued() {
    for change in [Change::Unlink(b"file".to_vec()), rename("file", "other")] {
        let storage = with_records();
        let spools = killed_during_an_upload(&storage);
        storage.faults().reset_count();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            storage.faults().on(Operation::Create).first(1).fail(ErrorKind::Unreachable);
            let world = World::with(&storage, spools);
            until(&storage, Operation::Create).await;
            done(&world.change(ROOT, change.clone()).await);
            world.uploaded().await;
            sleep(Duration::from_secs(10)).await;
        });
        assert!(!storage.has_part("file"), "{change:?}");
        assert!(!storage.has_part("other"), "{change:?}");
    }
}

/// Formerly, nothing followed the longest pause.
#[test]
fn a_part_file_is_removed_after_the_longest_pause_too() {
    let storage = with_records();
    let spools = killed_during_an_upload(&storage);
    storage.faults().reset_count();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        storage.faults().on(Operation::Create).fail(ErrorKind::Unreachable);
        let world = World::with(&storage, spools);
        until(&storage, Operation::Create).await;
        done(&world.change(ROOT, Change::Unlink(b"file".to_vec())).await);
        // All but the longest pause are over after 320 s, and that one takes 900 s.
        sleep(Duration::from_secs(600)).await;
        assert!(storage.has_part("file"));
        storage.faults().clear();
        sleep(Duration::from_secs(700)).await;
    });
    assert!(!storage.has_part("file"));
}

/// Formerly, the part file was left to the file that had taken its path, and that did not know it.
#[test]
fn a_short_file_that_takes_the_path_of_a_long_one_leaves_no_part_file() {
    for is_rename in [false, true] {
        let storage = with_records();
        let spools = killed_during_an_upload(&storage);
        storage.add_file("stored", "old");
        storage.faults().reset_count();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            // The part file cannot be removed before the short file has its path.
            storage.faults().on(Operation::Create).fail(ErrorKind::Unreachable);
            let world = World::with(&storage, spools);
            until(&storage, Operation::Create).await;
            let handle = match is_rename {
                true => {
                    let handle = world.open_with("stored", READ_WRITE | 0o1000).await;
                    done(&world.change(ROOT, rename("stored", "file")).await);
                    handle
                }
                false => {
                    done(&world.change(ROOT, rename("file", "other")).await);
                    world.create("file").await
                }
            };
            storage.faults().clear();
            sleep(Duration::from_secs(60)).await;
            assert_eq!(storage.exists("other"), !is_rename);
            world.write(handle, 0, "short").await;
            world.close(handle).await;
            world.uploaded().await;
            sleep(Duration::from_secs(10)).await;
        });
        assert_eq!(storage.content("file"), "short");
        assert!(!storage.has_part("file") && !storage.has_part("other"), "{is_rename}");
    }
}
