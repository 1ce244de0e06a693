//! Lanes that are cut, and clients and servers that vanish.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use haul_fault_proxy::{Connections, Direction, Fault, FaultProxy};
use haul_local::{LocalOptions, LocalStorage};
use haul_peer::identity::Identity;
use haul_peer::server::PeerServer;
use haul_peer::ticket::{Address, Secret, Ticket};
use haul_storage::{
    CommitOptions, CreateOptions, ErrorKind, Metadata, Range, ReadAt, Retry, Storage,
};

use super::{PATIENCE, Shared, grant, open, path, share};

const SIZE: usize = 20_000_000;

fn content() -> Vec<u8> {
    (0..SIZE).map(|at| (at / 11) as u8).collect()
}

/// The ticket of a share behind a proxy.
pub(super) fn behind(shared: &Shared, proxy: &FaultProxy) -> Ticket {
    let address = Address::new(proxy.address()).unwrap();
    Ticket::new(shared.ticket.key, shared.ticket.secret.clone()).with_addresses([address])
}

/// Reads a file as the engine does: after an error, requests the missing bytes again. Returns the bytes and the number
/// of retries.
async fn read_with_retries(file: &dyn ReadAt) -> (Vec<u8>, usize) {
    let (mut bytes, mut retries, start) = (Vec::new(), 0, Instant::now());
    while bytes.len() < SIZE {
        let from = bytes.len() as u64;
        let mut blocks = file.read_at(Range::new(from, SIZE as u64 - from));
        while let Some(block) = blocks.next().await {
            match block {
                Ok(block) => bytes.extend_from_slice(&block.into_bytes()),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
                    assert_eq!(error.retry(), Retry::Later, "{error}");
                    retries += 1;
                    assert!(start.elapsed() < PATIENCE, "{error}, {} bytes", bytes.len());
                    break;
                }
            }
        }
    }
    (bytes, retries)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_continues_after_each_cut_of_a_lane() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), content()).unwrap();
    let shared = share(directory.path(), |_| {}).await;
    let proxy = FaultProxy::to(shared.server.addresses()[0])
        .set(Connections::All, Direction::ToClient, Fault::CutHard { after: 2_000_000 })
        .start()
        .unwrap();
    let cuts = || proxy.stats().fired.len();
    for (lanes, min_retries) in [(1, 5), (3, 1)] {
        let before = cuts();
        let storage = open(&behind(&shared, &proxy)).await.unwrap();
        storage.set_lanes(lanes);
        let file = storage.open(&path("file")).await.unwrap();
        let (bytes, retries) = read_with_retries(&*file).await;
        assert!(bytes == content());
        // Each lane carries less than 2 MB of the file, and up to `lanes` of them are not cut at the end. A single
        // error may be due to several cuts.
        assert!(cuts() - before >= 10 - lanes, "{:?}", proxy.stats());
        assert!(retries >= min_retries, "{retries} retries over {lanes} lanes");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_continues_after_each_cut_of_a_lane() {
    let directory = tempfile::tempdir().unwrap();
    let shared = share(directory.path(), |_| {}).await;
    let proxy = FaultProxy::to(shared.server.addresses()[0])
        .set(Connections::All, Direction::ToServer, Fault::CutHard { after: 3_000_000 })
        .start()
        .unwrap();
    let storage = open(&behind(&shared, &proxy)).await.unwrap();
    storage.set_lanes(2);
    let content = Bytes::from(content());
    let writer = storage.create(&path("file"), &CreateOptions::default()).await.unwrap();
    let (mut retries, begun) = (0, Instant::now());
    for start in (0..SIZE).step_by(1 << 20) {
        let block = content.slice(start..SIZE.min(start + (1 << 20)));
        while let Err(error) = writer.write_at(start as u64, block.clone().into()).await {
            assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
            retries += 1;
            assert!(begun.elapsed() < PATIENCE, "{error}");
        }
    }
    let options = CommitOptions {
        metadata: Metadata::default(),
        replace: false,
        sync: false,
        expected: None,
    };
    while let Err(error) = writer.commit(SIZE as u64, &options).await {
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(begun.elapsed() < 2 * PATIENCE, "{error}");
    }
    assert!(retries >= 3, "{retries} retries");
    assert!(std::fs::read(directory.path().join("file")).unwrap() == content);
}

/// Formerly, the part file of a killed client was refused to its next run for a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_part_file_of_a_vanished_client_can_be_opened_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let shared = share(directory.path(), |_| {}).await;
    let proxy = FaultProxy::to(shared.server.addresses()[0]).start().unwrap();
    let killed = open(&behind(&shared, &proxy)).await.unwrap();
    let (file, options) = (path("file"), CreateOptions::default());
    let part = killed.create(&file, &options).await.unwrap();
    part.write_at(0, Bytes::from_static(b"content").into()).await.unwrap();
    let next = open(&shared.ticket).await.unwrap();
    let busy = next.create(&file, &options).await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Busy, "{busy}");
    drop(proxy);
    let lost_at = Instant::now();
    while let Err(busy) = next.create(&file, &options).await {
        assert_eq!(busy.kind(), ErrorKind::Busy, "{busy}");
        // The server must detect the lost connection first. A lost session lasts for a minute.
        assert!(lost_at.elapsed() < PATIENCE / 2);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The restarted sharer has the same identity, secret and address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sharer_that_was_restarted_is_found_again() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), content()).unwrap();
    let identity = Identity::ephemeral().unwrap();
    let secret = Secret::generate().unwrap();
    let start = |address| {
        let storage = LocalStorage::open(directory.path(), LocalOptions::default()).unwrap();
        PeerServer::builder(storage, "share").listen(address).grant(grant(&secret, false))
    };
    let first = start("127.0.0.1:0".parse().unwrap()).bind(&identity).await.unwrap();
    let address = first.addresses()[0];
    let ticket = Ticket::new(identity.key(), secret.clone())
        .with_addresses([Address::new(address).unwrap()]);
    let storage = open(&ticket).await.unwrap();
    let file = storage.open(&path("file")).await.unwrap();
    let mut blocks = file.read_at(Range::new(0, 1_000_000));
    blocks.next().await.unwrap().unwrap();
    drop(blocks);
    first.stop().await;
    let gone = storage.stat(&path("file")).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::Unreachable, "{gone}");
    let _second = loop {
        match start(address).bind(&identity).await {
            Ok(server) => break server,
            // The port may still be in use for a moment.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    };
    let start = Instant::now();
    while let Err(error) = storage.stat(&path("file")).await {
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(start.elapsed() < PATIENCE, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (bytes, _) = read_with_retries(&*file).await;
    assert!(bytes == content());
}

/// A client repeats a commit if the response to the first one was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_repeated_succeeds() {
    let directory = tempfile::tempdir().unwrap();
    let shared = share(directory.path(), |_| {}).await;
    let storage = open(&shared.ticket).await.unwrap();
    let writer = storage.create(&path("file"), &CreateOptions::default()).await.unwrap();
    writer.write_at(0, Bytes::from_static(b"content").into()).await.unwrap();
    let options = CommitOptions {
        metadata: Metadata::default(),
        replace: false,
        sync: false,
        expected: None,
    };
    for _ in 0..2 {
        writer.commit(7, &options).await.unwrap();
    }
    assert_eq!(std::fs::read(directory.path().join("file")).unwrap(), b"content");
    assert!(writer.write_at(0, Bytes::from_static(b"late").into()).await.is_err());
}
