//! Requests are executed once, even if lanes are lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, join_all};
use haul_fault_proxy::{Connections, Direction, Fault, FaultProxy};
use haul_peer::client::PeerStorage;
use haul_peer::identity::Identity;
use haul_peer::server::PeerServer;
use haul_peer::ticket::{Address, Secret, Ticket};
use haul_storage::memory::{MemoryStorage, Operation};
use haul_storage::{
    CommitOptions, CreateOptions, ErrorKind, LinkKind, Metadata, Range, RelPath, Result, Storage,
};
use tokio::time::{sleep, timeout};

use super::lost::behind;
use super::{PATIENCE, Shared, grant, open, path, share_storage};

/// How long a delayed operation runs, and how long a test waits for an operation to end.
const RUNS: Duration = Duration::from_millis(300);

/// A share of a storage in memory, behind a proxy.
struct Behind {
    memory: Arc<MemoryStorage>,
    storage: Arc<PeerStorage>,
    proxy: FaultProxy,
    shared: Shared,
    /// The number of the session.
    session: u64,
}

async fn set_up() -> Behind {
    let memory = MemoryStorage::new();
    let served: Arc<dyn Storage> = Arc::<MemoryStorage>::clone(&memory);
    let shared = share_storage(served, |_| {}).await;
    let proxy = FaultProxy::to(shared.server.addresses()[0]).start().unwrap();
    let storage = open(&behind(&shared, &proxy)).await.unwrap();
    let session = shared.server.sessions().status()[0].number;
    Behind { memory, storage, proxy, shared, session }
}

impl Behind {
    /// Waits until the `nth` call of an operation has begun.
    async fn begun(&self, operation: Operation, nth: u64) {
        while self.memory.faults().count(operation) < nth {
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Cuts all lanes while the `nth` call of an operation runs.
    async fn cut_while_it_runs(&self, operation: Operation, nth: u64) {
        self.begun(operation, nth).await;
        self.proxy.cut_all();
    }

    /// Requests a part file, and abandons the request once the server has been executing it for `after`.
    async fn abandon_create(&self, file: &RelPath, after: Duration) {
        let next = self.memory.faults().count(Operation::Create) + 1;
        let is_due = async {
            self.begun(Operation::Create, next).await;
            sleep(after).await;
        };
        let options = CreateOptions::default();
        tokio::select! {
            biased;
            () = is_due => {}
            created = self.storage.create(file, &options) => {
                panic!("a response to the abandoned request: {:?}", created.map(drop));
            }
        }
    }

    /// Creates a file as soon as its part file is not in use. The session, whose end would release all of its part
    /// files, stays open.
    async fn create_when_free(&self, file: &RelPath) {
        let start = Instant::now();
        while let Err(error) = self.storage.create(file, &CreateOptions::default()).await {
            // A request may be lost with a lane that was cut.
            let is_expected = matches!(error.kind(), ErrorKind::Busy | ErrorKind::Unreachable);
            assert!(is_expected, "{error}");
            assert!(start.elapsed() < PATIENCE, "{error}");
            sleep(Duration::from_millis(20)).await;
        }
        let sessions = self.shared.server.sessions().status();
        let numbers: Vec<_> = sessions.iter().map(|session| session.number).collect();
        assert_eq!(numbers, [self.session], "the session was replaced");
    }

    /// From now on, the client receives nothing on the lanes that are open now.
    fn lose_responses(&self) {
        let open = Connections::First(self.proxy.stats().accepted);
        self.proxy.set(open, Direction::ToClient, Fault::Blackhole { from: 0 });
    }

    /// Waits for the `nth` call of an operation, and for its response to be discarded ([`Self::lose_responses`]); then
    /// cuts all lanes.
    async fn lose_response(&self, operation: Operation, nth: u64) {
        self.begun(operation, nth).await;
        sleep(RUNS).await;
        self.proxy.cut_all();
    }
}

fn options() -> CommitOptions {
    CommitOptions { metadata: Metadata::default(), replace: false, sync: false, expected: None }
}

/// Formerly, the change was reported as failed, and failed again when the caller repeated it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_executed_once_though_its_lane_is_lost() {
    let this = set_up().await;
    this.memory.add_file("0", "content");
    this.memory.faults().on(Operation::Rename).delay(RUNS);
    for nth in 1..=3_u64 {
        let (from, to) = (path(&(nth - 1).to_string()), path(&nth.to_string()));
        let renamed = this.storage.rename(&from, &to);
        let (renamed, ()) = tokio::join!(renamed, this.cut_while_it_runs(Operation::Rename, nth));
        renamed.unwrap();
        assert_eq!(this.memory.faults().count(Operation::Rename), nth);
    }
}

/// Formerly, it opened one more lane, for up to 15 seconds, before it reported that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_loses_every_lane_opens_none_after_the_last_attempt() {
    let this = set_up().await;
    this.memory.faults().on(Operation::CreateDir).stall();
    let mut opened = 0;
    let cuts = async {
        loop {
            sleep(RUNS).await;
            opened = this.proxy.stats().accepted;
            this.proxy.cut_all();
        }
    };
    let directory = path("d");
    let outcome = tokio::select! {
        biased;
        created = this.storage.create_dir_as(&directory, None) => created,
        () = cuts => unreachable!(),
    };
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Unreachable);
    assert_eq!(this.proxy.stats().accepted, opened);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_whose_responses_are_lost_have_succeeded() {
    type Change = fn(&PeerStorage) -> BoxFuture<'_, Result<()>>;
    let changes: [(Operation, Change); 5] = [
        (Operation::CreateDir, |storage| {
            Box::pin(async move { storage.create_dir_as(&path("d"), None).await })
        }),
        (Operation::CreateLink, |storage| {
            let link = LinkKind::Symbolic(b"file".to_vec());
            Box::pin(async move { storage.create_link(&path("l"), &link, false).await })
        }),
        (Operation::WriteWhole, |storage| {
            let bytes = Bytes::from_static(b"content");
            Box::pin(async move { storage.write_whole(&path("w"), bytes, &options()).await })
        }),
        (Operation::Rename, |storage| {
            Box::pin(async move { storage.rename(&path("file"), &path("other")).await })
        }),
        (Operation::Remove, |storage| {
            Box::pin(async move { storage.remove(&path("other")).await })
        }),
    ];
    let this = set_up().await;
    this.memory.add_file("file", "content");
    for (operation, change) in changes {
        this.lose_responses();
        let (changed, ()) = tokio::join!(change(&this.storage), this.lose_response(operation, 1));
        changed.unwrap();
        assert_eq!(this.memory.faults().count(operation), 1, "{operation:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_created_and_committed_though_the_responses_are_lost() {
    let this = set_up().await;
    this.lose_responses();
    let (file, create) = (path("file"), CreateOptions::default());
    let created = this.storage.create(&file, &create);
    let (created, ()) = tokio::join!(created, this.lose_response(Operation::Create, 1));
    let writer = created.unwrap();
    writer.write_at(0, Bytes::from_static(b"content").into()).await.unwrap();
    this.lose_responses();
    let options = options();
    let committed = writer.commit(7, &options);
    let (committed, ()) = tokio::join!(committed, this.lose_response(Operation::Commit, 1));
    committed.unwrap();
    assert_eq!(this.memory.read_whole(&file, 100).await.unwrap().bytes, "content");
    assert_eq!(this.memory.faults().count(Operation::Commit), 1);
}

/// Formerly, a client waited forever on a connection that stayed open but carried nothing: its sharer was suspended, or
/// the bridge forwarded nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_that_carries_nothing_is_lost_and_its_request_repeated() {
    let this = set_up().await;
    this.memory.add_file("file", "content");
    this.lose_responses();
    let (from, to) = (path("file"), path("other"));
    // The lane is lost after 30 s of silence, and the request is repeated on a new one.
    let renamed = timeout(2 * PATIENCE, this.storage.rename(&from, &to)).await;
    renamed.unwrap().unwrap();
    assert_eq!(this.memory.faults().count(Operation::Rename), 1);
}

/// Formerly, the server assigned pieces of the repeated read to the lost lane, which seemed to be open, and the read
/// never ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_is_repeated_on_other_lanes_than_the_lost_one() {
    const SIZE: u64 = 4 << 20;
    let this = set_up().await;
    this.memory.add_pattern_file("file", SIZE, 1);
    let file = this.storage.open(&path("file")).await.unwrap();
    this.lose_responses();
    let reading = async {
        let mut read = 0;
        while read < SIZE {
            let mut blocks = file.read_at(Range::between(read, SIZE));
            while let Some(Ok(block)) = blocks.next().await {
                read += block.len() as u64;
            }
        }
    };
    timeout(2 * PATIENCE, reading).await.unwrap();
}

