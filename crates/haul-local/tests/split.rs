//! Split files on a real file system: sizes around part boundaries, resuming, conversion between split and
//! whole files, and folders that are not split files.

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use common::{
    block, content, fresh, names, open, path, pattern, put, ranges, read, replacing, source,
};
use haul_local::{PART_BYTES, SplitMode, SplitStorage};
use haul_storage::{
    CommitOptions, CreateOptions, ErrorKind, Held, Identity, LinkKind, Metadata, Range, RangeSet,
    Storage, StorageExt as _, Timestamp,
};

const PART: usize = 1000;

fn split(root: &Path) -> Arc<SplitStorage> {
    SplitStorage::new(open(root), SplitMode::Size(PART as u64))
}

fn sized(size: usize) -> CreateOptions {
    let source = Some(source(size as u64));
    CreateOptions { resume: true, size: Some(size as u64), sparse: false, source, ..<_>::default() }
}

#[tokio::test]
async fn files_around_part_boundaries_read_back_unchanged() {
    let cases: [(usize, &[&str]); 9] = [
        (0, &[]),                            // empty
        (1, &[]),                            // far below a part
        (PART - 1, &[]),                     // one byte less than a part
        (PART, &[]),                         // exactly one part: not split
        (PART + 1, &["00", "01"]),           // the smallest split file: a last part of one byte
        (2 * PART - 1, &["00", "01"]),       // a last part that lacks one byte
        (2 * PART, &["00", "01"]),           // a full last part, and no empty one after it
        (2 * PART + 1, &["00", "01", "02"]), // the smallest with a middle part
        (3 * PART, &["00", "01", "02"]),     // three full parts
    ];
    for (size, parts) in cases {
        for whole in [true, false] {
            let root = tempfile::tempdir().unwrap();
            let storage = split(root.path());
            let bytes = pattern(size);
            if whole {
                put(&*storage, "file", &bytes).await.unwrap();
            } else {
                let writer = storage.create(&path("file"), &sized(size)).await.unwrap();
                // Write backwards, in blocks that cross part boundaries.
                for (number, piece) in bytes.chunks(700).enumerate().rev() {
                    writer.write_at(number as u64 * 700, block(piece)).await.unwrap();
                }
                writer.commit(size as u64, &fresh()).await.unwrap();
            }
            assert_eq!(names(root.path()), ["file"], "{size}");
            let file = root.path().join("file");
            if parts.is_empty() {
                assert!(file.is_file(), "{size}");
            } else {
                assert_eq!(names(&file), parts, "{size}");
            }
            let entry = storage.stat(&path("file")).await.unwrap();
            assert!(entry.is_file());
            assert_eq!(entry.size, size as u64);
            assert_eq!(storage.list_sorted(&path("")).await.unwrap(), [entry]);
            assert_eq!(content(&*storage, "file").await.unwrap(), bytes, "{size}");
            let read_whole = storage.read_whole(&path("file"), 10_000).await.unwrap();
            assert_eq!(read_whole.bytes, bytes);
            let reader = storage.open(&path("file")).await.unwrap();
            for start in [0, 1, PART - 1, PART, PART + 1, 2 * PART] {
                let end = (start + PART + 1).min(size).max(start);
                let range = Range::between(start as u64, end as u64);
                let expected = bytes.get(start..end).unwrap_or_default();
                assert_eq!(read(&*reader, range).await.unwrap(), expected, "{range} of {size}");
            }
            storage.remove(&path("file")).await.unwrap();
            assert_eq!(names(root.path()), [""; 0]);
        }
    }
}

#[tokio::test]
async fn parts_beyond_99_have_three_digits() {
    let root = tempfile::tempdir().unwrap();
    let storage = SplitStorage::new(open(root.path()), SplitMode::Size(10));
    let bytes = pattern(1015);
    put(&*storage, "file", &bytes).await.unwrap();
    let parts = names(&root.path().join("file"));
    assert_eq!(parts.len(), 102);
    assert!(parts.contains(&"99".to_owned()) && parts.contains(&"100".to_owned()));
    assert_eq!(content(&*storage, "file").await.unwrap(), bytes);
}

