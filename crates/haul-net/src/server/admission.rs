//! Admission of a server's connections. Who has not signed in cannot take all of them, and from one
//! address not even those that are for unauthenticated.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many connections there may be at once.
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

/// The place of a connection, until it is dropped.
#[derive(Debug)]
pub struct Admitted {
    admission: Arc<Admission>,
    address: IpAddr,
    is_unauthenticated: AtomicBool,
}

impl Admission {
    /// That many in all, and of those so many for who has not signed in. One address may have three
    /// quarters of these; this machine's own may have all, as many users of a proxy come from there.
    pub fn new(all: usize, unauthenticated: usize) -> Arc<Self> {
        let unauthenticated = unauthenticated.min(all);
        let of_one_address = unauthenticated - unauthenticated / 4;
        Arc::new(Self { all, unauthenticated, of_one_address, taken: Mutex::default() })
    }

    /// A place for a stranger, if there is one.
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
    /// Its connection has signed in: it is no stranger any longer.
    pub fn is_known(&self) {
        if self.is_unauthenticated.swap(false, Ordering::Relaxed) {
            self.forget(&mut self.admission.taken());
        }
    }

    /// Counts it among the unauthenticated no longer.
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

/// What somebody has who has one address: of version 6 it is mostly a network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
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
    fn strangers_leave_room_for_who_has_signed_in_and_one_address_for_others() {
        let admission = Admission::new(12, 8);
        let enter = |address| admission.enter(from(address));
        let mut first: Vec<_> = (0..6).map(|_| enter("192.0.2.1").unwrap()).collect();
        assert!(enter("192.0.2.1").is_none());
        assert!(enter("::ffff:192.0.2.1").is_none(), "it is the same address");
        let second = [enter("192.0.2.2").unwrap(), enter("192.0.2.3").unwrap()];
        assert!(enter("192.0.2.4").is_none(), "all admission of unauthenticated are taken");
        first[0].is_known();
        first[0].is_known();
        let third = enter("192.0.2.4").unwrap();
        drop(first.pop());
        let fourth = enter("192.0.2.1").unwrap();
        drop((first, second, third, fourth));
        let taken = admission.taken();
        assert_eq!((taken.all, taken.unauthenticated, taken.by_address.len()), (0, 0, 0));
    }

    #[test]
    fn no_more_than_all_enter_whoever_they_are() {
        let admission = Admission::new(3, 3);
        let entered: Vec<_> = (0..3).map(|_| admission.enter(from("127.0.0.1")).unwrap()).collect();
        entered.iter().for_each(Admitted::is_known);
        assert!(admission.enter(from("127.0.0.1")).is_none());
    }

    #[test]
    fn a_network_of_version_6_is_one_address() {
        assert_eq!(network(from("2001:db8::1")), network(from("2001:db8::2:3:4:5")));
        assert_ne!(network(from("2001:db8::1")), network(from("2001:db8:0:1::1")));
        assert_eq!(network(from("::1")), from("::1"));
    }
}
