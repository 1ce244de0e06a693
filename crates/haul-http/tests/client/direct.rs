//! Uploads to a server that refuses MOVE: they write under the final name, and replace only what they may. And uploads
//! whose part file is refused.

use std::collections::BTreeMap;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use haul_http::client::HttpStorage;
use haul_storage::{Block, CreateOptions, ErrorKind, Replaces, Result, Retry, Storage};
use tokio::time::{sleep, timeout};

use super::scripted::{Reply, Request, Scripted};
use super::{is_part_of, path, replacing, storage};

const SIZE: u64 = 300 << 10;

/// The `DAV` and `Server` headers of servers: a PUT alone; PATCH of parts; conditions; both.
const PLAIN: [&str; 2] = ["1", "other"];
const PARTS: [&str; 2] = ["1, sabredav-partialupdate", "other"];
const CONDITIONS: [&str; 2] = ["1", "haul"];
const BOTH: [&str; 2] = ["1, sabredav-partialupdate", "haul"];

/// The usual response of a server without `/dav/file`, which refuses MOVE.
fn usual(request: &Request, [dav, server]: [&str; 2]) -> Reply {
    match (&request.method[..], &request.path[..]) {
        ("OPTIONS", _) => {
            let headers = vec![("DAV", dav.to_owned()), ("Server", server.to_owned())];
            Reply::Respond(200, headers, String::new())
        }
        ("PROPFIND", "/dav/") => Reply::listing(&[("/dav/", None)]),
        ("PROPFIND", part) if part.ends_with("upload") => Reply::listing(&[(part, Some(SIZE))]),
        ("PROPFIND", part) if part.ends_with("temp") => Reply::listing(&[(part, Some(1))]),
        ("PROPFIND", _) => Reply::status(404),
        ("PUT", _) => Reply::status(201),
        ("PATCH" | "DELETE", _) => Reply::status(204),
        _ => Reply::status(405),
    }
}

fn existing(tag: usize) -> Reply {
    let text = super::scripted::multistatus(&[("/dav/file", Some(3))]);
    let tag = format!("<D:getetag>\"{tag}\"</D:getetag></D:prop>");
    Reply::Respond(207, Vec::new(), text.replace("</D:prop>", &tag))
}

/// Opens a storage on it, which has learnt that it refuses MOVE.
async fn without_move(server: &Scripted) -> Arc<HttpStorage> {
    let storage = storage(&server.url, &tempfile::tempdir().unwrap()).await;
    let error = write_to(&storage, "other", Replaces::Any).await.unwrap_err();
    assert_eq!(error.retry(), Retry::FromStart, "{error}");
    storage
}

async fn write(storage: &HttpStorage, replaces: Replaces) -> Result<()> {
    write_to(storage, "file", replaces).await
}

async fn write_to(storage: &HttpStorage, name: &str, replaces: Replaces) -> Result<()> {
    let (written, aborted) = attempt(storage, name, replaces).await;
    aborted?;
    written
}

/// Writes a file. Returns how that ended, and the abort after a failure.
async fn attempt(
    storage: &HttpStorage,
    name: &str,
    replaces: Replaces,
) -> (Result<()>, Result<()>) {
    let options = CreateOptions { size: Some(SIZE), replaces, ..CreateOptions::default() };
    let writer = match storage.create(&path(name), &options).await {
        Ok(writer) => writer,
        Err(error) => return (Err(error), Ok(())),
    };
    let written = async {
        writer.write_at(0, Block::from(Bytes::from(vec![1; SIZE as usize]))).await?;
        writer.commit(SIZE, &replacing()).await
    };
    match written.await {
        Ok(()) => (Ok(()), Ok(())),
        Err(error) => (Err(error), writer.abort(false).await),
    }
}

