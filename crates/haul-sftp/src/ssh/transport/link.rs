//! The stream under a connection, as two halves that never wait for each other: a socket, a
//! ProxyCommand, or a channel of another connection.

use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use haul_net::{Hold, RttGauge};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::channel::{Incoming, Outgoing};

/// Where bytes come from.
#[derive(Debug)]
pub enum Source {
    Tcp {
        stream: OwnedReadHalf,
        _hold: Option<Hold>,
    },
    /// The command lives as long as either half.
    Process {
        output: ChildStdout,
        _child: Arc<Child>,
    },
    /// The second value is the rest of a piece that did not fit into the reader's buffer.
    Tunnel(Box<Incoming>, Bytes),
}

/// Where bytes go.
#[derive(Debug)]
pub enum Sink {
    Tcp(OwnedWriteHalf),
    Process { input: ChildStdin, _child: Arc<Child> },
    Tunnel(Outgoing),
}

/// Both halves.
pub type Link = (Source, Sink);

/// Over a socket, with a gauge of its RTTs.
pub fn tcp(stream: TcpStream) -> (Link, Option<RttGauge>) {
    // Without a gauge the path is judged by the delivery rate alone.
    let (gauge, hold) = RttGauge::of(&stream).ok().unzip();
    let (read, write) = stream.into_split();
    ((Source::Tcp { stream: read, _hold: hold }, Sink::Tcp(write)), gauge)
}

/// Over the input and output of a command, which is killed when both halves are dropped.
pub fn process(input: ChildStdin, output: ChildStdout, child: Child) -> Link {
    let child = Arc::new(child);
    (Source::Process { output, _child: Arc::clone(&child) }, Sink::Process { input, _child: child })
}

impl Source {
    /// Reads into the free space of `buffer`. Returns the number of bytes; 0 at the end of the stream.
    pub async fn read(&mut self, buffer: &mut BytesMut) -> io::Result<usize> {
        match self {
            Self::Tcp { stream, .. } => stream.read_buf(buffer).await,
            Self::Process { output, .. } => output.read_buf(buffer).await,
            Self::Tunnel(incoming, rest) => {
                if rest.is_empty() {
                    *rest =
                        incoming.next().await.map_err(|error| broken(&error))?.unwrap_or_default();
                }
                let piece = rest.split_to(rest.len().min(buffer.capacity() - buffer.len()));
                buffer.extend_from_slice(&piece);
                Ok(piece.len())
            }
        }
    }
}

impl Sink {
    /// Writes all of `bytes`.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes).await,
            Self::Process { input, .. } => input.write_all(bytes).await,
            Self::Tunnel(outgoing) => {
                outgoing.send_all(&[bytes]).await.map_err(|error| broken(&error))
            }
        }
    }
}

/// Converts a tunnel's error to `BrokenPipe`: `End::before_keys` then treats it like a socket that was reset.
fn broken(error: &haul_storage::Error) -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, error.to_string())
}
