//! Tests of sessions that read the same file, without lanes.

use std::time::Duration;

use futures_util::StreamExt;
use haul_storage::ErrorKind;
use haul_storage::memory::{MemoryStorage, Operation, Pattern};
use tokio::time::timeout;

use super::*;
use crate::server::limits;
use crate::wire::piece_hash;

/// 41 pieces, the last of which is short. They fit into the cache.
const SIZE: u64 = 40 * PIECE + 12_345;

/// A read of a client.
const WINDOW: u64 = 8 * PIECE;

fn fan(size: u64) -> (Arc<MemoryStorage>, Arc<Fan>) {
    let memory = MemoryStorage::new();
    memory.add_pattern_file("file", size, 1);
    let fan = Fan::new(Arc::clone(&memory) as Arc<dyn Storage>);
    (memory, fan)
}

async fn open(fan: &Arc<Fan>, session: u8) -> Source {
    fan.open([session; 16], &RelPath::parse("file").unwrap()).await.unwrap()
}

/// Reads a range in windows, as for a client, and compares it with the pattern. Returns the largest number of hashed
/// parts of one piece.
async fn read(source: &Source, range: Range, seed: u64) -> usize {
    let (file, membership) = (&*source.file, source.membership.as_ref().unwrap());
    let (mut offset, mut most_hashed) = (range.start(), 0);
    while offset < range.end() {
        let window = Range::new(offset, WINDOW).intersection(range);
        if membership.shares(window) {
            while offset < window.end() {
                let filled = membership.piece(file, offset, window.end()).await.unwrap().unwrap();
                let part = Range::between(offset, window.end().min(filled.end()));
                let data = filled.part(part);
                assert_eq!(Pattern::new(seed).first_difference(offset, &data), None);
                let hashed = filled.hash(part, &data, membership.size());
                assert_eq!(hashed, piece_hash(offset, &data, Some(membership.size())));
                most_hashed = most_hashed.max(filled.hashed());
                offset = part.end();
            }
        } else {
            let mut blocks = file.read_at(window);
            while let Some(block) = blocks.next().await {
                let block = block.unwrap();
                assert_eq!(Pattern::new(seed).first_difference(offset, &block), None);
                offset += block.len() as u64;
            }
        }
    }
    assert_eq!(offset, range.end());
    most_hashed
}

#[tokio::test]
async fn sessions_at_the_same_offset_read_and_hash_each_piece_once() {
    let (memory, fan) = fan(SIZE);
    let sources = [open(&fan, 1).await, open(&fan, 2).await, open(&fan, 3).await];
    let [one, two, three] = &sources;
    let all = Range::new(0, SIZE);
    let hashed = tokio::join!(read(one, all, 1), read(two, all, 1), read(three, all, 1));
    assert_eq!(hashed, (1, 1, 1));
    assert_eq!(memory.faults().count(Operation::Read), SIZE.div_ceil(PIECE));
    // No session needs them any more.
    assert_eq!(fan.lock().bytes(), 0);
    drop(sources);
    assert!(fan.lock().is_empty());
}

#[tokio::test]
async fn a_session_that_is_alone_caches_nothing() {
    let (memory, fan) = fan(SIZE);
    // It may have a file open several times.
    let (one, again) = (open(&fan, 1).await, open(&fan, 1).await);
    read(&one, Range::new(0, SIZE), 1).await;
    read(&again, Range::new(0, SIZE), 1).await;
    assert_eq!(memory.faults().count(Operation::Read), 2 * SIZE.div_ceil(WINDOW));
    assert_eq!(fan.lock().bytes(), 0);
}

#[tokio::test]
async fn a_short_read_is_not_extended_to_a_piece() {
    let (_, fan) = fan(SIZE);
    let (one, _two) = (open(&fan, 1).await, open(&fan, 2).await);
    let membership = one.membership.unwrap();
    assert!(!membership.shares(Range::new(PIECE, 4096)));
    assert!(membership.shares(Range::new(4096, PIECE)));
    // The last piece is short itself.
    assert!(membership.shares(Range::between(40 * PIECE, SIZE)));
    assert!(!membership.shares(Range::between(40 * PIECE + 1, SIZE)));
}

/// Formerly, it stayed in memory until a session left.
#[tokio::test]
async fn a_piece_that_the_last_session_has_read_itself_is_dropped() {
    let (_, fan) = fan(SIZE);
    let (one, two) = (open(&fan, 1).await, open(&fan, 2).await);
    read(&one, Range::new(0, SIZE), 1).await;
    assert_eq!(fan.lock().bytes(), SIZE);
    for start in (0..SIZE).step_by(PIECE as usize / 2) {
        let half = Range::new(start, PIECE / 2).intersection(Range::between(0, SIZE));
        two.membership.as_ref().unwrap().shares(half);
    }
    // The last piece is shared, although it is short: it is not received yet.
    assert_eq!(fan.lock().bytes(), SIZE % PIECE);
}

