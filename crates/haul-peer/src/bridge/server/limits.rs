//! Limits of what a bridge holds for its clients, and of how often they may join.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use haul_net::network;

use crate::lock::lock;

/// Limits of a bridge. The defaults suit a small server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeLimits {
    /// Connections of all kinds.
    pub connections: usize,
    /// Connections in a handshake, without a request, or without a counterpart.
    pub unpaired: usize,
    /// Data connections that are not announced yet.
    pub unclaimed: usize,
    /// The same from one address, or from one /64 network.
    pub unclaimed_of_address: usize,
    /// Data connections to one sharer, those without their counterpart included.
    pub connections_of_sharer: usize,
    /// The same from joiners at one address, or in one /64 network: one joiner cannot keep others from the sharer.
    pub connections_of_joiner: usize,
    /// Joins from one address (or /64 network) per minute, and at once.
    pub joins_per_minute: u32,
    /// The same for the numbers of spoken codes, which need no proof. They count as joins, too.
    pub codes_per_minute: u32,
    /// Time until the handshake is finished, and again until the first request.
    pub handshake: Duration,
    /// How long a data connection waits to be announced, and again for its counterpart.
    pub claim: Duration,
    /// A signalling connection on which nothing was received for this long ends.
    pub silence: Duration,
    /// A pair in which no byte has moved for this long ends.
    pub idle: Duration,
}

impl Default for BridgeLimits {
    fn default() -> Self {
        Self {
            connections: 65_536,
            unpaired: 4096,
            unclaimed: 2048,
            unclaimed_of_address: 512,
            connections_of_sharer: 512,
            connections_of_joiner: 384,
            joins_per_minute: 120,
            codes_per_minute: 10,
            handshake: Duration::from_secs(10),
            claim: Duration::from_secs(10),
            silence: Duration::from_secs(90),
            idle: Duration::from_secs(15 * 60),
        }
    }
}

/// Limits joins per address, by a token bucket that holds the joins of a minute.
#[derive(Debug)]
pub(super) struct JoinRate {
    per_minute: f64,
    buckets: Mutex<HashMap<IpAddr, Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    joins: f64,
    at: Instant,
}

/// After this time, every bucket is full again.
const MINUTE: Duration = Duration::from_secs(60);

/// At the first number of buckets, full ones are removed; at the second, no more are added.
const ADDRESSES: (usize, usize) = (4096, 65_536);

impl JoinRate {
    pub(super) fn new(per_minute: u32) -> Self {
        Self { per_minute: f64::from(per_minute), buckets: Mutex::default() }
    }

    /// Counts a join; `false` if there were too many from its address, or joins from too many addresses.
    pub(super) fn allows(&self, from: SocketAddr, now: Instant) -> bool {
        let mut buckets = lock(&self.buckets);
        if buckets.len() >= ADDRESSES.0 {
            buckets.retain(|_, bucket| now.saturating_duration_since(bucket.at) < MINUTE);
        }
        let address = network(from.ip());
        if buckets.len() >= ADDRESSES.1 && !buckets.contains_key(&address) {
            return false;
        }
        let full = Bucket { joins: self.per_minute, at: now };
        let bucket = buckets.entry(address).or_insert(full);
        let elapsed = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.joins = (bucket.joins + elapsed * self.per_minute / 60.0).min(self.per_minute);
        bucket.at = now;
        let is_allowed = bucket.joins >= 1.0;
        if is_allowed {
            bucket.joins -= 1.0;
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_are_limited_per_address_and_recover_with_time() {
        let rate = JoinRate::new(6);
        let start = Instant::now();
        let from = |text: &str| -> SocketAddr { text.parse().unwrap() };
        let allowed = |address, seconds: u64, times: usize| {
            let now = start + Duration::from_secs(seconds);
            (0..times).filter(|_| rate.allows(address, now)).count()
        };
        assert_eq!(allowed(from("192.0.2.1:1"), 0, 10), 6);
        assert_eq!(allowed(from("192.0.2.1:2"), 1, 1), 0, "the port does not matter");
        assert_eq!(allowed(from("192.0.2.2:1"), 1, 1), 1);
        assert_eq!(allowed(from("192.0.2.1:1"), 21, 10), 2);
        assert_eq!(allowed(from("192.0.2.1:1"), 1000, 10), 6);
        assert_eq!(allowed(from("[2001:db8::1]:1"), 0, 6), 6);
        assert_eq!(allowed(from("[2001:db8::2]:1"), 0, 1), 0, "they are in one network");
    }
}