#[tokio::test]
async fn an_interrupted_upload_resumes_at_any_stage_of_the_commit() {
    let bytes = pattern(3 * PART + 5);
    // Killed before the commit; during the commit, with one part renamed; just before the last rename.
    for named in [0, 1, 4] {
        let root = tempfile::tempdir().unwrap();
        let storage = split(root.path());
        let writer = storage.create(&path("file"), &sized(bytes.len())).await.unwrap();
        assert_eq!(*writer.held(), Held::Ranges(RangeSet::new()));
        writer.write_at(0, block(&bytes)).await.unwrap();
        writer.record(ranges(0, bytes.len() as u64)).await.unwrap();
        assert_eq!(names(root.path()), [".file.haul-journal", ".file.haul-part"]);
        let busy = split(root.path()).create(&path("file"), &sized(bytes.len())).await;
        assert_eq!(busy.unwrap_err().kind(), ErrorKind::Busy);
        drop(writer);
        let folder = root.path().join(".file.haul-part/1000");
        for number in 0..named {
            let part = folder.join(format!(".{number:02}.haul-part"));
            fs::rename(part, folder.join(format!("{number:02}"))).unwrap();
        }
        let writer = storage.create(&path("file"), &sized(bytes.len())).await.unwrap();
        assert_eq!(*writer.held(), Held::Ranges(ranges(0, bytes.len() as u64)), "{named}");
        let reader = writer.reopen(false).await.unwrap();
        assert_eq!(read(&*reader, Range::new(0, 10_000)).await.unwrap(), bytes, "{named}");
        writer.commit(bytes.len() as u64, &fresh()).await.unwrap();
        assert_eq!(content(&*storage, "file").await.unwrap(), bytes);
        assert_eq!(names(root.path()), ["file"]);
    }
}

/// With another part length, the bytes of the part files would have other offsets.
#[tokio::test]
async fn a_part_file_with_another_part_length_is_not_resumed() {
    let root = tempfile::tempdir().unwrap();
    let writer = split(root.path()).create(&path("file"), &sized(5000)).await.unwrap();
    writer.write_at(0, block(&pattern(5000))).await.unwrap();
    writer.record(ranges(0, 5000)).await.unwrap();
    drop(writer);
    let other = SplitStorage::new(open(root.path()), SplitMode::Size(2000));
    let writer = other.create(&path("file"), &sized(5000)).await.unwrap();
    assert_eq!(*writer.held(), Held::Ranges(RangeSet::new()));
    writer.abort(false).await.unwrap();
    assert_eq!(names(root.path()), [""; 0]);
    // A part file that is not split is not resumed as a split file.
    let plain = open(root.path());
    let writer = plain.create(&path("file"), &CreateOptions::default()).await.unwrap();
    let busy = split(root.path()).create(&path("file"), &sized(5000)).await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    drop(writer);
    let writer = split(root.path()).create(&path("file"), &sized(5000)).await.unwrap();
    assert_eq!(*writer.held(), Held::Ranges(RangeSet::new()));
    writer.write_at(0, block(b"x")).await.unwrap();
    drop(writer);
    let writer = split(root.path()).create(&path("file"), &sized(10)).await.unwrap();
    assert_eq!(*writer.held(), Held::Ranges(RangeSet::new()));
    writer.commit(10, &fresh()).await.unwrap();
    assert_eq!(names(root.path()), ["file"]);
}

