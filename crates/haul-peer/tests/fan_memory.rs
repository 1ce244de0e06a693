//! The memory of a sharer with a fast and a slow receiver. This is a test program of its own, since it measures its
//! process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use futures_util::StreamExt;
use haul_local::{LocalOptions, LocalStorage};
use haul_peer::client::{PeerHost, PeerStorage};
use haul_peer::identity::Identity;
use haul_peer::server::{Grant, PeerServer};
use haul_peer::ticket::{Address, Secret, Ticket};
use haul_storage::{Location, Range, ReadAt, RelPath, Storage};
use tokio::runtime::Handle;

const SIZE: u64 = 1 << 30;

/// What the fast receiver has read is not cached for the slow one beyond the server's limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_receiver_beside_a_fast_one_does_not_make_the_memory_grow() {
    let directory = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(directory.path().join("file")).unwrap();
    file.set_len(SIZE).unwrap();
    let (identity, secret) = (Identity::ephemeral().unwrap(), Secret::generate().unwrap());
    let served = LocalStorage::open(directory.path(), LocalOptions::default()).unwrap();
    let grant = Grant::new(secret.clone());
    let server = PeerServer::builder(served, "share").grant(grant).bind(&identity).await.unwrap();
    let addresses = server.addresses().iter().map(|one| Address::new(*one).unwrap());
    let ticket = Ticket::new(identity.key(), secret).with_addresses(addresses);
    let (slow, fast) = (open(&ticket).await, open(&ticket).await);
    let before = resident();
    let mut waiting = slow.read_at(Range::new(0, SIZE));
    waiting.next().await.unwrap().unwrap();
    let mut blocks = fast.read_at(Range::new(0, SIZE));
    let (mut length, mut grown) = (0, 0);
    while let Some(block) = blocks.next().await {
        let before_block = length >> 26;
        length += block.unwrap().len() as u64;
        if length >> 26 != before_block {
            grown = grown.max(resident().saturating_sub(before));
        }
    }
    assert_eq!(length, SIZE);
    // Both sides of both connections are in this process: 96 MiB as for a single receiver (`memory.rs`), 16 MiB of the
    // second one's two requests, 16 MiB of its outbox, 16 MiB of shared pieces, and 16 MiB to spare.
    assert!(grown < 160 << 20, "{grown} bytes more");
    drop(waiting);
    server.stop().await;
}

async fn open(ticket: &Ticket) -> Arc<dyn ReadAt> {
    let host = PeerHost::new(ticket, &Identity::ephemeral().unwrap(), Handle::current()).unwrap();
    let location = Location::parse("sftp://peer/").unwrap();
    let storage = PeerStorage::open(host, location, RelPath::root()).await.unwrap();
    storage.open(&RelPath::parse("file").unwrap()).await.unwrap()
}

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
}