/// Formerly, the part file was in use until the session ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_file_that_its_creator_has_abandoned_is_released() {
    let this = set_up().await;
    let file = path("file");
    // Abandoned while the server is creating the file.
    this.memory.faults().on(Operation::Create).nth(1).delay(RUNS);
    this.abandon_create(&file, Duration::ZERO).await;
    this.create_when_free(&file).await;
    sleep(RUNS / 3).await;
    // Abandoned after the server has created it.
    this.lose_responses();
    this.abandon_create(&file, RUNS).await;
    sleep(RUNS).await;
    this.proxy.cut_all();
    this.create_when_free(&file).await;
}

/// Formerly, each task opened the file, and all but one of the handles stayed open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_opened_once_in_a_new_session_by_several_tasks() {
    let memory = MemoryStorage::new();
    memory.add_file("file", vec![7; 100_000]);
    let (identity, secret) = (Identity::ephemeral().unwrap(), Secret::generate().unwrap());
    let start = |address| {
        let served: Arc<dyn Storage> = Arc::<MemoryStorage>::clone(&memory);
        PeerServer::builder(served, "share").listen(address).grant(grant(&secret, false))
    };
    let first = start("127.0.0.1:0".parse().unwrap()).bind(&identity).await.unwrap();
    let address = first.addresses()[0];
    let ticket = Ticket::new(identity.key(), secret.clone())
        .with_addresses([Address::new(address).unwrap()]);
    let storage = open(&ticket).await.unwrap();
    let file = storage.open(&path("file")).await.unwrap();
    first.stop().await;
    let _second = loop {
        match start(address).bind(&identity).await {
            Ok(server) => break server,
            // The port may still be in use for a moment.
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    };
    let start = Instant::now();
    while let Err(error) = storage.stat(&RelPath::root()).await {
        assert!(start.elapsed() < PATIENCE, "{error}");
        sleep(Duration::from_millis(50)).await;
    }
    let before = memory.faults().count(Operation::Open);
    memory.faults().on(Operation::Open).delay(RUNS);
    let rechecks = join_all((0..20).map(|_| file.recheck())).await;
    assert!(rechecks.iter().all(Result::is_ok));
    assert_eq!(memory.faults().count(Operation::Open), before + 1);
    let mut blocks = file.read_at(Range::new(0, 100_000));
    let mut length = 0;
    while let Some(block) = blocks.next().await {
        length += block.unwrap().len();
    }
    assert_eq!(length, 100_000);
}