#[tokio::test]
async fn whole_and_split_files_replace_each_other() {
    for whole in [true, false] {
        let root = tempfile::tempdir().unwrap();
        let storage = split(root.path());
        for size in [10, 2500, 3500, 20, 999] {
            let bytes = pattern(size);
            if whole {
                let (name, new) = (path("file"), fresh());
                let error = storage.write_whole(&name, bytes.clone().into(), &new).await;
                let error = error.err().map(|error| error.kind());
                assert!(size == 10 || error == Some(ErrorKind::AlreadyExists), "{error:?}");
                storage
                    .write_whole(&path("file"), bytes.clone().into(), &replacing())
                    .await
                    .unwrap();
            } else {
                let writer = storage.create(&path("file"), &sized(size)).await.unwrap();
                writer.write_at(0, block(&bytes)).await.unwrap();
                let early = writer.commit(size as u64, &fresh()).await;
                let early = early.err().map(|error| error.kind());
                if size != 10 {
                    assert_eq!(early, Some(ErrorKind::AlreadyExists));
                    writer.commit(size as u64, &replacing()).await.unwrap();
                }
            }
            assert_eq!(content(&*storage, "file").await.unwrap(), bytes);
            assert_eq!(names(root.path()), ["file"]);
        }
    }
}

#[tokio::test]
async fn a_real_directory_is_never_replaced() {
    let root = tempfile::tempdir().unwrap();
    let storage = split(root.path());
    fs::create_dir(root.path().join("dir")).unwrap();
    for size in [10, 2500] {
        let error = put(&*storage, "dir", &pattern(size)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IsADirectory, "{size}");
    }
    assert_eq!(names(root.path()), ["dir"]);
}

/// State after a kill between the two renames of a replacement: the old file is moved aside, the new one is
/// not yet in place.
#[tokio::test]
async fn an_old_file_that_was_moved_aside_is_restored() {
    let root = tempfile::tempdir().unwrap();
    let storage = split(root.path());
    put(&*storage, "file", b"old").await.unwrap();
    fs::rename(root.path().join("file"), root.path().join(".file.haul-old")).unwrap();
    let writer = storage.create(&path("file"), &sized(2500)).await.unwrap();
    assert_eq!(content(&*storage, "file").await.unwrap(), b"old");
    writer.abort(false).await.unwrap();
    assert_eq!(names(root.path()), ["file"]);
}

/// Formerly, only a writer restored it: after a small file, a link or a rename, the old file stayed hidden aside.
#[tokio::test]
async fn no_write_leaves_an_old_split_file_aside() {
    let root = tempfile::tempdir().unwrap();
    let storage = split(root.path());
    let move_aside = async || {
        put(&*storage, "file", &pattern(2500)).await.unwrap();
        fs::rename(root.path().join("file"), root.path().join(".file.haul-old")).unwrap();
    };
    move_aside().await;
    let small = Bytes::from_static(b"new");
    let error = storage.write_whole(&path("file"), small.clone(), &fresh()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "the old file is back");
    assert_eq!(content(&*storage, "file").await.unwrap(), pattern(2500));

    move_aside().await;
    storage.write_whole(&path("file"), small.clone(), &replacing()).await.unwrap();
    assert_eq!(names(root.path()), ["file"]);

    storage.remove(&path("file")).await.unwrap();
    move_aside().await;
    put(&*storage, "other", b"new").await.unwrap();
    storage.rename(&path("other"), &path("file")).await.unwrap();
    assert_eq!(names(root.path()), ["file"]);

    storage.remove(&path("file")).await.unwrap();
    move_aside().await;
    storage.create_link(&path("file"), &LinkKind::Symbolic(b"x".to_vec()), true).await.unwrap();
    assert_eq!(names(root.path()), ["file"]);
}

