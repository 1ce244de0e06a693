//! Writing: part files, their locks and journals, full disks, commits and their metadata, links, copies within the
//! kernel, locks of directories.

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use bytes::Bytes;
use common::{
    Mounted, block, both, content, fresh, names, open, path, pattern, put, ranges, replacing,
    source,
};
use haul_storage::{
    CommitOptions, CreateOptions, ErrorKind, Held, LinkKind, Metadata, Range, RangeSet, Retry,
    Storage, Timestamp,
};

#[tokio::test]
async fn before_the_commit_only_a_private_part_file_and_journal_exist() {
    let root = tempfile::tempdir().unwrap();
    for storage in both(root.path()) {
        let options = CreateOptions { source: Some(source(6)), ..CreateOptions::default() };
        let writer = storage.create(&path("file"), &options).await.unwrap();
        writer.write_at(0, block(b"secret")).await.unwrap();
        let private = [".file.haul-journal", ".file.haul-part"];
        assert_eq!(names(root.path()), private);
        for name in private {
            let found = fs::metadata(root.path().join(name)).unwrap();
            assert_eq!(found.permissions().mode() & 0o777, 0o600, "{name}");
        }
        writer.commit(6, &fresh()).await.unwrap();
        assert_eq!(names(root.path()), ["file"]);
        assert!(writer.write_at(0, block(b"late")).await.is_err());
        assert!(writer.commit(6, &fresh()).await.is_err());
        storage.remove(&path("file")).await.unwrap();
    }
}

#[tokio::test]
async fn a_locked_part_file_is_busy_for_other_runs() {
    let root = tempfile::tempdir().unwrap();
    let [one, other] = both(root.path());
    let writer = one.create(&path("file"), &CreateOptions::default()).await.unwrap();
    let options = CreateOptions { resume: true, ..CreateOptions::default() };
    for storage in [&one, &other] {
        let error = storage.create(&path("file"), &options).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(error.cause().ends_with("another run of haul is writing it"), "{error}");
    }
    drop(writer);
    other.create(&path("file"), &options).await.unwrap();
}

/// The writer that holds the lock may rename or remove a part file between another writer's open and lock.
#[tokio::test]
async fn concurrent_writers_never_share_a_part_file() {
    let root = tempfile::tempdir().unwrap();
    let storages = [open(root.path()), open(root.path())];
    let tasks = storages.map(|storage| {
        tokio::spawn(async move {
            let mut done = 0;
            while done < 200 {
                match storage.create(&path("file"), &CreateOptions::default()).await {
                    Ok(writer) => {
                        writer.write_at(0, block(b"content")).await.unwrap();
                        if done % 3 == 0 {
                            writer.abort(false).await.unwrap();
                        } else {
                            writer.commit(7, &replacing()).await.unwrap();
                        }
                        done += 1;
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
                }
            }
        })
    });
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(names(root.path()), ["file"]);
}

/// Formerly, the journal of the other run was removed, so that it could not resume after a kill.
#[tokio::test]
async fn a_small_write_leaves_the_journal_of_another_run_alone() {
    let root = tempfile::tempdir().unwrap();
    for storage in both(root.path()) {
        put(&*storage, "file", b"old").await.unwrap();
        let source = Some(source(10));
        let resume = CreateOptions { resume: true, source, ..CreateOptions::default() };
        let writer = storage.create(&path("file"), &resume).await.unwrap();
        writer.write_at(0, block(b"good")).await.unwrap();
        writer.record(ranges(0, 4)).await.unwrap();
        put(&*storage, "file", b"new").await.unwrap();
        assert_eq!(content(&*storage, "file").await.unwrap(), b"new");
        assert_eq!(names(root.path()), [".file.haul-journal", ".file.haul-part", "file"]);
        drop(writer);
        let writer = storage.create(&path("file"), &resume).await.unwrap();
        assert_eq!(*writer.held(), Held::Ranges(ranges(0, 4)));
        writer.abort(false).await.unwrap();
        // An interrupted run leaves both, and the small write replaces them.
        drop(storage.create(&path("file"), &resume).await.unwrap());
        put(&*storage, "file", b"newer").await.unwrap();
        assert_eq!(names(root.path()), ["file"]);
    }
}

/// Formerly, an empty part file was left, and the error named the file instead of the journal.
#[tokio::test]
async fn a_directory_in_place_of_the_journal_is_reported_and_no_part_file_is_left() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join(".file.haul-journal")).unwrap();
    for storage in both(root.path()) {
        fs::write(root.path().join("file"), "old").unwrap();
        let error = put(&*storage, "file", b"new").await.unwrap_err();
        assert!(error.to_string().contains(".file.haul-journal"), "{error}");
        assert_eq!(names(root.path()), [".file.haul-journal", "file"]);
        assert_eq!(content(&*storage, "file").await.unwrap(), b"old");
    }
}

