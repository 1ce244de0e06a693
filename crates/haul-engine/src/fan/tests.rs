//! Views of one source: each reads the right bytes, and bytes that they can share are read once.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, future::join_all};
use haul_storage::memory::{MemoryStorage, Operation};
use haul_storage::{ErrorKind, Range, ReadAt, RelPath, Storage, StorageExt};
use proptest::prelude::*;

use super::seat::Seat;
use super::store::Store;
use super::view::Sources;

struct Hosts {
    source: Arc<MemoryStorage>,
    store: Arc<Store>,
    views: Vec<Arc<dyn Storage>>,
}

fn hosts(count: usize, memory: u64, source: Arc<MemoryStorage>) -> Hosts {
    let store = Arc::new(Store::new(memory));
    let sources = Sources::default();
    let storage = Arc::clone(&source) as Arc<dyn Storage>;
    let view = |_| sources.view(&storage, &Seat::take(&store).unwrap());
    Hosts { views: (0..count).map(view).collect(), source, store }
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text).unwrap()
}

async fn read(reader: &dyn ReadAt, range: Range) -> Vec<u8> {
    let mut blocks = reader.read_at(range);
    let mut bytes = Vec::new();
    while let Some(block) = blocks.next().await {
        bytes.extend_from_slice(&block.unwrap().into_bytes());
    }
    bytes
}

#[tokio::test]
async fn bytes_that_one_host_has_read_come_from_the_store_for_the_others() {
    let hosts = hosts(3, 64 << 20, MemoryStorage::new());
    hosts.source.add_pattern_file("f", 5 << 20, 1);
    let expected = hosts.source.content("f");
    for view in &hosts.views {
        let reader = view.open(&path("f")).await.unwrap();
        assert_eq!(read(&*reader, Range::new(0, 5 << 20)).await, expected);
        assert_eq!(read(&*reader, Range::new(5 << 20, 10)).await, b"");
    }
    assert_eq!(hosts.source.faults().count(Operation::Open), 1);
    assert_eq!(hosts.store.meter.read_bytes(), 5 << 20);
    let stored = hosts.store.meter.most_held_bytes();
    assert!(stored >= 5 << 20, "{stored}");
}

#[tokio::test]
async fn hosts_that_read_at_once_share_one_read() {
    let hosts = hosts(4, 64 << 20, MemoryStorage::new());
    hosts.source.add_pattern_file("f", 8 << 20, 1);
    let expected = hosts.source.content("f");
    let all = hosts.views.iter().map(|view| async {
        let reader = view.open(&path("f")).await.unwrap();
        read(&*reader, Range::new(0, 8 << 20)).await
    });
    for got in join_all(all).await {
        assert_eq!(got, expected);
    }
    assert_eq!(hosts.source.faults().count(Operation::Read), 1);
    assert_eq!(hosts.store.meter.read_bytes(), 8 << 20);
}

#[tokio::test]
async fn blocks_are_dropped_once_all_hosts_have_them_or_if_they_do_not_fit() {
    let first = hosts(2, 64 << 20, MemoryStorage::new());
    first.source.add_pattern_file("f", 32 << 20, 1);
    let open = |view: &Arc<dyn Storage>| {
        let view = Arc::clone(view);
        async move { view.open(&path("f")).await.unwrap() }
    };
    let (a, b) = (open(&first.views[0]).await, open(&first.views[1]).await);
    for at in 0..32 {
        let range = Range::new(at << 20, 1 << 20);
        assert_eq!(read(&*a, range).await, read(&*b, range).await);
    }
    let held = first.store.meter.most_held_bytes();
    assert!(held <= 3 << 20, "{held}");

    let second = hosts(2, 4 << 20, Arc::clone(&first.source));
    let (a, b) = (open(&second.views[0]).await, open(&second.views[1]).await);
    let whole = Range::new(0, 32 << 20);
    assert_eq!(read(&*a, whole).await.len(), 32 << 20);
    assert_eq!(second.store.meter.read_bytes(), 32 << 20);
    assert_eq!(read(&*b, whole).await, first.source.content("f"));
    // Only the end of the file was still in the store.
    let read = second.store.meter.read_bytes();
    assert!((56 << 20..=64 << 20).contains(&read), "{read}");
}

