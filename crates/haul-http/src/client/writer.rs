//! Sends the requests that are queued on a connection, one behind the other, and hands each on to the reader
//! first, so that no response comes unexpected.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::head::Broken;
use super::load::Load;
use super::payload::Stream;
use super::queued::{Queued, Sending};

/// So much is gathered for one call at most, unless one body is longer.
const ENOUGH: usize = 64 << 10;

/// Sends what comes through `queued` until nobody can queue anything, or the reader has ended, which drops the
/// sender of `is_read`.
pub async fn run<W: AsyncWrite + Unpin>(
    mut stream: W,
    mut queued: UnboundedReceiver<Queued>,
    written: UnboundedSender<Queued>,
    load: &Load,
    mut is_read: oneshot::Receiver<()>,
) {
    // A server that has responded, or ended, need not read what is left of a request.
    let is_over = tokio::select! {
        _ = &mut is_read => true,
        () = send_all(&mut stream, &mut queued, &written, load) => false,
    };
    // Whoever makes a request from now on learns it at once.
    load.retire();
    queued.close();
    while let Some(queued) = queued.recv().await {
        queued.sink.fail(Broken::Lost { is_sent: false });
    }
    drop(written);
    if is_over {
        return;
    }
    // A server may take the end of what is sent for the end of the client. Nothing ever comes through this
    // channel: it is the reader's end that is waited for.
    drop(is_read.await);
    drop(stream.shutdown().await);
}

async fn send_all<W: AsyncWrite + Unpin>(
    stream: &mut W,
    queued: &mut UnboundedReceiver<Queued>,
    written: &UnboundedSender<Queued>,
    load: &Load,
) {
    let mut buffer = Buffer::default();
    while let Some(first) = queued.recv().await {
        let (mut next, mut body) = (Some(first), None);
        while let Some(mut request) = next {
            buffer.push(std::mem::take(&mut request.head).into());
            for piece in std::mem::take(&mut request.body).pieces() {
                buffer.push(piece.clone());
            }
            body = announced(&mut request);
            if let Err(refused) = written.send(request) {
                refused.0.sink.fail(Broken::Lost { is_sent: false });
                return;
            }
            let is_enough = body.is_some() || buffer.left >= ENOUGH;
            next = if is_enough { None } else { queued.try_recv().ok() };
        }
        let sent = async {
            stream.write_all_buf(&mut buffer).await?;
            stream.flush().await?;
            match body {
                Some(body) => body.send(stream, &mut buffer).await,
                None => Ok(true),
            }
        };
        match sent.await {
            Ok(true) => {}
            // What was sent of the body must not be taken for all of it.
            Ok(false) => return load.abandon(),
            // The reader notices that the connection has ended, and tells those who wait.
            Err(_) => return,
        }
    }
}

/// A body whose end the reader has to know of: no request may be sent behind one that is not at its end.
struct Announced {
    /// What is sent behind the head and what is in memory.
    stream: Option<Stream>,
    is_wanted: oneshot::Receiver<()>,
    is_sent: oneshot::Sender<()>,
}

/// Takes the body of a request that has the connection for itself.
fn announced(request: &mut Queued) -> Option<Announced> {
    let stream = request.alone.as_mut()?.stream.take();
    if stream.is_none() && request.sent == 0 {
        return None;
    }
    let (wanted, is_wanted) = oneshot::channel();
    let (sent, is_sent) = oneshot::channel();
    request.sending = Some(Sending { wanted: Some(wanted), is_sent });
    Some(Announced { stream, is_wanted, is_sent: sent })
}

impl Announced {
    /// Sends what is left of it. Whether that was all of it.
    async fn send<W: AsyncWrite + Unpin>(
        self,
        to: &mut W,
        buffer: &mut Buffer,
    ) -> io::Result<bool> {
        if let Some(mut stream) = self.stream {
            if let Some(longest) = stream.expects {
                // Servers that know nothing of it say nothing (RFC 9110, 10.1.1).
                drop(timeout(longest, self.is_wanted).await);
            }
            if !send_stream(&mut stream, to, buffer).await? {
                return Ok(false);
            }
        }
        // The response may have ended before.
        let _ = self.is_sent.send(());
        Ok(true)
    }
}

/// Sends what comes, to its end. `false` if it was abandoned before.
async fn send_stream<W: AsyncWrite + Unpin>(
    stream: &mut Stream,
    to: &mut W,
    buffer: &mut Buffer,
) -> io::Result<bool> {
    let in_chunks = stream.left().is_none();
    loop {
        let Ok(piece) = stream.next().await else { return Ok(false) };
        let is_last = piece.is_none();
        match (piece, in_chunks) {
            (Some(piece), false) => buffer.push(piece),
            (None, false) => {}
            (Some(piece), true) => {
                buffer.push(format!("{:x}\r\n", piece.len()).into());
                buffer.push(piece);
                buffer.push(Bytes::from_static(b"\r\n"));
            }
            (None, true) => buffer.push(Bytes::from_static(b"0\r\n\r\n")),
        }
        to.write_all_buf(buffer).await?;
        to.flush().await?;
        if is_last {
            return Ok(true);
        }
    }
}

/// Pieces that are to be sent, the next one first. None of them is empty.
#[derive(Debug, Default)]
struct Buffer {
    pieces: VecDeque<Bytes>,
    left: usize,
}

impl Buffer {
    fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.left += piece.len();
            self.pieces.push_back(piece);
        }
    }
}

impl Buf for Buffer {
    fn remaining(&self) -> usize {
        self.left
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let pairs = slices.iter_mut().zip(&self.pieces);
        pairs.map(|(slice, piece)| *slice = IoSlice::new(piece)).count()
    }

    fn advance(&mut self, mut count: usize) {
        self.left -= count;
        while let Some(first) = self.pieces.front_mut() {
            if count < first.len() {
                first.advance(count);
                break;
            }
            count -= first.len();
            self.pieces.pop_front();
        }
    }
}
