//! OpenSSH's sftp-server as a child process, over its standard input and output: the real server without
//! encryption.

use std::process::Stdio;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use haul_net::HostWaits;
use haul_sftp::transport::{Channel, Dial, First, Outgoing};
use haul_storage::{Error, ErrorKind, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdin, Command};
use tokio::sync::Mutex;

/// Path of the server on Debian.
pub const SFTP_SERVER: &str = "/usr/lib/openssh/sftp-server";

/// Starts a server for each lane.
#[derive(Debug, Default)]
pub struct SftpServerProcess {
    /// The SSH identification that is passed to the client.
    pub server: &'static str,
    /// Requests that it refuses, in the syntax of `sftp-server -P`.
    pub refuse: &'static str,
    /// Limit of the process's file descriptors; about four of them are not handles.
    pub descriptors: Option<u32>,
}

#[async_trait]
impl Dial for SftpServerProcess {
    async fn dial(&self, first: &First) -> Result<Channel> {
        let mut command = match self.descriptors {
            None => Command::new(SFTP_SERVER),
            Some(most) => {
                let mut command = Command::new("prlimit");
                command.args([&format!("--nofile={most}"), SFTP_SERVER]);
                command
            }
        };
        command.arg("-e");
        if !self.refuse.is_empty() {
            command.args(["-P", self.refuse]);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Error::from_io("start", error).at(SFTP_SERVER))?;
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let input = Input(Mutex::new(stdin));
        input.send(&[first(self.server)]).await?;
        // The stream owns the process, which is killed when the stream is dropped.
        let incoming = stream::unfold((stdout, child), |(mut stdout, child)| async move {
            let mut buffer = vec![0; 32 << 10];
            match stdout.read(&mut buffer).await {
                Ok(0) => None,
                Ok(length) => {
                    buffer.truncate(length);
                    Some((Ok(Bytes::from(buffer)), (stdout, child)))
                }
                Err(error) => {
                    let error = Error::new(ErrorKind::Unreachable, "read").with_source(error);
                    Some((Err(error), (stdout, child)))
                }
            }
        });
        Ok(channel(incoming, input, self.server))
    }

    async fn first_rtt(&self) -> Option<std::time::Duration> {
        None
    }

    fn host(&self) -> String {
        "sftp-server".to_owned()
    }

    fn waits(&self) -> HostWaits {
        HostWaits::default()
    }
}

/// A channel to the server `server`, on a path of unknown RTT.
pub fn channel(
    incoming: impl Stream<Item = Result<Bytes>> + Send + 'static,
    outgoing: impl Outgoing + 'static,
    server: &str,
) -> Channel {
    Channel {
        incoming: incoming.boxed(),
        outgoing: Box::new(outgoing),
        server: server.to_owned(),
        rtt: None,
        rtts: 1,
        gauge: None,
    }
}

#[derive(Debug)]
struct Input(Mutex<ChildStdin>);

#[async_trait]
impl Outgoing for Input {
    async fn send(&self, pieces: &[Bytes]) -> Result<()> {
        let mut input = self.0.lock().await;
        for piece in pieces {
            let written = input.write_all(piece).await;
            written
                .map_err(|error| Error::new(ErrorKind::Unreachable, "write").with_source(error))?;
        }
        Ok(())
    }
}
