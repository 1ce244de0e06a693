//! The load of a connection: bytes outstanding on it, relative to what it carries per RTT.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use haul_net::Pace;
use haul_net::pool::ENOUGH;
use tokio::sync::Notify;

use super::order::Order;

/// Bytes that a new lane is expected to carry per RTT, at least.
const FIRST_ALLOWANCE: u64 = 256 << 10;
/// A lane is expected to carry up to this multiple of the most bytes that it has carried in an RTT.
const GROWTH: u64 = 2;

/// The minimum instead of [`FIRST_ALLOWANCE`] when bytes arrive on a lane that was open long enough to show what it
/// carries. Uploads keep the first minimum.
const LEAST_ALLOWANCE: u64 = 32 << 10;
/// A lane has shown what it carries after this many RTTs.
const SHOWN_AFTER: u32 = 8;
/// But not before this time.
const SHOWN_AFTER_AT_LEAST: Duration = Duration::from_secs(1);

/// Room for the marker of a further request, see [`Load::reserve`].
const LEFT_FOR_MARKER: u64 = 1;

/// State of a connection, shared by its reader, its writer and its users.
#[derive(Debug)]
pub struct Load {
    /// Bytes that were requested and have not arrived.
    outstanding: AtomicU64,
    /// Bytes that the lane is expected to carry per RTT.
    allowance: AtomicU64,
    /// Bytes that have arrived.
    arrived: AtomicU64,
    /// When the last response ended; at first, when the connection was opened.
    idle_since: Mutex<Instant>,
    ended: AtomicBool,
    is_abandoned: AtomicBool,
    abandoned: Notify,
    /// Whether the server has sent any response.
    has_response: AtomicBool,
    /// Whether a response has begun and not ended.
    is_receiving: AtomicBool,
    /// Number of requests so far, including reserved markers.
    requests: AtomicU64,
    /// The number of requests after which the server closes the connection, if it has announced that on it.
    most_requests: AtomicU64,
    /// What is known of the server's other connections.
    order: Arc<Order>,
    /// Markers ([`Marker`](super::order::Marker)) without a response so far.
    markers: AtomicU64,
    marker_response: Notify,
}

impl Load {
    /// A connection on which nothing has been requested.
    pub fn new(order: Arc<Order>) -> Self {
        Self {
            outstanding: AtomicU64::new(0),
            allowance: AtomicU64::new(FIRST_ALLOWANCE),
            arrived: AtomicU64::new(0),
            idle_since: Mutex::new(Instant::now()),
            ended: AtomicBool::new(false),
            is_abandoned: AtomicBool::new(false),
            abandoned: Notify::new(),
            has_response: AtomicBool::new(false),
            is_receiving: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            most_requests: AtomicU64::new(u64::MAX),
            order,
            markers: AtomicU64::new(0),
            marker_response: Notify::new(),
        }
    }

    /// Outstanding bytes, in thousandths of what the lane is expected to carry per RTT.
    pub fn load(&self) -> u64 {
        self.outstanding() * 1000 / self.allowance.load(Ordering::Relaxed)
    }

    /// Bytes that were requested and have not arrived.
    pub fn outstanding(&self) -> u64 {
        self.outstanding.load(Ordering::Relaxed)
    }

    /// The same, if a response has begun to arrive.
    pub fn receiving(&self) -> u64 {
        if self.is_receiving.load(Ordering::Relaxed) { self.outstanding() } else { 0 }
    }

    /// How long nothing has been outstanding.
    pub fn idle_for(&self) -> Duration {
        let since = *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
        if self.outstanding() == 0 { since.elapsed() } else { Duration::ZERO }
    }

