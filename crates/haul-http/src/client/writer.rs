//! Sends the requests queued on a connection in order (HTTP/1.1 pipelining). Each is passed to the reader before
//! it is sent, so that the reader expects every response.
//!
//! HTTP/1.1 matches responses by position: if a server loses a request, all later responses are shifted. So
//! some responses count only after the response to a *marker*, a GET of one byte sent behind their requests,
//! has arrived in its position (see `order`).

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::head::Broken;
use super::load::Load;
use super::payload::Stream;
use super::queued::{Queued, Sending, SerializedMarker, Step};

/// Bytes at which queued requests are no longer combined into one write.
const ENOUGH: usize = 64 << 10;

/// Maximum number of requests that share a marker. A marker costs some 600 bytes in both directions; requests
/// that no marker has proven yet are repeated if the connection ends.
const MARKED: u64 = 16;

/// A marker is sent at most RTT / `MARKED_WITHIN` after the first request that it proves, whose response
/// counts only that much later.
const MARKED_WITHIN: u32 = 8;
/// The minimum of this limit. Without it, each request over a short path would get its own marker.
const LEAST_DELAY: Duration = Duration::from_millis(1);

/// If the response to a marker takes longer than this, another marker is sent.
const LATE: Duration = Duration::from_secs(1);

/// Sends the requests from `queued` until all its senders are dropped, sending fails, or the reader ends, which drops
/// the sender of `is_read`. Passes each request to the reader through `written`.
pub async fn run<W: AsyncWrite + Unpin>(
    mut stream: W,
    mut queued: UnboundedReceiver<Queued>,
    written: UnboundedSender<Queued>,
    load: &Load,
    rtt: Duration,
    mut is_read: oneshot::Receiver<()>,
) {
    // The reader ends when the connection does, or once the server has sent an early last response. The server need
    // not read the rest of a request then.
    let is_over = tokio::select! {
        _ = &mut is_read => true,
        () = send_all(&mut stream, &mut queued, &written, load, rtt) => false,
    };
    // New requests on this connection fail at once.
    load.retire();
    queued.close();
    while let Some(queued) = queued.recv().await {
        queued.sink.fail(Broken::Lost { is_sent: false });
    }
    drop(written);
    if is_over {
        return;
    }
    // A server may take a half-closed connection for a client that is gone, so the shutdown waits for the reader to
    // end. Nothing is ever sent through this channel.
    drop(is_read.await);
    drop(stream.shutdown().await);
}

async fn send_all<W: AsyncWrite + Unpin>(
    stream: &mut W,
    queued: &mut UnboundedReceiver<Queued>,
    written: &UnboundedSender<Queued>,
    load: &Load,
    rtt: Duration,
) {
    let mut buffer = Buffer::default();
    let mut unproven = Unproven::none();
    let delay = (rtt / MARKED_WITHIN).max(LEAST_DELAY);
    loop {
        let (mut next, is_over) = tokio::select! {
            biased;
            next = queued.recv() => { let is_over = next.is_none(); (next, is_over) }
            () = load.no_marker_pending(), if unproven.requests > 0 => (None, false),
            () = sleep_until(unproven.since + delay), if unproven.requests > 0 => {
                unproven.mark(&mut buffer, written, load);
                (None, false)
            }
            () = sleep(LATE), if load.has_marker() && unproven.spare.is_some() => {
                unproven.mark_again(&mut buffer, written, load);
                (None, false)
            }
        };
        let mut body = None;
        while let Some(mut request) = next {
            buffer.push(std::mem::take(&mut request.head).into());
            for piece in std::mem::take(&mut request.body).pieces() {
                buffer.push(piece.clone());
            }
            body = announced(&mut request);
            unproven.add(&mut request);
            if let Err(refused) = written.send(request) {
                refused.0.sink.fail(Broken::Lost { is_sent: false });
                return;
            }
            if unproven.requests >= MARKED {
                unproven.mark(&mut buffer, written, load);
            }
            let is_enough = body.is_some() || buffer.left >= ENOUGH;
            next = if is_enough { None } else { queued.try_recv().ok() };
        }
        // While a marker is pending, new requests collect for the next one, which is sent after the response to
        // the pending one, after `delay`, or after `MARKED` requests.
        if is_over || !load.has_marker() {
            unproven.mark(&mut buffer, written, load);
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
            // The body was abandoned: cut the connection, so that the server does not take the part for the whole.
            Ok(false) => return load.abandon(),
            // The reader notices the lost connection, and fails the pending requests.
            Err(_) => return,
        }
        if is_over {
            return;
        }
    }
}

