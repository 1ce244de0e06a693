//! How often an address has said a wrong password lately. Who does so too often is not listened to for
//! a while.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Wrong passwords of an address in [`WINDOW`] after which nothing is compared any longer.
const ATTEMPTS: u32 = 20;
pub(super) const WINDOW: Duration = Duration::from_secs(60);

/// How long it takes to be refused.
pub(super) const REFUSAL: Duration = Duration::from_millis(500);

/// Addresses that are remembered. When there are more, those whose time is over are forgotten, or all.
const ADDRESSES: usize = 4096;

/// Failures by address.
#[derive(Debug, Default)]
pub(super) struct Failures {
    of: Mutex<HashMap<IpAddr, (u32, Instant)>>,
}

impl Failures {
    /// Whether an address has failed too often.
    pub(super) fn are_too_many(&self, address: IpAddr, now: Instant) -> bool {
        let of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        of.get(&network(address))
            .is_some_and(|(count, since)| *count >= ATTEMPTS && now.duration_since(*since) < WINDOW)
    }

    /// An address has failed.
    pub(super) fn add(&self, address: IpAddr, now: Instant) {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if of.len() >= ADDRESSES {
            of.retain(|_, (_, since)| now.duration_since(*since) < WINDOW);
            if of.len() >= ADDRESSES {
                of.clear();
            }
        }
        let (count, since) = of.entry(network(address)).or_insert((0, now));
        if now.duration_since(*since) >= WINDOW {
            (*count, *since) = (0, now);
        }
        *count += 1;
    }
}

/// Whoever has one address of IPv6 has all of its network.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_too_often_is_not_listened_to_for_a_while() {
        let failures = Failures::default();
        let now = Instant::now();
        let (one, neighbour) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        for _ in 0..ATTEMPTS {
            assert!(!failures.are_too_many(one, now));
            failures.add(one, now);
        }
        assert!(failures.are_too_many(neighbour, now));
        assert!(!failures.are_too_many("127.0.0.1".parse().unwrap(), now));
        let later = now + WINDOW;
        assert!(!failures.are_too_many(one, later));
        failures.add(one, later);
        assert!(!failures.are_too_many(one, later));
    }
}
