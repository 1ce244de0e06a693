//! Symbolic and hard links, above all what must not happen through them.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::ground::{Ground, Outcome, block, fresh, replacing};
use crate::{
    CreateOptions, EntryKind, ErrorKind, LinkKind, Metadata, RelPath, Result, StorageExt,
    Timestamp, part_name,
};

fn symbolic(target: impl AsRef<[u8]>) -> LinkKind {
    LinkKind::Symbolic(target.as_ref().to_vec())
}

pub(super) async fn a_symbolic_link_keeps_its_target(ground: Ground) -> Outcome {
    let targets: [(&[u8], &str); 7] = [
        (b"file", "a neighbour"),
        (b"nowhere", "nothing is there"),
        (b"../../../../etc/passwd", "leads out of the root; it may, as it is not followed"),
        (b"/etc/passwd", "is absolute"),
        (b"dir/", "ends with a slash"),
        (b"with space\nand line", "is bytes"),
        (&[b'x'; 1000], "is long"),
    ];
    for (target, why) in targets {
        let path = ground.path("link")?;
        ground.storage.create_link(&path, &symbolic(target), false).await?;
        let entry = ground.storage.stat(&path).await?;
        let expected = EntryKind::Symlink(target.to_vec());
        ensure_eq!(entry.kind, expected, "the target that {why}");
        ensure_eq!(entry.size, 0, "the size of a link");
        let listed = ground.list(&ground.dir).await?;
        ensure_eq!(listed, vec![entry], "the link in a listing ({why})");
        ground.storage.remove(&path).await?;
    }
    Ok(())
}

pub(super) async fn a_link_takes_a_place_only_if_asked(ground: Ground) -> Outcome {
    let storage = &ground.storage;
    let file = ground.put("file", b"content").await?;
    let dir = ground.make_dir("dir").await?;
    let link = ground.path("link")?;
    storage.create_link(&link, &symbolic("one"), false).await?;
    for path in [&file, &dir, &link] {
        let result = storage.create_link(path, &symbolic("two"), false).await;
        ensure_error!(result, ErrorKind::AlreadyExists, "{path} is there");
    }
    ground.has(&file, b"content").await?;
    for path in [&file, &link] {
        storage.create_link(path, &symbolic("two"), true).await?;
        let kind = storage.stat(path).await?.kind;
        ensure_eq!(kind, EntryKind::Symlink(b"two".to_vec()), "{path} after it was replaced");
    }
    let result = storage.create_link(&dir, &symbolic("two"), true).await;
    ensure_error!(result, ErrorKind::IsADirectory | ErrorKind::AlreadyExists, "a directory");
    ensure!(storage.stat(&dir).await?.is_dir(), "the directory is gone");
    ensure_eq!(ground.all_names(&ground.dir).await?.len(), 3, "the number of names");
    let result = storage.create_link(&ground.path("no/link")?, &symbolic("two"), false).await;
    ensure_error!(result, ErrorKind::NotFound, "no parent");
    Ok(())
}

pub(super) async fn removing_a_link_spares_its_target(ground: Ground) -> Outcome {
    let file = ground.put("file", b"content").await?;
    ground.make_dir("dir").await?;
    let inner = ground.put("dir/inner", b"inner").await?;
    for target in ["file", "dir"] {
        let link = ground.path("link")?;
        ground.storage.create_link(&link, &symbolic(target), false).await?;
        ground.storage.remove(&link).await?;
        ground.is_free(&link).await?;
    }
    ground.has(&file, b"content").await?;
    ground.has(&inner, b"inner").await
}

pub(super) async fn a_link_is_not_opened(ground: Ground) -> Outcome {
    ground.put("file", b"content").await?;
    ground.make_dir("dir").await?;
    ground.put("dir/inner", b"content").await?;
    let (to_file, to_dir) = (ground.path("to file")?, ground.path("to dir")?);
    ground.storage.create_link(&to_file, &symbolic("file"), false).await?;
    ground.storage.create_link(&to_dir, &symbolic("dir"), false).await?;
    ensure!(ground.storage.open(&to_file).await.is_err(), "a link to a file is opened");
    ensure!(ground.storage.read_whole(&to_file, 100).await.is_err(), "a link to a file is read");
    ensure!(ground.list(&to_dir).await.is_err(), "a link to a directory is listed");
    Ok(())
}

