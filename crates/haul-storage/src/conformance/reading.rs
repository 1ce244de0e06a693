//! `open`, `open_reading`, `identity`, `metadata`, `read_at`, `read_until`, `recheck`, `next_data`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt;
use futures_util::future::try_join_all;

use super::fixture::{Fixture, Outcome, block, content, fresh, read, same};
use super::sizes::{BEYOND, LENGTHS, RANGED, STARTS};
use crate::{Block, CreateOptions, ErrorKind, Metadata, Range, ReadAt, Timestamp};

pub(super) async fn every_range_is_right(fixture: Fixture) -> Outcome {
    let whole = content(RANGED, 1);
    let path = fixture.put("file", &whole).await?;
    let reader = fixture.storage.open(&path).await?;
    for (start, start_why) in STARTS {
        for (length, length_why) in LENGTHS {
            let end = (start + length).min(RANGED);
            let found = read(&*reader, Range::new(start, length)).await?;
            let right = same(&found, &whole[start as usize..end as usize]);
            right.map_err(|failure| {
                super::Failure::new(format!(
                    "{length} bytes ({length_why}) from {start} ({start_why}): {failure}"
                ))
            })?;
        }
    }
    for (start, why) in BEYOND {
        let found = read(&*reader, Range::new(start, 100)).await?;
        ensure!(found.is_empty(), "{} bytes from {start} ({why})", found.len());
    }
    Ok(())
}

pub(super) async fn concurrent_reads_do_not_mix(fixture: Fixture) -> Outcome {
    let whole = content(RANGED, 2);
    let path = fixture.put("file", &whole).await?;
    let reader = fixture.storage.open(&path).await?;
    let other = fixture.storage.open(&path).await?;
    // Overlapping, unaligned ranges, from two readers.
    let reads = (0..48).map(|n| {
        let start = n * 40_009;
        let reader = if n % 2 == 0 { &reader } else { &other };
        let whole = &whole;
        async move {
            let found = read(&**reader, Range::new(start, 150_000)).await?;
            let end = (start + 150_000).min(RANGED);
            same(&found, &whole[start as usize..end as usize])
        }
    });
    try_join_all(reads).await?;
    Ok(())
}

pub(super) async fn a_dropped_read_harms_no_other(fixture: Fixture) -> Outcome {
    let whole = content(RANGED, 3);
    let path = fixture.put("file", &whole).await?;
    let reader = fixture.storage.open(&path).await?;
    for polled in [false, true] {
        let mut abandoned = reader.read_at(Range::new(0, RANGED));
        if polled && let Some(first) = abandoned.next().await {
            first?;
        }
        drop(abandoned);
        same(&read(&*reader, Range::new(0, RANGED)).await?, &whole)?;
    }
    Ok(())
}

pub(super) async fn a_range_requested_with_the_open_is_right(fixture: Fixture) -> Outcome {
    let whole = content(RANGED, 4);
    let path = fixture.put("file", &whole).await?;
    let small = fixture.put("small", &whole[..100]).await?;
    for first in [Range::new(0, 0), Range::new(0, 1000), Range::new(0, 300_000)] {
        let reader = fixture.storage.open_reading(&small, first).await?;
        same(&read(&*reader, Range::new(0, 100)).await?, &whole[..100])?;
        let reader = fixture.storage.open_reading(&path, first).await?;
        // Twice: the second read cannot use bytes that came with the open.
        for _ in 0..2 {
            let found = read(&*reader, Range::new(0, 200_000)).await?;
            same(&found, &whole[..200_000])?;
        }
        same(&read(&*reader, Range::new(0, RANGED)).await?, &whole)?;
    }
    Ok(())
}

pub(super) async fn a_read_with_a_lowered_end_returns_all_before_it(fixture: Fixture) -> Outcome {
    let whole = content(RANGED, 3);
    let path = fixture.put("file", &whole).await?;
    let reader = fixture.storage.open(&path).await?;
    let end = Arc::new(AtomicU64::new(RANGED));
    let mut blocks = reader.read_until(Range::new(0, RANGED), &end);
    let mut found = Vec::new();
    while let Some(block) = blocks.next().await {
        block?.pieces().iter().for_each(|piece| found.extend_from_slice(piece));
        end.store(RANGED / 2, Ordering::Relaxed);
    }
    ensure!(found.len() as u64 >= RANGED / 2, "it ends after {} bytes", found.len());
    same(&found, &whole[..found.len()])?;
    same(&read(&*reader, Range::new(0, RANGED)).await?, &whole)
}

