//! Several receivers of one file.

use haul_peer::wire::PIECE;
use haul_storage::ReadAt;
use haul_storage::memory::{MemoryStorage, Operation, Pattern};

use super::*;

/// Less than the server caches (16 MiB), so it does not matter how far apart the receivers are.
const SIZE: u64 = 12 << 20;

/// Bytes that a client reads along with an open.
const AHEAD: u64 = 512 << 10;

async fn receive(file: &dyn ReadAt, range: Range) {
    let mut offset = range.start();
    let mut blocks = file.read_at(range);
    while let Some(block) = blocks.next().await {
        let block = block.unwrap();
        assert_eq!(Pattern::new(1).first_difference(offset, &block), None);
        offset += block.len() as u64;
    }
    assert_eq!(offset, range.end());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_source_is_read_once_for_several_receivers() {
    let memory = MemoryStorage::new();
    memory.add_pattern_file("file", SIZE, 1);
    let shared = share_storage(Arc::clone(&memory) as Arc<dyn Storage>, |_| {}).await;
    let (one, two) = (open(&shared.ticket).await.unwrap(), open(&shared.ticket).await.unwrap());
    let at = path("file");
    let (first, second) = (one.open(&at).await.unwrap(), two.open(&at).await.unwrap());
    let all = Range::new(0, SIZE);
    tokio::join!(receive(&*first, all), receive(&*second, all));
    let reads = memory.faults().count(Operation::Read);
    // One read per piece that follows the beginning. The beginning, which each receiver reads along with its open,
    // takes a few more.
    let pieces = (SIZE - AHEAD) / PIECE;
    assert!((pieces..pieces + 10).contains(&reads), "{reads} reads of {pieces} pieces");
    shared.server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_starts_later_receives_the_same_bytes() {
    let memory = MemoryStorage::new();
    memory.add_pattern_file("file", 4 * SIZE, 1);
    let shared = share_storage(memory, |_| {}).await;
    let (one, two) = (open(&shared.ticket).await.unwrap(), open(&shared.ticket).await.unwrap());
    let first = one.open(&path("file")).await.unwrap();
    receive(&*first, Range::new(0, SIZE)).await;
    let second = two.open(&path("file")).await.unwrap();
    let rest = Range::between(SIZE, 4 * SIZE);
    tokio::join!(receive(&*first, rest), receive(&*second, Range::new(0, 4 * SIZE)));
    shared.server.stop().await;
}
