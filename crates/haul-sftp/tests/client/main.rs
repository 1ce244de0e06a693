//! The client against OpenSSH's sftp-server, with all features and with some refused; against scripted
//! servers; and over SSH against haul's own server and widespread ones.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![expect(
    clippy::print_stderr,
    reason = "a skipped test prints that, and a failed one shows a log"
)]

mod copying;
mod denied;
mod over_ssh;
#[path = "../support/peer.rs"]
mod peer;
#[path = "../support/pipe.rs"]
mod pipe;
mod predicted;
mod scripted;
mod servers;
mod silent;
#[path = "../support/sshd.rs"]
#[expect(dead_code, reason = "the tests of SSH and of the program use the rest")]
mod sshd;
mod swapped;

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use haul_net::HostWaits;
use haul_sftp::transport::{Channel, Dial, First};
use haul_sftp::{SftpHost, SftpStorage};
use haul_storage::conformance;
use haul_storage::{
    Block, CommitOptions, CreateOptions, EntryKind, Error, ErrorKind, Location, Metadata, Range,
    RelPath, Result, Storage, Timestamp, Writes,
};
use pipe::SftpServerProcess;
use tempfile::TempDir;
use tokio::runtime::Handle;

async fn storage(server: SftpServerProcess) -> ([TempDir; 2], Arc<SftpStorage>) {
    let [dir, journals] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let storage = opened(server, dir.path().as_os_str().as_encoded_bytes(), &journals).await;
    ([dir, journals], storage)
}

/// The directory `path` of a server as a storage, with its journals in a local directory.
async fn opened(dial: impl Dial + 'static, path: &[u8], journals: &TempDir) -> Arc<SftpStorage> {
    let host = SftpHost::new(Arc::new(dial), Handle::current());
    let resolved = host.resolve(path).await.unwrap();
    let location = Location::parse("sftp://sftp-server/").unwrap();
    let journals = Some(journals.path().to_owned());
    SftpStorage::open(host, location, resolved.path, journals).await.unwrap()
}