/// A journal without its part file must not stay for a part file that is created later.
#[tokio::test]
async fn a_small_write_removes_a_stale_journal() {
    let root = tempfile::tempdir().unwrap();
    for storage in both(root.path()) {
        put(&*storage, "file", b"old").await.unwrap();
        fs::write(root.path().join(".file.haul-journal"), "stale").unwrap();
        put(&*storage, "file", b"new").await.unwrap();
        assert_eq!(content(&*storage, "file").await.unwrap(), b"new");
        assert_eq!(names(root.path()), ["file"]);
    }
}

/// Otherwise ranges of the old journal would be taken for data of the new part file.
#[tokio::test]
async fn a_journal_without_its_part_file_is_not_used() {
    let root = tempfile::tempdir().unwrap();
    let storage = open(root.path());
    let journal = root.path().join(".file.haul-journal");
    fs::write(&journal, "stale").unwrap();
    let source = Some(source(10));
    let resume = CreateOptions { resume: true, source, ..CreateOptions::default() };
    let writer = storage.create(&path("file"), &resume).await.unwrap();
    assert_eq!(*writer.held(), Held::Ranges(RangeSet::new()));
    writer.write_at(0, block(b"good")).await.unwrap();
    writer.record(ranges(0, 4)).await.unwrap();
    drop(writer);
    let stale = fs::read(&journal).unwrap();
    let writer = storage.create(&path("file"), &resume).await.unwrap();
    assert_eq!(*writer.held(), Held::Ranges(ranges(0, 4)));
    drop(writer);
    let writer = storage.create(&path("file"), &CreateOptions::default()).await.unwrap();
    assert!(*writer.held() == Held::Unrecorded && !journal.exists());
    drop(writer);
    fs::remove_file(root.path().join(".file.haul-part")).unwrap();
    fs::write(&journal, stale).unwrap();
    let writer = storage.create(&path("file"), &resume).await.unwrap();
    assert_eq!(*writer.held(), Held::Ranges(RangeSet::new()));
}

