//! Tests of the memory storage: part files, injected faults, the simulated link.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{StreamExt, TryStreamExt};
use tokio::time::Instant;

use super::path::path;
use super::*;
use crate::{
    Block, CommitOptions, CreateOptions, ErrorKind, Metadata, Range, RelPath, Result, Storage,
    StorageExt, Writes,
};

const MIB: u64 = 1 << 20;

fn commit() -> CommitOptions {
    CommitOptions { metadata: Metadata::default(), replace: true, sync: false, expected: None }
}

fn bytes(content: &[u8]) -> Block {
    Block::from(Bytes::copy_from_slice(content))
}

async fn read(storage: &MemoryStorage, at: &str, range: Range) -> Result<Bytes> {
    let blocks = storage.open(&path(at)).await?.read_at(range);
    let block = blocks.try_fold(Block::new(), |mut all, block| async {
        all.append(block);
        Ok(all)
    });
    Ok(block.await?.into_bytes())
}

#[tokio::test]
async fn a_dropped_writer_leaves_its_part_file_for_the_next() {
    let storage = MemoryStorage::new();
    let writer = storage.create(&path("a"), &CreateOptions::default()).await.unwrap();
    writer.write_at(10, bytes(b"abc")).await.unwrap();
    let busy = storage.create(&path("a"), &CreateOptions::default()).await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy);
    drop(writer);
    assert_eq!(storage.part_ranges("a"), [Range::new(10, 3)]);
    assert!(!storage.exists("a"));

    let resume = CreateOptions { resume: true, size: Some(100), sparse: false, ..<_>::default() };
    let writer = storage.create(&path("a"), &resume).await.unwrap();
    assert_eq!(storage.part_bytes("a"), 3);
    writer.commit(13, &commit()).await.unwrap();
    assert_eq!(storage.content("a"), &b"\0\0\0\0\0\0\0\0\0\0abc"[..]);
    assert!(!storage.has_part("a"));
}

