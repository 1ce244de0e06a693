//! Messages in frames over a stream, in both directions: of a signalling connection, or of an exchange with a code. An
//! idle channel holds almost no memory.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use haul_storage::{Error, ErrorKind, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::wire::{Deframer, FRAME_HEADER, Frame, Limits, WireError, decode, message_frame};

/// Bytes read at once. Most messages are shorter.
const RECEIVED: usize = 512;

/// Time limit for sending a message, after which the connection is lost.
const STALLED: Duration = Duration::from_secs(15);

/// Messages over a stream.
#[derive(Debug)]
pub(super) struct Channel<S> {
    stream: S,
    deframer: Deframer,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Channel<S> {
    pub(super) const fn new(stream: S) -> Self {
        Self { stream, deframer: Deframer::new(Limits::EARLY) }
    }

    /// The next message; `None` at the end of the stream. If the future is dropped, nothing is lost.
    ///
    /// # Errors
    /// `Protocol` if the bytes are not messages, `Unreachable` if the connection is lost.
    pub(super) async fn next<M: prost::Message + Default>(&mut self) -> Result<Option<M>> {
        loop {
            match self.deframer.next_frame()? {
                Some(Frame::Message(bytes)) => return Ok(Some(decode(bytes)?)),
                Some(_) => {}
                None => {
                    let mut received = [0; RECEIVED];
                    let read = self.stream.read(&mut received).await;
                    let read = read.map_err(|error| lost(&error))?;
                    if read == 0 && self.deframer.is_within_frame() {
                        return Err(lost(&io::ErrorKind::UnexpectedEof.into()));
                    }
                    if read == 0 {
                        return Ok(None);
                    }
                    self.deframer.push(Bytes::copy_from_slice(&received[..read]));
                }
            }
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// If it is longer than the other side accepts, or the connection is lost.
    pub(super) async fn send(&mut self, message: &impl prost::Message) -> Result<()> {
        let frame = message_frame(message)?;
        let (length, limit) = (frame.len() - FRAME_HEADER, Limits::EARLY.message);
        if length > limit {
            return Err(WireError::TooLong { length, limit }.into());
        }
        let sending = async {
            self.stream.write_all(&frame).await?;
            self.stream.flush().await
        };
        let sent = timeout(STALLED, sending).await;
        sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(|error| lost(&error))
    }

    /// Closes the connection after the messages that were sent.
    pub(super) async fn close(mut self) {
        // The other side may be gone.
        drop(timeout(STALLED, self.stream.shutdown()).await);
    }
}

/// The error of a lost connection.
pub(super) fn lost(error: &io::Error) -> Error {
    let cause = match error.kind() {
        io::ErrorKind::UnexpectedEof => "the connection was closed".to_owned(),
        io::ErrorKind::TimedOut => "timed out".to_owned(),
        _ => error.to_string(),
    };
    Error::new(ErrorKind::Unreachable, "talk to the bridge").because(cause)
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::super::messages::{Connect, ToBridge, to_bridge};
    use super::*;
    use crate::wire::padding_frame;

    #[tokio::test]
    async fn messages_arrive_in_order_around_padding() {
        let (near, far) = duplex(100);
        let (mut near, mut far) = (Channel::new(near), Channel::new(far));
        let message = |id, count| {
            let connections = vec![Bytes::from_static(&[7; 32]); count];
            let connect = Connect { connections, ..Connect::default() };
            ToBridge { id, body: Some(to_bridge::Body::Connect(connect)) }
        };
        let sending = async {
            near.send(&message(1, 64)).await.unwrap();
            near.stream.write_all(&padding_frame(10)).await.unwrap();
            near.send(&message(2, 0)).await.unwrap();
            near.close().await;
        };
        let receiving = async {
            assert_eq!(far.next::<ToBridge>().await.unwrap(), Some(message(1, 64)));
            assert_eq!(far.next::<ToBridge>().await.unwrap(), Some(message(2, 0)));
            assert_eq!(far.next::<ToBridge>().await.unwrap(), None);
        };
        tokio::join!(sending, receiving);
    }

    #[tokio::test]
    async fn oversized_and_truncated_frames_are_errors() {
        let long = [0, 0, 0x10, 2, 1];
        for (bytes, kind) in [
            (&long[..], ErrorKind::Protocol),
            (&[0, 0, 0, 100, 2][..], ErrorKind::Protocol),
            (&[0, 0, 0, 9, 1, 8][..], ErrorKind::Unreachable),
        ] {
            let (mut near, far) = duplex(100);
            near.write_all(bytes).await.unwrap();
            drop(near);
            let error = Channel::new(far).next::<ToBridge>().await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
        }
        let (near, _far) = duplex(100);
        let connections = vec![Bytes::from_static(&[7; 32]); 200];
        let connect = Connect { connections, ..Connect::default() };
        let body = Some(to_bridge::Body::Connect(connect));
        let error = Channel::new(near).send(&ToBridge { id: 1, body }).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
    }
}