/// Requests that change the file under its final name.
fn changes(server: &Scripted) -> usize {
    let all = ["PUT", "PATCH", "DELETE"].map(|method| server.requests(method));
    all.iter().flatten().filter(|request| request.path == "/dav/file").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_move_a_file_that_exists_is_not_replaced_unless_allowed() {
    for kind in [PLAIN, PARTS, CONDITIONS, BOTH] {
        let has_conditions = kind[1] == "haul";
        let server =
            Scripted::start(move |request| match (&request.method[..], &request.path[..]) {
                ("PROPFIND", "/dav/file") => existing(1),
                ("PUT", "/dav/file")
                    if has_conditions && request.header("if-none-match") == "*" =>
                {
                    Reply::status(412)
                }
                _ => usual(request, kind),
            });
        let server = server.await;
        let storage = without_move(&server).await;
        let error = write(&storage, Replaces::Nothing).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{kind:?}: {error}");
        let puts = server.requests("PUT");
        let unconditional =
            puts.iter().filter(|put| put.path == "/dav/file" && put.header("if-none-match") != "*");
        assert_eq!(unconditional.count(), 0, "{kind:?}");
        assert_eq!(server.requests("DELETE").len(), 1, "{kind:?}: only the part file");
        assert!(has_conditions || changes(&server) == 0, "{kind:?}");
        write(&storage, Replaces::Any).await.unwrap();
    }
}

/// It appears between the check and the PUT. The server evaluates conditions, although nothing shows that it does.
#[tokio::test(flavor = "multi_thread")]
async fn without_move_a_file_that_appears_is_neither_replaced_nor_removed() {
    for kind in [PLAIN, PARTS, CONDITIONS, BOTH] {
        let appeared = AtomicBool::new(false);
        let server =
            Scripted::start(move |request| match (&request.method[..], &request.path[..]) {
                ("PROPFIND", "/dav/file") if appeared.load(Ordering::SeqCst) => existing(1),
                ("PUT", "/dav/file") if request.header("if-none-match") == "*" => {
                    appeared.store(true, Ordering::SeqCst);
                    Reply::status(412)
                }
                _ => usual(request, kind),
            });
        let server = server.await;
        let storage = without_move(&server).await;
        let error = write(&storage, Replaces::Nothing).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{kind:?}: {error}");
        assert_eq!(server.requests("DELETE").len(), 1, "{kind:?}: only the part file");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_move_only_the_expected_version_is_replaced() {
    for kind in [CONDITIONS, BOTH] {
        let version = Arc::new(AtomicUsize::new(1));
        let now = Arc::clone(&version);
        let server =
            Scripted::start(move |request| match (&request.method[..], &request.path[..]) {
                ("PROPFIND", "/dav/file") => existing(now.load(Ordering::SeqCst)),
                // From the third version on, another client replaces it just before the request.
                ("PUT", "/dav/file") => match now.load(Ordering::SeqCst) {
                    1 if request.header("if-match") == "\"1\"" => Reply::status(204),
                    1 => Reply::status(500),
                    _ if request.header("if-match").is_empty() => Reply::status(204),
                    _ => {
                        now.fetch_add(1, Ordering::SeqCst);
                        Reply::status(412)
                    }
                },
                _ => usual(request, kind),
            });
        let server = server.await;
        let storage = without_move(&server).await;
        let expected = storage.stat(&path("file")).await.unwrap().identity();
        write(&storage, Replaces::Version(expected.clone())).await.unwrap();
        let before = changes(&server);
        let mut other = expected.clone();
        other.size += 1;
        let error = write(&storage, Replaces::Version(other)).await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Changed, Retry::Never), "{error}");
        assert_eq!(changes(&server), before, "{kind:?}");
        version.store(3, Ordering::SeqCst);
        let error = write(&storage, Replaces::Version(expected)).await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Changed, Retry::Never), "{error}");
        assert_eq!(changes(&server), before + 1, "{kind:?}");
    }
}

