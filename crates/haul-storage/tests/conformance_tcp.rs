//! The conformance suite on the example backend of `docs/backends.md`, over loopback.

#[path = "../examples/tcp_store/backend.rs"]
mod backend;
#[path = "../examples/tcp_store/toy/mod.rs"]
mod toy;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use backend::TcpStorage;
use bytes::Bytes;
use futures_util::StreamExt;
use haul_storage::{
    CommitOptions, CreateOptions, ErrorKind, Metadata, Range, RelPath, Retry, Storage, StorageExt,
    conformance,
};
use tokio::net::{TcpListener, TcpSocket};
use toy::client::{Client, Failure};
use toy::wire::{Op, Refusal, Request};
use toy::{server, wire};

#[tokio::test]
async fn the_example_conforms() {
    let address = server::start().await.unwrap();
    let storage = Arc::new(TcpStorage::new(address));
    conformance::run_all(storage.clone()).await;
    assert!(storage.list_sorted(&RelPath::root()).await.unwrap().is_empty());
}

#[test]
fn the_excerpts_in_the_documentation_match_the_example() {
    let page = include_str!("../../../docs/backends.md");
    let source = include_str!("../examples/tcp_store/backend.rs");
    // The suite's own example is compiled as a documentation test.
    let suite = include_str!("../src/conformance/mod.rs").replace("//! ", "");
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let code = plain(&(source.to_owned() + &suite));
    let excerpts: Vec<_> = page.split("```rust\n").skip(1).collect();
    assert!(excerpts.len() >= 4, "{}", excerpts.len());
    for excerpt in excerpts {
        let (excerpt, _) = excerpt.split_once("```").unwrap();
        assert!(code.contains(&plain(excerpt)), "not in the example:\n{excerpt}");
    }
}

#[test]
fn the_example_backend_has_fewer_than_300_lines_of_code() {
    let source = include_str!("../examples/tcp_store/backend.rs");
    let lines = source.lines().map(str::trim).filter(|line| !line.is_empty());
    let code = lines.filter(|line| !line.starts_with("//")).count();
    assert!(code < 300, "{code}");
}

#[tokio::test]
async fn a_missing_server_is_unreachable_and_retried_later() {
    // A socket that is bound and does not listen: no other program can take its port.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let storage = TcpStorage::new(socket.local_addr().unwrap());
    let error = storage.stat(&RelPath::root()).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unreachable, Retry::Later), "{error}");
    assert_eq!((storage.link().open, storage.link().refused), (0, 1));
}

#[tokio::test]
async fn a_lost_connection_is_reopened() {
    // A server that closes the first connection after the request instead of responding.
    let real = server::start().await.unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let storage = TcpStorage::new(listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        wire::receive(&mut first).await.unwrap();
        drop(first);
        let (mut second, _) = listener.accept().await.unwrap();
        let mut server = tokio::net::TcpStream::connect(real).await.unwrap();
        drop(tokio::io::copy_bidirectional(&mut second, &mut server).await);
    });
    let error = storage.stat(&RelPath::root()).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unreachable, Retry::Later), "{error}");
    assert!(storage.stat(&RelPath::root()).await.unwrap().is_dir());
    let link = storage.link();
    assert_eq!((link.open, link.refused), (1, 1));
    assert!(link.rtt.is_some() && link.connect.is_some());
}

#[tokio::test]
async fn a_part_does_not_outlive_its_client() {
    let address = server::start().await.unwrap();
    let (writing, reading) = (TcpStorage::new(address), Client::new(address));
    let path = RelPath::parse("file").unwrap();
    let writer = writing.create(&path, &CreateOptions::default()).await.unwrap();
    writer.write_at(0, Bytes::from_static(b"content").into()).await.unwrap();
    // The first content of a server has the id 1.
    let request = Request::new(Op::Read, b"file").number(1).number(0).number(7);
    assert_eq!(reading.request(&request).await.unwrap(), "content");
    drop((writer, writing));
    let gone = async {
        loop {
            if let Err(failure) = reading.request(&request).await {
                break failure;
            }
        }
    };
    let failure = tokio::time::timeout(Duration::from_secs(30), gone).await.unwrap();
    assert!(matches!(failure, Failure::Refused(Refusal::Gone)), "{failure}");
}

#[tokio::test]
async fn reading_a_removed_file_fails_with_changed() {
    let address = server::start().await.unwrap();
    let storage = TcpStorage::new(address);
    let path = RelPath::parse("file").unwrap();
    let how = CommitOptions {
        metadata: Metadata::default(),
        replace: false,
        sync: false,
        expected: None,
    };
    storage.write_whole(&path, Bytes::from_static(b"old"), &how).await.unwrap();
    let reader = storage.open(&path).await.unwrap();
    storage.remove(&path).await.unwrap();
    let error = reader.read_at(Range::new(0, 3)).next().await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Changed, Retry::FromStart), "{error}");
}
