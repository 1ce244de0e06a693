//! Checks that a server responds to the requests on a shared connection in their order.
//!
//! HTTP/1.1 matches responses to requests by position alone (RFC 9112, 9.3.2). A server or proxy that
//! loses one request shifts all later responses by one, and a file gets the content of another. The
//! response with a part of a file names its range, which is compared. Any other response counts only
//! once the response to a [`Marker`] sent behind it has arrived in the marker's place.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use haul_storage::Range;
use http::header::{ACCEPT_ENCODING, CONTENT_RANGE, RANGE};
use http::{HeaderValue, Method, StatusCode};

use super::facts::bytes_of;
use super::head::Head;
use super::request::Request;
use crate::parse::Url;
use crate::parse::ranges::ContentRange;

/// A file used for the markers of other requests has at least this many bytes: more than there are markers in flight
/// on a connection, so that each of them has an offset of its own.
const REFERENCE_LEAST: u64 = 64;

/// Markers in a file of unknown length have offsets below this: most files are longer.
const UNKNOWN_LENGTH: u64 = 8;

/// After this many strikes ([`Order::strike`]) in a row, each connection gets one request at a time.
const STRIKES: u32 = 3;

/// A server that closes shared connections after at most this many responses does not support
/// pipelining: it sends `Connection: close` each time, or refuses the second request.
pub const FEW_RESPONSES: u64 = 3;

/// What may be pipelined on shared connections: everything, only ranges, or nothing.
const ALL: u8 = 0;
const ONLY_RANGES: u8 = 1;
const NOTHING: u8 = 2;

/// What is known about a server's order of responses.
#[derive(Debug)]
pub struct Order {
    distrust: AtomicU8,
    strikes: AtomicU32,
    /// Responses on the connection that the server closed last.
    last_end: AtomicU64,
    most: AtomicU64,
    /// Requests that the server takes on a connection, as it announced last.
    announced: AtomicU64,
    markers: AtomicU64,
    /// A file of known length that is served in ranges.
    reference: Mutex<Option<(Url, u64)>>,
}

/// A marker reads one byte of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// The file.
    pub url: Url,
    /// The offset of the byte.
    pub at: u64,
    /// The length of the file, if it is known.
    length: Option<u64>,
    /// Whether the file may then be used for the markers of other requests.
    may_serve: bool,
}

/// What the response in a marker's place proves.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Everything before it is the response to its own request.
    InStep,
    /// Nothing.
    NoProof,
    /// Responses were shifted, or the server does not serve ranges and cannot prove anything.
    OutOfStep,
}

impl Default for Order {
    fn default() -> Self {
        Self {
            distrust: AtomicU8::new(ALL),
            strikes: AtomicU32::new(0),
            last_end: AtomicU64::new(0),
            most: AtomicU64::new(u64::MAX),
            announced: AtomicU64::new(u64::MAX),
            markers: AtomicU64::new(0),
            reference: Mutex::default(),
        }
    }
}

impl Order {
    /// Whether anything but ranges of files may be requested on a shared connection.
    pub fn takes_whole(&self) -> bool {
        self.distrust.load(Ordering::Relaxed) == ALL
    }

    /// Whether more than one request may be in flight on a connection.
    pub fn takes_parts(&self) -> bool {
        self.distrust.load(Ordering::Relaxed) < NOTHING
    }

    /// From now on, only ranges are requested on shared connections.
    pub fn only_ranges(&self) {
        self.distrust.fetch_max(ONLY_RANGES, Ordering::Relaxed);
    }

    /// From now on, each connection gets one request at a time.
    pub fn one_at_a_time(&self) {
        self.distrust.store(NOTHING, Ordering::Relaxed);
    }

    /// The server closed a connection after hardly any response, or dropped or refused (400) pipelined requests.
    pub fn strike(&self) {
        if self.strikes.fetch_add(1, Ordering::Relaxed) + 1 >= STRIKES {
            self.one_at_a_time();
        }
    }

    /// The server closed a connection behind response `number`. If it does so behind the same number twice in a row,
    /// later connections get at most that many requests, markers included: the last responses would otherwise have no
    /// marker behind them, and be discarded.
    pub fn on_end(&self, number: u64) {
        if self.last_end.swap(number, Ordering::Relaxed) == number {
            self.most.fetch_min(number, Ordering::Relaxed);
        }
    }

    /// The server has announced on a connection that it takes `most` requests on it (`Keep-Alive: max=`). Other
    /// connections begin with that limit: their own first response is too late for the requests pipelined before it.
    pub fn on_announced(&self, most: u64) {
        if most > FEW_RESPONSES {
            self.announced.store(most, Ordering::Relaxed);
        }
    }

