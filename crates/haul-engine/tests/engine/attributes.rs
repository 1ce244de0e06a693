//! Mode, owner and extended attributes of existing files and directories at the destination.

use std::time::Duration;

use crate::support::{job, run};
use haul_engine::{Preserve, Settings};
use haul_storage::memory::{MemoryStorage, Operation};
use haul_storage::{ErrorKind, Metadata, RelPath, Xattrs};

fn all() -> Settings {
    let preserve = Preserve { owner: true, xattrs: true, ..Preserve::default() };
    Settings { preserve, retry_pause: Duration::from_millis(1), ..Settings::default() }
}

fn xattrs(list: &[(&str, &str)]) -> Option<Xattrs> {
    let pair = |(name, value): &(&str, &str)| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    Some(list.iter().map(pair).collect())
}

fn set(storage: &MemoryStorage, name: &str, mode: u32, owner: (u32, u32), list: &[(&str, &str)]) {
    let metadata = Metadata {
        mode: Some(mode),
        owner: Some(owner),
        xattrs: xattrs(list),
        modified: Some(haul_storage::Timestamp { seconds: 1_000_000_000, nanos: 0 }),
    };
    storage.set(name, &metadata);
}

#[tokio::test]
async fn a_rerun_gives_unchanged_files_and_directories_the_attributes_of_the_source() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    for storage in [&source, &destination] {
        storage.add_dir("d");
        storage.add_file("d/f", "x");
        storage.add_file("d/same", "x");
    }
    let new = [("user.a", "new"), ("user.b", "new")];
    let old = [("user.a", "old"), ("user.gone", "old")];
    for name in ["d", "d/f"] {
        set(&source, name, 0o755, (0, 0), &new);
        set(&destination, name, 0o700, (1, 2), &old);
    }
    set(&source, "d/same", 0o644, (0, 0), &new);
    set(&destination, "d/same", 0o644, (0, 0), &new);
    let outcome = run(job(&source, &destination), all()).await;
    outcome.assert_clean();
    assert_eq!(outcome.summary.unchanged, 2);
    for name in ["d", "d/f", "d/same"] {
        assert_eq!(destination.attributes(name).xattrs, xattrs(&new), "{name}");
    }
    for name in ["d", "d/f"] {
        let found = destination.attributes(name);
        assert_eq!((found.mode, found.owner), (Some(0o755), Some((0, 0))), "{name}");
    }
    // Attributes that are equal already are not set again.
    let same = RelPath::parse("d/same").unwrap();
    assert!(!destination.faults().calls().contains(&(Operation::SetMetadata, same)));
    // A source that does not support extended attributes changes none.
    let without = MemoryStorage::builder().with_capabilities(|can| can.xattrs = false).build();
    without.add_dir("d");
    without.add_file("d/f", "x");
    set(&without, "d/f", 0o755, (0, 0), &[]);
    run(job(&without, &destination), all()).await.assert_clean();
    assert_eq!(destination.attributes("d/f").xattrs, xattrs(&new));
}

#[tokio::test]
async fn attributes_stay_if_they_are_not_preserved_and_in_a_dry_run() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    for (storage, value) in [(&source, "new"), (&destination, "old")] {
        storage.add_file("f", "x");
        set(storage, "f", 0o644, (0, 0), &[("user.a", value)]);
    }
    let preserve = Preserve::default();
    for settings in [Settings { preserve, ..all() }, Settings { dry_run: true, ..all() }] {
        run(job(&source, &destination), settings).await.assert_clean();
        assert_eq!(destination.attributes("f").xattrs, xattrs(&[("user.a", "old")]));
    }
}

/// Formerly, the directory stayed writable without an error.
#[tokio::test]
async fn a_former_mode_that_cannot_be_restored_is_reported_also_if_attributes_are_set() {
    let (source, destination) = (MemoryStorage::new(), MemoryStorage::new());
    for storage in [&source, &destination] {
        storage.add_dir("d");
    }
    source.add_file("d/f", "x");
    set(&source, "d", 0o755, (0, 0), &[("user.a", "new")]);
    set(&destination, "d", 0o500, (0, 0), &[]);
    // The first call makes it writable.
    let calls = destination.faults().on(Operation::SetMetadata).path("d");
    calls.nth(2).fail(ErrorKind::PermissionDenied);
    let preserve = Preserve { mode: false, xattrs: true, ..Preserve::default() };
    let outcome = run(job(&source, &destination), Settings { preserve, ..all() }).await;
    assert_eq!(outcome.summary.failed, 1);
    let found = destination.attributes("d");
    assert_eq!((found.mode, found.xattrs), (Some(0o700), xattrs(&[("user.a", "new")])));
}
