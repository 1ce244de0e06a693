//! Requests that the server has not begun to process when their client vanishes (is killed).

use std::fs;
use std::time::Duration;

use haul_sftp::codec::{Extended, OpenFlags, Request};
use haul_sftp::server::ShareOptions;
use tokio::time::timeout;

use crate::pipe::{Client, NEW, ServedDir, bytes, open, posix_rename, write};

/// Waits until a client's session has ended.
async fn ended(client: Client) {
    timeout(Duration::from_secs(60), client.task).await.unwrap().unwrap().unwrap();
}

/// Regression: a part file was created after the next run of the client had finished the file.
#[tokio::test]
async fn requests_that_a_vanished_client_has_queued_are_dropped() {
    let dir = ServedDir::new();
    fs::write(dir.path("there"), "old").unwrap();
    let mut client = dir.session().await;
    let handle = client.open("file", NEW).await;
    client.send(&write(&handle, 0, "short"));
    client.send(&write(&handle, 5, vec![7; 200_000]));
    client.send(&Request::Close(handle));
    client.send(&posix_rename("file", "done"));
    client.send(&Request::Remove(bytes("there")));
    client.send(&open(".other.haul-part", NEW.and(OpenFlags::EXCLUSIVE)));
    // The server's task has not run since the first of these was sent.
    client.disconnect();
    ended(client).await;
    assert_eq!(fs::read(dir.path("file")).unwrap(), b"");
    assert_eq!(fs::read(dir.path("there")).unwrap(), b"old");
    assert!(!dir.path("done").exists() && !dir.path(".other.haul-part").exists());
}

#[tokio::test]
async fn a_session_ends_although_its_vanished_client_reads_no_responses() {
    let dir = ServedDir::new();
    fs::write(dir.path("file"), vec![1; 300_000]).unwrap();
    let mut client = dir.session().await;
    let handle = client.open("file", OpenFlags::READ.and(OpenFlags::WRITE)).await;
    // More than the budget for responses.
    for _ in 0..100 {
        client.send(&Request::Read { handle: handle.clone(), offset: 0, length: 261_120 });
    }
    client.send(&write(&handle, 0, "late"));
    while client.unreceived() < 16 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    client.disconnect();
    // The transport ends the channel a little later.
    client.close();
    ended(client).await;
    assert_eq!(fs::read(dir.path("file")).unwrap()[..4], [1; 4]);
}

/// The limit is one handle, for which the second OPEN waits.
#[tokio::test]
async fn an_open_that_waits_for_a_handle_ends_with_its_vanished_client() {
    let dir = ServedDir::new();
    fs::write(dir.path("file"), vec![1; 300_000]).unwrap();
    let options = ShareOptions { handles: 1, ..ShareOptions::default() };
    let mut client = Client::begin(&dir.share(options)).await;
    let handle = client.open("file", OpenFlags::READ).await;
    client.send(&Request::Read { handle: handle.clone(), offset: 0, length: 261_120 });
    client.send(&Request::Close(handle));
    client.send(&open("file", OpenFlags::READ));
    tokio::task::yield_now().await;
    client.disconnect();
    client.close();
    ended(client).await;
}

#[tokio::test]
async fn a_copy_requested_by_a_vanished_client_does_not_begin() {
    let dir = ServedDir::new();
    fs::write(dir.path("a"), "content").unwrap();
    let mut client = dir.session().await;
    let from = client.open("a", OpenFlags::READ).await;
    let to = client.open("b", NEW).await;
    let data = Extended::CopyData { from, from_offset: 0, length: 0, to, to_offset: 0 };
    client.send(&Request::Extended(data));
    client.disconnect();
    ended(client).await;
    assert_eq!(fs::read(dir.path("b")).unwrap(), b"");
}