#[tokio::test]
async fn a_session_waits_for_a_read_of_another_one_and_repeats_it_if_that_is_cancelled() {
    let (memory, fan) = fan(SIZE);
    memory.faults().on(Operation::Read).nth(1).stall();
    let (one, two) = (open(&fan, 1).await, open(&fan, 2).await);
    let (first, second) = (one.membership.as_ref().unwrap(), two.membership.as_ref().unwrap());
    let mut first = Box::pin(first.piece(&*one.file, 0, SIZE));
    timeout(Duration::from_millis(20), &mut first).await.unwrap_err();
    let mut second = Box::pin(second.piece(&*two.file, 0, SIZE));
    timeout(Duration::from_millis(20), &mut second).await.unwrap_err();
    assert_eq!(memory.faults().count(Operation::Read), 1);
    drop(first);
    let filled = timeout(Duration::from_secs(10), second).await.unwrap().unwrap().unwrap();
    assert_eq!(Pattern::new(1).first_difference(0, &filled.part(Range::new(0, PIECE))), None);
    assert_eq!(memory.faults().count(Operation::Read), 2);
}

#[tokio::test]
async fn a_failed_read_fails_only_its_session() {
    let (memory, fan) = fan(SIZE);
    memory.faults().on(Operation::Read).nth(1).fail(ErrorKind::Io);
    let (one, two) = (open(&fan, 1).await, open(&fan, 2).await);
    let membership = one.membership.as_ref().unwrap();
    let error = membership.piece(&*one.file, 0, SIZE).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    read(&two, Range::new(0, SIZE), 1).await;
}

#[tokio::test]
async fn a_session_that_starts_later_receives_the_right_bytes() {
    let (_, fan) = fan(SIZE);
    let (one, middle) = (open(&fan, 1).await, 20 * PIECE + 1000);
    read(&one, Range::new(0, middle), 1).await;
    let two = open(&fan, 2).await;
    let rest = Range::between(middle, SIZE);
    tokio::join!(read(&one, rest, 1), read(&two, Range::new(0, SIZE), 1));
    assert_eq!(fan.lock().bytes(), 0);
}

/// A session uses only pieces that were read after it had opened the file: otherwise it would receive a mixture of both
/// versions, and the recheck at the end would not detect it.
#[tokio::test]
async fn a_file_that_was_changed_is_read_anew_even_if_its_time_was_set_back() {
    let memory = MemoryStorage::new();
    let (all, middle) = (Range::new(0, SIZE), 10 * PIECE);
    memory.add_file("file", Pattern::new(1).bytes(all));
    memory.set_modified("file", 1_000_000);
    let fan = Fan::new(Arc::clone(&memory) as Arc<dyn Storage>);
    let (one, two) = (open(&fan, 1).await, open(&fan, 2).await);
    read(&one, all, 1).await;
    read(&two, Range::between(0, middle), 1).await;
    assert_eq!(fan.lock().bytes(), SIZE - middle);
    memory.overwrite("file", 0, Pattern::new(2).bytes(all));
    memory.set_modified("file", 1_000_000);
    let three = open(&fan, 3).await;
    assert_eq!(one.file.identity(), three.file.identity());
    read(&three, all, 2).await;
    // With another time, it is another version.
    memory.set_modified("file", 1_000_001);
    let four = open(&fan, 4).await;
    assert!(!four.membership.as_ref().unwrap().shares(all));
    read(&four, all, 2).await;
    assert_ne!(two.file.recheck().await.unwrap(), *two.file.identity());
}

#[tokio::test]
async fn a_file_that_has_become_shorter_yields_no_incomplete_piece() {
    let (memory, fan) = fan(SIZE);
    let (one, _two) = (open(&fan, 1).await, open(&fan, 2).await);
    memory.resize("file", PIECE + 5);
    let membership = one.membership.as_ref().unwrap();
    assert!(membership.piece(&*one.file, 0, SIZE).await.unwrap().is_some());
    assert!(membership.piece(&*one.file, PIECE, SIZE).await.unwrap().is_none());
}

#[tokio::test]
async fn a_slow_session_does_not_make_a_fast_one_fill_the_memory() {
    let size = 4 * limits::SHARED;
    let (memory, fan) = fan(size);
    let (fast, slow) = (open(&fan, 1).await, open(&fan, 2).await);
    for start in (0..size).step_by(WINDOW as usize) {
        read(&fast, Range::new(start, WINDOW), 1).await;
        assert!(fan.lock().bytes() <= limits::SHARED);
    }
    assert_eq!(fan.lock().bytes(), limits::SHARED);
    // The slow one itself reads the pieces that are not cached, and evicts nothing.
    read(&slow, Range::new(0, size), 1).await;
    let reads = 2 * size / PIECE - limits::SHARED / PIECE;
    assert_eq!(memory.faults().count(Operation::Read), reads);
    assert_eq!(fan.lock().bytes(), 0);
    drop((fast, slow));
    assert!(fan.lock().is_empty());
}

#[tokio::test]
async fn pieces_are_dropped_when_the_sessions_that_need_them_leave() {
    let (_, fan) = fan(SIZE);
    let (one, two, three) = (open(&fan, 1).await, open(&fan, 2).await, open(&fan, 3).await);
    let all = Range::new(0, SIZE);
    read(&one, all, 1).await;
    read(&two, all, 1).await;
    assert_eq!(fan.lock().bytes(), SIZE);
    drop(three);
    assert_eq!(fan.lock().bytes(), 0);
}

#[tokio::test]
async fn files_without_an_id_or_tag_are_not_shared() {
    let memory = MemoryStorage::builder().with_ids(false).build();
    memory.add_pattern_file("file", SIZE, 1);
    let fan = Fan::new(memory);
    assert!(open(&fan, 1).await.membership.is_none());
}
