//! [`StorageExt`] over this storage: it relies on the kinds of errors.

use super::ground::{Ground, Outcome};
use crate::{ErrorKind, LinkKind, RelPath, StorageExt};

pub(super) async fn find_says_none_for_nothing(ground: Ground) -> Outcome {
    let path = ground.put("file", b"content").await?;
    let found = ground.storage.find(&path).await?;
    ensure_eq!(found.map(|entry| entry.size), Some(7), "the size of what is found");
    for nothing in ["nothing", "nothing/below"] {
        let found = ground.storage.find(&ground.path(nothing)?).await?;
        ensure!(found.is_none(), "{nothing} is {found:?}");
    }
    Ok(())
}

pub(super) async fn directories_are_made_all_the_way(ground: Ground) -> Outcome {
    let path = ground.path("a/b/c/d")?;
    ensure!(ground.storage.create_dir_all(&path).await?, "it says that nothing was made");
    ensure!(ground.storage.stat(&path).await?.is_dir(), "the last one is not there");
    ensure!(!ground.storage.create_dir_all(&path).await?, "it says that all was made again");
    ensure!(!ground.storage.create_dir_all(&RelPath::root()).await?, "the root was made");
    Ok(())
}

pub(super) async fn a_file_in_the_way_of_directories_is_an_error(ground: Ground) -> Outcome {
    let file = ground.put("file", b"content").await?;
    let result = ground.storage.create_dir_all(&file).await;
    ensure_error!(result, ErrorKind::NotADirectory, "a file is there");
    let below = ground.path("file/b/c")?;
    let result = ground.storage.create_dir_all(&below).await;
    ensure_error!(result, ErrorKind::NotADirectory | ErrorKind::NotFound, "below a file");
    ground.has(&file, b"content").await
}

pub(super) async fn a_sorted_listing_is_sorted(ground: Ground) -> Outcome {
    for name in ["b", "a", "aa", "B", "a b", "10", "9"] {
        ground.put(name, b"").await?;
    }
    let names = ground.all_names(&ground.dir).await?;
    let expected = ["10", "9", "B", "a", "a b", "aa", "b"].map(|name| name.as_bytes().to_vec());
    ensure_eq!(names, expected.to_vec(), "the names");
    Ok(())
}

pub(super) async fn a_tree_is_removed_whole(ground: Ground) -> Outcome {
    let tree = ground.make_dir("tree").await?;
    for dir in ["tree/a", "tree/a/b", "tree/a/b/c", "tree/empty"] {
        ground.make_dir(dir).await?;
    }
    for file in ["tree/1", "tree/a/2", "tree/a/b/c/3"] {
        ground.put(file, b"content").await?;
    }
    let spared = ground.put("tree2", b"content").await?;
    ground.storage.remove_all(&tree).await?;
    ground.is_free(&tree).await?;
    ground.storage.remove_all(&spared).await?;
    let nothing = ground.storage.remove_all(&tree).await;
    ensure_error!(nothing, ErrorKind::NotFound, "it is gone already");
    Ok(())
}

pub(super) async fn removing_a_tree_spares_what_links_point_to(ground: Ground) -> Outcome {
    let tree = ground.make_dir("tree").await?;
    ground.make_dir("outside").await?;
    let file = ground.put("outside/file", b"content").await?;
    for (name, target) in [("to dir", "../outside"), ("to file", "../outside/file"), ("up", "..")] {
        let link = LinkKind::Symbolic(target.as_bytes().to_vec());
        ground.storage.create_link(&tree.join(name)?, &link, false).await?;
    }
    ground.storage.remove_all(&tree).await?;
    ground.is_free(&tree).await?;
    ground.has(&file, b"content").await
}