/// Requests without a marker behind them yet, and the marker to send.
#[derive(Debug)]
struct Unproven {
    requests: u64,
    /// When the first of them was sent.
    since: Instant,
    marker: Option<SerializedMarker>,
    /// Another marker, in case one gets no response.
    spare: Option<SerializedMarker>,
}

impl Unproven {
    fn none() -> Self {
        Self { requests: 0, since: Instant::now(), marker: None, spare: None }
    }

    fn add(&mut self, request: &mut Queued) {
        if let Step::Unproven { marker, .. } = &mut request.step {
            if self.requests == 0 {
                self.since = Instant::now();
            }
            self.requests += 1;
            let before = std::mem::replace(&mut self.marker, marker.take());
            self.spare = before.or(self.spare.take());
        }
    }

    /// Sends the marker behind these requests, if there are any.
    fn mark(&mut self, buffer: &mut Buffer, written: &UnboundedSender<Queued>, load: &Load) {
        if let Some(marker) = self.marker.take() {
            send_marker(marker, std::mem::take(&mut self.requests), buffer, written, load);
        }
    }

    /// Sends the spare marker. After a shift the pending marker would never get a response; the response to the
    /// spare one arrives in its position and reveals the shift.
    fn mark_again(&mut self, buffer: &mut Buffer, written: &UnboundedSender<Queued>, load: &Load) {
        if let Some(spare) = self.spare.take() {
            send_marker(spare, 0, buffer, written, load);
        }
    }
}

fn send_marker(
    marker: SerializedMarker,
    requests: u64,
    buffer: &mut Buffer,
    written: &UnboundedSender<Queued>,
    load: &Load,
) {
    let mut queued = Queued::marker(marker);
    buffer.push(std::mem::take(&mut queued.head).into());
    load.marker_sent(queued.size.expected, requests);
    // If the reader has ended, there is nothing left to prove.
    let _ = written.send(queued);
}

/// A request body whose end is reported to the reader: the connection cannot be reused before.
struct Announced {
    /// The part that is not in memory; sent after the head and the part in memory.
    stream: Option<Stream>,
    is_wanted: oneshot::Receiver<()>,
    is_sent: oneshot::Sender<()>,
}

/// Takes the body of a request with exclusive use of the connection; `None` if it has no body, or for other requests.
fn announced(request: &mut Queued) -> Option<Announced> {
    let stream = request.alone.as_mut()?.stream.take();
    if stream.is_none() && request.size.sent == 0 {
        return None;
    }
    let (wanted, is_wanted) = oneshot::channel();
    let (sent, is_sent) = oneshot::channel();
    request.sending = Some(Sending { wanted: Some(wanted), is_sent });
    Some(Announced { stream, is_wanted, is_sent: sent })
}

impl Announced {
    /// Sends the buffer and the rest of the body. `false` if the body was abandoned before its end.
    async fn send<W: AsyncWrite + Unpin>(
        self,
        to: &mut W,
        buffer: &mut Buffer,
    ) -> io::Result<bool> {
        if let Some(mut stream) = self.stream {
            if let Some(longest) = stream.expects {
                // A server that ignores `Expect: 100-continue` does not respond to it (RFC 9110, 10.1.1).
                drop(timeout(longest, self.is_wanted).await);
            }
            if !send_stream(&mut stream, to, buffer).await? {
                return Ok(false);
            }
        }
        // The receiver is gone if the response has ended already.
        let _ = self.is_sent.send(());
        Ok(true)
    }
}

/// Sends a stream, chunked if its length is unknown. `false` if it was abandoned before its end.
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

/// Pieces to send, in order. None of them is empty.
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
