//! A [`Pipe`] against a server in the test: when it closes, how much it buffers, and streamed request bodies.

use bytes::Bytes;
use futures_util::future::join;
use haul_storage::BufferPool;
use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;

use super::super::connect::Connector;
use super::super::options::HttpOptions;
use super::super::payload::Stream;
use super::super::response::Owner;
use super::*;
use crate::parse::{Origin, WebScheme};

const LONG: Duration = Duration::from_secs(10);

async fn pipe() -> (Pipe, TcpStream, Url) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let origin = Origin::new(WebScheme::Http, "127.0.0.1", Some(port)).unwrap();
    let connector = Connector::new(&HttpOptions::default());
    let (connected, accepted) = join(connector.reach(&origin, |_| {}), listener.accept()).await;
    let (buffers, changed) = (BufferPool::new(4096, 1), Arc::new(Notify::new()));
    let around = Surroundings { buffers, changed, host: connector.host(&origin) };
    let pipe = Pipe::start(connected.unwrap(), around, &Handle::current());
    (pipe, accepted.unwrap().0, Url::new(origin, b"/file", None).unwrap())
}

#[tokio::test]
async fn a_lane_is_closed_when_it_is_dropped() {
    let (pipe, mut server, _) = pipe().await;
    drop(pipe);
    let read = timeout(LONG, server.read(&mut [0; 16])).await;
    assert_eq!(read.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn a_dropped_lane_closes_after_its_last_response() {
    let (pipe, mut server, url) = pipe().await;
    let request = Request::put("/file").header("content-length", "5").body(());
    let body = Block::from(Bytes::from_static(b"hello"));
    let part = pipe.request(&request.unwrap(), &url, 0, &body);
    drop(pipe);
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\nhello") {
        assert_ne!(timeout(LONG, server.read_buf(&mut seen)).await.unwrap().unwrap(), 0);
    }
    let too_soon = timeout(Duration::from_millis(100), server.read(&mut [0; 16])).await;
    assert!(too_soon.is_err(), "the lane was closed before the response arrived");
    server.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    assert_eq!(part.head().await.unwrap().status, StatusCode::NO_CONTENT);
    assert_eq!(timeout(LONG, server.read(&mut [0; 16])).await.unwrap().unwrap(), 0);
}

async fn ends(pipe: &Pipe) {
    let ended = timeout(LONG, async {
        while !pipe.is_ended() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(ended.await.is_ok(), "the lane is still open");
}

#[tokio::test]
async fn requests_on_an_abandoned_lane_fail_at_once() {
    let (pipe, mut server, url) = pipe().await;
    let request = Request::get("/file").body(()).unwrap();
    let parts: Vec<_> = (0..3).map(|_| pipe.request(&request, &url, 100, &Block::new())).collect();
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        assert_ne!(timeout(LONG, server.read_buf(&mut seen)).await.unwrap().unwrap(), 0);
    }
    pipe.abandon();
    for part in parts {
        let broken = timeout(LONG, part.head()).await.unwrap().unwrap_err();
        assert_eq!(broken, Broken::Lost { is_sent: true });
    }
    assert!(pipe.is_ended());
    assert_eq!(pipe.outstanding(), 0);
}

/// Such bytes used to be taken for the response to the next request, which shifted all later ones.
#[tokio::test]
async fn unsolicited_bytes_close_the_lane() {
    let (pipe, mut server, _) = pipe().await;
    server.write_all(b"HTTP/1.1 408 Too late\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    ends(&pipe).await;
}

/// A task that requested a part and gets the whole file may read it late, or never.
#[tokio::test]
async fn a_response_much_longer_than_requested_is_not_buffered() {
    let (pipe, mut server, url) = pipe().await;
    let request = Request::get("/file").body(()).unwrap();
    let part = pipe.request(&request, &url, 100, &Block::new());
    server.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4000000000\r\n\r\n").await.unwrap();
    ends(&pipe).await;
    let mut response = part.head().await.unwrap();
    assert_eq!(response.status, StatusCode::OK);
    assert!(response.next("read").await.is_err(), "the body is not delivered");
}

/// The owner of a connection in a test; reports whether it can be reused.
#[derive(Debug)]
struct Test(UnboundedSender<bool>);

impl Owner for Test {
    fn hold(&self) {}

    fn done(&self, is_reusable: bool, _keep_alive: Option<Duration>) {
        // The test may have dropped the receiver.
        let _ = self.0.send(is_reusable);
    }
}

/// Sends a request that has the connection to itself; the receiver gets whether it can be reused.
fn alone(
    pipe: &Pipe,
    url: &Url,
    stream: Option<Stream>,
) -> (Pending, mpsc::UnboundedReceiver<bool>) {
    let (sender, done) = unbounded_channel();
    let request = Request::put("/file").header("transfer-encoding", "chunked").body(()).unwrap();
    let alone = Alone { owner: Arc::new(Test(sender)), limit: None, stream };
    (pipe.request_alone(&request, url, &Block::new(), alone), done)
}

async fn read_until(server: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut seen = Vec::new();
    while !seen.ends_with(end) {
        assert_ne!(timeout(LONG, server.read_buf(&mut seen)).await.unwrap().unwrap(), 0);
    }
    seen
}

#[tokio::test]
async fn a_body_is_read_ahead_of_its_consumer_only_up_to_the_window() {
    const SENT: usize = 64 << 20;
    let (pipe, mut server, url) = pipe().await;
    let (pending, mut done) = alone(&pipe, &url, None);
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    server.write_all(head.as_bytes()).await.unwrap();
    let mut response = pending.head().await.unwrap();
    let sending = tokio::spawn(async move {
        for chunk in vec![7; SENT].chunks(50_000) {
            let line = format!("{:x}\r\n", chunk.len());
            server.write_all(line.as_bytes()).await.unwrap();
            server.write_all(chunk).await.unwrap();
            server.write_all(b"\r\n").await.unwrap();
        }
        server.write_all(b"0\r\n\r\n").await.unwrap();
        server
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    // Bytes in the socket buffers do not count.
    let waiting = pipe.arrived();
    assert!((512 << 10..2 << 20).contains(&waiting), "{waiting} bytes wait");
    assert!(!sending.is_finished() && done.try_recv().is_err());
    let whole = response.whole("read", SENT).await.unwrap();
    assert!(whole.len() == SENT && whole.iter().all(|byte| *byte == 7));
    assert!(done.recv().await.unwrap(), "the connection can be used again");
    drop(sending.await.unwrap());
}

#[tokio::test]
async fn a_stream_is_sent_in_chunks_and_its_connection_is_reusable() {
    let (pipe, mut server, url) = pipe().await;
    let (sender, pieces) = mpsc::channel(2);
    let (pending, mut done) = alone(&pipe, &url, Some(Stream::new(pieces, None)));
    for piece in ["hello", "world", ""] {
        sender.send(Bytes::from_static(piece.as_bytes())).await.unwrap();
    }
    read_until(&mut server, b"\r\n\r\n5\r\nhello\r\n5\r\nworld\r\n0\r\n\r\n").await;
    server.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    assert_eq!(pending.head().await.unwrap().status, StatusCode::CREATED);
    assert!(done.recv().await.unwrap() && !pipe.is_ended());
}

#[tokio::test]
async fn an_abandoned_stream_closes_its_connection() {
    let (pipe, mut server, url) = pipe().await;
    let (sender, pieces) = mpsc::channel(2);
    let (pending, _done) = alone(&pipe, &url, Some(Stream::new(pieces, Some(10))));
    sender.send(Bytes::from_static(b"hello")).await.unwrap();
    read_until(&mut server, b"hello").await;
    drop(sender);
    assert_eq!(timeout(LONG, server.read(&mut [0; 16])).await.unwrap().unwrap(), 0);
    assert!(timeout(LONG, pending.head()).await.unwrap().is_err());
}

#[tokio::test]
async fn a_response_before_the_end_of_its_request_closes_the_connection() {
    let (pipe, mut server, url) = pipe().await;
    let (sender, pieces) = mpsc::channel(2);
    let (pending, mut done) = alone(&pipe, &url, Some(Stream::new(pieces, Some(10))));
    sender.send(Bytes::from_static(b"hello")).await.unwrap();
    read_until(&mut server, b"hello").await;
    server.write_all(b"HTTP/1.1 413 Too large\r\ncontent-length: 3\r\n\r\nno!").await.unwrap();
    let mut response = timeout(LONG, pending.head()).await.unwrap().unwrap();
    assert_eq!(response.whole("read", 3).await.unwrap(), b"no!");
    assert!(!done.recv().await.unwrap());
    ends(&pipe).await;
    timeout(LONG, sender.closed()).await.unwrap();
}

/// The sending task used to stay blocked as long as the server read nothing.
#[tokio::test]
async fn a_cancelled_request_closes_its_connection_even_if_the_server_reads_nothing() {
    let (pipe, _server, url) = pipe().await;
    let (sender, pieces) = mpsc::channel(2);
    let (pending, _done) = alone(&pipe, &url, Some(Stream::new(pieces, None)));
    let piece = Bytes::from(vec![0; 1 << 20]);
    while timeout(Duration::from_millis(300), sender.send(piece.clone())).await.is_ok() {}
    drop(pending);
    ends(&pipe).await;
    timeout(LONG, sender.closed()).await.unwrap();
}

#[tokio::test]
async fn an_unread_body_is_skipped_or_closes_the_connection() {
    for (fields, body, is_reusable) in [
        ("content-length: 5", "hello", true),
        ("transfer-encoding: chunked", "5\r\nhello\r\n0\r\n\r\n", true),
        ("content-length: 5000000", "hello", false),
        ("content-length: 5", "hel", false),
        ("transfer-encoding: chunked", "", false),
        ("x: y", "hello", false),
    ] {
        let (pipe, mut server, url) = pipe().await;
        let (pending, mut done) = alone(&pipe, &url, None);
        let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
        server.write_all(head.as_bytes()).await.unwrap();
        drop(pending.head().await.unwrap());
        server.write_all(body.as_bytes()).await.unwrap();
        let done = timeout(LONG, done.recv()).await.unwrap().unwrap();
        assert_eq!(done, is_reusable, "{fields} {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_body_arrives_intact_at_any_reading_speed() {
    const SENT: usize = (48 << 20) + 12_345;
    let sent: Bytes = (0..SENT).map(|at| (at / 251) as u8).collect::<Vec<_>>().into();
    for pause in [Duration::ZERO, Duration::from_millis(2)] {
        let (pipe, mut server, url) = pipe().await;
        let (pending, mut done) = alone(&pipe, &url, None);
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {SENT}\r\n\r\n");
        let body = sent.clone();
        read_until(&mut server, b"\r\n\r\n").await;
        let sending = tokio::spawn(async move {
            server.write_all(head.as_bytes()).await.unwrap();
            server.write_all(&body).await.unwrap();
            server
        });
        let mut response = pending.head().await.unwrap();
        let mut received = 0;
        while let Some(bytes) = response.next("read").await.unwrap() {
            assert!(sent[received..].starts_with(&bytes), "other bytes at {received}");
            received += bytes.len();
            let waiting = pipe.arrived() - received as u64;
            assert!(waiting <= 1 << 20, "{waiting} bytes wait");
            tokio::time::sleep(pause).await;
        }
        assert_eq!(received, SENT);
        assert!(done.recv().await.unwrap(), "the connection can be used again");
        drop(sending.await.unwrap());
    }
}
