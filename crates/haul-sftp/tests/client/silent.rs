//! Servers that accept requests and respond late or never: every wait is reported after 10 s, and all but that
//! for a sync time out after 60 s. The clock is paused, so that minutes take no time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use haul_net::Waits;
use haul_sftp::codec::{Extended, Request};
use haul_sftp::{SftpHost, SftpStorage};
use haul_storage::{
    CommitOptions, CreateOptions, Error, ErrorKind, Location, Metadata, Range, RelPath, Result,
    Storage,
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
    assert_eq!(reports.lock().unwrap().first(), Some(&(what.to_owned(), 10)));
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    let text = error.to_string();
    assert!(text.contains(&format!("the server was silent for 60 s ({what})")), "{text}");
}

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
