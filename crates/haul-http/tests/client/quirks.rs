//! Server quirks that other clients cope with: if a request is refused, haul uses another way, and
//! remembers it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use haul_http::client::{HttpStorage, Nearest};
use haul_http::parse::Url;
use haul_storage::{
    Block, CreateOptions, Digest, DigestKind, Error, ErrorKind, Location, Metadata, Range, RelPath,
    Result, Retry, Storage, StorageExt as _, Timestamp,
};

use super::scripted::{Reply, Request, Scripted};
use super::{host, is_part_of, path, replacing, storage};

const FILE: u64 = 300 << 10;

fn usual(request: &Request) -> Reply {
    match (&request.method[..], &request.path[..]) {
        ("OPTIONS", _) => Reply::Respond(200, vec![("DAV", "1".to_owned())], String::new()),
        ("PROPFIND", "/" | "/dav/") => Reply::listing(&[(&request.path, None)]),
        ("PROPFIND", part) if part.ends_with("upload") => Reply::listing(&[(part, Some(FILE))]),
        ("PROPFIND", part) if part.ends_with("temp") => Reply::listing(&[(part, Some(1))]),
        ("PROPFIND", _) => Reply::status(404),
        ("PUT" | "MOVE" | "MKCOL", _) => Reply::status(201),
        ("DELETE", _) => Reply::status(204),
        _ => Reply::status(405),
    }
}

async fn open(server: &Scripted) -> Arc<HttpStorage> {
    storage(&server.url, &tempfile::tempdir().unwrap()).await
}

async fn write_small(storage: &HttpStorage, name: &str) -> Result<()> {
    storage.write_whole(&path(name), Bytes::from_static(b"x"), &replacing()).await
}

async fn write_large(storage: &HttpStorage, name: &str) -> Result<()> {
    let options = CreateOptions { size: Some(FILE), ..CreateOptions::default() };
    let writer = storage.create(&path(name), &options).await?;
    writer.write_at(0, Block::from(Bytes::from(vec![1; FILE as usize]))).await?;
    let outcome = writer.commit(FILE, &replacing()).await;
    if outcome.is_err() {
        writer.abort(false).await?;
    }
    outcome
}

async fn names(storage: &HttpStorage) -> Vec<String> {
    let batches = storage.list(&RelPath::root()).await.unwrap().collect::<Vec<_>>().await;
    let entries = batches.into_iter().flat_map(Result::unwrap);
    entries.map(|entry| entry.path.to_string()).collect()
}