#[tokio::test]
async fn only_a_folder_of_the_exact_form_is_a_split_file() {
    type Parts = &'static [(&'static str, usize)];
    let cases: [(&str, Parts, bool); 9] = [
        ("two parts", &[("00", PART), ("01", 1)], true),
        ("all full", &[("00", PART), ("01", PART)], true),
        ("a single part", &[("00", PART)], false),
        ("a short first part", &[("00", PART - 1), ("01", 1)], false),
        ("a short middle part", &[("00", PART), ("01", 5), ("02", PART)], false),
        ("a part missing", &[("00", PART), ("02", 1)], false),
        ("something else in it", &[("00", PART), ("01", 1), ("readme", 1)], false),
        ("an empty last part", &[("00", PART), ("01", 0)], false),
        ("a longer last part", &[("00", PART), ("01", PART + 1)], false),
    ];
    let root = tempfile::tempdir().unwrap();
    let storage = split(root.path());
    let never = SplitStorage::new(open(root.path()), SplitMode::Never);
    for (case, parts, is_file) in cases {
        let folder = root.path().join(case);
        fs::create_dir(&folder).unwrap();
        for (name, size) in parts {
            fs::write(folder.join(name), pattern(*size)).unwrap();
        }
        assert_eq!(storage.stat(&path(case)).await.unwrap().is_file(), is_file, "{case}");
        assert!(never.stat(&path(case)).await.unwrap().is_dir());
        if is_file {
            let total: usize = parts.iter().map(|(_, size)| size).sum();
            assert_eq!(content(&*storage, case).await.unwrap().len(), total);
            assert!(storage.list(&path(case)).await.is_err());
        } else {
            assert_eq!(
                storage.open(&path(case)).await.unwrap_err().kind(),
                ErrorKind::IsADirectory
            );
            assert_eq!(storage.list_sorted(&path(case)).await.unwrap().len(), parts.len());
        }
    }
}

/// The form that other programs use on FAT drives (`PART_BYTES`); the first part is sparse here.
#[tokio::test]
async fn a_folder_with_parts_of_4_294_901_760_bytes_is_joined_by_default() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("file");
    fs::create_dir(&folder).unwrap();
    fs::File::create(folder.join("00")).unwrap().set_len(PART_BYTES).unwrap();
    fs::write(folder.join("01"), "the end").unwrap();
    let storage = SplitStorage::new(open(root.path()), SplitMode::Auto);
    let reader = storage.open(&path("file")).await.unwrap();
    assert_eq!(reader.identity().size, 4_294_901_760 + 7);
    let found = read(&*reader, Range::new(PART_BYTES - 3, 100)).await.unwrap();
    assert_eq!(found, b"\0\0\0the end");
    let data = reader.next_data(1).await.unwrap().unwrap();
    assert_eq!(data, Range::new(PART_BYTES, 7));
    // Files are not split where the file system has no maximum file size.
    assert_eq!(storage.capabilities().max_file_size, None);
    put(&*storage, "other", &pattern(5000)).await.unwrap();
    assert!(root.path().join("other").is_file());
}

#[tokio::test]
async fn only_the_expected_version_of_a_split_file_is_replaced() {
    // Split and plain files replace each other and themselves.
    for (old, new) in [(2500, 2600), (2500, 5), (5, 2500), (5, 7)] {
        let root = tempfile::tempdir().unwrap();
        let storage = split(root.path());
        let mut versions = Vec::new();
        for size in [old, old + 1] {
            put(&*storage, "file", &pattern(size)).await.unwrap();
            versions.push(storage.stat(&path("file")).await.unwrap().identity());
        }
        let replace = async |expected: &Identity, is_whole: bool| {
            let options = CommitOptions { expected: Some(expected.clone()), ..replacing() };
            let bytes = pattern(new);
            if is_whole {
                return storage.write_whole(&path("file"), bytes.into(), &options).await;
            }
            let writer = storage.create(&path("file"), &sized(new)).await.unwrap();
            writer.write_at(0, block(&bytes)).await.unwrap();
            let outcome = writer.commit(new as u64, &options).await;
            if outcome.is_err() {
                writer.abort(false).await.unwrap();
            }
            outcome
        };
        for is_whole in [true, false] {
            let error = replace(&versions[0], is_whole).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Changed, "{old} → {new}, {is_whole}");
            assert_eq!(content(&*storage, "file").await.unwrap(), pattern(old + 1));
        }
        replace(&versions[1], false).await.unwrap();
        assert_eq!(content(&*storage, "file").await.unwrap(), pattern(new));
        assert_eq!(names(root.path()), ["file"]);
    }
}