/// Otherwise no file could be replaced on such a server.
#[tokio::test(flavor = "multi_thread")]
async fn without_move_a_condition_that_the_server_misjudges_is_dropped() {
    for kind in [CONDITIONS, BOTH] {
        let server =
            Scripted::start(move |request| match (&request.method[..], &request.path[..]) {
                ("PROPFIND", "/dav/file") => existing(1),
                ("PUT", "/dav/file") if !request.header("if-match").is_empty() => {
                    Reply::status(412)
                }
                _ => usual(request, kind),
            });
        let server = server.await;
        let storage = without_move(&server).await;
        let expected = storage.stat(&path("file")).await.unwrap().identity();
        if let Err(error) = write(&storage, Replaces::Version(expected.clone())).await {
            assert_eq!(error.retry(), Retry::FromStart, "{kind:?}: {error}");
            write(&storage, Replaces::Version(expected)).await.unwrap();
        }
    }
}

/// Otherwise the retry would take it for a file of someone else.
#[tokio::test(flavor = "multi_thread")]
async fn without_move_what_a_lost_connection_leaves_of_a_new_file_is_removed() {
    let tries = AtomicUsize::new(0);
    let exists = AtomicBool::new(false);
    let server = Scripted::start(move |request| match (&request.method[..], &request.path[..]) {
        ("PROPFIND", "/dav/file") if exists.load(Ordering::SeqCst) => existing(1),
        ("PUT", "/dav/file") if tries.fetch_add(1, Ordering::SeqCst) == 0 => {
            exists.store(true, Ordering::SeqCst);
            Reply::Close(1000)
        }
        ("DELETE", "/dav/file") => {
            exists.store(false, Ordering::SeqCst);
            Reply::status(204)
        }
        _ => usual(request, PLAIN),
    });
    let server = server.await;
    let storage = without_move(&server).await;
    let error = write(&storage, Replaces::Nothing).await.unwrap_err();
    assert_eq!(error.retry(), Retry::FromStart, "{error}");
    write(&storage, Replaces::Nothing).await.unwrap();
}

/// Formerly, a retry took it for the file of another program, and it stayed for good.
#[tokio::test(flavor = "multi_thread")]
async fn without_move_a_retry_replaces_what_an_earlier_attempt_has_left() {
    // The connection is lost and nothing can be removed, the response is lost, or the server is busy.
    for (first, kind) in [
        (Reply::Close(1000), PLAIN),
        (Reply::Close(SIZE as usize), CONDITIONS),
        (Reply::status(503), PLAIN),
    ] {
        let tries = AtomicUsize::new(0);
        let (first, exists) = (Mutex::new(Some(first)), AtomicBool::new(false));
        let server =
            Scripted::start(move |request| match (&request.method[..], &request.path[..]) {
                ("PROPFIND", "/dav/file") if exists.load(Ordering::SeqCst) => existing(1),
                ("PUT", "/dav/file")
                    if exists.load(Ordering::SeqCst) && request.header("if-none-match") == "*" =>
                {
                    Reply::status(412)
                }
                ("PUT", "/dav/file") if tries.fetch_add(1, Ordering::SeqCst) == 0 => {
                    exists.store(true, Ordering::SeqCst);
                    first.lock().unwrap().take().unwrap()
                }
                ("DELETE", "/dav/file") => Reply::status(403),
                _ => usual(request, kind),
            });
        let server = server.await;
        let storage = without_move(&server).await;
        // The engine ignores how an abort ends.
        let attempt = async || attempt(&storage, "file", Replaces::Nothing).await.0;
        let error = attempt().await.unwrap_err();
        assert_eq!(error.retry(), Retry::FromStart, "{kind:?}: {error}");
        attempt().await.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        // After that, it is a file like any other.
        let error = attempt().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{kind:?}: {error}");
    }
}

/// Another program stores a whole file there while the connection is lost.
#[tokio::test(flavor = "multi_thread")]
async fn without_move_a_longer_file_than_was_sent_is_not_removed() {
    let tries = AtomicUsize::new(0);
    let server = Scripted::start(move |request| match (&request.method[..], &request.path[..]) {
        ("PROPFIND", "/dav/file") if tries.load(Ordering::SeqCst) > 0 => {
            Reply::listing(&[("/dav/file", Some(SIZE * 2))])
        }
        ("PUT", "/dav/file") => {
            tries.fetch_add(1, Ordering::SeqCst);
            Reply::Close(1000)
        }
        _ => usual(request, PLAIN),
    });
    let server = server.await;
    let storage = without_move(&server).await;
    write(&storage, Replaces::Nothing).await.unwrap_err();
    let removals = server.requests("DELETE");
    assert!(removals.iter().all(|removal| removal.path != "/dav/file"), "{removals:?}");
}

