//! `create`, `write_at`, `sync`, `commit`, `abort`, `reopen`, `copy_from`.

use futures_util::future::try_join_all;

use super::fixture::{
    Failure, Fixture, Outcome, block, content, fresh, read, replacing, same, write,
};
use super::sizes::SIZES;
use crate::memory::MemoryStorage;
use crate::{Block, CommitOptions, CreateOptions, ErrorKind, Held, Range, Retry, Storage};

pub(super) async fn every_size_is_read_back(fixture: Fixture) -> Outcome {
    for (size, why) in SIZES {
        let path = fixture.path(format!("{size}"))?;
        let expected = content(size, 1);
        let writer = fixture.create(&path).await?;
        ensure_eq!(writer.held(), &Held::Unrecorded, "the ranges held without a source");
        write(&*writer, &expected, 1 << 20).await?;
        writer.commit(size, &fresh()).await?;
        let names = fixture.all_names(&fixture.dir).await?;
        ensure_eq!(names.len(), 1, "names after {size} bytes ({why})");
        fixture.has(&path, &expected).await?;
        fixture.storage.remove(&path).await?;
    }
    Ok(())
}

pub(super) async fn pieces_in_order_are_read_back(fixture: Fixture) -> Outcome {
    let path = fixture.path("file")?;
    let expected = content(300_001, 2);
    for step in [
        777,     // nothing is aligned
        32_768,  // SFTP packets
        65_536,  // a power of two
        261_120, // the longest request of OpenSSH
        300_001, // all at once
    ] {
        let writer = fixture.create(&path).await?;
        write(&*writer, &expected, step).await?;
        writer.commit(300_001, &replacing()).await?;
        fixture.has(&path, &expected).await?;
    }
    Ok(())
}

pub(super) async fn pieces_out_of_order_are_read_back(fixture: Fixture) -> Outcome {
    const STEP: usize = 50_000;
    let path = fixture.path("file")?;
    let expected = content(1_000_000, 3);
    let writer = fixture.create(&path).await?;
    // 7 and 20 have no common factor: every piece once, and no two neighbours in turn.
    for n in (0..20).map(|n| n * 7 % 20) {
        let piece = &expected[n * STEP..(n + 1) * STEP];
        writer.write_at((n * STEP) as u64, block(piece)).await?;
    }
    writer.commit(1_000_000, &fresh()).await?;
    fixture.has(&path, &expected).await
}

pub(super) async fn concurrent_pieces_are_read_back(fixture: Fixture) -> Outcome {
    const STEP: usize = 33_333;
    let path = fixture.path("file")?;
    let expected = content(3_000_000, 4);
    let writer = fixture.create(&path).await?;
    let pieces = expected.chunks(STEP).enumerate().rev();
    let writes = pieces.map(|(n, piece)| writer.write_at((n * STEP) as u64, block(piece)));
    try_join_all(writes).await?;
    writer.commit(3_000_000, &fresh()).await?;
    fixture.has(&path, &expected).await
}

pub(super) async fn a_later_write_wins(fixture: Fixture) -> Outcome {
    let path = fixture.path("file")?;
    let writer = fixture.create(&path).await?;
    writer.write_at(0, block(&[1; 100])).await?;
    writer.write_at(50, block(&[2; 100])).await?;
    writer.write_at(60, block(&[3; 10])).await?;
    writer.commit(150, &fresh()).await?;
    let mut expected = [[1; 50].as_slice(), &[2; 100]].concat();
    expected[60..70].fill(3);
    fixture.has(&path, &expected).await
}

/// Blocks from the network have many pieces, from one byte upwards.
pub(super) async fn a_block_of_many_pieces_is_written_whole(fixture: Fixture) -> Outcome {
    let path = fixture.path("file")?;
    // More pieces than one vectored system call accepts (1 024 on Linux).
    let expected = content(1500 * 1501 / 2, 5);
    let mut whole = Block::new();
    let mut rest = &expected[..];
    for length in 1..=1500 {
        let (piece, left) = rest.split_at(length);
        whole.append(block(piece));
        rest = left;
    }
    let writer = fixture.create(&path).await?;
    writer.write_at(0, whole).await?;
    writer.write_at(expected.len() as u64, Block::new()).await?;
    writer.commit(expected.len() as u64, &fresh()).await?;
    fixture.has(&path, &expected).await
}

