//! Limits on the connections of a server. Where clients log in, those that have not cannot occupy all connections; from
//! one address other than loopback, they cannot even occupy all connections for unauthenticated clients.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The limits, and the connections counted against them.
#[derive(Debug)]
pub struct Admission {
    all: usize,
    unauthenticated: usize,
    of_one_address: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    unauthenticated: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// Counts a connection until it is dropped.
#[derive(Debug)]
pub struct Admitted {
    admission: Arc<Admission>,
    address: IpAddr,
    is_unauthenticated: AtomicBool,
}

impl Admission {
    /// Allows `all` connections, of which `unauthenticated` may be unauthenticated. One address may have three quarters
    /// of the unauthenticated ones. A loopback address may have all: the users of a local proxy connect from it.
    pub fn new(all: usize, unauthenticated: usize) -> Arc<Self> {
        let unauthenticated = unauthenticated.min(all);
        let of_one_address = unauthenticated - unauthenticated / 4;
        Arc::new(Self { all, unauthenticated, of_one_address, taken: Mutex::default() })
    }

    /// Admits an unauthenticated connection, or returns `None` if a limit is reached.
    pub fn enter(self: &Arc<Self>, from: IpAddr) -> Option<Admitted> {
        let address = network(from);
        let mut taken = self.taken();
        let of_address = taken.by_address.get(&address).copied().unwrap_or(0);
        let most = if address.is_loopback() { self.unauthenticated } else { self.of_one_address };
        if taken.all >= self.all
            || taken.unauthenticated >= self.unauthenticated
            || of_address >= most
        {
            return None;
        }
        taken.all += 1;
        taken.unauthenticated += 1;
        *taken.by_address.entry(address).or_default() += 1;
        Some(Admitted {
            admission: Arc::clone(self),
            address,
            is_unauthenticated: AtomicBool::new(true),
        })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admitted {
    /// Records that the client has authenticated.
    pub fn mark_authenticated(&self) {
        if self.is_unauthenticated.swap(false, Ordering::Relaxed) {
            self.forget(&mut self.admission.taken());
        }
    }

    /// Stops counting the connection as unauthenticated.
    fn forget(&self, taken: &mut Taken) {
        taken.unauthenticated -= 1;
        if let Some(count) = taken.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                taken.by_address.remove(&self.address);
            }
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut taken = self.admission.taken();
        taken.all -= 1;
        if *self.is_unauthenticated.get_mut() {
            self.forget(&mut taken);
        }
    }
}

/// The address under which a client is counted. For IPv6 this is its /64 network, as clients usually have a whole one.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(address: &str) -> IpAddr {
        address.parse().unwrap()
    }

    #[test]
    fn unauthenticated_connections_are_limited_in_total_and_per_address() {
        let admission = Admission::new(12, 8);
        let enter = |address| admission.enter(from(address));
        let mut first: Vec<_> = (0..6).map(|_| enter("192.0.2.1").unwrap()).collect();
        assert!(enter("192.0.2.1").is_none());
        assert!(enter("::ffff:192.0.2.1").is_none(), "it is the same address");
        let second = [enter("192.0.2.2").unwrap(), enter("192.0.2.3").unwrap()];
        assert!(
            enter("192.0.2.4").is_none(),
            "the limit of unauthenticated connections is reached"
        );
        first[0].mark_authenticated();
        first[0].mark_authenticated();
        let third = enter("192.0.2.4").unwrap();
        drop(first.pop());
        let fourth = enter("192.0.2.1").unwrap();
        drop((first, second, third, fourth));
        let taken = admission.taken();
        assert_eq!((taken.all, taken.unauthenticated, taken.by_address.len()), (0, 0, 0));
    }

    #[test]
    fn the_total_also_limits_authenticated_connections() {
        let admission = Admission::new(3, 3);
        let entered: Vec<_> = (0..3).map(|_| admission.enter(from("127.0.0.1")).unwrap()).collect();
        entered.iter().for_each(Admitted::mark_authenticated);
        assert!(admission.enter(from("127.0.0.1")).is_none());
    }

    #[test]
    fn addresses_of_an_ipv6_network_count_as_one() {
        assert_eq!(network(from("2001:db8::1")), network(from("2001:db8::2:3:4:5")));
        assert_ne!(network(from("2001:db8::1")), network(from("2001:db8:0:1::1")));
        assert_eq!(network(from("::1")), from("::1"));
    }
}
