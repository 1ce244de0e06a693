//! Servers and proxies that lose one of several pipelined requests. Responses are matched to
//! requests by position, so all later ones then belong to other requests.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::future::join_all;
use haul_http::client::HttpStorage;
use haul_storage::{Block, CreateOptions, RelPath, Result, Storage, Writes};

use super::scripted::{Reply, Request, Scripted};
use super::{path, replacing, storage};

const FILES: usize = 40;
const LENGTH: usize = 100;

fn name(n: usize) -> String {
    format!("f{n:02}")
}

/// All files have the same length.
fn content(n: usize) -> String {
    format!("{n:0LENGTH$}")
}

/// The response of a server that has the files, and ranges of them if `has_ranges`.
fn files(request: &Request, has_ranges: bool) -> Option<Reply> {
    let number = request.path.strip_prefix("/dav/f").filter(|_| request.method == "GET")?;
    let whole = content(number.parse().unwrap());
    let range = request.header("range").strip_prefix("bytes=").filter(|_| has_ranges);
    Some(match range.and_then(|range| range.split_once('-')) {
        Some((first, last)) => {
            let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
            let range = format!("bytes {first}-{last}/{LENGTH}");
            Reply::Respond(206, vec![("Content-Range", range)], whole[first..=last].to_owned())
        }
        None => Reply::Respond(200, Vec::new(), whole),
    })
}

fn usual(request: &Request) -> Reply {
    match (&request.method[..], &request.path[..]) {
        ("OPTIONS", _) => Reply::Respond(200, vec![("DAV", "1, 2".to_owned())], String::new()),
        ("PROPFIND", "/dav/") => Reply::listing(&[("/dav/", None)]),
        ("PROPFIND", _) => Reply::status(404),
        ("DELETE", _) => Reply::status(204),
        _ => Reply::status(405),
    }
}

async fn open(server: &Scripted) -> Arc<HttpStorage> {
    let storage = storage(&server.url, &tempfile::tempdir().unwrap()).await;
    storage.set_lanes(2);
    storage
}

/// Reads all files at once, and checks that each has its own content.
async fn read_all(server: &Scripted) {
    let storage = open(server).await;
    let paths: Vec<RelPath> = (0..FILES).map(|n| path(&name(n))).collect();
    let read = join_all(paths.iter().map(|path| storage.read_whole(path, 4000))).await;
    for (n, file) in read.into_iter().enumerate() {
        assert_eq!(file.unwrap().bytes, content(n), "file {n}");
    }
}

/// The number of markers. A marker is a request for one byte of a file behind other requests: if its
/// response is the expected one, those before it are in order. In the tests that count them, no other GET
/// has a range.
fn markers(server: &Scripted) -> usize {
    server.requests("GET").iter().filter(|request| !request.header("range").is_empty()).count()
}

fn connections(server: &Scripted) -> usize {
    server.requests("GET").iter().map(|request| request.from).collect::<HashSet<_>>().len()
}

/// Returns a function that is true the first time its argument is true.
fn once() -> impl Fn(bool) -> bool {
    let seen = Mutex::new(false);
    move |now| now && !std::mem::replace(&mut *seen.lock().unwrap(), true)
}

#[tokio::test]
async fn files_share_connections_and_a_marker_proves_many_responses() {
    let server =
        Scripted::start(|request| files(request, true).unwrap_or_else(|| usual(request))).await;
    read_all(&server).await;
    let (requests, markers) = (server.requests("GET").len(), markers(&server));
    assert_eq!(requests - markers, FILES, "no file is requested twice");
    assert!((1..=FILES / 2).contains(&markers), "{markers} markers");
    assert!(connections(&server) <= 2, "{} connections", connections(&server));
}

#[tokio::test]
async fn a_lost_request_gives_no_file_the_content_of_another() {
    for lost in [0, 7, 15, 16, 31, FILES - 1] {
        let is_first = once();
        let server = Scripted::start(move |request| {
            let is_lost = request.is("GET", &format!("/dav/{}", name(lost)));
            match files(request, true) {
                Some(_) if is_first(is_lost) => Reply::Lost,
                Some(reply) => reply,
                None => usual(request),
            }
        });
        read_all(&server.await).await;
    }
}

#[tokio::test]
async fn a_lost_marker_gives_no_file_the_content_of_another() {
    let is_first = once();
    let server = Scripted::start(move |request| match files(request, true) {
        Some(_) if is_first(!request.header("range").is_empty()) => Reply::Lost,
        Some(reply) => reply,
        None => usual(request),
    });
    read_all(&server.await).await;
}

#[tokio::test]
async fn a_server_that_drops_pipelined_requests_delivers_all_files() {
    let server = Scripted::start(|request| match files(request, true) {
        Some(Reply::Respond(status, headers, body)) => Reply::RespondAndDrop(status, headers, body),
        _ => usual(request),
    });
    read_all(&server.await).await;
}

