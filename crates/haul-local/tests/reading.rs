//! Reading: special files, unusual names, holes, block sizes, listings.

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::time::{Duration, Instant};

use common::{block, both, content, fresh, open, path, pattern, put, read};
use futures_util::StreamExt as _;
use haul_local::{LocalOptions, LocalStorage};
use haul_storage::{
    CreateOptions, EntryKind, ErrorKind, Range, SpecialKind, Storage, StorageExt as _,
};
use rustix::fs::{CWD, Mode};

/// Opening a pipe for reading would otherwise wait for a writer forever.
#[tokio::test]
async fn a_named_pipe_is_refused_and_does_not_block() {
    let root = tempfile::tempdir().unwrap();
    rustix::fs::mkfifoat(CWD, root.path().join("pipe"), Mode::from_raw_mode(0o600)).unwrap();
    for storage in both(root.path()) {
        let entry = storage.stat(&path("pipe")).await.unwrap();
        assert_eq!(entry.kind, EntryKind::Special(SpecialKind::Fifo));
        for outcome in [
            storage.open(&path("pipe")).await.map(drop),
            storage.read_whole(&path("pipe"), 10).await.map(drop),
            storage.copy(&path("pipe"), &path("copy")).await,
        ] {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.cause().ends_with("is a named pipe"), "{error}");
        }
        storage.metadata(&path("pipe")).await.unwrap();
    }
}

#[tokio::test]
async fn a_socket_and_a_device_are_recognised_and_refused() {
    let root = tempfile::tempdir().unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(root.path().join("socket")).unwrap();
    let storage = open(root.path());
    let entry = storage.stat(&path("socket")).await.unwrap();
    assert_eq!(entry.kind, EntryKind::Special(SpecialKind::Socket));
    let error = storage.open(&path("socket")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let devices = open(std::path::Path::new("/dev"));
    let entry = devices.stat(&path("null")).await.unwrap();
    assert_eq!(entry.kind, EntryKind::Special(SpecialKind::CharDevice));
    let error = devices.open(&path("null")).await.unwrap_err();
    assert!(error.cause().ends_with("is a character device"), "{error}");
}

#[tokio::test]
async fn an_open_file_that_grows_is_distinguished_from_another_that_takes_its_name() {
    let root = tempfile::tempdir().unwrap();
    for storage in both(root.path()) {
        let file = root.path().join("log");
        fs::write(&file, "first").unwrap();
        let reader = storage.open(&path("log")).await.unwrap();
        assert!(reader.grown().await.unwrap().is_none());
        fs::File::options().write(true).open(&file).unwrap().write_all_at(b", second", 5).unwrap();
        let grown = reader.grown().await.unwrap().unwrap();
        fs::remove_file(&file).unwrap();
        fs::write(&file, "another file, which is longer").unwrap();
        assert!(grown.grown().await.unwrap().is_none());
        assert_eq!(grown.identity().size, 13);
        assert_eq!(read(&*grown, Range::new(0, 100)).await.unwrap(), b"first, second");
    }
}

#[tokio::test]
async fn every_name_that_the_file_system_allows_is_stored_unchanged() {
    let long = [b'n'; 255];
    let names: [&[u8]; 7] =
        [b"line\nbreak", b"\xff\xfe not utf-8", &long, b"-rf", b" ", b"...", b"\x1b[31m"];
    let root = tempfile::tempdir().unwrap();
    for storage in both(root.path()) {
        for name in names {
            put(&*storage, name, name).await.unwrap();
            let file = root.path().join(OsStr::from_bytes(name));
            assert_eq!(fs::read(&file).unwrap(), name);
            let writer = storage.create(&path(name), &CreateOptions::default()).await.unwrap();
            writer.write_at(0, block(b"again")).await.unwrap();
            writer.commit(5, &common::replacing()).await.unwrap();
            assert_eq!(content(&*storage, name).await.unwrap(), b"again");
        }
        let listed = storage.list_sorted(&path("")).await.unwrap();
        let mut expected = names.map(<[u8]>::to_vec);
        expected.sort();
        let listed: Vec<_> = listed.iter().map(|entry| entry.path.name().to_vec()).collect();
        assert_eq!(listed, expected);
    }
}

#[tokio::test]
async fn every_block_size_reads_and_writes_the_same_bytes() {
    let root = tempfile::tempdir().unwrap();
    let bytes = pattern(3_000_001);
    fs::write(root.path().join("file"), &bytes).unwrap();
    // One byte, the minimum of `--block-size`, an odd size, 1 MiB, and the maximum.
    for block_size in [1, 1024, 300_007, 1 << 20, 1 << 30] {
        let options = LocalOptions { block_size, ..LocalOptions::default() };
        let storage = LocalStorage::open(root.path(), options).unwrap();
        assert_eq!(content(&*storage, "file").await.unwrap(), bytes, "{block_size}");
        let reader = storage.open(&path("file")).await.unwrap();
        let range = Range::between(999_999, 2_000_003);
        assert_eq!(read(&*reader, range).await.unwrap(), &bytes[999_999..2_000_003]);
        let writer = storage.create(&path("copy"), &CreateOptions::default()).await.unwrap();
        let mut many = haul_storage::Block::new();
        for piece in bytes.chunks(1999) {
            many.push(bytes::Bytes::copy_from_slice(piece));
        }
        writer.write_at(0, many).await.unwrap();
        writer.commit(bytes.len() as u64, &common::replacing()).await.unwrap();
        assert_eq!(fs::read(root.path().join("copy")).unwrap(), bytes, "{block_size}");
    }
}

/// 1 TiB of hole with three islands of data: only those are read.
#[tokio::test]
async fn only_the_data_of_a_sparse_file_of_1_tib_is_copied() {
    const LENGTH: u64 = 1 << 40;
    let root = tempfile::tempdir().unwrap();
    let source = fs::File::create(root.path().join("source")).unwrap();
    source.set_len(LENGTH).unwrap();
    let islands = [0, LENGTH / 2 + 4096, LENGTH - 5];
    for offset in islands {
        source.write_at(b"land!", offset).unwrap();
    }
    let storage = open(root.path());
    let begun = Instant::now();
    let reader = storage.open(&path("source")).await.unwrap();
    let options =
        CreateOptions { resume: false, size: Some(LENGTH), sparse: true, ..<_>::default() };
    let writer = storage.create(&path("copy"), &options).await.unwrap();
    let (mut from, mut moved) = (0, 0);
    while let Some(data) = reader.next_data(from).await.unwrap() {
        let mut offset = data.start();
        let mut blocks = reader.read_at(data);
        while let Some(block) = blocks.next().await {
            let block = block.unwrap();
            let length = block.len() as u64;
            writer.write_at(offset, block).await.unwrap();
            offset += length;
            moved += length;
        }
        from = data.end();
    }
    assert!(moved < 1 << 20, "{moved} bytes were moved");
    writer.commit(LENGTH, &fresh()).await.unwrap();
    storage.copy(&path("source"), &path("copied")).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10));
    for name in ["copy", "copied"] {
        let copy = fs::File::open(root.path().join(name)).unwrap();
        let metadata = copy.metadata().unwrap();
        assert_eq!(metadata.len(), LENGTH);
        assert!(metadata.blocks() * 512 < 1 << 20, "{} blocks", metadata.blocks());
        for offset in islands {
            let mut land = [0; 5];
            copy.read_exact_at(&mut land, offset).unwrap();
            assert_eq!(&land, b"land!");
        }
    }
    assert_eq!(reader.next_data(LENGTH).await.unwrap(), None);
    assert_eq!(reader.next_data(u64::MAX).await.unwrap(), None);
}

