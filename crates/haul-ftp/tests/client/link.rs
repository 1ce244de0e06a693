//! Link status: the RTTs that a host reports.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use haul_ftp::FtpOptions;
use haul_storage::{Block, CreateOptions, Range, RelPath, Storage};

use crate::scripted::{Script, Scripted};
use crate::{host, opened};

/// Longer than the time for which an RTT sample counts as recent.
const SILENT: Duration = Duration::from_millis(700);

/// Formerly, only the control connection was measured, which is idle during a transfer, so that growing
/// RTTs were noticed only when the next range began.
#[tokio::test]
async fn the_rtt_is_that_of_the_data_connection_during_a_download() {
    let script = Script { pause: Duration::from_millis(2), ..Script::default() };
    let server = Scripted::start(script).await;
    server.put("/up/f", &vec![7; 100_000_000]);
    let host = host(server.port(), FtpOptions::default());
    let (_journals, storage) = opened(&host).await;
    let file = storage.open(&RelPath::parse("f").unwrap()).await.unwrap();
    let mut blocks = file.read_at(Range::new(0, 100_000_000));
    blocks.next().await.unwrap().unwrap();
    let began = Instant::now();
    while began.elapsed() < SILENT {
        blocks.next().await.unwrap().unwrap();
    }
    let link = host.link();
    assert!(link.queueing.is_some() && link.rtt.is_some(), "{link:?}");
}

#[tokio::test]
async fn the_rtt_is_that_of_the_data_connection_during_an_upload() {
    let server = Scripted::start(Script::default()).await;
    let host = host(server.port(), FtpOptions::default());
    let (_journals, storage) = opened(&host).await;
    let path = RelPath::parse("f").unwrap();
    let file = storage.create(&path, &CreateOptions::default()).await.unwrap();
    let mut at = 0;
    let began = Instant::now();
    while began.elapsed() < SILENT {
        let block = Block::from(Bytes::from(vec![7; 10_000]));
        file.write_at(at, block).await.unwrap();
        at += 10_000;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let link = host.link();
    assert!(link.queueing.is_some() && link.rtt.is_some(), "{link:?}");
}