#[tokio::test]
async fn a_server_that_closes_every_connection_is_remembered() {
    let server = Scripted::start(|request| match files(request, true) {
        Some(Reply::Respond(status, _, body)) => {
            Reply::Respond(status, vec![("Connection", "close".to_owned())], body)
        }
        _ => usual(request),
    });
    let server = server.await;
    read_all(&server).await;
    // The script also records the requests that were pipelined behind the first one of each
    // connection.
    let requests = server.requests("GET").len();
    assert!(requests < 4 * FILES, "{requests} requests");
}

#[tokio::test]
async fn a_server_without_ranges_gets_few_markers() {
    let server =
        Scripted::start(|request| files(request, false).unwrap_or_else(|| usual(request))).await;
    read_all(&server).await;
    assert!(markers(&server) <= 6, "{} markers", markers(&server));
}

/// Files stored by a server.
type Stored = Arc<Mutex<HashMap<String, Vec<u8>>>>;

/// A server that stores uploads, except for one PUT that it loses.
async fn storing(
    dav: &'static str,
    lost: impl Fn(&Request) -> bool + Send + Sync + 'static,
) -> (Scripted, Stored) {
    let stored = Stored::default();
    let (is_first, contents) = (once(), Arc::clone(&stored));
    let server = Scripted::start(move |request| {
        let mut contents = contents.lock().unwrap();
        match &request.method[..] {
            "OPTIONS" => Reply::Respond(200, vec![("DAV", dav.to_owned())], String::new()),
            "PUT" if is_first(lost(request)) => Reply::Lost,
            // The script does not see the body, which is all ones.
            "PUT" => {
                let length = request.header("content-length").parse::<usize>().unwrap();
                let range = request.header("content-range").strip_prefix("bytes ");
                let first = range.and_then(|range| range.split_once('-')).map_or("0", |all| all.0);
                let first: usize = first.parse().unwrap();
                let file = contents.entry(request.path.clone()).or_default();
                file.resize(file.len().max(first + length), 0);
                file[first..first + length].fill(1);
                Reply::status(201)
            }
            "GET" => {
                let Some(file) = contents.get(&request.path) else { return Reply::status(404) };
                let range = request.header("range").strip_prefix("bytes=").unwrap();
                let first: usize = range.split_once('-').unwrap().0.parse().unwrap();
                // The range before this marker was lost.
                if first >= file.len() {
                    return Reply::status(416);
                }
                let range = format!("bytes {first}-{first}/{}", file.len());
                Reply::Respond(206, vec![("Content-Range", range)], "x".to_owned())
            }
            "MOVE" => {
                let (_, to) = request.header("destination").split_once("/dav/").unwrap();
                let Some(file) = contents.remove(&request.path) else { return Reply::status(404) };
                contents.insert(format!("/dav/{to}"), file);
                Reply::status(201)
            }
            "PROPFIND" if request.path != "/dav/" => match contents.get(&request.path) {
                Some(file) => Reply::listing(&[(&request.path, Some(file.len() as u64))]),
                None => Reply::status(404),
            },
            _ => usual(request),
        }
    });
    (server.await, stored)
}

const APACHE: &str = "1,2,<http://apache.org/dav/propset/fs/1>";

#[tokio::test]
async fn a_lost_upload_of_a_file_is_repeated() {
    // Through a part file that is renamed, and directly.
    for dav in ["1, 2", APACHE] {
        for lost in [0, 7, 15, FILES - 1] {
            let is_lost = move |request: &Request| request.path.contains(&name(lost));
            let (server, stored) = storing(dav, is_lost).await;
            let storage = open(&server).await;
            let options = replacing();
            let paths: Vec<RelPath> = (0..FILES).map(|n| path(&name(n))).collect();
            let writes = paths
                .iter()
                .map(|path| storage.write_whole(path, Bytes::from(vec![1; LENGTH]), &options));
            let written: Vec<Result<()>> = join_all(writes).await;
            let stored = stored.lock().unwrap();
            for (n, written) in written.into_iter().enumerate() {
                written.unwrap();
                let file = stored.get(&format!("/dav/{}", name(n)));
                assert_eq!(file.map(Vec::len), Some(LENGTH), "file {n}, {dav}");
            }
        }
    }
}

#[tokio::test]
async fn a_lost_upload_of_a_range_is_repeated() {
    const PARTS: usize = 20;
    for lost in [1, 9, PARTS - 1] {
        let begins = format!("bytes {}-", lost * LENGTH);
        let is_lost = move |request: &Request| request.header("content-range").starts_with(&begins);
        let (server, stored) = storing(APACHE, is_lost).await;
        let storage = open(&server).await;
        assert_eq!(storage.capabilities().writes, Writes::AnyOrder);
        let writer = storage.create(&path("file"), &CreateOptions::default()).await.unwrap();
        let writes = (0..PARTS).map(|n| {
            let block = Block::from(Bytes::from(vec![1; LENGTH]));
            writer.write_at((n * LENGTH) as u64, block)
        });
        for written in join_all(writes).await {
            written.unwrap();
        }
        writer.commit((PARTS * LENGTH) as u64, &replacing()).await.unwrap();
        let file = stored.lock().unwrap()["/dav/file"].clone();
        assert!(file == [1; PARTS * LENGTH], "part {lost} is missing");
    }
}
