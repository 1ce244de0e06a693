//! Servers and proxies that lose one of several pipelined requests. Responses are matched to
//! requests by position, so all later ones then belong to other requests.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::future::join_all;
use haul_http::client::HttpStorage;
use haul_storage::{Block, CreateOptions, RelPath, Result, Storage, Writes};

use super::scripted::{Asked, Reply, Scripted};
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
fn files(asked: &Asked, has_ranges: bool) -> Option<Reply> {
    let number = asked.path.strip_prefix("/dav/f").filter(|_| asked.method == "GET")?;
    let whole = content(number.parse().unwrap());
    let range = asked.header("range").strip_prefix("bytes=").filter(|_| has_ranges);
    Some(match range.and_then(|range| range.split_once('-')) {
        Some((first, last)) => {
            let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
            let range = format!("bytes {first}-{last}/{LENGTH}");
            Reply::Say(206, vec![("Content-Range", range)], whole[first..=last].to_owned())
        }
        None => Reply::Say(200, Vec::new(), whole),
    })
}

fn usual(asked: &Asked) -> Reply {
    match (&asked.method[..], &asked.path[..]) {
        ("OPTIONS", _) => Reply::Say(200, vec![("DAV", "1, 2".to_owned())], String::new()),
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
    server.asked("GET").iter().filter(|asked| !asked.header("range").is_empty()).count()
}

fn connections(server: &Scripted) -> usize {
    server.asked("GET").iter().map(|asked| asked.from).collect::<HashSet<_>>().len()
}

/// Returns a function that is true the first time its argument is true.
fn once() -> impl Fn(bool) -> bool {
    let seen = Mutex::new(false);
    move |now| now && !std::mem::replace(&mut *seen.lock().unwrap(), true)
}

#[tokio::test]
async fn files_share_connections_and_a_marker_proves_many_responses() {
    let server = Scripted::start(|asked| files(asked, true).unwrap_or_else(|| usual(asked))).await;
    read_all(&server).await;
    let (asked, markers) = (server.asked("GET").len(), markers(&server));
    assert_eq!(asked - markers, FILES, "no file is requested twice");
    assert!((1..=FILES / 2).contains(&markers), "{markers} markers");
    assert!(connections(&server) <= 2, "{} connections", connections(&server));
}

#[tokio::test]
async fn a_lost_request_gives_no_file_the_content_of_another() {
    for lost in [0, 7, 15, 16, 31, FILES - 1] {
        let is_first = once();
        let server = Scripted::start(move |asked| {
            let is_lost = asked.is("GET", &format!("/dav/{}", name(lost)));
            match files(asked, true) {
                Some(_) if is_first(is_lost) => Reply::Lost,
                Some(reply) => reply,
                None => usual(asked),
            }
        });
        read_all(&server.await).await;
    }
}

#[tokio::test]
async fn a_lost_marker_gives_no_file_the_content_of_another() {
    let is_first = once();
    let server = Scripted::start(move |asked| match files(asked, true) {
        Some(_) if is_first(!asked.header("range").is_empty()) => Reply::Lost,
        Some(reply) => reply,
        None => usual(asked),
    });
    read_all(&server.await).await;
}

#[tokio::test]
async fn a_server_that_drops_pipelined_requests_delivers_all_files() {
    let server = Scripted::start(|asked| match files(asked, true) {
        Some(Reply::Say(status, headers, body)) => Reply::SayAndForget(status, headers, body),
        _ => usual(asked),
    });
    read_all(&server.await).await;
}

#[tokio::test]
async fn a_server_that_closes_every_connection_is_remembered() {
    let server = Scripted::start(|asked| match files(asked, true) {
        Some(Reply::Say(status, _, body)) => {
            Reply::Say(status, vec![("Connection", "close".to_owned())], body)
        }
        _ => usual(asked),
    });
    let server = server.await;
    read_all(&server).await;
    // The script does not know that the client closed, and answered the requests behind the first,
    // too.
    let asked = server.asked("GET").len();
    assert!(asked < 4 * FILES, "{asked} requests");
}

#[tokio::test]
async fn a_server_without_ranges_gets_one_request_at_a_time() {
    let server = Scripted::start(|asked| files(asked, false).unwrap_or_else(|| usual(asked))).await;
    read_all(&server).await;
    assert!(markers(&server) <= 6, "{} markers", markers(&server));
}

/// Files stored by a server.
type Stored = Arc<Mutex<HashMap<String, Vec<u8>>>>;

/// A server that stores what is PUT, except for one request that it loses.
async fn storing(
    dav: &'static str,
    lost: impl Fn(&Asked) -> bool + Send + Sync + 'static,
) -> (Scripted, Stored) {
    let stored = Stored::default();
    let (is_first, there) = (once(), Arc::clone(&stored));
    let server = Scripted::start(move |asked| {
        let mut there = there.lock().unwrap();
        match &asked.method[..] {
            "OPTIONS" => Reply::Say(200, vec![("DAV", dav.to_owned())], String::new()),
            "PUT" if is_first(lost(asked)) => Reply::Lost,
            // The script does not see the body, which is all ones.
            "PUT" => {
                let length = asked.header("content-length").parse::<usize>().unwrap();
                let range = asked.header("content-range").strip_prefix("bytes ");
                let first = range.and_then(|range| range.split_once('-')).map_or("0", |all| all.0);
                let first: usize = first.parse().unwrap();
                let file = there.entry(asked.path.clone()).or_default();
                file.resize(file.len().max(first + length), 0);
                file[first..first + length].fill(1);
                Reply::status(201)
            }
            "GET" => {
                let Some(file) = there.get(&asked.path) else { return Reply::status(404) };
                let range = asked.header("range").strip_prefix("bytes=").unwrap();
                let first: usize = range.split_once('-').unwrap().0.parse().unwrap();
                // The range before this marker was lost.
                if first >= file.len() {
                    return Reply::status(416);
                }
                let range = format!("bytes {first}-{first}/{}", file.len());
                Reply::Say(206, vec![("Content-Range", range)], "x".to_owned())
            }
            "MOVE" => {
                let (_, to) = asked.header("destination").split_once("/dav/").unwrap();
                let Some(file) = there.remove(&asked.path) else { return Reply::status(404) };
                there.insert(format!("/dav/{to}"), file);
                Reply::status(201)
            }
            "PROPFIND" if asked.path != "/dav/" => match there.get(&asked.path) {
                Some(file) => Reply::listing(&[(&asked.path, Some(file.len() as u64))]),
                None => Reply::status(404),
            },
            _ => usual(asked),
        }
    });
    (server.await, stored)
}

const APACHE: &str = "1,2,<http://apache.org/dav/propset/fs/1>";

#[tokio::test]
async fn a_lost_upload_of_a_file_is_noticed() {
    // Through a part file that is renamed, and directly.
    for dav in ["1, 2", APACHE] {
        for lost in [0, 7, 15, FILES - 1] {
            let is_lost = move |asked: &Asked| asked.path.contains(&name(lost));
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
async fn a_lost_upload_of_a_range_is_noticed() {
    const PARTS: usize = 20;
    for lost in [1, 9, PARTS - 1] {
        let begins = format!("bytes {}-", lost * LENGTH);
        let is_lost = move |asked: &Asked| asked.header("content-range").starts_with(&begins);
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
