//! Measuring, removing and comparing trees.

use haul_engine::Cancel;
use haul_engine::tree::{Measured, RemoveEvent, Side, Totals, measure, remove, remove_moved};
use haul_storage::memory::{MemoryStorage, Operation};
use haul_storage::{ErrorKind, RelPath, Storage, StorageExt as _};

fn path(text: &str) -> RelPath {
    RelPath::parse(text).unwrap()
}

#[tokio::test]
async fn a_directory_is_measured_with_everything_below_it() {
    let storage = MemoryStorage::new();
    for at in 0..300 {
        storage.add_file(format!("top/many/{at}"), "1");
    }
    storage.add_file("top/deep/er/still", "four");
    storage.add_file("beside", "not counted");
    let top = storage.stat(&path("top")).await.unwrap();
    let mut found = Vec::new();
    let cancel = Cancel::default();
    let clean = measure(&*storage, top, &cancel, |measured| {
        if let Measured::Entry { entry, depth, totals } = measured
            && entry.is_dir()
        {
            found.push((entry.path.to_string(), depth, totals));
        }
    });
    assert!(clean.await);
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let totals =
        |files, directories, bytes| Totals { files, directories, bytes, ..Totals::default() };
    assert_eq!(
        found,
        [
            ("top".to_owned(), 0, totals(301, 4, 304)),
            ("top/deep".to_owned(), 1, totals(1, 2, 4)),
            ("top/deep/er".to_owned(), 2, totals(1, 1, 4)),
            ("top/many".to_owned(), 1, totals(300, 1, 300)),
        ]
    );
}

#[tokio::test]
async fn what_cannot_be_removed_stays_with_its_directories_and_the_rest_goes() {
    let storage = MemoryStorage::new();
    for name in ["top/a", "top/b/c", "top/b/d", "top/e/f"] {
        storage.add_file(name, "12");
    }
    storage.faults().on(Operation::Remove).path("top/b/c").fail(ErrorKind::PermissionDenied);
    let top = storage.stat(&path("top")).await.unwrap();
    let mut failed = Vec::new();
    let cancel = Cancel::default();
    let removal = remove(&*storage, top, false, &cancel, |event| {
        if let RemoveEvent::Failed(error) = event {
            failed.push(error.location().to_owned());
        }
    });
    let removal = removal.await;
    assert_eq!((removal.removed.files, removal.removed.directories, removal.failed), (3, 1, 1));
    assert_eq!(failed.len(), 1);
    assert!(failed[0].ends_with("top/b/c"), "{failed:?}");
    assert!(storage.find(&path("top/b/c")).await.unwrap().is_some());
    assert!(storage.find(&path("top/b/d")).await.unwrap().is_none());
    assert!(storage.find(&path("top/e")).await.unwrap().is_none());
}

#[tokio::test]
async fn of_what_was_moved_only_that_goes_which_is_the_same_at_its_destination() {
    let (source, copy) = (MemoryStorage::new(), MemoryStorage::new());
    for (name, here, there) in [("same", "1", "1"), ("longer", "12", "1"), ("d/same", "2", "2")] {
        source.add_file(format!("top/{name}"), here);
        copy.add_file(format!("copy/{name}"), there);
        let metadata = source.metadata(&path(&format!("top/{name}"))).await.unwrap();
        copy.set_metadata(&path(&format!("copy/{name}")), &metadata).await.unwrap();
    }
    source.add_file("top/new", "added since");
    let mut stays = Vec::new();
    let (top, there, cancel) = (path("top"), path("copy"), Cancel::default());
    let clean = remove_moved(
        Side { storage: &*source, top: &top },
        Side { storage: &*copy, top: &there },
        &cancel,
        |error| stays.push(error.location().rsplit('/').next().unwrap().to_owned()),
    );
    assert!(!clean.await);
    stays.sort_unstable();
    assert_eq!(stays, ["longer", "new"]);
    let left = source.list_sorted(&path("top")).await.unwrap();
    let left: Vec<_> = left.iter().map(|entry| entry.path.to_string()).collect();
    assert_eq!(left, ["top/longer", "top/new"]);
}

/// The same place by another name: removing the source would remove its only copy.
#[tokio::test]
async fn what_is_its_own_copy_is_not_removed() {
    let storage = MemoryStorage::new();
    storage.add_file("top/a", "1");
    for name in ["top", "top/a"] {
        let (top, cancel, mut stays) = (path(name), Cancel::default(), Vec::new());
        let side = Side { storage: &*storage, top: &top };
        let report = |error: haul_storage::Error| stays.push(error.cause());
        assert!(!remove_moved(side, side, &cancel, report).await);
        assert_eq!(stays, ["it is its own copy, under another location"]);
    }
    assert_eq!(storage.paths(), ["top/", "top/a"]);
}