fn empty_group(href: &str) -> Reply {
    let body = format!(
        "<D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>{href}</D:href><D:propstat><D:prop/>\
         <D:status>HTTP/1.1 404 Not Found</D:status></D:propstat></D:response></D:multistatus>"
    );
    Reply::Respond(207, Vec::new(), body)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_multistatus_means_not_found() {
    let empty = "<D:multistatus xmlns:D=\"DAV:\"></D:multistatus>";
    let nothing = [empty_group("/dav/new"), Reply::Respond(207, Vec::new(), empty.to_owned())];
    for reply in nothing {
        let server = Scripted::start(move |request| match &request.path[..] {
            "/dav/new" => reply.clone(),
            _ => usual(request),
        });
        let server = server.await;
        let error = open(&server).await.stat(&path("new")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        let url = Url::parse(&format!("{}new", server.url)).unwrap();
        let found = host(&server.url).nearest(&url).await.unwrap();
        let directory = Url::parse(&server.url).unwrap();
        assert_eq!(found, Nearest { directory, rest: vec![b"new".to_vec()], is_file: false });
    }
}

/// Once, such a name was taken for an existing directory.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_destination_with_a_malformed_name_is_refused() {
    let server = Scripted::start(usual).await;
    for below in ["100%", "%zz", "%2", "100%/new"] {
        let url = Url::parse(&format!("{}{below}", server.url)).unwrap();
        let error = host(&server.url).nearest(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{below}: {error}");
    }
}

/// Once, a busy server was taken for one without features.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_busy_does_not_open_without_its_features() {
    let server = Scripted::start(|request| match &request.method[..] {
        "OPTIONS" => Reply::status(503),
        _ => usual(request),
    });
    let (server, location) = (server.await, Location::parse("dav://server/").unwrap());
    let (host, root) = (host(&server.url), Url::parse(&server.url).unwrap());
    let error = HttpStorage::open_dav(host, location, root, None).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Busy, Retry::Later), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_options_is_used_without_features() {
    for status in [403, 405, 501] {
        let server = Scripted::start(move |request| match &request.method[..] {
            "OPTIONS" => Reply::status(status),
            _ => usual(request),
        });
        let server = server.await;
        write_small(&*open(&server).await, "small").await.unwrap();
        assert_eq!(server.requests("OPTIONS").len(), 1, "{status}");
    }
}

/// The reply to a lookup of a part file by a server that reports no length: PROPFIND omits it, and the response to HEAD
/// is encoded.
fn without_length(request: &Request) -> Option<Reply> {
    let body = format!(
        "<D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>{}</D:href><D:propstat><D:prop>\
         <D:resourcetype/></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>\
         </D:multistatus>",
        request.path
    );
    match &request.method[..] {
        _ if !request.path.contains(".haul-") => None,
        "PROPFIND" => Some(Reply::Respond(207, Vec::new(), body)),
        "HEAD" => {
            let encoded = vec![("Content-Encoding", "gzip".to_owned())];
            Some(Reply::Respond(200, encoded, String::new()))
        }
        _ => None,
    }
}

/// Once, the unknown length was compared as a number, and each upload failed.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_completes_if_the_server_reports_no_length() {
    let server =
        Scripted::start(|request| without_length(request).unwrap_or_else(|| usual(request)));
    let server = server.await;
    write_large(&*open(&server).await, "large").await.unwrap();
    assert_eq!(server.requests("MOVE").len(), 1);
}

/// Once, the unknown length counted as too long, and the file was written again at the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_file_of_unknown_length_is_not_resumed() {
    const APACHE: &str = "1,2,<http://apache.org/dav/propset/fs/1>";
    let server = Scripted::start(|request| match &request.method[..] {
        "OPTIONS" => Reply::Respond(200, vec![("DAV", APACHE.to_owned())], String::new()),
        "PUT" if !request.header("if-none-match").is_empty() => Reply::status(412),
        _ => without_length(request).unwrap_or_else(|| usual(request)),
    });
    let server = server.await;
    let storage = open(&server).await;
    let options = CreateOptions { resume: true, size: Some(FILE), ..CreateOptions::default() };
    let writer = storage.create(&path("large"), &options).await.unwrap();
    let emptied = server.requests("PUT").pop().unwrap();
    assert!(emptied.header("if-none-match").is_empty() && emptied.body.is_empty());
    writer.write_at(0, Block::from(Bytes::from(vec![1; FILE as usize]))).await.unwrap();
    writer.commit(FILE, &replacing()).await.unwrap();
    assert_eq!(server.requests("MOVE").len(), 1);
}

