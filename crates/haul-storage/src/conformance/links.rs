//! Symbolic and hard links, above all operations that must not pass through them.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::fixture::{Fixture, Outcome, block, fresh, replacing};
use crate::{
    CreateOptions, EntryKind, ErrorKind, LinkKind, Metadata, RelPath, Result, StorageExt, Timestamp,
};

fn symbolic(target: impl AsRef<[u8]>) -> LinkKind {
    LinkKind::Symbolic(target.as_ref().to_vec())
}

pub(super) async fn a_symbolic_link_keeps_its_target(fixture: Fixture) -> Outcome {
    let targets: [(&[u8], &str); 7] = [
        (b"file", "a neighbour"),
        (b"nowhere", "does not exist"),
        (b"../../../../etc/passwd", "leads out of the root; allowed, as it is not followed"),
        (b"/etc/passwd", "is absolute"),
        (b"dir/", "ends with a slash"),
        (b"with space\nand line", "is bytes"),
        (&[b'x'; 1000], "is long"),
    ];
    for (target, why) in targets {
        let path = fixture.path("link")?;
        fixture.storage.create_link(&path, &symbolic(target), false).await?;
        let entry = fixture.storage.stat(&path).await?;
        let expected = EntryKind::Symlink(target.to_vec());
        ensure_eq!(entry.kind, expected, "the target ({why})");
        ensure_eq!(entry.size, 0, "the size of a link");
        let listed = fixture.list(&fixture.dir).await?;
        ensure_eq!(listed, vec![entry], "the link in a listing ({why})");
        fixture.storage.remove(&path).await?;
    }
    Ok(())
}

pub(super) async fn a_link_replaces_a_file_only_if_requested(fixture: Fixture) -> Outcome {
    let storage = &fixture.storage;
    let file = fixture.put("file", b"content").await?;
    let dir = fixture.make_dir("dir").await?;
    let link = fixture.path("link")?;
    storage.create_link(&link, &symbolic("one"), false).await?;
    for path in [&file, &dir, &link] {
        let result = storage.create_link(path, &symbolic("two"), false).await;
        ensure_error!(result, ErrorKind::AlreadyExists, "{path} exists");
    }
    fixture.has(&file, b"content").await?;
    for path in [&file, &link] {
        storage.create_link(path, &symbolic("two"), true).await?;
        let kind = storage.stat(path).await?.kind;
        ensure_eq!(kind, EntryKind::Symlink(b"two".to_vec()), "{path} after it was replaced");
    }
    let result = storage.create_link(&dir, &symbolic("two"), true).await;
    ensure_error!(result, ErrorKind::IsADirectory | ErrorKind::AlreadyExists, "a directory");
    ensure!(storage.stat(&dir).await?.is_dir(), "the directory is gone");
    ensure_eq!(fixture.all_names(&fixture.dir).await?.len(), 3, "the number of names");
    let result = storage.create_link(&fixture.path("no/link")?, &symbolic("two"), false).await;
    ensure_error!(result, ErrorKind::NotFound, "no parent");
    Ok(())
}

pub(super) async fn removing_a_link_spares_its_target(fixture: Fixture) -> Outcome {
    let file = fixture.put("file", b"content").await?;
    fixture.make_dir("dir").await?;
    let inner = fixture.put("dir/inner", b"inner").await?;
    for target in ["file", "dir"] {
        let link = fixture.path("link")?;
        fixture.storage.create_link(&link, &symbolic(target), false).await?;
        fixture.storage.remove(&link).await?;
        fixture.is_free(&link).await?;
    }
    fixture.has(&file, b"content").await?;
    fixture.has(&inner, b"inner").await
}

