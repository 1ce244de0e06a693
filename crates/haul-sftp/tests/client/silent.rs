//! Servers that accept requests and respond late or never: every wait is reported after 10 s, and times out after
//! 60 s, or after 30 min if the server may be waiting for its disk. The clock is paused, so that minutes take no time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use haul_net::Waits;
use haul_sftp::codec::{Attrs, Extended, Name, Request, Response};
use haul_sftp::{SftpHost, SftpStorage};
use haul_storage::{
    Block, CommitOptions, CreateOptions, Error, ErrorKind, Location, Metadata, Range, RelPath,
    Result, Storage, StorageExt,
};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::scripted::{Script, Scripted};

/// Reports of waits, as `what` and seconds.
type Reports = Arc<Mutex<Vec<(String, u64)>>>;

fn host(script: Script) -> (Arc<SftpHost>, Reports) {
    let reports = Reports::default();
    let sink = Arc::clone(&reports);
    let waits = Waits::new(move |wait| {
        sink.lock().unwrap().push((wait.what.clone(), wait.waited.as_secs()));
    });
    let dial = Scripted { script, respond: |_| None, waits: waits.of("scripted:22") };
    (SftpHost::new(Arc::new(dial), Handle::current()), reports)
}

async fn storage(script: Script) -> (Arc<SftpStorage>, Reports) {
    let (host, reports) = host(script);
    let resolved = host.resolve(b"/").await.unwrap();
    let location = Location::parse("sftp://scripted/").unwrap();
    (SftpStorage::open(host, location, resolved.path, None).await.unwrap(), reports)
}

/// Waits for a day at most, on the paused clock.
async fn ended<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(86_400), future).await.unwrap()
}

/// Checks the first report, and that the error names the same wait.
fn check(reports: &Reports, error: &Error, what: &str) {
    check_limit(reports, error, what, 60);
}

/// Like [`check`], for a wait that ends after `limit` seconds.
fn check_limit(reports: &Reports, error: &Error, what: &str, limit: u64) {
    assert_eq!(reports.lock().unwrap().first(), Some(&(what.to_owned(), 10)));
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    let text = error.to_string();
    assert!(text.contains(&format!("the server was silent for {limit} s ({what})")), "{text}");
}

/// The limit, in seconds, of requests that may wait for the server's disk.
const LASTING: u64 = 30 * 60;

async fn listed(storage: &dyn Storage) -> Result<usize> {
    let mut listing = storage.list(&RelPath::root()).await?;
    let mut count = 0;
    while let Some(entries) = listing.next().await {
        count += entries?.len();
    }
    Ok(count)
}

fn path(path: &str) -> RelPath {
    RelPath::parse(path).unwrap()
}

#[tokio::test(start_paused = true)]
async fn connecting_to_a_server_without_a_greeting_times_out() {
    let (host, reports) = host(|_| None);
    let began = Instant::now();
    let error = ended(host.resolve(b"/")).await.unwrap_err();
    check(&reports, &error, "response to REALPATH /");
    // Two lanes, one after the other.
    assert_eq!(began.elapsed().as_secs(), 120);
}

#[tokio::test(start_paused = true)]
async fn a_stat_without_a_response_times_out() {
    let (host, reports) = host(|request| match request {
        Request::Stat(_) => None,
        _ => Some(Duration::ZERO),
    });
    let began = Instant::now();
    let error = ended(host.resolve(b"/")).await.unwrap_err();
    check(&reports, &error, "response to STAT /");
    assert_eq!(began.elapsed().as_secs(), 120);
}

#[tokio::test(start_paused = true)]
async fn a_listing_without_a_response_times_out() {
    let (storage, reports) = storage(|request| match request {
        Request::Opendir(_) => None,
        _ => Some(Duration::ZERO),
    })
    .await;
    let error = ended(listed(&*storage)).await.unwrap_err();
    check(&reports, &error, "response to OPENDIR /");
}

#[tokio::test(start_paused = true)]
async fn a_stalled_listing_times_out() {
    let (storage, reports) = storage(|request| match request {
        Request::Readdir(_) => None,
        _ => Some(Duration::ZERO),
    })
    .await;
    let error = ended(listed(&*storage)).await.unwrap_err();
    check(&reports, &error, "response to READDIR");
}

/// Formerly, the second lane that fell silent ended a listing of more than a minute, although names had arrived.
#[tokio::test(start_paused = true)]
async fn a_listing_that_makes_progress_continues_after_each_silent_lane() {
    const NAMES: usize = 5;
    const LANES: usize = 4;
    static OPENED: AtomicUsize = AtomicUsize::new(0);
    static REQUESTED: AtomicUsize = AtomicUsize::new(0);
    let script = |request: &Request| {
        match request {
            Request::Opendir(_) => {
                OPENED.fetch_add(1, Ordering::Relaxed);
                REQUESTED.store(0, Ordering::Relaxed);
            }
            Request::Readdir(_) => {
                let (lane, name) =
                    (OPENED.load(Ordering::Relaxed), REQUESTED.fetch_add(1, Ordering::Relaxed) + 1);
                // Each lane has a few new names, and is silent after them; the last one has the end.
                return match name {
                    _ if name <= NAMES * (lane - 1) => Some(Duration::ZERO),
                    _ if name <= NAMES * lane => Some(Duration::from_secs(20)),
                    _ => (lane == LANES).then_some(Duration::ZERO),
                };
            }
            _ => {}
        }
        Some(Duration::ZERO)
    };
    let respond = |request: &Request| match (request, REQUESTED.load(Ordering::Relaxed)) {
        (Request::Readdir(_), number) if number <= NAMES * LANES => {
            let attrs = Attrs { size: Some(10), permissions: Some(0o100_644), ..Attrs::default() };
            let name = Bytes::from(format!("f{number}"));
            Some(Response::Names(vec![Name { name, long: Bytes::new(), attrs }]))
        }
        _ => None,
    };
    let waits = Waits::new(|_| {}).of("scripted:22");
    let dial = Scripted { script, respond, waits };
    let host = SftpHost::new(Arc::new(dial), Handle::current());
    let location = Location::parse("sftp://scripted/").unwrap();
    let storage = SftpStorage::open(host, location, Bytes::from_static(b"/"), None).await.unwrap();
    assert_eq!(ended(listed(&*storage)).await.unwrap(), NAMES * LANES);
    assert_eq!(OPENED.load(Ordering::Relaxed), LANES);
}

