//! `remove_source`: which files are removed from the source, and which stay.

use std::sync::Arc;
use std::time::Duration;

use haul_engine::{Cancel, Event, EventSink, Overwrite, Settings, transfer};
use haul_storage::memory::{MemoryStorage, Operation};
use haul_storage::{ErrorKind, Metadata, Storage as _};

use crate::support::{job, path, run};

fn moving() -> Settings {
    let retry_pause = Duration::from_millis(1);
    Settings { remove_source: true, retries: 0, retry_pause, ..Settings::default() }
}

/// Sets the modification time of a destination file to that of the source file.
async fn same_time(source: &MemoryStorage, destination: &MemoryStorage, name: &str) {
    let modified = source.stat(&path(name)).await.unwrap().modified;
    let metadata = Metadata { modified, ..Metadata::default() };
    destination.set_metadata(&path(name), &metadata).await.unwrap();
}

/// The size of a file that is transferred whole, and of two that are transferred by ranges.
const SIZES: [u64; 3] = [5, 300 << 10, 5 << 20];

#[tokio::test]
async fn files_are_removed_once_they_are_copied() {
    for verify in [false, true] {
        let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
        for size in SIZES {
            source.add_pattern_file(format!("d/{size}"), size, size);
        }
        source.add_symlink("d/link", "elsewhere");
        let outcome = run(job(&source, &destination), Settings { verify, ..moving() }).await;
        outcome.assert_clean();
        assert_eq!(source.paths(), ["d/"]);
        for size in SIZES {
            assert!(destination.is_pattern(format!("d/{size}"), size, size));
        }
    }
}

#[tokio::test]
async fn a_file_that_changed_after_it_was_copied_stays() {
    for size in SIZES {
        let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
        source.add_pattern_file("f", size, 1);
        // The transfer waits for the sink, so the source changes before it would be removed.
        let changes = Arc::clone(&source);
        let failures = Arc::new(std::sync::Mutex::new(Vec::new()));
        let reported = Arc::clone(&failures);
        let sink = EventSink::new(move |event| match event {
            Event::File(_) => changes.add_file("f", "newer"),
            Event::Failed(error) => reported.lock().unwrap().push(error),
            _ => {}
        });
        let jobs = vec![job(&source, &destination)];
        let summary = transfer(jobs, moving(), sink, Cancel::default()).await;
        assert_eq!((summary.files, summary.failed), (1, 1));
        assert_eq!(source.paths(), ["f"]);
        assert!(destination.is_pattern("f", size, 1));
        let failures = failures.lock().unwrap();
        assert_eq!(failures[0].kind(), ErrorKind::Changed);
        assert!(failures[0].cause().contains("it changed after it was copied"), "{}", failures[0]);
    }
}

/// Source and destination are the same file, so the copy disappears when the source is renamed.
#[tokio::test]
async fn a_file_that_is_its_own_copy_gets_its_name_back() {
    for size in SIZES {
        let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
        source.add_pattern_file("f", size, 1);
        // The first stat checks for an existing file; the second one looks for the copy.
        destination.faults().on(Operation::Stat).path("f").nth(2).fail(ErrorKind::NotFound);
        let outcome = run(job(&source, &destination), moving()).await;
        let cause = outcome.failures()[0].cause();
        assert_eq!(cause, "source and destination are the same file; the source stays");
        assert!(source.is_pattern("f", size, 1));
        assert_eq!(source.paths(), ["f"]);
    }
}

#[tokio::test]
async fn a_source_left_under_a_temporary_name_is_reported_with_that_name() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    source.add_file("f", "f");
    destination.faults().on(Operation::Stat).path("f").nth(2).fail(ErrorKind::NotFound);
    source.faults().on(Operation::Rename).nth(2).fail(ErrorKind::PermissionDenied);
    let outcome = run(job(&source, &destination), moving()).await;
    let cause = outcome.failures()[0].cause();
    let left = source.paths();
    assert!(left.len() == 1 && left[0].ends_with(".haul-moving"), "{left:?}");
    assert!(cause.contains(&left[0]), "{cause}");
}

#[tokio::test]
async fn a_skipped_file_stays_at_the_source() {
    for overwrite in [Overwrite::Never, Overwrite::Newer] {
        let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
        source.add_file("f", "ours");
        destination.add_file("f", "theirs");
        same_time(&source, &destination, "f").await;
        let outcome = run(job(&source, &destination), Settings { overwrite, ..moving() }).await;
        assert!(outcome.failures().is_empty());
        assert_eq!(outcome.summary.skipped, 1, "{overwrite:?}");
        assert_eq!(source.paths(), ["f"]);
    }
}

/// Equal size and time do not prove equal content.
#[tokio::test]
async fn an_existing_copy_is_compared_before_its_source_is_removed() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    for name in ["same", "other"] {
        source.add_file(name, "12345");
        destination.add_file(name, if name == "same" { "12345" } else { "54321" });
        same_time(&source, &destination, name).await;
    }
    let outcome = run(job(&source, &destination), moving()).await;
    outcome.assert_clean();
    assert_eq!((outcome.summary.unchanged, outcome.summary.replaced), (1, 1));
    assert!(source.paths().is_empty());
    assert_eq!(destination.content("other"), "12345");
}

#[tokio::test]
async fn a_source_that_cannot_be_removed_gets_its_name_back() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    source.add_file("f", "f");
    source.faults().on(Operation::Remove).fail(ErrorKind::PermissionDenied);
    let outcome = run(job(&source, &destination), moving()).await;
    assert_eq!(outcome.failures()[0].kind(), ErrorKind::PermissionDenied);
    assert_eq!(source.paths(), ["f"]);
}
