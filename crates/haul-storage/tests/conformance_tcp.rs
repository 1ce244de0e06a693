//! The conformance suite on the example backend of `docs/backends.md`, over loopback.

#[path = "../examples/tcp_store/client.rs"]
mod client;
#[path = "../examples/tcp_store/file.rs"]
mod file;
#[path = "../examples/tcp_store/server.rs"]
mod server;
#[path = "../examples/tcp_store/storage.rs"]
mod storage;
#[path = "../examples/tcp_store/wire.rs"]
mod wire;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::Client;
use file::Download;
use futures_util::StreamExt;
use haul_storage::{
    CreateOptions, Entry, EntryKind, ErrorKind, Range, ReadAt, RelPath, Retry, Storage, StorageExt,
    conformance,
};
use storage::TcpStorage;
use tokio::net::TcpListener;

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
    let sources = [
        include_str!("../examples/tcp_store/client.rs"),
        include_str!("../examples/tcp_store/storage.rs"),
    ];
    // The suite's own example is compiled as a documentation test.
    let suite = include_str!("../src/conformance/mod.rs").replace("//! ", "");
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let code = plain(&(sources.concat() + &suite));
    let excerpts: Vec<_> = page.split("```rust\n").skip(1).collect();
    assert!(excerpts.len() >= 4, "{}", excerpts.len());
    for excerpt in excerpts {
        let (excerpt, _) = excerpt.split_once("```").unwrap();
        assert!(code.contains(&plain(excerpt)), "not in the example:\n{excerpt}");
    }
}

#[tokio::test]
async fn a_missing_server_is_unreachable_and_retried_later() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    drop(listener);
    let storage = TcpStorage::new(address);
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
    let (writing, reading) = (TcpStorage::new(address), Arc::new(Client::new(address)));
    let path = RelPath::parse("file").unwrap();
    let writer = writing.create(&path, &CreateOptions::default()).await.unwrap();
    writer.write_at(0, Bytes::from_static(b"content").into()).await.unwrap();
    // The first content of a server has the id 1.
    let part = Download::new(&reading, Entry::new(path, EntryKind::File, 7), 1);
    let block = part.read_at(Range::new(0, 7)).next().await.unwrap().unwrap();
    assert_eq!(block.into_bytes(), "content");
    drop((writer, writing));
    let gone = async {
        loop {
            if let Err(error) = part.read_at(Range::new(0, 7)).next().await.unwrap() {
                break error;
            }
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(30), gone).await.unwrap();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Changed, Retry::FromStart), "{error}");
}