#[tokio::test]
async fn a_hole_at_the_end_is_not_data() {
    let root = tempfile::tempdir().unwrap();
    let file = fs::File::create(root.path().join("file")).unwrap();
    file.write_at(b"x", 0).unwrap();
    file.set_len(10 << 20).unwrap();
    let [linux, portable] = both(root.path());
    let reader = linux.open(&path("file")).await.unwrap();
    assert!(reader.next_data(0).await.unwrap().unwrap().end() < 10 << 20);
    assert_eq!(reader.next_data(5 << 20).await.unwrap(), None);
    // Without support for holes, everything is data.
    let reader = portable.open(&path("file")).await.unwrap();
    assert_eq!(reader.next_data(7).await.unwrap(), Some(Range::between(7, 10 << 20)));
}

#[tokio::test]
async fn a_file_that_changed_while_it_was_open_is_noticed() {
    let root = tempfile::tempdir().unwrap();
    let storage = open(root.path());
    put(&*storage, "file", b"one").await.unwrap();
    let reader = storage.open(&path("file")).await.unwrap();
    assert_eq!(&reader.recheck().await.unwrap(), reader.identity());
    // Another hard link moves the change time, but does not change the content.
    fs::hard_link(root.path().join("file"), root.path().join("other")).unwrap();
    assert_eq!(&reader.recheck().await.unwrap(), reader.identity());
    fs::write(root.path().join("file"), "four").unwrap();
    assert_ne!(&reader.recheck().await.unwrap(), reader.identity());
}

#[tokio::test]
async fn a_file_longer_than_the_limit_is_not_read_whole() {
    let root = tempfile::tempdir().unwrap();
    let storage = open(root.path());
    put(&*storage, "file", &[7; 100]).await.unwrap();
    assert_eq!(storage.read_whole(&path("file"), 100).await.unwrap().bytes.len(), 100);
    let error = storage.read_whole(&path("file"), 99).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed);
}

#[tokio::test]
async fn a_listing_is_batched_and_skips_vanished_entries() {
    let root = tempfile::tempdir().unwrap();
    for number in 0..2000 {
        fs::write(root.path().join(format!("{number}")), "").unwrap();
    }
    let storage = open(root.path());
    let mut stream = storage.list(&path("")).await.unwrap();
    let first = stream.next().await.unwrap().unwrap();
    assert!(first.len() <= 512, "{} entries in one batch", first.len());
    for number in 0..2000 {
        fs::remove_file(root.path().join(format!("{number}"))).unwrap();
    }
    while let Some(batch) = stream.next().await {
        assert!(batch.unwrap().len() < 512);
    }
}

#[tokio::test]
async fn an_error_of_opening_names_the_path() {
    let root = tempfile::tempdir().unwrap();
    let storage = open(root.path());
    let error = storage.open(&path("a/b")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let expected = root.path().join("a/b");
    assert!(error.to_string().starts_with(expected.to_str().unwrap()), "{error}");
    let error = LocalStorage::open(&expected, LocalOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}
