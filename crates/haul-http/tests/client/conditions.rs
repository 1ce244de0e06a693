//! Uploads that may replace only one version.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use haul_http::client::HttpStorage;
use haul_storage::{
    Block, CommitOptions, CreateOptions, ErrorKind, Identity, Result, Retry, Storage,
};

use super::scripted::{Reply, Request, Scripted};
use super::{path, replacing, storage};

const CONTENT: &[u8] = b"from here";

/// A server that evaluates conditions, with `file` and a part file of the length of [`CONTENT`]. `tag` is the current
/// entity tag, and `refuses` whether a request is refused with 412.
async fn serve(
    tag: impl Fn() -> String + Send + Sync + 'static,
    refuses: impl Fn(&Request) -> bool + Send + Sync + 'static,
) -> Scripted {
    Scripted::start(move |request| match (&request.method[..], &request.path[..]) {
        ("OPTIONS", _) => {
            let headers = vec![("DAV", "1, 2".to_owned()), ("Server", "haul".to_owned())];
            Reply::Respond(200, headers, String::new())
        }
        ("PROPFIND", "/dav/") => Reply::listing(&[("/dav/", None)]),
        ("PROPFIND", "/dav/file") => Reply::Respond(207, Vec::new(), described(&tag())),
        ("PROPFIND", part) => Reply::listing(&[(part, Some(CONTENT.len() as u64))]),
        ("PUT" | "MOVE", _) if refuses(request) => Reply::status(412),
        ("PUT" | "MOVE", _) => Reply::status(201),
        ("DELETE", _) => Reply::status(204),
        _ => Reply::status(405),
    })
    .await
}

fn described(tag: &str) -> String {
    format!(
        "<D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>/dav/file</D:href><D:propstat><D:prop>\
         <D:resourcetype/><D:getcontentlength>3</D:getcontentlength><D:getetag>{tag}</D:getetag>\
         </D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>"
    )
}

fn has_condition(request: &Request) -> bool {
    !request.header("if-match").is_empty() || !request.header("if").is_empty()
}

async fn opened(server: &Scripted) -> (Arc<HttpStorage>, Identity) {
    let storage = storage(&server.url, &tempfile::tempdir().unwrap()).await;
    assert!(storage.capabilities().conditional_commits);
    let expected = storage.stat(&path("file")).await.unwrap().identity();
    (storage, expected)
}

fn only(expected: &Identity) -> CommitOptions {
    CommitOptions { expected: Some(expected.clone()), ..replacing() }
}

/// Writes by a PUT.
async fn put(storage: &HttpStorage, options: &CommitOptions) -> Result<()> {
    storage.write_whole(&path("file"), Bytes::from_static(CONTENT), options).await
}

/// Writes by a part file and a MOVE.
async fn put_and_move(storage: &HttpStorage, options: &CommitOptions) -> Result<()> {
    let size = CONTENT.len() as u64;
    let create = CreateOptions { size: Some(size), ..CreateOptions::default() };
    let writer = storage.create(&path("file"), &create).await?;
    writer.write_at(0, Block::from(Bytes::from_static(CONTENT))).await?;
    let committed = writer.commit(size, options).await;
    if committed.is_err() {
        writer.abort(false).await?;
    }
    committed
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_appears_after_the_check_is_not_replaced() {
    let version = Arc::new(AtomicUsize::new(1));
    let (shown, changed) = (Arc::clone(&version), Arc::clone(&version));
    let tag = move || format!("\"{}\"", shown.load(Ordering::SeqCst));
    // Another client replaces the file just before the request arrives.
    let server = serve(tag, move |request| {
        let refuses = has_condition(request);
        changed.fetch_add(usize::from(refuses), Ordering::SeqCst);
        refuses
    });
    let server = server.await;
    let (storage, expected) = opened(&server).await;
    let errors = [
        put(&storage, &only(&expected)).await.unwrap_err(),
        put_and_move(&storage, &only(&expected)).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Changed, Retry::Never), "{error}");
    }
    let puts = server.requests("PUT");
    assert_eq!((puts.len(), puts[0].header("if-match")), (2, "\"1\""));
    assert!(!has_condition(&puts[1]), "the part file");
    let moves = server.requests("MOVE");
    let condition = format!("<{}file> ([\"2\"])", server.url);
    assert_eq!((moves.len(), moves[0].header("if")), (1, &*condition));
    assert_eq!(moves[0].header("overwrite"), "T");
}

/// Otherwise no file could be replaced on such a server.
#[tokio::test(flavor = "multi_thread")]
async fn a_condition_that_the_server_misjudges_is_dropped() {
    let server = serve(|| "\"1\"".to_owned(), has_condition).await;
    let (storage, expected) = opened(&server).await;
    put(&storage, &only(&expected)).await.unwrap();
    let puts = server.requests("PUT");
    assert!(has_condition(&puts[0]) && !has_condition(puts.last().unwrap()));
    put_and_move(&storage, &only(&expected)).await.unwrap();
    let moves = server.requests("MOVE");
    assert_eq!(moves.iter().map(has_condition).collect::<Vec<_>>(), [true, false]);
    assert_eq!(moves[1].header("overwrite"), "T");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_weak_tag_is_no_condition() {
    let server = serve(|| "W/\"1\"".to_owned(), has_condition).await;
    let (storage, expected) = opened(&server).await;
    put(&storage, &only(&expected)).await.unwrap();
    put_and_move(&storage, &only(&expected)).await.unwrap();
    assert!(!server.requests("PUT").iter().any(has_condition));
    assert!(!server.requests("MOVE").iter().any(has_condition));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_is_noticed_before_anything_is_sent() {
    let server = serve(|| "\"1\"".to_owned(), |_| false).await;
    let (storage, mut expected) = opened(&server).await;
    expected.size += 1;
    let error = put(&storage, &only(&expected)).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Changed, Retry::Never));
    assert!(server.requests("PUT").is_empty());
}