/// A range may be far longer than the file, so a backend must not reserve memory for its length.
pub(super) async fn an_endless_range_ends_with_the_file(fixture: Fixture) -> Outcome {
    for size in [0, 1, 100_000] {
        let expected = content(size, 4);
        let path = fixture.put("file", &expected).await?;
        let reader = fixture.storage.open(&path).await?;
        for length in [1 << 40, i64::MAX as u64] {
            same(&read(&*reader, Range::new(0, length)).await?, &expected)?;
        }
    }
    Ok(())
}

pub(super) async fn the_identity_equals_that_of_stat(fixture: Fixture) -> Outcome {
    let path = fixture.put("file", &content(1000, 5)).await?;
    let reader = fixture.storage.open(&path).await?;
    let entry = fixture.storage.stat(&path).await?;
    ensure_eq!(reader.identity(), &entry.identity(), "the identity of the opened file");
    Ok(())
}

pub(super) async fn the_identity_of_an_unchanged_file_stays_the_same(fixture: Fixture) -> Outcome {
    let path = fixture.put("file", &content(1000, 6)).await?;
    let reader = fixture.storage.open(&path).await?;
    read(&*reader, Range::new(0, 1000)).await?;
    fixture.put("neighbour", b"is written meanwhile").await?;
    ensure_eq!(&reader.recheck().await?, reader.identity(), "the identity at a recheck");
    Ok(())
}

pub(super) async fn a_changed_time_is_detected(fixture: Fixture) -> Outcome {
    let path = fixture.put("file", &content(1000, 7)).await?;
    let reader = fixture.storage.open(&path).await?;
    let modified = Some(Timestamp { seconds: 1_000_000_000, nanos: 0 });
    let change = Metadata { modified, ..Metadata::default() };
    fixture.storage.set_metadata(&path, &change).await?;
    let now = reader.recheck().await?;
    ensure!(&now != reader.identity(), "the file has another time, but recheck returns {now}");
    Ok(())
}

pub(super) async fn a_replaced_file_is_detected_or_read_unchanged(fixture: Fixture) -> Outcome {
    let old = content(RANGED, 8);
    let path = fixture.put("file", &old).await?;
    let reader = fixture.storage.open(&path).await?;
    // With the same length, so that only content and time differ; after a pause, because HTTP and FTP
    // have times in whole seconds.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    fixture.put("file", &content(RANGED, 9)).await?;
    detected_or_unchanged(&*reader, &old).await
}

pub(super) async fn a_file_removed_during_a_read_is_detected_or_read_unchanged(
    fixture: Fixture,
) -> Outcome {
    let old = content(RANGED, 10);
    let path = fixture.put("file", &old).await?;
    let reader = fixture.storage.open(&path).await?;
    let mut blocks = reader.read_at(Range::new(0, RANGED));
    let mut found = Vec::new();
    if let Some(first) = blocks.next().await {
        append(&mut found, &first?);
    }
    // Some storages do not remove open files.
    if fixture.storage.remove(&path).await.is_ok() {
        let rest: Vec<_> = blocks.collect().await;
        let rest: Result<Vec<_>, _> = rest.into_iter().collect();
        let whole = rest.map(|rest| {
            rest.iter().for_each(|block| append(&mut found, block));
            found
        });
        is_old_or_detected(&*reader, &old, whole.ok()).await?;
        detected_or_unchanged(&*reader, &old).await?;
    }
    Ok(())
}

fn append(bytes: &mut Vec<u8>, block: &Block) {
    block.pieces().iter().for_each(|piece| bytes.extend_from_slice(piece));
}

/// Reads the file again: either the old content is read, or the read fails, or the recheck returns another identity.
async fn detected_or_unchanged(reader: &dyn ReadAt, old: &[u8]) -> Outcome {
    let found = read(reader, Range::new(0, old.len() as u64)).await.ok();
    is_old_or_detected(reader, old, found).await
}