/// Behind a proxy that terminates TLS, Apache refuses `https` URLs.
#[tokio::test(flavor = "multi_thread")]
async fn a_destination_refused_as_a_url_is_sent_as_a_path() {
    for status in [400, 405, 502] {
        let server = Scripted::start(move |request| match &request.method[..] {
            "MOVE" if request.header("destination").starts_with("http") => Reply::status(status),
            _ => usual(request),
        });
        let server = server.await;
        let storage = open(&server).await;
        write_large(&storage, "a").await.unwrap();
        write_large(&storage, "b").await.unwrap();
        let moves = server.requests("MOVE");
        let destinations: Vec<_> =
            moves.iter().map(|request| request.header("destination")).collect();
        // Learnt once.
        assert_eq!(destinations, [&format!("{}a", server.url), "/dav/a", "/dav/b"], "{status}");
        assert_eq!(server.requests("PUT").len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_put_under_their_final_names_where_move_fails() {
    for status in [400, 405, 501, 502] {
        let server = Scripted::start(move |request| match &request.method[..] {
            "MOVE" => Reply::status(status),
            _ => usual(request),
        });
        let server = server.await;
        let storage = open(&server).await;
        write_small(&storage, "small").await.unwrap();
        write_large(&storage, "large").await.unwrap();
        assert_eq!(server.requests("MOVE").len(), 2, "it is learnt once");
        let puts = server.requests("PUT");
        let puts: Vec<_> = puts.iter().map(|request| &request.path[..]).collect();
        assert!(is_part_of("/dav/small", puts[0]), "{puts:?}");
        assert_eq!(puts[1..], ["/dav/small", "/dav/large"], "{status}");
        assert_eq!(server.requests("DELETE").len(), 1, "the part file");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_that_cannot_be_moved_restarts_under_its_final_name() {
    let server = Scripted::start(|request| match &request.method[..] {
        "MOVE" => Reply::status(502),
        _ => usual(request),
    });
    let server = server.await;
    let storage = open(&server).await;
    let error = write_large(&storage, "large").await.unwrap_err();
    assert_eq!(error.retry(), Retry::FromStart, "{error}");
    write_large(&storage, "large").await.unwrap();
    let puts = server.requests("PUT");
    assert_eq!(puts.last().map(|request| &request.path[..]), Some("/dav/large"));
}

/// The refusal concerns this file only: it cannot be stored under its final name either.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_move_of_one_file_does_not_disable_move() {
    for status in [400, 403, 409, 415, 423, 502] {
        let server =
            Scripted::start(move |request| match (&request.method[..], &request.path[..]) {
                ("MOVE", part) if ["/dav/a", "/dav/c"].iter().any(|of| is_part_of(of, part)) => {
                    Reply::status(status)
                }
                ("PUT", "/dav/a" | "/dav/c") => Reply::status(status),
                _ => usual(request),
            });
        let server = server.await;
        let storage = open(&server).await;
        for _ in 0..2 {
            write_large(&storage, "a").await.unwrap_err();
            write_small(&storage, "c").await.unwrap_err();
        }
        write_large(&storage, "b").await.unwrap();
        write_small(&storage, "d").await.unwrap();
        let moves = server.requests("MOVE");
        for name in ["/dav/b", "/dav/d"] {
            let moved = moves.iter().any(|request| is_part_of(name, &request.path));
            assert!(moved, "{status}: {name}");
        }
        assert!(server.requests("PUT").iter().all(|request| request.path != "/dav/b"), "{status}");
    }
}

/// If MOVE has worked before, a refusal does not mean that MOVE fails in general.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_after_a_move_that_worked_is_an_error() {
    let server = Scripted::start(|request| match (&request.method[..], &request.path[..]) {
        ("MOVE", part) if is_part_of("/dav/b", part) => Reply::status(400),
        _ => usual(request),
    });
    let server = server.await;
    let storage = open(&server).await;
    write_large(&storage, "a").await.unwrap();
    let error: Error = write_large(&storage, "b").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert_eq!(server.requests("MOVE").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_that_adds_a_slash_stays_on_the_server() {
    let server = Scripted::start(|request| match &request.path[..] {
        "/dav/d%20e" if request.method == "PROPFIND" => {
            let to = "http://backend.invalid/dav/d%20e/".to_owned();
            Reply::Respond(301, vec![("Location", to)], String::new())
        }
        "/dav/d%20e/" => Reply::listing(&[("/dav/d%20e/", None)]),
        _ => usual(request),
    });
    let server = server.await;
    assert!(open(&server).await.stat(&path("d e")).await.unwrap().is_dir());
}

#[tokio::test(flavor = "multi_thread")]
async fn listed_links_are_compared_by_path_only() {
    for backend in ["https://127.0.0.1", "http://backend.internal:8080", "//ada@[::1]:x"] {
        let server = Scripted::start(move |request| match request.is("PROPFIND", "/dav/") {
            true => {
                let link = |name: &str| format!("{backend}/dav/{name}");
                Reply::listing(&[(&link(""), None), (&link("a%20b"), Some(2))])
            }
            false => usual(request),
        });
        let server = server.await;
        assert_eq!(names(&*open(&server).await).await, ["a b"], "{backend}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn modifying_requests_are_not_redirected_to_another_server() {
    let other = Scripted::start(usual).await;
    let to = other.url.clone();
    let server = Scripted::start(move |request| match &request.method[..] {
        "DELETE" | "MKCOL" | "MOVE" | "PUT" | "PROPPATCH" => {
            Reply::Respond(307, vec![("Location", format!("{to}x"))], String::new())
        }
        // A server whose times can be set.
        "OPTIONS" => {
            let headers = [("DAV", "1".to_owned()), ("Server", "haul".to_owned())];
            Reply::Respond(200, headers.into(), String::new())
        }
        "PROPFIND" if request.path == "/dav/file" => Reply::listing(&[("/dav/file", Some(1))]),
        _ => usual(request),
    });
    let server = server.await;
    let storage = open(&server).await;
    let removed = storage.remove(&path("file")).await;
    let made = storage.create_dir(&path("dir")).await;
    let written = write_small(&storage, "small").await;
    let modified = Some(Timestamp { seconds: 1_000_000_000, nanos: 0 });
    let metadata = Metadata { modified, ..Metadata::default() };
    let set = storage.set_metadata(&path("file"), &metadata).await;
    assert_eq!(server.requests("PROPPATCH").len(), 1);
    for error in [removed, made, written, set].map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(error.to_string().contains(&other.url), "{error}");
    }
    for method in ["DELETE", "MKCOL", "PUT", "MOVE", "PROPPATCH"] {
        assert!(other.requests(method).is_empty(), "{method}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lookup_for_a_destination_is_not_redirected_to_another_server() {
    let other = Scripted::start(usual).await;
    let to = other.url.clone();
    let server = Scripted::start(move |request| match &request.method[..] {
        "PROPFIND" => Reply::Respond(302, vec![("Location", to.clone())], String::new()),
        _ => usual(request),
    });
    let server = server.await;
    let url = Url::parse(&format!("{}new", server.url)).unwrap();
    let error = host(&server.url).nearest(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(error.to_string().contains(&other.url), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_retry_after_is_an_error_that_names_it() {
    let server = Scripted::start(|request| match &request.path[..] {
        "/dav/busy" => Reply::Respond(503, vec![("Retry-After", "3600".to_owned())], String::new()),
        _ => usual(request),
    });
    let server = server.await;
    let storage = open(&server).await;
    for _ in 0..2 {
        let error = storage.stat(&path("busy")).await.unwrap_err();
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Busy, Retry::Never), "{error}");
        assert!(error.to_string().contains("asks to wait 3"), "{error}");
    }
    let requests = server.requests("PROPFIND");
    assert_eq!(requests.iter().filter(|request| request.path == "/dav/busy").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_for_pauses_that_add_up_names_the_time_already_waited() {
    let requests = AtomicU64::new(0);
    let server = Scripted::start(move |request| match &request.path[..] {
        "/dav/busy" => {
            let pause = if requests.fetch_add(1, Ordering::Relaxed) == 0 { "1" } else { "300" };
            Reply::Respond(503, vec![("Retry-After", pause.to_owned())], String::new())
        }
        _ => usual(request),
    });
    let server = server.await;
    let error = open(&server).await.stat(&path("busy")).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Busy, Retry::Never), "{error}");
    assert!(error.to_string().contains("asks to wait 300 s (Retry-After) after "), "{error}");
}

/// Requests have the URL exactly as the user wrote it: a server may distinguish `%2B` from `+`.
#[tokio::test(flavor = "multi_thread")]
async fn a_destination_url_is_used_as_given() {
    let server = Scripted::start(usual).await;
    let storage = open(&server).await;
    let given = Url::parse(&format!("{}a%2Bb%2Fc", server.url)).unwrap();
    storage.set_url(path("a+b%2Fc"), &given);
    write_small(&storage, "a+b%2Fc/d+e").await.unwrap_err();
    storage.create_dir(&path("a+b%2Fc")).await.unwrap();
    write_small(&storage, "a+b%2Fc/d+e").await.unwrap();
    let moves = server.requests("MOVE");
    assert_eq!(moves[0].header("destination"), format!("{}a%2Bb%2Fc/d+e", server.url));
    assert_eq!(server.requests("MKCOL")[0].path, "/dav/a%2Bb%2Fc/");
}

/// One lane in a thousand transfers lost its last packets so often that TCP retransmitted them only
/// after 20 s, and a finished file waited for that.
#[tokio::test]
async fn a_stalled_recheck_moves_to_another_lane() {
    const TAG: (&str, &str) = ("ETag", "\"v1\"");
    let heads = AtomicU64::new(0);
    let server = Scripted::start(move |request| {
        let tag = (TAG.0, TAG.1.to_owned());
        match &request.method[..] {
            "HEAD" if heads.fetch_add(1, Ordering::Relaxed) == 0 => Reply::Silent,
            "HEAD" => Reply::Respond(200, vec![tag], "x".repeat(FILE as usize)),
            _ => {
                let range = request.header("range").strip_prefix("bytes=").unwrap();
                let (first, last) = range.split_once('-').unwrap();
                let (first, last): (u64, u64) = (first.parse().unwrap(), last.parse().unwrap());
                let last = last.min(FILE - 1);
                let part = format!("bytes {first}-{last}/{FILE}");
                let body = "x".repeat(usize::try_from(last + 1 - first).unwrap());
                Reply::Respond(206, vec![("Content-Range", part), tag], body)
            }
        }
    })
    .await;
    let location = Location::parse("http://server/").unwrap();
    let url = Url::parse(&server.url).unwrap();
    let storage = HttpStorage::open_web(host(&server.url), location, url, true);
    let file = storage.open(&path("file")).await.unwrap();
    let mut blocks = file.read_at(Range::new(0, FILE));
    while let Some(block) = blocks.next().await {
        block.unwrap();
    }
    // The request timeout is a minute.
    let seen = tokio::time::timeout(Duration::from_secs(40), file.recheck()).await;
    assert_eq!(seen.unwrap().unwrap(), *file.identity());
    assert_eq!(server.requests("HEAD").len(), 2);
}

#[tokio::test]
async fn the_rest_of_a_stalled_part_is_requested_on_an_idle_lane() {
    const FILE: usize = 300 << 10;
    const STALLS_FROM: usize = 100 << 10;
    let content: String = (0..FILE).map(|n| char::from(b'a' + (n / 7 % 26) as u8)).collect();
    let stalled = AtomicUsize::new(0);
    let body = content.clone();
    let server = Scripted::start(move |request| {
        if request.method == "HEAD" {
            return Reply::Respond(200, vec![("ETag", "\"1\"".to_owned())], body.clone());
        }
        let range = request.header("range").strip_prefix("bytes=").unwrap_or("0-");
        let (first, last) = range.split_once('-').unwrap();
        let first: usize = first.parse().unwrap();
        let last = last.parse().unwrap_or(FILE).min(FILE - 1);
        let part = format!("bytes {first}-{last}/{FILE}");
        let headers = vec![("Content-Range", part), ("ETag", "\"1\"".to_owned())];
        let part = body[first..=last].to_owned();
        if first == STALLS_FROM && stalled.fetch_add(1, Ordering::Relaxed) == 0 {
            return Reply::Stall(206, headers, part, 10 << 10);
        }
        Reply::Respond(206, headers, part)
    })
    .await;
    let location = Location::parse("http://server/").unwrap();
    let url = Url::parse(&server.url).unwrap();
    let storage = HttpStorage::open_web(host(&server.url), location, url, true);
    storage.set_lanes(3);
    let file = storage.open(&path("file")).await.unwrap();
    let mut bytes = Vec::new();
    let wanted = Range::between(STALLS_FROM as u64, FILE as u64);
    let mut blocks = file.read_at(wanted);
    while let Some(block) = blocks.next().await {
        block.unwrap().pieces().iter().for_each(|piece| bytes.extend_from_slice(piece));
    }
    assert!(bytes == content.as_bytes()[STALLS_FROM..], "{} bytes", bytes.len());
    let requests = server.requests("GET");
    let starts = requests.iter().filter_map(|request| {
        request.header("range").strip_prefix("bytes=")?.split_once('-')?.0.parse::<usize>().ok()
    });
    let again = starts.filter(|start| *start > STALLS_FROM).collect::<Vec<_>>();
    assert!(!again.is_empty() && again[0] >= STALLS_FROM + (10 << 10), "{again:?}");
}

const HELLO: &str = "sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:";

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_digests_gets_one_request_for_them() {
    let server = Scripted::start(|request| match &request.method[..] {
        "HEAD" if request.path.ends_with("nothing") => Reply::status(404),
        "HEAD" => Reply::status(200),
        _ => usual(request),
    });
    let server = server.await;
    let storage = open(&server).await;
    let error = storage.digest(&path("nothing"), DigestKind::Sha256).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    for name in ["a", "b", "c"] {
        let found = storage.digest(&path(name), DigestKind::Sha256).await.unwrap();
        assert_eq!(found, None);
    }
    let heads: Vec<String> =
        server.requests("HEAD").into_iter().map(|request| request.path).collect();
    assert_eq!(heads, ["/dav/nothing", "/dav/a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn digests_of_encoded_or_malformed_responses_are_ignored() {
    let server = Scripted::start(|request| {
        if request.method != "HEAD" {
            return usual(request);
        }
        let mut headers = vec![("Repr-Digest", HELLO.to_owned())];
        match &request.path[..] {
            "/dav/encoded" => headers.push(("Content-Encoding", "gzip".to_owned())),
            "/dav/broken" => headers[0].1 = "sha-256=:AAAA:".to_owned(),
            _ => {}
        }
        assert_eq!(request.header("want-repr-digest"), "sha-256=10");
        Reply::Respond(200, headers, String::new())
    });
    let server = server.await;
    let storage = open(&server).await;
    let digest = async |name| storage.digest(&path(name), DigestKind::Sha256).await.unwrap();
    assert_eq!(digest("a").await, Some(Digest::of(DigestKind::Sha256, b"hello")));
    assert_eq!(digest("encoded").await, None);
    assert_eq!(digest("broken").await, None);
    assert!(digest("b").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unrequested_digest_is_part_of_the_entry() {
    let server = Scripted::start(|request| match &request.method[..] {
        "HEAD" => Reply::Respond(200, vec![("Repr-Digest", HELLO.to_owned())], String::new()),
        _ => usual(request),
    });
    let server = server.await;
    let location = Location::parse("http://server/").unwrap();
    let url = Url::parse(&server.url).unwrap();
    let storage = HttpStorage::open_web(host(&server.url), location, url, true);
    let entry = storage.stat(&path("a")).await.unwrap();
    assert_eq!(entry.digest, Some(Digest::of(DigestKind::Sha256, b"hello")));
    assert!(
        server.requests("HEAD").iter().all(|request| request.header("want-repr-digest").is_empty())
    );
}