/// Formerly, the whole file was sent up to three times more.
#[tokio::test(flavor = "multi_thread")]
async fn without_move_a_locked_file_ends_the_upload() {
    let server = Scripted::start(move |request| match (&request.method[..], &request.path[..]) {
        ("PROPFIND", "/dav/file") => existing(1),
        ("PUT", "/dav/file") => Reply::status(423),
        _ => usual(request, PLAIN),
    });
    let server = server.await;
    let storage = without_move(&server).await;
    let error = write(&storage, Replaces::Any).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Busy, Retry::Never), "{error}");
}

/// A mount would report `AlreadyExists` as a conflict.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_part_file_is_not_reported_as_an_existing_file() {
    for status in [409, 412, 423] {
        for kind in [PLAIN, PARTS, CONDITIONS, BOTH] {
            let server =
                Scripted::start(move |request| match (&request.method[..], &request.path[..]) {
                    ("PROPFIND", "/dav/file") => existing(1),
                    ("PUT", part) if is_part_of("/dav/file", part) => Reply::status(status),
                    // A PUT that is not atomic writes a part file.
                    ("OPTIONS", _) => usual(request, [kind[0], "other"]),
                    _ => usual(request, kind),
                });
            let server = server.await;
            let storage = storage(&server.url, &tempfile::tempdir().unwrap()).await;
            let small = Bytes::from_static(b"x");
            let errors = [
                write(&storage, Replaces::Any).await.unwrap_err(),
                storage.write_whole(&path("file"), small, &replacing()).await.unwrap_err(),
            ];
            let expected = match status {
                423 => ErrorKind::Busy,
                _ => ErrorKind::PermissionDenied,
            };
            assert_eq!(errors.map(|error| error.kind()), [expected; 2], "{status}, {kind:?}");
        }
    }
}

/// The files of a server, and their lengths.
type Files = Arc<Mutex<BTreeMap<String, u64>>>;