#[tokio::test]
async fn a_changed_part_is_detected() {
    let root = tempfile::tempdir().unwrap();
    let storage = split(root.path());
    put(&*storage, "file", &pattern(2500)).await.unwrap();
    let reader = storage.open(&path("file")).await.unwrap();
    assert_eq!(&reader.recheck().await.unwrap(), reader.identity());
    fs::write(root.path().join("file/01"), vec![0; PART]).unwrap();
    assert_ne!(&reader.recheck().await.unwrap(), reader.identity());
    let error = read(&*reader, Range::new(1500, 10)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed);
    assert_eq!(read(&*reader, Range::new(0, 10)).await.unwrap(), &pattern(2500)[..10]);
}

#[tokio::test]
async fn rename_copy_and_set_metadata_treat_a_split_file_as_one_file() {
    let root = tempfile::tempdir().unwrap();
    let storage = split(root.path());
    let bytes = pattern(2500);
    put(&*storage, "a", &bytes).await.unwrap();
    put(&*storage, "plain", b"plain").await.unwrap();
    storage.copy(&path("a"), &path("b")).await.unwrap();
    let again = storage.copy(&path("a"), &path("plain")).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    storage.rename(&path("a"), &path("plain")).await.unwrap();
    storage.rename(&path("b"), &path("plain")).await.unwrap();
    assert_eq!(content(&*storage, "plain").await.unwrap(), bytes);
    let modified = Some(Timestamp { seconds: 77, nanos: 0 });
    let metadata = Metadata { mode: Some(0o640), modified, ..Metadata::default() };
    storage.set_metadata(&path("plain"), &metadata).await.unwrap();
    let entry = storage.stat(&path("plain")).await.unwrap();
    assert_eq!((entry.mode, entry.modified), (Some(0o640), modified));
    assert_eq!(storage.metadata(&path("plain")).await.unwrap().modified, modified);
    assert_eq!(names(root.path()), ["plain"]);
    storage.remove_all(&path("plain")).await.unwrap();
    assert_eq!(names(root.path()), [""; 0]);
}

#[tokio::test]
async fn unwritten_ranges_of_a_split_file_read_as_zeros() {
    let root = tempfile::tempdir().unwrap();
    let storage = split(root.path());
    let options = CreateOptions { resume: false, size: Some(4500), sparse: true, ..<_>::default() };
    let writer = storage.create(&path("file"), &options).await.unwrap();
    writer.write_at(4400, block(&[7; 100])).await.unwrap();
    let reader = writer.reopen(false).await.unwrap();
    let mut expected = vec![0; 4400];
    expected.extend([7; 100]);
    assert_eq!(read(&*reader, Range::new(0, 9999)).await.unwrap(), expected);
    writer.commit(4500, &fresh()).await.unwrap();
    assert_eq!(content(&*storage, "file").await.unwrap(), expected);
}

/// Writes round-robin to more parts than are held open.
#[tokio::test]
async fn many_parts_do_not_use_up_the_descriptors() {
    let root = tempfile::tempdir().unwrap();
    let storage = SplitStorage::new(open(root.path()), SplitMode::Size(10));
    let bytes = pattern(3000);
    let writer = storage.create(&path("file"), &sized(3000)).await.unwrap();
    for offset in (0..10).rev() {
        for part in 0..300 {
            let at = part * 10 + offset;
            writer.write_at(at as u64, block(&bytes[at..=at])).await.unwrap();
        }
    }
    let held = fs::read_dir("/proc/self/fd").unwrap().count();
    assert!(held < 250, "{held} descriptors");
    writer.commit(3000, &fresh()).await.unwrap();
    assert_eq!(content(&*storage, "file").await.unwrap(), bytes);
}