#[tokio::test]
async fn a_fault_hits_the_selected_call_only() {
    let storage = MemoryStorage::new();
    storage.add_file("a", "content");
    storage.faults().fail(Operation::Stat, 2, ErrorKind::Unreachable);
    assert!(storage.stat(&path("a")).await.is_ok());
    let error = storage.stat(&path("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().starts_with("memory:a: cannot stat"), "{error}");
    assert!(storage.stat(&path("a")).await.is_ok());
    assert_eq!(storage.faults().count(Operation::Stat), 3);
    assert_eq!(storage.faults().count_all(), 3);
}

#[tokio::test]
async fn a_call_of_any_operation_can_fail_by_its_number() {
    let storage = MemoryStorage::new();
    storage.faults().on_any().nth(2).fail(ErrorKind::Io);
    storage.create_dir(&path("d")).await.unwrap();
    assert_eq!(storage.create_dir(&path("d/e")).await.unwrap_err().kind(), ErrorKind::Io);
    assert!(!storage.exists("d/e"));
    storage.create_dir(&path("d/e")).await.unwrap();
}

#[tokio::test]
async fn reads_are_cut_torn_and_corrupted_as_injected() {
    let storage = MemoryStorage::builder().with_read_block(4).build();
    storage.add_file("a", "0123456789");
    let whole = Range::new(0, 10);
    let faults = storage.faults();
    for end in [0, 3, 4, 5, 9] {
        faults.on(Operation::Read).nth(1).cut(end);
        assert_eq!(read(&storage, "a", whole).await.unwrap(), &b"0123456789"[..end as usize]);
    }
    faults.on(Operation::Read).nth(1).cut(10);
    assert_eq!(read(&storage, "a", whole).await.unwrap().len(), 10);
    for end in [0, 4, 6, 10] {
        faults.on(Operation::Read).nth(1).tear(end, ErrorKind::Unreachable);
        let mut blocks = storage.open(&path("a")).await.unwrap().read_at(whole);
        let mut received = 0;
        let error = loop {
            match blocks.next().await.unwrap() {
                Ok(block) => received += block.len() as u64,
                Err(error) => break error,
            }
        };
        assert_eq!((received, error.kind()), (end, ErrorKind::Unreachable));
    }
    faults.on(Operation::Read).nth(1).corrupt(5);
    assert_eq!(read(&storage, "a", whole).await.unwrap(), &b"01234\x156789"[..]);
    assert_eq!(read(&storage, "a", whole).await.unwrap(), &b"0123456789"[..]);
}

#[tokio::test]
async fn a_torn_write_stores_its_first_bytes_and_fails() {
    let storage = MemoryStorage::new();
    storage.faults().on(Operation::Write).nth(1).tear(2, ErrorKind::NoSpace);
    let writer = storage.create(&path("a"), &CreateOptions::default()).await.unwrap();
    let error = writer.write_at(0, bytes(b"abcd")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert_eq!(storage.part_content("a"), &b"ab"[..]);
}

#[tokio::test]
async fn a_call_with_a_lost_response_takes_effect_and_fails() {
    let storage = MemoryStorage::new();
    storage.faults().on(Operation::CreateDir).lose_response(ErrorKind::Unreachable);
    assert!(storage.create_dir(&path("d")).await.is_err());
    assert!(storage.exists("d"));
}

#[tokio::test]
async fn injected_changes_alter_shrink_and_remove_a_file_while_it_is_read() {
    let storage = MemoryStorage::new();
    for name in ["a", "b", "c"] {
        storage.add_file(name, "content");
    }
    let faults = storage.faults();
    faults.on(Operation::Recheck).path("a").change();
    let a = storage.open(&path("a")).await.unwrap();
    assert_ne!(&a.recheck().await.unwrap(), a.identity());

    faults.on(Operation::Read).path("b").resize(3);
    assert_eq!(read(&storage, "b", Range::new(0, 7)).await.unwrap(), &b"con"[..]);

    faults.on(Operation::Read).path("c").vanish();
    let gone = read(&storage, "c", Range::new(0, 7)).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    assert!(!storage.exists("c"));
}

#[tokio::test]
async fn one_entry_of_a_listing_can_be_an_error() {
    let storage = MemoryStorage::new();
    for name in ["a", "b", "c"] {
        storage.add_file(name, "");
    }
    storage.faults().on(Operation::ListEntry).path("b").fail(ErrorKind::Io);
    let items: Vec<_> = storage.list(&RelPath::root()).await.unwrap().collect().await;
    let errors: Vec<_> = items.iter().filter_map(|item| item.as_ref().err()).collect();
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].location(), "memory:b");
    let good = items.iter().filter_map(|item| item.as_ref().ok()).map(Vec::len).sum::<usize>();
    assert_eq!(good, 2);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_call_can_be_dropped() {
    let storage = MemoryStorage::new();
    storage.faults().on(Operation::Stat).stall();
    let root = RelPath::root();
    let stat = tokio::time::timeout(Duration::from_secs(3600), storage.stat(&root));
    assert!(stat.await.is_err());
}

#[tokio::test]
async fn writing_to_a_full_storage_fails_with_no_space() {
    let storage = MemoryStorage::builder().with_capacity(10).build();
    let writer = storage.create(&path("a"), &CreateOptions::default()).await.unwrap();
    writer.write_at(0, bytes(b"12345678")).await.unwrap();
    let error = writer.write_at(8, bytes(b"123")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    writer.abort(false).await.unwrap();
    assert_eq!(storage.used_bytes(), 0);
}

#[tokio::test]
async fn an_in_order_storage_refuses_writes_at_other_offsets() {
    let in_order = MemoryStorage::builder().with_capabilities(|c| c.writes = Writes::InOrder);
    let storage = in_order.build();
    let writer = storage.create(&path("a"), &CreateOptions::default()).await.unwrap();
    assert!(writer.write_at(1, bytes(b"b")).await.is_err());
    writer.write_at(0, bytes(b"a")).await.unwrap();
    assert!(writer.write_at(0, bytes(b"a")).await.is_err());
    assert!(writer.write_at(2, bytes(b"c")).await.is_err());
    writer.write_at(1, bytes(b"b")).await.unwrap();
    writer.commit(2, &commit()).await.unwrap();
}

#[tokio::test]
async fn tens_of_gib_move_without_being_stored() {
    const SIZE: u64 = 20 << 30;
    let source = MemoryStorage::builder().with_read_block(4 * MIB).build();
    source.add_pattern_file("a", SIZE, 7);
    let target = MemoryStorage::builder().expect_pattern(7).build();
    let reader = source.open(&path("a")).await.unwrap();
    let writer = target.create(&path("b"), &CreateOptions::default()).await.unwrap();
    let mut blocks = reader.read_at(Range::new(0, SIZE));
    let mut offset = 0;
    while let Some(block) = blocks.next().await {
        let block = block.unwrap();
        let length = block.len() as u64;
        writer.write_at(offset, block).await.unwrap();
        offset += length;
    }
    writer.commit(SIZE, &commit()).await.unwrap();
    assert!(target.is_pattern("b", SIZE, 7));
    let wrong = target.create(&path("c"), &CreateOptions::default()).await.unwrap();
    let error = wrong.write_at(512, bytes(&Pattern::new(7).bytes(Range::new(0, 99)))).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Corrupt);
}

/// 200 ms and 500 Mbit/s, a link of haul's measurements.
fn long_link() -> SimulatedLink {
    SimulatedLink::new(Duration::from_millis(200), 62_500_000)
}

async fn seconds_to_read(link: SimulatedLink, lanes: usize, size: u64, range: u64) -> f64 {
    let storage = MemoryStorage::builder().with_link(link).build();
    storage.add_pattern_file("a", size, 1);
    storage.set_lanes(lanes);
    let reader = storage.open(&path("a")).await.unwrap();
    while storage.link().opening > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let start = Instant::now();
    let reads = (0..size / range).map(|n| {
        let blocks = reader.read_at(Range::new(n * range, range));
        blocks.try_fold(0, |sum, block| async move { Ok(sum + block.len() as u64) })
    });
    let read: u64 = join_all(reads).await.into_iter().map(Result::unwrap).sum();
    assert_eq!(read, size);
    start.elapsed().as_secs_f64()
}

#[tokio::test(start_paused = true)]
async fn a_link_carries_its_rate_and_no_more() {
    let seconds = seconds_to_read(long_link(), 1, 1000 * MIB, 4 * MIB).await;
    let ideal = 0.2 + (1000 * MIB) as f64 / 62_500_000.0;
    assert!((ideal..ideal * 1.01).contains(&seconds), "{seconds} s instead of {ideal}");
}

#[tokio::test(start_paused = true)]
async fn a_lane_carries_one_window_per_rtt() {
    let link = SimulatedLink { per_lane_window: Some(2 * MIB), ..long_link() };
    let one = seconds_to_read(link.clone(), 1, 100 * MIB, MIB).await;
    assert!((10.0..10.5).contains(&one), "{one}");
    let four = seconds_to_read(link.clone(), 4, 100 * MIB, MIB).await;
    assert!((2.5..2.9).contains(&four), "{four}");
    let many = seconds_to_read(link, 16, 100 * MIB, MIB).await;
    assert!((1.67..2.0).contains(&many), "{many}");
}

#[tokio::test(start_paused = true)]
async fn lanes_open_in_the_background_and_some_are_refused() {
    let link = SimulatedLink { open_rtts: 9, max_lanes_accepted: Some(3), ..long_link() };
    let storage = MemoryStorage::builder().with_link(link).build();
    storage.set_lanes(5);
    let status = storage.link();
    assert_eq!((status.open, status.opening, status.rtt), (0, 5, None));
    let start = Instant::now();
    storage.stat(&RelPath::root()).await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_millis(2000));
    let status = storage.link();
    assert_eq!((status.open, status.opening, status.refused), (3, 0, 2));
    assert_eq!(status.connect, Some(Duration::from_millis(1800)));
    storage.set_lanes(1);
    assert_eq!(storage.link().open, 1);
}

#[tokio::test(start_paused = true)]
async fn a_link_that_refuses_every_lane_is_unreachable() {
    let link = SimulatedLink { max_lanes_accepted: Some(0), ..long_link() };
    let storage = MemoryStorage::builder().with_link(link).build();
    let error = storage.stat(&RelPath::root()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
}

#[tokio::test(start_paused = true)]
async fn writes_overlap_and_share_the_rate() {
    let storage = MemoryStorage::builder().with_link(long_link()).expect_pattern(2).build();
    let writer = storage.create(&path("a"), &CreateOptions::default()).await.unwrap();
    let start = Instant::now();
    let writes = (0..100).map(|n| {
        let range = Range::new(n * MIB, MIB);
        writer.write_at(range.start(), Pattern::new(2).block(range))
    });
    for done in join_all(writes).await {
        done.unwrap();
    }
    let seconds = start.elapsed().as_secs_f64();
    let ideal = 0.2 + (100 * MIB) as f64 / 62_500_000.0;
    assert!((ideal..ideal + 0.01).contains(&seconds), "{seconds} s instead of {ideal}");
    assert_eq!(storage.traffic().bytes, 100 * MIB);
}

#[tokio::test(start_paused = true)]
async fn bytes_in_flight_beyond_bdp_and_queue_are_sent_twice() {
    let link = SimulatedLink { queue_bytes: Some(8 * MIB), ..long_link() };
    // 16 MiB are within the BDP of 12.5 MB and the queue; of 160 MiB all but the last 20 are not.
    let little = seconds_to_read(link.clone(), 4, 16 * MIB, MIB).await;
    assert!(little < 0.2 + 0.28, "{little}");
    let much = seconds_to_read(link, 4, 160 * MIB, MIB).await;
    assert!((4.9..5.5).contains(&much), "{much}");
}

#[tokio::test]
async fn two_storages_can_show_one_tree() {
    let one = MemoryStorage::new();
    let two = MemoryStorage::builder().sharing(&one).build();
    one.add_file("a", "content");
    assert_eq!(two.content("a"), &b"content"[..]);
    let lock = one.lock(&path("a")).await.unwrap();
    assert_eq!(two.lock(&path("a")).await.unwrap_err().kind(), ErrorKind::Busy);
    drop(lock);
    two.lock(&path("a")).await.unwrap();
    two.remove_all(&path("a")).await.unwrap();
    assert_eq!(one.paths(), Vec::<String>::new());
}

/// Formerly, the file was lost.
#[tokio::test]
async fn a_name_whose_case_changes_stays() {
    let storage = MemoryStorage::builder().ignoring_case().build();
    storage.add_file("d/a", "content");
    for (from, to) in [("d/a", "d/A"), ("d", "D")] {
        storage.rename(&path(from), &path(to)).await.unwrap();
    }
    assert_eq!(storage.paths(), ["D/", "D/A"]);
    assert_eq!(storage.content("d/a"), "content");
}

/// Formerly, it was the present metadata of the file.
#[tokio::test]
async fn the_metadata_of_an_open_file_is_that_of_its_opening() {
    let storage = MemoryStorage::new();
    storage.add_file("a", "content");
    let path = path("a");
    let reader = storage.open(&path).await.unwrap();
    let before = reader.metadata().await.unwrap();
    let mode = Some(before.mode.unwrap() ^ 0o111);
    storage.set_metadata(&path, &Metadata { mode, ..Metadata::default() }).await.unwrap();
    assert_eq!(reader.metadata().await.unwrap(), before);
    assert_eq!(storage.open(&path).await.unwrap().metadata().await.unwrap().mode, mode);
}
