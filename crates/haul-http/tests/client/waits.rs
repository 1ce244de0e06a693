//! A server that falls silent in the middle of an operation: the wait is reported with what the
//! client expects, and it is bounded.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use haul_http::client::{HttpHost, HttpOptions, HttpStorage};
use haul_http::parse::Url;
use haul_net::{NoPrompter, Wait, Waits};
use haul_storage::{
    Block, CreateOptions, ErrorKind, Location, Metadata, Range, RelPath, Result, Storage,
    StorageExt, Timestamp,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use super::scripted::{Reply, Request, Scripted};
use super::{is_part_of, path, replacing};

const BLOCK: usize = 1 << 20;

/// More than socket buffers hold.
const FILE: u64 = 32 * BLOCK as u64;

/// Longer than all timeouts with all retries together.
const TEST_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// What the client does when the server falls silent.
#[derive(Debug, Clone, Copy)]
enum Doing {
    Open,
    List,
    Read,
    Write,
    WriteSmall,
    Remove,
    Rename,
    MakeDirectory,
    SetTime,
}

/// The method and path of a request, and the reply to it that stalls the client.
type Trap = (&'static str, &'static str, Reply);

fn all() -> Vec<(Doing, Trap, &'static str)> {
    let (silent, endless) = (Reply::Silent, |status| Reply::Endless(status, Vec::new()));
    vec![
        (Doing::Open, ("OPTIONS", "/dav/", silent.clone()), "response to OPTIONS /dav/"),
        (Doing::List, ("PROPFIND", "/dav/", silent.clone()), "response to PROPFIND /dav/"),
        (
            Doing::List,
            ("PROPFIND", "/dav/", endless(207)),
            "rest of the response to PROPFIND /dav/",
        ),
        (Doing::Read, ("GET", "/dav/f", silent.clone()), "response to GET /dav/f"),
        (Doing::Read, ("GET", "/dav/f", endless(200)), "rest of the response to GET /dav/f"),
        (Doing::WriteSmall, ("PUT", "/dav/f", silent.clone()), "response to PUT /dav/f"),
        (Doing::Write, ("PUT", PART, silent.clone()), "response to PUT /dav/.f."),
        (Doing::Write, ("PUT", PART, Reply::Unread), "send buffer space for PUT /dav/.f."),
        (Doing::Write, ("MOVE", PART, silent.clone()), "response to MOVE /dav/.f."),
        (Doing::Remove, ("DELETE", "/dav/f", silent.clone()), "response to DELETE /dav/f"),
        (
            Doing::Remove,
            ("DELETE", "/dav/f", endless(207)),
            "rest of the response to DELETE /dav/f",
        ),
        (Doing::Rename, ("MOVE", "/dav/f", silent.clone()), "response to MOVE /dav/f"),
        (Doing::Rename, ("MOVE", "/dav/f", endless(207)), "rest of the response to MOVE /dav/f"),
        (Doing::MakeDirectory, ("MKCOL", "/dav/d/", silent.clone()), "response to MKCOL /dav/d/"),
        (Doing::SetTime, ("PROPPATCH", "/dav/f", silent), "response to PROPPATCH /dav/f"),
        (
            Doing::SetTime,
            ("PROPPATCH", "/dav/f", endless(207)),
            "rest of the response to PROPPATCH /dav/f",
        ),
    ]
}

/// The start of the name of the part file; an ID follows.
const PART: &str = "/dav/.f.";

fn usual(request: &Request) -> Reply {
    let size = Some(FILE);
    match (&request.method[..], &request.path[..]) {
        ("OPTIONS", _) => {
            let headers = [("DAV", "1"), ("Server", "haul")];
            let headers = headers.map(|(name, value)| (name, value.to_owned()));
            Reply::Respond(200, headers.to_vec(), String::new())
        }
        ("PROPFIND", "/dav/") => Reply::listing(&[("/dav/", None)]),
        ("PROPFIND", "/dav/f") => Reply::listing(&[(&request.path, size)]),
        ("PROPFIND", part) if is_part_of("/dav/f", part) => Reply::listing(&[(part, size)]),
        ("PROPFIND", _) => Reply::status(404),
        ("PUT" | "MOVE" | "MKCOL", _) => Reply::status(201),
        ("DELETE", _) => Reply::status(204),
        _ => Reply::status(405),
    }
}

async fn opened(url: &str, waits: Waits) -> Result<Arc<HttpStorage>> {
    let url = Url::parse(url).unwrap();
    let options = HttpOptions { waits, ..HttpOptions::default() };
    let prompter = Arc::new(NoPrompter);
    let host = HttpHost::new(url.origin.clone(), None, &options, prompter, Handle::current());
    HttpStorage::open_dav(host, Location::parse("dav://server/").unwrap(), url, None).await
}

async fn run(url: &str, waits: Waits, doing: Doing) -> Result<()> {
    let storage = opened(url, waits).await?;
    let file = path("f");
    match doing {
        Doing::Open => Ok(()),
        Doing::List => {
            let batches = storage.list(&RelPath::root()).await?;
            batches.try_collect::<Vec<_>>().await.map(drop)
        }
        Doing::Read => {
            let file = storage.open(&file).await?;
            file.read_at(Range::new(0, 10)).try_collect::<Vec<_>>().await.map(drop)
        }
        Doing::Write => {
            let options = CreateOptions { size: Some(FILE), ..CreateOptions::default() };
            let writer = storage.create(&file, &options).await?;
            for at in (0..FILE).step_by(BLOCK) {
                writer.write_at(at, Block::from(Bytes::from(vec![1; BLOCK]))).await?;
            }
            writer.commit(FILE, &replacing()).await
        }
        Doing::WriteSmall => {
            storage.write_whole(&file, Bytes::from_static(b"x"), &replacing()).await
        }
        Doing::Remove => storage.remove(&file).await,
        Doing::Rename => storage.rename(&file, &path("g")).await,
        Doing::MakeDirectory => storage.create_dir(&path("d")).await,
        Doing::SetTime => {
            let modified = Some(Timestamp { seconds: 1_000_000_000, nanos: 0 });
            storage.set_metadata(&file, &Metadata { modified, ..Metadata::default() }).await
        }
    }
}

/// A report that takes longer counts as missing.
const REPORT_TIMEOUT: Duration = Duration::from_secs(60);

async fn reported(of: &mut UnboundedReceiver<Wait>, what: &str) -> Wait {
    let mut others = Vec::new();
    loop {
        // On a busy machine other waits may be long as well.
        let Ok(wait) = timeout(REPORT_TIMEOUT, of.recv()).await else {
            panic!("{what}: not reported, only {others:?}");
        };
        let wait = wait.unwrap();
        let is_part = what.ends_with('.') && wait.what.starts_with(what);
        if wait.what == what || is_part {
            return wait;
        }
        others.push(wait.what);
    }
}

/// Runs in a runtime of its own, whose clock can be paused.
fn block_on(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(test);
}

#[test]
fn every_wait_for_a_silent_server_is_reported_and_bounded() {
    for (doing, trap, what) in all() {
        block_on(reported_and_bounded(doing, trap, what));
    }
}

async fn reported_and_bounded(doing: Doing, (method, path, reply): Trap, what: &str) {
    let server = Scripted::start(move |request| {
        let is_part = path == PART && is_part_of("/dav/f", &request.path);
        let is_trap = request.is(method, path) || request.method == method && is_part;
        if is_trap { reply.clone() } else { usual(request) }
    });
    let server = server.await;
    let (reports, mut reports_made) = unbounded_channel();
    let waits = Waits::new(move |wait: &Wait| drop(reports.send(wait.clone())));
    let waits = waits.after(Duration::from_millis(20));
    let mut running = pin!(run(&server.url, waits, doing));
    tokio::select! {
        _ = reported(&mut reports_made, what) => {}
        outcome = &mut running => panic!("{what}: {outcome:?}"),
    }
    // From here on the clock jumps to the next timer whenever nothing else happens, so timeouts
    // take no time.
    tokio::time::pause();
    let outcome: Result<Result<()>, _> = timeout(TEST_TIMEOUT, running).await;
    let Ok(Err(error)) = outcome else { panic!("{what}: {outcome:?}") };
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{what}: {error}");
}