    /// The most requests that the server accepts on a connection.
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed).min(self.announced.load(Ordering::Relaxed))
    }

    /// A connection has delivered several responses, or a marker has proven their order.
    pub fn goes_on(&self) {
        self.strikes.store(0, Ordering::Relaxed);
    }

    /// A marker for a request; `None` if there is no file for it.
    pub fn marker(&self, request: &Request) -> Option<Marker> {
        let number = self.markers.fetch_add(1, Ordering::Relaxed);
        let sent = request.body.len() as u64;
        let (url, modulus, length, may_serve) = if request.method != Method::PUT {
            match self.reference() {
                Some((url, length)) => (url, length, Some(length), false),
                None => (request.url.clone(), UNKNOWN_LENGTH, None, true),
            }
        } else if sent >= REFERENCE_LEAST {
            // It may be a part file, which no longer exists after its rename.
            (request.url.clone(), sent, Some(sent), false)
        } else {
            let (url, length) = self.reference()?;
            (url, length, Some(length), false)
        };
        Some(Marker { url, at: number % modulus, length, may_serve })
    }

    /// What the response in a marker's place proves.
    pub fn on_marker(&self, marker: &Marker, head: &Head) -> Verdict {
        let verdict = marker.judge(head);
        match verdict {
            Verdict::InStep => {
                self.goes_on();
                let total = total(head).filter(|total| *total >= REFERENCE_LEAST);
                if let (true, Some(total)) = (marker.may_serve, total) {
                    self.lock().get_or_insert_with(|| (marker.url.clone(), total));
                }
            }
            // The file may no longer exist, or require credentials by now.
            Verdict::NoProof => {
                drop(self.lock().take_if(|(url, _)| *url == marker.url));
            }
            Verdict::OutOfStep => self.only_ranges(),
        }
        verdict
    }

    fn reference(&self) -> Option<(Url, u64)> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<(Url, u64)>> {
        self.reference.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Marker {
    /// A marker behind a range written at `offset`.
    pub const fn behind_part(url: Url, offset: u64) -> Self {
        Self { url, at: offset, length: None, may_serve: false }
    }

    /// The request for it.
    pub fn request(&self) -> Request {
        // The text is ASCII, so this cannot fail.
        let range = HeaderValue::try_from(bytes_of(Range::new(self.at, 1)));
        Request::new(Method::GET, self.url.clone(), "read")
            .with(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
            .with(RANGE, range.unwrap_or(HeaderValue::from_static("bytes=0-0")))
    }

    fn judge(&self, head: &Head) -> Verdict {
        match head.status {
            StatusCode::PARTIAL_CONTENT => match content_range(head) {
                Some(ContentRange::Bytes { first, last, total })
                    if (first, last) == (self.at, self.at)
                        && self.length.is_none_or(|length| total.is_none_or(|t| t == length)) =>
                {
                    Verdict::InStep
                }
                _ => Verdict::OutOfStep,
            },
            StatusCode::OK => Verdict::OutOfStep,
            _ => Verdict::NoProof,
        }
    }
}

fn content_range(head: &Head) -> Option<ContentRange> {
    ContentRange::parse(head.header(&CONTENT_RANGE)?).ok()
}

fn total(head: &Head) -> Option<u64> {
    content_range(head)?.total()
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::*;
    use crate::parse::{Origin, WebScheme};

    fn url() -> Url {
        Url::new(Origin::new(WebScheme::Http, "host", None).unwrap(), b"/file", None).unwrap()
    }

    fn head(status: u16, range: &str) -> Head {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_RANGE, HeaderValue::from_str(range).unwrap());
        Head { status: StatusCode::from_u16(status).unwrap(), headers, url: url() }
    }

    #[test]
    fn only_the_byte_of_a_marker_proves_the_order() {
        let marker = Marker { url: url(), at: 5, length: Some(70), may_serve: false };
        for (status, range, verdict) in [
            (206, "bytes 5-5/70", Verdict::InStep),
            (206, "bytes 5-5/*", Verdict::InStep),
            (206, "bytes 5-5/71", Verdict::OutOfStep),
            (206, "bytes 4-4/70", Verdict::OutOfStep),
            (206, "bytes 5-6/70", Verdict::OutOfStep),
            (206, "nonsense", Verdict::OutOfStep),
            (200, "bytes 5-5/70", Verdict::OutOfStep),
            (416, "bytes */3", Verdict::NoProof),
            (404, "bytes 5-5/70", Verdict::NoProof),
        ] {
            assert_eq!(marker.judge(&head(status, range)), verdict, "{status} {range}");
        }
    }

    #[test]
    fn a_file_that_proved_the_order_is_used_for_other_markers() {
        let order = Order::default();
        let get = |name: &str| Request::new(Method::GET, url().with_path(name), "read");
        let first = order.marker(&get("/a")).unwrap();
        assert_eq!((first.url.path(), first.at, first.length), ("/a", 0, None));
        assert_eq!(order.on_marker(&first, &head(206, "bytes 0-0/63")), Verdict::InStep);
        let second = order.marker(&get("/b")).unwrap();
        assert_eq!((second.url.path(), second.at), ("/b", 1), "the other one was too short");
        assert_eq!(order.on_marker(&second, &head(206, "bytes 1-1/64")), Verdict::InStep);
        let third = order.marker(&get("/c")).unwrap();
        assert_eq!((third.url.path(), third.at, third.length), ("/b", 2, Some(64)));
        assert_eq!(order.on_marker(&third, &head(404, "-")), Verdict::NoProof);
        assert!(order.takes_whole());
        let fourth = order.marker(&get("/d")).unwrap();
        assert_eq!(fourth.url.path(), "/d", "the file is gone");
        assert_eq!(order.on_marker(&fourth, &head(200, "-")), Verdict::OutOfStep);
        assert!(!order.takes_whole() && order.takes_parts());
    }

    #[test]
    fn the_limit_of_requests_per_connection_is_learnt_from_two_connections() {
        let order = Order::default();
        for number in [7, 3, 7] {
            order.on_end(number);
            assert_eq!(order.most(), u64::MAX);
        }
        order.on_end(7);
        assert_eq!(order.most(), 7);
    }

    #[test]
    fn markers_of_stored_files_are_within_them_and_differ() {
        let order = Order::default();
        let put = |length| {
            let mut request = Request::new(Method::PUT, url(), "write");
            request.body.push(vec![0; length].into());
            request
        };
        assert_eq!(order.marker(&put(63)), None, "there is no file for it");
        let offsets = (0..64).map(|_| order.marker(&put(64)).unwrap().at);
        let mut offsets: Vec<_> = offsets.collect();
        offsets.sort_unstable();
        assert_eq!(offsets, (0..64).collect::<Vec<_>>());
    }
}