async fn conforms(server: SftpServerProcess) {
    let ([dir, _journals], storage) = storage(server).await;
    storage.set_lanes(3);
    conformance::run_all(storage).await;
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn uploads_of_two_machines_do_not_mix() {
    for refuse in ["", "posix-rename,hardlink"] {
        let dir = tempfile::tempdir().unwrap();
        let [one, other] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let path = dir.path().as_os_str().as_encoded_bytes();
        let server = || SftpServerProcess { refuse, ..SftpServerProcess::default() };
        let one = opened(server(), path, &one).await;
        let other = opened(server(), path, &other).await;
        conformance::two_machines(one, other).await;
    }
}

#[tokio::test]
async fn the_client_conforms_on_openssh() {
    conforms(SftpServerProcess { server: "SSH-2.0-OpenSSH_9.2", ..SftpServerProcess::default() })
        .await;
}

#[tokio::test]
async fn the_client_conforms_on_an_unknown_server() {
    conforms(SftpServerProcess::default()).await;
}

#[tokio::test]
async fn the_client_conforms_without_extensions() {
    let refuse = "posix-rename,statvfs,fstatvfs,hardlink,fsync,lsetstat,limits,expand-path,copy-data,home-directory,users-groups-by-id";
    conforms(SftpServerProcess { refuse, ..SftpServerProcess::default() }).await;
}

#[tokio::test]
async fn the_client_conforms_on_a_server_with_few_handles() {
    for descriptors in [5, 6] {
        let descriptors = Some(descriptors);
        conforms(SftpServerProcess { descriptors, ..SftpServerProcess::default() }).await;
    }
}

#[tokio::test]
async fn the_client_conforms_on_a_server_known_to_need_writes_in_order() {
    let server =
        SftpServerProcess { server: "SSH-2.0-AWS_SFTP_1.1", ..SftpServerProcess::default() };
    let (_dirs, storage) = storage(server).await;
    assert_eq!(storage.capabilities().writes, Writes::InOrder);
    assert!(!storage.capabilities().resume);
    conformance::run_all(storage).await;
}

#[tokio::test]
async fn a_recheck_detects_a_change_on_a_lane_that_opened_the_file_early() {
    let openssh =
        SftpServerProcess { server: "SSH-2.0-OpenSSH_9.2", ..SftpServerProcess::default() };
    let ([dir, _journals], storage) = storage(openssh).await;
    std::fs::write(dir.path().join("f"), vec![1; 4 << 20]).unwrap();
    let file = storage.open(&RelPath::parse("f").unwrap()).await.unwrap();
    // The first lane is busy, so the recheck goes to the second one, which has opened the file early.
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
async fn an_open_file_that_grows_is_distinguished_from_another_that_takes_its_name() {
    let ([dir, _journals], storage) = storage(SftpServerProcess::default()).await;
    let path = dir.path().join("log");
    std::fs::write(&path, "first").unwrap();
    let file = storage.open(&RelPath::parse("log").unwrap()).await.unwrap();
    assert!(file.grown().await.unwrap().is_none());
    let mut log = std::fs::File::options().append(true).open(&path).unwrap();
    log.write_all(b", second").unwrap();
    let grown = file.grown().await.unwrap().unwrap();
    std::fs::rename(&path, dir.path().join("log.1")).unwrap();
    std::fs::write(&path, "another file, which is longer").unwrap();
    assert!(grown.grown().await.unwrap().is_none());
    assert_eq!(grown.identity().size, 13);
    let block = grown.read_at(Range::new(0, 100)).next().await.unwrap().unwrap();
    assert_eq!(block.into_bytes(), "first, second");
}

#[tokio::test]
async fn a_file_written_in_order_keeps_its_lane_when_lanes_are_reduced() {
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
    // The first lane is busy, so the file is written on the second.
    let path = RelPath::parse("file").unwrap();
    let file = storage.create(&path, &CreateOptions::default()).await.unwrap();
    let block = || Block::from(Bytes::from(vec![2; 100_000]));
    file.write_at(0, block()).await.unwrap();
    storage.set_lanes(1);
    assert_eq!(storage.link().open, 1);
    file.write_at(100_000, block()).await.unwrap();
    let options = CommitOptions {
        metadata: Metadata::default(),
        replace: false,
        sync: false,
        expected: None,
    };
    file.commit(200_000, &options).await.unwrap();
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), vec![2; 200_000]);
}

/// Once, the target of a link was missing if its attributes had been requested ahead.
#[tokio::test]
async fn a_link_at_the_destination_has_its_target() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("target", dir.path().join("link")).unwrap();
    let host = SftpHost::new(Arc::new(SftpServerProcess::default()), Handle::current());
    let root = dir.path().as_os_str().as_encoded_bytes();
    let nearest = host.nearest(root, Some(b"link")).await.unwrap();
    assert!(nearest.rest.is_empty());
    let location = Location::parse("sftp://sftp-server/").unwrap();
    let storage = SftpStorage::open(host, location, nearest.directory, None).await.unwrap();
    let entry = storage.stat(&RelPath::parse("link").unwrap()).await.unwrap();
    assert_eq!(entry.kind, EntryKind::Symlink(b"target".to_vec()));
}

/// Writes a file of `length` bytes, by `write_whole` if it is small.
async fn write(storage: &SftpStorage, name: &str, length: usize, metadata: Metadata) {
    let path = RelPath::parse(name).unwrap();
    let bytes = Bytes::from(vec![3; length]);
    let options = CommitOptions { metadata, replace: true, sync: false, expected: None };
    if length < 1000 {
        storage.write_whole(&path, bytes, &options).await.unwrap();
        return;
    }
    let file = storage.create(&path, &CreateOptions::default()).await.unwrap();
    file.write_at(0, Block::from(bytes)).await.unwrap();
    file.commit(length as u64, &options).await.unwrap();
}

fn old_and_private() -> Metadata {
    let modified = Some(Timestamp { seconds: 1_000_000_000, nanos: 0 });
    Metadata { mode: Some(0o640), modified, ..Metadata::default() }
}

