//! The memory of a receiver. This is a test program of its own, since it measures its process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use futures_util::StreamExt;
use haul_local::{LocalOptions, LocalStorage};
use haul_peer::client::{PeerHost, PeerStorage};
use haul_peer::identity::Identity;
use haul_peer::server::{Grant, PeerServer};
use haul_peer::ticket::{Address, Secret, Ticket};
use haul_storage::{Location, Range, RelPath, Storage};
use tokio::runtime::Handle;

/// While a reader consumes nothing, the server must not send it the whole file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_is_not_sent_the_whole_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(directory.path().join("file")).unwrap();
    file.set_len(1 << 30).unwrap();
    let (identity, secret) = (Identity::ephemeral().unwrap(), Secret::generate().unwrap());
    let served = LocalStorage::open(directory.path(), LocalOptions::default()).unwrap();
    let grant = Grant::new(secret.clone());
    let server = PeerServer::builder(served, "share").grant(grant).bind(&identity).await.unwrap();
    let addresses = server.addresses().iter().map(|one| Address::new(*one).unwrap());
    let ticket = Ticket::new(identity.key(), secret).with_addresses(addresses);
    let host = PeerHost::new(&ticket, &Identity::ephemeral().unwrap(), Handle::current()).unwrap();
    let location = Location::parse("sftp://peer/").unwrap();
    let storage = PeerStorage::open(host, location, RelPath::root()).await.unwrap();
    let file = storage.open(&RelPath::parse("file").unwrap()).await.unwrap();
    let before = resident();
    let mut blocks = file.read_at(Range::new(0, 1 << 30));
    blocks.next().await.unwrap().unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let grown = resident().saturating_sub(before);
    // Both sides are in this process: the client's two requests of 8 MiB each, and what the server may hold.
    assert!(grown < 96 << 20, "{grown} bytes more");
    let mut length = 0;
    while let Some(block) = blocks.next().await {
        length += block.unwrap().len();
    }
    assert!(length > (1 << 30) - (1 << 20));
}

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() << 10
}
