//! Sharers that fall silent where the client waits for them: each wait is reported, and the report names what is
//! expected. The tests of `client::opener`, with a paused clock, check when waits are reported and when they end.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, select_all};
use haul_net::{HostWaits, Waits};
use haul_peer::client::{PeerHost, PeerOptions, PeerStorage};
use haul_peer::identity::Identity;
use haul_peer::ticket::{Address, Secret, Ticket};
use haul_peer::tls;
use haul_storage::memory::{MemoryStorage, Operation};
use haul_storage::{
    CommitOptions, CreateOptions, DigestKind, ErrorKind, Location, Metadata, Range, RelPath,
    Result, Storage,
};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::{PATIENCE, path, share_storage};

/// The waits that were reported.
#[derive(Default)]
struct Reports {
    all: Mutex<Vec<String>>,
    added: Notify,
}

impl Reports {
    /// Adds a wait once the host has been silent for 50 ms.
    fn waits(self: &Arc<Self>) -> Waits {
        let sink = Arc::clone(self);
        let waits = Waits::new(move |wait| {
            assert_eq!(wait.host, "peer");
            sink.all.lock().unwrap().push(wait.what.clone());
            sink.added.notify_one();
        });
        waits.after(Duration::from_millis(50))
    }

    async fn reported(&self, what: &str) {
        let reported = async {
            while !self.all.lock().unwrap().iter().any(|reported| reported == what) {
                self.added.notified().await;
            }
        };
        let is_reported = timeout(PATIENCE, reported).await.is_ok();
        assert!(is_reported, "{what} is not among {:?}", self.all.lock().unwrap());
    }
}

async fn open(ticket: &Ticket, waits: HostWaits) -> Result<Arc<PeerStorage>> {
    let options = PeerOptions { waits, ..PeerOptions::default() };
    let identity = Identity::ephemeral().unwrap();
    let host = PeerHost::with_options(ticket, &identity, options, Handle::current()).unwrap();
    let location = Location::parse("sftp://peer/").unwrap();
    PeerStorage::open(host, location, RelPath::root()).await
}

type Request = fn(&PeerStorage) -> BoxFuture<'_, Result<()>>;

/// Requests of most kinds, each with the operation of the sharer's disk that hangs, and the request's name in reports.
fn requests() -> Vec<(Operation, Request, &'static str)> {
    vec![
        (
            Operation::Stat,
            |at| Box::pin(async { at.stat(&path("a/f")).await.map(drop) }),
            "STAT a/f",
        ),
        (Operation::List, |at| Box::pin(async { at.list(&path("a")).await.map(drop) }), "LIST a"),
        (
            Operation::Open,
            |at| Box::pin(async { at.open(&path("a/f")).await.map(drop) }),
            "OPEN a/f",
        ),
        (
            Operation::Read,
            |at| {
                Box::pin(async {
                    let file = at.open(&path("a/f")).await?;
                    file.read_at(Range::new(0, 7)).next().await.unwrap().map(drop)
                })
            },
            "READ",
        ),
        (Operation::Remove, |at| Box::pin(async { at.remove(&path("a/f")).await }), "REMOVE a/f"),
        (
            Operation::CreateDir,
            |at| Box::pin(async { at.create_dir_as(&path("d"), None).await }),
            "CREATE-DIR d",
        ),
        (
            Operation::Copy,
            |at| Box::pin(async { at.copy(&path("a/f"), &path("copy")).await }),
            "COPY copy",
        ),
        (
            Operation::Digest,
            |at| Box::pin(async { at.digest(&path("a/f"), DigestKind::Sha256).await.map(drop) }),
            "DIGEST a/f",
        ),
        (Operation::Create, |at| Box::pin(written(at)), "CREATE a/new"),
        (Operation::Write, |at| Box::pin(written(at)), "WRITE"),
        (Operation::Sync, |at| Box::pin(written(at)), "SYNC"),
        (Operation::Commit, |at| Box::pin(written(at)), "COMMIT"),
    ]
}

async fn written(storage: &PeerStorage) -> Result<()> {
    let file = storage.create(&path("a/new"), &CreateOptions::default()).await?;
    file.write_at(0, Bytes::from_static(b"content").into()).await?;
    file.sync().await?;
    let options =
        CommitOptions { metadata: Metadata::default(), replace: true, sync: false, expected: None };
    file.commit(7, &options).await
}

