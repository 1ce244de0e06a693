//! The body of a request: counts its bytes, compares them with the announced length, and times out if nothing arrives
//! for too long.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::time::{Sleep, sleep, timeout};

use super::limits;

/// With it, the Finder of macOS announces the length of a body in chunks.
const EXPECTED_LENGTH: HeaderName = HeaderName::from_static("x-expected-entity-length");

/// A request's body.
pub(super) struct Received {
    incoming: Incoming,
    count: Arc<AtomicU64>,
    /// The bytes that are still to arrive, if their number was announced.
    left: Option<u64>,
    /// The status for a request whose body does not arrive as announced: the client's fault.
    failure: Option<StatusCode>,
    /// The client waits for 100 Continue before it sends the body. hyper sends that once the body is first read.
    awaits_continue: bool,
    /// The timeout, set while no bytes arrive.
    silence: Option<Pin<Box<Sleep>>>,
}

impl Received {
    /// The body of a request with these headers; its bytes are added to `count`.
    pub(super) fn new(incoming: Incoming, headers: &HeaderMap, count: Arc<AtomicU64>) -> Self {
        let awaits_continue = headers.contains_key(header::EXPECT);
        let number = |name| headers.get(name)?.to_str().ok()?.parse().ok();
        let left = number(header::CONTENT_LENGTH).or_else(|| number(EXPECTED_LENGTH));
        Self { incoming, count, left, failure: None, awaits_continue, silence: None }
    }

    /// Counts the bytes of a frame; at the end (`None`), all must have arrived.
    fn counted(&mut self, frame: Option<&Frame<Bytes>>) -> io::Result<()> {
        let bytes = frame.map(|frame| frame.data_ref().map_or(0, Bytes::len) as u64);
        self.count.fetch_add(bytes.unwrap_or(0), Ordering::Relaxed);
        let Some(left) = self.left else { return Ok(()) };
        let rest = match bytes {
            Some(bytes) => left.checked_sub(bytes),
            None => Some(left).filter(|left| *left == 0),
        };
        let wrong = || io::Error::other("the body has another length than announced");
        self.left = Some(rest.ok_or_else(wrong)?);
        Ok(())
    }

    fn failed(&mut self, status: StatusCode, error: io::Error) -> io::Error {
        self.failure = Some(status);
        error
    }

    /// Reads and discards the rest while the response is sent, within limits. A connection that is closed with unread
    /// bytes is reset, and the response may be lost.
    fn drain(self) {
        const MAX_BYTES: usize = 64 << 20;
        const PATIENCE: Duration = Duration::from_secs(5);
        if self.is_end_stream() || self.awaits_continue {
            return;
        }
        // Its length no longer matters.
        let mut body = Limited::new(Self { left: None, ..self }, MAX_BYTES);
        tokio::spawn(async move {
            let all = async { while let Some(Ok(_)) = body.frame().await {} };
            // After the timeout the client may lose the response.
            let _ = timeout(PATIENCE, all).await;
        });
    }
}

/// A body that is lent to code which may drop it before its end, for instance because it refuses the request.
pub(super) struct Lent {
    body: Option<Received>,
    lender: Arc<Mutex<Option<Received>>>,
}

/// Drains a lent body that its borrower did not read to its end.
pub(super) struct Lender(Arc<Mutex<Option<Received>>>);

impl Lent {
    pub(super) fn new(body: Received) -> (Self, Lender) {
        let lender = Arc::new(Mutex::new(None));
        (Self { body: Some(body), lender: Arc::clone(&lender) }, Lender(lender))
    }

    /// The whole body; `None` if it is longer than an XML request may be, or cannot be read.
    pub(super) async fn xml(self) -> Option<Bytes> {
        Some(Limited::new(self, limits::XML).collect().await.ok()?.to_bytes())
    }
}