pub(super) async fn a_link_is_not_opened(fixture: Fixture) -> Outcome {
    fixture.put("file", b"content").await?;
    fixture.make_dir("dir").await?;
    fixture.put("dir/inner", b"content").await?;
    let (to_file, to_dir) = (fixture.path("to file")?, fixture.path("to dir")?);
    fixture.storage.create_link(&to_file, &symbolic("file"), false).await?;
    fixture.storage.create_link(&to_dir, &symbolic("dir"), false).await?;
    ensure!(fixture.storage.open(&to_file).await.is_err(), "a link to a file is opened");
    ensure!(fixture.storage.read_whole(&to_file, 100).await.is_err(), "a link to a file is read");
    ensure!(fixture.list(&to_dir).await.is_err(), "a link to a directory is listed");
    Ok(())
}

/// A link may lead anywhere. Here it leads to a neighbouring directory, where the case can see any harm.
pub(super) async fn no_path_goes_through_a_link(fixture: Fixture) -> Outcome {
    let target = fixture.make_dir("target").await?;
    fixture.put("target/file", b"content").await?;
    fixture.make_dir("target/dir").await?;
    fixture.put("outside", b"outside").await?;
    let link = fixture.path("link")?;
    fixture.storage.create_link(&link, &symbolic("target"), false).await?;
    let before = snapshot(&fixture, &target).await?;

    for (what, attempt) in attempts(&fixture, &link)? {
        ensure!(attempt.await.is_err(), "{what} goes through a symbolic link");
        let after = snapshot(&fixture, &target).await?;
        ensure_eq!(after, before, "the target of the link after an attempt to {what}");
    }
    let outside = fixture.path("outside")?;
    fixture.has(&outside, b"outside").await?;
    ensure_eq!(
        fixture.storage.stat(&link).await?.kind,
        EntryKind::Symlink(b"target".to_vec()),
        "the link itself"
    );
    Ok(())
}

type Attempts<'a> = Vec<(&'static str, BoxFuture<'a, Result<()>>)>;

/// Operations on entries below `link`, whose target contains `file` and `dir`.
fn attempts<'a>(fixture: &'a Fixture, link: &RelPath) -> Outcome<Attempts<'a>> {
    let storage = &fixture.storage;
    let (file, dir, new) = (link.join("file")?, link.join("dir")?, link.join("new")?);
    let outside = fixture.path("outside")?;
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
async fn snapshot(fixture: &Fixture, dir: &RelPath) -> Outcome<BTreeMap<RelPath, String>> {
    let mut found = BTreeMap::new();
    for entry in fixture.list(dir).await? {
        let content = match entry.kind {
            EntryKind::File => format!("{:?}", fixture.content(&entry.path).await?),
            EntryKind::Directory => format!("{:?}", fixture.all_names(&entry.path).await?),
            _ => String::new(),
        };
        found.insert(entry.path.clone(), format!("{entry:?} {content}"));
    }
    Ok(found)
}

pub(super) async fn a_file_replaces_a_link_and_not_its_target(fixture: Fixture) -> Outcome {
    let victim = fixture.put("victim", b"precious").await?;
    for whole in [true, false] {
        let path = fixture.path(format!("link {whole}"))?;
        fixture.storage.create_link(&path, &symbolic("victim"), false).await?;
        for options in [fresh(), replacing()] {
            let result = if whole {
                fixture.storage.write_whole(&path, Bytes::from_static(b"new"), &options).await
            } else {
                let writer = fixture.create(&path).await?;
                writer.write_at(0, block(b"new")).await?;
                let result = writer.commit(3, &options).await;
                if result.is_err() {
                    writer.abort(false).await?;
                }
                result
            };
            fixture.has(&victim, b"precious").await?;
            if options.replace {
                result?;
                fixture.has(&path, b"new").await?;
            } else {
                ensure_error!(result, ErrorKind::AlreadyExists, "a link exists");
            }
        }
    }
    Ok(())
}