#[tokio::test]
async fn attributes_are_set_by_path_on_a_server_without_fsetstat() {
    for server in ["SSH-2.0-OpenSSH_9.2", "SSH-2.0-other"] {
        let server =
            SftpServerProcess { server, refuse: "fsetstat", ..SftpServerProcess::default() };
        let (dirs, storage) = storage(server).await;
        for (name, length) in [("small", 7), ("large", 2000)] {
            write(&storage, name, length, old_and_private()).await;
            let found = std::fs::metadata(dirs[0].path().join(name)).unwrap();
            assert_eq!((found.mode() & 0o7777, found.mtime()), (0o640, 1_000_000_000), "{name}");
        }
        assert!(storage.capabilities().times);
        assert_eq!(std::fs::read_dir(dirs[0].path()).unwrap().count(), 2);
    }
}

#[tokio::test]
async fn a_refused_setstat_is_remembered_until_the_server_accepts_it() {
    let [dir, memory] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let root = dir.path().as_os_str().as_encoded_bytes().to_vec();
    let (warnings, received) = std::sync::mpsc::channel();
    let run = async |refuse: &'static str| {
        let dial = SftpServerProcess { refuse, ..SftpServerProcess::default() };
        let host = SftpHost::new(Arc::new(dial), Handle::current());
        host.remember_in(memory.path());
        let warnings = warnings.clone();
        host.warn_through(Box::new(move |message| warnings.send(message.to_owned()).unwrap()));
        let location = Location::parse("sftp://sftp-server/").unwrap();
        SftpStorage::open(host, location, Bytes::from(root.clone()), None).await.unwrap()
    };
    let remembered = || std::fs::read_dir(memory.path()).unwrap().count();

    let first = run("setstat,fsetstat").await;
    assert!(first.capabilities().times);
    write(&first, "a", 7, old_and_private()).await;
    write(&first, "b", 2000, old_and_private()).await;
    assert!(!first.capabilities().times);
    let message = "the server does not set modes and times; they are not preserved, and directories and \
                   large files stay private (0700, 0600)";
    assert_eq!(received.try_iter().collect::<Vec<_>>(), [message]);
    assert_eq!(remembered(), 1);

    // The next run knows that from the start, and warns when it writes.
    let second = run("setstat,fsetstat").await;
    assert!(!second.capabilities().times);
    write(&second, "a", 7, Metadata { mode: Some(0o640), ..Metadata::default() }).await;
    assert_eq!(received.try_iter().collect::<Vec<_>>(), [message]);
    assert_eq!(remembered(), 1);

    // Each run tries FSETSTAT once more; after a success the next run relies on it.
    let third = run("").await;
    assert!(!third.capabilities().times);
    write(&third, "a", 7, Metadata { mode: Some(0o604), ..Metadata::default() }).await;
    while remembered() > 0 {
        tokio::task::yield_now().await;
    }
    let fourth = run("").await;
    assert!(fourth.capabilities().times);
    write(&fourth, "a", 7, old_and_private()).await;
    assert_eq!(std::fs::metadata(dir.path().join("a")).unwrap().mtime(), 1_000_000_000);
}

/// A host to which every connection fails after 300 ms.
#[derive(Debug, Default)]
struct Dead(Arc<AtomicUsize>);

#[async_trait]
impl Dial for Dead {
    async fn dial(&self, _: &First) -> Result<Channel> {
        self.0.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(300)).await;
        Err(Error::new(ErrorKind::Unreachable, "connect").because("nobody is there"))
    }

    async fn first_rtt(&self) -> Option<Duration> {
        None
    }

    fn host(&self) -> String {
        "dead".to_owned()
    }

    fn waits(&self) -> HostWaits {
        HostWaits::default()
    }
}

#[tokio::test]
async fn one_failed_dial_fails_all_tasks_that_wait_for_the_host() {
    let dialled = Arc::new(AtomicUsize::new(0));
    let host = SftpHost::new(Arc::new(Dead(Arc::clone(&dialled))), Handle::current());
    let waiting = (0..8).map(|_| host.resolve(b"/path"));
    for outcome in futures_util::future::join_all(waiting).await {
        let error = outcome.err().unwrap();
        assert!(error.to_string().contains("nobody is there"), "{error}");
    }
    assert_eq!(dialled.load(Ordering::Relaxed), 1);
    assert!(host.resolve(b"/path").await.is_err(), "a later task dials again");
    assert_eq!(dialled.load(Ordering::Relaxed), 2);
}