/// Before a host copies a large file, it looks for holes in it, to know how much space the copy takes.
#[tokio::test]
async fn a_host_that_looked_for_holes_still_finds_the_file_in_the_store() {
    let hosts = hosts(3, 64 << 20, MemoryStorage::new());
    hosts.source.add_pattern_file("f", 5 << 20, 1);
    let (expected, whole) = (hosts.source.content("f"), Range::new(0, 5 << 20));
    let early = hosts.views[0].open(&path("f")).await.unwrap();
    for view in &hosts.views[1..] {
        let looked = view.open(&path("f")).await.unwrap();
        assert_eq!(looked.next_data(0).await.unwrap(), Some(whole));
    }
    assert_eq!(read(&*early, whole).await, expected);
    drop(early);
    for view in &hosts.views[1..] {
        let reader = view.open(&path("f")).await.unwrap();
        assert_eq!(read(&*reader, whole).await, expected);
    }
    assert_eq!(hosts.store.meter.read_bytes(), 5 << 20);
    assert_eq!(hosts.source.faults().count(Operation::Open), 1);
}

#[tokio::test]
async fn files_opened_only_to_find_holes_do_not_evict_one_with_cached_pieces() {
    let hosts = hosts(2, 64 << 20, MemoryStorage::new());
    hosts.source.add_pattern_file("f", 2 << 20, 1);
    let whole = Range::new(0, 2 << 20);
    let reader = hosts.views[0].open(&path("f")).await.unwrap();
    read(&*reader, whole).await;
    drop(reader);
    for at in 0..200 {
        let name = format!("d/f{at}");
        hosts.source.add_pattern_file(&name, 1 << 20, at);
        let looked = hosts.views[0].open(&path(&name)).await.unwrap();
        looked.next_data(0).await.unwrap();
    }
    let reader = hosts.views[1].open(&path("f")).await.unwrap();
    assert_eq!(read(&*reader, whole).await, hosts.source.content("f"));
    assert_eq!(hosts.store.meter.read_bytes(), 2 << 20);
}

#[tokio::test]
async fn a_reader_that_is_dropped_in_the_middle_leaves_its_read_to_the_others() {
    let hosts = hosts(2, 64 << 20, MemoryStorage::new());
    hosts.source.add_pattern_file("f", 4 << 20, 1);
    let a = hosts.views[0].open(&path("f")).await.unwrap();
    let mut blocks = a.read_at(Range::new(0, 4 << 20));
    blocks.next().await.unwrap().unwrap();
    let b = hosts.views[1].open(&path("f")).await.unwrap();
    let mut others = b.read_at(Range::new(0, 4 << 20));
    others.next().await.unwrap().unwrap();
    drop(blocks);
    let rest: Vec<_> = others.try_collect().await.unwrap();
    assert_eq!(rest.iter().map(haul_storage::Block::len).sum::<usize>(), (4 << 20) - (256 << 10));
    assert_eq!(hosts.store.meter.read_bytes(), 4 << 20);
}

