//! The client against OpenSSH's sftp-server, in what it can do and in what it is made to refuse; and
//! over SSH against the servers that people run.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(clippy::print_stderr, reason = "a skipped test says so, and a failed one shows a log")]

mod over_ssh;
#[path = "../support/pipe.rs"]
mod pipe;
#[path = "../support/sshd.rs"]
#[expect(dead_code, reason = "the tests of SSH and of the program use the rest")]
mod sshd;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use haul_sftp::transport::Dial;
use haul_sftp::{SftpHost, SftpStorage};
use haul_storage::conformance;
use haul_storage::{
    Block, CommitOptions, CreateOptions, Location, Metadata, Range, RelPath, Storage, Writes,
};
use pipe::SftpServerProcess;
use tempfile::TempDir;
use tokio::runtime::Handle;

async fn storage(server: SftpServerProcess) -> ([TempDir; 2], Arc<SftpStorage>) {
    let [dir, journals] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let storage = opened(server, dir.path().as_os_str().as_encoded_bytes(), &journals).await;
    ([dir, journals], storage)
}

/// The directory `path` of a server as a storage, with its journals in a directory of this machine.
async fn opened(dial: impl Dial + 'static, path: &[u8], journals: &TempDir) -> Arc<SftpStorage> {
    let host = SftpHost::new(Arc::new(dial), Handle::current());
    let resolved = host.resolve(path).await.unwrap();
    let location = Location::parse("sftp://sftp-server/").unwrap();
    let place = Some(journals.path().to_owned());
    SftpStorage::open(host, location, resolved.path, place).await.unwrap()
}

async fn conforms(server: SftpServerProcess) {
    let ([dir, _journals], storage) = storage(server).await;
    storage.set_lanes(3);
    conformance::run_all(storage).await;
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn it_conforms_on_openssh() {
    conforms(SftpServerProcess { server: "SSH-2.0-OpenSSH_9.2", ..SftpServerProcess::default() })
        .await;
}

#[tokio::test]
async fn it_conforms_on_a_server_of_which_nothing_is_known() {
    conforms(SftpServerProcess::default()).await;
}

#[tokio::test]
async fn it_conforms_without_extensions() {
    let refuse = "posix-rename,statvfs,fstatvfs,hardlink,fsync,lsetstat,limits,expand-path,copy-data,home-directory,users-groups-by-id";
    conforms(SftpServerProcess { refuse, ..SftpServerProcess::default() }).await;
}

#[tokio::test]
async fn it_conforms_on_a_server_that_has_few_handles() {
    for descriptors in [5, 6] {
        let descriptors = Some(descriptors);
        conforms(SftpServerProcess { descriptors, ..SftpServerProcess::default() }).await;
    }
}

#[tokio::test]
async fn it_conforms_on_a_server_whose_name_says_that_it_takes_writes_in_order() {
    let server =
        SftpServerProcess { server: "SSH-2.0-AWS_SFTP_1.1", ..SftpServerProcess::default() };
    let (_dirs, storage) = storage(server).await;
    assert_eq!(storage.capabilities().writes, Writes::InOrder);
    assert!(!storage.capabilities().resume);
    conformance::run_all(storage).await;
}

#[tokio::test]
async fn a_change_is_seen_on_a_lane_that_has_opened_the_file_early() {
    let openssh =
        SftpServerProcess { server: "SSH-2.0-OpenSSH_9.2", ..SftpServerProcess::default() };
    let ([dir, _journals], storage) = storage(openssh).await;
    std::fs::write(dir.path().join("f"), vec![1; 4 << 20]).unwrap();
    let file = storage.open(&RelPath::parse("f").unwrap()).await.unwrap();
    // The first lane has much to do, so the second one, which was told to open the file, is asked.
    let mut blocks = file.read_at(Range::new(0, 4 << 20));
    blocks.next().await.unwrap().unwrap();
    storage.set_lanes(2);
    while storage.link().open < 2 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    std::fs::write(dir.path().join("f"), b"other").unwrap();
    assert_ne!(file.recheck().await.unwrap(), *file.identity());
}

#[tokio::test]
async fn a_file_that_is_written_in_order_keeps_its_lane_when_there_are_to_be_fewer() {
    let server =
        SftpServerProcess { server: "SSH-2.0-AWS_SFTP_1.1", ..SftpServerProcess::default() };
    let ([dir, _journals], storage) = storage(server).await;
    std::fs::write(dir.path().join("busy"), vec![1; 4 << 20]).unwrap();
    let busy = storage.open(&RelPath::parse("busy").unwrap()).await.unwrap();
    let mut blocks = busy.read_at(Range::new(0, 4 << 20));
    blocks.next().await.unwrap().unwrap();
    storage.set_lanes(2);
    while storage.link().open < 2 {
        tokio::task::yield_now().await;
    }
    // The first lane has something to do, so the file is written on the second.
    let path = RelPath::parse("file").unwrap();
    let file = storage.create(&path, &CreateOptions::default()).await.unwrap();
    let block = || Block::from(Bytes::from(vec![2; 100_000]));
    file.write_at(0, block()).await.unwrap();
    storage.set_lanes(1);
    assert_eq!(storage.link().open, 1);
    file.write_at(100_000, block()).await.unwrap();
    let options = CommitOptions { metadata: Metadata::default(), replace: false, sync: false };
    file.commit(200_000, &options).await.unwrap();
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), vec![2; 200_000]);
}
