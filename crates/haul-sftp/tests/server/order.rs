//! Pipelined requests take effect in the order in which they were sent.

use std::fs;

use bytes::Bytes;
use haul_sftp::codec::{Attrs, Extended, OpenFlags, Request, Response, Status};
use haul_sftp::server::ShareOptions;

use crate::pipe::{Client, NEW, ServedDir, bytes, open, posix_rename, write};

#[tokio::test]
async fn pipelined_requests_on_one_file_are_processed_in_order() {
    let dir = ServedDir::new();
    let mut client = dir.session().await;
    for round in 0..100 {
        let handle = client.open("part", NEW).await;
        let mut sent = Vec::new();
        for n in 0..20u8 {
            // Each overwrites half of the previous one, so that any other order shows.
            sent.push(client.send(&write(&handle, u64::from(n) * 500, vec![n; 1000])));
        }
        let times = Attrs { times: Some((1, round)), size: Some(9_999), ..Attrs::default() };
        sent.push(client.send(&Request::Fsetstat(handle.clone(), times)));
        sent.push(client.send(&Request::Extended(Extended::Fsync(handle.clone()))));
        sent.push(client.send(&Request::Close(handle)));
        sent.push(client.send(&posix_rename("part", "whole")));
        let stat = client.send(&Request::Stat(bytes("whole")));
        for _ in &sent {
            let (id, response) = client.response().await.unwrap();
            assert!(sent.contains(&id));
            assert!(
                matches!(response, Response::Status { status: Status::Ok, .. }),
                "{response:?}"
            );
        }
        let (id, Response::Attrs(attrs)) = client.response().await.unwrap() else {
            panic!("no attributes")
        };
        assert_eq!((id, attrs.size, attrs.times), (stat, Some(9_999), Some((1, round))));
        let content = fs::read(dir.path("whole")).unwrap();
        let expected: Vec<u8> = (0..9_999).map(|at| (at / 500).min(19) as u8).collect();
        assert!(content == expected, "round {round}");
    }
}

#[tokio::test]
async fn a_read_sent_behind_a_write_returns_its_data() {
    let dir = ServedDir::new();
    let mut client = dir.session().await;
    let handle = client.open("file", NEW.and(OpenFlags::READ)).await;
    for n in 0..200u8 {
        let written = client.send(&write(&handle, 0, vec![n; 5_000]));
        let read = Request::Read { handle: handle.clone(), offset: 4_000, length: 5_000 };
        let read = client.send(&read);
        let mut seen = None;
        for _ in 0..2 {
            match client.response().await.unwrap() {
                (id, Response::Data(data)) if id == read => seen = Some(data.into_bytes()),
                (id, Response::Status { status: Status::Ok, .. }) => assert_eq!(id, written),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(seen.unwrap(), vec![n; 1_000]);
    }
}

#[tokio::test]
async fn requests_behind_the_close_of_their_handle_fail() {
    let dir = ServedDir::new();
    let mut client = dir.session().await;
    let handle = client.open("file", NEW).await;
    let close = client.send(&Request::Close(handle.clone()));
    let late = client.send(&write(&handle, 0, "late"));
    let again = client.send(&Request::Close(handle));
    for _ in 0..3 {
        let (id, Response::Status { status, .. }) = client.response().await.unwrap() else {
            panic!("no status")
        };
        let expected = if id == close { Status::Ok } else { Status::Failure };
        assert_eq!(status, expected, "{id} of {close}, {late}, {again}");
    }
    assert_eq!(fs::read(dir.path("file")).unwrap(), b"");
}

#[tokio::test]
async fn requests_received_before_the_stream_ends_are_processed() {
    let dir = ServedDir::new();
    let mut client = dir.session().await;
    let handle = client.open("file", NEW).await;
    for n in 0..64 {
        client.send(&write(&handle, n * 200_000, Bytes::from(vec![7; 200_000])));
    }
    client.send(&Request::Close(handle));
    client.send(&posix_rename("file", "done"));
    client.close();
    while client.response().await.is_some() {}
    client.task.await.unwrap().unwrap();
    assert_eq!(fs::metadata(dir.path("done")).unwrap().len(), 64 * 200_000);
}

#[tokio::test]
async fn reads_return_all_their_bytes_under_their_own_ids() {
    let dir = ServedDir::new();
    let content: Vec<u8> =
        (0..10_000_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(dir.path("file"), &content).unwrap();
    let mut client = dir.session().await;
    let handle = client.open("file", OpenFlags::READ).await;
    let step = 100_000usize;
    let mut wanted = std::collections::HashMap::new();
    // The last one begins at the end of the file.
    for offset in (0..=content.len()).step_by(step) {
        let read = Request::Read { handle: handle.clone(), offset: offset as u64, length: 100_000 };
        wanted.insert(client.send(&read), offset);
    }
    let mut ends = 0;
    while !wanted.is_empty() {
        let (id, response) = client.response().await.unwrap();
        let offset = wanted.remove(&id).unwrap();
        match response {
            Response::Data(data) => assert!(data.into_bytes() == content[offset..offset + step]),
            Response::Status { status: Status::Eof, .. } => {
                ends += 1;
                assert_eq!(offset, content.len());
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(ends, 1);
}

#[tokio::test]
async fn responses_to_reads_of_one_handle_arrive_in_order() {
    // OpenSSH's scp (9.2) silently truncates a file at the first response that arrives out of order.
    let dir = ServedDir::new();
    fs::write(dir.path("file"), vec![1; 300_000]).unwrap();
    let mut client = dir.session().await;
    let handle = client.open("file", OpenFlags::READ).await;
    for _ in 0..100 {
        // A long read, a short one, and one at the end of the file.
        let reads = [(0, 261_120), (0, 1), (300_000, 1)];
        let sent = reads.map(|(offset, length)| {
            client.send(&Request::Read { handle: handle.clone(), offset, length })
        });
        let mut received = Vec::new();
        for _ in sent {
            received.push(client.response().await.unwrap().0);
        }
        assert_eq!(received, sent);
    }
}

/// With a limit of one handle, which the OPEN would exceed if the closed one still counted.
#[tokio::test]
async fn an_open_behind_a_close_finds_the_handle_free() {
    let dir = ServedDir::new();
    fs::write(dir.path("file"), vec![1; 300_000]).unwrap();
    let options = ShareOptions { handles: 1, ..ShareOptions::default() };
    let mut client = Client::begin(&dir.share(options)).await;
    let mut handle = client.open("file", OpenFlags::READ).await;
    for _ in 0..100 {
        for n in 0..10 {
            let (handle, offset) = (handle.clone(), n * 30_000);
            client.send(&Request::Read { handle, offset, length: 30_000 });
        }
        client.send(&Request::Close(handle.clone()));
        let opened = client.send(&open("file", OpenFlags::READ));
        let mut next = None;
        for _ in 0..12 {
            match client.response().await.unwrap() {
                (id, Response::Handle(handle)) if id == opened => next = Some(handle),
                (_, Response::Data(_) | Response::Status { status: Status::Ok, .. }) => {}
                other => panic!("{other:?}"),
            }
        }
        handle = next.unwrap();
    }
}
