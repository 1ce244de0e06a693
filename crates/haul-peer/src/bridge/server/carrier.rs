//! Moves bytes from one socket to another: through a pipe, so that they are not copied to this process, or through a
//! buffer where the system cannot.

use std::io;

#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;

#[cfg(target_os = "linux")]
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::net::TcpStream;

/// Bytes that a pipe holds, if the system allows.
#[cfg(target_os = "linux")]
const PIPE: usize = 256 << 10;

/// Bytes that a buffer holds.
const BUFFER: usize = 64 << 10;

/// Holds bytes between two sockets. It is filled only when it is empty.
#[derive(Debug)]
pub(super) enum Carrier {
    /// Bytes stay in the kernel.
    #[cfg(target_os = "linux")]
    Pipe {
        /// The end that is read.
        read: OwnedFd,
        /// The end that is written.
        write: OwnedFd,
    },
    /// Bytes are copied.
    Buffer {
        /// Its memory.
        bytes: Vec<u8>,
        /// Where the bytes begin that are not yet sent.
        start: usize,
        /// Where they end.
        end: usize,
    },
}

impl Carrier {
    /// A pipe, or a buffer if there is no pipe.
    pub(super) fn new() -> Self {
        #[cfg(target_os = "linux")]
        if let Ok((read, write)) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK) {
            // If that fails, a smaller pipe must suffice: the system limits the memory of a user's pipes.
            let _ = fcntl_setpipe_size(&write, PIPE);
            return Self::Pipe { read, write };
        }
        Self::buffer()
    }

    /// A buffer.
    pub(super) fn buffer() -> Self {
        Self::Buffer { bytes: vec![0; BUFFER], start: 0, end: 0 }
    }

    /// Takes the bytes that `from` has received; returns their number, 0 at its end. The carrier must be empty.
    pub(super) fn fill(&mut self, from: &TcpStream) -> io::Result<usize> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Pipe { write, .. } => {
                let moved = from.try_io(tokio::io::Interest::READABLE, || {
                    Ok(splice(from, None, &*write, None, PIPE, flags())?)
                });
                match moved {
                    Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                        // This kind of socket cannot be spliced.
                        *self = Self::buffer();
                        self.fill(from)
                    }
                    moved => moved,
                }
            }
            Self::Buffer { bytes, start, end } => {
                let read = from.try_read(bytes)?;
                (*start, *end) = (0, read);
                Ok(read)
            }
        }
    }

    /// Sends up to `left` bytes to `to`; returns how many were sent. `left` is the number that the carrier holds.
    pub(super) fn drain(&mut self, to: &TcpStream, left: usize) -> io::Result<usize> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Pipe { read, .. } => to.try_io(tokio::io::Interest::WRITABLE, || {
                Ok(splice(&*read, None, to, None, left, flags())?)
            }),
            Self::Buffer { bytes, start, end } => {
                let sent = to.try_write(&bytes[*start..*end])?;
                *start += sent;
                Ok(sent)
            }
        }
    }
}

#[cfg(target_os = "linux")]
fn flags() -> SpliceFlags {
    SpliceFlags::MOVE | SpliceFlags::NONBLOCK
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn pipes_and_buffers_move_all_bytes_and_report_the_end() {
        for mut carrier in [Carrier::new(), Carrier::buffer()] {
            let (mut source, from) = connection().await;
            let (to, mut sink) = connection().await;
            let sent: Vec<u8> = (0..100_000_u32).map(|at| (at / 3) as u8).collect();
            let content = sent.clone();
            let sending = tokio::spawn(async move {
                source.write_all(&content).await.unwrap();
                source.shutdown().await.unwrap();
                source
            });
            let moving = tokio::spawn(async move {
                loop {
                    from.readable().await.unwrap();
                    let mut left = match carrier.fill(&from) {
                        Ok(0) => break,
                        Ok(filled) => filled,
                        Err(error) => {
                            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                            continue;
                        }
                    };
                    while left > 0 {
                        to.writable().await.unwrap();
                        left -= carrier.drain(&to, left).unwrap_or(0);
                    }
                }
                drop(to);
            });
            let mut received = Vec::new();
            sink.read_to_end(&mut received).await.unwrap();
            assert!(received == sent);
            moving.await.unwrap();
            drop(sending.await.unwrap());
        }
    }
}