impl Lender {
    /// The status if the borrower has failed to read the body, once its [`Lent`] was dropped.
    pub(super) fn failure(&self) -> Option<StatusCode> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.failure
    }

    /// Drains the body, once its [`Lent`] was dropped.
    pub(super) fn drain(self) {
        let body = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(body) = body {
            body.drain();
        }
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
        self.awaits_continue = false;
        match Pin::new(&mut self.incoming).poll_frame(context) {
            Poll::Ready(frame) => {
                self.silence = None;
                let frame = frame.transpose().map_err(io::Error::other);
                let counted = frame.and_then(|frame| {
                    self.counted(frame.as_ref())?;
                    Ok(frame)
                });
                let failed = |error| self.failed(StatusCode::BAD_REQUEST, error);
                Poll::Ready(counted.map_err(failed).transpose())
            }
            Poll::Pending => {
                let silence = self.silence.get_or_insert_with(|| Box::pin(sleep(limits::SILENCE)));
                match silence.as_mut().poll(context) {
                    Poll::Ready(()) => {
                        let timed_out = io::ErrorKind::TimedOut.into();
                        Poll::Ready(Some(Err(self.failed(StatusCode::REQUEST_TIMEOUT, timed_out))))
                    }
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::poll_fn;

    use http::{Request, Response, StatusCode};
    use http_body_util::Empty;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::sync::Notify;

    use super::*;

    const BODY: usize = 1 << 20;
    const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

    /// Refuses a request whose body it has begun to read, once `refuse` is notified.
    async fn refused(
        request: Request<Incoming>,
        refuse: Arc<Notify>,
    ) -> Result<Response<Empty<Bytes>>, Infallible> {
        let (head, body) = request.into_parts();
        let mut body = Received::new(body, &head.headers, Arc::default());
        let begun = |context: &mut Context<'_>| {
            Poll::Ready(Pin::new(&mut body).poll_frame(context).is_pending())
        };
        assert!(poll_fn(begun).await);
        refuse.notified().await;
        body.drain();
        let mut response = Response::new(Empty::new());
        *response.status_mut() = StatusCode::FORBIDDEN;
        Ok(response)
    }

    /// Formerly, the status was 504: the server's fault.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_is_the_clients_fault() {
        let (mut client, server) = duplex(4 << 10);
        let (sender, failure) = tokio::sync::oneshot::channel();
        let sender = Mutex::new(Some(sender));
        let service = service_fn(|request: Request<Incoming>| {
            let (head, body) = request.into_parts();
            let (lent, lender) = Lent::new(Received::new(body, &head.headers, Arc::default()));
            let sender = sender.lock().unwrap().take().unwrap();
            async move {
                assert!(lent.xml().await.is_none());
                sender.send(lender.failure()).unwrap();
                Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
            }
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(server), service);
        client.write_all(b"PUT / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab").await.unwrap();
        let (served, failure) = tokio::join!(connection, failure);
        served.unwrap();
        assert_eq!(failure, Ok(Some(StatusCode::REQUEST_TIMEOUT)));
    }

    /// Regression: between 100 Continue and the first byte, the client counted as still waiting.
    #[tokio::test]
    async fn a_body_is_drained_once_100_continue_was_sent() {
        let (mut client, server) = duplex(4 << 10);
        let refuse = Arc::new(Notify::new());
        let service = service_fn(|request| refused(request, Arc::clone(&refuse)));
        let connection = http1::Builder::new().serve_connection(TokioIo::new(server), service);
        let exchange = async {
            let head = format!(
                "PUT / HTTP/1.1\r\nHost: host\r\nConnection: close\r\nExpect: 100-continue\r\n\
                 Content-Length: {BODY}\r\n\r\n"
            );
            client.write_all(head.as_bytes()).await.unwrap();
            let mut begun = [0; CONTINUE.len()];
            client.read_exact(&mut begun).await.unwrap();
            assert_eq!(begun, CONTINUE);
            refuse.notify_one();
            client.write_all(&vec![0; BODY]).await.unwrap();
            let mut response = String::new();
            client.read_to_string(&mut response).await.unwrap();
            assert!(response.starts_with("HTTP/1.1 403 "), "{response}");
        };
        let (served, ()) = tokio::join!(connection, exchange);
        served.unwrap();
    }
}
