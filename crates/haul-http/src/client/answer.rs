//! An answer: its head, and its body as it comes.

use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use haul_net::HostWaits;
use haul_storage::{Error, ErrorKind, Result};
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::timeout;

use super::error;
use super::lanes::Lease;
use crate::parse::{Url, keep_alive, length};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// A body that nobody wants is read to its end if no more than this is left, so that the connection
/// can be used again.
const DRAINED_MOST: u64 = 64 << 10;

/// So long, or four round trips if that is longer, the next bytes of a body that nobody wants are waited
/// for, and [`DRAINED_WITHIN`] all of them. A new connection costs less.
const DRAINED_IDLE: Duration = Duration::from_secs(1);
const DRAINED_WITHIN: Duration = Duration::from_secs(5);

/// The same once a body of that server has not ended.
const DRAINED_ENDLESS: Duration = Duration::from_millis(50);

/// A body that has been waited for longer than this and brought fewer bytes a second is one that never
/// ends. Time in which nobody reads it does not count.
const ENDLESS_AFTER: Duration = Duration::from_secs(300);
const ENDLESS_BELOW: u64 = 64;

/// What a server says before the body.
#[derive(Debug, Clone)]
pub struct Head {
    /// The status.
    pub status: StatusCode,
    /// The header fields.
    pub headers: HeaderMap,
    /// Who answered what, at the end of all redirects.
    pub url: Url,
}

impl Head {
    /// A header field as text; `None` if it is not there or no text.
    pub fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The length of the body, if the server reports one that counts: a transfer coding overrides it
    /// (RFC 9112, 6.3). Answers whose length is malformed do not come this far.
    pub fn length(&self) -> Option<u64> {
        if self.headers.contains_key(TRANSFER_ENCODING) {
            return None;
        }
        let values = self.headers.get_all(CONTENT_LENGTH);
        length::parse(values.iter().map(HeaderValue::as_bytes)).ok().flatten()
    }
}

/// What a server answers.
#[derive(Debug)]
pub struct Answer {
    head: Box<Head>,
    body: Incoming,
    lease: Option<Lease>,
    method: Method,
    waits: HostWaits,
    /// How long the body was waited for, and how much of it has come.
    waited: Duration,
    received: u64,
}

impl Deref for Answer {
    type Target = Head;

    fn deref(&self) -> &Head {
        &self.head
    }
}

impl Answer {
    /// The answer to a request by `method` on `lease`.
    pub fn new(
        response: http::Response<Incoming>,
        url: Url,
        method: Method,
        mut lease: Lease,
    ) -> Self {
        let (head, body) = response.into_parts();
        let head = Box::new(Head { status: head.status, headers: head.headers, url });
        lease.is_kept(head.header(&KEEP_ALIVE).and_then(keep_alive::parse));
        let waits = lease.lanes().waits().clone();
        let (waited, received) = (Duration::ZERO, 0);
        let lease = Some(lease);
        let mut answer = Self { head, body, lease, method, waits, waited, received };
        answer.free_if_read();
        answer
    }

    /// Who answered what.
    pub fn url(&self) -> &Url {
        &self.head.url
    }

    /// The next bytes of the body; `None` at its end.
    pub async fn next(&mut self, operation: &'static str) -> Result<Option<Bytes>> {
        loop {
            let began = Instant::now();
            let (method, url) = (&self.method, &self.head.url);
            let what = || format!("rest of the response to {method} {}", url.path());
            let silence = self.waits.silence();
            let frame = self.waits.within(silence, what, self.body.frame()).await;
            let frame = frame.ok_or_else(|| error::silent(operation, url, silence.as_secs()))?;
            self.waited += began.elapsed();
            let seconds = self.waited.as_secs();
            if self.waited > ENDLESS_AFTER && self.received < seconds * ENDLESS_BELOW {
                return Err(error::endless(operation, url, self.received, seconds));
            }
            match frame {
                None => {
                    // A body in chunks never says of itself that it has ended.
                    if let Some(lease) = self.lease.take() {
                        lease.give_back();
                    }
                    return Ok(None);
                }
                Some(Err(failed)) => {
                    return Err(error::of_hyper(&failed, operation, &self.head.url));
                }
                Some(Ok(frame)) => {
                    self.free_if_read();
                    // What is no data are trailers.
                    if let Ok(data) = frame.into_data()
                        && !data.is_empty()
                    {
                        self.received += data.len() as u64;
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// All of the body.
    ///
    /// # Errors
    /// `Protocol` if it is longer than `most` bytes.
    pub async fn whole(&mut self, operation: &'static str, most: usize) -> Result<Vec<u8>> {
        let mut whole = Vec::new();
        while let Some(bytes) = self.next(operation).await? {
            if whole.len() + bytes.len() > most {
                return Err(Error::new(ErrorKind::Protocol, operation)
                    .at(&self.head.url)
                    .because(format!("the response is longer than {most} bytes")));
            }
            whole.extend_from_slice(&bytes);
        }
        Ok(whole)
    }

    /// Says that the body is read as fast as somebody else likes.
    pub fn hold(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.hold();
        }
    }

    /// Reads what nobody wants, if that is cheaper than a new connection. There are servers whose
    /// bodies do not end where only the head matters, so this never takes long.
    pub async fn drain(mut self) {
        let known = self.body.size_hint().upper();
        let Some(lease) = self.lease.as_ref().filter(|_| known.is_none_or(|n| n <= DRAINED_MOST))
        else {
            return;
        };
        let lanes = Arc::clone(lease.lanes());
        let rtt = lanes.rtt().unwrap_or_default();
        let idle = match lanes.is_endless() {
            true => DRAINED_ENDLESS,
            false => DRAINED_IDLE.max(4 * rtt),
        };
        let (began, mut left) = (Instant::now(), DRAINED_MOST);
        while self.lease.is_some() {
            match timeout(idle, self.next("read")).await {
                Ok(Ok(Some(bytes)))
                    if left >= bytes.len() as u64 && began.elapsed() < DRAINED_WITHIN =>
                {
                    left -= bytes.len() as u64;
                }
                // The connection ends with the lease.
                Ok(_) => return,
                Err(_) => {
                    if known.is_none() && left == DRAINED_MOST {
                        lanes.is_endless_from_now_on();
                    }
                    return;
                }
            }
        }
    }

    fn free_if_read(&mut self) {
        if self.body.is_end_stream()
            && let Some(lease) = self.lease.take()
        {
            lease.give_back();
        }
    }
}