/// A link may lead anywhere. Here it leads to a neighbouring directory, where the case can see any harm.
pub(super) async fn no_path_goes_through_a_link(ground: Ground) -> Outcome {
    let target = ground.make_dir("target").await?;
    ground.put("target/file", b"content").await?;
    ground.make_dir("target/dir").await?;
    ground.put("outside", b"outside").await?;
    let link = ground.path("link")?;
    ground.storage.create_link(&link, &symbolic("target"), false).await?;
    let before = snapshot(&ground, &target).await?;

    for (what, attempt) in attempts(&ground, &link)? {
        ensure!(attempt.await.is_err(), "{what} goes through a symbolic link");
        let after = snapshot(&ground, &target).await?;
        ensure_eq!(after, before, "what is behind the link after an attempt to {what}");
    }
    let outside = ground.path("outside")?;
    ground.has(&outside, b"outside").await?;
    ensure_eq!(
        ground.storage.stat(&link).await?.kind,
        EntryKind::Symlink(b"target".to_vec()),
        "the link itself"
    );
    Ok(())
}

type Attempts<'a> = Vec<(&'static str, BoxFuture<'a, Result<()>>)>;

/// Every operation on entries below `link`, where a `file` and a `dir` are.
fn attempts<'a>(ground: &'a Ground, link: &RelPath) -> Outcome<Attempts<'a>> {
    let storage = &ground.storage;
    let (file, dir, new) = (link.join("file")?, link.join("dir")?, link.join("new")?);
    let outside = ground.path("outside")?;
    let set = Metadata {
        mode: Some(0o600),
        modified: Some(Timestamp { seconds: 1_000_000_000, nanos: 0 }),
        ..Metadata::default()
    };
    let bytes = || Bytes::from_static(b"harm");
    let mut attempts: Attempts<'a> = Vec::new();
    macro_rules! attempt {
        ($what:literal, |$($copy:ident),+| $work:expr) => {{
            $(let $copy = $copy.clone();)+
            attempts.push(($what, Box::pin(async move { $work.await.map(drop) })));
        }};
    }
    attempt!("stat", |file| storage.stat(&file));
    attempt!("list", |dir| storage.list_sorted(&dir));
    attempt!("create a directory", |new| storage.create_dir(&new));
    attempt!("create a link", |new| async {
        storage.create_link(&new, &symbolic("x"), true).await
    });
    attempt!("remove", |file| storage.remove(&file));
    attempt!("rename away", |file, outside| async {
        storage.rename(&file, &outside.with_name("stolen").unwrap_or_default()).await
    });
    attempt!("rename in", |outside, new| storage.rename(&outside, &new));
    attempt!("copy in", |outside, new| storage.copy(&outside, &new));
    attempt!("copy out", |file, outside| async {
        storage.copy(&file, &outside.with_name("copied").unwrap_or_default()).await
    });
    attempt!("read metadata", |file| storage.metadata(&file));
    attempt!("set metadata", |file, set| storage.set_metadata(&file, &set));
    attempt!("open", |file| storage.open(&file));
    attempt!("read", |file| storage.read_whole(&file, 100));
    attempt!("write a new file", |new| async {
        storage.write_whole(&new, bytes(), &replacing()).await
    });
    attempt!("replace a file", |file| async {
        storage.write_whole(&file, bytes(), &replacing()).await
    });
    attempt!("create a part file", |new| async {
        let writer = storage.create(&new, &CreateOptions::default()).await?;
        writer.write_at(0, block(b"harm")).await?;
        writer.commit(4, &fresh()).await
    });
    Ok(attempts)
}

/// The contents of a directory, two levels deep.
async fn snapshot(ground: &Ground, dir: &RelPath) -> Outcome<BTreeMap<RelPath, String>> {
    let mut found = BTreeMap::new();
    for entry in ground.list(dir).await? {
        let content = match entry.kind {
            EntryKind::File => format!("{:?}", ground.content(&entry.path).await?),
            EntryKind::Directory => format!("{:?}", ground.all_names(&entry.path).await?),
            _ => String::new(),
        };
        found.insert(entry.path.clone(), format!("{entry:?} {content}"));
    }
    Ok(found)
}

pub(super) async fn a_file_replaces_a_link_and_not_its_target(ground: Ground) -> Outcome {
    let victim = ground.put("victim", b"precious").await?;
    for whole in [true, false] {
        let path = ground.path(format!("link {whole}"))?;
        ground.storage.create_link(&path, &symbolic("victim"), false).await?;
        for options in [fresh(), replacing()] {
            let result = if whole {
                ground.storage.write_whole(&path, Bytes::from_static(b"new"), &options).await
            } else {
                let writer = ground.create(&path).await?;
                writer.write_at(0, block(b"new")).await?;
                let result = writer.commit(3, &options).await;
                if result.is_err() {
                    writer.abort(false).await?;
                }
                result
            };
            ground.has(&victim, b"precious").await?;
            if options.replace {
                result?;
                ground.has(&path, b"new").await?;
            } else {
                ensure_error!(result, ErrorKind::AlreadyExists, "a link is there");
            }
        }
    }
    Ok(())
}

