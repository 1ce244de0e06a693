//! The body of a request: counts its bytes, and times out if nothing arrives for too long.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep, timeout};

use super::limits;

/// A request's body.
pub(super) struct Received {
    incoming: Incoming,
    count: Arc<AtomicU64>,
    is_expecting: bool,
    /// The timeout, set while no bytes arrive.
    silence: Option<Pin<Box<Sleep>>>,
}

impl Received {
    /// The body of a request with these headers; its bytes are added to `count`.
    pub(super) fn new(incoming: Incoming, headers: &HeaderMap, count: Arc<AtomicU64>) -> Self {
        let is_expecting = headers.contains_key(header::EXPECT);
        Self { incoming, count, is_expecting, silence: None }
    }

    /// The whole body; `None` if it is longer than an XML request may be.
    pub(super) async fn xml(self) -> Option<Bytes> {
        Some(Limited::new(self, limits::XML).collect().await.ok()?.to_bytes())
    }

    /// Reads and discards the rest while the response is sent, within limits. A connection that is closed with unread
    /// bytes is reset, and the response may be lost.
    pub(super) fn drain(self) {
        const MAX_BYTES: usize = 64 << 20;
        const PATIENCE: Duration = Duration::from_secs(5);
        if self.is_end_stream() || self.waits_for_continue() {
            return;
        }
        let mut body = Limited::new(self, MAX_BYTES);
        tokio::spawn(async move {
            let all = async { while let Some(Ok(_)) = body.frame().await {} };
            // After the timeout the client may lose the response.
            let _ = timeout(PATIENCE, all).await;
        });
    }

    /// Whether the client waits for 100 Continue, which was not sent.
    fn waits_for_continue(&self) -> bool {
        self.is_expecting && self.count.load(Ordering::Relaxed) == 0
    }
}

/// A body that is lent to code which may drop it before its end.
pub(super) struct Lent {
    body: Option<Received>,
    lender: Arc<Mutex<Option<Received>>>,
}

/// Gets a lent body back.
pub(super) struct Lender(Arc<Mutex<Option<Received>>>);

impl Lent {
    pub(super) fn new(body: Received) -> (Self, Lender) {
        let lender = Arc::new(Mutex::new(None));
        (Self { body: Some(body), lender: Arc::clone(&lender) }, Lender(lender))
    }
}

impl Lender {
    /// The body, if its [`Lent`] was dropped.
    pub(super) fn take_back(self) -> Option<Received> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        *self.lender.lock().unwrap_or_else(PoisonError::into_inner) = self.body.take();
    }
}

impl Body for Lent {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        }
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
