//! The TCP connection below SSH: reads in large steps, and cannot deadlock.
//!
//! SSH reads four bytes and then a packet, and a system call for four bytes costs as much as one
//! for many. Also, the SSH library does not read while it writes: two peers that both wait for the
//! other to read would wait forever. So while a write waits, received bytes are buffered, up to the
//! amount that a peer with one channel may send on its own: the window of that channel.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::limits;

/// Bytes per read: several packets of most clients.
const STEP: usize = 128 << 10;

/// Most bytes buffered while a write waits.
const AHEAD: usize = limits::WINDOW as usize + (1 << 20);

/// A connection.
#[derive(Debug)]
pub(super) struct Line {
    socket: TcpStream,
    arrived: BytesMut,
}

impl Line {
    pub(super) fn new(socket: TcpStream) -> Self {
        Self { socket, arrived: BytesMut::new() }
    }

    /// Buffers received bytes. Returns how many, 0 at the end.
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.socket.poll_read_ready(cx))?;
            self.arrived.reserve(STEP);
            match self.socket.try_read_buf(&mut self.arrived) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Poll::Ready(outcome),
            }
        }
    }
}

impl AsyncRead for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.arrived.is_empty() {
            ready!(self.fill(cx))?;
        }
        let count = self.arrived.len().min(buffer.remaining());
        buffer.put_slice(&self.arrived[..count]);
        self.arrived.advance(count);
        if self.arrived.is_empty() && self.arrived.capacity() > 4 * STEP {
            self.arrived = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(outcome) = Pin::new(&mut self.socket).poll_write(cx, bytes) {
            return Poll::Ready(outcome);
        }
        // SSH sees errors and the end when it reads.
        while self.arrived.len() < AHEAD
            && let Poll::Ready(Ok(1..)) = self.fill(cx)
        {}
        Poll::Pending
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    async fn pair() -> (Line, Line) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        (Line::new(near), Line::new(far))
    }

    #[tokio::test]
    async fn two_peers_that_write_before_they_read_do_not_deadlock() {
        let (mut near, mut far) = pair().await;
        // More than the kernel's buffers hold.
        let bytes: Vec<u8> = (0..12u32 << 20).map(|n| (n % 251) as u8).collect();
        let exchange = |mut line: Line, bytes: Vec<u8>| async move {
            line.write_all(&bytes).await.unwrap();
            let mut received = vec![0; bytes.len()];
            line.read_exact(&mut received).await.unwrap();
            assert!(received == bytes);
            line
        };
        let near_end = exchange(near, bytes.clone());
        let far_end = exchange(far, bytes);
        (near, far) = tokio::join!(near_end, far_end);
        drop(near);
        assert_eq!(far.read(&mut [0; 8]).await.unwrap(), 0);
    }
}
