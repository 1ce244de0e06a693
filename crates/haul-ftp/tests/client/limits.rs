//! A vsftpd with limits.

use bytes::Bytes;
use futures_util::future::try_join_all;
use haul_ftp::FtpOptions;
use haul_storage::{CommitOptions, Metadata, RelPath, Storage, Timestamp};

use crate::vsftpd::{Tls, Vsftpd};
use crate::{host, opened};

fn options(modified: Option<Timestamp>) -> CommitOptions {
    let metadata = Metadata { modified, ..Metadata::default() };
    CommitOptions { metadata, replace: true, sync: false, expected: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_work_within_a_limit_of_connections_per_address() {
    let Some(server) = Vsftpd::start(Tls::None, &["max_per_ip=2"]) else { return };
    let (_journals, storage) = opened(&host(server.port(), FtpOptions::default())).await;
    storage.set_lanes(6);
    let commit = &options(None);
    let write = |n: u8| {
        let storage = &storage;
        async move {
            let path = RelPath::parse(format!("f{n}")).unwrap();
            storage.write_whole(&path, Bytes::from(vec![n; 10_000]), commit).await?;
            storage.read_whole(&path, 1 << 20).await
        }
    };
    // On a busy machine two lanes may finish everything before a third one is tried.
    for _ in 0..50 {
        let read = try_join_all((0..40).map(write)).await.unwrap();
        assert!(read.iter().zip(0..).all(|(whole, n)| whole.bytes.iter().all(|byte| *byte == n)));
        if storage.link().refused > 0 {
            break;
        }
    }
    let link = storage.link();
    assert!(link.refused > 0 && link.open <= 2, "{link:?}");
}

/// vsftpd counts a connection until it has noticed that its session has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consecutive_runs_connect_within_a_limit_of_one_connection() {
    let Some(server) = Vsftpd::start(Tls::None, &["max_per_ip=1"]) else { return };
    for _ in 0..10 {
        let host = host(server.port(), FtpOptions::default());
        assert!(host.resolve(b"/up").await.unwrap().kind.is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_refuses_to_set_times_loses_the_capability() {
    let Some(server) = Vsftpd::start(Tls::None, &["mdtm_write=NO"]) else { return };
    let (_journals, storage) = opened(&host(server.port(), FtpOptions::default())).await;
    assert!(storage.capabilities().times, "its greeting names vsftpd");
    let path = RelPath::parse("f").unwrap();
    let commit = options(Some(Timestamp { seconds: 1_000_000_000, nanos: 0 }));
    storage.write_whole(&path, Bytes::from_static(b"content"), &commit).await.unwrap();
    assert!(!storage.capabilities().times);
    assert_eq!(storage.stat(&path).await.unwrap().size, 7);
}