#[tokio::test(start_paused = true)]
async fn a_read_without_a_response_times_out() {
    let (storage, reports) = storage(|request| match request {
        Request::Read { .. } => None,
        _ => Some(Duration::ZERO),
    })
    .await;
    let file = storage.open(&path("f")).await.unwrap();
    let mut blocks = file.read_at(Range::new(0, 10));
    let error = ended(blocks.next()).await.unwrap().unwrap_err();
    check(&reports, &error, "response to READ");
}

#[tokio::test(start_paused = true)]
async fn a_write_without_a_response_times_out() {
    let (storage, reports) = storage(|request| match request {
        Request::Write { .. } => None,
        _ => Some(Duration::ZERO),
    })
    .await;
    let file = storage.create(&path("new"), &CreateOptions::default()).await.unwrap();
    // The limit of a short request, and 1 s more for 4 KiB at 4 KiB/s.
    let block = Block::from(Bytes::from(vec![0; 4 << 10]));
    let error = ended(file.write_at(0, block)).await.unwrap_err();
    check_limit(&reports, &error, "response to WRITE", 61);
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_is_not_created_times_out() {
    let (storage, reports) = storage(|request| match request {
        Request::Mkdir(..) => None,
        _ => Some(Duration::ZERO),
    })
    .await;
    let error = ended(storage.create_dir(&path("new"))).await.unwrap_err();
    check(&reports, &error, "response to MKDIR /new");
}

/// The server may have to wait for its disk, so this wait is reported like others, but may last longer.
#[tokio::test(start_paused = true)]
async fn a_removal_without_a_response_times_out_after_half_an_hour() {
    let (storage, reports) = storage(|request| match request {
        Request::Remove(_) => None,
        _ => Some(Duration::ZERO),
    })
    .await;
    let error = ended(storage.remove(&path("f"))).await.unwrap_err();
    check_limit(&reports, &error, "response to REMOVE /f", LASTING);
}

#[tokio::test(start_paused = true)]
async fn a_rename_without_a_response_times_out_after_half_an_hour() {
    let (storage, reports) = storage(|request| match request {
        Request::Extended(Extended::PosixRename { .. }) => None,
        _ => Some(Duration::ZERO),
    })
    .await;
    let error = ended(storage.rename(&path("f"), &path("g"))).await.unwrap_err();
    check_limit(&reports, &error, "response to posix-rename /g", LASTING);
}

/// Commits a file of 10 bytes, without a sync.
async fn committed(storage: &dyn Storage) -> Result<()> {
    let file = storage.create(&path("new"), &CreateOptions::default()).await.unwrap();
    let metadata = Metadata::default();
    let options = CommitOptions { metadata, replace: false, sync: false, expected: None };
    file.commit(10, &options).await
}

/// Unlike posix-rename, RENAME replaces nothing.
#[tokio::test(start_paused = true)]
async fn a_new_file_that_is_not_renamed_times_out_after_half_an_hour() {
    let (storage, reports) = storage(|request| match request {
        Request::Rename { .. } => None,
        _ => Some(Duration::ZERO),
    })
    .await;
    let error = ended(committed(&*storage)).await.unwrap_err();
    check_limit(&reports, &error, "response to RENAME /new", LASTING);
}

#[tokio::test(start_paused = true)]
async fn a_new_file_that_is_not_closed_times_out_after_half_an_hour() {
    let (storage, reports) = storage(|request| match request {
        Request::Close(_) => None,
        _ => Some(Duration::ZERO),
    })
    .await;
    let error = ended(committed(&*storage)).await.unwrap_err();
    check_limit(&reports, &error, "response to CLOSE", LASTING);
}

#[tokio::test(start_paused = true)]
async fn a_sync_of_twenty_minutes_is_reported_and_does_not_time_out() {
    let (storage, reports) = storage(|request| match request {
        Request::Extended(Extended::Fsync(_)) => Some(Duration::from_secs(20 * 60)),
        _ => Some(Duration::ZERO),
    })
    .await;
    let began = Instant::now();
    let file = storage.create(&path("new"), &CreateOptions::default()).await.unwrap();
    let options =
        CommitOptions { metadata: Metadata::default(), replace: false, sync: true, expected: None };
    file.commit(10, &options).await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(20 * 60));
    let reports = reports.lock().unwrap();
    assert_eq!(reports[0], ("response to fsync".to_owned(), 10));
    // Then every 30 s.
    assert_eq!(reports.len(), 40);
}