/// Another user with write access to the directory has created a link under the name of the part file.
pub(super) async fn a_planted_part_file_is_not_written_through(fixture: Fixture) -> Outcome {
    let victim = fixture.put("victim", b"precious").await?;
    let path = fixture.path("file")?;
    let part = path.with_name(fixture.storage.part_name(&path))?;
    for resume in [false, true] {
        fixture.storage.create_link(&part, &symbolic("victim"), false).await?;
        let options = CreateOptions { resume, size: Some(3), sparse: false, ..<_>::default() };
        // The storage may refuse, or avoid the link.
        if let Ok(writer) = fixture.storage.create(&path, &options).await {
            writer.write_at(0, block(b"new")).await?;
            writer.commit(3, &replacing()).await?;
            fixture.has(&path, b"new").await?;
        }
        fixture.has(&victim, b"precious").await?;
        fixture.storage.remove_all(&part).await.or_else(|error| {
            if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
        })?;
    }
    Ok(())
}

pub(super) async fn metadata_of_a_link_spares_its_target(fixture: Fixture) -> Outcome {
    let file = fixture.put("file", b"content").await?;
    let link = fixture.path("link")?;
    fixture.storage.create_link(&link, &symbolic("file"), false).await?;
    let before = fixture.storage.metadata(&file).await?;
    let modified = Some(Timestamp { seconds: 1_000_000_000, nanos: 0 });
    let set = Metadata { mode: Some(0o604), modified, ..Metadata::default() };
    // Many storages cannot set metadata of a link; they fail or do nothing.
    drop(fixture.storage.set_metadata(&link, &set).await);
    ensure_eq!(fixture.storage.metadata(&file).await?, before, "the metadata of the target");
    Ok(())
}

pub(super) async fn a_hard_link_is_the_same_file(fixture: Fixture) -> Outcome {
    let storage = &fixture.storage;
    let one = fixture.put("one", b"content").await?;
    let two = fixture.path("two")?;
    storage.create_link(&two, &LinkKind::Hard(one.clone()), false).await?;
    fixture.has(&two, b"content").await?;
    let (first, second) = (storage.stat(&one).await?, storage.stat(&two).await?);
    ensure!(second.is_file(), "the second name is {:?}", second.kind);
    // SFTP 3 reports neither the file's id nor its number of links.
    let reports_links = first.id.is_some() || first.links > 1;
    if reports_links {
        ensure_eq!((first.links, second.links), (2, 2), "the number of names");
    }
    ensure_eq!(first.id, second.id, "the file id");

    let other = fixture.put("other", b"other").await?;
    let again = LinkKind::Hard(one.clone());
    let result = storage.create_link(&other, &again, false).await;
    ensure_error!(result, ErrorKind::AlreadyExists, "a file exists");
    fixture.has(&other, b"other").await?;
    storage.create_link(&other, &again, true).await?;
    fixture.has(&other, b"content").await?;

    storage.remove(&one).await?;
    fixture.has(&two, b"content").await?;
    if reports_links {
        ensure_eq!(storage.stat(&two).await?.links, 2, "the names after one was removed");
    }
    ensure_eq!(fixture.all_names(&fixture.dir).await?.len(), 2, "the number of entries");
    Ok(())
}

pub(super) async fn a_hard_link_needs_a_file(fixture: Fixture) -> Outcome {
    let path = fixture.path("link")?;
    let nothing = LinkKind::Hard(fixture.path("nothing")?);
    let result = fixture.storage.create_link(&path, &nothing, false).await;
    ensure_error!(result, ErrorKind::NotFound, "a missing target");
    let dir = LinkKind::Hard(fixture.make_dir("dir").await?);
    let result = fixture.storage.create_link(&path, &dir, false).await;
    ensure!(result.is_err(), "a hard link to a directory");
    fixture.is_free(&path).await
}

pub(super) async fn replacing_one_name_spares_the_other(fixture: Fixture) -> Outcome {
    let one = fixture.put("one", b"content").await?;
    let (two, three) = (fixture.path("two")?, fixture.path("three")?);
    for path in [&two, &three] {
        fixture.storage.create_link(path, &LinkKind::Hard(one.clone()), false).await?;
    }
    fixture.put("two", b"new").await?;
    let writer = fixture.create(&three).await?;
    writer.write_at(0, block(b"newer")).await?;
    writer.commit(5, &replacing()).await?;
    fixture.has(&one, b"content").await?;
    fixture.has(&two, b"new").await?;
    fixture.has(&three, b"newer").await
}
