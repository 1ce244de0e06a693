//! Files that programs open with `O_TRUNC` to rewrite them, also if the mount ends before they are closed.

use super::*;

const REWRITE: u32 = READ_WRITE | 0o1000;

/// Opens the file like a shell that runs a program with `>`, which closes the descriptor that it has duplicated.
async fn opened_by_a_shell(world: &World) -> u64 {
    let handle = world.open_with("file", REWRITE).await;
    done(&world.change(ROOT, Change::Flush(handle)).await);
    handle
}

/// Formerly, the next mount replaced the file by an empty one.
#[test]
fn a_file_that_was_about_to_be_rewritten_stays() {
    let storage = MemoryStorage::new();
    storage.add_file("file", "complete");
    let spools = killed(&storage, async |world| _ = opened_by_a_shell(world).await);
    assert_eq!(mounted_again(&storage, spools), []);
    assert_eq!(
        (storage.paths(), storage.content("file")),
        (vec!["file".into()], "complete".into())
    );
}

/// Formerly, the next mount replaced the file by an empty one.
#[test]
fn a_file_that_is_truncated_by_its_path_while_a_program_has_it_open_stays() {
    let storage = MemoryStorage::new();
    storage.add_file("file", "complete");
    let spools = killed(&storage, async |world| {
        world.open("file").await;
        let node = world.names.tree().find(ROOT, b"file").unwrap();
        let size = NewAttributes { size: Some(0), ..NewAttributes::default() };
        done(&world.change(node, Change::Setattr(size)).await);
    });
    assert_eq!(mounted_again(&storage, spools), []);
    assert_eq!(
        (storage.paths(), storage.content("file")),
        (vec!["file".into()], "complete".into())
    );
}

/// Formerly, the next mount replaced the file by the incomplete one.
#[test]
fn a_file_does_not_count_as_complete_because_one_of_several_descriptors_was_closed() {
    let storage = MemoryStorage::new();
    storage.add_file("file", "complete");
    let spools = killed(&storage, async |world| {
        let handle = opened_by_a_shell(world).await;
        world.write(handle, 0, "half").await;
        // A program that the shell has started ends, and the next one begins.
        done(&world.change(ROOT, Change::Flush(handle)).await);
        sleep(Duration::from_secs(1)).await;
    });
    let warnings = mounted_again(&storage, spools);
    let [Warning::LeftOpen { copy, .. }] = &warnings[..] else { panic!("{warnings:?}") };
    assert_eq!(
        (storage.content("file"), storage.content(copy.as_bytes())),
        ("complete".into(), "half".into())
    );
}

#[test]
fn a_file_that_was_just_closed_counts_as_complete() {
    let storage = MemoryStorage::new();
    storage.add_file("file", "old");
    let spools = killed(&storage, async |world| {
        let handle = world.open_with("file", REWRITE).await;
        world.write(handle, 0, "new").await;
        done(&world.change(ROOT, Change::Flush(handle)).await);
    });
    assert_eq!(mounted_again(&storage, spools), []);
    assert_eq!((storage.paths(), storage.content("file")), (vec!["file".into()], "new".into()));
}

#[tokio::test]
async fn a_file_that_is_emptied_is_uploaded_empty() {
    const READ_AND_TRUNCATE: u32 = 0o1000;
    let storage = MemoryStorage::new();
    for flags in [REWRITE, READ_AND_TRUNCATE] {
        storage.add_file("file", "content");
        let world = World::new(&storage);
        let reader = world.open_with("file", 0).await;
        let handle = world.open_with("file", flags).await;
        assert_eq!(world.read(reader, 0, 100).await, b"");
        world.close(handle).await;
        world.uploaded().await;
        assert_eq!(storage.content("file"), "");
        assert_eq!(storage.paths(), ["file"]);
    }
}

/// What is left of a file depends on whether a program still had it open when the file system was unmounted.
#[tokio::test]
async fn a_file_that_is_still_open_at_the_unmount_replaces_nothing() {
    for (all_closed, content) in [(false, ""), (false, "half"), (true, ""), (true, "half")] {
        let storage = MemoryStorage::new();
        storage.add_file("file", "complete");
        let world = World::new(&storage);
        let handle = opened_by_a_shell(&world).await;
        if !content.is_empty() {
            world.write(handle, 0, content).await;
        }
        let left = world.changes.drained(Duration::from_secs(1), all_closed).await;
        let expected = if all_closed { content } else { "complete" };
        assert_eq!(storage.content("file"), expected, "{all_closed} {content}");
        // What was written of an incomplete one is not lost.
        assert_eq!(left, usize::from(!all_closed && !content.is_empty()));
    }
}