/// Formerly, nothing was reported: the client waited in silence as long as the sharer responded to Pings.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_the_disk_of_the_share_does_not_complete_is_reported() {
    for (operation, request, what) in requests() {
        let memory = MemoryStorage::builder().with_digests().build();
        memory.add_file("a/f", "content");
        let shared = share_storage(Arc::<MemoryStorage>::clone(&memory), |_| {}).await;
        let reports = Arc::<Reports>::default();
        let storage = open(&shared.ticket, reports.waits().of("peer")).await.unwrap();
        memory.faults().on(operation).stall();
        let report = format!("response to {what}");
        tokio::select! {
            outcome = request(&storage) => panic!("{operation:?} has not hung: {outcome:?}"),
            () = reports.reported(&report) => {}
        }
        shared.server.stop().await;
    }
}

/// With `--timeout 4`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_without_a_response_fails_and_its_session_remains_usable() {
    let memory = MemoryStorage::new();
    memory.add_file("a/f", "content");
    let shared = share_storage(Arc::<MemoryStorage>::clone(&memory), |_| {}).await;
    let waits = Waits::default().with_silence(Duration::from_secs(4)).of("peer");
    let storage = open(&shared.ticket, waits).await.unwrap();
    memory.faults().on(Operation::List).stall();
    let error = timeout(PATIENCE, storage.list(&path("a"))).await.unwrap().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    let cause = "the peer made no progress for 4 s (response to LIST a)";
    assert!(error.to_string().contains(cause), "{error}");
    memory.faults().clear();
    assert_eq!(storage.list(&path("a")).await.unwrap().next().await.unwrap().unwrap().len(), 1);
}

/// Formerly, the server executed abandoned requests as long as its disk hung. A session has at most 8192 requests in
/// progress: with more, the server read nothing from its lanes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_requests_are_stopped() {
    const AT_ONCE: u64 = 1000;
    let memory = MemoryStorage::builder().with_digests().build();
    memory.add_file("a/f", "content");
    let shared = share_storage(Arc::<MemoryStorage>::clone(&memory), |_| {}).await;
    let storage = open(&shared.ticket, HostWaits::default()).await.unwrap();
    for operation in [Operation::Digest, Operation::ReadWhole] {
        memory.faults().on(operation).stall();
        for batch in 1..=9 {
            let file = path("a/f");
            let requests = (0..AT_ONCE).map(|_| async {
                match operation {
                    Operation::Digest => storage.digest(&file, DigestKind::Sha256).await.map(drop),
                    _ => storage.read_whole(&file, 100).await.map(drop),
                }
            });
            let begun = async {
                while memory.faults().count(operation) < batch * AT_ONCE {
                    sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::select! {
                outcome = select_all(requests.map(Box::pin)) => panic!("{:?}", outcome.0),
                begun = timeout(PATIENCE, begun) => begun.unwrap(),
            }
        }
        timeout(PATIENCE, storage.stat(&path("a/f"))).await.unwrap().unwrap();
    }
}

/// A peer that accepts connections and then sends nothing, with or without the TLS handshake.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_does_not_respond_when_a_lane_is_opened_is_reported() {
    for (has_tls, what) in [(false, "connection"), (true, "response to HELLO")] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (identity, secret) = (Identity::ephemeral().unwrap(), Secret::generate().unwrap());
        let address = Address::new(listener.local_addr().unwrap()).unwrap();
        let ticket = Ticket::new(identity.key(), secret).with_addresses([address]);
        let silent = tokio::spawn(async move {
            let mut accepted = None;
            if has_tls {
                let (socket, _) = listener.accept().await.unwrap();
                let config = tls::server_config(identity.pkcs8(), &identity.spki()).unwrap();
                accepted = Some(tls::accept(socket, config, PATIENCE).await.unwrap());
            }
            // Otherwise, the kernel has accepted the connection.
            std::future::pending::<()>().await;
            drop((listener, accepted));
        });
        let reports = Arc::<Reports>::default();
        tokio::select! {
            opened = open(&ticket, reports.waits().of("peer")) => panic!("{opened:?}"),
            () = reports.reported(what) => {}
        }
        silent.abort();
    }
}
