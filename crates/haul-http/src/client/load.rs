//! What a connection carries, and how much has been requested on it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use haul_net::Pace;
use haul_net::pool::ENOUGH;
use tokio::sync::Notify;

/// What a new lane may be expected to carry in a round trip, and by how much more than it has carried.
const FIRST_ALLOWANCE: u64 = 256 << 10;
const GROWTH: u64 = 2;

/// The same for one that has had so many round trips to show what it carries.
const LEAST_ALLOWANCE: u64 = 32 << 10;
const SHOWN_AFTER: u32 = 8;
const SHOWN_AFTER_AT_LEAST: Duration = Duration::from_secs(1);

/// What the ends of a connection, and whoever has it, know of it.
#[derive(Debug)]
pub struct Load {
    /// Bytes that were asked for and have not arrived.
    outstanding: AtomicU64,
    /// Bytes that the lane may be expected to carry in a round trip.
    allowance: AtomicU64,
    /// Bytes that have arrived.
    arrived: AtomicU64,
    /// When the last that was asked for had arrived.
    idle_since: Mutex<Instant>,
    ended: AtomicBool,
    abandoned: Notify,
    /// Whether the server has sent any response.
    answered: AtomicBool,
    asked: AtomicU64,
    /// After how many requests the server ends the connection, if it says so.
    most_asked: AtomicU64,
}

impl Load {
    /// Nothing has been requested.
    pub fn new() -> Self {
        Self {
            outstanding: AtomicU64::new(0),
            allowance: AtomicU64::new(FIRST_ALLOWANCE),
            arrived: AtomicU64::new(0),
            idle_since: Mutex::new(Instant::now()),
            ended: AtomicBool::new(false),
            abandoned: Notify::new(),
            answered: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            most_asked: AtomicU64::new(u64::MAX),
        }
    }

    /// How busy the lane is, in thousandths of what it can carry in a round trip.
    pub fn load(&self) -> u64 {
        self.outstanding() * 1000 / self.allowance.load(Ordering::Relaxed)
    }

    /// Bytes that were asked for and have not arrived.
    pub fn outstanding(&self) -> u64 {
        self.outstanding.load(Ordering::Relaxed)
    }

    /// For how long nothing has been outstanding.
    pub fn idle_for(&self) -> Duration {
        let since = *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
        if self.outstanding() == 0 { since.elapsed() } else { Duration::ZERO }
    }

    /// Bytes of bodies that have arrived.
    pub fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }

    /// A request is made for so many bytes.
    pub fn asked(&self, expected: u64) {
        self.outstanding.fetch_add(expected, Ordering::Relaxed);
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// So many bytes that were asked for have come, or are not expected any more.
    pub fn forget(&self, bytes: u64) {
        self.outstanding.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Response `number` has begun, after which the server takes `more` requests, if it says so.
    pub fn answered(&self, number: u64, more: Option<u64>) {
        self.answered.store(true, Ordering::Relaxed);
        if let Some(more) = more {
            self.most_asked.store(number.saturating_add(more), Ordering::Relaxed);
        }
    }

    /// Whether anything has been answered. Servers that have too many connections close those that
    /// they have just accepted.
    pub fn has_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// No more requests are to be made.
    pub fn retire(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Whether no more requests can be made.
    pub fn is_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
            || self.asked.load(Ordering::Relaxed) >= self.most_asked.load(Ordering::Relaxed)
    }

    /// Ends the connection, whatever was requested on it: that is lost.
    pub fn abandon(&self) {
        self.retire();
        self.abandoned.notify_one();
    }

    /// Waits until the connection is to be ended.
    pub async fn abandoned(&self) {
        self.abandoned.notified().await;
    }
}

/// Bytes that are in flight, until they have arrived or nobody expects them any more.
pub struct Outstanding<'a> {
    load: &'a Load,
    bytes: u64,
}

impl<'a> Outstanding<'a> {
    /// So many bytes.
    pub const fn new(load: &'a Load, bytes: u64) -> Self {
        Self { load, bytes }
    }

    /// So many of them have arrived.
    pub fn arrived(&mut self, bytes: u64) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.load.forget(bytes);
    }
}

impl Drop for Outstanding<'_> {
    fn drop(&mut self) {
        self.load.forget(self.bytes);
        let mut since = self.load.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = Instant::now();
    }
}

/// Measures what a connection carries.
pub struct Meter {
    pace: Pace,
    /// The most that it carried in a round trip.
    most: u64,
    began: Instant,
    rtt: Duration,
}

impl Meter {
    /// Of a connection with this round trip.
    pub fn new(rtt: Duration) -> Self {
        Self { pace: Pace::new(), most: 0, began: Instant::now(), rtt }
    }

    /// So many bytes of a body have come. Whether the lane can carry more than it is asked for.
    pub fn arrived(&mut self, load: &Load, bytes: u64) -> bool {
        load.arrived.fetch_add(bytes, Ordering::Relaxed);
        let shown_after = SHOWN_AFTER_AT_LEAST.max(self.rtt * SHOWN_AFTER);
        let has_shown = self.began.elapsed() > shown_after;
        self.carried(load, bytes, if has_shown { LEAST_ALLOWANCE } else { FIRST_ALLOWANCE });
        load.load() < ENOUGH
    }

    /// So many bytes of a request's body are known to have reached the server.
    pub fn sent(&mut self, load: &Load, bytes: u64) {
        self.carried(load, bytes, FIRST_ALLOWANCE);
    }

    fn carried(&mut self, load: &Load, bytes: u64, least: u64) {
        self.most = self.most.max(self.pace.carry(bytes, self.rtt));
        let allowance = least.max(GROWTH * self.most);
        load.allowance.store(allowance, Ordering::Relaxed);
    }
}
