//! Servers that accept requests and never respond: every wait is reported after 10 s and ends. The clock
//! is paused, so that minutes take no time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use haul_net::{HostWaits, Waits};
use haul_sftp::codec::{
    Attrs, Deframer, Extended, Extensions, Handle as FileHandle, Name, Request, Response, Status,
    name,
};
use haul_sftp::transport::{Channel, Dial, First, Outgoing};
use haul_sftp::{SftpHost, SftpStorage};
use haul_storage::{
    CommitOptions, CreateOptions, Error, ErrorKind, Location, Metadata, Range, RelPath, Result,
    Storage,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::Instant;

/// The delay of the response to a request; `None`: it never comes.
type Script = fn(&Request) -> Option<Duration>;

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;

/// A server with a directory `/`, in which every other path is a file of 10 bytes.
struct Scripted {
    script: Script,
    waits: HostWaits,
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scripted")
    }
}

#[async_trait]
impl Dial for Scripted {
    async fn dial(&self, first: &First) -> Result<Channel> {
        let (responses, received) = unbounded_channel();
        let server =
            Server { script: self.script, state: Mutex::new(Deframer::new(1 << 20)), responses };
        server.send(&[first("")]).await?;
        let incoming = stream::unfold(received, |mut received| async move {
            received.recv().await.map(|bytes: Bytes| (Ok(bytes), received))
        });
        Ok(Channel {
            incoming: incoming.boxed(),
            outgoing: Box::new(server),
            server: String::new(),
            rtt: None,
            round_trips: 1,
            gauge: None,
        })
    }

    async fn first_rtt(&self) -> Option<Duration> {
        None
    }

    fn host(&self) -> String {
        "scripted".to_owned()
    }

    fn waits(&self) -> HostWaits {
        self.waits.clone()
    }
}

struct Server {
    script: Script,
    state: Mutex<Deframer>,
    responses: UnboundedSender<Bytes>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Server")
    }
}

#[async_trait]
impl Outgoing for Server {
    async fn send(&self, pieces: &[Bytes]) -> Result<()> {
        let mut deframer = self.state.lock().unwrap();
        pieces.iter().for_each(|piece| deframer.push(piece.clone()));
        while let Some(frame) = deframer.next_frame().unwrap() {
            let (id, request) = Request::decode(frame).unwrap();
            let Some(after) = (self.script)(&request) else { continue };
            let (response, responses) = (response(&request).encode(id), self.responses.clone());
            if after.is_zero() {
                drop(responses.send(response));
            } else {
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    drop(responses.send(response));
                });
            }
        }
        Ok(())
    }
}

fn response(request: &Request) -> Response {
    let status = |status| Response::Status { status, message: Bytes::new() };
    let attrs = |path: &Bytes| Attrs {
        size: Some(10),
        permissions: Some(if path.len() == 1 { DIRECTORY } else { FILE }),
        ..Attrs::default()
    };
    match request {
        Request::Init { .. } => Response::Version {
            version: 3,
            extensions: Extensions(vec![
                (Bytes::from_static(name::FSYNC), Bytes::from_static(b"1")),
                (Bytes::from_static(name::POSIX_RENAME), Bytes::from_static(b"1")),
            ]),
        },
        Request::Realpath(path) => Response::Names(vec![Name {
            name: path.clone(),
            long: Bytes::new(),
            attrs: Attrs::default(),
        }]),
        Request::Lstat(path) | Request::Stat(path) => match path.ends_with(b"new") {
            true => status(Status::NoSuchFile),
            false => Response::Attrs(attrs(path)),
        },
        Request::Fstat(_) => Response::Attrs(attrs(&Bytes::from_static(b"/f"))),
        Request::Open { .. } | Request::Opendir(_) => {
            Response::Handle(FileHandle::from(Bytes::from_static(b"h")))
        }
        Request::Read { .. } | Request::Readdir(_) => status(Status::Eof),
        _ => status(Status::Ok),
    }
}

/// Reports of waits, as `what` and seconds.
type Reports = Arc<Mutex<Vec<(String, u64)>>>;

fn host(script: Script) -> (Arc<SftpHost>, Reports) {
    let reports = Reports::default();
    let heard = Arc::clone(&reports);
    let waits = Waits::new(move |wait| {
        heard.lock().unwrap().push((wait.what.clone(), wait.waited.as_secs()));
    });
    let dial = Scripted { script, waits: waits.of("scripted:22") };
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
    let options = CommitOptions { metadata: Metadata::default(), replace: false, sync: true };
    file.commit(10, &options).await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(20 * 60));
    let reports = reports.lock().unwrap();
    assert_eq!(reports[0], ("response to fsync".to_owned(), 10));
    // Then every 30 s.
    assert_eq!(reports.len(), 40);
}
