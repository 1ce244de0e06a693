//! The stream under a connection: it measures the first exchange, and it can be severed, so that a
//! connection that nobody wants any more ends at once, whatever it is waiting for.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Dropping it severs the link.
#[derive(Debug)]
pub struct Knife {
    _sender: oneshot::Sender<()>,
}

/// A stream that can be severed.
#[derive(Debug)]
pub struct Link<S> {
    stream: S,
    knife: oneshot::Receiver<()>,
    severed: bool,
    first_write: Option<Instant>,
    first_exchange: Arc<OnceLock<Duration>>,
}

/// Wraps a stream. The time from the first bytes out to the first bytes in is put into
/// `first_exchange`.
pub fn link<S>(stream: S, first_exchange: Arc<OnceLock<Duration>>) -> (Link<S>, Knife) {
    let (sender, knife) = oneshot::channel();
    let link = Link { stream, knife, severed: false, first_write: None, first_exchange };
    (link, Knife { _sender: sender })
}

impl<S> Link<S> {
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if !self.severed && Pin::new(&mut self.knife).poll(cx).is_pending() {
            return Ok(());
        }
        self.severed = true;
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the connection was given up"))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Link<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        if result.is_ready()
            && let Some(start) = self.first_write.filter(|_| self.first_exchange.get().is_none())
        {
            // Somebody else cannot have set it: a stream is read by one task.
            let _ = self.first_exchange.set(start.elapsed());
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Link<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        self.first_write.get_or_insert_with(Instant::now);
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
