//! Two peers in one process, over loopback.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bridged;
mod fan;
mod hostile;
mod lost;
mod once;
mod recorded;
mod refusals;
mod silent;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use haul_local::{LocalOptions, LocalStorage};
use haul_peer::client::{PeerHost, PeerStorage};
use haul_peer::identity::Identity;
use haul_peer::server::{Grant, PeerServer};
use haul_peer::ticket::{Address, Secret, Ticket};
use haul_storage::{LinkPath, Location, PathKind, Range, RelPath, Storage, conformance};
use tokio::runtime::Handle;

/// Longer than any operation here takes, except the replacement of a silent lane.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that shares a storage, and a ticket for it.
struct Shared {
    server: PeerServer,
    ticket: Ticket,
}

fn grant(secret: &Secret, writable: bool) -> Grant {
    Grant { writable, owners: true, ..Grant::new(secret.clone()) }
}

async fn share(directory: &Path, change: impl FnOnce(&mut Grant)) -> Shared {
    share_storage(LocalStorage::open(directory, LocalOptions::default()).unwrap(), change).await
}

async fn share_storage(storage: Arc<dyn Storage>, change: impl FnOnce(&mut Grant)) -> Shared {
    let identity = Identity::ephemeral().unwrap();
    let secret = Secret::generate().unwrap();
    let mut granted = grant(&secret, true);
    change(&mut granted);
    let server = PeerServer::builder(storage, "share").grant(granted);
    let server = server.bind(&identity).await.unwrap();
    let addresses = server.addresses().iter().map(|one| Address::new(*one).unwrap());
    let ticket = Ticket::new(identity.key(), secret).with_addresses(addresses);
    Shared { server, ticket }
}

fn host(ticket: &Ticket) -> Arc<PeerHost> {
    let identity = Identity::ephemeral().unwrap();
    PeerHost::new(ticket, &identity, Handle::current()).unwrap()
}

async fn open(ticket: &Ticket) -> haul_storage::Result<Arc<PeerStorage>> {
    let location = Location::parse("sftp://peer/").unwrap();
    PeerStorage::open(host(ticket), location, RelPath::root()).await
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writable_share_conforms() {
    for lanes in [1, 5] {
        let directory = tempfile::tempdir().unwrap();
        let shared = share(directory.path(), |_| {}).await;
        let storage = open(&shared.ticket).await.unwrap();
        storage.set_lanes(lanes);
        conformance::run_all(storage).await;
        shared.server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_read_over_several_lanes() {
    let directory = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..20_000_000_u32).map(|at| (at / 7) as u8).collect();
    std::fs::write(directory.path().join("file"), &content).unwrap();
    let shared = share(directory.path(), |_| {}).await;
    let storage = open(&shared.ticket).await.unwrap();
    storage.set_lanes(4);
    let file = storage.open(&path("file")).await.unwrap();
    for (start, length) in [(0, 20_000_000), (12_345, 5_000_000), (19_999_990, 100)] {
        let mut blocks = file.read_at(Range::new(start, length));
        let mut bytes = Vec::new();
        while let Some(block) = blocks.next().await {
            bytes.extend_from_slice(&block.unwrap().into_bytes());
        }
        let end = (start + length).min(20_000_000) as usize;
        assert!(bytes == content[start as usize..end]);
    }
    // The last lanes may not be open yet.
    let start = Instant::now();
    while storage.link().open < 4 {
        assert!(start.elapsed() < PATIENCE, "{} lanes", storage.link().open);
        storage.stat(&path("file")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let link = storage.link();
    assert_eq!(link.open, 4);
    let address = shared.server.addresses()[0];
    assert_eq!(link.path, Some(LinkPath { kind: PathKind::Direct, address }));
}

/// After its first 32 messages, a listing continues only as the client permits further ones by `More`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_directory_is_listed_to_its_end() {
    let directory = tempfile::tempdir().unwrap();
    for number in 0..20_000 {
        std::fs::write(directory.path().join(format!("file-{number}")), "").unwrap();
    }
    let shared = share(directory.path(), |_| {}).await;
    let storage = open(&shared.ticket).await.unwrap();
    let mut listing = storage.list(&RelPath::root()).await.unwrap();
    let mut names = std::collections::HashSet::new();
    while let Some(batch) = listing.next().await {
        names.extend(batch.unwrap().into_iter().map(|entry| entry.path));
    }
    assert_eq!(names.len(), 20_000);
    // Listings that are dropped early do not block later requests.
    for _ in 0..100 {
        drop(storage.list(&RelPath::root()).await.unwrap().next().await);
    }
    storage.stat(&path("file-1")).await.unwrap();
}

/// A client does not wait for the responses to its Closes; that must not cancel other requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_files_are_opened_and_dropped() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "content").unwrap();
    let shared = share(directory.path(), |_| {}).await;
    let storage = open(&shared.ticket).await.unwrap();
    // 6000 in total: more than a session may have open at once (4096).
    for _ in 0..30 {
        let file = path("file");
        let opened = futures_util::future::join_all((0..200).map(|_| storage.open(&file))).await;
        assert!(opened.iter().all(Result::is_ok));
    }
}

/// The numbers of volumes are unique on one machine only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_of_a_peer_is_not_taken_for_one_of_another_machine() {
    let directory = tempfile::tempdir().unwrap();
    let local = LocalStorage::open(directory.path(), LocalOptions::default()).unwrap();
    let mut volumes = vec![local.space(&RelPath::root()).await.unwrap().unwrap().volume.unwrap()];
    for _ in 0..2 {
        let shared = share(directory.path(), |_| {}).await;
        let storage = open(&shared.ticket).await.unwrap();
        volumes.push(storage.space(&RelPath::root()).await.unwrap().unwrap().volume.unwrap());
        shared.server.stop().await;
    }
    assert!(volumes.iter().all(|volume| volume.number == volumes[0].number));
    assert!(volumes[0] != volumes[1] && volumes[1] != volumes[2] && volumes[0] != volumes[2]);
}
