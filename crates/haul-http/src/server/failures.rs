//! Counts recent wrong passwords by address. After too many, an address is refused for a while.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// After this many wrong passwords from an address within [`WINDOW`], its passwords are no longer checked.
const ATTEMPTS: u32 = 20;
pub(super) const WINDOW: Duration = Duration::from_secs(60);

/// How long the response to a wrong password is delayed.
pub(super) const REFUSAL: Duration = Duration::from_millis(500);

/// The most addresses that are remembered. If there are more, expired ones are forgotten, or all.
const ADDRESSES: usize = 4096;

/// Failures by address.
#[derive(Debug, Default)]
pub(super) struct Failures {
    of: Mutex<HashMap<IpAddr, (u32, Instant)>>,
}

impl Failures {
    /// Whether an address has sent too many wrong passwords.
    pub(super) fn are_too_many(&self, address: IpAddr, now: Instant) -> bool {
        let of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        of.get(&network(address))
            .is_some_and(|(count, since)| *count >= ATTEMPTS && now.duration_since(*since) < WINDOW)
    }

    /// Counts a wrong password from an address.
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

/// An IPv4 address, or the /64 of an IPv6 address: a client has all addresses of its network.
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
    fn an_address_is_refused_for_a_while_after_too_many_failures() {
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