#[tokio::test]
async fn a_part_file_that_cannot_be_resumed_is_emptied_and_the_reason_is_given() {
    let root = tempfile::tempdir().unwrap();
    let [journal, part] =
        ["journal", "part"].map(|kind| root.path().join(format!(".f.haul-{kind}")));
    let resume = |size| CreateOptions {
        resume: true,
        source: Some(source(size)),
        ..CreateOptions::default()
    };
    type Damage<'a> = &'a dyn Fn();
    let cases: [(&str, u64, Damage<'_>); 4] = [
        ("it has no journal", 10, &|| fs::remove_file(&journal).unwrap()),
        ("its header is damaged (journal ", 10, &|| fs::write(&journal, "else").unwrap()),
        ("it belongs to another source (source, size 10, ", 11, &|| ()),
        ("it has 2 bytes, its journal records at least 4", 10, &|| {
            fs::OpenOptions::new().write(true).open(&part).unwrap().set_len(2).unwrap();
        }),
    ];
    for (reason, size, damage) in cases {
        let storage = open(root.path());
        let writer = storage.create(&path("f"), &resume(10)).await.unwrap();
        writer.write_at(0, block(b"good")).await.unwrap();
        writer.record(ranges(0, 4)).await.unwrap();
        drop(writer);
        damage();
        let writer = storage.create(&path("f"), &resume(size)).await.unwrap();
        let Held::StartedOver(why) = writer.held() else { panic!("{:?}", writer.held()) };
        assert!(why.starts_with(reason), "{why}");
        assert_eq!(fs::metadata(&part).unwrap().len(), 0);
        writer.abort(false).await.unwrap();
        assert_eq!(names(root.path()), [""; 0]);
    }
}

/// A run that cannot write a journal must not leave anything behind.
#[tokio::test]
async fn a_journal_that_cannot_be_started_leaves_no_part_file() {
    let root = tempfile::tempdir().unwrap();
    let storage = open(root.path());
    fs::create_dir(root.path().join(".file.haul-rewrite")).unwrap();
    let options = CreateOptions { source: Some(source(6)), ..CreateOptions::default() };
    let error = storage.create(&path("file"), &options).await.unwrap_err();
    assert_eq!(error.operation(), "start the journal");
    assert_eq!(names(root.path()), [".file.haul-rewrite"]);
}

#[tokio::test]
async fn an_existing_file_is_replaced_only_on_request() {
    let root = tempfile::tempdir().unwrap();
    for storage in both(root.path()) {
        put(&*storage, "file", b"old").await.unwrap();
        fs::create_dir(root.path().join("dir")).unwrap();
        for (name, refusal) in [("file", None), ("dir", Some(ErrorKind::IsADirectory))] {
            let writer = storage.create(&path(name), &CreateOptions::default()).await.unwrap();
            writer.write_at(0, block(b"new")).await.unwrap();
            let error = writer.commit(3, &fresh()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists);
            // The part file remains for another attempt.
            let outcome = writer.commit(3, &replacing()).await.map_err(|error| error.kind());
            assert_eq!(outcome.err(), refusal);
            drop(writer.abort(false).await);
            let bytes = Bytes::from_static(b"newer");
            let error = storage.write_whole(&path(name), bytes.clone(), &fresh()).await;
            assert_eq!(error.unwrap_err().kind(), ErrorKind::AlreadyExists);
            let outcome = storage.write_whole(&path(name), bytes, &replacing()).await;
            assert_eq!(outcome.map_err(|error| error.kind()).err(), refusal);
        }
        assert_eq!(content(&*storage, "file").await.unwrap(), b"newer");
        assert_eq!(names(root.path()), ["dir", "file"]);
        fs::remove_dir(root.path().join("dir")).unwrap();
        fs::remove_file(root.path().join("file")).unwrap();
    }
}

#[tokio::test]
async fn reserved_space_is_neither_length_nor_content() {
    let root = tempfile::tempdir().unwrap();
    let storage = open(root.path());
    let options =
        CreateOptions { resume: false, size: Some(64 << 20), sparse: false, ..<_>::default() };
    let writer = storage.create(&path("file"), &options).await.unwrap();
    writer.write_at(0, block(b"start")).await.unwrap();
    let part = fs::metadata(root.path().join(".file.haul-part")).unwrap();
    assert_eq!(part.len(), 5);
    // The source turned out to be shorter: the excess is released.
    writer.commit(5, &fresh()).await.unwrap();
    let file = fs::metadata(root.path().join("file")).unwrap();
    assert_eq!(file.len(), 5);
    assert!(file.blocks() * 512 <= 64 << 10, "{} blocks", file.blocks());
}

/// If the space does not suffice, ext4 does not release what it has allocated so far.
#[tokio::test]
async fn a_failed_reservation_releases_its_space() {
    let Some(mounted) = Mounted::image("ext4", 64) else { return };
    let root = mounted.path();
    let storage = open(&root);
    let free = || rustix::fs::statvfs(&root).map(|found| found.f_bavail * found.f_frsize).unwrap();
    let before = free();
    let options =
        CreateOptions { resume: false, size: Some(1 << 30), sparse: false, ..<_>::default() };
    let writer = storage.create(&path("file"), &options).await.unwrap();
    let error = writer.write_at(0, block(b"x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    writer.abort(true).await.unwrap();
    assert!(free() + (1 << 20) > before, "{} of {before} are left", free());
}

/// Formerly, the hint was to free space.
#[tokio::test]
async fn the_hint_for_a_file_that_is_too_long_is_another_file_system() {
    let Some(mounted) = Mounted::image("ext4", 16) else { return };
    for storage in both(&mounted.path()) {
        let writer = storage.create(&path("file"), &CreateOptions::default()).await.unwrap();
        // Files of ext4 have at most 16 TiB.
        let error = writer.write_at(1 << 50, block(b"x")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        assert!(error.hint().unwrap().contains("cannot hold a file of this size"), "{error}");
        writer.abort(false).await.unwrap();
    }
}

#[tokio::test]
async fn a_full_disk_is_reported_and_leaves_no_file() {
    let Some(small) = Mounted::tmpfs("4m") else { return };
    for storage in both(&small.path()) {
        let writer = storage.create(&path("file"), &CreateOptions::default()).await.unwrap();
        let mut offset = 0;
        let error = loop {
            match writer.write_at(offset, block(&pattern(1 << 20))).await {
                Ok(()) => offset += 1 << 20,
                Err(error) => break error,
            }
            assert!(offset <= 4 << 20);
        };
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
        writer.abort(false).await.unwrap();
        let whole = put(&*storage, "whole", &pattern(5 << 20)).await.unwrap_err();
        assert_eq!(whole.kind(), ErrorKind::NoSpace, "{whole}");
        assert_eq!(names(&small.path()), [""; 0]);
    }
    // With the length known, the first write fails, before time is spent on the rest.
    let storage = open(&small.path());
    let options =
        CreateOptions { resume: false, size: Some(16 << 20), sparse: false, ..<_>::default() };
    let writer = storage.create(&path("file"), &options).await.unwrap();
    let error = writer.write_at(0, block(b"x")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    writer.abort(false).await.unwrap();
}

#[tokio::test]
async fn a_resumed_file_needs_space_for_its_rest_only() {
    let Some(small) = Mounted::tmpfs("16m") else { return };
    let storage = open(&small.path());
    let options =
        CreateOptions { resume: true, size: Some(12 << 20), sparse: false, ..<_>::default() };
    let writer = storage.create(&path("file"), &options).await.unwrap();
    writer.write_at(0, block(&pattern(8 << 20))).await.unwrap();
    drop(writer);
    let writer = storage.create(&path("file"), &options).await.unwrap();
    writer.write_at(8 << 20, block(&pattern(4 << 20))).await.unwrap();
    writer.commit(12 << 20, &fresh()).await.unwrap();
    assert_eq!(names(&small.path()), ["file"]);
}

#[tokio::test]
async fn a_commit_sets_mode_time_and_attributes() {
    let root = tempfile::tempdir().unwrap();
    let xattrs = vec![(b"user.comment".to_vec(), b"kept\0".to_vec())];
    for storage in both(root.path()) {
        let metadata = Metadata {
            // A mode without write permission must not prevent setting attributes.
            mode: Some(0o440),
            modified: Some(Timestamp { seconds: -5, nanos: 123_456_789 }),
            owner: None,
            xattrs: Some(xattrs.clone()),
        };
        let options =
            CommitOptions { metadata: metadata.clone(), replace: true, sync: true, expected: None };
        let writer = storage.create(&path("file"), &CreateOptions::default()).await.unwrap();
        writer.commit(10, &options).await.unwrap();
        let bytes = Bytes::from_static(b"whole");
        storage.write_whole(&path("whole"), bytes, &options).await.unwrap();
        for name in ["file", "whole"] {
            let found = storage.metadata(&path(name)).await.unwrap();
            let opened = storage.open(&path(name)).await.unwrap().metadata().await.unwrap();
            assert_eq!(found, opened);
            assert_eq!((found.mode, found.modified), (metadata.mode, metadata.modified));
            assert_eq!(found.xattrs.as_ref(), Some(&xattrs));
        }
    }
}

#[tokio::test]
async fn a_version_that_appears_before_the_commit_is_not_replaced() {
    let root = tempfile::tempdir().unwrap();
    for storage in both(root.path()) {
        put(&*storage, "file", b"old").await.unwrap();
        let expected = Some(storage.stat(&path("file")).await.unwrap().identity());
        let options = CommitOptions { expected, ..replacing() };
        let writer = storage.create(&path("file"), &CreateOptions::default()).await.unwrap();
        writer.write_at(0, block(b"from here")).await.unwrap();
        put(&*storage, "file", b"new").await.unwrap();
        let whole = storage.write_whole(&path("file"), Bytes::from_static(b"x"), &options).await;
        for outcome in [writer.commit(9, &options).await, whole] {
            let error = outcome.unwrap_err();
            assert_eq!((error.kind(), error.retry()), (ErrorKind::Changed, Retry::Never));
        }
        writer.abort(false).await.unwrap();
        assert_eq!(names(root.path()), ["file"]);
        assert_eq!(content(&*storage, "file").await.unwrap(), b"new");
    }
}

/// Set-id bits lend the owner's rights, and the owner of a copy is the user who made it.
#[tokio::test]
async fn set_id_bits_are_set_only_together_with_the_owner() {
    let root = tempfile::tempdir().unwrap();
    let me = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    for storage in both(root.path()) {
        for (owner, expected) in [(None, 0o755), (Some(me), 0o4755)] {
            let metadata = Metadata { mode: Some(0o4755), owner, ..Metadata::default() };
            let options = CommitOptions { metadata, replace: true, sync: false, expected: None };
            let bytes = Bytes::from_static(b"#!");
            storage.write_whole(&path("whole"), bytes, &options).await.unwrap();
            let writer = storage.create(&path("file"), &CreateOptions::default()).await.unwrap();
            writer.commit(0, &options).await.unwrap();
            for name in ["whole", "file"] {
                assert_eq!(storage.stat(&path(name)).await.unwrap().mode, Some(expected), "{name}");
            }
        }
    }
}

/// haul compares the owner of an existing part file with that of a new probe file, which a killed run may leave.
#[tokio::test]
async fn the_probe_file_of_a_killed_run_is_removed_by_the_next_check_of_owners() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root, to make another user's file");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    for storage in both(root.path()) {
        let part = root.path().join(".file.haul-part");
        fs::write(&part, "forged").unwrap();
        std::os::unix::fs::chown(&part, Some(12345), Some(12345)).unwrap();
        put(&*storage, "other", b"1").await.unwrap();
        fs::write(root.path().join(".haul.owner.haul-temp"), "").unwrap();
        let options = CreateOptions { resume: true, ..CreateOptions::default() };
        let writer = storage.create(&path("file"), &options).await.unwrap();
        writer.commit(0, &replacing()).await.unwrap();
        assert_eq!(content(&*storage, "file").await.unwrap(), b"");
        fs::remove_file(root.path().join("file")).unwrap();
    }
    // Only the portable calls, which come last, give the probe file a name.
    assert!(!root.path().join(".haul.owner.haul-temp").exists());
}

#[tokio::test]
async fn a_replaced_file_keeps_its_mode_if_none_is_given() {
    let root = tempfile::tempdir().unwrap();
    for storage in both(root.path()) {
        put(&*storage, "file", b"1").await.unwrap();
        assert_eq!(storage.stat(&path("file")).await.unwrap().mode, Some(0o644));
        let metadata = Metadata { mode: Some(0o600), ..Metadata::default() };
        storage.set_metadata(&path("file"), &metadata).await.unwrap();
        put(&*storage, "file", b"2").await.unwrap();
        assert_eq!(storage.stat(&path("file")).await.unwrap().mode, Some(0o600));
        let writer = storage.create(&path("file"), &CreateOptions::default()).await.unwrap();
        writer.commit(0, &replacing()).await.unwrap();
        assert_eq!(storage.stat(&path("file")).await.unwrap().mode, Some(0o600));
        storage.remove(&path("file")).await.unwrap();
    }
}

#[tokio::test]
async fn the_time_of_a_link_is_set_without_changing_its_target() {
    let root = tempfile::tempdir().unwrap();
    for storage in both(root.path()) {
        put(&*storage, "file", b"1").await.unwrap();
        let link = path("link");
        let kind = LinkKind::Symbolic(b"file".to_vec());
        storage.create_link(&link, &kind, false).await.unwrap();
        let again = storage.create_link(&link, &kind, false).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AlreadyExists);
        storage.create_link(&link, &kind, true).await.unwrap();
        let modified = Some(Timestamp { seconds: 1, nanos: 2 });
        let metadata = Metadata { mode: Some(0o400), modified, ..Metadata::default() };
        storage.set_metadata(&link, &metadata).await.unwrap();
        assert_eq!(storage.stat(&link).await.unwrap().modified, modified);
        // Formerly, the time was not set if setting the owner failed. This owner is not valid.
        let modified = Some(Timestamp { seconds: 3, nanos: 4 });
        let metadata = Metadata { owner: Some((u32::MAX, 0)), modified, ..Metadata::default() };
        let outcome = storage.set_metadata(&link, &metadata).await;
        assert_eq!(outcome.is_err(), storage.capabilities().owner);
        assert_eq!(storage.stat(&link).await.unwrap().modified, modified);
        assert_ne!(storage.stat(&path("file")).await.unwrap().modified, modified);
        assert_eq!(names(root.path()), ["file", "link"]);
        storage.remove(&link).await.unwrap();
        storage.remove(&path("file")).await.unwrap();
    }
}

#[tokio::test]
async fn replacing_by_a_link_removes_the_temporary_link_of_a_killed_run() {
    let root = tempfile::tempdir().unwrap();
    let storage = open(root.path());
    put(&*storage, "one", b"1").await.unwrap();
    for (name, link) in
        [("soft", LinkKind::Symbolic(b"one".to_vec())), ("hard", LinkKind::Hard(path("one")))]
    {
        put(&*storage, name, b"old").await.unwrap();
        let left = haul_storage::temporary_name(name.as_bytes(), "link");
        symlink("other", root.path().join(OsStr::from_bytes(&left))).unwrap();
        storage.create_link(&path(name), &link, true).await.unwrap();
    }
    assert_eq!(names(root.path()), ["hard", "one", "soft"]);
    assert_eq!(fs::read(root.path().join("hard")).unwrap(), b"1");
    assert_eq!(fs::read_link(root.path().join("soft")).unwrap(), Path::new("one"));
}

#[tokio::test]
async fn replacing_a_hard_link_by_itself_leaves_no_litter() {
    let root = tempfile::tempdir().unwrap();
    let storage = open(root.path());
    put(&*storage, "one", b"1").await.unwrap();
    let link = LinkKind::Hard(path("one"));
    for _ in 0..2 {
        storage.create_link(&path("two"), &link, true).await.unwrap();
        assert_eq!(names(root.path()), ["one", "two"]);
    }
    assert_eq!(storage.stat(&path("one")).await.unwrap().links, 2);
}

#[tokio::test]
async fn written_data_can_be_read_back_from_the_medium() {
    let root = tempfile::tempdir().unwrap();
    let storage = open(root.path());
    let bytes = pattern(3 << 20);
    let writer = storage.create(&path("file"), &CreateOptions::default()).await.unwrap();
    writer.write_at(0, block(&bytes)).await.unwrap();
    for uncached in [false, true] {
        let reader = writer.reopen(uncached).await.unwrap();
        assert_eq!(common::read(&*reader, Range::new(0, 9 << 20)).await.unwrap(), bytes);
    }
}

#[tokio::test]
async fn a_copy_within_the_kernel_is_exact_or_declined() {
    let root = tempfile::tempdir().unwrap();
    let bytes = pattern(5 << 20);
    fs::write(root.path().join("source"), &bytes).unwrap();
    let [linux, portable] = both(root.path());
    let source = linux.open(&path("source")).await.unwrap();
    let ranges = [Range::new(0, 5 << 20), Range::between(4097, 2_000_001)];
    for range in ranges {
        let writer = linux.create(&path("copy"), &CreateOptions::default()).await.unwrap();
        assert!(writer.copy_from(&*source, range).await.unwrap());
        writer.commit(range.end(), &replacing()).await.unwrap();
        let copied = fs::read(root.path().join("copy")).unwrap();
        let start = usize::try_from(range.start()).unwrap();
        assert!(copied[start..] == bytes[start..copied.len()]);
        assert!(copied[..start].iter().all(|byte| *byte == 0));
    }
    let writer = portable.create(&path("copy"), &CreateOptions::default()).await.unwrap();
    assert!(!writer.copy_from(&*source, ranges[0]).await.unwrap());
    // Between two file systems, if this machine has /dev/shm.
    if let Ok(shm) = tempfile::tempdir_in("/dev/shm") {
        let writer = open(shm.path()).create(&path("copy"), &CreateOptions::default()).await;
        let writer = writer.unwrap();
        if writer.copy_from(&*source, ranges[0]).await.unwrap() {
            writer.commit(5 << 20, &fresh()).await.unwrap();
            assert!(fs::read(shm.path().join("copy")).unwrap() == bytes);
        }
    }
}

#[tokio::test]
async fn a_copy_notices_that_its_source_became_shorter() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("source"), pattern(1 << 20)).unwrap();
    let storage = open(root.path());
    let source = storage.open(&path("source")).await.unwrap();
    let file = fs::File::options().write(true).open(root.path().join("source")).unwrap();
    file.set_len(1000).unwrap();
    let writer = storage.create(&path("copy"), &CreateOptions::default()).await.unwrap();
    let outcome = writer.copy_from(&*source, Range::between(10, 1 << 20)).await;
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Changed);
}