pub(super) async fn unwritten_ranges_read_as_zeros(fixture: Fixture) -> Outcome {
    let path = fixture.path("file")?;
    for sparse in [true, false] {
        let options =
            CreateOptions { resume: false, size: Some(300_000), sparse, ..<_>::default() };
        let writer = fixture.storage.create(&path, &options).await?;
        writer.write_at(100_000, block(&[9; 1000])).await?;
        writer.commit(300_000, &replacing()).await?;
        let mut expected = vec![0; 300_000];
        expected[100_000..101_000].fill(9);
        fixture.has(&path, &expected).await?;
    }
    let writer = fixture.create(&path).await?;
    writer.commit(70_000, &replacing()).await?;
    fixture.has(&path, &[0; 70_000]).await
}

pub(super) async fn a_file_cut_shorter_at_commit_is_shorter(fixture: Fixture) -> Outcome {
    let path = fixture.path("file")?;
    let writer = fixture.create(&path).await?;
    writer.write_at(0, block(&content(5000, 6))).await?;
    writer.commit(1234, &fresh()).await?;
    fixture.has(&path, &content(1234, 6)).await
}

pub(super) async fn a_reserved_size_does_not_set_the_length(fixture: Fixture) -> Outcome {
    let path = fixture.path("file")?;
    let options =
        CreateOptions { resume: false, size: Some(1 << 20), sparse: false, ..<_>::default() };
    let writer = fixture.storage.create(&path, &options).await?;
    writer.write_at(0, block(b"short")).await?;
    writer.commit(5, &fresh()).await?;
    fixture.has(&path, b"short").await
}

pub(super) async fn a_file_appears_only_at_commit(fixture: Fixture) -> Outcome {
    let path = fixture.path("file")?;
    let writer = fixture.create(&path).await?;
    fixture.is_free(&path).await?;
    write(&*writer, &content(100_000, 7), 40_000).await?;
    if fixture.can().sync {
        writer.sync().await?;
    }
    fixture.is_free(&path).await?;
    let names = fixture.names(&fixture.dir).await?;
    ensure!(names.is_empty(), "before the commit, the directory has {names:?}");
    writer.commit(100_000, &fresh()).await?;
    ensure_eq!(
        fixture.all_names(&fixture.dir).await?,
        vec![b"file".to_vec()],
        "all names after the commit"
    );
    Ok(())
}

pub(super) async fn the_old_file_stays_until_commit(fixture: Fixture) -> Outcome {
    let path = fixture.put("file", b"old content").await?;
    let writer = fixture.create(&path).await?;
    write(&*writer, b"something new", 100).await?;
    fixture.has(&path, b"old content").await?;
    writer.commit(13, &replacing()).await?;
    fixture.has(&path, b"something new").await
}

pub(super) async fn an_existing_file_is_replaced_only_if_requested(fixture: Fixture) -> Outcome {
    let path = fixture.put("file", b"old content").await?;
    let writer = fixture.create(&path).await?;
    write(&*writer, b"new", 100).await?;
    let refused = writer.commit(3, &fresh()).await;
    ensure_error!(refused, ErrorKind::AlreadyExists, "without replace");
    fixture.has(&path, b"old content").await?;
    writer.abort(false).await?;
    fixture.has(&path, b"old content").await?;

    // A file that appeared in the meantime counts too.
    let late = fixture.path("late")?;
    let writer = fixture.create(&late).await?;
    write(&*writer, b"new", 100).await?;
    fixture.put("late", b"was faster").await?;
    ensure_error!(writer.commit(3, &fresh()).await, ErrorKind::AlreadyExists, "a late file");
    fixture.has(&late, b"was faster").await?;
    writer.abort(false).await?;

    let writer = fixture.create(&path).await?;
    write(&*writer, b"new", 100).await?;
    writer.commit(3, &replacing()).await?;
    fixture.has(&path, b"new").await?;
    let names = fixture.all_names(&fixture.dir).await?;
    ensure_eq!(names, vec![b"file".to_vec(), b"late".to_vec()], "all names");
    Ok(())
}

