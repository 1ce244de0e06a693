//! Lanes that are lost with a certain request, and copies within a server whose source becomes shorter.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use haul_net::HostWaits;
use haul_sftp::codec::{Extended, Extensions, Request, Response, Status, name};
use haul_sftp::transport::{Channel, Dial, First, Outgoing};
use haul_storage::{CreateOptions, Error, ErrorKind, Range, RelPath, Result, Storage};

use crate::opened;
use crate::pipe::SftpServerProcess;
use crate::scripted::{Scripted, status};

/// OpenSSH's server, over lanes that are lost when certain requests are sent.
#[derive(Debug, Clone)]
struct Cut {
    server: Arc<SftpServerProcess>,
    /// Whether it is one of these requests.
    is_met: fn(&Bytes) -> bool,
    /// How many of them are still lost.
    left: Arc<AtomicUsize>,
}

impl Cut {
    fn at(is_met: fn(&Bytes) -> bool, times: usize) -> Self {
        let (server, left) = (Arc::default(), Arc::new(AtomicUsize::new(times)));
        Self { server, is_met, left }
    }
}

#[derive(Debug)]
struct CutAt(Box<dyn Outgoing>, Cut);

#[async_trait]
impl Dial for Cut {
    async fn dial(&self, first: &First) -> Result<Channel> {
        let dialled = self.server.dial(first).await?;
        Ok(Channel { outgoing: Box::new(CutAt(dialled.outgoing, self.clone())), ..dialled })
    }

    async fn first_rtt(&self) -> Option<Duration> {
        None
    }

    fn host(&self) -> String {
        self.server.host()
    }

    fn waits(&self) -> HostWaits {
        self.server.waits()
    }
}

#[async_trait]
impl Outgoing for CutAt {
    async fn send(&self, pieces: &[Bytes]) -> Result<()> {
        let Self(outgoing, Cut { is_met, left, .. }) = self;
        let count = |left: usize| left.checked_sub(1);
        let is_cut = pieces.iter().any(is_met)
            && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count).is_ok();
        match is_cut {
            true => Err(Error::new(ErrorKind::Unreachable, "write")),
            false => outgoing.send(pieces).await,
        }
    }
}

fn is_copy(piece: &Bytes) -> bool {
    let name = b"copy-data";
    piece.windows(name.len()).any(|bytes| bytes == name)
}

/// Whether a piece is the beginning of MKDIR: its type follows the length of the packet.
fn is_mkdir(piece: &Bytes) -> bool {
    piece.get(4) == Some(&14)
}

/// Formerly, it counted as new, so that newer files in it were replaced without being compared, and without a backup.
#[tokio::test]
async fn an_existing_directory_is_not_taken_for_one_whose_response_was_lost() {
    let [dir, journals] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    std::fs::create_dir_all(dir.path().join("old/entry")).unwrap();
    let root = dir.path().as_os_str().as_encoded_bytes();
    let cut = Cut::at(is_mkdir, 2);
    let left = Arc::clone(&cut.left);
    let storage = opened(cut, root, &journals).await;
    let [old, new] = ["old", "new"].map(|name| RelPath::parse(name).unwrap());
    let error = storage.create_dir_as(&old, Some(0o700)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    storage.create_dir_as(&new, Some(0o700)).await.unwrap();
    assert_eq!(left.load(Ordering::SeqCst), 0, "requests were lost");
}

/// Formerly, an incomplete file stayed under the final name.
#[tokio::test]
async fn a_copy_whose_lane_is_lost_leaves_nothing() {
    let [dir, journals] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    std::fs::write(dir.path().join("from"), "content").unwrap();
    let root = dir.path().as_os_str().as_encoded_bytes();
    let storage = opened(Cut::at(is_copy, usize::MAX), root, &journals).await;
    let [from, to] = ["from", "to"].map(|name| RelPath::parse(name).unwrap());
    let error = storage.copy(&from, &to).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["from"]);
}

/// Reading it reports that it has changed. Formerly, this was a protocol error.
#[tokio::test]
async fn a_file_that_has_become_shorter_is_read_instead_of_copied() {
    let respond = |request: &Request| match request {
        Request::Init { .. } => Some(Response::Version {
            version: 3,
            extensions: Extensions(vec![(name::COPY_DATA.into(), "1".into())]),
        }),
        Request::Extended(Extended::CopyData { .. }) => Some(status(Status::Eof)),
        _ => None,
    };
    let waits = HostWaits::default();
    let dial = Scripted { script: |_| Some(Duration::ZERO), respond, waits };
    let storage = opened(dial, b"/", &tempfile::tempdir().unwrap()).await;
    let [from, to] = ["from", "new"].map(|name| RelPath::parse(name).unwrap());
    let source = storage.open(&from).await.unwrap();
    let upload = storage.create(&to, &CreateOptions::default()).await.unwrap();
    assert!(!upload.copy_from(&*source, Range::new(0, 10)).await.unwrap());
}