/// btrfs and XFS share the blocks of a copy, which then occupies no space.
#[tokio::test]
async fn a_copy_shares_blocks_where_the_file_system_can() {
    for kind in ["btrfs", "xfs"] {
        let Some(mounted) = Mounted::image(kind, 512) else { continue };
        let root = mounted.path();
        let bytes = pattern(64 << 20);
        fs::write(root.join("source"), &bytes).unwrap();
        let storage = open(&root);
        let source = storage.open(&path("source")).await.unwrap();
        rustix::fs::sync();
        let free = || rustix::fs::statvfs(&root).map(|found| found.f_bavail * found.f_frsize);
        let before = free().unwrap();
        for number in 0..10 {
            let to = path(format!("copy{number}"));
            if number % 2 == 0 {
                storage.copy(&path("source"), &to).await.unwrap();
            } else {
                let options = CreateOptions { size: Some(64 << 20), ..CreateOptions::default() };
                let writer = storage.create(&to, &options).await.unwrap();
                assert!(writer.copy_from(&*source, Range::new(0, 64 << 20)).await.unwrap());
                writer.commit(64 << 20, &fresh()).await.unwrap();
            }
        }
        rustix::fs::sync();
        let taken = before.saturating_sub(free().unwrap());
        assert!(taken < 64 << 20, "{kind}: ten copies took {taken} bytes");
        assert!(fs::read(root.join("copy9")).unwrap() == bytes);
    }
}

#[tokio::test]
async fn a_directory_is_locked_against_other_runs() {
    let root = tempfile::tempdir().unwrap();
    let [one, other] = both(root.path());
    let held = one.lock(&path("")).await.unwrap();
    let error = other.lock(&path("")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.cause().ends_with("another run of haul is working in it"), "{error}");
    drop(held);
    let _held = other.lock(&path("")).await.unwrap();
}