/// Another user who may write to the directory has put a link at the name of the part file.
pub(super) async fn a_planted_part_file_is_not_written_through(ground: Ground) -> Outcome {
    let victim = ground.put("victim", b"precious").await?;
    let path = ground.path("file")?;
    let part = path.with_name(part_name(b"file"))?;
    for resume in [false, true] {
        ground.storage.create_link(&part, &symbolic("victim"), false).await?;
        let options = CreateOptions { resume, size: Some(3), sparse: false, source: None };
        // The storage may refuse, or avoid the link.
        if let Ok(writer) = ground.storage.create(&path, &options).await {
            writer.write_at(0, block(b"new")).await?;
            writer.commit(3, &replacing()).await?;
            ground.has(&path, b"new").await?;
        }
        ground.has(&victim, b"precious").await?;
        ground.storage.remove_all(&part).await.or_else(|error| {
            if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
        })?;
    }
    Ok(())
}

pub(super) async fn metadata_of_a_link_spares_its_target(ground: Ground) -> Outcome {
    let file = ground.put("file", b"content").await?;
    let link = ground.path("link")?;
    ground.storage.create_link(&link, &symbolic("file"), false).await?;
    let before = ground.storage.metadata(&file).await?;
    let modified = Some(Timestamp { seconds: 1_000_000_000, nanos: 0 });
    let set = Metadata { mode: Some(0o604), modified, ..Metadata::default() };
    // Many storages cannot set metadata of a link; they fail or do nothing.
    drop(ground.storage.set_metadata(&link, &set).await);
    ensure_eq!(ground.storage.metadata(&file).await?, before, "the metadata of the target");
    Ok(())
}

pub(super) async fn a_hard_link_is_the_same_file(ground: Ground) -> Outcome {
    let storage = &ground.storage;
    let one = ground.put("one", b"content").await?;
    let two = ground.path("two")?;
    storage.create_link(&two, &LinkKind::Hard(one.clone()), false).await?;
    ground.has(&two, b"content").await?;
    let (first, second) = (storage.stat(&one).await?, storage.stat(&two).await?);
    ensure!(second.is_file(), "the second name is {:?}", second.kind);
    // SFTP 3 reports neither the file's id nor its number of links.
    let tells = first.id.is_some() || first.links > 1;
    if tells {
        ensure_eq!((first.links, second.links), (2, 2), "the number of names");
    }
    ensure_eq!(first.id, second.id, "which file it is");

    let other = ground.put("other", b"other").await?;
    let again = LinkKind::Hard(one.clone());
    let result = storage.create_link(&other, &again, false).await;
    ensure_error!(result, ErrorKind::AlreadyExists, "a file is there");
    ground.has(&other, b"other").await?;
    storage.create_link(&other, &again, true).await?;
    ground.has(&other, b"content").await?;

    storage.remove(&one).await?;
    ground.has(&two, b"content").await?;
    if tells {
        ensure_eq!(storage.stat(&two).await?.links, 2, "the names after one was removed");
    }
    ensure_eq!(ground.all_names(&ground.dir).await?.len(), 2, "the number of entries");
    Ok(())
}

pub(super) async fn a_hard_link_needs_a_file(ground: Ground) -> Outcome {
    let path = ground.path("link")?;
    let nothing = LinkKind::Hard(ground.path("nothing")?);
    let result = ground.storage.create_link(&path, &nothing, false).await;
    ensure_error!(result, ErrorKind::NotFound, "nothing to link to");
    let dir = LinkKind::Hard(ground.make_dir("dir").await?);
    let result = ground.storage.create_link(&path, &dir, false).await;
    ensure!(result.is_err(), "a hard link to a directory");
    ground.is_free(&path).await
}

pub(super) async fn replacing_one_name_spares_the_other(ground: Ground) -> Outcome {
    let one = ground.put("one", b"content").await?;
    let (two, three) = (ground.path("two")?, ground.path("three")?);
    for path in [&two, &three] {
        ground.storage.create_link(path, &LinkKind::Hard(one.clone()), false).await?;
    }
    ground.put("two", b"new").await?;
    let writer = ground.create(&three).await?;
    writer.write_at(0, block(b"newer")).await?;
    writer.commit(5, &replacing()).await?;
    ground.has(&one, b"content").await?;
    ground.has(&two, b"new").await?;
    ground.has(&three, b"newer").await
}
