//! Servers that violate the protocol, break off, or refuse.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use haul_http::client::{Found, HttpHost, HttpOptions, HttpStorage};
use haul_http::parse::Url;
use haul_net::{NoPrompter, PasswordSource, Secret, Waits};
use haul_storage::{
    Block, CommitOptions, CreateOptions, Entry, ErrorKind, Location, Metadata, Range, RelPath,
    Result, Retry, Storage, StorageExt, Timestamp, Writes,
};
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::scripted::{Reply, Request, Scripted, multistatus};
use super::{host, is_part_of, path, replacing, storage};

/// The response to requests that a test's script does not handle itself.
fn usual(request: &Request) -> Reply {
    match (&request.method[..], &request.path[..]) {
        ("OPTIONS", _) => Reply::Respond(200, vec![("DAV", "1, 2".to_owned())], String::new()),
        ("PROPFIND", "/dav/") => Reply::listing(&[("/dav/", None)]),
        ("PROPFIND", _) => Reply::status(404),
        ("PUT" | "MOVE", _) => Reply::status(201),
        ("DELETE", _) => Reply::status(204),
        _ => Reply::status(405),
    }
}

async fn open(server: &Scripted) -> Arc<HttpStorage> {
    storage(&server.url, &tempfile::tempdir().unwrap()).await
}

async fn listed(server: &Scripted) -> (Vec<Entry>, Vec<haul_storage::Error>) {
    let storage = open(server).await;
    let batches = storage.list(&RelPath::root()).await.unwrap().collect::<Vec<_>>().await;
    let (mut entries, mut errors) = (Vec::new(), Vec::new());
    for batch in batches {
        match batch {
            Ok(batch) => entries.extend(batch),
            Err(error) => errors.push(error),
        }
    }
    (entries, errors)
}

/// Writes a file of this many blocks of 256 KiB and commits it; on an error, aborts it.
async fn write(storage: &HttpStorage, blocks: u64) -> Result<()> {
    const BLOCK: u64 = 256 << 10;
    let options = CreateOptions { size: Some(blocks * BLOCK), ..CreateOptions::default() };
    let writer = storage.create(&path("file"), &options).await?;
    let outcome = async {
        for n in 0..blocks {
            let block = Block::from(Bytes::from(vec![1; BLOCK as usize]));
            writer.write_at(n * BLOCK, block).await?;
        }
        writer.commit(blocks * BLOCK, &replacing()).await
    };
    let outcome = outcome.await;
    if outcome.is_err() {
        writer.abort(false).await.unwrap();
    }
    outcome
}

#[tokio::test]
async fn a_connection_that_the_server_is_about_to_close_is_not_used() {
    // A request on a connection that closes may have been executed, which has to be checked.
    for (keep_alive, is_reused) in
        [(None, true), (Some("timeout=60, max=100"), true), (Some("timeout=1"), false)]
    {
        let server = Scripted::start(move |request| match usual(request) {
            Reply::Respond(status, mut headers, body) => {
                headers.extend(keep_alive.map(|value| ("Keep-Alive", value.to_owned())));
                Reply::Respond(status, headers, body)
            }
            other => other,
        });
        let server = server.await;
        let storage = open(&server).await;
        let gone = || async { storage.stat(&path("a")).await.unwrap_err().kind() };
        assert_eq!(gone().await, ErrorKind::NotFound);
        sleep(Duration::from_millis(700)).await;
        assert_eq!(gone().await, ErrorKind::NotFound);
        let requests = server.requests("PROPFIND");
        let [.., first, second] = &requests[..] else { panic!("fewer than two lookups") };
        assert_eq!(first.from == second.from, is_reused, "{keep_alive:?}");
    }
}

/// Moves `/dav/a` to `/dav/b`. `replies` are the responses to the MOVEs; after `moved_after` of
/// them the file appears moved. Returns the outcome and the number of MOVEs.
async fn moved(replies: Vec<Reply>, moved_after: usize) -> (Result<()>, usize) {
    let moves = Arc::new(AtomicUsize::new(0));
    let server = Scripted::start(move |request| {
        let moved = moves.load(Ordering::Relaxed) >= moved_after;
        match (&request.method[..], &request.path[..]) {
            ("PROPFIND", "/dav/a") if !moved => Reply::listing(&[("/dav/a", Some(5))]),
            ("PROPFIND", "/dav/b") if moved => Reply::listing(&[("/dav/b", Some(5))]),
            ("MOVE", "/dav/a") => replies[moves.fetch_add(1, Ordering::Relaxed)].clone(),
            _ => usual(request),
        }
    });
    let server = server.await;
    let storage = open(&server).await;
    let outcome = storage.rename(&path("a"), &path("b")).await;
    (outcome, server.requests("MOVE").len())
}

