//! Operations on trees: measuring, removing, and detecting that two paths are one directory.

use haul_engine::Cancel;
use haul_engine::tree::{
    Counted, Marker, Measured, RemoveEvent, Totals, measure, remove, remove_emptied,
};
use haul_storage::memory::{MemoryStorage, Operation};
use haul_storage::{ErrorKind, LinkKind, RelPath, Storage, StorageExt as _};

fn path(text: &str) -> RelPath {
    RelPath::parse(text).unwrap()
}

#[tokio::test]
async fn totals_of_a_directory_include_everything_below_it() {
    let storage = MemoryStorage::new();
    for at in 0..300 {
        storage.add_file(format!("top/many/{at}"), "1");
    }
    storage.add_file("top/deep/er/still", "four");
    storage.add_file("beside", "not counted");
    let top = storage.stat(&path("top")).await.unwrap();
    let mut found = Vec::new();
    let cancel = Cancel::default();
    let counted = Counted::default();
    let clean = measure(&*storage, top, &counted, &cancel, |measured| {
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
async fn a_file_that_cannot_be_removed_stays_and_the_rest_is_removed() {
    let storage = MemoryStorage::new();
    for name in ["top/a", "top/b/c", "top/b/d", "top/e/f"] {
        storage.add_file(name, "12");
    }
    storage.faults().on(Operation::Remove).path("top/b/c").fail(ErrorKind::PermissionDenied);
    let top = storage.stat(&path("top")).await.unwrap();
    let mut failed = Vec::new();
    let cancel = Cancel::default();
    let counted = Counted::default();
    let removal = remove(&*storage, top, &counted, false, &cancel, |event| {
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

/// The listing leaves out as many entries as are removed while it runs.
#[tokio::test]
async fn a_directory_is_removed_although_its_listings_leave_entries_out() {
    let storage = MemoryStorage::builder().listing_by_position().build();
    (0..3000).for_each(|at| storage.add_file(format!("top/{at}"), "1"));
    let top = storage.stat(&path("top")).await.unwrap();
    let (cancel, counted) = (Cancel::default(), Counted::default());
    let removal = remove(&*storage, top, &counted, false, &cancel, |_| {}).await;
    assert_eq!((removal.removed.files, removal.removed.directories, removal.failed), (3000, 1, 0));
    assert!(storage.paths().is_empty());
}

/// Formerly, they counted once for each name.
#[tokio::test]
async fn bytes_of_a_removed_file_with_several_names_count_once() {
    for dry_run in [true, false] {
        let storage = MemoryStorage::new();
        storage.add_file("top/a/x", "1234");
        for name in ["top/a/y", "top/b/z"] {
            storage.create_dir_all(&path("top/b")).await.unwrap();
            let link = LinkKind::Hard(path("top/a/x"));
            storage.create_link(&path(name), &link, false).await.unwrap();
        }
        let (counted, mut removed) = (Counted::default(), Totals::default());
        for name in ["top/a", "top/b"] {
            let entry = storage.stat(&path(name)).await.unwrap();
            let cancel = Cancel::default();
            removed += remove(&*storage, entry, &counted, dry_run, &cancel, |_| ()).await.removed;
        }
        assert_eq!((removed.files, removed.bytes), (3, 4), "{dry_run}");
    }
}

#[tokio::test]
async fn directories_without_files_are_removed() {
    let storage = MemoryStorage::new();
    storage.add_file("top/a/b/left", "1");
    storage.create_dir_all(&path("top/a/c/d")).await.unwrap();
    let top = storage.stat(&path("top")).await.unwrap();
    let report = |error: haul_storage::Error| panic!("{error}");
    let left = remove_emptied(&*storage, top, &Cancel::default(), report).await;
    assert_eq!(left.entries, 1);
    assert_eq!(left.example.unwrap().path, path("top/a/b/left"));
    assert_eq!(storage.paths(), ["top/", "top/a/", "top/a/b/", "top/a/b/left"]);
    storage.remove(&path("top/a/b/left")).await.unwrap();
    let top = storage.stat(&path("top")).await.unwrap();
    let left = remove_emptied(&*storage, top, &Cancel::default(), report).await;
    assert_eq!((left.entries, storage.paths().len()), (0, 0));
}

#[tokio::test]
async fn a_marker_shows_that_two_paths_are_one_directory() {
    let (storage, other) = (MemoryStorage::new(), MemoryStorage::new());
    storage.add_file("d/x", "1");
    other.add_file("d/x", "1");
    let before = storage.stat(&path("d")).await.unwrap().modified;
    let directory = path("d");
    let marker = Marker::set(&*storage, &directory).await.unwrap();
    assert!(marker.is_listed().await.unwrap());
    assert!(marker.is_in(&*storage, &path("d")).await.unwrap());
    assert!(!marker.is_in(&*other, &path("d")).await.unwrap());
    assert!(!marker.is_in(&*other, &path("none")).await.unwrap());
    marker.remove().await.unwrap();
    assert_eq!(storage.paths(), ["d/", "d/x"]);
    assert_eq!(storage.stat(&path("d")).await.unwrap().modified, before);
}

#[tokio::test]
async fn a_marker_is_an_empty_file_and_may_be_gone_when_it_is_removed() {
    let (storage, other) = (MemoryStorage::new(), MemoryStorage::new());
    storage.add_file("d/x", "1");
    let directory = path("d");
    let marker = Marker::set(&*storage, &directory).await.unwrap();
    let name = std::str::from_utf8(marker.name()).unwrap();
    other.add_file(format!("d/{name}"), "a page");
    assert!(!marker.is_in(&*other, &path("d")).await.unwrap());
    storage.remove(&path(&format!("d/{name}"))).await.unwrap();
    marker.remove().await.unwrap();
}
