//! `stat` and `list`.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::fixture::{Fixture, Outcome, replacing};
use crate::{EntryKind, ErrorKind, RelPath};

pub(super) async fn the_root_is_a_directory(fixture: Fixture) -> Outcome {
    let entry = fixture.storage.stat(&RelPath::root()).await?;
    ensure!(entry.is_dir(), "the root is {entry:?}");
    ensure!(entry.path.is_root(), "the root's path is {}", entry.path);
    Ok(())
}

pub(super) async fn capabilities_make_sense(fixture: Fixture) -> Outcome {
    let can = fixture.can();
    ensure!(can.stored_times.step_ns > 0, "times come in steps of 0 ns");
    ensure!(can.max_lanes != Some(0), "the maximum number of lanes is 0");
    ensure!(can.max_file_size != Some(0), "the maximum size of a file is 0");
    let shown = fixture.storage.location().to_string();
    ensure!(!shown.is_empty(), "the location is printed as an empty text");
    Ok(())
}

pub(super) async fn an_empty_directory_lists_nothing(fixture: Fixture) -> Outcome {
    let path = fixture.make_dir("empty").await?;
    let names = fixture.all_names(&path).await?;
    ensure!(names.is_empty(), "{} entries are in it", names.len());
    Ok(())
}

pub(super) async fn stat_describes_the_entry(fixture: Fixture) -> Outcome {
    let file = fixture.put("file", b"12345").await?;
    let empty = fixture.put("empty", b"").await?;
    let dir = fixture.make_dir("dir").await?;
    for (path, kind, size) in
        [(&file, EntryKind::File, 5), (&empty, EntryKind::File, 0), (&dir, EntryKind::Directory, 0)]
    {
        let entry = fixture.storage.stat(path).await?;
        ensure_eq!(&entry.path, path, "the path of an entry");
        ensure_eq!(entry.kind, kind, "the kind of {path}");
        ensure_eq!(entry.size, size, "the size of {path}");
        ensure!(entry.links >= 1, "{path} has 0 links");
        ensure!(entry.mode.is_none_or(|mode| mode & !0o7777 == 0), "the mode has other bits");
        let nanos = entry.modified.map_or(0, |time| time.nanos);
        ensure!(nanos < 1_000_000_000, "the time has {nanos} ns in its second");
    }
    Ok(())
}

pub(super) async fn stat_of_a_missing_path_is_not_found(fixture: Fixture) -> Outcome {
    let file = fixture.put("file", b"12345").await?;
    let nothing = fixture.path("nothing")?;
    ensure_error!(fixture.storage.stat(&nothing).await, ErrorKind::NotFound, "a missing entry");
    let deeper = nothing.join("below")?;
    ensure_error!(fixture.storage.stat(&deeper).await, ErrorKind::NotFound, "no parent");
    let below = file.join("below")?;
    ensure_error!(
        fixture.storage.stat(&below).await,
        ErrorKind::NotFound | ErrorKind::NotADirectory,
        "below a file"
    );
    Ok(())
}

pub(super) async fn a_listing_and_stat_agree(fixture: Fixture) -> Outcome {
    fixture.put("one", b"1").await?;
    fixture.put("two", &[7; 5000]).await?;
    fixture.put(".hidden", b"").await?;
    fixture.make_dir("dir").await?;
    fixture.put("dir/below", b"1").await?;
    let entries = fixture.list(&fixture.dir).await?;
    ensure_eq!(entries.len(), 4, "the number of entries");
    for entry in entries {
        let stat = fixture.storage.stat(&entry.path).await?;
        ensure_eq!(entry, stat, "the listed entry of {}, compared with stat", stat.path);
    }
    Ok(())
}

pub(super) async fn a_listing_is_not_recursive(fixture: Fixture) -> Outcome {
    let outer = fixture.make_dir("outer").await?;
    let inner = fixture.make_dir("outer/inner").await?;
    let file = fixture.put("outer/inner/file", b"1").await?;
    let paths = |entries: Vec<crate::Entry>| -> Vec<RelPath> {
        entries.into_iter().map(|entry| entry.path).collect()
    };
    ensure_eq!(paths(fixture.list(&outer).await?), vec![inner.clone()], "the entries of outer");
    ensure_eq!(paths(fixture.list(&inner).await?), vec![file], "the entries of inner");
    Ok(())
}

pub(super) async fn listing_a_file_or_a_missing_path_fails(fixture: Fixture) -> Outcome {
    let nothing = fixture.path("nothing")?;
    ensure_error!(fixture.list(&nothing).await, ErrorKind::NotFound, "a missing directory");
    let file = fixture.put("file", b"1").await?;
    ensure_error!(fixture.list(&file).await, ErrorKind::NotADirectory, "a file");
    Ok(())
}

/// More than one batch where entries come in batches: OpenSSH returns 100 names per response, and `getdents64` about
/// 1 000 with a buffer of 32 KiB.
pub(super) async fn a_listing_of_3000_entries_is_complete(fixture: Fixture) -> Outcome {
    let dir = fixture.make_dir("many").await?;
    let mut expected = BTreeSet::new();
    for n in 0..3000 {
        expected.insert(dir.join(format!("entry number {n}"))?);
    }
    let commit = &replacing();
    let write = |path: RelPath| {
        let storage = &fixture.storage;
        async move { storage.write_whole(&path, Bytes::new(), commit).await }
    };
    let writes = stream::iter(expected.clone()).map(write).buffer_unordered(16);
    writes.try_collect::<Vec<()>>().await?;

    let entries = fixture.list(&dir).await?;
    ensure_eq!(entries.len(), expected.len(), "the number of entries");
    let found: BTreeSet<RelPath> = entries.into_iter().map(|entry| entry.path).collect();
    let missing: Vec<_> = expected.difference(&found).take(3).collect();
    ensure!(missing.is_empty(), "missing in the listing: {missing:?} and maybe more");
    Ok(())
}