#[tokio::test]
async fn a_move_whose_connection_ends_is_repeated_unless_it_was_done() {
    const CREATED: Reply = Reply::Respond(201, Vec::new(), String::new());
    const GONE: Reply = Reply::Respond(404, Vec::new(), String::new());
    const LOST: Reply = Reply::Close(0);
    let (outcome, moves) = moved(vec![LOST, CREATED], 2).await;
    assert!(outcome.is_ok() && moves == 2, "the request was lost: {outcome:?}");
    let (outcome, moves) = moved(vec![LOST], 1).await;
    assert!(outcome.is_ok() && moves == 1, "the response was lost: {outcome:?}");
    let (outcome, moves) = moved(vec![LOST, GONE], 2).await;
    assert!(outcome.is_ok() && moves == 2, "the first request was executed late: {outcome:?}");
    let (outcome, moves) = moved(vec![LOST, LOST, LOST], 4).await;
    assert_eq!((outcome.unwrap_err().kind(), moves), (ErrorKind::Unreachable, 3));
    let (outcome, moves) = moved(vec![GONE], 4).await;
    assert_eq!((outcome.unwrap_err().kind(), moves), (ErrorKind::NotFound, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_with_an_entity_bomb_is_refused() {
    let bomb = "<?xml version=\"1.0\"?><!DOCTYPE x [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \
                \"&a;&a;&a;&a;\">]><D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>&b;";
    let server = Scripted::start(move |request| match &request.method[..] {
        "PROPFIND" => Reply::Respond(207, Vec::new(), bomb.to_owned()),
        _ => usual(request),
    })
    .await;
    let (entries, errors) = listed(&server).await;
    assert!(entries.is_empty());
    assert_eq!(errors[0].kind(), ErrorKind::Protocol, "{errors:?}");
    let error = open(&server).await.stat(&path("file")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
}

#[tokio::test(flavor = "multi_thread")]
async fn links_outside_the_directory_are_errors_that_name_them() {
    let server = Scripted::start(|request| match request.is("PROPFIND", "/dav/") {
        true => Reply::listing(&[
            ("/dav/", None),
            ("/dav/../etc/passwd", Some(1)),
            ("/dav/%2e%2e/up", Some(1)),
            ("http://elsewhere/x", Some(1)),
            ("/other/y", Some(1)),
            ("/dav/a%2Fb", Some(1)),
            ("/dav/deep/er", Some(1)),
            ("/dav/good%20one", Some(5)),
        ]),
        false => usual(request),
    })
    .await;
    let (entries, errors) = listed(&server).await;
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].path.as_bytes(), entries[0].size), (&b"good one"[..], 5));
    assert_eq!(errors.len(), 6, "{errors:?}");
    for (error, link) in errors.iter().zip(["etc/passwd", "/up", "elsewhere", "/other/y"]) {
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(link), "{error} should name {link}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_listed_again_in_another_encoding_is_an_error() {
    let server = Scripted::start(|request| match request.is("PROPFIND", "/dav/") {
        true => Reply::listing(&[("/dav/a", Some(1)), ("/dav/%61", Some(2)), ("/dav/b", Some(3))]),
        false => usual(request),
    })
    .await;
    let (entries, errors) = listed(&server).await;
    let sizes: Vec<u64> = entries.iter().map(|entry| entry.size).collect();
    assert_eq!((sizes, errors.len()), (vec![1, 3], 1));
    assert!(errors[0].to_string().contains("%61"), "{}", errors[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_breaks_off_resumes_without_duplicates() {
    let tries = AtomicUsize::new(0);
    let all = [("/dav/", None), ("/dav/a", Some(1)), ("/dav/b", Some(2)), ("/dav/c", Some(3))];
    let server = Scripted::start(move |request| {
        if !request.is("PROPFIND", "/dav/") {
            return usual(request);
        }
        let whole = multistatus(&all);
        let half = whole.find("<D:href>/dav/c").unwrap();
        match tries.fetch_add(1, Ordering::Relaxed) {
            0 => Reply::Cut(207, whole[..half].to_owned()),
            _ => Reply::Respond(207, Vec::new(), whole),
        }
    })
    .await;
    let (entries, errors) = listed(&server).await;
    let sizes: Vec<u64> = entries.iter().map(|entry| entry.size).collect();
    assert_eq!((sizes, errors.len()), (vec![1, 2, 3], 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_refused_half_way_stops_with_the_servers_status() {
    for (status, hint) in [(507, "free space"), (413, "the server accepts no upload of this size")]
    {
        let server = Scripted::start(move |request| match &request.method[..] {
            "PUT" => Reply::Refuse(status, 1 << 20),
            _ => usual(request),
        })
        .await;
        let error = write(&*open(&server).await, 400).await.unwrap_err();
        let found = (error.kind(), error.retry());
        assert_eq!(found, (ErrorKind::NoSpace, Retry::Never), "{error}");
        assert!(error.to_string().contains(&status.to_string()), "{error}");
        assert!(error.hint().unwrap().starts_with(hint), "{error}: {:?}", error.hint());
        assert_eq!(server.requests("PUT").len(), 1);
        assert!(server.requests("MOVE").is_empty());
        let deleted = server.requests("DELETE");
        assert!(is_part_of("/dav/file", &deleted[0].path), "{deleted:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_refused_at_once_sends_no_body() {
    let server = Scripted::start(|request| match &request.method[..] {
        "PUT" => Reply::Wait { continues: false, status: 413 },
        _ => usual(request),
    })
    .await;
    let error = write(&*open(&server).await, 400).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::NoSpace, Retry::Never), "{error}");
    let put = &server.requests("PUT")[0];
    assert_eq!(put.header("expect"), "100-continue");
    assert!(!put.early_body, "the body is sent before the server has responded");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_first_large_upload_waits_for_100_continue() {
    let server = Scripted::start(|request| match &request.method[..] {
        "PUT" if request.header("expect").is_empty() => Reply::status(201),
        "PUT" => Reply::Wait { continues: true, status: 201 },
        "PROPFIND" if is_part_of("/dav/file", &request.path) => {
            Reply::listing(&[(&request.path, Some(2 << 20))])
        }
        _ => usual(request),
    })
    .await;
    let storage = open(&server).await;
    for _ in 0..2 {
        write(&storage, 8).await.unwrap();
    }
    let puts = server.requests("PUT");
    let expects: Vec<_> = puts.iter().map(|put| put.header("expect")).collect();
    assert_eq!(expects, ["100-continue", ""]);
    assert!(!puts[0].early_body, "the body is sent before 100 Continue");
    assert!(puts.iter().all(|put| put.body == [1; 2 << 20]));
}

#[tokio::test(flavor = "multi_thread")]
async fn expect_is_sent_once_to_a_server_that_ignores_or_refuses_it() {
    // One server refuses with 417, the other ignores the header.
    for refuses in [true, false] {
        let server = Scripted::start(move |request| match &request.method[..] {
            "PUT" if refuses && !request.header("expect").is_empty() => {
                Reply::Wait { continues: false, status: 417 }
            }
            "PROPFIND" if is_part_of("/dav/file", &request.path) => {
                Reply::listing(&[(&request.path, Some(2 << 20))])
            }
            _ => usual(request),
        })
        .await;
        let storage = open(&server).await;
        let first = write(&storage, 8).await;
        if refuses {
            assert_eq!(first.unwrap_err().retry(), Retry::FromStart);
        } else {
            first.unwrap();
        }
        write(&storage, 8).await.unwrap();
        let puts = server.requests("PUT");
        let expects: Vec<_> = puts.iter().map(|put| put.header("expect")).collect();
        assert_eq!(expects, ["100-continue", ""]);
        assert!(puts[1].body == [1; 2 << 20]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_whose_connection_is_lost_restarts() {
    let server = Scripted::start(|request| match &request.method[..] {
        "PUT" => Reply::Close(1 << 20),
        _ => usual(request),
    })
    .await;
    let error = write(&*open(&server).await, 400).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unreachable, Retry::FromStart));
    assert!(server.requests("MOVE").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_of_the_wrong_length_is_not_renamed() {
    let server = Scripted::start(|request| match &request.method[..] {
        "PROPFIND" if is_part_of("/dav/file", &request.path) => {
            Reply::listing(&[(&request.path, Some(1000))])
        }
        _ => usual(request),
    })
    .await;
    let error = write(&*open(&server).await, 2).await.unwrap_err();
    assert_eq!(error.retry(), Retry::FromStart, "{error}");
    assert!(server.requests("MOVE").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_rename_is_an_error_and_leaves_no_part_file() {
    let server = Scripted::start(|request| match &request.method[..] {
        "MOVE" => Reply::status(403),
        "PROPFIND" if is_part_of("/dav/file", &request.path) => {
            Reply::listing(&[(&request.path, Some(512 << 10))])
        }
        _ => usual(request),
    })
    .await;
    let error = write(&*open(&server).await, 2).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    let moved = server.requests("MOVE");
    assert_eq!(moved[0].header("overwrite"), "F");
    assert_eq!(moved[0].header("destination"), format!("{}file", server.url));
    assert_eq!(server.requests("DELETE").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_whose_response_is_lost_counts_as_done() {
    let moved = AtomicUsize::new(0);
    let server = Scripted::start(move |request| {
        let has_moved = moved.load(Ordering::Relaxed) > 0;
        match (&request.method[..], &request.path[..]) {
            ("MOVE", _) => {
                moved.store(1, Ordering::Relaxed);
                Reply::Close(0)
            }
            ("PROPFIND", part) if !has_moved && is_part_of("/dav/file", part) => {
                Reply::listing(&[(part, Some(512 << 10))])
            }
            ("PROPFIND", "/dav/file") if has_moved => {
                Reply::listing(&[("/dav/file", Some(512 << 10))])
            }
            _ => usual(request),
        }
    })
    .await;
    write(&*open(&server).await, 2).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_never_replaces_a_directory() {
    let server = Scripted::start(|request| match request.is("PROPFIND", "/dav/file") {
        true => Reply::listing(&[("/dav/file/", None)]),
        false => usual(request),
    })
    .await;
    let bytes = Bytes::from_static(b"small");
    let written = open(&server).await.write_whole(&path("file"), bytes, &replacing()).await;
    assert_eq!(written.unwrap_err().kind(), ErrorKind::IsADirectory);
    assert!(server.requests("MOVE").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_move_a_file_is_uploaded_under_its_final_name() {
    let server = Scripted::start(|request| match &request.method[..] {
        "OPTIONS" => {
            let allow = ("Allow", "GET, HEAD, PUT, DELETE, OPTIONS".to_owned());
            Reply::Respond(200, vec![allow], String::new())
        }
        _ => usual(request),
    })
    .await;
    let storage = open(&server).await;
    assert!(!storage.capabilities().rename);
    write(&storage, 2).await.unwrap();
    let put = server.requests("PUT");
    assert!(put.len() == 1 && put[0].is("PUT", "/dav/file"));
    assert_eq!(put[0].body.len(), 512 << 10);
}

/// Regression: the existing file was deleted as if it were the partial upload.
#[tokio::test(flavor = "multi_thread")]
async fn without_move_a_refused_upload_deletes_nothing() {
    for reply in [Reply::Refuse(507, 0), Reply::Refuse(403, 300_000), Reply::Close(300_000)] {
        let server = Scripted::start(move |request| match &request.method[..] {
            "OPTIONS" => {
                let allow = ("Allow", "GET, HEAD, PUT, DELETE, OPTIONS".to_owned());
                Reply::Respond(200, vec![allow], String::new())
            }
            "PUT" => reply.clone(),
            _ => usual(request),
        })
        .await;
        let error = write(&*open(&server).await, 2).await.unwrap_err();
        assert!(server.requests("DELETE").is_empty(), "{error}");
        assert!(!server.requests("PUT").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_calls_every_nonce_stale_is_an_error() {
    let server = Scripted::start(|_| {
        let challenge = "Digest realm=\"r\", nonce=\"n\", qop=\"auth\", stale=true";
        Reply::Respond(401, vec![("WWW-Authenticate", challenge.to_owned())], String::new())
    })
    .await;
    let password = Some(PasswordSource::Secret(Secret::new("password")));
    let options = HttpOptions { password, ..HttpOptions::default() };
    let (url, user) = (Url::parse(&server.url).unwrap(), Some("me".to_owned()));
    let host =
        HttpHost::new(url.origin.clone(), user, &options, Arc::new(NoPrompter), Handle::current());
    let location = Location::parse("dav://server/").unwrap();
    let error = HttpStorage::open_dav(host, location, url, None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sabredav_gets_ranges_by_patch() {
    let server = Scripted::start(|request| match (&request.method[..], &request.path[..]) {
        ("OPTIONS", _) => {
            let dav = ("DAV", "1, 3, extended-mkcol, sabredav-partialupdate".to_owned());
            Reply::Respond(200, vec![dav], String::new())
        }
        ("PATCH", _) => Reply::status(204),
        ("GET", _) => {
            let range = request.header("range").replace('=', " ");
            Reply::Respond(206, vec![("Content-Range", format!("{range}/7"))], "x".to_owned())
        }
        ("PROPFIND", part) if is_part_of("/dav/file", part) => Reply::listing(&[(part, Some(7))]),
        _ => usual(request),
    })
    .await;
    let storage = open(&server).await;
    assert_eq!(storage.capabilities().writes, Writes::AnyOrder);
    let writer = storage.create(&path("file"), &CreateOptions::default()).await.unwrap();
    writer.write_at(4, Block::from(Bytes::from_static(b"efg"))).await.unwrap();
    writer.write_at(0, Block::from(Bytes::from_static(b"abcd"))).await.unwrap();
    writer.commit(7, &replacing()).await.unwrap();
    let patches = server.requests("PATCH");
    let ranges: Vec<_> = patches.iter().map(|patch| patch.header("x-update-range")).collect();
    assert_eq!(ranges, ["bytes=4-6", "bytes=0-3"]);
    assert_eq!(patches[0].header("content-type"), "application/x-sabredav-partialupdate");
    assert_eq!(patches[0].body, b"efg");
}

#[tokio::test(flavor = "multi_thread")]
async fn nextcloud_gets_the_time_with_the_file() {
    let server = Scripted::start(|request| match &request.method[..] {
        "OPTIONS" => {
            let dav = ("DAV", "1, 3, nextcloud-checksum-update".to_owned());
            Reply::Respond(200, vec![dav], String::new())
        }
        "PROPPATCH" => Reply::listing(&[("/x", Some(1))]),
        _ => usual(request),
    })
    .await;
    let root = format!("{}remote.php/dav/files/me/", server.url);
    let storage = storage(&root, &tempfile::tempdir().unwrap()).await;
    assert!(storage.capabilities().times);
    let modified = Some(Timestamp { seconds: 1_234_567_890, nanos: 5 });
    let metadata = Metadata { modified, ..Metadata::default() };
    let options =
        CommitOptions { metadata: metadata.clone(), replace: false, sync: false, expected: None };
    storage.write_whole(&path("file"), Bytes::from_static(b"x"), &options).await.unwrap();
    let put = &server.requests("PUT")[0];
    assert_eq!(put.header("x-oc-mtime"), "1234567890");
    assert_eq!(put.header("if-none-match"), "*");
    storage.set_metadata(&path("file"), &metadata).await.unwrap();
    let patch = String::from_utf8(server.requests("PROPPATCH")[0].body.clone()).unwrap();
    assert!(patch.contains("lastmodified>1234567890<"), "{patch}");
}

/// Enough of a Nextcloud server for uploads; the second piece is refused once.
async fn nextcloud() -> Scripted {
    let refused = AtomicUsize::new(0);
    Scripted::start(move |request| match &request.method[..] {
        "OPTIONS" => {
            let dav = ("DAV", "1, 3, nextcloud-checksum-update".to_owned());
            Reply::Respond(200, vec![dav], String::new())
        }
        "MKCOL" => Reply::status(201),
        "PUT"
            if request.path.ends_with("00002") && refused.fetch_add(1, Ordering::Relaxed) == 0 =>
        {
            Reply::status(503)
        }
        "PROPFIND" if request.path.ends_with("/me/") => Reply::listing(&[(&request.path, None)]),
        _ => usual(request),
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn nextcloud_assembles_a_large_file_from_pieces() {
    const SIZE: u64 = (11 << 20) + 5;
    let server = nextcloud().await;
    let root = format!("{}remote.php/dav/files/me/", server.url);
    let storage = storage(&root, &tempfile::tempdir().unwrap()).await;
    storage.set_lanes(3);
    let bytes: Vec<u8> = (0..SIZE).map(|n| (n % 251) as u8).collect();
    let options = CreateOptions { size: Some(SIZE), ..CreateOptions::default() };
    let writer = storage.create(&path("big"), &options).await.unwrap();
    for (n, piece) in bytes.chunks(700_000).enumerate() {
        let block = Block::from(Bytes::copy_from_slice(piece));
        writer.write_at(n as u64 * 700_000, block).await.unwrap();
    }
    assert!(server.requests("MOVE").is_empty());
    let modified = Some(Timestamp { seconds: 1_234_567_890, nanos: 0 });
    let metadata = Metadata { modified, ..Metadata::default() };
    writer
        .commit(SIZE, &CommitOptions { metadata, replace: true, sync: false, expected: None })
        .await
        .unwrap();

    let made = &server.requests("MKCOL")[0];
    assert!(made.path.starts_with("/dav/remote.php/dav/uploads/me/haul-"), "{}", made.path);
    let mut pieces = server.requests("PUT");
    assert_eq!(pieces.len(), 4, "three pieces, one of them twice");
    pieces.sort_by(|a, b| a.path.cmp(&b.path));
    pieces.dedup_by(|a, b| a.path == b.path);
    let names: Vec<_> = pieces.iter().map(|put| &put.path[made.path.len()..]).collect();
    assert_eq!(names, ["00001", "00002", "00003"]);
    let stored = pieces.iter().map(|put| &put.body[..]).collect::<Vec<_>>().concat();
    assert!(stored == bytes, "the pieces are not the file");
    let moved = &server.requests("MOVE")[0];
    assert_eq!(moved.path, format!("{}.file", made.path));
    assert_eq!(moved.header("destination"), format!("{root}big"));
    assert_eq!(moved.header("oc-total-length"), SIZE.to_string());
    assert_eq!(moved.header("x-oc-mtime"), "1234567890");
    assert_eq!(moved.header("overwrite"), "F");
}

/// Uploads a file `big` of `size` bytes in pieces and assembles it.
async fn sent_in_pieces(server: &Scripted, size: u64) -> Result<()> {
    let root = format!("{}remote.php/dav/files/me/", server.url);
    let storage = storage(&root, &tempfile::tempdir().unwrap()).await;
    let options = CreateOptions { size: Some(size), ..CreateOptions::default() };
    let writer = storage.create(&path("big"), &options).await.unwrap();
    writer.write_at(0, Block::from(Bytes::from(vec![7; size as usize]))).await.unwrap();
    let commit =
        CommitOptions { metadata: Metadata::default(), replace: true, sync: false, expected: None };
    writer.commit(size, &commit).await
}

/// A gateway usually times out after a minute, while the server is still assembling.
#[tokio::test(flavor = "multi_thread")]
async fn assembly_is_awaited_after_a_gateway_timeout() {
    const SIZE: u64 = 6 << 20;
    for (status, done_after, succeeds) in
        [(504, 3, true), (500, 3, false), (500, 0, true), (0, 3, true)]
    {
        let (is_moved, looks) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let server = Scripted::start(move |request| {
            let moved = is_moved.load(Ordering::Relaxed) > 0;
            match &request.method[..] {
                "OPTIONS" => {
                    let dav = ("DAV", "1, 3, nextcloud-checksum-update".to_owned());
                    Reply::Respond(200, vec![dav], String::new())
                }
                "MKCOL" => Reply::status(201),
                "MOVE" => {
                    is_moved.store(1, Ordering::Relaxed);
                    if status == 0 { Reply::Close(0) } else { Reply::status(status) }
                }
                "PROPFIND" if request.path.contains("/uploads/") && moved => {
                    match looks.fetch_add(1, Ordering::Relaxed) < done_after {
                        true => Reply::listing(&[(&request.path, None)]),
                        false => Reply::status(404),
                    }
                }
                "PROPFIND" if request.path.ends_with("/big") && moved => {
                    match looks.load(Ordering::Relaxed) > done_after {
                        true => Reply::listing(&[(&request.path, Some(SIZE))]),
                        false => Reply::status(404),
                    }
                }
                "PROPFIND" if request.path.ends_with("/me/") => {
                    Reply::listing(&[(&request.path, None)])
                }
                _ => usual(request),
            }
        })
        .await;
        let done = sent_in_pieces(&server, SIZE).await;
        assert_eq!(done.is_ok(), succeeds, "{status}: {done:?}");
        assert_eq!(server.requests("MOVE").len(), 1);
    }
}

/// The client cannot tell whether the request or the response was lost. As the pieces still exist, MOVE
/// was not executed.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_assembly_request_is_repeated() {
    const SIZE: u64 = 6 << 20;
    let moved = AtomicUsize::new(0);
    let server = Scripted::start(move |request| match &request.method[..] {
        "OPTIONS" => {
            let dav = ("DAV", "1, 3, nextcloud-checksum-update".to_owned());
            Reply::Respond(200, vec![dav], String::new())
        }
        "MKCOL" => Reply::status(201),
        "MOVE" => match moved.fetch_add(1, Ordering::Relaxed) {
            0 => Reply::Close(0),
            _ => Reply::status(201),
        },
        "PROPFIND" if request.path.contains("/uploads/") || request.path.ends_with("/me/") => {
            Reply::listing(&[(&request.path, None)])
        }
        _ => usual(request),
    })
    .await;
    sent_in_pieces(&server, SIZE).await.unwrap();
    assert_eq!(server.requests("MOVE").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_pieces_gets_one_put() {
    const SIZE: u64 = 6 << 20;
    for status in [403, 404, 405, 409, 501] {
        let server = Scripted::start(move |request| match &request.method[..] {
            "OPTIONS" => {
                let dav = ("DAV", "1, 3, nextcloud-checksum-update".to_owned());
                Reply::Respond(200, vec![dav], String::new())
            }
            "MKCOL" => Reply::status(status),
            "PROPFIND" if request.path.contains(".haul-") => {
                Reply::listing(&[(&request.path, Some(SIZE))])
            }
            "PROPFIND" if request.path.ends_with("/me/") => {
                Reply::listing(&[(&request.path, None)])
            }
            _ => usual(request),
        });
        let server = server.await;
        sent_in_pieces(&server, SIZE).await.unwrap();
        let puts = server.requests("PUT");
        let lengths: Vec<_> = puts.iter().map(|request| request.body.len() as u64).collect();
        assert_eq!(lengths, [SIZE], "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_of_an_aborted_upload_are_removed() {
    let server = nextcloud().await;
    let root = format!("{}remote.php/dav/files/me/", server.url);
    let storage = storage(&root, &tempfile::tempdir().unwrap()).await;
    let options = CreateOptions { size: Some(20 << 20), ..CreateOptions::default() };
    let writer = storage.create(&path("big"), &options).await.unwrap();
    writer.write_at(0, Block::from(Bytes::from(vec![0; 6 << 20]))).await.unwrap();
    writer.abort(false).await.unwrap();
    assert_eq!(server.requests("DELETE")[0].path, server.requests("MKCOL")[0].path);
    assert!(server.requests("MOVE").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn options_are_requested_once_for_lookup_and_opening() {
    let server = Scripted::start(usual).await;
    let host = host(&server.url);
    let root = Url::parse(&server.url).unwrap();
    let file = root.with_path("/dav/new/file");
    let nearest = host.nearest(&file).await.unwrap();
    assert_eq!((&nearest.directory, nearest.rest.len()), (&root, 2));
    let location = Location::parse("dav://server/").unwrap();
    let storage = HttpStorage::open_dav(host, location, root, None).await.unwrap();
    assert!(storage.capabilities().rename);
    assert_eq!(server.requests("OPTIONS").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_listing_reuses_the_page_and_later_ones_refresh_it() {
    const PAGE: &str = "<html><head><title>Index of /dav/</title></head><body>\
        <h1>Index of /dav/</h1><pre><a href=\"../\">../</a>\n\
        <a href=\"file\">file</a>      01-Jan-2026 00:00      5\n</pre></body></html>";
    let server = Scripted::start(|request| match (&request.method[..], &request.path[..]) {
        ("GET", "/dav/") => {
            Reply::Respond(200, vec![("Content-Type", "text/html".to_owned())], PAGE.to_owned())
        }
        ("GET", "/dav/file") => Reply::Respond(200, Vec::new(), "12345".to_owned()),
        _ => Reply::status(404),
    })
    .await;
    let (host, root) = (host(&server.url), Url::parse(&server.url).unwrap());
    let Found::Directory(root) = host.find(&root).await.unwrap() else { panic!("no directory") };
    let location = Location::parse("http://server/").unwrap();
    let web = HttpStorage::open_web_directory(host, location, root).await;
    let pages = || server.requests("GET").iter().filter(|request| request.path == "/dav/").count();
    for expected in [1, 2] {
        let entries = web.list_sorted(&RelPath::root()).await.unwrap();
        assert_eq!(entries[0].path, path("file"));
        assert_eq!(pages(), expected);
    }
}

/// Formerly, the probe requested the lengths of the first 32 files, and the listing requested them again.
#[tokio::test(flavor = "multi_thread")]
async fn the_probe_for_ranges_requests_lengths_up_to_the_first_file_that_is_not_empty() {
    let links: Vec<_> = (0..40).map(|n| format!("<a href=\"f{n}\">f{n}</a>")).collect();
    let page = format!("<title>Index of /dav/</title><pre>{}</pre>", links.join("\n"));
    let server = Scripted::start(move |request| match &request.path[..] {
        "/dav/" => {
            Reply::Respond(200, vec![("Content-Type", "text/html".to_owned())], page.clone())
        }
        "/dav/f0" => Reply::status(200),
        _ => Reply::Respond(200, Vec::new(), "12345".to_owned()),
    })
    .await;
    let (location, root) = (Location::parse("http://server/"), Url::parse(&server.url));
    let web = HttpStorage::open_web_directory(host(&server.url), location.unwrap(), root.unwrap());
    assert!(!web.await.capabilities().ranged_reads);
    let mut paths: Vec<_> =
        server.requests("HEAD").into_iter().map(|request| request.path).collect();
    // A pipelined request may be repeated alone.
    paths.dedup();
    assert_eq!(paths, ["/dav/f0", "/dav/f1"]);
}

/// A server in Debian responds to OPTIONS like this for a missing path; haul used to read on for a
/// minute.
#[tokio::test]
async fn a_response_with_an_endless_body_is_judged_by_its_head() {
    let server = Scripted::start(|request| match usual(request) {
        Reply::Respond(status, headers, body) if body.is_empty() => Reply::Endless(status, headers),
        other => other,
    });
    let server = server.await;
    let copied = async {
        let storage = open(&server).await;
        storage.create_dir(&path("dir")).await.unwrap_err();
        storage.write_whole(&path("a"), Bytes::from_static(b"a"), &replacing()).await.unwrap();
        assert_eq!(storage.stat(&path("b")).await.unwrap_err().kind(), ErrorKind::NotFound);
    };
    // The timeout for a body is a minute; this takes a second or two.
    assert!(tokio::time::timeout(Duration::from_secs(50), copied).await.is_ok());
    assert_eq!(server.requests("MOVE").len(), 1);
}

#[tokio::test]
async fn a_silent_server_is_reported_with_the_awaited_response() {
    let server = Scripted::start(|request| match &request.method[..] {
        "OPTIONS" => Reply::Silent,
        _ => usual(request),
    });
    let server = server.await;
    let (reports, mut reported) = tokio::sync::mpsc::unbounded_channel();
    let waits = Waits::new(move |wait| drop(reports.send(wait.clone())));
    let options =
        HttpOptions { waits: waits.after(Duration::from_millis(50)), ..HttpOptions::default() };
    let url = Url::parse(&server.url).unwrap();
    let host =
        HttpHost::new(url.origin.clone(), None, &options, Arc::new(NoPrompter), Handle::current());
    let location = Location::parse("dav://server/").unwrap();
    let opening = tokio::spawn(HttpStorage::open_dav(host, location, url.clone(), None));
    let mut wait = reported.recv().await.unwrap();
    // On a slow machine the connection is reported first.
    while wait.what == "connection" {
        wait = reported.recv().await.unwrap();
    }
    assert_eq!(wait.what, "response to OPTIONS /dav/");
    assert_eq!(wait.host, format!("127.0.0.1:{}", url.origin.port()));
    opening.abort();
}

/// Formerly, a single response with the whole file ended the use of ranges if it came directly behind the
/// first range.
#[tokio::test]
async fn one_response_with_the_whole_file_does_not_end_the_use_of_ranges() {
    const SIZE: usize = 300_000;
    for (wholes, is_ranged) in [(1, true), (2, false)] {
        let sent = Arc::new(AtomicUsize::new(0));
        let server = Scripted::start(move |request| {
            let range = request.header("range").strip_prefix("bytes=").and_then(|range| {
                let (first, last) = range.split_once('-')?;
                Some((first.parse::<usize>().ok()?, last.parse::<usize>().ok()?))
            });
            let tag = ("ETag", "\"a\"".to_owned());
            match (&request.method[..], range) {
                ("GET", Some((first, last))) => {
                    let is_first = first == 0;
                    if !is_first && sent.fetch_add(1, Ordering::Relaxed) < wholes {
                        return Reply::Respond(200, vec![tag], "x".repeat(SIZE));
                    }
                    let last = last.min(SIZE - 1);
                    let fields = ("Content-Range", format!("bytes {first}-{last}/{SIZE}"));
                    Reply::Respond(206, vec![tag, fields], "x".repeat(last + 1 - first))
                }
                ("PROPFIND", _) => Reply::listing(&[("/dav/file", Some(SIZE as u64))]),
                _ => usual(request),
            }
        });
        let server = server.await;
        let storage = open(&server).await;
        let reader = storage.open(&path("file")).await.unwrap();
        assert!(reader.is_ranged());
        for _ in 0..wholes {
            let mut blocks = reader.read_at(Range::new(100_000, 1000));
            assert!(blocks.next().await.unwrap().is_err());
        }
        assert_eq!(reader.is_ranged(), is_ranged, "{wholes} times");
    }
}
