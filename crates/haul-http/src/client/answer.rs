//! An answer: its head, and its body as it comes.

use std::ops::Deref;
use std::time::Duration;

use bytes::Bytes;
use haul_storage::{Error, ErrorKind, Result};
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use tokio::time::timeout;

use super::error;
use super::lanes::Lease;
use crate::parse::{Url, keep_alive, length};

const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// After this long without a byte a connection is taken for dead. A slow one is not.
pub const SILENCE: Duration = Duration::from_secs(60);

/// A body that nobody wants is read to its end if no more than this is left, so that the connection
/// can be used again.
const DRAINED_MOST: u64 = 64 << 10;

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
    head: Head,
    body: Incoming,
    lease: Option<Lease>,
}

impl Deref for Answer {
    type Target = Head;

    fn deref(&self) -> &Head {
        &self.head
    }
}

impl Answer {
    /// The answer to a request on `lease`.
    pub fn new(response: http::Response<Incoming>, url: Url, mut lease: Lease) -> Self {
        let (head, body) = response.into_parts();
        let head = Head { status: head.status, headers: head.headers, url };
        lease.is_kept(head.header(&KEEP_ALIVE).and_then(keep_alive::parse));
        let mut answer = Self { head, body, lease: Some(lease) };
        answer.free_if_read();
        answer
    }

    /// Who answered what.
    pub const fn url(&self) -> &Url {
        &self.head.url
    }

    /// The next bytes of the body; `None` at its end.
    pub async fn next(&mut self, operation: &'static str) -> Result<Option<Bytes>> {
        loop {
            let frame = timeout(SILENCE, self.body.frame()).await;
            let frame =
                frame.map_err(|_| error::silent(operation, &self.head.url, SILENCE.as_secs()))?;
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
                    .because(format!("the answer is longer than {most} bytes")));
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

    /// Reads what nobody wants, if that is cheaper than a new connection.
    pub async fn drain(mut self) {
        let known = self.body.size_hint().upper();
        if known.is_some_and(|left| left > DRAINED_MOST) {
            return;
        }
        let mut left = DRAINED_MOST;
        while self.lease.is_some() {
            match self.next("read").await {
                Ok(Some(bytes)) if left >= bytes.len() as u64 => left -= bytes.len() as u64,
                // The connection ends with the lease.
                _ => return,
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
