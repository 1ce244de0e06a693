//! Both ends of a lane: send messages and bulk data by priority, and receive frames.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use haul_storage::{Error, ErrorKind, Result};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

use crate::outbox::{Outbox, Outgoing};
use crate::wire::{Deframer, Frame, Limits};

/// Maximum bytes that are received into one buffer.
const RECEIVED: usize = 256 << 10;

/// A lane whose other side takes nothing for this long is lost.
pub(crate) const STALLED: Duration = Duration::from_secs(60);

/// Unsent bytes that the kernel may buffer. They stay on this lane, even if another one could send them sooner.
const UNSENT: u32 = 256 << 10;

/// The same from an RTT of [`LONG_RTT`] on: a lane that has just been opened sends little in an RTT.
const UNSENT_LONG_RTT: u32 = 32 << 10;
const LONG_RTT: Duration = Duration::from_millis(2);

/// Sets the options that both sides need: no delay, little unsent data in the kernel, and detection of a vanished peer
/// within [`STALLED`].
pub(crate) fn set(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let socket = SockRef::from(socket);
    let keepalive = TcpKeepalive::new().with_time(STALLED / 4).with_interval(STALLED / 8);
    socket.set_tcp_keepalive(&keepalive.with_retries(4))?;
    #[cfg(target_os = "linux")]
    {
        socket.set_tcp_notsent_lowat(UNSENT)?;
        socket.set_tcp_user_timeout(Some(STALLED))?;
    }
    Ok(())
}

/// Adapts what the kernel may buffer to the RTT.
pub(crate) fn adapt(socket: &TcpStream, rtt: Duration) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    if rtt >= LONG_RTT {
        SockRef::from(socket).set_tcp_notsent_lowat(UNSENT_LONG_RTT)?;
    }
    Ok(())
}

/// Counts the signs that the other side of a lane is alive: bytes received, and bytes of bulk data that the connection
/// has accepted. Sent messages do not count, since the connection has room for them in any case.
#[derive(Debug, Clone, Default)]
pub(crate) struct Traffic(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    all: AtomicU64,
    /// Those of complete messages that are no progress.
    idle: AtomicU64,
}

impl Traffic {
    /// Adds bytes.
    pub(crate) fn add(&self, bytes: usize) {
        self.0.all.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Notes that the last bytes were a message that only shows that the other side is alive.
    pub(crate) fn add_idle(&self, bytes: usize) {
        self.0.idle.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.all.load(Ordering::Relaxed)
    }

    /// Bytes so far without those of messages that only show that the other side is alive.
    pub(crate) fn progress(&self) -> u64 {
        self.bytes().saturating_sub(self.0.idle.load(Ordering::Relaxed))
    }
}

/// Sends messages, and bulk data whenever no message waits, until `messages` ends. `taken` is called
/// with each piece that this lane takes from the outbox.
///
/// # Errors
/// If the connection is lost. A piece that was being sent is lost with it.
pub(crate) async fn send(
    mut stream: impl AsyncWrite + Unpin,
    mut messages: UnboundedReceiver<Bytes>,
    outbox: &Outbox,
    traffic: &Traffic,
    taken: impl Fn(&Outgoing),
) -> io::Result<()> {
    let of_messages = Traffic::default();
    loop {
        let piece = tokio::select! {
            biased;
            message = messages.recv() => {
                let Some(message) = message else { break };
                write(&mut stream, &message, &of_messages).await?;
                while let Ok(message) = messages.try_recv() {
                    write(&mut stream, &message, &of_messages).await?;
                }
                (!messages.is_closed()).then(|| outbox.take()).flatten()
            }
            piece = outbox.next() => Some(piece),
        };
        let mut next = piece;
        while let Some(piece) = next.take() {
            taken(&piece);
            let Outgoing { head, data, room, .. } = piece;
            write(&mut stream, &head, traffic).await?;
            for part in data.pieces() {
                write(&mut stream, part, traffic).await?;
            }
            drop(room);
            // A lane that was closed meanwhile takes no further piece, even if it was blocked until now.
            if messages.is_empty() && !messages.is_closed() {
                next = outbox.take();
            }
        }
        within(stream.flush()).await?;
    }
    within(stream.shutdown()).await
}

/// Writes everything, as long as some of it is taken within [`STALLED`].
async fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    mut bytes: &[u8],
    traffic: &Traffic,
) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = timeout(STALLED, stream.write(bytes)).await;
        let written = written.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        traffic.add(written);
        bytes = &bytes[written..];
    }
    Ok(())
}

/// Limits a flush or shutdown to [`STALLED`].
async fn within(write: impl Future<Output = io::Result<()>>) -> io::Result<()> {
    timeout(STALLED, write).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Frames from a lane.
#[derive(Debug)]
pub(crate) struct Frames<S> {
    stream: S,
    deframer: Deframer,
    buffer: BytesMut,
    traffic: Traffic,
}

impl<S: AsyncRead + Unpin> Frames<S> {
    /// Accepts only a short first message until [`Frames::accept_all`].
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            deframer: Deframer::new(Limits::EARLY),
            buffer: BytesMut::new(),
            traffic: Traffic::default(),
        }
    }

    /// Counts what has been received; [`send`] adds the bulk data that it sends.
    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic.clone()
    }

    /// Accepts frames as between authenticated peers.
    pub(crate) const fn accept_all(&mut self) {
        self.deframer.set_limit(Limits::FULL);
    }

    /// The next frame; `None` at the end of the stream.
    ///
    /// # Errors
    /// `Protocol` if the bytes are not frames, `Unreachable` if the connection is lost.
    pub(crate) async fn next(&mut self) -> Result<Option<Frame>> {
        loop {
            match self.deframer.next_frame()? {
                Some(Frame::Skipped) => {}
                Some(frame) => return Ok(Some(frame)),
                None => {
                    // Receives the rest of a frame into one buffer, although it arrives in TLS records.
                    let missing = self.deframer.missing().min(RECEIVED);
                    self.buffer.reserve(missing.max(16 << 10));
                    while self.buffer.len() < missing {
                        let read = self.stream.read_buf(&mut self.buffer).await;
                        let read = read.map_err(|error| lost(&error))?;
                        self.traffic.add(read);
                        let is_within = self.deframer.is_within_frame() || !self.buffer.is_empty();
                        if read == 0 && is_within {
                            return Err(lost(&io::ErrorKind::UnexpectedEof.into()));
                        }
                        if read == 0 {
                            return Ok(None);
                        }
                    }
                    let received = self.buffer.copy_to_bytes(self.buffer.len());
                    self.deframer.push(received);
                }
            }
        }
    }
}

/// The error of a lost connection.
pub(crate) fn lost(error: &io::Error) -> Error {
    let cause = match error.kind() {
        io::ErrorKind::UnexpectedEof => "the peer closed the connection".to_owned(),
        _ => error.to_string(),
    };
    Error::new(ErrorKind::Unreachable, "talk to the peer").because(cause)
}
