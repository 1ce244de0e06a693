//! The body of a request as it arrives: counted, and given up when nothing comes for too long.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep, timeout};

use super::limits;

/// A request's body.
pub(super) struct Received {
    incoming: Incoming,
    count: Arc<AtomicU64>,
    /// Set while nothing comes.
    silence: Option<Pin<Box<Sleep>>>,
}

impl Received {
    pub(super) fn new(incoming: Incoming, count: Arc<AtomicU64>) -> Self {
        Self { incoming, count, silence: None }
    }

    /// All of it, if that is no more than a request of XML may have.
    pub(super) async fn xml(self) -> Option<Bytes> {
        Some(Limited::new(self, limits::XML).collect().await.ok()?.to_bytes())
    }

    /// Takes what is on its way, so that the answer is not lost with it: a connection that is closed
    /// with something unread is reset.
    pub(super) async fn drain(self) {
        const AT_MOST: usize = 1 << 20;
        const PATIENCE: Duration = Duration::from_secs(2);
        let mut body = Limited::new(self, AT_MOST);
        let all = async { while let Some(Ok(_)) = body.frame().await {} };
        // What is left is the client's loss.
        let _ = timeout(PATIENCE, all).await;
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match Pin::new(&mut self.incoming).poll_frame(context) {
            Poll::Ready(frame) => {
                self.silence = None;
                if let Some(Ok(frame)) = &frame {
                    let bytes = frame.data_ref().map_or(0, Bytes::len);
                    self.count.fetch_add(bytes as u64, Ordering::Relaxed);
                }
                Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)))
            }
            Poll::Pending => {
                let silence = self.silence.get_or_insert_with(|| Box::pin(sleep(limits::SILENCE)));
                match silence.as_mut().poll(context) {
                    Poll::Ready(()) => Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into()))),
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