    /// Bytes of bodies that have arrived.
    pub fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }

    /// Counts a request for `expected` bytes.
    pub fn on_request(&self, expected: u64) {
        self.outstanding.fetch_add(expected, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a marker before it is sent, so that the server's limit on requests leaves room for it.
    pub fn reserve(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a marker that was sent, instead of those reserved for the `requests` requests before it.
    pub fn marker_sent(&self, expected: u64, requests: u64) {
        self.on_request(expected);
        self.requests.fetch_sub(requests, Ordering::Relaxed);
        self.markers.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts outstanding bytes that have arrived, or are not expected any more.
    pub fn forget(&self, bytes: u64) {
        self.outstanding.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Response `number` has begun. The server accepts `more` requests after it, if it has announced that.
    pub fn on_response(&self, number: u64, more: Option<u64>) {
        self.has_response.store(true, Ordering::Relaxed);
        self.is_receiving.store(true, Ordering::Relaxed);
        if let Some(more) = more {
            let most = number.saturating_add(more);
            self.most_requests.store(most, Ordering::Relaxed);
            // A connection that ends now implies nothing about others.
            if more > 0 {
                self.order.on_announced(most);
            }
        }
    }

    /// Whether the server has sent any response. A server with too many connections closes new ones without one.
    pub fn has_responded(&self) -> bool {
        self.has_response.load(Ordering::Relaxed)
    }

    /// Makes this connection accept no more requests.
    pub fn retire(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// The response to the oldest pending marker has arrived.
    pub fn on_marker_response(&self) {
        self.markers.fetch_sub(1, Ordering::Relaxed);
        self.marker_response.notify_one();
    }

    /// Whether a marker is pending: its response has not arrived.
    pub fn has_marker(&self) -> bool {
        self.markers.load(Ordering::Relaxed) > 0
    }

    /// Waits until no marker is pending.
    pub async fn no_marker_pending(&self) {
        while self.has_marker() {
            self.marker_response.notified().await;
        }
    }

    /// Whether one of the two sides has closed the connection, or will.
    pub fn is_closed(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Whether the connection accepts no more requests.
    pub fn is_ended(&self) -> bool {
        self.is_closed()
            || self.requests.load(Ordering::Relaxed).saturating_add(LEFT_FOR_MARKER)
                >= self.most_requests()
    }

    /// The number of requests that the server accepts on this connection: as announced on it, or else as on others.
    fn most_requests(&self) -> u64 {
        match self.most_requests.load(Ordering::Relaxed) {
            u64::MAX => self.order.most(),
            announced => announced,
        }
    }

    /// Closes the connection. Pending requests on it are lost.
    pub fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Relaxed);
        self.retire();
        self.abandoned.notify_one();
    }

    /// Whether this side has closed the connection by [`abandon`](Self::abandon).
    pub fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Relaxed)
    }

    /// Waits until [`abandon`](Self::abandon) is called.
    pub async fn abandoned(&self) {
        self.abandoned.notified().await;
    }
}

/// Bytes in flight. Dropping it subtracts those that have not arrived.
pub struct Outstanding<'a> {
    load: &'a Load,
    bytes: u64,
}

impl<'a> Outstanding<'a> {
    /// `bytes` in flight, which were added to `load` by [`Load::on_request`].
    pub const fn new(load: &'a Load, bytes: u64) -> Self {
        Self { load, bytes }
    }

    /// Some of them have arrived.
    pub fn arrived(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.load.forget(bytes);
    }
}

impl Drop for Outstanding<'_> {
    fn drop(&mut self) {
        self.load.forget(self.bytes);
        self.load.is_receiving.store(false, Ordering::Relaxed);
        let mut since = self.load.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = Instant::now();
    }
}

/// Measures what a connection carries.
pub struct Meter {
    pace: Pace,
    /// The most bytes that it has carried in an RTT.
    most: u64,
    began: Instant,
    rtt: Duration,
}

impl Meter {
    /// A meter for a connection with this RTT.
    pub fn new(rtt: Duration) -> Self {
        Self { pace: Pace::new(), most: 0, began: Instant::now(), rtt }
    }

    /// Counts bytes of a body that have arrived. Returns whether the lane can carry more than is outstanding on it.
    pub fn arrived(&mut self, load: &Load, bytes: u64) -> bool {
        load.arrived.fetch_add(bytes, Ordering::Relaxed);
        let shown_after = SHOWN_AFTER_AT_LEAST.max(self.rtt * SHOWN_AFTER);
        let has_shown = self.began.elapsed() > shown_after;
        self.carried(load, bytes, if has_shown { LEAST_ALLOWANCE } else { FIRST_ALLOWANCE });
        load.load() < ENOUGH
    }

    /// Counts bytes of a request's body that have reached the server.
    pub fn sent(&mut self, load: &Load, bytes: u64) {
        self.carried(load, bytes, FIRST_ALLOWANCE);
    }

    fn carried(&mut self, load: &Load, bytes: u64, least: u64) {
        self.most = self.most.max(self.pace.carry(bytes, self.rtt));
        let allowance = least.max(GROWTH * self.most);
        load.allowance.store(allowance, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Formerly, each new connection got too many requests before its first response, and the excess ones were lost.
    #[test]
    fn a_limit_that_was_announced_on_another_connection_counts() {
        let order = Arc::new(Order::default());
        let (first, second) = (Load::new(Arc::clone(&order)), Load::new(Arc::clone(&order)));
        first.on_request(1);
        first.on_response(1, Some(4));
        for _ in 0..3 {
            assert!(!second.is_ended());
            second.on_request(1);
        }
        second.on_request(1);
        assert!(second.is_ended());
        second.on_response(1, Some(99));
        assert!(!second.is_ended(), "its own limit takes precedence");
    }

    /// Otherwise no connection could ever be used, and new ones would be opened for ever.
    #[test]
    fn a_new_connection_is_never_ended_by_what_others_announced() {
        let order = Arc::new(Order::default());
        Load::new(Arc::clone(&order)).on_response(1, Some(0));
        assert!(!Load::new(Arc::clone(&order)).is_ended());
        Load::new(Arc::clone(&order)).on_response(9, Some(0));
        assert_eq!(order.most(), u64::MAX, "a connection that ends implies nothing about others");
    }

    /// Formerly, such a connection was counted as refused by the server, and fewer lanes were opened.
    #[test]
    fn a_connection_at_its_limit_is_not_closed() {
        let order = Arc::new(Order::default());
        let load = Load::new(Arc::clone(&order));
        order.on_announced(4);
        (0..3).for_each(|_| load.on_request(1));
        assert!(load.is_ended() && !load.is_closed());
        load.retire();
        assert!(load.is_closed());
    }
}
