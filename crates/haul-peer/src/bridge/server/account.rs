//! Counts a sharer's traffic against its daily quota and its rate.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use haul_net::network;

use super::super::room::epoch;
use crate::lock::lock;

/// Bytes may exceed the rate for this long.
const BURST: Duration = Duration::from_millis(100);

/// At this number of addresses, some without a sharer are forgotten: those without a client today or, if there are
/// none, the half of the others with the least traffic.
const ADDRESSES: usize = 4096;

/// Traffic of all sharers. Those behind one address (or /64 network) share a quota: a sharer has a new key on each
/// connection, so the bridge can recognize it by its address only.
#[derive(Debug)]
pub(super) struct Accounts {
    quota: Option<u64>,
    rate: Option<u64>,
    days: Mutex<HashMap<IpAddr, Arc<Mutex<Day>>>>,
}

#[derive(Debug, Default)]
struct Day {
    number: u64,
    bytes: u64,
}

impl Accounts {
    /// `quota` in bytes per day and address; `rate` in bytes per second and sharer.
    pub(super) fn new(quota: Option<u64>, rate: Option<u64>) -> Self {
        Self { quota, rate, days: Mutex::default() }
    }

    /// The meter of a new sharer.
    pub(super) fn meter(&self, from: SocketAddr) -> Meter {
        let quota = self.quota.map(|most| {
            let today = epoch(SystemTime::now());
            let mut days = lock(&self.days);
            if days.len() >= ADDRESSES {
                make_room(&mut days, today);
            }
            (most, Arc::clone(days.entry(network(from.ip())).or_default()))
        });
        let rate = self.rate.map(|rate| Mutex::new(Schedule { rate, next: Instant::now() }));
        Meter { quota, rate }
    }
}

/// Forgets addresses without a sharer.
fn make_room(days: &mut HashMap<IpAddr, Arc<Mutex<Day>>>, today: u64) {
    days.retain(|_, day| Arc::strong_count(day) > 1 || lock(day).number == today);
    if days.len() < ADDRESSES {
        return;
    }
    let without_sharer = days.iter().filter(|(_, day)| Arc::strong_count(day) == 1);
    let mut idle: Vec<_> =
        without_sharer.map(|(address, day)| (lock(day).bytes, *address)).collect();
    idle.sort_unstable();
    for (_, address) in &idle[..idle.len() / 2] {
        days.remove(address);
    }
}

/// Counts a sharer's traffic.
#[derive(Debug)]
pub(super) struct Meter {
    quota: Option<(u64, Arc<Mutex<Day>>)>,
    rate: Option<Mutex<Schedule>>,
}

/// When the next byte may be forwarded.
#[derive(Debug)]
struct Schedule {
    rate: u64,
    next: Instant,
}

impl Meter {
    /// Whether the quota is used up.
    pub(super) fn is_used_up(&self) -> bool {
        self.adds_up(0)
    }

    /// Counts forwarded bytes. Returns how long to wait before the next ones; `None` if the quota is used up.
    pub(super) fn count(&self, bytes: u64) -> Option<Duration> {
        if self.adds_up(bytes) {
            return None;
        }
        let Some(rate) = &self.rate else { return Some(Duration::ZERO) };
        Some(lock(rate).count(bytes, Instant::now()))
    }

    /// Counts `bytes` more. Returns whether the quota is used up.
    fn adds_up(&self, bytes: u64) -> bool {
        let Some((most, day)) = &self.quota else { return false };
        let today = epoch(SystemTime::now());
        let mut day = lock(day);
        if day.number != today {
            *day = Day { number: today, bytes: 0 };
        }
        day.bytes = day.bytes.saturating_add(bytes);
        day.bytes >= *most
    }
}

impl Schedule {
    fn count(&mut self, bytes: u64, now: Instant) -> Duration {
        let time = Duration::from_secs_f64(bytes as f64 / self.rate.max(1) as f64);
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        self.next = self.next.max(earliest) + time;
        self.next.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_quota_is_shared_by_the_sharers_of_an_address() {
        let accounts = Accounts::new(Some(100), None);
        let meter = accounts.meter(from("192.0.2.1:1"));
        assert_eq!(meter.count(60), Some(Duration::ZERO));
        assert!(!meter.is_used_up());
        let again = accounts.meter(from("192.0.2.1:2"));
        assert_eq!(again.count(50), None);
        assert!(meter.is_used_up());
        assert!(!accounts.meter(from("192.0.2.2:1")).is_used_up());
        assert_eq!(
            Accounts::new(None, None).meter(from("[::1]:1")).count(1 << 60),
            Some(Duration::ZERO)
        );
    }

    #[test]
    fn the_addresses_of_a_day_are_bounded() {
        let accounts = Accounts::new(Some(100), None);
        let network = |number: u16| format!("[2001:db8:0:{number:x}::1]:1");
        assert_eq!(accounts.meter(from(&network(0))).count(90), Some(Duration::ZERO));
        for number in 1..10_000 {
            assert!(!accounts.meter(from(&network(number))).is_used_up());
        }
        assert!(lock(&accounts.days).len() <= ADDRESSES);
        assert_eq!(accounts.meter(from(&network(0))).count(10), None, "the busiest remains");
    }

    #[test]
    fn an_idle_sharer_may_exceed_its_rate_for_100_ms_only() {
        let start = Instant::now();
        let mut schedule = Schedule { rate: 1000, next: start };
        assert_eq!(schedule.count(100, start), Duration::from_millis(100));
        let later = start + Duration::from_secs(10);
        assert_eq!(schedule.count(100, later), Duration::ZERO, "a burst of 100 ms");
        assert_eq!(schedule.count(500, later), Duration::from_millis(500));
    }
}
