//! [`StorageExt`] over the storage: its methods rely on the kinds of errors.

use super::fixture::{Fixture, Outcome};
use crate::{ErrorKind, LinkKind, RelPath, StorageExt};

pub(super) async fn find_returns_none_for_a_missing_path(fixture: Fixture) -> Outcome {
    let path = fixture.put("file", b"content").await?;
    let found = fixture.storage.find(&path).await?;
    ensure_eq!(found.map(|entry| entry.size), Some(7), "the size of the entry found");
    for nothing in ["nothing", "nothing/below"] {
        let found = fixture.storage.find(&fixture.path(nothing)?).await?;
        ensure!(found.is_none(), "{nothing} is {found:?}");
    }
    Ok(())
}

pub(super) async fn missing_parent_directories_are_created(fixture: Fixture) -> Outcome {
    let path = fixture.path("a/b/c/d")?;
    ensure!(fixture.storage.create_dir_all(&path).await?, "the path counts as existing");
    ensure!(fixture.storage.stat(&path).await?.is_dir(), "the last one is not a directory");
    ensure!(!fixture.storage.create_dir_all(&path).await?, "the path counts as new again");
    ensure!(!fixture.storage.create_dir_all(&RelPath::root()).await?, "the root counts as new");
    Ok(())
}

pub(super) async fn a_file_in_the_way_of_directories_is_an_error(fixture: Fixture) -> Outcome {
    let file = fixture.put("file", b"content").await?;
    let result = fixture.storage.create_dir_all(&file).await;
    ensure_error!(result, ErrorKind::NotADirectory, "a file exists");
    let below = fixture.path("file/b/c")?;
    let result = fixture.storage.create_dir_all(&below).await;
    ensure_error!(result, ErrorKind::NotADirectory | ErrorKind::NotFound, "below a file");
    fixture.has(&file, b"content").await
}

pub(super) async fn a_sorted_listing_is_sorted(fixture: Fixture) -> Outcome {
    for name in ["b", "a", "aa", "B", "a b", "10", "9"] {
        fixture.put(name, b"").await?;
    }
    let names = fixture.all_names(&fixture.dir).await?;
    let expected = ["10", "9", "B", "a", "a b", "aa", "b"].map(|name| name.as_bytes().to_vec());
    ensure_eq!(names, expected.to_vec(), "the names");
    Ok(())
}

pub(super) async fn a_tree_is_removed_whole(fixture: Fixture) -> Outcome {
    let tree = fixture.make_dir("tree").await?;
    for dir in ["tree/a", "tree/a/b", "tree/a/b/c", "tree/empty"] {
        fixture.make_dir(dir).await?;
    }
    for file in ["tree/1", "tree/a/2", "tree/a/b/c/3"] {
        fixture.put(file, b"content").await?;
    }
    let spared = fixture.put("tree2", b"content").await?;
    fixture.storage.remove_all(&tree).await?;
    fixture.is_free(&tree).await?;
    fixture.storage.remove_all(&spared).await?;
    let nothing = fixture.storage.remove_all(&tree).await;
    ensure_error!(nothing, ErrorKind::NotFound, "it is gone already");
    Ok(())
}

pub(super) async fn removing_a_tree_spares_the_targets_of_links(fixture: Fixture) -> Outcome {
    let tree = fixture.make_dir("tree").await?;
    fixture.make_dir("outside").await?;
    let file = fixture.put("outside/file", b"content").await?;
    for (name, target) in [("to dir", "../outside"), ("to file", "../outside/file"), ("up", "..")] {
        let link = LinkKind::Symbolic(target.as_bytes().to_vec());
        fixture.storage.create_link(&tree.join(name)?, &link, false).await?;
    }
    fixture.storage.remove_all(&tree).await?;
    fixture.is_free(&tree).await?;
    fixture.has(&file, b"content").await
}
