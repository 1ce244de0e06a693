//! Copies within a server whose lanes are lost.

use async_trait::async_trait;
use bytes::Bytes;
use haul_net::HostWaits;
use haul_sftp::transport::{Channel, Dial, First, Outgoing};
use haul_storage::{Error, ErrorKind, RelPath, Result, Storage};

use crate::opened;
use crate::pipe::SftpServerProcess;

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

    async fn first_rtt(&self) -> Option<std::time::Duration> {
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