/// The sizes differ, because a backend may store times only to the second.
pub(super) async fn only_the_expected_version_is_replaced(fixture: Fixture) -> Outcome {
    let path = fixture.put("file", b"first").await?;
    let first = fixture.storage.stat(&path).await?.identity();
    fixture.put("file", b"second version").await?;
    let second = fixture.storage.stat(&path).await?.identity();
    for (expected, is_current) in [(first, false), (second, true)] {
        let options = CommitOptions { expected: Some(expected), ..replacing() };
        let writer = fixture.create(&path).await?;
        writer.write_at(0, block(b"third")).await?;
        let outcome = writer.commit(5, &options).await;
        if is_current {
            outcome?;
            fixture.has(&path, b"third").await?;
        } else {
            ensure_refused!(outcome, "another version exists");
            writer.abort(false).await?;
            fixture.has(&path, b"second version").await?;
        }
    }
    let gone = fixture.storage.stat(&path).await?.identity();
    fixture.storage.remove(&path).await?;
    let writer = fixture.create(&path).await?;
    writer.write_at(0, block(b"fourth")).await?;
    let options = CommitOptions { expected: Some(gone), ..replacing() };
    ensure_refused!(writer.commit(6, &options).await, "the file is missing");
    writer.abort(false).await?;
    fixture.is_free(&path).await?;
    ensure_eq!(fixture.all_names(&fixture.dir).await?, Vec::<Vec<u8>>::new(), "all names");
    Ok(())
}

pub(super) async fn an_abort_leaves_no_entries(fixture: Fixture) -> Outcome {
    let path = fixture.path("file")?;
    for written in [0, 1000] {
        let writer = fixture.create(&path).await?;
        write(&*writer, &content(written, 8), 500).await?;
        writer.abort(false).await?;
        let names = fixture.all_names(&fixture.dir).await?;
        ensure!(names.is_empty(), "{written} bytes and an abort left {names:?}");
    }
    Ok(())
}

pub(super) async fn creating_a_file_at_an_impossible_path_fails(fixture: Fixture) -> Outcome {
    let deep = fixture.path("missing/file")?;
    let options = CreateOptions::default();
    let result = fixture.storage.create(&deep, &options).await;
    ensure_error!(result, ErrorKind::NotFound, "no parent");
    fixture.is_free(&fixture.path("missing")?).await?;
    let file = fixture.put("file", b"content").await?;
    let result = fixture.storage.create(&file.join("below")?, &options).await;
    ensure_error!(result, ErrorKind::NotADirectory | ErrorKind::NotFound, "below a file");
    fixture.has(&file, b"content").await
}

/// Either `create` or `commit` has to fail.
pub(super) async fn a_directory_is_never_replaced_by_a_file(fixture: Fixture) -> Outcome {
    let dir = fixture.make_dir("dir").await?;
    let attempt = async {
        let writer = fixture.storage.create(&dir, &CreateOptions::default()).await?;
        writer.write_at(0, block(b"content")).await?;
        let result = writer.commit(7, &replacing()).await;
        if result.is_err() {
            writer.abort(false).await?;
        }
        result
    };
    ensure_error!(
        attempt.await,
        ErrorKind::IsADirectory | ErrorKind::AlreadyExists,
        "a directory exists"
    );
    ensure!(fixture.storage.stat(&dir).await?.is_dir(), "the directory is gone");
    ensure_eq!(fixture.all_names(&fixture.dir).await?, vec![b"dir".to_vec()], "all names");
    Ok(())
}

pub(super) async fn a_synced_file_is_complete(fixture: Fixture) -> Outcome {
    let path = fixture.path("file")?;
    let writer = fixture.create(&path).await?;
    let expected = content(100_000, 9);
    write(&*writer, &expected[..50_000], 20_000).await?;
    writer.sync().await?;
    writer.write_at(50_000, block(&expected[50_000..])).await?;
    writer.sync().await?;
    writer.commit(100_000, &CommitOptions { sync: true, ..fresh() }).await?;
    fixture.has(&path, &expected).await?;
    let small = fixture.path("small")?;
    let options = CommitOptions { sync: true, ..fresh() };
    fixture.storage.write_whole(&small, b"small".as_slice().into(), &options).await?;
    fixture.has(&small, b"small").await
}

