//! Copies within a server: lanes that are lost, and sources that become shorter.

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

/// OpenSSH's server, over lanes that are lost when a copy is requested.
#[derive(Debug)]
struct Cut(SftpServerProcess);

#[derive(Debug)]
struct CutAtCopy(Box<dyn Outgoing>);

#[async_trait]
impl Dial for Cut {
    async fn dial(&self, first: &First) -> Result<Channel> {
        let dialled = self.0.dial(first).await?;
        Ok(Channel { outgoing: Box::new(CutAtCopy(dialled.outgoing)), ..dialled })
    }

    async fn first_rtt(&self) -> Option<Duration> {
        None
    }

    fn host(&self) -> String {
        self.0.host()
    }

    fn waits(&self) -> HostWaits {
        self.0.waits()
    }
}

#[async_trait]
impl Outgoing for CutAtCopy {
    async fn send(&self, pieces: &[Bytes]) -> Result<()> {
        let name = b"copy-data";
        let is_copy = |piece: &Bytes| piece.windows(name.len()).any(|bytes| bytes == name);
        match pieces.iter().any(is_copy) {
            true => Err(Error::new(ErrorKind::Unreachable, "write")),
            false => self.0.send(pieces).await,
        }
    }
}

/// Formerly, an incomplete file stayed under the final name.
#[tokio::test]
async fn a_copy_whose_lane_is_lost_leaves_nothing() {
    let [dir, journals] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    std::fs::write(dir.path().join("from"), "content").unwrap();
    let root = dir.path().as_os_str().as_encoded_bytes();
    let storage = opened(Cut(SftpServerProcess::default()), root, &journals).await;
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