#[tokio::test]
async fn an_error_is_returned_to_one_host_and_the_next_one_reads_again() {
    let hosts = hosts(2, 64 << 20, MemoryStorage::new());
    hosts.source.add_pattern_file("f", 1 << 20, 1);
    hosts.source.add_file("small", "text");
    hosts.source.faults().on(Operation::Read).nth(1).fail(ErrorKind::Io);
    hosts.source.faults().on(Operation::Open).nth(1).fail(ErrorKind::Io);
    hosts.source.faults().on(Operation::ReadWhole).nth(1).fail(ErrorKind::Io);
    hosts.source.faults().on(Operation::List).nth(1).fail(ErrorKind::Io);
    let (a, b) = (&hosts.views[0], &hosts.views[1]);
    assert_eq!(a.open(&path("f")).await.unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(a.read_whole(&path("small"), 100).await.unwrap_err().kind(), ErrorKind::Io);
    assert!(a.list(&RelPath::root()).await.is_err());
    let reader = a.open(&path("f")).await.unwrap();
    let failed = reader.read_at(Range::new(0, 1 << 20)).next().await.unwrap();
    assert_eq!(failed.unwrap_err().kind(), ErrorKind::Io);
    let reader = b.open(&path("f")).await.unwrap();
    assert_eq!(read(&*reader, Range::new(0, 1 << 20)).await, hosts.source.content("f"));
    assert_eq!(b.read_whole(&path("small"), 100).await.unwrap().bytes, "text");
    assert_eq!(b.list_sorted(&RelPath::root()).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_changed_file_is_opened_again() {
    let hosts = hosts(2, 64 << 20, MemoryStorage::new());
    hosts.source.add_file("f", vec![1; 100_000]);
    let (a, b) = (&hosts.views[0], &hosts.views[1]);
    let (first, second) = (a.open(&path("f")).await.unwrap(), b.open(&path("f")).await.unwrap());
    let whole = Range::new(0, 100_000);
    read(&*first, whole).await;
    hosts.source.overwrite("f", 0, [2; 100_000]);
    // Both detect it, whichever of them read the bytes.
    assert_ne!(first.recheck().await.unwrap(), *first.identity());
    assert_ne!(second.recheck().await.unwrap(), *second.identity());
    for view in [a, b] {
        let anew = view.open(&path("f")).await.unwrap();
        assert_eq!(read(&*anew, whole).await, [2; 100_000]);
        assert_eq!(anew.recheck().await.unwrap(), *anew.identity());
    }
    assert_eq!(hosts.source.faults().count(Operation::Open), 2);
}

#[tokio::test]
async fn small_files_and_listings_are_read_once() {
    let hosts = hosts(3, 64 << 20, MemoryStorage::new());
    for at in 0..300 {
        hosts.source.add_file(format!("d/f{at:03}"), format!("content {at}"));
    }
    let paths: Vec<_> = (0..300).map(|at| path(&format!("d/f{at:03}"))).collect();
    let all = hosts.views.iter().enumerate().map(|(host, view)| {
        let mut paths = paths.clone();
        // Each host in a different order.
        paths.rotate_left(host * 70);
        async move {
            assert_eq!(view.list_sorted(&path("d")).await.unwrap().len(), 300);
            let wholes = view.read_many(paths.clone(), 1000).await;
            for (path, whole) in paths.iter().zip(wholes) {
                let number: usize =
                    std::str::from_utf8(&path.as_bytes()[3..]).unwrap().parse().unwrap();
                assert_eq!(whole.unwrap().bytes, format!("content {number}"));
            }
        }
    });
    join_all(all).await;
    assert_eq!(hosts.source.faults().count(Operation::ReadWhole), 300);
    assert_eq!(hosts.source.faults().count(Operation::List), 1);
}

#[tokio::test]
async fn each_host_lists_a_directory_that_is_too_long_to_cache() {
    let hosts = hosts(2, 1 << 20, MemoryStorage::new());
    for at in 0..2000 {
        hosts.source.add_file(format!("f{at:04}"), "");
    }
    for view in &hosts.views {
        let listed = view.list_sorted(&RelPath::root()).await.unwrap();
        assert_eq!(listed.len(), 2000);
        assert!(
            listed.windows(2).all(|pair| pair[0].path < pair[1].path),
            "no entry is listed twice"
        );
    }
    assert_eq!(hosts.source.faults().count(Operation::List), 2);
}

#[tokio::test]
async fn a_source_without_ranges_is_read_from_its_start_once() {
    let source = MemoryStorage::builder().with_capabilities(|can| can.ranged_reads = false).build();
    let hosts = hosts(2, 64 << 20, source);
    hosts.source.add_pattern_file("f", 4 << 20, 1);
    let expected = hosts.source.content("f");
    let all = hosts.views.iter().map(|view| async {
        let reader = view.open(&path("f")).await.unwrap();
        read(&*reader, Range::new(0, u64::MAX)).await
    });
    for got in join_all(all).await {
        assert_eq!(got, expected);
    }
    assert_eq!(hosts.store.meter.read_bytes(), 4 << 20);
    // A host that wants the middle later gets it, though it is read from the start.
    let reader = hosts.views[1].open(&path("f")).await.unwrap();
    let middle = read(&*reader, Range::new(1 << 20, 1 << 20)).await;
    assert_eq!(middle, expected[1 << 20..2 << 20]);
}

#[tokio::test]
async fn a_file_cannot_be_removed_through_a_view() {
    let hosts = hosts(1, 1 << 20, MemoryStorage::new());
    hosts.source.add_file("f", "x");
    let refused = hosts.views[0].remove(&path("f")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(hosts.source.exists("f"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// For any ranges, in any order, and with any memory, each host gets the bytes of the file, and the
    /// store stays within its limit.
    #[test]
    fn every_range_has_the_bytes_of_the_file(
        ranges in prop::collection::vec((0_usize..3, 0_u64..700_000, 1_u64..400_000), 1..25),
        memory in 1_u64..600_000,
        block in 1_000_u64..70_000,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let source = MemoryStorage::builder().with_read_block(block).build();
            source.add_pattern_file("f", 600_000, 1);
            let expected = source.content("f");
            let hosts = hosts(3, memory, source);
            let mut readers = Vec::new();
            for view in &hosts.views {
                readers.push(view.open(&path("f")).await.unwrap());
            }
            let reads = ranges.iter().map(|&(host, start, length)| {
                let reader = Arc::clone(&readers[host]);
                let expected = expected.clone();
                async move {
                    let got = read(&*reader, Range::new(start, length)).await;
                    let start = (start as usize).min(expected.len());
                    let end = (start + length as usize).min(expected.len());
                    assert_eq!(got, expected[start..end].to_vec());
                }
            });
            join_all(reads).await;
            // Besides the store, each read holds a block.
            let most = memory + block * (ranges.len() as u64 + 1);
            let held = hosts.store.meter.most_held_bytes();
            assert!(held <= most, "{held} of {most}");
        });
    }
}