/// A server with the files that PUT, PATCH and DELETE leave. `reply` may respond otherwise, after that.
async fn with_files(
    kind: [&'static str; 2],
    reply: impl Fn(&Request) -> Option<Reply> + Send + Sync + 'static,
) -> (Scripted, Files) {
    let files = Files::default();
    let own = Arc::clone(&files);
    let server = Scripted::start(move |request| {
        let mut files = own.lock().unwrap();
        let found = files.get(&request.path).copied();
        let usual = match &request.method[..] {
            "PROPFIND" if found.is_some() => Reply::listing(&[(&request.path, found)]),
            "PROPFIND" if request.path != "/dav/" => Reply::status(404),
            "PUT"
                if found.is_some()
                    && kind[1] == "haul"
                    && request.header("if-none-match") == "*" =>
            {
                return Reply::status(412);
            }
            "PUT" => {
                files.insert(request.path.clone(), 0);
                usual(request, kind)
            }
            "PATCH" => {
                files.insert(request.path.clone(), SIZE);
                usual(request, kind)
            }
            "DELETE" => {
                files.remove(&request.path);
                usual(request, kind)
            }
            _ => usual(request, kind),
        };
        reply(request).unwrap_or(usual)
    });
    (server.await, files)
}

/// Such a server. While the flag is set, it closes the connection instead of responding to PUT.
async fn losing_responses(kind: [&'static str; 2]) -> (Scripted, Files, Arc<AtomicBool>) {
    let is_broken = Arc::new(AtomicBool::new(false));
    let breaks = Arc::clone(&is_broken);
    let (server, files) = with_files(kind, move |request| {
        let is_cut = request.method == "PUT" && breaks.load(Ordering::SeqCst);
        is_cut.then_some(Reply::Close(0))
    })
    .await;
    (server, files, is_broken)
}

/// Formerly, the empty file stayed. Under the final name, another run then refused to replace it.
#[tokio::test(flavor = "multi_thread")]
async fn an_empty_file_whose_response_is_lost_is_removed() {
    for (kind, moves) in [(PARTS, true), (PARTS, false), (BOTH, true)] {
        let (server, files, is_broken) = losing_responses(kind).await;
        let storage = match moves {
            true => storage(&server.url, &tempfile::tempdir().unwrap()).await,
            false => without_move(&server).await,
        };
        files.lock().unwrap().clear();
        is_broken.store(true, Ordering::SeqCst);
        for resume in [false, true] {
            let replaces = Replaces::Nothing;
            let options =
                CreateOptions { size: Some(SIZE), replaces, resume, ..CreateOptions::default() };
            let created = storage.create(&path("file"), &options).await;
            let Err(error) = created else { panic!("{kind:?}, {moves}: created") };
            assert_eq!(error.retry(), Retry::Later, "{kind:?}, {moves}: {error}");
            let left = files.lock().unwrap().clone();
            assert!(left.is_empty(), "{kind:?}, {moves}, {resume}: {left:?}");
        }
        is_broken.store(false, Ordering::SeqCst);
        let options = CreateOptions {
            size: Some(SIZE),
            replaces: Replaces::Nothing,
            ..CreateOptions::default()
        };
        let created = storage.create(&path("file"), &options).await;
        created.unwrap_or_else(|error| panic!("{kind:?}, {moves}: {error}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_file_of_another_program_stays_when_a_response_is_lost() {
    for kind in [PARTS, BOTH] {
        let (server, files, is_broken) = losing_responses(kind).await;
        let storage = without_move(&server).await;
        *files.lock().unwrap() = BTreeMap::from([("/dav/file".to_owned(), 0)]);
        is_broken.store(true, Ordering::SeqCst);
        write(&storage, Replaces::Nothing).await.unwrap_err();
        let left = files.lock().unwrap().clone();
        assert_eq!(left.len(), 1, "{kind:?}: {left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_range_leaves_no_file() {
    for (kind, moves) in [(PARTS, true), (PARTS, false), (BOTH, true), (BOTH, false)] {
        let (server, files) = with_files(kind, |request| {
            (request.method == "PATCH" && request.path.contains("file")).then(|| Reply::status(416))
        })
        .await;
        let storage = match moves {
            true => storage(&server.url, &tempfile::tempdir().unwrap()).await,
            false => without_move(&server).await,
        };
        files.lock().unwrap().clear();
        // Of this kind, the engine keeps no part file.
        let error = write(&storage, Replaces::Nothing).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Changed, "{kind:?}, {moves}: {error}");
        let left = files.lock().unwrap().clone();
        assert!(left.is_empty(), "{kind:?}, {moves}: {left:?}");
    }
}

/// The server cannot be reached when the PUT begins. Formerly, a file that another program had stored meanwhile was
/// taken for what the PUT had left, and removed.
#[tokio::test(flavor = "multi_thread")]
async fn without_move_a_file_of_another_program_stays_if_no_connection_can_be_opened() {
    for kind in [PLAIN, PARTS] {
        let relay = Arc::new(OnceLock::<Relay>::new());
        let (own, looks) = (Arc::clone(&relay), Arc::new(AtomicUsize::new(0)));
        let expected = Arc::clone(&looks);
        let is_armed = Arc::new(AtomicBool::new(false));
        let armed = Arc::clone(&is_armed);
        let stored = Files::default();
        let other = Arc::clone(&stored);
        let server = Scripted::start(move |request| {
            let found = other.lock().unwrap().get(&request.path).copied();
            let usual = match (&request.method[..], &request.path[..]) {
                ("PROPFIND", path) if found.is_some() => Reply::listing(&[(path, found)]),
                ("DELETE", path) => {
                    other.lock().unwrap().remove(path);
                    Reply::status(204)
                }
                _ => usual(request, kind),
            };
            let is_look = request.is("PROPFIND", "/dav/file") && armed.load(Ordering::SeqCst);
            // The last look before the PUT, as counted before.
            if is_look && looks.fetch_sub(1, Ordering::SeqCst) == 1 {
                own.get().unwrap().close();
            }
            match usual {
                Reply::Respond(status, mut headers, body) => {
                    headers.push(("Connection", "close".to_owned()));
                    Reply::Respond(status, headers, body)
                }
                other => other,
            }
        });
        let server = server.await;
        relay.set(Relay::start(&server.url)).unwrap_or_else(|_| unreachable!());
        let relay = relay.get().unwrap();
        let storage = storage(&relay.url, &tempfile::tempdir().unwrap()).await;
        write_to(&storage, "other", Replaces::Any).await.unwrap_err();
        write_to(&storage, "another", Replaces::Nothing).await.unwrap();
        let looks = server.requests("PROPFIND");
        let count = looks.iter().filter(|request| request.path == "/dav/another").count();
        expected.store(count, Ordering::SeqCst);
        let removals = server.requests("DELETE").len();
        is_armed.store(true, Ordering::SeqCst);
        let writing = tokio::spawn(async move {
            let outcome = write(&storage, Replaces::Nothing).await;
            (storage, outcome)
        });
        let closed = timeout(Duration::from_secs(20), relay.closed()).await;
        assert!(closed.is_ok(), "{kind:?}: {count} looks");
        stored.lock().unwrap().insert("/dav/file".to_owned(), 0);
        // Formerly, it looked for what was left until it could connect.
        sleep(Duration::from_secs(1)).await;
        relay.open();
        let (storage, outcome) = writing.await.unwrap();
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{kind:?}: {error}");
        assert_eq!(server.requests("DELETE").len(), removals, "{kind:?}");
        // A retry does not take it for its own, either.
        let error = write(&storage, Replaces::Nothing).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{kind:?}: {error}");
    }
}

/// Relays connections to a server, and may refuse new ones for a time.
struct Relay {
    url: String,
    is_open: Arc<AtomicBool>,
    is_closed: Arc<AtomicBool>,
}

impl Relay {
    /// Threads of its own: the tests block those of the runtime.
    fn start(url: &str) -> Self {
        let server: SocketAddr = url.split('/').nth(2).unwrap().parse().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let is_open = Arc::new(AtomicBool::new(true));
        let is_closed = Arc::new(AtomicBool::new(false));
        let (open, closed) = (Arc::clone(&is_open), Arc::clone(&is_closed));
        thread::spawn(move || {
            let mut listener = Some(listener);
            loop {
                match (open.load(Ordering::SeqCst), &listener) {
                    (true, None) => listener = Some(TcpListener::bind(address).unwrap()),
                    (false, Some(_)) => {
                        listener = None;
                        closed.store(true, Ordering::SeqCst);
                    }
                    (true, Some(listener)) => {
                        listener.set_nonblocking(true).unwrap();
                        while let Ok((client, _)) = listener.accept() {
                            client.set_nonblocking(false).unwrap();
                            relay(client, TcpStream::connect(server).unwrap());
                        }
                    }
                    (false, None) => {}
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        Self { url: format!("http://{address}/dav/"), is_open, is_closed }
    }

    /// Refuses new connections.
    fn close(&self) {
        self.is_open.store(false, Ordering::SeqCst);
        while !self.is_closed.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    async fn closed(&self) {
        while !self.is_closed.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(1)).await;
        }
    }

    fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
    }
}

/// Copies in both directions until either end closes.
fn relay(client: TcpStream, server: TcpStream) {
    for (mut from, mut to) in
        [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
    {
        thread::spawn(move || {
            drop(std::io::copy(&mut from, &mut to));
            drop(to.shutdown(Shutdown::Write));
        });
    }
}
