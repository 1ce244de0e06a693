//! Another user of the directory replaces a part file by a link right before its mode is set by path: the mode of the
//! link's target must stay.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use haul_net::HostWaits;
use haul_sftp::codec::{Deframer, Extended, Request};
use haul_sftp::transport::{Channel, Dial, First, Outgoing};
use haul_storage::{Block, CommitOptions, CreateOptions, Metadata, RelPath, Result, Storage};
use tempfile::TempDir;

use super::opened;
use super::pipe::SftpServerProcess;

/// The mode of the link's target.
const MODE: u32 = 0o640;

/// A server in whose directory a part file is replaced.
#[derive(Debug)]
struct Shared {
    server: SftpServerProcess,
    target: PathBuf,
}

#[async_trait]
impl Dial for Shared {
    async fn dial(&self, first: &First) -> Result<Channel> {
        let mut channel = self.server.dial(first).await?;
        let deframer = Mutex::new(Deframer::new(1 << 20));
        let target = self.target.clone();
        channel.outgoing = Box::new(Swapping { to: channel.outgoing, deframer, target });
        Ok(channel)
    }

    async fn first_rtt(&self) -> Option<Duration> {
        None
    }

    fn host(&self) -> String {
        self.server.host()
    }

    fn waits(&self) -> HostWaits {
        HostWaits::default()
    }
}

/// Replaces the part file before a request that sets its mode by path reaches the server.
#[derive(Debug)]
struct Swapping {
    to: Box<dyn Outgoing>,
    deframer: Mutex<Deframer>,
    target: PathBuf,
}

#[async_trait]
impl Outgoing for Swapping {
    async fn send(&self, pieces: &[Bytes]) -> Result<()> {
        {
            let mut deframer = self.deframer.lock().unwrap();
            pieces.iter().for_each(|piece| deframer.push(piece.clone()));
            while let Some(frame) = deframer.next_frame().unwrap() {
                let (_, request) = Request::decode(frame).unwrap();
                if let Request::Setstat(path, _) | Request::Extended(Extended::Lsetstat(path, _)) =
                    request
                {
                    let part = Path::new(std::str::from_utf8(&path).unwrap());
                    fs::rename(part, part.with_extension("away")).unwrap();
                    symlink(&self.target, part).unwrap();
                }
            }
        }
        self.to.send(pieces).await
    }
}

fn file() -> RelPath {
    RelPath::parse("file").unwrap()
}

fn mode(path: impl AsRef<Path>) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// A directory with the link's target, and one for journals.
fn set_up() -> ([TempDir; 2], PathBuf) {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let target = dirs[0].path().join("target");
    fs::write(&target, "secret").unwrap();
    fs::set_permissions(&target, Permissions::from_mode(MODE)).unwrap();
    (dirs, target)
}

/// Formerly, the mode was set by SETSTAT, which follows the link.
#[tokio::test]
async fn resuming_changes_the_mode_of_the_part_file_only() {
    for refuse in ["", "lsetstat"] {
        let ([dir, journals], target) = set_up();
        let root = dir.path().as_os_str().as_encoded_bytes();
        let server = SftpServerProcess { refuse, ..SftpServerProcess::default() };
        let options = CreateOptions { resume: true, size: Some(100), ..CreateOptions::default() };
        let shared = Shared { server, target: target.clone() };
        let storage = opened(shared, root, &journals).await;
        let part = dir.path().join(OsStr::from_bytes(&storage.part_name(&file())));
        fs::write(&part, [1; 50]).unwrap();
        fs::set_permissions(&part, Permissions::from_mode(0o644)).unwrap();

        let resumed = storage.create(&file(), &options).await;
        assert_eq!(mode(&target), MODE);
        if refuse.is_empty() {
            assert!(resumed.unwrap_err().to_string().contains("a symbolic link"));
        } else {
            // The mode was set by handle.
            resumed.unwrap();
            assert_eq!((mode(&part), fs::metadata(&part).unwrap().len()), (0o600, 50));
        }
    }
}

/// Formerly, the target got the mode of the file that was replaced, which others may have chosen.
#[tokio::test]
async fn the_mode_of_a_replaced_file_is_not_given_to_the_target_of_a_link() {
    let ([dir, journals], target) = set_up();
    fs::write(dir.path().join("file"), "old").unwrap();
    fs::set_permissions(dir.path().join("file"), Permissions::from_mode(0o666)).unwrap();
    let root = dir.path().as_os_str().as_encoded_bytes();
    let shared = Shared { server: SftpServerProcess::default(), target: target.clone() };
    let storage = opened(shared, root, &journals).await;
    let upload = storage.create(&file(), &CreateOptions::default()).await.unwrap();
    upload.write_at(0, Block::from(Bytes::from(vec![1; 5000]))).await.unwrap();
    let metadata = Metadata::default();
    let options = CommitOptions { metadata, replace: true, sync: false, expected: None };
    let error = upload.commit(5000, &options).await.unwrap_err();
    assert!(error.to_string().contains("the part file was replaced"), "{error}");
    assert_eq!(mode(&target), MODE);
}