/// Either `found`, which was read, is the old content, or the read failed, or the recheck returns another identity.
async fn is_old_or_detected(reader: &dyn ReadAt, old: &[u8], found: Option<Vec<u8>>) -> Outcome {
    if found.is_none_or(|found| found == old) {
        return Ok(());
    }
    let now = reader.recheck().await;
    ensure!(
        now.as_ref().ok() != Some(reader.identity()),
        "the content has changed, and recheck does not detect it"
    );
    Ok(())
}

pub(super) async fn opening_a_directory_or_a_missing_file_fails(fixture: Fixture) -> Outcome {
    let storage = &fixture.storage;
    let nothing = fixture.path("nothing")?;
    ensure_error!(storage.open(&nothing).await, ErrorKind::NotFound, "a missing file");
    let deeper = nothing.join("below")?;
    ensure_error!(storage.open(&deeper).await, ErrorKind::NotFound, "no parent");
    let dir = fixture.make_dir("dir").await?;
    ensure_error!(storage.open(&dir).await, ErrorKind::IsADirectory, "a directory");
    let file = fixture.put("file", b"content").await?;
    ensure_error!(
        storage.open(&file.join("below")?).await,
        ErrorKind::NotADirectory | ErrorKind::NotFound,
        "below a file"
    );
    Ok(())
}

/// Extents may cover more than the data, even the whole file, but must not leave data out.
pub(super) async fn all_data_lies_in_the_extents(fixture: Fixture) -> Outcome {
    const SIZE: u64 = 4 << 20;
    let empty = fixture.put("empty", b"").await?;
    let reader = fixture.storage.open(&empty).await?;
    ensure_eq!(reader.next_data(0).await?, None, "the data of an empty file");

    let path = fixture.path("file")?;
    let mut expected = vec![0; SIZE as usize];
    expected[..10].fill(1);
    expected[1_500_000..1_600_000].fill(2);
    if fixture.any_order() {
        let options =
            CreateOptions { resume: false, size: Some(SIZE), sparse: true, ..<_>::default() };
        let writer = fixture.storage.create(&path, &options).await?;
        writer.write_at(1_500_000, block(&expected[1_500_000..1_600_000])).await?;
        writer.write_at(0, block(&expected[..10])).await?;
        writer.commit(SIZE, &fresh()).await?;
    } else {
        fixture.put("file", &expected).await?;
    }
    let reader = fixture.storage.open(&path).await?;
    let mut from = 0;
    let mut covered = vec![0; SIZE as usize];
    while let Some(data) = reader.next_data(from).await? {
        ensure!(
            !data.is_empty() && data.start() >= from && data.end() <= SIZE,
            "the data after {from} is {data}"
        );
        let found = read_extent(&fixture, &*reader, data).await?;
        covered[data.start() as usize..data.end() as usize].copy_from_slice(&found);
        from = data.end();
    }
    same(&covered, &expected)?;
    for beyond in [SIZE, SIZE + 1] {
        ensure_eq!(reader.next_data(beyond).await?, None, "the data after {beyond} of {SIZE}");
    }
    fixture.has(&path, &expected).await
}

async fn read_extent(fixture: &Fixture, reader: &dyn ReadAt, data: Range) -> Outcome<Vec<u8>> {
    if fixture.can().ranged_reads {
        return read(reader, data).await;
    }
    let head = read(reader, Range::new(0, data.end())).await?;
    Ok(head[data.start() as usize..].to_vec())
}

pub(super) async fn a_reader_returns_the_metadata_of_the_storage(fixture: Fixture) -> Outcome {
    let path = fixture.put("file", b"content").await?;
    let reader = fixture.storage.open(&path).await?;
    let (of_reader, of_storage) =
        (reader.metadata().await?, fixture.storage.metadata(&path).await?);
    ensure_eq!(of_reader, of_storage, "the metadata of the reader");
    let entry = fixture.storage.stat(&path).await?;
    ensure_eq!(of_storage.modified, entry.modified, "the time in metadata and in stat");
    ensure_eq!(of_storage.mode, entry.mode, "the mode in metadata and in stat");
    ensure_eq!(of_storage.owner, entry.owner, "the owner in metadata and in stat");
    Ok(())
}