/// A storage with `Writes::InOrder` may be unable to read an unfinished file.
pub(super) async fn an_unfinished_file_can_be_reopened(fixture: Fixture) -> Outcome {
    let path = fixture.path("file")?;
    let expected = content(150_000, 10);
    let writer = fixture.create(&path).await?;
    write(&*writer, &expected, 60_000).await?;
    for uncached in [false, true] {
        match writer.reopen(uncached).await {
            Err(error) if error.kind() == ErrorKind::Unsupported && !fixture.any_order() => {}
            Err(error) => return Err(error.into()),
            Ok(reader) => {
                let found = read(&*reader, Range::new(0, expected.len() as u64)).await?;
                same(&found, &expected)?;
            }
        }
    }
    writer.commit(expected.len() as u64, &fresh()).await?;
    fixture.has(&path, &expected).await
}

pub(super) async fn out_of_order_writes_fail_without_the_capability(fixture: Fixture) -> Outcome {
    let path = fixture.path("file")?;
    let writer = fixture.create(&path).await?;
    writer.write_at(0, block(b"start")).await?;
    for offset in [6, 1000, 4, 0] {
        let result = writer.write_at(offset, block(b"elsewhere")).await;
        ensure!(result.is_err(), "a write at offset {offset} instead of 5 succeeds");
    }
    writer.abort(false).await?;
    fixture.is_free(&path).await
}

pub(super) async fn several_files_are_written_at_once(fixture: Fixture) -> Outcome {
    let files = (0..20).map(|n| {
        let fixture = &fixture;
        async move {
            let path = fixture.path(format!("file {n}"))?;
            let expected = content(10_000 + n, n);
            let writer = fixture.create(&path).await?;
            write(&*writer, &expected, 3000).await?;
            writer.commit(expected.len() as u64, &fresh()).await?;
            fixture.has(&path, &expected).await
        }
    });
    try_join_all(files).await?;
    ensure_eq!(fixture.all_names(&fixture.dir).await?.len(), 20, "the number of files");
    Ok(())
}

/// Long enough for many requests or blocks of most backends.
pub(super) async fn a_big_file_is_read_back(fixture: Fixture) -> Outcome {
    const SIZE: u64 = (9 << 20) + 13;
    const STEP: usize = 1 << 20;
    let path = fixture.path("file")?;
    let expected = content(SIZE, 11);
    let options =
        CreateOptions { resume: false, size: Some(SIZE), sparse: false, ..<_>::default() };
    let writer = fixture.storage.create(&path, &options).await?;
    if fixture.any_order() {
        let pieces = expected.chunks(STEP).enumerate();
        let writes = pieces.map(|(n, piece)| writer.write_at((n * STEP) as u64, block(piece)));
        try_join_all(writes).await?;
    } else {
        write(&*writer, &expected, STEP).await?;
    }
    writer.commit(SIZE, &fresh()).await?;
    fixture.has(&path, &expected).await
}

/// `Ok(true)` means that the bytes were copied, `Ok(false)` that nothing was done; both are allowed.
pub(super) async fn copy_from_copies_all_or_nothing(fixture: Fixture) -> Outcome {
    let own = content(200_000, 12);
    let source = fixture.put("source", &own).await?;
    let foreign_storage = MemoryStorage::new();
    let foreign = content(200_000, 13);
    foreign_storage.add_file("source", &foreign);
    let foreign_path = "source".parse().map_err(|_| Failure::new("a path of the suite"))?;

    let readers = [
        (fixture.storage.open(&source).await?, own, "its own"),
        (foreign_storage.open(&foreign_path).await?, foreign, "another storage's"),
    ];
    for (reader, source, whose) in readers {
        let path = fixture.path("target")?;
        let writer = fixture.create(&path).await?;
        let range = Range::new(50_000, 100_000);
        let copied = writer.copy_from(&*reader, range).await?;
        ensure!(
            !copied || fixture.can().server_copy,
            "it copies from {whose} reader without the capability"
        );
        writer.commit(200_000, &replacing()).await?;
        let mut expected = vec![0; 200_000];
        if copied {
            expected[50_000..150_000].copy_from_slice(&source[50_000..150_000]);
        }
        fixture.has(&path, &expected).await?;
    }
    Ok(())
}
